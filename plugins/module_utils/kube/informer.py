# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps a live copy of a collection: one list, then one watch, shared by everybody in this process who looks at the same thing."""

from __future__ import annotations

import json
import threading
import typing as t

from ..core.errors import ApiError, Forbidden, NotFound, ServerError, TgpError, Unauthorized

if t.TYPE_CHECKING:
    from ..core.http import Api

T = t.TypeVar("T")
Json = dict[str, t.Any]
_SILENCE = 40.0  # real seconds without a line after which a connection is taken for dead
_SERVER_ENDS = 240
_PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0)
#: (kind, key, item): "all" (item is a dict of everything, replacing what was known), "set", "gone", "trouble" (key is the message,
#: it goes on), "failed" (item is the error, it has ended)
Listener = t.Callable[[str, str, t.Any], None]


class ListerWatcher(t.Protocol):
    """What following needs of a connection to a cluster (client.py)."""

    source: str

    def collect(
        self, path: str, reduce: t.Callable[[Json], T | None], params: t.Mapping[str, t.Any] | None = None
    ) -> tuple[list[T], str]:
        """A whole collection, reduced, and its resourceVersion."""
        ...

    def watch(self, path: str, params: t.Mapping[str, t.Any] | None = None, *, silence: float = 60.0) -> Watch:
        """An open watch."""
        ...


class Follow(t.Generic[T]):
    """A collection followed by a thread of its own. ``reduce`` turns a raw item into what is kept, None leaves it out.

    A listener is called from that thread: first with "all", then with each change. Lost connections and forgotten snapshots are mended
    by themselves (a new "all" after a gap, and after trouble, which is over with it); a missing right ends it with "failed".
    """

    def __init__(
        self, kube: ListerWatcher, path: str, reduce: t.Callable[[Json], T | None], params: t.Mapping[str, t.Any] | None = None
    ) -> None:
        self._kube, self._path, self._reduce, self._params = kube, path, reduce, dict(params or {})
        self._mutex = threading.RLock()
        self._listeners: list[Listener] = []
        self._items: dict[str, T] | None = None
        self._failure: TgpError | None = None
        self._stop = threading.Event()
        self._watch: Watch | None = None
        self._thread = threading.Thread(target=self._run, name=f"follow {path}", daemon=True)

    def add(self, listener: Listener) -> None:
        """Subscribe ``listener``; what is known already is delivered at once."""
        with self._mutex:
            self._listeners.append(listener)
            if self._failure is not None:
                listener("failed", "", self._failure)
                return
            if self._items is not None:
                listener("all", "", dict(self._items))
            if not self._thread.is_alive() and not self._stop.is_set():
                self._thread.start()

    def remove(self, listener: Listener) -> bool:
        """Tell it no more. True when nobody listens any longer; then it has stopped."""
        with self._mutex:
            self._listeners.remove(listener)
            if self._listeners:
                return False
            self._stop.set()
            watch = self._watch
        if watch is not None:
            watch.cancel()
        return True

    # ---- the thread

    def _run(self) -> None:
        try:
            self._keep_up()
        except Exception as error:  # without a word they would wait for ever
            self._fail(TgpError(f"{self._kube.source}: {self._path} is not followed any more: {error!r}."))
            raise

    def _keep_up(self) -> None:
        version, failures = "", 0
        while not self._stop.is_set():
            try:
                if not version:
                    version = self._list()
                version = self._follow(version)
                failures = 0
            except Expired:
                version = ""
            except (Forbidden, Unauthorized) as error:
                self._fail(error)
                return
            except ApiError as error:
                failures += 1
                version = ""
                self._tell("trouble", str(error))
            except TgpError as error:
                self._fail(error)
                return
            self._stop.wait(_PAUSES[min(failures, len(_PAUSES) - 1)])

    def _list(self) -> str:
        def reduce(raw: Json) -> tuple[str, T] | None:
            value = self._reduce(raw)
            return None if value is None else (_key(raw), value)

        pairs, version = self._kube.collect(self._path, reduce, self._params)
        with self._mutex:
            self._items = dict(pairs)
            self._tell("all", "", dict(self._items))
        return version

    def _follow(self, version: str) -> str:
        """Read one watch to its end; returns the version to go on from."""
        query = {**self._params, "resourceVersion": version, "timeoutSeconds": _SERVER_ENDS}
        watch = self._kube.watch(self._path, query, silence=_SILENCE)
        with self._mutex:
            self._watch = watch
            if self._stop.is_set():
                return version
        try:
            for kind, raw in watch:
                version = str(raw["metadata"].get("resourceVersion") or version)
                if kind != "BOOKMARK":
                    self._apply(kind, raw)
                if self._stop.is_set():
                    break
        except ApiError as error:
            if not self._stop.is_set() and error.kind != "lost":
                raise
            # a connection that fell silent or was cut: go on from the last version
        return version

    def _apply(self, kind: str, raw: Json) -> None:
        value = None if kind == "DELETED" else self._reduce(raw)
        key = _key(raw)
        with self._mutex:
            if self._items is None:
                return
            if value is not None:
                self._items[key] = value
                self._tell("set", key, value)
            elif (old := self._items.pop(key, None)) is not None:
                self._tell("gone", key, old)

    def _tell(self, kind: str, key: str, item: t.Any = None) -> None:
        with self._mutex:
            for listener in tuple(self._listeners):
                listener(kind, key, item)

    def _fail(self, error: TgpError) -> None:
        with self._mutex:
            self._failure = error
            self._tell("failed", "", error)


