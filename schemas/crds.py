# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The three kinds as CustomResourceDefinitions, made from the same schemas that check documents (S3-10).

Kubernetes' structural schemas know less than JSON Schema: unknown fields are cut off by the server instead of refused, so they are
refused by us when the objects are read. What an object of the cluster may not say (origins.py) is refused by the server already.
"""

from __future__ import annotations

import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import COMMANDS, FILES, SECRETS
from ansible_collections.tgp.gpu.plugins.module_utils.documents.schemas import KINDS, Schema

GROUP = "tgp.io"
_CLUSTER_SCOPED = frozenset({"GPUNodeClass", "GPURequest"})
_PLURALS = {"GPUNodeClass": "gpunodeclasses", "GPUNodePool": "gpunodepools", "GPURequest": "gpurequests"}
_COLUMNS: dict[str, list[tuple[str, str]]] = {
    "GPUNodeClass": [("Max nodes", ".spec.limits.maxNodes"), ("Max cost", ".spec.limits.maxHourlyCost")],
    "GPUNodePool": [("Class", ".spec.nodeClassRef.name"), ("Max price", ".spec.maxHourlyPrice")],
    "GPURequest": [("GPU", ".spec.gpuType"), ("Max price", ".spec.maxHourlyPrice")],
}


def definitions() -> list[dict[str, t.Any]]:
    """One CustomResourceDefinition per kind, as plain data."""
    return [_definition(kind) for kind in KINDS]


def _definition(kind: str) -> dict[str, t.Any]:
    plural = _PLURALS[kind]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Cluster" if kind in _CLUSTER_SCOPED else "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        {"name": name, "type": "string", "jsonPath": path} for name, path in _COLUMNS[kind]
                    ],
                    "schema": {"openAPIV3Schema": _root(KINDS[kind])},
                }
            ],
        },
    }


def _root(schema: Schema) -> Schema:
    properties = schema["properties"]
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    made: Schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": structural(properties["spec"]), "status": status},
    }
    for path in _never(properties["kind"]["const"]):
        *parents, last = path.split(".")
        inner = made
        for step in parents:
            inner = inner["properties"][step]
        what = f"{last} cannot be set in an object of the cluster, only in a file of the operator"
        inner.setdefault("x-kubernetes-validations", []).append({"rule": f"!has(self.{last})", "message": what})
    return made


def _never(kind: str) -> list[str]:
    """What no object of this kind may say. A GPURequest has no namespace, hence no Secrets; other Secrets depend on the namespace."""
    return [path for paths in (COMMANDS, FILES, SECRETS if kind == "GPURequest" else {}) for path in paths.get(kind, ())]


def structural(schema: Schema) -> Schema:
    """A JSON Schema of ours in the form Kubernetes accepts."""
    made: Schema = {}
    for key, value in schema.items():
        if key == "properties":
            made[key] = {name: structural(one) for name, one in value.items()}
        elif key == "items":
            made[key] = structural(value)
        elif key == "additionalProperties":
            if isinstance(value, dict):
                made[key] = structural(value)
        elif key == "const":
            made["enum"] = [value]
        elif key == "type" and isinstance(value, list):
            made["x-kubernetes-int-or-string"] = True
        else:
            made[key] = value
    if "enum" in made and "type" not in made:
        made["type"] = "string"
    if made.get("type") == "object" and "properties" not in made and "additionalProperties" not in made:
        made["x-kubernetes-preserve-unknown-fields"] = True
    return made
