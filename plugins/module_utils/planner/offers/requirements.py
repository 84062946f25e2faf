# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requirements on offers (L-13): the labels of an offer and the operators over them."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re
import typing as t
from decimal import Decimal, InvalidOperation
from types import MappingProxyType

from ...model import NodeClass, Offer, OfferQuery, Quality, Requirement
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
        return any(is_offered(spec, offer) for spec in requirement.values)
    if requirement.key == REGION_LABEL:
        return any(region_matches(spec, offer.region, offer.cloud_region) for spec in requirement.values)
    return value in requirement.values


def is_offered(spec: str, offer: Offer) -> bool:
    """Whether the offer's card is what ``spec`` asks for. A size in the spec is not met by a card of which it is not known."""
    return is_model(spec, offer.model, offer.gpu_memory_mib or gpu_models.memory_mib(offer.model) or 0)


@functools.lru_cache(maxsize=4096)
def is_model(spec: str, model: str, memory_mib: int | None) -> bool:
    """Whether a card is what ``spec`` asks for, ``memory_mib`` None = of any size; remembered, because thousands of offers are of few
    models."""
    return gpu_models.matches(spec, model, memory_mib)


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


# ---- whether the host of an offer is as good as a class wants it (L-13). What nobody says of a host meets no spec

NOTHING = Quality()
VERIFIED, CUDA, BANDWIDTH, STATIC_IP, PORTS, DURATION = "verified", "cuda", "inet-down", "static-ip", "ports", "duration"


def good_enough(offer: Offer, wanted: Quality) -> bool:
    """True when the offer meets every spec."""
    return wanted == NOTHING or not unmet(offer, wanted)


def for_nodes(quality: Quality, wanted: Quality, usual: Quality) -> Quality:
    """What a host of a node must be at least: what the cloud's entry in the class says, else the class, else what is usual for the cloud.
    0 asks for nothing."""
    reliability = (quality.min_reliability, wanted.min_reliability, usual.min_reliability)
    bandwidth = (quality.min_bandwidth, wanted.min_bandwidth, usual.min_bandwidth)
    return Quality(
        min_reliability=next((minimum for minimum in reliability if minimum is not None), None) or None,
        min_bandwidth=next((minimum for minimum in bandwidth if minimum is not None), None) or None,
    )


def outlasts(offer: Offer, seconds: int | None) -> bool:
    """Whether the host still offers it for so long; also when that is not reported, or is unknown how long the machine will be wanted."""
    duration = _amount(offer.traits.get(DURATION))
    return seconds is None or duration is None or duration >= seconds


def unmet(offer: Offer, wanted: Quality) -> str:
    """The first spec that the offer does not meet, by its name in a document; empty when it meets all."""
    traits = offer.traits
    checks = (
        ("minReliability", _at_least(offer.reliability, wanted.min_reliability)),
        ("verified", not wanted.verified or traits.get(VERIFIED) == "true"),
        ("minCuda", not wanted.min_cuda or _not_older(traits.get(CUDA, ""), wanted.min_cuda)),
        ("minBandwidth", _at_least(_amount(traits.get(BANDWIDTH)), wanted.min_bandwidth)),
        ("staticIp", not wanted.static_ip or traits.get(STATIC_IP) == "true"),
        ("minPorts", _at_least(_amount(traits.get(PORTS)), wanted.min_ports)),
        ("minDuration", _at_least(_amount(traits.get(DURATION)), wanted.min_duration)),
    )
    return next((name for name, met in checks if not met), "")


def _at_least(value: Decimal | None, wanted: Decimal | int | None) -> bool:
    return wanted is None or (value is not None and value >= wanted)


def _amount(text: str | None) -> Decimal | None:
    try:
        number = Decimal(text or "")
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _not_older(version: str, wanted: str) -> bool:
    """12.10 is newer than 12.8."""
    actual = _version(version)
    return actual is not None and actual >= (_version(wanted) or ())


def _version(text: str) -> tuple[int, ...] | None:
    parts = text.split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else None


# ---- standard regions: one word for a part of the world, so that a spec can name a region without naming a cloud. Form:
# ``<area>-<part>``, areas us, eu, asia, me, australia; parts are compass points. A cloud's region without a standard word keeps its own.
# A spec may also say ``asia-pacific`` for Asia's east and south with Australia, and an area for all of its parts (``us``)

_AREAS = {"us": "us", "eu": "eu", "europe": "eu", "asia": "asia", "me": "me", "australia": "australia"}
_PARTS = "north|south|east|west|central|northeast|northwest|southeast|southwest"
_PACIFIC = ("asia-east", "asia-northeast", "asia-southeast", "asia-south", "australia")
_WORDS = frozenset(
    {*_AREAS.values(), "asia-pacific", *(f"{area}-{part}" for area in _AREAS.values() for part in _PARTS.split("|"))}
)
_END = re.compile(r"-?\d+$")
_NUMBERED = re.compile(rf"({'|'.join(_AREAS)})-({_PARTS})-?\d*")


def standard_region(cloud_region: str, named: t.Mapping[str, str] = MappingProxyType({})) -> str:
    """The standard region of a cloud's own one (``europe-central-1`` → ``eu-central``), else the cloud's own word. ``named``: what the
    cloud's own words (lower case) mean where they do not say it themselves."""
    own = cloud_region.strip().lower()
    if own in named:
        return named[own]
    numbered = _NUMBERED.fullmatch(own)
    return f"{_AREAS[numbered[1]]}-{numbered[2]}" if numbered else own


def region_matches(spec: str, region: str, cloud_region: str) -> bool:
    """Whether an offer in ``region`` (standard) and ``cloud_region`` (the cloud's word) is in the region ``spec``;
    case is ignored."""
    wanted = spec.strip().lower()
    if wanted == "asia-pacific" and region.lower().startswith(_PACIFIC):
        return True
    if wanted in _AREAS and region.lower().startswith(f"{_AREAS[wanted]}-"):
        return True  # an area is all of its parts
    return bool(wanted) and wanted in (region.lower(), cloud_region.strip().lower())


def misspelt_region(spec: str, regions: t.Iterable[str]) -> tuple[str, ...]:
    """The words that the spec resembles, the nearest first, at most two; none when it is a standard word, of a form that clouds use
    (``us-west-2``), or one of ``regions``: words of clouds, with or without a number at their end (``us-tx`` for ``us-tx-3``)."""
    cloud_words = {region.strip().lower() for region in regions} - {""}
    wanted = spec.strip().lower()
    if _NUMBERED.fullmatch(wanted) or {wanted, _END.sub("", wanted)} & (cloud_words | _WORDS):
        return ()
    words = sorted(cloud_words | _WORDS)
    near = difflib.get_close_matches(wanted, words, 2, 0.8) or difflib.get_close_matches(_END.sub("", wanted), words, 2, 0.8)
    return tuple(near)
