# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Time zones by their names, for schedules, calendars and periods."""

from __future__ import annotations

import functools
from datetime import timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..core.errors import InvalidInput

REMEDY = "Write a name like Europe/Berlin, or UTC; on a system without a database of time zones install the package tzdata."


@functools.lru_cache(maxsize=64)
def zone(name: str) -> tzinfo:
    """The time zone of that name in the tz database; UTC is known without one. InvalidInput when there is none."""
    if name == "UTC":
        return timezone.utc
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidInput(f"{name!r} is no time zone.", remedy=REMEDY) from error
