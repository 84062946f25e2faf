# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requirements on offers (L-13): the labels of an offer and the operators over them."""

from __future__ import annotations

import dataclasses
import functools
import typing as t
from decimal import Decimal, InvalidOperation

from ...model import NodeClass, Offer, OfferQuery, Requirement
from ...model.labels import (
    ARCH_LABEL,
    GPU_COUNT_LABEL,
    GPU_MEMORY_LABEL,
    GPU_TYPE_LABEL,
    INSTANCE_TYPE_LABEL,
    PROVIDER_LABEL,
    REGION_LABEL,
    RELIABILITY_LABEL,
    SPOT_LABEL,
    TOPOLOGY_REGION_LABEL,
)
from . import gpu_models
from .regions import region_matches

KEYS = (
    PROVIDER_LABEL,
    GPU_TYPE_LABEL,
    GPU_COUNT_LABEL,
    GPU_MEMORY_LABEL,
    REGION_LABEL,
    SPOT_LABEL,
    RELIABILITY_LABEL,
    TOPOLOGY_REGION_LABEL,
    INSTANCE_TYPE_LABEL,
    ARCH_LABEL,
)
SET_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
NUMBER_OPERATORS = ("Gt", "Lt", "Gte", "Lte")
OPERATORS = SET_OPERATORS + NUMBER_OPERATORS
WHOLE_KEYS = (GPU_COUNT_LABEL, GPU_MEMORY_LABEL)
NUMBER_KEYS = (*WHOLE_KEYS, RELIABILITY_LABEL)


def offer_labels(offer: Offer) -> dict[str, str]:
    """What requirements can be put on; what is unknown of the offer is absent."""
    labels = {
        PROVIDER_LABEL: offer.cloud,
        GPU_TYPE_LABEL: offer.model,
        GPU_COUNT_LABEL: str(offer.gpu_count),
        GPU_MEMORY_LABEL: "" if offer.gpu_memory_mib is None else str(offer.gpu_memory_mib),
        REGION_LABEL: offer.region,
        SPOT_LABEL: "true" if offer.spot else "false",
        RELIABILITY_LABEL: "" if offer.reliability is None else str(offer.reliability),
        TOPOLOGY_REGION_LABEL: offer.cloud_region,
        INSTANCE_TYPE_LABEL: offer.instance_type,
        ARCH_LABEL: offer.arch,
    }
    return {key: value for key, value in labels.items() if value}


def met(requirement: Requirement, offer: Offer) -> bool:
    """Whether the offer meets the requirement. NotIn and DoesNotExist are met by an absent label too, as in Kubernetes."""
    value = offer_labels(offer).get(requirement.key)
    match requirement.operator:
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "In":
            return value is not None and _in(requirement, offer, value)
        case "NotIn":
            return value is None or not _in(requirement, offer, value)
    return value is not None and len(requirement.values) == 1 and _compare(requirement.operator, value, requirement.values[0])


def _in(requirement: Requirement, offer: Offer, value: str) -> bool:
    if requirement.key == GPU_TYPE_LABEL:
        return any(is_offered(wish, offer) for wish in requirement.values)
    if requirement.key == REGION_LABEL:
        return any(region_matches(wish, offer.region, offer.cloud_region) for wish in requirement.values)
    return value in requirement.values


def is_offered(wish: str, offer: Offer) -> bool:
    """Whether the offer's card is what ``wish`` asks for. A size in the wish is not met by a card of which it is not known."""
    return is_model(wish, offer.model, offer.gpu_memory_mib or gpu_models.memory_mib(offer.model) or 0)


@functools.lru_cache(maxsize=4096)
def is_model(wish: str, model: str, memory_mib: int | None) -> bool:
    """Whether a card is what ``wish`` asks for, ``memory_mib`` None = of any size; remembered, because thousands of offers are of few
    models."""
    return gpu_models.matches(wish, model, memory_mib)


def _compare(operator: str, value: str, bound: str) -> bool:
    left, right = _number(value), _number(bound)
    if left is None or right is None:
        return False
    comparisons: dict[str, t.Callable[[], bool]] = {
        "Gt": lambda: left > right,
        "Lt": lambda: left < right,
        "Gte": lambda: left >= right,
        "Lte": lambda: left <= right,
    }
    return operator in comparisons and comparisons[operator]()


def _number(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


# ---- how large a disk a machine is rented with. A cloud is asked once for all pools, with the largest disk that one of them wants; the
# others shall not pay for it

_GIB, _GB = 2**30, 10**9
_EXACT = Decimal("0.000001")


def wanted_gib(node_class: NodeClass) -> int:
    """The disk that machines of the class get: what it asks for, and no less than system, driver and a few container images need."""
    return max(node_class.min_disk_gib or 0, OfferQuery().disk_gib)


def gigabytes(gib: int) -> int:
    """The least whole number of GB, as some clouds sell disks, that hold ``gib``."""
    return -(-gib * _GIB // _GB)


def gibibytes(gb: int) -> int:
    """The whole GiB that a disk of ``gb`` GB holds."""
    return gb * _GB // _GIB


def cut(offer: Offer, gib: int) -> Offer:
    """The offer with a disk of ``gib``, where its own is larger and is sold by the GB; every other as it is. Where prices are estimates,
    disks are sold in steps."""
    larger = offer.disk_gib is not None and offer.disk_gib > gib
    if not larger or not offer.storage_price_hour or offer.price_hour is None or offer.price_estimated:
        return offer
    disk = (offer.storage_price_hour * gigabytes(gib) / gigabytes(offer.disk_gib or 1)).quantize(_EXACT)
    price = offer.price_hour - offer.storage_price_hour + disk
    return dataclasses.replace(offer, disk_gib=gib, storage_price_hour=disk, price_hour=price)
