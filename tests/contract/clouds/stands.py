# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One stand per cloud: its emulator over a small world, faults in between, and our client in front.

A later cloud adds a class here and is put through the same contract.
"""

from __future__ import annotations

import threading
import typing as t
from decimal import Decimal

import httpx
from ansible_collections.tgp.gpu.plugins.module_utils.model import InstanceState, LaunchRequest
from ansible_collections.tgp.gpu.plugins.module_utils.providers.base import Cloud
from ansible_collections.tgp.gpu.plugins.module_utils.providers.lambda_.cloud import LambdaCloud
from ansible_collections.tgp.gpu.plugins.module_utils.providers.webhook.cloud import WebhookCloud
from ansible_collections.tgp.gpu.plugins.module_utils.providers.webhook.machines import groups_from_values

from sandbox import lambda_cloud, webhook
from sandbox.catalogue import LAMBDA_TYPES
from sandbox.clock import ClockClosed, SimClock
from sandbox.faults import Faults, FaultyApp
from sandbox.world import Machine, Offer, World
from sandbox.wsgi import CountingApp

SPEED = 2000.0
KEY = "secret_contract_0123456789abcdef"


def lambda_offer(kind: str, region: str, stock: int = 5, **changes: t.Any) -> Offer:
    """An offer of the emulator, from the sandbox's catalogue."""
    facts = LAMBDA_TYPES[kind]
    return Offer(
        cloud="lambda",
        type=kind,
        region=region,
        price_hour=changes.pop("price_hour", facts.price),
        gpu_count=facts.gpus,
        model=facts.model,
        memory_mib=facts.memory_gib * 1024,
        stock=stock,
        boot_seconds=changes.pop("boot_seconds", 60.0),
        details=changes,
    )


class Stand:
    """What all stands share."""

    service: str
    base: str
    list_path: str
    create_path: str
    create_method = "POST"

    def __init__(self) -> None:
        self._before = set(threading.enumerate())  # those of other tests are not ours to wait for
        self.world = World(SimClock(speed=SPEED))
        self.faults = Faults()
        self.world.on_boot = self._boot
        self.furnish()
        self.app = FaultyApp(CountingApp(self.make_app(), self.world, self.service), self.faults, self.service, self.world.clock)

    def furnish(self) -> None:
        raise NotImplementedError

    def make_app(self) -> t.Any:
        raise NotImplementedError

    def cloud(self, **changes: t.Any) -> Cloud:
        raise NotImplementedError

    def request(self, **changes: t.Any) -> LaunchRequest:
        raise NotImplementedError

    def transport(self, _url: str = "") -> httpx.WSGITransport:
        return httpx.WSGITransport(app=self.app)  # type: ignore[arg-type]

    def _boot(self, machine: Machine) -> None:
        """The least a machine does: it comes up after its time, unless it ended before."""
        boots = machine.boots
        try:
            self.world.clock.sleep(machine.offer.boot_seconds)
        except ClockClosed:
            return
        with self.world.lock:
            if machine.ended is None and machine.boots == boots and machine.state in ("booting", "starting"):
                self.up(machine)

    def up(self, machine: Machine) -> None:
        """What a machine that is up shows."""
        machine.state = "active"

    def billed(self) -> int:
        return sum(1 for one in self.world.machines.values() if one.ended is None)

    def close(self) -> None:
        self.world.clock.close()
        for thread in set(threading.enumerate()) - self._before:
            if thread.name.startswith(("machine-", "terminate-", "power-off-")):
                thread.join(5)

    def wait_for(self, cloud: Cloud, instance_id: str, wanted: set[InstanceState | None], tries: int = 200) -> InstanceState | None:
        """Poll until the machine is in one of the states (None = gone from the cloud)."""
        for _turn in range(tries):
            found = cloud.instance(instance_id)
            state = found.state if found else None
            if state in wanted:
                return state
            self.world.clock.sleep(5)
        raise AssertionError(f"{instance_id} is {state}, wanted {wanted}")


class LambdaStand(Stand):
    service, base = "lambda", "https://lambda.test"
    list_path = r"^/api/v1/instances$"
    create_path = r"/launch$"

    def furnish(self) -> None:
        self.world.secrets["LAMBDA_API_KEY"] = KEY
        self.world.offers += [
            lambda_offer("gpu_1x_a10", "us-east-1"),
            lambda_offer("gpu_1x_a10", "us-west-1", stock=0),
            lambda_offer("gpu_8x_a100_80gb_sxm4", "us-west-2", stock=0),
            lambda_offer("gpu_1x_gh200", "us-east-3"),
            lambda_offer("gpu_8x_v100", "us-south-2"),
            lambda_offer("cpu_4x_general", "us-midwest-1"),
        ]

    def make_app(self) -> t.Any:
        return lambda_cloud.app(self.world)

    def cloud(self, key: str = KEY, **changes: t.Any) -> LambdaCloud:
        return LambdaCloud(key, url=self.base, transport=self.transport(), clock=changes.pop("clock", self.world.clock), **changes)

    def request(self, name: str = "tgp-a1b2c3d4-train-0k3zq", **changes: t.Any) -> LaunchRequest:
        wanted = changes.pop("offer_id", "gpu_1x_a10@us-east-1")
        offer = next(one for one in self.cloud().offers() if one.id == wanted)
        return LaunchRequest(name=name, offer=offer, marks=changes.pop("marks", {"cluster": "a1b2c3d4"}), **changes)


class WebhookStand(Stand):
    service, base = "webhook", "https://power.test"
    list_path = r"/status$"
    create_path = r"/start$"

    def furnish(self) -> None:
        self.world.secrets["WEBHOOK_AUTH_VALUE"] = KEY
        for number, gpus in enumerate((1, 2, 4), start=1):
            name = f"rack-{number}"
            offer = Offer("webhook", name, "home", Decimal(0), gpus, "RTX3090", 24 * 1024, 0, 60.0, {"stop_seconds": 10.0})
            now = self.world.clock.now()
            self.world.machines[name] = Machine(name, "webhook", name, name, offer, now, state="off", ended=now)

    def make_app(self) -> t.Any:
        return webhook.app(self.world)

    def up(self, machine: Machine) -> None:
        machine.state = "on"

    def groups(self, *, status: bool = True) -> list[dict[str, t.Any]]:
        groups = []
        for number, gpus in enumerate((1, 2, 4), start=1):
            root = f"{self.base}/rack-{number}"
            group = {"name": f"rack-{number}", "gpuCount": gpus, "gpuType": "RTX 3090"}
            group |= {"scaleUpEndpoint": f"{root}/start", "scaleDownEndpoint": f"{root}/stop"}
            groups.append(group | ({"statusEndpoint": f"{root}/status"} if status else {}))
        return groups

    def cloud(self, key: str | None = KEY, **changes: t.Any) -> WebhookCloud:
        machines = groups_from_values({"nodeGroups": self.groups(status=changes.pop("status", True))})
        clock = changes.pop("clock", self.world.clock)
        # here, as the old plugins against which tests/red.py plays have no such file
        from ansible_collections.tgp.gpu.plugins.module_utils.providers.webhook.machines import origin

        hosts = changes.pop("key_hosts", {origin(self.base)})
        return WebhookCloud(machines, auth_value=key, key_hosts=hosts, transport=self.transport, clock=clock, **changes)

    def request(self, name: str = "rack-1", **changes: t.Any) -> LaunchRequest:
        offer = next(one for one in self.cloud().offers() if one.id == name)
        return LaunchRequest(name=name, offer=offer, **changes)
