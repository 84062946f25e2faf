# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the sandbox's Google Cloud sells: zones, machine types and accelerators, and the part of a scenario that speaks of it.

The Compute API tells no price, so what a machine costs here is known to nobody but the bill. Prices are approximate list prices in us-central1.
"""

from __future__ import annotations

import re
import typing as t
from decimal import Decimal

from .scenario_reader import TIMINGS, Reader, ScenarioError, timings
from .world import Offer, World

SCENARIO_KEYS = ("type", "zone", "stock", "bills", "boot", *TIMINGS)
"""What an entry of a scenario's offers may hold; see :func:`gcp_offer`."""

ZONES = (
    "us-central1-a", "us-central1-b", "us-central1-c", "us-east1-b", "us-east1-c", "us-west1-a", "us-west1-b",
    "europe-west4-a", "europe-west4-b", "asia-southeast1-b",
)  # fmt: skip
SPOT_SHARE = Decimal("0.4")
DISK_GB_HOUR = Decimal("0.1") / 730
ATTACHED = "+"  # between a machine type and an accelerator that is attached to it


class Kind(t.NamedTuple):
    """A machine type; ``gpus`` of ``accelerator`` are built in."""

    vcpus: int
    memory_gib: int
    accelerator: str = ""
    gpus: int = 0
    price: Decimal = Decimal(0)


def _kind(vcpus: int, memory: int, accelerator: str, gpus: int, price: str) -> Kind:
    return Kind(vcpus, memory, accelerator, gpus, Decimal(price))


TYPES: dict[str, Kind] = {
    "g2-standard-4": _kind(4, 16, "nvidia-l4", 1, "0.7068"),
    "g2-standard-8": _kind(8, 32, "nvidia-l4", 1, "0.8536"),
    "g2-standard-24": _kind(24, 96, "nvidia-l4", 2, "2.0007"),
    "a2-highgpu-1g": _kind(12, 85, "nvidia-tesla-a100", 1, "3.6739"),
    "a2-ultragpu-1g": _kind(12, 170, "nvidia-a100-80gb", 1, "5.0688"),
    "a3-highgpu-8g": _kind(208, 1872, "nvidia-h100-80gb", 8, "88.4902"),
    "a3-ultragpu-8g": _kind(224, 2952, "nvidia-h200-141gb", 8, "84.8069"),
    "a4-highgpu-8g": _kind(224, 3968, "nvidia-b200", 8, "128.8800"),
    "g4-standard-12": _kind(12, 45, "nvidia-rtx-pro-6000", 1, "1.1000"),  # a quarter of a card
    "g4-standard-48": _kind(48, 180, "nvidia-rtx-pro-6000", 1, "4.5000"),
    "n1-standard-4": _kind(4, 15, "", 0, "0.1900"),
    "n1-standard-8": _kind(8, 30, "", 0, "0.3800"),
    "e2-standard-2": _kind(2, 8, "", 0, "0.0670"),
}
ACCELERATORS: dict[str, tuple[str, int, Decimal]] = {
    "nvidia-tesla-t4": ("T4", 16, Decimal("0.3500")),
    "nvidia-tesla-p4": ("P4", 8, Decimal("0.6000")),
    "nvidia-tesla-p100": ("P100", 16, Decimal("1.4600")),
    "nvidia-tesla-v100": ("V100-SXM2", 16, Decimal("2.4800")),
    "nvidia-l4": ("L4", 24, Decimal(0)),
    "nvidia-tesla-a100": ("A100-SXM", 40, Decimal(0)),
    "nvidia-a100-80gb": ("A100-SXM", 80, Decimal(0)),
    "nvidia-h100-80gb": ("H100-SXM", 80, Decimal(0)),
    "nvidia-h200-141gb": ("H200", 141, Decimal(0)),
    "nvidia-b200": ("B200", 180, Decimal(0)),
    "nvidia-rtx-pro-6000": ("RTXPRO6000", 96, Decimal(0)),
}
METRICS = {
    "nvidia-tesla-t4": "NVIDIA_T4_GPUS",
    "nvidia-tesla-p4": "NVIDIA_P4_GPUS",
    "nvidia-tesla-p100": "NVIDIA_P100_GPUS",
    "nvidia-tesla-v100": "NVIDIA_V100_GPUS",
    "nvidia-l4": "NVIDIA_L4_GPUS",
    "nvidia-tesla-a100": "NVIDIA_A100_GPUS",
    "nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS",
    "nvidia-h100-80gb": "NVIDIA_H100_GPUS",
}
ALWAYS = ("n1-standard-4", "n1-standard-8", "e2-standard-2")
HYPERDISK = ("a3-ultragpu-", "a4-")


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]


