# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One module call that writes under the run lock, and in check mode only shows what it would write."""

from __future__ import annotations

import typing as t

from ..core.task import Task
from ..kube.client import ensure_namespace
from ..observe.context import Context, open_context
from ..store.run_lock import held


def locked_run(
    task: Task, work: t.Callable[[Context, bool], dict[str, t.Any]], *, apply: bool = True, documents_required: bool = True
) -> dict[str, t.Any]:
    """The result of ``work(context, writes)``. A run in progress ends first: ``lock_wait`` seconds at most, then Locked.

    ``writes`` True: it has the run lock (``context.lock``), and reads anew what that run may have changed. False, without a lock: in check
    mode and without ``apply``.
    """
    context = open_context(task, documents_required=documents_required)
    try:
        if not apply or task.check_mode:
            return work(context, False)
        ensure_namespace(context.kube)
        with held(task, context.kube, context.run_id, context.cluster_id) as context.lock:
            context.refresh()
            return work(context, True)
    finally:
        context.close()
