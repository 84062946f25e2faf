# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host whose clock is wrong decides nothing by age or date, and launches nothing (L-27)."""

from __future__ import annotations

import typing as t

from ..model import Claim, Phase
from ..model.reasons import Reason
from ..units.values import print_duration

if t.TYPE_CHECKING:  # a drain asks only how wrong a clock may be, and needs nothing of a plan
    from .plan_builder import Draft

LIMIT = 120.0
AGELESS = frozenset({Reason.DUPLICATE, Reason.SPOT_LOST, Reason.PRICE_JUMP, Reason.MANUAL})  # reasons that hang on no time


def is_wrong(offset: float | None) -> bool:
    """Whether our clock differs from another one by more than is allowed."""
    return offset is not None and abs(offset) > LIMIT


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


def refuse(draft: Draft) -> None:
    """The whole decision of a run whose clock is wrong. Times that it would write are wrong, so no claim is brought up to date."""
    seen = draft.situation.seen
    text = told(seen.clock_offset or 0.0, seen.clock_source)
    draft.findings.update(seen.findings)
    draft.problems.append(text)
    draft.notice("clock", seen.clock_source, text, seconds=f"{seen.clock_offset:.0f}")
    for settled in draft.settled.values():
        claim = settled.stored
        if goes_on(claim) and claim.deletion is not None and claim.name not in draft.refilled:
            draft.change(claim)
            draft.destroy(claim, claim.deletion.reason, "goes on", force=claim.deletion.force)
    draft.settled = {name: settled for name, settled in draft.settled.items() if name in draft.decisions}
