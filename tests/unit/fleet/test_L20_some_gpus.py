# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-20a: a node that shows some of its GPUs only."""

from __future__ import annotations

import typing as t
from datetime import datetime

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.kube import resource_claims
from ansible_collections.tgp.gpu.plugins.module_utils.model import GpuLoss, Phase, Placement, Plan, Spread
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.gpu_health import GPU_LOST
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.registration import not_initialized

from .build import at, claim, decide, instance, node, of, offer, pod, pool, seen, specs
from .pods import GPU
from .test_L17_autoscale import asks, launched, machine, scale, world

KEY = "GpusMissing|lambda|tgp-a1b2c3d4-p-00001"


def run(found: int, rented: int, now: datetime = at("12:00"), since: datetime | None = None, **facts: t.Any) -> Plan:
    asked = facts.pop("pool", pool())
    mode, losses = facts.pop("mode", "reap"), facts.pop("losses", ())
    mine = claim(offer=offer(gpu_count=rented), expected_gpus=facts.pop("expected", rented), gpu_losses=losses)
    shown = facts.pop("node", None) or node(
        allocatable={"nvidia.com/gpu": found, **facts.pop("beside", {})}, taints=facts.pop("taints", ())
    )
    usual: dict[str, t.Any] = {"pods": (pod(requests={"nvidia.com/gpu": 1}),), "findings": {KEY: since} if since else {}}
    return decide(seen(now, claims=(mine,), nodes=(shown,), instances=(instance(),), **{**usual, **facts}), specs(asked), mode)


@pytest.mark.parametrize(("found", "rented"), [(7, 8), (1, 2)])
def test_L20_some_gpus_missing_close_the_node_after_a_minute_and_two_runs(found: int, rented: int) -> None:
    first = run(found, rented)
    assert not of(first, "taint") and not first.notices and KEY in first.findings
    assert f"shows {found} of its {rented} GPUs" in of(first, "report")[0].detail
    assert not of(run(found, rented, at("12:00:59"), at("12:00")), "taint")
    second = run(found, rented, at("12:01"), at("12:00"))
    assert [one.value for one in of(second, "taint")] == [str(GPU_LOST)] and [one.kind for one in second.notices] == [
        "gpus_missing"
    ]
    assert not of(second, "destroy")
    third = run(found, rented, at("15:00"), at("12:00"), taints=(GPU_LOST,))
    assert not of(third, "taint", "untaint", "destroy"), "nothing new is written, and it stays"
    back = run(rented, rented, at("15:01"), at("12:00"), taints=(GPU_LOST,))
    assert len(of(back, "untaint")) == 1 and KEY not in back.findings and not back.notices


def test_L20_some_gpus_missing_are_replaced_only_by_policy() -> None:
    replace = pool(gpu_loss_policy="Replace")
    assert not of(run(7, 8, at("12:19:59"), at("12:00"), pool=replace), "destroy")
    (gone,) = of(run(7, 8, at("12:20"), at("12:00"), pool=replace), "destroy")
    assert gone.reason == "Replaced" and "7 of its 8 GPUs" in gone.detail
    sooner = pool(gpu_loss_policy="Replace", unhealthy_timeout=300)
    assert of(run(7, 8, at("12:05"), at("12:00"), pool=sooner), "destroy")
    assert not of(run(7, 8, at("15:00"), at("12:00")), "destroy"), "Keep is the default"


def test_L20_a_pod_that_must_not_move_keeps_a_node_with_some_gpus() -> None:
    held = (pod(requests={"nvidia.com/gpu": 1}, placement=Placement(spread=(Spread("kubernetes.io/hostname", 1),))),)
    found = run(7, 8, at("12:20"), at("12:00"), pool=pool(gpu_loss_policy="Replace"), pods=held)
    assert not of(found, "destroy") and "hard topology spread" in str([one.detail for one in of(found, "report")])


@pytest.mark.parametrize(
    "facts",
    [
        {"beside": {"nvidia.com/mig-1g.10gb": 7}},
        {"pods": (pod(placement=Placement(claims=True)),)},
        {"pods": None},
    ],
)
def test_L20_gpus_under_another_name_are_not_missing(facts: dict[str, t.Any]) -> None:
    found = run(7, 8, at("12:01"), at("12:00"), **facts)
    assert not of(found, "taint") and not found.notices and found.findings[KEY] == at("12:00"), "unknown neither begins nor ends it"


