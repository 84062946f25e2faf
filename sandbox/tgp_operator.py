# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A tgp-operator installation: its kinds, its Deployment, and the objects as the README of its repository has them.

Until v0.1.0 it has GPURequests for RunPod, Lambda Labs and Paperspace, and writes the machine into their status. From v0.1.1 on it has
GPUNodePools, from v0.1.11 on for Vultr and Google Cloud, and writes the machine into labels and annotations of a Node that it creates. What
its controller does is in ``end_request`` and ``end_pool``, in the order in which its source does it.
"""

from __future__ import annotations

import typing as t

Json = dict[str, t.Any]
Send = t.Callable[[str, str, t.Any], t.Any]
"""Method, path and body of a call of the cluster's administrator."""

GROUP = "tgp.io"
NAMESPACE = "tgp-system"
DEPLOYMENT = "tgp-operator-controller-manager"
FINALIZER = "tgp.io/finalizer"
POOL_FINALIZER = "tgp.io/gpunodepool-finalizer"
_API = f"/apis/{GROUP}/v1"
_ANYTHING: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_REQUEST_STATUS = ("phase", "instanceId", "selectedProvider", "publicIp", "privateIp", "nodeName", "hourlyPrice", "message")


def _definition(kind: str, plural: str, scope: str, status: Json) -> Json:
    schema = {"type": "object", "properties": {"spec": _ANYTHING, "status": status}}
    version = {"name": "v1", "served": True, "storage": True, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "scope": scope,
            "versions": [version],
        },
    }


def definitions(*, requests: bool = True) -> list[Json]:
    """The kinds of its releases until v0.1.0, or those from v0.1.1 on."""
    words: Json = {key: {"type": "string"} for key in _REQUEST_STATUS}
    status: Json = {"type": "object", "properties": {**words, "provisionedAt": {"type": "string", "format": "date-time"}}}
    if requests:
        return [_definition("GPURequest", "gpurequests", "Cluster", status)]
    return [
        _definition("GPUNodeClass", "gpunodeclasses", "Cluster", _ANYTHING),
        _definition("GPUNodePool", "gpunodepools", "Namespaced", _ANYTHING),
    ]


def deployment(replicas: int = 1) -> Json:
    """That of its chart, for a release named tgp-operator."""
    labels = {"app.kubernetes.io/name": "tgp-operator", "app.kubernetes.io/instance": "tgp-operator"}
    selected = {**labels, "app.kubernetes.io/component": "manager"}
    container = {"name": "manager", "image": "ghcr.io/solanyn/tgp-operator:latest", "args": ["--leader-elect"]}
    return {
        "metadata": {"name": DEPLOYMENT, "namespace": NAMESPACE, "labels": selected},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": selected},
            "template": {"metadata": {"labels": selected}, "spec": {"containers": [container]}},
        },
    }


def install(send: Send, *, requests: bool = True, replicas: int = 1) -> None:
    """Kinds and controller; the namespace may be there."""
    for definition in definitions(requests=requests):
        send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    if NAMESPACE not in {one["metadata"]["name"] for one in send("GET", "/api/v1/namespaces", None)["items"]}:
        send("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    send("POST", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", deployment(replicas))


