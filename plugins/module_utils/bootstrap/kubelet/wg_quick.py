# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's WireGuard tunnel on a stock Ubuntu machine: the file that wg-quick reads, from the same configuration that Talos would read."""

from __future__ import annotations

import re
import typing as t

from ...core.errors import InvalidInput
from ...model.wireguard import Tunnel
from ...talos.documents import Document, items_at
from ...talos.wireguard import link

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def path_of(tunnel: Tunnel) -> str:
    """Where wg-quick looks for it."""
    return f"/etc/wireguard/{tunnel.interface}.conf"


def conf(documents: t.Sequence[Document], config: Document, tunnel: Tunnel) -> str:
    """The file. Routes need no lines: wg-quick makes one for each allowed network. Raises InvalidInput for what it could not be told."""
    found = link(documents, config, tunnel.interface)
    lines = ["# Written by the Ansible collection tgp.gpu.", "[Interface]"]
    lines += [f"Address = {one['address']}" for one in items_at(found, "addresses")]
    lines.append(f"PrivateKey = {found['privateKey']}")
    for field, name in (("mtu", "MTU"), ("listenPort", "ListenPort"), ("firewallMark", "FwMark")):
        if found.get(field):
            lines.append(f"{name} = {found[field]}")
    for peer in items_at(found, "peers"):
        lines += ["", "[Peer]", f"PublicKey = {peer['publicKey']}"]
        if peer.get("presharedKey"):
            lines.append(f"PresharedKey = {peer['presharedKey']}")
        if peer.get("endpoint"):
            lines.append(f"Endpoint = {peer['endpoint']}")
        if peer.get("allowedIPs"):
            lines.append(f"AllowedIPs = {', '.join(peer['allowedIPs'])}")
        if peer.get("persistentKeepaliveInterval"):
            lines.append(f"PersistentKeepalive = {_seconds(str(peer['persistentKeepaliveInterval']))}")
    if any("\n" in line or "\r" in line for line in lines):
        raise InvalidInput(f"WireGuard {tunnel.interface}: a setting has a line end in it.")
    return "\n".join(lines) + "\n"


def settings(tunnel: Tunnel) -> dict[str, str]:
    """What node.env says of it; no secret."""
    return {
        "MESH_INTERFACE": tunnel.interface,
        "MESH_ADDRESS": tunnel.ip,
        "MESH_HUB_KEY": tunnel.hub_key,
        "MESH_ENDPOINT": tunnel.endpoint,
    }


def _seconds(duration: str) -> int:
    found = _DURATION.fullmatch(duration)
    if not found or not duration:
        raise InvalidInput(f"persistentKeepaliveInterval {duration!r} must be in hours, minutes and whole seconds, like 25s.")
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds
