# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that come before the one they replace goes (B-12): which there are, and how long before its end one is launched.

The claim of a replacement names the machine in whose place it comes; nothing else is recorded.
"""

from __future__ import annotations

import typing as t
from datetime import datetime, timedelta

from ...model import Claim, Phase
from ..claim_sync import Settled
from ..claims.mesh import mesh_differs
from ..claims.record import LIVE
from ..claims.spec_hash import drifted
from ..cluster_state import Situation
from ..provisioning.registration import timeout
from . import expiration

LEAST_LEAD: t.Final = 300  # seconds before its end at which a machine is replaced at the latest
STAND_BY: t.Final = 3600  # seconds for which a usable replacement waits for the machine it replaces; then it is one like any other


def lead(claim: Claim, most: int) -> int | None:
    """How many seconds before its end the replacement of a machine is launched: twice what it took itself from its create call until it
    was usable, at least five minutes, at most ``most`` (its registration timeout). None = it was never usable."""
    if claim.launch_started is None or claim.initialized is None:
        return None
    took = int((claim.initialized - claim.launch_started).total_seconds())
    return min(max(2 * took, LEAST_LEAD), most)


def expires(claim: Claim, situation: Situation) -> datetime | None:
    """When the claim's machine expires by its age, once the time has come to launch its replacement; None before."""
    pool = situation.pool(claim)
    moment = None if pool is None else expiration.due(claim, pool)
    ahead = lead(claim, timeout(claim, pool, situation.capability(claim)))
    if moment is None or ahead is None or situation.now < moment - timedelta(seconds=ahead):
        return None
    return moment


def has_drifted(claim: Claim, situation: Situation) -> bool:
    """Whether the claim's machine was made from an older class or pool."""
    pool, node_class = situation.pool(claim), situation.node_class(claim)
    if claim.phase is not Phase.READY or pool is None or node_class is None or not situation.rented(claim.cloud):
        return False
    return drifted(claim, node_class, pool)


def changes_mesh(claim: Claim, situation: Situation) -> bool:
    """Whether the claim's rented machine is in another mesh than machines of its pool enter today."""
    pool = situation.pool(claim)
    node_class = None if pool is None else situation.specs.classes.get(pool.node_class)
    if claim.phase is not Phase.READY or node_class is None or not situation.rented(claim.cloud):
        return False
    return mesh_differs(claim, node_class)


def replacements(settled: t.Mapping[str, Settled]) -> dict[str, str]:
    """Each machine that another one was launched for, with the other one's name, whatever became of that. Only a newer claim replaces:
    own machines come again under their name."""
    found: dict[str, str] = {}
    for name, new in settled.items():
        old = settled.get(new.claim.replaces)
        if old is not None and old.claim.created < new.claim.created:
            found.setdefault(old.claim.name, name)
    return found


def standing_by(settled: t.Mapping[str, Settled], situation: Situation) -> dict[str, str]:
    """Each living replacement with the machine in whose place it comes, while that one is there and has to go. After an hour in which a
    usable one was not needed, or when its pool replaces no more ahead of time, it is a machine like any other."""
    found: dict[str, str] = {}
    for old, new in replacements(settled).items():
        claim = settled[new].claim
        since = claim.initialized
        waited = since is not None and (situation.now - since).total_seconds() >= STAND_BY
        if claim.phase in LIVE and not waited and _has_to_go(settled[old].claim, situation):
            found[new] = old
    return found


def _has_to_go(claim: Claim, situation: Situation) -> bool:
    if claim.deletion is not None or claim.phase not in LIVE:
        return True
    pool = situation.pool(claim)
    if pool is None or not pool.surge:
        return False
    if expires(claim, situation) is not None or (pool.drift_policy == "Replace" and has_drifted(claim, situation)):
        return True
    return changes_mesh(claim, situation)  # also in a run that migrates nothing: it ends no half of a pair that a migration left
