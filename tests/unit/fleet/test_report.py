# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A-07, A-08: where the money went. Every cent is in exactly one part."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Deletion, GpuLoss, Lane, LedgerLine, Phase
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import (
    MOST_LOSSES,
    add_up,
    ledger_line,
    live_line,
    read_ledger,
    read_line,
    with_loss,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.spend_report import phases, report, table_of_days
from ansible_collections.tgp.gpu.plugins.module_utils.reports.text import missing_text
from ansible_collections.tgp.gpu.plugins.module_utils.units.values import print_money
from hypothesis import given
from hypothesis import strategies as st

from .build import CAPABILITIES, DAY, NOON, at, claim, offer
from .test_L16_budgets import lines

LATER = DAY + timedelta(days=400)


def machine(reason: str = "Empty", price: str = "1.00", gpus: int = 2, **facts: t.Any) -> LedgerLine:
    """Launched at 10:00, usable and at work from 10:15, gone at 12:00."""
    usual = {"launch_started": at("10:00"), "initialized": at("10:15"), "deletion": Deletion(reason, at("11:55"))}
    usual |= {"work_watched": True, "worked_since": at("10:15")}
    made = claim(facts.pop("name", "tgp-a1b2c3d4-p-00001"), offer=offer(price, gpu_count=gpus), **{**usual, **facts})
    return read_line(ledger_line(made, end=NOON))


@pytest.mark.parametrize(
    ("line", "uses"),
    [
        (machine(idle_since=at("11:30")), {"starting": "0.25", "useful": "1.25", "idle_tail": "0.50"}),
        (machine("Expired"), {"starting": "0.25", "useful": "1.75"}),
        (machine(worked_since=at("11:00")), {"starting": "0.25", "useful": "1.00", "unused": "0.75"}),
        (
            machine(worked_since=at("11:00"), idle_since=at("11:30")),
            {"starting": "0.25", "useful": "0.50", "idle_tail": "0.50", "unused": "0.75"},
        ),
        (machine(worked_since=at("11:00"), idle_since=at("10:30")), {"starting": "0.25", "useful": "1.00", "unused": "0.75"}),
        (machine(worked_since=None), {"starting": "0.25", "unused": "1.75"}),
        (machine(worked_since=None, idle_since=at("10:20")), {"starting": "0.25", "unused": "1.75"}),
        (machine(initialized=at("10:00"), worked_since=None, idle_since=at("10:00")), {"unused": "2.00"}),
        (machine("FailedJoin", initialized=None), {"failed_join": "2.00"}),
        (machine("SpotLost", initialized=None), {"failed_join": "2.00"}),
        (machine("SpotLost", interrupted_at=at("11:00")), {"starting": "0.25", "useful": "0.75", "idle_tail": "1.00"}),
        (machine("LaunchFailed", initialized=None), {"failed_launch": "2.00"}),
        (machine("LaunchRefused", initialized=None), {"failed_launch": "2.00"}),
        (machine("Duplicate", initialized=None), {"duplicate": "2.00"}),
        (machine("Orphan"), {"leaked": "2.00"}),
    ],
)
def test_A07_what_a_machine_was_good_for(line: LedgerLine, uses: dict[str, str]) -> None:
    assert report([line], None, LATER).by_use == {use: Decimal(cost) for use, cost in uses.items()}


def test_A08_dollars_per_useful_gpu_hour_count_all_that_was_spent() -> None:
    found = report(
        [machine(idle_since=at("11:30")), machine("FailedJoin", initialized=None, name="tgp-a1b2c3d4-p-00002")], None, LATER
    )
    assert found.gpu_hours == Decimal("2.5") and found.total == 4 and found.per_gpu_hour == Decimal("1.6") and found.machines == 2
    assert report([machine("FailedJoin", initialized=None)], None, LATER).per_gpu_hour is None


def test_A07_a_machine_that_still_lives_is_not_lost_money() -> None:
    booting = live_line(claim(phase=Phase.BOOTING), NOON, CAPABILITIES["lambda"])
    assert list(report([booting], None, NOON).by_use) == ["starting"]
    busy = live_line(claim(work_watched=True, worked_since=at("11:10")), NOON, CAPABILITIES["lambda"])
    found = report([busy], None, NOON)
    assert list(found.by_use) == ["useful", "starting"] and found.by_end == {"still there": Decimal("0.42")}


def test_A07_without_a_pod_no_hour_is_useful() -> None:
    found = report([machine("Expired", worked_since=None)], None, LATER)
    assert found.gpu_hours == 0 and found.per_gpu_hour is None and found.unknown_gpu_hours == 0


def old_line(**facts: t.Any) -> LedgerLine:
    """A line of a version that did not note when a machine was at work."""
    record = ledger_line(
        claim(launch_started=at("10:00"), initialized=at("10:15"), deletion=Deletion("Empty", at("11:55")), **facts), end=NOON
    )
    del record["worked_since"], record["work_watched"]
    return read_line(record)


def test_A07_of_an_old_line_the_use_is_unknown() -> None:
    found = report([old_line(idle_since=at("11:30")), machine(name="tgp-a1b2c3d4-p-00002")], None, LATER)
    assert found.by_use["unknown"] == Decimal("0.525") and found.by_use["idle_tail"] == Decimal("0.21")
    assert (found.unknown_gpu_hours, found.gpu_hours, found.per_gpu_hour) == (Decimal("1.25"), Decimal("3.5"), None)
    assert add_up(found.by_use.values()) == found.total


def test_A07_a_claim_of_an_old_version_is_unknown_until_it_is_seen_at_work() -> None:
    before = claim(launch_started=at("10:00"), initialized=at("10:15"))
    assert ledger_line(before, end=NOON)["useful_seconds"] is None
    seen = read_line(ledger_line(dataclasses.replace(before, worked_since=at("11:15")), end=NOON))
    assert report([seen], None, LATER).by_use == {
        "useful": Decimal("0.315"),
        "starting": Decimal("0.105"),
        "unknown": Decimal("0.42"),
    }


def test_A07_a_service_is_at_work_from_its_first_answer() -> None:
    serves = claim(launch_started=at("10:00"), initialized=at("10:15"), lane=Lane.SERVICE)
    line = ledger_line(serves, end=NOON)
    assert (line["worked_since"], line["useful_seconds"], line["idle_seconds"]) == ("2026-08-20T10:15:00Z", 6300, 0)
    assert ledger_line(dataclasses.replace(serves, initialized=None), end=NOON)["useful_seconds"] == 0
    idle = ledger_line(dataclasses.replace(serves, idle_since=at("11:30")), end=NOON)
    assert (idle["useful_seconds"], idle["idle_seconds"]) == (4500, 1800)


def test_A07_only_the_time_that_was_asked_for() -> None:
    line = machine(idle_since=at("11:30"))
    assert report([line], at("11:00"), at("11:45")).by_use == {"useful": Decimal("0.50"), "idle_tail": Decimal("0.25")}
    assert report([line], NOON, LATER).total == 0 and report([line], None, at("10:00")).total == 0


def test_A07_sums_by_every_word() -> None:
    lambda_ = machine(price="3.00", pool="default/a")
    other = machine("Expired", "1.00", name="tgp-a1b2c3d4-p-00002", pool="default/b", cloud="vast")
    found = report([other, lambda_], None, LATER)
    assert list(found.by_pool.items()) == [("default/a", Decimal(6)), ("default/b", Decimal(2))]
    assert list(found.by_cloud) == ["lambda", "vast"] and found.by_model == {"A10": Decimal(8)}
    assert found.by_end == {"Empty": Decimal(6), "Expired": Decimal(2)} and found.by_day == {"2026-08-20": Decimal(8)}
    assert table_of_days(found) == {"2026-08-20": dict(found.by_use)}


def test_A07_a_line_that_never_lived_costs_what_it_says_on_its_last_day() -> None:
    record = {"name": "tgp-a1b2c3d4-p-00001", "cost": "0.30", "start": None, "end": "2026-08-20T22:30:00Z", "reason": "FailedJoin"}
    found = report([read_line(record)], None, LATER, "Europe/Berlin")
    assert found.by_day == {"2026-08-21": Decimal("0.30")}


@given(st.lists(lines(), max_size=8), st.sampled_from(["UTC", "Europe/Berlin", "America/Havana"]))
def test_A07_the_parts_are_the_ledger_to_the_last_digit(found: list[LedgerLine], zone: str) -> None:
    made = report(found, None, LATER, zone)
    total = add_up(one.cost for one in found)
    assert made.total == total
    for sums in (made.by_day, made.by_use, made.by_pool, made.by_cloud, made.by_model, made.by_end):
        assert add_up(sums.values()) == total
    assert all(one.cost >= 0 and one.gpu_seconds >= 0 for one in made.parts)


@given(lines())
def test_A07_the_phases_of_a_life_have_no_gap(line: LedgerLine) -> None:
    found = phases(line)
    assert found[-1][2] == line.end and (line.start is None or found[0][1] == line.start)
    assert all(one[2] == following[1] for one, following in zip(found, found[1:], strict=False))


@given(st.lists(lines(), max_size=4), st.integers(0, 40))
def test_A07_two_times_that_meet_add_up_to_the_whole(found: list[LedgerLine], day: int) -> None:
    middle = DAY - timedelta(days=163) + timedelta(days=day, seconds=12345)
    first, second = report(found, None, middle), report(found, middle, LATER)
    assert add_up((first.total, second.total)) == report(found, None, LATER).total


# ---- GPUs that were paid for and not there (L-20a)


def lacking(*losses: tuple[str, str | None, int, int], **facts: t.Any) -> LedgerLine:
    """A machine of 8 GPUs for $8.00 an hour, from 10:00 to 12:00."""
    times = tuple(GpuLoss(at(since), missing, of, at(until) if until else None) for since, until, missing, of in losses)
    return machine("Empty", "8.00", 8, gpu_losses=times, **facts)


@pytest.mark.parametrize(
    ("losses", "cost", "gpu_hours"),
    [
        ((("10:30", None, 1, 8),), "1.50", "1.5"),
        ((("10:30", "11:00", 1, 8),), "0.50", "0.5"),
        ((("10:30", "11:00", 1, 8), ("11:00", "11:15", 8, 8)), "2.50", "2.5"),
        ((("10:30", "11:30", 4, 32),), "1.00", "1"),
        ((("09:00", "10:30", 1, 8),), "0.50", "0.5"),
        ((("11:30", "15:00", 2, 8),), "1.00", "1"),
        ((), "0", "0"),
    ],
)
def test_L20a_what_was_paid_for_gpus_that_were_not_there(losses: t.Any, cost: str, gpu_hours: str) -> None:
    """4 of 32 slices are a GPU of eight; a time outside of the machine's life costs nothing."""
    found = report([lacking(*losses)], None, LATER)
    assert sum((row.cost for row in found.missing), Decimal(0)) == Decimal(cost) and found.total == 16
    assert sum((row.gpu_hours for row in found.missing), Decimal(0)) == Decimal(gpu_hours)
    assert missing_text(found) == "" if not losses else f"${print_money(Decimal(cost))} of it" in missing_text(found)


def test_L20a_seven_of_eight_make_a_useful_gpu_hour_dearer_by_an_eighth_sevenths() -> None:
    """[E] 7 of 8 GPUs: the price per useful GPU is 8/7 = 1.143 of that of eight."""
    whole = lacking(initialized=at("10:00"), worked_since=at("10:00"))
    seven = lacking(("10:00", None, 1, 8), initialized=at("10:00"), worked_since=at("10:00"))
    prices = [report([line], None, LATER).per_gpu_hour for line in (whole, seven)]
    assert prices[0] == 1 and prices[1] is not None and prices[1].quantize(Decimal("0.001")) == Decimal("1.143")


def test_L20a_only_the_time_that_was_asked_for() -> None:
    found = report([lacking(("10:30", None, 1, 8))], at("11:00"), at("11:30"))
    assert [(row.cost, row.gpu_hours, row.shown) for row in found.missing] == [(Decimal("0.5"), Decimal("0.5"), "7 of 8")]


def test_L20a_times_in_which_gpus_were_missing_are_kept_as_they_change() -> None:
    """Seen at 10:01 since 10:00; the same again writes nothing; another number, then all, then none."""
    first = with_loss((), 1, 8, at("10:00"), at("10:01"))
    assert first == (GpuLoss(at("10:00"), 1, 8),) and with_loss(first, 1, 8, at("10:00"), at("11:00")) is first
    second = with_loss(first, 2, 8, at("10:00"), at("11:00"))
    assert second == (GpuLoss(at("10:00"), 1, 8, at("11:00")), GpuLoss(at("11:00"), 2, 8))
    third = with_loss(second, 8, 8, at("11:10"), at("11:11"))
    assert third[1:] == (GpuLoss(at("11:00"), 2, 8, at("11:10")), GpuLoss(at("11:10"), 8, 8))
    back = with_loss(third, 0, 8, NOON, NOON)
    assert back[2] == GpuLoss(at("11:10"), 8, 8, NOON) and with_loss(back, 0, 8, NOON, at("13:00")) == back
    assert with_loss((), 0, 8, NOON, NOON) == ()


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 8)), max_size=60))
def test_L20a_kept_times_never_overlap_and_never_grow_without_end(looks: list[tuple[int, int]]) -> None:
    losses: tuple[GpuLoss, ...] = ()
    now = at("10:00")
    for minutes, missing in looks:
        now += timedelta(minutes=minutes)
        losses = with_loss(losses, missing, 8, now - timedelta(minutes=1), now)
        ends = [loss.until or now for loss in losses]
        assert all(end <= after.since for end, after in zip(ends, losses[1:], strict=False))
        assert len(losses) <= MOST_LOSSES and all(loss.until is not None for loss in losses[:-1])
        assert bool(missing) == bool(losses and losses[-1].until is None)


def test_L20a_a_line_with_impossible_gpus_is_torn() -> None:
    good = ledger_line(claim(gpu_losses=(GpuLoss(at("11:30"), 1, 8),)), end=NOON)
    for change in ({"missing": 0}, {"missing": 9}, {"since": "soon"}):
        odd = {**good, "gpu_losses": [{**good["gpu_losses"][0], **change}]}
        assert read_ledger([odd]).torn and not read_ledger([good]).torn
