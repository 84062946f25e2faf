# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of what all nodes share: RuntimeClass, device plugins, the plugin's configuration, and the test pods."""

from __future__ import annotations

import typing as t

from ...model.labels import DEVICE_PLUGIN_CONFIG_LABEL
from .facts import NO, OK, UNKNOWN, WARN, ClusterGpus, GpuCheck, GpuDaemon

RUNTIME = "nvidia"


def cluster_checks(cluster: ClusterGpus) -> t.Iterator[GpuCheck]:
    for rule in (_plugins, _runtime_class, _config, _objects, _tests):
        check = rule(cluster)
        if check is not None:
            yield check


def _row(check: str, state: str, seen: str, remedy: str = "", code: str = "") -> GpuCheck:
    return GpuCheck("cluster", check, state, seen, remedy, code)


def _plugins(cluster: ClusterGpus) -> GpuCheck:
    if cluster.daemons is None:
        return _row("device plugins", UNKNOWN, cluster.why_unread("DaemonSets"))
    plugins = [daemon for daemon in cluster.daemons if daemon.kind == "plugin"]
    if not plugins:
        return _row(
            "device plugins", NO, "no DaemonSet of a known device plugin",
            "Install one: ansible-playbook tgp.gpu.device_plugin, or NVIDIA's GPU Operator (docs/how_to/talos.md).", "no_plugin",
        )  # fmt: skip
    named = ", ".join(f"{daemon} ({daemon.origin})" for daemon in plugins)
    if len({daemon.origin for daemon in plugins}) > 1:
        return _row(
            "device plugins", WARN, f"more than one: {named}; on a node with both, each registers nvidia.com/gpu again and again",
            "Keep one. NVIDIA tells users of the GPU Operator to remove the stand-alone plugin first.", "two_plugins",
        )  # fmt: skip
    return _row("device plugins", OK, named)


def _runtime_class(cluster: ClusterGpus) -> GpuCheck:
    classes = cluster.runtime_classes
    if classes is None:
        return _row("RuntimeClass", UNKNOWN, cluster.why_unread("RuntimeClasses"))
    handler = classes.get(RUNTIME)
    users = _users(cluster)
    if handler is None:
        if users:
            return _row(
                "RuntimeClass", NO, f"there is no RuntimeClass nvidia, and {users[0]} names it: such pods are refused",
                "Create it with handler nvidia: ansible-playbook tgp.gpu.device_plugin does, and so does the GPU Operator.", "no_runtime_class",
            )  # fmt: skip
        return _row("RuntimeClass", WARN, "there is no RuntimeClass nvidia; pods can only get GPUs by CDI", code="no_runtime_class")
    if handler != RUNTIME:
        return _row(
            "RuntimeClass", NO, f"its handler is {handler}; the toolkit names its runtime nvidia in containerd",
            "Delete the RuntimeClass and create it with handler nvidia (it cannot be changed).", "runtime_handler",
        )  # fmt: skip
    return _row("RuntimeClass", OK, "nvidia, handler nvidia")


def _users(cluster: ClusterGpus) -> list[str]:
    daemons = [f"DaemonSet {daemon}" for daemon in cluster.daemons or () if daemon.runtime_class == RUNTIME]
    return [*daemons, *(f"pod {pod.name}" for pod in cluster.pending or () if pod.runtime_class == RUNTIME)]


def _config(cluster: ClusterGpus) -> GpuCheck | None:
    readers = [daemon for daemon in cluster.daemons or () if daemon.kind == "plugin" and daemon.config_map]
    if not readers:
        return None
    if cluster.config is None:
        return _no_config(cluster, readers[0])
    config = cluster.config
    broken = {key: sharing.problem for key, sharing in config.keys.items() if sharing.problem}
    if broken:
        said = "; ".join(f"{key}: {problem}" for key, problem in sorted(broken.items()))
        return _row(
            "plugin configuration", NO, f"ConfigMap {config.name}: {said}",
            "Correct it (NVIDIA's format: version v1, sharing.timeSlicing.resources), then restart the plugin's pods.", "config_invalid",
        )  # fmt: skip
    unknown = sorted(
        {key for node in cluster.nodes if (key := node.node.labels.get(DEVICE_PLUGIN_CONFIG_LABEL)) and key not in config.keys}
    )
    if unknown:
        return _row(
            "plugin configuration", NO, f"ConfigMap {config.name} has no key {', '.join(unknown)}, which labels of nodes name",
            "Add the key, or correct the label nvidia.com/device-plugin.config of the node.", "config_key_missing",
        )  # fmt: skip
    words = [f"{key}: {sharing.replicas} slices" for key, sharing in sorted(config.keys.items()) if sharing.replicas > 1]
    return _row("plugin configuration", OK, f"ConfigMap {config.name}, {', '.join(words) or 'whole GPUs'}")


def _no_config(cluster: ClusterGpus, reader: GpuDaemon) -> GpuCheck:
    unread = dict(cluster.unread).get("ConfigMap")
    if unread:
        return _row("plugin configuration", UNKNOWN, unread)
    return _row(
        "plugin configuration", NO, f"DaemonSet {reader} names the ConfigMap {reader.config_map}, which does not exist",
        "Create it: ansible-playbook tgp.gpu.device_plugin. Without it the plugin's pod does not start.", "no_config",
    )  # fmt: skip


def _objects(cluster: ClusterGpus) -> GpuCheck | None:
    """Only on request."""
    unread = dict(cluster.unread).get("objects")
    if cluster.objects is None and unread is None:
        return None
    return _row("objects", UNKNOWN if unread else OK, unread or ", ".join(cluster.objects or ("none",)))


def _tests(cluster: ClusterGpus) -> GpuCheck | None:
    if cluster.tests is None:
        return None
    failed = [run for run in cluster.tests if not run.passed]
    if not failed:
        nodes = ", ".join(sorted({run.node for run in cluster.tests if run.node}))
        return _row("GPU test", OK, f"{len(cluster.tests)} pods shared GPUs on {nodes or 'a node'} and passed")
    paths = {run.path for run in failed}
    alone = f"only pods of the {paths.pop()} path failed" if len(paths) == 1 and len(failed) < len(cluster.tests) else ""
    remedy = {
        "only pods of the CDI path failed": "The device plugin or CDI injects nothing: see the checks CDI and device plugin.",
        "only pods of the wrapper path failed": "The runtime nvidia does not work: see the checks RuntimeClass and extensions.",
    }.get(alone, "See the other checks; kubectl describe pod says more of a pod that did not start.")
    said = "; ".join(f"{run.name} ({run.path}): {run.seen}" for run in failed)
    return _row("GPU test", NO, f"{len(failed)} of {len(cluster.tests)} failed. {said}", remedy, "test_failed")
