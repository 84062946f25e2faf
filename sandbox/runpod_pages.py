# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RunPod's lists: whole, as the description of August 2026 has them, or in pages with a cursor, as current clients follow them."""

from __future__ import annotations

import base64
import binascii
import typing as t

import flask

from .runpod_account import Account, invalid

_MOST = 1000  # entries of a page
_PAGING = ("cursor", "limit")
Entry = t.TypeVar("Entry")


def page(account: Account, found: list[Entry], key: t.Callable[[Entry], str]) -> tuple[list[Entry], dict[str, t.Any]]:
    """One page of a list, and the object that leads to the next: both, without an object, when the account's lists come whole. ``key`` is
    unique and does not change while the entry exists; pages go by it."""
    if account.page_size is None:
        return found, {}
    limit, begin = flask.request.args.get("limit", str(_MOST)), _begin()
    if not limit.isdecimal() or not 1 <= int(limit) <= _MOST:
        raise invalid(f"query.limit: should be a number from 1 to {_MOST}")
    size = min(int(limit), account.page_size)
    rest = sorted((one for one in found if key(one) > begin), key=key)
    more = len(rest) > size
    return rest[:size], {"pagination": {"hasNextPage": more, "nextCursor": _cursor(key(rest[size - 1])) if more else None}}


def _question() -> str:
    """The list and its parameters; a cursor is good for these alone."""
    args = sorted((name, value) for name, value in flask.request.args.items() if name not in _PAGING)
    return "&".join([flask.request.path, *(f"{name}={value}" for name, value in args)])


def _cursor(last: str) -> str:
    return base64.urlsafe_b64encode(f"{_question()} {last}".encode()).decode()


def _begin() -> str:
    """The key of the last entry of the page before; "" for the first page. 422 for a cursor of another list, or none at all."""
    cursor = flask.request.args.get("cursor")
    if cursor is None:
        return ""
    try:
        question, _blank, last = base64.b64decode(cursor.encode(), b"-_", validate=True).decode().rpartition(" ")
    except (binascii.Error, ValueError):
        question = last = ""
    if question != _question() or not last:
        raise invalid("query.cursor: is not a cursor of this list")
    return last
