# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Budgets and books against the sandbox: what is launched, what goes, and that the books are the world's own bill (L-16)."""

from __future__ import annotations

import errno
import json
import os
import typing as t
from decimal import ROUND_CEILING, Decimal

import httpx
import pytest

from .rig import Rig, bill
from .test_launch import SOLD_OUT, refuse

PARTS = "/api/v1/namespaces/tgp-system/configmaps"


def budget(amount: str, **more: t.Any) -> dict[str, t.Any]:
    return {"period": "month", "amount": amount, "time_zone": "UTC", "soft_percent": 80, "action": "stop_launch", **more}


def reads_of_the_ledger(rig: Rig) -> list[str]:
    """Fills up as the ledger is asked for."""
    seen: list[str] = []

    def watch(request: httpx.Request) -> None:
        if request.method == "GET" and "ledger" in str(request.url):
            seen.append(str(request.url))

    rig.watcher = watch
    return seen


def spend(rig: Rig, hours: float = 1) -> Decimal:
    """A machine comes and goes; what it cost."""
    rig.provision()
    rig.advance(hours * 3600)
    rig.destroy()
    return bill(rig.ledger())


def tear(rig: Rig) -> None:
    """One line of the ledger is cut off."""
    (part,) = rig.configmaps("tgp.io/ledger")
    key = sorted(part["data"])[0]
    rig.kube("PATCH", f"{PARTS}/{part['metadata']['name']}", {"data": {key: part["data"][key][:40]}})


def test_L16_a_budget_stops_a_launch_and_costs_one_read(rig: Rig) -> None:
    spent = spend(rig)
    seen = reads_of_the_ledger(rig)
    free = rig.plan("provision", pools=["training"], nodes=1, check=True)
    assert len(free["launch"]) == 1 and seen == []
    price = Decimal(str(next(one["price_hour"] for one in free["plan"] if one["action"] == "launch")).lstrip("+"))
    enough = rig.plan("provision", pools=["training"], nodes=1, check=True, budget=budget(str(spent + price)))
    assert len(enough["launch"]) == 1 and len(seen) == 1
    before = rig.writes()
    short = rig.plan("provision", pools=["training"], nodes=1, check=True, budget=budget(str(spent + price - Decimal("0.0001"))))
    assert short["launch"] == [] and short["shortfall"][0]["reason"] == "limit:budget.all"
    assert rig.writes() == before


def test_L16_a_torn_line_stops_launches_on_a_budget_and_nothing_else(rig: Rig) -> None:
    spend(rig)
    rig.provision()
    tear(rig)
    rig.warnings.clear()
    stopped = rig.plan("provision", pools=["training"], nodes=2, check=True, budget=budget("1000"))
    assert stopped["launch"] == [] and stopped["shortfall"][0]["reason"] == "limit:budget.all unknown"
    assert any("tgp-ledger-00000" in text for text in rig.warnings)
    rig.reap(budget=budget("0.01", action="drain_all"))
    assert len(rig.machines()) == 1, "what is not known for sure gives nothing back"
    assert len(rig.plan("provision", pools=["training"], nodes=2, check=True)["launch"]) == 1
    assert rig.run("info")["unknown"], "status says that the books are not whole"


def test_L16_books_that_cannot_be_read_stop_launches_on_a_budget(rig: Rig) -> None:
    spend(rig)
    rig.fault("status", "kubernetes", "GET", "configmaps.*ledger", status=500, times=None)
    stopped = rig.plan("provision", pools=["training"], nodes=1, check=True, budget=budget("1000"))
    assert stopped["shortfall"][0]["reason"] == "limit:budget.all unknown"


def test_L16_all_goes_when_the_money_does_and_a_second_run_changes_nothing(rig: Rig) -> None:
    rig.provision(nodes=2)
    rig.pod(rig.machines()[0].name)
    rig.advance(3600)
    low = budget("0.50", action="drain_all")
    before = rig.writes()
    assert len(rig.plan("reap", check=True, budget=low)["destroy"]) == 2
    assert rig.writes() == before
    rig.reap(budget=low)
    assert rig.left() == {}
    assert [line["reason"] for line in rig.ledger()] == ["Budget", "Budget"]
    rig.check_bill()
    rig.reap(budget=low)
    before = rig.writes()
    rig.reap(budget=low)
    assert rig.writes() == before


