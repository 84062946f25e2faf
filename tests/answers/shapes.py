# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a JSON answer must look like: shapes, and tables of them per service.

A shape is
- a type: ``str``, ``bool``, ``int`` (no bool), ``float`` (any number), ``None``, ``object`` (anything),
- a set of words, a compiled pattern that the whole text matches,
- ``[shape]``: a list of it,
- ``{"name": shape, "perhaps?": shape, "*": shape}``: an object with ``name``, with or without ``perhaps``; all other fields are of the
  shape of ``"*"``, or anything without it, as services add fields over time,
- ``(shape, shape)``: one of them.

Beside JSON an answer may be ``EMPTY`` or of another ``Media`` type.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import typing as t

Shape = t.Any
Rows = dict[str, dict[int, Shape]]

WHEN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
IPV4 = re.compile(r"\d{1,3}(\.\d{1,3}){3}")
ABSENT_OR = "?"
_JSON = re.compile(r"application/([a-z.-]+\+)?json")
_LONGEST = 60


@dataclasses.dataclass(frozen=True)
class Media:
    """An answer that is no JSON, of this type; ``""`` = without any content."""

    type: str


EMPTY = Media("")


def partial(shape: dict[str, Shape]) -> dict[str, Shape]:
    """An object with some of these fields: what remains when a caller chooses columns."""
    return {f"{name.rstrip(ABSENT_OR)}{ABSENT_OR}": one for name, one in shape.items()}


def faults(shape: Shape, value: t.Any, place: str = "$") -> list[str]:
    """What of ``value`` (as JSON is read) is not of the shape, as "place: what was found, what is wanted"; empty = nothing."""
    if isinstance(shape, tuple):
        tried = []
        for one in shape:
            found = faults(one, value, place)
            if not found:
                return []
            tried.append(found)
        return min(tried, key=lambda found: (_another_kind(found, place), len(found)))
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [_wrong(place, value, "a list")]
        return [fault for number, one in enumerate(value) for fault in faults(shape[0], one, f"{place}[{number}]")]
    if isinstance(shape, dict):
        return _fields(shape, value, place) if isinstance(value, dict) else [_wrong(place, value, "an object")]
    return [] if _fits(shape, value) else [_wrong(place, value, _words(shape))]


def _another_kind(found: list[str], place: str) -> bool:
    """Whether the value is of another kind altogether: an alternative that fits down to a field tells more."""
    return any(fault.startswith(f"{place}: ") for fault in found)


def _fields(shape: dict[str, Shape], value: dict[str, t.Any], place: str) -> list[str]:
    found: list[str] = []
    others = set(value)
    for name, one in shape.items():
        field = name.removesuffix(ABSENT_OR)
        if field == "*":
            continue
        others.discard(field)
        if field in value and not isinstance(one, (dict, list, tuple)) and _fits(one, value[field]):
            continue  # the most of all fields: their place need not be told
        if field in value:
            found += faults(one, value[field], f"{place}.{field}")
        elif field == name:
            found.append(f"{place}.{field}: is missing")
    if "*" in shape:
        found += [fault for field in sorted(others) for fault in faults(shape["*"], value[field], f"{place}.{field}")]
    return found


def _fits(shape: Shape, value: t.Any) -> bool:
    if shape is object:
        return True
    if shape is None:
        return value is None
    if isinstance(shape, (set, frozenset)):
        return isinstance(value, str) and value in shape
    if isinstance(shape, re.Pattern):
        return isinstance(value, str) and shape.fullmatch(value) is not None
    if isinstance(value, bool):
        return shape is bool
    return isinstance(value, (int, float) if shape is float else shape)


def _words(shape: Shape) -> str:
    if isinstance(shape, (set, frozenset)):
        return f"one of {', '.join(sorted(shape))}"
    if isinstance(shape, re.Pattern):
        return f"text like {shape.pattern}"
    return {None: "null", str: "text", int: "a whole number", float: "a number", bool: "true or false"}[shape]


def _wrong(place: str, value: t.Any, wanted: str) -> str:
    shown = json.dumps(value)
    return f"{place}: is {shown if len(shown) <= _LONGEST else shown[:_LONGEST] + '…'}, wanted {wanted}"


@dataclasses.dataclass(frozen=True)
class Answer:
    """One answer as it left an emulator; ``query`` is decoded."""

    method: str
    path: str
    status: int
    media: str
    body: bytes
    query: str = ""
    headers: t.Container[str] = ()


@dataclasses.dataclass(frozen=True)
class Table:
    """What one service answers, as its facts tell: shapes by call and status.

    A call is "METHOD /path/{of}/{it}", or that, a blank and a pattern that is found in its query. ``refusals``: the statuses from 400 on
    that every call may be answered with, and their shape; a row may have its own. ``refusal_type`` is their content type. ``headers``: what
    every answer below a path carries.
    """

    service: str
    rows: Rows = dataclasses.field(repr=False)
    refusals: dict[int, Shape] = dataclasses.field(repr=False)
    refusal_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()

    @functools.cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], re.Pattern[str], str]]:
        """By path and query. The more is fixed, the earlier: ``/instances/filters/`` is no instance."""
        found = []
        for call in sorted(self.rows, key=lambda one: (one.count("{"), -one.count(" "))):
            method, path, query = [*call.split(" ", 2), ""][:3]
            fixed = map(re.escape, re.split(r"\{[^}]*\}", path))
            found.append((re.compile(f"{method} {'[^/]+'.join(fixed)}"), re.compile(query), call))
        return found

    def row(self, method: str, path: str, query: str = "") -> str:
        """The row of a call; "" when there is none."""
        found = (call for where, asked, call in self._patterns if where.fullmatch(f"{method} {path}") and asked.search(query))
        return next(found, "")

    def check(self, answer: Answer) -> list[str]:
        """What is wrong with an answer, one line each; empty = nothing."""
        call = self.row(answer.method, answer.path, answer.query)
        name, shapes, status = call or f"{answer.method} {answer.path}", self.rows.get(call, {}), answer.status
        if status not in shapes and status not in self.refusals:
            return [f"{self.service}: {name} {status}: no row of the table knows this status of this call"]
        refused = status not in shapes
        found = self._content(self.refusals[status] if refused else shapes[status], answer, refused)
        missing = [header for below, header in self.headers if answer.path.startswith(below) and header not in answer.headers]
        found += [f"header {header}: is missing" for header in missing]
        return [f"{self.service}: {name} {status}: {fault}" for fault in found]

    def _content(self, shape: Shape, answer: Answer, refused: bool) -> list[str]:
        shapes, media, body = shape if isinstance(shape, tuple) else (shape,), answer.media, answer.body
        if (EMPTY in shapes and not body) or any(isinstance(one, Media) and one.type == media and body for one in shapes):
            return []
        rest = tuple(one for one in shapes if not isinstance(one, Media))
        if not rest or not _JSON.fullmatch(media):
            return [f"content type: is {media or 'none'} with {len(body)} bytes, wanted {self._types(shapes)}"]
        if refused and media != self.refusal_type:
            return [f"content type: is {media}, wanted {self.refusal_type}"]
        try:
            return faults(rest if len(rest) > 1 else rest[0], json.loads(body))
        except ValueError:
            return [f"$: is no JSON, but {body[:_LONGEST]!r}"]

    @staticmethod
    def _types(shapes: tuple[Shape, ...]) -> str:
        names = [(one.type or "nothing") if isinstance(one, Media) else "JSON" for one in shapes]
        return " or ".join(dict.fromkeys(names))
