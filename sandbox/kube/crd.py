# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CustomResourceDefinitions are established at once; custom resources are pruned, defaulted and checked by their schema."""

from __future__ import annotations

import functools
import json
import typing as t

import jsonschema

from . import cel
from .auth import Call
from .meta import timestamp
from .parts import Kind, Parts
from .resources import Registry, Resource
from .status import bad_request, cause, forbidden, invalid
from .store import Item, clone

Json = dict[str, t.Any]

_BLOCKING = ("FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid")
_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", type(None): "null"}
_NOTHING = object()
_CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")
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


def unknown(schema: Json, value: t.Any, path: str = "") -> list[str]:
    """The fields that prune would cut off."""
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [field for place, item in enumerate(value) for field in unknown(schema["items"], item, f"{path}[{place}]")]
    if not isinstance(value, dict) or schema.get("type") != "object" or schema.get("x-kubernetes-preserve-unknown-fields"):
        return []
    found: list[str] = []
    for key, item in sorted(value.items()):
        part = (schema.get("properties") or {}).get(key) or schema.get("additionalProperties")
        if isinstance(part, dict) and not (key == "metadata" and not path):
            found += unknown(part, item, f"{path}.{key}".lstrip("."))
        elif part is None and (path or key not in _KEPT_AT_ROOT):
            found.append(f"{path}.{key}".lstrip("."))
    return found


class CustomObjects(Kind):
    def on_create(self, call: Call, obj: Json) -> None:
        definition = self.api.store.table(DEFINITIONS).get(f"{self.resource.plural}.{self.resource.group}")
        if definition is not None and "deletionTimestamp" in definition.obj["metadata"]:
            why = "create not allowed while custom resource definition is terminating"
            raise forbidden(self.resource, obj["metadata"]["name"], why)
        self._shape(call, obj)

    def gone(self, last: Item) -> None:
        finish(self.api, f"{self.resource.plural}.{self.resource.group}")

    def on_update(self, call: Call, old: Json, new: Json, sub: str) -> None:
        self._shape(call, new)

    def _shape(self, call: Call, obj: Json) -> None:
        if self.resource.schema:
            if call.strict and (fields := unknown(self.resource.schema, obj)):
                told = ", ".join(f'unknown field "{field}"' for field in fields)
                kind = self.resource.kind
                raise bad_request(
                    f'{kind} in version "{self.resource.version}" cannot be handled as a {kind}: strict decoding error: {told}'
                )
            shaped = prune(self.resource.schema, obj, root=True)
            obj.clear()
            obj.update(shaped)

    def check(self, old: Json | None, new: Json) -> None:
        if not self.resource.schema:
            return
        causes = []
        for error in jsonschema.Draft4Validator(json_schema(self.resource.schema, root=True)).iter_errors(new):
            field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path).lstrip(".")
            if old is None or _former(old, error.absolute_path) != error.instance:  # what was stored before a newer schema may stay
                causes.append(_told(error, field))
        if old is None or not repeated(self.resource.schema, old):
            causes += repeated(self.resource.schema, new)
        if any(one["reason"] in _BLOCKING for one in causes):
            told = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"
            causes.append(cause("FieldValueInvalid", f"Invalid value: null: {told}", "<nil>"))
        else:
            causes += broken(self.resource.schema, new, old)
        if causes:
            raise invalid(self.resource, new["metadata"]["name"], causes)


def _former(old: t.Any, path: t.Iterable[str | int]) -> t.Any:
    for step in path:
        try:
            old = old[step]
        except (KeyError, IndexError, TypeError):
            return _NOTHING
    return old


def broken(schema: Json, value: t.Any, old: t.Any = None, path: str = "") -> list[Json]:
    """What the rules of a schema (``x-kubernetes-validations``) say of a value. Where nothing changes, an old object may stay as it is."""
    causes: list[Json] = []
    if old is None or old != value:
        causes += [_of_rule(rule, value, path) for rule in schema.get("x-kubernetes-validations") or () if not _holds(rule, value)]
    for name, part, inner, before in _inside(schema, value, old):
        causes += broken(part, inner, before, f"{path}{name}".lstrip("."))
    return causes


def _inside(schema: Json, value: t.Any, old: t.Any) -> t.Iterator[tuple[str, Json, t.Any, t.Any]]:
    """The parts of a value with their schemas and what they were. Entries of a list have a former one only in a list by keys."""
    if isinstance(value, dict):
        known, more = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, inner in value.items():
            part = known.get(key) or (more if isinstance(more, dict) else None)
            if part is not None:
                yield f".{key}" if key in known else f"[{key}]", part, inner, old.get(key) if isinstance(old, dict) else None
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        former = {_key(one, keys): one for one in old if keys} if isinstance(old, list) else {}
        for place, inner in enumerate(value):
            yield f"[{place}]", schema["items"], inner, former.get(_key(inner, keys))


def _key(entry: t.Any, keys: t.Iterable[str]) -> tuple[t.Any, ...]:
    return tuple(entry.get(key) for key in keys)


def _holds(rule: Json, value: t.Any) -> bool:
    try:
        return cel.compiled(rule["rule"])(value) is True
    except cel.Fault:
        return False


