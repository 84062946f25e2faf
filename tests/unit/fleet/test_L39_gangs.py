# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-39: gangs are launched with all their pods or none. Numbers are those of the worked examples [E] of scheduling of late 2026."""

from __future__ import annotations

import dataclasses
import typing as t
from decimal import Decimal

import hypothesis
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Ledger, Plan, Pod, SpendingBudget
from ansible_collections.tgp.gpu.plugins.module_utils.model.queues import (
    COSCHEDULING_GROUPS,
    NATIVE_GROUPS,
    VOLCANO_GROUPS,
    PodGroup,
    PodGroupKey,
    PodGroups,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.gangs import gang_of, gangs
from hypothesis import strategies

from .build import at, node_class, of, pod, pool, specs
from .pods import GPU
from .test_L17_autoscale import FOUR, ONE, asks, launched, machine, scale, world
from .test_L22_saved_plan import LATER, applied, saved

GROUP = {"scheduling.x-k8s.io/pod-group": "g"}


def member(name: str, gpus: int = 1, *, labels: t.Mapping[str, str] = GROUP, **facts: t.Any) -> Pod:
    return asks(name, gpus, labels=labels, **facts)


def four(**facts: t.Any) -> list[Pod]:
    return [member(f"g-{number}", **facts) for number in range(4)]


def words(plan: Plan) -> set[str]:
    return {one.reason for one in plan.waiting if one.reason}


def grouped(*groups: PodGroup | tuple[str, int | None], api: str = COSCHEDULING_GROUPS) -> PodGroups:
    """PodGroups as they were read: a name and how many of its pods have to run at once."""
    made = [one if isinstance(one, PodGroup) else PodGroup(PodGroupKey(api, "default", one[0]), one[1]) for one in groups]
    return PodGroups({one.key: one for one in made}, frozenset({api}))


FREE = [machine(1), machine(2)]  # two free GPUs on Ready nodes


# ---- [E] gang of 4, room for 2 (A = 1 x 0.40/h, B = 4 x 1.50/h)


def test_L39_E_gang_1_two_machines_make_four() -> None:
    assert launched(scale(world(*four(), machines=FREE))) == [1, 1]


def test_L39_E_gang_2_room_for_one_machine_takes_the_one_that_serves_all_that_is_missing() -> None:
    plan = scale(world(*four(), machines=FREE), specs(pool(max_nodes=3)))
    assert launched(plan) == [4] and words(plan) == set()


def test_L39_E_gang_3_without_that_machine_none_is_launched_and_the_reason_is_told() -> None:
    plan = scale(world(*four(), machines=FREE, offers=(ONE,)), specs(pool(max_nodes=3)))
    assert launched(plan) == [] and words(plan) == {"PodGroup default/g: room for 3 of 4; limit:pool.maxNodes"}
    assert {one.machine for one in plan.waiting} == {""}, "nor is it counted on what is free"


def test_L39_E_gang_4_a_machine_whose_sibling_failed_is_idle_and_goes() -> None:
    """Its launch is made anew while there is an offer; without one the machine that came is not kept for the gang."""
    came = machine(1, annotations={"tgp.io/idle-since": "2026-08-20T11:20:00Z"})
    plan = scale(world(*four()[:2], machines=[came], offers=()))
    (reason,) = words(plan)
    assert reason.startswith("PodGroup default/g: room for 1 of 2")
    assert [action.reason for action in of(plan, "destroy")] == ["Empty"]


def test_L39_E_gang_5_a_gang_whose_pods_do_not_all_exist_asks_for_nothing() -> None:
    sized = {"kueue.x-k8s.io/pod-group-name": "g"}
    three = [member(f"g-{number}", labels=sized, annotations={"kueue.x-k8s.io/pod-group-total-count": "4"}) for number in range(3)]
    plan = scale(world(*three))
    assert launched(plan) == [] and words(plan) == {"pod group default/g: 3 of 4 pods exist"}


def test_L39_E_gang_6_what_is_above_the_size_is_ordinary_demand() -> None:
    """Size 4, 6 pods, 2 bound: 2 are needed, 2 more come on top, and only if the gang is whole."""
    marks = {"leaderworkerset.sigs.k8s.io/size": "4"}
    labels = {"leaderworkerset.sigs.k8s.io/name": "l", "leaderworkerset.sigs.k8s.io/group-index": "0"}
    bound = [pod(f"b-{number}", labels=labels, annotations=marks, node="elsewhere") for number in range(2)]
    asking = [member(f"w-{number}", labels=labels, annotations=marks) for number in range(4)]
    (gang,) = gangs(asking, [*bound, *asking])
    assert ([one.name for one in gang.pods], gang.least) == (["w-0", "w-1", "w-2", "w-3"], 2)
    assert launched(scale(world(*bound, *asking, offers=(ONE,)), specs(pool(max_nodes=3)))) == [1, 1, 1]
    none = scale(world(*bound, *asking, offers=(ONE,)), specs(pool(max_nodes=1)))
    assert launched(none) == [] and len(none.waiting) == 4


def test_L39_E_gang_7_gated_pods_of_a_suspended_job_ask_for_nothing() -> None:
    assert scale(world(*four(waiting="SchedulingGated"))).waiting == ()


# ---- whole or not at all, whatever is short


@pytest.mark.parametrize("room", range(5))
def test_L39_a_gang_of_four_with_room_for_fewer_launches_none(room: int) -> None:
    plan = scale(world(*four(), offers=(ONE,)), specs(pool(max_nodes=room)))
    assert launched(plan) == ([1] * 4 if room == 4 else [])
    if room < 4:
        assert words(plan) == {f"PodGroup default/g: room for {room} of 4; limit:pool.maxNodes"}


@pytest.mark.parametrize(
    "short",
    [
        {"offers": (dataclasses.replace(ONE, available=3),)},
        {"wanted": specs(pool(), classes=(node_class(max_hourly_cost=ONE.price_hour * 3 if ONE.price_hour else None),))},
        {"wanted": specs(pool(resources={GPU: 3}))},
        {"blocks": {"lambda|gpu_1x|us-west-1|one": at("13:00")}, "offers": ()},
    ],
    ids=["stock", "limit of cost", "limit of GPUs", "nothing offered"],
)
def test_L39_stock_limits_and_refused_offers_never_split_a_gang(short: dict[str, t.Any]) -> None:
    wanted = short.pop("wanted", None)
    plan = scale(world(*four(), **{"offers": (ONE,), **short}), wanted)
    assert launched(plan) == [] and all(reason.startswith("PodGroup default/g: room for") for reason in words(plan))


@pytest.mark.parametrize(("amount", "count"), [("1.60", 4), ("1.59", 0)])
def test_L39_a_budget_never_splits_a_gang(amount: str, count: int) -> None:
    """The first hour of each of four machines at 0.40 has to be affordable."""
    held = pool(budget=SpendingBudget("day", Decimal(amount)))
    assert len(launched(scale(world(*four(), offers=(ONE,), ledger=Ledger()), specs(held)))) == count


def test_L39_of_two_gangs_that_compete_one_is_whole() -> None:
    other = [member(f"h-{number}", labels={"scheduling.x-k8s.io/pod-group": "h"}) for number in range(4)]
    plan = scale(world(*four(), *other, offers=(ONE,)), specs(pool(max_nodes=5)))
    assert launched(plan) == [1] * 4 and {one.name[0] for one in plan.waiting if one.machine} == {"g"}


def test_L39_ordinary_pods_get_what_a_gang_cannot_use() -> None:
    plan = scale(world(*four(), asks("single"), offers=(ONE,)), specs(pool(max_nodes=3)))
    assert launched(plan) == [1] and {one.name for one in plan.waiting if one.machine} == {"single"}


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"labels": GROUP}, "PodGroup default/g"),
        ({"annotations": {"scheduling.k8s.io/group-name": "v"}}, "PodGroup default/v"),
        ({"pod_group": "n"}, "PodGroup default/n"),
        ({"labels": {"kueue.x-k8s.io/pod-group-name": "k"}}, "pod group default/k"),
        ({"labels": {"jobset.sigs.k8s.io/jobset-name": "j"}}, "JobSet default/j"),
        (
            {"labels": {"leaderworkerset.sigs.k8s.io/name": "l", "leaderworkerset.sigs.k8s.io/group-index": "1"}},
            "LeaderWorkerSet default/l, group 1",
        ),
        ({"labels": {"leaderworkerset.sigs.k8s.io/name": "l"}}, ""),
        ({}, ""),
    ],
)
def test_L39_each_system_has_its_mark(facts: dict[str, t.Any], name: str) -> None:
    assert gang_of(pod(**facts)) == name


