# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes go for being idle: timer, guards, floor and order together (L-3, L-18)."""

from __future__ import annotations

import collections
import dataclasses
import typing as t
from datetime import datetime, timedelta

from ...model import Action, Claim, Node, Phase, Pool
from ...model.labels import IDLE_SINCE_ANNOTATION
from ...model.reasons import ActionKind, Finding, Reason
from ...units.values import latest, print_duration
from ..claim_sync import Settled
from ..claims.record import BEFORE_READY
from ..cost import budgets, paid_hours
from ..garbage_collection import document_gone
from ..plan_builder import Draft, stronger
from ..provisioning import capacity_buffers, gpu_health, node_conditions, requested_capacity, service
from . import emptiness, voluntary
from .drain_rules import Do

SCALE_DOWN_DELAY_AFTER_ADD: t.Final = 600  # seconds after the last machine of a pool was opened to pods
Shape = tuple[str, int]


def remove_idle(draft: Draft) -> None:
    """Record idle times of all usable nodes, then choose per pool which of the idle ones go."""
    situation = draft.situation
    if situation.seen.pods is None and any(not settled.claim.is_service for settled in draft.settled.values()):
        draft.warnings.append("The pods could not be read: no node counts as idle in this run.")
    usable: dict[str, list[Settled]] = collections.defaultdict(list)
    for settled in draft.undecided():
        if settled.claim.phase is Phase.READY and _is_usable(draft, settled) and not document_gone.is_pending(settled.claim):
            usable[settled.claim.pool].append(settled)
    for key in sorted(usable):
        pool = next(filter(None, (situation.in_force(settled.claim) for settled in usable[key])), None)
        for settled in usable[key]:
            if situation.in_force(settled.claim) is None:
                _keep(draft, settled.claim, f"no document describes its pool {key} in this run, and its claim holds no limits")
        governed = [settled for settled in usable[key] if situation.in_force(settled.claim) is not None]
        if pool is not None:
            _pool(draft, pool, governed)


def _is_usable(draft: Draft, settled: Settled) -> bool:
    """A Ready Node; a service whose cloud lists it and that is not seen to be broken."""
    if settled.claim.is_service:
        return settled.recovery.instance is not None and service.health(settled.claim, draft.situation).well is not False
    return settled.node_ready


def _idle(draft: Draft, settled: Settled, pool: Pool) -> emptiness.Idle | None:
    if settled.claim.is_service:
        return emptiness.service_idle(settled.claim, service.probe_of(settled.claim, draft.situation), pool, draft.now)
    if settled.node is None:
        return None
    return emptiness.node_idle(
        settled.claim,
        settled.node,
        draft.situation.pods(settled.node),
        pool,
        draft.situation.settings,
        draft.now,
        draft.situation.seen.utilization.get(settled.node.name),
        draft.situation.seen.probes.get(settled.claim.name),
    )


