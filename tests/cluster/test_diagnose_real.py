# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a pod waits: our reason beside the words of the real scheduler."""

from __future__ import annotations

import functools
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.modules import fleet_diagnose

from . import objects
from .hollow import HollowNode
from .plane import Plane

pytestmark = pytest.mark.cluster
POOL = "tgp.io/nodepool"


@pytest.fixture
def node(plane: Plane, own: str) -> t.Iterator[HollowNode]:
    """A real kubelet whose Node shows two GPUs and has a taint."""
    made = plane.kubemark(own, plane.bootstrap_token(), labels={"tgp.io/provisioned": "true", POOL: own}, gpus=2)
    plane.until(lambda: objects.ready(plane, own), what=f"{own} to be Ready")
    plane.patch(
        f"/api/v1/nodes/{own}", {"spec": {"taints": [{"key": "team", "value": "research", "effect": "NoSchedule"}]}}, kind="merge"
    )
    yield made
    made.kill()
    plane.delete(f"/api/v1/nodes/{own}")


def check_of(plane: Plane, pod: str) -> dict[str, str]:
    """The row of a pod that waits."""
    defaults = {name: one.get("default") for name, one in fleet_diagnose.SPEC["argument_spec"].items()}
    task = Task({**defaults, "kubeconfig": str(plane.kubeconfig), "pod": pod})
    result = execute(fleet_diagnose.SPEC, fleet_diagnose.run, task, "fleet_diagnose")
    assert result["failed"] and pod in result["msg"]
    return next(one for one in result["checks"] if one["subject"] == f"pod {pod}")


def _is_unschedulable(plane: Plane, path: str) -> bool:
    return any(one.get("reason") == "Unschedulable" for one in plane.get(path)["status"].get("conditions", []))


def test_S4_22_the_reason_agrees_with_the_schedulers(plane: Plane, node: HollowNode, own: str) -> None:
    space = objects.namespace(plane, own)
    tolerant = {"tolerations": [{"operator": "Exists"}]}
    specs: dict[str, tuple[dict[str, t.Any], str, str]] = {
        "taint": (objects.pod_spec(gpus=1) | {"nodeSelector": {POOL: own}}, "taint_not_tolerated", "untolerated taint"),
        "large": (objects.pod_spec(gpus=8) | {"nodeSelector": {POOL: own}} | tolerant, "too_large", "Insufficient nvidia.com/gpu"),
        "place": (
            objects.pod_spec(gpus=1) | {"nodeSelector": {POOL: own, "gpu-family": "hopper"}} | tolerant,
            "not_selected",
            "affinity/selector",
        ),
        "busy": (objects.pod_spec(gpus=2) | {"nodeSelector": {POOL: own}} | tolerant, "", ""),
    }
    for name in ("busy", "taint", "large", "place"):
        objects.pod(plane, space, name, specs[name][0])
    plane.until(
        lambda: plane.get(f"/api/v1/namespaces/{space}/pods/busy")["spec"].get("nodeName"), what="the first pod to be bound"
    )
    full = objects.pod_spec(gpus=1) | {"nodeSelector": {POOL: own}} | tolerant
    objects.pod(plane, space, "full", full)
    specs["full"] = (full, "no_free_gpu", "Insufficient nvidia.com/gpu")
    for name, (_spec, code, words) in specs.items():
        if not code:
            continue
        path = f"/api/v1/namespaces/{space}/pods/{name}"
        plane.until(functools.partial(_is_unschedulable, plane, path), what=f"the scheduler's word on {name}")
        row = check_of(plane, f"{space}/{name}")
        assert (row["state"], row["code"]) == ("NO", code), row
        assert "The scheduler says: 0/" in row["seen"] and words in row["seen"], row
