# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-3 and the part of L-7 it needs: what keeps a node busy, since when it is idle, when it may go."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Claim, CloudView, Node, Plan, Pod
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.model.labels import (
    HOLD_UNTIL_ANNOTATION,
    IDLE_SINCE_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.bill import cost
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import ledger_line
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption import do_not_disrupt, emptiness, idleness
from ansible_collections.tgp.gpu.plugins.module_utils.units.values import print_money

from .build import NOON, at, claim, decide, instance, node, of, one, pod, pool, seen, specs

S = Settings()
GPU = {"nvidia.com/gpu": 1}


def busy(made: Pod, mode: str = "workload", now: datetime = NOON) -> bool:
    return emptiness.counts(made, mode, S, now)


COREDNS = pod("coredns", namespace="kube-system", owner_kind="ReplicaSet", owner_api="apps/v1")
WEB = pod("web", owner_kind="ReplicaSet", owner_api="apps/v1")
SYSTEM_GPU = pod("probe", namespace="kube-system", requests=GPU)


@pytest.mark.parametrize("waiting", ["ContainerCreating", "ErrImagePull", "ImagePullBackOff"])
@pytest.mark.parametrize("signal", ["pods", "both", "utilization"])
def test_B14_a_bound_pod_that_pulls_its_image_keeps_its_node_busy(waiting: str, signal: str) -> None:
    """However long it takes, and whatever the GPUs show: it does not use them yet."""
    pulls = pod("train", "Pending", node="tgp-a1b2c3d4-p-00001", requests=GPU, waiting=waiting, created=at("08:00"))
    there = node("tgp-a1b2c3d4-p-00001", annotations={IDLE_SINCE_ANNOTATION: "2026-08-20T08:00:00Z"})
    idle = emptiness.node_idle(claim(), there, [pulls], pool(idle_signal=signal), S, NOON)
    assert idle.busy is True and not idle.eligible and idle.value is None


@pytest.mark.parametrize(
    ("made", "workload", "gpu", "everything"),
    [
        (COREDNS, False, False, True),
        (WEB, True, False, True),
        (SYSTEM_GPU, True, True, True),
        (pod(requests=GPU), True, True, True),
    ],
)
def test_L03_modes(made: Pod, workload: bool, gpu: bool, everything: bool) -> None:
    assert [busy(made, mode) for mode in emptiness.MODES] == [workload, gpu, everything]


@pytest.mark.parametrize(
    "made",
    [
        pod(phase="Succeeded", requests=GPU),
        pod(phase="Failed", requests=GPU),
        pod(owner_kind="DaemonSet", owner_api="apps/v1", requests=GPU),
        pod(owner_kind="Node", owner_api="v1", requests=GPU),
        pod(mirror=True, requests=GPU),
        pod(requests=GPU, annotations={"cluster.x-k8s.io/drain": "skip"}),
    ],
)
@pytest.mark.parametrize("mode", emptiness.MODES)
def test_L03_pods_that_never_count(made: Pod, mode: str) -> None:
    assert not busy(made, mode)


def test_L03_a_daemonset_of_another_api_group_counts() -> None:
    assert busy(pod(owner_kind="DaemonSet", owner_api="example.com/v1"))


def test_L03_terminating_pods_count_for_a_minute() -> None:
    going = pod(deletion=at("12:30:00"))
    assert busy(going, now=at("12:30:59")) and busy(going, now=at("12:31:00"))
    assert not busy(going, now=at("12:31:01"))


@pytest.mark.parametrize("name", ["nvidia.com/mig-1g.5gb", "nvidia.com/gpu.shared", "amd.com/gpu", "tgp.io/gpu"])
def test_L03_shared_and_other_gpus_are_gpus(name: str) -> None:
    assert busy(pod(namespace="kube-system", requests={name: 1}), "gpu")
    assert not busy(pod(namespace="kube-system", requests={name: 0}), "gpu")


class Machine:
    """A machine over several runs: what a plan decides is applied to it."""

    def __init__(self, **facts: t.Any) -> None:
        self.claim: Claim = claim(initialized=at("12:00"), **facts)
        self.node: Node = node()

    def run(self, moment: str, *pods: Pod, **settings: t.Any) -> Plan:
        found = decide(
            seen(at(moment), claims=(self.claim,), nodes=(self.node,), pods=pods, instances=(instance(),)),
            specs(self.pool),
            **settings,
        )
        for action in of(found, "annotate"):
            notes = {key: value for key, value in self.node.annotations.items() if key != IDLE_SINCE_ANNOTATION}
            self.node = dataclasses.replace(
                self.node, annotations={**notes, **({IDLE_SINCE_ANNOTATION: action.value} if action.value else {})}
            )
        for action in of(found, "update"):
            self.claim = t.cast(Claim, action.claim)
        return found

    pool = pool()

    @property
    def since(self) -> str | None:
        return self.node.annotations.get(IDLE_SINCE_ANNOTATION, "").partition("T")[2] or None


PLUGIN = pod("plugin", owner_kind="DaemonSet", owner_api="apps/v1", namespace="gpu-operator")
STATIC = pod("kube-proxy", mirror=True, namespace="kube-system")


def test_L03_time_line_of_a_job() -> None:
    machine = Machine()
    job = pod(requests=GPU)
    ended = pod(phase="Succeeded", requests=GPU, finished=at("12:21:40"))
    assert not of(machine.run("12:05", PLUGIN, STATIC), "destroy") and machine.since == "12:05:00Z"
    assert not of(machine.run("12:10", PLUGIN, STATIC, job), "destroy") and machine.since is None
    assert not of(machine.run("12:25", PLUGIN, ended), "destroy") and machine.since == "12:25:00Z"
    kept = machine.run("12:30", PLUGIN, ended)
    assert not of(kept, "destroy", "annotate", "update") and machine.since == "12:25:00Z"
    assert not of(machine.run("12:34:59", PLUGIN, ended), "destroy")
    gone = one(machine.run("12:35", PLUGIN, ended), "destroy")
    assert gone.reason == "Empty" and gone.claim is not None and gone.claim.deletion is not None
    assert gone.claim.deletion.requested == at("12:35")


def test_L03_a_short_job_between_two_runs_moves_the_timer() -> None:
    machine = Machine()
    machine.run("12:01")
    ended = pod(phase="Succeeded", requests=GPU, finished=at("12:13"))
    machine.run("12:15", ended)
    assert machine.since == "12:13:00Z"
    assert not of(machine.run("12:20", ended), "destroy")
    assert of(machine.run("12:23", ended), "destroy")


@pytest.mark.parametrize(("finished", "since"), [("12:15:02", "12:15:00Z"), ("12:16", "12:15:00Z"), ("12:16:01", "12:05:00Z")])
def test_L03_a_job_that_ended_by_a_clock_ahead_of_ours_has_ended_now(finished: str, since: str) -> None:
    """A minute at most; a time that lies further ahead must not keep the node for ever."""
    machine = Machine()
    machine.run("12:05")
    ended = pod(phase="Succeeded", requests=GPU, finished=at(finished))
    early = pod("early", phase="Succeeded", requests=GPU, finished=at("12:04"))
    assert bool(of(machine.run("12:15", ended, early), "destroy")) is (since == "12:05:00Z") and machine.since == since
    assert not of(machine.run("12:15", ended, early), "annotate", "update")


def test_L03_a_job_that_would_not_have_counted_moves_nothing() -> None:
    machine = Machine()
    machine.run("12:01")
    machine.run("12:15", pod(phase="Succeeded", namespace="kube-system", finished=at("12:13")))
    assert machine.since == "12:01:00Z"


def test_L03_unreadable_pods_leave_everything_as_it_is() -> None:
    machine = Machine()
    machine.run("12:01")
    observed = seen(at("12:40"), claims=(machine.claim,), nodes=(machine.node,), pods=None, instances=(instance(),))
    found = decide(observed)
    assert not of(found, "destroy", "annotate", "update") and "pods could not be read" in found.warnings[0]


@pytest.mark.parametrize("text", ["yesterday", "12:31"])
def test_L03_annotation_without_sense_starts_anew(text: str) -> None:
    machine = Machine()
    machine.node = node(annotations={IDLE_SINCE_ANNOTATION: text})
    found = machine.run("12:30")
    assert machine.since == "12:30:00Z" and found.warnings and not of(found, "destroy")


def test_L03_a_clock_that_is_a_little_ahead_is_no_reason_to_start_anew() -> None:
    machine = Machine()
    machine.node = node(annotations={IDLE_SINCE_ANNOTATION: "2026-08-20T12:30:59Z"})
    assert not of(machine.run("12:30"), "annotate")


def test_L03_the_node_wins_over_the_claim() -> None:
    machine = Machine(idle_since=at("12:00"))
    assert not of(machine.run("12:30"), "destroy") and machine.since == "12:30:00Z"


def test_L03_never_and_zero() -> None:
    machine = Machine()
    machine.run("12:15")
    for never in (pool(consolidation_policy="Never"), pool(consolidate_after=None)):
        machine.pool = never
        assert not of(machine.run("13:30"), "destroy")
    machine.pool = pool(consolidate_after=0)
    assert of(machine.run("13:30"), "destroy")


def test_L03_min_age_protects_a_young_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idleness, "SCALE_DOWN_DELAY_AFTER_ADD", 0)
    machine = Machine()
    machine.pool = pool(consolidate_after=0)
    assert not of(machine.run("12:09:59"), "destroy")
    assert of(machine.run("12:10"), "destroy")


