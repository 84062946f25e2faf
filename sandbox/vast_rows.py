# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An offer as a row of Vast's market: what it costs, and its columns, of which some can be searched by and are never shown."""

from __future__ import annotations

import typing as t
from decimal import Decimal

from .vast_catalogue import PLACES
from .world import Offer

HIDDEN = ("country_code", "datacenter", "ubuntu_version", "verified")
"""Columns of a search that no row has; ``verification``, ``hosting_type`` and ``os_version`` say the same."""


def disk_hour(offer: Offer, gigabytes: float) -> Decimal:
    """Dollars per hour for so much of this offer's disk."""
    return t.cast(Decimal, offer.details["storage_price_hour"]) * Decimal(str(gigabytes))


def premium_hour(offer: Offer, *, bid: bool) -> Decimal:
    """Dollars per hour for promised reliability; an interruptible contract has none."""
    return Decimal(0) if bid else t.cast(Decimal, offer.details["premium"])


def offer_row(offer: Offer, kind: str, storage: float, now: float) -> dict[str, t.Any]:
    """All columns of an offer, priced with so many GB of disk. ``kind``: on-demand, bid or reserved."""
    facts, gpus = offer.details["row"], offer.gpu_count
    gpu = {"bid": offer.details["min_bid"], "reserved": offer.price_hour * Decimal("0.8")}.get(kind, offer.price_hour)
    disk, premium = disk_hour(offer, storage), premium_hour(offer, bid=kind == "bid")
    total, cores = float(gpu + disk), facts["cpu_cores"]
    speed = facts["compute_cap"] / 20 * gpus
    reserved = float(offer.price_hour * Decimal("0.8") + disk)
    return {
        "id": int(offer.type),
        "ask_contract_id": int(offer.type),
        **facts,
        "gpu_frac": min(1.0, gpus / 8),
        "gpu_total_ram": facts["gpu_ram"] * gpus,
        "gpu_arch": "amd" if facts["gpu_name"].startswith("Instinct") else "nvidia",
        "cpu_name": "AMD EPYC 7B13",
        "cpu_arch": "amd64",
        "cpu_ghz": 3.4,
        "has_avx": 1,
        "cpu_cores_effective": cores * min(1.0, gpus / 8),
        "ubuntu_version": "22.04",
        "pci_gen": 4.0,
        "pcie_bw": 24.3,
        "bw_nvlink": 0.0,
        "gpu_lanes": 16,
        "gpu_mem_bw": 850.0,
        "gpu_max_power": 450.0,
        "gpu_max_temp": 90.0,
        "gpu_display_active": False,
        "datacenter": facts["hosting_type"] == 1,
        "cluster_id": None,
        **dict.fromkeys(("nw_disk_avg_bw", "nw_disk_max_bw", "nw_disk_min_bw")),
        **dict.fromkeys(("avail_vol_ask_id", "avail_vol_dph", "avail_vol_size", "hostname", "logo", "webpage")),
        "resource_type": "gpu",
        "mobo_name": None if facts["machine_id"] % 3 else "ROMED8-2T",
        "os_version": "22.04",
        "disk_bw": 2100.0,
        "disk_name": "Samsung SSD 990 PRO",
        "storage_cost": float(offer.details["storage_price_hour"] * 720),
        "storage_total_cost": float(disk),
        "inet_down_cost": float(offer.details["traffic"][0]),
        "inet_up_cost": float(offer.details["traffic"][1]),
        "dph_base": float(gpu),
        "dph_total": total,  # without the premium: the harder case for a client, and nothing documents the other
        "min_bid": float(offer.details["min_bid"]),
        "is_bid": kind == "bid",
        "search": breakdown(gpu, disk, premium),
        "instance": breakdown(gpu, disk, premium),
        "reliability": facts["reliability2"],
        "expected_reliability": facts["reliability2"],
        "target_reliability": facts["reliability2"] if premium else 0.0,
        "sla_r_claim": facts["reliability2"] if premium else 0.0,
        "sla_sigma_x": None,
        "sla_broker_rate": 0.0,
        "country_code": PLACES[facts["geolocation"]],
        "driver_version": "570.86.15" if facts["cuda_max_good"] < 13 else "580.95.05",
        "driver_vers": 570086015 if facts["cuda_max_good"] < 13 else 580095005,
        "public_ipaddr": None if facts["machine_id"] % 2 else "203.0.113.9\n",
        "start_date": now - 86400.0,
        "end_date": now + facts["duration"],
        "rentable": offer.stock > 0,
        "rented": offer.stock <= 0,
        "verified": facts["verification"] == "verified",
        "dlperf": speed,
        "dlperf_per_dphtotal": speed / total if total else 0.0,
        "flops_per_dphtotal": speed / total if total else 0.0,
        "total_flops": speed,
        "score": speed / total * facts["reliability2"] if total else 0.0,
        "discount_rate": 0.2,
        "discounted_hourly": reserved,
        "discounted_dph_total": reserved,
    }


def breakdown(gpu: Decimal, disk: Decimal, premium: Decimal) -> dict[str, float]:
    """The parts of a price per hour."""
    return {
        "gpuCostPerHour": float(gpu),
        "diskHour": float(disk),
        "slaPremiumPerHour": float(premium),
        "totalHour": float(gpu + disk + premium),
        "discountTotalHour": 0.0,
        "discountedTotalPerHour": float(gpu + disk + premium),
    }


def shown(row: dict[str, t.Any]) -> dict[str, t.Any]:
    """The columns that an answer has. ``external`` is true or null."""
    return {name: value for name, value in row.items() if name not in HIDDEN} | {"external": row["external"] or None}
