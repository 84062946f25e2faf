# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mass guard (L-12): many deletions of one kind at once are more likely a wrong reading than a wrong world."""

from __future__ import annotations

import typing as t
from decimal import Decimal

from ...model.defaults import Settings
from ..plan_builder import Draft

MASS_FLOOR: t.Final = 3  # deletions of one kind that a run may do, however few things there are
MASS_FLOOR_ALIVE: t.Final = 1  # the same of things that show life
MASS_SHARE: t.Final = Decimal("0.5")  # of all things of one kind; above it the guard holds
MASS_GUARD = "mass_guard"  # the kind of the notices of a guard that held (L-12)


def most(total: int, *, alive: bool = False) -> int:
    """How many deletions of one kind one run may do, when ``total`` things of that kind exist; fewer of things that show life."""
    return max(MASS_FLOOR_ALIVE if alive else MASS_FLOOR, int(total * MASS_SHARE))


def allowed(planned: int, total: int, settings: Settings) -> bool:
    """Whether ``planned`` deletions of one kind are allowed."""
    return settings.allow_mass_delete or planned <= most(total)


def holds(draft: Draft, kind: str, planned: int, total: int) -> bool:
    """Whether the guard keeps ``planned`` deletions of one kind from happening; then it is a problem of the run, and a notice is sent."""
    if allowed(planned, total, draft.situation.settings):
        return False
    refuse(draft, kind, refusal(kind, planned, total))
    return True


def refuse(draft: Draft, kind: str, problem: str) -> None:
    """Say of a run that nothing of a kind was touched, and why."""
    draft.problems.append(problem)
    draft.notice(MASS_GUARD, kind, problem)


def refusal(kind: str, planned: int, total: int) -> str:
    """The problem that a run reports when the guard held it back."""
    return (
        f"guard_refused: {planned} of {total} {kind} would be removed at once, which looks like a wrong reading; none was touched. "
        "Check them, then run again with allow_mass_delete: true."
    )
