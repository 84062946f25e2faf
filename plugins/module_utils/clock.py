# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where time comes from: the system clock, or a simulated one for rehearsals.

``TGP_CLOCK_FILE`` names a JSON file ``{"real": <unix seconds>, "world": <unix seconds>, "speed": <factor>}``: at the real
moment ``real`` the simulated time was ``world``, and it runs ``speed`` times as fast. The sandbox writes that file, so a boot of
three minutes can be rehearsed in three seconds with every deadline, pause and price in proportion.
"""

from __future__ import annotations

import json
import os
import time
import typing as t
from datetime import datetime, timezone

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
    """Simulated time as described by a file; the file may change at any moment (somebody moved the clock)."""

    _SLICE = 0.25  # real seconds between two looks at the file while sleeping

    def __init__(self, path: str) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._real = self._world = 0.0
        self.speed = 1.0
        self._load()

    def _load(self) -> None:
        try:
            status = os.stat(self._path)
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp:
                with open(self._path, encoding="utf-8") as file:
                    data = json.load(file)
                self._real, self._world, self.speed = float(data["real"]), float(data["world"]), float(data["speed"])
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
