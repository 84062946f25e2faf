# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes what a plan decided into our records, before anything is done about it (L-2)."""

from __future__ import annotations

import dataclasses

from ..cluster.nodes import annotate
from ..errors import Conflict, NotFound
from ..fleet.model import Action, Claim, Plan
from ..observe.context import Context

IDLE_SINCE = "tgp.io/idle-since"


@dataclasses.dataclass
class Recorded:
    """What was written: claims by name, and how many writes in all."""

    claims: dict[str, Claim] = dataclasses.field(default_factory=dict)
    writes: int = 0


def record(context: Context, plan: Plan) -> Recorded:
    """Write the plan's claims, node annotations and findings. Launch and destroy themselves come later, from the claims."""
    done = Recorded()
    for action in plan.actions:
        if action.claim is not None and action.kind in ("launch", "update", "destroy", "resume"):
            context.lock.renew_if_due()
            done.claims[action.name] = context.store.write(action.claim)
            done.writes += 1
        elif action.kind == "annotate":
            done.writes += _annotate(context, action)
    if dict(plan.findings) != context.read_times("findings"):
        context.write_times("findings", plan.findings)
    return done


def _annotate(context: Context, action: Action) -> int:
    try:
        annotate(context.kube, action.target, {IDLE_SINCE: action.value}, uid=action.uid)
    except (NotFound, Conflict) as error:
        context.warn(f"{action.target}: idle time not noted in this run: {error}")
        return 0
    return 1
