# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is a service idle, since when, and may it go for that (L-3)? It says so itself; unknown is never idle."""

from __future__ import annotations

from datetime import datetime

from ...model import Claim, Pool, Probe
from ...units.durations import print_duration
from .emptiness import Idle, against


def judge(claim: Claim, probe: Probe, pool: Pool, now: datetime) -> Idle:
    """The verdict. The time begins with the first answer "idle" and ends with the first "busy"; an unknown one does neither."""
    if pool.idle_probe is None:
        return Idle(None, claim.idle_since, False, False, "no idleProbe says when it is idle")
    if probe.idle is None:
        return Idle(
            None, claim.idle_since, False, False, f"whether it is idle is unknown: {probe.idle_detail or 'it was not asked'}"
        )
    if not probe.idle:
        return Idle(True, None, False, False, f"busy: {probe.idle_detail}".rstrip(": "))
    since = claim.idle_since or now
    why = against(claim, pool, now, since)
    idle_for = f"idle for {print_duration((now - since).total_seconds())}"
    return Idle(False, since, False, not why, f"{idle_for}; {why}" if why else idle_for)
