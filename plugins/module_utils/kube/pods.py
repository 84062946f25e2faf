# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods, reduced page by page to what decisions need: ten thousand of them cost well under a second and little memory."""

from __future__ import annotations

import functools
import sys
import typing as t
from datetime import datetime

from ..core.clock import from_text
from ..model import ContainerState, Expression, NodeTerm, Others, Placement, Pod, PodTerm, Spread, Toleration, TrialPod
from ..model.cluster import DEFAULT_SCHEDULER
from ..model.labels import (
    ACCEPTANCE_LABEL,
    ACCEPTANCE_TEST_ANNOTATION,
    AUTOSCALING_PREFIX,
    CLUSTER_API_PREFIX,
    CLUSTER_AUTOSCALER_PREFIX,
    CLUSTER_LABEL,
    HOSTNAME_LABEL,
    KARPENTER_PREFIX,
    MANAGED_BY_LABEL,
    MIRROR_POD_ANNOTATION,
    PRE_PULL_IMAGES_ANNOTATION,
    PRE_PULL_LABEL,
    PREFIX,
    SAFE_TO_EVICT_LOCAL_VOLUMES_ANNOTATION,
)
from ..model.resources import GPU_RESOURCES, NVIDIA_GPU, PARTIAL_GPU_PREFIXES, SHARED_GPU
from ..units.values import whole
from .client import NAMESPACE, Json, Kube
from .resource_claims import claims_of_pod

PATH = "/api/v1/pods"
_NOTHING: t.Mapping[str, t.Any] = {}
_SHAREABLE = (NVIDIA_GPU, SHARED_GPU)
#: annotations of pods that some rule reads; all others are dropped (they may be large)
_DOMAINS = (
    PREFIX,
    KARPENTER_PREFIX,
    CLUSTER_AUTOSCALER_PREFIX,
    CLUSTER_API_PREFIX,
    AUTOSCALING_PREFIX,
    "scheduling.",
    "kueue.",
    "leaderworkerset.",
)


def pods(
    kube: Kube,
    *,
    node: str | None = None,
    all: bool = False,
    gpu_resources: tuple[str, ...] = GPU_RESOURCES,
) -> list[Pod]:
    """All pods of the cluster, or those bound to ``node``. ``requests`` holds GPU resources only, with ``all`` and of pods that
    wait for a node every resource (cpu in thousandths, memory in bytes). BadShape when the answer is not a list of pods: then nothing is
    known about any node."""
    reduce = reducer(kube, all=all, gpu_resources=gpu_resources)
    return kube.collect(PATH, reduce, {"fieldSelector": f"spec.nodeName={node}"} if node else None)[0]


def namespace_labels(kube: Kube) -> dict[str, t.Mapping[str, str]]:
    """The labels of all namespaces, by name."""
    found = kube.collect("/api/v1/namespaces", lambda raw: (raw["metadata"]["name"], raw["metadata"].get("labels") or _NOTHING))[0]
    return dict(found)


