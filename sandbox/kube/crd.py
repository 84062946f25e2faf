# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CustomResourceDefinitions are established at once; custom resources are pruned, defaulted and checked by their schema."""

from __future__ import annotations

import typing as t

import jsonschema

from .auth import Call
from .meta import timestamp
from .parts import Kind
from .resources import Registry, Resource
from .status import cause, invalid
from .store import Item, clone

Json = dict[str, t.Any]

_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", type(None): "null"}
_KEPT_AT_ROOT = ("apiVersion", "kind", "metadata")


def json_schema(schema: t.Any, root: bool = False) -> t.Any:
    """A structural OpenAPI v3 schema as JSON schema (draft 4, which shares the boolean exclusiveMinimum)."""
    if isinstance(schema, list):
        return [json_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made: Json = {}
    for key, value in schema.items():
        if key in ("properties", "patternProperties", "definitions") and isinstance(value, dict):
            made[key] = {name: json_schema(item) for name, item in value.items()}
        elif key in ("items", "additionalProperties", "allOf", "anyOf", "oneOf", "not"):
            made[key] = json_schema(value)
        elif not key.startswith("x-kubernetes-") and key not in ("nullable", "default", "example", "description"):
            made[key] = value
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
        made["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if schema.get("nullable") and "type" in made:
        made["type"] = [made["type"], "null"]
    if root:
        made.get("properties", {}).pop("metadata", None)
    return made


def prune(schema: Json, value: t.Any, root: bool = False) -> t.Any:
    """Without the fields that the schema does not know, and with its defaults."""
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [prune(schema["items"], item) for item in value]
    if not isinstance(value, dict) or schema.get("type") != "object":
        return value
    known, more = schema.get("properties") or {}, schema.get("additionalProperties")
    result: Json = {}
    for key, item in value.items():
        if root and key in _KEPT_AT_ROOT:
            result[key] = item
        elif key in known:
            if item is None and not known[key].get("nullable"):
                continue
            result[key] = prune(known[key], item)
        elif isinstance(more, dict):
            result[key] = prune(more, item)
        elif more is True or schema.get("x-kubernetes-preserve-unknown-fields"):
            result[key] = item
    for key, sub in known.items():
        if key not in result and "default" in sub:
            result[key] = prune(sub, clone(sub["default"]))
    return result


class CustomObjects(Kind):
    def on_create(self, call: Call, obj: Json) -> None:
        self._shape(obj)

    def on_update(self, call: Call, old: Json, new: Json, sub: str) -> None:
        self._shape(new)

    def _shape(self, obj: Json) -> None:
        if self.resource.schema:
            shaped = prune(self.resource.schema, obj, root=True)
            obj.clear()
            obj.update(shaped)

    def check(self, old: Json | None, new: Json) -> None:
        if not self.resource.schema:
            return
        causes = []
        for error in jsonschema.Draft4Validator(json_schema(self.resource.schema, root=True)).iter_errors(new):
            field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path).lstrip(".")
            causes.append(_told(error, field))
        if causes:
            raise invalid(self.resource, new["metadata"]["name"], causes)


def _told(error: jsonschema.ValidationError, field: str) -> Json:
    if error.validator == "required":
        missing = error.message.split("'")[1]
        return cause("FieldValueRequired", "Required value", f"{field}.{missing}".lstrip("."))
    shown = f'"{error.instance}"' if isinstance(error.instance, str) else str(error.instance)
    if error.validator == "enum":
        allowed = ", ".join(f'"{value}"' for value in error.validator_value)
        return cause("FieldValueNotSupported", f"Unsupported value: {shown}: supported values: {allowed}", field)
    if error.validator == "type":
        shown = f'"{_JSON_TYPES.get(type(error.instance), "object")}"'
        return cause("FieldValueTypeInvalid", f"Invalid value: {shown}: {field} in body {_rule(error)}: {shown}", field or "<root>")
    reason = "FieldValueInvalid"
    return cause(reason, f"Invalid value: {shown}: {field} in body {_rule(error)}", field or "<root>")


def _rule(error: jsonschema.ValidationError) -> str:
    value = error.validator_value
    if error.validator == "type":
        return f"must be of type {value if isinstance(value, str) else value[0]}"
    if error.validator == "pattern":
        return f"should match '{value}'"
    if error.validator in ("minimum", "maximum"):
        return f"should be {'greater' if error.validator == 'minimum' else 'less'} than or equal to {value}"
    return f"does not satisfy {error.validator} {value}"


class CustomKinds(Kind):
    """A definition is served from the moment it is written."""

    def on_create(self, call: Call, obj: Json) -> None:
        self._fill(obj)

    def on_update(self, call: Call, old: Json, new: Json, sub: str) -> None:
        self._fill(new)

    @staticmethod
    def _fill(obj: Json) -> None:
        spec = obj.get("spec") or {}
        names = spec.get("names")
        if isinstance(names, dict) and names.get("kind"):
            names.setdefault("singular", names["kind"].lower())
            names.setdefault("listKind", f"{names['kind']}List")
        if "conversion" not in spec and obj.get("spec"):
            spec["conversion"] = {"strategy": "None"}

    def check(self, old: Json | None, new: Json) -> None:
        spec = new.get("spec") or {}
        names = spec.get("names") or {}
        causes = []
        for field, value in (("group", spec.get("group")), ("names.plural", names.get("plural")), ("names.kind", names.get("kind")),
                             ("scope", spec.get("scope")), ("versions", spec.get("versions"))):  # fmt: skip
            if not value:
                causes.append(cause("FieldValueRequired", "Required value", f"spec.{field}"))
        name = new["metadata"]["name"]
        if not causes and name != f"{names['plural']}.{spec['group']}":
            told = f'Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
            causes.append(cause("FieldValueInvalid", told, "metadata.name"))
        for at, version in enumerate(spec.get("versions") or []):
            if not (version.get("schema") or {}).get("openAPIV3Schema"):
                causes.append(cause("FieldValueRequired", "Required value: schemas are required", f"spec.versions[{at}].schema"))
        if causes:
            raise invalid(self.resource, name, causes)

    def after(self, old: Item | None, new: Item) -> None:
        spec, names = new.obj["spec"], new.obj["spec"]["names"]
        if "deletionTimestamp" in new.obj["metadata"]:
            return
        if old is None or old.obj["spec"] != spec:
            serve(self.api.registry, spec)
        if old is None:
            now = timestamp(self.api.now())
            conditions = [
                {"type": "NamesAccepted", "status": "True", "lastTransitionTime": now, "reason": "NoConflicts",
                 "message": "no conflicts found"},
                {"type": "Established", "status": "True", "lastTransitionTime": now, "reason": "InitialNamesAccepted",
                 "message": "the initial names have been accepted"},
            ]  # fmt: skip
            stored = [version["name"] for version in spec["versions"] if version.get("storage")]
            status = {"conditions": conditions, "acceptedNames": dict(names), "storedVersions": stored}
            table = self.api.store.table(self.resource.key)
            self.api.store.put(table, new.key, {**new.obj, "metadata": dict(new.obj["metadata"]), "status": status})

    def gone(self, last: Item) -> None:
        spec = last.obj["spec"]
        plural = spec["names"]["plural"]
        self.api.registry.remove(spec["group"], plural)
        self.api.store.forget((spec["group"], plural))


def serve(registry: Registry, spec: Json) -> None:
    """From now on the API server has the versions that a definition serves, and no other of its kind."""
    registry.remove(spec["group"], spec["names"]["plural"])
    for version in spec["versions"]:
        if version.get("served", True):
            registry.add(_resource(spec, version))


def _resource(spec: Json, version: Json) -> Resource:
    names = spec["names"]
    return Resource(
        spec["group"], version["name"], names["plural"], names["kind"], spec["scope"] == "Namespaced",
        "status" in (version.get("subresources") or {}), (), tuple(names.get("shortNames") or ()),
        tuple(names.get("categories") or ()), generation=True, blind_update=False, custom=True,
        fields=tuple(field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or ()),
        schema=version["schema"]["openAPIV3Schema"], columns=tuple(version.get("additionalPrinterColumns") or ()),
    )  # fmt: skip
