# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a machine can make anything of the endpoint's name: some names mean something elsewhere only."""

from __future__ import annotations

import ipaddress
import typing as t
from urllib.parse import urlsplit

from ...model import Lane
from ...model.wireguard import Tunnel
from ..documents import Document, at, items_at, machine_document
from ..spec import NodeSpec

_TAILNET = ".ts.net"
_IN_CLUSTER = (".svc", ".cluster.local")


def endpoint_problem(spec: NodeSpec, documents: t.Sequence[Document]) -> list[str]:
    """At most one sentence. What DNS says of other names is not asked: the machine's own resolver may know more than ours."""
    try:
        host = (urlsplit(spec.api_endpoint).hostname or "").rstrip(".")
    except ValueError:
        return [f"control_plane_endpoint {spec.api_endpoint!r} is no URL."]
    try:
        unspecified = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        unspecified = False
    if unspecified:
        return [f"control_plane_endpoint: {host} is where a server listens, not where it is; write the control plane's address."]
    if host.endswith(_IN_CLUSTER):
        return [f"control_plane_endpoint: the name {host} is known inside the cluster only, and a machine joins from outside."]
    if spec.tunnel is not None and not host.endswith(_TAILNET):
        return _by_tunnel(host, spec.tunnel)
    if not host.endswith(_TAILNET):
        return []
    if spec.mesh.backend != "tailscale":
        return [f"control_plane_endpoint: {host} is a name of a tailnet, and the class's machines enter none (networking.backend)."]
    if spec.lane is Lane.TALOS and host not in _written(documents):
        return [
            f"control_plane_endpoint: Talos machines do not ask the tailnet's DNS, so {host} is unknown to them; write the control plane's "
            "100.x address, or give the name to each machine by machine.network.extraHostEntries (from Talos 1.12 on StaticHostConfig)."
        ]
    return []


def _by_tunnel(host: str, tunnel: Tunnel) -> list[str]:
    """A machine with a tunnel reaches what lies behind the hub and what is public; of a name nothing is known."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return []
    if address == ipaddress.ip_address(tunnel.hub_address) or address.is_global or address.is_loopback:  # a forwarder of its own
        return []
    if any(address in ipaddress.ip_network(one) for one in tunnel.allowed):
        return []
    return [
        f"control_plane_endpoint: {host} is neither public, nor the hub's address {tunnel.hub_address}, nor in a network that goes through the "
        f"tunnel ({', '.join(tunnel.allowed)}); write the hub's address where it forwards to the control plane, or add the control plane's "
        "network to the allowed ones."
    ]


def _written(documents: t.Sequence[Document]) -> set[str]:
    """Names that the configuration itself gives an address."""
    config = machine_document(documents) or {}
    entries = items_at(config, "machine.network.extraHostEntries")
    found = {str(name) for entry in entries if isinstance(entry, dict) for name in entry.get("aliases") or ()}
    for document in documents:
        if document.get("kind") == "StaticHostConfig":
            found |= {str(name) for name in at(document, "hostnames") or ()}
    return found
