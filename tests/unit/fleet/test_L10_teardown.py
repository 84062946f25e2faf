# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-10: one step after the other, nothing lost on the way."""

from __future__ import annotations

import itertools
import typing as t
from datetime import datetime

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import CloudView, Deletion, InstanceState, Phase, Plan, Pool
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Destroy
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import ledger_line
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.drain_rules import MODES, Mode, mode_of
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection.termination_steps import (
    Facts,
    Step,
    alarm,
    next_step,
)

from .build import NOON, at, claim, decide, instance, node, of, pod, pool, seen, specs

ALL = {"instance": "present", "node": True, "node_ready": True, "device": True, "key": True, "volumes": 1, "volumes_since": NOON}


def ending(reason: str = "Empty", phase: Phase = Phase.TERMINATING, **facts: object) -> object:
    return claim(phase=phase, deletion=Deletion(reason, at("11:59"), **facts))  # type: ignore[arg-type]


def test_L10_order() -> None:
    steps = []
    made, facts = ending(phase=Phase.READY), dict(ALL)
    for change in (
        {"drained": True},
        None,
        {"volumes": 0},
        {"instance": "terminating", "node_ready": True},
        {"instance": "absent"},
        {"device": False},
        {"key": False},
        {"node": False},
        {},
    ):
        steps.append(next_step(made, Facts(NOON, **facts)))  # type: ignore[arg-type]
        if change is None:
            made = ending()
        else:
            facts.update(change)
    assert steps == [
        Step.DRAIN,
        Step.TERMINATE,
        Step.WAIT_VOLUMES,
        Step.DESTROY,
        Step.CONFIRM,
        Step.DELETE_DEVICE,
        Step.DELETE_KEY,
        Step.DELETE_NODE,
        Step.REMOVE_CLAIM,
    ]


def step(reason: str = "Empty", phase: Phase = Phase.TERMINATING, **facts: object) -> Step:
    known = {"instance": "absent", "node": False, "device": False, "key": False, **facts}
    return next_step(ending(reason, phase), Facts(NOON, **known))  # type: ignore[arg-type]


def test_L10_volumes_are_waited_for_two_minutes() -> None:
    waiting = {"instance": "present", "volumes": 2}
    assert step(**waiting, volumes_since=at("11:58:01")) is Step.WAIT_VOLUMES
    assert step(**waiting, volumes_since=at("11:58:00")) is Step.DESTROY


def test_L10_terminating_machine_may_be_cleaned_up_after_only_without_a_ready_node() -> None:
    assert step(instance="terminating", node=True, node_ready=True, device=True) is Step.CONFIRM
    assert step(instance="terminating", node=True, node_ready=False, device=True) is Step.DELETE_DEVICE
    assert step(instance="terminating", node=True, node_ready=False) is Step.DELETE_NODE
    assert step(instance="terminating") is Step.CONFIRM  # everything else is gone, the claim stays


@pytest.mark.parametrize("reason", ["FailedJoin", "LaunchFailed", "PriceJump"])
def test_L10_no_drain_where_nothing_can_be_drained(reason: str) -> None:
    assert step(reason, Phase.JOINING, node=True, instance="present") is Step.TERMINATE


@pytest.mark.parametrize("reason", ["SpotLost", "InstanceGone"])
def test_L15_pods_of_a_lost_machine_are_let_go_first(reason: str) -> None:
    """That drain waits for nothing: it taints the Node, so that controllers put its pods elsewhere."""
    assert step(reason, Phase.READY, node=True, instance="present") is Step.DRAIN
    assert mode_of(reason) in (Mode.LOST, Mode.GONE)


def test_L10_what_stays_beside_a_machine_goes_last() -> None:
    assert step(extras=True, node=True) is Step.DELETE_NODE
    assert step(extras=True) is Step.DISCARD_EXTRAS
    assert step(extras=None) is Step.WAIT
    assert step(extras=True, instance="terminating", node_ready=False, node=True) is Step.DELETE_NODE
    assert step(extras=True, instance="terminating") is Step.CONFIRM  # its machine may still hold it


def test_L10_unknown_is_never_gone() -> None:
    """Whatever is unknown, the claim stays; and the Node is not deleted while the machine may live."""
    values = (True, False, None)
    for device, key, node_there in itertools.product(values, values, values):
        for machine in ("present", "terminating", "absent", None):
            found = step(instance=machine, device=device, key=key, node=node_there, node_ready=node_there)
            if machine != "absent" or None in (device, key, node_there):
                assert found is not Step.REMOVE_CLAIM
            if machine in ("present", None):
                assert found in (Step.DESTROY, Step.CONFIRM)


def test_L10_own_machines_keep_their_node() -> None:
    assert step(node=True, keeps_node=True) is Step.REMOVE_CLAIM


def test_L10_lost_answer_of_destroy_is_asked_again() -> None:
    assert step(instance="present") is Step.DESTROY
    started = claim(phase=Phase.TERMINATING, deletion=Deletion("Empty", NOON, started=NOON, attempts=2))
    assert next_step(started, Facts(NOON, instance="present")) is Step.DESTROY
    assert next_step(started, Facts(NOON, instance=None)) is Step.CONFIRM


