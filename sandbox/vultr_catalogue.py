# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the sandbox's Vultr sells: plans, regions and systems, and the part of a scenario that speaks of it.

Prices are those that public programs read from the live list between June and September 2026; sizes of disks are ours. ``vcg-`` is the
beginning of two kinds of plans: type ``vcg`` is mostly a fraction of a GPU, type ``vdm`` has whole ones and says nothing of them.
"""

from __future__ import annotations

import typing as t
from decimal import Decimal

from .scenario_reader import TIMINGS, Reader, ScenarioError, timings
from .world import Offer

SCENARIO_KEYS = ("type", "region", "stock", "price", "bills", "boot", *TIMINGS)
"""What an entry of a scenario's offers may hold; see :func:`vultr_offer`."""

REGIONS: dict[str, tuple[str, str, str]] = {
    "ams": ("Amsterdam", "NL", "Europe"),
    "atl": ("Atlanta", "US", "North America"),
    "blr": ("Bangalore", "IN", "Asia"),
    "dfw": ("Dallas", "US", "North America"),
    "ewr": ("New Jersey", "US", "North America"),
    "fra": ("Frankfurt", "DE", "Europe"),
    "icn": ("Seoul", "KR", "Asia"),
    "itm": ("Osaka", "JP", "Asia"),
    "lax": ("Los Angeles", "US", "North America"),
    "mia": ("Miami", "US", "North America"),
    "nrt": ("Tokyo", "JP", "Asia"),
    "ord": ("Chicago", "US", "North America"),
    "sao": ("São Paulo", "BR", "South America"),
    "scl": ("Santiago", "CL", "South America"),
    "sea": ("Seattle", "US", "North America"),
    "sgp": ("Singapore", "SG", "Asia"),
    "sjc": ("Silicon Valley", "US", "North America"),
    "syd": ("Sydney", "AU", "Australia"),
}
SYSTEMS: tuple[tuple[int, str, str], ...] = (
    (159, "Custom", "iso"),
    (164, "Snapshot", "snapshot"),
    (1743, "Ubuntu 22.04 LTS x64", "ubuntu"),
    (2136, "Debian 12 x64 (bookworm)", "debian"),
    (2284, "Ubuntu 24.04 LTS x64", "ubuntu"),
)
CUSTOM, SNAPSHOT = 159, 164


class Plan(t.NamedTuple):
    """``vram_gb`` is that of all ``gpus`` together. ``fraction``: a vGPU. ``preemptible``: what it costs so, None = it is not sold so."""

    kind: str
    model: str
    gpus: int
    vram_gb: int
    vcpus: int
    ram_gib: int
    disk_gb: int
    price: Decimal
    fraction: bool = False
    ondemand: bool = True
    preemptible: Decimal | None = None


def _plan(kind: str, model: str, gpus: int, vram: int, vcpus: int, ram: int, disk: int, price: str, **more: t.Any) -> Plan:
    return Plan(kind, model, gpus, vram, vcpus, ram, disk, Decimal(price), **more)


PLANS: dict[str, Plan] = {
    "vcg-a16-2c-8g-2vram": _plan("vcg", "A16", 1, 2, 2, 8, 50, "0.059", fraction=True),
    "vcg-a16-3c-32g-8vram": _plan("vcg", "A16", 1, 8, 3, 32, 170, "0.236", fraction=True),
    "vcg-a16-6c-64g-16vram": _plan("vdm", "A16", 1, 16, 6, 64, 350, "0.49"),
    "vcg-a16-96c-960g-256vram": _plan("vdm", "A16", 16, 256, 96, 960, 1700, "7.534"),
    "vcg-a40-8c-40g-16vram": _plan("vcg", "A40", 1, 16, 8, 40, 500, "0.571", fraction=True),
    "vcg-a40-24c-120g-48vram": _plan("vdm", "A40", 1, 48, 24, 120, 1400, "1.712"),
    "vcg-a40-96c-480g-192vram": _plan("vdm", "A40", 4, 192, 96, 480, 1700, "6.848"),
    "vcg-a100-3c-30g-20vram": _plan("vcg", "A100", 1, 20, 3, 30, 350, "0.598", fraction=True),
    "vcg-a100-12c-120g-80vram": _plan("vdm", "A100", 1, 80, 12, 120, 1400, "2.39"),
    "vcg-l40s-16c-180g-48vram": _plan("vcg", "L40S", 1, 48, 16, 180, 1200, "1.671", preemptible=Decimal("0.8")),
    "vcg-h100-216c-1914gb-640vram": _plan(
        "vdm", "H100", 8, 640, 216, 1914, 1700, "23.92", ondemand=False, preemptible=Decimal("18.4")
    ),
    "vcg-mi355x-252c-2872g-2304vram": _plan("vdm", "MI355X", 8, 2304, 252, 2872, 1700, "20.72"),
    "vc2-1c-1gb": _plan("vc2", "", 0, 0, 1, 1, 25, "0.007"),
}


