# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kinds of documents as CustomResourceDefinitions, made from the same schemas that check documents (S3-10), and the kind of claims.

A structural schema of Kubernetes knows less than JSON Schema. What it cannot say are CEL rules: how a value is written (crd_forms.py) and
what fields say of each other (crd_rules.py), each with the sentence that the reader of documents uses. Unknown fields are refused by a
client that asks for strict validation, as kubectl does; for others the server cuts them off.
"""

from __future__ import annotations

import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.documents.schemas import KINDS, Schema

from . import crd_claim
from .crd_forms import FORMS, LONGEST, Rule, text
from .crd_rules import BOUNDS, DEFAULTS, RULES, forbidden
from .crd_status import columns, status, subresources

GROUP = "tgp.io"
CATEGORY = "gpu"
_CLUSTER_SCOPED = frozenset({"GPUNodeClass", "GPURequest"})
_NAMES = {
    "GPUNodeClass": ("gpunodeclasses", "gnc"),
    "GPUNodePool": ("gpunodepools", "gnp"),
    "GPURequest": ("gpurequests", "greq"),
    "GPUNodeClaim": ("gpunodeclaims", "gncl"),
}
_LONGEST_NAME = 63
_LONGEST_FORM = 253  # characters of a text with a pattern


def definitions() -> list[dict[str, t.Any]]:
    """One CustomResourceDefinition per kind of document, as plain data."""
    return [_definition(kind, columns(kind), _root(kind), subresources(kind)) for kind in KINDS]


def claim_definition() -> dict[str, t.Any]:
    """That of claims. Runs write record and status at once, so it has no subresource."""
    return _definition("GPUNodeClaim", crd_claim.columns(), crd_claim.schema(), {})


def _definition(kind: str, printed: list[dict[str, t.Any]], schema: Schema, parts: Schema) -> dict[str, t.Any]:
    plural, short = _NAMES[kind]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster" if kind in _CLUSTER_SCOPED else "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": [CATEGORY],
            },
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    **({"subresources": parts} if parts else {}),
                    "additionalPrinterColumns": printed,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _root(kind: str) -> Schema:
    properties = KINDS[kind]["properties"]
    name = properties["metadata"]["properties"]["name"]
    said = text(name["pattern"], name["description"])
    named = {key: value.replace("self", "self.metadata.name") for key, value in said.items()}
    return {
        "type": "object",
        "description": KINDS[kind]["title"],
        "required": ["spec"],
        "properties": {
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": _LONGEST_NAME}}},
            "spec": _Structure(kind).of(properties["spec"], "spec"),
            "status": status(kind),
        },
        "x-kubernetes-validations": [{**named, "fieldPath": ".metadata.name"}],
    }


class _Structure:
    """JSON Schemas of a kind in the form that Kubernetes accepts, with the rules, bounds and defaults of their places."""

    def __init__(self, kind: str) -> None:
        self._rules = {place: [*rules] for place, rules in RULES[kind].items()}
        for place, rules in forbidden(kind).items():
            self._rules.setdefault(place, []).extend(rules)
        self._defaults = DEFAULTS[kind]

    def of(self, schema: Schema, place: str) -> Schema:
        made: Schema = {}
        rules: list[Rule] = []
        for key, value in schema.items():
            if key == "properties":
                made[key] = {name: self.of(one, f"{place}.{name}") for name, one in value.items()}
            elif key == "items":
                made[key] = self.of(value, f"{place}[]")
            elif key == "additionalProperties":
                if isinstance(value, dict):
                    made[key] = self.of(value, f"{place}.*")
            elif key == "const":
                made["enum"] = [value]
            elif key == "type" and isinstance(value, list):
                made |= {"x-kubernetes-int-or-string": True, "maxLength": LONGEST}
                rules += FORMS[place.rpartition(".")[2]]
            elif key == "pattern":
                made["maxLength"] = _LONGEST_FORM
                rules.append(text(value, schema["description"]))
            else:
                made[key] = value
        if "enum" in made and "type" not in made:
            made["type"] = "string"
        if made.get("type") == "object" and "properties" not in made and "additionalProperties" not in made:
            made["x-kubernetes-preserve-unknown-fields"] = True
        made |= BOUNDS.get(place, {})
        if place in self._defaults:
            made["default"] = self._defaults[place]
        rules += self._rules.get(place, [])
        return {**made, "x-kubernetes-validations": rules} if rules else made