def pod_path(namespace: str, name: str) -> str:
    """The API path of a pod."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def reducer(kube: Kube, *, all: bool = False, gpu_resources: tuple[str, ...] = GPU_RESOURCES) -> t.Callable[[Json], Pod]:
    """The function that turns a raw pod into our record."""
    wanted = _everything if all else functools.lru_cache(maxsize=1024)(lambda name: is_gpu(name, gpu_resources))

    def reduce(raw: Json) -> Pod:
        try:
            return _parse(raw, wanted)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            name = (raw.get("metadata") or {}).get("name", "?") if isinstance(raw, dict) else "?"
            raise kube.api.bad_shape(f"GET {PATH}", f"the pod {name} has an odd field: {error!r}") from error

    return reduce


def _parse(raw: Json, wanted: t.Callable[[str], bool]) -> Pod:
    meta, spec = raw["metadata"], raw["spec"]
    status = raw.get("status") or _NOTHING
    annotations = meta.get("annotations") or _NOTHING
    owner = next((reference for reference in meta.get("ownerReferences") or () if reference.get("controller")), _NOTHING)
    phase = sys.intern(status.get("phase") or "Pending")
    grace = spec.get("terminationGracePeriodSeconds")
    node = sys.intern(spec.get("nodeName") or "")
    waiting, waiting_why = ("", "") if phase in ("Succeeded", "Failed") else _waiting(status)
    deletion = meta.get("deletionTimestamp")
    started = status.get("startTime")
    requests = effective_requests(spec, wanted if node or phase != "Pending" else _everything)
    return Pod(
        namespace=sys.intern(meta["namespace"]),
        name=meta["name"],
        uid=meta["uid"],
        phase=phase,
        node=node,
        owner_kind=sys.intern(owner.get("kind") or ""),
        owner_api=sys.intern(owner.get("apiVersion") or ""),
        mirror=MIRROR_POD_ANNOTATION in annotations,
        deletion=from_text(deletion) if deletion else None,
        created=_moment(meta["creationTimestamp"]),
        started=_moment(started) if started else None,
        finished=_finished(status) if phase in ("Succeeded", "Failed") else None,
        ran_since=_first_start(status) if node and (requests or spec.get("resourceClaims")) else None,
        requests=requests,
        container_gpus=_of_one_container(spec) if any(requests.get(name, 0) > 1 for name in _SHAREABLE) else 0,
        labels=meta.get("labels") or _NOTHING,
        annotations={key: annotations[key] for key in annotations if key.startswith(_DOMAINS)} if annotations else _NOTHING,
        grace_seconds=30 if grace is None else int(grace),
        priority_class=sys.intern(spec.get("priorityClassName") or ""),
        empty_dir=_keeps_data(spec.get("volumes") or (), annotations.get(SAFE_TO_EVICT_LOCAL_VOLUMES_ANNOTATION, "")),
        nominated_node=status.get("nominatedNodeName") or "",
        waiting=waiting,
        waiting_why=waiting_why,
        placement=placement_of(spec, meta["namespace"], meta.get("labels") or _NOTHING, meta["name"]),
        pod_group=sys.intern((spec.get("schedulingGroup") or _NOTHING).get("podGroupName") or ""),
        claims=claims_of_pod(spec, status) if spec.get("resourceClaims") or "extendedResourceClaimStatus" in status else (),
    )


@functools.lru_cache(maxsize=8192)
def _moment(text: str) -> datetime:
    """Many pods begin in the same second."""
    return from_text(text)


def _keeps_data(volumes: t.Iterable[t.Mapping[str, t.Any]], may_go: str) -> bool:
    """Whether some volume holds data that goes with the machine. What is in memory is gone with the pod anyhow; ``may_go`` are names,
    separated by commas, whose data may go."""
    names = {name.strip() for name in may_go.split(",")}
    for volume in volumes:
        local = "hostPath" in volume or ("emptyDir" in volume and (volume["emptyDir"] or _NOTHING).get("medium") != "Memory")
        if local and volume.get("name") not in names:
            return True
    return False


def _finished(status: t.Mapping[str, t.Any]) -> datetime | None:
    """The latest end of a container."""
    ends = []
    for kind in ("containerStatuses", "initContainerStatuses"):
        for entry in status.get(kind) or ():
            end = ((entry.get("state") or _NOTHING).get("terminated") or _NOTHING).get("finishedAt")
            if end:
                ends.append(_moment(end))
    return max(ends) if ends else None


def _first_start(status: t.Mapping[str, t.Any]) -> datetime | None:
    """The earliest start of a container that the status still tells of; of one that was restarted also its last run before."""
    starts = []
    for kind in ("initContainerStatuses", "containerStatuses"):
        for entry in status.get(kind) or ():
            for state in (entry.get("state") or _NOTHING, entry.get("lastState") or _NOTHING):
                starts += [each["startedAt"] for each in state.values() if each and each.get("startedAt")]
    return min(map(_moment, starts)) if starts else None


def _everything(_name: str) -> bool:
    return True


def _waiting(status: t.Mapping[str, t.Any]) -> tuple[str, str]:
    """Why it does not run: the scheduler's reason (Unschedulable, SchedulingGated) or that of a container (ImagePullBackOff), and the
    scheduler's sentence."""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("reason") or "Unscheduled"), str(condition.get("message") or "")
    for kind in ("initContainerStatuses", "containerStatuses"):
        for entry in status.get(kind) or ():
            waiting = (entry.get("state") or _NOTHING).get("waiting")
            if waiting:
                return str(waiting.get("reason") or "Waiting"), ""
    return "", ""


