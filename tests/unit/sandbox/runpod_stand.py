# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A world with RunPod alone: its API, its containers, a tailnet, and the proxy that leads into it."""

from __future__ import annotations

import time
import typing as t

import httpx

from sandbox import mesh_proxy, runpod_cloud
from sandbox.behaviour import Behaviour
from sandbox.clock import SimClock
from sandbox.machine import Machines
from sandbox.runpod_account import Account
from sandbox.world import Machine, World

RTX4090, H100 = "NVIDIA GeForce RTX 4090", "NVIDIA H100 80GB HBM3"
SHELVES: list[dict[str, t.Any]] = [
    {"type": RTX4090, "region": "EU-RO-1", "stock": 8, "boot": 100},
    {"type": RTX4090, "region": "US-KS-2", "stock": 2, "boot": 100, "cuda": "13.0"},
    {"type": RTX4090, "region": "US-TX-3", "tier": "COMMUNITY", "stock": 4, "boot": 100},
    {"type": H100, "region": "US-KS-2", "stock": 0},
]
SERVICE = """sh -c '
set -e
tailscaled --tun=userspace-networking --socket=/tmp/ts.sock &
tailscale --socket=/tmp/ts.sock up --auth-key="$TS_AUTHKEY" --hostname="$TS_HOSTNAME"
exec python3 -m http.server 8000
'"""


class Stand:
    """``call`` speaks to the API with the key, ``get`` goes through the proxy of the tailnet."""

    def __init__(self, *behaviours: dict[str, t.Any], speed: float = 2000.0, rate_limits: bool = False) -> None:
        self.world = World(SimClock(speed), seed=3)
        self.world.rate_limits = rate_limits
        self.tailnet = self.world.tailnet
        rules = [Behaviour.parse(rule) for rule in behaviours]
        Machines(self.world, self.tailnet, timings={"mesh": 10.0, "ready": 5.0}, behaviours=rules)
        self.world.offers += [runpod_cloud.runpod_offer(entry) for entry in SHELVES]
        self.account = Account.of(self.world)
        app = runpod_cloud.app(self.world)
        key = self.world.secrets["RUNPOD_API_KEY"]
        self.http = httpx.Client(
            transport=httpx.WSGITransport(app=app), base_url="http://runpod", headers={"authorization": f"Bearer {key}"}
        )
        self.proxy = httpx.Client(transport=httpx.WSGITransport(app=mesh_proxy.app(self.world)))

    def call(self, method: str, path: str, body: t.Any = None, **more: t.Any) -> httpx.Response:
        return self.http.request(method, path, json=body, **more) if body is not None else self.http.request(method, path, **more)

    def key(self, **fields: t.Any) -> str:
        settings = {
            "seconds": 86400,
            "description": "tgp test",
            "ephemeral": True,
            "preauthorized": True,
            "tags": ["tag:gpu"],
            **fields,
        }
        return str(self.tailnet.create_key("auth", **settings).secret)

    def order(self, name: str = "tgp-a-1", **more: t.Any) -> dict[str, t.Any]:
        """A body that is accepted."""
        return {"name": name, "image": "registry.example/agent:1", "gpu": {"id": RTX4090, "count": 1}, **more}

    def service(self, name: str = "tgp-a-1", **env: str) -> dict[str, t.Any]:
        return self.order(name, args=SERVICE, env={"TS_AUTHKEY": self.key(), "TS_HOSTNAME": name, **env})

    def pod(self, body: dict[str, t.Any]) -> Machine:
        answer = self.call("POST", "/v2/pods", body)
        assert answer.status_code == 201, answer.text
        return self.world.machines[answer.json()["id"]]

    def show(self, machine: Machine) -> dict[str, t.Any]:
        answer = self.call("GET", f"/v2/pods/{machine.id}")
        assert answer.status_code == 200, answer.text
        return t.cast("dict[str, t.Any]", answer.json())

    def get(self, machine: Machine, path: str = "/", port: int = 8000) -> httpx.Response:
        device = self.tailnet.device(machine.details["device"])
        assert device is not None
        return self.proxy.get(f"http://{device.ipv4}:{port}{path}")

    @staticmethod
    def until(what: t.Callable[[], t.Any], seconds: float = 60.0) -> t.Any:
        end = time.monotonic() + seconds
        while not (found := what()):
            assert time.monotonic() < end, "did not happen"
            time.sleep(0.01)
        return found

    def step(self, machine: Machine, wanted: str) -> str:
        """Wait for a step; its text."""
        self.until(lambda: any(step == wanted for _time, step, _text in list(machine.steps)))
        return next(text for _time, step, text in reversed(machine.steps) if step == wanted)

    def close(self) -> None:
        self.world.clock.close()
