# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node shows GPUs only while a device plugin runs on it: a DaemonSet that selects the node by its labels and tolerates its taints.

The DaemonSet with which a sandbox begins has no pods. Every other one has, and its pod tells the kubelet GPUs x replicas of the configuration
that the pod has mounted. It reads the configuration once, when it starts.
"""

from __future__ import annotations

import dataclasses
import pathlib
import typing as t

import yaml

from .cluster import Client, KubeError
from .kube.daemon_sets import WITHOUT_PODS
from .kube.neighbours import selects, tolerates

MANIFEST = pathlib.Path(__file__).parent / "device_plugin.yml"
PATH = "/apis/apps/v1/daemonsets"
_IMAGES = ("k8s-device-plugin", "gpu-operator", "dra-driver")
_OTHERS = ("feature-discovery", "mps")
#: taints that the DaemonSet controller lets every pod of a DaemonSet tolerate
_ALWAYS = ("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")

Json = dict[str, t.Any]


def manifest() -> Json:
    """NVIDIA's device plugin as one installs it."""
    return t.cast(Json, yaml.safe_load(MANIFEST.read_text(encoding="utf-8")))


def install(client: Client) -> None:
    """What ``kubectl apply -f sandbox/device_plugin.yml`` does in a new cluster."""
    body = manifest()
    try:
        client.call("POST", f"/apis/apps/v1/namespaces/{body['metadata']['namespace']}/daemonsets", body)
    except KubeError as error:
        if error.status != 409:
            raise


@dataclasses.dataclass(frozen=True)
class Sharing:
    """How a device plugin offers each GPU."""

    replicas: int = 1
    renamed: bool = False
    dra: bool = False  # as devices of a DRA driver
    mixed: bool = False  # MIG instances under names of their own
    waits: bool = False  # for the control daemon of MPS: nothing is advertised until it runs


def runs_on(client: Client, name: str) -> bool:
    """Whether the device plugin without pods runs on the Node. KubeError when the cluster does not say."""
    node = client.call("GET", f"/api/v1/nodes/{name}")
    without = [one for one in client.call("GET", PATH)["items"] if _key(one) == WITHOUT_PODS]
    return any(fits(one["spec"]["template"]["spec"], node) for one in without)


def _key(daemon: Json) -> str:
    return f"{daemon['metadata']['namespace']}/{daemon['metadata']['name']}"


def is_plugin(pod: Json) -> bool:
    """Whether the pod is one of a device plugin. NVIDIA ships GPU feature discovery and the MPS daemon in the same image; neither advertises
    GPUs."""
    owners = pod["metadata"].get("ownerReferences") or []
    if not any(one["kind"] == "DaemonSet" and not any(word in one["name"] for word in _OTHERS) for one in owners):
        return False
    return any(word in one.get("image", "") for one in pod["spec"].get("containers") or [] for word in _IMAGES)


def read_sharing(client: Client, pod: Json) -> Sharing:
    """By the configuration that the pod mounts, as it is now. KubeError 404 when it is not there: the pod cannot start then."""
    if any("dra-driver" in one.get("image", "") for one in pod["spec"].get("containers") or []):
        return Sharing(dra=True)
    for volume in pod["spec"].get("volumes") or []:
        if (source := volume.get("configMap")) and source.get("items"):
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/configmaps/{source['name']}"
            data = client.call("GET", path).get("data") or {}
            content = yaml.safe_load(data[source["items"][0]["key"]])
            sharing = content.get("sharing") or {}
            if sharing.get("mps") and not _has_mps_daemon(client):
                return Sharing(waits=True)
            slicing = sharing.get("mps") or sharing.get("timeSlicing") or {}
            replicas = [one["replicas"] for one in slicing.get("resources") or [] if one["name"] == "nvidia.com/gpu"]
            mixed = (content.get("flags") or {}).get("migStrategy") == "mixed"
            return Sharing(replicas[0], bool(slicing.get("renameByDefault")), mixed=mixed) if replicas else Sharing(mixed=mixed)
    given = [entry for one in pod["spec"].get("containers") or [] for entry in one.get("env") or []]
    return Sharing(mixed=any(entry["name"] == "MIG_STRATEGY" and entry.get("value") == "mixed" for entry in given))


# ---- NVIDIA's MIG manager: it divides the GPUs of a Node as the label says, and writes how that went

MIG_CONFIG, MIG_STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
_BALANCED = {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}
_CONFIGURATIONS: dict[tuple[str, int], dict[str, dict[str, int]]] = {
    **{
        (family, 80): {
            "all-1g.10gb": {"1g.10gb": 7},
            "all-1g.10gb.me": {"1g.10gb+me": 1},
            "media": {"1g.10gb+me": 1, "1g.10gb": 4, "2g.20gb": 1},  # in a file of the user's own
            "all-2g.20gb": {"2g.20gb": 3},
            "all-3g.40gb": {"3g.40gb": 2},
            "all-7g.80gb": {"7g.80gb": 1},
            "all-balanced": _BALANCED,
        }
        for family in ("A100", "H100")
    },
    ("A100", 40): {"all-1g.5gb": {"1g.5gb": 7}, "all-1g.10gb": {"1g.10gb": 4}, "all-3g.20gb": {"3g.20gb": 2}},
}


def divided(node: Json, model: str, memory_mib: int) -> dict[str, int] | None:
    """Instances on each GPU, by resource name, as the Node's label says; empty without one, None for what its GPUs cannot be."""
    config = (node["metadata"].get("labels") or {}).get(MIG_CONFIG, "all-disabled")
    if config == "all-disabled":
        return {}
    layout = _CONFIGURATIONS.get((model.partition("-")[0], round(memory_mib / 1024)), {}).get(config)
    return None if layout is None else {f"nvidia.com/mig-{profile.replace('+', '.')}": number for profile, number in layout.items()}


def _has_mps_daemon(client: Client) -> bool:
    """Whether a DaemonSet runs it, as the GPU Operator's does."""
    return any("mps-control-daemon" in one["metadata"]["name"] for one in client.call("GET", PATH)["items"])


def fits(pod: Json, node: Json) -> bool:
    """Whether a DaemonSet's pod is placed on the Node, by Kubernetes' rules for selector, affinity and taints. ``pod``: its spec."""
    placed = {"spec": pod}
    ignored = [f"node.kubernetes.io/{word}" for word in _ALWAYS]
    taints = [one for one in node["spec"].get("taints") or [] if one["effect"] in ("NoSchedule", "NoExecute")]
    return selects(placed, node) and all(tolerates(placed, taint) for taint in taints if taint["key"] not in ignored)
