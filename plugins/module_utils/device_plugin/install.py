# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of module device_plugin: write the stand-alone plugin into a folder, or apply it, wait until it is ready and count the GPUs."""

from __future__ import annotations

import typing as t
from pathlib import Path

from ..core.errors import Conflict, InvalidInput, TimedOut
from ..core.task import Task
from ..kube.auth.credentials import connect
from ..kube.client import Json, Kube
from ..kube.nodes import PATH as NODES
from ..kube.server_side_apply import applied_result, apply_objects, conflict_sentence
from ..model import Pool
from ..model.labels import APP_NAME_LABEL, MANAGED_BY_LABEL
from ..observe.documents import load
from ..operations.write_files import NewFile, write_files
from .kustomize import kustomize_folder
from .manifests import MANAGER, NAME, NAMESPACE, PluginOptions, daemon_set_name, plugin_objects
from .neighbours import read_neighbours
from .options import plugin_options
from .power_limits import NAME as POWER_LIMITS
from .rollout import GpuNode, NodeGpus, gpu_node, late_pods, rolled_out, served, shown, unhealthy, unknown_choices, wrong_numbers

_DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_OURS = {"labelSelector": f"{APP_NAME_LABEL}={NAME},{MANAGED_BY_LABEL}={MANAGER}"}
_ALL_OURS = {"labelSelector": f"{MANAGED_BY_LABEL}={MANAGER}"}  # power limits, too
_PAUSE = 2.0  # seconds between two looks


def install_device_plugin(task: Task) -> dict[str, t.Any]:
    """The module's result."""
    if task.params["render_to"] and not task.params["documents_from_cluster"]:
        return _render(task, plugin_options(task, _pools(task, None)))
    kube = connect(task)
    try:
        options = plugin_options(task, _pools(task, kube))
        return _render(task, options) if task.params["render_to"] else _install(task, kube, options)
    finally:
        kube.close()


def _pools(task: Task, kube: Kube | None) -> list[Pool]:
    """The pools of nodes in the documents."""
    return [pool for pool in load(task, kube).pools if pool.service is None]


def _render(task: Task, options: PluginOptions) -> dict[str, t.Any]:
    folder = Path(task.params["render_to"]).expanduser()
    files = kustomize_folder(plugin_objects(options))
    written = write_files(task, {folder / name: NewFile(text.encode()) for name, text in files.items()})
    task.progress(f"Apply it with: kubectl apply -k {folder}")
    return {**_EMPTY, **written, "files": [str(folder / name) for name in files]}


_EMPTY: dict[str, t.Any] = {"objects": [], "nodes": [], "files": []}


def _install(task: Task, kube: Kube, options: PluginOptions) -> dict[str, t.Any]:
    _refuse_neighbours(task, kube)
    objects = plugin_objects(options)
    try:
        applied = apply_objects(kube, objects, force=task.params["force"], dry_run=task.check_mode)
    except Conflict as error:
        raise Conflict(
            f"Another field manager owns fields of the device plugin: {conflict_sentence(error)}.",
            remedy=f"Change them where they are managed, or take them over with {task.called('force')}=true.",
            service="kubernetes",
            status=error.status,
        ) from error
    result = {**_EMPTY, **applied_result(task, applied)}
    removed = _remove_others(task, kube, options)
    result["objects"] += [{"kind": kind, "namespace": NAMESPACE, "name": name, "result": "removed"} for kind, name in removed]
    result["changed"] = bool(result["changed"] or removed)
    if not task.check_mode and task.params["timeout"] > 0:
        try:
            found = _wait(task, kube, options)
        except TimedOut as error:
            error.result = {**result, **(error.result or {})}
            raise
        result["nodes"] = [_row(one) for one in found]
        for one in found:
            task.progress(f"  {one.node:<34} {one.capacity} {one.resource}")
    return result


