# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes quantities ("2", "500m", "16Gi") as whole numbers, and which resources are GPUs."""

from __future__ import annotations

import functools
import re
from decimal import Decimal

from ..model.resources import GPU_RESOURCES, PARTIAL_GPU_PREFIXES

#: resources that are GPUs by default (L-3); nvidia.com/mig-* and nvidia.com/gpu.* (shared) always are

_FORM = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i))?$")
_SUFFIX = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{letter: Decimal(1000) ** power for power, letter in enumerate(("k", "M", "G", "T", "P", "E"), 1)},
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate(("K", "M", "G", "T", "P", "E"), 1)},
}


@functools.lru_cache(maxsize=4096)
def whole(text: str, resource: str = "") -> int:
    """The quantity as a whole number, rounded up: ``cpu`` in thousandths of a core, everything else in its own unit (memory: bytes,
    GPUs: pieces). ValueError when it is no quantity."""
    found = _FORM.match(text)
    if found is None:
        raise ValueError(f"{text!r} is not a quantity")
    number = Decimal(found[1] + (found[2] or "")) * _SUFFIX.get(found[3] or "", Decimal(1))
    if resource == "cpu":
        number *= 1000
    return int(number.to_integral_value("ROUND_CEILING"))


def is_gpu(resource: str, names: tuple[str, ...] = GPU_RESOURCES) -> bool:
    """True for a resource that stands for GPUs."""
    return resource in names or resource.startswith(PARTIAL_GPU_PREFIXES)
