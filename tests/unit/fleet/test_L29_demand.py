# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-29: what counts as demand, ``replicas``, and plans that come to rest (I-8, I-22)."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import time, timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Calendar,
    Claim,
    Node,
    Observation,
    Offer,
    Phase,
    Plan,
    Pool,
    Window,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from .build import NOON, at, claim, decide, instance, node, of, offer, one, pod, pool, seen, specs
from .pods import waiting
from .test_L24_invariants import applied, changes

LAUNCHING = ["provision", "everything", "autoscale"]
MARKET = (offer("0.42", id="a"), offer("0.60", id="b"))
Facts = tuple[Claim, t.Any, Node]


def machine(number: int, price: str = "0.42", **facts: t.Any) -> Facts:
    """A usable machine since 11:10, without work."""
    name = f"tgp-a1b2c3d4-p-0000{number}"
    return claim(name, offer=offer(price), **facts), instance(name, price_hour=Decimal(price)), node(name)


def world(*machines: Facts, offers: tuple[Offer, ...] = MARKET, **facts: t.Any) -> Observation:
    claims, instances, nodes = zip(*machines, strict=True) if machines else ((), (), ())
    return seen(claims=claims, instances=instances, nodes=nodes, offers=offers, **facts)


def rounds(start: Observation, wanted: Pool, mode: str, number: int, **nodes: int) -> list[Plan]:
    """What a timer does: a plan of ``mode`` and a reap, both carried out, then 20 minutes pass."""
    plans, current = [], start
    for _turn in range(number):
        for kind in (mode, "reap"):
            found = decide(current, specs(wanted, **nodes), kind)
            plans.append(found)
            current = applied(current, found)
        current = dataclasses.replace(current, now=current.now + timedelta(minutes=20))
    return plans


@pytest.mark.parametrize("mode", ["everything", "autoscale"])
def test_L29_five_rounds_without_demand_launch_nothing(mode: str) -> None:
    plans = rounds(world(), pool(), mode, 5)
    assert [changes(one) for one in plans] == [[]] * 10


@pytest.mark.parametrize("mode", LAUNCHING)
@pytest.mark.parametrize("wanted", [pool(min_nodes=2), pool(replicas=2)])
def test_L29_a_floor_launches_once_and_stays(mode: str, wanted: Pool) -> None:
    plans = rounds(world(), wanted, mode, 5)
    assert [len(of(one, "launch")) for one in plans] == [2] + [0] * 9 and not any(of(one, "destroy") for one in plans)


def test_L29_a_plan_does_not_end_what_it_wants() -> None:
    """The number of a run is a floor of that run; without it the machine ends when it is idle."""
    idle = world(machine(1), now=at("13:00"))
    old = node("tgp-a1b2c3d4-p-00001", annotations={"tgp.io/idle-since": "2026-08-20T12:00:00Z"})
    idle = dataclasses.replace(idle, nodes=(old,))
    asked = decide(idle, specs(pool(), p=1), "everything")
    assert changes(asked) == [] or not of(asked, "destroy", "launch")
    assert any("kept for nodes 1" in one.detail for one in of(asked, "report"))
    assert one(decide(idle, specs(pool(), p=0), "everything"), "destroy").reason == "Empty"
    assert one(decide(idle, specs(pool()), "everything"), "destroy").reason == "Empty"


def test_L29_what_expires_is_replaced_in_the_same_plan() -> None:
    old = claim(launch_started=at("01:00"))
    found = decide(world((old, instance(), node())), specs(pool(min_nodes=1, expire_after=3600)), "everything")
    assert one(found, "destroy").reason == "Expired" and len(of(found, "launch")) == 1


# ---- replicas


@pytest.mark.parametrize("mode", LAUNCHING)
def test_L29_replicas_is_an_exact_number_that_ignores_pods(mode: str) -> None:
    for number in (0, 1, 7):
        found = decide(world(pods=(waiting(gpus=8),)), specs(pool(replicas=number)), mode)
        assert len(of(found, "launch")) == number
    if mode == "autoscale":
        found = decide(world(pods=(waiting(),)), specs(pool(replicas=0)), mode)
        assert [one.reason for one in found.waiting] == ["its replicas is 0, an exact number that does not follow pods"]


@pytest.mark.parametrize("mode", ["reap", "everything", "autoscale"])
def test_L29_machines_above_replicas_end_as_soon_as_they_have_no_work(mode: str) -> None:
    patient = pool(replicas=1, consolidate_after=None, consolidation_policy="Never", min_age=3600)
    three = world(machine(1, "0.42"), machine(2, "0.60"), machine(3, "0.39"))
    found = decide(three, specs(patient), mode)
    assert [(one.name[-1], one.reason) for one in of(found, "destroy")] == [("1", "Empty"), ("2", "Empty")]
    assert all("above replicas 1" in one.detail for one in of(found, "destroy"))
    assert any("idle, kept for replicas 1" in one.detail for one in of(found, "report"))


@pytest.mark.parametrize("mode", ["reap", "everything", "autoscale"])
def test_L29_busy_machines_are_not_ended_by_replicas(mode: str) -> None:
    busy = (pod("a"), pod("b", node="tgp-a1b2c3d4-p-00002"))
    found = decide(world(machine(1), machine(2), machine(3), pods=busy), specs(pool(replicas=1)), mode)
    assert [one.name[-1] for one in of(found, "destroy")] == ["3"], "the busy ones fill the number, the idle one is above it"


def test_L29_provision_never_ends_what_is_above_replicas() -> None:
    assert not of(decide(world(machine(1), machine(2)), specs(pool(replicas=1)), "provision"), "destroy", "launch")


