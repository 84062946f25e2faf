# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where time comes from: the system clock, or a simulated one for tests.

``TGP_CLOCK_FILE`` names a JSON file ``{"real": <unix seconds>, "world": <unix seconds>, "speed": <factor>}``: at the real
moment ``real`` the simulated time was ``world``, and it runs ``speed`` times as fast. The sandbox writes that file, so a boot of
three minutes pass in three seconds with every deadline, pause and price in proportion.
"""

from __future__ import annotations

import dataclasses
import email.utils
import json
import os
import time
import typing as t
import weakref
from datetime import datetime, timedelta, timezone

from .errors import InvalidInput


class Clock(t.Protocol):
    """Aware UTC ``now()``, ``sleep(seconds)`` in the clock's own seconds, and ``speed`` (clock seconds per real second)."""

    speed: float

    def now(self) -> datetime: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """Real time."""

    speed = 1.0

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)


class FileClock:
    """Simulated time as described by a file; the file may change at any moment (the clock was set)."""

    _SLICE = 0.25  # real seconds between two looks at the file while sleeping

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._real = self._world = 0.0
        self.speed = 1.0
        self.apart: tuple[str, ...] = ()  # services that do not live by this clock
        self._load()

    def _load(self) -> None:
        try:
            status = os.stat(self._path)
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp:
                with open(self._path, encoding="utf-8") as file:
                    data = json.load(file)
                self._real, self._world, self.speed = float(data["real"]), float(data["world"]), float(data["speed"])
                self.apart = tuple(str(name) for name in data.get("apart", ()))
                self._stamp = stamp
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidInput(
                f"The clock file {self._path} cannot be used: {error!r}.",
                remedy="Unset TGP_CLOCK_FILE to live by the system's clock; only a sandbox writes such a file.",
            ) from error

    def _seconds(self) -> float:
        self._load()
        return self._world + (time.time() - self._real) * self.speed

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._seconds(), timezone.utc)

    def sleep(self, seconds: float) -> None:
        end = self._seconds() + seconds
        while (left := end - self._seconds()) > 0:
            time.sleep(min(left / self.speed, self._SLICE))


class ShiftedClock:
    """``clock``, so many seconds ahead: for comparison with times of another clock that differs from ours."""

    def __init__(self, clock: Clock, ahead: float) -> None:
        self._clock, self._ahead = clock, timedelta(seconds=ahead)
        self.speed = clock.speed

    def now(self) -> datetime:
        return self._clock.now() + self._ahead

    def sleep(self, seconds: float) -> None:
        self._clock.sleep(seconds)


def looks(clock: Clock, *, within: float, every: float, least: int) -> t.Iterator[None]:
    """One turn for each look at something that is waited for: now, and every ``every`` seconds until ``within`` seconds have passed. There
    are ``least`` of them in any case: one answer that takes as long as the whole wait does not end it."""
    end = clock.now() + timedelta(seconds=within)
    looked = 0
    while True:
        yield
        looked += 1
        if looked >= least and clock.now() >= end:
            return
        clock.sleep(every)


def from_environment() -> Clock:
    """The clock this process lives by."""
    path = os.environ.get("TGP_CLOCK_FILE")
    return FileClock(path) if path else SystemClock()


def to_text(moment: datetime) -> str:
    """RFC 3339, UTC, whole seconds, suffix Z (L-0)."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_text(text: str) -> datetime:
    """Parse RFC 3339 (any offset, fraction allowed) into aware UTC. ValueError if it is not a time."""
    moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return moment.astimezone(timezone.utc)


# ---- what the clocks of others say


@dataclasses.dataclass(frozen=True)
class Ahead:
    """A service's clock is ahead of ours by ``low`` to ``high`` seconds. ``at``: when that was measured, by ``time.monotonic``."""

    low: float
    high: float
    at: float

    @property
    def certain(self) -> float:
        """The least difference that is certain; 0 where the clocks may agree."""
        return max(self.low, 0.0) + min(self.high, 0.0)


_ahead: weakref.WeakKeyDictionary[t.Any, dict[str, Ahead]] = weakref.WeakKeyDictionary()
_LASTS = 60.0  # real seconds for which an earlier, narrower measurement counts


def compare(clock: Clock, service: str, headers: t.Mapping[str, str], before: datetime, after: datetime) -> None:
    """Note what the ``Date`` of an answer says of our clock: it was written between ``before`` and ``after``, and tells whole seconds. An
    answer out of a cache (header ``Age``) says nothing, nor does a service that does not live by a simulated clock."""
    if "age" in headers or service in getattr(clock, "apart", ()):
        return
    try:
        moment = email.utils.parsedate_to_datetime(headers.get("date", ""))
    except (TypeError, ValueError):
        return
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    new = Ahead((moment - after).total_seconds(), (moment - before).total_seconds() + 1, time.monotonic())
    offsets = _ahead.setdefault(clock, {})
    old = offsets.get(service)
    if old is not None and new.at - old.at < _LASTS:
        low, high = max(old.low, new.low), min(old.high, new.high)
        if low <= high:  # else one of the two clocks was set meanwhile
            new = Ahead(low, high, new.at)
    offsets[service] = new


def others_ahead(clock: Clock, services: t.Container[str], since: float) -> tuple[str, float] | None:
    """The service whose clock differs most from ours, and by how many seconds it is ahead at least. None when no answer has said so since
    ``since`` (by ``time.monotonic``)."""
    offsets = {
        name: ahead.certain for name, ahead in sorted(_ahead.get(clock, {}).items()) if name in services and ahead.at >= since
    }
    return max(offsets.items(), key=lambda pair: abs(pair[1])) if offsets else None


def now_of(clock: Clock, service: str) -> datetime:
    """This moment by the clock of a service: ours, until its answers say that ours differs."""
    ahead = _ahead.get(clock, {}).get(service)
    return clock.now() if ahead is None else clock.now() + timedelta(seconds=ahead.certain)