def _row(one: NodeGpus) -> dict[str, t.Any]:
    return {
        "name": one.node,
        "config": one.config,
        "resource": one.resource,
        "gpus": one.gpus,
        "capacity": one.capacity,
        "allocatable": one.allocatable,
    }


def _refuse_neighbours(task: Task, kube: Kube) -> None:
    """S4-27. With ``force`` they are only a warning."""
    neighbours = read_neighbours(kube)
    sentences = [f"{one.what} advertises NVIDIA GPUs already. To replace it: {one.move}" for one in neighbours]
    if sentences and not task.params["force"]:
        raise InvalidInput(
            "Two device plugins on a node replace each other at the kubelet, so nothing was installed:",
            problems=sentences,
            remedy=f"Keep what is there, or remove it and run this again. If they serve different nodes, use {task.called('force')}=true.",
        )
    for sentence in sentences:
        task.warn(sentence)


def _remove_others(task: Task, kube: Kube, options: PluginOptions) -> list[tuple[str, str]]:
    """DaemonSets of configurations that are gone, and power limits that are not wanted: kinds and names. Those of other owners stay."""
    wanted = {daemon_set_name(config.key) for config in options.configs}
    if options.power_limits is not None:
        wanted.add(POWER_LIMITS)
    removed = []
    for one in kube.list(_DAEMON_SETS, _ALL_OURS):
        name = one["metadata"]["name"]
        if name in wanted:
            continue
        removed.append(("DaemonSet", name))
        if not task.check_mode:
            kube.delete(f"{_DAEMON_SETS}/{name}", uid=one["metadata"]["uid"])
        if name == POWER_LIMITS:
            removed.append(("ConfigMap", name))
            if not task.check_mode:
                kube.delete(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}")
    return removed


def _wait(task: Task, kube: Kube, options: PluginOptions) -> list[NodeGpus]:
    """Until the pods of this version are available and every Ready node shows its GPUs: what each shows. TimedOut says what does not."""
    names = {daemon_set_name(config.key) for config in options.configs}
    end = task.clock.now().timestamp() + task.params["timeout"]
    said = False
    while True:
        daemon_sets = [one for one in kube.list(_DAEMON_SETS, _OURS) if one["metadata"]["name"] in names]
        nodes = [gpu_node(one) for one in kube.list(NODES)]
        found = shown(served(options, nodes))
        ready = len(daemon_sets) == len(names) and all(map(rolled_out, daemon_sets))
        if ready and not wrong_numbers(found):
            _note(task, options, nodes, found)
            return found
        if task.clock.now().timestamp() >= end:
            raise _timed_out(task, kube, nodes, found, ready)
        if not said:
            task.progress(f"Waiting for the device plugin on {len(found)} node(s), at most {task.params['timeout']} s")
            said = True
        task.clock.sleep(_PAUSE)


def _note(task: Task, options: PluginOptions, nodes: list[GpuNode], found: list[NodeGpus]) -> None:
    for sentence in (*unknown_choices(options, nodes), *unhealthy(found)):
        task.warn(sentence)
    if not found:
        labels = ", ".join(f"{key}={value}" for key, value in sorted(options.selector.items()))
        task.progress(f"No Ready node has {labels} yet: the plugin starts on nodes as they join.")


def _timed_out(task: Task, kube: Kube, nodes: list[GpuNode], found: list[NodeGpus], ready: bool) -> TimedOut:
    pods: list[Json] = [] if ready else kube.list(_PODS, _OURS)
    problems = [*late_pods(pods, nodes), *wrong_numbers(found)] or [
        f"the DaemonSets do not report their pods. Look: kubectl describe daemonset --namespace {NAMESPACE}"
    ]
    text = "\n".join(f"  - {one}" for one in dict.fromkeys(problems))
    return TimedOut(
        f"The device plugin is installed and not ready after {task.params['timeout']} s. Run this again to go on waiting.\n{text}",
        result={"nodes": [_row(one) for one in found]},
    )
