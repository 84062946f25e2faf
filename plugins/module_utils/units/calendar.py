# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The calendar of a place (L-16): its days, weeks and months, time zones by name, and cron schedules. A day in which clocks change has 23 or
25 hours."""

from __future__ import annotations

import dataclasses
import functools
import re
import typing as t
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..core.errors import InvalidInput, lazy

if t.TYPE_CHECKING:
    import cronsim
else:
    cronsim = lazy("cronsim")

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
        raise InvalidInput(f"{name!r} is not a time zone.", remedy=REMEDY) from error


# ---- times and hours of the day at a place

_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


def _minutes(text: str) -> int:
    """Since midnight, of ``22:30``."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise InvalidInput(f"{text!r} must be a time of the day.", remedy="Write it as 08:00, in 24 hours.")
    return int(found[1]) * 60 + int(found[2])


@dataclasses.dataclass(frozen=True, slots=True)
class TimeOfDay:
    """Minutes since midnight at a place."""

    minutes: int
    place: str = "UTC"

    @classmethod
    def of(cls, text: str) -> TimeOfDay:
        """Of ``08:00`` or ``08:00 Europe/Berlin``."""
        word, _blank, place = str(text).strip().partition(" ")
        return cls(_minutes(word), _named(place))

    def last(self, now: datetime) -> datetime:
        """The last moment at which it was this time."""
        place = zone(self.place)
        today, clock = now.astimezone(place).date(), time(*divmod(self.minutes, 60))
        moments = (datetime.combine(today - timedelta(days=days), clock, place).astimezone(timezone.utc) for days in range(3))
        return next(moment for moment in moments if moment <= now)


@dataclasses.dataclass(frozen=True, slots=True)
class HoursOfDay:
    """From one time of the day (included) to another one (not included), over midnight where that is the earlier one."""

    start: int
    end: int
    place: str = "UTC"

    @classmethod
    def of(cls, text: str) -> HoursOfDay:
        """Of ``22:00-07:00`` or ``22:00-07:00 Europe/Berlin``."""
        words, _blank, place = str(text).strip().partition(" ")
        first, _dash, last = words.partition("-")
        start, end = _minutes(first), _minutes(last)
        if start == end:
            raise InvalidInput(f"{words!r} has no length.", remedy="Write two times, as 22:00-07:00.")
        return cls(start, end, _named(place))

    def holds(self, now: datetime) -> bool:
        """Whether ``now`` lies in it."""
        there = now.astimezone(zone(self.place))
        minutes = there.hour * 60 + there.minute
        return self.start <= minutes < self.end if self.start < self.end else not self.end <= minutes < self.start


def _named(place: str) -> str:
    """The name of a time zone that exists; UTC for none."""
    name = place.strip() or "UTC"
    zone(name)
    return name


# ---- cron schedules of five fields, read by the library cronsim, and whether one is in force now

_WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_TO_SUNDAY = re.compile(r"(?<![\w-])(?!(?:sun|0)-)(\w+)-(?:sun|0)(?!\w)", re.IGNORECASE)  # fri-sun, which cronsim reads as 5-0
_ANY_DAY = datetime(2026, 1, 1, tzinfo=timezone.utc)
_REMEDY = 'Write five fields like "0 9 * * 1-5": minute, hour, day of the month, month, day of the week.'


@functools.lru_cache(maxsize=256)
def parse_cron(text: str) -> str:
    """The five fields of a schedule, also of @daily and the like, as cronsim reads them. Raises InvalidInput, also for a day that no year
    has, and MissingLibrary without cronsim."""
    fields = _WORDS.get(text.strip().lower(), text).split()
    if len(fields) != 5:
        raise InvalidInput(f"{text!r} is not a schedule.", remedy=_REMEDY)
    fields[4] = _TO_SUNDAY.sub(r"\1-7", fields[4])
    schedule = " ".join(fields)
    try:
        cronsim.CronSim(schedule, _ANY_DAY)
    except cronsim.CronSimError as error:
        raise InvalidInput(f"{text!r} is not a schedule: {str(error).lower()}.", remedy=_REMEDY) from error
    return schedule


def active(schedule: str, where: tzinfo, lasts: timedelta, now: datetime) -> bool:
    """Whether a schedule of :func:`parse_cron` came due less than ``lasts`` ago: its first moment is inside, its last is not.

    An hour that the clock skips counts at its end, one that it repeats counts once, and twice for schedules of every hour, as in Debian's
    cron. Of such an hour the library may name a moment before the one it begins at; that one is passed over.
    """
    since = now - lasts
    moments = (moment.astimezone(timezone.utc) for moment in cronsim.CronSim(schedule, since.astimezone(where)))
    following = next((moment for moment in moments if moment > since), None)
    return following is not None and following <= now
