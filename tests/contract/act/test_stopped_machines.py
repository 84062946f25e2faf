# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Own machines have two timers (L-54): idle ones are stopped, and what is left of stopped ones goes after a time of its own."""

from __future__ import annotations

from decimal import Decimal

import pytest

from .rig import Rig, bill

HOUR = 3600
SINCE = "tgp.io/stopped-since"


@pytest.fixture(name="stopped")
def _stopped(rig: Rig) -> Rig:
    """An own machine of a pool with ``deleteStoppedAfter: 1h`` was idle and is off; a run noted so."""
    rig.document("GPUNodePool", "own")["spec"].setdefault("disruption", {})["deleteStoppedAfter"] = "1h"
    rig.provision(pool="own")
    rig.reap()
    rig.advance(601)
    (row,) = rig.reap()["machines"]
    assert row["result"] == "gone", row
    silent(rig)
    rig.reap()
    return rig


def silent(rig: Rig) -> None:
    """Wait until the machine is off and the cluster has noticed."""
    rig.until(lambda: rig.world.machines["rack-1"].state == "off", "it is switched off")
    rig.advance(120)
    rig.until(lambda: not is_ready(rig), "the cluster notices")


def is_ready(rig: Rig) -> bool:
    conditions = rig.nodes()["rack-1"].get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def noted(rig: Rig) -> str:
    return str(rig.nodes()["rack-1"]["metadata"]["annotations"].get(SINCE, ""))


def test_L54_what_is_left_of_a_stopped_machine(rig: Rig) -> None:
    """The stop ends claim, device, key and token, and books the hours; the Node stays, as long as nothing else is said."""
    rig.provision(pool="own")
    rig.reap()
    rig.advance(601)
    rig.reap()
    silent(rig)
    assert rig.left() == {} and len(rig.ledger()) == 1 and not noted(rig)
    rig.advance(1000 * HOUR)
    before = rig.writes()
    assert rig.reap()["machines"] == [] and rig.writes() == before
    assert "rack-1" in rig.nodes()


def test_A25_the_node_goes_after_its_own_time(stopped: Rig) -> None:
    assert noted(stopped)
    before = stopped.writes()
    (row,) = stopped.run("info")["stopped"]
    assert (row["name"], row["node"], row["pool"], row["stopped_since"]) == ("rack-1", "rack-1", "default/own", noted(stopped))
    assert "its Node is removed in " in row["text"] and any("its Node is removed in " in line for line in stopped.lines)
    plan = stopped.reap()["plan"]
    assert plan["orphans"] == [] and any("its Node is removed in " in line["detail"] for line in plan["plan"])
    assert stopped.writes() == before, "a run before its time writes nothing"
    stopped.advance(HOUR)
    tried = stopped.plan("reap", check=True)
    assert [one["kind"] for one in tried["orphans"]] == ["delete_node"] and stopped.writes() == before, "check mode writes nothing"
    done = stopped.reap()
    assert [(one["name"], one["result"]) for one in done["machines"]] == [("rack-1", "removed")]
    assert "rack-1" not in stopped.nodes() and stopped.left() == {} and len(stopped.ledger()) == 1
    before = stopped.writes()
    assert stopped.reap()["machines"] == [] and stopped.writes() == before
    assert stopped.run("info")["stopped"] == []


def test_L54_one_that_is_wanted_again_comes_back_and_its_timer_begins_anew(stopped: Rig) -> None:
    first, uid = noted(stopped), stopped.nodes()["rack-1"]["metadata"]["uid"]
    stopped.advance(HOUR - 600)
    stopped.provision(pool="own")
    assert is_ready(stopped) and not noted(stopped) and stopped.nodes()["rack-1"]["metadata"]["uid"] == uid
    stopped.destroy()
    silent(stopped)
    stopped.reap()
    assert noted(stopped) > first
    stopped.advance(HOUR - 120)
    assert stopped.reap()["machines"] == []
    stopped.advance(240)
    assert [one["result"] for one in stopped.reap()["machines"]] == ["removed"]


