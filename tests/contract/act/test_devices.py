# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-38: a cluster whose GPUs are devices of a DRA driver: pods with claims get machines, run, end, and the machines go."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import Forbidden

from sandbox import dra_driver

from .rig import Rig
from .test_autoscale import IDLE, scale, state

BASE = "/apis/resource.k8s.io/v1"
TEMPLATES = f"{BASE}/namespaces/default/resourceclaimtemplates"
CLAIMS = f"{BASE}/namespaces/default/resourceclaims"


@pytest.fixture
def dra(build: t.Callable[..., Rig]) -> Rig:
    """A cluster with NVIDIA's DRA driver, no device plugin, and a pool for it."""
    return with_driver(build(device_plugin=False))


def with_driver(rig: Rig) -> Rig:
    dra_driver.install(rig.box.cluster.admin())
    rig.training["draDriver"] = dra_driver.DRIVER
    return rig


def ask(rig: Rig, name: str, memory: str = "40Gi", count: int = 1) -> None:
    """A pod with a claim of its own, by a template of its name."""
    expression = f'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("{memory}")) >= 0'
    exactly = {"deviceClassName": "gpu.nvidia.com", "count": count, "selectors": [{"cel": {"expression": expression}}]}
    template = {"metadata": {"name": name}, "spec": {"spec": {"devices": {"requests": [{"name": "g", "exactly": exactly}]}}}}
    rig.kube("POST", TEMPLATES, template)
    spec = {
        "tolerations": [{"operator": "Exists"}],
        "restartPolicy": "Never",
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}],
        "containers": [{"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}],
    }
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "x", "controller": True}]
    rig.kube("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": name, "ownerReferences": owners}, "spec": spec})
    rig.until(lambda: state(rig, name)[1] == "Unschedulable", "the scheduler has looked at it")


def test_L38_a_claim_gets_the_machine_that_meets_it_and_the_machine_goes_when_it_is_free(dra: Rig) -> None:
    """The two cheaper types have 24 GB. The node is complete by its slices, the pod's claim keeps it busy, and a quiet run writes nothing."""
    ask(dra, "train")
    asked: list[str] = []
    dra.watcher = lambda request: asked.append(request.url.path)
    first = scale(dra)
    assert [one for one in asked if one.startswith(BASE)] == [
        f"{BASE}/{kind}" for kind in ("deviceclasses", "resourceclaims", "resourceslices")
    ]
    (pod,) = first["waiting"]
    assert (pod["pod"], pod["gpus"], pod["reason"]) == ("default/train", 1, ""), first["waiting"]
    assert dra.claim()["offer"]["model"] == "A6000"
    dra.until(
        lambda: scale(dra)["launch"] == [] and state(dra, "train")[0] == "Running" and dra.claim()["phase"] == "Ready",
        "the pod runs",
        90,
    )
    name = dra.machine().name
    assert "nvidia.com/gpu" not in dra.nodes()[name]["status"]["allocatable"]
    (claim,) = dra.kube("GET", CLAIMS)["items"]
    assert claim["status"]["allocation"]["devices"]["results"][0]["pool"] == name
    scale(dra)
    writes = dra.writes()
    assert scale(dra)["gpus"][-1]["used"] == 1 and dra.writes() == writes, "a quiet run"
    dra.advance(IDLE)
    assert "busy: pod default/train" in str(dra.reap()["plan"]["plan"])
    dra.kube("DELETE", "/api/v1/namespaces/default/pods/train")
    dra.until(lambda: dra.kube("GET", CLAIMS)["items"] == [], "the claim is gone with its pod", 60)
    scale(dra)
    dra.advance(IDLE)
    assert scale(dra)["destroy"] == [name]


def test_L38_provision_waits_until_the_slices_of_a_node_are_there(build: t.Callable[..., Rig]) -> None:
    dra = with_driver(build(device_plugin=False, speed=20.0))
    joined = dra.provision()
    assert [one["result"] for one in joined["machines"]] == ["ready"]
    assert dra.kube("GET", f"{BASE}/resourceslices")["items"][0]["spec"]["nodeName"] == dra.machine().name


def test_L38_what_cannot_be_judged_is_told_and_rents_nothing(dra: Rig) -> None:
    ask(dra, "huge", "500Gi")
    found = scale(dra)
    assert found["launch"] == [] and "its GPUs do not meet" in found["waiting"][0]["reason"]


def test_L38_E_dra_busy_7_claims_that_may_not_be_read_end_no_machine(build: t.Callable[..., Rig]) -> None:
    """The run stops and names the right that is missing, as it does for Nodes and pods."""
    dra = with_driver(build(device_plugin=False, speed=20.0))
    dra.provision()
    dra.advance(3600)
    words = (
        'resourceclaims.resource.k8s.io is forbidden: User "u" cannot list resource "resourceclaims" in API group "resource.k8s.io"'
    )
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "message": words, "code": 403}
    refusal = {"kind": "status", "status": 403, "body": body, "times": None}
    dra.faults.add({**refusal, "service": "kubernetes", "method": "GET", "path": f"{BASE}/resourceclaims"})
    with pytest.raises(Forbidden, match="list resourceclaims.resource.k8s.io"):
        dra.reap()
    assert len(dra.machines()) == 1
