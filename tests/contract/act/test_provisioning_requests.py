# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-42: a request as Kueue makes it gets its machines, holds them until its pods come, and is told what became of it."""

from __future__ import annotations

import typing as t

import pytest

from sandbox import capacity_buffers
from sandbox import provisioning_requests as kueue

from .rig import Rig
from .test_autoscale import GPU, IDLE, runs, scale

SPEC: dict[str, t.Any] = {
    "tolerations": [{"operator": "Exists"}],
    "containers": [{"name": "c", "image": "x", "resources": {"limits": {GPU: "1"}}}],
    "nodeSelector": {"tgp.io/nodepool": "training"},
}


@pytest.fixture
def queue(build: t.Callable[..., Rig]) -> Rig:
    """A cluster that serves the kind, a pool for the own class, and a request for two pods. Time is slow: a booking lasts ten minutes."""
    rig = build(speed=20.0)
    rig.kube("POST", kueue.DEFINITIONS, kueue.manifest())
    rig.training["provisioningClasses"] = ["tgp.io/atomic"]
    rig.kube("POST", "/api/v1/namespaces/default/podtemplates", kueue.template("train", SPEC))
    rig.kube("POST", kueue.path("default"), kueue.request("train", 2, "tgp.io/atomic"))
    return rig


def told(rig: Rig) -> dict[str, tuple[str, str, str]]:
    return kueue.conditions(rig.kube("GET", kueue.path("default", "train")))


def test_L42_a_request_is_served_whole_held_and_used_by_its_pods(queue: Rig) -> None:
    asked: list[str] = []
    queue.watcher = lambda request: asked.append(f"{request.method} {request.url.path}")
    queue.plan("autoscale", check=True)
    assert told(queue) == {}, "check mode writes nothing"
    first = scale(queue)
    names = sorted(first["launch"])
    assert len(names) == 2 and told(queue)["Accepted"][:2] == ("True", "Accepted")
    assert told(queue)["Provisioned"] == (
        "False",
        "CapacityIsNotFound",
        f"Machines for 2 pods are on their way: {', '.join(names)}.",
    )
    ours = [one for one in asked if "autoscaling.x-k8s.io" in one or "podtemplates" in one]
    lists = ["GET /apis/autoscaling.x-k8s.io/v1/provisioningrequests", "GET /api/v1/podtemplates"]
    assert ours == [*lists, *lists, f"PATCH {kueue.path('default', 'train')}/status"]

    def served() -> bool:
        scale(queue)
        return told(queue)["Provisioned"][0] == "True"

    queue.until(served, "both machines are complete", 120)
    done = queue.kube("GET", kueue.path("default", "train"))
    assert told(queue)["Provisioned"][:2] == ("True", "CapacityIsProvisioned")
    assert done["status"]["provisioningClassDetails"] == {"tgp.io/machines": ",".join(names), "tgp.io/nodepool": "training"}
    writes = queue.writes()
    assert scale(queue)["launch"] == [] and queue.writes() == writes, "a quiet run"

    for body in kueue.pods("train", 2, SPEC):
        queue.kube("POST", "/api/v1/namespaces/default/pods", body)
    for number in range(2):
        runs(queue, f"train-{number}")
    last = scale(queue)
    assert last["launch"] == [] and told(queue)["BookingExpired"][:2] == ("True", "CapacityBookingConsumed")
    assert queue.creates() == 2


def test_L42_a_request_that_does_not_fit_fails_with_its_reason_and_rents_nothing(queue: Rig) -> None:
    queue.training["limits"] = {"maxNodes": 1}
    assert scale(queue)["launch"] == [] and told(queue)["Provisioned"][0] == "False"
    queue.advance(61)
    scale(queue)
    reason = "ProvisioningRequest default/train: room for 1 of 2; limit:pool.maxNodes."
    assert told(queue)["Failed"] == ("True", "CapacityIsNotFound", reason) and queue.creates() == 0


def test_L42_a_cluster_without_the_kind_is_no_error(rig: Rig) -> None:
    rig.training["provisioningClasses"] = ["tgp.io/atomic"]
    assert scale(rig)["problems"] == []


def test_L42_a_buffer_gets_its_room_and_is_told(rig: Rig) -> None:
    rig.kube("POST", kueue.DEFINITIONS, capacity_buffers.manifest())
    rig.training["capacityBuffers"] = True
    rig.kube("POST", "/api/v1/namespaces/default/podtemplates", kueue.template("spare", SPEC))
    rig.kube("POST", capacity_buffers.path("default"), capacity_buffers.buffer("spare", replicas=1))
    rig.plan("autoscale", check=True)
    assert "status" not in rig.kube("GET", capacity_buffers.path("default", "spare")), "check mode writes nothing"

    def fits() -> bool:
        scale(rig)
        return kueue.conditions(rig.kube("GET", capacity_buffers.path("default", "spare")))["Provisioning"][0] == "True"

    rig.until(fits, "there is room for it", 120)
    status = rig.kube("GET", capacity_buffers.path("default", "spare"))["status"]
    assert (status["replicas"], status["podTemplateRef"], rig.creates()) == (1, {"name": "spare"}, 1)
    scale(rig)
    writes = rig.writes()
    assert scale(rig)["launch"] == [] and rig.writes() == writes, "a quiet run"
    rig.advance(IDLE)
    assert scale(rig)["destroy"] == [] and rig.reap()["plan"]["destroy"] == [], "its room keeps the machine"
    rig.kube("DELETE", capacity_buffers.path("default", "spare"))
    assert len(scale(rig)["destroy"]) == 1
