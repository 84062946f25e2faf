# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-16: money per day, week and month. What falls on a period, what may still be launched, and what happens at the end of the money."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.model import Deletion, Ledger, LedgerLine, Phase, Plan, SpendingBudget
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.budgets import open_purses, outlook
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import (
    add_up,
    between,
    books,
    ledger_line,
    read_ledger,
    read_line,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.price_history import break_even_hours
from ansible_collections.tgp.gpu.plugins.module_utils.units.calendar import days_between, period_of
from hypothesis import given
from hypothesis import strategies as st

from .build import CAPABILITIES, NOON, at, claim, decide, instance, node, node_class, of, offer, pod, pool, seen, specs

DAY_20 = SpendingBudget("day", Decimal("20.00"))


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


def line(start: str, end: str, price: str = "0.42", **facts: t.Any) -> LedgerLine:
    made = claim(launch_started=moment(start), offer=offer(price), **facts)
    return read_line(ledger_line(made, end=moment(end)))


def spent(dollars: str, **facts: t.Any) -> Ledger:
    """A ledger that says that so much was spent between 10:00 and 11:00 of the test day."""
    made = claim("tgp-a1b2c3d4-p-00099", launch_started=at("10:00"), offer=offer(dollars), **facts)
    return read_ledger([ledger_line(made, end=at("11:00"))])


# ---- periods


@pytest.mark.parametrize(
    ("kind", "zone", "now", "key", "start", "end"),
    [
        ("day", "UTC", "2026-08-20T12:00", "2026-08-20", "2026-08-20T00:00", "2026-08-21T00:00"),
        ("day", "Europe/Berlin", "2026-08-20T21:59:59", "2026-08-20", "2026-08-19T22:00", "2026-08-20T22:00"),
        ("day", "Europe/Berlin", "2026-08-20T22:00", "2026-08-21", "2026-08-20T22:00", "2026-08-21T22:00"),
        ("day", "Europe/Berlin", "2026-03-29T12:00", "2026-03-29", "2026-03-28T23:00", "2026-03-29T22:00"),  # 23 hours
        ("day", "Europe/Berlin", "2026-10-25T12:00", "2026-10-25", "2026-10-24T22:00", "2026-10-25T23:00"),  # 25 hours
        ("day", "Africa/Cairo", "2026-04-24T12:00", "2026-04-24", "2026-04-23T22:00", "2026-04-24T21:00"),  # begins at 01:00
        ("week", "UTC", "2026-01-01T00:00", "2026-W01", "2025-12-29T00:00", "2026-01-05T00:00"),
        ("week", "UTC", "2026-01-04T23:59:59", "2026-W01", "2025-12-29T00:00", "2026-01-05T00:00"),
        ("week", "UTC", "2026-01-05T00:00", "2026-W02", "2026-01-05T00:00", "2026-01-12T00:00"),
        ("month", "UTC", "2028-02-29T00:00", "2028-02", "2028-02-01T00:00", "2028-03-01T00:00"),
        ("month", "UTC", "2026-12-31T23:59", "2026-12", "2026-12-01T00:00", "2027-01-01T00:00"),
        ("month", "America/New_York", "2026-03-31T12:00", "2026-03", "2026-03-01T05:00", "2026-04-01T04:00"),
    ],
)
def test_L16_periods_are_those_of_the_place(kind: str, zone: str, now: str, key: str, start: str, end: str) -> None:
    found = period_of(kind, moment(now), zone)
    assert (found.key, found.start, found.end) == (key, moment(start), moment(end))


@pytest.mark.parametrize(("kind", "zone"), [("year", "UTC"), ("day", "Europe/Nowhere"), ("day", "../etc/passwd"), ("day", "")])
def test_L16_a_period_or_zone_that_does_not_exist_is_refused(kind: str, zone: str) -> None:
    with pytest.raises(InvalidInput):
        period_of(kind, NOON, zone)


@given(
    st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)),
    st.sampled_from(
        ["UTC", "Europe/Berlin", "America/Havana", "Africa/Cairo", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia"]
    ),
    st.sampled_from(["day", "week", "month"]),
)
def test_L16_every_moment_is_in_one_period_and_they_follow_each_other(when: datetime, zone: str, kind: str) -> None:
    now = when.replace(tzinfo=timezone.utc)
    found = period_of(kind, now, zone)
    assert found.start <= now < found.end
    assert period_of(kind, found.start, zone) == found == period_of(kind, found.end - timedelta(seconds=1), zone)
    assert period_of(kind, found.end, zone).start == found.end


