# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-20: a Ready node that shows no GPU any more takes no new pods, and goes when they stay away."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.model import Plan
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plans.view import summary
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.gpu_health import GPU_LOST

from .build import at, claim, decide, instance, node, of, one, pod, pool, seen, specs

BARE = node(allocatable={})
MARKED = dataclasses.replace(BARE, taints=(GPU_LOST,))
FACTS: dict[str, t.Any] = {"claims": (claim(),), "instances": (instance(),), "pods": (pod(),)}


def look(moment: str, before: Plan | None = None, *, found: t.Any = BARE, **facts: t.Any) -> Plan:
    wanted = facts.pop("wanted", specs())
    findings = {} if before is None else before.findings
    return decide(seen(at(moment), **{**FACTS, "nodes": (found,), "findings": findings, **facts}), wanted)


def test_L20_gpus_that_are_missing_in_two_runs_a_minute_apart_close_the_node() -> None:
    first = look("12:00")
    assert not of(first, "taint", "destroy") and any(action.reason == "GpuLost" for action in of(first, "report"))
    assert not of(look("12:00:59", first), "taint")
    action = one(look("12:01", first), "taint")
    assert (action.value, action.target, action.uid) == ("tgp.io/gpu-lost:NoSchedule", BARE.name, BARE.uid)
    told = summary(dataclasses.replace(look("12:01", first), actions=(action,)), seen())
    assert (told["changes"], told["actions"]["taint"]) == (1, 1), "what is written is told"
    assert not of(look("12:05", first, found=MARKED), "taint"), "it is closed already"


def test_L20_gpus_that_stay_away_for_twenty_minutes_end_the_machine() -> None:
    first = look("12:00")
    assert not of(look("12:19:59", first, found=MARKED), "destroy")
    gone = one(look("12:20", first, found=MARKED), "destroy")
    assert gone.reason == "Unhealthy" and "its GPUs are gone, since 2026-08-20T12:00:00Z" in gone.detail


def test_L20_gpus_that_come_back_open_the_node_and_forget_the_loss() -> None:
    first = look("12:00")
    back = look("12:10", first, found=dataclasses.replace(MARKED, allocatable={"nvidia.com/gpu": 1}))
    assert one(back, "untaint").value == "tgp.io/gpu-lost" and not back.findings
    again = look("12:21", back, found=BARE)
    assert not of(again, "taint", "destroy"), "a new loss begins anew"


def test_L20_one_gpu_of_two_is_another_matter_than_none() -> None:
    pair = claim(expected_gpus=2)
    for amount, finding in ((1, "GpusMissing"), (0, "GpuLost")):
        found = look("12:00", claims=(pair,), found=node(allocatable={"nvidia.com/gpu": amount}))
        assert [key.partition("|")[0] for key in found.findings] == [finding]


def test_L20_who_never_had_gpus_loses_none() -> None:
    for change in ({"claims": (claim(expected_gpus=0),)}, {"wanted": specs(pool(gpu_wait="none"))}):
        first = look("12:00", **change)
        assert not first.findings and not of(look("12:30", first, **change), "taint", "destroy")


def test_L20_a_pool_has_its_own_patience() -> None:
    short = specs(pool(unhealthy_timeout=120))
    first = look("12:00", wanted=short)
    assert not of(look("12:01:59", first, found=MARKED, wanted=short), "destroy")
    assert one(look("12:02", first, found=MARKED, wanted=short), "destroy").reason == "Unhealthy"
    sick = node(ready=False, ready_since=at("12:00"))
    assert not of(look("12:01:59", found=sick, wanted=short), "destroy")
    assert one(look("12:02", found=sick, wanted=short), "destroy").reason == "Unhealthy"


def test_L20_many_at_once_are_not_believed() -> None:
    names = [f"tgp-a1b2c3d4-p-0000{place}" for place in range(3)]
    facts = {"claims": tuple(map(claim, names)), "instances": tuple(map(instance, names)), "pods": ()}
    nodes = tuple(node(name, allocatable={} if place < 2 else {"nvidia.com/gpu": 1}) for place, name in enumerate(names))
    first = decide(seen(at("12:00"), nodes=nodes, **facts))
    later = decide(seen(at("12:20"), nodes=nodes, findings=first.findings, **facts))
    assert not of(later, "destroy") and "guard_refused: 2 of 3" in later.problems[0]
    assert len(of(later, "taint")) == 2, "new pods are kept away all the same"
