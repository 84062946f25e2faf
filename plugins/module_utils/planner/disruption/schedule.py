# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pool's calendar says at a moment (L-18): open or closed, how many nodes are kept, whether the last ones have to go."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import date, datetime, time, timedelta, timezone, tzinfo

from ...model import Calendar, Pool, Window
from ...units.calendar import zone

_AROUND = range(-8, 9)  # days to look at on both sides: a window comes again after a week, and may end and be stopped a day later


@dataclasses.dataclass(frozen=True, slots=True)
class Hours:
    """``min_nodes``: the floor now (the number of ``replicas`` where the pool has it). ``closed``: why nothing is launched now, empty
    while open. ``stop``: since when machines that are still there should be gone, None = they may finish."""

    min_nodes: int
    closed: str = ""
    stop: datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class _Span:
    window: Window
    start: datetime
    end: datetime
    stop: datetime | None


def hours(pool: Pool, now: datetime) -> Hours:
    """The pool's hours at ``now``; a pool without a calendar is always open. Moments count as reached when they are there: at 18:00:00 a
    window that ends at 18:00 is over."""
    floor = pool.min_nodes if pool.replicas is None else pool.replicas
    if pool.calendar is None:
        return Hours(floor)
    spans = list(_spans(pool.calendar, now))
    inside = [span.window for span in spans if span.start <= now < span.end]
    if inside:
        return Hours(max(floor if window.min_nodes is None else window.min_nodes for window in inside))
    opens = min((span.start for span in spans if span.start > now), default=None)
    ended = max((span.end for span in spans if span.end <= now), default=None)
    stop = min((span.stop for span in spans if span.end == ended and span.stop is not None), default=None)  # two may end together
    return Hours(0, _closed(pool.calendar, opens), stop if stop is not None and stop <= now else None)


def _closed(calendar: Calendar, opens: datetime | None) -> str:
    if opens is None:
        return "outside its calendar"
    local = opens.astimezone(zone(calendar.time_zone))
    return f"outside its calendar, which opens {local:%a %Y-%m-%d %H:%M} {calendar.time_zone}"


def _spans(calendar: Calendar, now: datetime) -> t.Iterator[_Span]:
    """Every window's turns around ``now``, in UTC. Hours are those of the clock on the wall, so a turn is an hour longer or shorter when
    the clocks change meanwhile."""
    place = zone(calendar.time_zone)
    today = now.astimezone(place).date()
    for offset in _AROUND:
        day = today + timedelta(days=offset)
        for window in calendar.windows:
            if day.weekday() in window.days:
                end_day = day if window.end > window.start else day + timedelta(days=1)
                end = _moment(end_day, window.end, place)
                stop = None
                if window.hard_stop is not None:
                    stop_day = end_day if window.hard_stop >= window.end else end_day + timedelta(days=1)
                    stop = _moment(stop_day, window.hard_stop, place)
                yield _Span(window, _moment(day, window.start, place), end, stop)


def _moment(day: date, clock: time, place: tzinfo) -> datetime:
    return datetime.combine(day, clock, place).astimezone(timezone.utc)


def floor_of_now(pool: Pool, now: datetime) -> Pool:
    """The pool with ``min_nodes`` as its calendar and its ``replicas`` say at ``now``; outside its calendar ``replicas`` is 0, too."""
    if pool.calendar is None and pool.replicas is None:
        return pool
    floor = hours(pool, now).min_nodes
    return dataclasses.replace(pool, min_nodes=floor, replicas=None if pool.replicas is None else floor)
