# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sandbox's time and the collection's view of it."""

from __future__ import annotations

import pathlib
import threading
import time

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.clock import FileClock

from sandbox.clock import ClockClosed, SimClock


def test_sleep_is_as_much_shorter_as_the_clock_is_faster() -> None:
    clock = SimClock(speed=500)
    real, world = time.monotonic(), clock.seconds()
    clock.sleep(50)
    assert time.monotonic() - real < 5
    assert clock.seconds() - world >= 50


def test_moving_the_clock_wakes_a_sleeper() -> None:
    clock = SimClock()
    sleeper = threading.Thread(target=clock.sleep, args=(3600,))
    sleeper.start()
    clock.advance(3601)
    sleeper.join(5)
    assert not sleeper.is_alive()


def test_a_pause_ends_when_its_reason_does() -> None:
    clock, stop, result = SimClock(), threading.Event(), []
    waiter = threading.Thread(target=lambda: result.append(clock.pause(3600, stop.is_set)))
    waiter.start()
    stop.set()
    clock.wake()
    waiter.join(5)
    assert result == [True]


def test_nobody_waits_in_a_closed_world() -> None:
    clock = SimClock()
    clock.close()
    with pytest.raises(ClockClosed):
        clock.sleep(1)


def test_the_collection_follows_the_file(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "clock.json")
    clock = SimClock(speed=60, path=path, start=1_800_000_000)
    ours = FileClock(path)
    assert ours.speed == 60
    clock.advance(86_400)
    assert abs(ours.now().timestamp() - clock.seconds()) < 60


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_time_does_not_run_back(seconds: float) -> None:
    with pytest.raises(ValueError):
        SimClock().advance(seconds)
