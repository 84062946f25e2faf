# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a call that never ends by itself is asked to end: SIGTERM or SIGINT once. The second one ends the process at once, as ever."""

from __future__ import annotations

import os
import signal
import threading
import types
import typing as t

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """While it is entered, a first signal only sets ``asked``. Outside the main thread signals are nobody's business, and stay as they are.

    ``now`` is also true when the process that started this one has died: nobody reads what is done here any more, and the run lock is
    no longer provably somebody's.
    """

    def __init__(self) -> None:
        self.asked = False
        self._parent = os.getppid()
        self._before: dict[signal.Signals, t.Any] = {}

    @property
    def now(self) -> bool:
        return self.asked or os.getppid() != self._parent

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self._before = {one: signal.signal(one, self._arrived) for one in SIGNALS}
        return self

    def __exit__(self, *_error: object) -> None:
        self._restore()

    def _restore(self) -> None:
        for one, handler in self._before.items():
            signal.signal(one, handler if handler is not None else signal.SIG_DFL)
        self._before = {}

    def _arrived(self, number: int, _frame: types.FrameType | None) -> None:
        """Runs between two instructions of whatever is at work: it takes no lock."""
        if self.asked:
            self._restore()
            signal.raise_signal(number)
        self.asked = True
