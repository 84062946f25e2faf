# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the ends of a WireGuard tunnel must be like to work at all. No sentence repeats a key."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import typing as t

from ...model.mesh import Tunnel

KEY = "must be a WireGuard key: 44 characters of base64, as `wg genkey` and `wg pubkey` print them"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,14}")
_ENDPOINT = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+)):(\d{1,5})")

Fault = tuple[str, str]  # a field of Tunnel, and what is wrong with it


def is_key(value: t.Any) -> bool:
    """Whether WireGuard takes it as a key: strict base64 of exactly 32 bytes, in the one way of writing them."""
    try:
        raw = base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except (binascii.Error, ValueError):  # the latter for what is not ASCII
        return False
    return len(raw) == 32 and base64.b64encode(raw).decode() == value


def endpoint_of(text: t.Any) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int] | None:
    """Address and port of "203.0.113.10:51820" or "[2001:db8::1]:51820"; None for everything else, names too: nobody looks them up."""
    match = _ENDPOINT.fullmatch(str(text))
    if not match or not 0 < int(match[3]) < 65536:
        return None
    try:
        address = ipaddress.ip_address(match[1] or match[2])
    except ValueError:
        return None
    return (address, int(match[3])) if (address.version == 6) == bool(match[1]) else None


def problems(tunnel: Tunnel) -> list[str]:
    """Everything with which a node's tunnel could not work anywhere, as sentences that begin with the field."""
    return [f"{field} {problem}" for field, problem in (*hub_faults(tunnel), *node_faults(tunnel))]


def hub_faults(tunnel: Tunnel) -> t.Iterator[Fault]:
    """What is wrong for every node of this hub."""
    if not is_key(tunnel.hub_key):
        yield "hub_key", f"{KEY}."
    endpoint = endpoint_of(tunnel.endpoint)
    if endpoint is None:
        yield (
            "endpoint",
            f"{tunnel.endpoint!r} must be IP:port of the hub, like 203.0.113.10:51820: no node looks a name up for it.",
        )
    if not _NAME.fullmatch(tunnel.interface):
        yield (
            "interface",
            f"{tunnel.interface!r} is not a name of a network interface: a letter, then at most 14 letters, digits, '-', '_', '.'.",
        )
    if not 1280 <= tunnel.mtu <= 9000:
        yield "mtu", f"{tunnel.mtu} must be 1280 to 9000; 1420 fits most ways, 1412 those over PPPoE."
    if not 1 <= tunnel.keepalive <= 65535:
        yield (
            "keepalive",
            f"{tunnel.keepalive} must be 1 to 65535 seconds: the node has to speak first, and again before its NAT forgets it.",
        )
    try:
        hub: t.Any = ipaddress.ip_address(tunnel.hub_address)
    except ValueError:
        yield "hub_address", f"{tunnel.hub_address!r} is not an address; write the hub's inside the tunnel, like 10.77.0.1."
        return
    network = _network(tunnel)
    if network is not None:
        if hub not in network:
            yield (
                "hub_address",
                f"{hub} is not in the tunnel's network {network}; the length behind a node's address is that of the whole network.",
            )
        elif _is_end(network, hub):
            yield (
                "hub_address",
                f"{hub} names the network {network} itself or all of it; write the hub's own address, like 10.77.0.1.",
            )
        yield from _allowed(tunnel, network, hub, endpoint[0] if endpoint else None)


def node_faults(tunnel: Tunnel) -> t.Iterator[Fault]:
    """What is wrong with this one node's end."""
    if not is_key(tunnel.private_key):
        yield "private_key", f"{KEY}."
    elif tunnel.private_key == tunnel.hub_key:
        yield "private_key", "and hub_key are the same: hub_key is the hub's public key."
    network = _network(tunnel)
    if network is None:
        yield "address", f"{tunnel.address!r} is not an address with a prefix length, like 10.77.0.11/24."
        return
    if "/" not in tunnel.address or _is_end(network, ipaddress.ip_address(tunnel.ip)):
        yield "address", f"{tunnel.address} is not that of one node in a network, like 10.77.0.11/24."
    elif tunnel.ip == tunnel.hub_address:
        yield "address", f"{tunnel.ip} is the hub's own; give the node another one."


def _network(tunnel: Tunnel) -> t.Any:
    """The network the node's address is in; None when that is not an address."""
    try:
        return ipaddress.ip_interface(tunnel.address).network
    except ValueError:
        return None


def _is_end(network: t.Any, address: t.Any) -> bool:
    """Whether the address is the first of its network, or for IPv4 the last: no machine can have it."""
    return address == network.network_address or (network.version == 4 and address == network.broadcast_address)


def _allowed(tunnel: Tunnel, network: t.Any, hub: t.Any, endpoint: t.Any) -> t.Iterator[Fault]:
    reaches_hub = False
    for text in tunnel.allowed:
        try:
            subnet = ipaddress.ip_network(text)
        except ValueError:
            yield "allowed", f"{text!r} is not a network; write it like 192.168.10.0/24, without bits behind its prefix."
            continue
        if subnet.version != network.version:
            yield (
                "allowed",
                f"{text}: the tunnel's address is IPv{network.version}, so nothing of IPv{subnet.version} goes through it.",
            )
        if endpoint is not None and endpoint in subnet:
            yield (
                "allowed",
                f"{text} contains the hub's endpoint {endpoint}: the way to the hub would lead through the tunnel itself.",
            )
        reaches_hub = reaches_hub or hub in subnet
    if not reaches_hub:
        yield "allowed", f"has no network with the hub's address {hub}; name the tunnel's own network {network} there."
