# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of nodes in a WireGuard network, and what each hub has to know of them. Claims are the only record of both."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import ipaddress
import itertools
import typing as t

from ...model import Claim, Hub, NodeClass, Peer
from ...model.mesh import Tunnel

WIREGUARD = "wireguard"


def free(hub: Hub, claims: t.Iterable[Claim]) -> int:
    """How many more nodes the hub's network has addresses for."""
    taken = _taken(claims)
    mine = ipaddress.ip_network(hub.addresses)
    inside = sum(1 for entry in taken if entry.version == mine.version and entry in mine)
    return max(0, _usable(hub) - inside)


def draw(hub: Hub, claims: t.Iterable[Claim], name: str) -> str:
    """An address for the machine ``name``, with the length of the whole network, as 10.77.0.11/24; empty when none is free.

    Where the search begins is told by the name, so that an address that was given back is not the very next one to be handed out.
    """
    out, own = _taken(claims) | _reserved(hub), ipaddress.ip_network(hub.network)
    pool = ipaddress.ip_network(hub.addresses)
    start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % pool.num_addresses
    for number in itertools.chain(range(start, pool.num_addresses), range(start)):
        address = pool[number]
        if address not in out:
            return f"{address}/{own.prefixlen}"
    return ""


def end_of(hub: Hub, address: str, private_key: str) -> Tunnel:
    """The end of the node that has ``address`` (with the length of the whole network)."""
    return Tunnel(
        private_key=private_key,
        address=address,
        hub_key=hub.public_key,
        endpoint=hub.endpoint,
        hub_address=hub.address,
        allowed=hub.allowed,
        interface=hub.interface,
        mtu=hub.mtu,
        keepalive=hub.keepalive,
    )


def fits(hub: Hub, peer: Peer) -> bool:
    """Whether what a claim remembers is still of this hub: its class may have been given another network meanwhile."""
    same_place = (peer.host, peer.interface) == (hub.host, hub.interface)
    return same_place and str(ipaddress.ip_interface(peer.address).network) == hub.network


class Spare:
    """Addresses that are left while launches are planned. ``claims``: those whose place stands, with an address or about to get one."""

    def __init__(self, claims: t.Iterable[Claim], classes: t.Mapping[str, NodeClass]) -> None:
        self._claims = tuple(claims)
        self._free: dict[Hub, int] = {}  # every offer is held against it
        self._waiting = collections.Counter(
            classes[claim.node_class].mesh.hub for claim in self._claims if claim.peer is None and claim.node_class in classes
        )

    def against(self, hub: Hub | None) -> str:
        """Why no more machine may be planned for the hub's network; empty when one may."""
        if hub is None:
            return ""
        if hub not in self._free:
            self._free[hub] = free(hub, self._claims)
        if self._free[hub] > self._waiting[hub]:
            return ""
        return f"no address is free in {hub.addresses}"

    def take(self, hub: Hub | None) -> None:
        """One more will have an address."""
        self._waiting[hub] += 1


@dataclasses.dataclass(frozen=True, slots=True)
class HubPeers:
    """All peers that ``interface`` of the inventory's ``host`` is to have of this cluster, and no others of it."""

    host: str
    interface: str
    peers: tuple[tuple[str, Peer], ...]


def hubs(known: t.Iterable[Hub], claims: t.Sequence[Claim]) -> list[HubPeers]:
    """Each hub that is named in a document or a claim, with its peers by name. A machine on its way out is a peer until its claim is gone;
    one without a key has not been rented yet. Hubs whose peers are kept by hand are left out."""
    places = {(hub.host, hub.interface) for hub in known}
    places |= {(claim.peer.host, claim.peer.interface) for claim in claims if claim.peer is not None}
    return [
        HubPeers(
            host,
            interface,
            tuple(
                (claim.name, claim.peer)
                for claim in sorted(claims, key=lambda claim: claim.name)
                if claim.peer is not None and claim.peer.public_key and (claim.peer.host, claim.peer.interface) == (host, interface)
            ),
        )
        for host, interface in sorted(places)
        if host
    ]


def _taken(claims: t.Iterable[Claim]) -> set[t.Any]:
    return {ipaddress.ip_interface(claim.peer.address).ip for claim in claims if claim.peer is not None}


def _reserved(hub: Hub) -> set[t.Any]:
    """What no node may have: the hub's own address, and the first and last of the network."""
    network = ipaddress.ip_network(hub.network)
    return {ipaddress.ip_address(hub.address), network.network_address, network.broadcast_address}


def _usable(hub: Hub) -> int:
    pool = ipaddress.ip_network(hub.addresses)
    return pool.num_addresses - sum(1 for entry in _reserved(hub) if entry in pool)
