# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that a person moves in and out (L-48): which may be adopted or handed out, and what is recorded of them.

A machine that is handed out may carry our name and our stamp for ever, because most clouds cannot change them. So the record store remembers it
by its id, and from the moment that this is written it is not ours (planner/garbage_collection/ownership.py).
"""

from __future__ import annotations

import dataclasses
import typing as t
from decimal import Decimal

from ...model import Capability, Claim, HandedOut, Instance, InstanceState, Lane, Node, NodeClass, Offer, Phase, Pool, Quality
from ...model.claims import ADOPTED
from ...model.labels import CLUSTER_LABEL, INSTANCE_ID_LABEL, NODEPOOL_LABEL, PREFIX, PROVIDER_LABEL
from ...model.names import label_value
from ..cluster_state import Situation
from ..garbage_collection.ownership import Ownership, claimed, stamp_of
from ..offers.ranking import accepted_lanes, no_lane, select
from ..offers.requirements import standard_region
from ..provisioning.limits import reserved, room
from ..provisioning.registration import not_initialized
from ..scheduling.capacity import planned_gpus, taints
from .adoption import offer_of
from .record import advance

BY_HAND = f"{ADOPTED} a person took it in"
IMPORTED = f"{BY_HAND} from tgp-operator"
FORGOTTEN_AFTER: t.Final = 86_400  # seconds for which a machine that was handed out stays on the list although it is not listed
_FORMER = "ex-"  # before the name of a machine that was handed out


# ---- what was handed out


def kept(released: t.Iterable[HandedOut], situation: Situation) -> tuple[HandedOut, ...]:
    """Those that may still exist: a machine that its cloud's list does not show any more, and that was handed out before this day, is gone."""

    def gone(one: HandedOut) -> bool:
        listed = situation.instances(one.cloud)
        return listed is not None and one.id not in listed.by_id and (situation.now - one.time).total_seconds() > FORGOTTEN_AFTER

    return tuple(one for one in released if not gone(one))


def former(name: str) -> str:
    """What a machine is called that was ours, which matches the form of our names no more."""
    return f"{_FORMER}{name}"


# ---- moving in


