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

from ...model import Claim, Lane, NodeClass, Offer, Pod, Pool, Tally, WaitingPod
from ...model.reasons import Reason
from ..claims.record import LIVE
from ..cost import budgets
from ..cost.teams import SharedMachine, launched_for
from ..garbage_collection.orphans import Orphan
from ..offers.ranking import lane_of, offer_key, per_gpu
from ..plan_builder import Draft
from ..provisioning import capacity_buffers, launch_planner, requested_capacity
from ..provisioning.reservations import LaunchCapacity, purses
from . import capacity, topology, unschedulable_pods
from .binpacking import Bin, Packing, Queue, Room, fit, gpus, gpus_on, spare
from .existing_nodes import Place, places
from .gangs import gangs
from .offer_selection import Shop, buy
from .pending_pods import Demand, demand

DEMAND = "Demand"  # the reason of a launch for pods that wait


def scale_up(draft: Draft, orphans: t.Sequence[Orphan], run_id: str) -> LaunchCapacity:
    """Launch for minNodes, replicas, GPURequests and waiting pods, under one set of limits. A machine that a pod is counted on is noted in
    ``draft.counted_on``: it does not go for being idle. Returns the capacity with all of it reserved."""
    situation = draft.situation
    if situation.seen.pods is None:
        draft.warnings.append("The pods could not be read: no machine is rented for pods in this run.")
        unschedulable_pods.keep(draft)
        return launch_planner.launch(draft, orphans, run_id)
    resources = situation.settings.gpu_resources
    asked, bars = _ask(draft, situation.seen.pods)
    draft.warnings.extend(asked.warnings)
    poor = budgets.without_money(situation, asked.pods, purses(draft, orphans)) if situation.settings.team_budgets else {}
    _drop_unwanted(draft, asked, _with(bars, poor))
    launch_capacity = launch_planner.launch(draft, orphans, run_id)

    def whole_of(held: unschedulable_pods.Bars) -> _Whole:
        def rented(pods: tuple[Pod, ...], fewest: bool) -> tuple[set[str], dict[str, tuple[str, str]]]:
            return _try(draft, pods, held, launch_capacity.fork(), run_id, fewest=fewest)

        return _whole_gangs(draft, asked, rented)

    def wanted(stopped: unschedulable_pods.Bars) -> list[SharedMachine]:
        held = _with(bars, stopped)
        whole = whole_of(held)
        packed, _there = _place(draft, whole.pods, held)
        queue = Queue(packed.left, resources, held, around=draft.around)
        return _Buyer(draft, launch_capacity.fork(), run_id, fewest=whole.fewest, trial=True).machines(queue, packed.rooms)

    poor = budgets.without_money(situation, asked.pods, launch_capacity.purses)
    stopped = _stopped(draft, asked.pods, launch_capacity, wanted)
    held = _with(bars, stopped)
    whole = whole_of(held)
    packed, there = _place(draft, whole.pods, held)
    placed = dict(packed.placed)
    reasons: dict[str, tuple[str, str]] = {}
    if packed.left:
        queue = Queue(packed.left, resources, held, around=draft.around)
        bought = _Buyer(draft, launch_capacity, run_id, fewest=whole.fewest).buy(queue, packed.rooms)
        placed |= bought[0]
        reasons = bought[1]
    reasons |= whole.reasons
    _count_on(draft, whole.pods, packed, there)
    reasons |= _keep_spare(draft, whole.pods, placed, launch_capacity, run_id)
    unpaid = [pod for pod in whole.pods if pod.uid in stopped and pod.uid not in placed and not pod.placeholder]
    for last in filter(None, ([pod for pod in unpaid if pod.uid not in poor], [pod for pod in unpaid if pod.uid in poor])):
        on_the_rest, _there = _place(draft, last, bars, _without(there, whole.pods, placed))
        _count_on(draft, last, on_the_rest, there)
        placed |= on_the_rest.placed
    reasons = {uid: why for uid, why in reasons.items() if uid not in placed}
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
    requested = requested_capacity.requested(situation)
    draft.requests = requested_capacity.settle(draft, requested, _placed_pods(whole, packed, there, placed, reasons))
    draft.tally = count(places(draft, unresumed=False), draft.waiting, situation.pools, resources)
    return launch_capacity


