# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that are Ready and have lost GPUs, all (L-20) or some (L-20a): a driver that died, a card that is gone, a plugin that ended."""

from __future__ import annotations

import dataclasses
from datetime import datetime

from ...model import Action, Claim, Node, Phase, Pool, Taint
from ...model.labels import GPU_LOST_TAINT
from ...model.reasons import ActionKind, Finding, Reason
from ...model.resources import MIG_PREFIX
from ...model.spec import UNHEALTHY_TIMEOUT
from ...units.values import print_time
from ..claim_sync import Settled
from ..cost.cost import with_loss
from ..disruption import voluntary
from ..plan_builder import Draft
from .registration import allocatable_gpus, awaited_gpus

GPU_LOST = Taint(GPU_LOST_TAINT, "", "NoSchedule")


def update_taints(draft: Draft) -> None:
    """Keep new pods off nodes that show fewer GPUs than were rented in two runs, and let them come again once all are back. A kubelet that
    restarts shows none for a moment, so the first sight is only noted. How long none at all is too long is said by :func:`since`."""
    for settled in list(draft.undecided()):
        node = settled.node
        if node is None or not _watched(draft, settled):
            continue
        shown, wanted = _shown(draft, settled, node), _wanted(draft, settled)
        tainted = any(taint.key == GPU_LOST.key for taint in node.taints)
        if shown >= wanted:
            _book(draft, settled, 0, wanted)
            if tainted:
                _mark(draft, settled, ActionKind.UNTAINT, Finding.GPU_BACK, "its GPUs are back", GPU_LOST.key)
            continue
        if (shown and _is_unclear(draft, settled, node)) or uses_mig(node, _pool(draft, settled)):
            draft.keep_sightings(_key(settled, shown))
            continue
        lost = f"its Node is Ready and {words(shown, wanted)}"
        draft.report(settled.claim.name, Finding.GPU_LOST, lost, pool=settled.claim.pool)
        if not draft.twice(_key(settled, shown)):
            continue
        _book(draft, settled, wanted - shown, wanted)
        if shown:
            draft.notice(
                "gpus_missing",
                settled.claim.name,
                f"{settled.claim.name}: {lost}; it is billed in full",
                gpus=str(shown),
                of=str(wanted),
            )
        if not tainted:
            _mark(draft, settled, ActionKind.TAINT, Finding.GPU_LOST, lost, str(GPU_LOST))


def words(shown: int, wanted: int) -> str:
    """How every playbook says it."""
    return f"shows {shown or 'none'} of its {wanted} GPUs"


def warn(draft: Draft) -> None:
    """Tell of nodes that show fewer GPUs, where a run does nothing about it."""
    for settled in draft.undecided():
        node = settled.node
        if node is None or not _watched(draft, settled) or uses_mig(node, _pool(draft, settled)):
            continue
        shown, wanted = _shown(draft, settled, node), _wanted(draft, settled)
        if shown < wanted:
            draft.warnings.append(
                f"{settled.claim.name}: its Node is Ready and {words(shown, wanted)}; it is billed in full, and reap.yml sees to it"
            )


def _book(draft: Draft, settled: Settled, missing: int, wanted: int) -> None:
    """Keep in the claim since when GPUs are missing that are paid for, and until when they were."""
    claim = settled.claim
    losses = with_loss(claim.gpu_losses, missing, wanted, draft.findings.get(_key(settled, wanted - missing), draft.now), draft.now)
    if losses != claim.gpu_losses:
        draft.change(dataclasses.replace(claim, gpu_losses=losses))


def since(draft: Draft, settled: Settled) -> datetime | None:
    """Since when a Ready node is seen without any GPU; None when it has one, or never was to have any."""
    return draft.sighted(_key(settled, 0)) if shows_none(draft, settled) else None


