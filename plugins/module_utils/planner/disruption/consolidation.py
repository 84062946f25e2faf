# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes that are used too little (L-5, reason Underutilized): one goes when all its pods may move and fit on the others, and when that
saves more than the pods lose.

Since when a node is used too little is kept in its claim: a pod that was deleted leaves no other trace of when.
"""

from __future__ import annotations

import contextlib
import dataclasses
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

from ...core.errors import InvalidInput
from ...model import Claim, Node, Offer, Phase, Pod, Pool
from ...model.labels import CHECKPOINT_INTERVAL_ANNOTATION
from ...model.reasons import Reason
from ...units.values import NEVER, latest, parse_duration, print_duration, print_money
from ..claim_sync import Settled
from ..cost import paid_hours
from ..offers.ranking import select
from ..plan_builder import Draft
from ..scheduling import topology
from ..scheduling.binpacking import Bin, fit, gpus, is_gpu, shown
from ..scheduling.capacity import blocking, of_node, of_offer
from ..scheduling.pending_pods import demand
from ..scheduling.topology import Topology
from . import expiration, idleness, voluntary
from .drain_rules import Do

POLICY = "WhenUnderutilized"


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """How many of a node's GPUs its pods ask for, of how many. ``claims``: pods hold devices by resource claims besides."""

    used: int
    total: int
    claims: bool = False

    def below(self, threshold: Decimal) -> bool:
        """Strictly below the share ``threshold``."""
        return self.used < threshold * self.total

    def __str__(self) -> str:
        return f"{self.used} of {self.total} GPUs are used" + (" beside those of resource claims" if self.claims else "")


def use(node: Node, pods: t.Iterable[Pod], gpu_resources: t.Collection[str]) -> Use:
    """The use of a node by the unfinished pods on it."""
    bound = [pod for pod in pods if pod.node == node.name and not pod.ended]
    used = sum(gpus(pod, gpu_resources) for pod in bound)
    return Use(used, shown(node.allocatable, gpu_resources), any(pod.placement.claims for pod in bound))


def consolidate(draft: Draft) -> None:
    """Note since when nodes are used too little, and let those go whose pods have a place elsewhere."""
    situation = draft.situation
    pods = situation.seen.pods
    pools = [pool for pool in situation.pools if pool.consolidation_policy == POLICY and pool.consolidate_after is not None]
    if not pools or pods is None:
        return
    waiting = demand(pods, situation.pools, situation.settings, draft.now, situation.extended).pods
    places = OtherNodes(draft)
    for pool in pools:
        _Pool(
            draft, pool, places, f"pod {waiting[0].namespace}/{waiting[0].name} waits for a place" if waiting else ""
        ).consolidate()


