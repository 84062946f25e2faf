# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How Paperspace's API reads requests: bodies with checked fields, and lists in pages."""

from __future__ import annotations

import base64
import binascii
import json
import typing as t

import flask

from .paperspace_errors import Refused, invalid

PAGE = 25
LARGEST_PAGE = 120
_WORDS = {str: "string", bool: "boolean", int: "number", list: "array", float: "number"}

Field = tuple[type, bool]  # its type, and whether it must be there


def content(optional: bool = False) -> dict[str, t.Any]:
    """The JSON object of the request; content types do not matter. ``optional``: no body at all is an empty one."""
    raw = flask.request.get_data()
    if not raw.strip() and optional:
        return {}
    try:
        found = json.loads(raw)
    except ValueError:
        raise Refused("PARSE_ERROR", "The request body is not valid JSON") from None
    if not isinstance(found, dict):
        raise invalid(("", f"Expected object, received {_name(found)}"))
    return found


def checked(request: dict[str, t.Any], fields: t.Mapping[str, Field]) -> dict[str, t.Any]:
    """The request, with every field known and of its type; all that is wrong is told at once. A null counts as absent."""
    issues = [(name, f"Unrecognized key(s) in object: '{name}'") for name in request if name not in fields]
    present = {name: value for name, value in request.items() if value is not None}
    for name, (kind, needed) in fields.items():
        if name not in present:
            if needed:
                issues.append((name, "Required"))
        elif not _is(present[name], kind):
            issues.append((name, f"Expected {_WORDS[kind]}, received {_name(present[name])}"))
        elif kind is str and needed and not present[name].strip():
            issues.append((name, "String must contain at least 1 character(s)"))
    if issues:
        raise invalid(*issues)
    return present


def _is(value: t.Any, kind: type) -> bool:
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return isinstance(value, kind)


def _name(value: t.Any) -> str:
    if value is None:
        return "null"
    return {str: "string", bool: "boolean", int: "number", float: "number", list: "array"}.get(type(value), "object")


def page(items: t.Sequence[dict[str, t.Any]], orders: t.Sequence[str], *, tail: bool = True) -> dict[str, t.Any]:
    """One page of ``items`` as the query asks. ``orders`` are the keys they may be ordered by, the first is the default.

    A cursor names the last item shown and its place in the order: what comes or goes meanwhile neither repeats nor hides others.
    ``tail`` False: the last page has no ``nextPage`` at all.
    """
    query = flask.request.args
    order_by, order = query.get("orderBy", orders[0]), query.get("order", "asc")
    if order_by not in orders:
        raise invalid(("orderBy", f"Invalid enum value. Expected {' | '.join(repr(name) for name in orders)}"))
    if order not in ("asc", "desc"):
        raise invalid(("order", "Invalid enum value. Expected 'asc' | 'desc'"))
    limit = _limit(query.get("limit", str(PAGE)))

    def place(item: dict[str, t.Any]) -> tuple[str, str]:
        return str(item[order_by]), str(item.get("id") or item.get("ip"))

    ordered = sorted(items, key=place, reverse=order == "desc")
    if after := query.get("after"):
        last = _cursor(after)
        ordered = [item for item in ordered if (place(item) < last if order == "desc" else place(item) > last)]
    shown = ordered[:limit]
    more = len(ordered) > limit
    answer: dict[str, t.Any] = {"hasMore": more, "items": shown}
    if more or tail:
        answer["nextPage"] = base64.urlsafe_b64encode(json.dumps(place(shown[-1])).encode()).decode() if more else None
    return answer


def _limit(value: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= LARGEST_PAGE:
        raise invalid(("limit", f"Number must be between 1 and {LARGEST_PAGE}"))
    return int(value)


def _cursor(value: str) -> tuple[str, str]:
    try:
        first, second = json.loads(base64.urlsafe_b64decode(value))
    except (ValueError, TypeError, binascii.Error):
        raise invalid(("after", "Invalid cursor")) from None
    return str(first), str(second)
