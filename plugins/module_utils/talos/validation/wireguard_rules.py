# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a WireGuard link must be like in a machine configuration. Each rule gives sentences that repeat no key."""

from __future__ import annotations

import ipaddress
import re
import typing as t

from ...model.mesh import Tunnel
from ...planner.provisioning.wireguard_rules import KEY, endpoint_of, is_key
from ...units.values import Network, overlap
from ..template import Document, items_at

_OTHER_LINKS = ("BondConfig", "BridgeConfig", "DummyLinkConfig", "LinkConfig", "VLANConfig", "VRFConfig")


def overlaps(tunnel: Tunnel, pods: t.Sequence[str], services: t.Sequence[str]) -> list[str]:
    """A sentence for each of the cluster's subnets that the tunnel's network overlaps."""
    return [
        f"The tunnel's network {tunnel.network} overlaps the cluster's {kind} subnet {subnet}: Talos leaves such an address out of the node's "
        "without a word. Choose another network, for example 10.77.0.0/24."
        for kind, subnets in (("pod", pods), ("service", services))
        for subnet in subnets
        if _overlaps(ipaddress.ip_network(tunnel.network), subnet)
    ]


def _overlaps(network: Network, subnet: str) -> bool:
    try:
        other = ipaddress.ip_network(subnet, strict=False)
    except ValueError:
        return False  # it is refused as what it is, elsewhere
    return overlap(other, network)


def document_rules(document: Document) -> t.Iterator[str]:
    """What Talos demands of a WireguardConfig document and its schema does not say."""
    name = document.get("name")
    where = f"WireguardConfig {name}" if name else "WireguardConfig"
    if not isinstance(name, str) or not name:
        yield "WireguardConfig: name is missing: write the link's, for example wg-tgp."
    if not is_key(document.get("privateKey")):
        yield f"{where}: privateKey {KEY}."
    for address in _mappings(document, "addresses"):
        if not _is_prefix(address.get("address")):
            yield f"{where}: addresses: {address.get('address')!r} is not an address with a prefix length, like 10.77.0.11/24."
    for route in _mappings(document, "routes"):
        yield from (f"{where}: routes: {problem}" for problem in _route(route))
    for number, peer in enumerate(_mappings(document, "peers")):
        yield from (f"{where}: peers[{number}].{problem}" for problem in _peer(peer))


def interface_rules(interfaces: t.Iterable[Document], documents: t.Sequence[Document]) -> t.Iterator[str]:
    """What Talos demands of WireGuard in ``machine.network.interfaces``, and that a link is written in one place only."""
    links = {str(document.get("name")) for document in documents if document.get("kind") == "WireguardConfig"}
    for document in documents:
        if document.get("kind") in _OTHER_LINKS and document.get("name") in links:
            yield f"{document['kind']} {document['name']} and WireguardConfig {document['name']} exclude each other; write one of the two."
    for interface in interfaces:
        name, wireguard = interface.get("interface"), interface.get("wireguard")
        if name in links:
            yield f"machine.network.interfaces: {name} is a WireguardConfig as well; write one of the two."
        if not isinstance(wireguard, dict):
            continue
        if not is_key(wireguard.get("privateKey")):
            yield f"machine.network.interfaces: {name}: wireguard.privateKey {KEY}."
        for number, peer in enumerate(_mappings(wireguard, "peers")):
            yield from (f"machine.network.interfaces: {name}: wireguard.peers[{number}].{problem}" for problem in _peer(peer))


def _route(route: Document) -> t.Iterator[str]:
    destination, gateway = route.get("destination"), route.get("gateway")
    if destination not in (None, "") and not _is_prefix(destination):
        yield f"destination {destination!r} is not a network, like 192.168.10.0/24."
    for field in ("gateway", "source"):
        if route.get(field) not in (None, "") and not _is_address(route[field]):
            yield f"{field} {route[field]!r} is not an address."
    if destination in (None, "") and gateway in (None, ""):
        yield "a route needs a destination or a gateway."


def _peer(peer: Document) -> t.Iterator[str]:
    for field in ("publicKey", "presharedKey"):
        if (field == "publicKey" or peer.get(field) not in (None, "")) and not is_key(peer.get(field)):
            yield f"{field} {KEY}."
    if peer.get("endpoint") not in (None, "") and endpoint_of(peer["endpoint"]) is None:
        yield f"endpoint {peer['endpoint']!r} must be IP:port; Talos looks no name up for it."
    for allowed in items_at(peer, "allowedIPs"):
        if not _is_prefix(allowed):
            yield f"allowedIPs: {allowed!r} is not a network with a prefix length, like 10.77.0.0/24."


def _mappings(document: Document, field: str) -> list[Document]:
    return [entry for entry in items_at(document, field) if isinstance(entry, dict)]


def _is_prefix(value: t.Any) -> bool:
    try:
        ipaddress.ip_interface(str(value))
    except ValueError:
        return False
    return bool(re.fullmatch(r"[^/]+/\d{1,3}", str(value)))


def _is_address(value: t.Any) -> bool:
    try:
        ipaddress.ip_address(str(value))
    except ValueError:
        return False
    return True
