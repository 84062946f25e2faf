# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads ProvisioningRequests (L-42) and the pod templates that they name: one list of each, the second only while a request is open."""

from __future__ import annotations

import dataclasses
import typing as t

from ..core.clock import from_text
from ..core.errors import NotFound
from ..kube.client import Json, Kube
from ..kube.pods import reducer
from ..kube.resource_claims import is_served
from ..model import Observation, Pod
from ..model.defaults import REAPING
from ..model.labels import CONSUMES_REQUEST_ANNOTATION, POD_SCALE_UP_DELAY_ANNOTATION
from ..model.queues import ProvisioningRequest, StatusCondition
from .context import Context

GROUP, VERSION = "autoscaling.x-k8s.io", "v1"
REQUESTS = f"/apis/{GROUP}/{VERSION}/provisioningrequests"
TEMPLATES = "/api/v1/podtemplates"
MOST_PODS: t.Final = 1000  # of one request: more are not served
_NOTHING: Json = {}
_FINAL = ("Failed", "BookingExpired", "CapacityRevoked")


def request_path(request: ProvisioningRequest) -> str:
    """Its API path."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{request.namespace}/provisioningrequests/{request.name}"


def with_requests(context: Context, seen: Observation) -> Observation:
    """The same with the requests that a pool serves. None is read where no pool serves any, and in modes that look at no idle nodes."""
    classes = {one for pool in context.specs.described for one in pool.provisioning_classes}
    if not classes or context.settings.mode not in (*REAPING, "status"):
        return seen
    found = provisioning_requests(context.kube, classes, context.settings.gpu_resources)
    return dataclasses.replace(seen, requests=found)


def provisioning_requests(
    kube: Kube, classes: t.Collection[str], gpu_resources: tuple[str, ...]
) -> tuple[ProvisioningRequest, ...]:
    """Those of ``classes`` that are not over. A cluster that does not serve the kind has none; anything else that goes wrong raises."""

    def strict(path: str, reduce: t.Callable[[Json], t.Any]) -> t.Callable[[Json], t.Any]:
        def checked(raw: Json) -> t.Any:
            try:
                return reduce(raw)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                name = (raw.get("metadata") or {}).get("name", "?") if isinstance(raw, dict) else "?"
                raise kube.api.bad_shape(f"GET {path}", f"{name} has an odd field: {error!r}") from error

        return checked

    try:
        listed = kube.collect(REQUESTS, strict(REQUESTS, lambda raw: (_request(raw), raw["spec"]["podSets"])))[0]
    except NotFound:
        if is_served(kube, GROUP, VERSION):
            raise
        return ()
    ours = [(one, sets) for one, sets in listed if one.provisioning_class in classes and not any(map(one.has, _FINAL))]
    if not ours:
        return ()
    templates = dict(kube.collect(TEMPLATES, strict(TEMPLATES, _template))[0])
    reduce = reducer(kube, gpu_resources=gpu_resources)
    return tuple(_with_pods(one, sets, templates, reduce) for one, sets in ours)


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
    return (raw["metadata"]["namespace"], raw["metadata"]["name"]), raw["template"]


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
        example = reduce(_placeholder(request, template))
        for _each in range(int(one["count"])):
            number = len(pods)
            pods.append(
                dataclasses.replace(example, name=f"{request.name}[{number}]", uid=f"{request.uid}/{number}", placeholder=True)
            )
    return dataclasses.replace(request, pods=tuple(pods))


def _placeholder(request: ProvisioningRequest, template: Json) -> Json:
    """A pod of the template as it would be if the scheduler had found no place for it."""
    meta = template.get("metadata") or _NOTHING
    marks = {CONSUMES_REQUEST_ANNOTATION: request.name, POD_SCALE_UP_DELAY_ANNOTATION: "0s"}
    return {
        "metadata": {
            "namespace": request.namespace,
            "name": request.name,
            "uid": request.uid,
            "creationTimestamp": request.created.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "labels": meta.get("labels"),
            "annotations": {**(meta.get("annotations") or _NOTHING), **marks},
        },
        "spec": template["spec"],
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    }
