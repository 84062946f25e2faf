# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the published schema of Talos says about a document.

The schema uses a dozen keywords; they are read here directly. That gives the path and the kind of each fault for sentences of our
own, and costs a millisecond where importing a general validator costs a hundred. Tests hold it against such a validator.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import re
import typing as t

from . import schema_data

Schema = t.Mapping[str, t.Any]
_MISNAMED = {"KubeSpanEndpoints": "KubeSpanEndpointsConfig"}  # what the schema calls a kind -> what Talos does
KEYWORDS = frozenset({
    "$ref", "type", "properties", "patternProperties", "additionalProperties", "required", "items", "enum", "pattern", "oneOf",
})  # fmt: skip
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}
_WORDS = {dict: "a mapping", list: "a list", str: "text", bool: "true/false", int: "a number", float: "a number"}
_WANTED = {
    "object": "a mapping", "array": "a list", "string": "text in quotes", "boolean": "true or false", "integer": "a whole number",
    "number": "a number", "null": "empty",
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """One disagreement with the schema: ``path`` like "machine.files[0].path", ``keyword`` of the schema, ``text`` for people."""

    path: str
    keyword: str
    text: str


@functools.cache
def definitions() -> Schema:
    """The definitions of the schema, decoded once per process."""
    return t.cast(Schema, json.loads(schema_data.text())["$defs"])


@functools.cache
def kinds() -> t.Mapping[str, str]:
    """Document kind -> name of its definition; "" is the machine configuration."""
    found = {"": "v1alpha1.Config"}
    for name, definition in definitions().items():
        for kind in definition.get("properties", {}).get("kind", {}).get("enum", ()):
            found[_MISNAMED.get(kind, kind)] = name
    return found


def faults(document: t.Mapping[str, t.Any]) -> list[Fault]:
    """Everything the schema has against one document; a kind it does not know is one fault."""
    kind = str(document.get("kind", ""))
    name = kinds().get(kind)
    if name is None:
        close = difflib.get_close_matches(kind, kinds(), n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        return [Fault("kind", "kind", f"Talos knows no document of kind {kind!r}.{hint}")]
    published = next((word for word, right in _MISNAMED.items() if right == kind), None)
    return list(_check({**document, "kind": published} if published else document, definitions()[name], ""))


def _check(value: t.Any, schema: Schema, path: str) -> t.Iterator[Fault]:
    reference = schema.get("$ref")
    if reference is not None:
        yield from _check(value, definitions()[reference.rpartition("/")[2]], path)
    wanted = schema.get("type")
    if wanted is not None and not _is(value, wanted):
        yield Fault(path, "type", f"{path} must be {_WANTED[wanted]} and is {_WORDS.get(type(value), 'empty')}.")
        return
    if "enum" in schema and value not in schema["enum"]:
        yield Fault(path, "enum", f"{path} must be {' or '.join(map(str, schema['enum']))}.")
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield Fault(path, "pattern", _pattern(path, schema["pattern"]))
    if "oneOf" in schema and sum(not any(True for _ in _check(value, option, path)) for option in schema["oneOf"]) != 1:
        yield Fault(path, "oneOf", f"{path} must be {' or '.join(_WANTED[option['type']] for option in schema['oneOf'])}.")
    if isinstance(value, dict):
        yield from _mapping(value, schema, path)
    elif isinstance(value, list) and "items" in schema:
        for number, item in enumerate(value):
            yield from _check(item, schema["items"], f"{path}[{number}]")


def _mapping(value: dict[str, t.Any], schema: Schema, path: str) -> t.Iterator[Fault]:
    properties = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    others = schema.get("additionalProperties", True)
    dot = f"{path}." if path else ""
    for name in schema.get("required", ()):
        if name not in value:
            yield Fault(f"{dot}{name}", "required", f"{dot}{name} is missing.")
    for key, item in value.items():
        inner = f"{dot}{key}"
        known = [properties[key]] if key in properties else []
        known += [option for pattern, option in patterns.items() if re.search(pattern, str(key))]
        if not known and others is False:
            close = difflib.get_close_matches(str(key), properties, n=1, cutoff=0.75)
            hint = f" Did you mean {close[0]}?" if close else ""
            yield Fault(inner, "additionalProperties", f"Talos has no field {inner}.{hint}")
        elif not known and isinstance(others, dict):
            known = [others]
        for option in known:
            yield from _check(item, option, inner)


def _is(value: t.Any, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[wanted])


def _pattern(path: str, pattern: str) -> str:
    if pattern == "^https://":
        return f"{path} must start with https://."
    return f"{path} has not the form that Talos wants ({pattern})."
