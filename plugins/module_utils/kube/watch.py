# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One watch on the API server: lines of JSON that arrive as things change, and can be ended from another thread."""

from __future__ import annotations

import json
import typing as t

from ..core.errors import Forbidden, NotFound, ServerError

if t.TYPE_CHECKING:
    from .client import Kube

_TYPES = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


class Expired(NotFound):
    """410: the snapshot of a list or the starting point of a watch is too old; begin again with a new list."""


class Watch:
    """Iterate for (type, object): type is ADDED, MODIFIED, DELETED or BOOKMARK. Ends quietly when the server ends it.

    Raises Expired when the starting resourceVersion is too old, BadShape for a line that is no event, and the usual errors.
    """

    def __init__(self, kube: Kube, path: str, params: t.Mapping[str, t.Any] | None, silence: float) -> None:
        self._kube, self._path = kube, path
        query = {**(params or {}), "watch": "true", "allowWatchBookmarks": "true"}
        self._lines = kube.api.stream(path, params=query, timeout=silence)

    def __iter__(self) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
        try:
            with self._lines as lines:
                for line in lines:
                    if line:
                        yield self._event(line)
        except Forbidden as error:
            raise self._kube.forbidden(error, "GET", self._path, watch=True) from error
        except NotFound as error:
            if error.status == 410:
                raise Expired(error.message, service="kubernetes", status=410, code=error.code) from error
            raise

    def _event(self, line: str) -> tuple[str, dict[str, t.Any]]:
        what = f"GET {self._path} (watch)"
        try:
            event = json.loads(line)
        except ValueError:
            raise self._kube.api.bad_shape(what, "a line is not JSON") from None
        kind = event.get("type") if isinstance(event, dict) else None
        thing = event.get("object") if isinstance(event, dict) else None
        if not isinstance(thing, dict):
            raise self._kube.api.bad_shape(what, "an event without an object")
        if kind == "ERROR":
            message = str(thing.get("message") or "no text")
            if thing.get("code") == 410:
                raise Expired(f"kubernetes: {what}: {message}", service="kubernetes", status=410)
            raise ServerError(
                f"kubernetes: {what} was ended by the server: {message}", service="kubernetes", status=thing.get("code")
            )
        if kind not in _TYPES or not isinstance(thing.get("metadata"), dict):
            raise self._kube.api.bad_shape(what, f"an event of type {kind!r}")
        return str(kind), thing

    def cancel(self) -> None:
        """End it from another thread: its reader wakes up and stops."""
        self._lines.cancel()
