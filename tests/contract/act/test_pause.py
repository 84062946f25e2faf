# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""fleet_pause (L-31): what a person pauses stays as it is through every mode, and goes on after that."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput, Locked

from .rig import Rig

IDLE = 3600
KEY = "default/training"
STATE = "/api/v1/namespaces/tgp-system/configmaps/tgp-state-pauses"


def pause(rig: Rig, *pools: str, **more: t.Any) -> dict[str, t.Any]:
    return rig.run("pause", pools=list(pools), **more)


def resume(rig: Rig, *pools: str, **more: t.Any) -> dict[str, t.Any]:
    return pause(rig, *pools, state="resumed", **more)


def annotate(rig: Rig, kind: str, name: str, value: str = "true") -> None:
    rig.document(kind, name)["metadata"]["annotations"] = {"tgp.io/paused": value}


def living(rig: Rig) -> list[str]:
    return sorted(machine.name for machine in rig.machines())


@pytest.mark.parametrize("how", ["pool", "class", "all", "annotation", "annotation of the class"])
def test_L31_a_paused_pool_stays_as_it_is_in_every_mode(rig: Rig, how: str) -> None:
    rig.provision()
    (name,) = living(rig)
    if how == "annotation":
        annotate(rig, "GPUNodePool", "training", "provider incident")
    elif how == "annotation of the class":
        annotate(rig, "GPUNodeClass", "demo")
    else:
        named = {"pool": {"pools": ["training"]}, "class": {"classes": ["demo"]}, "all": {}}[how]
        assert rig.run("pause", reason="provider incident", **named)["changed"] is True
    rig.advance(IDLE)
    rig.reap()  # notes that it is idle
    rig.advance(IDLE)
    rig.lines.clear()
    done = rig.reap()
    assert living(rig) == [name] and done["plan"]["destroy"] == []
    (row,) = [row for row in done["plan"]["summary"]["paused"] if row["pool"] == KEY]
    assert row["machines"] == 1 and float(row["price_hour"]) > 0
    assert any(f"paused: {KEY}: " in line and "1 machine, $" in line for line in rig.lines)
    for mode in ("everything", "autoscale"):
        plan = rig.plan(mode, check=True)
        assert plan["launch"] == plan["destroy"] == plan["problems"] == []
    plan = rig.plan("provision", check=True)
    assert KEY not in {row["pool"] for row in plan["plan"] if row["action"] == "launch"} and plan["problems"] == []
    (problem,) = rig.plan("provision", check=True, pools=["training"], nodes=3)["problems"]
    assert (
        problem.startswith(f"{KEY}: ")
        and "2 machines will not come: " in problem
        and "To end the pause, run resume.yml." in problem
    )
    assert rig.plan("provision", check=True, pools=["training"], nodes=1)["problems"] == []  # it is there
    assert [one["pool"] for one in rig.run("info")["paused"]][-1] == KEY


def test_L31_after_resume_everything_that_was_due_is_done(rig: Rig) -> None:
    rig.provision()
    pause(rig, "training")
    rig.advance(IDLE)
    rig.reap()
    rig.advance(IDLE)
    assert resume(rig, "training")["changed"] is True
    rig.reap()
    assert living(rig) == []


def test_L31_destroy_takes_down_a_paused_machine_and_says_that_its_pool_is_paused(rig: Rig) -> None:
    rig.provision()
    pause(rig)
    rig.lines.clear()
    rig.destroy(force=True)
    assert living(rig) == [] and any(f"paused: {KEY}: all pools are paused since " in line for line in rig.lines)


def test_L31_a_second_call_writes_nothing_and_check_mode_never_does(rig: Rig) -> None:
    checked = pause(rig, "training", check=True, reason="x: y")
    assert checked["changed"] is True and '"why":"x: y"' in checked["diff"]["after"] and rig.state("pauses") == {}
    first = pause(rig, "training", reason="x: y")
    assert [(one["scope"], one["name"], one["why"]) for one in first["pauses"]] == [("pool", KEY, "x: y")]
    before = rig.writes()
    assert pause(rig, "training", reason="x: y") == {**first, "changed": False} and pause(rig, KEY)["changed"] is False
    assert rig.writes() == before
    assert resume(rig, check=True)["changed"] is True and list(rig.state("pauses")) == [f"pool/{KEY}"]
    assert resume(rig)["changed"] is True and rig.state("pauses") == {}
    before = rig.writes()
    assert resume(rig) == {"changed": False, "pauses": [], "paused": []} and rig.writes() == before


def test_L31_what_a_wider_pause_or_an_annotation_still_holds_is_no_success(rig: Rig) -> None:
    pause(rig)
    pause(rig, "training")
    with pytest.raises(InvalidInput, match="pool default/training: all pools are paused since .* Resume that, too."):
        resume(rig, "training")
    assert list(rig.state("pauses")) == ["all"]  # what was named is done
    annotate(rig, "GPUNodeClass", "demo")
    for named in ({}, {"classes": ["demo"]}, {"pools": ["training"]}):
        with pytest.raises(InvalidInput, match="its class demo is paused by the annotation tgp.io/paused. Remove it from the doc"):
            rig.run("pause", state="resumed", **named)
            rig.run("pause", state="resumed")


def test_L31_a_misspelt_name_is_refused_before_anything_is_written(rig: Rig) -> None:
    with pytest.raises(InvalidInput) as caught:
        rig.run("pause", pools=["trainnig"], classes=["damo"])
    assert caught.value.problems == (
        "pools: there is no pool trainnig. Known are: default/own, default/training.",
        "classes: there is no class damo. Known are: demo.",
    )
    assert rig.state("pauses") == {}


def test_L31_pausing_waits_for_the_run_in_progress(rig: Rig) -> None:
    rig.lock_elsewhere()
    with pytest.raises(Locked):
        pause(rig, lock_wait=0)
    assert rig.state("pauses") == {}


@pytest.mark.parametrize("damage", ["unreadable", "not understood"])
def test_L31_while_the_record_cannot_be_read_everything_counts_as_paused(rig: Rig, damage: str) -> None:
    rig.provision()
    pause(rig, "own")
    if damage == "unreadable":
        rig.fault("status", "kubernetes", "GET", "configmaps/tgp-state-pauses$", status=403, times=None)
    else:
        rig.kube("PATCH", STATE, {"data": {"state.json": '{"pool/default/own": 5}'}})
    rig.advance(IDLE)
    rig.reap()
    rig.advance(IDLE)
    done = rig.reap()
    assert len(living(rig)) == 1
    assert [
        text
        for text in done["plan"]["problems"]
        if text.startswith("tgp-state-pauses cannot be read, so everything counts as paused")
    ]


def test_L31_a_saved_plan_of_before_the_pause_is_refused_step_by_step(rig: Rig) -> None:
    path = str(rig.folder / "plan.json")
    rig.plan("provision", pools=["training"], nodes=1, save_to=path)
    pause(rig, "training", reason="maintenance")
    done = rig.run("apply", file=path)
    rig.unlock(done["run_id"])
    assert [step["result"] for step in done["steps"]] == ["refused"] and "it is paused since" in done["steps"][0]["why"]
    assert living(rig) == []
