# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads what there is of tgp-operator in the cluster. It changes nothing there.

Both programs have the group tgp.io and the same names of kinds, so an object of a GPURequest is tgp-operator's by its finalizer or by the
machine in its status, and not by its kind.
"""

from __future__ import annotations

import typing as t

from ...core.errors import NotFound
from ...kube.client import Json, Kube
from ...model.labels import API_PATH, APP_NAME_LABEL, FINALIZERS, OPERATOR_FINALIZER
from ...planner.claims.imports import Installation, OperatorPool, OperatorRequest

_NAME = "tgp-operator"
_DEPLOYMENTS = "/apis/apps/v1/deployments"
_SCALE = "kubectl -n {namespace} scale deployment {name} --replicas=0"


def read(kube: Kube) -> Installation:
    """The objects and the controller of tgp-operator. What cannot be read raises: a controller that nobody sees may terminate machines."""
    requests = [request_of(raw) for raw in _objects(kube, "gpurequests") if is_theirs(raw)]
    pools = [_pool(raw) for raw in _objects(kube, "gpunodepools")]
    return Installation(
        tuple(sorted(requests, key=lambda one: one.name)),
        tuple(sorted(pools, key=lambda one: (one.name, one.namespace))),
        tuple(_controllers(kube)),
    )


def _objects(kube: Kube, plural: str) -> list[Json]:
    """None where the kind is not installed."""
    try:
        return list(kube.pages(f"{API_PATH}/{plural}"))
    except NotFound:
        return []


def is_theirs(raw: Json) -> bool:
    finalizers = _field(raw, "metadata", "finalizers")
    names = finalizers if isinstance(finalizers, list) else []
    if OPERATOR_FINALIZER in names:
        return True
    return FINALIZERS["GPURequest"] not in names and bool(_field(raw, "status", "instanceId"))


def request_of(raw: Json) -> OperatorRequest:
    name, status = str(_field(raw, "metadata", "name") or ""), raw.get("status") or {}
    words: dict[str, str] = {}
    if not isinstance(status, dict) or not isinstance(raw.get("spec") or {}, dict):
        return OperatorRequest(name, problem="the object cannot be read: spec or status is not a mapping")
    found = {
        "provider": status.get("selectedProvider") or _field(raw, "spec", "provider"),
        "instance_id": status.get("instanceId"),
        "node": status.get("nodeName"),
        "phase": status.get("phase"),
    }
    for field, value in found.items():
        if value is not None and not isinstance(value, str):
            return OperatorRequest(name, problem=f"the object cannot be read: its {field} is {value!r}, not a text")
        words[field] = (value or "").strip()
    return OperatorRequest(name, **words, deleting=bool(_field(raw, "metadata", "deletionTimestamp")))


def _pool(raw: Json) -> OperatorPool:
    name, namespace = (str(_field(raw, "metadata", key) or "") for key in ("name", "namespace"))
    return OperatorPool(name, namespace, deleting=bool(_field(raw, "metadata", "deletionTimestamp")))


def _field(raw: t.Any, *keys: str) -> t.Any:
    for key in keys:
        raw = raw.get(key) if isinstance(raw, dict) else None
    return raw


# ---- the controller


def _controllers(kube: Kube) -> t.Iterator[str]:
    """Deployments that are not at 0, and pods of theirs that still run, with what to do."""
    theirs = [raw for raw in kube.pages(_DEPLOYMENTS) if is_controller(raw)]
    for raw in theirs:
        namespace, name = (str(raw["metadata"].get(key, "")) for key in ("namespace", "name"))
        if _field(raw, "spec", "replicas") != 0:
            yield f"Deployment {namespace}/{name}: {_SCALE.format(namespace=namespace, name=name)}"
    for raw in kube.pages("/api/v1/pods", {"labelSelector": f"{APP_NAME_LABEL}={_NAME}"}):
        if _field(raw, "status", "phase") not in ("Succeeded", "Failed"):
            yield f"pod {raw['metadata'].get('namespace', '')}/{raw['metadata'].get('name', '')} still runs"


def is_controller(raw: Json) -> bool:
    if _field(raw, "metadata", "labels", APP_NAME_LABEL) == _NAME:
        return True
    containers = _field(raw, "spec", "template", "spec", "containers") or []
    images = [str(_field(container, "image") or "") for container in containers if isinstance(container, dict)]
    return any(image.partition("@")[0].rpartition("/")[2].partition(":")[0] == _NAME for image in images)
