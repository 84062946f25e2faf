# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a scenario says of Lambda: a list of types in regions."""

from __future__ import annotations

from .catalogue import LAMBDA_REGIONS, LAMBDA_TYPES
from .scenario_reader import Reader, ScenarioError, timings
from .world import Offer


def lambda_offer(entry: Reader) -> Offer:
    """One entry of ``lambda``."""
    name, region = entry.text("type"), entry.text("region")
    if name not in LAMBDA_TYPES:
        raise ScenarioError(f"{entry.where}: Lambda has no type {name!r}; known are {', '.join(LAMBDA_TYPES)}")
    if region not in LAMBDA_REGIONS:
        raise ScenarioError(f"{entry.where}: Lambda has no region {region!r}; known are {', '.join(LAMBDA_REGIONS)}")
    kind = LAMBDA_TYPES[name]
    price = entry.dollars("price", kind.price)
    if price * 100 != int(price * 100):
        raise ScenarioError(f"{entry.where}.price: Lambda's prices are whole cents")
    offer = Offer(
        cloud="lambda",
        type=name,
        region=region,
        price_hour=entry.dollars("bills", price),
        gpu_count=kind.gpus,
        model=kind.model,
        memory_mib=kind.memory_gib * 1024,
        stock=entry.whole("stock", 1),
        boot_seconds=entry.number("boot", kind.boot_seconds),
        unit_seconds=60,
        details={
            "shown_price": price,
            "description": kind.description(name),
            "gpu_description": kind.gpu_description,
            "region_description": LAMBDA_REGIONS[region],
            "vcpus": kind.vcpus,
            "memory_gib": kind.ram_gib,
            "storage_gib": kind.disk_gib,
        },
    )
    offer.details["timings"] = timings(entry)
    entry.done()
    return offer
