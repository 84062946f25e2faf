# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sandbox's Vast over a small world whose time stands still unless it is moved."""

from __future__ import annotations

import typing as t

import httpx

from sandbox import vast_cloud
from sandbox.clock import SimClock
from sandbox.world import Machine, Offer, World

KEY = "vast_unit_0123456789abcdef0123456789abcdef"
VM_IMAGE = "docker.io/vastai/kvm:ubuntu_terminal"


class VastStand:
    """A client with a good key. Machines come up by :meth:`up` only."""

    def __init__(self, *offers: Offer, **switches: t.Any) -> None:
        self.world = World(SimClock(speed=1e-9, start=1_800_000_000.0))
        self.world.secrets["VAST_API_KEY"] = KEY
        self.world.rate_limits = False
        self.world.offers += offers or vast_cloud.catalogue()
        self.app = vast_cloud.app(self.world)
        vast_cloud.set_up(self.world, switches)
        self.http = self.client(f"Bearer {KEY}")

    def client(self, authorization: str = "") -> httpx.Client:
        headers = {"authorization": authorization} if authorization else {}
        return httpx.Client(transport=httpx.WSGITransport(app=self.app), base_url="http://vast.test", headers=headers)

    def call(self, method: str, path: str, body: t.Any = None, status: int = 200) -> t.Any:
        answer = self.http.request(method, path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def offers(self, **query: t.Any) -> list[dict[str, t.Any]]:
        return list(self.call("POST", "/api/v0/bundles/", query)["offers"])

    def create(self, offer: int | None = None, status: int = 200, **fields: t.Any) -> t.Any:
        """The id of a new instance, or the body of a refusal."""
        number = offer or self.offers(rentable={"eq": True}, disk_space={"gte": 20}, order=[["id", "asc"]])[0]["id"]
        wanted = {"client_id": "me", "image": "pytorch/pytorch", "disk": 16, **fields}
        body = self.call("PUT", f"/api/v0/asks/{number}/", {name: value for name, value in wanted.items() if value != ...}, status)
        return body["new_contract"] if status == 200 else body

    def machine(self, number: int) -> Machine:
        return self.world.machines[str(number)]

    def up(self, number: int, after: float = 60.0) -> Machine:
        """The machine comes up so many seconds from now."""
        self.world.clock.advance(after)
        machine = self.machine(number)
        with self.world.lock:
            machine.state = "active"
        return machine

    def show(self, number: int) -> t.Any:
        return self.call("GET", f"/api/v0/instances/{number}/")["instances"]

    def listed(self, **query: str) -> t.Any:
        answer = self.http.get("/api/v1/instances/", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()
