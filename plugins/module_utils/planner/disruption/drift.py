# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that were made from older documents (reason Drifted): reported, or replaced one after the other where the pool says so. Where it
is possible, the replacement is usable before the old machine goes (B-12)."""

from __future__ import annotations

import collections
import dataclasses

from ...model import Phase, Pool
from ...model.reasons import Reason
from ..claim_sync import Settled
from ..claims.spec_hash import drifted, generation, is_known
from ..plan_builder import Draft
from ..provisioning import service
from ..provisioning.replacements import Refusal, Replacements
from . import voluntary
from .drain_rules import Do

WHAT = "made from an older class or pool"


def replace_drifted(draft: Draft, replacements: Replacements) -> None:
    """Find what has drifted. Only with ``driftPolicy: Replace`` it goes: movable work only, within budget, ``max_remove_per_run`` at a
    time (one, unless it is set), and not before its replacement is usable, if it needs one and can have one."""
    by_pool: dict[str, list[Settled]] = collections.defaultdict(list)
    for settled in list(draft.undecided()):
        claim, pool, node_class = settled.claim, draft.situation.pool(settled.claim), draft.situation.node_class(settled.claim)
        if claim.phase is not Phase.READY or pool is None or node_class is None or not draft.situation.rented(claim.cloud):
            continue
        if claim.generation and not is_known(
            claim
        ):  # of another version's recipe: taken for today's, so that later changes are seen
            draft.change(dataclasses.replace(claim, generation=generation(node_class, pool)))
        elif drifted(claim, node_class, pool):
            by_pool[pool.key].append(settled)
    pools = {key: draft.situation.pool_by_key[key] for key in sorted(by_pool)}
    replaced = [by_pool[key] for key, pool in pools.items() if pool.drift_policy == "Replace"]
    replacements.leave({settled.claim.name for candidates in replaced for settled in candidates})
    for key, pool in pools.items():
        _pool(draft, pool, by_pool[key], replacements)


def _pool(draft: Draft, pool: Pool, candidates: list[Settled], replacements: Replacements) -> None:
    if pool.drift_policy != "Replace":
        for settled in candidates:
            draft.report(
                settled.claim.name, Reason.DRIFTED, f"{WHAT}; it stays (disruption.driftPolicy: Replace lets it go)", pool=pool.key
            )
        return
    able: list[Settled] = []
    failed = voluntary.after_failure(draft, pool)
    for settled in candidates:
        why = _against(draft, pool, settled) or (failed if settled.claim.deletion is None else "")
        if why:
            draft.report(settled.claim.name, Reason.DRIFTED, f"{WHAT}; kept: {why}", pool=pool.key)
        else:
            able.append(settled)
    able.sort(
        key=lambda settled: (_moves(draft, settled), settled.claim.launch_started or settled.claim.created, settled.claim.name)
    )
    if replacements.applies_to(pool):
        _one_after_the_other(draft, pool, able, candidates, replacements)
    else:
        voluntary.remove(draft, pool, Reason.DRIFTED, [(settled.claim, WHAT) for settled in able])


def _one_after_the_other(
    draft: Draft, pool: Pool, able: list[Settled], candidates: list[Settled], replacements: Replacements
) -> None:
    """Let go what has a usable replacement, or needs none; launch replacements for the next ones. Those on their way, too, count against
    budget and bound."""
    new = {name: draft.replacements[name] for name in (settled.claim.name for settled in candidates) if name in draft.replacements}
    ready = [settled for settled in able if replacements.usable(new.get(settled.claim.name, ""))]
    rest = [settled for settled in able if settled.claim.name not in new]
    counted = {old for old in draft.standing_by.values() if old in new} - {settled.claim.name for settled in ready}
    waiting = len(counted)
    for settled in able:
        if settled.claim.name in new and settled not in ready:
            _report(draft, pool, settled, f"waits for its replacement {new[settled.claim.name]}")
    room = voluntary.room(draft, pool, Reason.DRIFTED) if able else voluntary.FREE
    slots = voluntary.at_most(room, voluntary.bound(draft, Reason.DRIFTED), len(able) + waiting) - waiting - len(ready)
    going = [(settled.claim, WHAT) for settled in ready]
    others = replacements.others(pool) - sum(replacements.loses(settled) for settled in ready)
    while rest and slots > 0:
        settled = rest.pop(0)
        pods = replacements.needs(settled, pool, Reason.DRIFTED, others - replacements.loses(settled))
        found = None if pods is None else replacements.launch(settled, pool, pods, f"was {WHAT}")
        if found is None:
            going.append((settled.claim, WHAT))
        elif isinstance(found, Refusal) and found.gone_first:
            going.append((settled.claim, f"{WHAT}; without a replacement first: {found.why}"))
        elif isinstance(found, Refusal):
            _report(draft, pool, settled, f"kept: no replacement can be launched: {found.why}")
            continue
        else:
            _report(draft, pool, settled, f"waits for its replacement {found.name}, which this run launches")
            waiting += 1
            slots -= 1
            continue
        others -= replacements.loses(settled)
        slots -= 1
    voluntary.remove(draft, pool, Reason.DRIFTED, [*going, *((settled.claim, WHAT) for settled in rest)], waiting)


def _report(draft: Draft, pool: Pool, settled: Settled, text: str) -> None:
    draft.report(settled.claim.name, Reason.DRIFTED, f"{WHAT}; {text}", pool=pool.key)


def _against(draft: Draft, pool: Pool, settled: Settled) -> str:
    if old := draft.standing_by.get(settled.claim.name):
        return f"it comes in the place of {old}"
    if settled.claim.is_service:
        probe = service.probe_of(settled.claim, draft.situation)
        idle = probe is not None and probe.idle is True
        return "" if idle else "a service goes only while its idleProbe says that it is idle"
    return voluntary.against(draft, pool, settled, Reason.DRIFTED)


def _moves(draft: Draft, settled: Settled) -> int:
    """How many pods have to move for it."""
    return sum(disposition.do is not Do.SKIP for disposition in voluntary.dispositions(draft, settled, Reason.DRIFTED))
