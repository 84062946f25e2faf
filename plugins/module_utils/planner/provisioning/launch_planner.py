# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to launch: interrupted launches first, then what each pool is missing, under the limits (L-2, L-13, L-16, L-22 step 11)."""

from __future__ import annotations

import collections
import dataclasses
import typing as t

from ...model import Action, Attempt, Claim, NodeClass, Offer, Phase, Pool, Shortfall
from ...model.names import draw, free_index
from ...model.reasons import ActionKind, Finding, Reason
from .. import notices
from ..claim_sync import Settled
from ..claims.adoption import adopt
from ..claims.record import BEFORE_READY, LIVE
from ..claims.spec_hash import generation
from ..cluster_state import RETRY
from ..cost import budgets
from ..cost.teams import SharedMachine, launched_for, owner_of_pool, team_of_pool
from ..disruption.schedule import hours
from ..garbage_collection.orphans import Orphan
from ..offers import launch_backoff as blocklist
from ..offers.ranking import lane_of, lanes_refused, offer_key
from ..plan_builder import Draft
from ..scheduling import completed_requests, device_plugins
from ..scheduling.binpacking import fit, gpus
from ..scheduling.capacity import of_offer, planned_gpus
from . import acceptance, gpu_health, pre_pull, service
from .registration import overdue
from .reservations import TOO_SMALL, LaunchCapacity, Teams

MAX_LAUNCH_PER_RUN: t.Final = 5  # machines of one pool that a run rents without being asked for a number (L-17)
COULD_NOT_JOIN = "a machine could not join"


def launch(draft: Draft, orphans: t.Sequence[Orphan], run_id: str) -> LaunchCapacity:
    """Resume interrupted launches and plan the missing ones, pools by weight and name. Returns the capacity with all of it reserved."""
    situation = draft.situation
    if situation.nodes is None:
        draft.problems.append("The cluster's Nodes could not be read: nothing is launched.")
    capacity = LaunchCapacity(draft, orphans)
    budgets.tell(draft, capacity.purses)
    _drop_surplus(draft)
    live = _resume(draft, capacity)
    live.update(adopt(orphan.instance, orphan.node, situation).pool for orphan in orphans if orphan.case == "O2")
    live.update(pool.key for damaged in situation.damaged.values() if (pool := notices.pool(damaged, situation)) is not None)
    for pool in situation.pools:
        if situation.paused(pool.key, pool.node_class):
            _withhold(draft, pool)
            continue
        wanted, by_number = wants(draft, pool)
        missing = wanted - live[pool.key]
        if missing < 0 and pool.key in situation.specs.nodes and situation.settings.mode == "provision":
            draft.warnings.append(f"{pool.key} has {live[pool.key]} machines, wanted are {wanted}; provision never removes any.")
        if missing > 0:
            now = missing if by_number else min(missing, MAX_LAUNCH_PER_RUN)
            _launch_pool(draft, capacity, pool, now, missing - now, run_id)
        if situation.settings.mode == "provision":
            _tell_unusable(draft, pool, min(wanted, live[pool.key]))
    return capacity


def _withhold(draft: Draft, pool: Pool) -> None:
    """Note how many machines a paused pool lacks. They are no shortfall: only who asked for them by the pool's name is to know."""
    wanted, _by_number = wants(draft, pool)
    usable = sum(
        1
        for settled in draft.undecided()
        if settled.claim.pool == pool.key and settled.claim.deletion is None and not unusable(draft, settled)
    )
    if wanted > usable:
        draft.withheld[pool.key] = wanted - usable


def _tell_unusable(draft: Draft, pool: Pool, counted: int) -> None:
    """Machines that count as wanted ones and that no step of this run makes usable: provision must not end as if they were (L-30)."""
    claims = [
        settled
        for settled in draft.undecided()
        if settled.claim.pool == pool.key and settled.claim.phase in LIVE and not draft.is_extra(settled.claim.name)
    ]
    going_on = sum(
        1
        for decision in draft.decisions.values()
        if decision.kind == ActionKind.RESUME and decision.pool == pool.key and not draft.is_extra(decision.name)
    )
    adopted = sum(1 for other in draft.others if other.reason == Finding.ADOPTED and other.pool == pool.key)
    reasons = [why for settled in claims if settled.recovery.what not in RETRY and (why := unusable(draft, settled))]
    lacking = counted - going_on - adopted - (len(claims) - len(reasons))
    if reasons and lacking > 0:
        draft.shortfall.append(Shortfall(pool.key, min(lacking, len(reasons)), "; ".join(reasons)))