@dataclasses.dataclass(frozen=True)
class Arrival:
    """A machine that a person wants to be adopted: ``pool`` is the document, ``regions`` the words of its cloud for regions, ``why`` what its
    claim records of where it is from."""

    instance: Instance
    node: Node | None
    pool: Pool
    regions: t.Mapping[str, str]
    why: str = BY_HAND

    @property
    def offer(self) -> Offer:
        """What it is, as its cloud says; the room that its cloud does not tell is that of its Node."""
        offer = offer_of(self.instance, {})
        cpu, memory = (self.node.allocatable.get(name) if self.node else None for name in ("cpu", "memory"))
        return dataclasses.replace(
            offer,
            region=standard_region(self.instance.region, self.regions),
            vcpus=None if cpu is None else -(-cpu // 1000),
            memory_mib=None if memory is None else memory // 2**20,
            disk_gib=self.instance.disk_gib,
        )


def record_of(instance: Instance, situation: Situation) -> Claim | None:
    """The claim that knows this machine."""
    return next((claim for claim in situation.claims if (instance.cloud, instance.id) in claimed((claim,))), None)


def is_by_hand(claim: Claim) -> bool:
    """Whether a person moved the machine in."""
    return bool(claim.history) and claim.history[0][2] in (BY_HAND, IMPORTED)


def is_imported(claim: Claim) -> bool:
    """Whether the machine is from tgp-operator (L-49)."""
    return bool(claim.history) and claim.history[0][2] == IMPORTED


def unreadable(cloud: str, situation: Situation) -> str:
    """Why nobody can say whether a machine of the cloud may be moved; empty when everything was read."""
    view = situation.seen.clouds.get(cloud)
    if view is None:
        return f"{cloud} is not among the providers of the documents, so it was not asked"
    if view.instances is None:
        return f"the machines of {cloud} could not be listed ({view.problem or 'no answer'})"
    if situation.seen.claims is None:
        return "the claims could not be read"
    if situation.nodes is None or situation.seen.pods is None:
        return "Nodes and pods could not be read"
    blind = [damaged for damaged in situation.damaged.values() if damaged.cloud in ("", cloud) and not damaged.ids]
    return f"{blind[0].where} cannot be read, and may be of this machine" if blind else ""


def against_adopting(arrival: Arrival, situation: Situation) -> tuple[str, ...]:
    """Everything that speaks against it, as sentences that begin with what is meant; empty when it may be adopted."""
    facts = situation.capabilities[arrival.instance.cloud]
    unsuited = _unsuited(arrival, facts, situation.specs.classes.get(arrival.pool.node_class))
    if unsuited:
        return (unsuited,)
    problems = [*_of_others(arrival.instance, situation), *_state(arrival.instance)]
    if arrival.node is not None:
        problems += _node_problems(arrival, arrival.node, situation)
    if misfit := _misfit(arrival, facts, situation):
        problems.append(misfit)
    return tuple(problems)


def _unsuited(arrival: Arrival, facts: Capability, node_class: NodeClass | None) -> str:
    cloud = facts.cloud
    if not facts.rented:
        return f"{cloud}: own machines are not adopted; write the machine into the class"
    if arrival.pool.service is not None:
        return f"{arrival.pool.key}: its machines are containers that it starts itself (spec.service); nothing shows what another one runs"
    if not facts.restamps:
        return (
            f"{cloud}: neither the name nor the stamp of a machine that runs can be changed there. If the records were lost, nothing would "
            "show that it is ours, and it would be billed for ever"
        )
    if node_class is not None and node_class.mesh.hub_place is not None:
        return f"the WireGuard hub of class {node_class.name} knows machines by keys of their launch, and would not know this one"
    if not set(accepted_lanes(arrival.pool)) & set(facts.lanes):
        return no_lane(cloud, arrival.pool, facts)
    return ""


def _of_others(instance: Instance, situation: Situation) -> t.Iterator[str]:
    cluster, generation = stamp_of(instance)
    handed_out = (instance.cloud, instance.id) in situation.store.released
    owner = situation.owner(instance)
    if cluster and cluster != situation.seen.cluster_id:
        yield f"its stamp is that of cluster {cluster}"
    elif generation and generation not in situation.seen.generations:
        yield f"its stamp is that of another record store (generation {generation}); adopt.yml with this generation takes over all its machines"
    elif owner.ownership is Ownership.FOREIGN and not handed_out:
        yield f"it {owner.why}"
    elif owner.ownership is Ownership.OURS:
        yield "it is ours already and has no claim; the next reap.yml adopts it"
    if any(instance.id in damaged.ids for damaged in situation.damaged.values()):
        yield "a claim that cannot be read has its id"


def _state(instance: Instance) -> t.Iterator[str]:
    if instance.problem or instance.interrupted:
        yield instance.problem or f"{instance.cloud} has interrupted it"
    elif instance.state is not InstanceState.RUNNING:
        yield f"it does not run: {instance.cloud} says {instance.state_word}"


def _node_problems(arrival: Arrival, node: Node, situation: Situation) -> t.Iterator[str]:
    instance, pool = arrival.instance, arrival.pool
    if other := next((claim for claim in situation.claims if node.name in (claim.node_name, claim.name)), None):
        yield f"Node {node.name} is that of {other.name}"
    wanted = {
        CLUSTER_LABEL: situation.seen.cluster_id,
        NODEPOOL_LABEL: label_value(pool.name),
        PROVIDER_LABEL: label_value(instance.cloud),
        INSTANCE_ID_LABEL: label_value(instance.id),
    }
    for key, value in wanted.items():
        if node.labels.get(key, value) != value:
            yield f"Node {node.name} has the label {key}={node.labels[key]}, not {value}"
    missing = not_initialized(_claim(arrival, "", situation), node, pool, marking=True)
    if missing:
        yield f"Node {node.name} is not usable: {', '.join(missing)}"
    present = {(taint.key, taint.effect) for taint in node.taints}
    evicting = [taint for taint in taints(pool) if taint.effect == "NoExecute" and (taint.key, taint.effect) not in present]
    if evicting and situation.pods(node):
        yield f"the taint {evicting[0]} of {pool.key} would evict the pods of Node {node.name}; set it there first, when no pod minds"


def _misfit(arrival: Arrival, facts: Capability, situation: Situation) -> str:
    pool, offer = arrival.pool, arrival.offer
    node_class = situation.specs.classes.get(pool.node_class)
    if node_class is None:
        return f"the class {pool.node_class} of {pool.key} is not among the documents"
    # what hosts are like is for those that are chosen; this one was
    capabilities = {facts.cloud: dataclasses.replace(facts, node_quality=Quality())}
    selection = select([offer], pool, node_class, capabilities, situation.settings, situation.now)
    reason = next(iter(selection.rejected.values()), "")
    if not reason:
        reason = room(offer, pool, node_class, reserved(situation.claims), situation.settings)
    return f"it does not fit {pool.key} and its class: {reason} (it is {described(offer)})" if reason else ""


def described(offer: Offer) -> str:
    """An offer in words: what is compared with a class."""
    price = "price unknown" if offer.price_hour is None else f"{offer.price_hour} $/h"
    kind = " spot" if offer.spot else ""
    return f"{offer.cloud} {offer.instance_type}{kind}, {offer.gpu_count} x {offer.model or 'unknown GPU'}, {offer.region}, {price}"


def _claim(arrival: Arrival, name: str, situation: Situation) -> Claim:
    instance, node, pool, now = arrival.instance, arrival.node, arrival.pool, situation.now
    offer = arrival.offer
    facts = situation.capabilities[instance.cloud]
    talos = node is not None and "talos" in node.os_image.lower()
    lane = Lane.TALOS if talos and Lane.TALOS in facts.lanes else Lane.KUBELET
    claim = Claim(
        name=name,
        pool=pool.key,
        node_class=pool.node_class,
        cloud=instance.cloud,
        lane=lane,
        phase=Phase.JOINING,
        phase_since=now,
        created=now,
        offer=offer,
        reserved_price=instance.price_hour or Decimal(0),
        expected_gpus=planned_gpus(offer, pool),
        launch_started=now,  # the bill begins now
        running_since=None if facts.bills_boot else now,
        instance_id=instance.id,
        ids_seen=(instance.id,),
        price_paid=instance.price_hour,
        ip=instance.ip,
        node_name=node.name if node is not None else name,
        node_uid=node.uid if node is not None else "",
        registered=now if node is not None else None,
        mesh_device_id=_device(node, situation),
        history=((now, Phase.JOINING.value, arrival.why),),
    )
    return situation.documented(claim)


def _device(node: Node | None, situation: Situation) -> str:
    """Its mesh device, which goes when it goes: the only one with the name of the Node."""
    devices = [device for device in situation.devices or () if node is not None and device.hostname == node.name]
    return devices[0].id if len(devices) == 1 else ""


def taken_in(arrival: Arrival, name: str, situation: Situation) -> Claim:
    """The claim of a machine that is adopted now. Its Node lacks nothing but our marks, so it is in use already; without a Node it has the
    pool's time to join."""
    claim = _claim(arrival, name, situation)
    if arrival.node is None:
        return claim
    return advance(dataclasses.replace(claim, initialized=situation.now), Phase.READY, situation.now, "it was in use already")


def proof_of(arrival: Arrival) -> str:
    """What shows that the Node runs on this machine; empty when only the person says so."""
    instance, node = arrival.instance, arrival.node
    if node is None:
        return ""
    if node.labels.get(INSTANCE_ID_LABEL) == label_value(instance.id):
        return "its label names the id"
    addresses = {address for address in (instance.ip, instance.private_ip) if address} & set(node.addresses)
    if addresses:
        return f"both have the address {min(addresses)}"
    return "both have the same name" if node.name == instance.name else ""


# ---- moving out


def against_releasing(claim: Claim, situation: Situation) -> tuple[str, ...]:
    """Everything that speaks against handing the claim's machine out; empty when it may go."""
    if not situation.rented(claim.cloud):
        return ("it is an own machine: take it out of its class, and drain it with destroy.yml",)
    if claim.is_service:
        return ("it is a container that its pool reaches through a Service; end it with destroy.yml",)
    if why := unreadable(claim.cloud, situation):
        return (why,)
    return tuple(_still_needed(claim, situation))


def _still_needed(claim: Claim, situation: Situation) -> t.Iterator[str]:
    listed = situation.instances(claim.cloud)
    ours = claim.instance_id and (claim.cloud, claim.instance_id) not in situation.store.released
    if claim.deletion is not None or claim.phase in (Phase.TERMINATING, Phase.FAILED):
        yield "its end has begun: its pods are being drained, or it is being destroyed. Let reap.yml finish"
    elif not claim.instance_id or (claim.phase is not Phase.READY and claim.adopted is None):
        yield f"it is {claim.phase.value} and has not joined; wait for it, or end it with destroy.yml"
    elif listed is None or claim.instance_id not in listed.by_id:
        yield f"{claim.cloud} does not list {claim.instance_id}; the next reap.yml says what became of it"
    elif ours and (problem := situation.foreign(claim)):
        yield problem
    if claim.peer is not None:
        yield f"it reaches the cluster through the WireGuard hub {claim.peer.host}, which knows it from its claim alone"
    known = {claim.instance_id, *claim.rejects}
    others = (
        []
        if listed is None
        else [one for one in listed.all if one.id not in known and (one.id in claim.ids_seen or one.name == claim.name)]
    )
    if others:
        yield f"{claim.cloud} has another machine of its name ({others[0].id}); let reap.yml end it first"


def own_marks(node: Node, keys: t.Collection[str]) -> tuple[dict[str, str | None], dict[str, str | None], tuple[str, ...]]:
    """What is taken off the Node of a machine that is handed out: labels and annotations of ours, and the keys of our taints. ``keys``
    stay."""
    labels: dict[str, str | None] = {key: None for key in sorted(node.labels) if key.startswith(PREFIX) and key not in keys}
    annotations: dict[str, str | None] = {key: None for key in sorted(node.annotations) if key.startswith(PREFIX)}
    return labels, annotations, tuple(sorted({taint.key for taint in node.taints if taint.key.startswith(PREFIX)}))
