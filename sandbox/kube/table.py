# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The columns that ``kubectl get`` prints."""

from __future__ import annotations

import re
import typing as t
from datetime import datetime

from .meta import moment
from .nodes import ready
from .resources import Resource
from .store import Item

Json = dict[str, t.Any]
Row = t.Callable[[Json, datetime], list[t.Any]]


def age(text: str | None, now: datetime) -> str:
    """As kubectl writes durations: 45s, 5m10s, 3h12m, 5d."""
    if not text:
        return "<unknown>"
    seconds = int((now - moment(text)).total_seconds())
    if seconds < 120:
        return f"{max(0, seconds)}s"
    minutes = seconds // 60
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    return f"{hours // 24}d"


def _node(node: Json, now: datetime) -> list[t.Any]:
    metadata, status = node["metadata"], node.get("status") or {}
    state = {"True": "Ready", "False": "NotReady"}.get(ready(node) or "", "NotReady" if ready(node) == "Unknown" else "Unknown")
    if (node.get("spec") or {}).get("unschedulable"):
        state += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = ",".join(sorted(key[len(prefix) :] for key in metadata.get("labels") or {} if key.startswith(prefix))) or "<none>"
    info = status.get("nodeInfo") or {}
    address = {entry["type"]: entry["address"] for entry in reversed(status.get("addresses") or [])}
    return [
        metadata["name"], state, roles, age(metadata.get("creationTimestamp"), now), info.get("kubeletVersion", ""),
        address.get("InternalIP", "<none>"), address.get("ExternalIP", "<none>"), info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>", info.get("containerRuntimeVersion") or "<unknown>",
    ]  # fmt: skip


def _pod(pod: Json, now: datetime) -> list[t.Any]:
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    states = status.get("containerStatuses") or []
    shown = status.get("reason") or status.get("phase", "Unknown")
    for state in states:
        waiting = (state.get("state") or {}).get("waiting") or {}
        shown = waiting.get("reason") or shown
    if status.get("phase") == "Succeeded":
        shown = "Completed"
    if "deletionTimestamp" in metadata:
        shown = "Terminating"
    ready_ones = f"{sum(1 for state in states if state.get('ready'))}/{len(spec.get('containers') or [])}"
    restarts = str(sum(state.get("restartCount", 0) for state in states))
    return [
        metadata["name"], ready_ones, shown, restarts, age(metadata.get("creationTimestamp"), now), status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>", status.get("nominatedNodeName") or "<none>", "<none>",
    ]  # fmt: skip


def _pdb(pdb: Json, now: datetime) -> list[t.Any]:
    spec, metadata = pdb.get("spec") or {}, pdb["metadata"]
    shown = [str(spec.get(key, "N/A")) for key in ("minAvailable", "maxUnavailable")]
    allowed = (pdb.get("status") or {}).get("disruptionsAllowed", 0)
    return [metadata["name"], *shown, allowed, age(metadata.get("creationTimestamp"), now)]


def _csr(csr: Json, now: datetime) -> list[t.Any]:
    spec, status, metadata = csr["spec"], csr.get("status") or {}, csr["metadata"]
    said = [condition["type"] for condition in status.get("conditions") or []]
    state = ",".join([*said, *(["Issued"] if status.get("certificate") else [])]) or "Pending"
    return [
        metadata["name"],
        age(metadata.get("creationTimestamp"), now),
        spec["signerName"],
        spec.get("username", ""),
        "<none>",
        state,
    ]


def _namespace(space: Json, now: datetime) -> list[t.Any]:
    metadata = space["metadata"]
    return [metadata["name"], (space.get("status") or {}).get("phase", ""), age(metadata.get("creationTimestamp"), now)]


def _lease(lease: Json, now: datetime) -> list[t.Any]:
    metadata = lease["metadata"]
    return [metadata["name"], (lease.get("spec") or {}).get("holderIdentity", ""), age(metadata.get("creationTimestamp"), now)]


def _data(obj: Json, now: datetime) -> list[t.Any]:
    metadata, count = obj["metadata"], len(obj.get("data") or {})
    return [metadata["name"], *([obj["type"]] if "type" in obj else []), count, age(metadata.get("creationTimestamp"), now)]


_SHOWN: dict[str, tuple[tuple[str, ...], int, Row]] = {
    "Node": (("Name", "Status", "Roles", "Age", "Version", "Internal-IP", "External-IP", "OS-Image", "Kernel-Version",
              "Container-Runtime"), 5, _node),
    "Pod": (("Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"), 5, _pod),
    "PodDisruptionBudget": (("Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"), 5, _pdb),
    "CertificateSigningRequest": (("Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition"), 6, _csr),
    "Namespace": (("Name", "Status", "Age"), 3, _namespace),
    "Lease": (("Name", "Holder", "Age"), 3, _lease),
    "ConfigMap": (("Name", "Data", "Age"), 3, _data),
    "Secret": (("Name", "Type", "Data", "Age"), 4, _data),
}  # fmt: skip


_TYPES = {"Allowed Disruptions": "integer"}


def _by_path(obj: Json, path: str) -> t.Any:
    """The value at a JSONPath of fields and of filters by one field: ``.conditions[?(@.type=="Ready")].reason``."""
    value: t.Any = obj
    for part in re.split(r"\.(?![^\[]*\])", path.lstrip(".").replace("\\.", "\0")):
        name, _bracket, wanted = part.partition("[?(@.")
        value = value.get(name.replace("\0", ".")) if isinstance(value, dict) else None
        if wanted:
            key, _equal, text = wanted.removesuffix(")]").partition("==")
            entries = value if isinstance(value, list) else ()
            value = next((entry for entry in entries if entry.get(key) == text.strip('"')), None)
    return value


def _layout(resource: Resource) -> tuple[tuple[str, ...], int, Row]:
    if resource.kind in _SHOWN and not resource.custom:
        return _SHOWN[resource.kind]
    if resource.columns:
        columns = resource.columns

        def custom(obj: Json, now: datetime) -> list[t.Any]:
            cells = [obj["metadata"]["name"]]
            for column in columns:
                value = _by_path(obj, column["jsonPath"])
                cells.append(age(value, now) if column["type"] == "date" and value else value)
            return cells

        shown = sum(1 for column in columns if not column.get("priority"))
        return ("Name", *(column["name"] for column in columns)), 1 + shown, custom

    def simple(obj: Json, now: datetime) -> list[t.Any]:
        return [obj["metadata"]["name"], age(obj["metadata"].get("creationTimestamp"), now)]

    return ("Name", "Age"), 2, simple


def table(resource: Resource, items: t.Sequence[Item], now: datetime, include: str, metadata: Json) -> Json:
    """A meta.k8s.io/v1 Table; columns beyond the normal ones have priority 1 (``-o wide``)."""
    names, normal, row = _layout(resource)
    definitions = [
        {
            "name": name,
            "type": _TYPES.get(name, "string"),
            "format": "name" if name == "Name" else "",
            "description": "",
            "priority": int(at >= normal),
        }
        for at, name in enumerate(names)
    ]
    rows: list[Json] = []
    for item in items:
        entry: Json = {"cells": row(item.obj, now)}
        if include == "Object":
            entry["object"] = {"kind": resource.kind, "apiVersion": resource.api_version, **item.obj}
        elif include == "Metadata":
            entry["object"] = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item.obj["metadata"]}
        rows.append(entry)
    head = {"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}
    return {**head, "columnDefinitions": definitions, "rows": rows}
