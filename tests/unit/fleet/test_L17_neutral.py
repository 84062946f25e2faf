# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-17: tgp.io/gpu, the name of GPUs of any vendor: counted, offered, and never counted twice."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Deletion, Node, Phase, Plan, Pod
from ansible_collections.tgp.gpu.plugins.module_utils.model.resources import GPU_RESOURCES, NEUTRAL_GPU
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.consolidation import use
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.registration import (
    allocatable_gpus,
    drift,
    not_initialized,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.binpacking import shown, spare
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.capacity import advertised, of_claim, of_node, of_offer

from .build import CLUSTER, claim, node, node_class, of, offer, pod, pool, specs
from .pods import GPU
from .test_L17_autoscale import asks, launched, machine, reasons, scale, world

BOTH = {GPU: 1, NEUTRAL_GPU: 1}


def neutral(name: str = "w", gpus: int = 1) -> Pod:
    return asks(name, requests={NEUTRAL_GPU: gpus})


def tally(found: Plan) -> tuple[int, int]:
    """Used and free GPUs of the pool."""
    (line,) = [one for one in found.tally if one.pool]
    return line.used, line.free


# ---- what is planned


@pytest.mark.parametrize(
    "requests", [{NEUTRAL_GPU: 2}, {NEUTRAL_GPU: 2, GPU: 2}, {NEUTRAL_GPU: 1, GPU: 2}, {NEUTRAL_GPU: 2, GPU: 1}]
)
def test_L17_a_pod_that_asks_for_the_neutral_name_gets_a_machine_that_is_large_enough(requests: dict[str, int]) -> None:
    found = scale(world(asks(requests=requests)))
    assert launched(found) == [4] and not reasons(found)


def test_L17_a_machine_on_its_way_serves_the_neutral_name() -> None:
    made = claim(phase=Phase.BOOTING, offer=offer("0.40", gpu_count=2))
    assert of_claim(made, pool(), CLUSTER, True).free[NEUTRAL_GPU] == 2
    more = of_claim(dataclasses.replace(made, expected_gpus=8), pool(), CLUSTER, True)
    assert more.free[NEUTRAL_GPU] == more.free[GPU] == 8, "the pool was sliced when it was rented"


def test_L17_slices_count_under_both_names() -> None:
    """A pod that asks for both finds as many of the one as of the other."""
    sliced, two = pool(slices=4), offer("0.40", gpu_count=2)
    assert {of_offer(two, sliced, node_class(), CLUSTER, True).free[name] for name in (GPU, NEUTRAL_GPU)} == {8}
    assert advertised(claim(offer=two, expected_gpus=8), sliced) == advertised(claim(offer=two), sliced) == 8


def test_L17_a_ready_node_serves_the_neutral_name_as_far_as_it_offers_it() -> None:
    here = machine(allocatable=BOTH)
    assert launched(scale(world(neutral(), machines=[here]))) == []
    taken = pod("busy", node=here[1].name, requests={NEUTRAL_GPU: 1})
    assert launched(scale(world(neutral(), taken, machines=[here]))) == [1]


# ---- one GPU, two names


@pytest.mark.parametrize(
    "free, left",
    [
        ({GPU: 2}, 2),
        ({GPU: 2, NEUTRAL_GPU: 2}, 2),
        ({GPU: 0, NEUTRAL_GPU: 2}, 0),
        ({GPU: 2, NEUTRAL_GPU: 0}, 0),
        ({NEUTRAL_GPU: 2}, 0),
        ({"nvidia.com/mig-1g.5gb": 3, GPU: 1, NEUTRAL_GPU: 7}, 3),
        ({GPU: None, NEUTRAL_GPU: 2}, 0),
        ({}, 0),
    ],
)
def test_L17_what_is_spare_is_counted_once(free: dict[str, int | None], left: int) -> None:
    assert spare(free, GPU_RESOURCES) == left


@pytest.mark.parametrize("requests", [{GPU: 1}, {NEUTRAL_GPU: 1}, BOTH])
def test_L17_used_and_free_are_counted_once(requests: dict[str, int]) -> None:
    claimed, here, there = machine(gpus=2, allocatable={GPU: 2, NEUTRAL_GPU: 2})
    assert tally(scale(world(pod(node=here.name, requests=requests), machines=[(claimed, here, there)]))) == (1, 1)


def test_L05_the_share_of_used_gpus_is_of_those_there_are() -> None:
    found = use(node(allocatable={GPU: 2, NEUTRAL_GPU: 2}), [pod(requests=BOTH)], GPU_RESOURCES)
    assert (found.used, found.total) == (1, 2)


def test_L17_room_of_a_node_is_kept_per_name_as_the_scheduler_does() -> None:
    room = of_node(node(allocatable={GPU: 2, NEUTRAL_GPU: 2}), [pod(requests={NEUTRAL_GPU: 1})])
    assert (room.free[GPU], room.free[NEUTRAL_GPU]) == (2, 1)


# ---- our own saying proves no GPU


def test_L11_the_neutral_name_is_no_gpu_that_came_up() -> None:
    alone = node(allocatable={NEUTRAL_GPU: 1}, labels={"tgp.io/provisioned": "true"})
    assert shown(alone.allocatable, GPU_RESOURCES) == 0 and allocatable_gpus(claim(), alone, pool()) == 0
    assert not_initialized(claim(phase=Phase.JOINING), alone, pool()) == ("0 of 1 nvidia.com/gpu",)


def test_L17_a_node_whose_plugin_is_not_up_yet_counts_as_planned_whatever_we_say_of_it() -> None:
    claimed, here, there = machine(gpus=2, allocatable={NEUTRAL_GPU: 2}, claim={"launch_started": None})
    fresh = dataclasses.replace(claimed, launch_started=world().now)
    assert launched(scale(world(asks(gpus=2), machines=[(fresh, here, there)]))) == []


def test_L20_lost_gpus_are_not_hidden_by_the_neutral_name() -> None:
    claimed, here, there = machine(allocatable={NEUTRAL_GPU: 1})
    assert "GpuLost" in [one.reason for one in of(scale(world(machines=[(claimed, here, there)])), "report")]


# ---- what is set again


def used(**allocatable: int) -> Node:
    marks = {"tgp.io/gpu": allocatable["neutral"]} if "neutral" in allocatable else {}
    return node(allocatable={GPU: 2, **marks})


@pytest.mark.parametrize(
    "there, told",
    [
        ({}, "tgp.io/gpu 0 instead of 2"),
        ({"neutral": 1}, "tgp.io/gpu 1 instead of 2"),
        ({"neutral": 4}, "tgp.io/gpu 4 instead of 2"),
        ({"neutral": 2}, ""),
    ],
)
def test_L17_a_node_that_does_not_offer_it_is_told(there: dict[str, int], told: str) -> None:
    made = claim(offer=offer("0.40", gpu_count=2))
    found = [text for text in drift(made, used(**there), pool(), CLUSTER) if text.startswith("tgp.io/gpu")]
    assert found == ([told] if told else [])


@pytest.mark.parametrize("facts", [{"phase": Phase.JOINING}, {"deletion": Deletion("Empty", world().now)}, {"node_uid": "another"}])
def test_L17_nodes_that_are_not_in_use_are_left_alone(facts: dict[str, t.Any]) -> None:
    assert drift(claim(offer=offer("0.40", gpu_count=2), **facts), used(), pool(), CLUSTER) == ()


def test_L17_a_node_without_it_is_joined_again_by_autoscale() -> None:
    claimed, here, there = machine()
    assert scale(world(machines=[(claimed, here, there)]), specs()).join == (claimed.name,)
