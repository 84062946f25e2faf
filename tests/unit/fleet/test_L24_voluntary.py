# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-24 for reasons that can wait: budgets, holds and floors hold over random worlds, whatever else goes in them."""

from __future__ import annotations

import dataclasses
import random
import typing as t
from datetime import timedelta
from decimal import Decimal

from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Action,
    CloudView,
    DisruptionBudget,
    Expression,
    Observation,
    Phase,
    Placement,
    Plan,
    Pool,
    Specs,
    Spread,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.resources import GPU_RESOURCES
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.spec_hash import generation
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.disruption_budgets import DEFAULTS, allowed
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.do_not_disrupt import node_hold
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.drain_rules import Do, Mode, classify, rules_of
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.voluntary import Count
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.binpacking import gpus
from hypothesis import given, settings
from hypothesis import strategies as st

from .build import NOON, claim, decide, instance, node, node_class, of, offer, pod, pool, seen, specs
from .test_L24_invariants import shuffled

NAMES = [f"tgp-a1b2c3d4-{'pq'[place // 4]}-0000{place}" for place in range(8)]
NOW = node_class(talos_patches=("machine: {}",))
THEN = node_class()
REASONS = ("Empty", "Drifted", "Underutilized")
_mostly_old = st.sampled_from([NOON - timedelta(minutes=30)] * 20 + [NOON - timedelta(minutes=5)])
_rarely = st.sampled_from([False] * 7 + [True])
_placements = st.sampled_from(
    [Placement()] * 9
    + [
        Placement(claims=True),
        Placement(unsupported="required podAffinity with namespaceSelector"),
        Placement(spread=(Spread("kubernetes.io/hostname", 1, (Expression("app", "DoesNotExist"),)),)),
    ]
)
_marks = st.sampled_from([{}, {}, {}, {}, {}, {"tgp.io/do-not-disrupt": "true"}, {"tgp.io/idle-since": "2026-08-20T11:20:00Z"}])


