# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``state: absent`` of module device_plugin: what this collection applied goes, by name and label, and nothing else. Pods that use GPUs of it
come first."""

from __future__ import annotations

import typing as t

from ..core.errors import InvalidInput, NotFound, lazy
from ..core.events import render
from ..core.task import Task
from ..kube import pods
from ..kube.auth.credentials import connect
from ..kube.client import Json, Kube
from ..kube.nodes import DAEMON_SETS
from ..model import Pod
from ..model.labels import APP_NAME_LABEL, MANAGED_BY_LABEL
from .gpu_operator import OPERATOR, OPERATOR_NAMESPACE, RELEASE, STANDALONE
from .helm import find_helm, uninstall_release
from .manifests import CONFIG_MAP, MANAGER, METRICS_SERVICE, NAME, RUNTIME_CLASS
from .neighbours import is_power_limit, is_standalone
from .power_limits import NAME as POWER_LIMITS
from .power_limits import NAMESPACE

if t.TYPE_CHECKING:
    import yaml
else:
    yaml = lazy("yaml", "pyyaml")

_COLUMNS = {"kind": "kind", "namespace": "namespace", "name": "name", "result": "result"}
_RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
# what else may be in a namespace; pods, which mostly have an owner, and DaemonSets are listed in any case
_KEPT_IN_NAMESPACES = (
    "/api/v1/namespaces/{}/configmaps", "/api/v1/namespaces/{}/secrets", "/api/v1/namespaces/{}/services",
    "/api/v1/namespaces/{}/persistentvolumeclaims", "/apis/apps/v1/namespaces/{}/deployments",
    "/apis/apps/v1/namespaces/{}/statefulsets", "/apis/batch/v1/namespaces/{}/jobs", "/apis/batch/v1/namespaces/{}/cronjobs",
)  # fmt: skip
_OF_EVERY_NAMESPACE = ("kube-root-ca.crt",)
_OPERATOR_PLUGIN = {"app": "nvidia-device-plugin-daemonset"}  # labels of the pods of the GPU Operator's own plugin
_MOST_NAMED = 10
_PAUSE = 2.0  # seconds between two looks


class AppliedHere(t.NamedTuple):
    """An object that this collection applied."""

    kind: str
    path: str
    body: Json

    @property
    def row(self) -> Json:
        meta = self.body["metadata"]
        return {"kind": self.kind, "namespace": str(meta.get("namespace") or ""), "name": meta["name"], "result": "removed"}


def remove_device_plugin(task: Task) -> dict[str, t.Any]:
    """The module's result. InvalidInput while pods use GPUs of the plugin, unless it is forced."""
    if task.params["render_to"]:
        raise InvalidInput(
            f"{task.called('render_to')} and {task.called('state')}=absent exclude each other.",
            remedy="Remove what was applied from a folder with: kubectl delete -k FOLDER.",
        )
    kube = connect(task)
    try:
        return _remove(task, kube)
    finally:
        kube.close()


