# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Item 7: plan and apply, then reap, launched one machine per pool without any demand, ended it as idle, and launched again."""

from __future__ import annotations

import typing as t

from ..act.rig import Rig


def carry_out(rig: Rig, decided: dict[str, t.Any]) -> None:
    """What the plays do after fleet_apply: launch, join, teardown."""
    run_id = decided["run_id"]
    try:
        rig.run("launch", run_id)
        rig.run("join", run_id)
        rig.run("teardown", run_id, orphans=decided["orphans"])
    finally:
        rig.unlock(run_id)


def test_L29_five_rounds_of_plan_apply_and_reap_without_demand_launch_nothing(rig: Rig) -> None:
    launched = []
    for turn in range(5):
        file = rig.folder / f"plan-{turn}.json"
        planned = rig.plan("everything", save_to=str(file))
        launched.append(planned["launch"])
        carry_out(rig, rig.run("apply", file=str(file)))
        rig.reap()
        rig.advance(20 * 60)
    assert launched == [[]] * 5, f"launched without demand: {launched}"
    assert rig.creates() == 0 and not rig.machines(living=False)


def test_L29_an_explicit_number_is_demand_and_comes_to_rest(rig: Rig) -> None:
    """The number of the run keeps its machine: the plan that wants one does not end it, however long it is idle."""
    seen = []
    for turn in range(3):
        file = rig.folder / f"plan-{turn}.json"
        planned = rig.plan("everything", nodes={"training": 1}, save_to=str(file))
        seen.append((len(planned["launch"]), len(planned["destroy"])))
        carry_out(rig, rig.run("apply", file=str(file)))
        rig.advance(20 * 60)
    assert seen == [(1, 0), (0, 0), (0, 0)], f"a machine that is in demand was ended: {seen}"
    assert rig.creates() == 1
