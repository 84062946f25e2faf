# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all ends have in common that can wait (Empty, Drifted, Underutilized): the pool's budget, and what speaks against moving pods."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime

from ...model import Action, Claim, Phase, Pool
from ...model.labels import DRAIN_STARTED_ANNOTATION
from ...model.reasons import ActionKind, Finding, Reason
from ...units.values import print_duration
from ..claim_sync import Settled
from ..garbage_collection import mass_deletion_guard
from ..plan_builder import Draft
from ..provisioning import service
from ..scheduling.node_affinity import avoided
from . import disruption_budgets
from .disruption_budgets import Count, Room
from .do_not_disrupt import node_hold
from .drain_rules import MOVES, Do, Mode, PodDisposition, backoff_after_block, classify, is_voluntary, rules_of
from .emptiness import cooldown

FREE = Room(None)
SCALE_DOWN_DELAY_AFTER_FAILURE: t.Final = 180  # seconds after a drain in the pool was given up
_WITH_NODE = (Phase.JOINING, Phase.READY, Phase.TERMINATING)


def room(draft: Draft, pool: Pool, reason: str) -> Room:
    """How many more nodes of the pool may go for ``reason``; a budget that cannot be read is a problem of the run."""
    remaining = disruption_budgets.room(pool, reason, count(draft, pool), draft.now)
    if remaining.problem:
        draft.problems.append(remaining.problem)
    return remaining


def count(draft: Draft, pool: Pool) -> Count:
    """The pool's nodes as a budget counts them. What this run has decided to terminate counts as going; a service is its own node; a
    replacement does not count beside the machine in whose place it comes."""
    total = deleting = not_ready = 0
    for name, settled in draft.settled.items():
        claim = settled.claim
        node = settled.node or settled.stale_node
        if (
            claim.pool != pool.key
            or claim.phase not in _WITH_NODE
            or (node is None and not claim.is_service)
            or draft.is_extra(name)
        ):
            continue
        total += 1
        decided = draft.decisions.get(name)
        if claim.phase is Phase.TERMINATING or (decided is not None and decided.kind == ActionKind.DESTROY):
            deleting += 1
        elif service.health(claim, draft.situation).well is not True if node is None else node.ready is not True:
            not_ready += 1
    return Count(total, deleting, not_ready)


def dispositions(draft: Draft, settled: Settled, reason: str) -> list[PodDisposition]:
    """What a drain for ``reason`` would do with each pod of the node; empty also when pods could not be read."""
    pods = draft.situation.pods(settled.node) if settled.node is not None else None
    here = [pod for pod in pods or () if settled.node is not None and pod.node == settled.node.name]
    classified = classify(here, Mode.VOLUNTARY, draft.now, rules_of(reason))
    keepers = draft.situation.avoiding if reason in MOVES else ()
    return [
        _avoided(disposition)
        if disposition.do is Do.EVICT and avoided(disposition.pod, keepers, placed=reason == Reason.UNDERUTILIZED)
        else disposition
        for disposition in classified
    ]


def _avoided(disposition: PodDisposition) -> PodDisposition:
    why = "required pod anti-affinity of another pod: where else it could run is not known"
    return dataclasses.replace(disposition, do=Do.BLOCK, why=why)


def disruption_blocked(draft: Draft, pool: Pool, settled: Settled, reason: str) -> str:
    """What keeps a node in use from going for ``reason``, one that can wait: what the event DisruptionBlocked says. Empty = nothing. Pods
    that must not move are found before the first of them is evicted."""
    claim, node, now = settled.claim, settled.node, draft.now
    pods = draft.situation.pods(node) if node is not None else None
    if node is None or not node.ready:
        return "its Node is not Ready"
    if pods is None:
        return "pods unknown"
    if unknown := cloud_unknown(settled):
        return unknown
    hold = node_hold(node, now)
    draft.warnings.extend(hold.warnings)
    if hold.why:
        return f"held by {hold.why}"
    if wait := cooldown(claim, pool, now):
        return wait
    if any(pod.is_nominated_to(node.name) for pod in pods):
        return "a pod is about to be scheduled here"
    blocked = [
        f"{disposition.pod.namespace}/{disposition.pod.name} ({disposition.why})"
        for disposition in dispositions(draft, settled, reason)
        if disposition.do is Do.BLOCK
    ]
    return f"pods that must not be moved: {', '.join(blocked)}" if blocked else ""


def cloud_unknown(settled: Settled) -> str:
    """Why nothing that can wait is asked of the machine's cloud: a node that is drained while its machine cannot be deleted is billed
    for no work. Empty = the cloud lists its machines."""
    return settled.recovery.why if settled.recovery.what == "unknown" else ""