def unusable(draft: Draft, settled: Settled) -> str:
    """Why the machine of a claim that nothing is decided about is of no use now; empty when it is of use."""
    claim = settled.claim
    if claim.phase is not Phase.READY or settled.recovery.what == "missing":
        return f"{claim.name}: {settled.recovery.why}"
    if claim.is_service:
        return "" if service.health(claim, draft.situation).well is not False else f"{claim.name} does not answer"
    if settled.node_ready:
        return f"{claim.name}: its Node shows no GPUs" if gpu_health.shows_none(draft, settled) else ""
    return f"{claim.name}: its Node is {'missing' if settled.node is None else 'not Ready'}"


def wants(draft: Draft, pool: Pool) -> tuple[int, bool]:
    """How many machines a pool wants, and whether a person asked for that number. Who names pools wants nothing of the others."""
    situation = draft.situation
    if completed_requests.is_served(draft, pool):
        return 0, False
    asked = situation.specs.nodes.get(pool.key)
    if asked is None and situation.specs.nodes:
        return 0, False
    if pool.request:
        return 1, True
    if pool.replicas is not None:
        return pool.replicas, True
    if asked is not None and asked >= pool.min_nodes:
        return asked, True
    return pool.min_nodes, False


def _drop_surplus(draft: Draft) -> None:
    """Launches of earlier runs that certainly made nothing are made anew only as far as the pool wants machines: none above ``replicas``,
    and in mode everything none that no document and no number of this run asks for (L-29). A replacement is made anew as long as the
    machine in whose place it comes has to go."""
    situation = draft.situation
    again: dict[str, list[Claim]] = {}
    living: collections.Counter[str] = collections.Counter()
    for settled in draft.undecided():
        name = settled.claim.name
        if name not in draft.standing_by and is_made_anew(settled):
            again.setdefault(settled.claim.pool, []).append(settled.claim)
        elif settled.claim.phase in LIVE and not draft.is_extra(name):
            living[settled.claim.pool] += 1
    for pool in situation.pools:
        if pool.replicas is None and situation.settings.mode != "everything":
            continue
        wanted, _by_number = wants(draft, pool)
        for claim in again.get(pool.key, [])[max(0, wanted - living[pool.key]) :]:
            draft.destroy(claim, Reason.LAUNCH_FAILED, f"nothing was rented, and {pool.key} wants {wanted} machines")


def is_made_anew(settled: Settled) -> bool:
    """Whether the claim is a launch that certainly made nothing, and that nobody has given up."""
    return settled.claim.phase in BEFORE_READY and settled.claim.deletion is None and settled.recovery.what in RETRY


def _resume(draft: Draft, capacity: LaunchCapacity) -> collections.Counter[str]:
    """Decide about every claim that is not usable yet; returns how many machines each pool has or is getting. A replacement does not count
    beside the machine in whose place it comes."""
    live: collections.Counter[str] = collections.Counter()
    situation = draft.situation
    for settled in list(draft.undecided()):
        claim, pool = settled.claim, situation.pool(settled.claim)
        if claim.phase not in LIVE or claim.deletion is not None:
            continue
        counted = 0 if draft.is_extra(claim.name) else 1
        if claim.phase is Phase.READY:
            live[claim.pool] += counted
            continue
        if why := situation.paused(claim.pool, claim.node_class):
            live[claim.pool] += counted
            draft.report(claim.name, Finding.PAUSED, f"is not usable yet, and its launch is not continued: {why}", pool=claim.pool)
            continue
        late = overdue(claim, pool, situation.capability(claim), draft.now, settled.node) and not service.answers(claim, situation)
        if late and settled.recovery.what not in RETRY:
            draft.report(claim.name, Reason.FAILED_JOIN, "was not usable in time; reap.yml terminates it", pool=claim.pool)
            continue
        live[claim.pool] += counted
        node_class = situation.node_class(claim)
        if pool is None or node_class is None:
            why = situation.specs.paused.get(claim.pool, "no document describes its pool in this run")
            draft.warnings.append(f"{claim.name} of {claim.pool} is not usable yet, and its launch is not continued: {why}")
        elif settled.recovery.what in RETRY:
            _again(draft, capacity, settled, pool, node_class)
        elif settled.recovery.what in ("wait", "unknown"):
            draft.report(claim.name, Finding.WAITING, settled.recovery.why, pool=claim.pool)
        elif situation.settings.mode != "autoscale":  # it waits for no machine, so there is nothing to go on with
            draft.resume(claim, "Resumed", settled.recovery.why)
    return live


