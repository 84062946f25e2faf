# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine that booted Talos without a configuration, on loopback: its machine API over gRPC, HTTP/2 and TLS 1.3.

It answers Version and ApplyConfiguration to anybody, takes a configuration that Talos would take (sandbox/talos_config.py), and from then
on wants a client certificate from everybody, as a configured machine does. All else is unimplemented, as most of it is there.

``python -m sandbox.talos_maintenance [--port 50000]`` is one to rehearse with; it ends with Ctrl-C.
"""

from __future__ import annotations

import abc
import argparse
import base64
import dataclasses
import datetime
import hashlib
import os
import socket
import ssl
import struct
import tempfile
import threading
import time
import typing as t
from urllib.parse import quote

import h2.config
import h2.connection
import h2.events
import h2.exceptions
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import NameOID

from .payload import Refused
from .talos_config import read_talos

_OK, _INVALID, _UNIMPLEMENTED, _INTERNAL, _UNAVAILABLE = 0, 3, 12, 13, 14
_MODES = {0: "reboot", 1: "auto", 2: "no-reboot", 3: "staged", 4: "try"}
_DRY = "Dry run summary:\nNode is running in maintenance mode and does not have a config yet."


class Fault(Exception):
    """A call that ends with a status other than OK."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _linger(plain: socket.socket) -> None:
    """Close a connection only after the other side has, or the system may drop what we said last."""
    with plain:
        plain.settimeout(5)
        plain.shutdown(socket.SHUT_WR)
        while plain.recv(65536):
            pass


class Listener(abc.ABC):
    """``with`` it, ``port`` answers on loopback: TLS 1.3 and HTTP/2, each connection in a thread of its own."""

    port: int = 0
    name: t.ClassVar[str]

    def __enter__(self) -> t.Self:
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        self._prepare()
        self._thread = threading.Thread(target=self._serve, name=self.name, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    @abc.abstractmethod
    def _prepare(self) -> None:
        """Before the first connection is taken."""

    @abc.abstractmethod
    def _talk(self, plain: socket.socket) -> None:
        """One connection, from its handshake to its end."""

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                sock, _address = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._talk, args=(sock,), daemon=True).start()


def tls_context(certificate: bytes, key: bytes, wanted: ssl.VerifyMode, trusted: bytes = b"") -> ssl.SSLContext:
    """That of a server with this certificate. ``trusted``: who signs the certificates of clients (PEM)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = wanted
    context.set_alpn_protocols(["h2"])
    handle, path = tempfile.mkstemp(prefix="talos-")
    with os.fdopen(handle, "wb") as file:
        file.write(key + certificate)
    context.load_cert_chain(path)
    os.unlink(path)
    if trusted:
        context.load_verify_locations(cadata=trusted.decode())
    return context


@dataclasses.dataclass
class Maintenance(Listener):
    """``with Maintenance() as machine:`` — ``machine.port`` answers, ``applied`` holds the configurations taken, newest last.

    ``says_version=False`` is a release that tells its version to nobody yet. ``warnings`` go with each answer. ``trouble`` is what happens to
    the next ApplyConfiguration: "lost" (taken, no answer), "cut" (not taken, no answer), "silent" (not taken, and it hangs),
    "unavailable" (refused for now). ``lingers``: before it hangs up on a client without a certificate it reads what that client still sends.
    A machine does not, and its system may then drop the alert that says why; a client that sends at once sees a reset connection instead.
    """

    version: str = "v1.13.9"
    arch: str = "amd64"
    platform: str = "metal"
    says_version: bool = True
    warnings: tuple[str, ...] = ()
    trouble: str = ""
    lingers: bool = False
    applied: list[str] = dataclasses.field(default_factory=list)
    calls: list[str] = dataclasses.field(default_factory=list)
    port: int = 0
    name: t.ClassVar[str] = "talos-maintenance"

    def __post_init__(self) -> None:
        self._certificate, self._key, self.fingerprint = _identity()

    @property
    def configured(self) -> bool:
        return bool(self.applied)

    def _prepare(self) -> None:
        self._open = tls_context(self._certificate, self._key, ssl.CERT_NONE)
        self._closed = tls_context(self._certificate, self._key, ssl.CERT_REQUIRED, self._certificate)

    def _talk(self, plain: socket.socket) -> None:
        plain.settimeout(30)
        try:
            context = self._closed if self.configured else self._open
            with context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False) as sock:
                try:
                    sock.do_handshake()
                except ssl.SSLError:
                    if self.lingers:
                        _linger(socket.socket(fileno=sock.detach()))
                    raise
                Session(sock, lambda headers, message: [self.answer(headers[":path"], message)]).run()
        except (OSError, h2.exceptions.ProtocolError, _Cut):
            plain.close()  # the client went away, has no certificate, or is made to believe so

    def answer(self, path: str, message: bytes) -> bytes:
        """The message that answers a call; raises Fault."""
        self.calls.append(path)
        if path == "/machine.MachineService/Version" and self.says_version:
            return self._version()
        if path == "/machine.MachineService/ApplyConfiguration":
            return self._apply(message)
        raise Fault(_UNIMPLEMENTED, "API is not implemented in maintenance mode")

    def _version(self) -> bytes:
        version = text(1, self.version) + text(2, "0123abc") + text(5, "linux") + text(6, self.arch)
        platform = text(1, self.platform) + text(2, "metal" if self.platform == "metal" else "cloud")
        return block(1, block(2, version) + block(3, platform))

    def _apply(self, message: bytes) -> bytes:
        trouble, self.trouble = self.trouble, ""
        if trouble == "unavailable":
            raise Fault(_UNAVAILABLE, 'connection error: desc = "transport: error while dialing"')
        if trouble == "silent":
            self._closing.wait(30)
        if trouble in ("cut", "silent"):
            raise _Cut
        given = dict(fields(message))
        mode = _MODES.get(int(given.get(4, 0)), "")
        if mode not in ("reboot", "auto", "try"):
            raise Fault(_UNIMPLEMENTED, f"apply configuration --mode='{mode}' is not supported in maintenance mode")
        config = bytes(given.get(1, b"")).decode("utf-8", "replace")
        self._validate(config)
        reply = b"".join(text(2, one) for one in self.warnings)
        if given.get(5):
            return block(1, reply + text(4, _DRY))
        self.applied.append(config)
        if trouble == "lost":
            raise _Cut
        return block(1, reply + _number(3, 2) + text(4, "Applied configuration without a reboot"))

    def _validate(self, config: str) -> None:
        try:
            installer = read_talos(config).installer
        except Refused as refused:
            if refused.step == "config":  # other steps fail later, on the machine
                raise Fault(_INVALID, f"configuration validation failed: {refused}") from None
            return
        if self.platform == "metal" and not installer:
            raise Fault(_INVALID, 'configuration validation failed: install instructions are required in "metal" mode')


class _Cut(Exception):
    """The connection ends here, without a word."""


class Session:
    """The calls of one connection. ``answer``: from a call's headers and message to the messages that answer it; it may raise Fault."""

    def __init__(self, sock: ssl.SSLSocket, answer: t.Callable[[t.Mapping[str, str], bytes], list[bytes]]) -> None:
        self._sock, self._messages = sock, answer
        self._wire = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self._headers: dict[int, dict[str, str]] = {}
        self._bodies: dict[int, bytearray] = {}

    def run(self) -> None:
        self._wire.initiate_connection()
        self._flush()
        while data := self._sock.recv(65536):
            for event in self._wire.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    headers = dict(t.cast("list[tuple[str, str]]", event.headers))
                    self._headers[event.stream_id] = headers
                    self._bodies[event.stream_id] = bytearray()
                    if headers.get("content-type") != "application/grpc" or headers.get("te") != "trailers":
                        self._wire.reset_stream(event.stream_id)
                elif isinstance(event, h2.events.DataReceived):
                    self._bodies[event.stream_id] += event.data
                    self._wire.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    self._answer(event.stream_id)
            self._flush()

    def _answer(self, stream: int) -> None:
        body = bytes(self._bodies[stream])
        try:
            if len(body) < 5 or body[0] or struct.unpack(">I", body[1:5])[0] != len(body) - 5:
                raise Fault(_INTERNAL, "grpc: message is malformed")
            messages = self._messages(self._headers[stream], body[5:])
        except Fault as fault:
            self._wire.send_headers(
                stream,
                [
                    (":status", "200"),
                    ("content-type", "application/grpc"),
                    ("grpc-status", str(fault.status)),
                    ("grpc-message", quote(str(fault), safe=" !#$&'()*+,-./:;<=>?@[]^_{|}~\"`\\")),
                ],
                end_stream=True,
            )
            return
        self._wire.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
        self._wire.send_data(stream, b"".join(struct.pack(">BI", 0, len(message)) + message for message in messages))
        self._wire.send_headers(stream, [("grpc-status", str(_OK)), ("grpc-message", "")], end_stream=True)

    def _flush(self) -> None:
        if pending := self._wire.data_to_send():
            self._sock.sendall(pending)


