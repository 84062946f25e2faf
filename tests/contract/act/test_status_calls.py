# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How often clouds are asked for their machines while some of them come and go: once every few seconds for all, never once for each (L-21)."""

from __future__ import annotations

import dataclasses
import threading
import types
import typing as t
from datetime import datetime, timedelta, timezone

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Device, Instance, Phase, Specs
from ansible_collections.tgp.gpu.plugins.module_utils.observe.clients import Once
from ansible_collections.tgp.gpu.plugins.module_utils.operations.join.tracker import JoinTracker
from ansible_collections.tgp.gpu.plugins.module_utils.operations.launch import launch
from ansible_collections.tgp.gpu.plugins.module_utils.operations.teardown import garbage_collection
from ansible_collections.tgp.gpu.plugins.module_utils.providers.lambda_.cloud import LambdaCloud
from ansible_collections.tgp.gpu.plugins.module_utils.providers.webhook.cloud import WebhookCloud

from .rig import Rig

FRESH = 5.0  # seconds for which a list serves all who ask, from when it came
Build = t.Callable[..., Rig]


class Looks:
    """Every list of a cloud's machines, with when it was asked for and when it came."""

    def __init__(
        self, rig: Rig, cloud: type, monkeypatch: pytest.MonkeyPatch, shown: t.Callable[[Instance], Instance] = lambda shown: shown
    ) -> None:
        self.times: list[tuple[datetime, datetime]] = []
        read = cloud.instances  # type: ignore[attr-defined]

        def instances(own: t.Any) -> list[Instance]:
            asked = rig.host.now()
            listed = [shown(instance) for instance in read(own)]
            self.times.append((asked, rig.host.now()))
            return listed

        monkeypatch.setattr(cloud, "instances", instances)

    def take(self) -> list[tuple[datetime, datetime]]:
        """Those since the last call."""
        taken, self.times = self.times, []
        return taken


def too_early(looks: t.Sequence[tuple[datetime, datetime]]) -> int:
    """How many were asked for while the one before was still fresh."""
    pairs = zip(looks, looks[1:], strict=False)
    return sum((asked - came).total_seconds() < FRESH for (_asked, came), (asked, _came) in pairs)


class StatusCalls:
    """Calls of the power service's status endpoints, by path."""

    def __init__(self, rig: Rig) -> None:
        self.paths: list[str] = []
        self._lock = threading.Lock()
        rig.watcher = self._watch

    def _watch(self, request: httpx.Request) -> None:
        if request.url.host == "power.test" and request.method == "GET":
            with self._lock:
                self.paths.append(request.url.path)

    def take(self) -> list[str]:
        """Those since the last call."""
        with self._lock:
            taken, self.paths = self.paths, []
        return taken


def racks(build: Build, number: int, *, bulk: bool = False) -> Rig:
    """A world of so many own machines, all of them wanted."""
    names = [f"rack-{one}" for one in range(number)]
    rig = build(machines=[{"name": name, "gpus": 1, "boot": 20} for name in names])
    provider = next(one for one in rig.demo_class["providers"] if one["name"] == "webhook")
    provider["machines"] = [
        {
            "name": name, "gpuCount": 1, "gpuType": "RTX3090",
            "scaleUpEndpoint": f"/{name}/start", "scaleDownEndpoint": f"/{name}/stop",
            **({} if bulk else {"statusEndpoint": f"/{name}/status"}),
        }
        for name in names
    ]  # fmt: skip
    if bulk:
        provider["settings"]["bulkStatusEndpoint"] = "/status"
    rig.demo_class["limits"]["maxNodes"] = number
    rig.document("GPUNodePool", "own")["spec"].pop("limits", None)
    return rig


@pytest.mark.parametrize(("number", "bulk"), [(5, False), (25, False), (5, True), (25, True)])
def test_own_machines_are_asked_for_their_state_once_a_look(
    build: Build, monkeypatch: pytest.MonkeyPatch, number: int, bulk: bool
) -> None:
    rig = racks(build, number, bulk=bulk)
    looks, calls = Looks(rig, WebhookCloud, monkeypatch), StatusCalls(rig)
    per_look = 1 if bulk else number

    rig.rent(pool="own", nodes=number)
    assert len(calls.take()) == per_look * len(looks.take()), "plan and launch: nothing but whole lists"

    assert [row["result"] for row in rig.join()["machines"]] == ["ready"] * number
    join = looks.take()
    assert join and too_early(join) == 0, "a machine that is complete makes nobody read the list of all others again"
    assert len(calls.take()) == per_look * len(join)

    plan = rig.plan("destroy", all=True)
    assert len(calls.take()) == per_look * len(looks.take())
    done = rig.run("teardown", plan["run_id"], orphans=plan["orphans"])
    rig.unlock(plan["run_id"])
    end = looks.take()
    assert end and too_early(end) == 0, "nor does one whose end is confirmed"
    assert [row["result"] for row in done["machines"]] == ["gone"] * number and rig.left() == {}
    teardown = len(calls.take())
    assert teardown == per_look * len(end) + 2 * number, "besides: each is asked before its call, and once when it is off"
    assert teardown <= 2 * len(end) * number


