# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The extended resources by which pods ask for GPUs."""

from __future__ import annotations

NVIDIA_GPU = "nvidia.com/gpu"
AMD_GPU = "amd.com/gpu"
SHARED_GPU = f"{NVIDIA_GPU}.shared"
NEUTRAL_GPU = "tgp.io/gpu"
"""What ``capacity`` of a Node offers beside the vendor's resource, so that a pod need not name a vendor."""
GPU_RESOURCES = (NVIDIA_GPU, AMD_GPU, NEUTRAL_GPU)
MIG_PREFIX = "nvidia.com/mig-"
SHARED_GPU_PREFIX = "nvidia.com/gpu."
"""Parts of a GPU: MIG devices, and what time slicing renames (nvidia.com/gpu.shared)."""
PARTIAL_GPU_PREFIXES = (MIG_PREFIX, SHARED_GPU_PREFIX)
