# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes what a plan decided into our records, before anything is done about it (L-2)."""

from __future__ import annotations

import dataclasses
import typing as t

from ..core.errors import ApiError, BadShape, Conflict, NotFound, Unauthorized, Unreachable
from ..kube.drain.node_drain import undoing
from ..kube.node_mark import parse_taint
from ..kube.nodes import annotate, change, get_node
from ..model import Action, Claim, Notice, Plan
from ..model.labels import IDLE_SINCE_ANNOTATION
from ..model.reasons import ActionKind
from ..observe.context import Context
from ..planner.disruption.interruption import LEFT_ALONE
from ..planner.offers import launch_backoff
from .plan_events import Telling, tell_decisions


@dataclasses.dataclass
class Recorded:
    """What was written: claims by name, and how many writes in all. One object that cannot be written never stops the others (L-22)."""

    claims: dict[str, Claim] = dataclasses.field(default_factory=dict)
    writes: int = 0
    failed: dict[str, str] = dataclasses.field(default_factory=dict)  # what could not be written, by claim, Node or record, and why
    unrecorded: set[str] = dataclasses.field(default_factory=set)  # claims of which the plan is not on record


def record(context: Context, plan: Plan) -> Recorded:
    """Write the plan's claims, node annotations and findings. Launch and destroy themselves come later, from the claims."""
    tell_decisions(context.task, plan)
    telling = Telling(context, plan)
    done = Recorded()
    going = {claim.name: claim.deletion.reason for claim in context.known_claims() if claim.deletion is not None}
    closed = {action.name for action in plan.actions if action.kind == ActionKind.RESTORE and not _restore(context, action, done)}
    for action in plan.actions:
        if action.name in closed and action.kind == ActionKind.UPDATE:
            continue  # the record of the drain that was begun stays until its marks are off
        if action.claim is not None and action.kind in (
            ActionKind.LAUNCH,
            ActionKind.UPDATE,
            ActionKind.DESTROY,
            ActionKind.RESUME,
        ):
            context.lock.renew_if_due()
            if action.kind == ActionKind.DESTROY and going.get(action.name) != action.reason:
                _leave_alone(context, action.claim, done)
            _write(context, action.claim, done)
        elif action.kind in (ActionKind.TAINT, ActionKind.UNTAINT):
            _taint(context, action, done)
        elif action.kind == ActionKind.ANNOTATE:
            _annotate(context, action, done)
    _findings(context, plan, done)
    telling.add([Notice("records", f"records|{name}", name, why) for name, why in done.failed.items()])
    telling.finish()
    return done


def without(plan: Plan, done: Recorded) -> Plan:
    """The plan without what is not on record: nothing is launched or destroyed without its record, so it waits for the next run."""
    left = done.unrecorded
    return dataclasses.replace(
        plan,
        actions=tuple(one for one in plan.actions if one.name not in left or one.kind == ActionKind.REPORT),
        join=tuple(name for name in plan.join if name not in left),
        admit=tuple(name for name in plan.admit if name not in left),
        failures=(*plan.failures, *done.failed.values()),
    )


def _write(context: Context, claim: Claim, done: Recorded) -> None:
    try:
        done.claims[claim.name] = context.store.write(claim)
        done.writes += 1
    except (Unreachable, Unauthorized):
        raise  # no record at all can be written
    except ApiError as error:
        done.unrecorded.add(claim.name)
        done.failed[claim.name] = (
            f"{claim.name}: its claim cannot be written, so nothing is done with its machine in this run: {error}"
        )


def _findings(context: Context, plan: Plan, done: Recorded) -> None:
    """Write what was seen for the first time. A damaged record is replaced."""
    try:
        known: t.Mapping[str, t.Any] | None = context.read_times("findings")
    except BadShape as error:
        if error.service != "claims":
            done.failed["tgp-state-findings"] = f"tgp-state-findings cannot be read: {error}"
            return
        known = None
    except ApiError as error:
        done.failed["tgp-state-findings"] = f"tgp-state-findings cannot be read: {error}"
        return
    try:
        if dict(plan.findings) != known:
            context.write_times("findings", plan.findings)
    except ApiError as error:
        text = (
            f"tgp-state-findings cannot be written, so what has no claim counts as seen for the first time by the next run: {error}"
        )
        done.failed["tgp-state-findings"] = text


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
    except ApiError as error:
        done.failed[action.target] = f"{action.target}: the Node stays cordoned until the next run: {error}"
        return False
    return True


def _leave_alone(context: Context, claim: Claim, done: Recorded) -> None:
    """Block where a machine was lost or never joined, and count what never joined for its pool, once, before the record that says so. The
    machine costs money, so it ends also when that cannot be noted."""
    reason = LEFT_ALONE.get(claim.deletion.reason if claim.deletion else "", "")
    try:
        for key in launch_backoff.keys_after(claim.offer, reason):
            context.block(key, reason)
        if reason == "join":
            context.failed_join(claim.pool)
    except ApiError as error:
        done.failed["tgp-state-blocklist"] = (
            f"tgp-state-blocklist cannot be written, so an offer that failed may be tried again: {error}"
        )


def _taint(context: Context, action: Action, done: Recorded) -> None:
    """Set a taint of ours (value "key=value:Effect"), or take it away (value its key)."""
    value = action.value or ""
    wish: dict[str, t.Any] = {"add_taints": [parse_taint(value)]} if action.kind == ActionKind.TAINT else {"remove_taints": [value]}
    context.lock.renew_if_due()
    try:
        done.writes += int(change(context.kube, action.target, uid=action.uid, **wish))
    except (NotFound, Conflict) as error:
        context.warn(f"{action.target}: {action.kind} {value} was not done in this run: {error}")
    except ApiError as error:
        done.failed[action.target] = f"{action.target}: {action.kind} {value} of the Node failed: {error}"


def _annotate(context: Context, action: Action, done: Recorded) -> None:
    try:
        annotate(context.kube, action.target, {IDLE_SINCE_ANNOTATION: action.value}, uid=action.uid)
        done.writes += 1
    except (NotFound, Conflict) as error:
        context.warn(f"{action.target}: idle time not noted in this run: {error}")
    except ApiError as error:
        done.failed[action.target] = f"{action.target}: its idle time could not be written to the Node: {error}"
