# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""in_process, for the module that ends only by a signal.

A playbook's main process passes SIGTERM on to its workers and dies of it at once. Then whoever started it (systemd, a kubelet) takes the
run for ended while the worker still finishes what it is at, and the run lock belongs to a dead process. So the main process waits for the
worker at the first signal, and does with the second what it always does. It loads this file just before it starts the task, because the
file has the module's name; a route in meta/runtime.yml would be followed in the worker only.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import types
import typing as t

from .in_process import ActionModule as InProcess

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ActionModule(InProcess):
    """Nothing differs in the worker: the module itself listens to the signal there."""


def _wait_for_the_worker() -> None:
    """Put our handler before Ansible's; only where a play is running."""
    before: dict[int, t.Any] = {signal_number: signal.getsignal(signal_number) for signal_number in _SIGNALS}
    if not all(type(getattr(entry, "__self__", None)).__name__ == "TaskQueueManager" for entry in before.values()):
        return

    def arrived(number: int, _frame: types.FrameType | None) -> None:
        for signum, handler in before.items():
            signal.signal(signum, handler)
        for worker in multiprocessing.active_children():
            if worker.pid is not None:
                os.kill(worker.pid, signal.SIGTERM)

    for signal_number in _SIGNALS:
        signal.signal(signal_number, arrived)


if multiprocessing.parent_process() is None and threading.current_thread() is threading.main_thread():
    _wait_for_the_worker()
