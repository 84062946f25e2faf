# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What machines cost, and what is in stock."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from sandbox.clock import SimClock
from sandbox.world import Machine, Offer, World


def offer(**fields: object) -> Offer:
    settings = {"cloud": "lambda", "type": "x", "region": "r", "price_hour": Decimal("1.20"), "gpu_count": 1, "model": "A10"}
    return Offer(**{**settings, "memory_mib": 24576, "stock": 1, "boot_seconds": 1.0, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("unit", "minimum", "passed", "billed"),
    [
        (60, 0, 0, 0), (60, 0, 1, 60), (60, 0, 60, 60), (60, 0, 61, 120), (1, 0, 59.2, 60), (3600, 0, 3601, 7200),
        (1, 60, 0, 0), (1, 60, 10, 60), (1, 60, 60, 60), (1, 60, 60.5, 61),
    ],
)  # fmt: skip
def test_a_started_unit_and_a_minimum_are_billed_whole(unit: int, minimum: int, passed: float, billed: int) -> None:
    now = SimClock().now()
    machine = Machine("1", "lambda", "a", "a", offer(unit_seconds=unit, minimum_seconds=minimum), now)
    assert machine.billed_seconds(now + timedelta(seconds=passed)) == billed
    machine.ended = now + timedelta(seconds=passed)
    assert machine.cost(now + timedelta(days=3)) == Decimal("1.20") * billed / 3600


def test_a_machine_takes_from_the_stock_and_gives_back_once() -> None:
    world, one = World(), offer()
    machine = world.rent(Machine("1", "lambda", "a", "a", one, world.clock.now()))
    with pytest.raises(LookupError):
        world.rent(Machine("2", "lambda", "b", "b", one, world.clock.now()))
    world.release(machine)
    world.release(machine)
    assert one.stock == 1 and machine.ended is not None


def test_an_own_machine_is_billed_only_while_it_is_on() -> None:
    world = World(SimClock(start=1_800_000_000.0))
    machine = Machine("r", "webhook", "r", "r", offer(cloud="webhook"), world.clock.now(), state="off", ended=world.clock.now())
    for _ in range(2):
        assert world.power_on(machine) and not world.power_on(machine)
        world.clock.advance(3600)
        assert world.power_off(machine) and not world.power_off(machine)
        world.clock.advance(3600)
    assert 7200 <= machine.billed_seconds(world.clock.now()) <= 7204


def test_a_bill_is_the_sum_of_its_rates() -> None:
    start = SimClock(start=1_800_000_000.0).now()
    machine = Machine("1", "vast", "a", "a", offer(), start)
    machine.set_rate(start, Decimal("0.03"))  # loading: the disk only
    machine.set_rate(start + timedelta(minutes=10), Decimal("0.63"))  # running
    machine.set_rate(start + timedelta(minutes=70, microseconds=1), Decimal("0.03"))  # stopped
    machine.set_rate(start + timedelta(minutes=130), Decimal(0))
    end = start + timedelta(days=9)
    minute = Decimal(1) / 60
    expected = [Decimal("0.03") * 10 * minute, Decimal("0.63") * 60 * minute, Decimal("0.03") * 60 * minute]
    assert abs(machine.cost(end) - sum(expected)) < Decimal("1e-9")
    assert abs(machine.cost(start + timedelta(minutes=40)) - expected[0] - expected[1] / 2) < Decimal("1e-20")
    assert machine.billed_seconds(end) == 130 * 60
    before = machine.cost(end)
    machine.set_rate(end, Decimal("0.03"))
    machine.ended = end + timedelta(hours=1)
    assert round(machine.cost(end + timedelta(days=1)) - before, 9) == Decimal("0.03") and machine.rate() == 0


def test_a_price_set_later_leaves_the_time_before_at_the_offers_price() -> None:
    start = SimClock(start=1_800_000_000.0).now()
    machine = Machine("1", "paperspace", "a", "a", offer(unit_seconds=3600), start)
    machine.set_rate(start + timedelta(minutes=30), Decimal("0.02"))
    assert machine.rate() == Decimal("0.02")
    assert machine.cost(start + timedelta(minutes=90)) == Decimal("0.62")


def test_a_halted_machine_frees_its_place_and_may_lose_it() -> None:
    world, one = World(SimClock(start=1_800_000_000.0)), offer(cloud="vast")
    ended: list[str] = []
    world.on_end = lambda machine: ended.append(machine.name)
    first = world.rent(Machine("1", "vast", "a", "a", one, world.clock.now()))
    assert world.halt(first, Decimal("0.01")) and not world.halt(first, Decimal("0.01"))
    assert (first.state, first.rate(), one.stock, ended) == ("stopped", Decimal("0.01"), 1, ["a"])
    second = world.rent(Machine("2", "vast", "b", "b", one, world.clock.now()))
    with pytest.raises(LookupError):
        world.resume(first, Decimal(1))
    assert first.state == "stopped" and first.rate() == Decimal("0.01")
    world.release(second)
    world.resume(first, Decimal(1))
    assert (first.state, first.boots, one.stock, first.rate()) == ("booting", 2, 0, 1)
    left = world.store(Machine("3", "vast", "c", "c", one, world.clock.now()), Decimal("0.01"))
    world.release(left)
    assert one.stock == 0 and left.ended is not None


def test_the_story_of_the_boot_before_is_not_told_as_that_of_this_one() -> None:
    world = World(SimClock(start=1_800_000_000.0))
    machine = Machine("r", "webhook", "r", "r", offer(cloud="webhook"), world.clock.now(), state="off", ended=world.clock.now())
    machine.steps.append((world.clock.now(), "done", ""))
    machine.console.append("ubuntu is up")
    assert world.power_on(machine)  # whose thread has not said a word yet
    assert machine.steps == [] and machine.console == []
