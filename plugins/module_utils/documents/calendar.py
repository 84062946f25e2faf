# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``spec.calendar`` of a GPUNodePool, valid by its schema, as the model's Calendar."""

from __future__ import annotations

import datetime
import typing as t

from ..core.errors import InvalidInput
from ..model import Calendar, Window
from ..units.time_zones import REMEDY, zone
from .reading import Reader
from .schemas import DAYS

PATH = "spec.calendar"
Spec = t.Mapping[str, t.Any]


def calendar(spec: Spec | None, reader: Reader, max_nodes: int | None = None) -> Calendar | None:
    """The pool's calendar, None without one. Faults: an unknown time zone, a window without length, a floor above ``max_nodes``, which the
    pool may have."""
    if spec is None:
        return None
    name = spec.get("timeZone", "UTC")
    try:
        zone(name)
    except InvalidInput:
        reader.fault(f"{PATH}.timeZone", f"there is no time zone {name!r}. {REMEDY}")
    for place, one in enumerate(spec["windows"]):
        if max_nodes is not None and one.get("minNodes", 0) > max_nodes:
            reader.fault(f"{PATH}.windows[{place}].minNodes", f"{one['minNodes']} is above limits.maxNodes {max_nodes}.")
    return Calendar(name, tuple(_window(one, f"{PATH}.windows[{place}]", reader) for place, one in enumerate(spec["windows"])))


def _window(spec: Spec, path: str, reader: Reader) -> Window:
    days = frozenset(DAYS.index(one) for one in spec.get("days", DAYS))
    start, end = _time(spec["from"]), _time(spec["to"])
    if start == end and spec["to"] != "24:00":
        reader.fault(f"{path}.to", f"{spec['to']} is also when the window begins. For a whole day write from 00:00 to 24:00.")
    stop = _time(spec["hardStop"]) if "hardStop" in spec else None
    return Window(days, start, end, spec.get("minNodes"), stop)


def _time(text: str) -> datetime.time:
    """A time of day of the schema's form; 24:00 is the next day's beginning."""
    hour, minute = (int(part) for part in text.split(":"))
    return datetime.time(hour % 24, minute)