def test_L03_a_pod_nominated_to_the_node_keeps_it() -> None:
    machine = Machine()
    machine.run("12:01")
    coming = pod("coming", "Pending", node="", nominated_node=machine.node.name)
    assert not of(machine.run("12:40", coming), "destroy")


def test_L03_a_node_that_is_not_ready_is_not_idle() -> None:
    machine = Machine()
    machine.run("12:01")
    machine.node = dataclasses.replace(machine.node, ready=None, ready_since=at("12:30"))
    assert not of(machine.run("12:40"), "destroy", "annotate")


def test_L03_an_idle_node_is_not_drained_while_its_cloud_cannot_be_listed() -> None:
    """It could not be deleted there: it would be empty, and billed, until the cloud is back."""
    machine = Machine()
    machine.run("12:01")
    lost = {"lambda": CloudView(problem="503")}
    observed = seen(at("12:40"), claims=(machine.claim,), nodes=(machine.node,), clouds=lost)
    found = decide(observed, specs(machine.pool))
    assert not of(found, "destroy")
    assert one(found, "report").detail == "idle, but the machines of lambda could not be listed"
    assert of(machine.run("12:41"), "destroy")


def test_L03_blocked_drain_is_not_tried_again_at_once() -> None:
    machine = Machine(blocked_until=at("12:45"))
    machine.run("12:15")
    assert not of(machine.run("12:44:59"), "destroy")
    assert of(machine.run("12:45"), "destroy")


