# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of one node: its image, its driver, its services, the device plugin on it, the GPUs that it shows, their power limits."""

from __future__ import annotations

import re
import typing as t

from ...planner.scheduling.node_affinity import against_labels, against_taints
from ...planner.xids import BROKEN, xid_rows
from .facts import NO, OK, UNKNOWN, WARN, ClusterGpus, DaemonPod, GpuCheck, GpuNodeFacts, node_check, version_check, whole_gpus
from .host_checks import host_checks
from .log_meanings import CDI, PLUGIN, POWER, REGISTERED, meaning_of, says

MODULES = ("nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset")
PERSISTENCED, CDI_GEN, FABRIC_MANAGER = "ext-nvidia-persistenced", "ext-nvidia-cdi-gen", "ext-nvidia-fabricmanager"
SOCKETS = "/var/lib/kubelet/device-plugins"
_DRIVER = re.compile(r"(nvidia-open-gpu-kernel-modules|nonfree-kmod-nvidia)-(\w+)")
_TOOLKIT = re.compile(r"nvidia-container-toolkit-(\w+)")
_TRACKED = re.compile(r"(?:nvidia-open-gpu-kernel-modules|nonfree-kmod-nvidia|nvidia-container-toolkit|nvidia-fabricmanager)-(\w+)")
_NEW_IMAGE = (
    "Make an image with the right extensions (module talos_schematic), set it in talosConfig.image, and replace the machine."
)


def node_checks(node: GpuNodeFacts, cluster: ClusterGpus) -> t.Iterator[GpuCheck]:
    """All checks of one node, in the order in which one depends on the other."""
    of_system = (_extensions, _driver, _services, _cdi) if node.host is None else ()
    for rule in (_node, *of_system):
        check = rule(node, cluster)
        if check is not None:
            yield check
    if node.host is not None:
        yield from host_checks(node, node.host)
    for rule in (_plugin, _sockets, _gpus, xid_check, _power):
        check = rule(node, cluster)
        if check is not None:
            yield check


def _node(node: GpuNodeFacts, _cluster: ClusterGpus) -> GpuCheck:
    record = node.node
    if record.ready:
        if record.unschedulable:
            return node_check(
                node, "node", WARN, "Ready and cordoned: no new pod comes", "Uncordon it, if nobody drains it.", "cordoned"
            )
        return node_check(
            node, "node", OK, f"Ready, kubelet {record.kubelet_version or '?'}, {record.os_image or 'system unknown'}"
        )
    word = "not Ready" if record.ready is False else "silent: its kubelet does not report"
    seen = f"{word}: {record.ready_message[:200]}".rstrip(": ")
    return node_check(
        node, "node", NO, seen, "See why in its conditions (kubectl describe node); a rented machine is replaced.", "node_not_ready"
    )


def _extensions(node: GpuNodeFacts, _cluster: ClusterGpus) -> GpuCheck | None:
    """Only Talos has them: its Node carries a label for each."""
    if not node.talos:
        return None
    nvidia = {name: version for name, version in node.extensions.items() if "nvidia" in name}
    if not node.extensions:
        return node_check(
            node, "extensions", UNKNOWN, "the Node carries no labels extensions.talos.dev/…, so its image is not known"
        )
    listed = ", ".join(f"{name} {version}".rstrip() for name, version in sorted(nvidia.items())) or "none of NVIDIA"
    tracks = sorted({match[1] for name in nvidia if (match := _TRACKED.fullmatch(name))})
    drivers = [name for name in nvidia if _DRIVER.fullmatch(name)]
    if not drivers:
        return node_check(node, "extensions", NO, f"the image has no driver of NVIDIA: {listed}", _NEW_IMAGE, "no_driver_extension")
    if len(tracks) > 1:
        return node_check(
            node, "extensions", NO, f"extensions of the tracks {' and '.join(tracks)} are mixed: {listed}",
            "Take all NVIDIA extensions of one track. " + _NEW_IMAGE, "mixed_tracks",
        )  # fmt: skip
    if not any(_TOOLKIT.fullmatch(name) for name in nvidia):
        return node_check(
            node, "extensions", NO, f"nvidia-container-toolkit is missing, so containerd has no runtime nvidia: {listed}",
            f"Add siderolabs/nvidia-container-toolkit-{tracks[0]}. " + _NEW_IMAGE, "no_toolkit",
        )  # fmt: skip
    if node.wrong_driver:
        return node_check(node, "extensions", NO, " ".join(node.wrong_driver), _NEW_IMAGE, "wrong_driver")
    if node.needs_fabric_manager and not any(name.startswith("nvidia-fabricmanager") for name in nvidia):
        return node_check(
            node, "extensions", WARN, f"no fabric manager, and these GPUs sit on NVSwitches: {listed}",
            "CUDA error 802 means that the host does not run one either. Then add nvidia-fabricmanager of the same track.", "no_fabric_manager",
        )  # fmt: skip
    return node_check(node, "extensions", OK, listed)


