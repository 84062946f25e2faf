# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run of fleet_apply: read a saved plan, look again, and record those of its steps that may still be done (L-22)."""

from __future__ import annotations

import typing as t
from datetime import datetime

from ..core.errors import InvalidInput
from ..core.events import render
from ..core.task import Task
from ..model.defaults import LAUNCHING
from ..observe.context import Context, open_context
from ..observe.context import settings_of as options_of
from ..operations.persist_plan import Recorded, record, without
from ..operations.plan_file import read_plan
from ..planner.plans.preconditions import APPLIED, DONE, REFUSED, CheckedPlan, StepCheck, check_plan, settings_of, specs_of
from ..planner.plans.record import refuse_other
from ..planner.plans.saved_plan import SavedPlan
from ..planner.plans.view import summary
from ..preflight.preflight import after_preflight, nothing_could_join
from ..providers.registry import CAPABILITIES
from ..units.values import parse_time, print_money
from .plan import Sight, diff_of, locked, result_of

_COLUMNS = {"action": "action", "name": "name", "pool": "pool", "price_hour": "price/hour", "result": "result", "why": "why"}
_MAKE_ANEW = "Make a new plan with plan.yml."


def apply_run(task: Task) -> dict[str, t.Any]:
    """The result of fleet_apply."""
    saved = read_plan(task.params["file"])
    settings = settings_of(saved, options_of(task))
    context = open_context(task, settings=settings, documents_required=settings.mode in LAUNCHING, hubs=settings.mode != "destroy")
    try:
        refuse_other(saved, context.cluster_id, context.clock.now())
        context.specs = specs_of(saved, context.specs)
        if task.check_mode:
            return _apply(context, saved, writes=False)
        result = locked(context, lambda: _apply(context, saved, writes=True))
        return result if "steps" in result else {**result, "steps": [], "plan_run_id": saved.run_id, "join": []}
    finally:
        context.close()


def _apply(context: Context, saved: SavedPlan, *, writes: bool) -> dict[str, t.Any]:
    refuse_other(saved, context.cluster_id, context.clock.now())  # the lock may have been waited for
    sight = Sight(context)
    closed = _closed(context)
    checked, specs = after_preflight(
        context,
        lambda specs: sight.decide(
            lambda seen: check_plan(saved, seen, specs, context.settings, CAPABILITIES, closed), lambda _checked: writes
        ),
        lambda checked_plan: {action.pool for action in checked_plan.plan.launches},
        lambda checked_plan: [action.claim for action in checked_plan.plan.launches if action.claim],
        writes=writes,
        look_again=sight.look,
    )
    if (specs.blocked or specs.imageless) and not any(check.result == APPLIED for check in checked.checks):
        raise nothing_could_join(specs)
    for warning in checked.plan.warnings:
        context.warn(warning)
    rows = [_row(check) for check in checked.checks]
    _show(context, saved, checked, rows)
    applied = any(check.result == APPLIED for check in checked.checks)
    recorded = record(context, checked.plan) if writes else Recorded()
    changed = recorded.writes > 0 if writes else applied
    decided = without(checked.plan, recorded)
    refused = [check for check in checked.checks if check.result == REFUSED]
    failures = list(decided.failures)
    result = result_of(
        context,
        decided,
        "partial" if refused or failures else "ok",
        summary(decided, sight.seen),
        changed=changed or (applied and not failures),
        unrecorded=recorded.unrecorded,
    )
    result |= {
        "steps": rows,
        "plan_run_id": saved.run_id,
        "same_world": checked.same_world,
        "join": sorted({*result["launch"], *_on_their_way(checked)}),
        "problems": failures + ([] if context.task.params["accept_refused"] else [_sentence(check) for check in refused]),
    }
    if context.task.diff_mode:
        result["diff"] = diff_of(checked.plan, sight.seen)
    return result


def _closed(context: Context) -> dict[str, datetime]:
    """The end of the last machine of each name in the ledger."""
    ends: dict[str, datetime] = {}
    lines, torn = context.store.ledger_records()
    for line in lines:
        name = str(line.get("name") or "")
        end = _time(line.get("end")) or context.clock.now()  # a line that cannot be read in full still says that the name was used
        ends[name] = max(end, ends.get(name, end))
    for torn_line in torn:
        if torn_line.key:
            ends.setdefault(torn_line.key, context.clock.now())
    return ends


def _time(text: t.Any) -> datetime | None:
    try:
        return parse_time(text)
    except InvalidInput:
        return None


def _on_their_way(checked: CheckedPlan) -> list[str]:
    """Machines that an earlier application of the same plan launched."""
    return [check.step.name for check in checked.checks if check.result == DONE and check.step.claim is not None]


def _row(check: StepCheck) -> dict[str, t.Any]:
    step, action = check.step, check.action
    price = action.price_hour if action is not None else step.price_hour
    return {
        "action": step.kind,
        "name": step.name,
        "pool": step.pool,
        "reason": step.reason,
        "target": step.target,
        "price_hour": f"{'+' if price > 0 else '-'}{print_money(abs(price))}" if price else "",
        "result": check.result,
        "why": check.why,
    }


def _show(context: Context, saved: SavedPlan, checked: CheckedPlan, rows: list[dict[str, t.Any]]) -> None:
    say = context.task.progress
    say(f"  plan of run {saved.run_id}; the world is {'as it was then' if checked.same_world else 'not as it was then'}")
    for line in render(rows, _COLUMNS, right=("price_hour",)) or ["  Nothing to do."]:
        say(line)
    for check in checked.checks:
        context.progress.step(check.step.name, f"step {check.result}", f"{check.step.kind}: {check.why}".rstrip(": "), quiet=True)


def _sentence(check: StepCheck) -> str:
    return f"{check.step.name}: {check.step.kind} was refused: {check.why}. {_MAKE_ANEW}"
