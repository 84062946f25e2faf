# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wireguardConfig of a GPUNodeClass, valid by its schema, as the model's Hub."""

from __future__ import annotations

import ipaddress
import typing as t

from ..fleet.model import Hub
from ..mesh.wireguard_keys import valid_key
from .reading import Reader

_HERE = "spec.wireguardConfig"
_TAILNET = "100.64.0.0/10"
Spec = t.Mapping[str, t.Any]


def hub(spec: Spec, reader: Reader) -> Hub | None:
    """The hub; None without a wireguardConfig or when its network is none. What is wrong is told to the reader."""
    wish: Spec | None = spec.get("wireguardConfig")
    if wish is None:
        return None
    network = _network(wish["network"], "network", reader)
    if not valid_key(wish["publicKey"]):
        reader.fault(f"{_HERE}.publicKey", "it is not a WireGuard key: 32 bytes in base64, as `wg pubkey` prints it.")
    _endpoint(wish["endpoint"], reader)
    if network is None:
        return None
    if network.num_addresses < 4:
        reader.fault(f"{_HERE}.network", f"{network} has no room for a hub and nodes.")
        return None
    if network.version == 4 and network.overlaps(ipaddress.IPv4Network(_TAILNET)):
        reader.fault(f"{_HERE}.network", f"{network} lies in {_TAILNET}, the addresses of tailnets. Take another private network.")
    addresses = _network(wish.get("addresses", str(network)), "addresses", reader) or network
    if addresses.version != network.version or not addresses.subnet_of(network):  # type: ignore[arg-type]
        reader.fault(f"{_HERE}.addresses", f"{addresses} is no part of the network {network}.")
        return None
    own = _address(wish.get("hubAddress", str(network[1])), network, reader)
    allowed = reader.networks(wish.get("allowedIPs", ()), f"{_HERE}.allowedIPs")
    return Hub(
        endpoint=wish["endpoint"],
        public_key=wish["publicKey"],
        network=str(network),
        address=own,
        addresses=str(addresses),
        allowed=tuple(dict.fromkeys((str(network), *allowed))),
        host=wish.get("hub", ""),
        interface=wish.get("interface", "wg-tgp"),
        mtu=wish.get("mtu", 1420),
        keepalive=reader.duration(wish.get("persistentKeepalive"), f"{_HERE}.persistentKeepalive", 25),
    )


def _network(text: str, field: str, reader: Reader) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        reader.fault(f"{_HERE}.{field}", f"{error}. Write a network like 10.77.0.0/24.")
        return None


def _address(text: str, network: ipaddress.IPv4Network | ipaddress.IPv6Network, reader: Reader) -> str:
    try:
        inside = ipaddress.ip_address(text) in network
    except ValueError:
        inside = False
    if not inside:
        reader.fault(f"{_HERE}.hubAddress", f"{text!r} is no address in {network}.")
    return text


def _endpoint(text: str, reader: Reader) -> None:
    """Talos loads no host name here, and a machine that boots may not resolve one yet."""
    host, _colon, port = text.rpartition(":")
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        good = 0 < int(port) < 65536
    except ValueError:
        good = False
    if not good:
        reader.fault(
            f"{_HERE}.endpoint", f"{text!r} is not IP:port, for example 203.0.113.10:51820. Host names are not possible here."
        )
