# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-44: what the paid hours of a machine went to, by the pods' own times, whenever runs happen to look."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Claim,
    Deletion,
    Lane,
    LedgerLine,
    Phase,
    Pod,
    PodOwner,
    WorkingPod,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.record import from_record, to_record
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import add_up, ledger_line, live_line, read_line
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.hours import (
    MOST_OWNERS,
    Lifeline,
    PodTime,
    in_proportion,
    look,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.price_history import break_even_rows
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.spend_report import hour_sums, report, to_cents
from hypothesis import example, given
from hypothesis import strategies as st

from .build import CAPABILITIES, NOON, at, claim, decide, instance, node, offer, pod, pool, seen, specs

GPU = {"nvidia.com/gpu": 1}
NAME = "tgp-a1b2c3d4-p-00001"
HISTORY = (
    (at("11:00"), "Pending", "wanted"),
    (at("11:00"), "Provisioning", ""),
    (at("11:02"), "Booting", ""),
    (at("11:06"), "Joining", ""),
)
MINE = claim(work_watched=True, history=(*HISTORY, (at("11:10"), "Ready", "initialized")))
Look = tuple[datetime, t.Sequence[Pod]]


def job(name: str, start: str, end: str | None = None, gpus: int = 1, **facts: t.Any) -> Pod:
    """A pod that runs since ``start``, or has ended."""
    ended = {} if end is None else {"phase": "Succeeded", "finished": at(end)}
    return pod(name, **{"requests": {"nvidia.com/gpu": gpus}, "started": at(start), "ran_since": at(start), **ended, **facts})


def after(looks: t.Iterable[Look], mine: Claim = MINE, **facts: t.Any) -> tuple[Claim, int]:
    """The stored claim after runs that saw these pods, and how often it was written for them alone."""
    written = 0
    for now, pods in looks:
        world = seen(now, claims=(mine,), nodes=(node(**facts),), pods=tuple(pods), instances=(instance(),))
        found = decide(world, specs(pool(consolidate_after=None)))
        for action in found.actions:
            if action.claim is not None and action.name == mine.name:
                only_work = dataclasses.replace(action.claim, work=mine.work) == mine
                written += only_work
                mine = from_record(to_record(action.claim))
    return mine, written


def ended(mine: Claim, end: str, drained: str | None = None) -> LedgerLine:
    """Its line when it ends."""
    deletion = Deletion("Empty", at(drained)) if drained else None
    history = (*mine.history, (at(drained), "Terminating", "")) if drained else mine.history
    return read_line(ledger_line(dataclasses.replace(mine, deletion=deletion, history=history), end=at(end)))


def minutes(line: LedgerLine) -> dict[str, Decimal]:
    return {use: (one.hours * 60).quantize(Decimal("0.01")).normalize() for use, one in hour_sums([line], None, line.end).items()}


def of(**expected: str) -> dict[str, Decimal]:
    return {use: Decimal(amount).normalize() for use, amount in expected.items()}


PODS = (job("a", "11:20", "11:40"), job("b", "11:30", "11:50"))
BOOT = {"booting": "6", "joining": "4"}


def test_L44_E_worked_1_pods_that_ended_are_counted_by_their_own_times_whenever_a_run_looks() -> None:
    """Two pods overlap from 11:30 to 11:40: the machine was useful from 11:20 to 11:50."""
    for looks in (
        [("12:00", PODS)],
        [("11:35", (job("a", "11:20"), job("b", "11:30"))), ("12:00", PODS)],
        [("11:25", (job("a", "11:20"),)), ("11:45", (PODS[0], job("b", "11:30"))), ("11:55", PODS), ("12:00", PODS)],
    ):
        mine, _written = after((at(time), pods) for time, pods in looks)
        assert minutes(ended(mine, "12:10", drained="12:05")) == of(useful="30", waiting="25", draining="5", **BOOT), looks


def test_L44_E_worked_2_of_a_pod_that_is_listed_no_more_the_time_since_the_last_record_is_unmeasured() -> None:
    mine, _written = after([(at("11:30"), [job("a", "11:20")]), (at("11:40"), [])])
    assert minutes(ended(mine, "12:00", drained="12:00")) == of(useful="10", waiting="30", unmeasured="10", **BOOT)


def test_L44_E_worked_3_a_machine_that_is_gone_with_its_pods_is_unmeasured_since_the_last_record() -> None:
    mine, _written = after([(at("11:30"), [job("a", "11:20")])])
    assert minutes(ended(mine, "11:45")) == of(useful="10", waiting="10", unmeasured="15", **BOOT)


def test_L44_E_worked_4_a_pod_that_runs_before_its_machine_is_usable_is_useful() -> None:
    mine, _written = after([(at("11:30"), [job("a", "11:08")])])
    assert minutes(ended(mine, "11:30")) == of(useful="22", booting="6", joining="2")


def test_L44_E_worked_5_no_run_for_a_day() -> None:
    """Nobody looked from 11:30 to 11:30 of the next day: what the pod that is still listed used is known, the rest is not."""
    mine, _written = after([(at("11:30"), [job("a", "11:20")]), (at("11:30") + timedelta(days=1), [job("a", "11:20", "13:20")])])
    line = read_line(ledger_line(mine, end=at("11:30") + timedelta(days=1)))
    assert minutes(line) == of(useful="120", waiting="10", unmeasured=str(24 * 60 - 110), **BOOT)


def test_L44_E_worked_6_what_is_no_work() -> None:
    """A DaemonSet's pod, one without a GPU, one whose image is pulled, one of another node, and one that the kubelet refused."""
    none = [
        job("a", "11:20", owner_kind="DaemonSet", owner_api="apps/v1"),
        job("b", "11:20", requests={}),
        job("c", "11:20", phase="Pending", ran_since=None),
        job("d", "11:20", node="another"),
        job("e", "11:20", phase="Failed", ran_since=None),
    ]
    mine, written = after([(at("11:30"), none), (at("11:40"), none)])
    assert (mine.work, written) == (None, 0)
    assert minutes(ended(mine, "12:00", drained="11:50")) == of(waiting="40", draining="10", **BOOT)


def test_L44_E_worked_7_a_machine_that_never_joined_and_one_that_waits() -> None:
    failed = claim(phase=Phase.FAILED, initialized=None, launch_started=at("11:00"), history=HISTORY)
    assert minutes(read_line(ledger_line(failed, end=at("11:45")))) == of(failed="45")
    booting = claim(phase=Phase.BOOTING, history=HISTORY[:3])
    assert minutes(live_line(booting, at("11:05"), CAPABILITIES["lambda"])) == of(booting="5")


def test_L44_a_quiet_second_run_writes_nothing_and_a_busy_machine_is_recorded_every_quarter_of_an_hour() -> None:
    busy = [job("a", "11:20"), job("c", "11:20")]
    mine, written = after([(at("11:30"), busy)])
    assert written == 0, "that run wrote since when it works anyhow"
    for time, more in (("11:35", 0), ("11:44", 0), ("11:45", 1)):
        assert after([(at(time), busy)], mine)[1] == more, time
    assert after([(at("11:44"), [*busy, job("b", "11:40")])], mine)[1] == 1, "a pod came"
    assert after([(at("11:44"), [busy[1], job("a", "11:20", "11:41")])], mine)[1] == 1, "a pod ended"


def test_L44_a_run_that_is_killed_before_it_writes_loses_nothing_and_the_same_look_twice_counts_once() -> None:
    first, _written = after([(at("11:30"), [job("a", "11:20")])])
    late, _written = after([(at("11:50"), PODS)], first)  # the runs between them were killed: nothing of theirs is stored
    assert late.work is not None and sum(span.useful for span in late.work.spans) == 1800
    again, written = after([(at("11:50"), PODS)], late)
    assert (again.work, written) == (late.work, 0)


def test_L44_a_node_that_fell_silent_says_nothing_of_the_time_after() -> None:
    mine, _written = after(
        [(at("11:30"), [job("a", "11:20")]), (at("11:40"), [job("a", "11:20")])], ready=False, ready_since=at("11:25")
    )
    assert mine.work is not None and mine.work.until == at("11:25")


@pytest.mark.parametrize(("cordoned", "unmeasured"), [(False, 230), (True, 60)])
def test_L44_a_decided_drain_closes_no_node_that_is_not_cordoned(cordoned: bool, unmeasured: int) -> None:
    """The end was decided at 12:10, and that run was killed. At 15:00 an open node may have run pods all the time that are gone again."""
    doomed = dataclasses.replace(MINE, deletion=Deletion("Empty", at("12:10")))
    mine, _written = after([(at("15:00"), [])], doomed, unschedulable=cordoned)
    assert mine.deletion is None, "it is not to end any more"
    assert mine.work is not None and sum(span.unmeasured for span in mine.work.spans) == unmeasured * 60
    assert minutes(ended(mine, "15:00")) == of(unmeasured=str(unmeasured), **BOOT, **({"waiting": "170"} if cordoned else {}))


@pytest.mark.parametrize(("first", "use"), [("13:10", "waiting"), ("13:11", "unmeasured")])
def test_L44_without_a_record_two_hours_are_counted_from_when_the_machine_is_usable(first: str, use: str) -> None:
    """It is usable from 11:10; that it could run no pod before is known without a record."""
    mine, _written = after([(at(first), [])])
    assert minutes(ended(mine, first)) == of(**{use: "120" if use == "waiting" else "121"}, **BOOT)


def test_L44_a_service_is_useful_from_its_first_answer() -> None:
    service = dataclasses.replace(MINE, lane=Lane.SERVICE, idle_since=at("11:50"))
    assert minutes(ended(service, "12:00")) == of(useful="40", waiting="10", **BOOT)


def test_L44_lines_of_older_versions_and_second_machines_are_not_guessed() -> None:
    record = ledger_line(MINE, end=NOON)
    del record["work"]
    assert minutes(read_line(record)) == of(unmeasured="50", **BOOT)
    for reason, use in (("Duplicate", "failed"), ("Orphan", "unmeasured")):
        assert minutes(read_line(ledger_line(dataclasses.replace(MINE, deletion=Deletion(reason, NOON)), end=NOON))) == of(
            **{use: "60"}
        )


def test_L44_what_a_live_machine_did_is_told_as_of_its_last_record() -> None:
    mine, _written = after([(at("11:30"), [job("a", "11:20")])])
    assert minutes(live_line(mine, at("11:40"), CAPABILITIES["lambda"])) == of(useful="20", waiting="10", **BOOT)


def test_L44_a_record_stays_small() -> None:
    """Ten minutes a pod, a hundred namespaces, forty days: a few dozen entries."""
    mine, now = MINE, at("11:20")
    for number in range(200):
        start, now = now, now + timedelta(hours=4)
        pods = [
            pod(
                f"p{number}",
                namespace=f"n{number % 100}",
                phase="Succeeded",
                requests=GPU,
                ran_since=start,
                finished=start + timedelta(minutes=10),
            )
        ]
        mine, _written = after([(now, pods)], mine)
    assert mine.work is not None and len(mine.work.spans) < 40
    assert all(len(span.uses) <= MOST_OWNERS for span in mine.work.spans)


# ---- the record against an integral, second by second

Busy = tuple[int, int, int, bool]  # start and length in seconds after 11:10, GPUs, whether it stays listed when it has ended
EVENTS = st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 3000), st.integers(1, 3), st.booleans()), max_size=6, unique=True)
LOOKS = st.lists(st.integers(1, 3600), min_size=1, max_size=8, unique=True).map(sorted)


