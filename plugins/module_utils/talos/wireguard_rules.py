# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a WireGuard link must be like, on Talos and on a stock Linux. Each rule gives sentences that repeat no key."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import typing as t

from ..fleet.model.tunnel import Tunnel
from .documents import Document, items_at

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,14}")
_OTHER_LINKS = ("BondConfig", "BridgeConfig", "DummyLinkConfig", "LinkConfig", "VLANConfig", "VRFConfig")
_KEY = "must be a WireGuard key: 44 characters of base64, as `wg genkey` and `wg pubkey` print them"


def is_key(value: t.Any) -> bool:
    """True for the base64 of 32 bytes."""
    try:
        return isinstance(value, str) and len(base64.b64decode(value, validate=True)) == 32
    except (binascii.Error, ValueError):
        return False


def endpoint_of(text: t.Any) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int] | None:
    """Address and port of "203.0.113.10:51820" or "[2001:db8::1]:51820"; None for everything else, names too: nobody looks them up."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+)):(\d{1,5})", str(text))
    if not found or not 0 < int(found[3]) < 65536:
        return None
    try:
        address = ipaddress.ip_address(found[1] or found[2])
    except ValueError:
        return None
    return (address, int(found[3])) if (address.version == 6) == bool(found[1]) else None


def tunnel_problems(tunnel: Tunnel) -> list[str]:
    """Everything with which a node's tunnel could not work anywhere; :func:`overlaps` tells whether it can in one cluster."""
    found = []
    if not _NAME.fullmatch(tunnel.interface):
        found.append(
            f"interface {tunnel.interface!r} is no name of a network interface: a letter, then at most 14 letters, digits, '-', '_', '.'."
        )
    for name, key in (("private_key", tunnel.private_key), ("hub_key", tunnel.hub_key)):
        if not is_key(key):
            found.append(f"{name} {_KEY}.")
    if tunnel.private_key and tunnel.private_key == tunnel.hub_key:
        found.append("private_key and hub_key are the same: hub_key is the hub's public key.")
    if not 1280 <= tunnel.mtu <= 9000:
        found.append(f"mtu {tunnel.mtu} must be 1280 to 9000; 1420 fits most ways, 1412 those over PPPoE.")
    if not 1 <= tunnel.keepalive <= 65535:
        found.append(
            f"keepalive {tunnel.keepalive} must be 1 to 65535 seconds: the node has to speak first, and again before its NAT forgets it."
        )
    return found + _addresses(tunnel)


def _addresses(tunnel: Tunnel) -> list[str]:
    found = []
    endpoint = endpoint_of(tunnel.endpoint)
    if endpoint is None:
        found.append(
            f"endpoint {tunnel.endpoint!r} must be IP:port of the hub, like 203.0.113.10:51820: no node looks a name up for it."
        )
    try:
        own = ipaddress.ip_interface(tunnel.address)
    except ValueError:
        return [*found, f"address {tunnel.address!r} is no address with a length, like 10.77.0.11/24."]
    network = own.network
    try:
        hub: t.Any = ipaddress.ip_address(tunnel.hub_address)
    except ValueError:
        return [*found, f"hub_address {tunnel.hub_address!r} is no address; write the hub's inside the tunnel, like 10.77.0.1."]
    if hub not in network:
        found.append(
            f"address {tunnel.address}: the hub's {hub} is not in {network}; write the length of the whole network behind the address."
        )
    elif own.ip == hub:
        found.append(f"address {own.ip} is the hub's own; give the node another one.")
    if (
        "/" not in tunnel.address
        or own.ip == network.network_address
        or (network.version == 4 and own.ip == network.broadcast_address)
    ):
        found.append(f"address {tunnel.address} is not that of one node in a network, like 10.77.0.11/24.")
    return found + _allowed(tunnel, network, hub, endpoint[0] if endpoint else None)


