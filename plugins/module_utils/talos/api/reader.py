# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what nodes that run Talos say of themselves, with the client certificate of a talosconfig, as talosctl does.

The role os:reader is enough for modules, services and logs. Files (the driver's version) are shown to os:admin alone.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import socket
import ssl
import tempfile
import typing as t

from ...core.errors import InvalidInput, LostAnswer, TgpError, Unreachable, lazy
from ...core.redact import register
from .grpc import stream
from .machine import PORT, block, field_number, inner, messages, read, text

if t.TYPE_CHECKING:
    import yaml
else:
    yaml = lazy("yaml", "pyyaml")

_MACHINE = "/machine.MachineService/"
_STATE_LIST = "/cosi.resource.State/List"
_MODULES = "LoadedKernelModules.runtime.talos.dev"
_SYSTEM = "system"  # namespace of containerd in which extension services run
_TAIL = 60  # lines of a service's log


class TalosAccess(t.NamedTuple):
    """One context of a talosconfig: whom to ask (``endpoints``, host or host:port), and how to prove who asks (PEM)."""

    endpoints: tuple[str, ...]
    ca: str
    certificate: str
    key: str


def access_of(path: str) -> TalosAccess:
    """The current context of a talosconfig. InvalidInput says what is wrong with the file; its key is registered as a secret."""
    try:
        with open(os.path.expanduser(path), encoding="utf-8") as file:
            config = yaml.safe_load(file)
        context = config["contexts"][config["context"]]
        ca, certificate, key = (base64.b64decode(context[name], validate=True).decode() for name in ("ca", "crt", "key"))
        endpoints = tuple(str(endpoint) for endpoint in context.get("endpoints") or ())
    except OSError as error:
        raise InvalidInput(f"The file {path} cannot be read: {error.strerror}.") from error
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError, binascii.Error) as error:
        raise InvalidInput(
            f"The file {path} is not one that talosctl would take: {type(error).__name__}.",
            remedy="It needs context and contexts.<name> with ca, crt and key (talosctl config new --roles os:reader).",
        ) from None
    register(key, context["key"])
    return TalosAccess(endpoints, ca, certificate, key)


class NodeReader:
    """The nodes of one cluster. ``seconds`` is the limit of one call, with the connection it needs. Safe to use from several threads."""

    def __init__(self, access: TalosAccess, *, seconds: float = 10.0) -> None:
        self._access, self._seconds = access, seconds
        self._tls = _client_context(access)

    def modules(self, node: str) -> tuple[str, ...]:
        """Names of the kernel modules that are loaded and live."""
        found = []
        for answer in self._ask(node, _STATE_LIST, block(1, b"runtime") + block(2, _MODULES.encode())):
            resource = inner(read(answer), 1)
            spec = inner(resource, 2)
            content = inner(spec, 1)
            state = text(content, 5)
            if state in ("", "Live"):
                found.append(text(content, 1) or text(inner(resource, 1), 3))
        return tuple(sorted(found))

    def services(self, node: str) -> dict[str, tuple[str, str]]:
        """State and newest event of each service, by its id."""
        found = {}
        for answer in self._ask(node, f"{_MACHINE}ServiceList"):
            for message in messages(read(answer), 1):
                for service in messages(message, 2):
                    events = messages(inner(service, 3), 1)
                    found[text(service, 1)] = text(service, 2), text(events[-1], 1) if events else ""
        return found

    def log(self, node: str, service: str) -> tuple[str, ...]:
        """The newest lines of a service's log."""
        request = block(1, _SYSTEM.encode()) + block(2, service.encode()) + field_number(5, _TAIL)
        return tuple(line for line in self._data(node, f"{_MACHINE}Logs", request).splitlines() if line.strip())[-_TAIL:]

    def folder(self, node: str, path: str) -> tuple[str, ...]:
        """Names of the files in a folder."""
        entries = [read(answer) for answer in self._ask(node, f"{_MACHINE}List", block(1, path.encode()))]
        names = {text(entry, 9) or text(entry, 2).rpartition("/")[2] for entry in entries}
        return tuple(sorted(names - {"", "."}))

    def file(self, node: str, path: str) -> str:
        """The content of a file, GrpcError when there is none or the role may not see it."""
        return self._data(node, f"{_MACHINE}Read", block(1, path.encode()))

    def _data(self, node: str, call: str, request: bytes) -> str:
        parts = [
            value for answer in self._ask(node, call, request) for value in read(answer).get(2, ()) if isinstance(value, bytes)
        ]
        return b"".join(parts).decode("utf-8", "replace")

    def _ask(self, node: str, call: str, request: bytes = b"") -> list[bytes]:
        """By the first endpoint that can be reached, which passes the call on to the node; without endpoints by the node itself."""
        problem: TgpError = Unreachable(f"{node}: the talosconfig names no endpoint that can be asked.", service="talos")
        for endpoint in self._access.endpoints or (node,):
            metadata = (("node", node),) if self._access.endpoints else ()
            try:
                with self._connected(endpoint) as (sock, authority):
                    return stream(sock, authority, call, request, self._seconds, metadata)
            except Unreachable as error:
                problem = error
        raise problem

    @contextlib.contextmanager
    def _connected(self, endpoint: str) -> t.Iterator[tuple[ssl.SSLSocket, str]]:
        host, port = _host_and_port(endpoint)
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            plain = socket.create_connection((host, port), self._seconds)
        except OSError as error:
            why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
            raise Unreachable(f"The Talos API at {authority} cannot be reached: {why}.", service="talos") from error
        with plain:
            try:
                sock = self._tls.wrap_socket(plain, server_hostname=host)
            except OSError as error:
                why = getattr(error, "verify_message", None) or getattr(error, "reason", None) or error.strerror or "it fell silent"
                raise LostAnswer(f"No TLS connection to the Talos API at {authority}: {why}.", service="talos") from error
            with sock:
                yield sock, authority


def _host_and_port(endpoint: str) -> tuple[str, int]:
    host, colon, port = endpoint.rpartition(":")
    if colon and port.isdigit() and (":" not in host or host.endswith("]")):
        return host.strip("[]"), int(port)
    return endpoint.strip("[]"), PORT


def _client_context(access: TalosAccess) -> ssl.SSLContext:
    """Python takes a client certificate from a file only; it is gone before anything is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    handle, path = tempfile.mkstemp(prefix="talos-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{access.key}\n{access.certificate}\n")
        context.load_verify_locations(cadata=access.ca)
        context.load_cert_chain(path)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "not PEM"
        raise InvalidInput(f"The certificates of the talosconfig cannot be used: {reason}.") from None
    finally:
        os.unlink(path)
    return context
