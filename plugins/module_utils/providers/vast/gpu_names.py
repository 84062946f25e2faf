# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GPU names as Vast.ai spells them, both ways. Its search takes only its own spelling, and one name may cover several memory sizes."""

from __future__ import annotations

import functools
import re
import typing as t

from ...planner.offers import gpu_models

_SPELLED = (
    "A10|A10g|A16|A30|A40|A100 PCIE|A100 SXM4|A100 SXM|A100X|A800 PCIE|B200|B300|B300 PC|GH200 SXM|H100 PCIE|H100 SXM|"
    "H100 NVL|H200|H200 NVL|L4|L40|L40S|Tesla K20c|Tesla K80|Tesla M40|Tesla P4|Tesla P6|Tesla P40|Tesla P100|Tesla T4|"
    "Tesla V100|GTX 750 Ti|GeForce 970|GTX 1050|GTX 1050 Ti|GTX 1060|GTX 1070|GTX 1070 Ti|GTX 1080|GTX 1080 Ti|GTX 1650|"
    "GTX 1650 S|GTX 1650 Ti|GTX 1660|GTX 1660 S|GTX 1660 Ti|GTX TITAN X|RTX 2060|RTX 2060S|RTX 2070|RTX 2070S|RTX 2080|"
    "RTX 2080S|RTX 2080 Ti|RTX 3050|RTX 3060|RTX 3060 laptop|RTX 3060 Ti|RTX 3070|RTX 3070 laptop|RTX 3070 Ti|RTX 3080|"
    "RTX 3080 Ti|RTX 3090|RTX 3090 Ti|RTX 4060|RTX 4060 laptop|RTX 4060 Ti|RTX 4070|RTX 4070 laptop|RTX 4070S|RTX 4070 Ti|"
    "RTX 4070S Ti|RTX 4080|RTX 4080 laptop|RTX 4080S|RTX 4090|RTX 4090D|RTX 5060|RTX 5060 Ti|RTX 5070|RTX 5070 Ti|RTX 5080|"
    "RTX 5090|Titan X|Titan Xp|Titan V|TITAN V CEO|Titan RTX|Quadro K620|Quadro K2200|Quadro P2000|Quadro P4000|"
    "Quadro P5000|Quadro P6000|Quadro GP100|Quadro GV100|Q RTX 4000|Q RTX 5000|Q RTX 6000|Q RTX 8000|RTX A2000|RTX A4000|"
    "RTX A4500|RTX A5000|RTX A6000|RTX 2000Ada|RTX 4000Ada|RTX 4500Ada|RTX 5000Ada|RTX 5880Ada|RTX 6000Ada|RTX PRO 4000|"
    "RTX PRO 4000 Mobile|RTX PRO 4500|RTX PRO 5000|RTX PRO 6000 S|RTX PRO 6000|RTX PRO 6000 WS|RTX PRO 6000 Max-Q|CMP 50HX|"
    "CMP 170HX|P104-100|P106-100|InstinctMI50|InstinctMI100|InstinctMI210|InstinctMI250X|PRO W6800|PRO W7800|PRO W7900|"
    "Pro V620|Radeon VII|Radeon Pro VII|RX 6800|RX 6800 XT|RX 6900 XT|RX 6950 XT|RX 7600|RX 7700 XT|RX 7800 XT|RX 7900 GRE|"
    "RX 7900 XT|RX 7900 XTX"
)
# boards of one name with other memory (48 GB RTX 4090, 22 GB RTX 2080 Ti) exist: a size this near to a sold one is that one
_TOLERANCE = 0.07
_BLACKWELL = re.compile(r"G?B[23]00|RTX50[5-9]0|RTXPRO")  # RTX5000Ada is none


@functools.cache
def _spellings() -> dict[str, tuple[str, ...]]:
    by_model: dict[str, tuple[str, ...]] = {}
    for name in _SPELLED.split("|"):
        model = model_of(name)
        by_model[model] = (*by_model.get(model, ()), name)
    return by_model


def spellings(models: t.Iterable[str]) -> list[str]:
    """Every name under which Vast.ai offers one of these canonical models; empty when it knows none of them."""
    return [name for model in models for name in _spellings().get(model, ())]


@functools.cache
def model_of(name: str) -> str:
    """The canonical model, or Vast.ai's own word for what we do not know."""
    return gpu_models.canonical(name) or name


def memory_mib(model: str, reported: float) -> int:
    """Memory per GPU as it is sold. Drivers report a little less: 24564 for 24 GiB, 81559 for 80."""
    near = min(gpu_models.memory_sizes_mib(model), key=lambda size: abs(size - reported), default=0)
    if near and abs(near - reported) <= near * _TOLERANCE:
        return near
    return round(reported / 1024) * 1024 if reported >= 1024 else int(reported)


def least_cuda(model: str) -> tuple[int, int]:
    """The oldest CUDA with which a card of this model is of use."""
    return (12, 8) if _BLACKWELL.match(model) else (0, 0)
