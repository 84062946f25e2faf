# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's WireGuard tunnel in its configuration: a document of its own from Talos 1.12 on, a network interface before. Never both."""

from __future__ import annotations

import typing as t

from ..core.errors import InvalidInput
from ..model.mesh import Tunnel
from .releases.tables import minor
from .spec import NodeSpec
from .template import Document, at, items_at, of_kind
from .validation.wireguard_rules import overlaps

KIND = "WireguardConfig"
_KEPT = (
    "mtu",
    "listenPort",
    "firewallMark",
    "multicast",
)  # what a template may say of the link beside key, address, peers and routes
_DEFAULT_PODS, _DEFAULT_SERVICES = "10.244.0.0/16", "10.96.0.0/12"  # Talos's own, where a configuration says nothing


def write(spec: NodeSpec, config: Document, documents: list[Document]) -> None:
    """Put the node's tunnel into its configuration; ``spec`` has one. Key, address and peer are the tunnel's. Of a link of that name in the
    template its other settings and further routes stay, in whichever form it is written.

    WireGuard's allowed addresses make no routes on Talos, so each network beyond the tunnel's own gets one.
    """
    tunnel = t.cast(Tunnel, spec.tunnel)
    name = tunnel.interface
    given_document = of_kind(documents, KIND, name) or {}
    interfaces = items_at(config, "machine.network.interfaces")
    given_interface = next(
        (interface for interface in interfaces if isinstance(interface, dict) and interface.get("interface") == name), {}
    )
    kept = {key: value for key, value in {**given_interface, **given_document}.items() if key in _KEPT}
    for key in ("listenPort", "firewallMark"):
        old = at(given_interface, f"wireguard.{key}")
        if old is not None:
            kept.setdefault(key, old)
    kept.setdefault("mtu", tunnel.mtu)
    documents[:] = [document for document in documents if not (document.get("kind") == KIND and document.get("name") == name)]
    _drop_interface(config, name)
    peer = {
        "publicKey": tunnel.hub_key,
        "endpoint": tunnel.endpoint,
        "allowedIPs": list(tunnel.allowed),
        "persistentKeepaliveInterval": f"{tunnel.keepalive}s",
    }
    if (minor(spec.talos_version) or (1, 12)) >= (1, 12):
        others = _other_routes(tunnel, given_document.get("routes"), given_interface.get("routes"))
        document: Document = {"apiVersion": "v1alpha1", "kind": KIND, "name": name, "privateKey": tunnel.private_key, **kept}
        document["addresses"] = [{"address": tunnel.address}]
        routes = [{"destination": network, "gateway": tunnel.hub_address} for network in tunnel.beyond]
        if routes or others:
            document["routes"] = [*routes, *others]
        documents.append({**document, "peers": [peer]})
        return
    network = config["machine"].setdefault("network", {})
    wireguard: Document = {"privateKey": tunnel.private_key, "peers": [peer]}
    wireguard |= {key: kept.pop(key) for key in ("listenPort", "firewallMark") if key in kept}
    kept.pop("multicast", None)
    interface: Document = {"interface": name, "addresses": [tunnel.address], **kept}
    old_routes = [{"network": destination, "gateway": tunnel.hub_address} for destination in tunnel.beyond]
    others = _other_routes(tunnel, given_interface.get("routes"), given_document.get("routes"))
    others = [{"network" if key == "destination" else key: value for key, value in other.items()} for other in others]
    if old_routes or others:
        interface["routes"] = [*old_routes, *others]
    interfaces = network.setdefault("interfaces", [])
    if not isinstance(interfaces, list):
        raise InvalidInput("machine.network.interfaces of the template must be a list.")
    interfaces.append({**interface, "wireguard": wireguard})


def _drop_interface(config: Document, name: str) -> None:
    network = at(config, "machine.network")
    if not isinstance(network, dict) or not isinstance(network.get("interfaces"), list):
        return
    network["interfaces"] = [
        interface for interface in network["interfaces"] if not (isinstance(interface, dict) and interface.get("interface") == name)
    ]
    if not network["interfaces"]:
        del network["interfaces"]
    if not network:
        del config["machine"]["network"]


def _other_routes(tunnel: Tunnel, *given: t.Any) -> list[Document]:
    """Routes of the template to what the tunnel has no route to, as a document says them."""
    others = []
    for routes in given:
        for route in routes if isinstance(routes, list) else ():
            if isinstance(route, dict):
                destination = route.get("destination", route.get("network"))
                if destination not in tunnel.beyond:
                    others.append(
                        {"destination": destination, **{k: v for k, v in route.items() if k not in ("destination", "network")}}
                    )
    return others


def link(documents: t.Sequence[Document], config: Document | None, name: str) -> Document:
    """The link of that name as a document says it, whichever form it has: privateKey, mtu, addresses, routes, peers. {} = there is none."""
    document = of_kind(documents, KIND, name)
    if document is not None:
        return document
    for interface in items_at(config, "machine.network.interfaces"):
        if isinstance(interface, dict) and interface.get("interface") == name and isinstance(interface.get("wireguard"), dict):
            addresses = [{"address": address} for address in interface.get("addresses") or ()]
            switched_off = {"up": False} if interface.get("ignore") else {}
            return {
                **{k: v for k, v in interface.items() if k in ("mtu", "routes")},
                **interface["wireguard"],
                "addresses": addresses,
                **switched_off,
            }
    return {}


def held_of(documents: t.Sequence[Document], config: Document | None, tunnel: Tunnel) -> dict[str, t.Any]:
    """Field → value of what no patch may change of the tunnel. More addresses and peers may be added, and the rest be changed."""
    settings, where = link(documents, config, tunnel.interface), f"WireGuard {tunnel.interface}"
    addresses = [address.get("address") for address in items_at(settings, "addresses") if isinstance(address, dict)]
    return {
        f"{where}: privateKey": settings.get("privateKey"),
        f"{where}: addresses": tunnel.address in addresses,
        f"{where}: peers": [
            peer for peer in items_at(settings, "peers") if isinstance(peer, dict) and peer.get("publicKey") == tunnel.hub_key
        ],
        f"{where}: up": settings.get("up") is not False,
    }


def check_subnets(spec: NodeSpec, config: Document) -> None:
    """InvalidInput when the tunnel's network overlaps the cluster's pod or service subnets, as the configuration has them."""
    pods = items_at(config, "cluster.network.podSubnets") or [_DEFAULT_PODS]
    services = items_at(config, "cluster.network.serviceSubnets") or [_DEFAULT_SERVICES]
    problems = overlaps(t.cast(Tunnel, spec.tunnel), [str(subnet) for subnet in pods], [str(subnet) for subnet in services])
    if problems:
        raise InvalidInput("The WireGuard tunnel of the node cannot be used.", problems=problems, node=spec.name)
