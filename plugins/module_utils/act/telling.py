# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is told of a plan once it counts: every decision as an event, and notices for people who do not watch the run."""

from __future__ import annotations

from ..fleet.model import Plan
from ..task import Task


def tell_decisions(task: Task, plan: Plan) -> None:
    """One event for each action, with its reason and its price; for what will not come; and for what is in the way."""
    for one in plan.actions:
        task.tell(
            "decision",
            action=one.kind,
            name=one.name,
            pool=one.pool,
            reason=one.reason,
            text=one.detail,
            target=one.target,
            price_hour=one.price_hour if one.price_hour else None,
        )
    for missing in plan.shortfall:
        task.tell(
            "decision",
            action="shortfall",
            pool=missing.pool,
            missing=missing.missing,
            reason=missing.reason,
            rejected=missing.rejected,
        )
    for problem in plan.problems:
        task.tell("decision", action="refuse", reason="problem", text=problem)
