# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What values in documents look like, as JSON Schemas: durations, money, names, references. ``schemas`` makes the kinds of them."""

from __future__ import annotations

import typing as t

Schema = dict[str, t.Any]


def object_of(properties: Schema, required: t.Sequence[str] = (), description: str = "") -> Schema:
    schema: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    if required:
        schema["required"] = list(required)
    return {**schema, "description": description} if description else schema


def list_of(items: Schema, at_least: int = 0, description: str = "") -> Schema:
    schema: Schema = {"type": "array", "items": items}
    if at_least:
        schema["minItems"] = at_least
    return {**schema, "description": description} if description else schema


def described(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description}


TEXT: Schema = {"type": "string", "minLength": 1}
YES_NO: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
POSITIVE: Schema = {"type": "integer", "minimum": 1}
MONEY: Schema = {"type": ["string", "integer"], "description": 'dollars in quotes, for example "2.0"'}
DURATION: Schema = {"type": ["string", "integer"], "description": "a duration like 90s, 10m or 1h30m, or seconds"}
DURATION_OR_NEVER: Schema = {
    "type": ["string", "integer"],
    "description": 'a duration like 90s, 10m or 1h30m, seconds, or "Never"',
}
AMOUNT: Schema = {"type": ["string", "integer"], "description": "GiB, or text with a unit like 24Gi or 24576Mi"}
SHARE: Schema = {"type": ["string", "integer"], "minimum": 0, "description": 'a share like "10%", or a whole number of per cent'}
STRINGS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
NAME: Schema = {
    "type": "string",
    "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
    "description": "at most 63 lower-case letters, digits and dashes, a letter or digit at both ends",
}
GPU_COUNTS: Schema = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}
SERVER_FIELDS: Schema = {  # written by the Kubernetes API; they say nothing to us, but exported objects carry them
    "uid": {"type": "string"},
    "resourceVersion": {"type": "string"},
    "generation": {"type": "integer"},
    "creationTimestamp": {},
    "managedFields": {"type": "array"},
}
SECRET_REF = object_of(
    {
        "name": TEXT,
        "key": TEXT,
        "namespace": described(TEXT, "without it tgp-system; the pool's own in a GPUNodePool object of the cluster"),
    },
    ("name", "key"),
    "a key of a Kubernetes Secret",
)
TAINT = object_of(
    {"key": TEXT, "value": {"type": "string"}, "effect": {"enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"]}},
    ("key", "effect"),
)
