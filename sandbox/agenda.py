# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Appointments in world time, kept by one thread."""

from __future__ import annotations

import heapq
import itertools
import threading
import typing as t

from .clock import SimClock

Action = t.Callable[[], None]
_GLANCE = 0.25  # real seconds between two looks at the clock: somebody may move it


class Agenda:
    """``add`` an action that ``run`` shall do some seconds from now. Between ``start`` and ``stop`` a thread watches the clock."""

    def __init__(self, clock: SimClock, run: t.Callable[[Action], None]) -> None:
        self._clock, self._run = clock, run
        self._heap: list[tuple[float, int, Action]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._keep, name="agenda", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(5)

    def add(self, seconds: float, action: Action) -> None:
        """``action`` is due in that many world seconds."""
        with self._changed:
            heapq.heappush(self._heap, (self._clock.seconds() + seconds, next(self._numbers), action))
            self._changed.notify_all()

    def _keep(self) -> None:
        while True:
            with self._changed:
                if self._stopped:
                    return
                left = (self._heap[0][0] - self._clock.seconds()) / self._clock.speed if self._heap else _GLANCE
                if not self._heap or left > 0:
                    self._changed.wait(min(left, _GLANCE))
                    continue
                _due, _number, action = heapq.heappop(self._heap)
            self._run(action)
