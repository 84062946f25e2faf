# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The watch beside a loop: a thread that follows pods and Nodes, and says only that something deserves a look."""

from __future__ import annotations

import threading
import typing as t

from ..core.errors import TgpError
from ..core.task import Task
from ..kube.auth.connect import connect
from ..observe.cluster_watch import Attention
from ..observe.open_context import settings_of
from ..planner.scheduling.triggers import Watcher


class Waker:
    """``wait`` returns early when something happened. ``failure`` is the error that ended the watch for good, None while it lives."""

    def __init__(self, task: Task) -> None:
        self.failure: TgpError | None = None
        self._happened = threading.Event()
        self._kube = connect(task)
        self._attention = Attention(self._kube, Watcher(), self._tell, task.clock, gpu_resources=settings_of(task).gpu_resources)
        self._thread = threading.Thread(target=self._follow, name="waker", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """True when something happened since the last time, or happens within ``seconds`` (real ones)."""
        found = self._happened.wait(seconds)
        self._happened.clear()
        return found

    def close(self) -> None:
        self._attention.stop()
        self._thread.join(5)
        self._kube.close()

    def _tell(self, _event: dict[str, t.Any]) -> None:
        self._happened.set()

    def _follow(self) -> None:
        try:
            self._attention.run()
        except TgpError as error:
            self.failure = error
            self._happened.set()
