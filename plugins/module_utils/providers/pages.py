# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reading a list to its end. Half a list, or one that never ends, must not be taken for the truth."""

from __future__ import annotations

import typing as t

from ..core.http import Api

_MOST = 1000


def walk(api: Api, what: str, read: t.Callable[[str | None], tuple[list[t.Any], str | None]]) -> list[t.Any]:
    """Everything of all pages. ``read(cursor)`` gives a page and the next cursor, None = it was the last. BadShape when a cursor comes
    again or the pages do not end."""
    found: list[t.Any] = []
    cursor: str | None = None
    seen: set[str] = set()
    for _page in range(_MOST):
        items, cursor = read(cursor)
        found += items
        if cursor is None:
            return found
        if cursor in seen:
            raise api.bad_shape(what, "its pages go round in a circle")
        seen.add(cursor)
    raise api.bad_shape(what, "its pages do not end")
