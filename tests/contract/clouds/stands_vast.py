# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vast.ai's emulator over a small market, and our client in front."""

from __future__ import annotations

import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.model import Instance, LaunchRequest, Offer, OfferQuery
from ansible_collections.tgp.gpu.plugins.module_utils.providers.vast.cloud import VastCloud

from sandbox import vast_cloud
from sandbox.vast_account import Account
from sandbox.world import Machine

from .stands import KEY, Stand

VM, CONTAINER, MANY, BLACKWELL = "8100001", "8100002", "8100003", "8100004"
MARKET: tuple[dict[str, t.Any], ...] = (
    {"id": 8100001, "gpu": "RTX 4090", "price": "0.35", "min_bid": "0.18", "vm": True, "machine": 5511, "stock": 5},
    {"id": 8100002, "gpu": "RTX 3090", "price": "0.15", "storage": "0.30", "place": "Germany, DE", "stock": 5},
    {"id": 8100003, "gpu": "RTX 4090", "gpus": 4, "price": "1.45", "min_bid": "0.90", "place": "Oregon, US", "stock": 5},
    {"id": 8100004, "gpu": "RTX 5090", "price": "0.45", "min_bid": "0.27", "vm": True, "place": "Sweden, SE", "stock": 5},
    {"id": 8100005, "gpu": "RTX 4090", "price": "0.58", "memory_mib": 49140, "vm": True, "place": "Taiwan, TW", "stock": 5},
)
NAME = "tgp-a1b2c3d4-train-0k3zq"


class VastStand(Stand):
    service, base = "vast", "https://vast.test"
    list_path = r"^/api/v1/instances/"
    create_path = r"^/api/v0/asks/"
    create_method = "PUT"

    def furnish(self) -> None:
        self.world.secrets["VAST_API_KEY"] = KEY
        self.world.offers += [vast_cloud.vast_offer({"boot": 60.0, **entry}) for entry in MARKET]
        vast_cloud.set_up(self.world, {"list_after": 0.0})

    @property
    def account(self) -> Account:
        return Account.of(self.world)

    def mood(self, **switches: t.Any) -> None:
        """How this Vast.ai behaves from now on."""
        vast_cloud.set_up(self.world, switches)

    def make_app(self) -> t.Any:
        return vast_cloud.app(self.world)

    def cloud(self, key: str = KEY, **changes: t.Any) -> VastCloud:
        return VastCloud(key, url=self.base, transport=self.transport(), clock=changes.pop("clock", self.world.clock), **changes)

    def offer(self, wanted: str = VM, **query: t.Any) -> Offer:
        return next(one for one in self.cloud().offers(OfferQuery(**query)) if one.id == wanted)

    def request(self, name: str = NAME, **changes: t.Any) -> LaunchRequest:
        offer = changes.pop("offer", None) or self.offer(changes.pop("offer_id", VM))
        return LaunchRequest(name=name, offer=offer, marks=changes.pop("marks", {"cluster": "a1b2c3d4"}), **changes)

    def machine(self, identity: str) -> Machine:
        return self.world.machines[identity]

    def read(self, identity: str) -> Instance:
        found = self.cloud().instance(identity)
        assert found is not None
        return found
