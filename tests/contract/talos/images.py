# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An account of each provider that boots images of one's own, with the Image Factory beside it, and the module talos_image in front."""

from __future__ import annotations

import pathlib
import typing as t

import httpx
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.modules import talos_image

from sandbox import gcp_cloud, image_factory, vultr_cloud
from sandbox.clock import SimClock
from sandbox.faults import Faults, FaultyApp
from sandbox.gcp_account import SECRET, service_account
from sandbox.gcp_account import Account as GcpAccount
from sandbox.vultr_account import Account as VultrAccount
from sandbox.world import World

FACTORY, VULTR, GCP = "https://factory.test", "https://vultr.test", "https://gcp.test"
KEY = "secret_contract_0123456789abcdef"
SCHEMATIC = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
VERSION = "1.13.9"
BUCKET = "tgp-images"


class Stand:
    """One world for both providers. ``calls`` are those of the module, as "METHOD path"."""

    def __init__(self, provider: str, state: pathlib.Path) -> None:
        self.provider, self.state = provider, state
        self.world = World(SimClock(speed=5000.0))
        self.world.secrets.update({"VULTR_API_KEY": KEY, SECRET: service_account()})
        self.faults = Faults()
        self.calls: list[str] = []
        self.lines: list[str] = []
        self.warnings: list[str] = []
        self.vultr, self.gcp = VultrAccount.of(self.world), GcpAccount.of(self.world)
        self.gcp.turn({"bucket": BUCKET})
        made = {FACTORY: image_factory.app, VULTR: vultr_cloud.app, GCP: gcp_cloud.app}
        names = {FACTORY: "image_factory", VULTR: "vultr", GCP: "gcp"}
        self._apps = {url: FaultyApp(app(self.world), self.faults, names[url], self.world.clock) for url, app in made.items()}

    @property
    def account(self) -> t.Any:
        return self.vultr if self.provider == "vultr" else self.gcp

    @property
    def writes(self) -> list[str]:
        """What was sent that is no read, without those for a token."""
        return [call for call in self.calls if not call.startswith(("GET", "HEAD")) and not call.endswith("/token")]

    @property
    def names(self) -> list[str]:
        """Of the images that there are."""
        if self.provider == "vultr":
            now = self.world.clock.seconds()
            return [one.description for one in self.vultr.snapshots.values() if self.vultr.snapshot_state(one, now)]
        return list(self.gcp.own_images)

    def _transport(self, url: str) -> httpx.BaseTransport:
        app = self._apps[url]

        def counted(environ: t.Any, start: t.Any) -> t.Any:
            self.calls.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
            return app(environ, start)

        return httpx.WSGITransport(app=counted)

    def call(self, *, check: bool = False, diff: bool = False, **params: t.Any) -> dict[str, t.Any]:
        spec = {key: value for key, value in talos_image.SPEC.items() if key != "supports_check_mode"}
        usual: dict[str, t.Any] = {
            "provider": self.provider,
            "schematic_id": SCHEMATIC,
            "image_factory_url": FACTORY,
            "vultr_api_url": VULTR,
            "vultr_api_key": KEY,
            "gcp_api_url": GCP,
            "gcp_service_account_contents": service_account(),
            "state_dir": str(self.state),
        }
        if self.provider == "gcp" and "source" not in params:
            usual["bucket"] = BUCKET
        given = {name: value for name, value in {**usual, **params}.items() if value is not None}
        read = ArgumentSpecValidator(**spec).validate(given)
        assert not read.error_messages, read.error_messages
        self.calls, self.lines, self.warnings = [], [], []
        task = Task(
            params=read.validated_parameters,
            check_mode=check,
            diff_mode=diff,
            warn=self.warnings.append,
            progress=self.lines.append,
            clock=self.world.clock,
            transport=self._transport,
        )
        return execute(talos_image.SPEC, talos_image.run, task)
