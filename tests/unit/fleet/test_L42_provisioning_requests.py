# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-42: ProvisioningRequests are served whole or not at all, held for ten minutes, and told. Numbers marked E are worked examples of
Kubernetes' scheduling of late 2026."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta

import hypothesis
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import CloudView, Phase, Placement, Plan, StatusCondition
from ansible_collections.tgp.gpu.plugins.module_utils.model.queues import (
    ATOMIC,
    BEST_EFFORT_ATOMIC,
    CHECK_CAPACITY,
    ProvisioningRequest,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.requested_capacity import status_patch
from ansible_collections.tgp.gpu.plugins.module_utils.units.values import parse_time
from hypothesis import strategies

from .build import NOON, at, decide, of, pod, pool, specs
from .pods import GPU
from .test_L17_autoscale import LONG_IDLE, ONE, TOLERATES, asks, joining, launched, machine, scale, world

CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"
POOL = pool(provisioning_classes=(ATOMIC, BEST_EFFORT_ATOMIC, CHECK_CAPACITY))


def request(count: int = 4, gpus: int = 1, kind: str = ATOMIC, **facts: t.Any) -> ProvisioningRequest:
    name = facts.pop("name", "train")
    marks = {CONSUMES: name, "tgp.io/scale-up-delay": "0s"}
    placement = facts.pop("placement", TOLERATES)
    pods = tuple(
        asks(f"{name}[{number}]", gpus, uid=f"{name}/{number}", annotations=marks, placeholder=True, placement=placement)
        for number in range(count)
    )
    usual: dict[str, t.Any] = {"version": "7", "generation": 1, "created": at("11:50"), "pods": pods}
    return ProvisioningRequest("default", name, f"uid-{name}", provisioning_class=kind, **{**usual, **facts})


def booked(count: int = 4, since: str = "11:55", machines: str = "", **facts: t.Any) -> ProvisioningRequest:
    done = StatusCondition("Provisioned", "True", "CapacityIsProvisioned", "", at(since))
    return request(count, conditions=(done,), details={"tgp.io/machines": machines}, **facts)


def told(plan: Plan, name: str = "train") -> dict[str, tuple[str, str, str]]:
    """What is to be written: type of condition to status, reason and message."""
    return {
        one.type: (one.status, one.reason, one.message)
        for wanted in plan.requests
        if wanted.request.name == name
        for one in wanted.conditions
    }


def after(one: ProvisioningRequest, plan: Plan) -> ProvisioningRequest:
    """The request with what the plan writes."""
    (wanted,) = (each for each in plan.requests if each.request.uid == one.uid)
    return dataclasses.replace(one, conditions=wanted.conditions, details=dict(wanted.details))


# ---- [E] gang of 4: a ProvisioningRequest of the same 4 asks for 4


def test_L42_E_gang_7_a_request_of_four_pods_is_a_demand_of_four() -> None:
    plan = scale(world(requests=(request(),), offers=(ONE,)), POOL)
    assert launched(plan) == [1] * 4
    accepted, waits = told(plan)["Accepted"], told(plan)["Provisioned"]
    assert (accepted[:2], waits[:2]) == (("True", "Accepted"), ("False", "CapacityIsNotFound"))
    assert waits[2].startswith("Machines for 4 pods are on their way: tgp-")
    assert [one.name for one in plan.waiting] == [f"train[{number}]" for number in range(4)]


def test_L42_E_gang_3_what_cannot_be_had_whole_rents_nothing_and_fails_in_the_second_run() -> None:
    """Room for 3 of 4. One run may see a provider's bad minute; two of them, a minute apart, do not."""
    wanted = specs(pool(max_nodes=3, provisioning_classes=(ATOMIC,)))
    first = scale(world(requests=(request(),), offers=(ONE,)), wanted)
    text = "ProvisioningRequest default/train: room for 3 of 4; limit:pool.maxNodes."
    assert launched(first) == [] and told(first)["Provisioned"] == (
        "False",
        "CapacityIsNotFound",
        f"{text} It is tried again before it fails.",
    )
    for seconds, failed in ((59, False), (60, True)):
        later = scale(
            world(requests=(request(),), offers=(ONE,), now=NOON + timedelta(seconds=seconds), findings=first.findings), wanted
        )
        assert ("Failed" in told(later)) is failed
    assert told(later)["Failed"] == ("True", "CapacityIsNotFound", text)


def test_L42_a_cloud_that_cannot_be_read_fails_no_request() -> None:
    wanted = specs(pool(provisioning_classes=(ATOMIC,)))
    clouds = {"lambda": CloudView((), None, "it does not answer")}
    first = scale(world(requests=(request(),), clouds=clouds), wanted)
    later = scale(world(requests=(request(),), clouds=clouds, now=at("13:00"), findings=first.findings), wanted)
    assert "Failed" not in told(later) and told(later)["Provisioned"][0] == "False"


# ---- provisioned, booked, over


def test_L42_it_is_provisioned_once_all_machines_are_ready_and_a_second_run_writes_nothing() -> None:
    one = request(2)
    coming = scale(world(requests=(one,), machines=[machine(1), joining(2, gpus=1)]), POOL)
    assert (
        launched(coming) == [] and told(coming)["Provisioned"][2] == "Machines for 2 pods are on their way: tgp-a1b2c3d4-p-00002."
    )
    seen = world(requests=(one,), machines=[machine(1), machine(2)])
    plan = scale(seen, POOL)
    assert told(plan)["Provisioned"][:2] == ("True", "CapacityIsProvisioned")
    assert plan.requests[0].details == {"tgp.io/machines": "tgp-a1b2c3d4-p-00001,tgp-a1b2c3d4-p-00002", "tgp.io/nodepool": "p"}
    assert status_patch(plan.requests[0]) is not None
    again = scale(dataclasses.replace(seen, requests=(after(one, plan),), now=at("12:05")), POOL)
    assert [status_patch(wanted) for wanted in again.requests] == []


def test_L42_what_waits_unchanged_is_written_once() -> None:
    seen = world(requests=(request(2),), machines=[machine(1), joining(2, gpus=1)])
    plan = scale(seen, POOL)
    again = scale(dataclasses.replace(seen, requests=(after(seen.requests[0], plan),), now=at("12:01")), POOL)
    assert [status_patch(wanted) for wanted in again.requests] == [None]


@pytest.mark.parametrize(("since", "goes"), [("11:50:01", []), ("11:50", ["Empty"])])
@pytest.mark.parametrize("mode", ["autoscale", "reap"])
def test_L42_the_booking_lasts_ten_minutes_and_holds_the_machine_in_every_mode(mode: str, since: str, goes: list[str]) -> None:
    there = machine(1, annotations=LONG_IDLE)
    plan = decide(world(requests=(booked(1, since, there[0].name),), machines=[there]), specs(POOL), mode)
    assert [one.reason for one in of(plan, "destroy")] == goes
    if mode == "autoscale":
        expired = told(plan).get("BookingExpired", ("", "", ""))
        assert expired[:2] == (("True", "CapacityReservationTimeExpired") if goes else ("", ""))


def test_L42_booked_room_is_given_to_no_other_pod() -> None:
    one = booked(1, machines=machine(1)[0].name)
    assert launched(scale(world(asks("other"), requests=(one,), machines=[machine(1)], offers=(ONE,)), POOL)) == [1]
    assert launched(scale(world(asks("other"), machines=[machine(1)], offers=(ONE,)), POOL)) == []


def test_L42_pods_that_consume_a_request_are_not_counted_twice() -> None:
    """Four wanted: with two of them pending there are still four, and with all of them bound none."""
    pending = [asks(f"w-{number}", annotations={CONSUMES: "train"}) for number in range(2)]
    assert launched(scale(world(*pending, requests=(request(),), offers=(ONE,)), POOL)) == [1] * 4
    bound = [
        pod(f"w-{number}", node=machine(number + 1)[0].name, annotations={CONSUMES: "train"}, requests={GPU: 1})
        for number in range(2)
    ]
    there = [machine(1), machine(2)]
    plan = scale(
        world(*bound, requests=(booked(2, machines=",".join(one[0].name for one in there)),), machines=there, offers=(ONE,)), POOL
    )
    assert launched(plan) == [] and told(plan)["BookingExpired"][:2] == ("True", "CapacityBookingConsumed")


def test_L42_a_machine_that_ends_before_its_pods_come_revokes_the_capacity() -> None:
    gone = scale(world(requests=(booked(1, machines="tgp-a1b2c3d4-p-00009"),)), POOL)
    assert told(gone) == {"CapacityRevoked": ("True", "MachineLost", "tgp-a1b2c3d4-p-00009 ended before its pods came.")}
    there = machine(1, ready=False, ready_since=at("11:59:30"))
    assert told(scale(world(requests=(booked(1, machines=there[0].name),), machines=[there]), POOL)) == {}, "not Ready for a moment"


@pytest.mark.parametrize(("created", "failed"), [("2026-08-13T12:00:01Z", False), ("2026-08-13T12:00:00Z", True)])
def test_L42_what_is_not_served_within_seven_days_has_failed(created: str, failed: bool) -> None:
    plan = scale(world(requests=(request(created=parse_time(created)),), offers=(ONE,)), POOL)
    assert (told(plan).get("Failed", ("", ""))[1] == "Expired") is failed
    assert launched(plan) == ([] if failed else [1] * 4)


# ---- classes


def test_L42_check_capacity_rents_nothing_and_says_what_is_free() -> None:
    short = scale(
        world(requests=(request(2, kind=CHECK_CAPACITY),), machines=[machine(1), joining(2, gpus=1)], offers=(ONE,)), POOL
    )
    text = "Room for 1 of 2 pods is free, and this class rents nothing."
    assert launched(short) == [] and told(short)["Provisioned"] == ("False", "CapacityIsNotFound", text)
    enough = scale(world(requests=(request(2, kind=CHECK_CAPACITY),), machines=[machine(1), machine(2)]), POOL)
    assert told(enough)["Provisioned"][:2] == ("True", "CapacityIsFound")


def test_L42_check_capacity_sees_only_what_waiting_pods_and_older_requests_leave() -> None:
    one, two = (
        request(1, kind=CHECK_CAPACITY, name=name, created=at(created)) for name, created in (("a", "11:00"), ("b", "11:30"))
    )
    plan = scale(world(requests=(two, one), machines=[machine(1)]), POOL)
    assert (told(plan, "a")["Provisioned"][0], told(plan, "b")["Provisioned"][0]) == ("True", "False")
    taken = scale(world(asks("w"), requests=(one,), machines=[machine(1)]), POOL)
    assert told(taken, "a")["Provisioned"][0] == "False"


def test_L42_a_pool_serves_the_classes_that_it_names_only() -> None:
    one = request(1, kind=BEST_EFFORT_ATOMIC)
    assert launched(scale(world(requests=(one,), offers=(ONE,)), pool(provisioning_classes=(BEST_EFFORT_ATOMIC,)))) == [1]
    other = scale(world(requests=(one,), machines=[machine(1)], offers=(ONE,)), pool(provisioning_classes=(ATOMIC,)))
    assert (launched(other), told(other)["Provisioned"][0]) == ([], "False")


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"problem": "there is no PodTemplate x in namespace default"}, "There is no PodTemplate x in namespace default."),
        ({"gpus": 0}, "No machine of ours is of use to its pods: they ask for no GPUs, or must not be a reason to rent."),
        (
            {"placement": Placement(claims=True)},
            "It asks for devices by resource claims (DRA), which is not supported in requests for room.",
        ),
    ],
    ids=["template", "no GPUs", "claims"],
)
def test_L42_what_no_machine_can_change_fails_at_once(facts: dict[str, t.Any], words: str) -> None:
    plan = scale(world(requests=(request(1, **facts),), offers=(ONE,)), POOL)
    assert launched(plan) == [] and told(plan)["Failed"] == ("True", "FailedToCheckCapacity", words)


