# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-22 over random worlds: a plan that is applied at once is done as it stands, one that is applied in another world adds nothing."""

from __future__ import annotations

import dataclasses
import json
import typing as t

from ansible_collections.tgp.gpu.plugins.module_utils.model import Action, Claim, Observation, Plan, Specs
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Destroy, Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.record import counts
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plan import plan
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plans.preconditions import (
    CheckedPlan,
    check_plan,
    settings_of,
    specs_of,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plans.record import from_record, to_record
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plans.saved_plan import SavedPlan, is_step, make
from hypothesis import given, settings
from hypothesis import strategies as st

from .build import CAPABILITIES
from .test_L24_invariants import UNREADABLE, blinded, wanted, worlds

MODES = st.sampled_from(["provision", "reap", "everything", "autoscale", "destroy"])


def planned(world: Observation, asked: Specs, mode: str) -> tuple[Plan, SavedPlan]:
    """Claims have versions, as every store gives them."""
    chosen = Settings(mode=mode, destroy=Destroy(all=mode == "destroy"))
    found = plan(world, asked, chosen, CAPABILITIES, "run-1")
    return found, from_record(json.loads(json.dumps(to_record(make(found, world, asked, chosen, "run-1")))))


def versioned(world: Observation) -> Observation:
    return dataclasses.replace(world, claims=tuple(dataclasses.replace(one, version=f"v-{one.name}") for one in world.claims or ()))


def applied(kept: SavedPlan, world: Observation, asked: Specs) -> CheckedPlan:
    return check_plan(kept, world, specs_of(kept, asked), settings_of(kept, Settings()), CAPABILITIES, {})


def plain(action: Action) -> tuple[t.Any, ...]:
    return (action.kind, action.name, action.reason, action.target, action.value, action.uid, action.price_hour)


@settings(deadline=None, max_examples=60)
@given(worlds(), wanted(), MODES)
def test_L22_applied_at_once_a_plan_is_done_as_it_stands(world: Observation, asked: Specs, mode: str) -> None:
    world = versioned(world)
    found, kept = planned(world, asked, mode)
    checked = applied(kept, world, asked)
    assert {one.result for one in checked.checks} <= {"applied"}, [one for one in checked.checks if one.result != "applied"]
    assert checked.same_world
    same = [plain(one) for one in found.actions if is_step(one)]
    assert [plain(one) for one in checked.plan.actions if is_step(one)] == same
    rented = {one.name: one.claim for one in found.actions if one.kind == "launch" and one.claim}
    for one in checked.plan.actions:
        if one.kind == "launch" and one.claim:
            made = dataclasses.replace(one.claim, history=rented[one.name].history, price_bound=None, candidates=())
            assert made == dataclasses.replace(rented[one.name], candidates=())
    assert [one for one in checked.plan.actions if one.kind in ("update", "annotate")] == [
        one for one in found.actions if one.kind in ("update", "annotate")
    ] or {one.kind for one in found.actions if is_step(one)} & {"update"}


@settings(deadline=None, max_examples=60)
@given(worlds(), worlds(), wanted(), MODES)
def test_L22_in_another_world_nothing_is_added(before: Observation, after: Observation, asked: Specs, mode: str) -> None:
    before, after = versioned(before), versioned(after)
    _found, kept = planned(before, asked, mode)
    checked = applied(kept, after, asked)
    steps = {(one.kind, one.name, one.target, one.value) for one in kept.steps}
    done = [one for one in checked.plan.actions if is_step(one)]
    assert {(one.kind, one.name, one.target, one.value) for one in done} <= steps
    fresh, _kept = planned(after, asked, mode)
    allowed = {plain(one) for one in fresh.actions}
    assert {plain(one) for one in done if one.kind not in ("launch", "resume")} <= allowed
    for one in done:
        step = next(step for step in kept.steps if (step.kind, step.name, step.target) == (one.kind, one.name, one.target))
        if step.claim is not None and one.claim is not None:
            assert step.needs.price_bound is not None and one.claim.reserved_price <= step.needs.price_bound
    _within_limits(done, after, asked)


def _within_limits(done: t.Sequence[Action], world: Observation, asked: Specs) -> None:
    """With everything that may be billed, claims that wait for their create call anew left out, no launch goes beyond a limit."""
    rented = {
        one.name: one.claim for one in done if one.kind in ("launch", "resume") and one.claim and one.claim.launch_started is None
    }
    if not rented:
        return
    billed = [one for one in world.claims or () if counts(one) and one.name not in rented and _may_be_billed(one)]
    billed += list(rented.values())
    made = asked.classes["c"]
    assert made.max_nodes is not None and len(billed) <= made.max_nodes
    assert made.max_hourly_cost is not None and sum(one.price for one in billed) <= made.max_hourly_cost
    assert sum(one.offer.gpu_count for one in billed) <= made.resources["nvidia.com/gpu"]


def _may_be_billed(claim: Claim) -> bool:
    return claim.launch_started is not None or bool(claim.instance_id) or claim.deletion is not None


@settings(deadline=None, max_examples=60)
@given(worlds(), wanted(), MODES, st.sampled_from(UNREADABLE))
def test_L22_what_cannot_be_read_adds_nothing(world: Observation, asked: Specs, mode: str, what: str) -> None:
    world = versioned(world)
    _found, kept = planned(world, asked, mode)
    blind = blinded(world, what)
    checked = applied(kept, blind, asked)
    fresh, _kept = planned(blind, asked, mode) if what != "claims" else (Plan(), None)
    gone = {plain(one) for one in checked.plan.actions if is_step(one) and one.kind not in ("launch", "resume")}
    assert gone <= {plain(one) for one in fresh.actions}
    if what in ("claims", "nodes", "instances"):
        assert not [one for one in checked.plan.actions if one.kind == "launch"]
