# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Expired machines whose replacement comes first (L-4): when it is launched, and what the end says of it."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import time
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Calendar,
    Claim,
    CloudChoice,
    CloudView,
    Ledger,
    Machine,
    Offer,
    Phase,
    Plan,
    Pool,
    SpendingBudget,
    Window,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption import surge

from .build import at, claim, decide, instance, node, node_class, of, offer, pool, specs
from .test_L05_surge import MANY, NOW, A, B, C, going, job, launched, new, old, replaced, run, told, world

HOURS = 3600


@pytest.mark.parametrize(
    ("started", "usable", "most", "seconds"),
    [
        ("10:00", "10:06", 1800, 720),
        ("10:00", "10:01", 1800, 300),
        ("10:00", "10:02:30", 1800, 300),
        ("10:00", "10:02:31", 1800, 302),
        ("10:00", "10:15", 1800, 1800),
        ("10:00", "10:20", 1800, 1800),
        ("10:00", "10:20", 240, 240),
        ("10:00", "09:59", 1800, 300),
    ],
)
def test_L04_the_lead_is_twice_what_the_machine_took_itself(started: str, usable: str, most: int, seconds: int) -> None:
    assert surge.lead(claim(launch_started=at(started), initialized=at(usable)), most) == seconds


def test_L04_a_machine_that_was_never_usable_has_no_lead() -> None:
    assert surge.lead(claim(phase=Phase.BOOTING), 1800) is None


def expiring(minutes: float, **facts: t.Any) -> Pool:
    """A pool whose machine of 10:00 expires so many minutes after 12:00."""
    return pool(expire_after=int(2 * HOURS + 60 * minutes), **facts)


def test_L04_the_replacement_is_launched_ahead_of_the_end() -> None:
    """It took six minutes from its create call until it was usable, so its replacement is launched twelve minutes ahead."""
    assert not of(run([old()], expiring(12.05)), "launch")
    found = run([old()], expiring(12))
    action = launched(found)
    assert action.detail.endswith(f"replaces {A}, which expires at 2026-08-20T12:12:00Z") and not of(found, "destroy")


@pytest.mark.parametrize(
    ("phase", "state"), [(Phase.READY, "is usable"), (Phase.BOOTING, "is not usable yet"), (Phase.JOINING, "is not usable yet")]
)
def test_L04_the_end_stays_when_it_was_and_says_what_became_of_the_replacement(phase: Phase, state: str) -> None:
    before = run([old(), new(phase=phase)], expiring(1))
    assert not of(before, "launch", "destroy")
    assert told(before, "Expired") == {A: f"expires at 2026-08-20T12:01:00Z; its replacement {B} {state}"}
    now = run([old(), new(phase=phase)], expiring(0))
    assert going(now, "Expired") == {A: f"due since 2026-08-20T12:00:00Z; its replacement {B} {state}"}
    assert not of(now, "launch") and not told(now, "Expired")


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"mode": "reap"}, "reap.yml launches none"),
        ({"classes": (dataclasses.replace(NOW, max_nodes=1),)}, "limit:maxNodes"),
        ({"offers": ()}, "no offers"),
        ({}, "no run launched one in time"),
    ],
)
def test_L04_an_end_without_a_replacement_says_why(facts: dict[str, t.Any], why: str) -> None:
    found = run([old()], expiring(0), **facts)
    assert going(found, "Expired") == {A: f"due since 2026-08-20T12:00:00Z; without a replacement first: {why}"}


@pytest.mark.parametrize(
    ("facts", "why"),
    [({"classes": (dataclasses.replace(NOW, max_nodes=1),)}, "limit:maxNodes"), ({"offers": ()}, "no offers")],
)
def test_L04_before_the_end_the_plan_says_why_none_comes(facts: dict[str, t.Any], why: str) -> None:
    found = run([old()], expiring(5), **facts)
    assert told(found, "Expired") == {A: f"expires at 2026-08-20T12:05:00Z; no replacement can be launched first: {why}"}
    assert not of(found, "destroy", "launch")


