# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Kubernetes Events a plan and its steps are worth, their bounds, and when they are told again."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from datetime import timedelta
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Action,
    Deletion,
    KubernetesEvent,
    ObjectReference,
    Observation,
    Phase,
    Plan,
    Specs,
    StatusObject,
    WaitingPod,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.model.reasons import ActionKind, EventReason, Finding
from ansible_collections.tgp.gpu.plugins.module_utils.planner.kubernetes_events import (
    MachineResult,
    body,
    due,
    identity,
    of_plan,
    of_results,
    remembered,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.object_status import World

from .build import CAPABILITIES, NOON, claim, decide, node, pod, pool, seen, specs

ROOT = Path(__file__).resolve().parents[3]
NAME = "tgp-a1b2c3d4-p-00001"
POOL = StatusObject("GPUNodePool", "default/p", "/p", "GPUNodePool default/p of the cluster", "u1", 1, "7")
REQUEST = StatusObject("GPURequest", "default/p", "/r", "GPURequest /p of the cluster", "u3", 1, "9")
EMPTY = Deletion("Empty", NOON)


def documents(one: StatusObject = POOL, **facts: t.Any) -> Specs:
    return dataclasses.replace(specs(pool(source_uid=one.uid, **facts)), objects=(one,))


def told(world: Observation, plan: Plan, wanted: Specs | None = None, mode: str = "autoscale") -> list[KubernetesEvent]:
    return of_plan(World(world, wanted or specs(), plan, Settings(mode=mode), CAPABILITIES))


def short(events: list[KubernetesEvent]) -> list[tuple[str, str, str]]:
    return [(event.regarding.kind, event.reason, event.note) for event in events]


def test_an_idle_node_is_told_once_that_it_goes() -> None:
    machine = claim(NAME, idle_since=NOON - timedelta(hours=1))
    world = seen(claims=(machine,), nodes=(node(NAME),), instances=())
    plan = Plan((Action(ActionKind.DESTROY, NAME, "Empty", "idle for 1h", claim=dataclasses.replace(machine, deletion=EMPTY)),))
    assert short(told(world, plan)) == [("Node", "DisruptionTerminating", "Disrupting Node: Empty: idle for 1h")]
    going = dataclasses.replace(world, claims=(dataclasses.replace(machine, deletion=EMPTY),))
    assert told(going, plan) == [], "an earlier run has told it"
    stronger = dataclasses.replace(plan.actions[0], reason="Expired", detail="")
    assert short(told(going, Plan((stronger,)))) == [("Node", "DisruptionTerminating", "Disrupting Node: Expired")]
    other = dataclasses.replace(world, nodes=(node(NAME, uid="of-another-machine"),))
    assert told(other, plan) == []


def test_what_holds_a_node_is_told_and_what_is_as_wanted_is_not() -> None:
    plan = Plan(
        (
            Action(ActionKind.REPORT, NAME, Finding.HELD, "do-not-disrupt on the Node"),
            Action(ActionKind.TAINT, NAME, Finding.GPU_LOST, "shows none of its 1 GPUs", target=NAME),
        )
    )
    world = seen(claims=(claim(NAME),), nodes=(node(NAME),))
    assert short(told(world, plan)) == [("Node", "DisruptionBlocked", "Cannot disrupt Node: Held: do-not-disrupt on the Node")]
    assert short(told(world, Plan(plan.actions[1:]))) == [("Node", "GpuLost", "shows none of its 1 GPUs")]
    kept = decide(world, specs(pool(min_nodes=1)))
    assert told(world, kept, mode="reap") == []


def test_pods_are_told_and_nothing_is_told_of_one_that_is_unknown() -> None:
    world = seen(claims=(), pods=(pod("a", "Pending", node=""), pod("b", "Pending", node="")))
    waiting = (
        WaitingPod("default", "a", 1, "default/p", NAME),
        WaitingPod("default", "b", 8, "default/p", reason="no offer has 8 GPUs"),
        WaitingPod("default", "gone", 8, reason="no offer has 8 GPUs"),
    )
    nominated, refused = told(world, Plan(waiting=waiting))
    assert (nominated.reason, nominated.warning, nominated.regarding.uid) == ("GpuNominated", False, "uid-a")
    assert nominated.note == f"Pod should schedule on: machine {NAME} of pool default/p"
    assert (refused.reason, refused.warning) == ("GpuNotScaledUp", True)
    assert refused.note == "No machine is launched for the pod: no offer has 8 GPUs (pool default/p)"


def test_a_pool_speaks_in_the_words_of_its_condition() -> None:
    wanted = documents(replicas=1)
    blocked = dataclasses.replace(wanted, blocked={"c": "its template cannot boot."})
    (event,) = told(seen(), Plan(), blocked)
    assert (event.regarding, event.reason, event.warning) == (
        ObjectReference("tgp.io/v1", "GPUNodePool", "default", "p", "u1"), "CannotJoin", True
    )  # fmt: skip
    assert event.note == "0 of 1 machines are ready. its template cannot boot."
    assert told(seen(), Plan(), documents()) == []
    assert told(dataclasses.replace(seen(), claims=None), Plan(), blocked) == []


LOST = claim(NAME, Phase.TERMINATING, deletion=Deletion("SpotLost", NOON))
NEVER = claim(NAME, Phase.FAILED, instance_id="", deletion=Deletion("LaunchFailed", NOON))
JOINED = claim(NAME, Phase.FAILED, instance_id="i-1", deletion=Deletion("FailedJoin", NOON))


@pytest.mark.parametrize(
    ("machine", "result", "followed", "reasons"),
    [
        (claim(NAME, Phase.BOOTING), "launched", False, {"Normal Launched"}),
        (claim(NAME, Phase.BOOTING), "adopted", False, {"Normal Launched"}),
        (claim(NAME, Phase.PROVISIONING), "waiting", False, {"Warning LaunchUnknown"}),
        (claim(NAME, Phase.JOINING), "waiting", True, set()),
        (NEVER, "failed", False, {"Warning LaunchFailed"}),
        (NEVER, "gone", False, set()),
        (JOINED, "failed", True, {"Warning JoinFailed"}),
        (JOINED, "replaced", True, {"Warning JoinFailed"}),
        (claim(NAME), "ready", True, {"Normal MachineReady", "Node Normal Initialized"}),
        (claim(NAME), "ready", False, set()),
        (claim(NAME, deletion=EMPTY), "gone", False, {"Normal Terminated"}),
        (LOST, "gone", False, {"Warning Terminated"}),
        (claim(NAME), "kept", False, {"Node Normal DisruptionBlocked"}),
        (claim(NAME, deletion=EMPTY), "in_use", False, set()),
        (claim(NAME, deletion=EMPTY), "pending", False, {"Node Warning FailedDraining"}),
        (LOST, "pending", False, {"Warning TerminationPending"}),
        (claim(NAME), "repaired", False, set()),
    ],
)
def test_what_becomes_of_a_machine(machine: t.Any, result: str, followed: bool, reasons: set[str]) -> None:
    done = [MachineResult(machine, result, "why", followed)]

    def words(wanted: Specs) -> set[str]:
        return {
            f"{'Node ' if event.regarding.kind == 'Node' else ''}{'Warning' if event.warning else 'Normal'} {event.reason}"
            for event in of_results(done, wanted)
        }

    assert words(documents()) == words(documents(REQUEST)) == reasons
    assert words(specs()) == {one for one in reasons if one.startswith("Node")}, "a file has no events"


def test_a_request_has_no_namespace_and_its_events_are_in_default() -> None:
    (event,) = of_results([MachineResult(claim(NAME, Phase.BOOTING), "launched", "")], documents(REQUEST))
    assert event.note == f"{NAME}: lambda gpu_1x us-west, 1 × A10, $0.42/h"
    sent = body(event, "host-1", NOON)
    assert sent["metadata"]["namespace"] == "default" and sent["regarding"] == {
        "apiVersion": "tgp.io/v1", "kind": "GPURequest", "name": "p", "uid": "u3"
    }  # fmt: skip


def event(**facts: t.Any) -> KubernetesEvent:
    usual: dict[str, t.Any] = {"regarding": ObjectReference("v1", "Pod", "team", "job", "u"), "reason": EventReason.GPU_NOMINATED}
    return KubernetesEvent(**{**usual, "note": "n", **facts})


def test_the_bounds_of_the_api_server_are_kept() -> None:
    long = event(note="ä" * 1000, regarding=ObjectReference("v1", "Pod", "team", f"{'a' * 199}.{'b' * 53}", "u"))
    sent = body(long, "r" * 300, NOON)
    assert len(sent["note"].encode()) <= 1024 and sent["note"].endswith("ä…")
    assert re.fullmatch(r"a{199}\.[0-9a-f]{16,32}", sent["metadata"]["name"]) and len(sent["metadata"]["name"]) <= 253
    assert (sent["metadata"]["namespace"], len(sent["reportingInstance"])) == ("team", 128)
    assert sent["eventTime"] == "2026-08-20T12:00:00.000000Z"
    for reason in EventReason:
        assert re.fullmatch(r"([A-Z][a-z]+)+", reason) and body(event(reason=reason), "r", NOON)["action"]


def test_the_same_is_told_once_in_15_minutes() -> None:
    first, again, other = event(), event(), event(note="m")
    assert identity(first) == identity(again) != identity(other)
    assert identity(event(note="1 of 2", key="x")) == identity(event(note="2 of 2", key="x"))
    memory = remembered({}, [first], NOON)
    assert due([again, other], memory, NOON + timedelta(seconds=899)) == [other]
    assert due([again], memory, NOON + timedelta(seconds=900)) == [again]
    assert due([again], memory, NOON - timedelta(days=1)) == [again], "a clock that was wrong silences nothing for long"
    assert remembered(memory, [], NOON + timedelta(seconds=900)) == {}
    many = [event(note=str(number)) for number in range(300)]
    assert due(many, {}, NOON) == many[:200] and due(many, remembered({}, many[:200], NOON), NOON) == many[200:]
    names = {body(first, "r", NOON + timedelta(seconds=seconds))["metadata"]["name"] for seconds in (0, 899)}
    assert len(names) == 1 and body(first, "r", NOON + timedelta(seconds=900))["metadata"]["name"] not in names


def test_every_reason_is_documented() -> None:
    text = (ROOT / "docs" / "how_to" / "cluster_objects.md").read_text()
    section = text.partition("\n## Events\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"`([A-Z][A-Za-z]+)`", section)) >= {reason.value for reason in EventReason}


def test_a_claim_that_is_an_object_has_the_events_of_its_machine() -> None:
    """A warning stands at its pool as well, where people look first."""
    ready, lost = (MachineResult(claim(NAME), "ready", "after 12 s", True), MachineResult(LOST, "gone", ""))
    node, about = of_results([ready], documents(), {NAME: "u9"}.get)[::-1]
    assert (
        about.regarding == ObjectReference("tgp.io/v1", "GPUNodeClaim", "tgp-system", NAME, "u9") and about.reason == "MachineReady"
    )
    assert about.related is not None and about.related.kind == "GPUNodePool" and node.regarding.kind == "Node"
    kinds = [event.regarding.kind for event in of_results([lost], documents(), {NAME: "u9"}.get)]
    assert kinds == ["GPUNodePool", "GPUNodeClaim"]
