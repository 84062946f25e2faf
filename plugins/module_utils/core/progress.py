# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Says what is going on while it goes on: one readable line per step for people, and an event of kind ``progress`` for programs."""

from __future__ import annotations

import typing as t
from datetime import datetime
from decimal import Decimal

from .clock import Clock
from .events import Events


class Progress:
    """Reports steps of one run. ``say`` prints a line for people; ``events`` (or None) is the run's log."""

    def __init__(self, say: t.Callable[[str], None], clock: Clock, events: Events | None) -> None:
        self._say = say
        self._clock = clock
        self._events = events

    def step(
        self,
        name: str,
        event: str,
        text: str = "",
        *,
        since: datetime | None = None,
        price_hour: Decimal | None = None,
        quiet: bool = False,
        **facts: t.Any,
    ) -> None:
        """Something happened to ``name``. ``since`` is when its clock started: elapsed time and cost so far are shown."""
        now = self._clock.now()
        seconds = (now - since).total_seconds() if since else None
        cost = price_hour * Decimal(str(max(seconds, 0.0))) / 3600 if price_hour is not None and seconds is not None else None
        if not quiet:
            self._say(_line(name, event, text, seconds, cost))
        if self._events is not None:
            self._events.write(
                "progress",
                name=name,
                event=event,
                text=text,
                elapsed=None if seconds is None else round(seconds, 1),
                price_hour=price_hour,
                cost=None if cost is None else str(cost.quantize(Decimal("0.0001"))),
                **facts,
            )


def _line(name: str, event: str, text: str, seconds: float | None, cost: Decimal | None) -> str:
    elapsed = "" if seconds is None else f"{_short(seconds):>6}"
    money = "" if cost is None else f"${cost.quantize(Decimal('0.0001'))}"
    return f"  {elapsed:>6} {money:>8}  {name:<34} {event:<13} {text}".rstrip()


def _short(seconds: float) -> str:
    whole = int(max(seconds, 0))
    if whole < 100:
        return f"{whole}s"
    return f"{whole // 60}m{whole % 60:02d}s"


# ---- rows of text as an aligned table that fits a terminal


def render(rows: t.Sequence[t.Mapping[str, t.Any]], columns: t.Mapping[str, str], *, right: t.Collection[str] = ()) -> list[str]:
    """Lines of a table. ``columns`` maps a row's key to its heading, in order; ``right`` names the right-aligned keys."""
    if not rows:
        return []
    cells = [[_text(row.get(key)) for key in columns] for row in rows]
    widths = [max(len(heading), *(len(line[at]) for line in cells)) for at, heading in enumerate(columns.values())]

    def line(values: t.Sequence[str]) -> str:
        parts = [
            value.rjust(width) if key in right else value.ljust(width)
            for key, value, width in zip(columns, values, widths, strict=True)
        ]
        return "  " + "  ".join(parts).rstrip()

    return [line(list(columns.values())), line(["-" * width for width in widths]), *(line(values) for values in cells)]


def _text(value: t.Any) -> str:
    return "" if value is None else str(value)
