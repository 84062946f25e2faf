# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API server's way to ports of nodes: GET /api/v1/nodes/https:NAME:PORT/proxy/. Who may not get nodes/proxy is refused.

Nothing answers there in words of HTTP: port 50000 of a Talos node wants a client certificate, and every other port but the kubelet's is
closed. Both are a 503 of the API server, and its text tells them apart.
"""

from __future__ import annotations

import json
import re
import typing as t

import httpx

from .world import World
from .wsgi import App, Environ, StartResponse

TALOS_API = 50000
_PATH = re.compile(r"^/api/v1/nodes/https:([a-z0-9.-]+):(\d+)/proxy(?:/.*)?$")
_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class NodePorts:
    """Stands before the Kubernetes API ``inner`` and answers for the nodes' own ports."""

    def __init__(self, inner: App, world: World) -> None:
        self._inner, self._world = inner, world

    def __call__(self, environ: Environ, start_response: StartResponse) -> t.Iterable[bytes]:
        found = _PATH.match(environ.get("PATH_INFO", ""))
        if found is None:
            return self._inner(environ, start_response)
        status, reason, message = self._answer(environ, found[1], int(found[2]))
        content = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": status}
        body = json.dumps({**content, "metadata": {}}).encode()
        start_response(f"{status} {reason}", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    def _answer(self, environ: Environ, name: str, port: int) -> tuple[int, str, str]:
        headers = {"authorization": environ.get("HTTP_AUTHORIZATION", "")}
        asked = {"verb": "get", "resource": "nodes", "subresource": "proxy", "name": name}
        with httpx.Client(transport=httpx.WSGITransport(app=self._inner), base_url="http://kube", headers=headers) as client:
            review = client.post(_REVIEW, json={"spec": {"resourceAttributes": asked}})
            if review.status_code == 401:
                return 401, "Unauthorized", "Unauthorized"
            if not (review.json().get("status") or {}).get("allowed"):
                return 403, "Forbidden", f'nodes "{name}" is forbidden: cannot get resource "nodes/proxy" in API group ""'
            if client.get(f"/api/v1/nodes/{name}").status_code != 200:
                return 404, "NotFound", f'nodes "{name}" not found'
        return 503, "ServiceUnavailable", f"error trying to reach service: {self._dial(name, port)}"

    def _dial(self, name: str, port: int) -> str:
        with self._world.lock:
            machine = next(
                (one for one in self._world.machines.values() if one.details.get("node") == name and one.ended is None), None
            )
        if machine is None:
            return f"dial tcp {name}:{port}: connect: no route to host"
        talos = machine.details.get("system", "talos" if machine.cloud == "webhook" else "") == "talos"
        serves = port == 10250 or (port == TALOS_API and talos and machine.details.get("apid", True))
        return "remote error: tls: certificate required" if serves else f"dial tcp {name}:{port}: connect: connection refused"
