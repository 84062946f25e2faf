# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sandbox's time: it can run faster than real time and be moved forward, and others can follow it through a file."""

from __future__ import annotations

import json
import os
import threading
import time
import typing as t
from datetime import datetime, timedelta, timezone

FASTEST = 10_000.0
"""Seconds of the world per second."""
_LAST = datetime(9000, 1, 1, tzinfo=timezone.utc).timestamp()  # there is a year after it for every deadline


class ClockClosed(Exception):
    """The world has ended while somebody was waiting for a moment in it."""


class _OwnTime:
    """Seconds in which this process could run, since the first call.

    A thread looks at the system's clock every ``_TICK`` seconds, and of the time since its last look no more than ``_MOST`` counts. It looks
    late when the machine is busy, or other threads of this process are: then nobody else here came to anything either, and a deadline of
    the world does not pass for that.
    """

    _TICK, _MOST = 0.004, 0.008

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now, self._sleep = time.monotonic, time.sleep  # the system's, also while a test has put others into this module
        self._seen: tuple[float, float] | None = None  # own time and the system's at the last look

    def __call__(self) -> float:
        if self._seen is None:
            self._start()
        own, last = self._seen or (0.0, 0.0)
        return own + min(max(self._now() - last, 0.0), self._MOST)

    def _start(self) -> None:
        with self._lock:
            if self._seen is None:
                self._seen = (0.0, self._now())
                threading.Thread(target=self._look, name="own-time", daemon=True).start()

    def _look(self) -> None:
        while self._seen is not None:
            self._sleep(self._TICK)
            own, last = self._seen
            now = self._now()
            self._seen = (own + min(now - last, self._MOST), now)


own_time = _OwnTime()


class SimClock:
    """Aware UTC ``now()``; ``sleep`` in simulated seconds; ``advance`` moves it forward at once.

    With ``path`` the clock is written there for the collection's ``TGP_CLOCK_FILE`` each time it changes, and lives by the system's clock
    as the readers of that file do. Without, nobody outside this process follows it, and it counts :data:`own_time`.
    """

    def __init__(self, speed: float = 1.0, path: str | None = None, start: float | None = None) -> None:
        if not 0 < speed < float("inf"):
            raise ValueError("speed must be a number above zero")
        self._path = path
        self.apart: tuple[str, ...] = ()  # services that live by real time: a cluster of somebody else
        self._hosts: dict[str, float] = {}  # clock files of hosts whose clocks are wrong, to the seconds they are ahead
        self._time: t.Callable[[], float] = time.time if path else own_time
        # real moment, moment of the world, speed since then: one thing, as it is read without the lock
        self._base = (self._time(), time.time() if start is None else start, speed)
        self._changed = threading.Condition()
        self._closed = False
        self._publish()

    def _publish(self) -> None:
        real, world, speed = self._base
        for path, ahead in {**({self._path: 0.0} if self._path else {}), **self._hosts}.items():
            temporary = f"{path}.new"
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump({"real": real, "world": world + ahead, "speed": speed, "apart": self.apart}, file)
            os.replace(temporary, path)

    def live_apart(self, *services: str) -> None:
        """These services do not follow this clock: what they say of the time is not compared with it."""
        with self._changed:
            self.apart = services
            self._publish()

    def add_host(self, path: str, ahead: float) -> None:
        """Write to ``path`` what ``TGP_CLOCK_FILE`` names on a host whose clock is ``ahead`` seconds before the world's (negative: behind)."""
        with self._changed:
            self._base, self._time = (time.time(), self.seconds(), self.speed), time.time
            self._hosts[path] = ahead
            self._publish()

    @property
    def speed(self) -> float:
        """Simulated seconds per real one."""
        return self._base[2]

    def seconds(self) -> float:
        """Simulated unix time."""
        real, world, speed = self._base
        return world + (self._time() - real) * speed

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds(), timezone.utc)

    def advance(self, seconds: float) -> None:
        """Move the clock forward (never back: bills and deadlines would lie)."""
        self._move(seconds)

    def run_at(self, speed: float, seconds: float = 0.0) -> None:
        """From now on that many simulated seconds pass in a real one; ``seconds`` pass at once before."""
        if not 0 < speed <= FASTEST:
            raise ValueError(f"speed should be above 0 and at most {FASTEST:.0f}")
        self._move(seconds, speed)

    def _move(self, seconds: float, speed: float | None = None) -> None:
        if not 0 <= seconds < float("inf"):
            raise ValueError("the clock cannot go back")
        with self._changed:
            began, world, before = self._base
            real = self._time()
            moment = world + (real - began) * before + seconds
            if moment > _LAST:
                raise ValueError("the clock ends with the year 8999")
            self._base = (real, moment, speed or before)
            self._publish()
            self._changed.notify_all()

    def sleep(self, seconds: float, since: float | None = None) -> None:
        """Wait that many simulated seconds; wakes at once when the clock is moved past the end.

        ``since`` = simulated moment from which they count, for a thread that gets its turn later than what it waits for began.
        """
        self.pause(seconds, lambda: False, since)

    def pause(self, seconds: float, stop: t.Callable[[], bool], since: float | None = None) -> bool:
        """Like ``sleep``, but ends early when ``stop()`` is true after a :meth:`wake`. True = it ended early."""
        end = (self.seconds() if since is None else since) + seconds
        with self._changed:
            while True:
                if self._closed:
                    raise ClockClosed
                if stop():
                    return True
                left = end - self.seconds()
                if left <= 0:
                    return False
                self._changed.wait(min(left / self.speed, threading.TIMEOUT_MAX))

    def wake(self) -> None:
        """Make every waiter look at its ``stop`` again: something happened in the world."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Time ends: all waiters, now and later, get :class:`ClockClosed`."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class HostClock:
    """The clock of a host that is ``ahead`` seconds before the world's (negative: behind). It may be set anew at any moment."""

    def __init__(self, world: SimClock, ahead: float = 0.0) -> None:
        self.world, self.ahead = world, ahead

    @property
    def speed(self) -> float:
        return self.world.speed

    @property
    def apart(self) -> tuple[str, ...]:
        return self.world.apart

    def now(self) -> datetime:
        return self.world.now() + timedelta(seconds=self.ahead)

    def sleep(self, seconds: float) -> None:
        self.world.sleep(seconds)
