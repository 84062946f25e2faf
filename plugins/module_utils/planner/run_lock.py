# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run lock's decisions (L-8). Reading and writing the Lease happens in store/."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta


@dataclasses.dataclass(frozen=True, slots=True)
class Reading:
    """The Lease as read at ``read_at``. ``holder`` empty = released. ``duration`` in seconds."""

    holder: str
    renewed: datetime | None
    duration: int
    read_at: datetime

    @property
    def expired(self) -> bool:
        """True strictly after the holder's time is over, by our clock, which may be wrong."""
        return self.renewed is None or self.renewed + timedelta(seconds=self.duration) < self.read_at


def decide(reading: Reading | None, earlier: Reading | None, me: str, *, second_reading: int = 10) -> str:
    """``free`` (no holder: take it), ``mine``, ``busy``, ``read_again`` (expired: look once more after ``second_reading`` seconds),
    ``take`` (expired in two readings far enough apart and not renewed between them: the holder is dead, not merely ahead of us).
    """
    if reading is None or not reading.holder:
        return "free"
    if reading.holder == me:
        return "mine"
    if not reading.expired:
        return "busy"
    if earlier is None or not earlier.expired or earlier.holder != reading.holder or earlier.renewed != reading.renewed:
        return "read_again"
    apart = (reading.read_at - earlier.read_at).total_seconds()
    return "take" if apart >= second_reading else "read_again"


def renewal_due(renewed: datetime, now: datetime, *, duration: int = 900, every: int = 300) -> bool:
    """True when the lock must be renewed before the run goes on; also when our clock was put back, since is unknown then for how long."""
    return not 0 <= (now - renewed).total_seconds() < min(every, duration / 2)


def confirmation_due(renewed: datetime, now: datetime, *, fresh: int = 5) -> bool:
    """True when a call that costs or deletes has to renew the lock first. Calls side by side share one renewal for ``fresh`` seconds, by
    a clock that goes forwards."""
    return not 0 <= (now - renewed).total_seconds() < fresh
