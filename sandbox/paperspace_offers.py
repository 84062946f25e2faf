# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which types the world's Paperspace has where, at what price: the part of a scenario that speaks of it."""

from __future__ import annotations

import typing as t
from decimal import Decimal

from .paperspace_errors import Refused
from .paperspace_types import REGIONS, TYPES, short_region
from .scenario_reader import TIMINGS, Reader, ScenarioError, timings
from .world import Offer, World

SCENARIO_KEYS = ("type", "region", "stock", "bills", "boot", *TIMINGS)
"""What an entry of a scenario's offers may hold; see :func:`paperspace_offer`."""


def paperspace_offer(entry: t.Mapping[str, t.Any]) -> Offer:
    """An offer from a scenario's entry. ValueError names the key that is wrong.

    ``type`` and ``region`` (short or long) are needed, ``stock`` machines (1), ``bills`` what ``usageRate`` says once a machine exists, and
    what it costs (default: the type's own price), ``boot`` seconds, and seconds of the later steps.
    """
    return _offer(Reader(entry, "offer"))


def _offer(entry: Reader) -> Offer:
    name, place = entry.text("type"), entry.text("region")
    region = short_region(place)
    if name not in TYPES:
        raise ScenarioError(f"{entry.where}: Paperspace has no type {name!r}; known are {', '.join(TYPES)}")
    if region is None or region not in TYPES[name].regions:
        where = ", ".join(TYPES[name].regions)
        raise ScenarioError(f"{entry.where}: Paperspace has no {name} in {place!r}, only in {where} (of {', '.join(REGIONS)})")
    known = TYPES[name]
    if known.price is None and "bills" not in entry.content:
        raise ScenarioError(f"{entry.where}.bills: is missing, and nobody has published a price of {name}")
    price = entry.dollars("bills", known.price or Decimal(0))
    boot, stock = entry.number("boot", known.boot_seconds), entry.whole("stock", 1)
    offer = make_offer(name, region, stock, price_hour=price, boot_seconds=boot, details={"timings": timings(entry)})
    entry.done()
    return offer


def find_offer(world: World, kind: str, region: str) -> Offer:
    """The type in the region. Where the type exists but this world has none of it, it is out of capacity."""
    if region not in TYPES[kind].regions:
        raise Refused("BAD_REQUEST", f"Machine type {kind} is not available in region {region}")
    for offer in world.offers:
        if (offer.cloud, offer.type, offer.region) == ("paperspace", kind, region):
            return offer
    offer = make_offer(kind, region)
    world.offers.append(offer)
    return offer


def make_offer(kind: str, region: str, stock: int = 0, **more: t.Any) -> Offer:
    """An offer of this type; without more it is sold out and costs what the type costs."""
    known = TYPES[kind]
    settings = {"price_hour": known.price or Decimal(0), "boot_seconds": known.boot_seconds, **more}
    return Offer(
        "paperspace",
        kind,
        region,
        gpu_count=known.gpus,
        model=known.model,
        memory_mib=known.memory_gib * 1024,
        stock=stock,
        **settings,
    )
