# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Brings a claim up to what was observed (L-22 steps 4 and 5): ids, addresses, first sightings, phase. Decides nothing."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timezone

from ..model import Claim, InstanceState, Node, Phase, Pod, PodOwner
from ..units.values import whole_second
from .claims.record import LIVE, ORDER, advance
from .cluster_state import Recovery, Situation, recovery
from .cost import cost, hours
from .cost.teams import pod_owner
from .disruption import emptiness
from .provisioning.registration import accepted, is_stale, not_initialized


@dataclasses.dataclass(frozen=True, slots=True)
class Settled:
    """A claim as it shall be written, beside ``stored`` as it was read, with what was found for it.

    ``node`` None also when Nodes could not be read. ``stale_node`` is one of the claim's name that is older than its launch. ``work_due``:
    what its pods used has to be written; else it is written with the next other change.
    """

    claim: Claim
    stored: Claim
    recovery: Recovery
    node: Node | None = None
    stale_node: Node | None = None
    work_due: bool = False

    @property
    def node_ready(self) -> bool:
        """Whether its Node is known to be Ready; False also for one whose kubelet is silent, and when Nodes could not be read."""
        return self.node is not None and bool(self.node.ready)

    @property
    def changed(self) -> bool:
        if self.claim == self.stored or self.work_due:
            return self.work_due
        return dataclasses.replace(self.claim, work=self.stored.work) != self.stored


def settle(claim: Claim, situation: Situation) -> Settled:
    """The claim with everything that this run's observation says about it."""
    verdict = recovery(claim, situation.instances(claim.cloud), situation.now)
    node, stale = situation.node(claim), None
    if node is not None and is_stale(claim, node, situation.capability(claim)):
        node, stale = None, node
    verdict = _confirmed(claim, _protected(claim, _late(claim, verdict, situation), node, situation), situation)
    current = _instance_facts(claim, verdict, node, situation)
    # a name alone proves no machine: its bill is not known yet
    identified = current.instance_id or not situation.rented(claim.cloud)
    if current.phase in LIVE and identified:
        current = with_first_work(_node_facts(_mesh_facts(current, situation), node, situation), node, situation)
    if current.phase in LIVE:
        current = _phase(current, verdict, node, situation)
    current, work_due = _with_work(current, node, situation) if identified else (current, False)
    return Settled(situation.documented(current), claim, verdict, node, stale, work_due)


def _with_work(claim: Claim, node: Node | None, situation: Situation) -> tuple[Claim, bool]:
    """The claim with what GPU pods used of its machine until now (L-44), and whether that must be written. Of a Node that fell silent nothing
    is known after that moment."""
    pods = None if node is None or claim.is_service else situation.pods(node)
    if pods is None or node is None:
        return claim, False
    silent = None if node.ready else node.ready_since
    now = min(moment for moment in (situation.now, silent, claim.interrupted_at, claim.gone_since) if moment is not None)

    def owner(pod: Pod) -> PodOwner:
        return pod_owner(pod, situation.seen.namespaces, claim.owner, situation.settings)

    seen = hours.pod_times([pod for pod in pods if pod.node == node.name], situation.settings, situation.now, owner)
    work, due = hours.look(claim.work, hours.life_of(claim), seen, now, closed_to_pods=node.unschedulable)
    return (claim if work == claim.work else dataclasses.replace(claim, work=work)), due


def _late(claim: Claim, verdict: Recovery, situation: Situation) -> Recovery:
    """A new machine may be missing from its cloud's list for a while: that means nothing."""
    capability = situation.capability(claim)
    started = claim.launched
    if verdict.what != "missing" or capability is None or (situation.now - started).total_seconds() >= capability.list_delay:
        return verdict
    return Recovery("wait", f"{verdict.why} yet", duplicates=verdict.duplicates)


def _protected(claim: Claim, verdict: Recovery, node: Node | None, situation: Situation) -> Recovery:
    """A Ready Node of its name speaks for a machine that the cloud does not list (O5): nothing is rented in its place meanwhile."""
    if verdict.what not in ("launch", "next_offer") or node is None or not node.ready or not situation.rented(claim.cloud):
        return verdict
    return Recovery("wait", f"a Node of its name is Ready although {verdict.why}")


def _confirmed(claim: Claim, verdict: Recovery, situation: Situation) -> Recovery:
    """That a create call made nothing is not believed of a list that has lost all our machines at once: one that lies would make a second."""
    if verdict.what != "next_offer" or not situation.doubtful(claim.cloud):
        return verdict
    return Recovery("wait", f"{claim.cloud} lists none of the machines that it showed before; a second list has to confirm that")


