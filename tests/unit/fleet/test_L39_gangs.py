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
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.gangs import gang_of, gangs
from hypothesis import strategies

from .build import at, node_class, of, pod, pool, specs
from .pods import GPU
from .test_L17_autoscale import FOUR, ONE, asks, launched, machine, scale, world

GROUP = {"scheduling.x-k8s.io/pod-group": "g"}


def member(name: str, gpus: int = 1, *, labels: t.Mapping[str, str] = GROUP, **facts: t.Any) -> Pod:
    return asks(name, gpus, labels=labels, **facts)


def four(**facts: t.Any) -> list[Pod]:
    return [member(f"g-{number}", **facts) for number in range(4)]


def words(plan: Plan) -> set[str]:
    return {one.reason for one in plan.waiting if one.reason}


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
    assert ([one.name for one in gang.needed], [one.name for one in gang.spare]) == (["w-0", "w-1"], ["w-2", "w-3"])
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
