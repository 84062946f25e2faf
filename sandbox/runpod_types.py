# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the sandbox's RunPod knows about its GPU types and data centres. Prices are dollars per hour of one GPU, as the public price page
showed them in 2026; 0 = the tier does not have the type."""

from __future__ import annotations

import typing as t
from decimal import Decimal

SECURE, COMMUNITY = "SECURE", "COMMUNITY"
CUDA_VERSIONS = ("12.4", "12.8", "12.9", "13.0")
_BLACKWELL = "12.8"


class Gpu(t.NamedTuple):
    """A type: ``name`` is the display name, ``model`` ours, ``memory`` GB per GPU, ``most`` GPUs of the largest machine per tier.
    ``cuda`` = the least CUDA version its hosts have."""

    name: str
    model: str
    memory: int
    pool: str
    price: dict[str, Decimal]
    serverless: Decimal
    most: dict[str, int]
    cuda: str = "12.4"
    manufacturer: str = "NVIDIA"


class DataCenter(t.NamedTuple):
    """A place, with what it offers besides GPUs."""

    name: str
    region: str
    country: str
    global_network: bool = False
    volumes: tuple[str, ...] = ()
    compliance: tuple[str, ...] = ()


def _gpu(
    name: str,
    model: str,
    memory: int,
    pool: str,
    secure: str,
    community: str,
    serverless: str,
    most: tuple[int, int] = (8, 4),
    cuda: str = "12.4",
    manufacturer: str = "NVIDIA",
) -> Gpu:
    prices = {SECURE: Decimal(secure), COMMUNITY: Decimal(community)}
    counts = {SECURE: most[0] if prices[SECURE] else 0, COMMUNITY: most[1] if prices[COMMUNITY] else 0}
    return Gpu(name, model, memory, pool, prices, Decimal(serverless), counts, cuda, manufacturer)


GPUS: dict[str, Gpu] = {
    "NVIDIA GeForce RTX 3070": _gpu("RTX 3070", "RTX3070", 8, "", "0", "0.13", "0"),
    "NVIDIA GeForce RTX 3090": _gpu("RTX 3090", "RTX3090", 24, "AMPERE_24", "0.46", "0.22", "0.69"),
    "NVIDIA GeForce RTX 4090": _gpu("RTX 4090", "RTX4090", 24, "ADA_24", "0.59", "0.34", "1.10"),
    "NVIDIA GeForce RTX 5090": _gpu("RTX 5090", "RTX5090", 32, "ADA_32_PRO", "0.89", "0.69", "1.58", cuda=_BLACKWELL),
    "NVIDIA RTX A4000": _gpu("RTX A4000", "A4000", 16, "AMPERE_16", "0.25", "0.17", "0.58"),
    "NVIDIA RTX A4500": _gpu("RTX A4500", "A4500", 20, "AMPERE_16", "0.25", "0.19", "0.58"),
    "NVIDIA RTX A5000": _gpu("RTX A5000", "A5000", 24, "AMPERE_24", "0.27", "0.16", "0.69"),
    "NVIDIA RTX A6000": _gpu("RTX A6000", "A6000", 48, "AMPERE_48", "0.49", "0.33", "1.22"),
    "NVIDIA RTX 4000 Ada Generation": _gpu("RTX 4000 Ada", "RTX4000Ada", 20, "AMPERE_16", "0.26", "0.20", "0.58"),
    "NVIDIA RTX 6000 Ada Generation": _gpu("RTX 6000 Ada", "RTX6000Ada", 48, "ADA_48_PRO", "0.77", "0.74", "1.90"),
    "NVIDIA A40": _gpu("A40", "A40", 48, "AMPERE_48", "0.40", "0.35", "1.22", (10, 8)),
    "NVIDIA L4": _gpu("L4", "L4", 24, "AMPERE_24", "0.39", "0.32", "0.69"),
    "NVIDIA L40": _gpu("L40", "L40", 48, "ADA_48_PRO", "0.99", "0.69", "1.90"),
    "NVIDIA L40S": _gpu("L40S", "L40S", 48, "ADA_48_PRO", "0.86", "0.79", "1.90"),
    "NVIDIA A100 80GB PCIe": _gpu("A100 PCIe", "A100-PCIE", 80, "AMPERE_80", "1.39", "1.19", "2.72"),
    "NVIDIA A100-SXM4-80GB": _gpu("A100 SXM", "A100-SXM", 80, "AMPERE_80", "1.49", "1.39", "2.72"),
    "NVIDIA H100 PCIe": _gpu("H100 PCIe", "H100-PCIE", 80, "ADA_80_PRO", "2.39", "1.99", "4.18"),
    "NVIDIA H100 80GB HBM3": _gpu("H100 SXM", "H100-SXM", 80, "ADA_80_PRO", "2.99", "2.69", "4.18"),
    "NVIDIA H100 NVL": _gpu("H100 NVL", "H100-NVL", 94, "ADA_80_PRO", "2.79", "2.59", "4.18"),
    "NVIDIA H200": _gpu("H200 SXM", "H200", 141, "HOPPER_141", "3.99", "3.59", "5.58"),
    "NVIDIA B200": _gpu("B200", "B200", 180, "BLACKWELL_180", "5.98", "0", "8.64", cuda=_BLACKWELL),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": _gpu(
        "RTX PRO 6000", "RTXPRO6000", 96, "BLACKWELL_96", "1.79", "1.69", "3.42", cuda=_BLACKWELL
    ),
    "AMD Instinct MI300X OAM": _gpu("MI300X", "MI300X", 192, "", "2.49", "0", "0", manufacturer="AMD"),
}

_STANDARD = ("STANDARD",)
DATA_CENTERS: dict[str, DataCenter] = {
    "US-KS-2": DataCenter("US Kansas 2", "NORTH_AMERICA", "US", True, ("STANDARD", "HIGH_PERFORMANCE"), ("SOC_2_TYPE_2",)),
    "US-TX-3": DataCenter("US Texas 3", "NORTH_AMERICA", "US", True, _STANDARD),
    "US-CA-2": DataCenter("US California 2", "NORTH_AMERICA", "US", True, _STANDARD, ("SOC_2_TYPE_2",)),
    "US-GA-2": DataCenter("US Georgia 2", "NORTH_AMERICA", "US", False, _STANDARD),
    "US-DE-1": DataCenter("US Delaware 1", "NORTH_AMERICA", "US"),
    "CA-MTL-1": DataCenter("CA Montreal 1", "NORTH_AMERICA", "CA", True, _STANDARD),
    "EU-RO-1": DataCenter("EU Romania 1", "EUROPE", "RO", True, _STANDARD, ("GDPR",)),
    "EU-SE-1": DataCenter("EU Sweden 1", "EUROPE", "SE", True, _STANDARD, ("GDPR", "ISO_IEC_27001")),
    "EU-CZ-1": DataCenter("EU Czechia 1", "EUROPE", "CZ", True, _STANDARD, ("GDPR",)),
    "EU-FR-1": DataCenter("EU France 1", "EUROPE", "FR", False, (), ("GDPR",)),
    "EU-NL-1": DataCenter("EU Netherlands 1", "EUROPE", "NL", True, _STANDARD, ("GDPR",)),
    "EUR-IS-1": DataCenter("EUR Iceland 1", "EUROPE", "IS", True, _STANDARD, ("GDPR",)),
    "EUR-NO-1": DataCenter("EUR Norway 1", "EUROPE", "NO", False, _STANDARD, ("GDPR",)),
    "AP-JP-1": DataCenter("AP Japan 1", "ASIA", "JP", True, _STANDARD),
    "AP-IN-1": DataCenter("AP India 1", "ASIA", "IN"),
    "SEA-SG-1": DataCenter("SEA Singapore 1", "ASIA", "SG"),
    "OC-AU-1": DataCenter("OC Australia 1", "OCEANIA", "AU", False, _STANDARD),
}
REGIONS = (
    "NORTH_AMERICA", "SOUTH_AMERICA", "EUROPE", "ASIA", "MIDDLE_EAST", "AFRICA", "OCEANIA", "ANTARCTICA", "UNKNOWN",
)  # fmt: skip

CPUS: dict[str, tuple[str, Decimal]] = {  # display name, dollars per hour of one vCPU
    "cpu3c": ("Compute-Optimized, 3 GHz", Decimal("0.03")),
    "cpu3g": ("General Purpose, 3 GHz", Decimal("0.04")),
    "cpu5c": ("Compute-Optimized, 5 GHz", Decimal("0.035")),
}
