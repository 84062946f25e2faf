# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real API server takes our CRDs and the first adopters' documents, and we read them back from there."""

from __future__ import annotations

import dataclasses
import types
import typing as t
from datetime import datetime, timezone
from pathlib import Path

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import ApiError
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.model import Observation, Plan, Shortfall
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.observe.context import NoLock
from ansible_collections.tgp.gpu.plugins.module_utils.observe.documents import load
from ansible_collections.tgp.gpu.plugins.module_utils.operations.persist_plan import write_objects

from .plane import Plane

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).resolve().parents[2]
SEEDS = ROOT / "tests" / "fixtures" / "seeds"
MERGE = {"content-type": "application/merge-patch+json"}


def test_S0_13_documents_are_read_from_the_cluster(plane: Plane, kube: Kube, crds: None) -> None:
    node_class = yaml.safe_load((SEEDS / "s0-nodeclass.yaml").read_text())
    pool = yaml.safe_load((SEEDS / "s0-nodepool.yaml").read_text())
    node_class["spec"]["allowedNamespaces"] = ["default"]
    plane.create("/apis/tgp.io/v1/gpunodeclasses", node_class)
    plane.create("/apis/tgp.io/v1/namespaces/default/gpunodepools", pool)
    warnings: list[str] = []
    specs = load(Task(params={"documents": [], "documents_from_cluster": True}, warn=warnings.append), kube)
    assert [one.key for one in specs.pools] == ["default/ml-workload-pool"]
    assert specs.classes["standard-gpu-class"].max_nodes == 10
    assert not warnings


def test_a_run_writes_status_to_the_real_server(plane: Plane, kube: Kube, crds: None) -> None:
    """Nothing of it is cut off, an object that has changed meanwhile is written once more, and the second run writes nothing."""
    node_class = yaml.safe_load((SEEDS / "s0-nodeclass.yaml").read_text())
    pool = yaml.safe_load((SEEDS / "s0-nodepool.yaml").read_text())
    node_class["metadata"]["name"] = pool["spec"]["nodeClassRef"]["name"] = "with-status"
    pool["metadata"]["name"] = "with-status"
    node_class["spec"]["allowedNamespaces"] = ["default"]
    plane.create("/apis/tgp.io/v1/gpunodeclasses", node_class)
    plane.create("/apis/tgp.io/v1/namespaces/default/gpunodepools", pool)
    path = "/apis/tgp.io/v1/namespaces/default/gpunodepools/with-status"
    now = datetime.now(timezone.utc)
    seen = Observation(now, "a1b2c3d4", {}, nodes=(), claims=())

    def run() -> list[str]:
        specs = load(Task(params={"documents": [], "documents_from_cluster": True}), kube)
        mine = tuple(one for one in specs.objects if one.path.endswith("/with-status"))
        plane.http.patch(path, json={"metadata": {"labels": {"changed": "meanwhile"}}}, headers=MERGE)
        context: t.Any = types.SimpleNamespace(
            kube=kube,
            lock=NoLock(),
            task=Task(params={}),
            specs=dataclasses.replace(specs, objects=mine),
            settings=Settings(mode="autoscale"),
            clock=types.SimpleNamespace(now=lambda: now),
        )
        return write_objects(context, seen, Plan(shortfall=(Shortfall("default/with-status", 1, "maxHourlyPrice"),)))

    assert run() == []
    written = plane.get(path)
    assert written["status"]["observedGeneration"] == 1 and written["status"]["reason"] == "maxHourlyPrice"
    assert [one["type"] for one in written["status"]["conditions"]][:2] == ["Ready", "DocumentsValid"]
    assert written["metadata"]["labels"]["changed"] == "meanwhile"
    assert plane.get("/apis/tgp.io/v1/gpunodeclasses/with-status")["status"]["providers"][0]["health"] == "Unknown"
    assert run() == [] and plane.get(path)["metadata"]["resourceVersion"] == written["metadata"]["resourceVersion"]
    owned = "/apis/tgp.io/v1/gpunodeclasses/with-status"
    assert plane.get(owned)["metadata"]["finalizers"] == ["tgp.io/gpunodeclass-finalizer"]
    plane.delete(owned)
    assert run() == [] and plane.find(owned) is not None, "a pool uses it"
    words = [one["message"] for one in plane.get(owned)["status"]["conditions"] if one["type"] == "Ready"]
    assert words == ["The object is being deleted. It waits for the end of default/with-status that uses it."]
    plane.delete(path)
    assert run() == [] and plane.find(owned) is None


