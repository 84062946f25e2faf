# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is a node idle by the use of its GPUs (L-36)? One sample proves nothing, and no controller watches: the Node remembers since when and until
when every sample was low."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

from ...core.errors import InvalidInput
from ...model import GpuUtilization, Pod, Pool
from ...model.defaults import CLOCK_TOLERANCE
from ...model.labels import LOW_UTILIZATION_ANNOTATION
from ...units.values import latest, parse_time, print_duration, print_time

SIGNALS = ("pods", "utilization", "both")
NOTE_AGAIN_AFTER: t.Final = 600  # seconds after which a node that stays low is noted anew (L-30)
_FORM = re.compile(r"(?P<since>[^/ ]+)/(?P<until>[^/ ]+) below (?P<below>\d+(?:\.\d+)?)%")


@dataclasses.dataclass(frozen=True, slots=True)
class LowPeriod:
    """From ``since`` until ``until`` every sample was below the share ``below``."""

    since: datetime
    until: datetime
    below: Decimal

    def __str__(self) -> str:
        return f"{print_time(self.since)}/{print_time(self.until)} below {percent(self.below)}"


@dataclasses.dataclass(frozen=True, slots=True)
class GpuVerdict:
    """Whether the GPUs of a node are in use; ``used`` None = unknown. ``low`` is the period to be remembered, ``write``: it has to be written
    (None = removed). ``long_enough``: the window is full. ``why`` is for people."""

    used: bool | None
    why: str
    low: LowPeriod | None = None
    write: bool = False
    long_enough: bool = False

    @property
    def value(self) -> str | None:
        """The annotation's value."""
        return None if self.low is None else str(self.low)


def percent(share: Decimal) -> str:
    """A share as people read it."""
    return f"{(share * 100).quantize(Decimal('0.1')).normalize():f}%"


def gpu_verdict(noted: str | None, seen: GpuUtilization | None, pods: t.Iterable[Pod], pool: Pool, now: datetime) -> GpuVerdict:
    """By the sample of this run and what earlier ones left on the Node (``noted``). ``pods``: those that count as work there; the window
    begins anew with the youngest of them, which may still load its model."""
    busiest, unknown = (seen.busiest, seen.why) if seen is not None else (None, "they were not asked in this run")
    if busiest is not None and busiest >= pool.idle_below:
        return GpuVerdict(True, f"busy: a GPU is used at {percent(busiest)}", None, noted is not None)
    if busiest is None or unknown:
        return GpuVerdict(None, f"whether its GPUs are used is unknown: {unknown}", _parse(noted))
    before = _goes_on(noted, pool, now)
    youngest = latest(min(pod.started or pod.created or now, now) for pod in pods)
    since = max(filter(None, (before.since if before else now, youngest)))
    low = LowPeriod(since, now, pool.idle_below)
    same = before is not None and (since, pool.idle_below) == (before.since, before.below)
    write = before is None or not same or (now - before.until).total_seconds() >= NOTE_AGAIN_AFTER
    lasts = (now - since).total_seconds()
    why = f"GPUs below {percent(pool.idle_below)} for {print_duration(lasts)} (now {percent(busiest)})"
    return GpuVerdict(False, why, low, write, lasts >= pool.idle_window)


def _goes_on(noted: str | None, pool: Pool, now: datetime) -> LowPeriod | None:
    """The remembered period, if this sample continues it: it was measured as strictly, and no hole lies between. The node is noted anew every
    ten minutes only, so a hole is more than half of the window beyond that."""
    low = _parse(noted)
    if low is None or low.below > pool.idle_below or low.until > now + timedelta(seconds=CLOCK_TOLERANCE):
        return None
    if (now - low.until).total_seconds() > pool.idle_window / 2 + NOTE_AGAIN_AFTER:
        return None
    return low


def _parse(noted: str | None) -> LowPeriod | None:
    """What an annotation says; None when it is none of ours."""
    match = _FORM.fullmatch(noted or "")
    if match is None:
        return None
    try:
        since, until = parse_time(match["since"]), parse_time(match["until"])
    except InvalidInput:
        return None
    return LowPeriod(since, until, Decimal(match["below"]) / 100) if since <= until else None


def noted_on(annotations: t.Mapping[str, str]) -> str | None:
    """What a Node remembers of it."""
    return annotations.get(LOW_UTILIZATION_ANNOTATION)
