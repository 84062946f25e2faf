# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The work of planning grows as the fleet does: eight times the machines are eight times the steps, not sixty-four times."""

from __future__ import annotations

import sys
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Observation, Plan
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Destroy, Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plan import plan

from .build import CAPABILITIES, claim, device, instance, node, of, offer, pod, pool, seen, specs


def fleet(machines: int) -> Observation:
    """Machines at work, each with its claim, Node, device and pod."""
    names = [f"tgp-a1b2c3d4-p-{number:05d}" for number in range(machines)]
    return seen(
        claims=tuple(claim(one) for one in names),
        instances=tuple(instance(one) for one in names),
        nodes=tuple(node(one) for one in names),
        devices=tuple(device(one, online=True) for one in names),
        pods=tuple(pod(f"job-{one}", node=one) for one in names),
        offers=(offer(),),
    )


def planned(world: Observation, mode: str) -> Plan:
    return plan(
        world,
        specs(pool(), p=len(world.claims or ())),
        Settings(mode=mode, destroy=Destroy(all=mode == "destroy")),
        CAPABILITIES,
        "run-1",
    )


def steps(work: t.Callable[[], t.Any]) -> int:
    """Lines that are executed and calls that are made meanwhile: the same on each host, however busy it is."""
    count = 0

    def step(_frame: t.Any, _event: str, _value: t.Any) -> t.Any:
        nonlocal count
        count += 1
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("mode", ["provision", "reap", "autoscale"])
def test_planning_with_two_thousand_machines_takes_work_in_proportion(mode: str) -> None:
    few, many = fleet(250), fleet(2000)
    assert steps(lambda: planned(many, mode)) < 8.5 * steps(lambda: planned(few, mode))
    assert not of(planned(many, mode), "launch")


def test_two_thousand_machines_are_all_planned_to_go() -> None:
    assert len(of(planned(fleet(2000), "destroy"), "destroy")) == 2000


def test_work_that_grows_with_the_square_is_seen() -> None:
    def pairs(size: int) -> int:
        return sum(1 for one in range(size) for other in range(size) if one == other)

    assert steps(lambda: pairs(160)) > 30 * steps(lambda: pairs(20))
