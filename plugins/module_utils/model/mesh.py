# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the mesh knows: devices, and the keys that let them in."""

from __future__ import annotations

import dataclasses
import ipaddress
import typing as t
from datetime import datetime

from ..units.values import lies_in
from .cluster import SecretRef


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """An entry of the mesh. ``hostname`` is what the node asked for, ``name`` what the mesh made of it ("-1" suffix possible).
    ``ephemeral`` and ``online`` are None where the server does not tell."""

    id: str
    hostname: str
    name: str = ""
    addresses: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    online: bool | None = None
    created: datetime | None = None
    last_seen: datetime | None = None
    ephemeral: bool | None = False
    external: bool = False
    authorized: bool = True
    problem: str = ""
    key_expiry_disabled: bool | None = None
    expires: datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class MeshKey:
    """An enrolment key without its secret. ``description`` names the node it was made for."""

    id: str
    description: str
    created: datetime | None = None
    expires: datetime | None = None
    invalid: bool | None = None


# ---- the mesh of a class, and the WireGuard hub that its nodes reach the cluster through


@dataclasses.dataclass(frozen=True, slots=True)
class Hub:
    """The user's own WireGuard machine that the nodes of a class reach the cluster through.

    ``endpoint`` is its IP:port, ``address`` its own in ``network``; nodes get theirs from ``addresses``, a part of the network.
    ``allowed``: networks that a node sends through the tunnel. ``host``: its name in the inventory; empty = its peers are kept by hand.
    ``keepalive`` is seconds.
    """

    endpoint: str
    public_key: str
    network: str
    address: str
    addresses: str
    allowed: tuple[str, ...]
    host: str = ""
    interface: str = "wg-tgp"
    mtu: int = 1420
    keepalive: int = 25


@dataclasses.dataclass(frozen=True, slots=True)
class HubSecrets:
    """What a class says of a hub of which some stands in Secrets: ``section`` has what the document says, ``refs`` the key of a Secret for each
    other field, both in the words of wireguardConfig. ``place`` is the document, ``path`` the section and ``names`` those of its fields there,
    for people. ``host`` and ``interface`` are those of the hub. ``problem``: why it could not be read; empty = nobody has tried yet."""

    place: str
    path: str
    section: t.Mapping[str, t.Any] = dataclasses.field(hash=False, repr=False)
    refs: t.Mapping[str, SecretRef] = dataclasses.field(hash=False)
    names: t.Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)
    host: str = ""
    interface: str = "wg-tgp"
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class MeshChoice:
    """The class's mesh: ``backend`` tailscale (also headscale), wireguard (with its ``hub``) or none. ``hub_secrets``: where the rest of
    the hub is to be read; ``hub`` is None until that is done."""

    backend: str = "tailscale"
    tags: tuple[str, ...] = ()
    ephemeral: bool = True
    accept_routes: bool = False
    advertise_routes: tuple[str, ...] = ()
    hub: Hub | None = None
    hub_secrets: HubSecrets | None = None

    @property
    def hub_unread(self) -> bool:
        """Whether the hub is unknown because its Secrets were not read, or could not be."""
        return self.hub is None and self.hub_secrets is not None

    @property
    def hub_place(self) -> Hub | HubSecrets | None:
        """What names the host and the interface of the hub."""
        return self.hub or self.hub_secrets


# ---- one node's end of a WireGuard tunnel to the hub, whatever the node's system writes it down as


@dataclasses.dataclass(frozen=True, slots=True)
class Tunnel:
    """``address`` with the length of the whole network (10.77.0.11/24), so that its other nodes are reached without routes of their own.
    ``endpoint`` is IP:port of the hub, ``allowed`` the networks that are reached through it, ``keepalive`` is seconds."""

    private_key: str = dataclasses.field(repr=False)
    address: str
    hub_key: str
    endpoint: str
    hub_address: str
    allowed: tuple[str, ...]
    interface: str = "wg-tgp"
    mtu: int = 1420
    keepalive: int = 25

    @property
    def ip(self) -> str:
        """The address alone."""
        return self.address.partition("/")[0]

    @property
    def network(self) -> str:
        """The network the address is in."""
        return str(ipaddress.ip_interface(self.address).network)

    @property
    def beyond(self) -> tuple[str, ...]:
        """What of ``allowed`` lies outside the network and needs a route by ``hub_address``."""
        own = ipaddress.ip_interface(self.address).network
        nets = (ipaddress.ip_network(network) for network in self.allowed)
        return tuple(str(net) for net in nets if not lies_in(net, own))
