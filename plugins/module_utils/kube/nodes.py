# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes: read as our records, changed only in the keys that are ours, deleted only when they are the very object that was meant."""

from __future__ import annotations

import random
import re
import typing as t
from datetime import datetime

from ..core.clock import from_text
from ..core.errors import ApiError, Conflict, InvalidInput, TgpError
from ..model import DevicePlugin, DevicePlugins, Node, StatusCondition, Taint
from ..model.labels import (
    EXCLUDE_FROM_LOAD_BALANCERS_LABEL,
    GPU_PRESENT_LABEL,
    INSTANCE_TYPE_LABEL,
    TOPOLOGY_REGION_LABEL,
    TOPOLOGY_ZONE_LABEL,
)
from ..model.resources import NVIDIA_GPU
from ..units.values import whole
from .client import Json, Kube, causes_of
from .pods import placement_of

PATH = "/api/v1/nodes"
#: domains whose labels, annotations and taints we may change, and the single foreign keys that the rules name
OWN_DOMAINS = ("tgp.io",)
OWN_KEYS = frozenset(
    {
        INSTANCE_TYPE_LABEL,
        TOPOLOGY_REGION_LABEL,
        TOPOLOGY_ZONE_LABEL,
        EXCLUDE_FROM_LOAD_BALANCERS_LABEL,
        GPU_PRESENT_LABEL,
        NVIDIA_GPU,
    }
)
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")  # "." and ".." would be the collection, and what is above it
_TRIES = 6  # of a read-modify-write that conflicts


def nodes(kube: Kube, *, selector: str = "") -> list[Node]:
    """All Nodes, or those of a label selector."""
    return kube.collect(PATH, lambda item: parse(kube, item), {"labelSelector": selector} if selector else None)[0]


def get_node(kube: Kube, name: str) -> Node | None:
    """One Node, None when it does not exist."""
    raw = kube.find(path_of(name))
    return parse(kube, raw) if raw is not None else None


def path_of(name: str) -> str:
    """The API path of a Node. A name that is not a Kubernetes name is refused, so that it cannot lead to another path."""
    if len(name) > 253 or not _NAME.fullmatch(name):
        raise InvalidInput(f"{name!r} is not a name of a Node.")
    return f"{PATH}/{name}"


