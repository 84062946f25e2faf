# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a kubelet says to the API server while its machine becomes a node: request for a certificate, registration, status."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import typing as t
import uuid
from datetime import datetime, timezone

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from . import dra_driver
from .cluster import MERGE, STRATEGIC, Client, KubeError
from .device_plugin import MIG_STATE, Sharing, divided
from .payload import Intent

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
_CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_RESOURCES = {"cpu": "30", "memory": "200Gi", "ephemeral-storage": "1400Gi", "pods": "110"}
_NOT_READY = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: "
    "cni plugin not initialized"
)


class Denied(Exception):
    """The request for a certificate was refused for good."""


def new_key(node: str) -> tuple[str, str]:
    """(certificate request, private key), both PEM, for a node."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
        ]
    )
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return request.public_bytes(serialization.Encoding.PEM).decode(), secret.decode()


def request_certificate(client: Client, request: str) -> str:
    """Hand in a request; its object's name."""
    body = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "csr-"},
        "spec": {
            "request": base64.b64encode(request.encode()).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
        },
    }
    return str(client.call("POST", _CSRS, body)["metadata"]["name"])


def certificate(client: Client, name: str) -> str:
    """The signed certificate, empty while nobody signed it. :class:`Denied` when nobody will."""
    status = client.call("GET", f"{_CSRS}/{name}").get("status") or {}
    for condition in status.get("conditions") or []:
        if condition["type"] in ("Denied", "Failed"):
            raise Denied(
                f"certificate request was {condition['type'].lower()}: {condition.get('reason')}: {condition.get('message')}"
            )
    return base64.b64decode(status.get("certificate") or "").decode()


def register(client: Client, intent: Intent, address: str, machine_id: str, now: datetime) -> str:
    """Create the Node, or take over the one of this name; its uid."""
    labels = {"kubernetes.io/hostname": intent.node_name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
    labels |= {"beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux"}
    if intent.labels_at_registration:
        labels |= intent.labels
    body = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": intent.node_name, "labels": labels},
        "spec": {"taints": list(intent.taints)} if intent.taints else {},
    }
    try:
        node = client.call("POST", "/api/v1/nodes", body)
    except KubeError as error:
        if error.status != 409:
            raise
        node = client.call("GET", f"/api/v1/nodes/{intent.node_name}")
        client.call("PATCH", f"/api/v1/nodes/{intent.node_name}", {"metadata": {"labels": labels}}, kind=MERGE)
    status = {
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": intent.node_name}],
        "nodeInfo": _node_info(intent, machine_id),
        "capacity": dict(_RESOURCES),
        "allocatable": dict(_RESOURCES),
        "conditions": conditions(False, now),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    }
    patch_status(client, intent.node_name, status)
    event(client, intent.node_name, now, "Starting", "Starting kubelet.")
    event(client, intent.node_name, now, "InvalidDiskCapacity", "invalid capacity 0 on image filesystem", warning=True)
    return str(node["metadata"]["uid"])


def late_labels(client: Client, intent: Intent) -> None:
    """Talos's own update of its Node: labels, annotations and taints at once, so that one that is refused stops all."""
    labels, annotations = dict(intent.labels), dict(intent.annotations)
    if intent.schematic:
        annotations["extensions.talos.dev/schematic"] = intent.schematic
    body: dict[str, t.Any] = {"metadata": {"labels": labels, "annotations": annotations}}
    path = f"/api/v1/nodes/{intent.node_name}"
    if intent.late_taints:
        present = client.call("GET", path)["spec"].get("taints") or []
        known = {(taint["key"], taint.get("value", ""), taint["effect"]) for taint in present}
        missing = [taint for taint in intent.late_taints if (taint["key"], taint.get("value", ""), taint["effect"]) not in known]
        if missing:
            body["spec"] = {"taints": [*present, *missing]}
    client.call("PATCH", path, body, kind=MERGE)


def ready(client: Client, node: str, now: datetime) -> None:
    """The network has come up."""
    patch_status(client, node, {"conditions": conditions(True, now)})
    event(client, node, now, "NodeReady", f"Node {node} status is now: NodeReady")