def _remove(task: Task, kube: Kube) -> dict[str, t.Any]:
    daemon_sets = kube.list(DAEMON_SETS)
    found = _standalone(kube, daemon_sets)
    operator = _found(kube, "ConfigMap", f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/configmaps/{CONFIG_MAP}")
    listed = pods.pods(kube)
    if operator is not None or any(map(is_standalone, (one.body for one in found))):
        _refuse_used(task, listed, operator=operator is not None)
    found += _runtime_class(task, kube, daemon_sets)
    helm = find_helm(task) if operator is not None else ""  # before anything is removed
    rows = []
    if helm and uninstall_release(task, helm):
        rows.append({"kind": "HelmRelease", "namespace": OPERATOR_NAMESPACE, "name": RELEASE, "result": "removed"})
    found += [operator] if operator is not None else []
    for one in found:
        _delete(task, kube, one)
    spaces = _namespaces(task, kube, found, daemon_sets, listed)
    for one in spaces:
        _delete(task, kube, one)
    rows += [one.row for one in (*found, *spaces)]
    for line in render(rows, _COLUMNS) if rows else ["Nothing of this collection's device plugin is in the cluster."]:
        task.progress(line)
    _wait_until_gone(task, kube, spaces)
    profile = OPERATOR if operator is not None else STANDALONE
    result: dict[str, t.Any] = {"changed": bool(rows), "profile": profile, "objects": rows, "nodes": [], "files": []}
    if task.diff_mode:
        result["diff"] = [_difference(one) for one in (*found, *spaces)]
    return result


# ---- what is ours


def _standalone(kube: Kube, daemon_sets: t.Iterable[Json]) -> list[AppliedHere]:
    """All but namespace and RuntimeClass, in the order in which they go: what starts pods first."""
    own = [one for one in daemon_sets if is_standalone(one) or is_power_limit(one)]
    found = [
        AppliedHere("DaemonSet", f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{one['metadata']['name']}", one)
        for one in own
        if not _is_going(one)
    ]
    places = [("Service", "services", METRICS_SERVICE), *(("ConfigMap", "configmaps", name) for name in (CONFIG_MAP, POWER_LIMITS))]
    for kind, plural, name in places:
        one = _found(kube, kind, f"/api/v1/namespaces/{NAMESPACE}/{plural}/{name}")
        found += [one] if one is not None else []
    return found


def _runtime_class(task: Task, kube: Kube, daemon_sets: t.Iterable[Json]) -> list[AppliedHere]:
    """The RuntimeClass, unless a DaemonSet that stays runs its pods by it."""
    one = _found(kube, "RuntimeClass", f"{_RUNTIME_CLASSES}/{RUNTIME_CLASS}")
    users = [
        f"{other['metadata']['namespace']}/{other['metadata']['name']}"
        for other in daemon_sets
        if other["spec"]["template"]["spec"].get("runtimeClassName") == RUNTIME_CLASS
        and not (is_standalone(other) or is_power_limit(other))
    ]
    if one is None:
        return []
    if users:
        task.warn(f"RuntimeClass {RUNTIME_CLASS} stays: DaemonSet {', '.join(users)} runs its pods by it.")
        return []
    return [one]


def _found(kube: Kube, kind: str, path: str) -> AppliedHere | None:
    """The object at this path, if it is there, ours, and not on its way out."""
    body = kube.find(path)
    return AppliedHere(kind, path, body) if body is not None and _is_ours(body) and not _is_going(body) else None


def _is_ours(body: Json) -> bool:
    return bool((body["metadata"].get("labels") or {}).get(MANAGED_BY_LABEL) == MANAGER)


def _is_going(body: Json) -> bool:
    return bool(body["metadata"].get("deletionTimestamp"))


# ---- who uses it


def _refuse_used(task: Task, listed: t.Sequence[Pod], *, operator: bool) -> None:
    users = users_of(listed, operator=operator)
    if not users:
        return
    sentences = [f"pod {pod.namespace}/{pod.name} on node {pod.node}" for pod in users[:_MOST_NAMED]]
    if len(users) > _MOST_NAMED:
        sentences.append(f"and {len(users) - _MOST_NAMED} more")
    if not task.params["force"]:
        raise InvalidInput(
            "Pods use GPUs of the device plugin, so nothing was removed:",
            problems=sentences,
            remedy=f"End them first, or use {task.called('force')}=true: they keep their GPUs while they run, and no pod gets one after them.",
        )
    for sentence in sentences:
        task.warn(f"It uses GPUs of the device plugin that is removed: {sentence}.")


def users_of(listed: t.Sequence[Pod], *, operator: bool) -> list[Pod]:
    """Pods that have NVIDIA GPUs on the nodes on which the plugin runs. Those on nodes of other plugins are not meant."""
    served = {pod.node for pod in listed if pod.node and _is_plugin(pod, operator=operator)}
    return [
        pod
        for pod in listed
        if pod.node in served
        and not pod.ended
        and any(name.startswith("nvidia.com/") and many for name, many in pod.requests.items())
    ]


def _is_plugin(pod: Pod, *, operator: bool) -> bool:
    if operator and pod.namespace == OPERATOR_NAMESPACE:
        return _OPERATOR_PLUGIN.items() <= pod.labels.items()
    return pod.namespace == NAMESPACE and {APP_NAME_LABEL: NAME, MANAGED_BY_LABEL: MANAGER}.items() <= pod.labels.items()


# ---- namespaces


def _namespaces(
    task: Task, kube: Kube, found: t.Sequence[AppliedHere], daemon_sets: t.Sequence[Json], listed: t.Sequence[Pod]
) -> list[AppliedHere]:
    """Ours in which nothing of others is."""
    going = {str(one.body["metadata"]["uid"]) for one in found}
    spaces = []
    for name in (NAMESPACE, OPERATOR_NAMESPACE):
        one = _found(kube, "Namespace", f"/api/v1/namespaces/{name}")
        if one is None:
            continue
        inside = [f"pod {pod.name}" for pod in listed if pod.namespace == name and not pod.owner_kind and pod.deletion is None]
        inside += [f"DaemonSet {other['metadata']['name']}" for other in daemon_sets if _stays(other, name, going)]
        for place in _KEPT_IN_NAMESPACES if not inside else ():
            kind = place.rpartition("/")[2]
            inside += [
                f"{kind}/{other['metadata']['name']}" for other in _listed(kube, place.format(name)) if _stays(other, name, going)
            ]
        if inside:
            task.warn(f"Namespace {name} stays: {', '.join(inside[:3])} in it is not of this collection.")
        else:
            spaces.append(one)
    return spaces


def _listed(kube: Kube, path: str) -> list[Json]:
    try:
        return kube.list(path)
    except NotFound:  # a kind that this API server does not serve
        return []


def _stays(body: Json, namespace: str, going: t.Container[str]) -> bool:
    """Whether it is in the namespace and outlives the run: not ours, not of the Helm release, and without an owner that takes it along."""
    meta = body["metadata"]
    of_release = (meta.get("annotations") or {}).get("meta.helm.sh/release-name") == RELEASE
    taken_along = meta.get("ownerReferences") or of_release or (meta.get("labels") or {}).get("owner") == "helm"
    return bool(
        meta["namespace"] == namespace
        and meta["uid"] not in going
        and meta["name"] not in _OF_EVERY_NAMESPACE
        and not taken_along
        and not _is_going(body)
    )


def _wait_until_gone(task: Task, kube: Kube, spaces: t.Sequence[AppliedHere]) -> None:
    """A namespace takes its pods along and is there until they are gone; before that nothing can be installed in it again."""
    end = task.clock.now().timestamp() + task.params["timeout"]
    left = [] if task.check_mode or task.params["timeout"] <= 0 else list(spaces)
    while left := [one for one in left if kube.find(one.path) is not None]:
        if task.clock.now().timestamp() >= end:
            names = ", ".join(one.body["metadata"]["name"] for one in left)
            task.warn(f"Namespace {names} is not gone yet after {task.params['timeout']} s: its pods are still ending.")
            return
        task.clock.sleep(_PAUSE)


# ---- the end of one object


def _delete(task: Task, kube: Kube, one: AppliedHere) -> None:
    if not task.check_mode:
        kube.delete(one.path, uid=one.body["metadata"]["uid"])


def _difference(one: AppliedHere) -> dict[str, str]:
    meta = {key: value for key, value in one.body["metadata"].items() if key != "managedFields"}
    body = {key: value for key, value in one.body.items() if key != "status"}
    place = f"{one.row['namespace']}/" if one.row["namespace"] else ""
    header = f"{one.kind} {place}{meta['name']}"
    return {"before_header": header, "after_header": header, "before": yaml.safe_dump({**body, "metadata": meta}), "after": ""}