def test_complete_machines_whose_address_nobody_tells_are_looked_up_together(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = build(**{"lambda": [{"type": "gpu_1x_a10", "region": "us-east-1", "stock": 8, "boot": 20}]})
    rig.demo_class["limits"] = {"maxNodes": 8, "maxHourlyCost": "100.00"}
    looks = Looks(rig, LambdaCloud, monkeypatch, lambda instance: dataclasses.replace(instance, ip=""))
    rig.rent(nodes=4)
    looks.take()
    assert [row["result"] for row in rig.join()["machines"]] == ["ready"] * 4
    assert too_early(looks.take()) <= 1, "one list for all of them, when the last one is complete"


def test_devices_that_nobody_saw_before_their_nodes_were_complete_are_noted_at_the_end(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = build(**{"lambda": [{"type": "gpu_1x_a10", "region": "us-east-1", "stock": 8, "boot": 20}]})
    rig.demo_class["limits"] = {"maxNodes": 8, "maxHourlyCost": "100.00"}
    read, late = JoinTracker._read_devices, list[int]()

    def devices(tracker: JoinTracker) -> t.Sequence[Device]:
        """They appear when the last node is complete."""
        if any(claim.phase is not Phase.READY for claim in tracker.claims.values()):
            return ()
        late.append(1)
        return read(tracker)

    monkeypatch.setattr(JoinTracker, "_read_devices", devices)
    rig.rent(nodes=3)
    assert [row["result"] for row in rig.join()["machines"]] == ["ready"] * 3
    assert late and len({claim["mesh_device_id"] for claim in rig.claims().values()} - {""}) == 3


def test_devices_of_gone_machines_are_found_in_one_list_that_is_newer_than_their_end() -> None:
    gone = datetime(2026, 8, 21, 12, tzinfo=timezone.utc)
    now, lists, deleted = [gone], list[datetime](), list[str]()

    def devices() -> list[Device]:
        lists.append(now[0])
        return [Device(f"d{one}", f"m{one}", created=gone) for one in range(20)]

    def delete(number: int) -> None:
        claim = types.SimpleNamespace(
            name=f"m{number}", mesh_device_id="", created=gone, gone_since=now[0], node_class="x", limits=None
        )
        garbage_collection.delete_device(context, claim)  # type: ignore[arg-type]

    mesh = types.SimpleNamespace(devices=devices, delete_device=deleted.append)
    clients, clock = types.SimpleNamespace(mesh=lambda: mesh), types.SimpleNamespace(now=lambda: now[0])
    context = types.SimpleNamespace(clients=clients, clock=clock, once=Once(), specs=Specs({}, {}))
    for number in range(19):
        delete(number)
    now[0] += timedelta(seconds=1)
    delete(19)
    assert deleted == [f"d{number}" for number in range(20)]
    assert lists == [gone, now[0]], "one for all that were gone by then"


def test_a_lost_create_call_is_looked_up_in_a_list_that_was_asked_for_after_it() -> None:
    asked: list[tuple[str, datetime]] = []
    lost = datetime(2026, 8, 21, 12, tzinfo=timezone.utc)
    clients = types.SimpleNamespace(instances_since=lambda cloud, since: asked.append((cloud, since)) or ())
    context = types.SimpleNamespace(clients=clients, clock=types.SimpleNamespace(now=lambda: lost + timedelta(seconds=9)))
    for since in (lost, None):
        claim = types.SimpleNamespace(cloud="vast", name="tgp-x", rejects=(), unknown_since=since)
        launch._Launch._find(types.SimpleNamespace(context=context, claim=claim))  # type: ignore[arg-type]
    assert asked == [("vast", lost), ("vast", lost + timedelta(seconds=9))]


def test_S4_18_status_prints_the_command_where_a_node_takes_part(rig: Rig) -> None:
    (machine,) = rig.provision()["machines"]
    rig.lines.clear()
    assert [one["power_limit"] for one in rig.run("info")["machines"]] == [False]
    assert not any("nvidia-smi" in line for line in rig.lines)
    rig.kube("PATCH", f"/api/v1/nodes/{machine['name']}", {"metadata": {"labels": {"tgp.io/power-limit": "true"}}})
    assert [one["power_limit"] for one in rig.run("info")["machines"]] == [True]
    assert any("nvidia-smi --query-gpu=index,name,power.limit,power.draw,utilization.gpu" in line for line in rig.lines)
