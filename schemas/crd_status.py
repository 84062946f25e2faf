# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of the three kinds, and what `kubectl get` prints of them. Runs write it; nobody else should."""

from __future__ import annotations

import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.model import Phase

Schema = dict[str, t.Any]

_MOMENT: Schema = {"type": "string", "format": "date-time"}
_COUNT: Schema = {"type": "integer", "format": "int32", "minimum": 0}
_TEXT: Schema = {"type": "string"}


def _said(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


CONDITION: Schema = {
    "type": "object",
    "required": ["type", "status", "lastTransitionTime", "reason", "message"],
    "properties": {
        "type": {"type": "string", "maxLength": 316, "pattern": "^[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?$"},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        "lastTransitionTime": _MOMENT,
        "reason": {"type": "string", "minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
        "message": {"type": "string", "maxLength": 32768},
    },
}
_COMMON: dict[str, Schema] = {
    "observedGeneration": {
        "type": "integer",
        "format": "int64",
        "minimum": 0,
        "description": "generation of the spec that the last run has read",
    },
    "conditions": {
        "type": "array",
        "items": CONDITION,
        "maxItems": 32,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "description": "Ready, Launching, Degraded, BudgetExceeded, DocumentsValid, Paused; Reconciling and Stalled only while True",
    },
    "lastRunTime": _said(_MOMENT, "a recent run that has read this object; written with a change, or every 10 minutes"),
}
_MONEY: dict[str, Schema] = {
    "hourlyCost": _said(_TEXT, "dollars per hour that its machines cost now"),
    "spent": _said(_TEXT, "dollars spent in the period of its budget"),
    "budget": _said(_TEXT, "dollars that its budget allows in the period"),
}
_MACHINES: dict[str, Schema] = {
    "ready": _said(_COUNT, "machines that can be used"),
    "launching": _said(_COUNT, "machines that are being rented or are joining"),
    "terminating": _said(_COUNT, "machines that drain or end"),
}
_PROVIDER: Schema = {
    "type": "object",
    "required": ["name", "health"],
    "properties": {
        "name": _TEXT,
        "health": {
            "type": "string",
            "enum": ["Healthy", "Unavailable", "Disabled", "Unknown"],
            "description": "Unavailable: the last run could not read it. Unknown: no run has asked it",
        },
        "message": _said(_TEXT, "why it is not Healthy"),
        "minHourlyPrice": _said(
            _TEXT, "dollars per hour of the cheapest offer with the GPUs of the class, when offers were read last"
        ),
        "maxHourlyPrice": _said(_TEXT, "dollars per hour of the dearest one"),
    },
}
PHASES = (*(phase.value for phase in Phase), "Completed")
STATUS: dict[str, dict[str, Schema]] = {
    "GPUNodeClass": {
        **_COMMON,
        "pools": _said(_COUNT, "GPUNodePools and GPURequests that use it"),
        **_MACHINES,
        **_MONEY,
        "providers": {
            "type": "array",
            "items": _PROVIDER,
            "maxItems": 32,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    },
    "GPUNodePool": {
        **_COMMON,
        "wanted": _said(
            _COUNT, "machines that the last run wanted: replicas, minNodes, a number of the run, or what waiting pods need"
        ),
        "replicas": _said(_COUNT, "machines that exist or are being made, without those that end; status of the subresource scale"),
        **_MACHINES,
        "gpus": _said(_COUNT, "GPUs of the machines that can be used"),
        **_MONEY,
        "nextExpiry": _said(_MOMENT, "when the next machine reaches its maximum age"),
        "reason": _said(_TEXT, "why fewer machines are ready than wanted"),
    },
    "GPURequest": {
        **_COMMON,
        "phase": {"type": "string", "enum": list(PHASES)},
        "provider": _said(_TEXT, "the cloud it was rented from"),
        "region": _TEXT,
        "instanceID": _said(_TEXT, "id of the machine at its cloud"),
        "machineName": _said(_TEXT, "name of the machine and of its claim"),
        "nodeName": _said(_TEXT, "name of its Node"),
        "address": _said(_TEXT, "address of the machine"),
        "hourlyPrice": _said(_TEXT, "dollars per hour that it costs"),
        "expiryTime": _said(_MOMENT, "when it reaches its maximum lifetime"),
        **{name: _MONEY[name] for name in ("spent", "budget")},
        "reason": _said(_TEXT, "why it is not Ready"),
    },
}

# name, type, where it stands, 1 = only with -o wide
_AGE = ("Age", "date", ".metadata.creationTimestamp", 0)
_REASON = ("Reason", "string", '.status.conditions[?(@.type=="Ready")].reason', 0)
_MESSAGE = ("Message", "string", '.status.conditions[?(@.type=="Ready")].message', 1)
_COLUMNS: dict[str, list[tuple[str, str, str, int]]] = {
    "GPUNodeClass": [
        ("Pools", "integer", ".status.pools", 0),
        ("Ready", "integer", ".status.ready", 0),
        ("$/h", "string", ".status.hourlyCost", 0),
        _REASON,
        _AGE,
        ("Max nodes", "integer", ".spec.limits.maxNodes", 1),
        ("Max cost", "string", ".spec.limits.maxHourlyCost", 1),
        _MESSAGE,
    ],
    "GPUNodePool": [
        ("Class", "string", ".spec.nodeClassRef.name", 0),
        ("Wanted", "integer", ".status.wanted", 0),
        ("Ready", "integer", ".status.ready", 0),
        ("$/h", "string", ".status.hourlyCost", 0),
        _REASON,
        _AGE,
        ("Max price", "string", ".spec.maxHourlyPrice", 1),
        ("Spent", "string", ".status.spent", 1),
        _MESSAGE,
    ],
    "GPURequest": [
        ("GPU", "string", ".spec.gpuType", 0),
        ("Phase", "string", ".status.phase", 0),
        ("Provider", "string", ".status.provider", 0),
        ("$/h", "string", ".status.hourlyPrice", 0),
        _REASON,
        _AGE,
        ("Node", "string", ".status.nodeName", 1),
        ("Expires", "date", ".status.expiryTime", 1),
        ("Max price", "string", ".spec.maxHourlyPrice", 1),
        _MESSAGE,
    ],
}


#: what the API server shows until the first run writes: without a condition kstatus takes an object for current, and nobody waits
_NEW: Schema = {
    "type": "Ready",
    "status": "Unknown",
    "reason": "Pending",
    "message": "No run has read the object yet.",
    "lastTransitionTime": "1970-01-01T00:00:00Z",
}


def status(kind: str) -> Schema:
    return {
        "type": "object",
        "description": "written by the runs of tgp.gpu",
        "properties": STATUS[kind],
        "default": {"conditions": [_NEW]},
    }


def columns(kind: str) -> list[dict[str, t.Any]]:
    return [
        {"name": name, "type": its_type, "jsonPath": path, **({"priority": priority} if priority else {})}
        for name, its_type, path, priority in _COLUMNS[kind]
    ]


def subresources(kind: str) -> dict[str, t.Any]:
    """``kubectl scale`` writes spec.replicas of a pool, an exact number (L-29)."""
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    return {"status": {}, **({"scale": scale} if kind == "GPUNodePool" else {})}
