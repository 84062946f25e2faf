# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What room a machine has for pods: seen (a Ready Node), or planned (a machine on its way, an offer)."""

from __future__ import annotations

import typing as t
from decimal import Decimal

from ...model import Claim, Node, NodeClass, Offer, Pod, Pool, Taint
from ...model.devices import DeviceRoom
from ...model.labels import (
    ARCH_LABEL,
    BETA_ARCH_LABEL,
    BETA_OS_LABEL,
    CLAIM_LABEL,
    CLUSTER_LABEL,
    CREATED_AT_ANNOTATION,
    DISRUPTED_TAINT,
    EPHEMERAL_TAINT,
    GPU_COUNT_LABEL,
    GPU_MEMORY_LABEL,
    GPU_PRESENT_LABEL,
    GPU_TYPE_LABEL,
    INITIALIZING_TAINT,
    INSTANCE_ID_LABEL,
    INSTANCE_TYPE_LABEL,
    NODECLASS_LABEL,
    NODEPOOL_LABEL,
    OS_LABEL,
    PRICE_HOUR_ANNOTATION,
    PROVIDER_LABEL,
    PROVISIONED_LABEL,
    REGION_LABEL,
    SPOT_LABEL,
    TOPOLOGY_REGION_LABEL,
    TOPOLOGY_ZONE_LABEL,
)
from ...model.names import label_value
from ...model.resources import NEUTRAL_GPU, NVIDIA_GPU
from ..offers import mig_profiles
from ..offers.gpu_attributes import planned_devices
from ..provisioning import limits
from .binpacking import Bin
from .node_affinity import KEEPS_OFF

CPU, MEMORY, DISK = "cpu", "memory", "ephemeral-storage"
_MIB = 1024 * 1024
CAPACITY_RESERVE: t.Final = Decimal("0.1")  # the share of cpu, memory and disk of an offer that the system takes (L-17)


def gpu_resource(model: str, pool: Pool | None) -> str:
    """The resource under which a machine of the pool will offer its GPUs."""
    name = limits.gpu_resource(model)
    return f"{name}.shared" if pool is not None and pool.slices_renamed else name


def planned_gpus(offer: Offer, pool: Pool | None) -> int:
    """How many GPUs, or parts of GPUs (slices, MIG instances), must become allocatable."""
    return sum(planned_resources(offer, pool).values())


def planned_resources(offer: Offer, pool: Pool | None) -> dict[str, int]:
    """What a device plugin will offer of the machine's GPUs: resource to amount."""
    if pool is not None and pool.mig:
        return {mig_profiles.resource(profile): offer.gpu_count * number for profile, number in pool.mig}
    return {gpu_resource(offer.model, pool): offer.gpu_count * (pool.slices if pool is not None else 1)}


def advertised(claim: Claim, pool: Pool | None) -> int:
    """How many ``tgp.io/gpu`` the claim's Node offers: as many as pods can ask of the vendor's resource, so that a pod may ask for both. None
    where a DRA driver hands GPUs out: it would not know of a pod that asks for this name alone. None where MIG divides them: a part is no
    GPU."""
    if pool is not None and (pool.dra_driver or pool.mig):
        return 0
    return max(claim.expected_gpus, planned_gpus(claim.offer, pool))


def mps_clients(pool: Pool | None) -> int:
    """How many pods share each GPU of the pool by MPS; 0 = it shares none so."""
    return pool.slices if pool is not None and pool.mps else 0


def of_node(
    node: Node, pods: t.Iterable[Pod], *, pool: str = "", gpu_memory_mib: int | None = None, spec: Pool | None = None
) -> Bin:
    """The room a Node has now: what is allocatable less what its unfinished pods were promised. ``pods`` are those bound to it; ``spec`` is
    the pool's document, where it is known.

    The room is as true as the pods' requests are complete: without their cpu and memory only the GPUs are.
    """
    free: dict[str, int | None] = dict(node.allocatable)
    bound = tuple(pod for pod in pods if pod.node == node.name and not pod.ended)
    for pod in bound:
        for name, amount in pod.requests.items():
            free[name] = (free.get(name) or 0) - amount
    if node.devices is not None:
        free[NVIDIA_GPU] = (free.get(NVIDIA_GPU) or 0) - node.devices.held
    label = node.labels.get(GPU_MEMORY_LABEL, "")
    memory = int(label) if label.isdigit() else gpu_memory_mib
    return Bin(
        node.name,
        free,
        node.labels,
        node.taints,
        pool=pool,
        gpu_memory_mib=memory,
        pods=bound,
        node=node.name,
        devices=node.devices,
        clients=mps_clients(spec),
    )