@pytest.mark.parametrize("mode", LAUNCHING)
def test_L29_interrupted_launches_above_replicas_are_dropped(mode: str) -> None:
    begun = tuple(claim(f"tgp-a1b2c3d4-p-0000{number}", Phase.PENDING) for number in (1, 2, 3))
    found = decide(seen(claims=begun, offers=MARKET), specs(pool(replicas=1)), mode)
    assert [one.reason for one in of(found, "destroy")] == ["LaunchFailed"] * 2 and len(of(found, "resume")) == 1


def test_L29_outside_its_calendar_replicas_is_none() -> None:
    office = Calendar("UTC", (Window(frozenset({0}), time(8), time(18)),))  # the test day is a Thursday
    wanted = pool(replicas=2, calendar=office)
    assert not of(decide(world(), specs(wanted), "everything"), "launch")
    assert len(of(decide(world(machine(1), machine(2)), specs(wanted), "reap"), "destroy")) == 2


# ---- after a plan was carried out in an unchanged world the next one is empty


_pools = st.builds(
    pool,
    min_nodes=st.integers(0, 3),
    replicas=st.none() | st.integers(0, 4),
    consolidate_after=st.sampled_from([0, 600, None]),
    consolidation_policy=st.sampled_from(["WhenIdle", "Never"]),
    expire_after=st.sampled_from([None, 3600, 7200]),
    min_age=st.sampled_from([0, 600]),
).map(lambda made: made if made.replicas is None else dataclasses.replace(made, min_nodes=0))


@st.composite
def _worlds(draw: t.Any) -> Observation:
    machines, pods = [], []
    for number in range(draw(st.integers(0, 4))):
        born = NOON - timedelta(minutes=draw(st.integers(20, 180)))
        made, there, its = machine(number, draw(st.sampled_from(["0.39", "0.42"])), launch_started=born, created=born)
        idle = {"tgp.io/idle-since": "2026-08-20T11:20:00Z"} if draw(st.booleans()) else {}
        machines.append((made, there, dataclasses.replace(its, annotations=idle)))
        if draw(st.booleans()):
            pods.append(pod(f"job-{number}", node=made.name))
    return world(*machines, pods=tuple(pods))


@settings(deadline=None)
@given(_worlds(), _pools, st.sampled_from(["provision", "reap", "everything", "autoscale"]), st.none() | st.integers(0, 4))
def test_I22_after_an_applied_plan_the_next_is_empty(start: Observation, wanted: Pool, mode: str, number: int | None) -> None:
    """In every mode, with and without a number of the run. A growing pool keeps its idle machines for a while (L-18), so time passes
    between the rounds; what has been decided once is never taken back and made anew."""
    asked = {} if number is None or mode == "autoscale" or wanted.replicas is not None else {"p": number}
    current, launched = start, 0
    at_once = wanted.consolidate_after == 0 or wanted.replicas is not None  # an idle machine that may go does so without a wait
    for turn in range(4):
        found = decide(current, specs(wanted, **asked), mode)
        launched += len(of(found, "launch")) if turn else 0
        current = applied(current, found)
        again = decide(current, specs(wanted, **asked), mode)
        ended = {one.name for one in of(found, "destroy")} if at_once else set()
        # a replacement is idle once the machine has gone whose pods it was to take
        freed = {one.name for one in current.claims or () if one.replaces in ended}
        actions = [one for one in changes(again) if one.startswith(("launch", "destroy", "resume"))]
        assert [one for one in actions if not any(name in one for name in freed)] == [], (turn, mode)
        current = dataclasses.replace(current, now=current.now + timedelta(minutes=11))
    if wanted.expire_after is None:
        assert launched == 0, "nothing ends that the next plan launches again"


# ---- what provision may call done (L-30)


def provision(*machines: Facts, nodes: int, **facts: t.Any) -> Plan:
    return decide(world(*machines, **facts), specs(pool(), p=nodes), "provision")


def test_L30_provision_tells_of_a_machine_whose_node_is_not_ready() -> None:
    sick = (*machine(1)[:2], node("tgp-a1b2c3d4-p-00001", ready=False, ready_since=at("11:50")))
    found = provision(sick, machine(2), nodes=2)
    assert [(one.missing, one.reason) for one in found.shortfall] == [(1, "tgp-a1b2c3d4-p-00001: its Node is not Ready")]
    assert of(found, "launch") == []
    assert provision(sick, machine(2), nodes=1).shortfall == ()  # the other one is all that was asked for
    assert decide(world(sick), specs(pool()), "everything").shortfall == ()  # nobody asked for it in this run


def test_L30_provision_tells_of_a_machine_whose_node_shows_no_gpus() -> None:
    blind = (*machine(1)[:2], node("tgp-a1b2c3d4-p-00001", allocatable={}))
    assert [one.reason for one in provision(blind, nodes=1).shortfall] == ["tgp-a1b2c3d4-p-00001: its Node shows no GPUs"]
    assert provision(machine(1), nodes=1).shortfall == ()


def test_L30_provision_tells_of_a_create_call_whose_outcome_is_open() -> None:
    lost = claim(phase=Phase.PROVISIONING, launch_started=at("11:58"), instance_id="", ids_seen=(), unknown_since=at("11:58"))
    found = decide(seen(claims=(lost,), offers=MARKET), specs(pool(), p=1), "provision")
    assert of(found, "launch") == [] and [one.missing for one in found.shortfall] == [1]


def test_L30_a_machine_that_goes_on_joining_is_no_shortfall() -> None:
    name = "tgp-a1b2c3d4-p-00001"
    joining = claim(name, phase=Phase.BOOTING, launch_started=at("11:58"))
    found = decide(seen(claims=(joining,), instances=(instance(name),), offers=MARKET), specs(pool(), p=1), "provision")
    assert found.shortfall == () and [one.name for one in of(found, "resume")] == [name]
