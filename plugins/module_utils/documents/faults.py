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
import shlex
import typing as t
from datetime import datetime

from ..core.errors import lazy
from ..model import NodeClass, Pool
from .reading import REFUSED, REFUSED_VALUES, Fault, Reader
from .schema_values import Schema
from .schemas import KINDS

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
    return schema_faults(KINDS[kind], document)


def schema_faults(schema: Schema, document: t.Mapping[str, t.Any]) -> list[str]:
    """The same for a file that is none of the three kinds."""
    odd = list(_odd_keys(document, ()))
    if odd:
        return odd
    errors = sorted(validator(schema).iter_errors(document), key=lambda error: [str(step) for step in error.absolute_path])
    return [sentence for error in errors for sentence in _sentences(schema, error)]


def validator(schema: Schema) -> t.Any:
    """A validator to which 2.0 is not a whole number: JSON Schema takes it for one, our records do not."""
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
                yield f"{dotted(path) or 'the document'}: the key {key!r} is not text. Write it in quotes."
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from _odd_keys(inner, (*path, place))


def unknown_field(whole: Schema, path: str, name: str, fields: t.Collection[str]) -> str:
    """What to say of a field that is not known at ``path`` (dotted, without list places). ``whole``: the schema of the document."""
    full = f"{path}.{name}" if path else name
    plain = re.sub(r"\[\d+\]", "", full)
    if plain in REFUSED:
        return f"{full}: {REFUSED[plain]}."
    return f"{full}: unknown field. {_suggestion(whole, plain, name, fields)}"


def dotted(steps: t.Iterable[str | int]) -> str:
    """A place as people write it: spec.providers[0].name."""
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def _sentences(whole: Schema, error: t.Any) -> t.Iterator[str]:
    path = dotted(error.absolute_path)
    schema: Schema = error.schema
    match error.validator:
        case "additionalProperties":
            properties = schema.get("properties", {})
            for name in sorted(set(error.instance) - set(properties)):
                yield unknown_field(whole, path, str(name), properties)
        case "required":
            missing = [name for name in error.validator_value if name not in error.instance]
            for name in missing:
                if f"'{name}'" in error.message:
                    yield f"{dotted([*error.absolute_path, name])}: this field is missing."
        case "type":
            wanted = [error.validator_value] if isinstance(error.validator_value, str) else error.validator_value
            hint = f" Write {schema['description']}." if "description" in schema else ""
            words = " or ".join(_TYPES[type_name] for type_name in wanted)
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


def _suggestion(whole: Schema, plain: str, name: str, fields: t.Collection[str]) -> str:
    elsewhere = sorted(place for place in _places(whole) if place.rpartition(".")[2] == name)
    if elsewhere:
        return f"Did you mean {elsewhere[0]}?"
    near = difflib.get_close_matches(name, list(fields), n=1, cutoff=0.6)
    near = near or [field for field in fields if field.lower() == name.replace("_", "").replace("-", "").lower()]
    if near:
        return f"Did you mean {near[0]}?"
    where = plain.rpartition(".")[0]
    return f"Known {'in ' + where if where else 'here'}: {', '.join(sorted(fields))}."


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
    object. ``field`` says where a field of a document of a file stands."""

    place: str
    mapping: t.Mapping[str, t.Any]
    origin: DocumentOrigin = DocumentOrigin.OPERATOR
    source: str = ""
    uid: str = ""
    deletion: datetime | None = None
    field: t.Callable[[str], str] | None = None


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


# ---- what a document may say depends on who may have written it (L-28). The operator's files may name commands (those that the run
# allows), files of the controller and any Secret. Objects of the cluster name neither commands nor files; namespaced objects name Secrets
# of their own namespace only, and classes that allow their namespace. The tables name every such field; a test walks the schemas and
# fails when a field is in none of them

Paths = t.Mapping[str, tuple[str, ...]]
_TEMPLATE_FILE = "spec.talosConfig.machineConfigTemplateFile"
# [] stands for each entry of a list, * for each value of a mapping
COMMANDS: Paths = {"GPUNodePool": ("spec.disruption.idleProbe.command",)}
FILES: Paths = {"GPUNodeClass": (_TEMPLATE_FILE,), "GPURequest": (_TEMPLATE_FILE,)}
_OF_HUBS = (
    *(f"spec.wireguardConfig.{field}SecretRef" for field in ("endpoint", "publicKey", "network", "allowedIPs")),
    *(
        f"spec.talosConfig.wireGuardConfig.{field}SecretRef"
        for field in ("privateKey", "publicKey", "serverEndpoint", "allowedIPs", "address")
    ),
)
SECRETS: Paths = {
    "GPUNodeClass": ("spec.providers[].credentialsRef", "spec.talosConfig.templateRef", *_OF_HUBS),
    "GPUNodePool": ("spec.template.spec.service.environmentFrom.*",),
    "GPURequest": ("spec.credentialsRef", "spec.talosConfig.templateRef", *_OF_HUBS),
}
PULLS: Paths = {
    kind: ("spec.prePull.imagePullSecrets",) for kind in ("GPUNodePool", "GPURequest")
}  # names, of the records' namespace
ACCOUNT: Paths = {  # credentials and data that lie at a cloud, by their id or name
    "GPUNodeClass": ("spec.providers[].settings.registry", "spec.providers[].volumes")
}
_OUR_NAMESPACE = "tgp-system"  # of records, and of pods of ours
EVERY = "*"
_RANK = {DocumentOrigin.OPERATOR: 0, DocumentOrigin.CLUSTER: 1, DocumentOrigin.NAMESPACE: 2}


def is_allowed(command: t.Sequence[str], allowed: t.Sequence[str]) -> bool:
    """Whether one of ``allowed``, lines of shell words, is the beginning of the command."""
    for line in allowed:
        try:
            words = shlex.split(line)
        except ValueError:  # an open quote: nothing begins so
            continue
        if words and list(command[: len(words)]) == words:
            return True
    return False


def by_origin(documents: t.Sequence[Document]) -> list[Document]:
    """The operator's documents first: of two with one name, the fault is that of the object of the cluster."""
    return sorted(documents, key=lambda document: _RANK[document.origin])