def _driver(node: GpuNodeFacts, _cluster: ClusterGpus) -> GpuCheck:
    system = node.system
    if system is None:
        return node_check(node, "driver", UNKNOWN, node.unasked or "the node was not asked")
    if system.modules is None:
        return node_check(node, "driver", UNKNOWN, f"modules: {system.why_unread('modules')}")
    missing = [name for name in MODULES if name not in system.modules]
    if missing:
        return node_check(
            node, "driver", NO, f"kernel modules are not loaded: {', '.join(missing)}",
            f"Add {', '.join(missing)} to machine.kernel.modules (Talos 1.14: KernelModuleConfig); extensions do not load them. If they are "
            "there, the machine has no GPU, or needs a full reboot (kernel.kexec_load_disabled=1).",
            "modules_not_loaded",
        )  # fmt: skip
    see = "see the check extensions, and the kernel's log (NVRM)."
    if (check := version_check(node, system.driver, system.why_unread("driver"), see)) is not None:
        return check
    ordered = _branch_versions(node)
    if ordered and system.driver not in ordered:
        return node_check(
            node, "driver", NO, f"driver {system.driver} is loaded, and the image's libraries are {', '.join(sorted(ordered))}",
            "Driver and libraries must be of one version: reboot into the image, or make it anew with extensions of one track.",
            "version_mismatch",
        )  # fmt: skip
    return node_check(node, "driver", OK, f"{system.driver}, {len(MODULES)} modules loaded")


def _branch_versions(node: GpuNodeFacts) -> set[str]:
    """Driver versions of the libraries in the image: the toolkit's extension is <driver>-<toolkit>."""
    return {version.partition("-")[0] for name, version in node.extensions.items() if _TOOLKIT.fullmatch(name) and version}


def _services(node: GpuNodeFacts, _cluster: ClusterGpus) -> GpuCheck | None:
    if not node.talos or node.system is None:
        return None
    services = node.system.services
    if services is None:
        return node_check(node, "services", UNKNOWN, f"services: {node.system.why_unread('services')}")
    persistenced, fabric = services.get(PERSISTENCED), services.get(FABRIC_MANAGER)
    if persistenced is None:
        return node_check(
            node, "services", NO, f"{PERSISTENCED} does not exist: the image has no toolkit extension", _NEW_IMAGE, "no_toolkit"
        )
    if persistenced.state != "Running":
        return node_check(
            node, "services", NO, f"{PERSISTENCED} is {persistenced.state}: {persistenced.message}".rstrip(": "),
            "It waits for a loaded driver: see the checks driver and extensions. Talos's boot waits for it, and reboots after 70 minutes.",
            "persistenced_waits",
        )  # fmt: skip
    if fabric is not None and fabric.state != "Running":
        return node_check(
            node, "services", NO, f"{FABRIC_MANAGER} is {fabric.state}: {fabric.message}".rstrip(": "),
            "Without it CUDA ends with error 802 on boards with NVSwitches; it must be of the driver's very version.", "fabric_manager_down",
        )  # fmt: skip
    return node_check(node, "services", OK, f"{PERSISTENCED} Running" + (f", {FABRIC_MANAGER} Running" if fabric else ""))


def _cdi(node: GpuNodeFacts, _cluster: ClusterGpus) -> GpuCheck | None:
    if not node.talos or node.system is None or node.system.services is None:
        return None
    service = node.system.services.get(CDI_GEN)
    if service is None:
        return node_check(
            node, "CDI", WARN, f"{CDI_GEN} does not exist (before Talos 1.13 that is so): only the runtime nvidia injects GPUs"
        )
    meaning = meaning_of(node.system.logs.get(CDI_GEN, ()), CDI)
    if service.state == "Failed" or (meaning is not None and service.state != "Finished"):
        quote = meaning.quote if meaning else service.message
        return node_check(node, "CDI", NO, f"{CDI_GEN} is {service.state}: {quote}".rstrip(": "), CDI[0][3], "cdi_failed")
    if service.state != "Finished":
        return node_check(
            node,
            "CDI",
            WARN,
            f"{CDI_GEN} is {service.state}: {service.message}".rstrip(": "),
            "It should end as Finished.",
            "cdi_unfinished",
        )
    return node_check(node, "CDI", OK, f"{CDI_GEN} Finished")


# ---- what runs on it


