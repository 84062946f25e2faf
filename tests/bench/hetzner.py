# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in of Hetzner's API for servers, in a process of its own: ``python -m tests.bench.hetzner LATENCY BOOT [SERVERS]``.

Every call takes ``LATENCY`` seconds. A server runs ``BOOT`` seconds after its create call, until when the action of that call is running.
``SERVERS`` run from the start. It prints its address, and serves until its input ends. ``GET /calls``, which is not counted, answers how many
calls there were.
"""

from __future__ import annotations

import http.server
import itertools
import json
import re
import sys
import threading
import time
import typing as t
import urllib.parse

_CREATED = "2026-01-01T00:00:00+00:00"
_LOCATION = {
    "id": 1,
    "name": "fsn1",
    "description": "Falkenstein",
    "country": "DE",
    "city": "Falkenstein",
    "network_zone": "eu-central",
}
_TYPE = {
    "id": 1, "name": "cx23", "description": "CX23", "cores": 2, "memory": 4, "disk": 40, "prices": [], "storage_type": "local",
    "cpu_type": "shared", "architecture": "x86", "deprecated": False, "deprecation": None, "locations": [],
}  # fmt: skip
_IMAGE = {
    "id": 1, "name": "ubuntu-24.04", "description": "Ubuntu 24.04", "type": "system", "status": "available", "architecture": "x86",
    "os_flavor": "ubuntu", "os_version": "24.04", "disk_size": 5, "image_size": None, "created": _CREATED, "created_from": None,
    "bound_to": None, "rapid_deploy": True, "deprecated": None, "labels": {}, "protection": {"delete": False},
}  # fmt: skip
_LISTS = {"server_types": [_TYPE], "images": [_IMAGE], "locations": [_LOCATION]}
Json = dict[str, t.Any]


class Servers:
    """What exists, and how many calls there were."""

    def __init__(self, boot: float, running: int) -> None:
        self._boot, self._lock, self._ids = boot, threading.Lock(), itertools.count(1)
        self._known: dict[int, tuple[str, float]] = {}  # name, when it runs
        self.calls = 0
        for number in range(running):
            self._known[next(self._ids)] = (f"running-{number:04d}", 0.0)

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Json) -> tuple[int, Json]:
        with self._lock:
            self.calls += 1
            if path == "/servers" and method == "POST":
                number = next(self._ids)
                self._known[number] = (str(body["name"]), time.monotonic() + self._boot)
                made = {"server": self._server(number), "action": self._action(number), "next_actions": [], "root_password": None}
                return 201, made
            if path == "/servers":
                return 200, _page("servers", [self._server(one) for one in self._named(query)], query)
            if (found := re.fullmatch(r"/(servers|actions)/(\d+)", path)) and int(found[2]) in self._known:
                number = int(found[2])
                return 200, {"server": self._server(number)} if found[1] == "servers" else {"action": self._action(number)}
            if (name := path[1:]) in _LISTS:
                return 200, _page(name, _LISTS[name], query)
        return 404, {"error": {"code": "not_found", "message": f"there is no {path}", "details": None}}

    def _named(self, query: dict[str, list[str]]) -> list[int]:
        wanted = query.get("name")
        return [number for number, (name, _runs) in self._known.items() if wanted is None or name in wanted]

    def _runs(self, number: int) -> bool:
        return self._known[number][1] <= time.monotonic()

    def _server(self, number: int) -> Json:
        address = f"192.0.2.{number % 250 + 1}"
        network = {
            "ipv4": {"id": number, "ip": address, "blocked": False, "dns_ptr": ""},
            "ipv6": None,
            "floating_ips": [],
            "firewalls": [],
        }
        return {
            "id": number, "name": self._known[number][0], "status": "running" if self._runs(number) else "initializing", "created": _CREATED,
            "public_net": network, "private_net": [], "server_type": _TYPE, "image": _IMAGE, "location": _LOCATION, "datacenter": None,
            "iso": None, "rescue_enabled": False, "locked": False, "backup_window": None, "outgoing_traffic": 0, "ingoing_traffic": 0,
            "included_traffic": 0, "protection": {"delete": False, "rebuild": False}, "labels": {}, "volumes": [], "load_balancers": [],
            "primary_disk_size": 40, "placement_group": None,
        }  # fmt: skip

    def _action(self, number: int) -> Json:
        done = self._runs(number)
        return {
            "id": number, "command": "create_server", "status": "success" if done else "running", "progress": 100 if done else 50,
            "started": _CREATED, "finished": _CREATED if done else None, "resources": [{"id": number, "type": "server"}], "error": None,
        }  # fmt: skip


def _page(name: str, items: t.Sequence[Json], query: dict[str, list[str]]) -> Json:
    page, size = (int(query.get(key, [usual])[0]) for key, usual in (("page", "1"), ("per_page", "25")))
    last = max(1, -(-len(items) // size))
    pagination = {
        "page": page, "per_page": size, "previous_page": page - 1 or None, "next_page": page + 1 if page < last else None,
        "last_page": last, "total_entries": len(items),
    }  # fmt: skip
    return {name: items[(page - 1) * size : page * size], "meta": {"pagination": pagination}}


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


def _handler(servers: Servers, latency: float) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            url = urllib.parse.urlsplit(self.path)
            content = self.rfile.read(int(self.headers.get("content-length") or 0))
            if url.path == "/calls":
                status, answer = 200, {"calls": servers.calls}
            else:
                time.sleep(latency)
                body = json.loads(content) if content else {}
                status, answer = servers.answer(self.command, url.path, urllib.parse.parse_qs(url.query), body)
            text = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = _serve

        def log_message(self, *_words: t.Any) -> None:
            """Nobody reads it."""

    return Handler


def main() -> None:
    latency, boot, running = (float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
    server = _Server(("127.0.0.1", 0), _handler(Servers(boot, running), latency))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
