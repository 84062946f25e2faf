# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paperspace's machine types. Its API has neither a list of them with their GPUs nor prices; both are kept here.

Prices are list prices in dollars per hour without disk: those of the public price page of September 2026, and where that shows only
promotions or nothing, what on-demand users paid in 2024. They are estimates; the true price is reported once a machine exists.
"""

from __future__ import annotations

import re
import typing as t
from decimal import Decimal

from ...planner.offers import gpu_models


class MachineType(t.NamedTuple):
    """``number`` GPUs of canonical ``model`` with ``memory_mib`` each (None: unknown); ``price`` None: nobody published one."""

    model: str
    number: int
    memory_mib: int | None
    price: Decimal | None


def _row(model: str, number: int, gib: int, price: str = "") -> MachineType:
    return MachineType(model, number, gib * 1024 or None, Decimal(price) if price else None)


TYPES: dict[str, MachineType] = {
    "P4000": _row("QUADRO-P4000", 1, 8, "0.51"),
    "P4000x2": _row("QUADRO-P4000", 2, 8, "1.02"),
    "P5000": _row("QUADRO-P5000", 1, 16, "0.78"),
    "P6000": _row("QUADRO-P6000", 1, 24, "1.10"),
    "RTX4000": _row("QUADRO-RTX4000", 1, 8, "0.56"),
    "RTX5000": _row("QUADRO-RTX5000", 1, 16, "0.82"),
    "A4000": _row("A4000", 1, 16, "0.76"),
    "A4000x2": _row("A4000", 2, 16, "1.52"),
    "A4000x4": _row("A4000", 4, 16, "3.04"),
    "A5000": _row("A5000", 1, 24, "1.38"),
    "A6000": _row("A6000", 1, 48, "1.89"),
    "V100": _row("V100", 1, 16, "2.30"),
    "V100-32G": _row("V100", 1, 32, "2.30"),
    "V100-32Gx2": _row("V100", 2, 32, "4.60"),
    "V100-32Gx4": _row("V100", 4, 32, "9.20"),
    "A100": _row("A100-SXM", 1, 40),
    "A100-80G": _row("A100-SXM", 1, 80, "3.18"),
    "A100-80Gx8": _row("A100-SXM", 8, 80, "25.44"),
    "H100": _row("H100-SXM", 1, 80, "5.95"),  # the page's 3.09 is a promotion
    "H100x8": _row("H100-SXM", 8, 80, "47.60"),
    "C1": _row("", 0, 0, "0.0045"),
    "C5": _row("", 0, 0, "0.08"),
    "C6": _row("", 0, 0),
    "C7": _row("", 0, 0),
    "C8": _row("", 0, 0),
    "C9": _row("", 0, 0, "0.90"),
    "C10": _row("", 0, 0, "1.60"),
}
NOT_OFFERED = frozenset({"GPU+"})  # Quadro M4000 (Maxwell): no current driver knows it
NVLINK = frozenset({"A100-80Gx8", "H100x8"})
REGION_NAMES = {"ny2": "us-east", "ca1": "us-west", "ams1": "eu-west"}
REGIONS = {**REGION_NAMES, "east coast (ny2)": "us-east", "west coast (ca1)": "us-west", "europe (ams1)": "eu-west"}
_MAIN = "ny2"  # has every type
_ALSO = {
    "ca1": frozenset({"P4000", "P5000", "P6000", "RTX4000", "A4000", "A5000", "A6000"}),
    "ams1": frozenset({"P4000", "P5000", "P6000", "RTX4000", "A4000", "V100"}),
}
DISK_STEPS = (50, 100, 250, 500, 1000, 2000, 4000, 8000, 12000, 16000)  # GB
_DISK_GB_HOUR = Decimal("0.10") / 730  # $5 a month for 50 GB
_PATTERN = re.compile(r"(?P<card>[A-Z][A-Z0-9]*)(-(?P<gib>\d+)G)?(x(?P<count>\d+))?")
_PROCESSORS = re.compile(r"C\d+")
_SHORT = re.compile(r"\((\w+)\)\s*$")


def machine_type(label: str) -> MachineType | None:
    """What a label stands for; one that is not in the table is read by its pattern. None when that names no GPU we know."""
    if label in TYPES:
        return TYPES[label]
    if _PROCESSORS.fullmatch(label):
        return MachineType("", 0, None, None)
    parts = _PATTERN.fullmatch(label)
    gpu = gpu_models.parse(parts["card"]) if parts else None
    if parts is None or gpu is None:
        return None
    memory = int(parts["gib"]) * 1024 if parts["gib"] else gpu_models.memory_mib(gpu.model)
    return MachineType(gpu.model, int(parts["count"] or 1), memory, None)


def regions_of(label: str) -> tuple[str, ...]:
    """Short names of the regions that have the type, by the documentation."""
    return (_MAIN, *(region for region, labels in _ALSO.items() if label in labels))


def short_region(text: str) -> str:
    """``ny2`` of ``ny2`` or ``East Coast (NY2)``; both forms are in use."""
    match = _SHORT.search(text)
    return (match[1] if match else text).strip().lower()


def disk_step(gib: int) -> int | None:
    """The smallest disk that is sold and holds ``gib``, None when there is none."""
    return next((step for step in DISK_STEPS if step >= gib), None)


def disk_price(gigabytes: int) -> Decimal:
    """Dollars per hour."""
    return round(_DISK_GB_HOUR * gigabytes, 4)
