# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a pod that asks for GPUs does not run: what the kubelet says of one that has a node, and the scheduler's rules for one that has none."""

from __future__ import annotations

import collections
import re
import typing as t

from ...model import Node
from ...model.resources import NVIDIA_GPU, SHARED_GPU
from ...planner.scheduling.node_affinity import against_labels, against_taints
from .facts import NO, UNKNOWN, WARN, ClusterGpus, GpuCheck, PendingPod

_TOO_LARGE = r"too large: maximum request size for shared resources is 1"
_Known = tuple[str, str, str, str]
#: what kubelet and container runtime say: pattern, code, what it means, what to do
_SAID: tuple[_Known, ...] = (
    (
        _TOO_LARGE,
        "slices_per_pod",
        "It asks for more than one slice of a shared GPU, and the plugin refuses that (failRequestsGreaterThanOne)",
        "Ask for nvidia.com/gpu: 1; more slices would give no more of the GPU.",
    ),
    (
        r"(?i)UnexpectedAdmissionError",
        "admission_error",
        "The kubelet took it and could not allocate its GPU",
        "Delete the pod: its owner makes a new one. If it repeats, restart the device plugin's pod on that node.",
    ),
    (
        r"(?i)no runtime for \"nvidia\"",
        "no_toolkit",
        "containerd on its node has no runtime nvidia: the image has no toolkit extension",
        "Take an image with nvidia-container-toolkit of the driver's track and replace the machine.",
    ),
    (
        r"(?i)fork/exec \S*nvidia-(ctk|cdi-hook)|nvidia-(ctk|cdi-hook): no such file",
        "hook_path",
        "The device plugin names a CDI hook at a path that its node does not have",
        "Set NVIDIA_CDI_HOOK_PATH=/usr/local/bin/nvidia-cdi-hook in the plugin's DaemonSet, or update Talos.",
    ),
    (
        r"(?i)unresolvable CDI devices|failed to inject CDI devices",
        "cdi_devices",
        "containerd does not know the CDI device that the plugin named",
        "See the check CDI of its node; a plugin of an older configuration may name old devices: restart it.",
    ),
    (
        r"(?i)driver/library version mismatch",
        "version_mismatch",
        "Driver and libraries on its node are of two versions",
        "See the checks extensions and driver of its node.",
    ),
    (
        r"(?i)ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull",
        "image_pull",
        "Its image cannot be pulled",
        "Correct the image's name and tag, or give the pod an imagePullSecret; the event has the registry's words.",
    ),
    (
        r"(?i)CreateContainerConfigError",
        "container_config",
        "A ConfigMap or Secret that it names is missing",
        "Create what the message names.",
    ),
    (
        r"(?i)CrashLoopBackOff",
        "crash_loop",
        "It starts and ends again and again",
        "Read its log: kubectl logs --previous.",
    ),
    (
        r"(?i)FailedCreatePodSandBox|RunContainerError|CreateContainerError|StartError",
        "container_start",
        "Its container cannot be started",
        "The event has the runtime's words.",
    ),
)


def pod_checks(cluster: ClusterGpus) -> t.Iterator[GpuCheck]:
    """One row for each pod that waits; one that says that none does."""
    if cluster.pending is None:
        yield GpuCheck("cluster", "pods", UNKNOWN, cluster.why_unread("pods"))
        return
    for pod in cluster.pending:
        yield why_it_waits(pod, cluster)


def why_it_waits(pod: PendingPod, cluster: ClusterGpus) -> GpuCheck:
    """The first cause that is known."""
    said = pod.said
    for pattern, code, meaning, remedy in _SAID:
        if found := re.search(pattern, said):
            line = next((line for line in said.splitlines() if re.search(pattern, line)), found[0])
            return _row(pod, NO, f"{meaning}. It says: {' '.join(line.split())[:300]}", remedy, code)
    if pod.pod.node:
        seen = f"it is bound to {pod.pod.node} and does not run: {pod.waiting or pod.pod.phase}"
        return _row(pod, WARN, seen, "Wait for its image; if it stays so, read its events (kubectl describe pod).", "starting")
    if pod.pod.waiting == "SchedulingGated":
        return _row(pod, WARN, "it has scheduling gates: another controller lets it go", "See who owns the gates.", "gated")
    return _unscheduled(pod, cluster)


