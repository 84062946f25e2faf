# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NVIDIA's DRA driver will publish of a GPU that is not rented yet, as far as its model tells.

Where a model does not say which of several devices a machine will have, all of them are listed, and a selector decides only if it says
the same of each. Memory is NVML's total where it is known; elsewhere it is between nine tenths of the marketing figure and all of it.
"""

from __future__ import annotations

import functools
import re
import typing as t

from ...model.devices import GPU_DRIVER, Amount, DeviceProfile, SemVer, Value
from . import gpu_models

_MIB = 1024 * 1024
#: of NVIDIA's device plugin v0.20: shares of a GPU of compute capability 7.5 or higher, and of a lower or an unknown one
MPS_CLIENTS: t.Final = 48
MPS_CLIENTS_BEFORE: t.Final = 16
LEAST_SHARE = (9, 10)  # of the marketing figure, where NVML's total is not known
# beginning of the models' names, the longest that fits: architecture, compute capability
_ARCHITECTURES: tuple[tuple[str, str, tuple[int, int]], ...] = (
    ("A100", "Ampere", (8, 0)), ("A800", "Ampere", (8, 0)), ("A30", "Ampere", (8, 0)), ("A10", "Ampere", (8, 6)),
    ("A16", "Ampere", (8, 6)), ("A40", "Ampere", (8, 6)), ("A2000", "Ampere", (8, 6)), ("A4000", "Ampere", (8, 6)),
    ("A4500", "Ampere", (8, 6)), ("A5000", "Ampere", (8, 6)), ("A6000", "Ampere", (8, 6)), ("RTX30", "Ampere", (8, 6)),
    ("B200", "Blackwell", (10, 0)), ("GB200", "Blackwell", (10, 0)), ("B300", "Blackwell", (10, 3)), ("GB300", "Blackwell", (10, 3)),
    ("RTX50", "Blackwell", (12, 0)), ("RTXPRO", "Blackwell", (12, 0)),
    ("H100", "Hopper", (9, 0)), ("H200", "Hopper", (9, 0)), ("GH200", "Hopper", (9, 0)),
    ("L4", "Ada Lovelace", (8, 9)), ("L40", "Ada Lovelace", (8, 9)), ("RTX40", "Ada Lovelace", (8, 9)),
    ("T4", "Turing", (7, 5)), ("RTX20", "Turing", (7, 5)), ("GTX16", "Turing", (7, 5)), ("TITANRTX", "Turing", (7, 5)),
    ("QUADRO-RTX", "Turing", (7, 5)), ("V100", "Volta", (7, 0)), ("TITANV", "Volta", (7, 0)), ("QUADRO-GV100", "Volta", (7, 0)),
    ("P100", "Pascal", (6, 0)), ("QUADRO-GP100", "Pascal", (6, 0)), ("P4", "Pascal", (6, 1)), ("P40", "Pascal", (6, 1)),
    ("GTX10", "Pascal", (6, 1)), ("QUADRO-P", "Pascal", (6, 1)),
)  # fmt: skip
_ADA = re.compile(r"RTX\d+(SFF)?Ada")
#: model and GiB: NVML's product names and total memory in MiB (0 = not known)
_PRODUCTS: dict[tuple[str, int], tuple[tuple[str, int], ...]] = {
    ("A100-PCIE", 40): (("NVIDIA A100-PCIE-40GB", 40960),),
    ("A100-PCIE", 80): (("NVIDIA A100 80GB PCIe", 81920),),
    ("A100-SXM", 40): (("NVIDIA A100-SXM4-40GB", 40960),),
    ("A100-SXM", 80): (("NVIDIA A100-SXM4-80GB", 81920),),
    ("H100-PCIE", 80): (("NVIDIA H100 PCIe", 81559),),
    ("H100-SXM", 80): (("NVIDIA H100 80GB HBM3", 81559),),
    ("A10", 24): (("NVIDIA A10", 0),),
    ("A10G", 24): (("NVIDIA A10G", 0),),
    ("A30", 24): (("NVIDIA A30", 0),),
    ("A40", 48): (("NVIDIA A40", 0),),
    ("A6000", 48): (("NVIDIA RTX A6000", 0),),
    ("H100-NVL", 94): (("NVIDIA H100 NVL", 0),),
    ("H200", 141): (("NVIDIA H200", 0),),
    ("L4", 24): (("NVIDIA L4", 0),),
    ("L40", 48): (("NVIDIA L40", 0),),
    ("L40S", 48): (("NVIDIA L40S", 0),),
    ("T4", 16): (("Tesla T4", 0),),
    ("B200", 180): (("NVIDIA B200", 0),),
    ("RTX3090", 24): (("NVIDIA GeForce RTX 3090", 0),),
    ("RTX4090", 24): (("NVIDIA GeForce RTX 4090", 0),),
    ("RTX5090", 32): (("NVIDIA GeForce RTX 5090", 0),),
}
_FORMS = ("-PCIE", "-SXM")  # of a model that is named without its form


@functools.lru_cache(maxsize=512)
def planned_devices(model: str, memory_mib: int | None) -> tuple[DeviceProfile, ...]:
    """What the driver may publish of one GPU of a canonical model with so much memory (None = not known)."""
    memory = memory_mib if memory_mib is not None else gpu_models.memory_mib(model)
    known: dict[str, Value] = {"type": "gpu"}
    if architecture := _architecture(model):
        known |= {"architecture": architecture[0], "cudaComputeCapability": SemVer(*architecture[1], 0)}
    products = _products(model, memory)
    profiles: list[DeviceProfile] = []
    for name, total in products or (("", 0),):
        attributes = known | ({"productName": name} if name else {})
        profiles += [_profile(attributes, amount) for amount in _amounts(total, memory)]
    return tuple(dict.fromkeys(profiles))


def _products(model: str, memory: int | None) -> tuple[tuple[str, int], ...]:
    """Those of every form and size that the model may be."""
    sizes = gpu_models.memory_sizes_mib(model) if memory is None else (memory,)
    forms = [model] if any(model.endswith(form) for form in _FORMS) else [model, *(f"{model}{form}" for form in _FORMS)]
    found = [_PRODUCTS.get((form, size // 1024)) for form in forms for size in sizes]
    return tuple(product for products in found for product in products or ())


def _amounts(total: int, memory: int | None) -> tuple[int | None, ...]:
    if total or memory is None:
        return (total or None,)
    return (memory * LEAST_SHARE[0] // LEAST_SHARE[1], memory)


def _profile(attributes: dict[str, Value], memory: int | None) -> DeviceProfile:
    capacity = () if memory is None else ((f"{GPU_DRIVER}/memory", Amount(memory * _MIB)),)
    named = tuple(sorted((f"{GPU_DRIVER}/{name}", value) for name, value in attributes.items()))
    return DeviceProfile(GPU_DRIVER, named, capacity, planned=True)


def mps_clients(model: str) -> int:
    """Into how many shares NVIDIA's device plugin lets MPS divide a GPU; 0 = the GPU is not one of NVIDIA."""
    if gpu_models.vendor(model) != "nvidia":
        return 0
    architecture = _architecture(model)
    return MPS_CLIENTS if architecture is not None and architecture[1] >= (7, 5) else MPS_CLIENTS_BEFORE


def _architecture(model: str) -> tuple[str, tuple[int, int]] | None:
    if _ADA.fullmatch(model):
        return "Ada Lovelace", (8, 9)
    fitting = [row for row in _ARCHITECTURES if model == row[0] or _continues(model, row[0])]
    return max(fitting, key=lambda row: len(row[0]))[1:] if fitting else None


def _continues(model: str, beginning: str) -> bool:
    """Whether the model's name goes on where the beginning ends: A100-SXM is of A100, and A1000 is not."""
    rest = model.removeprefix(beginning)
    number = beginning[-1].isdigit() and rest[:1].isdigit()
    return rest != model and (not number or beginning.startswith(("RTX", "GTX")))
