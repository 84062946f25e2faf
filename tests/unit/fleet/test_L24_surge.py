# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-24 for machines that are replaced before they go: what holds in each run of a small world, whatever becomes of its launches."""

from __future__ import annotations

import collections
import dataclasses
import random
import typing as t
from datetime import datetime, timedelta

from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Claim,
    DisruptionBudget,
    Node,
    Observation,
    Phase,
    Plan,
    Pod,
    Pool,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.record import BEFORE_READY, LIVE
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.spec_hash import generation
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption import expiration
from hypothesis import given, settings
from hypothesis import strategies as st

from .build import NOON, decide, instance, node, of, offer, pod, pool, seen, specs
from .test_L05_surge import ANYWHERE, GPU, NOW, THEN, old

NAMES = [f"tgp-a1b2c3d4-p-{place:05}" for place in range(1, 5)]
TURNS = 10


@dataclasses.dataclass
class World:
    """Claims with what becomes of their machines, and the pods of controllers. ``limit``: maxNodes of the class."""

    pool: Pool
    limit: int
    dice: random.Random
    now: datetime = NOON
    claims: dict[str, Claim] = dataclasses.field(default_factory=dict)
    pods: list[Pod] = dataclasses.field(default_factory=list)
    findings: t.Mapping[str, datetime] = dataclasses.field(default_factory=dict)

    def observed(self) -> Observation:
        return seen(
            self.now,
            claims=tuple(self.claims.values()),
            nodes=tuple(self._node(one) for one in self.claims.values() if one.phase is Phase.READY),
            instances=tuple(
                instance(one.name, created=one.launch_started, id=one.instance_id)
                for one in self.claims.values()
                if one.instance_id and one.phase is not Phase.PENDING
            ),
            pods=tuple(self.pods),
            offers=(offer("0.42", id="g"),),
            findings=dict(self.findings),
        )

    @staticmethod
    def _node(one: Claim) -> Node:
        return node(one.name, created=one.registered or one.created, allocatable={GPU: 1})

    def plan(self, mode: str) -> Plan:
        classes = (dataclasses.replace(NOW, max_nodes=self.limit),)
        return decide(self.observed(), specs(self.pool, classes=classes), mode, allow_mass_delete=True)

    def apply(self, found: Plan) -> None:
        """The plan carried out: a run may die after its claims are written, a machine may never join, pods go where there is room."""
        self.findings = found.findings
        dies = self.dice.random() < 0.3
        for action in found.actions:
            if action.claim is None:
                continue
            if action.kind == "update":
                self.claims[action.name] = action.claim
            elif action.kind in ("launch", "resume"):
                self.claims[action.name] = self._launched(action.claim, dies)
            elif action.kind == "destroy":
                self.claims.pop(action.name)
        self._schedule()

    def _launched(self, made: Claim, dies: bool) -> Claim:
        if dies or made.instance_id:
            return made
        facts = {
            "phase": Phase.BOOTING,
            "launch_started": self.now,
            "instance_id": f"i-{made.name}",
            "ids_seen": (f"i-{made.name}",),
        }
        return dataclasses.replace(made, **t.cast(t.Any, facts))

    def pass_time(self) -> None:
        self.now += timedelta(minutes=self.dice.choice([1, 4, 7, 15]))
        for name, one in self.claims.items():
            if one.phase is Phase.BOOTING and self.dice.random() < 0.6:
                facts = {"phase": Phase.READY, "registered": self.now, "initialized": self.now, "node_uid": f"uid-{name}"}
                self.claims[name] = dataclasses.replace(one, **t.cast(t.Any, facts))
        self._schedule()

    def _schedule(self) -> None:
        """Pods of nodes that are gone come again, on a Ready node that is free, or wait."""
        there = {name for name, one in self.claims.items() if one.phase is Phase.READY}
        homeless = [one for one in self.pods if one.node not in there]
        stay = [one for one in self.pods if one.node in there]
        for one in homeless:
            free = sorted(there - {other.node for other in stay})
            where = free[0] if free else ""
            facts = {"node": where, "phase": "Running" if where else "Pending", "waiting": "" if where else "Unschedulable"}
            stay.append(dataclasses.replace(one, **t.cast(t.Any, facts), created=self.now))
        self.pods = stay


