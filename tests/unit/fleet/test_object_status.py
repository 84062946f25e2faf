# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wanted status of objects, from what a run knows; and when it has to be written."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    CloudChoice,
    CloudView,
    Deletion,
    Ledger,
    Observation,
    Pause,
    Phase,
    Plan,
    Shortfall,
    Specs,
    SpendingBudget,
    StatusObject,
    WaitingPod,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.object_status import World, change, statuses

from sandbox.kube.crd import unknown
from schemas.crds import definitions

from .build import CAPABILITIES, NOON, at, claim, node, node_class, offer, pool, seen, specs

Json = dict[str, t.Any]
SCHEMAS = {one["spec"]["names"]["kind"]: one["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for one in definitions()}
POOL = StatusObject("GPUNodePool", "default/p", "/p", "GPUNodePool default/p of the cluster", "u1", 3, "7")
CLASS = StatusObject("GPUNodeClass", "c", "/c", "GPUNodeClass /c of the cluster", "u2", 1, "8")
REQUEST = StatusObject("GPURequest", "tgp-system/r", "/r", "GPURequest /r of the cluster", "u3", 1, "9")


def wanted(**facts: t.Any) -> Specs:
    """One pool of the cluster and its class."""
    classes = facts.pop("classes", ())
    return dataclasses.replace(specs(pool(source_uid="u1", **facts), classes=classes), objects=(POOL, CLASS))


def of(
    one: StatusObject, world: Observation, documents: Specs, plan: Plan = Plan(), mode: str = "autoscale", **more: t.Any
) -> Json:
    """The status of one object, which the API server would keep whole."""
    documents = dataclasses.replace(documents, objects=(one,))
    ((_object, status),) = statuses(World(world, documents, plan, Settings(mode=mode), CAPABILITIES, **more))
    assert unknown(SCHEMAS[one.kind], {"status": status}) == []
    assert all(status[name] is not None for name in status)
    return status


def conditions(status: Json) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}


def message(status: Json, kind: str) -> str:
    return str(next(one["message"] for one in status["conditions"] if one["type"] == kind))


def machine(number: int, phase: Phase = Phase.READY, **facts: t.Any) -> t.Any:
    return claim(f"tgp-a1b2c3d4-p-0000{number}", phase, **facts)


def test_a_pod_that_waits_is_no_shortage_of_a_pool_whose_machines_are_on_their_way() -> None:
    """A pool with an exact number serves no pods, and its name stands beside the pod as that of the nearest pool."""
    waiting = WaitingPod(
        "default", "job", 1, reason="its replicas is 1, an exact number that does not follow pods", pool="default/p"
    )
    status = of(POOL, seen(claims=(machine(1, Phase.BOOTING),)), wanted(replicas=1), Plan(waiting=(waiting,)))
    assert conditions(status)["Ready"] == ("False", "Launching") and conditions(status)["Reconciling"] == ("True", "Launching")
    short = of(POOL, seen(), wanted(replicas=1), Plan(waiting=(waiting,), shortfall=(Shortfall("default/p", 1, "no stock"),)))
    assert conditions(short)["Ready"] == ("False", "InsufficientCapacity") and "no stock" in message(short, "Ready")


def test_a_pool_that_asks_for_nothing_is_ready() -> None:
    status = of(POOL, seen(), wanted())
    assert conditions(status) == {
        "Ready": ("True", "NoMachinesWanted"),
        "DocumentsValid": ("True", "Valid"),
        "Launching": ("False", "NothingLaunches"),
        "Degraded": ("False", "Healthy"),
        "BudgetExceeded": ("False", "WithinBudget"),
        "Paused": ("False", "NotPaused"),
    }
    assert (status["wanted"], status["ready"], status["hourlyCost"], status["observedGeneration"]) == (0, 0, "0.00", 3)
    assert {one["observedGeneration"] for one in status["conditions"]} == {3}


def test_machines_are_counted_by_what_they_are_good_for() -> None:
    ending = machine(3, Phase.TERMINATING, deletion=Deletion("Empty", at("11:50")))
    claims = (machine(1), machine(2, Phase.JOINING), ending, machine(4), machine(5, Phase.FAILED))
    nodes = (node("tgp-a1b2c3d4-p-00001"), node("tgp-a1b2c3d4-p-00004", ready=False))
    status = of(POOL, seen(claims=claims, nodes=nodes), wanted(min_nodes=3, expire_after=7200))
    assert [status[name] for name in ("wanted", "ready", "launching", "terminating", "replicas", "gpus")] == [3, 1, 1, 1, 3, 1]
    assert status["hourlyCost"] == "2.10" and status["nextExpiry"] == "2026-08-20T13:00:00Z"
    assert conditions(status)["Ready"] == ("False", "Launching") and conditions(status)["Launching"] == (
        "True",
        "MachinesOnTheirWay",
    )
    assert conditions(status)["Degraded"] == ("True", "MachinesUnhealthy")
    assert message(status, "Degraded") == "tgp-a1b2c3d4-p-00004: its Node is not Ready; tgp-a1b2c3d4-p-00005: its launch failed"


def test_machines_for_pods_do_not_make_a_pool_unready() -> None:
    short = Plan(shortfall=(), waiting=(WaitingPod("default", "job", 1, "default/p", "", "maxHourlyPrice"),))
    status = of(POOL, seen(claims=(machine(2, Phase.BOOTING),)), wanted(), short)
    assert conditions(status)["Ready"] == ("True", "NoMachinesWanted") and "Reconciling" not in conditions(status)
    assert (status["wanted"], status["launching"], status["reason"]) == (1, 1, "maxHourlyPrice")


@pytest.mark.parametrize(
    ("reason", "code", "stalled"),
    [
        ("maxHourlyPrice", "InsufficientCapacity", False),
        ("limit:budget.pool", "BudgetExceeded", False),
        ("limit:maxNodes", "LimitReached", True),
    ],
)
def test_a_shortfall_says_whether_a_person_has_to_act(reason: str, code: str, stalled: bool) -> None:
    status = of(POOL, seen(), wanted(replicas=2), Plan(shortfall=(Shortfall("default/p", 2, reason),)))
    found = conditions(status)
    assert found["Ready"] == ("False", code) and ("Stalled" in found) is stalled and ("Reconciling" in found) is not stalled
    assert message(status, "Ready") == f"0 of 2 machines are ready. {reason}" and status["wanted"] == 2


def test_a_run_that_launches_nothing_keeps_the_reason_of_the_same_spec() -> None:
    old = dataclasses.replace(POOL, status={"observedGeneration": 3, "reason": "maxHourlyPrice"})
    assert of(old, seen(), wanted(replicas=1), mode="reap")["reason"] == "maxHourlyPrice"
    assert "reason" not in of(old, seen(), wanted(replicas=1), mode="autoscale")
    older = dataclasses.replace(old, status={**old.status, "observedGeneration": 2})
    assert conditions(of(older, seen(), wanted(replicas=1), mode="reap"))["Ready"] == ("False", "MachinesMissing")


def test_what_stops_a_pool_stands_in_its_condition() -> None:
    documents = wanted(replicas=1)
    faulty = dataclasses.replace(documents, pools=(), faults={POOL.place: (f"{POOL.place}: spec.weight: -1 is too small.",)})
    assert conditions(of(POOL, seen(), faulty))["Stalled"] == ("True", "InvalidDocument")
    assert message(of(POOL, seen(), faulty), "DocumentsValid") == "spec.weight: -1 is too small."
    held = dataclasses.replace(documents, pools=(), held=documents.pools, paused={"default/p": "its class c cannot be used: x"})
    assert conditions(of(POOL, seen(), held))["Stalled"] == ("True", "ClassNotReady")
    assert conditions(of(POOL, seen(), held))["DocumentsValid"] == ("True", "Valid")
    for one in (POOL, CLASS):
        going = of(dataclasses.replace(one, deleted=True), seen(), held)
        assert conditions(going)["Ready"] == ("False", "Deleting") and "Stalled" not in conditions(going)
    blocked = dataclasses.replace(documents, blocked={"c": "no template"})
    assert conditions(of(POOL, seen(), blocked))["Stalled"] == ("True", "CannotJoin")
    other = dataclasses.replace(documents, pools=(pool(source_uid="of-a-file"),))
    assert conditions(of(POOL, seen(), other))["Ready"] == ("False", "InvalidDocument"), "a file describes the pool of this name"


def test_a_paused_pool_neither_reconciles_nor_stalls() -> None:
    by_class = dataclasses.replace(wanted(replicas=1), pauses=(Pause("class", "c", "new drivers", annotation=True),))
    status = of(POOL, seen(), by_class)
    found = conditions(status)
    assert found["Paused"] == ("True", "PausedByAnnotation") and found["Ready"] == ("False", "Paused")
    assert not {"Reconciling", "Stalled"} & set(found)
    why = "Its class c is paused by the annotation tgp.io/paused: new drivers."
    assert message(status, "Paused") == why and message(status, "Ready") == f"0 of 1 machines are ready. {why}"


@pytest.mark.parametrize(
    ("pause", "paused"),
    [
        (Pause("all", since=at("11:00")), {"GPUNodePool", "GPUNodeClass"}),
        (Pause("class", "c", since=at("11:00")), {"GPUNodePool", "GPUNodeClass"}),
        (Pause("pool", "default/p", since=at("11:00")), {"GPUNodePool"}),
        (Pause("pool", "default/other", since=at("11:00")), set()),
    ],
)
def test_a_pause_of_the_record_shows_on_all_that_it_holds_for(pause: Pause, paused: set[str]) -> None:
    world = dataclasses.replace(seen(), pauses=(pause,))
    documents = dataclasses.replace(wanted(), classes={"c": node_class()})
    found = {one.kind: conditions(of(one, world, documents)).get("Paused") for one in (POOL, CLASS)}
    assert {kind for kind, told in found.items() if told == ("True", "PausedByPlaybook")} == paused


def test_a_budget_that_is_used_up_shows_on_all_that_it_covers() -> None:
    small = SpendingBudget("day", Decimal("0.10"))
    documents = wanted(classes=(node_class(budget=small),))
    world = seen(claims=(machine(1),), nodes=(node(),), ledger=Ledger())
    status = of(POOL, world, documents)
    assert conditions(status)["BudgetExceeded"] == ("True", "BudgetUsedUp") and "spent" not in status
    assert message(status, "BudgetExceeded") == "day budget of class c: $0.10 are used up."
    of_class = of(CLASS, world, documents)
    assert (of_class["spent"], of_class["budget"], of_class["ready"], of_class["pools"]) == ("0.42", "0.10", 1, 1)
    of_pool = of(CLASS, world, wanted(budget=small))
    assert conditions(of_pool)["BudgetExceeded"] == ("False", "WithinBudget"), "a pool's budget is not its class's"


def test_a_class_shows_its_providers() -> None:
    clouds = {
        "lambda": CloudView((), (offer("0.42"), offer("1.10"), offer("9", model="H100"))),
        "vast": CloudView(None, None, "vast: 401 Unauthorized."),
    }
    listed = node_class(clouds=("lambda", "vast", CloudChoice("runpod", enabled=False)), gpu_types=("A10",))
    status = of(CLASS, seen(clouds=clouds), wanted(classes=(listed,)))
    assert status["providers"] == [
        {"name": "lambda", "health": "Healthy", "minHourlyPrice": "0.42", "maxHourlyPrice": "1.10"},
        {"name": "vast", "health": "Unavailable", "message": "vast: 401 Unauthorized."},
        {"name": "runpod", "health": "Disabled"},
    ]
    assert conditions(status)["Ready"] == ("True", "Usable")
    remembered = dataclasses.replace(CLASS, status=status)
    unread = dataclasses.replace(seen(clouds={"lambda": CloudView(())}), offers_read=False)
    assert of(remembered, unread, wanted(classes=(listed,)))["providers"][0]["minHourlyPrice"] == "0.42", "as it was seen last"
    nothing = seen(clouds={"lambda": CloudView(None, None, "down")})
    assert conditions(of(CLASS, nothing, wanted()))["Ready"] == ("False", "ProvidersUnavailable")


def test_a_request_goes_through_the_phases_of_its_machine() -> None:
    documents = Specs({"c": node_class()}, (pool("r", namespace="tgp-system", request=True, source_uid="u3", expire_after=7200),))
    assert of(REQUEST, seen(), documents)["phase"] == "Pending"
    running = machine(1, pool="tgp-system/r", ip="203.0.113.7")
    status = of(REQUEST, seen(claims=(running,), nodes=(node(),)), documents)
    assert (status["phase"], status["nodeName"], status["address"]) == ("Ready", running.name, "203.0.113.7")
    assert status["expiryTime"] == "2026-08-20T13:00:00Z" and status["hourlyPrice"] == "0.42"
    ending = dataclasses.replace(running, deletion=Deletion("Expired", NOON))
    assert of(REQUEST, seen(claims=(ending,), nodes=(node(),)), documents)["phase"] == "Terminating"
    served = of(REQUEST, seen(), documents, Plan(findings={"Served||tgp-system/r": NOON}))
    assert served["phase"] == "Completed" and conditions(served)["Ready"] == ("True", "Completed")


def test_nothing_is_written_while_the_claims_are_unknown() -> None:
    assert statuses(World(seen(claims=None), wanted(), Plan(), Settings(), CAPABILITIES)) == []


# ---- what has to be written


def test_only_what_changed_is_written_and_the_heartbeat_waits() -> None:
    first = of(POOL, seen(), wanted())
    assert change({}, first, NOON) == first
    soon, later = NOON + timedelta(seconds=599), NOON + timedelta(seconds=600)
    after = dataclasses.replace(POOL, status=first)
    assert change(first, of(after, seen(soon), wanted()), soon) is None
    assert change(first, of(after, seen(later), wanted()), later) == {"lastRunTime": "2026-08-20T12:10:00Z"}
    moved = change(first, {**first, "spent": "9.00", "providers": []}, soon)
    assert moved is not None and moved["spent"] == "9.00", "it goes along with something else"
    assert change(first, {**first, "spent": "9.00"}, soon) is None
    assert change({**first, "colour": "red"}, first, soon) == {"colour": None}
    assert change({**first, "lastRunTime": "yesterday"}, first, soon) == {"lastRunTime": "2026-08-20T12:00:00Z"}


def test_a_transition_has_its_time_only_when_the_status_changes() -> None:
    first = of(POOL, seen(), wanted(replicas=1))
    later = NOON + timedelta(hours=1)
    after = dataclasses.replace(POOL, status=first)
    world = seen(later, claims=(machine(1),), nodes=(node(),))
    times = {one["type"]: one["lastTransitionTime"] for one in of(after, world, wanted(replicas=1))["conditions"]}
    assert times["Ready"] == "2026-08-20T13:00:00Z" and times["Paused"] == "2026-08-20T12:00:00Z"