def test_L03_interrupted_drain_of_a_node_that_became_busy_is_taken_back() -> None:
    machine = Machine()
    machine.run("12:15")
    machine.claim = t.cast(Claim, one(machine.run("12:30"), "destroy").claim)
    assert machine.claim.deletion is not None
    found = machine.run("12:35", pod(requests=GPU))
    assert not of(found, "destroy") and machine.claim.deletion is None


def test_L07_hold_until_keeps_until_its_moment() -> None:
    machine = Machine()
    machine.run("12:15")
    machine.node = dataclasses.replace(
        machine.node, annotations={**machine.node.annotations, HOLD_UNTIL_ANNOTATION: "2026-08-20T23:00:00Z"}
    )
    assert not of(machine.run("22:59:59"), "destroy")
    assert of(machine.run("23:00"), "destroy")


@pytest.mark.parametrize("key", [*do_not_disrupt.DO_NOT_DISRUPT, SCALE_DOWN_DISABLED_ANNOTATION])
def test_L07_node_marks_stop_empty(key: str) -> None:
    machine = Machine()
    machine.run("12:15")
    machine.node = dataclasses.replace(machine.node, annotations={**machine.node.annotations, key: "true"})
    found = machine.run("13:00")
    assert not of(found, "destroy") and key in one(found, "report").detail


def test_L07_pod_duration_counts_from_its_start() -> None:
    held = pod(annotations={"karpenter.sh/do-not-disrupt": "2h"}, started=at("10:00"))
    assert do_not_disrupt.pod_hold(held, at("11:59:59")).why and not do_not_disrupt.pod_hold(held, at("12:00")).why
    assert do_not_disrupt.pod_hold(dataclasses.replace(held, started=None), at("23:00")).why
    odd = do_not_disrupt.pod_hold(pod(annotations={"karpenter.sh/do-not-disrupt": "yes"}), NOON)
    assert not odd.why and odd.warnings


def test_L07_held_pod_counts_in_ignored_namespaces_but_not_of_a_daemonset() -> None:
    held = {"tgp.io/do-not-disrupt": "true"}
    assert busy(dataclasses.replace(COREDNS, annotations=held))
    assert not busy(dataclasses.replace(PLUGIN, annotations=held))
    assert not busy(dataclasses.replace(COREDNS, annotations=held, phase="Succeeded"))


def test_L03_price_of_the_idle_tail() -> None:
    """A job that ends at 12:21:40 and a machine that goes at 12:35: 13 min 20 s at $0.42. A run first saw it idle at 12:25, and that is what
    is put down: work that was deleted without a trace may have gone on until then."""
    assert at("12:35") - at("12:21:40") == timedelta(minutes=13, seconds=20)
    assert print_money(cost(Decimal("0.42"), at("12:21:40"), at("12:35"))) == "0.0933"
    machine = Machine()
    machine.run("12:10", pod(requests=GPU))
    ended = pod(phase="Succeeded", requests=GPU, finished=at("12:21:40"))
    machine.run("12:25", ended)
    line = ledger_line(t.cast(Claim, one(machine.run("12:35", ended), "destroy").claim), end=at("12:35"))
    assert (line["idle_since"], line["idle_seconds"]) == ("2026-08-20T12:25:00Z", 600)
    seen_at_once = ledger_line(dataclasses.replace(machine.claim, idle_since=at("12:21:40")), end=at("12:35"))
    assert (seen_at_once["idle_seconds"], seen_at_once["useful_seconds"]) == (800, 700), "at work from the run at 12:10 on"
