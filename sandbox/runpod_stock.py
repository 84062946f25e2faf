# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RunPod's stock: what a scenario puts on its shelves, and what is left of it.

An :class:`Offer` here is a shelf: ``stock`` GPUs of one type, tier and data centre, its price that of one GPU. A pod takes ``count`` of
them from one shelf (they stand in one machine) and carries an offer of its own, priced as a whole. What is free is counted from the pods
that live, so that a stopped pod gives its GPUs back.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t
from decimal import Decimal, InvalidOperation

from .runpod_types import COMMUNITY, CUDA_VERSIONS, DATA_CENTERS, GPUS, SECURE
from .world import Machine, Offer, World

CLOUD = "runpod"
GONE = frozenset({"terminating", "terminated", "preempted"})
TIMINGS = ("mesh", "ready")
SCENARIO_KEYS = (
    "type",
    "region",
    "tier",
    "stock",
    "price",
    "bills",
    "boot",
    "cuda",
    "most",
    "ram_per_gpu",
    "vcpus_per_gpu",
    *TIMINGS,
)
"""What an entry of a scenario's ``runpod`` list may hold; see :func:`runpod_offer`."""


def runpod_offer(entry: t.Mapping[str, t.Any]) -> Offer:
    """A shelf from a scenario's entry. ValueError names the key that is wrong.

    ``type`` is RunPod's GPU id and ``region`` its data centre (both needed), ``tier`` SECURE (default) or COMMUNITY, ``stock`` GPUs (8),
    ``price`` dollars per hour and GPU that the catalogue shows (default: the type's own, where it has one), ``bills`` what is charged
    (default: ``price``), ``boot`` seconds until the container runs (120), ``cuda`` version of the hosts (12.8, newest types 13.0, other
    makers' none), ``most`` GPUs in one pod, ``ram_per_gpu`` GB and ``vcpus_per_gpu`` of the hosts (default: the type's own), and ``mesh``
    and ``ready``: seconds of these steps.
    """
    if unknown := sorted(str(key) for key in entry if key not in SCENARIO_KEYS):
        raise ValueError(f"unknown key {', '.join(unknown)}; known are {', '.join(sorted(SCENARIO_KEYS))}")
    kind, place, tier = _known(entry, "type", GPUS), _known(entry, "region", DATA_CENTERS), entry.get("tier", SECURE)
    if tier not in (SECURE, COMMUNITY):
        raise ValueError(f"tier: {tier!r} should be {SECURE} or {COMMUNITY}")
    gpu = GPUS[kind]
    known = gpu.price[tier] or gpu.price[SECURE] or gpu.price[COMMUNITY]
    if not known and "price" not in entry:
        raise ValueError(f"price: is missing; the sandbox knows none of {kind}")
    price = _dollars(entry, "price", known)
    usual = ("13.0" if gpu.cuda == "12.8" else "12.8") if gpu.manufacturer == "NVIDIA" else ""
    cuda = str(entry.get("cuda", usual))
    if not re.fullmatch(r"\d+\.\d+", cuda) and (cuda or "cuda" in entry):
        raise ValueError(f"cuda: {cuda!r} should be a version such as {CUDA_VERSIONS[0]} (in quotes)")
    return Offer(
        cloud=CLOUD,
        type=kind,
        region=place,
        price_hour=_dollars(entry, "bills", price),
        gpu_count=1,
        model=gpu.model,
        memory_mib=gpu.memory * 1024,
        stock=_whole(entry, "stock", 8),
        boot_seconds=_number(entry, "boot", 120.0),
        details={
            "tier": tier,
            "shown_price": price,
            "cuda": cuda,
            "most": _whole(entry, "most", gpu.most[tier] or gpu.most[SECURE] or 8),
            "ram_per_gpu": _whole(entry, "ram_per_gpu", gpu.ram),
            "vcpus_per_gpu": _whole(entry, "vcpus_per_gpu", gpu.vcpus),
            "timings": {key: _number(entry, key, 0.0) for key in TIMINGS if key in entry},
        },
    )


def _known(entry: t.Mapping[str, t.Any], key: str, names: t.Collection[str]) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"{key}: RunPod has no {value!r}; known are {', '.join(names)}")
    return value


def _number(entry: t.Mapping[str, t.Any], key: str, default: float) -> float:
    value = entry.get(key, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
        raise ValueError(f"{key}: {value!r} should be a number of zero or more")
    return float(value)


def _whole(entry: t.Mapping[str, t.Any], key: str, default: int) -> int:
    value = _number(entry, key, default)
    if value != int(value):
        raise ValueError(f"{key}: {value!r} should be a whole number")
    return int(value)


def _dollars(entry: t.Mapping[str, t.Any], key: str, default: Decimal) -> Decimal:
    value = entry.get(key, default)
    try:
        price = Decimal("NaN") if isinstance(value, bool) else Decimal(str(value))
    except InvalidOperation:
        price = Decimal("NaN")
    if not price.is_finite() or price < 0:
        raise ValueError(f"{key}: {value!r} is no price")
    return price


def shelves(world: World, kind: str = "", tier: str = "") -> list[Offer]:
    """All shelves, or those of a type and a tier."""
    return [
        offer
        for offer in world.offers
        if offer.cloud == CLOUD and kind in ("", offer.type) and tier in ("", offer.details.get("tier", SECURE))
    ]


def pods(world: World) -> list[Machine]:
    """The pods that the account's list shows."""
    found = [one for one in world.machines.values() if one.cloud == CLOUD and one.destroyed is None and one.state not in GONE]
    return sorted(found, key=lambda one: (one.created, one.id))


def free(world: World, shelf: Offer) -> int:
    """GPUs left on a shelf."""
    living = (one for one in world.machines.values() if one.details.get("shelf") is shelf and one.ended is None)
    taken = sum(one.offer.gpu_count for one in living if one.state != "stopped")
    return max(0, shelf.stock - taken)


def free_vcpus(world: World, stock: int, flavour: str, place: str) -> int:
    """vCPUs of a flavour left in a data centre that has ``stock`` of them."""
    living = (one for one in pods(world) if one.state != "stopped" and one.offer.region == place)
    taken = sum(cpu["vcpuCount"] for one in living if (cpu := one.details["cpu"]) and cpu["id"] == flavour)
    return max(0, stock - taken)


def fitting(world: World, kind: str, tier: str, count: int, cuda: t.Callable[[str], bool] = lambda version: True) -> list[Offer]:
    """Shelves that could give ``count`` GPUs of a type to one pod now."""
    return [
        shelf
        for shelf in shelves(world, kind, tier)
        if count <= shelf.details.get("most", 8) and free(world, shelf) >= count and cuda(shelf.details.get("cuda", "12.8"))
    ]


def pod_offer(shelf: Offer, count: int) -> Offer:
    """What a pod with ``count`` GPUs of this shelf costs as a whole."""
    return dataclasses.replace(shelf, gpu_count=count, price_hour=shelf.price_hour * count, stock=1, details=dict(shelf.details))


def cuda_fits(host: str, allowed: t.Collection[str] = (), least: str = "") -> bool:
    """Whether a host's CUDA version is one of a set, or no less than another. A host without CUDA fits where neither is asked for."""
    if not host:
        return not allowed and not least
    return host in allowed if allowed else not least or version(host) >= version(least)


def version(text: str) -> tuple[int, ...]:
    """A CUDA version to compare; a bare major stands for its first minor."""
    major, _dot, minor = text.partition(".")
    return int(major), int(minor or 0)
