# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of module device_plugin: write the objects of a profile into a folder, or apply them, wait until the plugin is ready and count the
GPUs."""

from __future__ import annotations

import dataclasses
import typing as t
from pathlib import Path

from ..core.errors import InvalidInput, TimedOut
from ..core.task import Task
from ..kube.auth.credentials import connect
from ..kube.client import Json, Kube
from ..kube.nodes import DAEMON_SETS
from ..kube.nodes import PATH as NODES
from ..kube.server_side_apply import apply_for
from ..model import Pool
from ..model.labels import APP_NAME_LABEL, MANAGED_BY_LABEL
from ..observe.documents import load
from ..operations.write_files import NewFile, write_files
from .config import to_yaml
from .gpu_operator import (
    OPERATOR,
    OPERATOR_NAMESPACE,
    RELEASE,
    STANDALONE,
    Chart,
    chosen_profile,
    flux_objects,
    operator_objects,
    operator_values,
)
from .helm import find_helm, install_release
from .kustomize import kustomize_folder
from .manifests import MANAGER, NAME, PluginOptions, daemon_set_name, plugin_objects
from .neighbours import Neighbour, is_power_limit, is_standalone, neighbours_of, others_than_operator
from .options import plugin_options, refuse_mps
from .power_limits import NAMESPACE
from .rollout import (
    GpuNode,
    NodeGpus,
    gpu_node,
    late_pods,
    oldest_talos,
    rolled_out,
    served,
    shown,
    unhealthy_devices,
    unknown_choices,
    wrong_numbers,
)

_DAEMON_SETS = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_OURS = {"labelSelector": f"{APP_NAME_LABEL}={NAME},{MANAGED_BY_LABEL}={MANAGER}"}
_PAUSE = 2.0  # seconds between two looks


def install_device_plugin(task: Task) -> dict[str, t.Any]:
    """The module's result."""
    if task.params["render_to"] and not task.params["documents_from_cluster"]:
        return _render(task, plugin_options(task, _pools(task, None)))
    kube = connect(task)
    try:
        options = plugin_options(task, _pools(task, kube))
        if task.params["render_to"]:
            return _render(task, options)
        daemon_sets = kube.list(DAEMON_SETS)
        options = dataclasses.replace(options, talos_seen=oldest_talos(kube.list(NODES)))
        talos = options.talos or options.talos_seen
        profile = chosen_profile(task.params["profile"], talos, standalone_there=any(map(is_standalone, daemon_sets)))
        if profile == OPERATOR:
            return _install_operator(task, kube, options, daemon_sets)
        refuse_mps(task, options)
        return _install(task, kube, options, daemon_sets)
    finally:
        kube.close()


def _pools(task: Task, kube: Kube | None) -> list[Pool]:
    """The pools of nodes in the documents."""
    return [pool for pool in load(task, kube).pools if pool.service is None]


def _render(task: Task, options: PluginOptions) -> dict[str, t.Any]:
    folder = Path(task.params["render_to"]).expanduser()
    profile = chosen_profile(task.params["profile"], options.talos, standalone_there=False)
    if profile == OPERATOR:
        own = task.params["operator_values"]
        files = kustomize_folder(flux_objects(options, _chart(task), own))
        files["values.yaml"] = to_yaml(operator_values(options, own))
    else:
        refuse_mps(task, options)
        files = kustomize_folder(plugin_objects(options))
    written = write_files(task, {folder / name: NewFile(text.encode()) for name, text in files.items()})
    task.progress(f"Apply it with: kubectl apply -k {folder}")
    return {**_EMPTY, **written, "profile": profile, "files": [str(folder / name) for name in files]}


def _chart(task: Task) -> Chart:
    return Chart(task.params["operator_chart"], task.params["operator_repository"], task.params["operator_version"])


_EMPTY: dict[str, t.Any] = {"objects": [], "nodes": [], "files": [], "profile": STANDALONE}


