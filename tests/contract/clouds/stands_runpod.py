# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RunPod's emulator over a small world, and our client in front."""

from __future__ import annotations

import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.model import Container, LaunchRequest
from ansible_collections.tgp.gpu.plugins.module_utils.providers.runpod.cloud import RunpodCloud

from sandbox import runpod_cloud
from sandbox.runpod_account import Account
from sandbox.world import Machine

from .stands import KEY, Stand

RTX4090 = "NVIDIA GeForce RTX 4090"
SHELVES: tuple[dict[str, t.Any], ...] = (
    {"type": RTX4090, "region": "EU-RO-1", "stock": 8},
    {"type": RTX4090, "region": "US-KS-2", "stock": 2},
    {"type": RTX4090, "region": "US-TX-3", "tier": "COMMUNITY", "stock": 4},
    {"type": "NVIDIA A40", "region": "EU-SE-1", "stock": 0},
    {"type": "NVIDIA H100 80GB HBM3", "region": "AP-JP-1", "stock": 8},
)
IMAGE = "registry.example/agent:1"
DEFAULT_OFFER = f"{RTX4090} x1 secure@EU-RO-1"


class RunpodStand(Stand):
    service, base = "runpod", "https://runpod.test"
    list_path = r"^/v2/pods$"
    create_path = r"^/v2/pods$"

    def furnish(self) -> None:
        self.world.secrets["RUNPOD_API_KEY"] = KEY
        self.world.offers += [runpod_cloud.runpod_offer({"boot": 60.0, **shelf}) for shelf in SHELVES]

    @property
    def account(self) -> Account:
        return Account.of(self.world)

    def make_app(self) -> t.Any:
        return runpod_cloud.app(self.world)

    def up(self, machine: Machine) -> None:
        """What a container that runs shows."""
        now = self.world.clock.seconds()
        machine.state = "active"
        machine.ip = machine.details["addresses"][0]
        machine.details.update(phase="running", started=now, serving_since=now)

    def cloud(self, key: str = KEY, **changes: t.Any) -> RunpodCloud:
        return RunpodCloud(key, url=self.base, transport=self.transport(), clock=changes.pop("clock", self.world.clock), **changes)

    def request(self, name: str = "tgp-a1b2c3d4-train-0k3zq", **changes: t.Any) -> LaunchRequest:
        wanted = changes.pop("offer_id", DEFAULT_OFFER)
        offer = next(one for one in self.cloud().offers() if one.id == wanted)
        changes.setdefault("container", Container(IMAGE, "exec sleep infinity"))
        return LaunchRequest(name=name, offer=offer, marks=changes.pop("marks", {"cluster": "a1b2c3d4"}), **changes)