def _identity() -> tuple[bytes, bytes, str]:
    """A new self-signed certificate and its key (PEM), and the fingerprint that the console would show."""
    key = ed25519.Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "maintenance-service.talos.dev")])
    now = datetime.datetime.now(datetime.timezone.utc)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
    certificate = builder.not_valid_after(now + datetime.timedelta(days=1)).sign(key, None)
    public = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(serialization.Encoding.PEM), private, base64.b64encode(hashlib.sha256(public).digest()).decode()


# ---- protobuf, written apart from the collection's own on purpose


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def block(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def text(field: int, value: str) -> bytes:
    return block(field, value.encode())


def fields(message: bytes) -> t.Iterator[tuple[int, t.Any]]:
    """Numbers and blocks; ApplyConfigurationRequest has no others."""
    rest = iter(message)

    def number() -> int:
        value = 0
        for place, byte in enumerate(rest):
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value
        raise Fault(_INTERNAL, "grpc: error unmarshalling request: unexpected EOF")

    for first in rest:
        tag = first & 0x7F | (number() << 7 if first >= 0x80 else 0)
        if tag & 7 == 0:
            yield tag >> 3, number()
        elif tag & 7 == 2:
            length = number()
            yield tag >> 3, bytes(next(rest) for _ in range(length))
        else:
            raise Fault(_INTERNAL, "grpc: error unmarshalling request: unknown wire type")


def main() -> None:
    parser = argparse.ArgumentParser(description="a machine in Talos's maintenance mode, on loopback")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--platform", default="metal", help="metal installs itself, others boot a disk image")
    options = parser.parse_args()
    with Maintenance(port=options.port, platform=options.platform) as machine:
        print(f"127.0.0.1:{machine.port} waits for a configuration; fingerprint {machine.fingerprint}", flush=True)
        seen = 0
        try:
            while True:
                time.sleep(0.2)
                for config in machine.applied[seen:]:
                    digest = hashlib.sha256(config.encode()).hexdigest()
                    print(f"took a configuration of {len(config.encode())} bytes, SHA-256 {digest}", flush=True)
                    seen += 1
        except KeyboardInterrupt:
            print("switched off")


if __name__ == "__main__":
    main()
