# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of reasons to end a machine (L-26): a stronger one replaces a weaker one that is under way, never the other way round.

The judges of a run (planner/plan.py) are asked in this order, too, so the first reason that holds is the strongest.
"""

from __future__ import annotations

import dataclasses

from ..model import Claim, Deletion, Phase
from ..model.reasons import Reason

ORDER = tuple(Reason)


def rank(reason: str) -> int:
    """0 is the strongest. A reason that is not listed is the weakest: it gives way to every one that is known."""
    return ORDER.index(reason) if reason in ORDER else len(ORDER)


def stronger(reason: str, than: str) -> bool:
    """Whether ``reason`` replaces ``than``."""
    return rank(reason) < rank(than)


def decided(claim: Claim, new: Deletion, *, refilled: bool = False) -> Deletion:
    """The deletion of ``claim`` after ``new`` was decided. What is under way for the same reason, or a stronger one, keeps its times; and
    once the pods have left (phase Terminating) there is nothing more that a reason governs, unless others came (``refilled``). Force that
    a person asked for is never lost."""
    pending = claim.deletion
    if pending is None:
        return new
    force = pending.force or new.force
    if (claim.phase is Phase.TERMINATING and not refilled) or not stronger(new.reason, pending.reason):
        return pending if pending.force == force else dataclasses.replace(pending, force=force)
    return dataclasses.replace(new, force=force)
