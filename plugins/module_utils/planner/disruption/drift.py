# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that were made from older documents (reason Drifted): reported, or replaced one after the other where the pool says so."""

from __future__ import annotations

import collections
import dataclasses

from ...model import Phase, Pool
from ...model.reasons import Reason
from ..claim_sync import Settled
from ..claims.spec_hash import drifted, generation, is_known
from ..plan_builder import Draft
from ..provisioning import service
from . import voluntary
from .drain_rules import Do

WHAT = "made from an older class or pool"


def replace_drifted(draft: Draft) -> None:
    """Find what has drifted. Only with ``driftPolicy: Replace`` it goes: movable work only, within budget, ``max_remove_per_run`` at a
    time (one, unless it is set). What is launched instead is up to the next launch."""
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
    for key in sorted(by_pool):
        _pool(draft, draft.situation.pool_by_key[key], by_pool[key])


def _pool(draft: Draft, pool: Pool, candidates: list[Settled]) -> None:
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
    voluntary.remove(draft, pool, Reason.DRIFTED, [(settled.claim, WHAT) for settled in able])


def _against(draft: Draft, pool: Pool, settled: Settled) -> str:
    if settled.claim.is_service:
        probe = service.probe_of(settled.claim, draft.situation)
        idle = probe is not None and probe.idle is True
        return "" if idle else "a service goes only while its idleProbe says that it is idle"
    return voluntary.against(draft, pool, settled, Reason.DRIFTED)


def _moves(draft: Draft, settled: Settled) -> int:
    """How many pods have to move for it."""
    return sum(disposition.do is not Do.SKIP for disposition in voluntary.dispositions(draft, settled, Reason.DRIFTED))
