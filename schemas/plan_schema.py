# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON Schema of a saved plan (schemas/plan.schema.json), made from the very classes that read and write it. Claims in it are those of
the store, and checked as strictly when they are read; their fields are no part of this format."""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing as t
from datetime import datetime
from decimal import Decimal

from ansible_collections.tgp.gpu.plugins.module_utils.model import Claim
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plans.saved_plan import VERSION, SavedPlan

_SCALARS: dict[t.Any, dict[str, t.Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    Decimal: {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"},
    datetime: {"type": "string", "format": "date-time"},
}
_WORDS: dict[str, dict[str, str]] = {
    "SavedPlan": {
        "format_version": "Of this format. A plan of another version is refused.",
        "cluster_id": "The cluster that the plan was made for, and the only one it can be applied to.",
        "run_id": "The run that made it.",
        "made_at": "When the world was looked at. A plan is good for 30 minutes.",
        "request": "What the plan was asked for.",
        "inputs": "SHA-256 of what the plan rests on: claims with their versions, Nodes by name and UID, chosen offers with their prices.",
        "costs": "Dollars per hour and per day, before and after.",
        "steps": "What shall be done, in this order.",
        "digest": "SHA-256 of all the rest as JSON with sorted keys and no blanks. It detects accidental changes; it is not a signature.",
    },
    "Request": {
        "mode": "provision, reap, everything, destroy or another mode of the playbooks.",
        "wanted": "How many machines each pool was wanted to have.",
        "destroy": "What mode destroy is to terminate.",
        "max_nodes_total": "The limit of the run that made the plan. At application the narrower of both runs' limits counts.",
        "max_hourly_total": "As max_nodes_total, in dollars per hour.",
    },
    "Step": {
        "kind": "launch, resume, destroy, update (a machine becomes ours), delete_instance, delete_node, delete_device, delete_token ...",
        "name": "The machine's name, which is final: a launch that was done is not done again.",
        "reason": "Why, as a word of the rules.",
        "price_hour": "What the step adds to the cost of an hour, or saves (negative).",
        "claim": "The record that a machine to be rented shall get. It holds no secret.",
        "needs": "What has to be true for the step at application.",
    },
    "Precondition": {
        "claim_version": "Of the claim as the plan saw it; empty = there was none.",
        "node_uid": "The UID of the machine's Node.",
        "generation": "Fingerprint of the documents of its pool and class.",
        "offer": "cloud/offer id of what shall be rented.",
        "price_bound": "The highest price per hour at which it is rented, inclusive.",
    },
}


def schema() -> dict[str, t.Any]:
    """The schema of the file as a whole."""
    kinds: dict[str, dict[str, t.Any]] = {}
    _object(SavedPlan, kinds)
    top = kinds.pop("SavedPlan")
    top["properties"]["format_version"]["const"] = VERSION
    top["properties"]["digest"] = {"type": "string", "description": _WORDS["SavedPlan"]["digest"]}
    top["required"].append("digest")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A saved plan of tgp.gpu",
        "description": "Written by playbooks/plan.yml, read by playbooks/apply.yml. Not to be edited (docs/how_to/plans.md).",
        **top,
        "$defs": dict(sorted(kinds.items())),
    }


def text() -> str:
    """As it is shipped."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def _object(kind: type, kinds: dict[str, dict[str, t.Any]]) -> dict[str, t.Any]:
    if kind.__name__ not in kinds:
        made: dict[str, t.Any] = {"type": "object", "additionalProperties": False, "properties": {}, "required": []}
        kinds[kind.__name__] = made
        hints, words = t.get_type_hints(kind), _WORDS.get(kind.__name__, {})
        for field in dataclasses.fields(kind):
            one = _value(hints[field.name], kinds)
            made["properties"][field.name] = {**one, "description": words[field.name]} if field.name in words else one
            made["required"].append(field.name)
    return {"$ref": f"#/$defs/{kind.__name__}"}


def _value(hint: t.Any, kinds: dict[str, dict[str, t.Any]]) -> dict[str, t.Any]:
    origin, inner = t.get_origin(hint), t.get_args(hint)
    if origin in (t.Union, types.UnionType):
        (only,) = [one for one in inner if one is not type(None)]
        return {"anyOf": [_value(only, kinds), {"type": "null"}]}
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        return {"type": "array", "items": _value(inner[0], kinds)}
    if hint is Claim:
        return {"type": "object"}
    if dataclasses.is_dataclass(hint):
        return _object(t.cast(type, hint), kinds)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"type": "string", "enum": [one.value for one in hint]}
    return dict(_SCALARS[hint])