def test_a_gitops_tool_applies_the_example_and_finds_no_difference_later(plane: Plane, kube: Kube, crds: None) -> None:
    """By server-side apply with strict validation, in the order of the waves; a scaled pool keeps its number."""
    folder = ROOT / "examples" / "gitops" / "objects"
    objects = [one for path in sorted(folder.rglob("*.yaml")) for one in yaml.safe_load_all(path.read_text())]
    objects.sort(key=lambda one: int(one["metadata"].get("annotations", {}).get("argocd.argoproj.io/sync-wave", "0")))

    def apply() -> list[dict[str, t.Any]]:
        answers = []
        for one in objects:
            query = "fieldManager=argocd-controller&force=true&fieldValidation=Strict"
            answers.append(plane.patch(f"{_path(one)}?{query}", one, kind="apply"))
        return answers

    assert [one["kind"] for one in apply()] == ["Namespace", "GPUNodeClass", "GPUNodePool", "GPURequest"]
    specs = load(Task(params={"documents": [], "documents_from_cluster": True}), kube)
    assert specs.faults == {} and {"gpu-teams/inference", "tgp-system/notebook"} <= {one.key for one in specs.pools}
    versions = [one["metadata"]["resourceVersion"] for one in apply()]  # the status that was shown by default is stored with it
    pool = _path(objects[2])
    plane.patch(f"{pool}/scale", {"spec": {"replicas": 1}}, kind="merge")
    scaled = plane.get(pool)["metadata"]["resourceVersion"]
    assert [one["metadata"]["resourceVersion"] for one in apply()] == [*versions[:2], scaled, versions[3]]
    assert plane.get(pool)["spec"]["replicas"] == 1
    health = yaml.safe_load((ROOT / "examples" / "gitops" / "argocd" / "argocd-cm.yaml").read_text())
    health["metadata"]["namespace"] = "gpu-teams"
    assert len(plane.create("/api/v1/namespaces/gpu-teams/configmaps", health)["data"]) == 3
    for one in reversed(objects):
        plane.delete(_path(one))


def _path(one: dict[str, t.Any]) -> str:
    name = one["metadata"]["name"]
    if one["kind"] == "Namespace":
        return f"/api/v1/namespaces/{name}"
    inside = f"namespaces/{one['metadata']['namespace']}/" if "namespace" in one["metadata"] else ""
    plural = {"GPUNodeClass": "gpunodeclasses", "GPUNodePool": "gpunodepools", "GPURequest": "gpurequests"}[one["kind"]]
    return f"/apis/tgp.io/v1/{inside}{plural}/{name}"


def test_S3_10_the_server_refuses_what_the_schema_refuses(kube: Kube, crds: None) -> None:
    pool = yaml.safe_load((SEEDS / "s0-nodepool.yaml").read_text())
    pool["metadata"]["name"] = "wrong"
    pool["spec"]["weight"] = -1
    with pytest.raises(ApiError, match="spec.weight") as caught:
        kube.create("/apis/tgp.io/v1/namespaces/default/gpunodepools", pool)
    assert caught.value.status == 422


COMMAND = {"disruption": {"idleProbe": {"command": ["/opt/is-idle"]}}}
FILE = {"talosConfig": {"machineConfigTemplateFile": "/etc/passwd"}}
REF = {"name": "tgp-operator-secret", "key": "LAMBDA_API_KEY"}


@pytest.mark.parametrize(
    ("path", "kind", "spec", "words"),
    [
        ("namespaces/default/gpunodepools", "GPUNodePool", {"nodeClassRef": {"name": "a"}, **COMMAND}, "command"),
        ("gpunodeclasses", "GPUNodeClass", {"providers": [{"name": "lambda"}], **FILE}, "machineConfigTemplateFile"),
        ("gpurequests", "GPURequest", {"gpuType": "A10", **FILE}, "machineConfigTemplateFile"),
        ("gpurequests", "GPURequest", {"gpuType": "A10", "credentialsRef": REF}, "credentialsRef"),
        ("gpurequests", "GPURequest", {"gpuType": "A10", "talosConfig": {"templateRef": REF}}, "templateRef"),
    ],
)
def test_L28_the_server_refuses_what_an_object_of_the_cluster_may_not_say(
    kube: Kube, crds: None, path: str, kind: str, spec: dict[str, t.Any], words: str
) -> None:
    body = {"apiVersion": "tgp.io/v1", "kind": kind, "metadata": {"name": "wrong"}, "spec": spec}
    with pytest.raises(ApiError, match=f"{words} cannot be set in an object of the cluster") as caught:
        kube.create(f"/apis/tgp.io/v1/{path}", body)
    assert caught.value.status == 422