def forbidden(kind: str, document: Document, allow_commands: t.Sequence[str]) -> list[Fault]:
    """What the document says and whoever wrote it may not say. The document is valid by its schema."""
    of_operator = document.origin is DocumentOrigin.OPERATOR
    faults = []
    for place, command in _named(COMMANDS, kind, document):
        if not of_operator:
            text = (
                "an object of the cluster cannot name a program of the controller. Use url, or give this pool to the run as a file."
            )
            faults.append(Fault(document.place, text, place))
        elif not is_allowed(command, allow_commands):
            text = (
                "this program would run on the controller, and allow_commands does not allow it. "
                f"Add {shlex.join(command)!r} to the option allow_commands, or its first words."
            )
            faults.append(Fault(document.place, text, place))
    for place, _file in () if of_operator else _named(FILES, kind, document):
        out = "Write the text as machineConfigTemplate"
        other = ", or put it into a Secret and name that in templateRef" if kind == "GPUNodeClass" else ""
        text = f"an object of the cluster cannot name a file of the controller. {out}{other}."
        faults.append(Fault(document.place, text, place))
    if document.origin is DocumentOrigin.NAMESPACE:
        faults.extend(_foreign_secrets(kind, document))
        faults.extend(_foreign_pulls(kind, document))
    return faults


def _foreign_secrets(kind: str, document: Document) -> t.Iterator[Fault]:
    own = namespace_of(document)
    for place, ref in _named(SECRETS, kind, document):
        if not own:
            text = (
                f"a {kind} object has no namespace of its own, so it cannot name a Secret. "
                "Remove it, or give this document to the run as a file."
            )
            yield Fault(document.place, text, place)
        elif ref.get("namespace", own) != own:
            text = f"{ref['namespace']} is not the namespace of this object. Put the Secret into {own}, and remove namespace."
            yield Fault(document.place, text, f"{place}.namespace")


def _foreign_pulls(kind: str, document: Document) -> t.Iterator[Fault]:
    """The pod that pulls is one of ours, so its Secrets are in our namespace."""
    for place, _names in _named(PULLS, kind, document) if namespace_of(document) != _OUR_NAMESPACE else ():
        text = f"these are Secrets of {_OUR_NAMESPACE}, which this object cannot name. Remove it, or give this document to the run as a file."
        yield Fault(document.place, text, place)


def namespace_of(document: Document) -> str:
    """The namespace of a namespaced object; empty for all else."""
    return str(document.mapping["metadata"].get("namespace", "")) if document.origin is DocumentOrigin.NAMESPACE else ""


def allowed_namespaces(document: t.Mapping[str, t.Any]) -> tuple[str, ...] | None:
    """The namespaces whose pools may use a class; None = all. A class that says nothing about it is for all, unless it has credentials of
    its own, or volumes whose data its machines read and write."""
    given: list[str] | None = document["spec"].get("allowedNamespaces")
    if given is None:
        return () if any(_values(document, paths, "GPUNodeClass") for paths in (COMMANDS, SECRETS, ACCOUNT)) else None
    return None if EVERY in given else tuple(given)


def check_class(document: Document, pool: Pool, node_class: NodeClass | None, reader: Reader) -> None:
    """A fault when a namespaced pool names a class that does not allow its namespace."""
    if document.origin is not DocumentOrigin.NAMESPACE or node_class is None or node_class.allowed_namespaces is None:
        return
    if pool.namespace not in node_class.allowed_namespaces:
        reader.fault(
            "spec.nodeClassRef.name",
            f"class {node_class.name} does not allow namespace {pool.namespace}. "
            f"Add {pool.namespace} to spec.allowedNamespaces of that GPUNodeClass, or use another class.",
        )


def _named(paths: Paths, kind: str, document: Document) -> list[tuple[str, t.Any]]:
    return _values(document.mapping, paths, kind)


def _values(mapping: t.Mapping[str, t.Any], paths: Paths, kind: str) -> list[tuple[str, t.Any]]:
    return [value for path in paths.get(kind, ()) for value in _at(mapping, path.replace("[]", ".[]").split("."), "")]


def _at(value: t.Any, steps: t.Sequence[str], place: str) -> t.Iterator[tuple[str, t.Any]]:
    """Every value at a path, with its place as people write it."""
    if not steps:
        yield place, value
        return
    first, rest = steps[0], steps[1:]
    if first == "[]":
        for number, entry in enumerate(value if isinstance(value, list) else ()):
            yield from _at(entry, rest, f"{place}[{number}]")
    elif isinstance(value, dict):
        for key in value if first == "*" else [first] if first in value else ():
            yield from _at(value[key], rest, f"{place}.{key}".strip("."))
