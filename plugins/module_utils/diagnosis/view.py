# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A diagnosis for people: one screen for one machine."""

from __future__ import annotations

import textwrap
import typing as t
from datetime import datetime

from ..model import Lane
from .rules import Diagnosis

STEPS = ("launched", "instance", "device", "csr", "node", "ready", "complete")
SERVICE_STEPS = ("launched", "instance", "device", "healthy")
_WIDTH = 108
_MOST = 5  # pieces of evidence, of two lines at most; the file has all


def steps_of(lane: Lane | None, *, mesh: bool) -> tuple[str, ...]:
    """The steps a machine of this lane goes through."""
    if lane is Lane.SERVICE:
        return SERVICE_STEPS
    return tuple(step for step in STEPS if mesh or step != "device")


def screen(
    name: str,
    diagnosis: Diagnosis,
    steps: t.Mapping[str, datetime],
    *,
    expected: t.Sequence[str] = STEPS,
    launched: datetime | None = None,
    now: datetime,
    lost: str = "",
    file: str = "",
) -> list[str]:
    """At most 24 lines: steps with the time each was first seen, cause, evidence, remedy. ``lost`` is what the machine cost in words."""
    after = f" after {_short((now - launched).total_seconds())}" if launched else ""
    lines = [f"{name} did not become usable{after}{f', {lost}' if lost else ''}"]
    times = {**({"launched": launched} if launched else {}), **steps}
    for step in expected:
        moment = times.get(step)
        if moment is None:
            lines.append(f"  {step:<9} -")
            continue
        since = f"  {_short((moment - launched).total_seconds()):>7}" if launched else ""
        lines.append(f"  {step:<9} {moment:%H:%M:%S}Z{since}")
    sure = "" if diagnosis.certain else " (not certain)"
    lines += _block("cause", f"{diagnosis.cause}{sure} [{diagnosis.code}]")
    for at, text in enumerate(diagnosis.evidence[:_MOST]):
        lines += _block("" if at else "evidence", text, most=2)
    lines += _block("remedy", diagnosis.remedy)
    if file:
        lines.append(f"  {'all of it':<9} {file}")
    return lines


def _block(head: str, text: str, most: int = 4) -> list[str]:
    wrapped = textwrap.wrap(text, _WIDTH - 12, max_lines=most, placeholder=" …") or [""]
    return [f"  {head if not at else '':<9} {line}" for at, line in enumerate(wrapped)]


def _short(seconds: float) -> str:
    whole = int(max(seconds, 0))
    return f"{whole}s" if whole < 100 else f"{whole // 60}m{whole % 60:02d}s"