def parse(kube: Kube, raw: Json) -> Node:
    """A raw Node as our record. BadShape when a field that every Node has is missing."""
    meta = raw.get("metadata") or {}
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    try:
        listed: list[Json] = status.get("conditions") or []
        condition: Json = next((entry for entry in listed if entry["type"] == "Ready"), {})
        info = status.get("nodeInfo") or {}
        return Node(
            name=meta["name"],
            uid=meta["uid"],
            created=from_text(meta["creationTimestamp"]),
            ready={"True": True, "False": False}.get(condition.get("status", "")),
            ready_since=_moment(condition.get("lastTransitionTime")),
            ready_message=str(condition.get("message") or condition.get("reason") or ""),
            unschedulable=bool(spec.get("unschedulable")),
            labels=meta.get("labels") or {},
            annotations=meta.get("annotations") or {},
            taints=tuple(taint(entry) for entry in spec.get("taints") or []),
            allocatable={name: whole(str(text), name) for name, text in (status.get("allocatable") or {}).items()},
            addresses=tuple(address["address"] for address in status.get("addresses") or []),
            os_image=info.get("osImage") or "",
            kubelet_version=info.get("kubeletVersion") or "",
            resource_version=meta.get("resourceVersion") or "",
            conditions=tuple(_condition(entry) for entry in listed if entry["type"] != "Ready"),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise kube.api.bad_shape(f"GET {PATH}", f"the Node {meta.get('name', '?')} has an odd field: {error!r}") from error


def taint(raw: Json) -> Taint:
    """A raw taint as our record."""
    return Taint(raw["key"], raw.get("value") or "", raw["effect"], _moment(raw.get("timeAdded")))


def _condition(raw: Json) -> StatusCondition:
    status, reason, message = (str(raw.get(key) or "") for key in ("status", "reason", "message"))
    return StatusCondition(raw["type"], status, reason, message, _moment(raw.get("lastTransitionTime")))


def _moment(text: str | None) -> datetime | None:
    return from_text(text) if text else None


# ---- changes


def annotate(kube: Kube, name: str, values: t.Mapping[str, str | None], *, uid: str = "") -> bool:
    """Set or (None) remove annotations of ours. Returns whether anything had to be written. NotFound / Conflict like :func:`change`."""
    return change(kube, name, uid=uid, annotations=values)


def label(kube: Kube, name: str, values: t.Mapping[str, str | None], *, uid: str = "") -> bool:
    """The same for labels."""
    return change(kube, name, uid=uid, labels=values)


def cordon(kube: Kube, name: str, *, uid: str = "") -> bool:
    """Keep new pods off. False when it was so already."""
    return change(kube, name, uid=uid, unschedulable=True)


def uncordon(kube: Kube, name: str, *, uid: str = "") -> bool:
    """Let pods come again. False when it was so already."""
    return change(kube, name, uid=uid, unschedulable=False)


def change(
    kube: Kube,
    name: str,
    *,
    uid: str = "",
    labels: t.Mapping[str, str | None] | None = None,
    annotations: t.Mapping[str, str | None] | None = None,
    add_taints: t.Iterable[Taint] = (),
    remove_taints: t.Iterable[str] = (),
    unschedulable: bool | None = None,
    allow: t.Container[str] = (),
    dry_run: bool = False,
    base: Json | None = None,
) -> bool:
    """One read and at most one write that makes all of these so; nothing is written when they are so already.

    None as a value removes a label or annotation; ``remove_taints`` are keys. ``allow`` are further keys (a pool's own labels and
    taints) that may be changed besides ours. ``base`` is the raw Node as just read or written, to save the read. NotFound when
    there is no such Node; Conflict when ``uid`` is given and another Node has taken the name. A write that conflicts is redone from a
    fresh read.
    """
    added, removed = tuple(add_taints), tuple(remove_taints)
    keys = [*(labels or {}), *(annotations or {}), *(node_taint.key for node_taint in added), *removed]
    if foreign := sorted({key for key in keys if not is_ours(key) and key not in allow}):
        raise InvalidInput(f"{name}: refused to change keys that are not ours: {', '.join(foreign)}.")
    for attempt in range(_TRIES):
        raw = base if attempt == 0 and base is not None else kube.get(path_of(name))
        if uid and raw["metadata"].get("uid") != uid:
            raise Conflict(
                f"{name}: another Node has taken this name (uid {raw['metadata'].get('uid')}, expected {uid}).", status=409
            )
        body = _difference(raw, labels or {}, annotations or {}, added, removed, unschedulable)
        if body is None:
            return False
        try:
            kube.patch(path_of(name), body, dry_run=dry_run)
            return True
        except Conflict as error:
            last: TgpError = error
            _pause(kube, attempt)
    raise last


def advertise(kube: Kube, node: Node, resource: str, amount: int) -> Json | None:
    """Let the Node offer ``amount`` of an extended resource of ours. At most one write and no read: ``node``, as it was read last, says
    whether it does so already (None). Returns the raw Node as the write left it, a ``base`` for :func:`change`.

    Capacity is what counts: the kubelet keeps what it does not know of there, and works out what is allocatable of it. That is written,
    too, so that the scheduler need not wait for the kubelet. NotFound and Conflict like :func:`change`; InvalidInput for a resource of
    others.
    """
    if resource.partition("/")[0] not in OWN_DOMAINS:
        raise InvalidInput(f"{node.name}: refused to offer {resource}, which is not ours.")
    if node.allocatable.get(resource, 0) == amount:
        return None
    offered = {resource: str(amount)}
    body = {"metadata": {"uid": node.uid}, "status": {"capacity": offered, "allocatable": offered}}
    for attempt in range(_TRIES):
        try:
            return kube.patch(f"{path_of(node.name)}/status", body)
        except Conflict as error:
            last: TgpError = error
            _pause(kube, attempt)
        except ApiError as error:
            if error.status == 422 and _is_refused(error, "metadata.uid"):  # to the API server, a new uid for the Node of this name
                raise Conflict(f"{node.name}: another Node has taken this name (expected uid {node.uid}).", status=409) from error
            raise
    raise last


def _pause(kube: Kube, attempt: int) -> None:
    """After a conflict: others write at the same moment."""
    kube.clock.sleep(random.uniform(0.05, 0.2) * (attempt + 1) * kube.clock.speed)


def _is_refused(error: ApiError, field: str) -> bool:
    """True when the API server named this field of an invalid object."""
    return any(cause.get("field") == field for cause in causes_of(error))


def _difference(
    raw: Json,
    labels: t.Mapping[str, str | None],
    annotations: t.Mapping[str, str | None],
    added: tuple[Taint, ...],
    removed: tuple[str, ...],
    unschedulable: bool | None,
) -> Json | None:
    """The merge patch that is missing, None when nothing is. A change of the taint list (a list is replaced as a whole) carries the
    resourceVersion, so that a taint that another client adds at the same moment is not lost."""
    meta, spec = raw["metadata"], raw.get("spec") or {}
    new_meta: Json = {}
    for kind, wanted in (("labels", labels), ("annotations", annotations)):
        have = meta.get(kind) or {}
        changes = {key: value for key, value in wanted.items() if have.get(key) != value}
        if changes:
            new_meta[kind] = changes
    new_spec: Json = {}
    if unschedulable is not None and bool(spec.get("unschedulable")) != unschedulable:
        new_spec["unschedulable"] = unschedulable or None
    have_taints = spec.get("taints") or []
    want_taints = merged_taints(have_taints, added, removed)
    if want_taints != have_taints:
        new_spec["taints"] = want_taints or None
        new_meta["resourceVersion"] = meta.get("resourceVersion")
    body = {key: value for key, value in (("metadata", new_meta), ("spec", new_spec)) if value}
    return body or None


def merged_taints(have: list[Json], added: t.Iterable[Taint], removed: t.Iterable[str]) -> list[Json]:
    """The raw taint list with ``removed`` keys gone and ``added`` present; a taint is identified by key and effect. The order and
    all foreign taints stay."""
    gone, new = set(removed), {(node_taint.key, node_taint.effect): node_taint for node_taint in added}
    result = []
    for raw in have:
        ours = new.pop((raw["key"], raw["effect"]), None)
        if ours is not None:
            result.append(raw if (raw.get("value") or "") == ours.value else _raw(ours))
        elif raw["key"] not in gone:
            result.append(raw)
    return result + [_raw(node_taint) for node_taint in new.values()]


def _raw(node_taint: Taint) -> Json:
    return {"key": node_taint.key, "effect": node_taint.effect, **({"value": node_taint.value} if node_taint.value else {})}


def is_ours(key: str) -> bool:
    """True for a label, annotation or taint key that we may change by ourselves."""
    return key in OWN_KEYS or key.partition("/")[0] in OWN_DOMAINS


def delete_node(kube: Kube, name: str, *, uid: str) -> bool:
    """Delete this very Node. False when it is gone already, Conflict when another Node has taken the name."""
    if not uid:
        raise InvalidInput(f"{name}: a Node is deleted only by name and UID.")
    return kube.delete(path_of(name), uid=uid)


def older_than(node: Node, moment: datetime | None) -> bool:
    """True for a Node that existed before ``moment`` (a stale Node of an earlier machine). The API counts whole seconds."""
    return moment is not None and node.created < moment.replace(microsecond=0)


# ---- the DaemonSets of the cluster that advertise GPUs, known by the images and names of the usual device plugins and DRA drivers

DAEMON_SETS = "/apis/apps/v1/daemonsets"
_VENDORS = ("nvidia", "k8s-device-plugin", "gpu", "amd", "rocm")


def device_plugins(kube: Kube) -> DevicePlugins:
    """What was found, or why the list could not be read."""
    try:
        return DevicePlugins(tuple(kube.collect(DAEMON_SETS, device_plugin_of)[0]))
    except (TgpError, KeyError, TypeError, AttributeError) as error:
        return DevicePlugins(problem=str(error) or repr(error))


def device_plugin_of(raw: Json) -> DevicePlugin | None:
    """The record of a raw DaemonSet; None when it advertises no GPUs."""
    meta, spec = raw["metadata"], raw["spec"]["template"]["spec"]
    name = meta["name"]
    images = " ".join(str(container.get("image") or "") for container in spec.get("containers") or ())
    text = f"{name} {images}"
    dra = "dra-driver" in text
    plugin = "device-plugin" in text and "feature-discovery" not in name and "mps" not in name
    if not (dra or plugin) or not any(word in text for word in _VENDORS):
        return None
    return DevicePlugin(meta["namespace"], name, placement_of(spec, meta["namespace"]), dra)


# ---- volumes that are still attached to a node

_PATH = "/apis/storage.k8s.io/v1/volumeattachments"


def attached_volumes(kube: Kube, node: str) -> list[str]:
    """Names of the persistent volumes (or of the attachment, where it names none) attached to ``node``, sorted."""

    def reduce(item: Json) -> str | None:
        spec = item.get("spec") or {}
        if spec.get("nodeName") != node or (item.get("status") or {}).get("attached") is False:
            return None
        return str((spec.get("source") or {}).get("persistentVolumeName") or item["metadata"]["name"])

    return sorted(kube.collect(_PATH, reduce)[0])


def nodes_are_bound(kube: Kube, namespace: str, binding: str) -> bool:
    """Whether a RoleBinding with a role of the same name is there and holds for all kubelets."""
    raw = kube.find(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings/{binding}") or {}
    groups = {subject.get("name") for subject in raw.get("subjects") or [] if subject.get("kind") == "Group"}
    return "system:nodes" in groups and (raw.get("roleRef") or {}).get("name") == binding
