# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is done when a budget runs low or is used up (L-16): people are told, idle machines go at once, or all go.

Books that cannot be read whole delete nothing.
"""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta

from ...model import Claim, Pool
from ...model.reasons import Finding, Reason
from ...units.durations import print_time
from ...units.money import print_money
from ..claim_sync import Settled
from ..claims import damaged
from ..claims.adoption import adopt
from ..claims.recovery import RETRY
from ..cluster_state import Situation
from ..disruption.do_not_disrupt import node_hold
from ..garbage_collection.orphans import Orphan, is_used
from ..plan_builder import Draft
from ..provisioning import service
from .budgets import Purse, Purses, open_purses


def purses_of(draft: Draft, orphans: t.Sequence[Orphan], without: t.Container[str] = ()) -> Purses:
    """The budgets of this run, with everything that is billed to us: claims (but those named in ``without``), second machines, machines
    without a claim."""
    situation = draft.situation
    claims = [_billed(settled, situation) for settled in draft.settled.values() if settled.claim.name not in without]
    return open_purses(
        situation.wishes,
        situation.settings.budget,
        situation.seen.ledger,
        (*claims, *_unclaimed(draft, orphans)),
        draft.now,
        situation.capabilities,
        {name for name, settled in draft.settled.items() if _is_unseen(settled)},
    )


def _is_unseen(settled: Settled) -> bool:
    """Whether nobody knows if the claim ever had a machine."""
    return (
        not settled.claim.ids_seen
        and settled.claim.initialized is None
        and settled.recovery.instance is None
        and settled.node is None
    )


def _billed(settled: Settled, situation: Situation) -> Claim:
    """The claim as it is billed. One that lives although its cloud does not list it (O5) costs on; one whose create call certainly made
    nothing costs nothing."""
    if settled.recovery.what in RETRY:
        return dataclasses.replace(settled.claim, launch_started=None)
    lives = (settled.node is not None and bool(settled.node.ready)) or service.lives(settled.claim, situation)
    return dataclasses.replace(settled.claim, gone_since=None) if lives and settled.claim.gone_since is not None else settled.claim


def _unclaimed(draft: Draft, orphans: t.Sequence[Orphan]) -> t.Iterator[Claim]:
    """Stand-ins for machines without a claim that can be read."""
    situation = draft.situation
    yield from damaged.stand_ins(situation)
    for orphan in orphans:
        if is_used(orphan, situation):
            for number, instance in enumerate((orphan.instance, *orphan.others)):
                claim = adopt(instance, orphan.node, situation)
                if number or claim.name not in draft.settled:
                    yield dataclasses.replace(claim, name=f"{claim.name}#{instance.id}")
    for settled in draft.settled.values():
        for extra in (*settled.recovery.duplicates, *situation.elsewhere(settled.claim)):
            price = extra.price_hour if extra.price_hour is not None else settled.claim.price
            started = extra.created or settled.claim.launch_started
            name = f"{settled.claim.name}#{extra.id}"
            yield dataclasses.replace(settled.claim, name=name, cloud=extra.cloud, price_paid=price, launch_started=started)


def tell(draft: Draft, purses: Purses) -> None:
    """Warn about budgets that run low or are used up, and tell people, once in each period."""
    for purse in purses.all:
        if not purse.whole:
            draft.warnings.append(
                f"The {purse.title} cannot be watched: {_unread(draft)} Nothing is launched on it, and nothing is given back for it."
            )
        if not (purse.soft or purse.used_up):
            continue
        kind = "budget_hard" if purse.used_up else "budget_soft"
        text = f"{purse.says}; {_what(purse)}" if purse.used_up else purse.says
        draft.warnings.append(text)
        subject = f"{purse.scope} {purse.name} {purse.period.key}"
        data = {"scope": purse.scope, "name": purse.name, "period": purse.period.key, "action": purse.budget.action}
        draft.notice(kind, subject, text, spent=str(purse.spent), amount=str(purse.budget.amount), **data)


def _what(purse: Purse) -> str:
    word = {"stop_launch": "nothing more is launched", "drain_idle": "idle machines go at once", "drain_all": "all its machines go"}
    if purse.whole and not purse.ends_machines and purse.budget.action != "stop_launch":
        return f"${print_money(purse.unseen)} of it may have been spent for machines that nobody has seen, so nothing is given back for it yet"
    return word[purse.budget.action] if purse.whole else "nothing is given back for it, because the books are not whole"


def _unread(draft: Draft) -> str:
    ledger = draft.situation.seen.ledger
    if ledger is None:
        return "the ledger could not be read."
    return f"{len(ledger.torn)} lines of the ledger cannot be understood ({'; '.join(ledger.torn[:3])}); repair or remove them."


def act(draft: Draft, purses: Purses) -> None:
    """The actions of budgets that are used up. Machines that cost nothing stay."""
    for purse in purses.all:
        if not purse.whole:
            draft.keep_sightings(f"{Reason.BUDGET}|{purse.scope}|{purse.name}|{purse.period.key}")
        if not purse.ends_machines:
            continue
        if purse.budget.action == "drain_idle":
            for pool in draft.situation.described:
                if purse.covers(pool.key, pool.node_class):
                    draft.hurried.setdefault(pool.key, f"the {purse.title} is used up")
        elif purse.budget.action == "drain_all":
            _drain_all(draft, purse)


def _drain_all(draft: Draft, purse: Purse) -> None:
    since = draft.sighted(f"{Reason.BUDGET}|{purse.scope}|{purse.name}|{purse.period.key}")
    for settled in list(draft.undecided()):
        claim = settled.claim
        if claim.price == 0 or not purse.covers(claim.pool, claim.node_class):
            continue
        pool = draft.situation.in_force(claim)
        last = since + timedelta(seconds=pool.termination_grace if pool is not None else 0)
        held = _held(draft, settled)
        if held and draft.now < last:
            draft.report(
                claim.name, Finding.HELD, f"{purse.title} used up, held by {held} until {print_time(last)}", pool=claim.pool
            )
        else:
            draft.destroy(claim, Reason.BUDGET, purse.says)


def _held(draft: Draft, settled: Settled) -> str:
    return node_hold(settled.node, draft.now).why if settled.node is not None else ""


def hurried(draft: Draft, pool: Pool) -> Pool:
    """The pool as idleness shall judge it: with its budget used up, what is idle goes at once, down to no machine at all."""
    if pool.key not in draft.hurried:
        return pool
    return dataclasses.replace(pool, consolidate_after=0, min_age=0, min_nodes=0, replicas=None, consolidation_policy="WhenIdle")