def split_gangs(draft: Draft, launches: t.Collection[str]) -> dict[str, str]:
    """Of ``launches``, which are among those of the draft, the ones that nobody needs without gangs too few of whose pods would get a place
    on all that there is and is launched: name to the reason."""
    pods = draft.situation.seen.pods
    if pods is None:
        return {}
    asked, bars = _ask(draft, pods)
    whole = _whole_gangs(draft, asked, lambda tried, _fewest: (set(_place(draft, tried, bars)[0].placed), {}))
    if not whole.reasons:
        return {}
    used = set(_place(draft, whole.pods, bars)[0].placed.values())
    meant = _place(draft, asked.pods, bars)[0].placed
    why = "; ".join(dict.fromkeys(text for uid, (_pool, text) in whole.reasons.items() if uid in meant))
    return {name: why for name in launches if why and name in meant.values() and name not in used}


def _ask(draft: Draft, pods: tuple[Pod, ...]) -> tuple[Demand, unschedulable_pods.Bars]:
    """Who waits for a place, and which pools are not for whom; who else is where is noted in the draft."""
    situation = draft.situation
    everyone = (*pods, *requested_capacity.requested(situation).asking)
    asked = demand(everyone, situation.pools, situation.settings, draft.now, situation.extended)
    bars = {uid: dict(pools) for uid, pools in asked.barred.items()}
    _add(bars, unschedulable_pods.remembered(draft, asked.pods))
    draft.around = topology.around(situation.nodes or (), pods, asked.pods)
    return asked, bars


def _keep_spare(
    draft: Draft, pods: t.Sequence[Pod], placed: t.Mapping[str, str], launch_capacity: LaunchCapacity, run_id: str
) -> dict[str, tuple[str, str]]:
    """Room for CapacityBuffers on what is left once all pods have their places, and machines for what is missing: uid to pool and reason of
    placeholders that get none."""
    situation, resources = draft.situation, draft.situation.settings.gpu_resources
    asked = demand(capacity_buffers.placeholders(situation), situation.pools, situation.settings, draft.now, situation.extended)
    spare_pods = capacity_buffers.last(asked.pods)
    there = _unbooked(draft, places(draft, unresumed=False)) if spare_pods else []
    rooms = requested_capacity.without([place.room for place in there], pods, placed)
    bars = {uid: dict(pools) for uid, pools in asked.barred.items()}
    packed = fit(spare_pods, rooms, resources, bars)
    ready = {place.claim.name for place in there if place.node is not None}
    _count_on(draft, spare_pods, packed, there)
    reasons: dict[str, tuple[str, str]] = {}
    if packed.left:

        def wanted(stopped: unschedulable_pods.Bars) -> list[SharedMachine]:
            queue = Queue(packed.left, resources, _with(bars, stopped))
            return _Buyer(draft, launch_capacity.fork(), run_id, trial=True).machines(queue, ())

        stopped = _stopped(draft, spare_pods, launch_capacity, wanted)
        queue = Queue(packed.left, resources, _with(bars, stopped))
        reasons = _Buyer(draft, launch_capacity, run_id).buy(queue, ())[1]
    on_ready = {uid for uid, name in packed.placed.items() if name in ready}
    draft.buffers = capacity_buffers.settle(draft, on_ready, {uid: why for uid, (_pool, why) in reasons.items()})
    return reasons


def _placed_pods(
    whole: _Whole,
    packed: Packing,
    there: t.Sequence[Place],
    placed: t.Mapping[str, str],
    reasons: t.Mapping[str, tuple[str, str]],
) -> requested_capacity.PlacedPods:
    """What was found for the placeholders of ProvisioningRequests."""
    ready = [place for place in there if place.node is not None]
    return requested_capacity.PlacedPods(
        machine=placed,
        why={uid: why for uid, (_pool, why) in reasons.items()},
        ready={place.claim.name: place.claim.pool for place in ready},
        free=requested_capacity.without([place.room for place in ready], whole.pods, packed.placed),
    )


def _warn_of_slices(draft: Draft, pod: Pod, pool: str) -> None:
    """Several slices may be of one card: the pod gets no more of it than its neighbours leave, and nothing keeps them apart."""
    described = draft.situation.pool_by_key.get(pool)
    asked = gpus(pod, draft.situation.settings.gpu_resources)
    if described is not None and described.slices > 1 and asked > 1 and not described.mps:
        text = f"gets {asked} slices of shared GPUs of {pool}, maybe of one card; slices are not isolated from each other."
        draft.warnings.append(f"Pod {pod.namespace}/{pod.name} {text}")


