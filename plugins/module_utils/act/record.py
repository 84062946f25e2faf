# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes what a plan decided into our records, before anything is done about it (L-2)."""

from __future__ import annotations

import dataclasses
import typing as t

from ..cluster.emptying import undoing
from ..cluster.marking import parse_taint
from ..cluster.nodes import annotate, change, get_node
from ..errors import Conflict, NotFound
from ..fleet import blocks
from ..fleet.lost import LEFT_ALONE
from ..fleet.model import Action, Claim, Plan
from ..observe.context import Context
from .telling import Telling, tell_decisions

IDLE_SINCE = "tgp.io/idle-since"


@dataclasses.dataclass
class Recorded:
    """What was written: claims by name, and how many writes in all."""

    claims: dict[str, Claim] = dataclasses.field(default_factory=dict)
    writes: int = 0


def record(context: Context, plan: Plan) -> Recorded:
    """Write the plan's claims, node annotations and findings. Launch and destroy themselves come later, from the claims."""
    tell_decisions(context.task, plan)
    telling = Telling(context, plan)
    done = Recorded()
    going = {claim.name: claim.deletion.reason for claim in context.known_claims() if claim.deletion is not None}
    closed = {action.name for action in plan.actions if action.kind == "restore" and not _restore(context, action, done)}
    for action in plan.actions:
        if action.name in closed and action.kind == "update":
            continue  # the record of the drain that was begun stays until its marks are off
        if action.claim is not None and action.kind in ("launch", "update", "destroy", "resume"):
            context.lock.renew_if_due()
            if action.kind == "destroy" and going.get(action.name) != action.reason:
                _leave_alone(context, action.claim)
            done.claims[action.name] = context.store.write(action.claim)
            done.writes += 1
        elif action.kind in ("taint", "untaint"):
            done.writes += _taint(context, action)
        elif action.kind == "annotate":
            done.writes += _annotate(context, action)
    if dict(plan.findings) != context.read_times("findings"):
        context.write_times("findings", plan.findings)
    telling.finish()
    return done


def _restore(context: Context, action: Action, done: Recorded) -> bool:
    """Take the marks of a drain off the node again; False when that could not be done."""
    context.lock.renew_if_due()
    try:
        node = get_node(context.kube, action.target)
        if node is not None and node.uid == action.uid:
            done.writes += int(change(context.kube, action.target, uid=action.uid, **undoing(node)))
    except (NotFound, Conflict) as error:
        context.warn(f"{action.target}: it stays cordoned until the next run: {error}")
        return False
    return True


def _leave_alone(context: Context, claim: Claim) -> None:
    """Block where a machine was lost or never joined, and count what never joined for its pool, once, before the record that says so."""
    reason = LEFT_ALONE.get(claim.deletion.reason if claim.deletion else "", "")
    for key in blocks.keys_after(claim.offer, reason):
        context.block(key, reason)
    if reason == "join":
        context.failed_join(claim.pool)


def _taint(context: Context, action: Action) -> int:
    """Set a taint of ours (value "key=value:Effect"), or take it away (value its key)."""
    value = action.value or ""
    wish: dict[str, t.Any] = {"add_taints": [parse_taint(value)]} if action.kind == "taint" else {"remove_taints": [value]}
    context.lock.renew_if_due()
    try:
        return int(change(context.kube, action.target, uid=action.uid, **wish))
    except (NotFound, Conflict) as error:
        context.warn(f"{action.target}: {action.kind} {value} was not done in this run: {error}")
        return 0


def _annotate(context: Context, action: Action) -> int:
    try:
        annotate(context.kube, action.target, {IDLE_SINCE: action.value}, uid=action.uid)
    except (NotFound, Conflict) as error:
        context.warn(f"{action.target}: idle time not noted in this run: {error}")
        return 0
    return 1
