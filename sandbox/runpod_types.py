# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the sandbox's RunPod knows about its types of GPU and CPU and its data centres. Prices are dollars per hour of one GPU or vCPU, as
the public price page showed them in 2026; 0 = the tier does not have the type. RAM and vCPUs of hosts are our choice within what clients
report."""

from __future__ import annotations

import typing as t
from decimal import Decimal

SECURE, COMMUNITY = "SECURE", "COMMUNITY"
CUDA_VERSIONS = ("12.4", "12.8", "12.9", "13.0")
_BLACKWELL = "12.8"


class Gpu(t.NamedTuple):
    """A type: ``name`` is the display name, ``model`` ours, ``memory`` GB per GPU, ``most`` GPUs of the largest machine per tier.
    ``cuda`` = the least CUDA version its hosts have, ``ram`` GB and ``vcpus`` = what they have per GPU."""

    name: str
    model: str
    memory: int
    pool: str
    price: dict[str, Decimal]
    serverless: Decimal
    most: dict[str, int]
    cuda: str = "12.4"
    manufacturer: str = "NVIDIA"
    ram: int = 48
    vcpus: int = 8


class Cpu(t.NamedTuple):
    """A flavour: ``ram`` GB per vCPU, ``price`` and ``serverless`` dollars per hour of one vCPU, ``places`` data centres that have it."""

    name: str
    group: str
    ram: float
    price: Decimal
    serverless: Decimal
    places: tuple[str, ...]


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
    ram: int = 0,
) -> Gpu:
    prices = {SECURE: Decimal(secure), COMMUNITY: Decimal(community)}
    counts = {SECURE: most[0] if prices[SECURE] else 0, COMMUNITY: most[1] if prices[COMMUNITY] else 0}
    return Gpu(name, model, memory, pool, prices, Decimal(serverless), counts, cuda, manufacturer, ram or max(48, 2 * memory))


def _rare(name: str, model: str, memory: int, cuda: str = "12.4", ram: int = 0) -> Gpu:
    """A type whose price we do not know: no tier has it until a scenario names a price."""
    return _gpu(name, model, memory, "", "0", "0", "0", cuda=cuda, ram=ram)


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
    "NVIDIA A100 80GB PCIe": _gpu("A100 PCIe", "A100-PCIE", 80, "AMPERE_80", "1.39", "1.19", "2.72", ram=117),
    "NVIDIA A100-SXM4-80GB": _gpu("A100 SXM", "A100-SXM", 80, "AMPERE_80", "1.49", "1.39", "2.72", ram=125),
    "NVIDIA H100 PCIe": _gpu("H100 PCIe", "H100-PCIE", 80, "ADA_80_PRO", "2.39", "1.99", "4.18", ram=188),
    "NVIDIA H100 80GB HBM3": _gpu("H100 SXM", "H100-SXM", 80, "ADA_80_PRO", "2.99", "2.69", "4.18", ram=250),
    "NVIDIA H100 NVL": _gpu("H100 NVL", "H100-NVL", 94, "ADA_80_PRO", "2.79", "2.59", "4.18", ram=188),
    "NVIDIA H200": _gpu("H200 SXM", "H200", 141, "HOPPER_141", "3.99", "3.59", "5.58", ram=250),
    "NVIDIA B200": _gpu("B200", "B200", 180, "BLACKWELL_180", "5.98", "0", "8.64", cuda=_BLACKWELL, ram=283),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": _gpu(
        "RTX PRO 6000", "RTXPRO6000", 96, "BLACKWELL_96", "1.79", "1.69", "3.42", cuda=_BLACKWELL, ram=188
    ),
    "AMD Instinct MI300X OAM": _gpu("MI300X", "MI300X", 192, "", "2.49", "0", "0", manufacturer="AMD", ram=283),
    "NVIDIA A30": _rare("A30", "A30", 24),
    "NVIDIA A100-SXM4-40GB": _rare("A100 SXM 40GB", "A100-SXM", 40, ram=94),
    "NVIDIA B300 SXM6 AC": _rare("B300", "B300", 288, _BLACKWELL, ram=320),
    "NVIDIA H200 NVL": _rare("NVIDIA H200 NVL", "H200-NVL", 143, ram=250),
    "Tesla T4": _rare("Tesla T4", "T4", 16),
    "Tesla V100-PCIE-16GB": _rare("Tesla V100", "V100-PCIE", 16),
    "Tesla V100-PCIE-32GB": _rare("V100 32GB", "V100-PCIE", 32),
    "Tesla V100-SXM2-16GB": _rare("V100 SXM2", "V100-SXM2", 16),
    "Tesla V100-SXM2-32GB": _rare("V100 SXM2 32GB", "V100-SXM2", 32),
    "Tesla V100-FHHL-16GB": _rare("V100 FHHL", "V100-FHHL", 16),
    "NVIDIA GeForce RTX 3080": _rare("RTX 3080", "RTX3080", 10),
    "NVIDIA GeForce RTX 3080 Ti": _rare("RTX 3080 Ti", "RTX3080Ti", 12),
    "NVIDIA GeForce RTX 3090 Ti": _rare("RTX 3090 Ti", "RTX3090Ti", 24),
    "NVIDIA GeForce RTX 4070 Ti": _rare("RTX 4070 Ti", "RTX4070Ti", 12),
    "NVIDIA GeForce RTX 4080": _rare("RTX 4080", "RTX4080", 16),
    "NVIDIA GeForce RTX 4080 SUPER": _rare("RTX 4080 SUPER", "RTX4080SUPER", 16),
    "NVIDIA GeForce RTX 5080": _rare("RTX 5080", "RTX5080", 16, _BLACKWELL),
    "NVIDIA RTX A2000": _rare("RTX A2000", "A2000", 6),
    "NVIDIA RTX 2000 Ada Generation": _rare("RTX 2000 Ada", "RTX2000Ada", 16),
    "NVIDIA RTX 4000 SFF Ada Generation": _rare("RTX 4000 Ada SFF", "RTX4000SFFAda", 20),
    "NVIDIA RTX 5000 Ada Generation": _rare("RTX 5000 Ada", "RTX5000Ada", 32),
    "NVIDIA RTX PRO 4500 Blackwell": _rare("RTX PRO 4500", "RTXPRO4500", 32, _BLACKWELL),
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": _rare("RTX PRO 6000 WK", "RTXPRO6000WS", 96, _BLACKWELL),
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": _rare("RTX PRO 6000 MaxQ", "RTXPRO6000MaxQ", 96, _BLACKWELL),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb": _rare("PRO 6000 MIG 24GB", "RTXPRO6000-MIG-1G", 24, _BLACKWELL),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 2g.48gb": _rare("PRO 6000 MIG 48GB", "RTXPRO6000-MIG-2G", 48, _BLACKWELL),
}

_STANDARD = ("STANDARD",)
DATA_CENTERS: dict[str, DataCenter] = {
    "US-KS-2": DataCenter("US Kansas 2", "NORTH_AMERICA", "US", True, ("STANDARD", "HIGH_PERFORMANCE"), ("SOC_2_TYPE_2",)),
    "US-KS-3": DataCenter("US Kansas 3", "NORTH_AMERICA", "US"),
    "US-TX-1": DataCenter("US Texas 1", "NORTH_AMERICA", "US"),
    "US-TX-3": DataCenter("US Texas 3", "NORTH_AMERICA", "US", True, _STANDARD),
    "US-TX-4": DataCenter("US Texas 4", "NORTH_AMERICA", "US"),
    "US-CA-2": DataCenter("US California 2", "NORTH_AMERICA", "US", True, _STANDARD, ("SOC_2_TYPE_2",)),
    "US-GA-1": DataCenter("US Georgia 1", "NORTH_AMERICA", "US"),
    "US-GA-2": DataCenter("US Georgia 2", "NORTH_AMERICA", "US", False, _STANDARD),
    "US-IL-1": DataCenter("US Illinois 1", "NORTH_AMERICA", "US"),
    "US-NC-1": DataCenter("US North Carolina 1", "NORTH_AMERICA", "US"),
    "US-WA-1": DataCenter("US Washington 1", "NORTH_AMERICA", "US"),
    "US-DE-1": DataCenter("US Delaware 1", "NORTH_AMERICA", "US"),
    "CA-MTL-1": DataCenter("CA Montreal 1", "NORTH_AMERICA", "CA", True, _STANDARD),
    "CA-MTL-2": DataCenter("CA Montreal 2", "NORTH_AMERICA", "CA"),
    "CA-MTL-3": DataCenter("CA Montreal 3", "NORTH_AMERICA", "CA"),
    "EU-RO-1": DataCenter("EU Romania 1", "EUROPE", "RO", True, _STANDARD, ("GDPR",)),
    "EU-SE-1": DataCenter("EU Sweden 1", "EUROPE", "SE", True, _STANDARD, ("GDPR", "ISO_IEC_27001")),
    "EU-CZ-1": DataCenter("EU Czechia 1", "EUROPE", "CZ", True, _STANDARD, ("GDPR",)),
    "EU-FR-1": DataCenter("EU France 1", "EUROPE", "FR", False, (), ("GDPR",)),
    "EU-NL-1": DataCenter("EU Netherlands 1", "EUROPE", "NL", True, _STANDARD, ("GDPR",)),
    "EUR-IS-1": DataCenter("EUR Iceland 1", "EUROPE", "IS", True, _STANDARD, ("GDPR",)),
    "EUR-IS-2": DataCenter("EUR Iceland 2", "EUROPE", "IS"),
    "EUR-IS-3": DataCenter("EUR Iceland 3", "EUROPE", "IS"),
    "EUR-NO-1": DataCenter("EUR Norway 1", "EUROPE", "NO", False, _STANDARD, ("GDPR",)),
    "AP-JP-1": DataCenter("AP Japan 1", "ASIA", "JP", True, _STANDARD),
    "AP-IN-1": DataCenter("AP India 1", "ASIA", "IN"),
    "SEA-SG-1": DataCenter("SEA Singapore 1", "ASIA", "SG"),
    "OC-AU-1": DataCenter("OC Australia 1", "OCEANIA", "AU", False, _STANDARD),
}
REGIONS = (
    "NORTH_AMERICA", "SOUTH_AMERICA", "EUROPE", "ASIA", "MIDDLE_EAST", "AFRICA", "OCEANIA", "ANTARCTICA", "UNKNOWN",
)  # fmt: skip

CPUS: dict[str, Cpu] = {
    "cpu3c": Cpu("Compute-Optimized, 3 GHz", "Gen 3", 2, Decimal("0.03"), Decimal("0.02"), ("US-KS-2", "EU-RO-1")),
    "cpu3g": Cpu("General Purpose, 3 GHz", "Gen 3", 4, Decimal("0.04"), Decimal("0.03"), ("US-KS-2", "EU-RO-1")),
    "cpu5c": Cpu("Compute-Optimized, 5 GHz", "Gen 5", 2.5, Decimal("0.035"), Decimal("0.025"), ("US-KS-2",)),
}
CPU_COUNTS = (2, 4, 8, 16, 32)