def scale(send: Send, replicas: int) -> None:
    send("PATCH", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{DEPLOYMENT}", {"spec": {"replicas": replicas}})


def request(send: Send, name: str, provider: str, instance_id: str, *, phase: str = "Ready", **more: t.Any) -> None:
    """A GPURequest whose machine runs. ``more``: further fields of its status."""
    tailscale = {"hostname": "my-gpu-node", "tags": ["tag:k8s"], "ephemeral": True, "acceptRoutes": True}
    spec = {
        "provider": provider,
        "gpuType": "RTX4090",
        "region": "us-west",
        "maxHourlyPrice": "2.0",
        "talosConfig": {"image": "factory.talos.dev/installer/test:v1.8.2", "tailscaleConfig": tailscale},
    }
    meta = {"name": name, "finalizers": [FINALIZER]}
    send("POST", f"{_API}/gpurequests", {"apiVersion": f"{GROUP}/v1", "kind": "GPURequest", "metadata": meta, "spec": spec})
    status = {"phase": phase, "instanceId": instance_id, "selectedProvider": provider, "nodeName": node_of_request(name)}
    send("PATCH", f"{_API}/gpurequests/{name}/status", {"status": {**status, **more}})


def node_of_request(name: str) -> str:
    """The host name that it gives the machine."""
    return f"tgp-node-{name}"


def pool(send: Send, name: str, namespace: str = "default") -> None:
    """A GPUNodePool."""
    requirements = [{"key": "tgp.io/gpu-type", "operator": "In", "values": ["RTX4090"]}]
    taints = [{"key": "gpu-node", "value": "true", "effect": "NoSchedule"}]
    spec = {
        "nodeClassRef": {"kind": "GPUNodeClass", "name": "standard-gpu-class"},
        "template": {"spec": {"requirements": requirements, "taints": taints}},
        "maxHourlyPrice": "2.0",
        "weight": 10,
    }
    meta = {"name": name, "namespace": namespace, "finalizers": [POOL_FINALIZER]}
    body = {"apiVersion": f"{GROUP}/v1", "kind": "GPUNodePool", "metadata": meta, "spec": spec}
    send("POST", f"{_API}/namespaces/{namespace}/gpunodepools", body)


def node_of_pool(pool_name: str, instance_id: str) -> str:
    """The name of the Node that it creates: at Google all ids of a region begin alike, so a pool has one name there."""
    return f"tgp-{pool_name}-{instance_id[:8]}"


def labels_of_kubelet(pool_name: str) -> dict[str, str]:
    """What the machine's own configuration gives the Node when its kubelet registers."""
    return {"tgp.io/nodepool": pool_name, "tgp.io/provisioned": "true", "node.kubernetes.io/instance-type": "gpu"}


def marks_of_node(pool_name: str, provider: str, instance_id: str) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations of the Node that it creates. An id with a slash is no value of a label."""
    marks = {"tgp.io/instance-id": instance_id, "tgp.io/provider": provider}
    labels = {"tgp.io/nodepool": pool_name, "node.kubernetes.io/instance-type": "gpu", **marks}
    return {key: value for key, value in labels.items() if "/" not in value}, marks


def end_request(send: Send, name: str, terminate: t.Callable[[str], None]) -> None:
    """Somebody deletes a GPURequest while the controller runs: it terminates the machine and takes its finalizer off."""
    path = f"{_API}/gpurequests/{name}"
    send("DELETE", path, None)
    terminate(send("GET", path, None)["status"]["instanceId"])
    send("PATCH", path, {"metadata": {"finalizers": []}})


def end_pool(send: Send, name: str, namespace: str = "default") -> None:
    """Somebody deletes a GPUNodePool while the controller runs: each Node with its label is cordoned, its pods are deleted, then the Node. The
    machine runs on."""
    send("DELETE", f"{_API}/namespaces/{namespace}/gpunodepools/{name}", None)
    for node in send("GET", f"/api/v1/nodes?labelSelector=tgp.io%2Fnodepool%3D{name}", None)["items"]:
        node_name = node["metadata"]["name"]
        send("PATCH", f"/api/v1/nodes/{node_name}", {"spec": {"unschedulable": True}})
        for one in send("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{node_name}", None)["items"]:
            send("DELETE", f"/api/v1/namespaces/{one['metadata']['namespace']}/pods/{one['metadata']['name']}", None)
        send("DELETE", f"/api/v1/nodes/{node_name}", None)
    send("PATCH", f"{_API}/namespaces/{namespace}/gpunodepools/{name}", {"metadata": {"finalizers": []}})