def _plugin(node: GpuNodeFacts, cluster: ClusterGpus) -> GpuCheck:
    if cluster.daemons is None:
        return node_check(node, "device plugin", UNKNOWN, cluster.why_unread("DaemonSets"))
    plugins = [daemon for daemon in cluster.daemons if daemon.kind == "plugin"]
    if not plugins:
        return node_check(
            node, "device plugin", NO, "the cluster has no device plugin, so no node shows GPUs",
            "Install one: ansible-playbook tgp.gpu.device_plugin, or NVIDIA's GPU Operator (docs/how_to/talos.md).", "no_plugin",
        )  # fmt: skip
    if cluster.pods is None:
        return node_check(node, "device plugin", UNKNOWN, cluster.why_unread("pods"))
    here = [pod for pod in cluster.pods if pod.kind == "plugin" and pod.node == node.node.name]
    if not here and node.shown:
        seen = f"the node shows GPUs, and no pod of {', '.join(map(str, plugins))} is on it: another program advertises them"
        return node_check(
            node, "device plugin", WARN, seen, "If the node loses its GPUs, look for that program first.", "plugin_elsewhere"
        )
    if not here:
        return _not_scheduled(node, cluster)
    return _plugin_pod(node, next((pod for pod in here if not pod.ready), here[0]))


def _not_scheduled(node: GpuNodeFacts, cluster: ClusterGpus) -> GpuCheck:
    reasons = []
    for daemon in cluster.daemons or ():
        if daemon.kind == "plugin":
            why = against_taints(daemon.placement, node.node.taints)
            why = why or against_labels(daemon.placement, node.node.labels, node.node.name)
            reasons.append(f"{daemon}: {why or 'nothing keeps its pod off, and there is none'}")
    tainted = [taint for taint in node.node.taints if any(str(taint) in reason for reason in reasons)]
    remedy = (
        f"Add a toleration for {tainted[0]} to the DaemonSet." if tainted
        else "Give the Node the label that the DaemonSet selects (nvidia.com/gpu.present=true comes with GPU nodes of Talos), or see why the "
        "DaemonSet controller makes no pod (kubectl describe daemonset)."
    )  # fmt: skip
    return node_check(node, "device plugin", NO, f"no pod of it on this node: {'; '.join(reasons)}", remedy, "plugin_not_scheduled")


def _plugin_pod(node: GpuNodeFacts, pod: DaemonPod) -> GpuCheck:
    if re.search(r'no runtime for "nvidia"', pod.trouble):
        return node_check(
            node, "device plugin", NO, f"{pod.name}: {pod.trouble}",
            "The image has no toolkit extension: see the check extensions. " + _NEW_IMAGE, "no_toolkit",
        )  # fmt: skip
    lines = pod.log or ()
    meaning = meaning_of(lines, PLUGIN)
    registered = says(lines, REGISTERED)
    if meaning is not None and registered <= says(lines, re.escape(meaning.quote[:60])):
        return node_check(
            node, "device plugin", NO, f"{pod.name}: {meaning.text} It says: {meaning.quote}", meaning.remedy, meaning.code
        )
    if not pod.ready:
        return node_check(
            node, "device plugin", NO, f"{pod.name} is {pod.phase} and not ready: {pod.trouble}".rstrip(": "),
            "A pod of the GPU Operator that stays in Init waits for the driver: hostPaths.driverInstallDir=/usr/local on Talos. Otherwise read "
            "its events (kubectl describe pod).",
            "plugin_not_ready",
        )  # fmt: skip
    if pod.log is None:
        return node_check(node, "device plugin", OK, f"{pod.name} is ready; its log: {pod.unread or 'not read'}")
    if not registered:
        return node_check(
            node, "device plugin", WARN, f"{pod.name} is ready, and the end of its log does not say that it registered",
            "If the node shows no GPUs, restart the pod and read its log.", "plugin_not_registered",
        )  # fmt: skip
    return node_check(node, "device plugin", OK, f"{pod.name} is ready and registered")


def _sockets(node: GpuNodeFacts, _cluster: ClusterGpus) -> GpuCheck | None:
    """Only on request, and only Talos can be asked."""
    if node.system is None:
        return None
    unread = dict(node.system.unread).get("sockets")
    if unread is not None:
        return node_check(node, "plugin socket", UNKNOWN, unread)
    if node.system.sockets is None:
        return None
    listed = ", ".join(node.system.sockets) or "nothing"
    if not any("nvidia" in name for name in node.system.sockets):
        return node_check(
            node, "plugin socket", NO, f"no device plugin of NVIDIA listens in {SOCKETS}: {listed}",
            "See the check device plugin. If its pod is ready, see that its DaemonSet mounts this folder of the host.", "no_socket",
        )  # fmt: skip
    return node_check(node, "plugin socket", OK, f"{SOCKETS}: {listed}")


