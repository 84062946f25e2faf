# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tailnet in process, and our client against it."""

from __future__ import annotations

import dataclasses
import typing as t

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.connect import connect
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.tailscale.client import Tailscale

from sandbox.clock import SimClock
from sandbox.faults import Faults, FaultyApp
from sandbox.tailnet import SAAS, Tailnet
from sandbox.tailscale import app
from sandbox.world import World

VARIABLES = (
    "TAILSCALE_API_URL",
    "TAILSCALE_TAILNET",
    "TS_OAUTH_CLIENT_ID",
    "TS_OAUTH_CLIENT_SECRET",
    "TAILSCALE_API_KEY",
    "TS_API_KEY",
)


@dataclasses.dataclass
class Place:
    """A world with its tailnet; ``calls`` are method and path of every request that left the client."""

    world: World
    tailnet: Tailnet
    faults: Faults
    wsgi: t.Any
    calls: list[str] = dataclasses.field(default_factory=list)

    def transport(self, _url: str) -> httpx.BaseTransport:
        inner = httpx.WSGITransport(app=self.wsgi)
        calls = self.calls

        class Counting(httpx.BaseTransport):
            def handle_request(self, request: httpx.Request) -> httpx.Response:
                calls.append(f"{request.method} {request.url.path.removeprefix('/api/v2')}")
                return inner.handle_request(request)

        return Counting()

    def oauth(self) -> dict[str, str]:
        secrets = self.world.secrets
        return {
            "tailscale_oauth_client_id": secrets["TS_OAUTH_CLIENT_ID"],
            "tailscale_oauth_client_secret": secrets["TS_OAUTH_CLIENT_SECRET"],
        }

    def client(self, **params: t.Any) -> Tailscale:
        """Our client; with no arguments as the sandbox's OAuth client."""
        return connect(Task(params=params or self.oauth(), clock=self.world.clock, transport=self.transport))

    def user(self) -> Tailscale:
        """Our client with the user's API token."""
        return self.client(tailscale_api_token=self.world.secrets["TAILSCALE_API_KEY"])

    def count(self, call: str) -> int:
        return self.calls.count(call)

    def run(self, module: t.Any, *, check: bool = False, diff: bool = False, **params: t.Any) -> dict[str, t.Any]:
        """One module call with the spec's defaults, as the action plugin does it."""
        defaults = {name: option.get("default") for name, option in module.SPEC["argument_spec"].items()}
        self.warnings: list[str] = []
        task = Task(
            params={**defaults, **self.oauth(), **params},
            check_mode=check,
            diff_mode=diff,
            warn=self.warnings.append,
            clock=self.world.clock,
            transport=self.transport,
        )
        return execute(module.SPEC, module.run, task)


def build(profile: str = SAAS) -> Place:
    world = World(SimClock(speed=60))  # pauses of retries pass quickly, deadlines do not
    world.tailnet = Tailnet(world.clock, world.random, lock=world.lock, profile=profile)
    faults = Faults()
    return Place(world, world.tailnet, faults, FaultyApp(app(world), faults, "tailscale", world.clock))


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def place() -> Place:
    return build()
