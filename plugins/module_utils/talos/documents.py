# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Talos configuration as data: several YAML documents read strictly, written so that Talos reads back what was meant.

Talos decodes YAML 1.2 and refuses a key written twice; PyYAML speaks 1.1 and keeps the last one silently. The loader here takes
the difference away: only ``true``/``false`` are booleans, dates stay text, ``0o600`` is a number, a repeated key is an error.
"""

from __future__ import annotations

import functools
import re
import typing as t

from ..core.errors import InvalidInput
from ..core.lazy_import import lazy

if t.TYPE_CHECKING:
    import yaml
else:
    yaml = lazy("yaml", "pyyaml")

Document = dict[str, t.Any]

_TAGS = (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("null", r"^(?:~|null|Null|NULL|)$", "~nN\0"),
    ("int", r"^[-+]?(?:0|[1-9][0-9]*|0o?[0-7]+|0x[0-9a-fA-F]+)$", "-+0123456789"),
    ("float", r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", "-+.0123456789"),
    ("merge", r"^<<$", "<"),
)


class _Repeated(Exception):
    """A key occurs twice in one mapping."""

    def __init__(self, key: str, line: int) -> None:
        super().__init__(key)
        self.key, self.line = key, line


class _NoText(Exception):
    """A key is a mapping or a list, as ``{{ Name }}`` is to YAML."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


@functools.cache
def _loader() -> t.Any:
    """The loader class; made at first use because PyYAML is imported lazily."""
    base: t.Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    class Loader(base):  # type: ignore[misc]
        yaml_implicit_resolvers: t.ClassVar[dict[str, t.Any]] = {}

        def construct_mapping(self, node: t.Any, deep: bool = False) -> t.Any:
            seen: set[str] = set()
            for key, _value in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise _NoText(key.start_mark.line + 1)
                if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                    raise _Repeated(str(key.value), key.start_mark.line + 1)
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    for name, pattern, first in _TAGS:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(pattern), ["" if c == "\0" else c for c in first])

    def integer(loader: t.Any, node: t.Any) -> int:
        text = node.value
        body = text.lstrip("+-")
        base = 16 if body.startswith("0x") else 8 if len(body) > 1 and body[0] == "0" else 10
        return int(body.removeprefix("0x").removeprefix("0o"), base) * (-1 if text.startswith("-") else 1)

    def real(loader: t.Any, node: t.Any) -> float:
        return float(node.value)

    Loader.add_constructor("tag:yaml.org,2002:int", integer)
    Loader.add_constructor("tag:yaml.org,2002:float", real)
    return Loader


@functools.cache
def _dumper() -> t.Any:
    """A dumper that quotes whatever either YAML version would take for something else than text."""
    base: t.Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):  # type: ignore[misc]
        def ignore_aliases(self, data: t.Any) -> bool:
            return True

    def text(dumper: t.Any, value: str) -> t.Any:
        plain = str.__str__(value)  # the emitter in C takes nothing but the type itself
        return dumper.represent_scalar("tag:yaml.org,2002:str", plain, style="|" if "\n" in plain else None)

    Dumper.add_representer(str, text)
    # Ansible hands over subclasses of the plain types
    Dumper.add_multi_representer(str, text)
    for kind, represent in ((dict, base.represent_dict), (list, base.represent_list), (int, base.represent_int)):
        Dumper.add_multi_representer(kind, represent)
    for name, pattern, first in _TAGS[2:4]:
        Dumper.add_implicit_resolver(f"tag:yaml.org,2002:{name}", re.compile(pattern), list(first))
    return Dumper


def parse(text: str, what: str) -> list[Document]:
    """The documents of ``text`` (empty ones left out). ``what`` names the text in errors.

    Raises InvalidInput with the line, never with the text itself: it may hold secrets.
    """
    try:
        documents = [document for document in yaml.load_all(text, Loader=_loader()) if document is not None]
    except _Repeated as error:
        raise InvalidInput(f"{what}: line {error.line} has the key {error.key!r} a second time; write it once.") from None
    except _NoText as error:
        raise InvalidInput(
            f"{what}: line {error.line} has a mapping or a list where a key should be; are the braces of a variable ({{{{ … }}}}) left in it?"
        ) from None
    except (
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ):  # of a value that is not what its tag says; its words could hold the value
        raise InvalidInput(f"{what} is not valid YAML: a value is not what its tag says it is.") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else "an unknown place"
        reason = getattr(error, "problem", None) or "it cannot be read"
        raise InvalidInput(f"{what} is not valid YAML: {place}: {reason}.") from None
    for number, document in enumerate(documents, 1):
        if not isinstance(document, dict):
            raise InvalidInput(f"{what}: document {number} is not a mapping of fields.")
    try:
        return t.cast("list[Document]", _apart(documents))
    except RecursionError:
        raise InvalidInput(f"{what} has a YAML alias that refers to itself.") from None


def _apart(value: t.Any) -> t.Any:
    """A copy in which what YAML aliases shared is no longer shared, so that one place can be changed alone."""
    if isinstance(value, dict):
        return {key: _apart(item) for key, item in value.items()}
    return [_apart(item) for item in value] if isinstance(value, list) else value


def to_yaml(documents: t.Sequence[Document]) -> str:
    """The documents as one YAML stream, keys in their order, long lines kept whole."""
    return t.cast(str, yaml.dump_all(documents, Dumper=_dumper(), sort_keys=False, default_flow_style=False, width=4096))


def machine_document(documents: t.Sequence[Document]) -> Document | None:
    """The v1alpha1 machine configuration among the documents: the one without ``kind``."""
    return next((document for document in documents if "kind" not in document), None)


def of_kind(documents: t.Sequence[Document], kind: str, name: str | None = None) -> Document | None:
    """The first document of a kind (and name)."""
    return next((d for d in documents if d.get("kind") == kind and (name is None or d.get("name") == name)), None)


def at(document: t.Mapping[str, t.Any] | None, path: str) -> t.Any:
    """The value at a dotted path, None when any part of it is absent."""
    value: t.Any = document
    for part in path.split("."):
        if not isinstance(value, t.Mapping):
            return None
        value = value.get(part)
    return value


def items_at(document: t.Mapping[str, t.Any] | None, path: str) -> list[t.Any]:
    """The entries of the list at a dotted path; none when there is something else."""
    value = at(document, path)
    return value if isinstance(value, list) else []


def fields_at(document: t.Mapping[str, t.Any] | None, path: str) -> dict[str, t.Any]:
    """The mapping at a dotted path; an empty one when there is something else."""
    value = at(document, path)
    return value if isinstance(value, dict) else {}