def effective_requests(spec: t.Mapping[str, t.Any], wanted: t.Callable[[str], bool]) -> t.Mapping[str, int]:
    """What the scheduler reserves per resource (L-17): the larger of all containers with their sidecars, and the hungriest init
    container with the sidecars declared before it; what the pod asks for as a whole goes before both. A limit without a request is the
    request. Overhead is added, as it is there."""
    running = _sum(spec["containers"], wanted)
    init = spec.get("initContainers")
    if init:
        sidecars: dict[str, int] = {}
        peak: dict[str, int] = {}
        for container in init:
            own = _of(container, wanted)
            if container.get("restartPolicy") == "Always":
                for name, amount in own.items():
                    sidecars[name] = sidecars.get(name, 0) + amount
                own = {}
            for name in own.keys() | sidecars.keys():
                peak[name] = max(peak.get(name, 0), own.get(name, 0) + sidecars.get(name, 0))
        for name, amount in sidecars.items():
            running[name] = running.get(name, 0) + amount
        for name, amount in peak.items():
            running[name] = max(running.get(name, 0), amount)
    if spec.get("resources"):  # of the pod as a whole: what it names there is reserved instead of the containers' sum
        running.update(_of(spec, wanted))
    for name, text in (spec.get("overhead") or _NOTHING).items():
        if wanted(name):
            running[name] = running.get(name, 0) + whole(str(text), name)
    return {name: amount for name, amount in running.items() if amount} if running else _NOTHING


def _sum(containers: t.Iterable[t.Mapping[str, t.Any]], wanted: t.Callable[[str], bool]) -> dict[str, int]:
    total: dict[str, int] = {}
    for container in containers:
        resources = container.get("resources")
        if resources:
            for name, amount in _of(container, wanted).items():
                total[name] = total.get(name, 0) + amount
    return total


def _of_one_container(spec: t.Mapping[str, t.Any]) -> int:
    """The most GPUs that one container asks for under a name that MPS may share; 0 for one or none."""
    containers = [*spec["containers"], *(spec.get("initContainers") or ())]
    most = max(max(_of(one, _SHAREABLE.__contains__).values(), default=0) for one in containers)
    return most if most > 1 else 0


def _of(container_or_pod: t.Mapping[str, t.Any], wanted: t.Callable[[str], bool]) -> dict[str, int]:
    resources = container_or_pod.get("resources") or _NOTHING
    totals: dict[str, int] = {}
    for kind in ("limits", "requests"):  # a request replaces the limit it stands beside
        for name, text in (resources.get(kind) or _NOTHING).items():
            if wanted(name):
                totals[name] = whole(str(text), name)
    return totals


# ---- pods of ours that test a node (L-35) or pull images on it (L-43)


def is_trial(pod: Pod, cluster_id: str) -> bool:
    """Whether the pod is one of ours on a new node: made by us, for this cluster's records, in our namespace."""
    labels = pod.labels
    return (
        pod.namespace == NAMESPACE
        and (ACCEPTANCE_LABEL in labels or PRE_PULL_LABEL in labels)
        and labels.get(MANAGED_BY_LABEL) == "tgp.gpu"
        and labels.get(CLUSTER_LABEL) == cluster_id
    )