def _pool(draft: Draft, pool: Pool, usable: list[Settled]) -> None:
    pool = budgets.hurried(draft, pool)
    if pool.replicas is not None:  # an exact number: what is above it ends as soon as it has no work
        pool = dataclasses.replace(pool, consolidate_after=0, min_age=0, consolidation_policy="WhenIdle")
    growing = growth(draft, pool)
    candidates: list[voluntary.Candidate] = []
    for settled in usable:
        idle = _idle(draft, settled, pool)
        if idle is None:
            continue
        draft.warnings.extend(idle.warnings)
        if idle.busy is False and pool.key not in draft.hurried and (old := draft.standing_by.get(settled.claim.name)):
            idle = _waits(idle, settled.node, old)
        claim = _note(draft, settled.claim, settled.node, idle)
        grows = growing(claim)
        against = idle.why if not idle.eligible else f"idle, but {grows}" if grows else ""
        begun = settled.stored.deletion
        goes_on = begun is not None and begun.reason == Reason.UNDERUTILIZED and pool.idle_signal == "utilization"
        moves = idle.occupied and pool.idle_signal == "utilization"
        reason: str = Reason.UNDERUTILIZED if moves or goes_on else Reason.EMPTY
        if begun is not None and stronger(begun.reason, reason) and not against:  # its own step comes after this one
            against = f"idle, but the drain for {begun.reason} goes on, or is taken back in this run"
        unknown = voluntary.cloud_unknown(settled)
        if unknown and not against:
            against = f"idle, but {unknown}"
        if idle.since is not None and not against and pool.key not in draft.hurried and pool.replicas is None:
            due = idle_end(claim, idle.since, pool)
            paid = paid_hours.against(settled.stored, due, draft.now, draft.situation.capability(claim))
            against = f"idle, but {paid}" if paid else ""
        if against or idle.since is None:
            _keep(draft, claim, against)
        elif reason == Reason.UNDERUTILIZED:
            draft.unused[claim.name] = idle.since
        else:
            degraded = gpu_health.shows_fewer(draft, settled) or node_conditions.shows_signs(draft, settled)
            candidates.append(voluntary.Candidate(claim, idle.since, degraded))
    room = voluntary.room(draft, pool, Reason.EMPTY) if candidates else voluntary.FREE
    bounds = [bound for bound in (room.nodes, draft.situation.settings.max_remove_per_run) if bound is not None]
    counted = sum(1 for settled in usable if not draft.is_extra(settled.claim.name))
    chosen = voluntary.choose(candidates, counted, pool.min_nodes, min(bounds, default=None))
    since = {candidate.claim.name: candidate.idle_since for candidate in candidates}
    for claim in chosen.go:
        idle_for = print_duration((draft.now - since[claim.name]).total_seconds())
        more = draft.hurried.get(pool.key) or (f"above replicas {pool.replicas}" if pool.replicas is not None else "")
        draft.destroy(claim, Reason.EMPTY, "; ".join(filter(None, (f"idle for {idle_for}", more))))
    for claim in chosen.kept:
        _keep(draft, claim, f"idle, kept for {draft.situation.floor_words(pool)}")
    held = room.nodes is not None and len(chosen.go) >= room.nodes
    for claim in chosen.later:
        why = f"idle, kept by disruption budget {room.why}" if held else "idle, goes in a later run (max_remove_per_run)"
        _keep(draft, claim, why, Reason.EMPTY)


def idle_end(claim: Claim, since: datetime, pool: Pool) -> datetime:
    """When a machine that is idle since then may be terminated for it."""
    young = (claim.initialized or since) + timedelta(seconds=pool.min_age)
    return max(since + timedelta(seconds=pool.consolidate_after or 0), young)


def remove_unused(draft: Draft) -> None:
    """Machines whose pods leave their GPUs unused, as remove_idle found them: they go as Underutilized, by the budgets and holds of that
    reason."""
    by_pool: dict[str, list[voluntary.Candidate]] = collections.defaultdict(list)
    for settled in draft.undecided():
        pool = draft.situation.in_force(settled.claim)
        since = draft.unused.get(settled.claim.name)
        if pool is None or since is None:
            continue
        if held := voluntary.disruption_blocked(draft, pool, settled, Reason.UNDERUTILIZED) or _needs_a_look(draft, settled):
            _keep(draft, settled.claim, f"its GPUs are unused; {held}", Reason.UNDERUTILIZED)
        else:
            by_pool[pool.key].append(voluntary.Candidate(settled.claim, since))
    for key, candidates in sorted(by_pool.items()):
        pool = t.cast(Pool, draft.situation.in_force(candidates[0].claim))
        live = sum(1 for settled in draft.settled.values() if settled.claim.pool == key and _stays(draft, settled))
        chosen = voluntary.choose(candidates, live, pool.min_nodes)
        for claim in chosen.kept:
            _keep(draft, claim, f"its GPUs are unused, kept for {draft.situation.floor_words(pool)}")
        lasts = {candidate.claim.name: (draft.now - candidate.idle_since).total_seconds() for candidate in candidates}
        wanted = [(claim, f"its GPUs are unused for {print_duration(lasts[claim.name])}") for claim in chosen.go]
        voluntary.remove(draft, pool, Reason.UNDERUTILIZED, wanted)


