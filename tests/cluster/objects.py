# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Kubernetes objects that tests put on the plane: namespaces, workloads, budgets."""

from __future__ import annotations

import pathlib
import typing as t

from sandbox import device_plugin

from .plane import RBAC, Plane

Object = dict[str, t.Any]
DEVICE_PLUGIN: str = device_plugin.manifest()["spec"]["template"]["metadata"]["labels"]["name"]
GPU = "nvidia.com/gpu"


def node(plane: Plane, name: str) -> Object | None:
    return plane.find(f"/api/v1/nodes/{name}")


def ready(plane: Plane, name: str) -> Object | None:
    """The Node if it is Ready and free of the taint that new nodes carry."""
    found = node(plane, name)
    if not found or any(taint["key"].startswith("node.kubernetes.io/") for taint in found["spec"].get("taints", [])):
        return None
    conditions = found["status"].get("conditions", [])
    return found if any(one["type"] == "Ready" and one["status"] == "True" for one in conditions) else None


def person(plane: Plane, name: str, rules: list[Object]) -> pathlib.Path:
    """The kubeconfig of a service account with the RBAC ``rules`` (of a ClusterRole) and no more."""
    kind = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "namespace": "default", "name": name}
    reference = {"apiGroup": kind, "kind": "ClusterRole", "name": name}
    plane.create("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": name}})
    plane.create(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    plane.create(f"{RBAC}/clusterrolebindings", {"metadata": {"name": name}, "subjects": [subject], "roleRef": reference})
    answer = plane.create(f"/api/v1/namespaces/default/serviceaccounts/{name}/token", {"spec": {"expirationSeconds": 3600}})
    return plane.write_kubeconfig(name, {"token": answer["status"]["token"]})


def namespace(plane: Plane, name: str) -> str:
    plane.create("/api/v1/namespaces", {"metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    plane.until(lambda: plane.find(account), what=f"the default service account in {name}")
    return name


def pod_spec(gpus: int = 0, on: str = "", grace: int = 1) -> Object:
    """A container that does nothing, wanted on node ``on`` (anywhere by default), tolerating the taints of GPU nodes."""
    container: Object = {"name": "main", "image": "example.test/nothing:1"}
    if gpus:
        container["resources"] = {"limits": {GPU: str(gpus)}}
    spec: Object = {
        "containers": [container],
        "terminationGracePeriodSeconds": grace,
        "tolerations": [{"key": GPU, "operator": "Exists"}],
    }
    if on:
        spec["nodeSelector"] = {"kubernetes.io/hostname": on}
    return spec


def pod(plane: Plane, space: str, name: str, spec: Object, labels: dict[str, str] | None = None) -> Object:
    body = {"metadata": {"name": name, "labels": labels or {"app": name}}, "spec": spec}
    return plane.create(f"/api/v1/namespaces/{space}/pods", body)


def workload(
    plane: Plane, kind: str, space: str, name: str, spec: Object, replicas: int = 1, labels: dict[str, str] | None = None
) -> None:
    """A Deployment, StatefulSet, DaemonSet (``replicas`` is then without meaning) of pods labelled app=NAME and ``labels``."""
    own = {"app": name, **(labels or {})}
    body: Object = {
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": own}, "spec": spec}},
    }
    if kind != "daemonsets":
        body["spec"]["replicas"] = replicas
    if kind == "statefulsets":
        body["spec"]["serviceName"] = name
    plane.create(f"/apis/apps/v1/namespaces/{space}/{kind}", body)


def budget(plane: Plane, space: str, name: str, labels: dict[str, str], **limit: int | str) -> None:
    """A PodDisruptionBudget, complete once the controller has counted its pods. ``limit``: minAvailable or maxUnavailable."""
    path = f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets"
    plane.create(path, {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": labels}, **limit}})
    plane.until(lambda: plane.get(f"{path}/{name}")["status"].get("observedGeneration"), what=f"budget {name} to be counted")


def pods(plane: Plane, space: str, phase: str = "", on: str = "") -> list[Object]:
    """Pods that are not on their way out, in ``phase`` and on node ``on`` if given."""
    items = plane.get(f"/api/v1/namespaces/{space}/pods")["items"]
    return [
        one
        for one in items
        if "deletionTimestamp" not in one["metadata"]
        and phase in ("", one["status"].get("phase"))
        and on in ("", one["spec"].get("nodeName"))
    ]


def apps(plane: Plane, space: str, on: str) -> list[str]:
    """The label app of each pod that runs on node ``on``. Pods of the device plugin, which come and go with the node, are not counted."""
    labels = [one["metadata"].get("labels") or {} for one in pods(plane, space, "Running", on)]
    return [one.get("app", "") for one in labels if one.get("name") != DEVICE_PLUGIN]


def running(plane: Plane, space: str, count: int, on: str = "") -> list[Object]:
    """Wait until ``count`` pods run and are Ready."""

    def probe() -> list[Object]:
        found = [
            one
            for one in pods(plane, space, "Running", on)
            if any(each["type"] == "Ready" and each["status"] == "True" for each in one["status"]["conditions"])
        ]
        return found if len(found) == count else []

    return plane.until(probe, what=f"{count} running pods in {space}")
