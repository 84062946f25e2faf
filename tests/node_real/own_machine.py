# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An own machine behind power webhooks, of which the cluster sees a Node and nothing else."""

from __future__ import annotations

import http.server
import threading
import typing as t

from tests.cluster.objects import GPU
from tests.cluster.plane import Plane

from .machine import GATEWAY


class OwnMachine:
    """``with OwnMachine(plane, name) as box``: its power service listens at ``url``, and ``calls`` are the paths that were posted to."""

    def __init__(self, plane: Plane, name: str) -> None:
        self._plane, self.name, self.calls = plane, name, list[str]()

    def __enter__(self) -> t.Self:
        box = self

        class Power(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length") or 0))
                box.calls.append(self.path)
                box.switch(on=self.path == "/on")
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_words: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer((GATEWAY, 0), Power)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.port = self._server.server_port
        self.url = f"http://{GATEWAY}:{self.port}"
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._plane.delete(f"/api/v1/nodes/{self.name}")

    def switch(self, *, on: bool) -> None:
        """What its kubelet would say of it."""
        path = f"/api/v1/nodes/{self.name}"
        if self._plane.find(path) is None:
            labels = {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux"}
            self._plane.create("/api/v1/nodes", {"metadata": {"name": self.name, "labels": labels}})
        room = {"cpu": "8", "memory": "32Gi", "pods": "110", GPU: "1"}
        ready = {"type": "Ready", "status": "True" if on else "False", "reason": "Kubelet", "message": "by hand"}
        self._plane.patch(f"{path}/status", {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}})
