# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that are Ready and have lost their GPUs (L-20): a driver that died, a card that fell off the bus, a plugin that does not come back."""

from __future__ import annotations

from datetime import datetime

from .draft import Draft
from .facts import Settled
from .model import Action, Phase, Taint
from .registration import allocatable_gpus
from .service import is_service

GPU_LOST = Taint("tgp.io/gpu-lost", "", "NoSchedule")


def judge(draft: Draft) -> None:
    """Keep new pods off nodes that show no GPU in two runs, and let them come again once it is back. A kubelet that restarts shows none
    for a moment, so the first sight is only noted. How long is too long is said by :func:`since`."""
    for one in draft.undecided():
        node = one.node
        if node is None or not _watched(draft, one):
            continue
        tainted = any(taint.key == GPU_LOST.key for taint in node.taints)
        if allocatable_gpus(one.claim, node):
            if tainted:
                _mark(draft, one, "untaint", "GpuBack", "its GPUs are back", GPU_LOST.key)
            continue
        lost = f"its Node is Ready and shows none of its {one.claim.expected_gpus} GPUs"
        draft.report(one.claim.name, "GpuLost", lost, pool=one.claim.pool)
        if draft.twice(_key(one)) and not tainted:
            _mark(draft, one, "taint", "GpuLost", lost, str(GPU_LOST))


def since(draft: Draft, one: Settled) -> datetime | None:
    """Since when a Ready node is seen without any GPU; None when it has one, or never was to have any."""
    if one.node is None or not _watched(draft, one) or allocatable_gpus(one.claim, one.node):
        return None
    return draft.sighted(_key(one))


def _watched(draft: Draft, one: Settled) -> bool:
    """Nodes that were complete once, with GPUs. Where a pool does not wait for them, nobody knows that there ever were any."""
    claim, pool = one.claim, draft.situation.pool(one.claim)
    if claim.phase is not Phase.READY or claim.initialized is None or is_service(claim) or not claim.expected_gpus:
        return False
    return one.node is not None and bool(one.node.ready) and not (pool is not None and pool.gpu_wait == "none")


def _key(one: Settled) -> str:
    return f"GpuLost|{one.claim.cloud}|{one.claim.name}"


def _mark(draft: Draft, one: Settled, kind: str, reason: str, why: str, value: str) -> None:
    if one.node is not None:
        draft.others.append(
            Action(kind, one.claim.name, reason, why, pool=one.claim.pool, target=one.node.name, uid=one.node.uid, value=value)
        )