def test_L20_counted_as_at_the_join() -> None:
    assert not of(run(1, 8, at("12:01"), at("12:00"), pool=pool(gpu_wait="any")), "taint")
    assert not of(run(1, 8, at("12:01"), at("12:00"), pool=pool(gpu_wait="none")), "taint")
    assert of(run(12, 4, at("12:01"), at("12:00"), expected=16), "taint"), "12 of 16 slices"
    assert not of(run(16, 4, at("12:01"), at("12:00"), expected=16), "taint")


def kept(found: Plan) -> tuple[GpuLoss, ...] | None:
    """The times that the claim keeps; it is written for what else this run saw first."""
    return next((one.claim.gpu_losses for one in of(found, "update") if one.claim is not None), None)


def test_L20_since_when_gpus_are_missing_is_kept_for_the_ledger() -> None:
    """From the second run on, since the first sight; and until they are back. What is unknown changes nothing."""
    assert not kept(run(7, 8))
    since = (GpuLoss(at("12:00"), 1, 8),)
    assert kept(run(7, 8, at("12:05"), at("12:00"))) == since
    lacking: dict[str, t.Any] = {"losses": since, "taints": (GPU_LOST,)}
    assert kept(run(7, 8, at("12:30"), at("12:00"), **lacking)) == since
    assert kept(run(7, 8, at("12:30"), at("12:00"), **lacking, beside={"nvidia.com/mig-1g.10gb": 7})) == since
    assert kept(run(8, 8, at("12:40"), at("12:00"), **lacking)) == (GpuLoss(at("12:00"), 1, 8, at("12:40")),)


def test_L20_provision_tells_of_missing_gpus() -> None:
    found = run(7, 8, mode="provision")
    assert found.warnings == (
        "tgp-a1b2c3d4-p-00001: its Node is Ready and shows 7 of its 8 GPUs; it is billed in full, and reap.yml sees to it",
    )
    assert (
        not run(8, 8, mode="provision").warnings and not run(7, 8, mode="provision", beside={"nvidia.com/mig-1g.10gb": 7}).warnings
    )


def test_L20a_E_seven_of_eight_1_a_pod_of_seven_fits_and_one_of_eight_gets_a_new_node() -> None:
    eight = offer("3.20", id="eight", gpu_count=8, instance_type="gpu_8x")
    there = machine(1, 8, allocatable={GPU: 7})
    assert launched(scale(world(asks(gpus=7), machines=[there], offers=(eight,)))) == []
    assert launched(scale(world(asks(gpus=8), machines=[there], offers=(eight,)))) == [8]
    never_whole = pool(gpu_wait="any")
    assert launched(scale(world(asks(gpus=8), machines=[there], offers=(eight,)), never_whole)) == [], "a new one may show as few"


def test_L20a_E_seven_of_eight_2_a_node_that_joins_with_seven_is_not_complete() -> None:
    mine = claim(phase=Phase.JOINING, offer=offer(gpu_count=8))
    assert "7 of 8 nvidia.com/gpu" in not_initialized(mine, node(allocatable={GPU: 7}), pool())
    assert not any("nvidia.com/gpu" in one for one in not_initialized(mine, node(allocatable={GPU: 7}), pool(gpu_wait="any")))


@pytest.mark.parametrize(("effect", "left"), [("None", 8), ("NoSchedule", 7), ("NoExecute", 7)])
def test_L38_E_seven_of_eight_5_a_taint_without_effect_takes_nothing_away(effect: str, left: int) -> None:
    """XID 31 is a fault of a program: the driver reports it, and keeps nothing off."""
    taints = [{"key": "gpu.nvidia.com/xid", "value": "31", "effect": effect}]
    eight = [{"name": f"gpu-{number}", "taints": taints if number == 3 else []} for number in range(8)]
    assert sum(not resource_claims._device(one, "gpu.nvidia.com").tainted for one in eight) == left
