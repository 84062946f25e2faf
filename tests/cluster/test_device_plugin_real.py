# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real API server and DaemonSet controller take the device plugin: by the module, and as a folder by ``kubectl apply -k`` (S4-07)."""

from __future__ import annotations

import copy
import os
import pathlib
import shutil
import subprocess
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.modules import device_plugin

from .plane import Plane

pytestmark = pytest.mark.cluster
KINDS = ["Namespace", "RuntimeClass", "ConfigMap", "DaemonSet", "Service"]


@pytest.fixture
def run(plane: Plane) -> t.Iterator[t.Callable[..., dict[str, t.Any]]]:
    """The module as administrator; what it has applied is removed afterwards. Other tests have device plugins of their own: it is forced."""

    def executed(**params: t.Any) -> dict[str, t.Any]:
        given = {name: copy.deepcopy(option.get("default")) for name, option in device_plugin.SPEC["argument_spec"].items()}
        task = Task({**given, "kubeconfig": str(plane.kubeconfig), "replicas": 4, "force": True, **params}, diff_mode=True)
        return execute(device_plugin.SPEC, device_plugin.run, task, "device_plugin")

    yield executed
    plane.delete("/apis/node.k8s.io/v1/runtimeclasses/nvidia")
    plane.delete("/api/v1/namespaces/gpu-device-plugin")
    plane.until(lambda: plane.find("/api/v1/namespaces/gpu-device-plugin") is None, what="the namespace to be gone")


def _ready(plane: Plane, name: str) -> bool:
    node = plane.find(f"/api/v1/nodes/{name}") or {}
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def kubectl(plane: Plane, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    return subprocess.run(["kubectl", *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_S4_10_eight_of_two_gpus_on_a_real_control_plane(
    plane: Plane, run: t.Callable[..., dict[str, t.Any]], own: str, tmp_path: pathlib.Path
) -> None:
    labels = {"nvidia.com/gpu.present": "true", "tgp.io/gpu-count": "2"}
    first = run()
    assert not first.get("failed"), first["msg"]
    assert [(one["kind"], one["result"]) for one in first["objects"]] == [(kind, "created") for kind in KINDS] and first[
        "nodes"
    ] == []

    hollow = plane.kubemark(own, plane.bootstrap_token(), labels=labels, gpus=8)
    try:
        plane.until(lambda: _ready(plane, own), what="the node to be Ready")
        found = run(timeout=60)
        assert not found.get("failed"), found["msg"]
        assert not found["changed"] and {one["result"] for one in found["objects"]} == {"unchanged"}
        assert [(one["name"], one["gpus"], one["capacity"]) for one in found["nodes"]] == [(own, 2, 8)]

        if shutil.which("kubectl") is None:
            pytest.skip("kubectl is not installed")
        folder = tmp_path / "gpu-device-plugin"
        assert len(run(render_to=str(folder))["files"]) == 6
        difference = kubectl(plane, "diff", "-k", str(folder))
        assert (difference.returncode, difference.stdout) == (0, ""), difference.stderr
        applied = kubectl(plane, "apply", "-k", str(folder))
        assert applied.returncode == 0, applied.stderr
        assert kubectl(plane, "diff", "-k", str(folder)).returncode == 0
        assert {one["result"] for one in run()["objects"]} == {"unchanged"}, "kubectl's version and the module's are the same"
    finally:
        hollow.kill()
        plane.delete(f"/api/v1/nodes/{own}")
