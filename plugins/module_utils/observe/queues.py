# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads ProvisioningRequests and CapacityBuffers (L-42), and the pods that they describe: a list of each, one of pod templates while any of
them needs it, and each object that a buffer has its size of. And PodGroups (L-39) where pods that wait name some: a list for each API group."""

from __future__ import annotations

import dataclasses
import functools
import typing as t

from ..core.clock import from_text
from ..core.errors import NotFound, TgpError
from ..kube.client import Json, Kube
from ..kube.pods import reducer
from ..kube.resource_claims import is_served
from ..model import Observation, Pod, StatusCondition
from ..model.cluster import DEFAULT_SCHEDULER
from ..model.defaults import REAPING
from ..model.labels import CONSUMES_REQUEST_ANNOTATION, POD_SCALE_UP_DELAY_ANNOTATION
from ..model.queues import (
    COSCHEDULING_GROUPS,
    NATIVE_GROUPS,
    VOLCANO_GROUPS,
    CapacityBuffer,
    PodGroup,
    PodGroupKey,
    PodGroups,
    ProvisioningRequest,
    pod_group_of,
)
from ..model.reasons import BufferReason
from ..planner.scheduling.pending_pods import waits
from ..units.values import whole
from .context import Context

GROUP, VERSION = "autoscaling.x-k8s.io", "v1"
REQUESTS = f"/apis/{GROUP}/{VERSION}/provisioningrequests"
BUFFER_VERSION = "v1beta1"
BUFFERS = f"/apis/{GROUP}/{BUFFER_VERSION}/capacitybuffers"
TEMPLATES = "/api/v1/podtemplates"
SCALABLE = {"Deployment": "deployments", "StatefulSet": "statefulsets", "ReplicaSet": "replicasets"}
_APPS = "apps"
_STRATEGY = "buffer.x-k8s.io/active-capacity"
MOST_PODS: t.Final = 1000  # of one request: more are not served
_NOTHING: Json = {}
_FINAL = ("Failed", "BookingExpired", "CapacityRevoked")


def request_path(request: ProvisioningRequest) -> str:
    """Its API path."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{request.namespace}/provisioningrequests/{request.name}"


def buffer_path(buffer: CapacityBuffer) -> str:
    """Its API path."""
    return f"/apis/{GROUP}/{BUFFER_VERSION}/namespaces/{buffer.namespace}/capacitybuffers/{buffer.name}"


def with_queues(context: Context, seen: Observation) -> Observation:
    """The same with the requests and buffers that a pool serves. None is read where no pool serves any, or idle nodes do not matter."""
    classes = {one for pool in context.specs.described for one in pool.provisioning_classes}
    buffers = any(pool.capacity_buffers for pool in context.specs.described)
    if not (classes or buffers) or context.settings.mode not in (*REAPING, "status"):
        return seen
    queues = Queues(context.kube, context.settings.gpu_resources)
    return dataclasses.replace(
        seen, requests=queues.requests(classes) if classes else (), buffers=queues.buffers() if buffers else ()
    )


