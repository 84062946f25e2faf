# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Google's emulator over a small world, and our client in front. ``key`` chooses a service account's key file: KEY is the one that is good."""

from __future__ import annotations

import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.model import LaunchRequest
from ansible_collections.tgp.gpu.plugins.module_utils.providers.gcp.cloud import GcpCloud

from sandbox import gcp_cloud
from sandbox.gcp_account import SECRET, Account, service_account
from sandbox.gcp_catalogue import gcp_offer

from .stands import KEY, Stand

STOCK: tuple[dict[str, t.Any], ...] = (
    {"type": "g2-standard-4", "zone": "us-central1-a", "stock": 5},
    {"type": "g2-standard-4", "zone": "us-central1-b", "stock": 0},
    {"type": "n1-standard-4+nvidia-tesla-t4", "zone": "us-central1-a", "stock": 3},
    {"type": "a2-ultragpu-1g", "zone": "europe-west4-a", "stock": 1},
    {"type": "a3-ultragpu-8g", "zone": "us-east1-b", "stock": 1},
    {"type": "g4-standard-12", "zone": "us-central1-b", "stock": 2},
)


class GcpStand(Stand):
    service, base = "gcp", "https://gcp.test"
    list_path = r"/aggregated/instances(\?|$)"
    create_path = r"/zones/[^/]+/instances(\?|$)"

    def furnish(self) -> None:
        self.world.secrets[SECRET] = service_account()
        self.world.offers += [gcp_offer({"boot": 60.0, **entry}) for entry in STOCK]
        self.account.turn({"gpus_all_regions": 16, "gpus_per_region": 8})

    @property
    def account(self) -> Account:
        return Account.of(self.world)

    def make_app(self) -> t.Any:
        return gcp_cloud.app(self.world)

    def cloud(self, key: str = KEY, **changes: t.Any) -> GcpCloud:
        contents = changes.pop("contents", service_account("sandbox" if key == KEY else "withdrawn"))
        clock = changes.pop("clock", self.world.clock)
        return GcpCloud(contents, url=changes.pop("url", self.base), transport=self.transport(), clock=clock, **changes)

    def request(self, name: str = "tgp-a1b2c3d4-train-0k3zq", **changes: t.Any) -> LaunchRequest:
        wanted = changes.pop("offer_id", "g2-standard-4@us-central1-a")
        offer = next(one for one in self.cloud().offers() if one.id == wanted)
        return LaunchRequest(name=name, offer=offer, marks=changes.pop("marks", {"cluster": "a1b2c3d4"}), **changes)
