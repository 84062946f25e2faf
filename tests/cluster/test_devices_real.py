# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster with a DRA driver and no device plugin, on the real API server, claim controller and scheduler: a pending claim gets the right
machine, works on it, and the machine goes."""

from __future__ import annotations

import pathlib
import typing as t

import httpx
import pytest

from sandbox import dra_driver

from . import objects
from .plane import Plane
from .stage import Stage, cleared

pytestmark = pytest.mark.cluster
RESOURCES = "/apis/resource.k8s.io/v1"
DAEMON_SETS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
PLUGIN = f"{DAEMON_SETS}/nvidia-device-plugin-daemonset"
FORTY = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) >= 0'
IDLE = 11 * 60


class Devices(Stage):
    """A cheap machine with too little memory, a dear one with enough, and a pool whose GPUs are devices."""

    def _scenario(self) -> dict[str, t.Any]:
        kinds = (("gpu_1x_a10", "0.75"), ("gpu_1x_a6000", "1.09"))
        offers = [{"type": one, "region": "us-south-2", "stock": 4, "price": price, "boot": 0.5} for one, price in kinds]
        return {**super()._scenario(), "lambda": offers}

    def documents(self) -> list[dict[str, t.Any]]:
        node_class, rented, _own = super().documents()
        rented["spec"]["draDriver"] = dra_driver.DRIVER
        return [node_class, rented]

    def phase(self, space: str) -> str:
        return str(objects.pods(self.plane, space)[0]["status"].get("phase"))


@pytest.fixture
def stage(plane: Plane, tmp_path: pathlib.Path) -> t.Iterator[Devices]:
    """The device plugin of other stages on this plane is away meanwhile."""
    plane.delete(PLUGIN)
    paths = {"DaemonSet": DAEMON_SETS, "DeviceClass": f"{RESOURCES}/deviceclasses"}
    for body in dra_driver.manifests():
        plane.create(paths[body["kind"]], body)
    made = Devices(plane, tmp_path, drain_timeout="8s", with_device_plugin=False)
    try:
        yield from cleared(made)
    finally:
        for body in dra_driver.manifests():
            plane.delete(f"{paths[body['kind']]}/{body['metadata']['name']}")


def test_L38_on_the_real_scheduler_a_pending_claim_gets_the_right_machine(stage: Devices, own: str) -> None:
    plane, space = stage.plane, objects.namespace(stage.plane, own)
    try:
        exactly = {"deviceClassName": "gpu.nvidia.com", "selectors": [{"cel": {"expression": FORTY}}]}
        spec = {"spec": {"devices": {"requests": [{"name": "g", "exactly": exactly}]}}}
        plane.create(f"{RESOURCES}/namespaces/{space}/resourceclaimtemplates", {"metadata": {"name": "big"}, "spec": spec})
        asking = objects.pod_spec()
        asking |= {"tolerations": [{"operator": "Exists"}], "restartPolicy": "Never"}
        asking["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "big"}]
        asking["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
        objects.pod(plane, space, "train", asking)
        plane.until(
            lambda: "cannot allocate all claims" in _why(plane, space) or "no nodes available" in _why(plane, space),
            what="the scheduler to have looked at it",
        )
        stage.run("autoscale", wait=True)
        (machine,) = stage.living()
        assert machine["model"] == "A6000", machine
        plane.until(lambda: stage.phase(space) == "Running", what="the pod to run", timeout=120)
        assert "nvidia.com/gpu" not in stage.node(machine["name"])["status"]["allocatable"]
        (claim,) = plane.get(f"{RESOURCES}/namespaces/{space}/resourceclaims")["items"]
        assert claim["status"]["allocation"]["devices"]["results"][0]["pool"] == machine["name"]
        plane.delete(f"/api/v1/namespaces/{space}/pods/train", gracePeriodSeconds=0)
        stage.run("autoscale")
        stage.advance(IDLE)
        stage.run("autoscale")
        assert stage.nothing_is_left()
    finally:
        plane.delete(f"/api/v1/namespaces/{space}/pods", gracePeriodSeconds=0)
        plane.delete(f"/api/v1/namespaces/{space}")


def _why(plane: Plane, space: str) -> str:
    conditions = objects.pods(plane, space)[0]["status"].get("conditions") or []
    return next((str(one.get("message")) for one in conditions if one["type"] == "PodScheduled"), "")


def test_the_api_server_refuses_what_the_emulator_refuses(plane: Plane, own: str) -> None:
    """A request without exactly one way, and a change of a claim's spec."""
    space = objects.namespace(plane, own)
    path = f"{RESOURCES}/namespaces/{space}/resourceclaims"
    try:
        empty = plane.http.post(path, json={"metadata": {"name": "x"}, "spec": {"devices": {"requests": [{"name": "g"}]}}})
        assert empty.status_code == httpx.codes.UNPROCESSABLE_ENTITY and "exactly one of" in empty.json()["message"], empty.json()
        request = {"name": "g", "exactly": {"deviceClassName": "c"}}
        made = plane.create(path, {"metadata": {"name": "x"}, "spec": {"devices": {"requests": [request]}}})
        assert made["spec"]["devices"]["requests"][0]["exactly"] == {
            "deviceClassName": "c",
            "allocationMode": "ExactCount",
            "count": 1,
        }
        made["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2
        changed = plane.http.put(f"{path}/x", json=made)
        assert changed.status_code == httpx.codes.UNPROCESSABLE_ENTITY and "field is immutable" in changed.json()["message"]
    finally:
        plane.delete(f"/api/v1/namespaces/{space}")
