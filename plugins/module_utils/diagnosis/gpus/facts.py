# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was seen of GPUs in a cluster: of its nodes, of the device plugins, and of the pods that wait. The material of ``checks``.

None is unknown: it could not be read, and ``unread`` says why. It is never a no.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ...model import GpuXids, Node, Placement, Pod
from ...model.labels import DEVICE_PLUGIN_CONFIG_LABEL
from ...model.resources import NVIDIA_GPU, SHARED_GPU_PREFIX
from ..facts import EventSeen, SystemService

OK, WARN, NO, UNKNOWN = "ok", "warn", "NO", "unknown"
Unread = tuple[tuple[str, str], ...]
_VERSION = re.compile(r"Kernel Module\b.*?\s(\d+\.\d+(?:\.\d+)?)\s")


@dataclasses.dataclass(frozen=True)
class GpuCheck:
    """One row of the diagnosis. ``subject`` is what was looked at (node x, pod y, cluster), ``code`` one word for programs."""

    subject: str
    check: str
    state: str
    seen: str
    remedy: str = ""
    code: str = ""


# ---- a node


@dataclasses.dataclass(frozen=True)
class NodeSystem:
    """What a node's own system says. ``driver`` is the version in /proc/driver/nvidia/version, "" where that file does not exist.
    ``sockets`` are the files beside the kubelet's device plugin socket; None when they were not asked for.
    """

    modules: tuple[str, ...] | None = None
    services: t.Mapping[str, SystemService] | None = None
    logs: t.Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    driver: str | None = None
    sockets: tuple[str, ...] | None = None
    unread: Unread = ()

    def why_unread(self, what: str) -> str:
        return dict(self.unread).get(what, "it was not asked")


@dataclasses.dataclass(frozen=True)
class HostSystem:
    """What the system of a node that does not run Talos says, by SSH. ``packages`` are NVIDIA's installed ones, with their versions.

    ``driver`` as in NodeSystem; ``toolkit`` is the version of nvidia-ctk, "" where there is none; ``runtime``: whether containerd's
    configuration names NVIDIA's; ``smi``: why nvidia-smi fails, "" where it does not; ``gpus``: those that it lists; ``xids``: the newest
    lines of the kernel's log since boot.
    """

    kernel: str = ""
    modules: tuple[str, ...] | None = None
    driver: str | None = None
    packages: tuple[str, ...] | None = None
    toolkit: str | None = None
    runtime: bool | None = None
    smi: str | None = None
    gpus: int | None = None
    xids: tuple[str, ...] | None = None
    unread: Unread = ()

    def why_unread(self, what: str) -> str:
        return dict(self.unread).get(what, "it was not asked")


@dataclasses.dataclass(frozen=True)
class GpuNodeFacts:
    """A node that has GPUs, or was rented with them. ``gpus`` and ``model`` are those of the machine, None and "" where they are unknown.

    ``extensions`` maps the Talos extensions in its image to their versions. ``wrong_driver``: why its image cannot drive its GPUs.
    ``system`` is of nodes that run Talos, ``host`` of others; ``unasked``: why there is neither.
    ``xids``: what its dcgm-exporter says, None where none runs on it.
    """

    node: Node
    capacity: t.Mapping[str, int]
    gpus: int | None = None
    model: str = ""
    pool: str = ""
    talos: bool = False
    extensions: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    wrong_driver: tuple[str, ...] = ()
    needs_fabric_manager: bool = False
    system: NodeSystem | None = None
    host: HostSystem | None = None
    unasked: str = ""
    xids: GpuXids | None = None

    @property
    def shown(self) -> int:
        """GPUs (or slices) that it shows to the scheduler."""
        return whole_gpus(self.node.allocatable)


def driver_version(text: str) -> str:
    """The version that /proc/driver/nvidia/version names; "" where it names none."""
    match = _VERSION.search(text)
    return match[1] if match else ""


def node_check(node: GpuNodeFacts, check: str, state: str, seen: str, remedy: str = "", code: str = "") -> GpuCheck:
    """A row about a node."""
    return GpuCheck(f"node {node.node.name}", check, state, seen, remedy, code)