def test_L54_one_whose_node_is_gone_becomes_a_node_again(stopped: Rig) -> None:
    stopped.advance(HOUR)
    stopped.reap()
    (row,) = stopped.provision(pool="own")["machines"]
    assert row["result"] == "ready" and is_ready(stopped)
    stopped.destroy()
    assert stopped.left() == {} and len(stopped.ledger()) == 2 and bill(stopped.ledger()) == Decimal(0)


def test_L54_one_that_its_owner_switches_on_is_not_stopped(stopped: Rig) -> None:
    machine = stopped.world.machines["rack-1"]
    stopped.world.power_on(machine)
    stopped.advance(2 * HOUR)
    assert stopped.reap()["machines"] == [] and not noted(stopped)
    stopped.world.power_off(machine)
    silent(stopped)
    stopped.reap()
    assert noted(stopped) and "rack-1" in stopped.nodes()


@pytest.mark.parametrize("between", [False, True], ids=["before the plan", "between plan and act"])
def test_L54_a_state_that_cannot_be_read_removes_nothing(stopped: Rig, between: bool) -> None:
    stopped.advance(HOUR)
    plan = stopped.plan("reap") if between else {}
    stopped.fault("status", "webhook", "GET", "/rack-1/status", status=503, times=None)
    if between:
        stopped.run("teardown", plan["run_id"], orphans=plan["orphans"])
        stopped.unlock(plan["run_id"])
    else:
        plan = stopped.reap()["plan"]
        assert plan["orphans"] == [] and any("whether it is stopped is unknown" in line["detail"] for line in plan["plan"])
    assert "rack-1" in stopped.nodes()
    stopped.faults.clear()
    assert [one["result"] for one in stopped.reap()["machines"]] == ["removed"]


def test_L54_one_that_is_switched_on_after_the_plan_keeps_its_node(stopped: Rig) -> None:
    stopped.advance(HOUR)
    plan = stopped.plan("reap")
    stopped.world.power_on(stopped.world.machines["rack-1"])
    (row,) = stopped.run("teardown", plan["run_id"], orphans=plan["orphans"])["machines"]
    stopped.unlock(plan["run_id"])
    assert row["result"] == "left" and "its machine is starting now" in row["message"] and "rack-1" in stopped.nodes()


@pytest.mark.parametrize("after", [False, True])
def test_L54_a_killed_run_is_resumed(stopped: Rig, after: bool) -> None:
    stopped.advance(HOUR)
    number = 0
    while "rack-1" in stopped.nodes():
        number += 1
        assert number < 20
        with stopped.killed_at(number, after=after):
            stopped.reap()
        stopped.advance(70)
    assert stopped.reap()["machines"] == [] and stopped.left() == {}


def test_L54_a_device_that_is_left_goes_before_the_node(stopped: Rig) -> None:
    """The record of an earlier life is lost, and with it the device that this life had."""
    tailnet = stopped.box.tailnet
    tailnet.set_online(tailnet.add_device("rack-1", tags=["tag:gpu"]).node_id, False)
    stopped.advance(HOUR)
    (row,) = stopped.reap()["machines"]
    assert row["message"].startswith("device: ") and not tailnet.devices() and "rack-1" in stopped.nodes()
    (row,) = stopped.reap()["machines"]
    assert row["message"].startswith("node: ") and "rack-1" not in stopped.nodes() and stopped.left() == {}


def test_L54_a_pool_of_rented_machines_is_refused_before_anything_is_rented(rig: Rig) -> None:
    rig.demo_class["providers"] = [one for one in rig.demo_class["providers"] if one["name"] != "webhook"]
    rig.training.setdefault("disruption", {})["deleteStoppedAfter"] = "24h"
    plan = rig.plan("provision", pools=["training"], nodes=1)
    assert plan["launch"] == [] and any("no own machines in class demo" in text for text in [*plan["problems"], *rig.warnings])
    assert rig.creates() == 0 and rig.claims() == {}
