# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists in pages: all pages of a list show one moment, and a page asked for too late is 410."""

from __future__ import annotations

import base64
import collections
import json
import threading
import typing as t
from datetime import datetime, timedelta

from .status import bad_request, expired
from .store import Item

Json = dict[str, t.Any]

LIFETIME = timedelta(minutes=5)
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue "
    "parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided "
    "token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was "
    "returned and now may show up in the list."
)


class _Snapshot(t.NamedTuple):
    made: datetime
    rv: int
    items: list[Item]


class Pages:
    """Open lists. At most ``capacity`` are kept; the oldest is forgotten first."""

    def __init__(self, now: t.Callable[[], datetime], capacity: int = 256) -> None:
        self._now = now
        self._capacity = capacity
        self._open: collections.OrderedDict[int, _Snapshot] = collections.OrderedDict()
        self._last = 0
        self._lock = threading.Lock()

    def page(
        self, what: str, select: t.Callable[[], tuple[int, list[Item]]], limit: int, token: str, count: bool
    ) -> tuple[list[Item], Json]:
        """Items and list metadata. ``what`` names the query, so that a token fits no other; ``select`` reads (revision, items)."""
        if token:
            number, at = self._parse(token, what)
            with self._lock:
                snapshot = self._open.get(number)
            if snapshot is None or snapshot.made + LIFETIME < self._now():
                raise expired(_TOO_OLD)
        else:
            at = 0
            rv, items = select()
            if not limit or len(items) <= limit:
                return items, {"resourceVersion": str(rv)}
            snapshot = _Snapshot(self._now(), rv, items)
            with self._lock:
                self._last += 1
                number = self._last
                self._open[number] = snapshot
                if len(self._open) > self._capacity:
                    self._open.popitem(last=False)
        end = min(at + limit, len(snapshot.items)) if limit else len(snapshot.items)
        metadata: Json = {"resourceVersion": str(snapshot.rv)}
        left = len(snapshot.items) - end
        if left > 0:
            metadata["continue"] = self._token(number, end, what)
            if count:
                metadata["remainingItemCount"] = left
        return snapshot.items[at:end], metadata

    @staticmethod
    def _token(number: int, at: int, what: str) -> str:
        return base64.urlsafe_b64encode(json.dumps({"n": number, "at": at, "of": what}).encode()).decode().rstrip("=")

    @staticmethod
    def _parse(token: str, what: str) -> tuple[int, int]:
        try:
            data = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
            if data["of"] != what:
                raise ValueError("a token of another list")
            return int(data["n"]), int(data["at"])
        except (ValueError, KeyError, TypeError) as error:
            raise bad_request(f"continue key is not valid: {error}") from None
