# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is the device plugin ready on its nodes (S4-08), and does each show GPUs x replicas (S4-10)? Decided from what was read."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ..kube.client import Json
from ..model import Taint
from ..model.labels import DEVICE_PLUGIN_CONFIG_LABEL, GPU_COUNT_LABEL
from ..model.resources import NVIDIA_GPU
from ..planner.scheduling.node_affinity import against_taints
from ..talos.releases.tables import minor
from .config import DEFAULT_KEY, PluginConfig
from .manifests import PluginOptions, daemon_set_name
from .power_limits import NAMESPACE

_LOOK = {
    "CrashLoopBackOff": "kubectl logs --previous --namespace {namespace} {pod} says why; "
    '"could not load NVML library" means that the driver is not loaded or the NVIDIA container toolkit is not in the node\'s image',
    "ImagePullBackOff": "the node cannot pull the image; give another with image",
    "ErrImagePull": "the node cannot pull the image; give another with image",
    "ContainerCreating": "kubectl describe pod --namespace {namespace} {pod}; "
    '"no runtime for nvidia" means that the NVIDIA container toolkit is not in the node\'s image',
}
_TALOS = re.compile(r"Talos \((v[^)]+)\)")
_LOOK_AT_POD = "kubectl describe pod --namespace {namespace} {pod}"


@dataclasses.dataclass(frozen=True)
class GpuNode:
    """A node as far as GPUs go. ``capacity`` and ``allocatable``: whole numbers of its ``nvidia.com/`` resources."""

    name: str
    ready: bool
    labels: t.Mapping[str, str]
    taints: tuple[Taint, ...]
    capacity: t.Mapping[str, int]
    allocatable: t.Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class NodeGpus:
    """What one selected node shows. ``expected`` None = it has no label with the number of its GPUs, or serves MIG devices."""

    node: str
    config: str
    resource: str
    gpus: int | None
    expected: int | None
    capacity: int
    allocatable: int

    @property
    def right(self) -> bool:
        return self.capacity == self.expected if self.expected is not None else self.capacity > 0


def gpu_node(raw: Json) -> GpuNode:
    """A raw Node as our record."""
    meta, status = raw["metadata"], raw.get("status") or {}
    conditions = status.get("conditions") or []
    return GpuNode(
        meta["name"],
        any(one["type"] == "Ready" and one["status"] == "True" for one in conditions),
        meta.get("labels") or {},
        tuple(Taint(one["key"], str(one.get("value") or ""), one["effect"]) for one in (raw.get("spec") or {}).get("taints") or []),
        _nvidia(status.get("capacity")),
        _nvidia(status.get("allocatable")),
    )


def oldest_talos(raw_nodes: t.Iterable[Json]) -> tuple[int, int] | None:
    """The oldest release of Talos on the nodes; None where one runs something else, or none is there."""
    images = [str((((raw.get("status") or {}).get("nodeInfo") or {}).get("osImage")) or "") for raw in raw_nodes]
    releases = [minor(match[1]) if (match := _TALOS.fullmatch(image)) else None for image in images]
    known = [release for release in releases if release is not None]
    return min(known) if known and len(known) == len(releases) else None


def _nvidia(amounts: t.Mapping[str, t.Any] | None) -> dict[str, int]:
    return {name: int(str(value)) for name, value in (amounts or {}).items() if name.startswith("nvidia.com/")}


def rolled_out(daemon_set: Json) -> bool:
    """Whether the controller has seen this version, and its pods are all of it and available."""
    status = daemon_set.get("status") or {}
    if int(status.get("observedGeneration") or 0) < int(daemon_set["metadata"].get("generation") or 0):
        return False
    desired = int(status.get("desiredNumberScheduled") or 0)
    return all(int(status.get(field) or 0) >= desired for field in ("updatedNumberScheduled", "numberAvailable"))


def late_pods(pods: t.Iterable[Json], nodes: t.Iterable[GpuNode]) -> list[str]:
    """Why the pods that are not Ready are not, one sentence each, with what to look at."""
    down = {node.name for node in nodes if not node.ready}
    return [sentence for pod in pods if (sentence := _late(pod, down))]


