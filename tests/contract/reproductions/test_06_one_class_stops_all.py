# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Item 6: one class whose machines could not boot stopped every launch of every pool, in autoscale, provision, plan and apply."""

from __future__ import annotations

import copy
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import TgpError

from ..act.rig import Rig
from ..act.test_autoscale import ask, scale

NOTHING = "the sound class launched nothing"
BROKEN = "version: v1alpha1\nmachine:\n  systemd: {units: []}\n"  # a field that Talos does not have


@pytest.fixture
def two(rig: Rig) -> Rig:
    """Pool training, and a second one of a class that cannot boot, which is served first."""
    broken = copy.deepcopy(rig.document("GPUNodeClass", "demo"))
    broken["metadata"]["name"] = "broken"
    broken["spec"]["talosConfig"] = {"machineConfigTemplate": BROKEN}
    broken["spec"]["providers"] = [one for one in broken["spec"]["providers"] if one["name"] == "lambda"]
    pool = copy.deepcopy(rig.document("GPUNodePool", "training"))
    pool["metadata"]["name"] = "heavy"
    pool["spec"] |= {"nodeClassRef": {"kind": "GPUNodeClass", "name": "broken"}, "weight": 90}
    rig.documents += [broken, pool]
    return rig


def attempt(rig: Rig, mode: str, **params: t.Any) -> dict[str, t.Any]:
    """The plan; what version 0.1 raised is a plan without launches and the problem."""
    try:
        return rig.plan(mode, **params)
    except TgpError as error:
        return {"launch": [], "problems": [str(error)], "run_id": "", "shortfall": []}


def told(found: dict[str, t.Any]) -> str:
    return "\n".join(found["problems"])


def test_autoscale_launches_for_a_pod_that_only_the_sound_class_serves(two: Rig) -> None:
    """Each pod selects its pool: one is launched for, the other is told why, and the run ends with a problem (exit status 2)."""
    for name in ("heavy", "training"):
        ask(two, f"for-{name}", nodeSelector={"tgp.io/nodepool": name})
    found = scale(two)
    assert len(found["launch"]) == 1, NOTHING
    assert [one.name for one in two.machines()] == found["launch"]
    assert "default/heavy" in told(found) and "machine.systemd" in told(found)
    why = {one["pod"]: one["reason"] for one in found["waiting"]}
    assert "could not join" in why["default/for-heavy"] and why["default/for-training"] == ""


def test_autoscale_serves_a_pod_that_both_would_by_the_sound_class(two: Rig) -> None:
    """The heavier pool would be chosen; with its class blocked the decision is made anew, so nobody waits and nothing is wrong."""
    ask(two, "any")
    found = scale(two)
    assert len(found["launch"]) == 1, NOTHING
    assert found["problems"] == []
    assert any("broken" in one for one in two.warnings), "the class is told of all the same"


@pytest.mark.parametrize("mode", ["provision", "everything"])
def test_a_number_for_both_pools_launches_in_the_sound_one(two: Rig, mode: str) -> None:
    found = attempt(two, mode, nodes={"heavy": 1, "training": 1})
    assert len(found["launch"]) == 1, NOTHING
    assert "-training-" in found["launch"][0]
    assert "default/heavy: 1 machines will not come" in told(found) and "machine.systemd" in told(found)


def test_apply_launches_what_can_boot_and_refuses_the_rest(two: Rig) -> None:
    """After the plan was made its mesh takes back what one class needs: that step is refused with a reason, the other is done."""
    broken = two.document("GPUNodeClass", "broken")
    broken["spec"]["talosConfig"] = copy.deepcopy(two.document("GPUNodeClass", "demo")["spec"]["talosConfig"])
    file = str(two.folder / "plan.json")
    two.plan("everything", nodes={"heavy": 1, "training": 1}, save_to=file)
    broken["spec"]["tailscaleConfig"] = {"tags": ["tag:of-others"]}
    try:
        found = two.run("apply", file=file)
    except TgpError as error:
        found = {"launch": [], "problems": [str(error)]}
    assert [name for name in found["launch"] if "-training-" in name], NOTHING
    assert len(found["launch"]) == 1
    assert "heavy" in told(found)
