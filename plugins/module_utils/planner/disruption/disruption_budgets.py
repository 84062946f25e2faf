# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disruption budgets (L-6): how many nodes of a pool may be on their way out at once for a reason that can wait."""

from __future__ import annotations

import dataclasses
import re
from datetime import datetime, timedelta

from ...core.errors import InvalidInput
from ...model import DisruptionBudget, Pool
from ...model.reasons import Reason
from ...units.calendar import active, parse_cron, zone

REASONS = (Reason.EMPTY, Reason.DRIFTED, Reason.UNDERUTILIZED)
DEFAULTS: dict[str, DisruptionBudget] = {
    reason: DisruptionBudget("10%", (reason,)) for reason in (*REASONS, Reason.REPLACED) if reason != Reason.EMPTY
}
_NODES = re.compile(r"([0-9]+)(%?)")


@dataclasses.dataclass(frozen=True, slots=True)
class Count:
    """The nodes of a pool: all, those that are going, and those that are not Ready and stay."""

    total: int = 0
    deleting: int = 0
    not_ready: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Room:
    """``nodes`` more may go now, None = no bound; ``why`` is the budget that says so, and ``problem`` what is wrong with one."""

    nodes: int | None
    why: str = ""
    problem: str = ""


def allowed(nodes: str, count: Count) -> int:
    """How many more nodes a budget lets go: its share of all (rounded up) or its number, less what is going or broken already. What
    cannot be read allows none."""
    match = _NODES.fullmatch(nodes.strip())
    if match is None:
        return 0
    number = int(match[1])
    if match[2]:
        number = -(-count.total * number // 100)
    return max(0, number - count.deleting - count.not_ready)


def valid(nodes: str) -> bool:
    """Whether a budget's ``nodes`` is a number of nodes, or a share of at most 100 %."""
    match = _NODES.fullmatch(nodes.strip())
    return match is not None and (not match[2] or int(match[1]) <= 100)


def in_force(budget: DisruptionBudget, reason: str, now: datetime) -> bool:
    """Whether the budget speaks about ``reason`` at this moment. Raises InvalidInput for a schedule that cannot be read."""
    if budget.reasons and reason not in budget.reasons:
        return False
    if not budget.schedule:
        return True
    return active(parse_cron(budget.schedule), zone(budget.time_zone), timedelta(seconds=budget.duration or 0), now)


def room(pool: Pool, reason: str, count: Count, now: datetime) -> Room:
    """How many nodes of ``pool`` may go for ``reason`` now: the least that any budget in force allows. Without one in force idle nodes
    go freely, and a tenth of the nodes, at least one, for the other reasons."""
    least = Room(None)
    for budget in pool.disruption_budgets:
        try:
            if not in_force(budget, reason, now):
                continue
        except InvalidInput as error:
            return Room(0, describe(budget), f"{pool.key}: a disruption budget cannot be read, so it lets no node go: {error}")
        if not valid(budget.nodes):
            text = f"{pool.key}: the disruption budget {budget.nodes!r} is neither a number nor a share, so it lets no node go."
            return Room(0, describe(budget), text)
        number = allowed(budget.nodes, count)
        if least.nodes is None or number < least.nodes:
            least = Room(number, describe(budget))
    if least.nodes is None and reason in DEFAULTS:
        usual = DEFAULTS[reason]
        return Room(allowed(usual.nodes, count), f"{usual.nodes}, the usual one")
    return least


def describe(budget: DisruptionBudget) -> str:
    """The budget in a few words."""
    return f"{budget.nodes}, schedule {budget.schedule}" if budget.schedule else budget.nodes
