# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Another machine for one that failed to join, in the same run: planned anew, by all the rules and limits of provision."""

from __future__ import annotations

import dataclasses
import typing as t

from ..core.errors import TgpError
from ..model import Claim
from ..model.reasons import ActionKind
from ..observe.context import Context
from ..operations.persist_plan import record
from ..planner.plan import plan
from ..providers.registry import CAPABILITIES
from .plan import Sight


def plan_replacements(context: Context, pools: t.Mapping[str, int], number: int) -> list[Claim]:
    """Recorded claims of the launches that these pools lack. ``pools``: the number of machines that each is to have, by its key. ``number``
    is that of the plan within the run: each draws names of its own, as a name that is in the ledger must not be used again. Empty, with a
    warning, when nothing can be planned: the machines that run are followed all the same.

    The observation and its connections are of its own. Nobody else reserves money meanwhile.
    """
    known = {pool.key for pool in context.specs.pools}
    wanted = {key: machines for key, machines in pools.items() if key in known and key not in context.specs.paused}
    if not wanted:
        return []
    settings = dataclasses.replace(context.settings, mode="provision")
    names = f"{context.run_id}/replacements/{number}"
    again = dataclasses.replace(context, settings=settings, specs=dataclasses.replace(context.specs, nodes=wanted))
    try:
        with context.records.money:
            sight = Sight(again)
            decided = sight.decide(
                lambda seen: plan(seen, again.specs, settings, CAPABILITIES, names), lambda planned: bool(planned.actions)
            )
            launches = tuple(
                action for action in decided.actions if action.kind == ActionKind.LAUNCH and action.pool in wanted and action.claim
            )
            lacking = [shortfall for shortfall in decided.shortfall if shortfall.pool in wanted]
            silent = dataclasses.replace(decided, notices=(), judged=frozenset())  # the run's own plan has sent its notices
            recorded = record(again, dataclasses.replace(silent, actions=launches, shortfall=tuple(lacking)))
    except TgpError as error:
        context.warn(f"No other machine was planned for those that failed: {error}")
        return []
    finally:
        again.close()
    for shortfall in lacking:
        context.task.progress(f"  {shortfall.pool}: {shortfall.missing} of the wanted machines will not come: {shortfall.reason}")
    return list(recorded.claims.values())
