# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vultr's emulator over a small world, and our client in front."""

from __future__ import annotations

import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.model import LaunchRequest
from ansible_collections.tgp.gpu.plugins.module_utils.providers.vultr.cloud import VultrCloud

from sandbox import vultr_cloud
from sandbox.vultr_account import Account
from sandbox.vultr_catalogue import vultr_offer

from .stands import KEY, Stand

STOCK: tuple[dict[str, t.Any], ...] = (
    {"type": "vcg-a16-6c-64g-16vram", "region": "ewr", "stock": 5},
    {"type": "vcg-a16-6c-64g-16vram", "region": "ams", "stock": 1, "price": "0.53"},
    {"type": "vcg-a16-2c-8g-2vram", "region": "ewr", "stock": 5},
    {"type": "vcg-a40-24c-120g-48vram", "region": "blr", "stock": 0},
    {"type": "vcg-l40s-16c-180g-48vram", "region": "atl", "stock": 1},
    {"type": "vcg-h100-216c-1914gb-640vram", "region": "sea", "stock": 1},
    {"type": "vc2-1c-1gb", "region": "ewr", "stock": 9},
)


class VultrStand(Stand):
    service, base = "vultr", "https://vultr.test"
    list_path = r"^/v2/instances(\?|$)"
    create_path = r"^/v2/instances$"

    def furnish(self) -> None:
        self.world.secrets["VULTR_API_KEY"] = KEY
        self.world.offers += [vultr_offer({"boot": 60.0, **entry}) for entry in STOCK]

    @property
    def account(self) -> Account:
        return Account.of(self.world)

    def make_app(self) -> t.Any:
        return vultr_cloud.app(self.world)

    def cloud(self, key: str = KEY, **changes: t.Any) -> VultrCloud:
        clock = changes.pop("clock", self.world.clock)
        return VultrCloud(key, url=self.base, transport=self.transport(), clock=clock, **changes)

    def request(self, name: str = "tgp-a1b2c3d4-train-0k3zq", **changes: t.Any) -> LaunchRequest:
        wanted = changes.pop("offer_id", "vcg-a16-6c-64g-16vram@ewr")
        offer = next(one for one in self.cloud().offers() if one.id == wanted)
        return LaunchRequest(name=name, offer=offer, marks=changes.pop("marks", {"cluster": "a1b2c3d4"}), **changes)
