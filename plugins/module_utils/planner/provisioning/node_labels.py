# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The labels, taints and annotations our nodes carry (L-19), derived from the claim and its pool."""

from __future__ import annotations

from ...model import Claim, Node, Offer, Pool, Taint
from ...model.labels import (
    CLAIM_LABEL,
    CLUSTER_LABEL,
    CREATED_AT_ANNOTATION,
    EPHEMERAL_TAINT,
    GPU_COUNT_LABEL,
    GPU_MEMORY_LABEL,
    GPU_TYPE_LABEL,
    INITIALIZING_TAINT,
    INSTANCE_ID_LABEL,
    INSTANCE_TYPE_LABEL,
    NODECLASS_LABEL,
    NODEPOOL_LABEL,
    PRICE_HOUR_ANNOTATION,
    PROVIDER_LABEL,
    PROVISIONED_LABEL,
    REGION_LABEL,
    SPOT_LABEL,
    TOPOLOGY_REGION_LABEL,
)
from ...model.names import label_value

EPHEMERAL = Taint(EPHEMERAL_TAINT, "true", "NoSchedule")
INITIALIZING = Taint(INITIALIZING_TAINT, "", "NoSchedule")


def node_labels(claim: Claim, pool: Pool | None, cluster_id: str) -> dict[str, str]:
    """Labels a kubelet may set itself and we assert again after it joined. The instance id is not known before the launch."""
    marks = offer_labels(claim.offer, claim.cloud, claim.pool, claim.node_class, cluster_id)
    if claim.instance_id:
        marks[INSTANCE_ID_LABEL] = label_value(claim.instance_id)
    return {**marks, **(dict(pool.labels) if pool else {})}


def asserted_labels(claim: Claim, pool: Pool | None, cluster_id: str, node: Node | None) -> dict[str, str]:
    """What a node has to carry after it joined. Its instance type is the one that it came with, which a template may choose (S0-25)."""
    wanted = node_labels(claim, pool, cluster_id)
    if node is not None and node.labels.get(INSTANCE_TYPE_LABEL) and INSTANCE_TYPE_LABEL not in (pool.labels if pool else {}):
        wanted.pop(INSTANCE_TYPE_LABEL, None)
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
        REGION_LABEL: label_value(offer.region),
        SPOT_LABEL: "true" if offer.spot else "false",
        INSTANCE_TYPE_LABEL: label_value(offer.instance_type),
        TOPOLOGY_REGION_LABEL: label_value(offer.cloud_region or offer.region),
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