def of_claim(claim: Claim, pool: Pool | None, cluster_id: str, rented: bool) -> Bin:
    """The room that a machine on its way will have, by its offer. What is unknown does not count against it."""
    labels = {**node_labels(claim, pool, cluster_id), **_system_labels(claim.offer)}
    free = _planned(claim.offer, pool, None)
    if pool is None or not pool.mig:
        free[gpu_resource(claim.offer.model, pool)] = max(claim.expected_gpus, planned_gpus(claim.offer, pool))
    if offered := advertised(claim, pool):
        free[NEUTRAL_GPU] = offered
    return Bin(
        claim.name,
        free,
        labels,
        taints(pool),
        pool=claim.pool,
        gpu_memory_mib=claim.offer.gpu_memory_mib,
        node="" if rented else claim.node_name,
        devices=_devices(claim.offer, pool),
        clients=mps_clients(pool),
    )


def of_offer(offer: Offer, pool: Pool, node_class: NodeClass, cluster_id: str, rented: bool) -> Bin:
    """The room a machine rented for the pool would have. What an own machine does not declare does not count against it."""
    labels = offer_labels(offer, offer.cloud, pool.key, node_class.name, cluster_id)
    return Bin(
        offer.id,
        _planned(offer, pool, 0 if rented else None),
        {**labels, **pool.labels, **_system_labels(offer)},
        taints(pool),
        pool=pool.key,
        gpu_memory_mib=offer.gpu_memory_mib,
        node="" if rented else offer.id,
        devices=_devices(offer, pool),
        clients=mps_clients(pool),
    )


def _devices(offer: Offer, pool: Pool | None) -> DeviceRoom | None:
    """What the DRA driver of the pool will offer on a machine, as far as its offer tells."""
    if pool is None or not pool.dra_driver or limits.gpu_resource(offer.model) != NVIDIA_GPU:
        return None
    return DeviceRoom(planned_devices(offer.model, offer.gpu_memory_mib), offer.gpu_count)


def _planned(offer: Offer, pool: Pool | None, unknown: int | None) -> dict[str, int | None]:
    """cpu in thousandths, memory in bytes, less what the system takes; GPUs whole."""
    share = 1 - CAPACITY_RESERVE
    return {
        CPU: unknown if offer.vcpus is None else int(Decimal(offer.vcpus * 1000) * share),
        MEMORY: unknown if offer.memory_mib is None else int(Decimal(offer.memory_mib * _MIB) * share),
        DISK: None if offer.disk_gib is None else int(Decimal(offer.disk_gib * 1024 * _MIB) * share),
        **planned_resources(offer, pool),
        **({NEUTRAL_GPU: planned_gpus(offer, pool)} if pool is None or not (pool.dra_driver or pool.mig) else {}),
    }


def _system_labels(offer: Offer) -> dict[str, str]:
    """Labels that every kubelet sets."""
    return {
        OS_LABEL: "linux",
        ARCH_LABEL: offer.arch,
        BETA_OS_LABEL: "linux",
        BETA_ARCH_LABEL: offer.arch,
    }


def blocking(node: Node, ignored: t.Container[str] = ()) -> bool:
    """Whether nothing new may go to the Node: it is cordoned, not Ready, or being taken down. ``ignored``: taint keys that do not count."""
    down = any(taint.key == DISRUPTED_TAINT and taint.effect in KEEPS_OFF and taint.key not in ignored for taint in node.taints)
    return node.unschedulable or not node.ready or down


# ---- the labels, taints and annotations our nodes carry (L-19), derived from the claim and its pool

