# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines for pods that wait (L-17, L-22 step 11): first the free GPUs there are, then those on their way, then new machines."""

from __future__ import annotations

import collections
import dataclasses
import functools
import typing as t
from decimal import Decimal

from ...model import Claim, Lane, NodeClass, Offer, Phase, Pod, Pool, Tally, WaitingPod
from ...model.reasons import Reason
from ..claims.record import BEFORE_READY, LIVE
from ..garbage_collection.orphans import Orphan
from ..offers.ranking import lane_of, offer_key, per_gpu
from ..plan_builder import Draft
from ..provisioning import launch_planner, service
from ..provisioning.registration import drift, not_initialized
from ..provisioning.reservations import LaunchCapacity
from . import capacity, topology, unschedulable_pods
from .binpacking import Bin, Packing, Queue, Room, fit, gpus, spare
from .existing_nodes import Place, places
from .offer_selection import Shop, buy
from .pending_pods import Demand, demand


def scale_up(draft: Draft, orphans: t.Sequence[Orphan], run_id: str) -> LaunchCapacity:
    """Launch for minNodes, replicas, GPURequests and waiting pods, under one set of limits. A machine that a pod is counted on is noted in
    ``draft.counted_on``: it does not go for being idle. Returns the capacity with all of it reserved."""
    situation = draft.situation
    if situation.seen.pods is None:
        draft.warnings.append("The pods could not be read: no machine is rented for pods in this run.")
        unschedulable_pods.keep(draft)
        return launch_planner.launch(draft, orphans, run_id)
    resources = situation.settings.gpu_resources
    asked = demand(situation.seen.pods, situation.pools, situation.settings, draft.now, situation.extended)
    draft.warnings.extend(asked.warnings)
    bars = {uid: dict(pools) for uid, pools in asked.barred.items()}
    _add(bars, unschedulable_pods.remembered(draft, asked.pods))
    draft.around = topology.around(situation.nodes or (), situation.seen.pods, asked.pods)
    _drop_unwanted(draft, asked, bars)
    launch_capacity = launch_planner.launch(draft, orphans, run_id)
    packed, there = _place(draft, asked, bars)
    placed = dict(packed.placed)
    reasons: dict[str, tuple[str, str]] = {}
    if packed.left:
        bought = _Buyer(draft, launch_capacity, run_id).buy(Queue(packed.left, resources, bars, around=draft.around), packed.rooms)
        placed |= bought[0]
        reasons = bought[1]
    for key in sorted({pool for pool, _why in reasons.values() if pool}):
        launch_planner.prevented(draft, situation.pool_by_key[key])
    of_machine = {place.claim.name: place.claim.pool for place in there} | {launch.name: launch.pool for launch in draft.launches}
    for pod in asked.pods:
        pool, reason = reasons.get(pod.uid, ("", ""))
        where = placed.get(pod.uid, "")
        draft.waiting.append(WaitingPod(pod.namespace, pod.name, gpus(pod, resources), of_machine.get(where, pool), where, reason))
        _warn_of_slices(draft, pod, of_machine.get(where, "") if where else "")
    led = {pod.uid: waiting for pod, waiting in zip(asked.pods, draft.waiting, strict=True)}
    draft.waiting += [
        dataclasses.replace(led[pod.follows], namespace=pod.namespace, name=pod.name, gpus=0)
        for pod in asked.followers
        if pod.follows in led
    ]
    draft.waiting.extend(WaitingPod(pod.namespace, pod.name, gpus(pod, resources), reason=why) for pod, why in asked.unsupported)
    draft.tally = count(places(draft, unresumed=False), draft.waiting, situation.pools, resources)
    return launch_capacity


def _warn_of_slices(draft: Draft, pod: Pod, pool: str) -> None:
    """Several slices may be of one card: the pod gets no more of it than its neighbours leave, and nothing keeps them apart."""
    described = draft.situation.pool_by_key.get(pool)
    asked = gpus(pod, draft.situation.settings.gpu_resources)
    if described is not None and described.slices > 1 and asked > 1:
        text = f"gets {asked} slices of shared GPUs of {pool}, maybe of one card; slices are not isolated from each other."
        draft.warnings.append(f"Pod {pod.namespace}/{pod.name} {text}")


