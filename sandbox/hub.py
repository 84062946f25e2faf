# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The WireGuard hub of the world: a file as wg-quick writes it says whom it knows, and it is read again whenever it changes.

No packet is sent. A machine's tunnel stands when the hub's file would let it: the machine knows the hub's key and port, the hub knows the
machine's key, and the machine's address belongs to that key. Written apart from the collection's own reading of such files on purpose.
"""

from __future__ import annotations

import base64
import dataclasses
import ipaddress
import pathlib
import re
import threading
import typing as t

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

KEEPALIVE = 5.0  # seconds between two tries of a machine


@dataclasses.dataclass(frozen=True)
class Tunnel:
    """A machine's end: ``address`` is the one its kubelet is to have. ``hidden`` are networks whose addresses its system leaves out."""

    private_key: str = dataclasses.field(repr=False)
    address: str
    hub_key: str
    port: int
    interface: str = ""
    hidden: tuple[str, ...] = ()

    @property
    def public_key(self) -> str:
        return public_key(self.private_key)


def public_key(private: str) -> str:
    """The public key that belongs to a private one. ValueError, without the key in it, when that is none."""
    try:
        raw = base64.b64decode(private, validate=True)
        made = X25519PrivateKey.from_private_bytes(raw)
    except ValueError:
        raise ValueError("Key is not the correct length or format") from None
    return base64.b64encode(made.public_key().public_bytes_raw()).decode()


@dataclasses.dataclass(frozen=True)
class _File:
    """What one state of the file says; ``peers`` in its order."""

    private_key: str = dataclasses.field(default="", repr=False)
    port: int = 0
    peers: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Hub:
    """``config`` is the hub's file ("" = there is no hub), ``key`` its public key ("" = that of the file's own private key)."""

    def __init__(self, config: str = "", key: str = "") -> None:
        self.config, self._key = config, key
        self._seen: tuple[int, int, int] | None = None
        self._file = _File()
        self._lock = threading.Lock()

    @property
    def peers(self) -> dict[str, str]:
        """Public key → address of all peers now in the file."""
        return {key: allowed[0].partition("/")[0] if allowed else "" for key, allowed in self._read().peers}

    def refusal(self, tunnel: Tunnel) -> str:
        """Why no handshake comes about or nothing comes back; empty when the tunnel stands."""
        try:
            file = self._read()
        except (OSError, UnicodeDecodeError) as error:
            return f"the hub's file cannot be read: {getattr(error, 'strerror', None) or 'it is not text'}"
        if not self.config:
            return "there is no hub in this world"
        try:
            key = self._key or (public_key(file.private_key) if file.private_key else "")
        except ValueError:
            return "the hub's own key is none"
        if tunnel.hub_key != key:
            return "the hub has another key"
        if file.port and tunnel.port != file.port:
            return f"the hub listens at port {file.port}"
        if tunnel.public_key not in dict(file.peers):
            return "the hub does not know this key"
        if self._owner(file, tunnel.address) != tunnel.public_key:
            return f"{tunnel.address} does not belong to this key"
        return ""

    @staticmethod
    def _owner(file: _File, address: str) -> str:
        """Who gets packets for an address: the most exact network decides, and of equal ones the later, which took it from the former."""
        best, owner = -1, ""
        for key, networks in file.peers:
            for text in networks:
                network = ipaddress.ip_network(text, strict=False)
                if ipaddress.ip_address(address) in network and network.prefixlen >= best:
                    best, owner = network.prefixlen, key
        return owner

    def _read(self) -> _File:
        if not self.config:
            return self._file
        path = pathlib.Path(self.config)
        with self._lock:
            try:
                found = path.stat()
                state = (found.st_mtime_ns, found.st_size, found.st_ino)
                if state != self._seen:
                    self._file, self._seen = parse(path.read_text(encoding="utf-8")), state
            except (FileNotFoundError, NotADirectoryError):
                self._file, self._seen = _File(), None
            return self._file


def parse(text: str) -> _File:
    """A file of wg-quick. Lines that are none of WireGuard's own are passed over."""
    sections = _sections(text)
    own = dict(next((pairs for kind, pairs in sections if kind == "interface"), []))
    peers = []
    for kind, pairs in sections:
        key = dict(pairs).get("publickey", "")
        if kind == "peer" and key:
            peers.append((key, tuple(part for part in _parts(pairs, "allowedips") if _is_network(part))))
    port = own.get("listenport", "")
    return _File(own.get("privatekey", ""), int(port) if port.isdigit() else 0, tuple(peers))


def tunnel_of(text: str, interface: str, address: str) -> Tunnel | None:
    """A machine's end as its wg-quick file has it: the peer with an endpoint is the hub. None when it leads nowhere or lacks the address."""
    sections = _sections(text)
    own = [pair for kind, pairs in sections if kind == "interface" for pair in pairs]
    peers = [dict(pairs) for kind, pairs in sections if kind == "peer"]
    hub = next((peer for peer in peers if peer.get("endpoint") and peer.get("publickey")), None)
    held = [part.partition("/")[0] for part in _parts(own, "address")]
    if hub is None or address not in held or not dict(own).get("privatekey"):
        return None
    return Tunnel(dict(own)["privatekey"], address, hub["publickey"], port_of(hub["endpoint"]), interface)


def _sections(text: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Each section's name and its settings in their order, names in small letters."""
    found: list[tuple[str, list[tuple[str, str]]]] = []
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        if section := re.fullmatch(r"\[(\w+)\]", line):
            found.append((section[1].lower(), []))
        elif "=" in line and found:
            name, _equals, value = line.partition("=")
            found[-1][1].append((name.strip().lower(), value.strip()))
    return found


def _parts(pairs: t.Iterable[tuple[str, str]], wanted: str) -> list[str]:
    """All values of a setting that may stand in several lines, and several in one."""
    return [part.strip() for name, value in pairs if name == wanted for part in value.split(",")]


def port_of(endpoint: str) -> int:
    port = endpoint.rpartition(":")[2]
    return int(port) if port.isdigit() else 0


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True