def test_L16_a_replacement_above_the_spending_budget_is_not_launched() -> None:
    found = run([old()], expiring(5, budget=SpendingBudget("day", Decimal("0.10"))), ledger=Ledger())
    assert not of(found, "launch") and "limit:budget.pool" in told(found, "Expired")[A]


def test_L04_an_idle_machine_expires_without_a_replacement_unless_its_pool_counts_it() -> None:
    assert not of(run([old()], expiring(5, consolidation_policy="Never"), pods=[]), "launch")
    assert replaced(run([old()], expiring(5, min_nodes=1), pods=[])) == [A]


def test_L04_of_two_that_expire_one_is_replaced_where_one_is_wanted() -> None:
    found = run([old(A), old(C)], expiring(5, min_nodes=1, consolidation_policy="Never"), pods=[])
    assert len(replaced(found)) == 1


def test_L04_pods_that_hold_their_node_move_all_the_same_when_it_expires() -> None:
    held = job(A, annotations={"tgp.io/do-not-disrupt": "true"})
    assert replaced(run([old()], expiring(5), pods=[held])) == [A]
    bare = job(A, owner_kind="", owner_api="")
    assert not replaced(run([old()], expiring(5), pods=[bare])), "nobody makes it anew"


def test_L04_a_run_launches_no_more_than_five_replacements_for_a_pool() -> None:
    names = [f"tgp-a1b2c3d4-p-{place:05}" for place in range(10, 17)]
    found = run([old(name) for name in names], expiring(5))
    assert len(replaced(found)) == 5
    assert sum("at most 5 replacements" in text for text in told(found, "Expired").values()) == 2


def test_L18_the_hard_stop_of_a_calendar_brings_no_replacement() -> None:
    day = Window(frozenset(range(7)), time(8), time(12, 3), hard_stop=time(12, 3))
    closing = expiring(5, calendar=Calendar("UTC", (day,)))
    found = run([old()], closing)
    assert not of(found, "launch") and "outside its calendar" in told(found, "Expired")[A]
    stopped = run([old()], closing, now=at("12:03"))
    assert going(stopped, "Expired") == {A: "due since 2026-08-20T12:03:00Z, the hard stop of its pool's calendar"}


def test_L04_when_expire_after_is_lengthened_the_extra_machine_is_one_like_any_other() -> None:
    idle = {"annotations": {"tgp.io/idle-since": "2026-08-20T10:00:00Z"}}
    claims = [old(), new(initialized=at("11:30"), created=at("11:20"), launch_started=at("11:20"))]
    nodes = (node(A), node(B, **idle))
    assert not going(run(claims, expiring(5), nodes=nodes), "Empty")
    assert set(going(run(claims, expiring(600), nodes=nodes), "Empty")) == {B}


# ---- own machines


def own(name: str, **facts: t.Any) -> Claim:
    return old(name, cloud="webhook", offer=own_offer(name), instance_id="", ids_seen=(), node_name=name, **facts)


def own_offer(name: str) -> Offer:
    return offer("0", cloud="webhook", id=name, instance_type=name, available=1)


def own_world(claims: t.Sequence[Claim], *machines: str, rented: bool) -> Plan:
    choice = CloudChoice(
        "webhook", machines=tuple(Machine(name, 1, "https://power.test/on", "https://power.test/off") for name in machines)
    )
    wanted = node_class(clouds=(choice, "lambda"))
    clouds = {
        "webhook": CloudView(
            tuple(instance(one.name, cloud="webhook", id=one.name) for one in claims), tuple(own_offer(name) for name in machines)
        ),  # fmt: skip
        "lambda": CloudView((), MANY if rented else ()),
    }
    return decide(world(claims, clouds=clouds), specs(expiring(5), classes=(wanted,)), "autoscale")


def test_L21_an_own_machine_is_replaced_by_another_own_one_only() -> None:
    found = own_world([own("rack-1")], "rack-1", "rack-2", rented=True)
    assert [action.name for action in of(found, "launch")] == ["rack-2"] and replaced(found) == ["rack-1"]
    alone = own_world([own("rack-1")], "rack-1", rented=True)
    assert not of(alone, "launch") and "no other own machine" in told(alone, "Expired")["rack-1"]