def test_L10_alarm_after_fifteen_minutes() -> None:
    pending = claim(phase=Phase.TERMINATING, deletion=Deletion("Empty", at("11:59"), started=at("12:00")))
    assert not alarm(pending, at("12:15:00"))
    assert alarm(pending, at("12:15:01"))


def test_L10_time_line_of_a_destroy_that_fails_twice() -> None:
    """12:00 and 12:05 answered 500, 12:10 taken and listed as terminating, 12:15 absent: all is removed, no alarm, paid until 12:15."""
    going = claim(phase=Phase.TERMINATING, launch_started=at("11:00"), deletion=Deletion("Empty", at("11:59"), started=at("12:00")))
    facts: dict[str, t.Any] = {"node": True, "node_ready": True, "device": True, "key": False}
    for moment in ("12:00", "12:05", "12:10"):
        assert next_step(going, Facts(at(moment), instance="present", **facts)) is Step.DESTROY
    assert next_step(going, Facts(at("12:10"), instance="terminating", **facts)) is Step.CONFIRM
    left = []
    for gone in ({}, {"device": False}, {"device": False, "node": False}):
        left.append(next_step(going, Facts(at("12:15"), instance="absent", **{**facts, **gone})))
    assert left == [Step.DELETE_DEVICE, Step.DELETE_NODE, Step.REMOVE_CLAIM]
    assert not alarm(going, at("12:15")), "exactly fifteen minutes are none too many"
    assert ledger_line(going, end=at("12:15"))["cost"] == "0.525"


# ---- work that came between the drain and the deletion (a run was killed there)

CLOSED = node(annotations={"tgp.io/drain-started": "2026-08-20T11:50:00Z"})
VOLUNTARY = sorted(reason for reason, mode in MODES.items() if mode is Mode.VOLUNTARY)


def resumed(reason: str = "Empty", wanted: Pool = pool(), started: datetime | None = None, **facts: t.Any) -> Plan:
    """The plan of a run that finds a machine past its drain, with a job on its Ready Node unless said otherwise."""
    drained = claim(phase=Phase.TERMINATING, deletion=Deletion(reason, at("11:50"), started=started))
    mode = facts.pop("mode", {})
    usual: dict[str, t.Any] = {"claims": (drained,), "nodes": (CLOSED,), "instances": (instance(),), "pods": (pod(),)}
    return decide(seen(facts.pop("now", NOON), **{**usual, **facts}), specs(wanted), **mode)


@pytest.mark.parametrize("started", [None, at("11:51")], ids=["no destroy call on record", "one that may not have been sent"])
@pytest.mark.parametrize("reason", VOLUNTARY)
def test_L10_work_that_came_after_a_drain_is_not_taken_along(reason: str, started: datetime | None) -> None:
    found = resumed(reason, started=started)
    assert not of(found, "destroy", "restore")
    (report,) = of(found, "report")
    assert report.detail == "pod default/job came after the drain; it is deleted when that has ended"


@pytest.mark.parametrize(
    "gone",
    [
        {"pods": ()},
        {"pods": (pod(phase="Succeeded"),)},
        {"pods": (pod(owner_kind="DaemonSet", owner_api="apps/v1"),)},
        {"nodes": ()},
        {"nodes": (node(ready=False),)},
        {"instances": ()},
        {"instances": (instance(state=InstanceState.TERMINATING),)},
    ],
    ids=["none", "ended", "of the node", "no Node", "not Ready", "not listed", "being deleted"],
)
def test_L10_a_machine_without_such_work_goes_on(gone: dict[str, t.Any]) -> None:
    assert [action.detail for action in of(resumed(**gone), "destroy")] == ["goes on"]


def test_L10_pods_and_lists_that_cannot_be_read_prove_nothing() -> None:
    (report,) = of(resumed(pods=None), "report")
    assert "could not be read" in report.detail
    unlisted = resumed(clouds={"lambda": CloudView(None, problem="500")})
    assert not of(unlisted, "destroy")


@pytest.mark.parametrize("reason", sorted(set(MODES) - set(VOLUNTARY)))
def test_L10_a_reason_that_waits_for_no_work_goes_on(reason: str) -> None:
    (action,) = of(resumed(reason), "destroy")
    assert (action.reason, action.detail) == (reason, "goes on")


def test_L26_a_stronger_reason_takes_such_a_machine_and_drains_it_again() -> None:
    for found, reason in (
        (resumed(wanted=pool(expire_after=3600)), "Expired"),
        (resumed(mode={"mode": "destroy", "destroy": Destroy(all=True)}), "Manual"),
    ):
        (action,) = of(found, "destroy")
        assert action.reason == reason and action.claim is not None and action.claim.deletion == Deletion(reason, NOON)
        assert next_step(action.claim, Facts(NOON, instance="present", node=True, node_ready=True)) is Step.DRAIN
        assert next_step(action.claim, Facts(NOON, instance="present", node=True, drained=True)) is Step.DESTROY
    again = resumed(mode={"mode": "destroy", "destroy": Destroy(all=True)}, pods=())
    assert [action.reason for action in of(again, "destroy")] == ["Empty"], "without such work the reason stays"


def test_L27_a_wrong_clock_does_not_hide_such_work() -> None:
    assert not of(resumed(clock_offset=3600.0, clock_source="kubernetes"), "destroy")
    assert of(resumed(clock_offset=3600.0, clock_source="kubernetes", pods=()), "destroy")
