# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Days, weeks and months as the calendar of a place has them (L-16). A day in which clocks change has 23 or 25 hours."""

from __future__ import annotations

import dataclasses
import functools
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..core.errors import InvalidInput

PERIODS = ("day", "week", "month")


@dataclasses.dataclass(frozen=True, slots=True)
class Period:
    """From ``start`` (included) to ``end`` (not included), both UTC. ``key`` names it: 2026-11-21, 2026-W47, 2026-11."""

    kind: str
    key: str
    start: datetime
    end: datetime


def period_of(kind: str, now: datetime, time_zone: str = "UTC") -> Period:
    """The day, week or month in which ``now`` lies at that place."""
    place = zone(time_zone)
    today = now.astimezone(place).date()
    if kind == "day":
        first, following, key = today, today + timedelta(days=1), today.isoformat()
    elif kind == "week":
        first = today - timedelta(days=today.weekday())
        year, week, _day = first.isocalendar()
        following, key = first + timedelta(days=7), f"{year}-W{week:02d}"
    elif kind == "month":
        first = today.replace(day=1)
        following, key = (first + timedelta(days=31)).replace(day=1), f"{first:%Y-%m}"
    else:
        raise InvalidInput(f"There is no period {kind!r}.", remedy=f"Use one of {', '.join(PERIODS)}.")
    return Period(kind, key, _begin(first, place), _begin(following, place))


def days_between(start: datetime, end: datetime, time_zone: str = "UTC") -> list[Period]:
    """The days that cover ``start`` to ``end``, in order; empty when there is no time between."""
    periods: list[Period] = []
    moment = start
    while moment < end:
        periods.append(period_of("day", moment, time_zone))
        moment = periods[-1].end
    return periods


def _begin(day: date, place: tzinfo) -> datetime:
    """The first moment of a day there. Where clocks jump over midnight, that is the moment of the jump."""
    return datetime.combine(day, time(0), place).astimezone(timezone.utc)


# ---- time zones by their names, for schedules, calendars and periods

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
