# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the sandbox's Paperspace knows about its machine types, regions and templates.

Prices are what an on-demand user is charged by the page of September 2026, older ones where that page shows promotions or nothing; None =
nobody has seen one, a scenario must say it. Processors and memory of a type are ours where nothing is published.
"""

from __future__ import annotations

import typing as t
from decimal import Decimal

GIB = 1024**3


class MachineType(t.NamedTuple):
    """``gpus`` of ``model`` (``card`` in the API) with ``memory_gib`` each; dollars per hour for the machine without its disk."""

    gpus: int
    model: str
    card: str
    memory_gib: int
    price: Decimal | None
    cpus: int
    ram_gib: int
    regions: tuple[str, ...]
    boot_seconds: float = 240.0


REGIONS = {"ny2": "East Coast (NY2)", "ca1": "West Coast (CA1)", "ams1": "Europe (AMS1)"}
DISK_SIZES = (50, 100, 250, 500, 1000, 2000, 4000, 8000, 12000, 16000)  # GB
DISK_GB_MONTH = Decimal("0.10")
NVLINK_TYPES = ("A100-80Gx8", "H100x8")
_ALL = ("ny2", "ca1", "ams1")
_COASTS = ("ny2", "ca1")
_EAST = ("ny2",)


def _row(
    gpus: int, model: str, card: str, memory: int, price: str, cpus: int, ram: int, regions: tuple[str, ...], boot: float = 240.0
) -> MachineType:
    return MachineType(gpus, model, card, memory, Decimal(price) if price else None, cpus, ram, regions, boot)


TYPES: dict[str, MachineType] = {
    "GPU+": _row(1, "QUADRO-M4000", "Quadro M4000", 8, "0.45", 8, 30, ("ny2", "ams1")),
    "P4000": _row(1, "QUADRO-P4000", "Quadro P4000", 8, "0.51", 8, 30, _ALL),
    "P4000x2": _row(2, "QUADRO-P4000", "Quadro P4000", 8, "1.02", 16, 60, _ALL),
    "P5000": _row(1, "QUADRO-P5000", "Quadro P5000", 16, "0.78", 8, 30, _ALL),
    "P6000": _row(1, "QUADRO-P6000", "Quadro P6000", 24, "1.10", 8, 30, _ALL),
    "RTX4000": _row(1, "QUADRO-RTX4000", "Quadro RTX 4000", 8, "0.56", 8, 30, _ALL),
    "RTX5000": _row(1, "QUADRO-RTX5000", "Quadro RTX 5000", 16, "0.82", 8, 30, _EAST),
    "A4000": _row(1, "A4000", "RTX A4000", 16, "0.76", 8, 45, _ALL),
    "A4000x2": _row(2, "A4000", "RTX A4000", 16, "1.52", 16, 90, _ALL),
    "A4000x4": _row(4, "A4000", "RTX A4000", 16, "3.04", 32, 180, _ALL),
    "A5000": _row(1, "A5000", "RTX A5000", 24, "1.38", 8, 45, _COASTS),
    "A6000": _row(1, "A6000", "RTX A6000", 48, "1.89", 8, 45, _COASTS),
    "V100": _row(1, "V100", "Tesla V100", 16, "2.30", 8, 30, ("ny2", "ams1")),
    "V100-32G": _row(1, "V100", "Tesla V100", 32, "2.30", 8, 30, _EAST),
    "V100-32Gx2": _row(2, "V100", "Tesla V100", 32, "4.60", 16, 60, _EAST),
    "V100-32Gx4": _row(4, "V100", "Tesla V100", 32, "9.20", 32, 120, _EAST, 360.0),
    "A100": _row(1, "A100-SXM", "A100", 40, "", 12, 90, _EAST),
    "A100-80G": _row(1, "A100-SXM", "A100-80G", 80, "3.18", 12, 90, _EAST),
    "A100-80Gx8": _row(8, "A100-SXM", "A100-80G", 80, "25.44", 96, 720, _EAST, 600.0),
    "H100": _row(1, "H100-SXM", "H100", 80, "5.95", 20, 250, _EAST),
    "H100x8": _row(8, "H100-SXM", "H100", 80, "47.60", 128, 1638, _EAST, 600.0),
    "C1": _row(0, "", "", 0, "0.0045", 1, 1, _ALL, 120.0),
    "C5": _row(0, "", "", 0, "0.08", 4, 8, _ALL, 120.0),
    "C6": _row(0, "", "", 0, "", 8, 16, _ALL, 120.0),
    "C7": _row(0, "", "", 0, "", 12, 30, _ALL, 120.0),
    "C8": _row(0, "", "", 0, "", 16, 60, _ALL, 120.0),
    "C9": _row(0, "", "", 0, "0.90", 24, 120, _ALL, 120.0),
    "C10": _row(0, "", "", 0, "1.60", 32, 244, _ALL, 120.0),
}


def short_region(text: t.Any) -> str | None:
    """``ny2`` of ``ny2``, ``NY2`` or ``East Coast (NY2)``; None when there is no such region."""
    if not isinstance(text, str):
        return None
    return next((short for short, long in REGIONS.items() if text.strip().lower() in (short, long.lower())), None)


def storage_hour(gigabytes: int) -> Decimal:
    """Dollars per hour for a disk, as shown and as billed."""
    return round(DISK_GB_MONTH * gigabytes / 730, 4)


def _fits(*names: str, not_in: t.Sequence[str] = ()) -> list[dict[str, t.Any]]:
    return [{"machineTypeLabel": name, "isAvailable": name not in not_in} for name in names]


def templates() -> list[dict[str, t.Any]]:
    """The provider's own templates: nulls, absences and whole numbers written as fractions stand where the real list has them."""
    workstation = [name for name, kind in TYPES.items() if kind.gpus and not name.startswith(("A100", "H100"))]

    def template(identity: str, name: str, system: str, agent: str = "LinuxHeadless", **more: t.Any) -> dict[str, t.Any]:
        made = {"id": identity, "name": name, "agentType": agent, "operatingSystemLabel": system}
        return {**made, "dtCreated": "2024-02-06T19:02:48.000Z", **more}

    ubuntu = _fits(*TYPES, not_in=NVLINK_TYPES)
    return [
        template("t0nspur5", "Ubuntu 22.04", "Ubuntu 22.04", defaultSizeGb=50, availableMachineTypes=ubuntu),
        template("twnlo3zj", "ML-in-a-Box", "Ubuntu 20.04", defaultSizeGb=100.0, availableMachineTypes=_fits(*workstation)),
        template(
            "tqqsxr6b", "Ubuntu 22.04 A100-80G", "Ubuntu 22.04", defaultSizeGb=None, availableMachineTypes=_fits("A100", "A100-80G")
        ),
        template("tvimtol9", "Ubuntu 22.04 A100-80Gx8", "Ubuntu 22.04", availableMachineTypes=_fits("A100-80Gx8")),
        template("tilqt47t", "Ubuntu 22.04 H100", "Ubuntu 22.04", defaultSizeGb=250, availableMachineTypes=_fits("H100")),
        template("t7vp562h", "Ubuntu 22.04 H100x8", "Ubuntu 22.04", defaultSizeGb=250, availableMachineTypes=_fits("H100x8")),
        template("tdesk204", "Ubuntu 20.04 Desktop", "Ubuntu 20.04", "LinuxDesktop", defaultSizeGb=50, availableMachineTypes=None),
        template("twin2019", "Windows 10 (Server 2019)", "Windows 10 (Server 2019)", "WindowsDesktop"),
    ]
