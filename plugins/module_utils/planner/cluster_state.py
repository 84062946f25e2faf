# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One observation, indexed: what belongs to which claim. Built once per plan; every lookup says None for "could not be read"."""

from __future__ import annotations

import collections
import dataclasses
import functools
import typing as t
from datetime import datetime, timedelta

from ..model import (
    Capability,
    Claim,
    CloudChoice,
    Device,
    Instance,
    InstanceState,
    Machine,
    Node,
    NodeClass,
    Observation,
    Offer,
    OffersNotRead,
    Phase,
    Pod,
    Pool,
    Specs,
)
from ..model.defaults import Settings
from ..model.labels import INSTANCE_ID_LABEL
from ..model.names import NO_NAMESPACE, label_value, pool_part
from ..units.values import print_time
from . import clock_skew
from .claims import record
from .claims.record import LIVE
from .disruption.schedule import floor_of_now, hours
from .garbage_collection.ownership import Owner, Ownership, Store, claimed, ids_of, owner_of, ownership_of
from .offers import launch_backoff
from .offers.account_volumes import Account
from .pauses import Pauses, sentence

CONFIRM_EMPTY: t.Final = 30  # seconds after which a list without our machines is read again before it is believed


class Situation:
    """The observation with specs, settings and capabilities of one run. ``claims`` are in the order of their names."""

    def __init__(self, seen: Observation, specs: Specs, settings: Settings, capabilities: t.Mapping[str, Capability]) -> None:
        self.seen = seen
        self.now: datetime = seen.now
        self.billed_now = clock_skew.corrected(seen.now, seen.clock_offset)  # by the clocks of those who write the bills
        self.specs = specs
        self.settings = settings
        self.capabilities = capabilities
        self.claims: tuple[Claim, ...] = tuple(sorted(seen.claims or (), key=lambda claim: claim.name))
        self._asked: set[str] = set()  # pools whose floor is a number of this run
        pools = (self._floored(floor_of_now(pool, seen.now)) for pool in specs.pools)
        self.pools: tuple[Pool, ...] = tuple(sorted(pools, key=lambda pool: (-pool.weight, pool.key)))
        self.damaged = {damaged.name: damaged for damaged in sorted(seen.damaged, key=lambda damaged: damaged.name)}
        held = (self._held(pool) for pool in specs.held)
        self.described: tuple[Pool, ...] = (*self.pools, *sorted(held, key=lambda pool: pool.key))
        self.pool_by_key = {pool.key: pool for pool in self.described}
        self._documents = {pool.key: pool for pool in specs.described}
        self.nodes: tuple[Node, ...] | None = None if seen.nodes is None else tuple(sorted(seen.nodes, key=lambda node: node.name))
        self.devices: tuple[Device, ...] | None = (
            None if seen.devices is None else tuple(sorted(seen.devices, key=lambda device: device.id))
        )

    def offers(self, cloud: str) -> tuple[Offer, ...] | None:
        """What the cloud offers, None when that could not be read. OffersNotRead when nobody asked."""
        if not self.seen.offers_read:
            raise OffersNotRead
        return self.seen.clouds[cloud].offers

    @property
    def volumes(self) -> Account:
        """The volumes of each cloud's account, where a class wants some."""
        return {cloud: view.volumes for cloud, view in self.seen.clouds.items()}

    def imageless(self, node_class: NodeClass) -> dict[str, str]:
        """Why machines of lane talos have no image to boot, by cloud (L-56): what this run has found, else what an earlier one has."""
        blocks = {} if self.settings.ignore_blocklist else self.seen.blocks
        found = launch_backoff.words_of_images(node_class, blocks, self.seen.block_words, self.now)
        return found | {cloud: why for (name, cloud), why in self.specs.imageless.items() if name == node_class.name}

    @property
    def extended(self) -> frozenset[str]:
        """Extended resources that DRA drivers serve."""
        return frozenset() if self.seen.dynamic is None else self.seen.dynamic.extended

    # ---- documents

    @functools.cached_property
    def pauses(self) -> Pauses:
        """Those of the record and those of annotations."""
        return Pauses((*self.seen.pauses, *self.specs.pauses), self.described)

    def paused(self, pool: str, node_class: str) -> str:
        """Why nothing is launched or ended of a pool (L-31), by its key and its class; empty when it is not paused."""
        pause = self.pauses.of(pool, node_class)
        return "" if pause is None else sentence(pause)

    def paused_name(self, name: str) -> str:
        """The same for a thing of ours without a claim."""
        pause = self.pauses.of_name(name)
        return "" if pause is None else sentence(pause)

    def _floored(self, pool: Pool) -> Pool:
        """In mode everything a number that the run was given is a floor, too: one plan must not end what it wants (L-29)."""
        asked = self.specs.nodes.get(pool.key, 0) if self.settings.mode == "everything" and not pool.request else 0
        if asked <= pool.min_nodes or pool.replicas is not None or hours(pool, self.now).closed:
            return pool
        self._asked.add(pool.key)
        return dataclasses.replace(pool, min_nodes=asked)

    def floor_words(self, pool: Pool) -> str:
        """What says how many machines of the pool stay although they are idle, and how many."""
        if pool.replicas is not None:
            return f"replicas {pool.replicas}"
        return f"{'nodes' if pool.key in self._asked else 'minNodes'} {pool.min_nodes}"

    def _held(self, pool: Pool) -> Pool:
        """A pool that may not launch; one that is being deleted keeps no machine either."""
        floored = floor_of_now(pool, self.now)
        return dataclasses.replace(floored, min_nodes=0, replicas=None) if pool.key in self.specs.deleted else floored

    def pool(self, claim: Claim) -> Pool | None:
        """What the claim's document says now; None when it is absent or faulty."""
        return self.pool_by_key.get(claim.pool)

    def documented(self, claim: Claim) -> Claim:
        """The claim with what its valid document says, whatever the hour."""
        document = self._documents.get(claim.pool) or self._named_as(claim)
        if document is None:
            return claim
        if document.key != claim.pool:
            claim = dataclasses.replace(claim, pool=document.key, node_class=claim.node_class or document.node_class)
        return record.follow(claim, document, self.node_class(claim))

    def _named_as(self, claim: Claim) -> Pool | None:
        """The document of a machine that was adopted while none described its pool: the only one of that name."""
        namespace, _slash, name = claim.pool.partition("/")
        if namespace != NO_NAMESPACE:
            return None
        pools = [pool for pool in self._documents.values() if name in (pool.name, pool_part(pool.name))]
        return pools[0] if len(pools) == 1 else None

    def in_force(self, claim: Claim) -> Pool | None:
        """What holds for the claim's machine (L-25): its document, else what the claim remembers of it; None = neither."""
        pool = self.pool(claim)
        remembered = record.remembered(claim) if pool is None else None
        if remembered is None:
            return pool
        floored = floor_of_now(remembered, self.now)
        gone = claim.document_gone_since is not None  # and asks for no machine any more
        return dataclasses.replace(floored, min_nodes=0, replicas=None) if gone else floored

    def node_class(self, claim: Claim) -> NodeClass | None:
        return self.specs.classes.get(claim.node_class)

    def capability(self, claim: Claim) -> Capability | None:
        return self.capabilities.get(claim.cloud)

    def rented(self, cloud: str) -> bool:
        """False for own machines, which exist whether we use them or not."""
        return cloud not in self.capabilities or self.capabilities[cloud].rented

    @functools.cached_property
    def machines(self) -> dict[str, Machine]:
        """Own machines of all classes by name."""
        machines: dict[str, Machine] = {}
        for node_class in self.specs.classes.values():
            for choice in node_class.clouds:
                machines.update({machine.name: machine for machine in choice.machines})
        return machines

    def choices(self, cloud: str) -> t.Iterator[CloudChoice]:
        """Every class's entry for a cloud."""
        for node_class in self.specs.classes.values():
            yield from (choice for choice in node_class.clouds if choice.cloud == cloud)

    # ---- clouds

    @functools.cached_property
    def _instances(self) -> dict[str, Instances]:
        """Usable lists only. An own machine that is switched off counts as not there."""
        by_cloud = {}
        for cloud, view in self.seen.clouds.items():
            if view.instances is not None:
                rented = self.rented(cloud)
                there = [instance for instance in view.instances if rented or instance.state is not InstanceState.STOPPED]
                by_cloud[cloud] = Instances(
                    there, {instance.id for instance in there if self.ownership(instance) is not Ownership.OURS} if rented else ()
                )
        return by_cloud

    def instances(self, cloud: str) -> Instances | None:
        """The machines of a cloud that exist, None when the list could not be read or was not asked for."""
        return self._instances.get(cloud)

    def listed(self) -> t.Iterator[Instance]:
        """Every machine of every cloud that could be listed."""
        for cloud in sorted(self._instances):
            yield from self._instances[cloud].all

    @functools.cached_property
    def names_in_use(self) -> frozenset[str]:
        """Names of listed machines to which a Service or a mesh device of that name may belong: of all but those with another cluster's
        stamp, and of those that were handed out."""
        listed = frozenset(instance.name for instance in self.listed() if not self.owner(instance).cluster)
        return listed | self.released_names

    @functools.cached_property
    def released_names(self) -> frozenset[str]:
        """Names under which machines were ours that were handed out (L-48); their Nodes and devices still have them."""
        return frozenset(released.name for released in self.seen.released)

    @property
    def unlisted(self) -> tuple[str, ...]:
        """Clouds whose machines could not be listed."""
        return tuple(sorted(cloud for cloud, view in self.seen.clouds.items() if view.instances is None))

    def doubtful(self, cloud: str) -> bool:
        """True for a list that shows none of our machines although the last run saw some of them there: that it is really empty has to be
        said once more, by a list of half a minute later. Claims tell what was seen: a machine that was missing in an earlier run is
        marked so."""
        listed = self.instances(cloud)
        if listed is None or not self.rented(cloud) or any(self.ownership(instance) is Ownership.OURS for instance in listed.all):
            return False
        recent = timedelta(seconds=CONFIRM_EMPTY)
        claims = [claim for claim in self.claims if claim.cloud == cloud and claim.instance_id and claim.phase in LIVE]
        return any(claim.gone_since is None or self.now - claim.gone_since < recent for claim in claims)

    def is_ours(self, name: str) -> Ownership:
        """Whose a thing is that can carry no more than a name: a Node, a mesh device, a key. Machines: ``owner``."""
        return ownership_of(name, self.seen.cluster_id)

    @functools.cached_property
    def store(self) -> Store:
        """The identity of the record store that this run works with."""
        return Store(self.seen.cluster_id, self.seen.generations, claimed(self.claims), ids_of(self.seen.released))

    def owner(self, instance: Instance) -> Owner:
        """Whose a machine is, and why (L-1a)."""
        return owner_of(instance, self.capabilities.get(instance.cloud), self.store)

    def ownership(self, instance: Instance) -> Ownership:
        return self.owner(instance).ownership

    def foreign(self, claim: Claim) -> str:
        """The problem with a claim whose machine is not ours; empty when it is, or is not listed."""
        listed = self._instances.get(claim.cloud)
        if listed is None or claim.instance_id not in listed.foreign:
            return ""
        return (
            f"{claim.name}: {claim.cloud} {claim.instance_id} {self.owner(listed.by_id[claim.instance_id]).why}, so nothing is done "
            f"about it. {self._remedy(listed.by_id[claim.instance_id], claim)}"
        )

    def _remedy(self, instance: Instance, claim: Claim) -> str:
        if (instance.cloud, instance.id) in self.store.released:
            return f"Its release was cut off: run release.yml -e tgp_machine={claim.name} again."
        return "If another cluster runs it, remove this claim; if it is yours, run adopt.yml."

    def elsewhere(self, claim: Claim) -> tuple[Instance, ...]:
        """Machines of the claim's name at other clouds than its own: made by a create call there that had been given up as lost."""
        others = (self._instances[cloud] for cloud in sorted(self._instances) if cloud != claim.cloud and self.rented(cloud))
        return tuple(
            instance
            for listed in others
            for instance in listed.by_name.get(claim.name, ())
            if self.ownership(instance) is Ownership.OURS
        )

    # ---- cluster and mesh

    @functools.cached_property
    def nodes_by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes or ()}

    @functools.cached_property
    def _nodes_by_instance(self) -> dict[str, Node]:
        return {node.labels[INSTANCE_ID_LABEL]: node for node in self.nodes or () if node.labels.get(INSTANCE_ID_LABEL)}

    def node(self, claim: Claim) -> Node | None:
        """The claim's Node; None also when Nodes could not be read (see ``nodes``)."""
        named = self.nodes_by_name.get(claim.node_name or claim.name)
        if named is not None or not claim.instance_id:
            return named
        return self._nodes_by_instance.get(label_value(claim.instance_id))

    @functools.cached_property
    def pods_by_node(self) -> dict[str, list[Pod]]:
        """Pods by the node they run on or are nominated to, in a fixed order."""
        by_node: dict[str, list[Pod]] = collections.defaultdict(list)
        for pod in self.seen.pods or ():
            place = pod.node or pod.nominated_node
            if place:
                by_node[place].append(pod)
        for pods in by_node.values():
            pods.sort(key=lambda pod: (pod.namespace, pod.name, pod.uid))
        return by_node

    def pods(self, node: Node) -> t.Sequence[Pod] | None:
        return None if self.seen.pods is None else self.pods_by_node.get(node.name, ())

    @functools.cached_property
    def avoiding(self) -> tuple[Pod, ...]:
        """Pods that stand somewhere and keep others away from more than their own node."""
        return tuple(
            pod for pod in self.seen.pods or () if (pod.placement.avoids or pod.placement.apart) and pod.node and not pod.ended
        )

    @functools.cached_property
    def _devices_by_hostname(self) -> dict[str, list[Device]]:
        devices: dict[str, list[Device]] = collections.defaultdict(list)
        for device in self.devices or ():
            devices[device.hostname].append(device)
        return devices

    def device(self, claim: Claim) -> Device | None:
        """The claim's mesh device: by its id, else the newest of its host name that was not made before the claim."""
        named = self._devices_by_hostname.get(claim.name, [])
        device = next((candidate for candidate in named if candidate.id == claim.mesh_device_id), None)
        if device is not None:
            return device
        fresh = [device for device in named if device.created is None or device.created >= claim.created]
        return max(fresh, key=lambda device: (device.created is not None, device.created or self.now, device.id), default=None)

    def in_mesh(self, name: str) -> bool | None:
        """Whether any device of this host name is online; None when the mesh could not be read, or does not say."""
        if self.devices is None:
            return None
        words = {device.online for device in self._devices_by_hostname.get(name, ())}
        return True if True in words else None if None in words else False

    @functools.cached_property
    def taken_names(self) -> set[str]:
        """Every name that a new machine must not get."""
        names = {claim.name for claim in self.claims} | set(self.damaged) | set(self.nodes_by_name) | set(self._devices_by_hostname)
        names |= {device.name.partition(".")[0] for device in self.devices or ()}
        return names | {instance.name for view in self.seen.clouds.values() for instance in view.instances or ()}