class OtherNodes:
    """Where pods may go: our Ready nodes that stay, with the pods that were moved there in thought. What stands by for another machine
    holds a place for the pods of that one. ``leaving``: machines that do not stay, beside those that this run ends."""

    def __init__(self, draft: Draft, leaving: t.Container[str] = ()) -> None:
        self._draft = draft
        self.replaced = set(draft.standing_by.values()) | {launch.claim.replaces for launch in draft.launches if launch.claim}
        self._gpu_resources = draft.situation.settings.gpu_resources
        self._nodes: dict[str, Settled] = {}
        self._moved: dict[str, list[Pod]] = {}
        self._kept_off = any(pod.placement.apart for pod in draft.situation.seen.pods or ())
        self._going = {
            settled.node.name
            for name, settled in draft.settled.items()
            if settled.node is not None and (name in draft.decisions or name in leaving)
        }
        for name, settled in draft.settled.items():
            if name in draft.decisions or settled.claim.phase is not Phase.READY or settled.node is None or blocking(settled.node):
                continue
            if name in draft.standing_by or name in leaving:
                continue
            here = draft.situation.pods(settled.node) or ()
            if not use(settled.node, here, self._gpu_resources).claims:  # how much is free beside claims is not known
                self._nodes[settled.node.name] = settled
        self._bins = {name: self._bin(name) for name in sorted(self._nodes)}
        self._free = {name: self._free_gpus(place) for name, place in self._bins.items()}

    @property
    def receiving(self) -> t.Collection[str]:
        """Nodes that take pods of others."""
        return self._moved

    def move(self, node: Node, moving: t.Sequence[Pod]) -> bool:
        """Give each of the pods a place on the other nodes, if all get one; the node itself is none any more then."""
        asked = [gpus(pod, self._gpu_resources) for pod in moving]
        if sum(asked) > sum(self._free.values()) - self._free.get(node.name, 0):
            return False
        least = min(asked, default=0)
        others = [place for name, place in self._bins.items() if self._free[name] >= least and name != node.name]
        with_it, without_it = (self.around(node, moving, stays=stays) for stays in (True, False))
        packing = fit(moving, others, self._gpu_resources, around=with_it)
        if packing.left or (without_it is not None and fit(moving, others, self._gpu_resources, around=without_it).left):
            return False
        for pod in moving:
            target = packing.placed[pod.uid]
            self._moved.setdefault(target, []).append(dataclasses.replace(pod, node=target))
        for name in set(packing.placed.values()):
            self._bins[name] = self._bin(name)
            self._free[name] = self._free_gpus(self._bins[name])
        self._bins.pop(node.name, None)
        self._free.pop(node.name, None)
        return True

    def around(self, node: Node, moving: t.Sequence[Pod], *, stays: bool) -> Topology | None:
        """Who is where once these pods have left the node (L-40); None where that matters to none of them. ``stays``: the node is still there,
        closed and empty, as it is while it is drained; else it is gone, with all that this run ends."""
        if not self._kept_off and not any(pod.placement.minds_others for pod in moving):
            return None  # as topology.around finds, without a walk through all pods for each node
        situation = self._draft.situation
        leaving = {pod.uid for pod in moving} | {pod.uid for pods in self._moved.values() for pod in pods}
        standing = [pod for pod in situation.seen.pods or () if pod.uid not in leaving]
        standing += [pod for pods in self._moved.values() for pod in pods]
        gone = set() if stays else {node.name, *self._going}
        return topology.around([one for one in situation.nodes or () if one.name not in gone], standing, moving)

    def _bin(self, name: str) -> Bin:
        settled = self._nodes[name]
        pods = [*(self._draft.situation.pods(t.cast(Node, settled.node)) or ()), *self._moved.get(name, ())]
        memory, spec = settled.claim.offer.gpu_memory_mib, self._draft.situation.pool(settled.claim)
        return of_node(t.cast(Node, settled.node), pods, pool=settled.claim.pool, gpu_memory_mib=memory, spec=spec)

    def _free_gpus(self, place: Bin) -> int:
        """At least as many as pods find there: a vendor's and the neutral name may mean the same GPUs."""
        return sum(max(0, amount or 0) for name, amount in place.free.items() if is_gpu(name, self._gpu_resources))


