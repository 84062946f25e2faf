# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One shared list per source while many nodes are waited for, instead of one poll per node."""

from __future__ import annotations

import threading
import typing as t
from datetime import datetime

from ..core.clock import Clock
from ..core.errors import TgpError

_T = t.TypeVar("_T")


class Feed(t.Generic[_T]):
    """A list that is read again when it is older than ``max_age`` seconds, by one caller at a time.

    A failed read keeps the last good list and its age; ``problem`` says what went wrong until a read succeeds. ``read_at`` is when the
    last good list was asked for.
    """

    def __init__(self, read: t.Callable[[], t.Sequence[_T]], clock: Clock, max_age: float = 5.0) -> None:
        self._read = read
        self._clock = clock
        self._max_age = max_age
        self._lock = threading.Lock()
        self._items: tuple[_T, ...] | None = None
        self._asked: datetime | None = None
        self.read_at: datetime | None = None
        self.problem = ""

    def items(self, since: datetime | None = None) -> tuple[_T, ...] | None:
        """The newest list there is, asked for not before ``since``; None when no read ever succeeded."""
        with self._lock:
            now = self._clock.now()
            old = self._asked is None or (now - self._asked).total_seconds() >= self._max_age
            if old or self._asked is None or (since is not None and self._asked < since):
                self._asked = now
                try:
                    self._items = tuple(self._read())
                    self.read_at = now
                    self.problem = ""
                except TgpError as error:
                    self.problem = str(error)
            return self._items