def version_check(node: GpuNodeFacts, driver: str | None, unread: str, remedy: str) -> GpuCheck | None:
    """The check of a driver whose modules are loaded and whose version says nothing more: it could not be read (``driver`` None, ``unread`` is
    why), or the module drives no GPU (empty); None where there is a version. ``remedy``: where to look on this kind of system."""
    if driver is None:
        return node_check(node, "driver", OK, f"modules are loaded; its version: {unread}")
    if driver:
        return None
    seen = "modules are loaded, and /proc/driver/nvidia/version does not exist"
    return node_check(node, "driver", NO, seen, f"The module does not drive this GPU: {remedy}", "driver_without_gpu")


def whole_gpus(resources: t.Mapping[str, int]) -> int:
    """GPUs and slices of GPUs. MIG devices do not count."""
    return sum(amount for name, amount in resources.items() if name == NVIDIA_GPU or name.startswith(SHARED_GPU_PREFIX))


# ---- what makes GPUs visible


@dataclasses.dataclass(frozen=True)
class GpuDaemon:
    """A DaemonSet that advertises GPUs (``kind`` plugin), or limits their power (power). ``origin``: whose manifest it is."""

    kind: str
    namespace: str
    name: str
    origin: str
    placement: Placement = Placement()
    runtime_class: str = ""
    config_map: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclasses.dataclass(frozen=True)
class DaemonPod:
    """A pod of such a DaemonSet. ``trouble``: why it does not work, in the API's words. ``log`` None: it could not be read."""

    daemon: str
    kind: str
    name: str
    node: str
    phase: str
    ready: bool
    trouble: str = ""
    log: tuple[str, ...] | None = None
    unread: str = ""


@dataclasses.dataclass(frozen=True)
class SharingConfig:
    """One key of the device plugin's ConfigMap. ``problem``: why the plugin would not take it."""

    replicas: int = 1
    fail_requests_greater_than_one: bool = False
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class PluginConfigMap:
    """The ConfigMap by its keys; ``default`` is the key for nodes that name none."""

    name: str
    keys: t.Mapping[str, SharingConfig]
    default: str = ""


# ---- pods


@dataclasses.dataclass(frozen=True)
class PendingPod:
    """A pod that asks for GPUs and does not run. ``waiting``: what its containers wait for; ``failed``: reason and message of a pod that
    the kubelet turned away."""

    pod: Pod
    runtime_class: str = ""
    waiting: str = ""
    failed: str = ""
    events: tuple[EventSeen, ...] = ()
    unread: str = ""

    @property
    def name(self) -> str:
        return f"{self.pod.namespace}/{self.pod.name}"

    @property
    def said(self) -> str:
        """Everything that the cluster says of it, to look for the words that others use."""
        return "\n".join(filter(None, (self.failed, self.waiting, *(f"{event.reason}: {event.message}" for event in self.events))))


@dataclasses.dataclass(frozen=True)
class GpuTestRun:
    """What became of one test pod. ``path`` is how it asked for the GPU: CDI or wrapper."""

    name: str
    path: str
    passed: bool
    seen: str
    node: str = ""


# ---- all of it


@dataclasses.dataclass(frozen=True)
class ClusterGpus:
    """``runtime_classes`` maps names to handlers. ``config`` None: there is none, unless ``unread`` names it. ``tests`` None: none were made.
    ``objects``: what is in the namespaces of the plugins, None when that was not asked for.
    ``all_nodes`` and ``used`` (GPUs that pods hold, by node) are of the whole cluster, whatever was asked about."""

    nodes: tuple[GpuNodeFacts, ...] = ()
    daemons: tuple[GpuDaemon, ...] | None = None
    pods: tuple[DaemonPod, ...] | None = None
    runtime_classes: t.Mapping[str, str] | None = None
    config: PluginConfigMap | None = None
    pending: tuple[PendingPod, ...] | None = None
    tests: tuple[GpuTestRun, ...] | None = None
    objects: tuple[str, ...] | None = None
    all_nodes: tuple[Node, ...] = ()
    used: t.Mapping[str, t.Mapping[str, int]] = dataclasses.field(default_factory=dict)
    unread: Unread = ()

    def why_unread(self, what: str) -> str:
        return dict(self.unread).get(what, "it was not asked")

    def sharing_of(self, node: Node) -> SharingConfig:
        """The sharing that is configured for a node, by its label or by default."""
        if self.config is None:
            return SharingConfig()
        key = node.labels.get(DEVICE_PLUGIN_CONFIG_LABEL) or self.config.default
        return self.config.keys.get(key, SharingConfig())
