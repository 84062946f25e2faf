# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on bad days, on every cloud that rents: plan, launch, join, reap. What clients do on such days: ../clouds/test_bad_days.py.

Each story ends with nothing left anywhere, with every machine the world ever made in exactly one line of the ledger, at what the world
billed, and with a sentence for people.

======================================  ========================================================================================
case                                    test (each on Lambda, Paperspace, RunPod, Vast.ai's VMs and its containers)
======================================  ========================================================================================
never start, come up broken, vanish     test_L11_what_never_becomes_of_use_is_given_back
never get ports                         test_ports_that_never_come_leave_nothing (RunPod, Vast.ai; the others map none)
vanish when Ready                       test_what_vanishes_when_it_is_ready_is_cleared_away
come back                               test_what_was_missing_once_is_kept, test_L12_what_comes_back_after_it_was_given_up_goes
change price                            test_L13_a_price_that_jumps_is_not_paid
no balance, quota, bad key, sold out    test_L14_what_is_lacking_is_told_and_costs_nothing, test_sold_out_everywhere_is_a_shortfall
bad key while machines live             test_L12_a_bad_key_ends_nothing
HTML, halves, redirects as lists        test_L12_a_list_that_is_none_ends_nothing
lost or redirected answers to creates   test_L02_whatever_became_of_the_order_nothing_leaks
the same for destroys                   test_L10_a_destroy_that_nobody_carried_out_is_asked_for_again
======================================  ========================================================================================
"""

from __future__ import annotations

import copy
import typing as t
from decimal import Decimal

import pytest

from sandbox import lambda_account, paperspace_account, runpod_account, vast_account
from sandbox.world import Machine

from ...chaos.grounds import GROUNDS
from .rig import Rig

Build = t.Callable[..., Rig]
HTML = "<!DOCTYPE html><html><body>We will be back soon.</body></html>"
AWAY = {"Location": "https://elsewhere.test/"}
WRONG = "secret_wrong_ffffffffffffffffffff"
PAUSE = 660  # seconds: longer than any window in which a machine may still appear or be missing from a list


class Day:
    """A sandbox whose documents know one cloud only."""

    def __init__(self, build: Build, ground: str) -> None:
        self.ground = GROUNDS[ground]
        self.cloud = self.ground.cloud
        self.rig = build(**{"machines": [], "lambda": [], **copy.deepcopy(self.ground.scenario)})
        self.rig.demo_class["providers"] = [{"name": self.cloud, "settings": self.ground.settings}]
        self.rig.training.clear()
        self.rig.training.update(
            {
                "nodeClassRef": {"kind": "GPUNodeClass", "name": "demo"},
                "maxHourlyPrice": "4.00",
                "registrationTimeout": "2m",
                **(
                    copy.deepcopy(self.ground.pool) or {"disruption": {"consolidateAfter": "Never"}}
                ),  # none goes because it is idle
            }
        )
        self.rig.documents = [one for one in self.rig.documents if one["metadata"]["name"] in ("demo", "training")]

    def fault(self, kind: str, method: str, path: str, **more: t.Any) -> None:
        self.rig.fault(kind, self.cloud, method, path, **{"times": None, **more})

    def ready(self) -> Machine:
        """A machine that is of use."""
        (row,) = self.rig.provision()["machines"]
        assert row["result"] == "ready", row
        return self.rig.machine()

    def made(self) -> list[Machine]:
        """Every machine that the world ever made."""
        return self.rig.machines(living=False)

    def settle(self, runs: int = 6) -> None:
        """Runs of reap, some minutes apart, until nothing is left."""
        for _turn in range(runs):
            self.rig.reap()
            if not self.rig.left():
                return
            self.rig.advance(PAUSE)
        raise AssertionError(f"left after {runs} runs: {self.rig.left()}, {self.rig.warnings}")

    def settle_all(self) -> None:
        """The same by destroy and reap."""
        self.rig.destroy()
        if self.rig.left():
            self.rig.advance(PAUSE)
            self.settle()

    def check(self, late: int = 1) -> list[dict[str, t.Any]]:
        """Nothing is left, and the books are the world's; the lines of the ledger."""
        assert self.rig.left() == {}
        lines = self.rig.ledger()
        booked = [one for line in lines for one in line["ids"]]
        assert sorted(booked) == sorted(one.id for one in self.made())
        self.rig.check_bill(late)
        return lines

    def lack(self, what: str) -> None:
        """From now on there is none of it."""
        world = self.rig.world
        match self.cloud, what:
            case "lambda", "quota":
                lambda_account.Account.of(world).quota = 0
            case "lambda", "money":
                lambda_account.Account.of(world).active = False
            case "paperspace", "quota":
                paperspace_account.Account.of(world).switches.turn({"max_machines": 0})
            case "paperspace", "money":
                paperspace_account.Account.of(world).switches.turn({"payment_method": False})
            case "runpod", "quota":
                runpod_account.Account.of(world).spend_limit = Decimal("0.01")
            case "runpod", "money":
                runpod_account.Account.of(world).balance = Decimal(0)
            case "vast", "quota":
                vast_account.Account.of(world).switches.turn({"spend_limit": Decimal("0.01")})
            case "vast", "money":
                vast_account.Account.of(world).switches.turn({"credit": Decimal(0)})
            case _, "stock":
                for offer in world.offers:
                    offer.stock = 0


@pytest.fixture(params=sorted(GROUNDS))
def day(request: pytest.FixtureRequest, build: Build) -> Day:
    return Day(build, request.param)


# ---- machines that are never of use


@pytest.mark.parametrize("behaviour", ["never_boots", "boot_error", "vanish"])
def test_L11_what_never_becomes_of_use_is_given_back(day: Day, behaviour: str) -> None:
    day.rig.behave("never_boots" if behaviour == "vanish" else behaviour)
    day.rig.rent()
    machine = day.rig.machine()
    if behaviour == "vanish":
        day.rig.box.machines.strike(machine, behaviour)
    done = day.rig.join()
    (row,) = done["machines"]
    assert (row["result"], row["name"], row["cloud"]) == ("failed", machine.name, day.cloud)
    assert row["message"].endswith("(terminated)")
    (problem,) = done["problems"]
    assert problem.startswith(f"{machine.name} on {day.cloud}: ") and "provision.yml takes another offer" in problem
    (line,) = day.check(late=4)
    assert (line["reason"], line["joined"]) == ("FailedJoin", False)
    assert [key for key in day.rig.blocks() if key.startswith(f"offer:{day.cloud}:")]


@pytest.mark.parametrize("ground", ["runpod", "vast", "vast-containers"])
def test_ports_that_never_come_leave_nothing(build: Build, ground: str) -> None:
    """Neither nodes nor services need a port of the cloud: both are reached through the mesh."""
    day = Day(build, ground)
    runpod_account.Account.of(day.rig.world).ports_after = 1e9
    vast_account.Account.of(day.rig.world).switches.turn({"ports_after": 1e9, "blank_ip": True})
    day.ready()
    day.rig.destroy()
    day.check()


# ---- machines that vanish, and come back


def vanish(day: Day, machine: Machine) -> None:
    """The cloud forgets it. It costs on, unlike one that ended."""
    with day.rig.world.lock:
        del day.rig.world.machines[machine.id]


def come_back(day: Day, machine: Machine) -> None:
    with day.rig.world.lock:
        day.rig.world.machines[machine.id] = machine


def test_what_vanishes_when_it_is_ready_is_cleared_away(day: Day) -> None:
    machine = day.ready()
    day.rig.world.release(machine)
    machine.destroyed = machine.ended
    day.rig.advance(PAUSE)
    day.settle()
    (line,) = day.check(late=2 * PAUSE // 60)
    assert line["ids"] == [machine.id]


def test_what_was_missing_once_is_kept(day: Day) -> None:
    machine = day.ready()
    day.rig.advance(PAUSE)
    vanish(day, machine)
    before = len(day.rig.writes())
    day.rig.reap()
    come_back(day, machine)
    assert not [one for one in day.rig.writes()[before:] if day.cloud in one]
    assert list(day.rig.claims()) == [machine.name]
    day.rig.destroy()
    assert day.check()[0]["ids"] == [machine.id]


def test_L12_what_comes_back_after_it_was_given_up_goes(day: Day) -> None:
    """Its claim is closed and booked; the machine that shows up again is an orphan, and goes as one."""
    machine = day.ready()
    vanish(day, machine)
    day.rig.world.on_end(machine)  # it has no network either, so that nothing speaks for it
    for _turn in range(6):
        day.rig.advance(PAUSE)
        day.rig.reap()
        if not day.rig.claims():
            break
    assert day.rig.claims() == {}
    come_back(day, machine)
    for _turn in range(6):
        day.rig.reap()
        if machine.ended is not None:
            break
        day.rig.advance(PAUSE)
    assert machine.ended is not None
    day.settle()
    assert {one for line in day.rig.ledger() for one in line["ids"]} == {machine.id}


# ---- the price


def test_L13_a_price_that_jumps_is_not_paid(day: Day) -> None:
    day.rig.rent()
    machine = day.rig.machine()
    with day.rig.world.lock:
        machine.offer.price_hour += 5
        if "usage_rate" in machine.details:
            machine.details["usage_rate"] += 5
    (row,) = day.rig.join()["machines"]
    assert row["result"] == "failed" and "the price jumped to $5." in row["message"], row
    assert day.rig.left() == {}
    (line,) = day.rig.ledger()
    assert (line["reason"], line["ids"]) == ("PriceJump", [machine.id])


# ---- what is lacking


@pytest.mark.parametrize("what", ["quota", "money", "stock", "key"])
def test_L14_what_is_lacking_is_told_and_costs_nothing(day: Day, what: str) -> None:
    """It was there when it was planned, and is gone when it is ordered."""
    rig = day.rig
    plan = rig.plan("provision", pools=["training"], nodes=1)
    day.lack(what)
    done = rig.run("launch", plan["run_id"], **({f"{day.cloud}_api_key": WRONG} if what == "key" else {}))
    rig.unlock(plan["run_id"])
    (row,) = done["machines"]
    if what == "stock" and day.cloud == "paperspace":  # it finds out later, and says it in an event
        assert row["result"] == "launched"
        (row,) = rig.join()["machines"]
        assert "insufficient capacity" in row["message"]
        day.check(late=3)
        return
    assert row["result"] == "failed"
    (problem,) = done["problems"]
    assert problem.startswith(f"{row['name']} on {day.cloud}: ") and ".." not in problem
    assert WRONG not in str((done, rig.warnings, rig.lines))
    alarms = [text for text in rig.warnings if text.startswith("ALARM")]
    if what == "key":
        assert f"{day.cloud} does not take our key" in alarms[0] and "Check the key" in alarms[0]
    assert what == "stock" or f"cloud:{day.cloud}" in rig.blocks() or alarms
    assert rig.machines(living=False) == []
    day.settle(1)
    assert [(line["reason"], line["cost"], line["ids"]) for line in rig.ledger()] == [("LaunchFailed", "0", [])]


def test_sold_out_everywhere_is_a_shortfall(day: Day) -> None:
    day.lack("stock")
    if day.cloud == "paperspace":
        day.rig.demo_class["instanceRequirements"] = {"gpuTypes": ["RTX A4000"], "gpuCount": 1}
    plan = day.rig.plan("provision", pools=["training"], nodes=1, check=True)
    assert (plan["outcome"], plan["launch"]) == ("shortfall", [])
    (missing,) = plan["shortfall"]
    assert missing["reason"] in ("not available", "no offers") and "training" in plan["problems"][0]


# ---- what is read wrong


def test_L12_a_bad_key_ends_nothing(day: Day) -> None:
    machine, rig = day.ready(), day.rig
    given = {f"{day.cloud}_api_key": WRONG}
    for _turn in range(3):
        rig.advance(PAUSE)
        plan = rig.plan("reap", **given)
        rig.run("teardown", plan["run_id"], orphans=plan["orphans"], **given)
        rig.unlock(plan["run_id"])
    wanted = rig.plan("provision", pools=["training"], nodes=2, check=True, **given)
    assert wanted["launch"] == [] and wanted["shortfall"] and wanted["outcome"] == "partial"
    told = [text for text in wanted["problems"] if day.cloud in text and f"{day.cloud.upper()}_API_KEY" in text]
    assert told and WRONG not in str((rig.warnings, rig.lines, wanted))
    assert machine.ended is None and rig.claim()["phase"] == "Ready"
    rig.destroy()
    day.check()


NO_LISTS: tuple[dict[str, t.Any], ...] = (
    {"kind": "body", "body": HTML},
    {"kind": "truncate"},
    {"kind": "body", "body": {}},
    {"kind": "status", "status": 307, "headers": AWAY},
    {"kind": "status", "status": 403, "body": HTML},
)


def test_L12_a_list_that_is_none_ends_nothing(day: Day) -> None:
    machine, rig = day.ready(), day.rig
    before = len(rig.writes())
    for fault in NO_LISTS:
        rig.faults.clear()
        rig.warnings.clear()
        day.fault(method="GET", path=day.ground.lists, **fault)
        rig.advance(PAUSE)
        plan = rig.reap()["plan"]
        assert [text for text in plan["problems"] if f"The machines of {day.cloud} could not be listed" in text], fault
        assert not [one for one in rig.writes()[before:] if one.startswith(f"{day.cloud} ")], fault
        assert machine.ended is None and rig.claim()["phase"] == "Ready", fault
    rig.faults.clear()
    rig.destroy()
    day.check()


# ---- the order


@pytest.mark.parametrize(
    "fault",
    [
        {"kind": "lost_before"},
        {"kind": "lost_after"},
        {"kind": "truncate"},
        {"kind": "status", "status": 307, "headers": AWAY},
    ],
    ids=["lost-before", "lost-after", "half", "redirect"],
)
def test_L02_whatever_became_of_the_order_nothing_leaks(day: Day, fault: dict[str, t.Any]) -> None:
    method, path = day.ground.create
    day.fault(method=method, path=path, **{**fault, "times": 1})
    (row,) = day.rig.rent()["machines"]
    assert row["result"] in ("launched", "failed", "unknown", "adopted", "waiting"), row
    assert len(day.made()) <= 1
    day.rig.faults.clear()
    day.settle_all()
    assert len(day.check(late=PAUSE // 60)) >= 1


# ---- the end


def test_L10_a_destroy_that_nobody_carried_out_is_asked_for_again(day: Day) -> None:
    """A page of a proxy and a redirect, in place of the cloud's own answer: nothing is booked, nothing is forgotten."""
    machine, rig = day.ready(), day.rig
    method, path = day.ground.destroy
    for fault in ({"kind": "body", "body": HTML}, {"kind": "status", "status": 307, "headers": AWAY}):
        rig.faults.clear()
        day.fault(method=method, path=path, **fault)
        done = rig.destroy()
        (row,) = done["machines"]
        assert row["result"] == "pending" and machine.ended is None, row
        (problem,) = done["problems"]
        assert problem.startswith(f"{machine.name} on {day.cloud}: ") and "reap.yml" in problem
        assert rig.claim()["phase"] == "Terminating" and rig.ledger() == []
        rig.advance(PAUSE)
    rig.faults.clear()
    day.settle()
    assert len(day.check()) == 1