def shows_none(draft: Draft, settled: Settled) -> bool:
    """Whether a Ready node that had GPUs shows none at this moment."""
    node = settled.node
    if node is None or not _watched(draft, settled) or uses_mig(node, _pool(draft, settled)):
        return False
    return not _shown(draft, settled, node)


def shows_fewer(draft: Draft, settled: Settled) -> bool:
    """Whether a node in use shows fewer GPUs than it did when it joined."""
    node = settled.node
    if node is None or not _watched(draft, settled) or _is_unclear(draft, settled, node):
        return False
    return _shown(draft, settled, node) < _wanted(draft, settled)


def replace(draft: Draft) -> None:
    """Nodes that show some of their GPUs only, where the pool wants them replaced (``gpuLossPolicy``): within the budgets, and only when
    what runs on them may be moved. The pods that run have GPUs that work."""
    for pool in draft.situation.pools:
        if pool.gpu_loss_policy != "Replace":
            continue
        wanted: list[tuple[Claim, str]] = []
        timeout = UNHEALTHY_TIMEOUT if pool.unhealthy_timeout is None else pool.unhealthy_timeout
        for settled in draft.undecided():
            node = settled.node
            if settled.claim.pool != pool.key or node is None or not _watched(draft, settled):
                continue
            first = draft.findings.get(_key(settled, 1))
            if first is None or (draft.now - first).total_seconds() < timeout:
                continue
            shown = words(_shown(draft, settled, node), _wanted(draft, settled))
            cause = f"its Node {shown} since {print_time(first)}"
            why = voluntary.disruption_blocked(draft, pool, settled, Reason.REPLACED)
            if why:
                draft.report(settled.claim.name, Reason.REPLACED, f"{cause}; kept: {why}", pool=pool.key)
            else:
                wanted.append((settled.claim, cause))
        voluntary.remove(draft, pool, Reason.REPLACED, wanted)


def _wanted(draft: Draft, settled: Settled) -> int:
    """How many GPUs (or slices) the node was to show when it joined."""
    return awaited_gpus(settled.claim, _pool(draft, settled))


def _shown(draft: Draft, settled: Settled, node: Node) -> int:
    return allocatable_gpus(settled.claim, node, _pool(draft, settled))


def _pool(draft: Draft, settled: Settled) -> Pool | None:
    return draft.situation.in_force(settled.claim)


def _is_unclear(draft: Draft, settled: Settled, node: Node) -> bool:
    """Whether GPUs may be in use under another name: as MIG devices, or by resource claims. Then fewer say nothing."""
    pods = draft.situation.pods(node)
    return uses_mig(node, _pool(draft, settled)) or pods is None or any(pod.placement.claims for pod in pods)


def uses_mig(node: Node, pool: Pool | None) -> bool:
    """Whether GPUs of the node are offered as parts that its pool does not name."""
    return not (pool is not None and pool.mig) and any(
        name.startswith(MIG_PREFIX) and amount for name, amount in node.allocatable.items()
    )


def _watched(draft: Draft, settled: Settled) -> bool:
    """Nodes that were complete once, with GPUs. Where a pool does not wait for them, it is not known that there ever were any."""
    claim, pool = settled.claim, draft.situation.in_force(settled.claim)
    if claim.phase is not Phase.READY or claim.initialized is None or claim.is_service or not claim.expected_gpus:
        return False
    return settled.node_ready and not (pool is not None and pool.gpu_wait == "none")


def _key(settled: Settled, shown: int) -> str:
    return f"{Finding.GPUS_MISSING if shown else Finding.GPU_LOST}|{settled.claim.cloud}|{settled.claim.name}"


def _mark(draft: Draft, settled: Settled, kind: ActionKind, reason: Finding, why: str, value: str) -> None:
    if settled.node is not None:
        draft.others.append(
            Action(
                kind,
                settled.claim.name,
                reason,
                why,
                pool=settled.claim.pool,
                target=settled.node.name,
                uid=settled.node.uid,
                value=value,
            )
        )