@hypothesis.given(
    strategies.lists(strategies.tuples(strategies.sampled_from("abc-"), strategies.integers(1, 2)), min_size=1, max_size=8),
    strategies.integers(0, 5),
    strategies.booleans(),
)
def test_L39_no_gang_is_ever_split(pods: list[tuple[str, int]], room: int, large: bool) -> None:
    asking = [
        member(f"p-{number}", gpus, labels={} if group == "-" else {"scheduling.x-k8s.io/pod-group": group})
        for number, (group, gpus) in enumerate(pods)
    ]
    plan = scale(world(*asking, offers=(ONE, FOUR) if large else (ONE,)), specs(pool(max_nodes=room)))
    served = {one.name: bool(one.machine) for one in plan.waiting}
    for group in "abc":
        assert len({served[one.name] for one in asking if one.labels.get("scheduling.x-k8s.io/pod-group") == group}) <= 1
    assert len(launched(plan)) <= room


def test_L39_without_gangs_nothing_changes() -> None:
    there = [machine(1)]
    assert gangs([asks("a")], [asks("a")]) == ()
    assert launched(scale(world(asks("a"), asks("b"), machines=there))) == [1]


# ---- PodGroup objects: how many have to run at once


@pytest.mark.parametrize(
    ("room", "least", "count"), [(4, 2, 4), (3, 2, 3), (2, 2, 2), (1, 2, 0), (3, 4, 0), (4, 4, 4), (3, None, 0)]
)
def test_L39_a_pod_group_gets_as_many_places_as_it_needs_at_least_or_none(room: int, least: int | None, count: int) -> None:
    """Four pods. What is above the minimum is ordinary demand, which limits may cut."""
    plan = scale(world(*four(), offers=(ONE,), pod_groups=grouped(("g", least))), specs(pool(max_nodes=room)))
    assert launched(plan) == [1] * count
    if not count:
        assert words(plan) == {f"PodGroup default/g: room for {room} of {4 if least is None else least}; limit:pool.maxNodes"}


