# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From an empty control plane to pods that share GPUs, by playbooks alone: API server, scheduler and DaemonSet controller are real ones.

The machines are the sandbox's, and so is what runs in the pods of the device plugin: it reads the ConfigMap that the playbook wrote.
"""

from __future__ import annotations

import copy
import json
import os
import pathlib
import shutil
import subprocess
import types
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.module_utils.kube.needed_rights import rights_of
from ansible_collections.tgp.gpu.plugins.module_utils.kube.rbac import Right
from ansible_collections.tgp.gpu.plugins.modules import device_plugin, fleet_diagnose

from sandbox.gpu_stack import EXTENSIONS
from sandbox.talos_api import NodeState, TalosApi
from tests.build import built

from . import objects
from .accounts import SPACE, Accounts
from .objects import GPU
from .plane import Plane
from .stage import Stage

pytestmark = pytest.mark.cluster


class SharedGpus(Stage):
    """Nothing serves GPUs. Four pods share each GPU of both pools; the own machine has two GPUs."""

    def _pool(self, cloud: str, name: str) -> dict[str, t.Any]:
        pool = super()._pool(cloud, name)
        pool["spec"]["timeSlicing"] = {"replicas": 4}
        return pool


@pytest.fixture
def stage(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> t.Iterator[SharedGpus]:
    """On a control plane of its own: that of the other tests has device plugins."""
    with Plane(built("plane", request)) as plane:
        made = SharedGpus(plane, tmp_path, with_device_plugin=False)
        yield made
        made.close()


def module(which: types.ModuleType, kubeconfig: str | pathlib.Path, **params: t.Any) -> dict[str, t.Any]:
    given = {name: copy.deepcopy(option.get("default")) for name, option in which.SPEC["argument_spec"].items()}
    task = Task({**given, "kubeconfig": str(kubeconfig), **params}, diff_mode=True)
    return execute(which.SPEC, which.run, task, which.__name__.rpartition(".")[2])


def kubectl(plane: Plane, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    return subprocess.run(["kubectl", *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_S4_10_from_an_empty_control_plane_to_pods_that_share_gpus(
    stage: SharedGpus, tmp_path: pathlib.Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane, rack = stage.plane, stage.rack
    refused = stage.playbook("provision", documents=stage.documents()).failed()
    assert "ansible-playbook tgp.gpu.device_plugin" in refused.words and not stage.names() and not stage.claims()

    assert stage.run("device_plugin").count("changed") == 1
    assert stage.run("device_plugin").count("changed") == 0
    stage.run("provision", pool=stage.pools["webhook"])
    assert stage.names() == {rack}
    status = stage.node(rack)["status"]
    assert (status["capacity"][GPU], status["allocatable"][GPU]) == ("8", "8"), "2 GPUs x 4, by the ConfigMap of the playbook"

    spec = {**objects.pod_spec(gpus=1, on=rack), "tolerations": [{"operator": "Exists"}]}
    space = objects.namespace(plane, f"share-{stage.mark}")
    for number in range(4):
        objects.pod(plane, space, f"shares-{number}", spec)
    assert {pod["spec"]["nodeName"] for pod in objects.running(plane, space, 4)} == {rack}

    _diagnosis_is_green(stage, space)
    _a_folder_says_the_same(stage, tmp_path / "gpu-device-plugin")
    for name in ("CACHE", "CONFIG", "DATA"):
        monkeypatch.setenv(f"HELM_{name}_HOME", str(tmp_path / name.lower()))
    _the_operator_comes_and_goes(stage.plane, tmp_path / "gpu-operator", str(built("helm", request)))


# Why diagnose.yml does without some of its rights here.
UNUSED: dict[str, tuple[Right, ...]] = {
    "no pool here asks for metrics of GPUs; tests/contract/act/test_xids.py": (Right("get", "pods/proxy"),),
    "claims are ConfigMaps here; tests/contract/act/test_claim_stores.py": (
        Right("list", "gpunodeclaims", "tgp.io", SPACE),
        Right("get", "customresourcedefinitions", "apiextensions.k8s.io", name="gpunodeclaims.tgp.io"),
    ),
    "documents are a file here; tests/cluster/test_crds.py": tuple(
        Right("list", kind, "tgp.io") for kind in ("gpunodeclasses", "gpunodepools", "gpurequests")
    ),
}


def _diagnosis_is_green(stage: SharedGpus, space: str) -> None:
    """All checks, with the rights of the playbook and no other; and every one of them is used, once a pod waits. The Talos API is the
    sandbox's, and the labels that Talos gives its Node are written here."""
    marks = {f"extensions.talos.dev/{name}": version for name, version in EXTENSIONS.items()}
    node = stage.plane.patch(f"/api/v1/nodes/{stage.rack}", {"metadata": {"labels": marks}}, kind="merge")
    address = next(one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP")
    accounts = Accounts(stage.plane, stage.mark)
    stage.enter_by(stage.plane.server, accounts.token("diagnose"))
    with TalosApi() as talos:
        talos.nodes[address] = NodeState()
        config = stage.folder / "talosconfig"
        config.write_text(talos.talosconfig())
        said = stage.run("diagnose", talosconfig=str(config))
        rows = [line.split()[0] for line in said.out.partition("  --")[2].partition("ok: [localhost]")[0].splitlines()[1:]]
        assert len(rows) >= 11 and set(rows) == {"ok"}, said.text
        assert "8 allocatable = 2 GPUs × 4 slices" in said.words

    large = {**objects.pod_spec(gpus=5, on=stage.rack), "tolerations": [{"operator": "Exists"}]}
    path = f"/api/v1/namespaces/{space}/pods/{objects.pod(stage.plane, space, 'large', large)['metadata']['name']}"
    stage.plane.until(lambda: stage.plane.get(path)["status"].get("conditions"), what="the scheduler to have looked")
    waits = module(fleet_diagnose, stage.environment["KUBECONFIG"], pod=f"{space}/large")
    assert waits["failed"] and "large" in waits["msg"] and "Insufficient nvidia.com/gpu" in waits["msg"], waits["msg"]
    used = accounts.used("diagnose")
    assert {one.right for one in used if not one.allowed} == set()
    unused = {right for right in rights_of("diagnose") if not any(right.covers(one.right) for one in used)}
    assert unused == {right for rights in UNUSED.values() for right in rights}


def _a_folder_says_the_same(stage: SharedGpus, folder: pathlib.Path) -> None:
    """S4-07: what is rendered is what the playbook applied, also for kubectl."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    plane = stage.plane
    assert len(module(device_plugin, plane.kubeconfig, documents=stage.documents(), render_to=str(folder))["files"]) == 6
    difference = kubectl(plane, "diff", "-k", str(folder))
    assert (difference.returncode, difference.stdout) == (0, ""), difference.stderr
    applied = kubectl(plane, "apply", "-k", str(folder))
    assert applied.returncode == 0, applied.stderr
    assert kubectl(plane, "diff", "-k", str(folder)).returncode == 0
    found = module(device_plugin, plane.kubeconfig, documents=stage.documents())
    assert not found["changed"] and {one["result"] for one in found["objects"]} == {"unchanged"}
    assert [(one["gpus"], one["capacity"]) for one in found["nodes"]] == [(2, 8)]
    absent = {"documents": stage.documents(), "state": "absent", "force": True}
    gone = module(device_plugin, plane.kubeconfig, **absent)
    assert [one["kind"] for one in gone["objects"]] == ["DaemonSet", "Service", "ConfigMap", "RuntimeClass", "Namespace"], gone
    assert plane.find("/api/v1/namespaces/gpu-device-plugin") is None
    assert not module(device_plugin, plane.kubeconfig, **absent)["changed"]


def _the_operator_comes_and_goes(plane: Plane, chart: pathlib.Path, helm: str) -> None:
    """The profile operator by the real Helm, with a chart that shows which values it was given in the place of NVIDIA's."""
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: gpu-operator\nversion: v26.7.0\n")
    shows = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shows}\ndata:\n  values: {{ toJson .Values | quote }}\n"
    (chart / "templates" / "shows.yaml").write_text(shows)
    operator = {"profile": "operator", "replicas": 4, "timeout": 0, "helm": helm}
    where = {"operator_chart": str(chart), "operator_repository": "", "operator_values": {"dcgmExporter": {"enabled": False}}}

    first = module(device_plugin, plane.kubeconfig, **operator, **where)
    assert first["objects"][-1] == {"kind": "HelmRelease", "namespace": "gpu-operator", "name": "gpu-operator", "result": "changed"}
    space = "/api/v1/namespaces/gpu-operator"
    values = json.loads(plane.get(f"{space}/configmaps/shows")["data"]["values"])
    assert (values["driver"], values["toolkit"], values["dcgmExporter"]) == ({"enabled": False},) * 3
    assert plane.find(f"{space}/configmaps/{values['devicePlugin']['config']['name']}") is not None

    assert not module(device_plugin, plane.kubeconfig, **operator, **where)["changed"]
    where["operator_values"] = {}
    assert module(device_plugin, plane.kubeconfig, **operator, **where)["objects"][-1]["result"] == "changed"
    gone = module(device_plugin, plane.kubeconfig, state="absent", helm=helm)
    assert [one["kind"] for one in gone["objects"]] == ["HelmRelease", "ConfigMap", "Namespace"] and plane.find(space) is None
    assert not module(device_plugin, plane.kubeconfig, state="absent", helm=helm)["changed"]