@dataclasses.dataclass(frozen=True, slots=True)
class _Whole:
    """``pods`` without those of gangs that would be split, ``reasons`` for these; ``fewest``: gangs are whole only with as few machines as may
    be."""

    pods: tuple[Pod, ...]
    reasons: t.Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    fewest: bool = False


_Attempt = t.Callable[[tuple[Pod, ...], bool], tuple[t.Collection[str], t.Mapping[str, tuple[str, str]]]]
"""Who of these pods would get a place, by uid, and the pool and reason of others. With True on as few machines as may be."""


def _whole_gangs(draft: Draft, asked: Demand, attempt: _Attempt) -> _Whole:
    """Which gangs get a place for all that they need (L-39). While some would be split, the last of these in the order of packing is left out,
    and the others are tried anew."""
    seen = draft.situation.seen
    everyone = (*(seen.pods or ()), *requested_capacity.requested(draft.situation).asking)
    queue = Queue(asked.pods, draft.situation.settings.gpu_resources)
    left = list(gangs(queue.pods, everyone, seen.pod_groups))
    reasons = {pod.uid: ("", gang.why) for gang in left if gang.why for pod in gang.pods}
    left = [gang for gang in left if not gang.why]
    while True:
        pods = tuple(pod for pod in asked.pods if pod.uid not in reasons)
        if not left:
            return _Whole(pods, reasons)
        for fewest in (False, True):
            served, why = attempt(pods, fewest)
            split = [gang for gang in left if sum(pod.uid in served for pod in gang.pods) < gang.least]
            if not split:
                return _Whole(pods, reasons, fewest)
        last = split[-1]
        room = sum(1 for pod in last.pods if pod.uid in served)
        pool, first = next((why[pod.uid] for pod in last.pods if pod.uid in why), ("", ""))
        text = f"{last.name}: room for {room} of {last.least}{f'; {first}' if first else ''}"
        reasons |= {pod.uid: (pool, text) for pod in last.pods}
        left.remove(last)


def _try(
    draft: Draft, pods: tuple[Pod, ...], bars: unschedulable_pods.Bars, trial: LaunchCapacity, run_id: str, *, fewest: bool
) -> tuple[set[str], dict[str, tuple[str, str]]]:
    """Who would get a place, by uid, and why others would not; nothing is launched."""
    resources = draft.situation.settings.gpu_resources
    packed, _there = _place(draft, pods, bars)
    queue = Queue(packed.left, resources, bars, around=draft.around)
    bought, why = _Buyer(draft, trial, run_id, fewest=fewest, trial=True).buy(queue, packed.rooms)
    return {*packed.placed, *bought}, why


def _stopped(
    draft: Draft,
    pods: t.Sequence[Pod],
    launch_capacity: LaunchCapacity,
    wanted: t.Callable[[unschedulable_pods.Bars], list[SharedMachine]],
) -> unschedulable_pods.Bars:
    """Pods for which pools rent nothing because their teams cannot pay (L-16). ``wanted``: what would be rented without these. It is asked
    until every team can pay, so that pods which are not paid for take no room on a new machine from others."""
    if not draft.situation.settings.team_budgets:
        return {}
    left = launch_capacity.purses
    stopped = budgets.without_money(draft.situation, pods, left)
    while more := budgets.unaffordable(draft.situation, pods, wanted(stopped), left):
        _add(stopped, more)
    return stopped


def _count_on(draft: Draft, pods: t.Iterable[Pod], packed: Packing, there: t.Iterable[Place]) -> None:
    """Ready machines that pods are counted on do not go for being idle."""
    ready = {place.claim.name for place in there if place.node is not None}
    for pod in pods:
        if (name := packed.placed.get(pod.uid)) in ready and name is not None:
            draft.counted_on.setdefault(name, f"{pod.namespace}/{pod.name}")


