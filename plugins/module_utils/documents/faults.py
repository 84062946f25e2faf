# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a schema says of a wrong document, as one sentence per fault with its place and its remedy."""

from __future__ import annotations

import dataclasses
import difflib
import enum
import functools
import re
import typing as t
from datetime import datetime

from ..core.lazy_import import lazy
from .reading import REFUSED, REFUSED_VALUES
from .schemas import KINDS, Schema

if t.TYPE_CHECKING:
    import jsonschema
    import yaml
else:
    jsonschema = lazy("jsonschema")
    yaml = lazy("yaml", "pyyaml")


_TYPES = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "boolean": "true or false",
    "number": "a number",
}
_WORDS = {
    dict: "a mapping",
    list: "a list",
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "nothing",
}


def faults(kind: str, document: t.Mapping[str, t.Any]) -> list[str]:
    """Every fault of the document, one sentence each, in the order of their places; empty for a good one."""
    odd = list(_odd_keys(document, ()))
    if odd:
        return odd
    errors = sorted(validator(KINDS[kind]).iter_errors(document), key=lambda error: [str(step) for step in error.absolute_path])
    return [sentence for error in errors for sentence in _sentences(kind, error)]


def validator(schema: Schema) -> t.Any:
    """A validator to which 2.0 is no whole number: JSON Schema takes it for one, our records do not."""
    return _kind_of_validator()(schema)


@functools.cache
def _kind_of_validator() -> t.Any:
    usual = jsonschema.Draft202012Validator
    strict = usual.TYPE_CHECKER.redefine("integer", lambda _checker, value: isinstance(value, int) and not isinstance(value, bool))
    return jsonschema.validators.extend(usual, type_checker=strict)


def _odd_keys(value: t.Any, path: tuple[str | int, ...]) -> t.Iterator[str]:
    """Keys that YAML reads as something else than text: on, yes, 1 ..."""
    if isinstance(value, t.Mapping):
        for key, inner in value.items():
            if isinstance(key, str):
                yield from _odd_keys(inner, (*path, key))
            else:
                yield f"{dotted(path) or 'the document'}: the key {key!r} is no text. Write it in quotes."
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _odd_keys(inner, (*path, place))


def unknown_field(kind: str, path: str, name: str, known: t.Collection[str]) -> str:
    """What to say of a field that is not known at ``path`` (dotted, without list places)."""
    full = f"{path}.{name}" if path else name
    plain = re.sub(r"\[\d+\]", "", full)
    if plain in REFUSED:
        return f"{full}: {REFUSED[plain]}."
    return f"{full}: unknown field. {_suggestion(kind, plain, name, known)}"


def dotted(steps: t.Iterable[str | int]) -> str:
    """A place as people write it: spec.providers[0].name."""
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def _sentences(kind: str, error: t.Any) -> t.Iterator[str]:
    path = dotted(error.absolute_path)
    schema: Schema = error.schema
    match error.validator:
        case "additionalProperties":
            properties = schema.get("properties", {})
            for name in sorted(set(error.instance) - set(properties)):
                yield unknown_field(kind, path, str(name), properties)
        case "required":
            missing = [name for name in error.validator_value if name not in error.instance]
            for name in missing:
                if f"'{name}'" in error.message:
                    yield f"{dotted([*error.absolute_path, name])}: this field is missing."
        case "type":
            wanted = [error.validator_value] if isinstance(error.validator_value, str) else error.validator_value
            hint = f" Write {schema['description']}." if "description" in schema else ""
            words = " or ".join(_TYPES[one] for one in wanted)
            yield f"{path or 'the document'}: {words} is needed, not {_shown(error.instance)}.{hint}"
        case "enum" | "const":
            yield _choice(path, error)
        case "pattern":
            yield f"{path}: {error.instance!r} is not {schema.get('description', 'of the right form')}."
        case "minimum":
            yield f"{path}: {error.instance} is too small; it must be at least {error.validator_value}."
        case "minItems" | "minLength":
            yield f"{path}: it must not be empty."
        case _:
            yield f"{path}: {error.message}."


