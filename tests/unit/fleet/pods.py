# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that wait for GPUs, and places for them."""

from __future__ import annotations

import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.model import Pod
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.binpacking import Bin

from .build import at, pod

GPU = "nvidia.com/gpu"
EPHEMERAL = "tgp.io/ephemeral"


def waiting(name: str = "w", gpus: int = 1, **facts: t.Any) -> Pod:
    """A pod that the scheduler could not place since 11:50."""
    usual: dict[str, t.Any] = {
        "node": "",
        "waiting": "Unschedulable",
        "waiting_why": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        "requests": {GPU: gpus},
        "created": at("11:50"),
    }
    return pod(name, facts.pop("phase", "Pending"), **{**usual, **facts})


def place(name: str = "a", gpus: int = 1, **facts: t.Any) -> Bin:
    return Bin(name, {GPU: gpus, **facts.pop("free", {})}, **facts)
