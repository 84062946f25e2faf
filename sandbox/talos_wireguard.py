# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The WireGuard links of a Talos configuration, in their own document or as network interfaces, as Talos would take or refuse them."""

from __future__ import annotations

import base64
import ipaddress
import re
import typing as t

from .hub import Tunnel, port_of
from .talos_documents import refuse

_OTHER_LINKS = ("BondConfig", "BridgeConfig", "DummyLinkConfig", "LinkConfig", "VLANConfig", "VRFConfig")
_DURATION = re.compile(r"[-+]?(?:0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|\u00b5s|ms|s|m|h))+)")
_PODS, _SERVICES = "10.244.0.0/16", "10.96.0.0/12"


def tunnel(config: dict[str, t.Any], documents: list[dict[str, t.Any]]) -> Tunnel | None:
    """The first link with a peer that can be spoken to; of two forms of one link the document counts."""
    new = [document for document in documents if document.get("kind") == "WireguardConfig"]
    for document in new:
        _document(document, documents)
    network = config["machine"].get("network") or {}
    old = [one for one in network.get("interfaces") or () if isinstance(one, dict) and one.get("wireguard")]
    for one in old:
        _interface(one["wireguard"])
    links = [(str(one["name"]), one, [entry.get("address", "") for entry in one.get("addresses") or ()]) for one in new]
    links += [
        (str(one.get("interface") or ""), one["wireguard"], list(one.get("addresses") or ()))
        for one in old
        if not one.get("ignore")
    ]
    subnets = config["cluster"].get("network") or {}
    hidden = (*(subnets.get("podSubnets") or [_PODS]), *(subnets.get("serviceSubnets") or [_SERVICES]))
    for name, settings, addresses in links:
        for peer in settings.get("peers") or ():
            if peer.get("endpoint") and addresses and settings.get("up") is not False:
                address = str(addresses[0]).partition("/")[0]
                key = str(settings["privateKey"])
                return Tunnel(key, address, str(peer["publicKey"]), port_of(str(peer["endpoint"])), name, tuple(hidden))
    return None


def _document(document: dict[str, t.Any], documents: list[dict[str, t.Any]]) -> None:
    where = f"WireguardConfig/{document.get('name') or ''}"
    if not document.get("name"):
        raise refuse(f"{where}: name must be specified")
    for other in documents:
        if other.get("kind") in _OTHER_LINKS and other.get("name") == document["name"]:
            raise refuse(f"conflicting documents: {where} and {other['kind']}/{other['name']}")
    if not document.get("privateKey"):
        raise refuse(f"{where}: wireguard private key must be specified")
    if fault := _key_fault(document["privateKey"]):
        raise refuse(f"{where}: wireguard private key is invalid: {fault}")
    for entry in document.get("addresses") or ():
        if not _is_prefix(entry.get("address")):
            raise refuse(f"{where}: address is not valid: {entry.get('address')!r}")
    for route in document.get("routes") or ():
        _route(route, where)
    for number, peer in enumerate(document.get("peers") or ()):
        if fault := _key_fault(peer.get("publicKey") or ""):
            raise refuse(f"{where}: wireguard peer public key is invalid (peer index {number}): {fault}")
        if peer.get("presharedKey") and (fault := _key_fault(peer["presharedKey"])):
            raise refuse(f"{where}: wireguard peer preshared key is invalid (peer index {number}): {fault}")
        if peer.get("endpoint") and not re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[0-9.]+):\d{1,5}", str(peer["endpoint"])):
            raise refuse(f"{where}: invalid ip:port {peer['endpoint']!r}")
        keepalive = peer.get("persistentKeepaliveInterval")
        if keepalive is not None and not _DURATION.fullmatch(str(keepalive)):
            raise refuse(f"{where}: time: invalid duration {str(keepalive)!r}")
        for allowed in peer.get("allowedIPs") or ():
            if allowed != "" and not _is_prefix(allowed):
                raise refuse(f"{where}: netip.ParsePrefix({allowed!r}): no '/'")


def _route(route: dict[str, t.Any], where: str) -> None:
    if route.get("destination") and not _is_prefix(route["destination"]):
        raise refuse(f"{where}: netip.ParsePrefix({route['destination']!r})")
    for field in ("gateway", "source"):
        if route.get(field):
            try:
                ipaddress.ip_address(str(route[field]))
            except ValueError:
                raise refuse(f"{where}: ParseAddr({route[field]!r})") from None


def _interface(settings: dict[str, t.Any]) -> None:
    if fault := _key_fault(settings.get("privateKey") or ""):
        raise refuse(f"private key is invalid: {fault}")
    for peer in settings.get("peers") or ():
        if fault := _key_fault(peer.get("publicKey") or ""):
            raise refuse(f"public key invalid: {fault}")


def _key_fault(text: t.Any) -> str:
    try:
        raw = base64.b64decode(str(text), validate=True)
    except ValueError:
        return "illegal base64 data at input byte 0"
    return "" if len(raw) == 32 else f"wrong key {len(raw)} bytes"


def _is_prefix(text: t.Any) -> bool:
    try:
        ipaddress.ip_interface(str(text))
    except ValueError:
        return False
    return bool(re.fullmatch(r"[^/]+/\d{1,3}", str(text)))