def _again(draft: Draft, capacity: LaunchCapacity, settled: Settled, pool: Pool, node_class: NodeClass) -> None:
    """A launch that certainly made nothing goes on with the best offer of now, never with one that was tried already."""
    claim = settled.claim
    tried = {attempt.offer for attempt in claim.attempts if attempt.result != "ok"}
    if settled.recovery.what == "next_offer":
        lost = offer_key(claim.offer)
        tried.add(lost)
        if not claim.attempts or claim.attempts[-1].offer != lost or claim.attempts[-1].result == "unknown":
            refusal = Attempt(draft.now, lost, "refused", "unknown", settled.recovery.why)
            claim = dataclasses.replace(claim, attempts=(*claim.attempts, refusal))
    reason = refuse_to_launch(draft, pool, node_class)
    own = not draft.situation.rented(claim.cloud)
    capacity.own_in_use.discard(claim.name)
    if own:
        tried = set()
    teams = _teams(draft, claim, pool)
    offer, rest, why = (
        (None, (), reason) if reason else capacity.take(pool, node_class, tried, _serving(draft, claim, pool, node_class), teams)
    )
    if why == TOO_SMALL:
        draft.destroy(claim, Reason.LAUNCH_FAILED, f"nothing was rented, and {why}; what its pods get is decided anew")
        return
    if offer is None or (own and offer.id != claim.name):
        draft.report(
            claim.name,
            Finding.WAITING,
            f"{settled.recovery.why}; no offer to go on with: {why or 'not available'}",
            pool=claim.pool,
        )
        draft.shortfall.append(Shortfall(pool.key, 1, why or "not available", capacity.counts(pool, node_class)))
        prevented(draft, pool)
        return
    lane = lane_of(offer, pool, draft.situation.capabilities[offer.cloud])
    changes: dict[str, t.Any] = {"offer": offer, "candidates": rest, "cloud": offer.cloud, "reserved_price": offer.price_hour}
    changes["price_bound"] = None  # of a plan that is over; this one decides anew
    changes["launched_for"] = _recorded(draft, pool, offer, teams)
    claim = dataclasses.replace(
        claim, **changes, lane=lane or claim.lane, expected_gpus=planned_gpus(offer, pool), launch_started=None, unknown_since=None
    )
    draft.resume(claim, "Resumed", settled.recovery.why, t.cast(t.Any, offer.price_hour) - settled.stored.price)


def _teams(draft: Draft, claim: Claim, pool: Pool) -> Teams:
    """For which teams a launch is made anew: those of the pods that it is for now, if it is for any."""
    situation = draft.situation
    pods = draft.meant_for.get(claim.name)
    if pods is None or not situation.settings.team_budgets:
        return claim.launched_for or None
    taken = tuple((pod, max(1, gpus(pod, situation.settings.gpu_resources))) for pod in pods)
    return launched_for(SharedMachine(pool, None, claim.expected_gpus, taken), situation.seen.namespaces, situation.settings)


def _recorded(draft: Draft, pool: Pool, offer: Offer, teams: Teams) -> tuple[tuple[str, int], ...]:
    """What the claim keeps of it."""
    settings = draft.situation.settings
    if not settings.team_budgets:
        return ()
    return ((team_of_pool(pool, settings), planned_gpus(offer, pool)),) if teams is None else teams


def _serving(draft: Draft, claim: Claim, pool: Pool, node_class: NodeClass) -> t.Callable[[Offer], bool] | None:
    """Which offers hold all the pods that the claim's machine was to be for; None when it is wanted whatever waits."""
    pods = draft.meant_for.get(claim.name)
    if pods is None:
        return None
    situation = draft.situation

    def serves(offer: Offer) -> bool:
        rented = situation.rented(offer.cloud)
        room = of_offer(offer, pool, node_class, situation.seen.cluster_id, rented)
        return not fit(pods, [room], situation.settings.gpu_resources, around=draft.around).left

    return serves


def _launch_pool(draft: Draft, capacity: LaunchCapacity, pool: Pool, count: int, later: int, run_id: str) -> None:
    node_class = draft.situation.specs.classes[pool.node_class]
    reason = refuse_to_launch(draft, pool, node_class)
    launched = 0
    while launched < count and not reason:
        offer, rest, reason = capacity.take(pool, node_class)
        if offer is not None:
            add(draft, pool, node_class, offer, rest, run_id)
            launched += 1
    if launched < count:
        prevented(draft, pool)
        draft.shortfall.append(Shortfall(pool.key, count - launched + later, reason, capacity.counts(pool, node_class)))
    elif later:
        draft.shortfall.append(Shortfall(pool.key, later, "max_launch_per_run", {}))


