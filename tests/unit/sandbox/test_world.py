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
    ("unit", "passed", "billed"),
    [(60, 0, 0), (60, 1, 60), (60, 60, 60), (60, 61, 120), (1, 59.2, 60), (3600, 3601, 7200)],
)
def test_a_started_unit_is_billed_whole(unit: int, passed: float, billed: int) -> None:
    now = SimClock().now()
    machine = Machine("1", "lambda", "a", "a", offer(unit_seconds=unit), now)
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
