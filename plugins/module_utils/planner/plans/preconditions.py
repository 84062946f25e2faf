# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a saved plan may still be done (L-22): every step is held against the world of now, and none is added.

What removes is done if a plan of this very moment would do the same for the same reason; so every rule that protects a machine
protects it here, too. What rents is done if its own offer is still there at a price that was agreed to.
"""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime
from decimal import Decimal

from ...model import Action, Capability, Claim, Observation, Phase, Plan, Wishes
from ...model.defaults import Settings
from ...model.reasons import ActionKind
from ..cluster_state import Situation
from ..plan import plan
from . import launches as saved_launches
from .saved_plan import SavedPlan, Step, inputs_hash, is_step
from .still_there import still_there

APPLIED, REFUSED, DONE = "applied", "refused", "done"


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of one step: applied, refused, or done already (by an earlier application, or by itself)."""

    step: Step
    result: str
    why: str = ""
    action: Action | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Judged:
    """``plan`` is what to carry out: the applied steps and the facts of this run. ``same_world``: nothing has changed since the plan was
    made."""

    plan: Plan
    verdicts: tuple[Verdict, ...]
    same_world: bool


def settings_of(saved: SavedPlan, settings: Settings) -> Settings:
    """The settings of a run that applies ``saved``: its mode, and of both runs' limits the narrower ones."""
    request = saved.request
    return dataclasses.replace(
        settings,
        mode=request.mode,
        destroy=request.destroy,
        max_nodes_total=_narrower(request.max_nodes_total, settings.max_nodes_total),
        max_hourly_total=_narrower(request.max_hourly_total, settings.max_hourly_total),
    )


def wishes_of(saved: SavedPlan, wishes: Wishes) -> Wishes:
    """The documents of now with the numbers of machines that the plan was asked for."""
    return dataclasses.replace(wishes, nodes={one.pool: one.nodes for one in saved.request.wanted})


def judge(
    saved: SavedPlan,
    observation: Observation,
    wishes: Wishes,
    settings: Settings,
    capabilities: t.Mapping[str, Capability],
    closed: t.Mapping[str, datetime],
) -> Judged:
    """Hold every step against ``observation``. ``wishes`` and ``settings`` as :func:`wishes_of` and :func:`settings_of` give them;
    ``closed``: the end of the last machine of each name that was given back and booked."""
    fresh = plan(observation, wishes, settings, capabilities, saved.run_id)
    situation = Situation(observation, wishes, settings, capabilities)
    launches = saved_launches.Launches(saved, fresh, situation, closed)
    verdicts = tuple(_verdict(step, fresh, situation, launches, closed) for step in saved.steps)
    applied = [one.action for one in verdicts if one.action is not None]
    written = {one.name for one in applied if one.claim is not None}
    facts = [one for one in fresh.actions if not is_step(one) and one.kind != ActionKind.REPORT]
    facts = [one for one in facts if one.claim is None or one.name not in written]
    warnings = tuple(dict.fromkeys((*fresh.warnings, *fresh.problems)))  # of things that are no part of this plan
    carried = dataclasses.replace(fresh, actions=(*facts, *applied), shortfall=(), problems=(), warnings=warnings)
    rented = [step.claim for step in saved.steps if step.claim is not None]
    return Judged(carried, verdicts, inputs_hash(observation, launches.as_of_now(rented)) == saved.inputs)


def _verdict(
    step: Step, fresh: Plan, situation: Situation, launches: saved_launches.Launches, closed: t.Mapping[str, datetime]
) -> Verdict:
    if situation.seen.claims is None:
        return Verdict(step, REFUSED, "the claims could not be read")
    if step.claim is not None:
        return Verdict(step, *launches.judge(step, step.claim))
    return _removal(step, fresh, situation, closed)


def _removal(step: Step, fresh: Plan, situation: Situation, closed: t.Mapping[str, datetime]) -> Verdict:
    """Anything but a launch: what the plan of now would do, too, and for the same reason."""
    claim = next((one for one in situation.claims if one.name == step.name), None)
    if claim is None and step.needs.claim_version:
        return Verdict(step, DONE, "given back already") if step.name in closed else Verdict(step, REFUSED, "its claim is gone")
    if claim is not None and (step.kind == ActionKind.UPDATE or (step.kind == ActionKind.RESUME and claim.phase is Phase.READY)):
        return Verdict(step, DONE, "has its claim" if step.kind == ActionKind.UPDATE else "is usable already")
    other = _other_node(step, claim, situation)
    if other:
        return Verdict(step, REFUSED, other)
    now = next((one for one in fresh.actions if _same(one, step)), None)
    if now is not None and now.reason == step.reason:
        return Verdict(step, APPLIED, now.detail, now)
    if now is not None:
        return Verdict(step, REFUSED, f"now it would be {now.reason}: {now.detail}".rstrip(": "))
    kept = [one.detail or one.reason for one in fresh.actions if one.kind == ActionKind.REPORT and one.name == step.name]
    if kept:
        return Verdict(step, REFUSED, "; ".join(kept))
    there = still_there(step, situation)
    if there is False:
        return Verdict(step, DONE, "gone already")
    guarded = [text for text in fresh.problems if text.startswith("guard_refused")]
    why = guarded[0] if guarded else "the rules do not ask for it any more" if there else "whether it is still there is unknown"
    return Verdict(step, REFUSED, why)


def _same(action: Action, step: Step) -> bool:
    same_thing = (action.kind, action.name, action.target, action.value) == (step.kind, step.name, step.target, step.value)
    return same_thing and (not step.uid or action.uid == step.uid)


def _other_node(step: Step, claim: Claim | None, situation: Situation) -> str:
    """A Node of the same name with another UID is another machine."""
    if not step.needs.node_uid or claim is None:
        return ""
    node = situation.nodes_by_name.get(claim.node_name or claim.name)
    if node is None or node.uid == step.needs.node_uid:
        return ""
    return f"its Node is another one now (UID {node.uid}, in the plan {step.needs.node_uid})"


_Limit = t.TypeVar("_Limit", int, Decimal)


def _narrower(one: _Limit | None, other: _Limit | None) -> _Limit | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