def _late(pod: Json, down: t.Container[str]) -> str:
    status = pod.get("status") or {}
    if any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or []):
        return ""
    name, node = pod["metadata"]["name"], (pod.get("spec") or {}).get("nodeName") or ""
    if node in down:
        return f"node {node} is not Ready, so pod {name} cannot start"
    waiting = [(one.get("state") or {}).get("waiting") or {} for one in status.get("containerStatuses") or []]
    reason = next((str(one["reason"]) for one in waiting if one.get("reason")), "") or str(status.get("reason") or "")
    word = reason or str(status.get("phase") or "Pending")
    look = _LOOK.get(word, _LOOK_AT_POD).format(namespace=NAMESPACE, pod=name)
    return f"node {node or '(none yet)'}: pod {name} is {word}. Look: {look}"


def served(options: PluginOptions, nodes: t.Iterable[GpuNode]) -> list[tuple[GpuNode, PluginConfig]]:
    """The Ready nodes on which the plugin runs, each with its configuration."""
    by_key = {config.key: config for config in options.configs}
    found = []
    for node in nodes:
        fits = all(node.labels.get(key) == value for key, value in options.selector.items())
        if fits and node.ready and not against_taints(options.placement, node.taints):
            key = node.labels.get(DEVICE_PLUGIN_CONFIG_LABEL, DEFAULT_KEY)
            found.append((node, by_key.get(key, by_key[DEFAULT_KEY])))
    return found


def unknown_choices(options: PluginOptions, nodes: t.Iterable[GpuNode]) -> list[str]:
    """Nodes whose label names a configuration that does not exist."""
    keys = {config.key for config in options.configs}
    chosen = [(node.name, node.labels.get(DEVICE_PLUGIN_CONFIG_LABEL)) for node in nodes]
    return [
        f"node {name} has {DEVICE_PLUGIN_CONFIG_LABEL}={key}, and there is no such configuration: it gets the default."
        for name, key in chosen
        if key is not None and key not in keys
    ]


def shown(served_nodes: t.Iterable[tuple[GpuNode, PluginConfig]]) -> list[NodeGpus]:
    """What each of them shows, and should show."""
    return [_shown(node, config) for node, config in served_nodes]


def _shown(node: GpuNode, config: PluginConfig) -> NodeGpus:
    label = node.labels.get(GPU_COUNT_LABEL, "")
    gpus = int(label) if label.isdigit() else None
    resource, expected = config.advertised(gpus or 0)
    if config.mig == "mixed":
        resource = next((name for name in sorted(node.capacity) if name != NVIDIA_GPU), resource)
    known = gpus is not None and config.mig == "none"
    return NodeGpus(
        node.name,
        config.key,
        resource,
        gpus,
        expected if known else None,
        node.capacity.get(resource, 0),
        node.allocatable.get(resource, 0),
    )


def wrong_numbers(found: t.Iterable[NodeGpus]) -> list[str]:
    """Nodes that do not show what they should, with what to look at."""
    return [_wrong(one) for one in found if not one.right]


def _wrong(one: NodeGpus) -> str:
    logs = f"kubectl logs --namespace {NAMESPACE} daemonset/{daemon_set_name(one.config)}"
    if one.expected is None:
        return f"node {one.node} shows no {one.resource}. Look: {logs}"
    sentence = f"node {one.node} shows {one.capacity} {one.resource} instead of {one.expected} ({one.gpus} GPUs x replicas)"
    if one.capacity == 0:
        return f"{sentence}. Look: {logs} (are its GPUs found, is it registered with the kubelet?)"
    if one.gpus and one.capacity % one.gpus:
        return f"{sentence}: it finds fewer GPUs than {GPU_COUNT_LABEL} says. Look: {logs}"
    return f"{sentence}: its plugin runs with another configuration, or its label {GPU_COUNT_LABEL} is wrong. Look: {logs}"


def unhealthy_devices(found: t.Iterable[NodeGpus]) -> list[str]:
    """Nodes of which the plugin has marked devices as unhealthy."""
    return [
        f"node {one.node}: {one.capacity - one.allocatable} of {one.capacity} {one.resource} are unhealthy; "
        f"kubectl logs --namespace {NAMESPACE} daemonset/{daemon_set_name(one.config)} has the XID errors."
        for one in found
        if one.allocatable < one.capacity
    ]
