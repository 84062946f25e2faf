# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Launches of machines that come before the one they replace goes (B-12): who needs one, and why one cannot be had."""

from __future__ import annotations

import collections
import dataclasses
import typing as t

from ...model import Claim, Lane, NodeClass, Offer, Phase, Pod, Pool
from ...model.reasons import ActionKind, Reason
from ...units.values import print_time
from .. import notices
from ..claim_sync import Settled
from ..disruption import emptiness, expiration, surge, voluntary
from ..disruption.consolidation import OtherNodes
from ..disruption.drain_rules import Do, Mode, Rules, classify
from ..disruption.schedule import hours
from ..offers.ranking import lane_of
from ..plan_builder import Draft
from ..scheduling.binpacking import fit
from ..scheduling.capacity import of_offer
from . import launch_planner
from .reservations import LaunchCapacity

REASON = "Replacement"  # of the launch
NONE_IN_TIME = "no run launched one in time"


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Why no replacement is launched. ``gone_first``: there is room for it once the old machine is gone, so waiting leads nowhere."""

    why: str
    gone_first: bool = False


class Replacements:
    """The replacements of one run. ``capacity``: what may be launched; None in a mode that launches nothing."""

    def __init__(self, draft: Draft, capacity: LaunchCapacity | None, run_id: str) -> None:
        self.draft, self.capacity, self._run_id = draft, capacity, run_id
        self._places: OtherNodes | None = None
        self._leaving: t.Container[str] = ()

    def leave(self, names: t.Container[str]) -> None:
        """These machines have to go, too: pods have no place there."""
        self._leaving, self._places = names, None

    def applies_to(self, pool: Pool) -> bool:
        """Whether machines of the pool are replaced before they go. The machine of a request never is."""
        return pool.surge and not pool.request

    # ---- machines that come

    def usable(self, name: str) -> bool:
        """Whether a replacement is ready to take over."""
        settled = self.draft.settled.get(name)
        if settled is None or settled.claim.phase is not Phase.READY or not self.draft.counts(settled):
            return False
        return not launch_planner.unusable(self.draft, settled)

    def launched(self, name: str) -> str:
        """The machine that this run launches in place of another; empty = none."""
        return next((launch.name for launch in self.draft.launches if launch.claim and launch.claim.replaces == name), "")

    # ---- who needs one

    def needs(self, settled: Settled, pool: Pool, reason: str, others: int) -> tuple[Pod, ...] | None:
        """The pods that a replacement must hold, or None where the machine goes without one: its pool has as many as it wants without
        it (``others``), and its pods fit on other nodes of ours that stay."""
        wanted, _by_number = launch_planner.wants(self.draft, pool)
        pods = moving(self.draft, settled, pool, reason)
        if pods and not self._fit_elsewhere(settled, pods):
            return pods
        return () if others < wanted else None

    def others(self, pool: Pool) -> int:
        """How many machines the pool has or is getting, without those that go and those that stand by for another one."""
        draft = self.draft
        there = [
            settled
            for name, settled in draft.settled.items()
            if settled.claim.pool == pool.key and draft.counts(settled) and not draft.is_extra(name)
        ]
        coming = [launch for launch in draft.launches if launch.pool == pool.key and launch.claim and not launch.claim.replaces]
        return len(there) + len(coming)

    def loses(self, settled: Settled) -> int:
        """By how much the number of machines that count shrinks when this one goes: by none when its replacement counts from then on."""
        new = self.draft.replacements.get(settled.claim.name, "")
        taken_over = self.draft.is_extra(new) and self.draft.counts(self.draft.settled[new])
        return int(self.draft.counts(settled) and not taken_over)

    def _fit_elsewhere(self, settled: Settled, pods: tuple[Pod, ...]) -> bool:
        if settled.node is None or any(pod.placement.unmovable for pod in pods):
            return False
        if self._places is None:
            self._places = OtherNodes(self.draft, self._leaving)
        return self._places.move(settled.node, pods)

    # ---- launches

    def launch(self, settled: Settled, pool: Pool, pods: tuple[Pod, ...], why: str) -> Claim | Refusal:
        """Plan the launch of a machine that takes the place of another one, with room for ``pods``."""
        found = self._best(settled, pool, pods)
        if isinstance(found, Refusal):
            return found
        node_class, offer, rest = found
        t.cast(LaunchCapacity, self.capacity).reserve(offer, pool, node_class)
        name = settled.claim.name
        detail = f"replaces {name}, which {why}"
        return launch_planner.add(self.draft, pool, node_class, offer, rest, self._run_id, REASON, detail, replaces=name)

    def why_none(self, settled: Settled, pool: Pool, pods: tuple[Pod, ...]) -> str:
        """Why a machine that goes now has no replacement."""
        found = self._best(settled, pool, pods)
        return found.why if isinstance(found, Refusal) else NONE_IN_TIME

    def _best(self, settled: Settled, pool: Pool, pods: tuple[Pod, ...]) -> tuple[NodeClass, Offer, tuple[Offer, ...]] | Refusal:
        draft, situation = self.draft, self.draft.situation
        if self.capacity is None:
            return Refusal("reap.yml launches none", gone_first=True)
        node_class = situation.specs.classes.get(pool.node_class)
        if pool.key in situation.specs.paused or node_class is None:
            return Refusal(situation.specs.paused.get(pool.key, f"there is no class {pool.node_class}"))
        if any(notices.pool(damaged, situation) == pool for damaged in situation.damaged.values()):
            return Refusal("a claim of the pool cannot be read")
        if refused := launch_planner.refuse_to_launch(draft, pool, node_class):
            return Refusal(refused)
        serves = self._serves(settled.claim, pool, node_class, pods)
        offer, rest, why = self.capacity.best(pool, node_class, (), serves)
        if offer is not None:
            return node_class, offer, rest
        if not situation.rented(settled.claim.cloud):
            return Refusal("no other own machine of the pool is off and large enough", gone_first=True)
        return Refusal(why, gone_first=self.capacity.fits_instead(settled.claim, pool, node_class, serves))

    def _serves(self, claim: Claim, pool: Pool, node_class: NodeClass, pods: tuple[Pod, ...]) -> t.Callable[[Offer], bool] | None:
        """Which offers will do: those that hold the pods, and for an own machine, whose name is its identity, other own ones."""
        situation = self.draft.situation
        own = not situation.rented(claim.cloud)
        if not own and not pods:
            return None

        def serves(offer: Offer) -> bool:
            rented = situation.rented(offer.cloud)
            if own and rented:
                return False
            if not pods or _is_like(offer, claim.offer):
                return True
            if lane_of(offer, pool, situation.capabilities[offer.cloud]) is Lane.SERVICE:
                return False
            room = of_offer(offer, pool, node_class, situation.seen.cluster_id, rented)
            return not fit(pods, [room], situation.settings.gpu_resources).left

        return serves


def _is_like(offer: Offer, old: Offer) -> bool:
    """Whether a machine of the offer is at least as large as the old one, of the same kind: it takes what runs there, also pods that ask for
    labels which only a running node has."""
    same = ("cloud", "instance_type", "model", "gpu_count", "region", "cloud_region")
    sizes = ("vcpus", "memory_mib", "disk_gib", "gpu_memory_mib")
    if any(getattr(offer, name) != getattr(old, name) for name in same):
        return False
    return all((getattr(offer, name) or 0) >= (getattr(old, name) or 0) for name in sizes)


def moving(draft: Draft, settled: Settled, pool: Pool, reason: str) -> tuple[Pod, ...]:
    """The pods at work on a machine that will run elsewhere when it goes for ``reason``: those that a drain evicts and a controller makes
    anew."""
    node = settled.node
    here = [] if node is None else [pod for pod in draft.situation.pods(node) or () if pod.node == node.name]
    if reason == Reason.EXPIRED:  # marks that hold a pod only delay it
        found = classify([pod for pod in here if pod.owner_kind], Mode.FORCEFUL, draft.now, Rules(holds_end=draft.now))
    else:
        found = voluntary.dispositions(draft, settled, reason)
    work = [disposition.pod for disposition in found if disposition.do is Do.EVICT]
    return tuple(pod for pod in work if emptiness.counts(pod, pool.idle_mode, draft.situation.settings, draft.now))


def note_pods(draft: Draft) -> None:
    """A replacement whose launch made nothing is made anew with room for the pods of the machine in whose place it comes."""
    for new, old in draft.standing_by.items():
        settled, pool = draft.settled[old], draft.situation.pool(draft.settled[old].claim)
        if pool is None or not launch_planner.is_made_anew(draft.settled[new]):
            continue
        reason = Reason.DRIFTED if surge.expires(settled.claim, draft.situation) is None else Reason.EXPIRED
        if pods := moving(draft, settled, pool, reason):
            draft.meant_for[new] = pods


# ---- machines that expire (L-4): the replacement is launched ahead of the end, and the end says what became of it


def before_expiry(replacements: Replacements) -> None:
    """Launch replacements for machines whose end is near, the nearest first, and tell of those that have none."""
    draft = replacements.draft
    _tell_ends(replacements)
    if replacements.capacity is None:
        return
    near: dict[str, list[Settled]] = collections.defaultdict(list)
    for settled in draft.undecided():
        pool = draft.situation.pool(settled.claim)
        if pool is None or not replacements.applies_to(pool) or not draft.counts(settled):
            continue
        if settled.claim.phase is Phase.READY and surge.expires(settled.claim, draft.situation) is not None:
            near[pool.key].append(settled)
    replacements.leave({settled.claim.name for machines in near.values() for settled in machines})
    for key in sorted(near):
        near[key].sort(key=lambda settled: (surge.expires(settled.claim, draft.situation), settled.claim.name))
        _pool(replacements, draft.situation.pool_by_key[key], near[key])


def _pool(replacements: Replacements, pool: Pool, near: list[Settled]) -> None:
    draft = replacements.draft
    others = replacements.others(pool)
    launched = sum(1 for launch in draft.launches if launch.pool == pool.key and launch.claim and launch.claim.replaces)
    for settled in near:
        name = settled.claim.name
        moment = expiration.due(settled.claim, pool)
        if moment is None or replacements.launched(name):
            continue
        ends = f"expires at {print_time(moment)}"
        if new := draft.replacements.get(name):
            state = "is usable" if replacements.usable(new) else "is not usable yet"
            draft.report(name, Reason.EXPIRED, f"{ends}; its replacement {new} {state}", pool=pool.key)
            others -= replacements.loses(settled)
            continue
        pods = replacements.needs(settled, pool, Reason.EXPIRED, others - 1)
        if pods is None:
            others -= 1  # it goes, and the next one is looked at without it
            continue
        if closed := hours(pool, moment).closed:
            found: Claim | Refusal = Refusal(closed)
        elif launched >= launch_planner.MAX_LAUNCH_PER_RUN:
            found = Refusal(f"a run launches at most {launch_planner.MAX_LAUNCH_PER_RUN} replacements for a pool")
        else:
            found = replacements.launch(settled, pool, pods, ends)
        if isinstance(found, Refusal):
            draft.report(name, Reason.EXPIRED, f"{ends}; no replacement can be launched first: {found.why}", pool=pool.key)
        else:
            launched += 1


def _tell_ends(replacements: Replacements) -> None:
    """Add to the end of each machine that expires now whether its replacement is usable, or why there is none where one is needed."""
    draft = replacements.draft
    for name, action in list(draft.decisions.items()):
        settled = draft.settled.get(name)
        if settled is None or (action.kind, action.reason) != (ActionKind.DESTROY, Reason.EXPIRED):
            continue
        claim, pool = settled.claim, draft.situation.pool(settled.claim)
        if pool is None or not replacements.applies_to(pool) or settled.stored.deletion is not None or claim.initialized is None:
            continue
        moment = expiration.due(claim, pool)
        if moment is None or moment > draft.now:
            continue  # the hard stop of its calendar: the pool is closed
        if new := draft.replacements.get(name):
            draft.explain(name, f"its replacement {new} {'is usable' if replacements.usable(new) else 'is not usable yet'}")
            continue
        pods = replacements.needs(settled, pool, Reason.EXPIRED, replacements.others(pool))
        if pods is not None:
            draft.explain(name, f"without a replacement first: {replacements.why_none(settled, pool, pods)}")