def _needs_a_look(draft: Draft, settled: Settled) -> str:
    """Pods whose next place only a look at other pods and nodes would tell, which nobody takes for a node whose GPUs are unused."""
    bound = [
        disposition.pod
        for disposition in voluntary.dispositions(draft, settled, Reason.UNDERUTILIZED)
        if disposition.do is Do.EVICT and disposition.pod.placement.unmovable
    ]
    texts = [f"{pod.namespace}/{pod.name} ({pod.placement.unmovable}: where else it could run is not known)" for pod in bound]
    return f"pods that must not be moved: {', '.join(texts)}" if texts else ""


def _stays(draft: Draft, settled: Settled) -> bool:
    name = settled.claim.name
    return (
        settled.claim.phase is Phase.READY
        and _is_usable(draft, settled)
        and name not in draft.decisions
        and not draft.is_extra(name)
    )


def _waits(idle: emptiness.Idle, node: Node | None, old: str) -> emptiness.Idle:
    """That of a machine that comes in the place of ``old`` and waits for its pods: its idle time begins when that one has gone."""
    noted = node is not None and IDLE_SINCE_ANNOTATION in node.annotations
    return dataclasses.replace(
        idle, busy=True, since=None, write=noted, eligible=False, why=f"idle, but it comes in the place of {old}"
    )


def _note(draft: Draft, claim: Claim, node: Node | None, idle: emptiness.Idle) -> Claim:
    """Remember since when the machine is idle: on the Node, which wins, and in the claim."""
    if idle.gpus is not None and idle.gpus.write and node is not None:
        found = Finding.GPUS_UNUSED if idle.gpus.low else Finding.GPUS_USED
        action = Action(ActionKind.ANNOTATE, claim.name, found, idle.gpus.why, pool=claim.pool)
        draft.others.append(dataclasses.replace(action, target=node.name, uid=node.uid, value=idle.gpus.value))
    if idle.write and node is not None:
        action = Action(ActionKind.ANNOTATE, claim.name, Finding.IDLE if idle.since else Finding.BUSY, idle.why, pool=claim.pool)
        draft.others.append(dataclasses.replace(action, target=node.name, uid=node.uid, value=idle.value))
    if idle.busy is not None and claim.idle_since != idle.since:
        claim = dataclasses.replace(claim, idle_since=idle.since)
        draft.change(claim)
    return claim


def _keep(draft: Draft, claim: Claim, why: str, reason: str = Finding.KEPT) -> None:
    """A voluntary deletion of an interrupted run is taken back when its reason is gone. ``reason``: that for which it would go, if any."""
    if claim.deletion is not None:
        draft.change(dataclasses.replace(claim, deletion=None))
    draft.report(claim.name, reason, why, pool=claim.pool)


def growth(draft: Draft, pool: Pool) -> t.Callable[[Claim], str]:
    """What keeps a node that can wait while its pool is growing: a function of the claim, empty = nothing."""
    if pool.key in draft.hurried:
        return lambda claim: ""
    claims = [settled.claim for settled in draft.settled.values() if settled.claim.pool == pool.key]
    joining = {_shape(claim): claim.name for claim in claims if claim.phase in BEFORE_READY and claim.deletion is None}
    joining |= {
        _shape(launch.claim): launch.name for launch in draft.launches if launch.claim is not None and launch.pool == pool.key
    }
    added = latest(claim.initialized for claim in claims if claim.phase is Phase.READY)
    grew = added is not None and (draft.now - added).total_seconds() < SCALE_DOWN_DELAY_AFTER_ADD
    failed = voluntary.after_failure(draft, pool)
    held = {**capacity_buffers.holds(draft), **requested_capacity.holds(draft.situation)}

    def against(claim: Claim) -> str:
        if claim.name in draft.counted_on:
            return f"pod {draft.counted_on[claim.name]} is to run there"
        if claim.name in held:
            return held[claim.name]
        if _shape(claim) in joining:
            return f"{joining[_shape(claim)]} of the same shape is still joining"
        if grew:
            return f"its pool grew less than {print_duration(SCALE_DOWN_DELAY_AFTER_ADD)} ago"
        return failed if claim.deletion is None else ""

    return against


def _shape(claim: Claim) -> Shape:
    return (claim.offer.model, claim.offer.gpu_count)