def test_L16_idle_machines_go_at_once_when_the_money_does(rig: Rig) -> None:
    rig.provision(nodes=2)
    busy = rig.machines()[0].name
    rig.pod(busy)
    rig.advance(700)
    rig.reap(budget=budget("100", action="drain_idle"))
    assert len(rig.machines()) == 2
    rig.reap(budget=budget("0.01", action="drain_idle"))
    assert [one.name for one in rig.machines()] == [busy]


def test_L16_status_counts_no_machine_twice_and_none_that_its_cloud_lost(rig: Rig) -> None:
    """A claim whose closing line is written already is that line; one whose machine is missing costs nothing since then."""
    rig.provision()
    rig.fault("status", "kubernetes", "DELETE", "/tgp-claim-", status=500, times=None)
    rig.destroy()
    assert len(rig.ledger()) == 1 and len(rig.claims()) == 1
    rig.advance(3600)
    totals = rig.run("info")["totals"]
    assert totals["cost"] == totals["closed_cost"]
    rig.faults.clear()
    rig.destroy()
    rig.provision()
    machine = rig.machine()
    rig.outlast_list_delay()
    rig.world.release(machine)
    machine.destroyed = machine.ended
    rig.reap()
    since = rig.run("info")["machines"][0]["cost"]
    rig.advance(3600)
    assert rig.run("info")["machines"][0]["cost"] == since


def test_L16_a_dearer_second_choice_asks_the_budget_again(rig: Rig) -> None:
    """Both first tries are refused; an hour at 1.09 fits once into 1.80 and not twice, whoever comes first."""
    rig.demo_class["budget"] = {"period": "month", "amount": "1.80"}
    refuse(rig, SOLD_OUT, times=2)
    done = rig.rent(nodes=2)
    assert sorted(one["result"] for one in done["machines"]) == ["failed", "launched"]
    assert any(one.get("event") == "skipped" and "limit:budget.class" in one["text"] for one in rig.events())


def test_L16_the_line_says_what_was_useful_and_what_was_idle(rig: Rig) -> None:
    rig.provision()
    rig.pod(rig.machine().name)
    rig.reap()
    rig.advance(3600)
    rig.kube("DELETE", "/api/v1/namespaces/default/pods/job")
    rig.reap()
    rig.advance(1800)
    rig.reap()
    (line,) = rig.ledger()
    assert line["reason"] == "Empty"
    assert 3600 <= line["useful_seconds"] < 4200 and 1800 <= line["idle_seconds"] < 2400
    assert line["useful_seconds"] + line["idle_seconds"] < line["seconds"]


def test_L16_both_places_get_every_line_also_over_a_full_disk(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TGP_LEDGER", "both")
    rig.provision()
    sync = os.fsync

    def full(descriptor: int) -> None:
        if "/ledger" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    ended = rig.destroy()
    assert [one["result"] for one in ended["machines"]] == ["pending"] and "No space left" in ended["machines"][0]["message"]
    assert rig.machines() == [] and len(rig.claims()) == 1
    monkeypatch.setattr(os, "fsync", sync)
    rig.destroy()
    assert rig.left() == {}
    files = list((rig.folder / "state").glob("*/ledger/*.json"))
    assert [json.loads(one.read_text()) for one in files] == rig.ledger() and len(files) == 1
    rig.check_bill()


def test_L16_status_says_what_today_and_the_month_cost_and_will_cost(rig: Rig) -> None:
    before = spend(rig, 0.5)
    rig.provision()
    rig.advance(1800)
    seen = rig.run("info", budget=budget("100"), purchase_price="800")
    money = seen["spending"]
    live = Decimal(seen["machines"][0]["cost"])
    assert money["whole"] is True and abs(Decimal(money["month"]["spent"]) - before - live) < Decimal("0.001")
    hour = Decimal(seen["machines"][0]["price_hour"])
    assert Decimal(money["hour"]) == hour
    assert Decimal(money["month"]["forecast"]) >= Decimal(money["month"]["spent"])
    (state,) = money["budgets"]
    assert (state["state"], state["amount"], state["spent"]) == ("in bounds", "100.00", money["month"]["spent"])
    (bought,) = money["break_even"]
    assert bought["hours"] == int((800 / hour).to_integral_value(ROUND_CEILING))
    text = "\n".join(rig.lines)
    assert "budget of the cluster" in text and "if nothing changes" in text and f"pays after {bought['hours']} h" in text