def _choice(path: str, error: t.Any) -> str:
    choices = [error.validator_value] if error.validator == "const" else list(error.validator_value)
    plain = re.sub(r"\[\d+\]", "", path)
    if isinstance(error.instance, str) and error.instance in REFUSED_VALUES.get(plain, {}):
        return f"{path}: {error.instance}: {REFUSED_VALUES[plain][error.instance]}. Use one of {', '.join(map(str, choices))}."
    lower = {str(choice).lower(): str(choice) for choice in choices}
    near = difflib.get_close_matches(str(error.instance).lower(), list(lower), n=1, cutoff=0.6)
    remedy = (
        f"Did you mean {lower[near[0]]}?" if near else f"Use {'one of ' if len(choices) > 1 else ''}{', '.join(map(str, choices))}."
    )
    return f"{path}: {error.instance!r} is not possible here. {remedy}"


def _shown(value: t.Any) -> str:
    word = _WORDS.get(type(value), type(value).__name__)
    return f"{word} ({value!r})" if isinstance(value, (str, int, float)) and len(repr(value)) < 60 else word


def _suggestion(kind: str, plain: str, name: str, known: t.Collection[str]) -> str:
    elsewhere = sorted(place for place in _places(KINDS[kind]) if place.rpartition(".")[2] == name)
    if elsewhere:
        return f"Did you mean {elsewhere[0]}?"
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    near = near or [one for one in known if one.lower() == name.replace("_", "").replace("-", "").lower()]
    if near:
        return f"Did you mean {near[0]}?"
    where = plain.rpartition(".")[0]
    return f"Known {'in ' + where if where else 'here'}: {', '.join(sorted(known))}."


def _places(schema: Schema, path: str = "") -> t.Iterator[str]:
    """Dotted places of all fields of a schema."""
    for name, inner in schema.get("properties", {}).items():
        place = f"{path}.{name}" if path else name
        yield place
        yield from _places(inner, place)
        if "items" in inner:
            yield from _places(inner["items"], place)


# ---- one document as it was read, before anything in it is checked: what it says, where it stands, and who may have written it


class DocumentOrigin(str, enum.Enum):
    """Who may have written a document (L-28): the operator of the run (files and inline documents), whoever may write GPUNodeClass
    objects, or whoever may write GPUNodePool and GPURequest objects."""

    OPERATOR = "operator"
    CLUSTER = "cluster"
    NAMESPACE = "namespace"


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """``place`` names it for people. ``source`` is the id of what was read: a file or folder as given, or one list of the cluster's API;
    empty for a document that no later run can look up again (inline). ``uid`` and ``deletion`` (deletionTimestamp) are those of an
    object."""

    place: str
    mapping: t.Mapping[str, t.Any]
    origin: DocumentOrigin = DocumentOrigin.OPERATOR
    source: str = ""
    uid: str = ""
    deletion: datetime | None = None


# ---- in which line of a file a fault stands


def line_of(text: str, number: int, path: str) -> int | None:
    """The line of ``path`` in the document ``number`` (from 1) of a file; of what is around it where that is missing."""
    for place, node in enumerate(yaml.compose_all(text, Loader=yaml.SafeLoader), start=1):
        if place == number:
            return None if node is None else _line(node, path, node)
    return None


def _line(node: t.Any, path: str, key: t.Any) -> int:
    """``key``: the node of the name under which ``node`` stands; its line is the one that people look for."""
    rest = path.removeprefix(".")
    if isinstance(node, yaml.MappingNode):
        for name, value in sorted(node.value, key=lambda pair: -len(str(pair[0].value))):
            after = rest.removeprefix(str(name.value))
            if rest.startswith(str(name.value)) and after[:1] in ("", ".", "[", " "):
                return _line(value, after, name)
    elif isinstance(node, yaml.SequenceNode) and rest.startswith("["):
        step, _bracket, after = rest[1:].partition("]")
        if step.isdigit() and int(step) < len(node.value):
            return _line(node.value[int(step)], after, node.value[int(step)])
    return int(key.start_mark.line) + 1