@given(EVENTS, LOOKS)
@example([(0, 100, 1, False), (50, 100, 2, True)], [60, 120, 3600])
def test_L44_the_record_is_the_integral_of_what_was_observed(events: list[Busy], looks: list[int]) -> None:
    """Whatever is not known for certain is unmeasured: never useful, and never waiting while a pod ran that a run saw."""
    usable, slots = at("11:10"), 4
    life = Lifeline(usable, None, usable, None, slots)
    stored, latest = None, None
    for now in looks:
        listed = []
        for number, (start, lasts, gpus, stays) in enumerate(events):
            over = start + lasts <= now
            if start <= now and (stays or not over):
                owner = WorkingPod(f"p{number}", PodOwner(f"n{number % 2}"), gpus)
                end = usable + timedelta(seconds=start + lasts) if over else None
                listed.append(PodTime(owner, usable + timedelta(seconds=start), end))
        latest, due = look(stored, life, listed, usable + timedelta(seconds=now))
        stored = latest if due else stored
    last = looks[-1]
    spans = latest.spans if latest is not None else ()
    useful, unmeasured = sum(span.useful for span in spans), sum(span.unmeasured for span in spans)
    observed = [event for event in events if event[3] or any(event[0] <= now < sum(event[:2]) for now in looks)]
    truth = [[event for event in observed if event[0] <= second < sum(event[:2])] for second in range(last)]
    assert useful <= sum(map(bool, truth)) <= useful + unmeasured
    used = {
        owner: sum(use.gpu_seconds for span in spans for use in span.uses if use.owner == owner)
        for owner in map(PodOwner, ("n0", "n1"))
    }
    assert sum(used.values()) + sum(span.unseen for span in spans) <= slots * last
    if all(event[3] for event in events):
        assert (useful, unmeasured) == (sum(map(bool, truth)), 0)
        for number, owner in enumerate(used):
            integral = Fraction(0)
            for here in truth:
                wanted = [event[2] for event in here]
                mine = sum(event[2] for event in here if events.index(event) % 2 == number)
                integral += Fraction(mine * min(slots, sum(wanted)), sum(wanted) or 1)
            assert abs(used[owner] - integral) <= 2 * len(events) + len(looks), (
                "where pods ask for more than there is, to the second"
            )


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=2), st.fractions(0, 1000, max_denominator=97), min_size=1),
    st.integers(0, 10**6),
)
def test_L44_the_largest_remainder_divides_to_the_last_unit(shares: dict[str, t.Any], total: int) -> None:
    whole = in_proportion(shares, total)
    if any(shares.values()):
        assert sum(whole.values()) == total
        assert all(abs(whole[key] - share * total / sum(shares.values())) < 1 for key, share in shares.items())
        assert whole == in_proportion(dict(reversed(shares.items())), total)


