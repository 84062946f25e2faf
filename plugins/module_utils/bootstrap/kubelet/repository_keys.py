# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who may sign the repositories that lane kubelet installs from: the one place where their keys are pinned.

A key that says another expiry date, or has other subkeys, keeps its fingerprint and needs nothing here. One that its owner replaces needs a
new line here, or KEY_<NAME> in a pool's template (docs/kubelet_lane.md) until there is one.
"""

from __future__ import annotations

import typing as t

# Docker's is in Docker's installation guide. Those of Docker, Kubernetes and NVIDIA were computed from the key files that Debian hands out in
# its signed package extrepo-offline-data. Tailscale publishes no fingerprint: its own was computed from a stored copy of its key file, and is
# what dnf shows when it takes the key of pkgs.tailscale.com.
PINNED: t.Mapping[str, tuple[str, ...]] = {
    "kubernetes": ("DE15B14486CD377B9E876E1A234654DA9A296436",),
    "docker": ("9DC858229FC7DD38854AE2D88D81803C0EBFCD88",),
    "tailscale": ("2596A99EAAB33821893C0A79458CA832957F5868",),
    "nvidia": ("C95B321B61E88C1809C4F759DDCAE044F796ECB0",),
}
"""Name of a repository → the fingerprints of all primary keys in its key file, 40 capital hex digits each."""


def settings() -> dict[str, str]:
    """They as node.env says them: KEY_DOCKER and so on, fingerprints parted by blanks."""
    return {f"KEY_{name.upper()}": " ".join(fingerprints) for name, fingerprints in PINNED.items()}