def _of_rule(rule: Json, value: t.Any, path: str) -> Json:
    try:
        told = cel.compiled(rule["messageExpression"])(value) if "messageExpression" in rule else rule["message"]
    except cel.Fault:
        told = rule.get("message") or f"failed rule: {rule['rule']}"
    shown = "" if isinstance(value, (dict, list)) else f'"{value}": ' if isinstance(value, str) else f"{value}: "
    return cause("FieldValueInvalid", f"Invalid value: {shown}{told}", f"{path}{rule.get('fieldPath', '')}".lstrip(".") or "<nil>")


def repeated(schema: Json, value: t.Any, path: str = "") -> list[Json]:
    """Entries of a list by keys that have the keys of an earlier one."""
    causes: list[Json] = []
    if isinstance(value, list) and (keys := schema.get("x-kubernetes-list-map-keys")):
        seen: list[tuple[t.Any, ...]] = []
        for place, entry in enumerate(value):
            if _key(entry, keys) in seen:
                shown = json.dumps({key: entry.get(key) for key in keys}, separators=(",", ":"))
                causes.append(cause("FieldValueDuplicate", f"Duplicate value: {shown}", f"{path}[{place}]"))
            seen.append(_key(entry, keys))
    for name, part, inner, _before in _inside(schema, value, None):
        causes += repeated(part, inner, f"{path}{name}".lstrip("."))
    return causes


def _rules_of(schema: t.Any, path: str) -> t.Iterator[tuple[str, str]]:
    """Every expression of a schema with its place."""
    if isinstance(schema, list):
        for entry in schema:
            yield from _rules_of(entry, path)
    elif isinstance(schema, dict):
        for place, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
            for key in ("rule", "messageExpression"):
                if key in rule:
                    yield f"{path}.x-kubernetes-validations[{place}].{key}", rule[key]
        for key, inner in schema.items():
            if key != "x-kubernetes-validations":
                yield from _rules_of(inner, f"{path}.{key}")


def _told(error: jsonschema.ValidationError, field: str) -> Json:
    if error.validator == "required":
        missing = error.message.split("'")[1]
        return cause("FieldValueRequired", "Required value", f"{field}.{missing}".lstrip("."))
    if error.validator == "minItems":
        return cause(
            "FieldValueInvalid",
            f"Invalid value: {len(error.instance)}: {field} in body should have at least {error.validator_value} items",
            field,
        )
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
    """A definition is served from the moment it is written. When it is deleted the server deletes its objects, and it goes with the last."""

    def on_create(self, call: Call, obj: Json) -> None:
        obj["metadata"].setdefault("finalizers", []).append(_CLEANUP)
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
            for place, expression in _rules_of((version.get("schema") or {}).get("openAPIV3Schema"), f"spec.versions[{at}].schema"):
                try:
                    cel.compiled(expression)
                except SyntaxError as error:
                    causes.append(cause("FieldValueInvalid", f'Invalid value: "{expression}": compilation failed: {error}', place))
        if causes:
            raise invalid(self.resource, name, causes)

    def after(self, old: Item | None, new: Item) -> None:
        spec, names = new.obj["spec"], new.obj["spec"]["names"]
        if "deletionTimestamp" in new.obj["metadata"]:
            resource = self.api.registry.of(names["plural"], spec["group"])
            for item in self.api.store.table(resource.key).select():
                meta = item.obj["metadata"]
                call = Call(self.api.itself)
                self.api.objects.delete(resource, meta.get("namespace"), meta["name"], {}, call)
            finish(self.api, new.key)
            return
        if old is None or old.obj["spec"] != spec:
            serve(self.api.registry, spec)
            for version in spec["versions"]:
                if version.get("storage"):
                    shape = functools.partial(prune, version["schema"]["openAPIV3Schema"], root=True)
                    self.api.store.table((spec["group"], names["plural"])).reshape(shape)
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


def finish(api: Parts, key: str) -> None:
    """A deleted definition goes when no object is left."""
    definition = api.store.table(DEFINITIONS).get(key)
    if definition is None or "deletionTimestamp" not in definition.obj["metadata"]:
        return
    meta, spec = definition.obj["metadata"], definition.obj["spec"]
    if api.store.table((spec["group"], spec["names"]["plural"])).select():
        return
    left = [name for name in meta.get("finalizers") or [] if name != _CLEANUP]
    if left != meta.get("finalizers"):
        resource = api.registry.of(DEFINITIONS[1], DEFINITIONS[0])
        without = {**definition.obj, "metadata": {**meta, "finalizers": left}}
        api.objects.change(resource, None, key, lambda _old: without, Call(api.itself))


def serve(registry: Registry, spec: Json) -> None:
    """From now on the API server has the versions that a definition serves, and no other of its kind."""
    registry.remove(spec["group"], spec["names"]["plural"])
    for version in spec["versions"]:
        if version.get("served", True):
            registry.add(_resource(spec, version))


def _resource(spec: Json, version: Json) -> Resource:
    names, subresources = spec["names"], version.get("subresources") or {}
    scale = subresources.get("scale")
    return Resource(
        spec["group"], version["name"], names["plural"], names["kind"], spec["scope"] == "Namespaced",
        "status" in subresources, ("scale",) if scale else (), tuple(names.get("shortNames") or ()),
        tuple(names.get("categories") or ()), generation=True, blind_update=False, custom=True,
        scale=(scale["specReplicasPath"], scale["statusReplicasPath"]) if scale else ("", ""),
        fields=tuple(field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or ()),
        schema=version["schema"]["openAPIV3Schema"], columns=tuple(version.get("additionalPrinterColumns") or ()),
    )  # fmt: skip
