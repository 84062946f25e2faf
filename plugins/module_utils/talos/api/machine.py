# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A connection to the machine API of one machine, and the calls it answers without a client certificate.

In maintenance mode a machine answers Version and ApplyConfiguration to anybody. Once it has a configuration it asks for a client
certificate, which is how one tells the two apart without any credential.
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import socket
import ssl
import typing as t

from ...core.errors import ApiError, BadShape, LostAnswer, Unreachable
from ...units.values import Network
from .grpc import CertificateWanted, GrpcError, unary
from .peer import Untrusted, fingerprint, pin, refusal, vouched

PORT = 50000
MODES = ("reboot", "auto", "no-reboot", "staged", "try")  # numbers of the enum; "auto" is the one that every release takes
_SERVICE = "/machine.MachineService/"


@dataclasses.dataclass(frozen=True, slots=True)
class Trust:
    """On what grounds secrets may be sent. ``fingerprint``: only to the machine with this one, wherever it is. Without it only inside the
    mesh and ``networks``."""

    networks: tuple[Network, ...] = ()
    fingerprint: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class MaintenanceState:
    """What one look at a machine showed.

    ``state``: "maintenance" (waits for a configuration), "configured" (its API wants a client certificate), "unreachable" (nothing
    listens: off, starting, or busy fetching its configuration) or "unknown" (something else answers; ``problem`` says what).
    ``version``, ``arch``, ``platform`` and ``mode`` are "" where the machine does not say. ``fingerprint`` is what it shows, not a proof.
    """

    state: str
    version: str = ""
    arch: str = ""
    platform: str = ""
    mode: str = ""
    fingerprint: str = ""
    address: str = ""
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Applied:
    """What the machine made of a configuration: how it takes effect, and the validation's warnings."""

    mode: str
    details: str
    warnings: tuple[str, ...]


