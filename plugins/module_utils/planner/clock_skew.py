# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host whose clock is wrong decides nothing by age or date, and launches nothing (L-27)."""

from __future__ import annotations

from datetime import datetime, timedelta

from ..model import Claim, Phase
from ..model.reasons import Reason
from ..units.values import print_duration

LIMIT = 120.0
AGELESS = frozenset({Reason.DUPLICATE, Reason.SPOT_LOST, Reason.PRICE_JUMP, Reason.MANUAL})  # reasons that hang on no time


def is_wrong(offset: float | None) -> bool:
    """Whether our clock differs from another one by more than is allowed."""
    return offset is not None and abs(offset) > LIMIT


def corrected(moment: datetime, offset: float | None) -> datetime:
    """A moment by our clock, by the other one where ours is wrong."""
    return moment + timedelta(seconds=offset) if offset is not None and is_wrong(offset) else moment


def told(offset: float, source: str) -> str:
    """The difference and what follows, for people."""
    side = "behind" if offset > 0 else "ahead of"
    return (
        f"The clock of this host is {print_duration(int(abs(offset)))} {side} that of {source}. Nothing is launched, and nothing is decided "
        "by age or date: no expiry, no idle time, no repair, no orphans, no budgets. Set up time synchronisation on this host, then run again."
    )


def goes_on(claim: Claim) -> bool:
    """Whether the end of a claim goes on under a wrong clock: its pods have left, or its reason hangs on no time."""
    return claim.deletion is not None and (claim.phase is Phase.TERMINATING or claim.deletion.reason in AGELESS)
