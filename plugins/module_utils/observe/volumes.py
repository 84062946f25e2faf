# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From which nodes the persistent volumes of pods can be reached (L-40): three lists, read only where a pod that looks for a place has volumes.

A claim that is bound is reached where its volume can be; one that waits for its first consumer where its class may make a volume. Any other
claim, and one that cannot be judged, keeps the pod from being a reason to rent.
"""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

from ..core.errors import TgpError
from ..kube.client import Json, Kube
from ..kube.pods import node_terms
from ..model import CloudView, Expression, Node, NodeTerm, Pod
from ..model.labels import (
    BETA_REGION_LABEL,
    BETA_ZONE_LABEL,
    PROVISIONED_LABEL,
    SELECTED_NODE_ANNOTATION,
    TOPOLOGY_REGION_LABEL,
    TOPOLOGY_ZONE_LABEL,
)
from ..planner.offers import account_volumes
from .context import Context

CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_FIRST_CONSUMER = "WaitForFirstConsumer"
_LOCAL = "kubernetes.io/no-provisioner"
_TODAY = {BETA_ZONE_LABEL: TOPOLOGY_ZONE_LABEL, BETA_REGION_LABEL: TOPOLOGY_REGION_LABEL}
_PLACES = (TOPOLOGY_ZONE_LABEL, TOPOLOGY_REGION_LABEL, BETA_ZONE_LABEL, BETA_REGION_LABEL)
_NOTHING: Json = {}
Reach = tuple[tuple[NodeTerm, ...], ...]


@dataclasses.dataclass(frozen=True, slots=True)
class VolumeClaim:
    """``volume``: the name of the one that it is bound to. ``node``: the one that the scheduler has chosen for it. ``alone``: one pod only may
    use it."""

    volume: str
    storage_class: str
    node: str
    alone: bool
    deleting: bool


@dataclasses.dataclass(frozen=True, slots=True)
class StorageClass:
    """``waits``: a volume is made once a pod that uses it has a node. ``local``: none is made, people provide them on nodes that exist."""

    waits: bool
    local: bool
    reach: Reach


@dataclasses.dataclass(frozen=True, slots=True)
class Storage:
    """The cluster's claims by namespace and name, where volumes can be reached by their names, and classes by theirs."""

    claims: t.Mapping[tuple[str, str], VolumeClaim]
    volumes: t.Mapping[str, Reach]
    classes: t.Mapping[str, StorageClass]


def with_reach(
    kube: Kube, pods: tuple[Pod, ...], nodes: t.Iterable[Node], warn: t.Callable[[str], None], *, moves: bool
) -> tuple[Pod, ...]:
    """The pods, those that look for a place with what their volumes say about it. ``moves``: pods on nodes of ours may have to move, too."""
    ours = {node.name for node in nodes if moves and node.labels.get(PROVISIONED_LABEL) == "true"}
    asked = {pod.uid for pod in pods if pod.placement.volumes and (pod.waiting == "Unschedulable" or pod.node in ours)}
    if not asked:
        return pods
    try:
        storage = read(kube)
    except TgpError as error:
        warn(
            "Persistent volumes could not be read, so no machine is rented for pods that use them, and none of these pods is moved: "
            f"{error} files/rbac.yml names the rights."
        )
        return pods
    users = users_of(pods)
    return tuple(placed(pod, storage, users) if pod.uid in asked else pod for pod in pods)


def read(kube: Kube) -> Storage:
    """All claims, volumes and classes of the cluster."""

    def items(path: str, reduce: t.Callable[[Json], tuple[t.Any, t.Any]]) -> dict[t.Any, t.Any]:
        def checked(raw: Json) -> tuple[t.Any, t.Any]:
            try:
                return reduce(raw)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise kube.api.bad_shape(f"GET {path}", f"an object has an odd field: {error!r}") from error

        return dict(kube.collect(path, checked)[0])

    return Storage(items(CLAIMS, _claim), items(VOLUMES, _volume), items(CLASSES, _class))


def users_of(pods: t.Iterable[Pod]) -> dict[tuple[str, str], set[str]]:
    """Which pods that stand somewhere use each claim."""
    users: dict[tuple[str, str], set[str]] = {}
    for pod in pods:
        if pod.node and not pod.ended:
            for name in pod.placement.volumes:
                users.setdefault((pod.namespace, name), set()).add(pod.uid)
    return users


