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
    found: dict[str, list[Settled]] = collections.defaultdict(list)
    for one in list(draft.undecided()):
        claim, pool, node_class = one.claim, draft.situation.pool(one.claim), draft.situation.node_class(one.claim)
        if claim.phase is not Phase.READY or pool is None or node_class is None or not draft.situation.rented(claim.cloud):
            continue
        if claim.generation and not is_known(
            claim
        ):  # of another version's recipe: taken for today's, so that later changes are seen
            draft.change(dataclasses.replace(claim, generation=generation(node_class, pool)))
        elif drifted(claim, node_class, pool):
            found[pool.key].append(one)
    for key in sorted(found):
        _pool(draft, draft.situation.pool_by_key[key], found[key])


def _pool(draft: Draft, pool: Pool, found: list[Settled]) -> None:
    if pool.drift_policy != "Replace":
        for one in found:
            draft.report(
                one.claim.name, Reason.DRIFTED, f"{WHAT}; it stays (disruption.driftPolicy: Replace lets it go)", pool=pool.key
            )
        return
    able: list[Settled] = []
    failed = voluntary.after_failure(draft, pool)
    for one in found:
        why = _against(draft, pool, one) or (failed if one.claim.deletion is None else "")
        if why:
            draft.report(one.claim.name, Reason.DRIFTED, f"{WHAT}; kept: {why}", pool=pool.key)
        else:
            able.append(one)
    able.sort(key=lambda one: (_moves(draft, one), one.claim.launch_started or one.claim.created, one.claim.name))
    voluntary.remove(draft, pool, Reason.DRIFTED, [(one.claim, WHAT) for one in able])


def _against(draft: Draft, pool: Pool, one: Settled) -> str:
    if one.claim.is_service:
        probe = service.probe_of(one.claim, draft.situation)
        idle = probe is not None and probe.idle is True
        return "" if idle else "a service goes only while its idleProbe says that it is idle"
    return voluntary.against(draft, pool, one, Reason.DRIFTED)


def _moves(draft: Draft, one: Settled) -> int:
    """How many pods have to move for it."""
    return sum(found.do is not Do.SKIP for found in voluntary.dispositions(draft, one, Reason.DRIFTED))
