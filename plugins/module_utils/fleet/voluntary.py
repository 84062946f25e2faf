# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all ends have in common that can wait (Empty, Drifted, Underutilized): the budget of the pool."""

from __future__ import annotations

from . import disruption_budgets, service
from .disruption_budgets import Count, Room
from .draft import Draft
from .model import Phase, Pool

FREE = Room(None)
_WITH_NODE = (Phase.JOINING, Phase.READY, Phase.TERMINATING)


def room(draft: Draft, pool: Pool, reason: str) -> Room:
    """How many more nodes of the pool may go for ``reason``; a budget that cannot be read is a problem of the run."""
    found = disruption_budgets.room(pool, reason, count(draft, pool), draft.now)
    if found.problem:
        draft.problems.append(found.problem)
    return found


def count(draft: Draft, pool: Pool) -> Count:
    """The pool's nodes as a budget counts them. What this run has decided to give back counts as going; a service is its own node."""
    total = deleting = not_ready = 0
    for name, one in draft.settled.items():
        claim = one.claim
        node = one.node or one.stale_node
        if claim.pool != pool.key or claim.phase not in _WITH_NODE or (node is None and not service.is_service(claim)):
            continue
        total += 1
        decided = draft.decisions.get(name)
        if claim.phase is Phase.TERMINATING or (decided is not None and decided.kind == "destroy"):
            deleting += 1
        elif service.health(claim, draft.situation).well is not True if node is None else node.ready is not True:
            not_ready += 1
    return Count(total, deleting, not_ready)