def add(
    draft: Draft,
    pool: Pool,
    node_class: NodeClass,
    offer: Offer,
    rest: tuple[Offer, ...],
    run_id: str,
    reason: str = "Wanted",
    detail: str = "",
    replaces: str = "",
    teams: Teams = None,
) -> Claim:
    """Plan the launch of an offer that is reserved; the claim as it will be written."""
    gpus = _advertised(draft, pool)
    if gpus.word == device_plugins.UNKNOWN:
        draft.warnings.append(f"{pool.key}: whether its nodes will show GPUs is unknown: {gpus.why}.")
    living = [settled.claim for settled in draft.settled.values() if settled.claim.phase in LIVE] + [
        action.claim for action in draft.launches if action.claim
    ]
    used = {claim.index for claim in living if claim.pool == pool.key}
    claim = _claim(draft, pool, node_class, offer, rest, free_index(used), f"{run_id}/{len(draft.launches)}")
    claim = dataclasses.replace(claim, replaces=replaces, launched_for=_recorded(draft, pool, offer, teams))
    detail = "; ".join(filter(None, (_describe(offer), detail, acceptance.described(pool, offer.model), pre_pull.described(pool))))
    draft.launches.append(
        Action(ActionKind.LAUNCH, claim.name, reason, detail, pool=pool.key, claim=claim, price_hour=claim.reserved_price)
    )
    return claim


def blocked(draft: Draft, pool: Pool) -> str:
    """Why the preflight found that a machine of the pool could not join; empty = it found nothing."""
    reasons = draft.situation.specs.blocked
    why = reasons.get(pool.key) or reasons.get(pool.node_class)
    if not why:
        gpus = _advertised(draft, pool)
        why = f"GPUNodePool {pool.key}: {gpus.why}" if gpus.word == device_plugins.NONE else ""
    return f"{COULD_NOT_JOIN}: {why}" if why else ""


def _advertised(draft: Draft, pool: Pool) -> device_plugins.Answer:
    situation = draft.situation
    node_class = situation.specs.classes[pool.node_class]
    resources = situation.settings.gpu_resources
    return device_plugins.answer(
        pool, node_class, situation.seen.device_plugins, situation.nodes, resources, situation.seen.dynamic
    )


def prevented(draft: Draft, pool: Pool) -> None:
    """A launch that is wanted does not come, because a machine could not join: that is a problem of the run. In other modes the shortfall
    is one already."""
    why = blocked(draft, pool)
    if why and draft.situation.settings.mode == "autoscale":
        draft.problems.append(f"{pool.key}: nothing is launched, because {why}")


def refuse_to_launch(draft: Draft, pool: Pool, node_class: NodeClass) -> str:
    """What forbids any launch in the pool, whatever is on offer."""
    situation = draft.situation
    if why := situation.paused(pool.key, pool.node_class):
        return why
    if pool.key in situation.specs.paused:
        return situation.specs.paused[pool.key]
    if why := blocked(draft, pool):
        return why
    refused = lanes_refused(pool, node_class, situation.capabilities)
    if refused:
        return refused
    closed = hours(pool, situation.now).closed
    if closed:
        return closed
    if situation.nodes is None:
        return "nodes unknown"
    if unknown := notices.pauses(node_class, situation):
        return unknown
    if "blocklist" in situation.seen.state_problems:
        return "the block list cannot be read"
    if node_class.mesh.backend == "tailscale" and situation.devices is None:
        draft.problems.append(f"The mesh could not be read: nothing is launched for {pool.key}.")
        return "mesh unknown"
    until = situation.seen.blocks.get(blocklist.key_of_pool(pool.key))
    if until is not None and until > situation.now and not situation.settings.ignore_blocklist:
        return "paused after failed joins"
    return ""


def _claim(draft: Draft, pool: Pool, node_class: NodeClass, offer: Offer, rest: tuple[Offer, ...], index: int, seed: str) -> Claim:
    situation = draft.situation
    if situation.rented(offer.cloud):
        name = draw(situation.seen.cluster_id, pool.key, seed, situation.taken_names)
        node_name = name
    else:
        name, machine = offer.id, situation.machines.get(offer.id)
        node_name = (machine.node_name if machine else "") or name
    situation.taken_names.add(name)
    lane = lane_of(offer, pool, situation.capabilities[offer.cloud])
    if lane is None:
        raise ValueError(f"{offer_key(offer)} was selected without a lane")
    claim = Claim(
        name=name,
        pool=pool.key,
        node_class=node_class.name,
        cloud=offer.cloud,
        lane=lane,
        phase=Phase.PENDING,
        phase_since=situation.now,
        created=situation.now,
        offer=offer,
        reserved_price=t.cast(t.Any, offer.price_hour),
        candidates=rest,
        index=index,
        expected_gpus=planned_gpus(offer, pool),
        node_name=node_name,
        work_watched=True,
        owner=owner_of_pool(pool, situation.settings),
        mesh_backend=node_class.mesh.backend if node_class.mesh.backend != "none" else "",
        generation=generation(node_class, pool),
        history=((situation.now, Phase.PENDING.value, "wanted"),),
    )
    return situation.documented(claim)


def _describe(offer: Offer) -> str:
    where = f" in {offer.cloud_region or offer.region}" if offer.cloud_region or offer.region else ""
    return f"{offer.cloud} {offer.instance_type}{where}, {offer.gpu_count} × {offer.model or 'GPU'}{', spot' if offer.spot else ''}"