class MachineApi:
    """One machine. ``host`` is an address or a name; of several addresses the first that answers counts, and is used from then on.

    ``seconds`` is the limit of one call, with the connection it needs.
    """

    def __init__(self, host: str, port: int = PORT, *, seconds: float = 10.0) -> None:
        self.host, self.port, self._seconds = host, port, seconds
        self._address = ""

    def look(self) -> MaintenanceState:
        """What the machine is doing. Nothing secret is sent, so anybody may answer."""
        shown = ""
        try:
            with self._connected() as (sock, _peer, _own):
                shown = self._shown(sock)
                answer = unary(sock, self._authority, f"{_SERVICE}Version", b"", self._seconds)
        except Unreachable as error:
            return MaintenanceState("unreachable", address=self._address, problem=error.message)
        except CertificateWanted:
            return MaintenanceState("configured", fingerprint=shown, address=self._address)
        except GrpcError as error:
            if error.code == "unimplemented":  # older releases tell their version to nobody before they are configured
                return MaintenanceState("maintenance", fingerprint=shown, address=self._address)
            return MaintenanceState("unknown", fingerprint=shown, address=self._address, problem=error.message)
        except ApiError as error:
            return MaintenanceState("unknown", fingerprint=shown, address=self._address, problem=error.message)
        return dataclasses.replace(_version(answer), fingerprint=shown, address=self._address)

    def trusted(self, trust: Trust) -> None:
        """Raises Untrusted where :meth:`apply` would. Connects, and sends nothing."""
        with self._connected() as (sock, peer, own):
            self._verify_peer(sock, peer, own, trust)

    def apply(self, config: bytes, trust: Trust) -> Applied:
        """Hand over the configuration. The peer is verified on the very connection it goes through, before its first byte.

        Raises Untrusted, CertificateWanted (it has one already), GrpcError (code invalid_argument or unknown: it does not like it),
        Unreachable (nothing was sent), LostAnswer (whether it was taken is unknown).
        """
        with self._connected() as (sock, peer, own):
            self._verify_peer(sock, peer, own, trust)
            request = block(1, config) + field_number(4, MODES.index("auto"))
            answer = unary(sock, self._authority, f"{_SERVICE}ApplyConfiguration", request, self._seconds)
        return _applied(answer)

    # ---- the connection

    @property
    def _authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @contextlib.contextmanager
    def _connected(self) -> t.Iterator[tuple[ssl.SSLSocket, t.Any, t.Any]]:
        """A TLS connection that proves nothing yet, the peer's address and our own on it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # self-signed: the fingerprint or the network vouches for it (peer.py)
        context.set_alpn_protocols(["h2"])
        try:
            plain = socket.create_connection((self._address or self.host, self.port), self._seconds)
        except OSError as error:
            why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
            raise Unreachable(f"{self._authority} cannot be reached: {why}.", service="talos") from error
        with plain:
            peer, own = (ipaddress.ip_address(name()[0].partition("%")[0]) for name in (plain.getpeername, plain.getsockname))
            self._address = str(peer)
            try:
                sock = context.wrap_socket(plain)
            except OSError as error:
                why = getattr(error, "reason", None) or error.strerror or "it fell silent"
                raise LostAnswer(f"What answers at {self._authority} does not speak TLS 1.3: {why}.", service="talos") from error
            with sock:
                yield sock, peer, own

    def _shown(self, sock: ssl.SSLSocket) -> str:
        return fingerprint(sock.getpeercert(True) or b"")

    def _verify_peer(self, sock: ssl.SSLSocket, peer: t.Any, own: t.Any, trust: Trust) -> None:
        if not trust.fingerprint:
            if not vouched(peer, own, trust.networks):
                raise refusal(self.host, peer, own)
            return
        shown = self._shown(sock)
        if pin(shown) != pin(trust.fingerprint):
            raise Untrusted(
                f"The configuration was not sent to {self.host}: it shows the fingerprint {shown} and not {trust.fingerprint}.",
                remedy="Compare with the machine's own console. Each start in maintenance mode makes a new one; if the console shows another "
                "one than this, something stands between you and the machine.",
                host=self.host,
                address=str(peer),
                fingerprint=shown,
            )


def _version(answer: bytes) -> MaintenanceState:
    entries = messages(read(answer), 1)
    if not entries:
        return MaintenanceState("maintenance")
    version, platform = inner(entries[0], 2), inner(entries[0], 3)
    return MaintenanceState(
        "maintenance",
        version=text(version, 1),
        arch=text(version, 6),
        platform=text(platform, 1),
        mode=text(platform, 2),
    )


def _applied(answer: bytes) -> Applied:
    entries = messages(read(answer), 1)
    entry: Fields = entries[0] if entries else {}
    number = integer(entry, 3)
    return Applied(
        MODES[number] if number < len(MODES) else f"mode {number}",
        text(entry, 4),
        tuple(texts(entry, 2)),
    )


# ---- Protocol Buffers on the wire, as far as the machine API's messages need them. A message is read into ``{field number: [values in
# their order]}``; numbers come as int, texts, bytes and inner messages as bytes

Fields = dict[int, list["int | bytes"]]
_FIXED = {1: 8, 5: 4}  # wire types of fixed length; the messages read here have none, and later ones are skipped over


def field_number(field: int, value: int) -> bytes:
    """A number, enum or bool that is not negative. Zero is the default and is left out."""
    return _varint(field << 3) + _varint(value) if value else b""


def block(field: int, value: bytes) -> bytes:
    """Text (UTF-8), bytes or an inner message. Nothing is the default and is left out."""
    return _varint(field << 3 | 2) + _varint(len(value)) + value if value else b""


def read(message: bytes) -> Fields:
    """All fields of a message. Raises BadShape when it is none."""
    fields: Fields = {}
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        kind = tag & 7
        value: int | bytes
        if kind == 0:
            value, at = _number(message, at)
        elif kind == 2:
            length, at = _number(message, at)
            value, at = message[at : at + length], at + length
        elif kind in _FIXED:
            value, at = message[at : at + _FIXED[kind]], at + _FIXED[kind]
        else:
            raise _broken()
        if at > len(message) or not tag >> 3:
            raise _broken()
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def messages(fields: Fields, field: int) -> list[Fields]:
    """The inner messages of a repeated field."""
    return [read(value) for value in fields.get(field, ()) if isinstance(value, bytes)]


def inner(fields: Fields, field: int) -> Fields:
    """The inner message of a field, empty when it is absent."""
    values = messages(fields, field)
    return values[-1] if values else {}


def texts(fields: Fields, field: int) -> list[str]:
    """The texts of a repeated field."""
    return [value.decode("utf-8", "replace") for value in fields.get(field, ()) if isinstance(value, bytes)]


def text(fields: Fields, field: int) -> str:
    """The text of a field, "" when it is absent."""
    values = texts(fields, field)
    return values[-1] if values else ""


def integer(fields: Fields, field: int) -> int:
    """The number of a field, 0 when it is absent."""
    numbers = [value for value in fields.get(field, ()) if isinstance(value, int)]
    return numbers[-1] if numbers else 0


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _broken()


def _broken() -> BadShape:
    return BadShape("The machine API answered with something that is not a message.", service="talos")