def to_join(draft: Draft) -> tuple[str, ...]:
    """Machines that the step of joining has something to do for at once: complete but for our marks, or with marks that are gone."""
    names = []
    situation = draft.situation
    for settled in draft.settled.values():
        claim, pool = settled.claim, situation.pool(settled.claim)
        if claim.deletion is not None or pool is None:
            continue
        if claim.phase is Phase.READY:
            left = bool(claim.token_id or claim.mesh_key_id)
            due = left or (settled.node is not None and bool(drift(claim, settled.node, pool, situation.seen.cluster_id)))
        elif claim.is_service:
            due = claim.phase in BEFORE_READY and bool(claim.instance_id) and service.answers(claim, situation)
        else:
            complete = settled.node is not None and not not_initialized(claim, settled.node, pool, marking=True)
            due = claim.phase in BEFORE_READY and bool(claim.instance_id) and complete
        if due:
            names.append(claim.name)
    return tuple(sorted(names))


def to_admit(draft: Draft) -> tuple[str, ...]:
    """Machines on their way that have no Node yet: they may be asking for their certificate."""
    return tuple(
        settled.claim.name
        for settled in draft.settled.values()
        if settled.claim.phase in BEFORE_READY
        and settled.claim.deletion is None
        and settled.claim.token_id
        and settled.claim.instance_id
        and settled.node is None
        and not settled.claim.is_service
    )


def _place(draft: Draft, asked: Demand, bars: unschedulable_pods.Bars) -> tuple[Packing, list[Place]]:
    """Pods onto machines that there are or will be. A pod that still waits although a Ready machine should hold it is looked at twice,
    then it is barred from that pool."""
    there = places(draft, unresumed=False)
    _add(bars, unschedulable_pods.too_small(draft, asked.pods, there))
    ready = {place.claim.name: place for place in there if place.node is not None}
    pods = {pod.uid: pod for pod in asked.pods}
    while True:
        packed = fit(asked.pods, [place.room for place in there], draft.situation.settings.gpu_resources, bars, draft.around)
        on_ready = [(pods[uid], ready[name]) for uid, name in packed.placed.items() if name in ready]
        marked = {
            pod.uid: {place.claim.pool: why}
            for pod, place in on_ready
            if not _needs_others(draft, pod, place) and (why := unschedulable_pods.mark(draft, pod, place.claim.pool))
        }
        if not marked:
            break
        _add(bars, marked)
    for pod, place in on_ready:
        draft.counted_on.setdefault(place.claim.name, f"{pod.namespace}/{pod.name}")
    return packed, there


def _needs_others(draft: Draft, pod: Pod, place: Place) -> bool:
    """Whether the pod can go there only once other pods, or machines, are where they shall be: that it still waits says nothing."""
    return draft.around is not None and bool(draft.around.against(pod, place.room.node))


def _drop_unwanted(draft: Draft, asked: Demand, bars: unschedulable_pods.Bars) -> None:
    """A launch of an earlier run that certainly made nothing is made anew only while there is still demand: a pod, minNodes, a request."""
    again: dict[str, list[Claim]] = {}
    living: collections.Counter[str] = collections.Counter()
    for settled in draft.undecided():
        name, pool = settled.claim.name, draft.situation.pool(settled.claim)
        if pool is not None and pool.replicas is not None:
            continue  # its number is exact, whatever waits
        if name not in draft.standing_by and launch_planner.is_made_anew(settled):
            again.setdefault(settled.claim.pool, []).append(settled.claim)
        elif settled.claim.phase in LIVE and not draft.is_extra(name):
            living[settled.claim.pool] += 1
    if not again:
        return
    there = [place.room for place in places(draft, unresumed=True)]
    placed = fit(asked.pods, there, draft.situation.settings.gpu_resources, bars, draft.around).placed
    needed: dict[str, list[Pod]] = {}
    for pod in asked.pods:
        needed.setdefault(placed.get(pod.uid, ""), []).append(pod)
    for key, claims in again.items():
        pool = draft.situation.pool_by_key.get(key)
        floor = 0 if pool is None else 1 if pool.request else pool.min_nodes
        for claim in claims[max(0, floor - living[key]) :]:
            if claim.name not in needed:
                draft.destroy(claim, Reason.LAUNCH_FAILED, "nobody waits for it any more, and nothing was rented")
            else:
                draft.meant_for[claim.name] = tuple(needed[claim.name])


def _exact(pool: Pool) -> str:
    """Why nothing is rented there for pods, whatever they ask for; empty = nothing."""
    return "" if pool.replicas is None else f"its replicas is {pool.replicas}, an exact number that does not follow pods"


def _add(bars: unschedulable_pods.Bars, more: t.Mapping[str, t.Mapping[str, str]]) -> None:
    for uid, pools in more.items():
        bars.setdefault(uid, {}).update(pools)