# ---- what a run does with a claim it finds: there is no separate path for crashes (L-2)

UNKNOWN_WINDOW: t.Final = 600  # seconds after a create call without an answer in which its machine may still be listed (L-2)
RETRY = ("launch", "next_offer")  # what is to be done with a claim whose create call certainly made nothing


@dataclasses.dataclass(frozen=True, slots=True)
class Recovery:
    """``what`` to do: launch (send the create call), wait (its outcome is still open), next_offer (it certainly made nothing), adopt
    (the machine is there, its id is not in the claim yet), go_on (known and there), missing (known, but not listed), teardown (being
    deleted or failed), unknown (the cloud's list could not be read, or the machine that the claim knows is foreign).

    ``instance`` is the claim's machine; ``duplicates`` are others of its name, or left behind by refused calls, to be destroyed.
    """

    what: str
    why: str
    instance: Instance | None = None
    duplicates: tuple[Instance, ...] = ()


class Instances:
    """One cloud's usable list, found by id and by name. Machines that are gone are left out. ``foreign``: ids that are not ours."""

    def __init__(self, instances: t.Iterable[Instance], foreign: t.Collection[str] = ()) -> None:
        self.foreign = frozenset(foreign)
        self.all = tuple(sorted((instance for instance in instances if not instance.gone), key=lambda instance: instance.id))
        self.by_id = {instance.id: instance for instance in self.all}
        self.by_name: dict[str, list[Instance]] = collections.defaultdict(list)
        for instance in self.all:
            self.by_name[instance.name].append(instance)

    def of(self, claim: Claim) -> tuple[Instance, ...]:
        """Every machine of the claim, the one to keep first: the one whose id it knows, else the oldest. Foreign ones are none of it."""
        instances = {instance.id: instance for instance in self.by_name.get(claim.name, ())}
        for instance_id in (claim.instance_id, *claim.ids_seen):
            if instance_id in self.by_id:
                instances[instance_id] = self.by_id[instance_id]
        for foreign in self.foreign & instances.keys():
            del instances[foreign]
        return tuple(
            sorted(instances.values(), key=lambda instance: (instance.id != claim.instance_id, _age(instance), instance.id))
        )


