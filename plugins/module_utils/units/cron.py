# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Schedules of five fields, as cron writes them, and when they last came due. Only the question "is it active now?" is asked of them,
so nothing is waited for and nothing runs."""

from __future__ import annotations

import dataclasses
import functools
import typing as t
from datetime import date, datetime, timedelta, timezone, tzinfo

from ..core.errors import InvalidInput

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, {name: place for place, name in enumerate(_MONTHS, 1)}),
    ("day of the week", 0, 7, {name: place for place, name in enumerate(_WEEKDAYS)}),
)
_WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_LONGEST_MONTH = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
_DAY = timedelta(days=1)
_REMEDY = 'Write five fields like "0 9 * * 1-5": minute, hour, day of the month, month, day of the week.'


@dataclasses.dataclass(frozen=True, slots=True)
class Cron:
    """The minutes, hours, days, months and weekdays (0 = Sunday) at which a schedule comes due. ``either``: both kinds of days are
    restricted, and one of them is enough, as in every cron."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool = False

    def on(self, day: date) -> bool:
        """Whether it comes due on this day at all."""
        if day.month not in self.months:
            return False
        by_month, by_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_month or by_week if self.either else by_month and by_week


@functools.lru_cache(maxsize=256)
def parse_cron(text: str) -> Cron:
    """The schedule of five fields (or @daily and the like). Raises InvalidInput, also for a day that no year has."""
    fields = _WORDS.get(text.strip().lower(), text).split()
    if len(fields) != len(_FIELDS):
        raise InvalidInput(f"{text!r} is not a schedule.", remedy=_REMEDY)
    minutes, hours, days, months, weekdays = (_values(field, *bounds, text) for field, bounds in zip(fields, _FIELDS, strict=True))
    either = not fields[2].startswith("*") and not fields[4].startswith("*")
    if not either and all(min(days) > _LONGEST_MONTH.get(month, 31) for month in months):
        raise InvalidInput(f"{text!r} never comes due: no such month has that day.", remedy=_REMEDY)
    return Cron(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), either)


def _values(field: str, what: str, low: int, high: int, names: dict[str, int], text: str) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        try:
            start = low if span == "*" else _number(first, names)
            end = high if span == "*" or (slash and not dash) else _number(last, names) if dash else start
            end = 7 if dash and high == 7 and end == 0 < start else end  # Friday to Sunday
            every = int(step) if slash else 1
            if not (low <= start <= end <= high and every >= 1):
                raise ValueError(part)
        except ValueError as error:
            raise InvalidInput(f"{part!r} is no {what} in the schedule {text!r}.", remedy=_REMEDY) from error
        found.update(range(start, end + 1, every))
    return frozenset(found)


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)


def active(cron: Cron, where: tzinfo, lasts: timedelta, now: datetime) -> bool:
    """Whether the schedule came due less than ``lasts`` ago: its first moment is inside, its last is not."""
    since = now - lasts
    last = last_due(cron, where, since, now)
    return last is not None and since < last


def last_due(cron: Cron, where: tzinfo, since: datetime, now: datetime) -> datetime | None:
    """The latest moment (UTC) at which it came due, not after ``now`` and on no day before that of ``since``; None without any."""
    day, first = now.astimezone(where).date(), since.astimezone(where).date()
    while day >= first:
        if cron.on(day):
            found = max((moment for moment in _moments(cron, day, where) if moment <= now), default=None)
            if found is not None:
                return found
        day -= _DAY
    return None


def _moments(cron: Cron, day: date, where: tzinfo) -> t.Iterator[datetime]:
    """When it comes due on a day. An hour that the clock repeats counts twice only for schedules of every hour; one that it skips
    counts an hour later."""
    folds = (0, 1) if len(cron.hours) == 24 else (0,)
    for hour in cron.hours:
        for minute in cron.minutes:
            for fold in folds:
                yield datetime(day.year, day.month, day.day, hour, minute, fold=fold, tzinfo=where).astimezone(timezone.utc)