class Queues:
    """Reads of one run. A cluster that does not serve a kind has none of it; anything else that goes wrong raises."""

    def __init__(self, kube: Kube, gpu_resources: tuple[str, ...]) -> None:
        self._kube = kube
        self._pod = reducer(kube, gpu_resources=gpu_resources)
        self._read: dict[tuple[str, str], Json] | None = None

    def requests(self, classes: t.Collection[str]) -> tuple[ProvisioningRequest, ...]:
        """Those of ``classes`` that are not over."""
        listed = self._list(REQUESTS, VERSION, lambda raw: (_request(raw), raw["spec"]["podSets"]))
        ours = [(one, sets) for one, sets in listed if one.provisioning_class in classes and not any(map(one.has, _FINAL))]
        return tuple(_with_pods(one, sets, self._templates(), self._pod) for one, sets in ours)

    def buffers(self) -> tuple[CapacityBuffer, ...]:
        """Those whose strategy is the usual one, by name."""
        listed = self._list(BUFFERS, BUFFER_VERSION, lambda raw: (_buffer(raw), raw))
        ours = [(one, raw) for one, raw in listed if (raw["spec"].get("provisioningStrategy") or _STRATEGY) == _STRATEGY]
        return tuple(sorted((self._resolved(one, raw) for one, raw in ours), key=lambda one: (one.namespace, one.name)))

    def _list(self, path: str, version: str, reduce: t.Callable[[Json], t.Any]) -> list[t.Any]:
        try:
            return self._kube.collect(path, self._strict(path, reduce))[0]
        except NotFound:
            if is_served(self._kube, GROUP, version):
                raise
            return []

    def _strict(self, path: str, reduce: t.Callable[[Json], t.Any]) -> t.Callable[[Json], t.Any]:
        def checked(raw: Json) -> t.Any:
            try:
                return reduce(raw)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                name = (raw.get("metadata") or {}).get("name", "?") if isinstance(raw, dict) else "?"
                raise self._kube.api.bad_shape(f"GET {path}", f"{name} has an odd field: {error!r}") from error

        return checked

    def _templates(self) -> dict[tuple[str, str], Json]:
        if self._read is None:
            self._read = dict(self._kube.collect(TEMPLATES, self._strict(TEMPLATES, _template))[0])
        return self._read

    def _resolved(self, buffer: CapacityBuffer, raw: Json) -> CapacityBuffer:
        """With the pod that it describes, and the number that its percentage is of."""
        spec = raw["spec"]
        if name := (spec.get("podTemplateRef") or _NOTHING).get("name"):
            template = self._templates().get((buffer.namespace, name))
            if template is None:
                text = f"there is no PodTemplate {name} in namespace {buffer.namespace}"
                return dataclasses.replace(buffer, reason=BufferReason.NO_TEMPLATE, problem=text)
            generation = int(template.get("generation") or 0)
            return self._with_pod(dataclasses.replace(buffer, template=name, template_generation=generation), template, raw)
        ref = spec.get("scalableRef") or _NOTHING
        kind, plural = ref.get("kind", ""), SCALABLE.get(ref.get("kind", ""))
        if plural is None or ref.get("apiGroup") != _APPS:
            text = f"scalableRef has to name one of {', '.join(SCALABLE)} of {_APPS}"
            return dataclasses.replace(buffer, reason=BufferReason.RESOLUTION_FAILED, problem=text)
        found = self._kube.find(f"/apis/{_APPS}/v1/namespaces/{buffer.namespace}/{plural}/{ref['name']}")
        if found is None:
            text = f"there is no {kind} {ref['name']} in namespace {buffer.namespace}"
            return dataclasses.replace(buffer, reason=BufferReason.NO_SCALABLE, problem=text)
        scale = found["spec"].get("replicas")
        return self._with_pod(dataclasses.replace(buffer, scale=1 if scale is None else int(scale)), found["spec"]["template"], raw)

    def _with_pod(self, buffer: CapacityBuffer, template: Json, raw: Json) -> CapacityBuffer:
        pod = self._pod(_placeholder(buffer.namespace, buffer.name, buffer.uid, raw["metadata"]["creationTimestamp"], template, {}))
        return dataclasses.replace(buffer, pod=dataclasses.replace(pod, placeholder=True))


def _buffer(raw: Json) -> CapacityBuffer:
    meta, spec, status = raw["metadata"], raw["spec"], raw.get("status") or _NOTHING
    return CapacityBuffer(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        version=str(meta.get("resourceVersion") or ""),
        generation=int(meta.get("generation") or 0),
        replicas=spec.get("replicas"),
        percentage=spec.get("percentage"),
        limits={name: whole(str(text), name) for name, text in (spec.get("limits") or _NOTHING).items()},
        conditions=tuple(_condition(one) for one in status.get("conditions") or ()),
        status={name: value for name, value in status.items() if name != "conditions"},
    )


def _request(raw: Json) -> ProvisioningRequest:
    meta, spec, status = raw["metadata"], raw["spec"], raw.get("status") or _NOTHING
    return ProvisioningRequest(
        namespace=meta["namespace"],
        name=meta["name"],
        uid=meta["uid"],
        version=str(meta.get("resourceVersion") or ""),
        generation=int(meta.get("generation") or 0),
        created=from_text(meta["creationTimestamp"]),
        provisioning_class=spec["provisioningClassName"],
        conditions=tuple(_condition(one) for one in status.get("conditions") or ()),
        details=dict(status.get("provisioningClassDetails") or _NOTHING),
    )


def _condition(raw: Json) -> StatusCondition:
    since = raw.get("lastTransitionTime")
    return StatusCondition(
        raw["type"], raw["status"], raw.get("reason") or "", raw.get("message") or "", from_text(since) if since else None
    )


def _template(raw: Json) -> tuple[tuple[str, str], Json]:
    meta = raw["metadata"]
    return (meta["namespace"], meta["name"]), {**raw["template"], "generation": meta.get("generation")}


