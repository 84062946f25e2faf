# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which mesh a machine entered when it was made, whatever its class says by now."""

from __future__ import annotations

from ...model import Claim, NodeClass


def mesh_of(claim: Claim) -> str:
    """The backend of the claim's mesh: tailscale (also headscale) or wireguard. Empty when the claim does not tell: the machine is in none,
    or was adopted."""
    if claim.mesh_backend:
        return claim.mesh_backend
    if claim.peer is not None:
        return "wireguard"
    return "tailscale" if claim.mesh_device_id or claim.mesh_key_id or claim.mesh_seen is not None else ""


def mesh_differs(claim: Claim, node_class: NodeClass) -> bool:
    """Whether the machine is in another mesh than the class enters today. An unknown mesh does not differ."""
    mesh = mesh_of(claim)
    return bool(mesh) and mesh != node_class.mesh.backend


def uses_tailnet(claim: Claim, node_class: NodeClass | None) -> bool:
    """Whether the machine should have a device in the tailnet. Its class decides only where the claim does not tell: a class may have moved
    to another mesh since."""
    mesh = mesh_of(claim)
    return mesh == "tailscale" if mesh else node_class is not None and node_class.mesh.backend == "tailscale"
