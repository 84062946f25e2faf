# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API on loopback over TLS, for programs that are not in this process."""

from __future__ import annotations

import contextlib
import email.utils
import os
import select
import shutil
import socket
import ssl
import tempfile
import threading
import typing as t
from datetime import datetime

from cheroot import wsgi
from cheroot.server import HTTPConnection
from cheroot.ssl.builtin import BuiltinSSLAdapter

if t.TYPE_CHECKING:
    from .api import KubeApi

KEPT_OPEN = 1024  # idle connections of a port: real servers close none in use, and a new one costs both sides a handshake
App = t.Callable[[dict[str, t.Any], t.Callable[..., t.Any]], t.Iterable[bytes]]


_NO_TLS = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


class _Adapter(BuiltinSSLAdapter):  # type: ignore[misc]
    """Leaves the handshake to the thread that serves the connection. In the thread that accepts connections, all would wait for each slow
    client, which those of a real server do not."""

    def wrap(self, sock: t.Any) -> tuple[ssl.SSLSocket, dict[str, str]]:
        return self.context.wrap_socket(sock, do_handshake_on_connect=False, server_side=True), {}

    def environ_of(self, sock: ssl.SSLSocket) -> dict[str, str]:
        """What requests of this client have in their environment: its certificate, if it has shown one."""
        shown = sock.getpeercert(binary_form=True)
        return {"wsgi.url_scheme": "https", **({"SSL_CLIENT_CERT": ssl.DER_cert_to_PEM_cert(shown).strip()} if shown else {})}


class _Connection(HTTPConnection):  # type: ignore[misc]
    """Begins with its handshake."""

    def communicate(self) -> bool:
        if not self.ssl_env:
            try:
                self.socket.do_handshake()
            except OSError as error:
                if getattr(error, "reason", "") == "HTTP_REQUEST":
                    with contextlib.suppress(OSError):
                        socket.socket.sendall(self.socket, _NO_TLS)
                return False
            self.ssl_env = self.server.ssl_adapter.environ_of(self.socket)
        return bool(super().communicate())


class _Gateway(wsgi.Gateway_10):
    """Also tells the app whether the client has hung up, so that a watch nobody reads ends."""

    def get_environ(self) -> t.Any:
        environ: dict[str, t.Any] = super().get_environ()
        sock = self.req.conn.socket

        def lost() -> bool:
            poll = select.poll()  # select() knows the first 1024 files of a process only
            try:
                poll.register(sock, select.POLLIN)
                return bool(poll.poll(0))  # a client that watches sends nothing more: what can be read is the end
            except (OSError, ValueError):
                return True

        environ["kube.lost"] = lost
        return environ


def dated(app: App, now: t.Callable[[], datetime]) -> App:
    """Answers tell the time of the world they come from, as clients compare it with their own."""

    def call(environ: t.Any, start_response: t.Any) -> t.Any:
        def begin(status: str, headers: list[tuple[str, str]], *more: t.Any) -> t.Any:
            if not any(name.lower() == "date" for name, _value in headers):
                headers = [*headers, ("Date", email.utils.format_datetime(now(), usegmt=True))]
            return start_response(status, headers, *more)

        return app(environ, begin)

    return call


class KubeServer:
    """``url`` answers between ``start`` and ``stop``. ``app`` may be the API's own or that wrapped by a middleware."""

    def __init__(self, api: KubeApi, port: int = 0, app: App | None = None, threads: int = 128) -> None:
        self._api = api
        self._folder = tempfile.mkdtemp(prefix="kube-")
        pems = api.certificates()
        paths = {}
        for name, text in (("ca.crt", pems.ca), ("server.crt", pems.cert), ("server.key", pems.key)):
            paths[name] = os.path.join(self._folder, name)
            with open(os.open(paths[name], os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
        self._server = wsgi.Server(
            ("127.0.0.1", port), dated(app or api.app, api.now), numthreads=threads, request_queue_size=512, timeout=60
        )
        self._server.gateway = _Gateway
        self._server.ConnectionClass = _Connection
        self._server.keep_alive_conn_limit = KEPT_OPEN
        adapter = _Adapter(paths["server.crt"], paths["server.key"], paths["ca.crt"])
        adapter.context.verify_mode = ssl.CERT_OPTIONAL  # kubelets come with a client certificate, others with a token
        self._server.ssl_adapter = adapter
        setattr(self._server, "error_log", lambda *_args, **_more: None)  # noqa: B010
        self._server.prepare()
        self.port = int(self._server.bind_addr[1])
        self.url = f"https://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve, name="kube-server", daemon=True)

    def start(self) -> KubeServer:
        self._thread.start()
        return self

    def kubeconfig(self) -> str:
        """The file with which its administrator reaches it; gone with the server."""
        path = os.path.join(self._folder, "kubeconfig")
        self._api.write_kubeconfig(path, self.url)
        return path

    def stop(self) -> None:
        self._server.shutdown_timeout = 1
        self._server.stop()
        self._thread.join(5)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> KubeServer:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()


def serve(api: KubeApi, port: int = 0, app: App | None = None) -> KubeServer:
    """A started server; stop it with ``stop()``."""
    return KubeServer(api, port, app).start()