@pytest.mark.parametrize("api", [NATIVE_GROUPS, COSCHEDULING_GROUPS, VOLCANO_GROUPS])
@pytest.mark.parametrize(("room", "count"), [(1, 0), (2, 2), (3, 3), (9, 4)])
def test_L39_E_gang_6_of_a_minimum_of_four_two_run_so_two_more_are_needed(api: str, room: int, count: int) -> None:
    """minCount 4, 6 pods, 2 bound: needed 2 for the gang, 2 more as ordinary demand."""
    marks: dict[str, dict[str, t.Any]] = {
        NATIVE_GROUPS: {"pod_group": "g", "labels": {}},
        COSCHEDULING_GROUPS: {"labels": GROUP},
        VOLCANO_GROUPS: {"annotations": {"scheduling.k8s.io/group-name": "g"}, "labels": {}},
    }
    bound = [pod(f"b-{number}", node="elsewhere", **marks[api]) for number in range(2)]
    asking = [member(f"w-{number}", **marks[api]) for number in range(4)]
    plan = scale(world(*bound, *asking, offers=(ONE,), pod_groups=grouped(("g", 4), api=api)), specs(pool(max_nodes=room)))
    assert launched(plan) == [1] * count and len(plan.waiting) == 4
    if count < 2:
        assert words(plan) == {"PodGroup default/g: room for 1 of 2; limit:pool.maxNodes"}


def test_L39_E_gang_5_fewer_pods_than_min_count_ask_for_nothing() -> None:
    plan = scale(world(*four()[:3], pod_groups=grouped(("g", 4))))
    assert launched(plan) == [] and words(plan) == {"PodGroup default/g: 3 of 4 pods exist"}


