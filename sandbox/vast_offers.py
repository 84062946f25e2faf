# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What hosts offer on the sandbox's Vast: an offer of a scenario, a catalogue with the traps of the real market, and as many as wanted.

An offer is one slice of one host's machine. ``Offer.price_hour`` is its GPUs' price (``dph_base``), ``details["storage_price_hour"]`` what
a GB of disk costs an hour, ``details["min_bid"]`` the bid that wins now, ``details["premium"]`` what promised reliability costs an hour,
``details["traffic"]`` what a GB downloaded and one uploaded costs, ``details["pull_gb"]`` how much a new machine downloads before it runs,
``details["row"]`` the rest of what the API shows.
"""

from __future__ import annotations

import random
import typing as t
from decimal import Decimal, InvalidOperation

from .vast_catalogue import CATALOGUE, GPUS, PLACES
from .world import Offer

HOURS_OF_A_MONTH = 720
_FIRST = 8_100_001
# key of a scenario's offer: (what it may be, default, what the API calls it)
_KEYS: dict[str, tuple[type, t.Any, str]] = {
    "gpus": (int, 1, "num_gpus"),
    "machine": (int, 0, "machine_id"),
    "host": (int, 0, "host_id"),
    "disk_gb": (float, 420.5, "disk_space"),
    "place": (str, "Quebec, CA", "geolocation"),
    "vm": (bool, False, "vms_enabled"),
    "vm_deverified": (bool, False, "is_vm_deverified"),
    "reliability": (float, 0.992, "reliability2"),
    "verification": (str, "verified", "verification"),
    "external": (bool, False, "external"),
    "data_centre": (bool, False, "hosting_type"),
    "cuda": (float, 13.0, "cuda_max_good"),
    "ports": (int, 40, "direct_port_count"),
    "inet_down": (float, 910.4, "inet_down"),
    "inet_up": (float, 880.0, "inet_up"),
    "static_ip": (bool, True, "static_ip"),
    "duration": (float, 2_500_000.0, "duration"),
    "cores": (int, 64, "cpu_cores"),
    "ram_mib": (int, 257_000, "cpu_ram"),
}
_OWN = (
    "id", "gpu", "memory_mib", "price", "min_bid", "storage", "premium", "traffic_down", "traffic_up", "pull_gb", "stock", "boot", "timings",
)  # fmt: skip
SCENARIO_KEYS = (*_OWN, *_KEYS)
"""Keys of an offer in a scenario. ``gpu`` is the only one that must be there: a name of GPUS."""
_TIMINGS = ("packages", "mesh", "csr", "ready", "gpu")


def vast_offer(entry: t.Mapping[str, t.Any]) -> Offer:
    """The offer a scenario's entry describes. ValueError says what is wrong.

    ``price`` and ``min_bid`` are dollars per hour for the whole offer (min_bid: half the price); ``storage`` dollars per GB and month;
    ``premium`` dollars per hour for promised reliability, of contracts on demand only (0); ``traffic_down`` and ``traffic_up`` dollars per GB
    (0.002 and 0.004); ``pull_gb`` GB of the image (5).
    Without ``id`` it gets one of its own in the order of making. Without ``machine`` every offer is a machine of its own.
    """
    if unknown := [str(key) for key in entry if key not in SCENARIO_KEYS]:
        raise ValueError(f"unknown key {', '.join(unknown)}; known are {', '.join(SCENARIO_KEYS)}")
    name = entry.get("gpu")
    if str(name) not in GPUS:
        raise ValueError(f"gpu: {name!r} should be one of {', '.join(GPUS)}")
    model, memory, capability, each = GPUS[str(name)]
    number = _number(entry, "id", _NUMBERS)
    row: dict[str, t.Any] = {}
    for key, (kind, default, field) in _KEYS.items():
        row[field] = _value(entry, key, kind, default)
    row["hosting_type"] = int(row["hosting_type"])
    if row["geolocation"] not in PLACES:
        raise ValueError(f"place: {row['geolocation']!r} should be one of {', '.join(PLACES)}")
    if row["verification"] not in ("verified", "unverified", "deverified"):
        raise ValueError("verification: should be verified, unverified or deverified")
    if not 1 <= row["num_gpus"] <= 16:
        raise ValueError("gpus: should be 1 to 16")
    memory = _value(entry, "memory_mib", int, memory)
    price = _dollars(entry, "price", Decimal(each) * row["num_gpus"])
    row |= {
        "machine_id": row["machine_id"] or 5500 + number % 100_000,
        "host_id": row["host_id"] or 900 + number % 997,
        "gpu_name": name,
        "gpu_ram": memory,
        "compute_cap": capability,
    }
    timings = entry.get("timings") or {}
    if not isinstance(timings, dict) or any(key not in _TIMINGS or not _is_number(value) for key, value in timings.items()):
        raise ValueError(f"timings: should be seconds of {', '.join(_TIMINGS)}")
    return Offer(
        cloud="vast",
        type=str(number),
        region=row["geolocation"],
        price_hour=price,
        gpu_count=row["num_gpus"],
        model=model,
        memory_mib=memory,
        stock=_value(entry, "stock", int, 1),
        boot_seconds=_value(entry, "boot", float, 150.0),
        details={
            "row": row,
            "min_bid": _dollars(entry, "min_bid", price / 2),
            "storage_price_hour": _dollars(entry, "storage", Decimal("0.15")) / HOURS_OF_A_MONTH,
            "premium": _dollars(entry, "premium", Decimal(0)),
            "traffic": (_dollars(entry, "traffic_down", Decimal("0.002")), _dollars(entry, "traffic_up", Decimal("0.004"))),
            "pull_gb": Decimal(str(_value(entry, "pull_gb", float, 5.0))),
            "timings": dict(timings),
        },
    )


def _numbers() -> t.Iterator[int]:
    number = _FIRST
    while True:
        yield number
        number += 1


_NUMBERS = _numbers()


def _number(entry: t.Mapping[str, t.Any], key: str, fresh: t.Iterator[int]) -> int:
    number = entry.get(key)
    if number is None:
        return next(fresh)
    if not isinstance(number, int) or isinstance(number, bool) or number <= 0:
        raise ValueError(f"{key}: {number!r} should be a whole number above zero")
    return number


def _is_number(value: t.Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")


def _value(entry: t.Mapping[str, t.Any], key: str, kind: type, default: t.Any) -> t.Any:
    value = entry.get(key, default)
    if kind is float and _is_number(value):
        return float(value)
    if kind is int and _is_number(value) and value == int(value):
        return int(value)
    if kind in (bool, str) and isinstance(value, kind):
        return value
    raise ValueError(f"{key}: cannot be {value!r}")


def _dollars(entry: t.Mapping[str, t.Any], key: str, default: Decimal) -> Decimal:
    try:
        dollars = Decimal(str(entry.get(key, default)))
    except InvalidOperation:
        dollars = Decimal("NaN")
    if not dollars.is_finite() or dollars < 0:
        raise ValueError(f"{key}: {entry.get(key)!r} is no price")
    return dollars


def catalogue() -> list[Offer]:
    """The market of a day, in a fixed order with fixed ids: see CATALOGUE."""
    return [vast_offer({"id": _FIRST - 1000 + index, **entry}) for index, entry in enumerate(CATALOGUE)]


def vast_offers(seed: int = 0, count: int = 1000) -> list[Offer]:
    """That many offers, the same for the same seed; ids from 9000001. Hosts have one to four slices."""
    chance, machine = random.Random(seed), 0
    made: list[Offer] = []
    while len(made) < count:
        machine += 1
        name = chance.choice(list(GPUS))
        each = Decimal(GPUS[name][3]) * Decimal(chance.randint(80, 180)) / 100
        trusted = chance.random() < 0.8
        host: dict[str, t.Any] = {
            "gpu": name,
            "machine": 40_000 + machine,
            "host": 2000 + machine % 701,
            "place": chance.choice(list(PLACES)),
            "storage": Decimal(chance.randint(5, 40)) / 100,
            "traffic_down": Decimal(machine % 21) / 1000,  # from nothing to dear
            "traffic_up": Decimal(machine % 34) / 1000,
            "reliability": round(chance.uniform(0.95, 0.999) if trusted else chance.uniform(0.6, 0.95), 4),
            "verification": "verified" if trusted else chance.choice(["unverified", "deverified"]),
            "cuda": chance.choice([12.2, 12.8, 13.0]),
            "ports": chance.choice([0, 2, 20, 100, 250]),
            "inet_down": round(chance.uniform(50, 5000), 1),
            "inet_up": round(chance.uniform(20, 3000), 1),
            "duration": round(chance.uniform(86_400, 90 * 86_400), 0),
            "vm": GPUS[name][2] in (890, 1200) and chance.random() < 0.3,
            "data_centre": chance.random() < 0.2,
            "boot": float(chance.randint(30, 300)),
        }
        gpus = chance.choice([1, 1, 1, 2, 4, 8])
        for _slice in range(min(chance.randint(1, 4), count - len(made))):
            price = (each * gpus).quantize(Decimal("0.0001"))
            bid = (price * Decimal(chance.randint(30, 80)) / 100).quantize(Decimal("0.0001"))
            disk = float(chance.choice([12, 60, 120, 500, 2000]))
            number = 9_000_001 + len(made)
            made.append(vast_offer({**host, "id": number, "gpus": gpus, "price": price, "min_bid": bid, "disk_gb": disk}))
    return made
