# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Item 9, fleet: machines of somebody else that have a name of ours are terminated as Duplicate (Vast.ai, RunPod) or as Orphan (Vast.ai)."""

from __future__ import annotations

import typing as t

import pytest

from sandbox import strangers
from sandbox.world import Machine
from tests.contract.act.rig import Rig
from tests.contract.act.test_service import made

Build = t.Callable[..., Rig]
CLOUDS = ("runpod", "vast")


def reap(rig: Rig, times: int = 3) -> list[dict[str, t.Any]]:
    """The plans of several runs, more than ten minutes apart."""
    plans = []
    for _time in range(times):
        plans.append(rig.reap()["plan"])
        rig.advance(700)
    return plans


def reported(plan: dict[str, t.Any], machine: Machine) -> bool:
    return any(machine.id in row["detail"] for row in plan["plan"] if row["action"] == "report")


@pytest.mark.parametrize("cloud", [pytest.param("runpod", marks=pytest.mark.control), "vast"])
def test_L1a_E_a_foreign_machine_with_our_name_and_no_stamp_outlives_every_run(build: Build, cloud: str) -> None:
    rig = made(build, cloud)
    foreign = strangers.rent(rig.box, cloud, f"tgp-{rig.cluster_id}-llm-zzzzz")
    plans = reap(rig)
    assert foreign.ended is None, f"a foreign machine was terminated: {plans[-1]['plan']}"
    assert reported(plans[-1], foreign)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_L1a_E_ours_stays_and_a_foreign_machine_of_the_same_name_is_reported(build: Build, cloud: str) -> None:
    rig = made(build, cloud)
    rig.provision(pool="llm")
    ours = rig.machine()
    foreign = strangers.rent(rig.box, cloud, ours.name)
    rig.advance(60)  # listed by now
    plan = rig.reap()["plan"]
    assert (foreign.ended, ours.ended) == (None, None), f"ours or a foreign machine was terminated: {plan['plan']}"
    assert reported(plan, foreign)
    assert rig.claim()["ids_seen"] == [ours.id]
    rig.reap("destroy", all=True)
    assert foreign.ended is None and ours.ended is not None


@pytest.mark.parametrize("cloud", CLOUDS)
def test_L1a_a_lost_answer_is_not_found_in_a_foreign_machine(build: Build, cloud: str) -> None:
    rig = made(build, cloud)
    plan = rig.plan("provision", pools=["llm"], nodes=1)
    foreign = strangers.rent(rig.box, cloud, plan["launch"][0])
    method, path = ("PUT", "/asks/") if cloud == "vast" else ("POST", "/v2/pods$")
    rig.fault("lost_before", cloud, method, path, times=1)
    rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    assert rig.claim()["instance_id"] == "", "a foreign machine was taken for ours"
    rig.advance(1200)
    rig.reap("destroy", all=True)
    assert foreign.ended is None, "a foreign machine was terminated"