def _gpus(node: GpuNodeFacts, cluster: ClusterGpus) -> GpuCheck:
    shown, capacity = node.shown, whole_gpus(node.capacity)
    sharing = cluster.sharing_of(node.node)
    each = f" × {sharing.replicas} slices" if sharing.replicas > 1 else ""
    if not capacity:
        return node_check(
            node, "GPUs", NO, "the Node shows no nvidia.com/gpu",
            "See the checks above of this node: the plugin shows them when the driver works.", "no_gpus_shown",
        )  # fmt: skip
    if shown < capacity:
        return node_check(
            node, "GPUs", NO, f"{shown} of {capacity} are allocatable: the plugin calls the others unhealthy",
            "Read the kernel's log for XIDs: docs/how_to/node_health.md says which mean a broken machine. The plugin's pod must be restarted "
            "before it counts a GPU as healthy again.",
            "gpus_unhealthy",
        )  # fmt: skip
    if sharing.problem:
        return node_check(node, "GPUs", OK, f"{shown} allocatable; the configuration does not tell how many it should be")
    if node.gpus is None:
        return node_check(node, "GPUs", OK, f"{shown} allocatable{each}")
    wanted = node.gpus * sharing.replicas
    if shown == wanted:
        return node_check(node, "GPUs", OK, f"{shown} allocatable = {node.gpus} GPUs{each}")
    if shown == node.gpus:
        return node_check(
            node, "GPUs", NO, f"{shown} allocatable, and {node.gpus} GPUs{each} would be {wanted}: time-slicing is not in effect",
            "The plugin reads its ConfigMap when it starts: restart its pod. See that the DaemonSet mounts the ConfigMap (CONFIG_FILE).",
            "slices_missing",
        )  # fmt: skip
    if shown > wanted:
        return node_check(
            node, "GPUs", WARN, f"{shown} allocatable, more than {node.gpus} GPUs{each}: the plugin shares them by another configuration",
            "See which ConfigMap the plugin of this node reads.", "slices_unexpected",
        )  # fmt: skip
    return node_check(
        node, "GPUs", NO, f"{shown} allocatable, and {node.gpus} GPUs{each} would be {wanted}",
        "The machine has fewer GPUs than were ordered, or the driver does not see all of them: replace it.", "gpus_missing",
    )  # fmt: skip


def xid_check(node: GpuNodeFacts, _cluster: ClusterGpus) -> GpuCheck | None:
    """Only where a dcgm-exporter runs (L-55)."""
    if node.xids is None:
        return None
    rows = xid_rows(node.xids.last)
    unread = [f"unknown: {node.xids.why}"] if node.xids.why else []
    if not rows:
        known = f"none of {len(node.xids.last)} GPUs has one since its dcgm-exporter started"
        return node_check(node, "XIDs", UNKNOWN if unread else OK, node.xids.why or known)
    seen = "; ".join([*(f"XID {row['xid']} of GPU {row['gpu']}: {row['meaning']}" for row in rows), *unread])
    broken = [row for row in rows if row["kind"] in BROKEN]
    remedy = " ".join(dict.fromkeys(row["remedy"] for row in broken or rows))
    if broken:
        again = "If that is done, restart its dcgm-exporter, which keeps the last XID."
        return node_check(node, "XIDs", NO, seen, f"{remedy} {again}", "xid")
    return node_check(node, "XIDs", WARN, seen, remedy, "xid_seen")


def _power(node: GpuNodeFacts, cluster: ClusterGpus) -> GpuCheck | None:
    """Only where a DaemonSet limits power."""
    daemons = [daemon for daemon in cluster.daemons or () if daemon.kind == "power"]
    if not daemons or cluster.pods is None:
        return None
    here = next((pod for pod in cluster.pods if pod.kind == "power" and pod.node == node.node.name), None)
    if here is None:
        why = against_taints(daemons[0].placement, node.node.taints)
        if why:
            return node_check(
                node,
                "power limit",
                NO,
                f"{daemons[0]} has no pod here: {why}",
                "Add the toleration to its DaemonSet.",
                "power_not_scheduled",
            )
        return None  # it is opt-in by label
    meaning = meaning_of(here.log or (), POWER)
    if meaning is not None:
        return node_check(
            node, "power limit", NO, f"{here.name}: {meaning.text} It says: {meaning.quote}", meaning.remedy, meaning.code
        )
    if not here.ready:
        return node_check(
            node, "power limit", NO, f"{here.name} is {here.phase} and not ready: {here.trouble}".rstrip(": "),
            "Read its events (kubectl describe pod).", "power_not_ready",
        )  # fmt: skip
    if here.log is None:
        return node_check(node, "power limit", UNKNOWN, f"the log of {here.name}: {here.unread or 'not read'}")
    return node_check(node, "power limit", OK, f"{here.name}: {here.log[-1][:160]}" if here.log else f"{here.name} is ready")
