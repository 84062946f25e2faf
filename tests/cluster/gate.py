# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A door before the real API server: names every write that goes through it, and can hold one while the caller is killed."""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import ssl
import threading
import typing as t

import httpx

from .plane import Plane
from .writes import Naming

_HOP = {"connection", "transfer-encoding", "keep-alive", "host", "content-length"}


@dataclasses.dataclass
class Hold:
    """The write number ``number`` (from 1) of those called ``name``, held until ``let_go``: before its effect, or after it."""

    name: str
    number: int
    after: bool
    seen: int = 0
    struck: threading.Event = dataclasses.field(default_factory=threading.Event)
    free: threading.Event = dataclasses.field(default_factory=threading.Event)


class Gate:
    """``with Gate(plane) as gate``; clients come in with ``gate.kubeconfig(token)``. A call that was held is never answered."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self.on_effect: t.Callable[[str], None] | None = None  # is told the name of each write that took effect
        self._naming = Naming()
        self._hold: Hold | None = None
        self._lock = threading.Lock()
        self.upstream = httpx.Client(
            base_url=plane.server,
            verify=ssl.create_default_context(cadata=plane.ca_pem),
            trust_env=False,
            timeout=httpx.Timeout(30, read=600),
            limits=httpx.Limits(max_connections=None),
        )

    def __enter__(self) -> t.Self:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._plane.folder / "apiserver.crt", self._plane.folder / "apiserver.key")
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, name="gate", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.let_go()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.upstream.close()

    @property
    def address(self) -> str:
        return f"https://127.0.0.1:{self._server.server_address[1]}"

    def hold(self, name: str, number: int, *, after: bool) -> Hold:
        self._hold = Hold(name, number, after)
        return self._hold

    def let_go(self) -> None:
        if self._hold is not None:
            self._hold.free.set()
            self._hold = None

    def passing(self, method: str, path: str, body: bytes) -> Hold | None:
        """The hold that a write meets."""
        with self._lock:
            name, hold = self._naming.of(method, path, body), self._hold
            hit = hold is not None and hold.name == name
            if hold is not None and hit:
                hold.seen += 1
                hit = hold.seen == hold.number
        if not hit or hold is None:
            return None
        if not hold.after:
            hold.struck.set()
        return hold

    def done(self, method: str, path: str, body: bytes) -> None:
        """A write has taken effect."""
        with self._lock:
            name, told = self._naming.of(method, path, body), self.on_effect
            self._naming.remember(method, path, body)
        if told is not None:
            told(name)


def _handler(gate: Gate) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: t.Any) -> None:
            return

        def handle_one_request(self) -> None:
            # the caller is gone, or the server, or this door is closed: nobody is left to answer
            with contextlib.suppress(OSError, httpx.HTTPError, RuntimeError):
                super().handle_one_request()
                return
            self.close_connection = True

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            writes = self.command != "GET" and "accessreviews" not in self.path
            hold = gate.passing(self.command, self.path, body) if writes else None
            if hold is not None and not hold.after:
                hold.free.wait()
                self.close_connection = True
                return
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
            with gate.upstream.stream(self.command, self.path, headers=headers, content=body) as answer:
                if writes and answer.is_success:
                    gate.done(self.command, self.path, body)
                if hold is not None:
                    answer.read()
                    hold.struck.set()
                    hold.free.wait()
                    self.close_connection = True
                    return
                self._answer(answer)

        def _answer(self, answer: httpx.Response) -> None:
            self.send_response(answer.status_code)
            for name, value in answer.headers.items():
                if name.lower() not in _HOP:
                    self.send_header(name, value)
            length = answer.headers.get("content-length")
            self.send_header("content-length", length) if length else self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for piece in answer.iter_raw():
                self.wfile.write(piece if length else b"%x\r\n%s\r\n" % (len(piece), piece))
            if not length:
                self.wfile.write(b"0\r\n\r\n")

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass

    return Handler
