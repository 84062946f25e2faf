# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes go for being idle: timer, guards, floor and order together (L-3, L-18)."""

from __future__ import annotations

import collections
import dataclasses
import typing as t

from ...model import Action, Claim, Node, Phase, Pool
from ...model.reasons import ActionKind, Finding, Reason
from ...units.durations import latest, print_duration
from ..claim_sync import Settled
from ..claims.phases import BEFORE_READY
from ..cost import budget_enforcement
from ..garbage_collection import document_gone
from ..plan_builder import Draft, stronger
from ..provisioning import service
from . import emptiness, voluntary

SCALE_DOWN_DELAY_AFTER_ADD: t.Final = 600  # seconds after the last machine of a pool was opened to pods
Shape = tuple[str, int]


def remove_idle(draft: Draft) -> None:
    """Record idle times of all usable nodes, then choose per pool which of the idle ones go."""
    situation = draft.situation
    if situation.seen.pods is None and any(not one.claim.is_service for one in draft.settled.values()):
        draft.warnings.append("The pods could not be read: no node counts as idle in this run.")
    usable: dict[str, list[Settled]] = collections.defaultdict(list)
    for one in draft.undecided():
        if one.claim.phase is Phase.READY and _is_usable(draft, one) and not document_gone.is_pending(one.claim):
            usable[one.claim.pool].append(one)
    for key in sorted(usable):
        pool = next(filter(None, (situation.in_force(one.claim) for one in usable[key])), None)
        for one in usable[key]:
            if situation.in_force(one.claim) is None:
                _keep(draft, one.claim, f"no document describes its pool {key} in this run, and its claim holds no limits")
        known = [one for one in usable[key] if situation.in_force(one.claim) is not None]
        if pool is not None:
            _pool(draft, pool, known)


def _is_usable(draft: Draft, one: Settled) -> bool:
    """A Ready Node; a service whose cloud lists it and that is not seen to be broken."""
    if one.claim.is_service:
        return one.recovery.instance is not None and service.health(one.claim, draft.situation).well is not False
    return one.node is not None and bool(one.node.ready)


def _idle(draft: Draft, one: Settled, pool: Pool) -> emptiness.Idle | None:
    if one.claim.is_service:
        return emptiness.service_idle(one.claim, service.probe_of(one.claim, draft.situation), pool, draft.now)
    if one.node is None:
        return None
    return emptiness.node_idle(one.claim, one.node, draft.situation.pods(one.node), pool, draft.situation.settings, draft.now)


def _pool(draft: Draft, pool: Pool, usable: list[Settled]) -> None:
    pool = budget_enforcement.hurried(draft, pool)
    if pool.replicas is not None:  # an exact number: what is above it ends as soon as it has no work
        pool = dataclasses.replace(pool, consolidate_after=0, min_age=0, consolidation_policy="WhenIdle")
    growing = growth(draft, pool)
    candidates: list[voluntary.Candidate] = []
    for one in usable:
        found = _idle(draft, one, pool)
        if found is None:
            continue
        draft.warnings.extend(found.warnings)
        claim = _note(draft, one.claim, one.node, found)
        grows = growing(claim)
        against = found.why if not found.eligible else f"idle, but {grows}" if grows else ""
        begun = one.stored.deletion
        if begun is not None and stronger(begun.reason, Reason.EMPTY) and not against:  # its own step comes after this one
            against = f"idle, but the drain for {begun.reason} goes on, or is taken back in this run"
        unknown = voluntary.cloud_unknown(one)
        if unknown and not against:
            against = f"idle, but {unknown}"
        if against or found.since is None:
            _keep(draft, claim, against)
        else:
            candidates.append(voluntary.Candidate(claim, found.since))
    room = voluntary.room(draft, pool, Reason.EMPTY) if candidates else voluntary.FREE
    bounds = [bound for bound in (room.nodes, draft.situation.settings.max_remove_per_run) if bound is not None]
    chosen = voluntary.choose(candidates, len(usable), pool.min_nodes, min(bounds, default=None))
    since = {one.claim.name: one.idle_since for one in candidates}
    for claim in chosen.go:
        idle_for = print_duration((draft.now - since[claim.name]).total_seconds())
        more = draft.hurried.get(pool.key) or (f"above replicas {pool.replicas}" if pool.replicas is not None else "")
        draft.destroy(claim, Reason.EMPTY, "; ".join(filter(None, (f"idle for {idle_for}", more))))
    for claim in chosen.kept:
        _keep(draft, claim, f"idle, kept for {draft.situation.floor_words(pool)}")
    held = room.nodes is not None and len(chosen.go) >= room.nodes
    for claim in chosen.later:
        _keep(
            draft,
            claim,
            f"idle, kept by disruption budget {room.why}" if held else "idle, goes in a later run (max_remove_per_run)",
        )


def _note(draft: Draft, claim: Claim, node: Node | None, found: emptiness.Idle) -> Claim:
    """Remember since when the machine is idle: on the Node, which wins, and in the claim."""
    if found.write and node is not None:
        action = Action(ActionKind.ANNOTATE, claim.name, Finding.IDLE if found.since else Finding.BUSY, found.why, pool=claim.pool)
        draft.others.append(dataclasses.replace(action, target=node.name, uid=node.uid, value=found.value))
    if found.busy is not None and claim.idle_since != found.since:
        claim = dataclasses.replace(claim, idle_since=found.since)
        draft.change(claim)
    return claim


def _keep(draft: Draft, claim: Claim, why: str) -> None:
    """A voluntary deletion of an interrupted run is taken back when its reason is gone."""
    if claim.deletion is not None:
        draft.change(dataclasses.replace(claim, deletion=None))
    draft.report(claim.name, Finding.KEPT, why, pool=claim.pool)


def growth(draft: Draft, pool: Pool) -> t.Callable[[Claim], str]:
    """What keeps a node that can wait while its pool is growing: a function of the claim, empty = nothing."""
    if pool.key in draft.hurried:
        return lambda claim: ""
    claims = [one.claim for one in draft.settled.values() if one.claim.pool == pool.key]
    joining = {_shape(one): one.name for one in claims if one.phase in BEFORE_READY and one.deletion is None}
    joining |= {_shape(one.claim): one.name for one in draft.launches if one.claim is not None and one.pool == pool.key}
    added = latest(one.initialized for one in claims if one.phase is Phase.READY)
    grew = added is not None and (draft.now - added).total_seconds() < SCALE_DOWN_DELAY_AFTER_ADD
    failed = voluntary.after_failure(draft, pool)

    def against(claim: Claim) -> str:
        if claim.name in draft.counted_on:
            return f"pod {draft.counted_on[claim.name]} is to run there"
        if _shape(claim) in joining:
            return f"{joining[_shape(claim)]} of the same shape is still joining"
        if grew:
            return f"its pool grew less than {print_duration(SCALE_DOWN_DELAY_AFTER_ADD)} ago"
        return failed if claim.deletion is None else ""

    return against


def _shape(claim: Claim) -> Shape:
    return (claim.offer.model, claim.offer.gpu_count)
