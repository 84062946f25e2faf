# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GET pods/NAME:PORT/proxy/PATH: what a program in a pod answers on a port. Nothing runs here: whoever furnishes the world adds the programs
to ``KubeApi.pod_servers``."""

from __future__ import annotations

import re
import typing as t

from .status import Refusal

Json = dict[str, t.Any]
#: from the pod, the port and the path to (status, text); None = that program does not listen there
PodServer = t.Callable[[Json, int, str], "tuple[int, str] | None"]
_PATH = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/pods/(?P<name>[^/:]+)(?::(?P<port>\d+))?/proxy(?P<path>/.*)?")


class Proxied(t.NamedTuple):
    """What a path of the proxy names."""

    namespace: str
    name: str
    port: int
    path: str


def proxied(path: str) -> Proxied | None:
    """None for any other path. Without a port the pod's port 80 is meant."""
    match = _PATH.fullmatch(path)
    return None if match is None else Proxied(match["namespace"], match["name"], int(match["port"] or 80), match["path"] or "/")


def answer(servers: t.Iterable[PodServer], pod: Json, port: int, path: str) -> tuple[int, str]:
    """As the API server passes it on; Refusal 503 when nothing listens there."""
    address = (pod.get("status") or {}).get("podIP") or ""
    running = (pod.get("status") or {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    for server in servers if running else ():
        found = server(pod, port, path)
        if found is not None:
            return found
    why = f"dial tcp {address}:{port}: connect: connection refused" if running else f"dial tcp {address}:{port}: i/o timeout"
    raise Refusal(503, "ServiceUnavailable", f"error trying to reach service: {why}")
