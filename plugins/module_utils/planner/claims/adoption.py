# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A claim for a machine of ours that has none (its record was lost): made from what the cloud and the Node say."""

from __future__ import annotations

import dataclasses
import typing as t
from decimal import Decimal

from ...model import Claim, Instance, Lane, Node, Offer, Phase, Pool
from ...model.claims import ADOPTED
from ...model.labels import (
    GPU_COUNT_LABEL,
    GPU_MEMORY_LABEL,
    GPU_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    NODECLASS_LABEL,
    NODEPOOL_LABEL,
    REGION_LABEL,
    SPOT_LABEL,
    TOPOLOGY_REGION_LABEL,
)
from ...model.names import NO_NAMESPACE, pool_of, pool_part
from ..cluster_state import Situation
from ..offers import gpu_models
from ..provisioning import service
from ..provisioning.registration import not_initialized
from ..scheduling.capacity import planned_gpus
from .record import advance


def adopt(instance: Instance, node: Node | None, situation: Situation) -> Claim:
    """The claim as it would be, had it not been lost. Pool and class come from the Node's labels, else from the name; what the cloud does
    not say of the machine, or in words of its own, comes from the labels too, so that those of a node in use stay as they are."""
    labels = node.labels if node is not None else {}
    origin = _origin(instance, labels, situation)
    capability = situation.capabilities.get(instance.cloud)
    offer = offer_of(instance, labels)
    started = instance.created or (node.created if node else situation.now)
    claim = Claim(
        name=instance.name,
        pool=origin.key,
        node_class=origin.node_class,
        cloud=instance.cloud,
        lane=capability.lanes[0] if capability and capability.lanes else Lane.KUBELET,
        phase=Phase.JOINING,
        phase_since=situation.now,
        created=started,
        offer=offer,
        reserved_price=instance.price_hour or Decimal(0),
        expected_gpus=planned_gpus(offer, origin.pool),
        launch_started=started,
        instance_id=instance.id,
        ids_seen=(instance.id,),
        price_paid=instance.price_hour,
        ip=instance.ip,
        node_name=node.name if node else instance.name,
        node_uid=node.uid if node else "",
        registered=node.created if node else None,
        history=((situation.now, Phase.JOINING.value, f"{ADOPTED} the machine had no claim"),),
    )
    if node is None and origin.pool is not None and origin.pool.service is not None:
        return service.adopted(situation.documented(claim), situation)
    return _ready(situation.documented(claim), node, situation)


@dataclasses.dataclass(frozen=True, slots=True)
class _Origin:
    """What the machine was made for. ``pool`` is None where no document, or more than one, can be meant; ``key`` names it all the same."""

    pool: Pool | None
    key: str
    node_class: str


def _origin(instance: Instance, labels: t.Mapping[str, str], situation: Situation) -> _Origin:
    labelled = labels.get(NODEPOOL_LABEL, "")
    name = labelled or pool_of(instance.name)
    described = [pool for pool in situation.described if (pool.name if labelled else pool_part(pool.name)) == name]
    pool = described[0] if len(described) == 1 else None
    # of one name in two namespaces: its class's limits may be known all the same
    classes = {candidate.node_class for candidate in described}
    node_class = labels.get(NODECLASS_LABEL) or (classes.pop() if len(classes) == 1 else "")
    return _Origin(pool, pool.key if pool else f"{NO_NAMESPACE}/{name or NO_NAMESPACE}", node_class)


def offer_of(instance: Instance, labels: t.Mapping[str, str]) -> Offer:
    """What was rented, as the cloud tells it of the machine, else as the labels do."""
    model = instance.model or labels.get(GPU_TYPE_LABEL, "")
    return Offer(
        cloud=instance.cloud,
        id=instance.instance_type or instance.id,
        instance_type=instance.instance_type or labels.get(INSTANCE_TYPE_LABEL, ""),
        model=model,
        gpu_count=instance.gpu_count if instance.gpu_count is not None else _number(labels.get(GPU_COUNT_LABEL)),
        price_hour=instance.price_hour,
        region=labels.get(REGION_LABEL) or instance.region,
        cloud_region=instance.region or labels.get(TOPOLOGY_REGION_LABEL, ""),
        gpu_memory_mib=_number(labels.get(GPU_MEMORY_LABEL)) or gpu_models.memory_mib(model),
        spot=labels.get(SPOT_LABEL) == "true" if instance.spot is None else instance.spot,
        host_id=instance.host_id,
        storage_price_hour=instance.storage_price_hour,
    )


def _ready(claim: Claim, node: Node | None, situation: Situation) -> Claim:
    if node is None or not_initialized(claim, node, situation.pool(claim)):
        return claim
    ready = dataclasses.replace(claim, initialized=situation.now)
    return advance(ready, Phase.READY, situation.now, "initialized")


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0
