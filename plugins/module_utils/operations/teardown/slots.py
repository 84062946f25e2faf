# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How many machines are torn down at a time: a slow drain, and the wait until a cloud calls a machine gone, take no slot that a machine without
pods needs."""

from __future__ import annotations

import collections
import contextlib
import threading
import typing as t

from ...core.errors import ApiError
from ...kube.pods import pods
from ...model import Claim
from ...observe.context import Context
from ...planner.garbage_collection.termination_steps import Step

MOST = 256  # teardowns that are open at a time
_DRAINING = 32  # nodes that are drained at a time
_WORKING = 32  # machines for which APIs are called at a time, drains and confirmations aside


class Slots:
    """The slots of one step."""

    def __init__(self) -> None:
        self._draining, self._working = threading.Semaphore(_DRAINING), threading.Semaphore(_WORKING)

    def of(self, step: Step) -> t.ContextManager[t.Any]:
        """To be held while the step is done."""
        if step is Step.DRAIN:
            return self._draining
        return contextlib.nullcontext() if step in (Step.CONFIRM, Step.WAIT_VOLUMES) else self._working


def emptiest_first(context: Context, claims: t.Sequence[Claim]) -> list[Claim]:
    """By the number of pods on their Nodes, which is read only if some must wait for a slot. If it cannot be read they stay as they are."""
    if len(claims) <= _DRAINING:
        return list(claims)
    try:
        counts = collections.Counter(pod.node for pod in pods(context.kube))
    except ApiError:
        return list(claims)
    return sorted(claims, key=lambda claim: counts[claim.node_name or claim.name])