# ---- whatever comes


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(
    sizes=strategies.lists(strategies.tuples(strategies.integers(1, 4), strategies.integers(1, 2)), min_size=1, max_size=3),
    free=strategies.integers(0, 3),
    room=strategies.integers(0, 5),
    waiting=strategies.integers(0, 2),
)
def test_L42_no_request_is_ever_split(sizes: list[tuple[int, int]], free: int, room: int, waiting: int) -> None:
    """Every request has a place for all of its pods or for none, no place is given twice, and one that is Provisioned has Ready machines."""
    requests = tuple(request(count, gpus, name=f"r{number}") for number, (count, gpus) in enumerate(sizes))
    there = [machine(number + 1) for number in range(free)]
    pods = [asks(f"w{number}") for number in range(waiting)]
    plan = scale(
        world(*pods, requests=requests, machines=there), specs(pool(max_nodes=room + free, provisioning_classes=(ATOMIC,)))
    )
    placed: dict[str, int] = {}
    for one in plan.waiting:
        if one.machine:
            placed[one.machine] = placed.get(one.machine, 0) + one.gpus
    sized = {one.name: one.claim.offer.gpu_count for one in of(plan, "launch") if one.claim} | {one[0].name: 1 for one in there}
    assert all(used <= sized[name] for name, used in placed.items())
    for number, (count, _gpus) in enumerate(sizes):
        has = sum(1 for one in plan.waiting if one.name.startswith(f"r{number}[") and one.machine)
        assert has in (0, count)
        if told(plan, f"r{number}")["Provisioned"][0] == "True":
            assert has == count and all(
                one.machine in {each[0].name for each in there} for one in plan.waiting if one.name.startswith(f"r{number}[")
            )


def test_L42_a_claim_that_is_being_deleted_holds_no_request() -> None:
    made, node, instance = machine(1)
    lost = (dataclasses.replace(made, phase=Phase.FAILED), node, instance)
    assert "CapacityRevoked" in told(scale(world(requests=(booked(1, machines=made.name),), machines=[lost]), POOL))