def trial_pod(raw: Json) -> TrialPod:
    """A raw pod with a label of ours as our record."""
    meta, status = raw["metadata"], raw.get("status") or _NOTHING
    waiting, why = _waiting(status)
    unplaced = waiting if why or waiting == "Unschedulable" else ""
    labels, annotations = meta.get("labels") or _NOTHING, meta.get("annotations") or _NOTHING
    return TrialPod(
        name=meta["name"],
        uid=meta["uid"],
        claim=labels.get(ACCEPTANCE_LABEL) or labels.get(PRE_PULL_LABEL, ""),
        fingerprint=annotations.get(ACCEPTANCE_TEST_ANNOTATION) or annotations.get(PRE_PULL_IMAGES_ANNOTATION, ""),
        created=_moment(meta["creationTimestamp"]),
        phase=str(status.get("phase") or "Pending"),
        deleting=bool(meta.get("deletionTimestamp")),
        reason=str(status.get("reason") or unplaced),
        message=str(status.get("message") or why),
        containers=tuple(_state_of(entry) for entry in status.get("containerStatuses") or ()),
    )


def _state_of(entry: Json) -> ContainerState:
    kind, state = next(iter((entry.get("state") or _NOTHING).items()), ("", _NOTHING))
    started, finished = state.get("startedAt"), state.get("finishedAt")
    return ContainerState(
        name=str(entry.get("name") or ""),
        exit_code=int(state["exitCode"]) if kind == "terminated" else None,
        reason=str(state.get("reason") or ""),
        message=str(state.get("message") or ""),
        started=_moment(started) if started else None,
        finished=_moment(finished) if finished else None,
        pulled=bool(entry.get("imageID")),
    )


# ---- what a pod says about its place, read from its raw form. Thousands of pods say the same few things, so equal records are one