def _place(
    draft: Draft, waiting: t.Sequence[Pod], bars: unschedulable_pods.Bars, there: list[Place] | None = None
) -> tuple[Packing, list[Place]]:
    """Pods onto machines that there are or will be. A pod that still waits although a Ready machine should hold it is looked at twice,
    then it is barred from that pool. ``there``: the places, None = all that is free."""
    there = _unbooked(draft, places(draft, unresumed=False)) if there is None else there
    _add(bars, unschedulable_pods.too_small(draft, waiting, there))
    ready = {place.claim.name: place for place in there if place.node is not None}
    pods = {pod.uid: pod for pod in waiting}
    while True:
        packed = fit(waiting, [place.room for place in there], draft.situation.settings.gpu_resources, bars, draft.around)
        on_ready = [(pods[uid], ready[name]) for uid, name in packed.placed.items() if name in ready]
        marked = {
            pod.uid: {place.claim.pool: why}
            for pod, place in on_ready
            if not pod.placeholder
            and not _needs_others(draft, pod, place)
            and (why := unschedulable_pods.mark(draft, pod, place.claim.pool))
        }
        if not marked:
            return packed, there
        _add(bars, marked)


def _without(there: t.Sequence[Place], pods: t.Iterable[Pod], placed: t.Mapping[str, str]) -> list[Place]:
    """The places with the room that is left once these pods are there."""
    rooms = requested_capacity.without([place.room for place in there], pods, placed)
    return [dataclasses.replace(place, room=room) for place, room in zip(there, rooms, strict=True)]


def _unbooked(draft: Draft, there: list[Place]) -> list[Place]:
    """The places without the room on Ready machines that ProvisioningRequests have booked."""
    booked = requested_capacity.requested(draft.situation).booked
    if not booked:
        return there
    ready = [place for place in there if place.node is not None]
    rooms = [place.room for place in ready]
    placed = fit(booked, rooms, draft.situation.settings.gpu_resources).placed
    left = dict(zip((place.claim.name for place in ready), requested_capacity.without(rooms, booked, placed), strict=True))
    return [dataclasses.replace(place, room=left.get(place.claim.name, place.room)) for place in there]


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


def _with(bars: unschedulable_pods.Bars, more: t.Mapping[str, t.Mapping[str, str]]) -> unschedulable_pods.Bars:
    both = {uid: dict(pools) for uid, pools in bars.items()}
    _add(both, more)
    return both


class _Buyer:
    """The pools as shops, and what is taken from them as launches."""

    def __init__(
        self, draft: Draft, launch_capacity: LaunchCapacity, run_id: str, *, fewest: bool = False, trial: bool = False
    ) -> None:
        """``fewest``: whatever pools say of the offer to take. ``trial``: nothing is launched."""
        self.fewest, self.trial = fewest, trial
        self.draft = draft
        self.launch_capacity = launch_capacity
        self.run_id = run_id
        self._machines: list[SharedMachine] = []
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

    def machines(self, queue: Queue, rooms: t.Sequence[Room]) -> list[SharedMachine]:
        """What :meth:`buy` rents."""
        self.buy(queue, rooms)
        return self._machines

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
            fewest=self.fewest or pool.pack == "fewest",
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
        resources, settings = self.draft.situation.settings.gpu_resources, self.draft.situation.settings
        place = room(offer_key(offer))
        taken = tuple((pod, max(1, gpus_on(pod, place, resources))) for pod in pods)
        machine = SharedMachine(pool, offer.price_hour, capacity.planned_gpus(offer, pool), taken)
        self._machines.append(machine)
        teams = launched_for(machine, self.draft.situation.seen.namespaces, settings) if settings.team_budgets else ()
        if self.trial:
            self.launch_capacity.reserve(offer, pool, node_class, teams)
            self._placed.update({pod.uid: offer.id for pod in pods})
            return f"trial-{len(self._placed)}"
        needed = sum(gpus(pod, resources) for pod in pods)

        def serves(other: Offer) -> bool:
            large_enough = capacity.planned_gpus(other, pool) >= needed and is_candidate(other)
            return large_enough and not fit(pods, [room(offer_key(other))], resources, around=self._around).left

        rest = self.launch_capacity.take_this(offer, pool, node_class, serves, teams)
        more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
        detail = f"for pod {pods[0].namespace}/{pods[0].name}{more}"
        claim = launch_planner.add(self.draft, pool, node_class, offer, rest, self.run_id, DEMAND, detail, teams=teams)
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