def _row(pod: PendingPod, state: str, seen: str, remedy: str, code: str) -> GpuCheck:
    return GpuCheck(f"pod {pod.name}", "waits", state, seen, remedy, code)


# ---- no node takes it: the scheduler's rules, node by node


def _unscheduled(pod: PendingPod, cluster: ClusterGpus) -> GpuCheck:
    gpus = {name: amount for name, amount in pod.pod.requests.items() if name.startswith(NVIDIA_GPU) or name.endswith("/gpu")}
    resource, amount = next(iter(sorted(gpus.items())), (NVIDIA_GPU, 1))
    showing = [node for node in cluster.all_nodes if node.allocatable.get(resource, 0)]
    scheduler = f" The scheduler says: {pod.pod.waiting_why[:300]}" if pod.pod.waiting_why else ""
    if not showing and resource == NVIDIA_GPU and any(node.allocatable.get(SHARED_GPU, 0) for node in cluster.all_nodes):
        remedy = f"Ask for {SHARED_GPU}, or take renameByDefault out of the plugin's configuration (device_plugin.yml writes one without it)."
        return _row(pod, NO, f"no node shows {resource}, they show {SHARED_GPU}.{scheduler}", remedy, "other_resource")
    if not showing:
        remedy = "See the checks of the nodes; if there are none, rent one (provision, autoscale)."
        return _row(pod, NO, f"no node shows {resource}.{scheduler}", remedy, "no_gpus")
    placement = pod.pod.placement
    selected = [node for node in showing if not against_labels(placement, node.labels, node.name)]
    if not selected:
        why = collections.Counter(against_labels(placement, node.labels, node.name) for node in showing).most_common(1)[0][0]
        remedy = "Correct nodeSelector or affinity of the pod, or give the pool that label (spec.labels)."
        return _row(
            pod,
            NO,
            f"none of the nodes that show {resource} ({len(showing)}) is selected: {why}.{scheduler}",
            remedy,
            "not_selected",
        )
    open_nodes = [node for node in selected if not against_taints(placement, node.taints) and not node.unschedulable]
    if not open_nodes:
        return _kept_off(pod, selected, scheduler)
    return _no_room(pod, cluster, open_nodes, resource, amount, scheduler)


def _kept_off(pod: PendingPod, selected: t.Sequence[Node], scheduler: str) -> GpuCheck:
    taints = collections.Counter(why for node in selected if (why := against_taints(pod.pod.placement, node.taints)))
    if not taints:
        names = ", ".join(node.name for node in selected[:3])
        return _row(pod, NO, f"all nodes that it could use are cordoned: {names}.{scheduler}", "Uncordon one.", "cordoned")
    why = taints.most_common(1)[0][0]
    taint = why.removeprefix("taint ").removesuffix(" not tolerated")
    remedy = f"Add a toleration for {taint} to the pod, if it may run there."
    return _row(pod, NO, f"{why} on the nodes that it could use ({len(selected)}).{scheduler}", remedy, "taint_not_tolerated")


def _no_room(
    pod: PendingPod, cluster: ClusterGpus, nodes: t.Sequence[Node], resource: str, amount: int, scheduler: str
) -> GpuCheck:
    largest = max(node.allocatable.get(resource, 0) for node in nodes)
    if amount > largest:
        remedy = f"Ask for at most {largest}, or add a pool whose machines have {amount} GPUs."
        return _row(
            pod, NO, f"it asks for {amount} {resource}, and the largest node shows {largest}.{scheduler}", remedy, "too_large"
        )
    if all(_free(node, cluster, resource) < amount for node in nodes):
        free = sum(max(0, _free(node, cluster, resource)) for node in nodes)
        seen = f"it asks for {amount} {resource}; none of the nodes that it could use ({len(nodes)}) has so many free, all together {free}."
        seen += scheduler
        return _row(pod, NO, seen, "Wait until a pod ends, raise maxNodes, or share GPUs by time-slicing.", "no_free_gpu")
    if scheduler:
        return _row(
            pod, NO, f"GPUs are free, and something else keeps it off.{scheduler}", "See the scheduler's words.", "other_reason"
        )
    return _row(
        pod, WARN, "GPUs are free, and the scheduler has not spoken yet", "Look again in some seconds.", "not_scheduled_yet"
    )


def _free(node: Node, cluster: ClusterGpus, resource: str) -> int:
    return node.allocatable.get(resource, 0) - cluster.used.get(node.name, {}).get(resource, 0)