# ---- what falls on a period


def test_L16_a_machine_over_midnight_is_split_between_the_days() -> None:
    found = line("2026-08-20T23:00", "2026-08-21T02:00")
    parts = [between(found, one.start, one.end) for one in days_between(moment("2026-08-20T00:00"), moment("2026-08-22T00:00"))]
    assert parts == [Decimal("0.42"), Decimal("0.84")]


def test_L16_the_day_of_a_time_zone_begins_there() -> None:
    found = line("2026-08-20T21:30", "2026-08-20T22:30")
    parts = [
        between(found, one.start, one.end)
        for one in days_between(moment("2026-08-20T12:00"), moment("2026-08-21T12:00"), "Europe/Berlin")
    ]
    assert parts == [Decimal("0.21"), Decimal("0.21")]


def test_L16_a_started_unit_counts_where_it_begins() -> None:
    made = claim(launch_started=moment("2026-08-20T23:59:30"), offer=offer("60"))
    found = read_line(ledger_line(made, end=moment("2026-08-21T00:01:00"), granularity=60))
    assert found.cost == 2
    assert between(found, moment("2026-08-20T00:00"), moment("2026-08-21T00:00")) == 1
    assert between(found, moment("2026-08-21T00:00"), moment("2026-08-22T00:00")) == 1


def test_L16_disk_and_gpus_fall_on_their_own_times() -> None:
    made = claim(
        offer=offer("1.10", storage_price_hour=Decimal("0.10"), cloud="vast"),
        launch_started=at("10:00"),
        running_since=at("11:00"),
        interrupted_at=at("13:00"),
    )
    found = read_line(ledger_line(made, end=at("14:00"), bills_boot=False))
    hours = [between(found, at(f"{hour}:00"), at(f"{hour + 1}:00")) for hour in range(9, 15)]
    assert hours == [0, Decimal("0.10"), Decimal("1.10"), Decimal("1.10"), Decimal("0.10"), 0]


TIMES = st.integers(0, 40 * 86400).map(lambda seconds: moment("2026-03-10T00:00") + timedelta(seconds=seconds))
PRICES = st.decimals("0", "99", places=6, allow_nan=False)


@st.composite
def lines(draw: st.DrawFn) -> LedgerLine:
    started, ended = sorted(draw(st.tuples(TIMES, TIMES)))
    marks = sorted(draw(st.lists(TIMES, min_size=4, max_size=4)))
    price = draw(PRICES)
    made = claim(
        offer=offer(str(price), storage_price_hour=draw(PRICES)),
        launch_started=started,
        running_since=draw(st.sampled_from([None, marks[0]])),
        interrupted_at=draw(st.sampled_from([None, marks[3]])),
        initialized=draw(st.sampled_from([None, marks[1]])),
        worked_since=draw(st.sampled_from([None, *marks])),
        work_watched=draw(st.booleans()),
        idle_since=draw(st.sampled_from([None, marks[2]])),
    )
    return read_line(ledger_line(made, end=ended, granularity=draw(st.sampled_from([1, 60, 3600])), bills_boot=draw(st.booleans())))


