# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Somebody who wants to be told: a small HTTP receiver of notices."""

from __future__ import annotations

import json
import threading
import typing as t
from wsgiref.simple_server import WSGIRequestHandler, make_server


class Receiver:
    """A WSGI app. ``answers`` are the status codes to give next (200 when there are none); none is given before ``gate``
    is open."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, t.Any]] = []
        self.tokens: list[str] = []
        self.paths: list[str] = []
        self.answers: list[int] = []
        self.tries = 0
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, environ: dict[str, t.Any], start_response: t.Callable[..., t.Any]) -> list[bytes]:
        self.tries += 1
        text = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        self.gate.wait(60)
        status = self.answers.pop(0) if self.answers else 200
        if status < 300:
            self.bodies.append(json.loads(text))
            self.tokens.append(environ.get("HTTP_AUTHORIZATION", ""))
            self.paths.append(environ["PATH_INFO"])
        start_response(f"{status} said", [("Content-Type", "text/plain")])
        return [b"ok"]

    @property
    def kinds(self) -> list[str]:
        return [one["kind"] for one in self.bodies]

    def serve(self) -> tuple[str, t.Callable[[], None]]:
        """Listen on loopback; the URL, and what ends it."""
        server = make_server("127.0.0.1", 0, self, handler_class=_Quiet)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}", lambda: (server.shutdown(), server.server_close())[0]


class _Quiet(WSGIRequestHandler):
    def log_message(self, *_arguments: t.Any) -> None:
        """Nothing on the screen."""