@st.composite
def worlds(draw: t.Any) -> Observation:
    """Usable machines of two pools, some made from an older class, with a few pods."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=2))
    claims, nodes = [], []
    for name in names:
        size = draw(st.sampled_from([2, 4, 4]))
        facts = {
            "pool": f"default/{name[13]}",
            "offer": offer(draw(st.sampled_from(["0.42", "1.10"])), gpu_count=size),
            "generation": generation(draw(st.sampled_from([NOW, NOW, NOW, THEN])), pool()),
            "underused_since": draw(st.none() | _mostly_old),
            "initialized": draw(_mostly_old),
        }
        phase = draw(st.sampled_from([Phase.READY] * 20 + [Phase.TERMINATING, Phase.JOINING]))
        claims.append(
            claim(name, phase, **(facts if phase is not Phase.JOINING else {**facts, "initialized": None, "launch_started": NOON}))
        )
        ready = draw(st.sampled_from([True] * 8 + [False]))
        nodes.append(node(name, ready, ready_since=NOON, annotations=draw(_marks), allocatable={"nvidia.com/gpu": size}))
    pods = [
        pod(
            f"job-{place}",
            node=draw(st.sampled_from(names)),
            requests={"nvidia.com/gpu": draw(st.sampled_from([0, 1, 1, 2]))},
            annotations={"tgp.io/do-not-disrupt": "true"} if draw(_rarely) else {},
            owner_kind="" if draw(_rarely) else "Job",
            empty_dir=draw(_rarely),
            placement=draw(_placements),
            started=draw(_mostly_old),
        )
        for place in range(draw(st.integers(0, 6)))
    ]
    view = CloudView(tuple(instance(name) for name in names), ())
    return seen(claims=tuple(claims), clouds={"lambda": view}, nodes=tuple(nodes), pods=tuple(pods))


_budgets = st.lists(
    st.builds(
        DisruptionBudget,
        st.sampled_from(["0", "1", "2", "50%", "100%"]),
        st.lists(st.sampled_from(REASONS), unique=True).map(tuple),
    ),
    max_size=2,
).map(tuple)


@st.composite
def wanted(draw: t.Any) -> Specs:
    pools = [
        pool(
            name,
            consolidation_policy=draw(st.sampled_from(["WhenUnderutilized"] * 3 + ["WhenIdle", "Never"])),
            drift_policy=draw(st.sampled_from(["Replace", "Replace", "Report"])),
            disruption_budgets=draw(_budgets),
            min_nodes=draw(st.sampled_from([0, 0, 1, 2])),
            utilization_threshold=draw(st.sampled_from([Decimal("0.5"), Decimal("1")])),
        )
        for name in "pq"
    ]
    return specs(*pools, classes=(NOW,))


def gone(found: Plan, each: Pool, *reasons: str) -> list[Action]:
    return [one for one in of(found, "destroy") if one.pool == each.key and one.reason in reasons]


@settings(deadline=None)
@given(worlds(), wanted(), st.none() | st.integers(0, 4))
def test_L06_no_plan_goes_beyond_a_budget(world: Observation, asked: Specs, most: int | None) -> None:
    found = decide(world, asked, max_remove_per_run=most, allow_mass_delete=True)
    for each in asked.pools:
        claims = [one for one in world.claims or () if one.pool == each.key]
        by_name = {one.name: one for one in world.nodes or ()}
        leaving = {one.name for one in of(found, "destroy") if one.reason not in REASONS}
        broken = [
            one for one in claims if not by_name[one.name].ready and one.name not in leaving and one.phase is not Phase.TERMINATING
        ]
        for place, reason in enumerate(REASONS):
            before = len(gone(found, each, *REASONS[:place]))
            number = len(gone(found, each, reason))
            count = Count(len(claims), len(leaving & {one.name for one in claims}) + before, len(broken))
            budgets = [one for one in each.disruption_budgets if not one.reasons or reason in one.reasons]
            budgets = budgets or ([DEFAULTS[reason]] if reason in DEFAULTS else [])
            assert all(number <= allowed(one.nodes, count) for one in budgets)
            bound = most if most is not None or reason == "Empty" else 1
            assert bound is None or number <= bound


@settings(deadline=None)
@given(worlds(), wanted())
def test_L07_nothing_held_and_no_pod_that_must_not_move_is_disturbed(world: Observation, asked: Specs) -> None:
    found = decide(world, asked, max_remove_per_run=8, allow_mass_delete=True)
    by_name = {one.name: one for one in world.nodes or ()}
    for one in of(found, "destroy"):
        if one.reason in REASONS:
            assert not node_hold(by_name[one.name], NOON).why
            here = [each for each in world.pods or () if each.node == one.name]
            assert not any(each.do is Do.BLOCK for each in classify(here, Mode.VOLUNTARY, NOON, rules_of(one.reason)))


@settings(deadline=None)
@given(worlds(), wanted())
def test_L05_every_moved_gpu_has_a_place_that_stays(world: Observation, asked: Specs) -> None:
    """What Underutilized takes away fits, in sum, into what is free on the usable nodes that stay."""
    found = decide(world, asked, max_remove_per_run=8, allow_mass_delete=True)
    going = {one.name for one in of(found, "destroy")}
    packed = {one.name for one in of(found, "destroy") if one.reason == "Underutilized"}
    ready = {one.name for one in world.claims or () if one.phase is Phase.READY}
    used = {name: sum(gpus(one, GPU_RESOURCES) for one in world.pods or () if one.node == name) for name in NAMES}
    moved = sum(used[name] for name in packed)
    free = sum(
        max(0, one.allocatable["nvidia.com/gpu"] - used[one.name])
        for one in world.nodes or ()
        if one.ready and one.name in ready - going
    )
    assert moved <= free
    for each in asked.pools:
        left = [one for one in world.claims or () if one.pool == each.key and one.phase is Phase.READY and one.name not in going]
        assert not gone(found, each, "Underutilized") or len(left) >= each.min_nodes


@settings(deadline=None)
@given(worlds(), wanted())
def test_I3_unknown_pods_disturb_nobody(world: Observation, asked: Specs) -> None:
    found = decide(dataclasses.replace(world, pods=None), asked)
    assert not [one for one in of(found, "destroy") if one.reason in REASONS]


@settings(deadline=None)
@given(worlds(), wanted(), st.randoms(use_true_random=False))
def test_I8_the_order_of_the_input_does_not_matter_for_what_can_wait(
    world: Observation, asked: Specs, order: random.Random
) -> None:
    mixed = dataclasses.replace(asked, pools=tuple(order.sample(asked.pools, 2)))
    assert decide(shuffled(world, order), mixed) == decide(world, asked)


@settings(deadline=None)
@given(worlds(), wanted())
def test_I9_a_second_look_at_what_was_only_noted_changes_nothing(world: Observation, asked: Specs) -> None:
    """Facts are written once: after them, the same moment again has the same ends in mind and nothing new to note."""
    first = decide(world, asked)
    noted = {one.name: one.claim for one in of(first, "update") if one.claim is not None}
    claims = tuple(noted.get(one.name, one) for one in world.claims or ())
    again = decide(dataclasses.replace(world, claims=claims), asked)
    assert not of(again, "update")
    assert [(one.name, one.reason) for one in of(again, "destroy")] == [(one.name, one.reason) for one in of(first, "destroy")]


@settings(deadline=None)
@given(worlds(), wanted())
def test_L22_one_decision_per_claim_and_nothing_said_for_keeping_what_goes(world: Observation, asked: Specs) -> None:
    found = decide(world, asked)
    names = [one.name for one in found.actions if one.claim is not None]
    assert len(set(names)) == len(names)
    going = {one.name for one in of(found, "destroy") if one.reason in REASONS}
    assert not going & {one.name for one in of(found, "report") if one.reason in ("Kept", *REASONS)}


@settings(deadline=None)
@given(worlds(), wanted(), st.sampled_from(["workload", "gpu", "all"]))
def test_I17_nothing_that_can_wait_ends_under_a_claim_or_moves_what_may_fit_nowhere(
    world: Observation, asked: Specs, idle_mode: str
) -> None:
    asked = dataclasses.replace(asked, pools=tuple(dataclasses.replace(one, idle_mode=idle_mode) for one in asked.pools))
    for action in of(decide(world, asked, allow_mass_delete=True), "destroy"):
        here = [one for one in world.pods or () if one.node == action.name]
        assert action.reason != "Empty" or not any(one.placement.claims for one in here)
        assert action.reason != "Drifted" or not any(one.placement.unmovable for one in here)
        assert action.reason != "Underutilized" or not any(one.placement.unjudged for one in here)