class _Pool:
    """One pool with the policy."""

    def __init__(self, draft: Draft, pool: Pool, places: OtherNodes, waiting: str) -> None:
        self.draft, self.pool, self.places, self.waiting = draft, pool, places, waiting
        self.grows = idleness.growth(draft, pool)
        self.floor = pool.min_nodes

    def consolidate(self) -> None:
        """Decide about the pool's nodes in use, the dearest first: as many go as the budget, the bound of a run and minNodes allow."""
        draft, pool = self.draft, self.pool
        ready = [
            settled
            for settled in draft.undecided()
            if settled.claim.pool == pool.key and self._in_use(settled) and settled.claim.name not in draft.standing_by
        ]
        spare = len(ready) - self.floor
        wanted: list[tuple[Claim, str]] = []
        most = voluntary.at_most(
            voluntary.room(draft, pool, Reason.UNDERUTILIZED), voluntary.bound(draft, Reason.UNDERUTILIZED), len(ready)
        )
        for settled in sorted(
            ready, key=lambda candidate: (-candidate.claim.price, -candidate.claim.offer.gpu_count, candidate.claim.name)
        ):
            usage = use(t.cast(Node, settled.node), self._pods(settled), self.draft.situation.settings.gpu_resources)
            drain = voluntary.dispositions(draft, settled, Reason.UNDERUTILIZED)
            moving = [disposition.pod for disposition in drain if disposition.do is Do.EVICT]
            blocked = any(disposition.do is Do.BLOCK for disposition in drain)
            goes_on = settled.stored.deletion is not None and settled.stored.deletion.reason == Reason.UNDERUTILIZED
            since = self._note(settled, usage.below(pool.utilization_threshold) and (bool(moving) or blocked or goes_on))
            if since is None:
                continue
            why = self._against(draft.settled[settled.claim.name], since)
            if not why and min(len(wanted), most) >= spare:
                why = f"kept for {draft.situation.floor_words(pool)}"
            detail = str(usage)
            if not why and len(wanted) < most:  # no more is looked at than may go: each look costs, and takes places
                detail, why = self._elsewhere(settled, usage, moving, weigh=not goes_on)
            if why:
                draft.report(settled.claim.name, Reason.UNDERUTILIZED, f"{detail}; {why}", pool=pool.key)
            else:
                wanted.append((draft.settled[settled.claim.name].claim, detail))
        voluntary.remove(draft, pool, Reason.UNDERUTILIZED, wanted)

    def _elsewhere(self, settled: Settled, usage: Use, moving: t.Sequence[Pod], *, weigh: bool) -> tuple[str, str]:
        """What makes the node needless, or (second) what keeps it. ``weigh``: no pod has been moved yet."""
        claim, weighed = settled.claim, moving if weigh else ()
        too_dear = self._too_dear(claim, usage, weighed, claim.price)
        if too_dear:  # a cheaper machine instead would save even less
            return str(usage), too_dear
        if self.places.move(t.cast(Node, settled.node), moving):
            return f"{usage}; its pods fit on other nodes", ""
        without_it = self.places.around(t.cast(Node, settled.node), moving, stays=False)
        offer = instead(self.draft, self.pool, claim, moving, without_it)
        if offer is None:
            return str(usage), "its pods do not fit on other nodes"
        saved = claim.price - (offer.price_hour or Decimal(0))
        return f"{usage}; {told(claim, offer)}", self._too_dear(claim, usage, weighed, saved)

    def _too_dear(self, claim: Claim, usage: Use, moving: t.Sequence[Pod], per_hour: Decimal) -> str:
        """Why a move of the pods is not worth it; empty when it is, and where there is nothing to weigh."""
        if not moving or claim.price <= 0:
            return ""
        now, names = self.draft.now, self.draft.situation.settings.gpu_resources
        self.draft.warnings.extend(text for text in map(interval_warning, moving) if text and text not in self.draft.warnings)
        cost = restart_cost(moving, claim.price / max(1, usage.total), names, now)
        saving = per_hour * _as_hours(expected_remaining(moving, expiration.due(claim, self.pool), now))
        if saving > cost:
            return ""
        return f"to move its pods would lose ${print_money(cost)} of work and save ${print_money(saving)}"

    def _in_use(self, settled: Settled) -> bool:
        return settled.claim.phase is Phase.READY and settled.node_ready and not settled.claim.is_service

    def _pods(self, settled: Settled) -> t.Sequence[Pod]:
        return self.draft.situation.pods(t.cast(Node, settled.node)) or ()

    def _note(self, settled: Settled, below: bool) -> datetime | None:
        """Remember in the claim since when the node is used too little; None while it is not."""
        claim = settled.claim
        since = (claim.underused_since or self.draft.now) if below else None
        if since != claim.underused_since:
            self.draft.change(dataclasses.replace(claim, underused_since=since))
        return since

    def _against(self, settled: Settled, since: datetime) -> str:
        """What keeps the node although it is used too little."""
        after = self.pool.consolidate_after or 0
        quiet = max(since, latest(self._events(settled)) or since)
        if (self.draft.now - quiet).total_seconds() < after:
            return f"not yet {print_duration(after)}"
        if settled.node is not None and settled.node.name in self.places.receiving:
            return "it takes the pods of another node"
        if settled.claim.name in self.places.replaced:
            return "another machine comes in its place"
        due, capability = quiet + timedelta(seconds=after), self.draft.situation.capability(settled.claim)
        return (
            self.waiting
            or self.grows(settled.claim)
            or voluntary.disruption_blocked(self.draft, self.pool, settled, Reason.UNDERUTILIZED)
            or paid_hours.against(settled.stored, due, self.draft.now, capability)
        )

    def _events(self, settled: Settled) -> t.Iterator[datetime | None]:
        """When pods came, began, ended or were asked to terminate, as far as they are still listed."""
        for pod in self._pods(settled):
            if pod.owner_kind not in ("DaemonSet", "Node") and not pod.mirror:
                yield from (
                    when for when in (pod.created, pod.started, pod.finished, pod.deletion) if when and when <= self.draft.now
                )


