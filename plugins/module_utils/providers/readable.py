# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists of what a cloud sells: an entry that cannot be read is left out with a warning, because nobody has to rent it.

Lists of machines are never read so. An entry that is not understood there may be a machine of ours that costs money.
"""

from __future__ import annotations

import typing as t

from ..core import errors
from ..core.http import Api

_SHOWN = 3
_E = t.TypeVar("_E")
_R = t.TypeVar("_R")
Warn = t.Callable[[str], None]


def silent(_text: str) -> None:
    """For callers that show no warnings."""


def once(warn: Warn) -> Warn:
    """``warn`` that says each sentence once: a market is read for auction and on demand, and again before a launch."""
    said: set[str] = set()

    def tell(text: str) -> None:
        if text not in said:
            said.add(text)
            warn(text)

    return tell


def readable(service: str, entries: t.Iterable[_E], read: t.Callable[[_E], _R], warn: Warn) -> list[_R]:
    """``read(entry)`` for all entries that can be read. When none of them can, the first BadShape is raised: then the service has changed, and
    an empty market would be a wrong answer."""
    found: list[_R] = []
    problems: dict[str, errors.BadShape] = {}
    for entry in entries:
        try:
            found.append(read(entry))
        except errors.BadShape as error:
            problems.setdefault(str(error.details.get("why") or error.message), error)
    if problems and not found:
        raise next(iter(problems.values()))
    if problems:
        shown = "; ".join(list(problems)[:_SHOWN])
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        several = len(problems) > 1
        warn(
            f"{service}: {len(problems)} {'entries' if several else 'entry'} of what it offers cannot be read and "
            f"{'are' if several else 'is'} left out: {shown}{more}."
        )
    return found


# ---- reading a list to its end. Half a list, or one that never ends, must not be taken for the truth

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