def test_L39_a_member_that_nothing_serves_does_not_hold_the_minimum_back() -> None:
    """Three of four are enough, so it does not matter which of them waits on."""
    pods = [member("g-0", 8), *four()[1:]]
    assert launched(scale(world(*pods, offers=(ONE,), pod_groups=grouped(("g", 3))))) == [1, 1, 1]
    assert launched(scale(world(*pods, offers=(ONE,), pod_groups=grouped(("g", 4))))) == []


def test_L39_pods_of_a_policy_without_a_gang_are_ordinary_demand() -> None:
    assert launched(scale(world(*four(), offers=(ONE,), pod_groups=grouped(("g", 0))), specs(pool(max_nodes=1)))) == [1]


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        (
            PodGroups(unread=frozenset({COSCHEDULING_GROUPS})),
            "how many of its pods have to run at once is unknown, since PodGroups of scheduling.x-k8s.io could not be read",
        ),
        (grouped(("other", 1)), "there is no such PodGroup of scheduling.x-k8s.io, and its pods cannot start before there is one"),
        (grouped(PodGroup(PodGroupKey(COSCHEDULING_GROUPS, "default", "g"), problem="its spec is odd")), "its spec is odd"),
    ],
)
def test_L39_a_group_that_is_unknown_launches_nothing_and_each_of_its_pods_says_why(groups: PodGroups, reason: str) -> None:
    plan = scale(world(*four(), asks("single"), offers=(ONE,), pod_groups=groups))
    assert launched(plan) == [1], "other pods are served"
    assert {one.name: one.reason for one in plan.waiting} == {
        **{f"g-{number}": f"PodGroup default/g: {reason}" for number in range(4)}, "single": ""
    }  # fmt: skip


def test_L39_groups_of_an_api_that_is_not_served_need_all_their_pods() -> None:
    groups = PodGroups(unread=frozenset({VOLCANO_GROUPS}))
    assert launched(scale(world(*four(), offers=(ONE,), pod_groups=groups), specs(pool(max_nodes=3)))) == []


def test_L39_a_half_launched_gang_gets_the_rest_in_the_next_run() -> None:
    """Two create calls of four failed: the machines that came are counted, and only the rest is rented."""
    assert launched(scale(world(*four(), machines=FREE, offers=(ONE,), pod_groups=grouped(("g", 4))))) == [1, 1]
    idle = {"tgp.io/idle-since": "2026-08-20T11:20:00Z"}
    came = [machine(1, annotations=idle), machine(2, annotations=idle)]
    ends = scale(world(*four(), machines=came, offers=(), pod_groups=grouped(("g", 3))))
    assert [action.reason for action in of(ends, "destroy")] == ["Empty", "Empty"], "nothing of it is of use"
    assert of(scale(world(*four(), machines=came, offers=(), pod_groups=grouped(("g", 2)))), "destroy") == [], "two may start"


@hypothesis.given(
    strategies.lists(strategies.tuples(strategies.sampled_from("abc-"), strategies.integers(1, 2)), min_size=1, max_size=8),
    strategies.dictionaries(strategies.sampled_from("abc"), strategies.none() | strategies.integers(0, 5)),
    strategies.integers(0, 5),
    strategies.booleans(),
)
def test_L39_a_pod_group_gets_its_minimum_or_nothing_and_never_a_machine_too_many(
    pods: list[tuple[str, int]], least: dict[str, int | None], room: int, large: bool
) -> None:
    """Groups without an object get nothing: their API is read. Every machine has a pod that waits for it."""
    asking = [
        member(f"p-{number}", gpus, labels={} if group == "-" else {"scheduling.x-k8s.io/pod-group": group})
        for number, (group, gpus) in enumerate(pods)
    ]
    seen = world(*asking, offers=(ONE, FOUR) if large else (ONE,), pod_groups=grouped(*least.items()))
    plan = scale(seen, specs(pool(max_nodes=room)))
    machines = {one.name: one.machine for one in plan.waiting}
    for group in "abc":
        members = [one for one in asking if one.labels.get("scheduling.x-k8s.io/pod-group") == group]
        served = sum(bool(machines[one.name]) for one in members)
        minimum = least.get(group, 99)
        assert served == 0 or served >= (len(members) if minimum is None else minimum)
    assert len(launched(plan)) <= room
    assert {action.name for action in of(plan, "launch")} == {name for name in machines.values() if name}