def _key(raw: Json) -> str:
    return str(raw["metadata"].get("uid") or raw["metadata"]["name"])


# ---- one watch on the API server: lines of JSON that arrive as things change, and can be ended from another thread

_TYPES = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


class Expired(NotFound):
    """410: the snapshot of a list or the starting point of a watch is too old; begin again with a new list."""


class Watch:
    """Iterate for (type, object): type is ADDED, MODIFIED, DELETED or BOOKMARK. Ends quietly when the server ends it.

    Raises Expired when the starting resourceVersion is too old, BadShape for a line that is not an event, and the usual errors; a refusal
    as ``refused`` puts it.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        params: t.Mapping[str, t.Any] | None,
        silence: float,
        refused: t.Callable[[Forbidden], Forbidden],
    ) -> None:
        self._api, self._path, self._refused = api, path, refused
        query = {**(params or {}), "watch": "true", "allowWatchBookmarks": "true"}
        self._lines = api.stream(path, params=query, timeout=silence)

    def __iter__(self) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
        try:
            with self._lines as lines:
                for line in lines:
                    if line:
                        yield self._event(line)
        except Forbidden as error:
            raise self._refused(error) from error
        except NotFound as error:
            if error.status == 410:
                raise Expired(error.message, service="kubernetes", status=410, code=error.code) from error
            raise

    def _event(self, line: str) -> tuple[str, dict[str, t.Any]]:
        operation = f"GET {self._path} (watch)"
        try:
            event = json.loads(line)
        except ValueError:
            raise self._api.bad_shape(operation, "a line is not JSON") from None
        kind = event.get("type") if isinstance(event, dict) else None
        thing = event.get("object") if isinstance(event, dict) else None
        if not isinstance(thing, dict):
            raise self._api.bad_shape(operation, "an event without an object")
        if kind == "ERROR":
            message = str(thing.get("message") or "no text")
            if thing.get("code") == 410:
                raise Expired(f"kubernetes: {operation}: {message}", service="kubernetes", status=410)
            raise ServerError(
                f"kubernetes: {operation} was ended by the server: {message}", service="kubernetes", status=thing.get("code")
            )
        if kind not in _TYPES or not isinstance(thing.get("metadata"), dict):
            raise self._api.bad_shape(operation, f"an event of type {kind!r}")
        return str(kind), thing

    def cancel(self) -> None:
        """End it from another thread: its reader wakes up and stops."""
        self._lines.cancel()