def _install(task: Task, kube: Kube, options: PluginOptions, daemon_sets: list[Json]) -> dict[str, t.Any]:
    _refuse_neighbours(task, neighbours_of(kube, daemon_sets))
    result = {**_EMPTY, **_apply(task, kube, plugin_objects(options)), "profile": STANDALONE}
    _remove(task, kube, _unwanted(options, daemon_sets, STANDALONE), result)
    return _counted(task, kube, options, result, {daemon_set_name(config.key) for config in options.configs})


def _install_operator(task: Task, kube: Kube, options: PluginOptions, daemon_sets: list[Json]) -> dict[str, t.Any]:
    _refuse_neighbours(task, others_than_operator(daemon_sets))
    find_helm(task)  # before anything is applied
    result = {**_EMPTY, **_apply(task, kube, operator_objects(options)), "profile": OPERATOR}
    upgraded = install_release(task, _chart(task), operator_values(options, task.params["operator_values"]))
    word = "changed" if upgraded else "unchanged"
    result["objects"].append({"kind": "HelmRelease", "namespace": OPERATOR_NAMESPACE, "name": RELEASE, "result": word})
    result["changed"] = bool(result["changed"] or upgraded)
    _remove(task, kube, _unwanted(options, daemon_sets, OPERATOR), result)
    return _counted(task, kube, options, result, set())


def _apply(task: Task, kube: Kube, objects: list[Json]) -> dict[str, t.Any]:
    return apply_for(task, kube, objects, what="the device plugin", otherwise="Change them where they are managed")


def _counted(task: Task, kube: Kube, options: PluginOptions, result: dict[str, t.Any], names: set[str]) -> dict[str, t.Any]:
    """The result with what each node shows, once the DaemonSets of these ``names`` are ready."""
    if not task.check_mode and task.params["timeout"] > 0:
        try:
            found = _wait(task, kube, options, names)
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


def _refuse_neighbours(task: Task, neighbours: list[Neighbour]) -> None:
    """S4-27. With ``force`` they are only a warning."""
    sentences = [f"{one.what} advertises NVIDIA GPUs already. To replace it: {one.move}" for one in neighbours]
    if sentences and not task.params["force"]:
        raise InvalidInput(
            "Two device plugins on a node replace each other at the kubelet, so nothing was installed:",
            problems=sentences,
            remedy=f"Keep what is there, or remove it and run this again. If they serve different nodes, use {task.called('force')}=true.",
        )
    for sentence in sentences:
        task.warn(sentence)


def _unwanted(options: PluginOptions, daemon_sets: list[Json], profile: str) -> list[Json]:
    """DaemonSets of ours: of configurations that are gone, and power limits that are not asked for. The operator leaves the stand-alone
    plugin to its user."""
    configs = {daemon_set_name(config.key) for config in options.configs}
    return [
        one
        for one in daemon_sets
        if (profile == STANDALONE and is_standalone(one) and one["metadata"]["name"] not in configs)
        or (options.power_limits is None and is_power_limit(one))
    ]


def _remove(task: Task, kube: Kube, daemon_sets: list[Json], result: dict[str, t.Any]) -> None:
    """Delete these DaemonSets, and the ConfigMap of power limits with theirs, and add them to the result."""
    for one in daemon_sets:
        name, kinds = one["metadata"]["name"], ["DaemonSet"]
        if not task.check_mode:
            kube.delete(f"{_DAEMON_SETS}/{name}", uid=one["metadata"]["uid"])
        if is_power_limit(one):
            kinds.append("ConfigMap")
            if not task.check_mode:
                kube.delete(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}")
        result["objects"] += [{"kind": kind, "namespace": NAMESPACE, "name": name, "result": "removed"} for kind in kinds]
    result["changed"] = bool(result["changed"] or daemon_sets)


def _wait(task: Task, kube: Kube, options: PluginOptions, names: set[str]) -> list[NodeGpus]:
    """Until the pods of this version are available and every Ready node shows its GPUs: what each shows. TimedOut says what does not."""
    end = task.clock.now().timestamp() + task.params["timeout"]
    said = False
    while True:
        daemon_sets = [one for one in kube.list(_DAEMON_SETS, _OURS) if one["metadata"]["name"] in names] if names else []
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
    for sentence in (*unknown_choices(options, nodes), *unhealthy_devices(found)):
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
