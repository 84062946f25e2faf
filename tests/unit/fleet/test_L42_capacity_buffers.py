# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-42: CapacityBuffers keep room free by the shape of a pod, and rent what is missing. Numbers marked E are worked examples of Kubernetes'
scheduling of late 2026."""

from __future__ import annotations

import dataclasses
import typing as t

import hypothesis
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Placement, Plan
from ansible_collections.tgp.gpu.plugins.module_utils.model.queues import CapacityBuffer
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.capacity_buffers import Size, size_of, status_patch
from hypothesis import strategies

from .build import decide, of, offer, pool, specs
from .pods import GPU
from .test_L17_autoscale import FOUR, LONG_IDLE, ONE, TOLERATES, asks, launched, machine, scale, world

TWO = offer("0.80", id="two", gpu_count=2, instance_type="gpu_2x")
POOL = pool(capacity_buffers=True)


def buffer(gpus: int = 2, placement: Placement = TOLERATES, **facts: t.Any) -> CapacityBuffer:
    pod = asks("spare", gpus, uid="b", placeholder=True, annotations={"tgp.io/scale-up-delay": "0s"}, placement=placement)
    usual: dict[str, t.Any] = {"pod": pod, "template": "two-gpu", "template_generation": 1}
    return CapacityBuffer("ml", "spare", "b", "7", 1, **{**usual, **facts})


def told(plan: Plan) -> dict[str, tuple[str, str, str]]:
    """What is to be written: type of condition to status, reason and message."""
    return {one.type: (one.status, one.reason, one.message) for wanted in plan.buffers for one in wanted.conditions}


# ---- [E] how large it is


@pytest.mark.parametrize(
    ("facts", "count"),
    [
        ({"replicas": 3, "limits": {GPU: 4}}, 2),
        ({"limits": {GPU: 8}}, 4),
        ({"percentage": 20, "scale": 10}, 2),
        ({"percentage": 20, "scale": 3}, 1),
        ({"percentage": 150, "scale": 1}, 2),
        ({"replicas": 1, "percentage": 50, "scale": 10}, 5),
        ({"replicas": 0}, 0),
    ],
)
def test_L42_E_buffer_size(facts: dict[str, t.Any], count: int) -> None:
    assert size_of(buffer(**facts)) == Size(count)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"gpus": 0, "limits": {GPU: 4}}, f"limits name {GPU}, and a pod of the template asks for none"),
        ({}, "neither replicas, percentage nor limits say how large it is"),
        ({"percentage": 20}, "percentage is of the replicas of scalableRef, and none is named"),
        ({"replicas": 1001}, "it has 1001 pods, and 1000 are the most that are served"),
    ],
)
def test_L42_E_a_buffer_without_a_size_has_none_and_says_why(facts: dict[str, t.Any], words: str) -> None:
    plan = scale(world(buffers=(buffer(**facts),), offers=(TWO,)), POOL)
    assert size_of(buffer(**facts)) == Size(0, words) and launched(plan) == []
    assert told(plan)["ReadyForProvisioning"] == ("False", "ResolutionFailed", f"{words[0].upper()}{words[1:]}.")
    assert told(plan)["Provisioning"][:2] == ("False", "NotReadyForProvisioning") and plan.buffers[0].status["replicas"] == 0


# ---- [E] what is rented for it


def test_L42_E_buffer_with_room_for_one_of_two_rents_for_one() -> None:
    plan = scale(world(machines=[machine(1, 2)], buffers=(buffer(replicas=2),), offers=(TWO,)), POOL)
    assert launched(plan) == [2]
    assert told(plan)["Provisioning"][:2] == ("False", "RequiresNewCapacity")
    assert told(plan)["Provisioning"][2] == "There is room for 1 of 2 pods; machines are on their way."


def test_L42_E_buffer_is_refilled_when_a_pod_takes_its_room() -> None:
    """A pod of two takes the free ones: one more machine than before."""
    plan = scale(world(asks(gpus=2), machines=[machine(1, 2)], buffers=(buffer(replicas=2),), offers=(TWO,)), POOL)
    assert launched(plan) == [2, 2]


@pytest.mark.parametrize("mode", ["autoscale", "reap"])
def test_L42_E_a_node_with_nothing_but_spare_room_is_not_idle_and_others_are(mode: str) -> None:
    there = [machine(1, 2, annotations=LONG_IDLE), machine(2, 2, annotations=LONG_IDLE)]
    plan = decide(world(machines=there, buffers=(buffer(replicas=1),)), specs(POOL), mode)
    assert [one.name for one in of(plan, "destroy")] == [there[1][0].name]


def test_L42_a_full_buffer_is_written_once() -> None:
    seen = world(machines=[machine(1, 2)], buffers=(buffer(replicas=1),))
    plan = scale(seen, POOL)
    assert told(plan)["Provisioning"] == ("True", "FitsExistingCapacity", "There is room for 1 pods.")
    (wanted,) = plan.buffers
    patch = status_patch(wanted)
    assert patch is not None and (patch["replicas"], patch["podTemplateRef"]) == (1, {"name": "two-gpu"})
    written = dataclasses.replace(seen.buffers[0], conditions=wanted.conditions, status=wanted.status)
    (again,) = scale(dataclasses.replace(seen, buffers=(written,)), POOL).buffers
    assert status_patch(again) is None


def test_L42_an_empty_buffer_is_told() -> None:
    assert told(scale(world(buffers=(buffer(replicas=0),)), POOL))["Provisioning"][:2] == ("False", "BufferEmpty")


def test_L42_a_template_that_is_missing_is_told_with_its_own_reason() -> None:
    lost = buffer(pod=None, reason="PodTemplateNotFound", problem="there is no PodTemplate x in namespace ml", template="")
    text = "There is no PodTemplate x in namespace ml."
    assert told(scale(world(buffers=(lost,)), POOL))["ReadyForProvisioning"] == ("False", "PodTemplateNotFound", text)


def test_L42_pools_that_do_not_say_so_hold_no_buffer() -> None:
    plan = scale(
        world(buffers=(buffer(replicas=1),), offers=(TWO,)), specs(pool(), pool("other", capacity_buffers=True, max_nodes=0))
    )
    assert launched(plan) == [] and told(plan)["Provisioning"][0] == "False"


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(
    waiting=strategies.lists(strategies.integers(1, 2), max_size=4),
    spare=strategies.integers(0, 4),
    free=strategies.integers(0, 2),
    room=strategies.integers(0, 5),
)
def test_L42_a_buffer_takes_nothing_from_any_pod(waiting: list[int], spare: int, free: int, room: int) -> None:
    """Every pod gets what it would get without the buffer, and no room is given twice."""
    pods = [asks(f"w{number}", gpus) for number, gpus in enumerate(waiting)]
    facts: dict[str, t.Any] = {"machines": [machine(number + 1, 2) for number in range(free)], "offers": (ONE, TWO, FOUR)}
    wanted = specs(pool(max_nodes=room + free, capacity_buffers=True))
    without, with_it = (
        scale(world(*pods, **facts), wanted),
        scale(world(*pods, buffers=(buffer(1, replicas=spare),), **facts), wanted),
    )
    assert with_it.waiting == without.waiting
    assert launched(with_it)[: len(launched(without))] == launched(without)
    sizes = sum(launched(with_it)) + 2 * free
    served = sum(one.gpus for one in with_it.waiting if one.machine)
    missing = {one.type: one.status for wanted_status in with_it.buffers for one in wanted_status.conditions}
    assert served <= sizes and ("Provisioning" in missing)
