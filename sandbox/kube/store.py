# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects, their global revision counter, and the recent changes of each kind for watchers.

Stored objects are never changed in place: a write puts a new object. So lists, snapshots for paging and old versions for watchers cost
one reference each, and the JSON text of an object is made once.
"""

from __future__ import annotations

import bisect
import json
import threading
import typing as t

Json = dict[str, t.Any]
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def encode(value: t.Any) -> bytes:
    """Compact JSON."""
    return _encode(value).encode()


def clone(value: t.Any) -> t.Any:
    """A deep copy of JSON data."""
    if isinstance(value, dict):
        return {key: clone(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) for item in value]
    return value


class Item:
    """One version of an object. ``obj`` has no kind and apiVersion (lists of built-in kinds show none) and must not be changed."""

    __slots__ = ("key", "obj", "rv", "_text")

    def __init__(self, key: str, obj: Json, rv: int) -> None:
        self.key = key
        self.obj = obj
        self.rv = rv
        self._text: bytes | None = None

    def text(self) -> bytes:
        if self._text is None:
            self._text = encode(self.obj)
        return self._text


class Change(t.NamedTuple):
    """``new`` is the object after the write; after a deletion its last version with the deletion's revision."""

    rv: int
    old: Item | None
    new: Item
    gone: bool


class Table:
    """All objects of one kind, ordered by namespace and name. ``index`` gives the one value of an object to look it up by."""

    def __init__(self, history: int, index: t.Callable[[Json], str | None] | None = None) -> None:
        self._items: dict[str, Item] = {}
        self._keys: list[str] = []
        self._history = history
        self._changes: list[Change] = []
        self._first = 0  # sequence number of _changes[0]
        self.forgotten = 0  # revision of the newest change that watchers can no longer get
        self.revision = 0
        self._index = index
        self._indexed: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: str) -> Item | None:
        return self._items.get(key)

    def select(self, namespace: str | None = None, indexed: str | None = None) -> list[Item]:
        """Items in order; of one namespace; or of one index value."""
        if indexed is not None:
            keys: t.Iterable[str] = sorted(self._indexed.get(indexed, ()))
            if namespace is not None:
                keys = (key for key in keys if key.startswith(f"{namespace}/"))
        elif namespace is None:
            keys = self._keys
        else:
            keys = self._keys[bisect.bisect_left(self._keys, f"{namespace}/") : bisect.bisect_left(self._keys, f"{namespace}0")]
        return [self._items[key] for key in keys]

    def put(self, item: Item) -> None:
        old = self._items.get(item.key)
        if old is None:
            bisect.insort(self._keys, item.key)
        else:
            self._unindex(old)
        self._items[item.key] = item
        if self._index and (value := self._index(item.obj)):
            self._indexed.setdefault(value, {})[item.key] = None
        self._note(Change(item.rv, old, item, False))

    def reshape(self, shape: t.Callable[[Json], Json]) -> None:
        """Show every object in another form from now on, as a newer definition of its kind does: no revision, no event."""
        self._items = {key: Item(key, shape(clone(item.obj)), item.rv) for key, item in self._items.items()}

    def drop(self, last: Item) -> None:
        old = self._items.pop(last.key)
        del self._keys[bisect.bisect_left(self._keys, last.key)]
        self._unindex(old)
        self._note(Change(last.rv, old, last, True))

    def _unindex(self, item: Item) -> None:
        if self._index and (value := self._index(item.obj)):
            keys = self._indexed.get(value, {})
            keys.pop(item.key, None)
            if not keys:
                self._indexed.pop(value, None)

    def _note(self, change: Change) -> None:
        self.revision = change.rv
        self._changes.append(change)
        if len(self._changes) >= 2 * self._history:
            cut = len(self._changes) - self._history
            self.forgotten = self._changes[cut - 1].rv
            del self._changes[:cut]
            self._first += cut

    def position_after(self, rv: int) -> int | None:
        """Sequence number of the first change after revision ``rv``; None if some of them are forgotten."""
        if rv < self.forgotten:
            return None
        return self._first + bisect.bisect_right(self._changes, rv, key=lambda change: change.rv)

    def position(self) -> int:
        return self._first + len(self._changes)

    def changes(self, position: int) -> list[Change] | None:
        """What happened since that position; None if the watcher was too slow."""
        if position < self._first:
            return None
        return self._changes[position - self._first :]


class Store:
    """Tables by (group, plural). Hold ``lock`` from reading what a write depends on until the write is done."""

    def __init__(self, history: int = 10_000) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.rv = 100
        self._history = history
        self._tables: dict[tuple[str, str], Table] = {}

    def table(self, key: tuple[str, str]) -> Table:
        table = self._tables.get(key)
        if table is None:
            index = (lambda obj: obj.get("spec", {}).get("nodeName")) if key == ("", "pods") else None
            table = self._tables.setdefault(key, Table(self._history, index))
        return table

    def kinds(self) -> list[tuple[str, str]]:
        """(group, plural) of everything that has a table."""
        with self.lock:
            return list(self._tables)

    def forget(self, key: tuple[str, str]) -> None:
        """The kind is not served any more."""
        with self.lock:
            self._tables.pop(key, None)
            self.changed.notify_all()

    def put(self, table: Table, key: str, obj: Json) -> Item:
        """Write ``obj`` (which becomes the store's own) under a new revision."""
        with self.lock:
            self.rv += 1
            obj["metadata"]["resourceVersion"] = str(self.rv)
            item = Item(key, obj, self.rv)
            table.put(item)
            self.changed.notify_all()
            return item

    def drop(self, table: Table, item: Item) -> Item:
        """Remove; returns the last version, which carries the revision of the deletion."""
        with self.lock:
            self.rv += 1
            last = Item(item.key, {**item.obj, "metadata": {**item.obj["metadata"], "resourceVersion": str(self.rv)}}, self.rv)
            table.drop(last)
            self.changed.notify_all()
            return last
