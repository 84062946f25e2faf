# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An HTTP proxy of the tailnet, as ``tailscaled --outbound-http-proxy-listen`` is one: GET http://100.x.y.z:PORT/path.

It stands for what runs on the other side: containers of this world answer on their ports once their command runs. A request is taken in
absolute form (as clients send it to a proxy) or by its Host header. Set ``server.ConnectionClass = ProxyConnection`` on a cheroot server,
which refuses absolute addresses otherwise.

Answers: 200 at the health path (TGP_HEALTH_PATH in the container's environment and all below it; without it any path), 404 elsewhere, 503
in the behaviour ``unhealthy_path``; 502 when nobody is there (no such device, offline, no such port, command not running), 504 when the
machine hangs. ``/idle`` and TGP_IDLE_PATH answer ``{"idle": true|false}``, by :func:`set_busy`. Ports are those the machine declared, or
TGP_PORTS of its environment; a container that declares none answers on any.
"""

from __future__ import annotations

import functools
import json
import re
import typing as t
import urllib.parse

from cheroot.server import HTTPConnection, HTTPRequest

from .world import Machine, World
from .wsgi import App, Environ, StartResponse

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 502: "Bad Gateway",
            503: "Service Unavailable", 504: "Gateway Timeout"}  # fmt: skip


class ProxyConnection(HTTPConnection):
    """A connection of a cheroot server that takes requests in absolute form."""

    RequestHandlerClass = functools.partial(HTTPRequest, proxy_mode=True)  # type: ignore[assignment]


def app(world: World) -> App:
    """The WSGI application."""

    def proxy(environ: Environ, start_response: StartResponse) -> t.Iterable[bytes]:
        status, content = _answer(world, environ)
        body = json.dumps(content).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response(f"{status} {_REASONS[status]}", headers)
        return [b"" if environ["REQUEST_METHOD"] == "HEAD" else body]

    return proxy


def set_busy(machine: Machine, busy: bool) -> None:
    """Whether the command of a container has work; its idle path says so."""
    machine.details["busy"] = busy


def _answer(world: World, environ: Environ) -> tuple[int, dict[str, t.Any]]:
    if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
        return 405, {"error": "this proxy forwards GET only"}
    uri = str(environ.get("REQUEST_URI") or "")
    absolute = urllib.parse.urlsplit(
        uri if "://" in uri else f"http://{environ.get('HTTP_HOST', '')}{environ.get('PATH_INFO', '/')}"
    )
    try:
        host, port = absolute.hostname or "", absolute.port or 80
    except ValueError:
        return 400, {"error": "the address has no port"}
    if absolute.scheme != "http" or not host:
        return 400, {"error": "the address should be http://HOST:PORT/PATH"}
    with world.lock:
        return _machine_answer(world, host, port, urllib.parse.unquote(absolute.path) or "/")


def _machine_answer(world: World, host: str, port: int, path: str) -> tuple[int, dict[str, t.Any]]:
    tailnet = world.tailnet
    device = next(
        (one for one in tailnet.devices() if host in (*one.addresses, one.label, tailnet.dns_name(one))),
        None,
    )
    if device is None:
        return 502, {"error": f"no device of the tailnet is {host}"}
    machine = next(
        (one for one in world.machines.values() if one.details.get("device") == device.node_id and one.ended is None), None
    )
    if machine is not None and machine.details.get("struck") == machine.boots and machine.state == "active":
        return 504, {"error": f"dial tcp {host}:{port}: i/o timeout"}
    if machine is None or not device.online or device.lock_error:
        return 502, {"error": f"dial tcp {host}:{port}: no route to host"}
    since = machine.details.get("serving_since")
    environment = machine.details.get("environment") or {}
    ports = {*(machine.details.get("ports") or ()), *map(int, re.findall(r"\d+", str(environment.get("TGP_PORTS") or "")))}
    if since is None or (ports and port not in ports):
        return 502, {"error": f"dial tcp {host}:{port}: connection refused"}
    if path in ("/idle", environment.get("TGP_IDLE_PATH")):
        return 200, {"idle": not machine.details.get("busy", False)}
    if world.clock.seconds() < machine.details.get("unhealthy_until", 0.0):
        return 503, {"error": "not healthy"}
    health = str(environment.get("TGP_HEALTH_PATH") or "")
    if health and path != health and not path.startswith(health.rstrip("/") + "/"):
        return 404, {"error": f"nothing at {path}"}
    return 200, {"name": machine.name, "path": path}
