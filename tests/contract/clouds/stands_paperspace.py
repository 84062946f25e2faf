# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paperspace's emulator over a small world, and our client in front."""

from __future__ import annotations

import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.model import LaunchRequest
from ansible_collections.tgp.gpu.plugins.module_utils.providers.paperspace.cloud import PaperspaceCloud

from sandbox import paperspace_cloud
from sandbox.paperspace_account import Account
from sandbox.paperspace_offers import paperspace_offer
from sandbox.world import Machine

from .stands import KEY, Stand

STOCK: tuple[dict[str, t.Any], ...] = (
    {"type": "A4000", "region": "ny2", "stock": 5},
    {"type": "A4000", "region": "ams1", "stock": 1},
    {"type": "A5000", "region": "ca1", "stock": 0},
    {"type": "A100-80Gx8", "region": "ny2", "stock": 1},
    {"type": "C5", "region": "ny2", "stock": 1},
)


class PaperspaceStand(Stand):
    service, base = "paperspace", "https://paperspace.test"
    list_path = r"^/v1/machines(\?|$)"
    create_path = r"^/v1/machines$"

    def furnish(self) -> None:
        self.world.secrets["PAPERSPACE_API_KEY"] = KEY
        self.world.offers += [paperspace_offer({"boot": 60.0, **entry}) for entry in STOCK]

    @property
    def account(self) -> Account:
        return Account.of(self.world)

    def make_app(self) -> t.Any:
        return paperspace_cloud.app(self.world)

    def up(self, machine: Machine) -> None:
        super().up(machine)
        machine.ip = machine.details["addresses"][0]

    def cloud(self, key: str = KEY, **changes: t.Any) -> PaperspaceCloud:
        clock = changes.pop("clock", self.world.clock)
        return PaperspaceCloud(key, url=self.base, transport=self.transport(), clock=clock, **changes)

    def request(self, name: str = "tgp-a1b2c3d4-train-0k3zq", **changes: t.Any) -> LaunchRequest:
        wanted = changes.pop("offer_id", "A4000@ny2")
        offer = next(one for one in self.cloud().offers() if one.id == wanted)
        return LaunchRequest(name=name, offer=offer, marks=changes.pop("marks", {"cluster": "a1b2c3d4"}), **changes)