Raw = t.Mapping[str, t.Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NO_PLACE: Raw = {}
_one_of = functools.lru_cache(maxsize=4096)(Placement)
_toleration = functools.lru_cache(maxsize=1024)(Toleration)


def placement_of(spec: Raw, namespace: str, labels: t.Mapping[str, str] = _NO_PLACE, name: str = "") -> Placement:
    """The placement of a pod's ``spec``; ``labels`` and ``name`` are those of the pod. What is only preferred is left out: nothing here
    follows it."""
    affinity = spec.get("affinity") or _NO_PLACE
    near, apart, avoids, unsupported = _neighbours(affinity, namespace, labels) if affinity else ((), (), (), "")
    spread = spec.get("topologySpreadConstraints")
    volumes = spec.get("volumes")
    selector = spec.get("nodeSelector")
    tolerations = spec.get("tolerations")
    return _one_of(
        tuple(sorted(selector.items())) if selector else (),
        _terms(affinity) if affinity else (),
        tuple(_tolerated(toleration) for toleration in tolerations) if tolerations else (),
        tuple(term.others for term in apart if term.key == HOSTNAME_LABEL),
        unsupported,
        bool(spec.get("resourceClaims")),
        int(spec.get("priority") or 0),
        spec.get("schedulerName") or DEFAULT_SCHEDULER,
        tuple(_spread(entry, labels) for entry in spread if entry.get("whenUnsatisfiable") != "ScheduleAnyway") if spread else (),
        _volume_claims(volumes, name) if volumes else (),
        avoids,
        near,
        tuple(term for term in apart if term.key != HOSTNAME_LABEL),
    )


def _volume_claims(volumes: t.Iterable[Raw], pod: str) -> tuple[str, ...]:
    """Names of the claims. The one of an ephemeral volume is named after the pod and the volume."""
    named = [volume["persistentVolumeClaim"]["claimName"] for volume in volumes if volume.get("persistentVolumeClaim")]
    return (*named, *(f"{pod}-{volume['name']}" for volume in volumes if "ephemeral" in volume))


def _tolerated(raw: Raw) -> Toleration:
    return _toleration(raw.get("key") or "", raw.get("operator") or "Equal", raw.get("value") or "", raw.get("effect") or "")


def _terms(affinity: Raw) -> tuple[NodeTerm, ...]:
    required = (affinity.get("nodeAffinity") or _NO_PLACE).get(_REQUIRED) or _NO_PLACE
    return node_terms(required.get("nodeSelectorTerms"))


def node_terms(raw: t.Iterable[Raw] | None) -> tuple[NodeTerm, ...]:
    """Raw nodeSelectorTerms as our records."""
    return tuple(NodeTerm(_expressions(term.get("matchExpressions")), _expressions(term.get("matchFields"))) for term in raw or ())


def _expressions(raw: t.Iterable[Raw] | None) -> tuple[Expression, ...]:
    return tuple(
        Expression(entry["key"], entry["operator"], tuple(str(value) for value in entry.get("values") or ())) for entry in raw or ()
    )


def _spread(entry: Raw, labels: t.Mapping[str, str]) -> Spread:
    selector = entry.get("labelSelector")
    return Spread(
        entry.get("topologyKey") or "",
        int(entry.get("maxSkew") or 1),
        None if selector is None else (*_selected(selector), *_same(entry.get("matchLabelKeys"), labels)),
        int(entry.get("minDomains") or 1),
        (entry.get("nodeAffinityPolicy") or "Honor") == "Honor",
        entry.get("nodeTaintsPolicy") == "Honor",
    )


_NO_POD = Expression("", "In")  # holds for no pod


def _neighbours(
    affinity: Raw, namespace: str, labels: t.Mapping[str, str]
) -> tuple[tuple[PodTerm, ...], tuple[PodTerm, ...], tuple[Others, ...], str]:
    """Pods it wants near and pods it keeps away from; and those of rules that cannot be followed, of which rather too many are meant than too
    few, with the first such rule in words: which namespaces a selector means is not read."""
    near: list[PodTerm] = []
    apart: list[PodTerm] = []
    avoids: list[Others] = []
    unsupported = ""
    for kind, terms in (("podAffinity", near), ("podAntiAffinity", apart)):
        for term in (affinity.get(kind) or _NO_PLACE).get(_REQUIRED) or ():
            selector = term.get("labelSelector")
            if selector is None and kind == "podAntiAffinity":
                continue  # a selector that is missing matches no pod
            chosen = (
                (_NO_POD,)
                if selector is None
                else (
                    *_selected(selector),
                    *_same(term.get("matchLabelKeys"), labels),
                    *_same(term.get("mismatchLabelKeys"), labels, "NotIn"),
                )
            )
            if term.get("namespaceSelector"):
                unsupported = unsupported or f"required {kind} with namespaceSelector"
                if kind == "podAntiAffinity":
                    avoids.append(Others((), chosen))
                continue
            anywhere = term.get("namespaceSelector") is not None
            spaces = () if anywhere else tuple(sorted(term.get("namespaces") or (namespace,)))
            terms.append(PodTerm(term.get("topologyKey") or "", Others(spaces, chosen)))
    return tuple(near), tuple(apart), tuple(avoids), unsupported


def _selected(selector: Raw) -> tuple[Expression, ...]:
    labels = tuple(Expression(key, "In", (value,)) for key, value in sorted((selector.get("matchLabels") or {}).items()))
    return labels + _expressions(selector.get("matchExpressions"))


def _same(keys: t.Iterable[str] | None, labels: t.Mapping[str, str], operator: str = "In") -> tuple[Expression, ...]:
    """Conditions on those of the labels ``keys`` that the pod itself has."""
    return tuple(Expression(key, operator, (labels[key],)) for key in keys or () if key in labels)


# ---- which resources are GPUs by default (L-3); nvidia.com/mig-* and nvidia.com/gpu.* (shared) always are


def is_gpu(resource: str, names: tuple[str, ...] = GPU_RESOURCES) -> bool:
    """True for a resource that stands for GPUs."""
    return resource in names or resource.startswith(PARTIAL_GPU_PREFIXES)
