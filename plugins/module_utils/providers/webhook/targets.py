# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which addresses of own machines are called, and which of them get the power service's key.

A document names the addresses, and who may write a document need not know the key. So the key goes only to hosts that the operator named beside
it. Over plain http a credential goes to loopback only. A link-local address is never called: the metadata service of a cloud, which hands out
credentials to whoever asks, is one. Nothing here asks the network.
"""

from __future__ import annotations

import ipaddress
import socket
import typing as t
import unicodedata
from urllib.parse import SplitResult, unquote, urlsplit

from ...core.errors import InvalidInput
from ...model import Machine

_PORTS = {"http": 80, "https": 443}
_METADATA = frozenset({ipaddress.ip_address("fd00:ec2::254")})  # the same service where it is not link-local
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Origin(t.NamedTuple):
    """A host as it is compared, and a port."""

    host: str
    port: int


def origin(url: str) -> Origin:
    """Where a URL leads; ValueError for what is no http or https URL."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{url!r} is no http or https address")
    return Origin(_compared(parts.hostname), parts.port or _PORTS[parts.scheme])


def origins_of(machines: t.Iterable[Machine]) -> frozenset[Origin]:
    """Where the calls to machines go; endpoints that are no URL are left out."""
    origins = set()
    for machine in machines:
        for _field, url in _endpoints(machine):
            try:
                origins.add(origin(url))
            except ValueError:
                continue
    return frozenset(origins)


def listed(hosts: t.Iterable[str]) -> frozenset[Origin]:
    """Entries of ``webhook_hosts``: host, host:port or [address]:port. Without a port those of http and https are meant. InvalidInput for
    anything else."""
    origins: set[Origin] = set()
    for text in filter(None, (host.strip() for host in hosts)):
        try:
            parts = urlsplit(f"//[{text}]" if _is_ipv6(text) else f"//{text}")
            bare = not (parts.path or parts.query or parts.fragment or "@" in text or "*" in text or "//" in text)
            host, port = parts.hostname, parts.port
        except ValueError:
            bare, host, port = False, None, None
        if not bare or not host or port == 0 or any(one.isspace() for one in text):
            raise InvalidInput(
                f"webhook: {text!r} in webhook_hosts is no host.",
                remedy="Write the host as the machines' addresses have it, with its port unless it is 443 or 80: power.example.org:8443.",
            )
        origins |= {Origin(_compared(host), one) for one in ([port] if port else _PORTS.values())}
    return frozenset(origins)


def faults(machines: t.Iterable[Machine], allowed: t.Collection[Origin], *, key: bool, signed: bool = False) -> list[str]:
    """What keeps the machines from being called, one sentence each. ``key``: every call carries the power service's key; ``signed``: every
    POST is signed, and who gets a signed call can send it on to another machine."""
    found = []
    for machine in machines:
        for field, url in _endpoints(machine):
            sentence = _fault(url, allowed, key, signed)
            if sentence:
                found.append(f"{machine.name}: {field} {sentence}")
    return found


def _fault(url: str, allowed: t.Collection[Origin], key: bool, signed: bool) -> str:
    try:
        target, parts = origin(url), urlsplit(url)
    except ValueError:
        return "is no http or https address."
    shown = _shown(parts)
    if is_link_local(target.host):
        return f"leads to {shown}, {LINK_LOCAL}"
    if (key or signed) and target not in allowed:
        what = "the key (webhook_auth_value)" if key else "signed calls (webhook_signing_secret)"
        return (
            f"leads to {shown}, and {what} would go there. Only the host of webhook_url, those of webhook_hosts and those of machines that are "
            f"given beside the key get it. Add {_entry(target)} to webhook_hosts (WEBHOOK_HOSTS) if that host is yours, or correct the address."
        )
    if (key or parts.username) and parts.scheme == "http" and not is_loopback(target.host):
        what = "the key (webhook_auth_value)" if key else "its user and password"
        return f"leads to {shown}, and {what} would cross the network in clear text. Use https, or leave the credential out."
    return ""


LINK_LOCAL = (
    "which is a link-local address. Clouds hand out credentials there, so it is never called. Use another address of the service."
)


def is_link_local(host: str) -> bool:
    """Whether a host is a link-local address, in any spelling that a resolver takes as an address. False for names."""
    return any(address.is_link_local or address in _METADATA for address in _addresses(host))


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: 127.0.0.0/8, ::1 or localhost."""
    return _compared(host) == "localhost" or any(address.is_loopback for address in _addresses(host))


def _addresses(host: str) -> t.Iterator[_Address]:
    """The address that a host spells, and the IPv4 address that lies in it. Nothing for a name."""
    address = _address(host)
    if address is None:
        return
    yield address
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and (address in _NAT64 or address in _COMPATIBLE):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            yield inner


def _address(host: str) -> _Address | None:
    """As the resolver reads it: also decimal, octal and hexadecimal numbers, fewer than four of them, wide digits and a zone."""
    text = unicodedata.normalize("NFKC", unquote(host)).replace("。", ".").strip("[]").partition("%")[0].rstrip(".").strip()
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(text))
    except (OSError, ValueError):
        return None


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def _compared(host: str) -> str:
    """One spelling for each host."""
    address = _address(host)
    return str(address) if address is not None else unicodedata.normalize("NFKC", host).lower().rstrip(".")


def _endpoints(machine: Machine) -> list[tuple[str, str]]:
    """The addresses of a machine by the names of their fields."""
    given = {
        "scaleUpEndpoint": machine.scale_up_endpoint,
        "scaleDownEndpoint": machine.scale_down_endpoint,
        "statusEndpoint": machine.status_endpoint,
    }
    return [(field, url) for field, url in given.items() if url]


def _shown(parts: SplitResult) -> str:
    """An address without what may be secret in it."""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _entry(target: Origin) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return host if target.port in _PORTS.values() else f"{host}:{target.port}"
