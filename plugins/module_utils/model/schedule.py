# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a pool is in use: office hours and the like."""

from __future__ import annotations

import dataclasses
import datetime


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """Hours of a week. ``days``: 0 (Monday) to 6, on which it begins; ``start`` and ``end``: local times of day, an ``end`` that is not
    after ``start`` lies on the next day. ``min_nodes``: the floor meanwhile, None = the pool's. ``hard_stop``: local time of day after
    the end at which machines that are still there go by force, None = they may finish."""

    days: frozenset[int]
    start: datetime.time
    end: datetime.time
    min_nodes: int | None = None
    hard_stop: datetime.time | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Calendar:
    """A pool's windows in one time zone (a name of the tz database). Outside of all of them nothing is launched and no node is kept."""

    time_zone: str
    windows: tuple[Window, ...]