@st.composite
def worlds(draw: t.Any) -> World:
    """One to four usable machines, most of them made from an older class, some of which expire soon; most run a pod."""
    names = NAMES[: draw(st.integers(1, 4))]
    number = draw(st.sampled_from([{}, {"replicas": len(names)}, {"min_nodes": draw(st.integers(1, 4))}]))
    wanted = pool(
        drift_policy=draw(st.sampled_from(["Replace", "Replace", "Report"])),
        expire_after=draw(st.sampled_from([None, 2 * 3600 + 600, 3 * 3600])),
        disruption_budgets=draw(st.sampled_from([(), (DisruptionBudget("100%"),)])),
        min_age=0,
        **number,
    )
    made = World(wanted, draw(st.integers(1, 6)), random.Random(draw(st.integers(0, 10**6))))
    for place, name in enumerate(names):
        fresh = generation(draw(st.sampled_from([THEN, THEN, NOW])), wanted)
        began = NOON - timedelta(minutes=draw(st.sampled_from([40, 100, 118])))
        times = {"created": began, "launch_started": began, "registered": began + timedelta(minutes=5)}
        made.claims[name] = old(name, generation=fresh, initialized=began + timedelta(minutes=6), **times)
        if draw(st.sampled_from([True, True, False])):
            made.pods.append(pod(f"job-{place}", node=name, requests={GPU: 1}, placement=ANYWHERE, owner_kind="ReplicaSet"))
    return made


@settings(deadline=None, max_examples=80)
@given(worlds(), st.sampled_from(["autoscale", "everything"]))
def test_L24_no_machine_has_two_replacements_no_limit_is_exceeded_and_every_end_comes_in_time(world: World, mode: str) -> None:
    for _turn in range(TURNS):
        before = dict(world.claims)
        found = world.plan(mode)
        going = {action.name: action for action in of(found, "destroy")}
        for name, one in before.items():
            due = expiration.due(one, world.pool)
            assert due is None or world.now < due + timedelta(seconds=world.pool.termination_grace) or name in going
        world.apply(found)
        replaced = collections.Counter(one.replaces for one in world.claims.values() if one.replaces in world.claims)
        assert all(number == 1 for number in replaced.values()), replaced
        living = [*before.values(), *(action.claim for action in of(found, "launch") if action.claim)]
        assert len(living) <= max(world.limit, len(before)), "machines that go count until they are gone"
        world.pass_time()


@settings(deadline=None, max_examples=80)
@given(worlds(), st.sampled_from(["autoscale", "everything"]))
def test_L24_a_drifted_machine_leaves_no_gap_unless_the_plan_says_why(world: World, mode: str) -> None:
    """A machine that goes for drift is replaced, or its pods have a place and its pool has enough without it."""
    for _turn in range(TURNS):
        claims, pods = dict(world.claims), list(world.pods)
        found = world.plan(mode)
        going = {action.name for action in of(found, "destroy")}
        for action in of(found, "destroy"):
            if action.reason != "Drifted" or "without a replacement first" in action.detail:
                continue
            new = [one for one in claims.values() if one.replaces == action.name and one.phase is Phase.READY]
            here = [one for one in pods if one.node == action.name]
            stay = [one for one in claims.values() if one.phase in LIVE and one.name not in going]
            free = [one for one in stay if one.phase is Phase.READY and not any(other.node == one.name for other in pods)]
            wanted = world.pool.replicas or world.pool.min_nodes
            coming = [one for one in of(found, "launch") if one.reason != "Replacement"]
            assert new or (len(here) <= len(free) and len(stay) + len(coming) >= wanted)
        world.apply(found)
        world.pass_time()


@settings(deadline=None, max_examples=60)
@given(worlds(), st.sampled_from(["autoscale", "everything"]), st.randoms(use_true_random=False))
def test_I8_the_same_state_gives_the_same_replacements(world: World, mode: str, order: random.Random) -> None:
    for _turn in range(3):
        found = world.plan(mode)
        names = list(world.claims)
        order.shuffle(names)
        mixed = dataclasses.replace(
            world, claims={name: world.claims[name] for name in names}, pods=order.sample(world.pods, len(world.pods))
        )
        assert mixed.plan(mode) == found
        world.apply(found)
        world.pass_time()


@settings(deadline=None, max_examples=60)
@given(worlds(), st.sampled_from(["autoscale", "everything"]))
def test_L29_a_replacement_never_makes_its_pool_launch_one_more(world: World, mode: str) -> None:
    """With ``replicas`` there are never more machines than that and one for each that is replaced."""
    world = dataclasses.replace(world, pool=dataclasses.replace(world.pool, replicas=len(world.claims), min_nodes=0))
    for _turn in range(TURNS):
        world.apply(world.plan(mode))
        pairs = sum(1 for one in world.claims.values() if one.replaces in world.claims)
        living = [one for one in world.claims.values() if one.phase in (*BEFORE_READY, Phase.READY)]
        late = [
            one for one in living if one.phase is Phase.BOOTING and world.now - (one.launch_started or NOON) > timedelta(minutes=30)
        ]
        assert len(living) - pairs - len(late) <= t.cast(int, world.pool.replicas), [one.name for one in living]
        world.pass_time()