EPHEMERAL = Taint(EPHEMERAL_TAINT, "true", "NoSchedule")
INITIALIZING = Taint(INITIALIZING_TAINT, "", "NoSchedule")


def node_labels(claim: Claim, pool: Pool | None, cluster_id: str) -> dict[str, str]:
    """Labels a kubelet may set itself and we assert again after it joined. The instance id is not known before the launch."""
    marks = offer_labels(claim.offer, claim.cloud, claim.pool, claim.node_class, cluster_id)
    if claim.instance_id:
        marks[INSTANCE_ID_LABEL] = label_value(claim.instance_id)
    return {**marks, **(dict(pool.labels) if pool else {})}


def asserted_labels(claim: Claim, pool: Pool | None, cluster_id: str, node: Node | None) -> dict[str, str]:
    """What a node has to carry after it joined. Its instance type is the one that it came with, which a template may choose (S0-25); so is
    its zone, which may be known better elsewhere."""
    wanted = node_labels(claim, pool, cluster_id)
    for key in (INSTANCE_TYPE_LABEL, TOPOLOGY_ZONE_LABEL):
        if node is not None and node.labels.get(key) and key not in (pool.labels if pool else {}):
            wanted.pop(key, None)
    return wanted


def offer_labels(offer: Offer, cloud: str, pool: str, node_class: str, cluster_id: str) -> dict[str, str]:
    """The labels that are known of a machine before it is rented, without those that a pool's document brings along."""
    marks = {
        NODEPOOL_LABEL: label_value(pool.partition("/")[2]),
        NODECLASS_LABEL: label_value(node_class),
        PROVIDER_LABEL: label_value(cloud),
        PROVISIONED_LABEL: "true",
        CLUSTER_LABEL: cluster_id,
        GPU_TYPE_LABEL: label_value(offer.model),
        GPU_COUNT_LABEL: str(offer.gpu_count),
        GPU_MEMORY_LABEL: str(offer.gpu_memory_mib) if offer.gpu_memory_mib else "",
        GPU_PRESENT_LABEL: "true" if offer.gpu_count and limits.gpu_resource(offer.model) == NVIDIA_GPU else "",
        REGION_LABEL: label_value(offer.region),
        SPOT_LABEL: "true" if offer.spot else "false",
        INSTANCE_TYPE_LABEL: label_value(offer.instance_type),
        TOPOLOGY_REGION_LABEL: label_value(offer.cloud_region or offer.region),
        TOPOLOGY_ZONE_LABEL: label_value(offer.cloud_region or offer.region),  # no cloud here has zones below its regions
    }
    return {key: value for key, value in marks.items() if value}


def node_annotations(claim: Claim, pool: Pool | None) -> dict[str, str]:
    """Annotations we own. Full texts stand here where a label had to be shortened."""
    marks = {
        INSTANCE_ID_LABEL: claim.instance_id,
        PRICE_HOUR_ANNOTATION: str(claim.price),
        CREATED_AT_ANNOTATION: claim.created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        CLAIM_LABEL: claim.name,
    }
    return {**{key: value for key, value in marks.items() if value}, **(dict(pool.annotations) if pool else {})}


def taints(pool: Pool | None) -> tuple[Taint, ...]:
    """Taints that stay: the pool's, and tgp.io/ephemeral unless the pool itself names that key."""
    own: tuple[Taint, ...] = pool.taints if pool else ()
    return own if any(taint.key == EPHEMERAL.key for taint in own) else (*own, EPHEMERAL)


def startup_taints(pool: Pool | None) -> tuple[Taint, ...]:
    """Taints that must be gone before the node counts as initialized; ours is removed by us, the pool's by whoever set them."""
    return (*(pool.startup_taints if pool else ()), INITIALIZING)


def keys_of(pool: Pool | None) -> frozenset[str]:
    """The label, annotation and taint keys that the pool's document brings along; they are ours to set on its nodes."""
    if pool is None:
        return frozenset()
    return frozenset((*pool.labels, *pool.annotations, *(taint.key for taint in (*pool.taints, *pool.startup_taints))))