# ---- saved plans (L-22)

OTHER = dataclasses.replace(ONE, id="other", instance_type="other", available=2)
THIRD = dataclasses.replace(ONE, id="third", instance_type="third")


@pytest.mark.parametrize(("least", "count"), [(4, 0), (3, 0), (2, 2)])
def test_L39_a_saved_plan_refuses_a_gang_that_no_longer_fits_whole(least: int, count: int) -> None:
    """Two machines each of two offers were planned, and one of the offers is gone. A new plan would rent four, so the pool still wants them."""
    wanted, groups = specs(pool()), grouped(("g", least))
    two = dataclasses.replace(ONE, available=2)
    kept = saved(world(*four(), offers=(two, OTHER), pod_groups=groups), wanted, "autoscale")
    assert len(kept.steps) == 4
    assert [
        one.result for one in applied(kept, world(*four(), now=LATER, offers=(two, OTHER), pod_groups=groups), wanted).checks
    ] == ["applied"] * 4
    later = applied(kept, world(*four(), now=LATER, offers=(two, THIRD), pod_groups=groups), wanted)
    assert sorted(one.result for one in later.checks) == ["applied"] * count + ["refused"] * (4 - count)
    split = [one for one in later.checks if one.why == f"PodGroup default/g: room for 2 of {least}"]
    assert len(split) == 2 - count and len([one for one in later.plan.actions if one.kind == "launch"]) == count


def test_L39_a_saved_plan_refuses_a_gang_whose_group_has_grown() -> None:
    """Two free GPUs and two launches made four; now five have to fit at once."""
    wanted, pods = specs(pool()), [*four(), member("g-4")]
    kept = saved(world(*pods, machines=FREE, offers=(ONE,), pod_groups=grouped(("g", 4))), wanted, "autoscale")
    fewer = dataclasses.replace(kept, steps=kept.steps[:2])
    later = applied(fewer, world(*pods, machines=FREE, now=LATER, offers=(ONE,), pod_groups=grouped(("g", 5))), wanted)
    assert {one.why for one in later.checks} == {"PodGroup default/g: room for 4 of 5"}


def test_L39_a_saved_plan_refuses_the_machine_that_nobody_needs_without_a_split_gang() -> None:
    """Two of a gang and another pod on three machines, and one offer is gone: the other pod gets one of the two that are left."""
    wanted, groups = specs(pool()), grouped(("a", None))
    group = {"scheduling.x-k8s.io/pod-group": "a"}
    pods = [member("p-0", labels=group), asks("p-1"), member("p-2", labels=group)]
    two = dataclasses.replace(ONE, available=2)
    kept = saved(world(*pods, offers=(two, OTHER), pod_groups=groups), wanted, "autoscale")
    later = applied(kept, world(*pods, now=LATER, offers=(two, THIRD), pod_groups=groups), wanted)
    assert sorted(one.result for one in later.checks) == ["applied", "refused", "refused"]


@hypothesis.given(
    strategies.lists(strategies.tuples(strategies.sampled_from("ab-"), strategies.integers(1, 2)), min_size=1, max_size=6),
    strategies.dictionaries(strategies.sampled_from("ab"), strategies.none() | strategies.integers(0, 4)),
    strategies.integers(0, 4),
)
def test_L39_a_saved_plan_with_gangs_is_done_at_once_as_it_stands(
    pods: list[tuple[str, int]], least: dict[str, int | None], stock: int
) -> None:
    asking = [
        member(f"p-{number}", gpus, labels={} if group == "-" else {"scheduling.x-k8s.io/pod-group": group})
        for number, (group, gpus) in enumerate(pods)
    ]
    facts: dict[str, t.Any] = {
        "offers": (dataclasses.replace(ONE, available=stock), FOUR, OTHER),
        "pod_groups": grouped(*least.items()),
    }
    wanted = specs(pool())
    at_once = applied(saved(world(*asking, **facts), wanted, "autoscale"), world(*asking, **facts), wanted)
    assert {one.result for one in at_once.checks} <= {"applied"}, [one.why for one in at_once.checks]