def vultr_offer(entry: t.Mapping[str, t.Any]) -> Offer:
    """An offer from a scenario's entry. ValueError names the key that is wrong.

    ``type`` (a plan's id) and ``region`` are needed, ``stock`` machines (1), ``price`` as the plan shows it in this region, ``bills`` what is
    charged (default: ``price``), ``boot`` seconds, and seconds of the later steps.
    """
    reader = Reader(entry, "offer")
    name, region = reader.text("type"), reader.text("region")
    if name not in PLANS:
        raise ScenarioError(f"{reader.where}: Vultr has no plan {name!r}; known are {', '.join(PLANS)}")
    if region not in REGIONS:
        raise ScenarioError(f"{reader.where}: Vultr has no region {region!r}; known are {', '.join(REGIONS)}")
    plan = PLANS[name]
    price = reader.dollars("price", plan.price)
    offer = Offer(
        cloud="vultr",
        type=name,
        region=region,
        price_hour=reader.dollars("bills", price),
        gpu_count=plan.gpus,
        model=plan.model,
        memory_mib=plan.vram_gb * 1024 // max(plan.gpus, 1),
        stock=reader.whole("stock", 1),
        boot_seconds=reader.number("boot", 180.0),
        unit_seconds=3600,
        details={"timings": timings(reader)},
    )
    if "bills" in reader.content:
        offer.details["shown_price"] = price
    reader.done()
    return offer


# ---- the JSON of the lists that nobody changes


def plan_form(name: str, offers: t.Sequence[Offer]) -> dict[str, t.Any]:
    """One plan; ``offers`` of the world that are of it. A region with a price of its own is in ``location_cost``."""
    plan = PLANS[name]
    own = {one.region: one.details.get("shown_price", one.price_hour) for one in offers}
    own = {region: price for region, price in own.items() if price != plan.price}
    form: dict[str, t.Any] = {
        "id": name,
        "type": plan.kind,
        "vcpu_count": plan.vcpus,
        "ram": plan.ram_gib * 1024,
        "disk": plan.disk_gb,
        "disk_count": 1,
        "bandwidth": 10240,
        "monthly_cost": float(plan.price * 730),
        "hourly_cost": float(plan.price),
        "monthly_cost_preemptible": float((plan.preemptible or 0) * 730),
        "hourly_cost_preemptible": float(plan.preemptible or 0),
        "deploy_ondemand": plan.ondemand,
        "deploy_preemptible": plan.preemptible is not None,
        "invoice_type": "hourly",
        "location_cost": {place: {"hourly_cost": float(one), "monthly_cost": float(one * 730)} for place, one in own.items()},
        "locations": [*sorted({one.region for one in offers}), ""],
        "disk_type": "DEDICATEDMETAL" if plan.kind == "vdm" else "CLOUDGPU",
    }
    if plan.kind == "vcg":
        gpu = {"gpu_brand": "nvidia", "gpu_type": f"NVIDIA_{plan.model}", "gpu_vram_gb": plan.vram_gb, "gpu_count": plan.gpus}
        form |= gpu
    if plan.ondemand and plan.preemptible is None and plan.kind != "vcg":
        del form["deploy_ondemand"], form["deploy_preemptible"]  # older plans lack them
    return form


def region_forms() -> list[dict[str, t.Any]]:
    return [
        {"id": name, "city": city, "country": country, "continent": continent, "options": ["ddos_protection"], "connectivity": []}
        for name, (city, country, continent) in REGIONS.items()
    ]


def system_forms() -> list[dict[str, t.Any]]:
    return [{"id": number, "name": name, "arch": "x64", "family": family} for number, name, family in SYSTEMS]