@pytest.mark.parametrize("price", ["0.42", "1.00", "3.3333"])
def test_L44_the_hours_cost_what_the_bill_says_to_the_cent(price: str) -> None:
    mine, _written = after(
        [(at("11:30"), [job("a", "11:20")]), (at("11:40"), [])],
        dataclasses.replace(MINE, offer=offer(price), reserved_price=Decimal(price)),
    )
    lines = [ended(mine, "12:07", drained="12:00"), read_line({**ledger_line(MINE, end=NOON, granularity=3600), "name": "other"})]
    found = report(lines, None, NOON + timedelta(days=1))
    assert add_up(one.cost for one in found.by_hours.values()) == pytest.approx(found.total, abs=Decimal("1e-30"))
    cents = to_cents({use: one.cost for use, one in found.by_hours.items()}, found.total)
    assert sum(cents.values()) == found.total.quantize(Decimal("0.01"))


def test_L44_buying_is_judged_by_recorded_hours_once_there_are_two_weeks_of_them() -> None:
    """Six useful hours in twenty-four: 800 dollars at 0.50 an hour are 1,600 hours of use, that is 267 days."""
    lines = []
    for day in range(14):
        later = timedelta(days=day)
        usable = at("11:10") + later
        mine = claim(f"tgp-a1b2c3d4-p-{day:05d}", lane=Lane.SERVICE, launch_started=at("11:00") + later, initialized=usable)
        mine = dataclasses.replace(mine, idle_since=usable + timedelta(hours=6))
        lines.append(read_line(ledger_line(mine, end=at("11:00") + later + timedelta(days=1))))
    lives = [claim(offer=offer("0.50"))]
    for now, expected in (
        (at("11:00") + timedelta(days=14, seconds=-1), (None, None)),
        (at("11:00") + timedelta(days=14), ("6.0", 267)),
    ):
        (row,) = break_even_rows(Decimal(800), lives, lines, now)
        assert (row["hours"], (row["useful_hours_a_day"], row["days"])) == (1600, expected)
