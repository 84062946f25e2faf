# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kind of claims that are objects (store/node_claim.py). Runs write them; people read them, and delete one to end its machine.

``record`` has no schema of its own: an older kind must not cut off a field that a newer run writes.
"""

from __future__ import annotations

import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.model import Phase

from .crd_status import CONDITION, Schema

_TEXT: Schema = {"type": "string"}
_COLUMNS = (
    ("Pool", "string", ".spec.pool", 0),
    ("Phase", "string", ".status.phase", 0),
    ("Provider", "string", ".spec.provider", 0),
    ("Type", "string", ".status.instanceType", 0),
    ("$/h", "string", ".status.hourlyPrice", 0),
    ("Node", "string", ".status.nodeName", 0),
    ("Ready", "string", '.status.conditions[?(@.type=="Ready")].status', 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Instance", "string", ".status.instanceID", 1),
    ("Region", "string", ".status.region", 1),
    ("Address", "string", ".status.address", 1),
    ("Deletion", "string", ".status.deletionReason", 1),
)


def schema() -> Schema:
    spec = {"pool": "pool or request, as namespace/name", "nodeClass": "its class", "provider": "the cloud it is rented from"}
    status = {
        "instanceID": "id of the machine at its cloud",
        "region": "its region",
        "instanceType": "what was rented",
        "address": "address of the machine",
        "nodeName": "name of its Node",
        "hourlyPrice": "dollars per hour",
        "deletionReason": "why it is being terminated",
    }
    conditions = {
        "type": "array",
        "items": CONDITION,
        "maxItems": 32,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "description": "Launched, Registered, Initialized, Ready, and Accepted where the node is tested",
    }
    return {
        "type": "object",
        "description": "The record of a rented machine, written by the runs of tgp.gpu",
        "required": ["record"],
        "properties": {
            "spec": {
                "type": "object",
                "description": "what the machine is for, shown from the record",
                "properties": {name: {**_TEXT, "description": text} for name, text in spec.items()},
            },
            "status": {
                "type": "object",
                "description": "what became of it, shown from the record",
                "properties": {
                    "phase": {**_TEXT, "enum": [phase.value for phase in Phase]},
                    **{name: {**_TEXT, "description": text} for name, text in status.items()},
                    "conditions": conditions,
                },
            },
            "record": {
                "type": "object",
                "description": "what the runs read and write; do not edit it",
                "x-kubernetes-preserve-unknown-fields": True,
            },
        },
    }


def columns() -> list[dict[str, t.Any]]:
    return [
        {"name": name, "type": its_type, "jsonPath": path, **({"priority": priority} if priority else {})}
        for name, its_type, path, priority in _COLUMNS
    ]
