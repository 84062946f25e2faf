# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A watch: the changes of one kind since a revision, as one JSON document per line, for as long as asked."""

from __future__ import annotations

import threading
import typing as t

from .resources import Resource
from .status import expired
from .store import Change, Item, Store, encode

Json = dict[str, t.Any]
Test = t.Callable[[Json], bool]
Text = t.Callable[[Item], bytes]

_GLANCE = 1.0  # real seconds between two looks at the clock and the connection
_BOOKMARK = 60.0  # clock seconds between two bookmarks


def _event(kind: str, text: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + text.rstrip(b"\n") + b"}\n"


def failed(rv: int, oldest: int) -> bytes:
    """The last event of a watch that starts or lags behind what is remembered."""
    return _event("ERROR", encode(expired(f"too old resource version: {rv} ({oldest})").body))


class Watch:
    """Iterable of byte chunks. ``close`` ends it from any thread.

    ``initial`` are items that come first as ADDED; ``mark_initial`` ends them with the bookmark that says so. ``seconds`` reads the clock
    (its speed is ``speed`` per real second). ``lost`` tells whether the client is gone.
    """

    def __init__(
        self, store: Store, resource: Resource, after: int, test: Test, text: Text, *, seconds: t.Callable[[], float], speed: float,
        timeout: float | None, bookmarks: bool, initial: t.Sequence[Item] = (), mark_initial: bool = False,
        lost: t.Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self._store = store
        self._table = store.table(resource.key)
        self._resource = resource
        self._test = test
        self._text = text
        self._seconds = seconds
        self._speed = speed
        self._bookmarks = bookmarks
        self._lost = lost
        self._closed = threading.Event()
        self._seen = self._after = after
        with store.lock:
            position = self._table.position_after(after)
        self._position = position
        started = seconds()
        self._end = None if timeout is None else started + timeout
        self._next_bookmark = started + _BOOKMARK
        first = [_event("ADDED", text(item)) for item in initial]
        if position is None:
            first.append(failed(after, self._table.forgotten))
        elif mark_initial:
            first.append(self._bookmark(after, {"k8s.io/initial-events-end": "true"}))
        self._first: list[bytes] = [b"".join(first)] if first else []

    def __iter__(self) -> t.Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._first:
            return self._first.pop()
        while not self._closed.is_set() and self._position is not None:
            chunk = self._step()
            if chunk:
                return chunk
        raise StopIteration

    def close(self) -> None:
        self._closed.set()
        with self._store.lock:
            self._store.changed.notify_all()

    def _step(self) -> bytes:
        """Events that are there, or a wait for some. Empty = nothing yet."""
        with self._store.lock:
            changes = None if self._position is None else self._table.changes(self._position)
            if changes is None:
                self._position = None
                return failed(self._seen, self._table.forgotten)
            if not changes:
                now = self._seconds()
                if self._end is not None and now >= self._end:
                    self._position = None
                    return self._bookmark(self._store.rv) if self._bookmarks else b""
                if self._bookmarks and now >= self._next_bookmark:
                    self._next_bookmark = now + _BOOKMARK
                    return self._bookmark(self._store.rv)
                left = _GLANCE if self._end is None else min(_GLANCE, (self._end - now) / self._speed)
                self._store.changed.wait(max(left, 0.001))
                if self._lost() or self._store.table(self._resource.key) is not self._table:
                    self._closed.set()
                return b""
            self._position = self._table.position()
            self._seen = changes[-1].rv
        return b"".join(filter(None, map(self._told, changes)))

    def _told(self, change: Change) -> bytes | None:
        """What this watcher hears of a change: an object that comes to fit is ADDED, one that ceases to fit is DELETED."""
        if change.rv <= self._after:
            return None  # the watch asked for a revision that was not reached yet
        before = change.old is not None and self._test(change.old.obj)
        after = not change.gone and self._test(change.new.obj)
        if after:
            return _event("MODIFIED" if before else "ADDED", self._text(change.new))
        if before:
            return _event("DELETED", self._text(change.new))
        return None

    def _bookmark(self, rv: int, annotations: Json | None = None) -> bytes:
        metadata: Json = {"resourceVersion": str(rv)}
        if annotations:
            metadata["annotations"] = annotations
        obj = {"kind": self._resource.kind, "apiVersion": self._resource.api_version, "metadata": metadata}
        return _event("BOOKMARK", encode(obj))
