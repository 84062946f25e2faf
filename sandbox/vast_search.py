# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The search for offers: filters, order, prices with the disk in them, and never more than 64 answers."""

from __future__ import annotations

import typing as t
from decimal import Decimal

from .vast_account import Account
from .vast_errors import Refused, invalid
from .vast_offers import PLACES
from .world import Offer, World

MOST = 64
DEFAULT_STORAGE = 8.0
_TYPES = {"on-demand": "on-demand", "ondemand": "on-demand", "bid": "bid", "interruptible": "bid", "reserved": "reserved"}
_OPTIONS = frozenset({"type", "order", "limit", "allocated_storage", "disable_bundling", "select_cols"})
_OPERATORS = frozenset({"eq", "neq", "gt", "lt", "gte", "lte", "in", "notin"})
_SLIP = 7  # with inexact filters, every so many-th offer slips through those that compare numbers


def search(world: World, query: t.Any) -> list[dict[str, t.Any]]:
    """The offers a query finds. The caller holds the lock."""
    if not isinstance(query, dict):
        raise invalid("query must be an object")
    kind, storage, most, order = _options(query)
    filters = _filters(query)
    inexact = Account.of(world).switches.inexact_filters
    now, found = world.clock.seconds(), []
    for index, offer in enumerate(one for one in world.offers if one.cloud == "vast"):
        slips = inexact and index % _SLIP == _SLIP - 1
        row = offer_row(offer, kind, storage, now)
        if all(_passes(row, *one) or (slips and one[1] not in ("eq", "in", "neq", "notin")) for one in filters):
            found.append(row)
    for field, falling in reversed(order):
        if any(field not in row for row in found):
            raise invalid(f"order: unknown field {field}")
        known = [row for row in found if row[field] is not None]
        unknown = [row for row in found if row[field] is None]
        found = sorted(known, key=lambda row: row[field], reverse=falling) + unknown
    return found[:most]


def _options(query: dict[str, t.Any]) -> tuple[str, float, int, list[tuple[str, bool]]]:
    kind = query.get("type", "on-demand")
    if kind not in _TYPES:
        raise invalid(f"type: unknown offer type {kind!r}")
    storage = _number(query.get("allocated_storage", DEFAULT_STORAGE), "allocated_storage")
    limit = query.get("limit")
    most = MOST if limit is None else int(_number(limit, "limit"))
    if most < 1 or storage < 0:
        raise invalid("limit and allocated_storage must be positive")
    order = query.get("order", [["score", "desc"]])
    if not isinstance(order, list):
        raise invalid("order must be a list of [field, direction]")
    sorted_by = []
    for part in order:
        if not isinstance(part, list) or len(part) != 2 or part[1] not in ("asc", "desc"):
            raise invalid("order must be a list of [field, direction]")
        sorted_by.append((str(part[0]), part[1] == "desc"))
    return _TYPES[kind], storage, min(most, MOST), sorted_by


def _filters(query: dict[str, t.Any]) -> list[tuple[str, str, t.Any]]:
    found = []
    for field, wanted in query.items():
        if field in _OPTIONS:
            continue
        if not isinstance(wanted, dict):
            raise invalid(f"{field}: a filter is an object of operators")
        for operator, value in wanted.items():
            if operator not in _OPERATORS:
                raise invalid(f"{field}: unknown operator {operator}")
            if operator in ("in", "notin") and not isinstance(value, list):
                raise invalid(f"{field}: {operator} takes a list")
            found.append((field, operator, value))
    return found


def _passes(row: dict[str, t.Any], field: str, operator: str, wanted: t.Any) -> bool:
    if field not in row:
        raise invalid(f"unknown field {field}")
    value = row[field]
    if operator in ("in", "notin"):
        hit = any(_same(field, value, one) for one in wanted)
        return hit if operator == "in" else not hit
    if operator in ("eq", "neq"):
        return _same(field, value, wanted) is (operator == "eq")
    if value is None or wanted is None:
        return False
    other = _alike(field, value, wanted)
    if isinstance(value, str) or isinstance(other, str):
        value, other = str(value), str(other)
    compared: bool = {"gt": value > other, "lt": value < other, "gte": value >= other, "lte": value <= other}[operator]
    return compared


def _same(field: str, value: t.Any, wanted: t.Any) -> bool:
    if field == "geolocation":  # asked for by country
        return wanted in (value, PLACES.get(value))
    if value is None or wanted is None:
        return value is wanted
    return bool(value == _alike(field, value, wanted))


def _alike(field: str, value: t.Any, wanted: t.Any) -> t.Any:
    """What was asked for, as the kind of thing the field is: clients send numbers and truths as text."""
    if isinstance(value, bool):
        return {"true": True, "false": False}.get(str(wanted).lower(), wanted)
    if isinstance(value, (int, float)):
        return _number(wanted, field)
    return wanted


def _number(value: t.Any, field: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise Refused(400, "invalid_args", f"{field}: {value!r} is not a number") from None


def disk_hour(offer: Offer, gigabytes: float) -> Decimal:
    """Dollars per hour for so much of this offer's disk."""
    return t.cast(Decimal, offer.details["storage_price_hour"]) * Decimal(str(gigabytes))


def premium_hour(offer: Offer, *, bid: bool) -> Decimal:
    """Dollars per hour for promised reliability; an interruptible contract has none."""
    return Decimal(0) if bid else t.cast(Decimal, offer.details["premium"])


def offer_row(offer: Offer, kind: str, storage: float, now: float) -> dict[str, t.Any]:
    """An offer as the API shows it, priced with so many GB of disk. ``kind``: on-demand, bid or reserved."""
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
        "gpu_display_active": False,
        "datacenter": facts["hosting_type"] == 1,
        "cluster_id": None,
        **dict.fromkeys(("nw_disk_avg_bw", "nw_disk_max_bw", "nw_disk_min_bw")),
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