@given(st.lists(lines(), max_size=6), st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"]))
def test_L16_days_add_up_to_the_ledger_to_the_last_digit(found: list[LedgerLine], zone: str) -> None:
    days = days_between(moment("2026-03-01T00:00"), moment("2026-05-01T00:00"), zone)
    parts = [between(one, day.start, day.end) for one in found for day in days]
    assert all(part >= 0 for part in parts)
    assert add_up(parts) == add_up(one.cost for one in found)


def test_L16_a_line_that_is_written_and_a_claim_that_is_not_yet_removed_count_once() -> None:
    ending = claim(phase=Phase.TERMINATING, deletion=Deletion("Empty", at("11:30")))
    written = read_ledger([ledger_line(ending, end=at("11:30"))])
    assert [one.cost for one in books(written, [ending], NOON, CAPABILITIES)] == [Decimal("0.21")]
    own = claim("rack-1", Phase.TERMINATING, offer=offer("0.42", cloud="webhook"))
    before = {**ledger_line(own, end=at("11:30")), "key": f"rack-1.{own.created:%Y%m%d%H%M%S}"}
    assert len(books(read_ledger([before]), [own], NOON, CAPABILITIES)) == 1
    again = dataclasses.replace(own, created=at("11:45"), launch_started=at("11:45"))
    assert len(books(read_ledger([before]), [again], NOON, CAPABILITIES)) == 2


@pytest.mark.parametrize("dollars", ["0.10", "0.90"])
def test_L16_a_life_never_tells_more_than_its_line_and_ends_with_it(dollars: str) -> None:
    """A line whose cost is not price × time (its cloud said otherwise) is what it says."""
    found = read_line({**ledger_line(claim(launch_started=at("10:00")), end=at("12:00")), "cost": dollars})
    hours = [between(found, at(f"{hour}:00"), at(f"{hour + 1}:00")) for hour in (9, 10, 11, 12)]
    first = min(Decimal("0.42"), Decimal(dollars))
    assert hours == [0, first, Decimal(dollars) - first, 0]


def test_L16_useful_and_idle_seconds_of_a_line() -> None:
    def seconds(**facts: t.Any) -> tuple[int, int]:
        usual = {"initialized": at("10:10"), "worked_since": at("10:10"), "work_watched": True}
        made = ledger_line(claim(launch_started=at("10:00"), **{**usual, **facts}), end=NOON)
        return made["useful_seconds"], made["idle_seconds"]

    assert seconds() == (6600, 0) and seconds(idle_since=at("11:50")) == (6000, 600)
    assert seconds(initialized=None, worked_since=None, idle_since=at("11:50")) == (0, 0)
    assert seconds(interrupted_at=at("11:00")) == (3000, 0) and seconds(worked_since=at("11:10")) == (3000, 0)
    assert seconds(worked_since=None) == (0, 6600) and seconds(worked_since=None, idle_since=at("11:50")) == (0, 6600)
    assert seconds(worked_since=at("11:10"), idle_since=at("11:00")) == (3000, 0), "an idle time before the first work"


def test_L16_a_machine_that_is_gone_costs_nothing_more() -> None:
    gone = claim(phase=Phase.TERMINATING, gone_since=at("11:30"), deletion=Deletion("Empty", at("11:20")))
    assert books(Ledger(), [gone], NOON, CAPABILITIES)[0].cost == Decimal("0.21")


@pytest.mark.parametrize(
    "change",
    [{"cost": None}, {"cost": "much"}, {"cost": 0.42}, {"cost": "-1"}, {"cost": "NaN"}, {"end": None}, {"end": "soon"}, {"name": ""},
     {"granularity": "x"}, {"start": "2026"}],
)  # fmt: skip
def test_L16_a_line_that_makes_no_sense_is_torn_and_the_others_are_read(change: dict[str, t.Any]) -> None:
    good = ledger_line(claim(), end=NOON)
    odd = {**ledger_line(claim("tgp-a1b2c3d4-p-00002"), end=NOON), **change}
    if change == {"cost": None}:
        del odd["cost"]
    found = read_ledger([odd, good])
    assert [one.name for one in found.lines] == ["tgp-a1b2c3d4-p-00001"] and len(found.torn) == 1


# ---- room for a launch


def launched(ledger: Ledger | None, price: str, budget: SpendingBudget = DAY_20, wanted: int = 1, **facts: t.Any) -> Plan:
    scope = facts.pop("scope", "pool")
    budgets = {one: (budget if scope == one else None) for one in ("pool", "class", "all")}
    spec = specs(pool(budget=budgets["pool"]), classes=(node_class(budget=budgets["class"]),), p=wanted)
    return decide(seen(offers=(offer(price),), ledger=ledger, **facts), spec, "provision", budget=budgets["all"])


@pytest.mark.parametrize("scope", ["pool", "class", "all"])
def test_L16_an_hour_must_be_affordable(scope: str) -> None:
    refused = launched(spent("19.70"), "0.42", scope=scope)
    assert not of(refused, "launch") and refused.shortfall[0].reason == f"limit:budget.{scope}"
    assert len(of(launched(spent("19.70"), "0.30", scope=scope), "launch")) == 1
    assert not of(launched(spent("19.70"), "0.3001", scope=scope), "launch")


def test_L16_what_others_spent_does_not_count() -> None:
    other = spent("19.70", pool="default/other", node_class="other")
    assert of(launched(other, "0.42"), "launch") and of(launched(other, "0.42", scope="class"), "launch")
    assert not of(launched(other, "0.42", scope="all"), "launch")


def test_L16_yesterday_does_not_count_but_the_month_does() -> None:
    made = claim("tgp-a1b2c3d4-p-00099", launch_started=at("00:00") - timedelta(hours=2), offer=offer("9.90"))
    books_ = read_ledger([ledger_line(made, end=at("00:00"))])
    assert of(launched(books_, "0.42"), "launch")
    month = SpendingBudget("month", Decimal("20"))
    assert not of(launched(books_, "0.42", month), "launch")
    assert of(launched(books_, "0.20", month), "launch")


def test_L16_a_run_reserves_an_hour_for_one_launch_after_the_other() -> None:
    found = launched(spent("19.00"), "0.42", wanted=5)
    assert len(of(found, "launch")) == 2 and found.shortfall[0].reason == "limit:budget.pool"


def test_L16_a_live_machine_counts_with_what_it_cost_and_with_its_first_hour() -> None:
    young = claim(launch_started=at("11:30"), offer=offer("1.00"))
    budget = SpendingBudget("day", Decimal("2.00"))
    facts: dict[str, t.Any] = {
        "instances": (instance(created=at("11:30"), price_hour=Decimal("1.00")),),
        "nodes": (node(),),
        "wanted": 2,
    }
    assert of(launched(Ledger(), "1.00", budget, claims=(young,), **facts), "launch")
    assert not of(launched(Ledger(), "1.01", budget, claims=(young,), **facts), "launch")
    old = dataclasses.replace(young, launch_started=at("10:30"))
    assert of(launched(Ledger(), "0.50", budget, claims=(old,), **facts), "launch")
    assert not of(launched(Ledger(), "0.51", budget, claims=(old,), **facts), "launch")


def test_L16_no_hour_is_reserved_for_a_machine_that_goes() -> None:
    going = claim(launch_started=at("11:30"), offer=offer("1.00"), deletion=Deletion("Manual", at("11:55")))
    budget = SpendingBudget("day", Decimal("2.00"))
    purse = open_purses(specs(pool(budget=budget)), Settings(), Ledger(), (going,), NOON, CAPABILITIES).all[0]
    assert (purse.spent, purse.reserved) == (Decimal("0.50"), 0)
    staying = dataclasses.replace(going, deletion=None)
    assert open_purses(specs(pool(budget=budget)), Settings(), Ledger(), (staying,), NOON, CAPABILITIES).all[0].reserved == Decimal(
        "0.50"
    )


def test_L16_a_machine_without_a_claim_spends_money_too() -> None:
    lost = instance("tgp-a1b2c3d4-p-0abcd", created=at("10:00"), price_hour=Decimal("1.00"))
    budget = SpendingBudget("day", Decimal("2.50"))
    assert not of(launched(Ledger(), "0.51", budget, wanted=2, instances=(lost,)), "launch")
    assert of(launched(Ledger(), "0.50", budget, wanted=2, instances=(lost,)), "launch")


def test_L16_a_cheaper_offer_may_still_fit() -> None:
    spec = specs(pool(budget=DAY_20), classes=(node_class(strategy="priority"),), p=1)
    found = decide(seen(offers=(offer("0.42"), offer("0.25")), ledger=spent("19.70")), spec, "provision")
    assert [one.claim.offer.id for one in of(found, "launch") if one.claim] == ["g-0.25"]


@pytest.mark.parametrize("books_", [None, Ledger(torn=("line x",))])
def test_L16_without_whole_books_nothing_is_launched_on_a_budget(books_: Ledger | None) -> None:
    found = launched(books_, "0.01")
    assert not of(found, "launch") and found.shortfall[0].reason == "limit:budget.pool unknown"
    assert any("cannot be watched" in text for text in found.warnings)
    free = decide(seen(offers=(offer("0.01"),), ledger=books_), specs(p=1), "provision")
    assert of(free, "launch") and not free.warnings


# ---- low and used up


def watched(ledger: Ledger, action: str = "stop_launch", now: datetime = NOON, mode: str = "reap", **facts: t.Any) -> Plan:
    """One node that is busy and one that is idle, in a pool with the budget; a third one, busy, in another pool."""
    machines = {
        "tgp-a1b2c3d4-p-00001": "default/p", "tgp-a1b2c3d4-p-00002": "default/p", "tgp-a1b2c3d4-q-00003": "default/q",
    }  # fmt: skip
    claims = [claim(name, pool=key) for name, key in machines.items()]
    pods = [pod("busy-1", node="tgp-a1b2c3d4-p-00001"), pod("busy-3", node="tgp-a1b2c3d4-q-00003")]
    amount = Decimal("20.84")  # 2 × 0.42 × 1 h of the live ones, and 20.00
    budget = SpendingBudget("day", amount, action=action)
    nodes = tuple(node(name, labels=facts.get("labels", {}), annotations=facts.get("annotations", {})) for name in machines)
    observed = seen(
        now,
        claims=tuple(claims),
        instances=tuple(instance(name) for name in machines),
        nodes=nodes,
        pods=tuple(pods),
        ledger=ledger,
        findings=facts.get("findings", {}),
    )
    spec = specs(pool("p", budget=budget, min_nodes=1, consolidate_after=None), pool("q"))
    return decide(observed, spec, mode)


def gone(found: Plan) -> list[tuple[str, str]]:
    return [(one.name[-5:], one.reason) for one in of(found, "destroy")]


@pytest.mark.parametrize(
    ("dollars", "kinds"), [("15.83", []), ("15.832", ["budget_soft"]), ("19.9999", ["budget_soft"]), ("20.00", ["budget_hard"])]
)
@pytest.mark.parametrize("mode", ["reap", "provision"])
def test_L16_soft_and_hard_bounds_are_told_of(dollars: str, kinds: list[str], mode: str) -> None:
    found = watched(spent(dollars), mode=mode)
    assert [one.kind for one in found.notices] == kinds
    assert [one.subject for one in found.notices] == ["pool default/p 2026-08-20"] * len(kinds)
    again = watched(spent(dollars), mode=mode, now=at("12:10"))
    assert kinds != ["budget_hard"] or [one.key for one in again.notices] == [one.key for one in found.notices]


def test_L16_the_soft_share_can_be_chosen() -> None:
    budget = dataclasses.replace(DAY_20, soft_percent=Decimal(50))
    assert [one.kind for one in launched(spent("10.00"), "0.42", budget).notices] == ["budget_soft"]
    assert not launched(spent("9.99"), "0.42", budget).notices


def test_L16_stop_launch_gives_nothing_back() -> None:
    assert gone(watched(spent("30"))) == []


def test_L16_drain_idle_gives_back_what_is_idle_at_once() -> None:
    found = watched(spent("20.00"), "drain_idle")
    assert gone(found) == [("00002", "Empty")]
    assert "budget" in of(found, "destroy")[0].detail
    assert gone(watched(spent("19.99"), "drain_idle")) == []


def test_L16_drain_idle_gives_back_although_the_pool_grew_or_keeps_some() -> None:
    young = claim(initialized=at("11:55"))
    facts: dict[str, t.Any] = {"claims": (young,), "instances": (instance(),), "nodes": (node(),), "ledger": spent("20")}
    spec = specs(pool(budget=dataclasses.replace(DAY_20, action="drain_idle"), min_nodes=1, consolidation_policy="Never"))
    assert gone(decide(seen(**facts), spec)) == [("00001", "Empty")]
    assert gone(decide(seen(**{**facts, "pods": (pod(),)}), spec)) == []
    assert gone(decide(seen(**{**facts, "pods": None}), spec)) == [], "unknown is never idle"


def test_L16_drain_all_gives_back_everything_of_its_scope() -> None:
    found = watched(spent("20.00"), "drain_all")
    assert gone(found) == [("00001", "Budget"), ("00002", "Budget")]
    assert gone(watched(spent("19.99"), "drain_all")) == []
    assert gone(watched(spent("20.00"), "drain_all", mode="provision")) == []


def test_L16_holds_delay_drain_all_by_the_grace_period_only() -> None:
    held = {"annotations": {"tgp.io/do-not-disrupt": "true"}}
    first = watched(spent("20.00"), "drain_all", **held)
    assert gone(first) == []
    later = watched(spent("20.00"), "drain_all", at("12:09:59"), findings=first.findings, **held)
    assert gone(later) == [] and later.findings == first.findings
    due = watched(spent("20.00"), "drain_all", at("12:10"), findings=first.findings, **held)
    assert gone(due) == [("00001", "Budget"), ("00002", "Budget")]
    assert gone(watched(spent("20.00"), "drain_idle", **held)) == []


def test_L16_since_when_a_budget_is_used_up_is_forgotten_with_it() -> None:
    """A budget that was raised and is used up again gives holds their time again; of another period nothing is kept."""
    held = {"annotations": {"tgp.io/do-not-disrupt": "true"}}
    first = watched(spent("20.00"), "drain_all", **held)
    assert list(first.findings) == ["Budget|pool|default/p|2026-08-20"]
    torn = dataclasses.replace(spent("20.00"), torn=("line x",))
    assert watched(torn, "drain_all", at("12:05"), findings=first.findings, **held).findings == first.findings
    raised = watched(spent("19.00"), "drain_all", at("12:05"), findings=first.findings, **held)
    assert not raised.findings
    again = watched(spent("20.00"), "drain_all", at("12:30"), findings=raised.findings, **held)
    assert gone(again) == [] and list(again.findings.values()) == [at("12:30")]
    assert not watched(spent("1.00"), "drain_all", findings={"Budget|pool|default/p|2026-08-19": at("01:00")}).findings


@pytest.mark.parametrize("action", ["drain_idle", "drain_all"])
def test_L16_books_that_are_not_whole_delete_nothing(action: str) -> None:
    torn = dataclasses.replace(spent("50.00"), torn=("line x",))
    found = watched(torn, action)
    assert gone(found) == [] and any("at least $" in text for text in found.warnings)


def lost_call(**facts: t.Any) -> Plan:
    """A machine that worked for an hour, and a create call at 11:00 whose answer was lost; together all of the day's money."""
    silent = claim("tgp-a1b2c3d4-p-00002", phase=Phase.PROVISIONING)
    spec = specs(pool(budget=SpendingBudget("day", Decimal("0.84"), action="drain_all")))
    return decide(seen(claims=(claim(), silent), nodes=(node(),), ledger=read_ledger([]), **facts), spec)


def test_L16_a_machine_that_nobody_saw_ends_no_other() -> None:
    """While the list is unknown the call may have made a machine: that is told, and nothing ends for it. Seen, it counts."""
    found = lost_call(instances=None)
    assert gone(found) == []
    assert any("$0.42 of it may be spent for machines that were never observed" in text for text in found.warnings)
    made = lost_call(instances=(instance(), instance("tgp-a1b2c3d4-p-00002", id="i-late")))
    assert ("00001", "Budget") in gone(made)


def test_L16_a_call_that_made_nothing_costs_nothing() -> None:
    """Its time is over, and the whole list lacks it: nothing of the budget is spent for it."""
    found = lost_call(instances=(instance(),))
    assert ("00001", "Budget") not in gone(found) and not found.warnings


@pytest.mark.parametrize(("ready", "reasons"), [(True, ["Budget"]), (False, [])])
def test_L16_what_lives_costs_on_although_its_cloud_does_not_list_it(ready: bool, reasons: list[str]) -> None:
    """Missing since 11:10, and three hours of it are affordable: at 14:00 they are over, if its Node is Ready (O5)."""
    lost = claim(gone_since=at("11:10"))
    spec = specs(pool(budget=SpendingBudget("day", Decimal("1.26"), action="drain_all")))
    silent = node(ready=ready, ready_since=at("13:58"))
    found = decide(seen(at("14:00"), claims=(lost,), nodes=(silent,), ledger=read_ledger([])), spec)
    assert [action.reason for action in of(found, "destroy")] == reasons


def test_L16_machines_that_cost_nothing_stay() -> None:
    free = claim("rack-1", offer=offer("0", cloud="webhook"))
    spec = specs(pool(budget=SpendingBudget("day", Decimal("1"), action="drain_all")))
    found = decide(seen(claims=(free,), nodes=(node("rack-1"),), ledger=spent("5")), spec)
    assert gone(found) == []


def test_L16_a_new_period_is_a_new_budget() -> None:
    yesterday = spent("50.00")
    tomorrow = at("12:00") + timedelta(days=1)
    budget = SpendingBudget("day", Decimal("20.00"))
    purse = open_purses(specs(pool(budget=budget)), Settings(), yesterday, (), tomorrow, CAPABILITIES).all[0]
    assert (purse.spent, purse.period.key, purse.used_up, purse.soft) == (0, "2026-08-21", False, False)


def test_L16_several_budgets_hold_at_once() -> None:
    spec = specs(pool(budget=DAY_20), classes=(node_class(budget=SpendingBudget("month", Decimal("100"))),), p=1)
    observed = seen(offers=(offer("0.42"),), ledger=spent("10"))
    assert of(decide(observed, spec, "provision"), "launch")
    tight = decide(observed, spec, "provision", budget=SpendingBudget("week", Decimal("10.41")))
    assert not of(tight, "launch") and tight.shortfall[0].reason == "limit:budget.all"


def test_L16_a_claim_that_is_cut_off_keeps_its_reason() -> None:
    ending = claim(deletion=Deletion("Budget", at("11:55")))
    found = decide(seen(claims=(ending,), instances=(instance(),), nodes=(node(),), pods=(pod(),)), specs())
    assert gone(found) == [("00001", "Budget")]


def test_L16_order_of_claims_and_lines_does_not_matter() -> None:
    made = [
        claim(f"tgp-a1b2c3d4-p-0000{number}", launch_started=at("11:00"), offer=offer(f"0.{number}1")) for number in range(1, 5)
    ]
    records = [ledger_line(one, end=at("11:40")) for one in made]
    first = books(read_ledger(records), made, NOON, CAPABILITIES)
    assert first == books(read_ledger(reversed(records)), list(reversed(made)), NOON, CAPABILITIES)


# ---- the outlook


def test_L16_projection_is_what_was_spent_and_what_the_hours_left_will_cost() -> None:
    live = claim(launch_started=at("10:00"), offer=offer("0.50"))
    going = claim(
        "tgp-a1b2c3d4-p-00002", Phase.TERMINATING, gone_since=at("11:00"), launch_started=at("10:00"), offer=offer("0.50")
    )
    coming = claim("tgp-a1b2c3d4-p-00003", Phase.PENDING)
    claims = [live, going, coming]
    found = outlook(books(spent("3.00"), claims, NOON, CAPABILITIES), claims, NOON)
    assert (found.hour, found.day, found.month) == (Decimal("0.50"), Decimal("4.50"), Decimal("4.50"))
    assert (found.day_key, found.day_forecast) == ("2026-08-20", Decimal("10.50"))
    assert (found.month_key, found.month_forecast) == ("2026-08", Decimal("4.50") + Decimal("0.50") * (12 + 11 * 24))
    early = outlook(books(spent("3.00"), claims, NOON, CAPABILITIES), claims, NOON, "Pacific/Auckland")
    assert (early.day_key, early.day, early.day_forecast) == ("2026-08-21", 0, Decimal("12.00"))


def test_L16_break_even_hours() -> None:
    assert break_even_hours(Decimal(800), Decimal("0.45")) == 1778 and break_even_hours(Decimal(800), Decimal("0.35")) == 2286


def test_L16_break_even_to_the_tenth_of_an_hour() -> None:
    """800 $ at 0.45 and 0.35 $/h: 1777.8 and 2285.7 hours; people are shown whole hours, rounded up, when buying has paid off."""
    exact = [(Decimal(800) / Decimal(price)).quantize(Decimal("0.1")) for price in ("0.45", "0.35")]
    assert [str(one) for one in exact] == ["1777.8", "2285.7"]
    assert [break_even_hours(Decimal(800), Decimal(price)) for price in ("0.45", "0.35")] == [1778, 2286]
