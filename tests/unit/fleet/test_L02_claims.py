# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-2: phases, records, recovery after a crash, duplicates, the unknown window."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from datetime import datetime, timezone
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Attempt,
    Claim,
    CloudView,
    Deletion,
    Instance,
    InstanceState,
    Lane,
    Offer,
    Phase,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.record import (
    IllegalTransition,
    advance,
    counts,
    from_record,
    legal,
    to_record,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.write_behind import write_due
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cluster_state import Instances, recovery
from hypothesis import given
from hypothesis import strategies as st

from .build import NOON, at, claim, decide, instance, node, node_class, of, offer, one, pool, seen, specs

P = Phase


def test_L02_transitions_are_exactly_the_legal_ones() -> None:
    live = [P.PENDING, P.PROVISIONING, P.BOOTING, P.JOINING, P.READY]
    expected = {(old, new) for place, old in enumerate(live) for new in live[place + 1 :]}
    expected |= {(old, P.TERMINATING) for old in (*live, P.FAILED)} | {(old, P.FAILED) for old in live[:-1]}
    assert {(old, new) for old in P for new in P if legal(old, new)} == expected


def test_L02_illegal_transition_is_refused_and_legal_one_recorded() -> None:
    with pytest.raises(IllegalTransition, match="cannot go from Ready to Booting"):
        advance(claim(), P.BOOTING, NOON, "no")
    moved = advance(claim(phase=P.BOOTING), P.JOINING, NOON, "device online")
    assert (moved.phase, moved.phase_since, moved.history[-1]) == (P.JOINING, NOON, (NOON, "Joining", "device online"))
    assert advance(moved, P.JOINING, at("12:05"), "again") is moved


def test_L02_what_counts_against_limits() -> None:
    assert all(counts(claim(phase=phase)) for phase in P if phase is not P.FAILED)
    assert counts(claim(phase=P.FAILED))  # a create call went out
    assert not counts(claim(phase=P.FAILED, launch_started=None))


def test_L02_steps_wait_two_minutes_for_the_next_write_facts_as_long_as_it_takes_and_the_bill_not_at_all() -> None:
    stored = claim(phase=P.PROVISIONING, instance_id="i-1")
    seen = dataclasses.replace(stored, ip="192.0.2.1", price_paid=stored.reserved_price)
    assert write_due(stored, seen, NOON) > at("23:59"), "another reader sees them at the cloud"
    joining = advance(seen, P.JOINING, at("12:04"), "device")
    assert write_due(stored, joining, NOON) == at("12:06:00"), "counted from the step, not from the facts before it"
    assert write_due(stored, joining, at("12:05")) == at("12:07:00")
    for bill in ({"price_paid": Decimal("0.43")}, {"running_since": NOON}, {"interrupted_at": NOON}):
        assert write_due(stored, dataclasses.replace(joining, **bill), NOON) == NOON, bill


_moments = st.datetimes(min_value=datetime(2020, 1, 1), max_value=datetime(2040, 1, 1)).map(
    lambda moment: moment.replace(microsecond=0, tzinfo=timezone.utc)
)
_prices = st.decimals(min_value=0, max_value=1000, places=6)
_offers = st.builds(
    Offer,
    cloud=st.text(),
    id=st.text(),
    instance_type=st.text(),
    model=st.text(),
    gpu_count=st.integers(0, 16),
    price_hour=st.none() | _prices,
    storage_price_hour=_prices,
    reliability=st.none() | _prices,
    traffic_price_gb_down=st.none() | _prices,
    lanes=st.lists(st.sampled_from(Lane)).map(tuple),
    seen=st.none() | _moments,
)
_claims = st.builds(
    Claim,
    name=st.text(min_size=1),
    pool=st.text(),
    node_class=st.text(),
    cloud=st.text(),
    lane=st.sampled_from(Lane),
    phase=st.sampled_from(Phase),
    phase_since=_moments,
    created=_moments,
    offer=_offers,
    reserved_price=_prices,
    candidates=st.lists(_offers, max_size=2).map(tuple),
    ids_seen=st.lists(st.text()).map(tuple),
    price_paid=st.none() | _prices,
    launch_started=st.none() | _moments,
    deletion=st.none() | st.builds(Deletion, reason=st.text(), requested=_moments, started=st.none() | _moments),
    attempts=st.lists(st.builds(Attempt, time=_moments, offer=st.text(), result=st.text()), max_size=2).map(tuple),
    history=st.lists(st.tuples(_moments, st.text(), st.text()), max_size=2).map(tuple),
)


@given(_claims)
def test_L02_records_survive_json(made: Claim) -> None:
    record = to_record(made)
    assert from_record(json.loads(json.dumps(record))) == made
    assert "version" not in record


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": "red"}, "colour: unknown field"),
        ({"phase": "Sleeping"}, "phase: 'Sleeping' is not one of"),
        ({"reserved_price": 0.42}, "reserved_price: an amount as text"),
        ({"created": "soon"}, "is not a time"),
        ({"record_version": 99}, "version 99"),
        ({"ids_seen": "i-1"}, "ids_seen: a list was expected"),
    ],
)
def test_L02_records_are_strict(change: dict[str, t.Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        from_record({**to_record(claim()), **change})
    incomplete = to_record(claim())
    del incomplete["pool"]
    with pytest.raises(InvalidInput, match="pool: the field is missing"):
        from_record(incomplete)


def look(made: Claim, found: t.Sequence[Instance] | None, now: datetime = NOON) -> str:
    return recovery(made, found, now).what


def test_L02_crash_after_the_claim_was_written() -> None:
    assert look(claim(phase=P.PENDING), ()) == "launch"


def test_L02_crash_after_the_mark_waits_for_the_unknown_window() -> None:
    marked = claim(phase=P.PROVISIONING, launch_started=at("12:00"))
    assert look(marked, (), at("12:09:59")) == "wait"
    assert look(marked, (), at("12:10")) == "next_offer"


def test_L02_crash_after_the_create_call_adopts() -> None:
    marked = claim(phase=P.PROVISIONING, launch_started=at("11:55"))
    assert look(marked, (instance(),)) == "adopt"
    resumed = one(decide(seen(claims=(marked,), instances=(instance(),)), specs(p=1), "provision"), "resume").claim
    assert resumed is not None
    assert (resumed.instance_id, resumed.phase, resumed.ids_seen) == ("i-00001", P.BOOTING, ("i-00001",))


def test_L02_crash_after_the_id_was_written_goes_on() -> None:
    assert look(claim(phase=P.BOOTING), (instance(),)) == "go_on"


@pytest.mark.parametrize("present", [True, False])
def test_L02_crash_during_destroy_goes_on_destroying(present: bool) -> None:
    going = claim(phase=P.TERMINATING, deletion=Deletion("Empty", at("11:50"), started=at("11:51"), attempts=1))
    found = decide(seen(claims=(going,), instances=(instance(),) if present else ()))
    action = one(found, "destroy")
    assert action.reason == "Empty" and action.claim is not None and action.claim.deletion == going.deletion


def test_L02_unreadable_list_is_unknown_not_gone() -> None:
    assert look(claim(phase=P.PROVISIONING), None) == "unknown"


def test_L02_unknown_window_time_line() -> None:
    """Create 12:00, answer lost 12:00:30: runs at 12:05 and 12:09 wait and count it, the one at 12:11 takes the next offer."""
    first, second = offer("0.40"), offer("0.42")
    lost = claim(phase=P.PROVISIONING, offer=first, launch_started=at("12:00"), unknown_since=at("12:00:30"))
    lost = dataclasses.replace(lost, attempts=(Attempt(at("12:00:30"), "lambda/g-0.40", "unknown", "unknown"),))
    for moment in ("12:05", "12:09"):
        waiting = decide(seen(at(moment), claims=(lost,), offers=(first, second)), specs(p=1), "provision")
        assert not of(waiting, "launch", "resume", "update") and one(waiting, "report").reason == "Waiting"
    blind = decide(seen(at("12:11"), claims=(lost,), clouds={"lambda": CloudView(None, (first, second))}), specs(p=1), "provision")
    assert not of(blind, "launch", "resume")
    late = decide(seen(at("12:11"), claims=(lost,), offers=(first, second)), specs(p=1), "provision")
    resumed = one(late, "resume").claim
    assert resumed is not None and resumed.offer.id == "g-0.42"
    assert (resumed.unknown_since, resumed.launch_started, resumed.name) == (None, None, lost.name)
    assert resumed.attempts[-1].result == "refused" and not of(late, "launch")


def test_L02_no_offer_left_keeps_the_claim_and_says_so() -> None:
    lost = claim(phase=P.PROVISIONING, launch_started=at("11:40"), unknown_since=at("11:40:30"))
    found = decide(seen(claims=(lost,), offers=(lost.offer,)), specs(p=1), "provision")
    assert not of(found, "launch", "resume", "destroy")
    assert found.shortfall[0].missing == 1 and found.shortfall[0].reason == "tried before"


def test_L02_duplicates_keep_the_oldest_when_no_id_is_known() -> None:
    marked = claim(phase=P.PROVISIONING, launch_started=at("11:55"))
    pair = (instance(id="502", created=at("12:00:45")), instance(id="501", created=at("12:00:31")))
    found = decide(seen(claims=(marked,), instances=pair), specs(p=1), "provision")
    resumed, extra = one(found, "resume").claim, one(found, "delete_instance")
    assert resumed is not None and resumed.instance_id == "501" and set(resumed.ids_seen) == {"501", "502"}
    assert (extra.target, extra.value, extra.reason) == ("502", "lambda", "Duplicate")


def test_L02_duplicates_keep_the_known_id() -> None:
    ready = claim(instance_id="502", ids_seen=("502",))
    pair = (instance(id="501", created=at("11:00:31")), instance(id="502", created=at("11:00:45")))
    found = decide(seen(claims=(ready,), instances=pair, nodes=(node(),), pods=None))
    assert [action.target for action in of(found, "delete_instance")] == ["501"]
    assert set(t.cast(Claim, one(found, "update").claim).ids_seen) == {"501", "502"}


def test_L02_a_second_machine_is_found_by_its_id_whatever_its_name_is() -> None:
    ready = claim(instance_id="502", ids_seen=("501", "502"))
    pair = (instance("renamed-by-hand", id="501"), instance(id="502"))
    found = recovery(ready, pair, NOON)
    assert (found.what, [one.id for one in found.duplicates]) == ("go_on", ["501"])


def test_L02_a_machine_that_is_not_ours_is_nobody_s_second_one() -> None:
    mine = claim(instance_id="501", ids_seen=("501",))
    found = recovery(mine, Instances([instance(id="501")], foreign={"501"}), NOON)
    assert (found.what, found.instance, found.duplicates) == ("unknown", None, ()) and "is not ours" in found.why


def test_L02_late_machine_of_a_failed_claim_is_destroyed_with_it() -> None:
    failed = claim(phase=P.FAILED)
    action = one(decide(seen(claims=(failed,), instances=(instance(),))), "destroy")
    assert action.reason == "LaunchFailed" and action.claim is not None and action.claim.ids_seen == ("i-00001",)


def test_L02_failed_claim_without_machine_is_cleared_away() -> None:
    assert one(decide(seen(claims=(claim(phase=P.FAILED, launch_started=None),))), "destroy").reason == "LaunchFailed"


def test_L02_reap_clears_away_an_interrupted_launch_that_rented_nothing() -> None:
    for made in (claim(phase=P.PENDING), claim(phase=P.PROVISIONING, launch_started=at("11:50"))):
        assert one(decide(seen(claims=(made,))), "destroy").reason == "LaunchFailed"
    open_outcome = claim(phase=P.PROVISIONING, launch_started=at("11:50:01"))
    assert not of(decide(seen(claims=(open_outcome,))), "destroy")


def test_L02_facts_move_the_claim_forward() -> None:
    booting = claim(phase=P.PROVISIONING, instance_id="i-00001", ids_seen=("i-00001",), launch_started=at("11:50"))
    rented = instance(ip="203.0.113.7", price_hour=Decimal("0.43"))
    found = decide(seen(claims=(booting,), instances=(rented,)))
    updated = one(found, "update").claim
    assert updated is not None and (updated.phase, updated.ip, updated.price) == (P.BOOTING, "203.0.113.7", Decimal("0.43"))
    silent = dataclasses.replace(rented, state=InstanceState.UNKNOWN, ip="", price_hour=None)
    assert not decide(seen(claims=(booting,), instances=(silent,))).actions


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.PROVISIONING])
def test_a_node_of_its_name_alone_makes_no_claim_ready(phase: Phase) -> None:
    """No machine is known for the claim, so it goes on counting, and nothing is rented in the place of what may be running."""
    waiting = claim(phase=phase)
    world = seen(claims=(waiting,), nodes=(node(),), offers=(offer("0.42"),))
    found = decide(world, specs(classes=(node_class(max_nodes=1),), p=3), "provision")
    assert [action.kind for action in found.actions] == ["report"] and "Ready" in found.actions[0].detail
    assert found.shortfall[0].reason == "limit:maxNodes"


