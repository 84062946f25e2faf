# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the sandbox's Lambda knows about its types and regions. Prices are those of Lambda's public price page of September 2026."""

from __future__ import annotations

import typing as t
from decimal import Decimal


class LambdaType(t.NamedTuple):
    """``gpus`` of ``model`` with ``memory_gib`` each; dollars per hour for the whole machine."""

    gpus: int
    model: str
    memory_gib: int
    text: str
    price: Decimal
    vcpus: int
    ram_gib: int
    disk_gib: int
    boot_seconds: float = 180.0

    @property
    def gpu_description(self) -> str:
        return self.text or "N/A"

    def description(self, name: str) -> str:
        return f"{self.gpus}x {self.text}" if self.gpus else name


def _row(
    gpus: int, model: str, memory: int, text: str, price: str, vcpus: int, ram: int, disk: int, boot: float = 180.0
) -> LambdaType:
    return LambdaType(gpus, model, memory, text, Decimal(price), vcpus, ram, disk, boot)


LAMBDA_TYPES: dict[str, LambdaType] = {
    "gpu_1x_a10": _row(1, "A10", 24, "A10 (24 GB PCIe)", "1.29", 30, 200, 1400),
    "gpu_1x_rtx6000": _row(1, "QUADRO-RTX6000", 24, "RTX 6000 (24 GB)", "0.69", 14, 46, 512),
    "gpu_1x_a6000": _row(1, "A6000", 48, "A6000 (48 GB)", "1.09", 14, 100, 200),
    "gpu_2x_a6000": _row(2, "A6000", 48, "A6000 (48 GB)", "2.18", 28, 200, 1024),
    "gpu_4x_a6000": _row(4, "A6000", 48, "A6000 (48 GB)", "4.36", 56, 400, 1024, 300.0),
    "gpu_1x_a100": _row(1, "A100-PCIE", 40, "A100 (40 GB PCIe)", "1.99", 30, 200, 512),
    "gpu_1x_a100_sxm4": _row(1, "A100-SXM", 40, "A100 (40 GB SXM4)", "1.99", 30, 200, 512),
    "gpu_8x_a100": _row(8, "A100-SXM", 40, "A100 (40 GB SXM4)", "15.92", 124, 1800, 6144, 900.0),
    "gpu_8x_a100_80gb_sxm4": _row(8, "A100-SXM", 80, "A100 (80 GB SXM4)", "22.32", 240, 1800, 20480, 900.0),
    "gpu_1x_h100_pcie": _row(1, "H100-PCIE", 80, "H100 (80 GB PCIe)", "3.29", 26, 200, 1024),
    "gpu_1x_h100_sxm5": _row(1, "H100-SXM", 80, "H100 (80 GB SXM5)", "4.29", 26, 225, 2816),
    "gpu_2x_h100_sxm5": _row(2, "H100-SXM", 80, "H100 (80 GB SXM5)", "8.38", 52, 450, 5632, 300.0),
    "gpu_8x_h100_sxm5": _row(8, "H100-SXM", 80, "H100 (80 GB SXM5)", "31.92", 208, 1800, 22528, 1380.0),
    "gpu_1x_gh200": _row(1, "GH200", 96, "GH200 (96 GB)", "2.29", 64, 432, 4096, 240.0),
    "gpu_8x_b200_sxm6": _row(8, "B200", 180, "B200 (180 GB SXM6)", "53.52", 208, 2900, 22528, 1380.0),
    "gpu_8x_v100": _row(8, "V100-SXM2", 16, "Tesla V100 (16 GB)", "6.32", 92, 448, 6041, 600.0),
    "cpu_4x_general": _row(0, "", 0, "", "0.20", 4, 16, 100, 120.0),
}

LAMBDA_REGIONS: dict[str, str] = {
    "us-east-1": "Virginia, USA",
    "us-east-3": "Washington DC, USA",
    "us-midwest-1": "Illinois, USA",
    "us-south-2": "North Texas, USA",
    "us-west-1": "California, USA",
    "us-west-2": "Arizona, USA",
    "us-west-3": "Utah, USA",
    "asia-northeast-1": "Osaka, Japan",
    "asia-south-1": "India",
    "europe-central-1": "Germany",
    "me-west-1": "Israel",
    "australia-east-1": "Sydney, Australia",
}