def placed(pod: Pod, storage: Storage, users: t.Mapping[tuple[str, str], t.AbstractSet[str]]) -> Pod:
    """The pod with the places of its volumes, or with the reason for which no new node serves them."""
    reach: list[tuple[NodeTerm, ...]] = []
    unplaceable = ""
    for name in pod.placement.volumes:
        where, why = _reach(pod, name, storage, users.get((pod.namespace, name), set()) - {pod.uid})
        reach.extend(where)
        unplaceable = unplaceable or why
    placement = dataclasses.replace(pod.placement, volumes=(), reach=tuple(dict.fromkeys(reach)), unplaceable=unplaceable)
    return dataclasses.replace(pod, placement=placement)


def _reach(pod: Pod, name: str, storage: Storage, others: t.AbstractSet[str]) -> tuple[Reach, str]:
    claim = storage.claims.get((pod.namespace, name))
    if claim is None:
        return (), f"persistent volume claim {name} does not exist"
    if claim.deleting:
        return (), f"persistent volume claim {name} is being deleted"
    if claim.alone and others:
        return (), f"persistent volume claim {name} is ReadWriteOncePod, and another pod uses it"
    if claim.volume:
        bound = storage.volumes.get(claim.volume)
        return (bound, "") if bound is not None else ((), f"persistent volume {claim.volume} of claim {name} does not exist")
    storage_class = storage.classes.get(claim.storage_class)
    if storage_class is None or not storage_class.waits:
        return (), f"persistent volume claim {name} is not bound, and does not wait for a pod to be placed"
    if storage_class.local:
        return (), f"persistent volume claim {name} wants a local volume, and no new machine has one"
    if claim.node:
        chosen = NodeTerm(fields=(Expression("metadata.name", "In", (claim.node,)),))
        return (*storage_class.reach, (chosen,)), ""
    return storage_class.reach, ""


def _claim(raw: Json) -> tuple[tuple[str, str], VolumeClaim]:
    meta, spec = raw["metadata"], raw.get("spec") or _NOTHING
    claim = VolumeClaim(
        spec.get("volumeName") or "",
        spec.get("storageClassName") or "",
        (meta.get("annotations") or _NOTHING).get(SELECTED_NODE_ANNOTATION, ""),
        "ReadWriteOncePod" in (spec.get("accessModes") or ()),
        bool(meta.get("deletionTimestamp")),
    )
    return (meta["namespace"], meta["name"]), claim


def _volume(raw: Json) -> tuple[str, Reach]:
    """A volume's own node affinity, and its labels of zone and region: these count only on nodes that have any such label."""
    meta, required = raw["metadata"], ((raw["spec"].get("nodeAffinity") or _NOTHING).get("required") or _NOTHING)
    terms = node_terms(required.get("nodeSelectorTerms"))
    labels = {key: (meta.get("labels") or _NOTHING)[key] for key in _PLACES if key in (meta.get("labels") or _NOTHING)}
    reach = (terms,) if terms else ()
    if not labels:
        return meta["name"], reach
    nowhere = NodeTerm(tuple(Expression(key, "DoesNotExist") for key in _PLACES))
    each = [
        [Expression(one, "In", tuple(value.split("__"))) for one in dict.fromkeys((key, _TODAY.get(key, key)))]
        for key, value in labels.items()
    ]
    return meta["name"], (*reach, (nowhere, *(NodeTerm(choice) for choice in itertools.product(*each))))


def _class(raw: Json) -> tuple[str, StorageClass]:
    allowed = tuple(
        NodeTerm(tuple(Expression(one["key"], "In", tuple(one["values"])) for one in term.get("matchLabelExpressions") or ()))
        for term in raw.get("allowedTopologies") or ()
    )
    waits = raw.get("volumeBindingMode") == _FIRST_CONSUMER
    return raw["metadata"]["name"], StorageClass(waits, raw.get("provisioner") == _LOCAL, (allowed,) if allowed else ())


# ---- existing volumes of the account of a cloud, which are no objects of the cluster (L-51)


def with_account_volumes(context: Context, name: str, view: CloudView) -> CloudView:
    """The same with the volumes of the account, where a class wants some and its machines are known; None of them where they cannot be read:
    then nothing that mounts some is rented."""
    if view.instances is None or name not in account_volumes.wanted(context.specs):
        return view
    try:
        return dataclasses.replace(view, volumes=context.clients.volumes(name))
    except TgpError as error:
        context.warn(f"The volumes of {name} could not be read, so nothing that mounts some is rented there in this run: {error}")
        return view
