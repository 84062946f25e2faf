# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real headscale for the tests of this folder. Without Go they are skipped; TGP_REQUIRE_PLANE=1 lets them fail instead."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.connect import connect

from tests.build import built

from .mesh import Server


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> t.Iterator[Server]:
    """One headscale for all tests: give every machine a name of its own."""
    with Server(built("headscale", request), built("tailscaled", request)) as running:
        yield running


class Hand:
    """Our own client and modules, connected to the server as a playbook would be."""

    def __init__(self, server: Server) -> None:
        self._given = {"tailscale_api_url": server.url, "tailscale_api_token": server.api_key}
        self.mesh = connect(Task(params=dict(self._given)))

    def run(self, module: t.Any, *, check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        """One module call with the defaults of its options."""
        defaults = {name: option.get("default") for name, option in module.SPEC["argument_spec"].items()}
        task = Task(params={**defaults, **self._given, **params}, check_mode=check, warn=lambda _text: None)
        return execute(module.SPEC, module.run, task)


@pytest.fixture
def hand(server: Server) -> t.Iterator[Hand]:
    hand = Hand(server)
    yield hand
    hand.mesh.close()
