# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Paperspace team in a sandbox of its own, as a person with the key would use it."""

from __future__ import annotations

import time
import typing as t

import httpx

from sandbox.box import Box
from sandbox.clock import SimClock
from sandbox.scenario import parse

OFFERS = [
    {"type": "A4000", "region": "ny2", "stock": 5, "boot": 100},
    {"type": "A4000x2", "region": "ny2", "stock": 1, "boot": 100},
    {"type": "A5000", "region": "ca1", "stock": 0},
    {"type": "A100-80Gx8", "region": "ny2", "stock": 1},
]


class Team:
    """``offers``, ``behaviours`` and the cloud's switches make the scenario. The world's time moves when it is told to."""

    def __init__(self, offers: t.Any = None, behaviours: t.Any = (), rate_limits: bool = False, **switches: t.Any) -> None:
        scenario = {
            "paperspace": {"offers": offers or OFFERS, **switches},
            "behaviours": list(behaviours),
            "rate_limits": rate_limits,
        }
        self.box = Box(parse(scenario), clock=SimClock(1.0), seed=3).start()
        self.world = self.box.world
        self.client = httpx.Client(
            transport=httpx.WSGITransport(app=self.box.apps["paperspace"]),
            base_url="http://paperspace.test/v1",
            headers={"authorization": f"Bearer {self.world.secrets['PAPERSPACE_API_KEY']}"},
        )

    def close(self) -> None:
        self.box.stop()

    def call(self, method: str, path: str, body: t.Any = None, **more: t.Any) -> httpx.Response:
        if body is not None:
            more["json"] = body
        return self.client.request(method, path, **more)

    def get(self, path: str, **query: t.Any) -> dict[str, t.Any]:
        answer = self.call("GET", path, params=query)
        assert answer.status_code == 200, answer.text
        return t.cast("dict[str, t.Any]", answer.json())

    def order(self, **fields: t.Any) -> dict[str, t.Any]:
        """A create request; a field that is None is left out."""
        base = {"name": "tgp-lab-1", "machineType": "A4000", "templateId": "t0nspur5", "region": "ny2", "diskSize": 100}
        return {name: value for name, value in {**base, "emailPassword": False, **fields}.items() if value is not None}

    def create(self, **fields: t.Any) -> dict[str, t.Any]:
        answer = self.call("POST", "/machines", self.order(**fields))
        assert answer.status_code == 200, answer.text
        return t.cast("dict[str, t.Any]", answer.json())

    def state(self, identity: str) -> str:
        return str(self.get(f"/machines/{identity}")["state"])

    def event(self, identity: str) -> dict[str, t.Any]:
        return self.get(f"/machine-events/{identity}")

    def pass_time(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    def until(self, what: t.Callable[[], t.Any], advance: float = 0.0) -> None:
        """Wait (real seconds) for it; ``advance``: with so much of the world's time passing at each look."""
        end = time.monotonic() + 60
        while not what():
            assert time.monotonic() < end, "did not happen"
            self.pass_time(advance)
            time.sleep(0.01)

    def up(self, identity: str) -> None:
        """Let a machine's boot pass."""
        self.until(lambda: self.world.machines[identity].state == "active", advance=20)

    def ready(self, **fields: t.Any) -> str:
        """A new machine that is ready; its id."""
        identity = str(self.create(**fields)["data"]["id"])
        self.up(identity)
        self.pass_time(20)
        assert self.state(identity) == "ready"
        return identity
