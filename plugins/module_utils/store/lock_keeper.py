# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps the run lock alive beside work that is long and silent: waiting for machines, draining, confirming (L-8)."""

from __future__ import annotations

import threading
import typing as t

from ..core.clock import Clock
from ..core.errors import LockLost, TgpError

_LOOK_EVERY = 60.0


class _Renewable(t.Protocol):
    def renew_if_due(self) -> None: ...


class Keeper:
    """``with Keeper(lock, clock):`` renews whenever it is due. A loss is remembered by the lock itself and met by the next call that
    asks it; a failing renewal is tried again."""

    def __init__(self, lock: _Renewable, clock: Clock) -> None:
        self._lock, self._clock = lock, clock
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="run-lock", daemon=True)

    def __enter__(self) -> Keeper:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._done.set()
        self._thread.join()

    def _keep(self) -> None:
        while not self._done.wait(_LOOK_EVERY / self._clock.speed):
            try:
                self._lock.renew_if_due()
            except LockLost:
                return
            except TgpError:
                continue  # the next one may succeed; when the time is over, the lock counts as lost