def recovery(claim: Claim, instances: Instances | t.Sequence[Instance] | None, now: datetime) -> Recovery:
    """What to do with ``claim``. ``instances``: its cloud's complete list, None = could not be read."""
    ending = claim.phase in (Phase.TERMINATING, Phase.FAILED)
    reason = claim.deletion.reason if claim.deletion else claim.phase.value
    if instances is None:
        return Recovery("teardown" if ending else "unknown", f"the machines of {claim.cloud} could not be listed")
    listed = instances if isinstance(instances, Instances) else Instances(instances)
    if claim.instance_id in listed.foreign:
        return Recovery("unknown", f"{claim.cloud} {claim.instance_id} is not ours")
    everything = listed.of(claim)
    present = tuple(instance for instance in everything if instance.id not in claim.rejects)
    left = tuple(instance for instance in everything if instance.id in claim.rejects)
    if ending:
        return Recovery("teardown", reason, present[0] if present else None, (*present[1:], *left))
    if present:
        return _found(claim, present, left)
    if claim.instance_id:
        return Recovery("missing", f"{claim.cloud} does not list {claim.instance_id}")
    if claim.launch_started is None:
        return Recovery("launch", "no create call was sent", duplicates=left)
    if claim.attempts and claim.attempts[-1].result == "refused" and claim.attempts[-1].instance_id:
        return Recovery("launch", f"the refused call left {claim.attempts[-1].instance_id}, which goes first", duplicates=left)
    since = claim.unknown_since or claim.launch_started
    until = since + timedelta(seconds=UNKNOWN_WINDOW)
    if now < until:
        return Recovery("wait", f"the create call may still show its effect; waiting until {print_time(until)}")
    return Recovery("next_offer", f"no machine appeared since {print_time(since)}")


def _found(claim: Claim, instances: tuple[Instance, ...], left: tuple[Instance, ...]) -> Recovery:
    keep, *others = (*instances, *left)
    if keep.id == claim.instance_id:
        return Recovery("go_on", f"{claim.cloud} says {keep.state.value}", keep, tuple(others))
    return Recovery("adopt", f"{claim.cloud} lists {keep.id} under this name", keep, tuple(others))


def _age(instance: Instance) -> tuple[bool, float]:
    """Oldest first; unknown ages last."""
    return (instance.created is None, instance.created.timestamp() if instance.created else 0.0)