def test_L02_duplicates_501_and_502() -> None:
    """Both were listed under one name: 501 (12:00:31) is kept, 502 (12:00:45) goes, and what it cost is a line of its own."""
    name = "tgp-a1b2c3d4-training-0k3zq"
    mine = claim(name, P.PROVISIONING, pool="default/training", launch_started=at("12:00"))
    pair = (instance(name, id="501", created=at("12:00:31")), instance(name, id="502", created=at("12:00:45")))
    found = decide(seen(at("12:01"), claims=(mine,), instances=pair), specs(pool("training")), "reap")
    extra = one(found, "delete_instance")
    assert (extra.target, extra.reason) == ("502", "Duplicate")
    updated = one(found, "update").claim
    assert updated is not None and (updated.instance_id, set(updated.ids_seen)) == ("501", {"501", "502"})


def test_L02_a_list_that_failed_meanwhile_does_not_end_the_window() -> None:
    """At 12:05 the list fails: the window goes on; at 12:11 the last list must have succeeded."""
    lost = claim(phase=P.PROVISIONING, launch_started=at("12:00"), unknown_since=at("12:00:30"))
    assert look(lost, None, at("12:05")) == look(lost, None, at("12:11")) == "unknown"
    assert look(lost, (), at("12:10:29")) == "wait" and look(lost, (), at("12:10:30")) == "next_offer"