# ---- Whether a move is worth it (L-5): what the pods lose against what is saved until the node would have gone anyway

RESTART_DELAY: t.Final = 300  # seconds in which a moved pod does not work yet: its image is pulled, and it starts


def _as_hours(seconds: float) -> Decimal:
    return Decimal(str(seconds)) / 3600


def lost_seconds(pod: Pod, now: datetime) -> float:
    """What a restart takes from a pod: the work since its start, of which its checkpoints keep all but their interval, and the delay."""
    worked, interval = _worked(pod, now), None
    with contextlib.suppress(InvalidInput):
        interval = _interval(pod)
    return (worked if interval is None else min(worked, interval)) + RESTART_DELAY


def restart_cost(pods: t.Iterable[Pod], gpu_hour: Decimal, gpu_resources: t.Collection[str], now: datetime) -> Decimal:
    """Dollars that the lost time of these pods cost, at the price of one GPU for an hour. Pods without GPUs count as none."""
    return sum((gpus(pod, gpu_resources) * gpu_hour * _as_hours(lost_seconds(pod, now)) for pod in pods), Decimal(0))


def expected_remaining(pods: t.Iterable[Pod], due: datetime | None, now: datetime) -> float:
    """Seconds for which the pods would still keep their node: as long again as the oldest has run, at most until the node is ``due``."""
    again = max((_worked(pod, now) for pod in pods), default=0.0)
    return again if due is None else max(0.0, min(again, (due - now).total_seconds()))


def interval_warning(pod: Pod) -> str:
    """Says that the annotation of a pod cannot be read; empty when it can."""
    try:
        _interval(pod)
    except InvalidInput as error:
        return (
            f"Pod {pod.namespace}/{pod.name}: {CHECKPOINT_INTERVAL_ANNOTATION}: {error.message} "
            "Until then all its work since its start counts as lost by a restart."
        )
    return ""


def _worked(pod: Pod, now: datetime) -> float:
    return max(0.0, (now - pod.started).total_seconds()) if pod.started else 0.0


def _interval(pod: Pod) -> int | None:
    return parse_duration(pod.annotations.get(CHECKPOINT_INTERVAL_ANNOTATION, NEVER), never=True)


# ---- A smaller or cheaper machine instead of one that is used too little (L-5, ``replaceCheaperPercent``)

LEAST_LIFE = 3600  # seconds a machine must still have before it: who goes within the hour is not worth a move


def saves(old: Decimal, new: Decimal, share: Decimal) -> bool:
    """Whether ``new`` is cheaper than ``old`` by at least the share (of the old price)."""
    return new < old and old - new >= share * old


def instead(draft: Draft, pool: Pool, claim: Claim, moving: t.Sequence[Pod], around: Topology | None = None) -> Offer | None:
    """The cheapest offer that takes all the pods, is cheaper by the pool's share, and is no less firm; None without any. ``around``: who is
    where once the claim's node is gone."""
    node_class, situation = draft.situation.node_class(claim), draft.situation
    due = expiration.due(claim, pool)
    if pool.replace_cheaper <= 0 or node_class is None or (due is not None and (due - draft.now).total_seconds() < LEAST_LIFE):
        return None
    offers = [offer for cloud in sorted(situation.seen.clouds) for offer in situation.offers(cloud) or ()]
    chosen = select(
        offers,
        pool,
        node_class,
        situation.capabilities,
        situation.settings,
        draft.now,
        situation.seen.blocks,
        account=situation.volumes,
        imageless=situation.imageless(node_class),
    )
    for offer in sorted(
        chosen.candidates, key=lambda candidate: (candidate.price_hour or Decimal(0), candidate.cloud, candidate.id)
    ):
        if offer.price_hour is None or not saves(claim.price, offer.price_hour, pool.replace_cheaper):
            continue
        if not situation.rented(offer.cloud) or (offer.spot and not claim.offer.spot):
            continue
        room = of_offer(offer, pool, node_class, situation.seen.cluster_id, True)
        if not fit(moving, [room], situation.settings.gpu_resources, around=around).left:
            return offer
    return None


def told(claim: Claim, offer: Offer) -> str:
    """The replacement in words."""
    price = print_money(offer.price_hour or Decimal(0))
    return f"{offer.cloud} {offer.instance_type} for ${price}/h would do instead of ${print_money(claim.price)}/h"
