# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GraphQL, as far as clients of clouds write it: one operation with fields, aliases, arguments and variables.

No fragments, no directives, no introspection. A :class:`Record` is an object of the schema; a field is a value or a function of its
arguments that gives one.
"""

from __future__ import annotations

import json
import re
import typing as t

_TOKEN = re.compile(
    r"""[\s,\ufeff]+|\#[^\n]*|(?P<token>\.\.\.|[{}()\[\]:=!@$|&]|"(?:[^"\\\n]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|[A-Za-z_]\w*)"""
)
_WORDS = {"true": True, "false": False, "null": None}


class Fault(Exception):
    """What is wrong with a query; ``code`` is that of the answer's extensions."""

    def __init__(self, message: str, code: str = "GRAPHQL_VALIDATION_FAILED") -> None:
        super().__init__(message)
        self.code = code


class Record(t.NamedTuple):
    """``kind`` is its type's name."""

    kind: str
    fields: t.Mapping[str, t.Any]


class Type(t.NamedTuple):
    """An object of the schema by name, with the types of its fields; None is a value."""

    kind: str
    fields: t.Mapping[str, Type | None]


class Field(t.NamedTuple):
    """One field of a query; ``inside`` None: it has no braces."""

    alias: str
    name: str
    arguments: dict[str, t.Any]
    inside: list[Field] | None


def check(what: Type, fields: list[Field]) -> None:
    """Fault where :func:`select` would find one. A mutation is read as a whole before any of it is done."""
    for field in fields:
        if field.name == "__typename":
            continue
        if field.name not in what.fields:
            raise _unknown(field, what.kind)
        inside = what.fields[field.name]
        if (inside is None) != (field.inside is None):
            raise _braces(field, wanted=inside is not None)
        if inside is not None:
            check(inside, field.inside or [])


def select(record: Record, fields: list[Field]) -> dict[str, t.Any]:
    """What fields ask of an object; Fault when they cannot be answered as a whole."""
    found = {}
    for field in fields:
        if field.name == "__typename":
            found[field.alias] = record.kind
            continue
        if field.name.startswith("__"):
            raise Fault("GraphQL introspection is not allowed")
        if field.name not in record.fields:
            raise _unknown(field, record.kind)
        value = record.fields[field.name]
        found[field.alias] = _shown(field, value(field.arguments) if callable(value) else value)
    return found


def _shown(field: Field, value: t.Any) -> t.Any:
    if isinstance(value, list):
        return [_shown(field, one) for one in value]
    if value is None:
        return None
    if isinstance(value, Record) != (field.inside is not None):
        raise _braces(field, wanted=isinstance(value, Record))
    return select(value, field.inside or []) if isinstance(value, Record) else value


def _unknown(field: Field, kind: str) -> Fault:
    return Fault(f'Cannot query field "{field.name}" on type "{kind}".')


def _braces(field: Field, *, wanted: bool) -> Fault:
    return Fault(f'Field "{field.name}" must {"" if wanted else "not "}have a selection of subfields.')


class Reader:
    """Reads one operation, with the values of its variables put in."""

    def __init__(self, text: str, variables: t.Mapping[str, t.Any]) -> None:
        self._variables, self._tokens, at = dict(variables), list[str](), 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise _syntax(text[at])
            self._tokens += [found["token"]] if found["token"] else []
            at = found.end()

    def operation(self) -> tuple[str, list[Field]]:
        """Its kind and its fields."""
        kind = "query"
        if self._next_is("query", "mutation", "subscription"):
            kind = self._take()
            if not self._next_is("(", "{"):
                self._take()  # its name
            if self._next_is("("):
                self._declarations()
        fields = self._fields()
        if self._tokens:
            raise _syntax(self._tokens[0])
        return kind, fields

    def _next_is(self, *tokens: str) -> bool:
        return bool(self._tokens) and self._tokens[0] in tokens

    def _take(self, wanted: str = "") -> str:
        if not self._tokens or (wanted and self._tokens[0] != wanted):
            raise _syntax(self._tokens[0] if self._tokens else "<EOF>")
        return self._tokens.pop(0)

    def _declarations(self) -> None:
        """Types are not checked; a default counts when the variable was not given."""
        self._take("(")
        while not self._next_is(")"):
            self._take("$")
            name = self._take()
            self._take(":")
            while self._next_is("[", "]", "!") or (self._tokens and self._tokens[0][0].isalpha()):
                self._take()
            if self._next_is("="):
                self._take()
                self._variables.setdefault(name, self._value())
            self._variables.setdefault(name, None)
        self._take(")")

    def _fields(self) -> list[Field]:
        self._take("{")
        found = []
        while not self._next_is("}"):
            alias = name = self._name()
            if self._next_is(":"):
                self._take()
                name = self._name()
            arguments = self._pairs("(", ")") if self._next_is("(") else {}
            found.append(Field(alias, name, arguments, self._fields() if self._next_is("{") else None))
        self._take("}")
        if not found:
            raise _syntax("}")
        return found

    def _name(self) -> str:
        token = self._take()
        if not re.fullmatch(r"[A-Za-z_]\w*", token):
            raise _syntax(token)
        return token

    def _pairs(self, opening: str, closing: str) -> dict[str, t.Any]:
        self._take(opening)
        found = {}
        while not self._next_is(closing):
            name = self._name()
            self._take(":")
            found[name] = self._value()
        self._take(closing)
        return found

    def _value(self) -> t.Any:
        if self._next_is("{"):
            return self._pairs("{", "}")
        token = self._take()
        if token == "[":
            items = []
            while not self._next_is("]"):
                items.append(self._value())
            self._take("]")
            return items
        if token == "$":
            name = self._name()
            if name not in self._variables:
                raise Fault(f'Variable "${name}" is not defined.')
            return self._variables[name]
        if token[0] in '"-' or token[0].isdigit():
            try:
                return json.loads(token)
            except ValueError:
                raise _syntax(token) from None
        if not token[0].isalpha() and token[0] != "_":
            raise _syntax(token)
        return _WORDS.get(token, token)  # a word besides is a value of an enumeration


def _syntax(token: str) -> Fault:
    return Fault(f"Syntax Error: Unexpected {token!r}.", "GRAPHQL_PARSE_FAILED")
