# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a bill begins and ends, and between which amounts it lies where the provider does not say so (L-16)."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Attempt, Claim, Deletion, Lane, WorkRecord
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.bill import bounds, cost, last_seen
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import (
    between,
    claim_cost,
    ledger_line,
    live_cost,
    live_line,
    noted,
    read_line,
    tariff,
    until,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.spend_report import report
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES as REAL
from ansible_collections.tgp.gpu.plugins.module_utils.reports.text import bill_data, bill_text
from hypothesis import given
from hypothesis import strategies as st

from .build import CAPABILITIES, NOON, at, claim, instance, offer

ASKED = Deletion("Empty", at("11:59"), started=at("12:00"))
LATER = at("23:00")


def rented(**facts: t.Any) -> Claim:
    """At $3.60 an hour, a tenth of a cent a second: asked for at 11:00:00, answered at 11:00:04."""
    answer = Attempt(at("11:00:04"), "lambda/x", "ok")
    return claim(**{"offer": offer("3.60"), "attempts": (answer,), "deletion": ASKED, **facts})


def told(created: str, **facts: t.Any) -> Claim:
    apart = dataclasses.replace(CAPABILITIES["lambda"], tells_start=True)
    return noted(rented(**facts), instance(created=at(created), price_hour=Decimal("3.60")), apart, at("11:05"))


# ---- when it begins


def test_L16_a_bill_begins_when_the_cloud_says_so() -> None:
    mine = told("11:00:03")
    assert mine.billed_since == mine.bill_start == at("11:00:03") and mine.launch_started == at("11:00")
    assert claim_cost(mine, at("11:00:13")) == Decimal("0.01")
    line = ledger_line(mine, end=at("12:00"))
    assert (line["start"], line["seconds"], line["start_told"]) == ("2026-08-20T11:00:03Z", 3597, True)


def test_L16_a_cloud_that_does_not_say_it_bills_from_the_create_call() -> None:
    """Lambda names the time that is in our own tag."""
    mine = noted(rented(), instance(created=at("11:00:03")), CAPABILITIES["lambda"], at("11:05"))
    assert mine.billed_since is None and mine.bill_start == at("11:00")
    assert not REAL["lambda"].tells_start and not ledger_line(mine, end=at("12:00"))["start_told"]
    assert {name for name, facts in REAL.items() if facts.tells_start} == {"gcp", "paperspace", "runpod", "vast", "vultr"}


@pytest.mark.parametrize(("created", "begins"), [("10:59:20", "11:00"), ("11:00:02", "11:00:02"), ("11:00:30", "11:00:04")])
def test_L16_a_clock_that_differs_moves_no_bill_out_of_its_create_call(created: str, begins: str) -> None:
    assert told(created).bill_start == at(begins)


def test_L16_a_bill_begins_once() -> None:
    apart = dataclasses.replace(CAPABILITIES["lambda"], tells_start=True)
    first = told("11:00:03")
    assert noted(first, instance(created=at("11:00:01"), price_hour=Decimal("3.60")), apart, at("12:00")) is first
    assert claim_cost(dataclasses.replace(first, launch_started=None), at("12:00")) == 0, "no create call, no bill"


# ---- between which amounts it lies


def dollars(*seconds: int) -> tuple[Decimal, ...]:
    return tuple(Decimal(one) / 1000 for one in seconds)


def test_L16_E_worked_the_time_of_two_calls_may_not_be_billed() -> None:
    """Asked at 11:00:00, answered within 11:00:04; shown at 11:59:50, gone at 12:00:07."""
    assert bounds(rented(), at("12:00:07"), alive=at("11:59:50")) == dollars(3585, 3607)
    assert bounds(rented(), at("12:00:07")) == dollars(3595, 3607), "without a list the destroy call is the last sign"
    assert bounds(told("11:00:03"), at("12:00:07"), alive=at("11:59:50")) == dollars(3586, 3604)


def test_L16_E_worked_within_a_minute_that_is_billed_whole_nothing_is_open() -> None:
    mine = rented(launch_started=at("11:00:10"), attempts=(Attempt(at("11:00:14"), "lambda/x", "ok"),))
    assert bounds(mine, at("12:00:07"), 60, alive=at("11:59:30")) == (Decimal("3.60"), Decimal("3.60"))
    assert bounds(mine, at("12:00:11"), 60, alive=at("12:00:05")) == (Decimal("3.60"), Decimal("3.66"))


def test_L16_E_worked_a_minute_is_billed_at_least() -> None:
    """At $3.60 an hour: 10 s cost the minute, 60 s too, 61 s one second more. A machine that was never there costs nothing."""
    lives = {seconds: cost(Decimal("3.60"), NOON, NOON + timedelta(seconds=seconds), 1, 60) for seconds in (0, 10, 60, 61)}
    assert lives == dict(zip(lives, dollars(0, 60, 60, 61), strict=True))
    assert cost(Decimal("3.60"), NOON, NOON + timedelta(seconds=10), 3600, 60) == Decimal("3.60"), "a started unit is longer"
    mine = told("11:00:03")
    assert bounds(mine, at("11:00:40"), alive=at("11:00:20"), minimum=60) == dollars(60, 60), "all of it lies in the minute"
    assert bounds(mine, at("11:01:10"), alive=at("11:00:20"), minimum=60) == dollars(60, 67)
    assert bounds(mine, at("12:00:07"), alive=at("11:59:50"), minimum=60) == dollars(3586, 3604), "as without"


def test_L16_the_minimum_is_in_the_line_and_in_each_period() -> None:
    """Of a machine that lived from 23:59:50 to 00:00:05 the day in which it began has the minute."""
    assert {name: facts.billing_minimum for name, facts in REAL.items() if facts.billing_minimum} == {"gcp": 60}
    mine = rented(launch_started=at("23:59:50"), attempts=(Attempt(at("23:59:51"), "gcp/x", "ok"),))
    midnight = at("23:59:50") + timedelta(seconds=10)
    record = ledger_line(mine, end=midnight + timedelta(seconds=5), minimum=60)
    line = read_line(record)
    assert (record["minimum"], line.minimum, line.cost, record["seconds"]) == (60, 60, Decimal("0.06"), 15)
    assert (until(line, midnight), between(line, midnight, midnight + timedelta(days=1))) == (Decimal("0.06"), 0)
    assert live_line(mine, at("23:59:55"), REAL["gcp"]).cost == Decimal("0.06")
    del record["minimum"]
    assert read_line(record).minimum == 0, "a line of an older version"


@pytest.mark.parametrize("cloud", ["lambda", "gcp", "vast", "nobody"])
@pytest.mark.parametrize("facts", [{}, {"gone_since": at("11:30")}, {"running_since": at("11:10")}, {"launch_started": None}])
def test_L16_the_cost_of_a_machine_that_lives_is_that_of_its_line(cloud: str, facts: dict[str, t.Any]) -> None:
    mine = rented(deletion=None, offer=offer("3.60", storage_price_hour=Decimal("0.36")), **facts)
    for now in (at("11:00:20"), at("12:00:07")):
        assert live_cost(mine, now, REAL.get(cloud)) == live_line(mine, now, REAL.get(cloud)).cost


def test_L16_a_lost_answer_leaves_ten_minutes_open() -> None:
    lost = rented(attempts=(Attempt(at("11:01"), "lambda/x", "unknown"),))
    assert bounds(lost, at("12:00"), alive=at("12:00")) == dollars(3000, 3600)
    adopted = rented(attempts=(), history=((at("11:02"), "Joining", "adopted: the machine had no claim"),))
    assert bounds(adopted, at("12:00"), alive=at("12:00")) == dollars(3480, 3600)
    assert bounds(rented(launch_started=None), at("12:00")) == (0, 0)


def test_L16_gpus_that_are_billed_apart_began_within_half_a_minute() -> None:
    mine = rented(offer=offer("3.60", storage_price_hour=Decimal("0.36")), running_since=at("11:10"))
    least, most = bounds(mine, at("12:00"), bills_boot=False, alive=at("12:00"))
    disk, gpu = Decimal("0.0001"), Decimal("0.0009")
    assert (least, most) == (3595 * disk + 2970 * gpu, 3600 * disk + 3030 * gpu)
    never = dataclasses.replace(mine, running_since=None)
    assert bounds(never, at("12:00"), bills_boot=False, alive=at("11:59:50")) == (3585 * disk, 3600 * disk + 10 * gpu)


def test_L16_nobody_says_when_gpus_were_taken_away() -> None:
    mine = rented(offer=offer("3.60", storage_price_hour=Decimal("0.36")), running_since=at("11:05"), interrupted_at=at("11:40"))
    least, most = bounds(mine, at("12:00"), bills_boot=False, alive=at("12:00"))
    disk, gpu = Decimal("0.0001"), Decimal("0.0009")
    assert least == 3595 * disk + (5 * 60 - 30) * gpu, "it was usable at 11:10"
    assert most == 3600 * disk + (54 * 60 + 30) * gpu, "its end was decided at 11:59"


def test_L16_the_last_sign_of_life() -> None:
    assert last_seen(rented(deletion=None)) == at("11:10"), "it became usable"
    assert last_seen(rented(deletion=None, work=WorkRecord(at("11:45")))) == at("11:44"), (
        "a Node is Ready for a while after its machine"
    )
    assert last_seen(rented()) == at("12:00"), "the destroy call"
    assert last_seen(rented(gone_since=at("11:30"))) == at("11:10"), "no list showed it when it was asked for"
    assert last_seen(rented(deletion=None, lane=Lane.SERVICE, work=WorkRecord(at("11:45")))) == at("11:10")


_TIMES = st.integers(0, 7200).map(lambda seconds: at("11:00") + timedelta(seconds=seconds))


@given(
    st.integers(0, 300),
    st.integers(0, 300),
    st.lists(_TIMES, min_size=2, max_size=2, unique=True),
    st.sampled_from([1, 60, 3600]),
    st.sampled_from([0, 60, 600]),
)
def test_L16_what_is_billed_between_two_calls_lies_within_the_bounds(
    call: int, begun: int, ends: list[datetime], granularity: int, minimum: int
) -> None:
    """Wherever the provider begins within the create call, and ends between the last list that shows the machine and the first without it."""
    shown, gone = sorted(ends)
    start = at("11:00") + timedelta(seconds=min(begun, call))
    mine = rented(attempts=(Attempt(at("11:00") + timedelta(seconds=call), "lambda/x", "ok"),))
    least, most = bounds(mine, gone, granularity, alive=shown, minimum=minimum)
    for end in (shown, shown + (gone - shown) / 3, gone):
        theirs = claim_cost(dataclasses.replace(mine, launch_started=start), max(end, start), granularity, minimum=minimum)
        assert least <= theirs <= max(most, claim_cost(mine, start, granularity, minimum=minimum))
    assert least <= claim_cost(mine, gone, granularity, minimum=minimum) <= most


# ---- what is said of it


def line_of(mine: Claim, end: str, **facts: t.Any) -> t.Any:
    return read_line(ledger_line(mine, end=at(end), **facts))


def test_L16_the_report_says_how_exact_its_sums_are() -> None:
    found = report([line_of(rented(), "12:00:07", alive=at("11:59:50"))], None, LATER)
    assert bill_data(found) == {
        "least": "3.585",
        "most": "3.607",
        "unknown_machines": 0,
        "clouds": [{"name": "lambda", "less": "0.022", "more": "0.000", "why": "it does not say when a bill begins and ends"}],
    }
    assert bill_text(found) == (
        "The bills of the providers may differ from these sums: lambda at most $0.03 less (it does not say when a bill begins and ends)"
    )


def test_L16_sums_without_anything_open_are_the_bill_to_the_cent() -> None:
    mine = rented(launch_started=at("11:00:10"), attempts=(Attempt(at("11:00:14"), "lambda/x", "ok"),))
    found = report([line_of(mine, "12:00:07", granularity=60, alive=at("11:59:30"))], None, LATER)
    assert bill_text(found) == "The bills of the providers are these sums, to the cent"
    assert bill_text(report([], None, LATER)) == ""


def test_L16_lines_of_older_versions_say_no_bounds() -> None:
    record = ledger_line(rented(), end=at("12:00:07"))
    del record["cost_least"], record["cost_most"], record["start_told"]
    found = report([read_line(record)], None, LATER)
    assert bill_data(found)["unknown_machines"] == 1 and "1 machine of an older version by an unknown amount" in bill_text(found)


def test_L16_of_a_machine_that_lives_only_the_begin_is_open() -> None:
    mine = rented(deletion=None)
    line = live_line(mine, at("12:00"), CAPABILITIES["lambda"])
    assert (line.cost_least, line.cost, line.cost_most) == dollars(3595, 3600, 3600)


# ---- a machine that may be off


def test_L16_a_machine_that_may_have_been_off_cost_its_disk_at_the_least() -> None:
    """Without capacity Paperspace makes a machine that is off, and its guard powers one off; only the disk is billed then."""
    disk = dataclasses.replace(offer("3.60"), storage_price_hour=Decimal("0.36"))
    never = rented(offer=disk, registered=None, initialized=None)
    assert bounds(never, LATER, off_costs_less=True)[0] == Decimal("0.36") * 3595 / 3600  # from 11:00:05 to 12:00
    assert bounds(never, LATER, off_costs_less=True)[1] == bounds(never, LATER)[1] == Decimal("43.2")
    node = rented(offer=disk, registered=at("11:08"), initialized=at("11:10"))
    ran = (at("11:10") - at("11:00:05")).total_seconds()
    wanted = Decimal("0.36") * 3595 / 3600 + Decimal("3.24") * int(ran) / 3600
    assert bounds(node, LATER, off_costs_less=True)[0] == wanted < bounds(node, LATER)[0]
    busy = rented(offer=disk, registered=at("11:08"), initialized=at("11:10"), work=WorkRecord(at("11:50")))
    assert bounds(busy, LATER, off_costs_less=True)[0] > bounds(node, LATER, off_costs_less=True)[0]
    listed = dataclasses.replace(node, deletion=dataclasses.replace(ASKED, seen_running=at("11:59:58")))
    ran = (at("11:59:58") - at("11:00:05")).total_seconds()  # the list before the destroy call showed it running
    assert bounds(listed, LATER, off_costs_less=True)[0] == Decimal("0.36") * 3595 / 3600 + Decimal("3.24") * int(ran) / 3600
    assert bounds(busy, LATER, off_costs_less=True, bills_boot=False) == bounds(busy, LATER, bills_boot=False)
    assert tariff(REAL["paperspace"])["off_costs_less"] and not tariff(REAL["lambda"])["off_costs_less"]