def _replace(claim: Claim, **facts: t.Any) -> Claim:
    changes = {name: value for name, value in facts.items() if getattr(claim, name) != value}
    return dataclasses.replace(claim, **changes) if changes else claim


def _instance_facts(claim: Claim, verdict: Recovery, node: Node | None, situation: Situation) -> Claim:
    ids = list(claim.ids_seen)
    for instance_id in (
        claim.instance_id,
        verdict.instance.id if verdict.instance else "",
        *(duplicate.id for duplicate in verdict.duplicates),
    ):
        if instance_id and instance_id not in ids:
            ids.append(instance_id)
    claim = _replace(claim, ids_seen=tuple(ids))
    if verdict.instance is None:
        gone = claim.gone_since or whole_second(situation.billed_now) if verdict.what == "missing" else claim.gone_since
        return _replace(claim, gone_since=gone)
    instance = verdict.instance
    facts: dict[str, t.Any] = {"instance_id": claim.instance_id or instance.id, "gone_since": None, "unknown_since": None}
    if verdict.what == "adopt":
        facts["instance_id"] = instance.id
        facts["launch_started"] = claim.launch_started or instance.created or situation.billed_now
    claim = cost.noted(claim, instance, situation.capability(claim), situation.billed_now, node)
    return _replace(claim, ip=instance.ip or claim.ip, **facts)


def _mesh_facts(claim: Claim, situation: Situation) -> Claim:
    device = situation.device(claim)
    if device is None:
        return claim
    seen = claim.mesh_seen or (situation.now if device.online else None)
    return _replace(claim, mesh_device_id=device.id, mesh_seen=seen)


def _node_facts(claim: Claim, node: Node | None, situation: Situation) -> Claim:
    if node is None or (not situation.rented(claim.cloud) and claim.registered is None and not node.ready):
        return claim  # an own machine's Node of last time proves nothing before it is Ready again
    claim = _replace(claim, node_name=node.name, node_uid=node.uid, registered=claim.registered or situation.now)
    if claim.initialized is None and not not_initialized(claim, node, situation.in_force(claim)):
        claim = _replace(claim, initialized=situation.now, accepted=accepted(claim, node))
    return claim


def _phase(claim: Claim, verdict: Recovery, node: Node | None, situation: Situation) -> Claim:
    running = verdict.instance is not None and verdict.instance.state is InstanceState.RUNNING
    reached, why = claim.phase, ""
    if verdict.instance is not None and claim.phase is Phase.PENDING:
        reached, why = Phase.PROVISIONING, verdict.why
    if running:
        reached, why = _later(reached, why, Phase.BOOTING, f"{claim.cloud} says running")
    if claim.mesh_seen is not None:
        reached, why = _later(reached, why, Phase.JOINING, "its mesh device is online")
    if node is not None and claim.registered is not None:
        reached, why = _later(reached, why, Phase.JOINING, "its Node is registered")
    if claim.initialized is not None:
        reached, why = _later(reached, why, Phase.READY, "initialized")
    return advance(claim, reached, situation.now, why)


def _later(reached: Phase, why: str, phase: Phase, because: str) -> tuple[Phase, str]:
    return (phase, because) if ORDER.index(phase) > ORDER.index(reached) else (reached, why)


# ---- when a machine was first seen at work: noted once in its claim

_EVER = datetime.min.replace(tzinfo=timezone.utc)


def with_first_work(claim: Claim, node: Node | None, situation: Situation) -> Claim:
    """The claim with the moment at which work was first seen on its node. It is written once and never changes.

    What keeps a node busy (L-3) is work once it runs or has run; a pod that was only scheduled, or that ended before the machine was usable, is
    none. The time is the pod's own start where it is between the machine's first usable moment and now. A pod that tolerates every taint runs
    before that moment; it is noted with the rest of that run's look, so that the next run has nothing to write.
    """
    if claim.worked_since is not None or node is None or claim.is_service:
        return claim
    pool = situation.in_force(claim)
    mode = pool.idle_mode if pool else "gpu"  # without a document only what surely is work
    usable = claim.initialized
    starts = [
        min(max(pod.started or situation.now, usable or _EVER), situation.now)
        for pod in situation.pods(node) or ()
        if pod.node == node.name and _ran(pod, usable) and emptiness.would_count(pod, mode, situation.settings, situation.now)
    ]
    return dataclasses.replace(claim, worked_since=min(starts)) if starts else claim


def _ran(pod: Pod, usable: datetime | None) -> bool:
    if pod.phase == "Running":
        return True
    return pod.ended and pod.finished is not None and usable is not None and pod.finished > usable