def _allowed(tunnel: Tunnel, network: t.Any, hub: t.Any, endpoint: t.Any) -> list[str]:
    found, reaches_hub = [], False
    for text in tunnel.allowed:
        try:
            one = ipaddress.ip_network(text)
        except ValueError:
            found.append(f"allowed {text!r} is no network; write it like 192.168.10.0/24, without bits behind its length.")
            continue
        if one.version != network.version:
            found.append(
                f"allowed {text}: the tunnel's address is IPv{network.version}, so nothing of IPv{one.version} goes through it."
            )
        if endpoint is not None and endpoint in one:
            found.append(
                f"allowed {text} contains the hub's endpoint {endpoint}: the way to the hub would lead through the tunnel itself."
            )
        reaches_hub = reaches_hub or hub in one
    if not reaches_hub:
        found.append(f"allowed has no network with the hub's address {hub}; name the tunnel's own network {network} there.")
    return found


def overlaps(tunnel: Tunnel, pods: t.Sequence[str], services: t.Sequence[str]) -> list[str]:
    """A sentence for each of the cluster's subnets that the tunnel's network overlaps."""
    return [
        f"The tunnel's network {tunnel.network} overlaps the cluster's {what} subnet {subnet}: Talos leaves such an address out of the node's "
        "without a word. Choose another network, for example 10.77.0.0/24."
        for what, subnets in (("pod", pods), ("service", services))
        for subnet in subnets
        if _overlaps(ipaddress.ip_network(tunnel.network), subnet)
    ]


def _overlaps(network: t.Any, subnet: str) -> bool:
    try:
        other: t.Any = ipaddress.ip_network(subnet, strict=False)
    except ValueError:
        return False  # it is refused as what it is, elsewhere
    return bool(other.version == network.version and other.overlaps(network))


def document_rules(document: Document) -> t.Iterator[str]:
    """What Talos demands of a WireguardConfig document and its schema does not say."""
    name = document.get("name")
    where = f"WireguardConfig {name}" if name else "WireguardConfig"
    if not isinstance(name, str) or not name:
        yield "WireguardConfig: name is missing: write the link's, for example wg-tgp."
    if not is_key(document.get("privateKey")):
        yield f"{where}: privateKey {_KEY}."
    for address in _mappings(document, "addresses"):
        if not _is_prefix(address.get("address")):
            yield f"{where}: addresses: {address.get('address')!r} is no address with a length, like 10.77.0.11/24."
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
    for one in interfaces:
        name, wireguard = one.get("interface"), one.get("wireguard")
        if name in links:
            yield f"machine.network.interfaces: {name} is a WireguardConfig as well; write one of the two."
        if not isinstance(wireguard, dict):
            continue
        if not is_key(wireguard.get("privateKey")):
            yield f"machine.network.interfaces: {name}: wireguard.privateKey {_KEY}."
        for number, peer in enumerate(_mappings(wireguard, "peers")):
            yield from (f"machine.network.interfaces: {name}: wireguard.peers[{number}].{problem}" for problem in _peer(peer))


def _route(route: Document) -> t.Iterator[str]:
    destination, gateway = route.get("destination"), route.get("gateway")
    if destination not in (None, "") and not _is_prefix(destination):
        yield f"destination {destination!r} is no network, like 192.168.10.0/24."
    for field in ("gateway", "source"):
        if route.get(field) not in (None, "") and not _is_address(route[field]):
            yield f"{field} {route[field]!r} is no address."
    if destination in (None, "") and gateway in (None, ""):
        yield "a route needs a destination or a gateway."


def _peer(peer: Document) -> t.Iterator[str]:
    for field in ("publicKey", "presharedKey"):
        if (field == "publicKey" or peer.get(field) not in (None, "")) and not is_key(peer.get(field)):
            yield f"{field} {_KEY}."
    if peer.get("endpoint") not in (None, "") and endpoint_of(peer["endpoint"]) is None:
        yield f"endpoint {peer['endpoint']!r} must be IP:port; Talos looks no name up for it."
    for allowed in items_at(peer, "allowedIPs"):
        if not _is_prefix(allowed):
            yield f"allowedIPs: {allowed!r} is no network with a length, like 10.77.0.0/24."


def _mappings(document: Document, field: str) -> list[Document]:
    return [one for one in items_at(document, field) if isinstance(one, dict)]


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
