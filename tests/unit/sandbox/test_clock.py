# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sandbox's time and the collection's view of it."""

from __future__ import annotations

import json
import pathlib
import threading
import time

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.clock import FileClock

from sandbox.box import Box
from sandbox.clock import ClockClosed, HostClock, SimClock


def test_sleep_is_as_much_shorter_as_the_clock_is_faster() -> None:
    clock = SimClock(speed=1_000_000)
    world = clock.seconds()
    clock.sleep(86_400)  # a test that lasts a day is noticed
    assert clock.seconds() - world >= 86_400


def test_moving_the_clock_wakes_a_sleeper() -> None:
    clock = SimClock()
    sleeper = threading.Thread(target=clock.sleep, args=(3600,), daemon=True)
    sleeper.start()
    end = time.monotonic() + 30
    while sleeper.is_alive() and time.monotonic() < end:  # who lies down after a move sleeps for the next
        clock.advance(3601)
        sleeper.join(0.1)
    assert not sleeper.is_alive()


def test_a_pause_ends_when_its_reason_does() -> None:
    clock, asked, stop, result = SimClock(), threading.Event(), threading.Event(), []

    def reason() -> bool:
        asked.set()
        return stop.is_set()

    waiter = threading.Thread(target=lambda: result.append(clock.pause(3600, reason)), daemon=True)
    waiter.start()
    assert asked.wait(30)  # it lies down before anybody can wake it
    stop.set()
    clock.wake()
    waiter.join(30)
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


def test_whoever_reads_the_clock_while_it_is_moved_reads_the_time_before_or_after(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimClock(speed=60, start=1_800_000_000)
    real = iter([clock._time() + 60] * 3)
    moves = [lambda: clock.advance(0)]

    def interrupted() -> float:
        if moves:  # another thread's turn, in the middle of a look at the clock
            moves.pop()()
        return next(real)

    monkeypatch.setattr(clock, "_time", interrupted)
    assert abs(clock.seconds() - 1_800_003_600) < 60  # and not an hour earlier


def test_a_clock_that_cannot_go_on_stays_as_it_was() -> None:
    clock = SimClock(speed=1.0)
    before = clock.seconds()
    for speed in (0, -1, 10_001, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="speed should be above 0 and at most 10000"):
            clock.run_at(speed, 3600)
    for seconds in (-1, float("nan"), float("inf"), 1e13):
        with pytest.raises(ValueError, match="the clock"):
            clock.run_at(2, seconds)
    assert clock.speed == 1 and clock.seconds() - before < 600
    clock.run_at(10_000)
    assert clock.speed == 10_000 and clock.now()


def test_a_host_may_have_a_clock_of_its_own(tmp_path: pathlib.Path) -> None:
    clock = SimClock(10, str(tmp_path / "world.json"), start=1_000_000)
    clock.add_host(str(tmp_path / "host.json"), 7200)
    clock.advance(60)
    world, host = (json.loads((tmp_path / name).read_text()) for name in ("world.json", "host.json"))
    assert host["world"] - world["world"] == 7200 and host["speed"] == 10
    ahead = HostClock(clock, -300)
    assert -301 < (ahead.now() - clock.now()).total_seconds() < -299 and ahead.speed == 10
    ahead.ahead = 0
    assert abs((ahead.now() - clock.now()).total_seconds()) < 1


def test_every_service_tells_the_time_of_the_world() -> None:
    with Box(clock=SimClock(1, start=1_000_000)) as box:
        for name, app in box.apps.items():
            if name != "mesh_proxy":
                answer = httpx.Client(transport=httpx.WSGITransport(app=app), base_url="https://x").get("/")
                assert answer.headers["date"].startswith("Mon, 12 Jan 1970 13:46:4"), name
