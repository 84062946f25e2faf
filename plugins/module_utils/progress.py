# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Says what is going on while it goes on: one readable line per step, and one JSON line per step for programs.

The JSON lines are the audit log: ``time, run, name, event, phase, cloud, price_hour, elapsed, cost, reason``. They are appended to
``events.jsonl`` in the state folder, which is rotated at 10 MB; nothing secret goes in.
"""

from __future__ import annotations

import json
import os
import threading
import typing as t
from datetime import datetime
from decimal import Decimal

from .clock import Clock, to_text
from .redact import redact_all

_ROTATE_AT = 10_000_000


class Progress:
    """Reports steps of one run. ``say`` prints a line for people; ``folder`` (or None) gets the event log."""

    def __init__(self, say: t.Callable[[str], None], clock: Clock, run_id: str, folder: str | None) -> None:
        self._say = say
        self._clock = clock
        self._run = run_id
        self._path = os.path.join(folder, "events.jsonl") if folder else None
        self._lock = threading.Lock()

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
        self._write(now, name, event, text, seconds, cost, price_hour, facts)

    def _write(self, now, name, event, text, seconds, cost, price_hour, facts) -> None:  # type: ignore[no-untyped-def]
        if self._path is None:
            return
        record = {
            "time": to_text(now),
            "run": self._run,
            "name": name,
            "event": event,
            "text": text,
            "elapsed": None if seconds is None else round(seconds, 1),
            "price_hour": None if price_hour is None else str(price_hour),
            "cost": None if cost is None else str(cost.quantize(Decimal("0.0001"))),
            **facts,
        }
        line = json.dumps(redact_all({key: value for key, value in record.items() if value not in (None, "")})) + "\n"
        with self._lock:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            if os.path.exists(self._path) and os.path.getsize(self._path) > _ROTATE_AT:
                os.replace(self._path, self._path + ".1")
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(line)


def _line(name: str, event: str, text: str, seconds: float | None, cost: Decimal | None) -> str:
    elapsed = "" if seconds is None else f"{_short(seconds):>6}"
    money = "" if cost is None else f"${cost.quantize(Decimal('0.0001'))}"
    return f"  {elapsed:>6} {money:>8}  {name:<34} {event:<13} {text}".rstrip()


def _short(seconds: float) -> str:
    whole = int(max(seconds, 0))
    if whole < 100:
        return f"{whole}s"
    return f"{whole // 60}m{whole % 60:02d}s"