def parted(name: str) -> tuple[str, str]:
    """Machine type and accelerator of an offer."""
    kind, _plus, attached = name.partition(ATTACHED)
    return kind, attached or TYPES[kind].accelerator


def gcp_offer(entry: t.Mapping[str, t.Any]) -> Offer:
    """An offer from a scenario's entry. ValueError names the key that is wrong.

    ``type`` (a machine type, or ``n1-standard-4+nvidia-tesla-t4`` for one with an attached accelerator) and ``zone`` are needed, ``stock``
    machines (1), ``bills`` dollars per hour on demand without the disk (default: the list price), ``boot`` seconds, and seconds of the
    later steps.
    """
    reader = Reader(entry, "offer")
    name, zone = reader.text("type"), reader.text("zone")
    kind, _plus, attached = name.partition(ATTACHED)
    if kind not in TYPES or (attached and attached not in ACCELERATORS):
        raise ScenarioError(f"{reader.where}: Google has no machine type {name!r}; known are {', '.join(TYPES)}")
    if zone not in ZONES:
        raise ScenarioError(f"{reader.where}: Google has no zone {zone!r}; known are {', '.join(ZONES)}")
    model, memory, price = ACCELERATORS.get(attached or TYPES[kind].accelerator, ("", 0, Decimal(0)))
    offer = Offer(
        cloud="gcp",
        type=name,
        region=zone,
        price_hour=reader.dollars("bills", TYPES[kind].price + (price if attached else 0)),
        gpu_count=TYPES[kind].gpus or (1 if attached else 0),
        model=model,
        memory_mib=memory * 1024,
        stock=reader.whole("stock", 1),
        boot_seconds=reader.number("boot", 60.0),
        details={"timings": timings(reader)},
        minimum_seconds=60,
    )
    reader.done()
    return offer


# ---- the JSON of the lists that nobody changes


def sold(world: World) -> list[tuple[str, str]]:
    """Zone and machine type of all that exists there, in stock or not."""
    named = {(one.region, one.type.partition(ATTACHED)[0]) for one in world.offers if one.cloud == "gcp"}
    return sorted(named | {(zone, name) for zone in ZONES for name in ALWAYS})


def accelerators(world: World) -> list[tuple[str, str]]:
    """Zone and accelerator. Where there is a T4 or an L4, there is a virtual workstation with one, too."""
    found = {(one.region, accelerator) for one in world.offers if one.cloud == "gcp" and (accelerator := parted(one.type)[1])}
    found |= {(zone, f"{name}-vws") for zone, name in found if name in ("nvidia-tesla-t4", "nvidia-l4")}
    return sorted(found)


def type_form(zone: str, name: str) -> dict[str, t.Any]:
    kind = TYPES[name]
    form: dict[str, t.Any] = {
        "kind": "compute#machineType",
        "name": name,
        "guestCpus": kind.vcpus,
        "memoryMb": kind.memory_gib * 1024,
        "zone": zone,
        "isSharedCpu": False,
    }
    if kind.accelerator:
        form["accelerators"] = [{"guestAcceleratorType": kind.accelerator, "guestAcceleratorCount": kind.gpus}]
    return form


def accelerator_form(zone: str, name: str) -> dict[str, t.Any]:
    return {"kind": "compute#acceleratorType", "name": name, "zone": zone, "maximumCardsPerInstance": 8}


def matches(filter_text: str, form: t.Mapping[str, t.Any]) -> bool:
    """The two kinds of filter that are used: ``name eq "regular expression"`` and ``labels.key:*``."""
    if not filter_text:
        return True
    if found := re.fullmatch(r'name eq "?([^"]*)"?', filter_text):
        return re.fullmatch(found[1], str(form.get("name", ""))) is not None
    if found := re.fullmatch(r"labels\.([a-z0-9_-]+)[:=](.+)", filter_text):
        value = (form.get("labels") or {}).get(found[1])
        return value is not None and found[2] in ("*", value)
    return False