class _Buyer:
    """The pools as shops, and what is taken from them as launches."""

    def __init__(self, draft: Draft, launch_capacity: LaunchCapacity, run_id: str) -> None:
        self.draft = draft
        self.launch_capacity = launch_capacity
        self.run_id = run_id
        self._placed: dict[str, str] = {}
        self._around = draft.around

    def buy(self, queue: Queue, rooms: t.Sequence[Room]) -> tuple[dict[str, str], dict[str, tuple[str, str]]]:
        """Uid to machine of those that get one, uid to pool and reason of all others."""
        situation = self.draft.situation
        classes = situation.specs.classes
        shops = [
            self._shop(pool, classes[pool.node_class]) for pool in situation.pools if not pool.request and pool.service is None
        ]
        self._around = rooms[0].around if rooms else self._around
        bought = buy(queue, shops, rooms)
        return {**self._placed, **bought.settled}, {pod.uid: (reason.pool, reason.text) for pod, reason in bought.left}

    def _shop(self, pool: Pool, node_class: NodeClass) -> Shop:
        situation = self.draft.situation
        priorities = {choice.cloud: choice.priority for choice in node_class.clouds}
        selection = self.launch_capacity.selection(pool, node_class).candidates
        offers = [offer for offer in selection if lane_of(offer, pool, situation.capabilities[offer.cloud]) is not Lane.SERVICE]
        launched = sum(1 for launch in self.draft.launches if launch.pool == pool.key)

        @functools.cache
        def room(key: str) -> Bin:
            offer = by_key[key]
            return capacity.of_offer(offer, pool, node_class, situation.seen.cluster_id, situation.rented(offer.cloud))

        by_key = {offer_key(offer): offer for offer in offers}
        return Shop(
            pool.key,
            offers,
            size=lambda offer: capacity.planned_gpus(offer, pool),
            room=lambda offer: room(offer_key(offer)),
            per_gpu=lambda offer, used: per_gpu(
                offer.price_hour or Decimal(0), priorities.get(offer.cloud, 0), node_class.strategy, used
            ),
            against=lambda offer: self.launch_capacity.against(offer, pool, node_class),
            taken=lambda offer, pods: self._take(pool, node_class, offer, pods, lambda other: offer_key(other) in by_key, room),
            rented=lambda offer: situation.rented(offer.cloud),
            closed=launch_planner.refuse_to_launch(self.draft, pool, node_class) or _exact(pool),
            why_none=self.launch_capacity.why_none(pool, node_class) if not offers else "",
            most=max(0, launch_planner.MAX_LAUNCH_PER_RUN - launched),
            fewest=pool.pack == "fewest",
        )

    def _take(
        self,
        pool: Pool,
        node_class: NodeClass,
        offer: Offer,
        pods: tuple[Pod, ...],
        is_candidate: t.Callable[[Offer], bool],
        room: t.Callable[[str], Bin],
    ) -> str:
        resources = self.draft.situation.settings.gpu_resources
        needed = sum(gpus(pod, resources) for pod in pods)

        def serves(other: Offer) -> bool:
            large_enough = capacity.planned_gpus(other, pool) >= needed and is_candidate(other)
            return large_enough and not fit(pods, [room(offer_key(other))], resources, around=self._around).left

        rest = self.launch_capacity.take_this(offer, pool, node_class, serves)
        more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
        detail = f"for pod {pods[0].namespace}/{pods[0].name}{more}"
        claim = launch_planner.add(self.draft, pool, node_class, offer, rest, self.run_id, "Demand", detail)
        self._placed.update({pod.uid: claim.name for pod in pods})
        return claim.name


# ---- how many GPUs are wanted, used, free, on their way and waited for, per pool


def count(
    places: t.Iterable[Place], waiting: t.Iterable[WaitingPod], pools: t.Iterable[Pool], gpu_resources: t.Collection[str]
) -> tuple[Tally, ...]:
    """One line per pool, by name, and one without a pool for pods that none of them serves, if there are any."""
    lines: dict[str, dict[str, int]] = {pool.key: {} for pool in pools}
    for place in places:
        line = lines.setdefault(place.claim.pool, {})
        free = spare(place.room.free, gpu_resources)
        if place.node is None:
            _add_gpus(line, coming=free)
        else:
            _add_gpus(line, machines=1, free=free)
        _add_gpus(line, used=sum(gpus(pod, gpu_resources) for pod in place.room.pods))
    for pod in waiting:
        _add_gpus(lines.setdefault(pod.pool, {}), waiting=pod.gpus)
    return tuple(
        Tally(pool, line.get("used", 0) + line.get("waiting", 0), **{name: line.get(name, 0) for name in _COUNTED})
        for pool, line in sorted(lines.items())
    )


_COUNTED = ("machines", "used", "free", "coming", "waiting")


def _add_gpus(line: dict[str, int], **more: int) -> None:
    for name, number in more.items():
        line[name] = line.get(name, 0) + number