def offer_gpus(client: Client, node: str, gpus: int, sharing: Sharing = Sharing(), *, model: str = "", memory_mib: int = 0) -> None:
    """The device plugin has told the kubelet its GPUs, or the DRA driver has published them."""
    if sharing.dra:
        dra_driver.publish(client, node, gpus, model, memory_mib)
        return
    if sharing.waits:
        return
    if sharing.mixed:
        parts = divided(_node(client, node), model, memory_mib)
        if parts != {}:
            state = {MIG_STATE: "failed" if parts is None else "success"}
            client.call("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"labels": state}}, kind=MERGE)
        if parts:
            instances = {GPU: "0", **{name: str(gpus * number) for name, number in parts.items()}}
            patch_status(client, node, {"capacity": instances, "allocatable": instances})
            return
    shared = sharing.renamed and sharing.replicas > 1
    amounts = {GPU: None if shared else str(gpus * sharing.replicas), SHARED: str(gpus * sharing.replicas) if shared else None}
    patch_status(client, node, {"capacity": amounts, "allocatable": amounts})


def _node(client: Client, name: str) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", client.call("GET", f"/api/v1/nodes/{name}"))


def lose_gpus(client: Client, node: str, sharing: Sharing) -> None:
    """The device plugin or DRA driver has ended: what a plugin offered stays in the capacity for a while, and cannot be allocated."""
    if sharing.dra:
        dra_driver.withdraw(client, node)
        return
    if parts := [name for name in _node(client, node)["status"].get("capacity") or {} if name.startswith("nvidia.com/mig-")]:
        patch_status(client, node, {"allocatable": dict.fromkeys(parts, "0")})
        return
    patch_status(client, node, {"allocatable": {SHARED if sharing.renamed and sharing.replicas > 1 else GPU: "0"}})


def lost(client: Client, node: str, now: datetime) -> None:
    """What the node lifecycle controller writes when a kubelet has been silent for too long."""
    stamp = time_text(now)
    unknown = [
        {
            "type": kind,
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            "lastHeartbeatTime": stamp,
            "lastTransitionTime": stamp,
        }
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    patch_status(client, node, {"conditions": unknown})
    event(client, node, now, "NodeNotReady", f"Node {node} status is now: NodeNotReady", of="node-controller")


def event(
    client: Client, node: str, now: datetime, reason: str, message: str, *, warning: bool = False, of: str = "kubelet"
) -> None:
    """Note something about a Node, as kubelets and controllers do. Nobody's work ends because a note is not taken."""
    stamp, name = time_text(now), f"{node}.{uuid.uuid4().hex[:16]}"
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": node, "uid": node},
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "message": message,
        "source": {"component": of, "host": node},
        "reportingComponent": of,
        "reportingInstance": node,
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
    with contextlib.suppress(KubeError):
        client.call("POST", "/api/v1/namespaces/default/events", body)


def patch_status(client: Client, node: str, status: dict[str, t.Any]) -> None:
    """Conditions of others stay, as they do when a real kubelet writes its own."""
    client.call("PATCH", f"/api/v1/nodes/{node}/status", {"status": status}, kind=STRATEGIC)


def renew_lease(client: Client, node: str, uid: str, now: datetime, *, create: bool = False) -> None:
    """The heartbeat; ``create`` for the first. KubeError 404 when somebody has deleted Node and lease."""
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    moment = now.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    try:
        client.call("PATCH", f"{path}/{node}", {"spec": {"renewTime": moment}}, kind=MERGE)
    except KubeError as error:
        if error.status != 404 or not create:
            raise
        owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
        spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": moment}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec}
        client.call("POST", path, {**body, "metadata": {"name": node, "ownerReferences": [owner]}})


def conditions(is_ready: bool, now: datetime) -> list[dict[str, str]]:
    """A kubelet's four conditions."""
    stamp = time_text(now)
    listed = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
        if is_ready
        else ("Ready", "False", "KubeletNotReady", _NOT_READY),
    ]
    return [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": words,
            "lastHeartbeatTime": stamp,
            "lastTransitionTime": stamp,
        }
        for kind, status, reason, words in listed
    ]


def time_text(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _node_info(intent: Intent, machine_id: str) -> dict[str, str]:
    digest = hashlib.sha256(machine_id.encode()).hexdigest()
    talos = intent.lane == "talos"
    return {
        "machineID": digest[:32],
        "systemUUID": f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}",
        "bootID": f"{digest[32:40]}-{digest[40:44]}-4{digest[45:48]}-8{digest[49:52]}-{digest[52:64]}",
        "kernelVersion": "6.18.44-talos" if talos else "6.8.0-60-generic",
        "osImage": intent.os_image,
        "containerRuntimeVersion": "containerd://2.2.7" if talos else "containerd://2.1.4",
        "kubeletVersion": intent.kubelet_version,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }
