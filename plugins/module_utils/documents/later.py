# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fields and values that the rules know and this version does not honour yet. They are refused by name, never accepted and ignored."""

from __future__ import annotations

NOT_YET: dict[str, tuple[str, ...]] = {
    "GPUNodeClass": (
        "spec.calendar",
        "spec.wireguardConfig",
        "spec.networking.tailscale",
        "spec.networking.wireguard",
    ),
    "GPUNodePool": (
        "spec.schedule",
        "spec.nodes",
        "spec.replicas",
    ),
    "GPURequest": ("spec.wireguardConfig", "spec.service"),
}
NOT_YET_VALUES: dict[str, tuple[str, ...]] = {
    "spec.template.spec.lanes": ("takeover",),
    "spec.networking.backend": ("wireguard", "kubespan"),
}
REFUSED: dict[str, str] = {
    "spec.template.spec.timeSlicing": "write it as spec.timeSlicing",
    "spec.limits.budget": "write it as spec.budget",
    "spec.tailscaleConfig.hostname": "the host name of a machine is always its own name; leave this out",
    "spec.template.spec.ephemeralTaint": "name the taint tgp.io/ephemeral in template.spec.taints to choose its effect yourself",
}
