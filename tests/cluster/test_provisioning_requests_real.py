# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A ProvisioningRequest on the real API server, with the shipped rights: its status is accepted, its machines come and wait for its pods, and
the real scheduler places these there."""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from sandbox import capacity_buffers
from sandbox import provisioning_requests as kueue

from . import objects
from .plane import Plane
from .stage import Stage, cleared

pytestmark = pytest.mark.cluster


class Queue(Stage):
    def documents(self) -> list[dict[str, t.Any]]:
        node_class, rented, _own = super().documents()
        rented["spec"] |= {"provisioningClasses": ["tgp.io/atomic"], "capacityBuffers": True}
        return [node_class, rented]


@pytest.fixture
def stage(plane: Plane, tmp_path: pathlib.Path) -> t.Iterator[Queue]:
    plane.create(kueue.DEFINITIONS, kueue.manifest())
    plane.create(kueue.DEFINITIONS, capacity_buffers.manifest())
    for kind in (kueue, capacity_buffers):
        plane.until(lambda path=kind.path("default"): plane.http.get(path).is_success, what="the kind to be served")
    made = Queue(plane, tmp_path, drain_timeout="8s")
    try:
        yield from cleared(made)
    finally:
        for kind in ("provisioningrequests", "capacitybuffers"):
            plane.delete(f"{kueue.DEFINITIONS}/{kind}.autoscaling.x-k8s.io")


def test_L42_on_the_real_api_server_a_request_is_served_and_its_pods_run_there(stage: Queue, own: str) -> None:
    plane, space = stage.plane, objects.namespace(stage.plane, own)
    try:
        spec = objects.pod_spec(gpus=1)
        spec |= {"tolerations": [{"operator": "Exists"}], "restartPolicy": "Never"}
        spec["nodeSelector"] = {"tgp.io/nodepool": stage.pools["lambda"]}
        plane.create(f"/api/v1/namespaces/{space}/podtemplates", kueue.template("train", spec))
        plane.create(kueue.path(space), kueue.request("train", 2, "tgp.io/atomic"))
        stage.run("autoscale", wait=True)
        assert len(stage.living()) == 2
        stage.run("autoscale")
        served = plane.get(kueue.path(space, "train"))
        told = kueue.conditions(served)
        assert (told["Accepted"][0], told["Provisioned"][:2]) == ("True", ("True", "CapacityIsProvisioned"))
        stage.run("autoscale")
        again = plane.get(kueue.path(space, "train"))
        assert again["metadata"]["resourceVersion"] == served["metadata"]["resourceVersion"], "written once"
        for body in kueue.pods("train", 2, spec):
            del body["metadata"]["ownerReferences"]  # there is no such Job here, and the collector would delete its pods
            plane.create(f"/api/v1/namespaces/{space}/pods", body)
        plane.create(capacity_buffers.path(space), capacity_buffers.buffer("train", replicas=2, limits={"nvidia.com/gpu": "1"}))
        plane.until(
            lambda: {one["status"].get("phase") for one in objects.pods(plane, space)} == {"Running"},
            what="its pods to run",
            timeout=120,
        )
        stage.run("autoscale")
        told = kueue.conditions(plane.get(kueue.path(space, "train")))
        assert told["BookingExpired"][:2] == ("True", "CapacityBookingConsumed")
        spare = plane.get(capacity_buffers.path(space, "train"))
        assert kueue.conditions(spare)["Provisioning"][:2] == ("False", "RequiresNewCapacity") and spare["status"]["replicas"] == 1
        assert len(stage.living()) == 3, "one more for the buffer"
    finally:
        plane.delete(f"/api/v1/namespaces/{space}/pods", gracePeriodSeconds=0)
        plane.delete(f"/api/v1/namespaces/{space}")