def after_failure(draft: Draft, pool: Pool) -> str:
    """What keeps every node of the pool that can wait and that nobody has begun to empty: a drain of one of them was given up less
    than three minutes ago (L-18). Empty = nothing. When that was follows from how long the node is unchanged since."""
    for name, settled in draft.settled.items():
        claim = settled.claim
        if claim.pool != pool.key or claim.blocked_until is None or claim.blocked_times < 1:
            continue
        pause, _times = backoff_after_block(claim.blocked_times - 1)
        if 0 <= (draft.now - (claim.blocked_until - pause)).total_seconds() < SCALE_DOWN_DELAY_AFTER_FAILURE:
            return f"the drain of {name} in its pool was given up less than {print_duration(SCALE_DOWN_DELAY_AFTER_FAILURE)} ago"
    return ""


def bound(draft: Draft, reason: str) -> int | None:
    """How many nodes of one pool a run terminates for ``reason``: max_remove_per_run; without it one, and any number of idle ones."""
    most = draft.situation.settings.max_remove_per_run
    return most if most is not None or reason == Reason.EMPTY else 1


def remove(draft: Draft, pool: Pool, reason: str, wanted: t.Sequence[tuple[Claim, str]], waiting: int = 0) -> None:
    """Terminate the first of ``wanted`` (claim and detail, in their order) that budget and bound allow; the others are reported.
    ``waiting``: so many others wait for their replacement, and count against both."""
    allowed, most = room(draft, pool, reason) if wanted else FREE, bound(draft, reason)
    going = wanted[: max(0, at_most(allowed, most, len(wanted) + waiting) - waiting)]
    total = count(draft, pool).total
    if mass_deletion_guard.holds(draft, f"nodes of {pool.key} ({reason})", len(going), total):
        going = ()
    for claim, detail in going:
        go(draft, claim, reason, detail)
    by_budget = allowed.nodes is not None and (most is None or allowed.nodes <= most)
    why = f"kept by disruption budget {allowed.why}" if by_budget else "goes in a later run (max_remove_per_run)"
    for claim, detail in wanted[len(going) :]:
        draft.report(claim.name, reason, f"{detail}; {why}", pool=pool.key)


def at_most(allowed: Room, most: int | None, otherwise: int) -> int:
    """How many nodes go, by budget and bound; ``otherwise`` when neither says anything."""
    return min([number for number in (allowed.nodes, most) if number is not None], default=otherwise)


def go(draft: Draft, claim: Claim, reason: str, detail: str) -> None:
    """The claim goes. A decision of an interrupted run keeps its times."""
    before = draft.settled[claim.name].stored.deletion
    if before is not None and before.reason == reason:
        claim = dataclasses.replace(claim, deletion=before)
    draft.destroy(claim, reason, detail)


def restore(draft: Draft) -> None:
    """Open nodes again that an interrupted run had begun to empty for a reason that does not hold any more."""
    for name, settled in draft.settled.items():
        before, node = settled.stored.deletion, settled.node
        taken_back = (
            before is not None
            and (is_voluntary(before.reason) or before.reason == Reason.DOCUMENT_GONE)
            and settled.claim.deletion is None
            and name not in draft.decisions
        )
        if taken_back and node is not None and DRAIN_STARTED_ANNOTATION in node.annotations:
            text = "an interrupted run had begun to empty it"
            draft.others.append(
                Action(ActionKind.RESTORE, name, Finding.KEPT, text, pool=settled.claim.pool, target=node.name, uid=node.uid)
            )


# ---- which idle nodes go, and in which order (L-18)


@dataclasses.dataclass(frozen=True, slots=True)
class Candidate:
    """A node that may go for being idle since ``idle_since``. ``degraded``: it shows fewer GPUs than were rented (L-20a), or a sign of ill
    health (L-37)."""

    claim: Claim
    idle_since: datetime
    degraded: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Removal:
    """``go`` in this order; ``kept`` for the floor (minNodes), ``later`` because a run removes no more than it may."""

    go: tuple[Claim, ...]
    kept: tuple[Claim, ...] = ()
    later: tuple[Claim, ...] = ()


def choose(candidates: t.Iterable[Candidate], live: int, min_nodes: int, max_remove: int | None = None) -> Removal:
    """Choose among the idle nodes of one pool. ``live``: usable nodes of the pool, the candidates included.

    Busy nodes fill the floor first; of the idle ones those that are not degraded are kept, then the cheapest, then the youngest. The
    degraded go first, then the dearest, then those with most GPUs, the longest idle, by name.
    """
    ranked = sorted(
        candidates,
        key=lambda candidate: (
            candidate.degraded,
            candidate.claim.price,
            -candidate.claim.launched.timestamp(),
            candidate.claim.name,
        ),
    )
    keep = min(len(ranked), max(0, min_nodes - (live - len(ranked))))
    order = sorted(
        ranked[keep:],
        key=lambda candidate: (
            not candidate.degraded,
            -candidate.claim.price,
            -candidate.claim.offer.gpu_count,
            candidate.idle_since,
            candidate.claim.name,
        ),
    )
    count = len(order) if max_remove is None else max_remove
    return Removal(
        tuple(candidate.claim for candidate in order[:count]),
        tuple(candidate.claim for candidate in ranked[:keep]),
        tuple(candidate.claim for candidate in order[count:]),
    )
