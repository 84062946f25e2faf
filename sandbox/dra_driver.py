# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's DRA driver for GPUs: where its DaemonSet has a pod on a node, the node's GPUs are devices of a ResourceSlice, and no resource of the
Node. Names and attributes are those of the real one; the memory is NVML's figure where we know it."""

from __future__ import annotations

import pathlib
import typing as t

import yaml

from .cluster import Client, KubeError

MANIFEST = pathlib.Path(__file__).parent / "dra_driver.yml"
DRIVER = "gpu.nvidia.com"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_MIB = 1024 * 1024
#: canonical model: product name, architecture, compute capability, NVML's total in MiB (0 = as sold)
_MODELS = {
    "A10": ("NVIDIA A10", "Ampere", "8.6.0", 23028),
    "A100-SXM": ("NVIDIA A100-SXM4-80GB", "Ampere", "8.0.0", 81920),
    "A6000": ("NVIDIA RTX A6000", "Ampere", "8.6.0", 49140),
    "H100-SXM": ("NVIDIA H100 80GB HBM3", "Hopper", "9.0.0", 81559),
    "QUADRO-RTX6000": ("Quadro RTX 6000", "Turing", "7.5.0", 0),
}

Json = dict[str, t.Any]


def manifests() -> list[Json]:
    """The DaemonSet of its kubelet plugin and its DeviceClasses, as its chart installs them."""
    return t.cast("list[Json]", yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))["items"])


def install(client: Client) -> None:
    """What ``helm install`` of its chart does."""
    paths = {
        "DaemonSet": "/apis/apps/v1/namespaces/kube-system/daemonsets",
        "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    }
    for body in manifests():
        try:
            client.call("POST", paths[body["kind"]], body)
        except KubeError as error:
            if error.status != 409:
                raise


def publish(client: Client, node: str, gpus: int, model: str, memory_mib: int, tainted: t.Collection[int] = ()) -> None:
    """The driver has found the node's GPUs. The slice belongs to the Node and goes with it."""
    uid = client.call("GET", f"/api/v1/nodes/{node}")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
    body: Json = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{DRIVER}", "ownerReferences": [owner]},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [_device(number, model, memory_mib, number in tainted) for number in range(gpus)],
        },
    }
    try:
        client.call("POST", SLICES, body)
    except KubeError as error:
        if error.status != 409:  # published already
            raise


def withdraw(client: Client, node: str) -> None:
    """The driver has ended: the kubelet removes what it published."""
    for one in client.call("GET", SLICES, fieldSelector=f"spec.nodeName={node}")["items"]:
        client.call("DELETE", f"{SLICES}/{one['metadata']['name']}")


def _device(number: int, model: str, memory_mib: int, tainted: bool) -> Json:
    product, architecture, capability, total = _MODELS.get(model, (f"NVIDIA {model}", "Ampere", "8.0.0", 0))
    device: Json = {
        "name": f"gpu-{number}",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": f"GPU-{number:08d}"},
            "productName": {"string": product},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": architecture},
            "cudaComputeCapability": {"version": capability},
            "driverVersion": {"version": "580.178.4"},
            "cudaDriverVersion": {"version": "13.0.0"},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{number:02d}"},
        },
        "capacity": {"memory": {"value": f"{total or memory_mib}Mi"}},
    }
    if tainted:
        device["taints"] = [{"key": f"{DRIVER}/xid", "value": "79", "effect": "NoSchedule"}]
    return device
