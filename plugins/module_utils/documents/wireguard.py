# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wireguardConfig of a GPUNodeClass, valid by its schema, as the model's Hub."""

from __future__ import annotations

import ipaddress
import typing as t

from ..model import Hub
from ..planner.provisioning import wireguard_addresses, wireguard_rules
from .reading import Reader

_HERE = "spec.wireguardConfig"
_TAILNET = "100.64.0.0/10"
_FIELDS = {
    "hub_key": "publicKey",
    "endpoint": "endpoint",
    "interface": "interface",
    "mtu": "mtu",
    "keepalive": "persistentKeepalive",
    "hub_address": "hubAddress",
    "allowed": "allowedIPs",
}
Spec = t.Mapping[str, t.Any]


def hub(spec: Spec, reader: Reader) -> Hub | None:
    """The hub; None without a wireguardConfig or when its network is none. What is wrong is told to the reader."""
    wish: Spec | None = spec.get("wireguardConfig")
    if wish is None:
        return None
    network = _network(wish["network"], "network", reader)
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
    allowed = reader.networks(wish.get("allowedIPs", ()), f"{_HERE}.allowedIPs")
    found = Hub(
        endpoint=wish["endpoint"],
        public_key=wish["publicKey"],
        network=str(network),
        address=wish.get("hubAddress", str(network[1])),
        addresses=str(addresses),
        allowed=tuple(dict.fromkeys((str(network), *allowed))),
        host=wish.get("hub", ""),
        interface=wish.get("interface", "wg-tgp"),
        mtu=wish.get("mtu", 1420),
        keepalive=reader.duration(wish.get("persistentKeepalive"), f"{_HERE}.persistentKeepalive", 25),
    )
    some_node = wireguard_addresses.end_of(found, f"{network[-2]}/{network.prefixlen}", "")
    for field, what in wireguard_rules.hub_faults(some_node):
        reader.fault(f"{_HERE}.{_FIELDS[field]}", what)
    return found


def _network(text: str, field: str, reader: Reader) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        reader.fault(f"{_HERE}.{field}", f"{error}. Write a network like 10.77.0.0/24.")
        return None
