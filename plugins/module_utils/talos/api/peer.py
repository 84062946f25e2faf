# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom a configuration may be sent to.

A machine in maintenance mode proves nothing about itself, and a configuration holds the cluster's secrets. So something must vouch for
what answers: the mesh, the user who names a network, or the fingerprint that stands on the machine's own console.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import typing as t

from ...core.errors import BadShape, InvalidInput, TgpError, lazy
from ...units.values import Network

if t.TYPE_CHECKING:
    from cryptography import exceptions, x509
    from cryptography.hazmat.primitives import serialization
else:
    exceptions = lazy("cryptography.exceptions")
    x509 = lazy("cryptography.x509")
    serialization = lazy("cryptography.hazmat.primitives.serialization")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# What Tailscale and headscale hand out. The first is shared with providers' own address translation, hence the look at our own address.
MESH: tuple[Network, ...] = (ipaddress.IPv4Network("100.64.0.0/10"), ipaddress.IPv6Network("fd7a:115c:a1e0::/48"))
_WIDEST = {4: 8, 6: 16}  # shortest prefix that can be a private network


class Untrusted(TgpError):
    """Nothing was sent, because nobody vouches for the peer, or it is another than the one that was named."""

    kind = "untrusted_peer"


def networks(given: t.Iterable[str]) -> tuple[Network, ...]:
    """Networks the user trusts, in CIDR form or single addresses. InvalidInput lists every wrong one."""
    parsed, problems = [], []
    for text in given:
        try:
            network = ipaddress.ip_network(text.strip())
        except ValueError as error:
            problems.append(f"{text!r} is not a network: {error}.")
            continue
        if network.prefixlen < _WIDEST[network.version]:
            problems.append(f"{text} is too wide to be trusted: name the network that the machines stand in.")
        parsed.append(network)
    if problems:
        raise InvalidInput("trusted_networks cannot be used.", problems=problems, field="trusted_networks")
    return tuple(parsed)


def vouched(peer: Address, own: Address, trusted: t.Sequence[Network]) -> bool:
    """Whether the way from our address ``own`` to ``peer`` lies inside the mesh or a network the user named."""
    peer, own = _plain(peer), _plain(own)
    return (
        any(peer in network for network in trusted)
        or any(peer in network for network in MESH)
        and any(own in network for network in MESH)
    )


def refusal(host: str, peer: Address, own: Address) -> Untrusted:
    """Why nothing is sent to ``peer``, and what would change that."""
    in_range = any(_plain(peer) in network for network in MESH)
    why = (
        f"{peer} is an address of the mesh, but the way to it does not begin in the mesh (this machine would use {own})"
        if in_range
        else "nobody vouches for what answers there"
    )
    return Untrusted(
        f"The configuration was not sent to {host} ({peer}): {why}, and whoever answers would get the cluster's secrets.",
        remedy="Reach the machine through the mesh, or name its network in trusted_networks if nobody else can answer in it, or give the "
        "fingerprint that the machine's own console shows.",
        host=host,
        address=str(peer),
    )


def pin(text: str) -> bytes:
    """A fingerprint as Talos shows it on the console and as ``talosctl --cert-fingerprint`` takes it: base64 of 32 bytes."""
    try:
        value = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        value = b""
    if len(value) != hashlib.sha256().digest_size:
        raise InvalidInput(
            f"The fingerprint {text!r} is not of Talos's form: base64 of the SHA-256 of the certificate's public key, 44 characters.",
            remedy="Copy it from the console of the machine in maintenance mode.",
            field="fingerprint",
        )
    return value


def fingerprint(certificate: bytes) -> str:
    """The same of a certificate (DER): SHA-256 over its SubjectPublicKeyInfo, in base64. BadShape for one that cannot be read; anybody may
    answer, with any certificate."""
    try:
        key = x509.load_der_x509_certificate(certificate).public_key()
    except (ValueError, x509.InvalidVersion, exceptions.UnsupportedAlgorithm) as error:
        raise BadShape("What answers shows a certificate that cannot be read.", service="talos") from error
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(key.public_bytes(*form)).digest()).decode()


def _plain(address: Address) -> Address:
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
