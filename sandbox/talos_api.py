# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Talos API of a cluster on loopback, as a control plane node serves it for all nodes: gRPC over TLS 1.3 with client certificates.

It answers what a look at GPUs needs: loaded modules (COSI), services and their logs, and the driver's version. The header ``node`` says whose.
A certificate of role os:reader is refused files, as in Talos.

``with TalosApi() as api:`` — ``api.nodes["10.0.0.1"] = NodeState()``, and ``api.talosconfig()`` is the file that talosctl would use.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime
import ipaddress
import socket
import ssl
import typing as t

import h2.events
import h2.exceptions
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .talos_maintenance import Fault, Listener, Session, block, fields, text, tls_context

MODULES = ("nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset")
VERSION_FILE = "/proc/driver/nvidia/version"
_NOT_FOUND, _PERMISSION_DENIED, _UNIMPLEMENTED = 2, 7, 12  # Talos answers a missing file with "unknown"


def version_text(driver: str) -> str:
    """What the kernel module shows in /proc."""
    return (
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build  (dvs-builder@U22-I3-AE18)\n"
        "GCC version:  gcc version 15.2.0 (GCC)\n"
    )


@dataclasses.dataclass
class NodeState:
    """What one node would say: a healthy GPU node by default. ``services`` maps id to state and newest event."""

    modules: tuple[str, ...] = (*MODULES, "drm", "overlay")
    services: dict[str, tuple[str, str]] = dataclasses.field(
        default_factory=lambda: {
            "apid": ("Running", "Health check successful"),
            "kubelet": ("Running", "Health check successful"),
            "ext-nvidia-persistenced": ("Running", "Started task ext-nvidia-persistenced (PID 1207) for container"),
            "ext-nvidia-cdi-gen": ("Finished", "Service finished successfully"),
        }
    )
    logs: dict[str, str] = dataclasses.field(
        default_factory=lambda: {
            "ext-nvidia-cdi-gen": 'time="2026-08-20T12:00:01Z" level=warning msg="Could not locate libnvidia-vulkan-producer.so"\n'
            'time="2026-08-20T12:00:01Z" level=info msg="Generated CDI spec with version 0.8.0"\n'
        }
    )
    folders: dict[str, tuple[str, ...]] = dataclasses.field(
        default_factory=lambda: {
            "/var/lib/kubelet/device-plugins": ("kubelet.sock", "kubelet_internal_checkpoint", "nvidia-gpu.sock")
        }
    )
    files: dict[str, str] = dataclasses.field(default_factory=lambda: {VERSION_FILE: version_text("580.126.20")})


class TalosApi(Listener):
    """``calls`` lists (node, method). ``port`` answers between enter and exit."""

    name = "talos-api"

    def __init__(self) -> None:
        self.nodes: dict[str, NodeState] = {}
        self.calls: list[tuple[str, str]] = []
        self._ca = _Authority()

    def talosconfig(self, *, role: str = "os:admin", endpoints: t.Sequence[str] | None = None) -> str:
        """A file for the current port, with a client certificate of this role."""
        certificate, key = self._ca.issue(role, client=True)
        encoded = {name: base64.b64encode(pem).decode() for name, pem in (("ca", self._ca.pem), ("crt", certificate), ("key", key))}
        context = {"endpoints": [f"127.0.0.1:{self.port}"] if endpoints is None else list(endpoints), **encoded}
        return str(yaml.safe_dump({"context": "sandbox", "contexts": {"sandbox": context}}))

    def _prepare(self) -> None:
        self._tls = tls_context(*self._ca.issue("apid", client=False), ssl.CERT_REQUIRED, self._ca.pem)

    def _talk(self, plain: socket.socket) -> None:
        plain.settimeout(30)
        try:
            with self._tls.wrap_socket(plain, server_side=True) as sock:
                subject = dict(pair[0] for pair in t.cast("t.Any", sock.getpeercert())["subject"])
                role = str(subject.get("organizationName", ""))
                Session(sock, lambda headers, message: self.answer(headers.get("node", ""), headers[":path"], message, role)).run()
        except (OSError, h2.exceptions.ProtocolError):
            plain.close()

    def answer(self, node: str, path: str, message: bytes, role: str) -> list[bytes]:
        """The messages that answer a call about a node."""
        self.calls.append((node, path.rpartition("/")[2]))
        state = self.nodes.get(node)
        if state is None:
            raise Fault(14, f'connection error: desc = "transport: Error while dialing: dial tcp {node}:50000: i/o timeout"')
        match path:
            case "/cosi.resource.State/List":
                return [_module(name) for name in state.modules]
            case "/machine.MachineService/ServiceList":
                listed = [
                    text(1, name) + text(2, word) + block(3, block(1, text(1, event) + text(2, word)))
                    for name, (word, event) in state.services.items()
                ]
                return [block(1, b"".join(block(2, entry) for entry in listed))]
            case "/machine.MachineService/Logs":
                name = bytes(dict(fields(message))[2]).decode()
                return [block(2, line.encode()) for line in state.logs.get(name, "").splitlines(keepends=True)]
            case "/machine.MachineService/List":
                if role != "os:admin":
                    raise Fault(_PERMISSION_DENIED, "not authorized")
                folder = bytes(dict(fields(message))[1]).decode()
                return [text(2, f"{folder}/{name}") + text(9, name) for name in (".", *state.folders.get(folder, ()))]
            case "/machine.MachineService/Read":
                if role != "os:admin":
                    raise Fault(_PERMISSION_DENIED, "not authorized")
                name = bytes(dict(fields(message))[1]).decode()
                if name not in state.files:
                    raise Fault(_NOT_FOUND, f"open {name}: no such file or directory")
                return [block(2, state.files[name].encode())]
        raise Fault(_UNIMPLEMENTED, f"unknown method {path}")


def _module(name: str) -> bytes:
    metadata = text(1, "runtime") + text(2, "LoadedKernelModules.runtime.talos.dev") + text(3, name)
    return block(1, block(1, metadata) + block(2, block(1, text(1, name) + text(5, "Live"))))


class _Authority:
    """The machine CA of a cluster: Ed25519, as Talos makes it. A client's role is its organization."""

    def __init__(self) -> None:
        self._key = ed25519.Ed25519PrivateKey.generate()
        self._name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "talos")])
        builder = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.pem = builder.sign(self._key, None).public_bytes(serialization.Encoding.PEM)

    def issue(self, organization: str, *, client: bool) -> tuple[bytes, bytes]:
        """A certificate and its key (PEM)."""
        key = ed25519.Ed25519PrivateKey.generate()
        name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)])
        usage = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
        builder = self._builder(name, key).add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if not client:
            names = [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return builder.sign(self._key, None).public_bytes(serialization.Encoding.PEM), private

    def _builder(self, name: x509.Name, key: ed25519.Ed25519PrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(self._name).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
        return builder.not_valid_after(now + datetime.timedelta(days=1))
