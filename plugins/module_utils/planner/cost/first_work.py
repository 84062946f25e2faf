# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a machine was first seen at work (A-07): noted once in its claim."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timezone

from ...model import Claim, Node, Pod
from ..cluster_state import Situation
from ..disruption import emptiness
from ..provisioning import service

_ENDED = ("Succeeded", "Failed")
_EVER = datetime.min.replace(tzinfo=timezone.utc)


def noted(claim: Claim, node: Node | None, situation: Situation) -> Claim:
    """The claim with the moment at which work was first seen on its node. It is written once and never changes.

    What keeps a node busy (L-3) is work once it runs or has run; a pod that was only scheduled, or that ended before the machine was usable, is
    none. The time is the pod's own start where it is between the machine's first usable moment and now. A pod that tolerates every taint runs
    before that moment; it is noted with the rest of that run's look, so that the next run has nothing to write.
    """
    if claim.worked_since is not None or node is None or service.is_service(claim):
        return claim
    pool = situation.in_force(claim)
    mode = pool.idle_mode if pool else "gpu"  # without a document only what surely is work
    usable = claim.initialized
    starts = [
        min(max(pod.started or situation.now, usable or _EVER), situation.now)
        for pod in situation.pods(node) or ()
        if pod.node == node.name and _ran(pod, usable) and emptiness.would_count(pod, mode, situation.settings, situation.now)
    ]
    return dataclasses.replace(claim, worked_since=min(starts)) if starts else claim


def _ran(pod: Pod, usable: datetime | None) -> bool:
    if pod.phase == "Running":
        return True
    return pod.phase in _ENDED and pod.finished is not None and usable is not None and pod.finished > usable