def _with_pods(
    request: ProvisioningRequest,
    sets: t.Sequence[Json],
    templates: t.Mapping[tuple[str, str], Json],
    reduce: t.Callable[[Json], Pod],
) -> ProvisioningRequest:
    """Placeholders have names that no pod can have."""
    total = sum(int(one["count"]) for one in sets)
    if total > MOST_PODS:
        return dataclasses.replace(request, problem=f"it asks for {total} pods, and {MOST_PODS} are the most that are served")
    pods: list[Pod] = []
    for one in sets:
        name = one["podTemplateRef"]["name"]
        template = templates.get((request.namespace, name))
        if template is None:
            return dataclasses.replace(request, problem=f"there is no PodTemplate {name} in namespace {request.namespace}")
        created = request.created.strftime("%Y-%m-%dT%H:%M:%SZ")
        marks = {CONSUMES_REQUEST_ANNOTATION: request.name}
        example = reduce(_placeholder(request.namespace, request.name, request.uid, created, template, marks))
        for _each in range(int(one["count"])):
            number = len(pods)
            pods.append(
                dataclasses.replace(example, name=f"{request.name}[{number}]", uid=f"{request.uid}/{number}", placeholder=True)
            )
    return dataclasses.replace(request, pods=tuple(pods))


def _placeholder(namespace: str, name: str, uid: str, created: str, template: Json, marks: t.Mapping[str, str]) -> Json:
    """A pod of the template as it would be if the scheduler had found no place for it."""
    meta = template.get("metadata") or _NOTHING
    return {
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": uid,
            "creationTimestamp": created,
            "labels": meta.get("labels"),
            "annotations": {**(meta.get("annotations") or _NOTHING), POD_SCALE_UP_DELAY_ANNOTATION: "0s", **marks},
        },
        "spec": template["spec"],
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    }


# ---- PodGroups

_POD_GROUP_VERSIONS = {
    NATIVE_GROUPS: ("v1beta1", "v1alpha3", "v1alpha2"),
    COSCHEDULING_GROUPS: ("v1alpha1",),
    VOLCANO_GROUPS: ("v1beta1",),
}  # of each API group those that have the kind, the first that is served is read


def with_pod_groups(context: Context, seen: Observation) -> Observation:
    """The same with the PodGroups of API groups that GPU pods which wait name. No other call is made where none does."""
    if context.settings.mode != "autoscale":
        return seen
    schedulers = {DEFAULT_SCHEDULER, *(name for pool in context.specs.described for name in pool.schedulers)}
    asking = [pod for pod in seen.pods or () if pod.placement.scheduler in schedulers and waits(pod, context.settings)]
    apis = {key.api for pod in asking if (key := pod_group_of(pod))}
    return dataclasses.replace(seen, pod_groups=pod_groups(context.kube, apis, context.warn)) if apis else seen


def pod_groups(kube: Kube, apis: t.Collection[str], warn: t.Callable[[str], None]) -> PodGroups:
    """Those of ``apis``. What cannot be read is a warning: no machine is rented for pods of such groups."""
    found: dict[PodGroupKey, PodGroup] = {}
    read, unread = set[str](), set[str]()
    try:
        listed = kube.get("/apis").get("groups") or ()
        served = {each["name"]: {one["version"] for one in each.get("versions") or ()} for each in listed}
    except (TgpError, KeyError, TypeError) as error:
        warn(_unread(sorted(apis), error))
        return PodGroups(unread=frozenset(apis))
    for api in sorted(apis):
        version = next((one for one in _POD_GROUP_VERSIONS[api] if one in served.get(api, ())), "")
        if not version:
            continue
        try:
            groups = kube.collect(f"/apis/{api}/{version}/podgroups", functools.partial(_pod_group, api))[0]
        except NotFound:  # the API server has said that it serves the version: it has other kinds
            continue
        except (TgpError, KeyError, TypeError) as error:
            warn(_unread([api], error))
            unread.add(api)
            continue
        read.add(api)
        found |= {group.key: group for group in groups}
    return PodGroups(found, frozenset(read), frozenset(unread))


def _unread(apis: t.Sequence[str], error: Exception) -> str:
    return (
        f"PodGroups of {', '.join(apis)} could not be read, so no machine is rented for pods of such groups: {error} "
        "files/rbac.yml names the rights."
    )


def _pod_group(api: str, raw: Json) -> PodGroup:
    key = PodGroupKey(api, raw["metadata"]["namespace"], raw["metadata"]["name"])
    spec = raw.get("spec") or _NOTHING
    try:
        return PodGroup(key, _of_policy(spec["schedulingPolicy"]) if api == NATIVE_GROUPS else _of_members(spec))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return PodGroup(
            key, problem=f"how many of its pods have to run at once is unknown, since its spec has an odd field: {error!r}"
        )


def _of_policy(policy: Json) -> int:
    """``basic``: each of its pods may start alone."""
    return 0 if "basic" in policy else _number(policy["gang"]["minCount"])


def _of_members(spec: Json) -> int | None:
    """With a minimum for each task, nobody here knows which pods may be left out."""
    return None if spec.get("minTaskMember") else _number(spec.get("minMember") or 0)


def _number(value: t.Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"must be a number of pods, got {value!r}")
    return value
