# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vast's instances through their states, and what each state costs."""

from __future__ import annotations

import time
from decimal import Decimal

import pytest

from sandbox import vast_cloud
from sandbox.vast_cloud import vast_offer

from .vast_stand import VastStand

SPOT = 21
DISK = 16 * Decimal("0.0001")


@pytest.fixture
def stand() -> VastStand:
    return VastStand(
        vast_offer({"gpu": "RTX 3090", "id": SPOT, "price": "0.16", "min_bid": "0.08", "storage": "0.072", "boot": 100})
    )


def triple(stand: VastStand, number: int) -> tuple[str, str, str]:
    row = stand.show(number)
    return row["cur_state"], row["intended_status"], row["next_state"]


def cost(stand: VastStand, number: int) -> Decimal:
    return round(stand.machine(number).cost(stand.world.clock.now()), 6)


def test_from_nothing_to_running(stand: VastStand) -> None:
    number = stand.create(SPOT)
    seen = []
    for _turn in range(4):
        seen.append(stand.show(number)["actual_status"])
        stand.world.clock.advance(16)
    assert seen == [None, "created", "loading", "loading"]
    stand.up(number)
    row = stand.show(number)
    assert row["actual_status"] == row["intended_status"] == "running" and row["uptime_mins"] == pytest.approx(0, abs=0.01)
    assert row["dph_total"] == pytest.approx(0.1616) and row["end_date"] > row["start_date"]


def test_the_gpus_are_billed_only_while_they_run(stand: VastStand) -> None:
    number = stand.create(SPOT)
    stand.up(number, 1800)
    assert cost(stand, number) == DISK / 2
    stand.world.clock.advance(3600)
    assert cost(stand, number) == DISK * 3 / 2 + Decimal("0.16")
    stand.call("PUT", f"/api/v0/instances/{number}/", {"state": "stopped"})
    stand.world.clock.advance(3600)
    assert cost(stand, number) == DISK * 5 / 2 + Decimal("0.16")
    stand.call("PUT", f"/api/v0/instances/{number}/", {"state": "running"})
    stand.up(number, 0)
    stand.world.clock.advance(3600)
    stand.call("DELETE", f"/api/v0/instances/{number}/")
    stand.world.clock.advance(36000)
    assert cost(stand, number) == DISK * 7 / 2 + Decimal("0.32")


@pytest.mark.parametrize("bid", [False, True])
def test_a_premium_is_billed_while_a_machine_on_demand_runs(bid: bool) -> None:
    entry = {"gpu": "RTX 3090", "id": SPOT, "price": "0.16", "min_bid": "0.08", "storage": "0.072", "premium": "0.02"}
    stand = VastStand(vast_offer(entry))
    (row,) = stand.offers(allocated_storage=16, type="bid" if bid else "on-demand")
    premium = 0 if bid else Decimal("0.02")
    assert row["search"]["slaPremiumPerHour"] == float(premium) and bool(row["target_reliability"]) is not bid
    assert row["search"]["totalHour"] == pytest.approx(row["dph_total"] + float(premium))
    number = stand.create(SPOT, **({"price": 0.1} if bid else {}))
    stand.up(number, 0)
    shown = stand.show(number)["instance"]
    assert shown["slaPremiumPerHour"] == float(premium)
    stand.world.clock.advance(3600)
    assert cost(stand, number) == DISK + (Decimal("0.1") if bid else Decimal("0.16")) + premium
    stand.call("PUT", f"/api/v0/instances/{number}/", {"state": "stopped"})
    stand.world.clock.advance(3600)
    assert cost(stand, number) == 2 * DISK + (Decimal("0.1") if bid else Decimal("0.16")) + premium


def test_hosts_ask_different_prices_of_traffic() -> None:
    rows = VastStand().offers(order=[["id", "asc"]])
    dear = max(rows, key=lambda row: row["inet_down_cost"])
    assert dear["inet_down_cost"] > 10 * min(row["inet_down_cost"] for row in rows) and dear["inet_up_cost"] == 0.08


def test_traffic_is_billed_beside_the_hours() -> None:
    entry = {"gpu": "RTX 3090", "id": SPOT, "traffic_down": "0.01", "traffic_up": "0.02", "pull_gb": 12.5}
    stand = VastStand(vast_offer(entry))
    (row,) = stand.offers()
    assert (row["inet_down_cost"], row["inet_up_cost"]) == (0.01, 0.02)
    number = stand.create(SPOT)
    machine = stand.machine(number)
    assert machine.traffic_cost() == 0, "nothing was pulled yet"
    stand.up(number, 0)
    hours = machine.cost(stand.world.clock.now())
    assert machine.traffic_cost() == Decimal("0.125")
    for state in ("stopped", "running"):
        stand.call("PUT", f"/api/v0/instances/{number}/", {"state": state})
    stand.up(number, 0)
    assert machine.traffic_cost() == Decimal("0.125"), "the image is there already"
    machine.transfer(Decimal(3), Decimal("0.5"))
    assert machine.traffic_cost() == Decimal("0.165") and machine.cost(stand.world.clock.now()) == hours
    spent = 1000 - stand.call("GET", "/api/v0/users/current/")["credit"]
    assert spent == pytest.approx(float(hours + Decimal("0.165")))
    shown = stand.show(number)
    assert (shown["inet_down_cost"], shown["inet_up_cost"]) == (0.01, 0.02)


def test_a_bid_is_what_is_paid(stand: VastStand) -> None:
    number = stand.create(SPOT, price=0.1)
    stand.up(number, 0)
    stand.world.clock.advance(3600)
    assert cost(stand, number) == DISK + Decimal("0.1")
    stand.call("PUT", f"/api/v0/instances/bid_price/{number}/", {"client_id": "me", "price": 0.2})
    stand.world.clock.advance(3600)
    assert cost(stand, number) == 2 * DISK + Decimal("0.3")
    for price in (0.0001, 33, "much"):
        stand.call("PUT", f"/api/v0/instances/bid_price/{number}/", {"client_id": "me", "price": price}, 400)


def test_an_interruption_stops_all_three_and_bills_the_disk_on(stand: VastStand) -> None:
    number = stand.create(SPOT, price=0.1)
    machine = stand.up(number, 0)
    stand.world.on_taken["vast"](machine)
    assert triple(stand, number) == ("stopped", "stopped", "stopped") and stand.show(number)["actual_status"] == "stopped"
    before = cost(stand, number)
    stand.world.clock.advance(3600)
    assert cost(stand, number) == before + DISK and machine.ended is None
    stand.call("PUT", f"/api/v0/instances/bid_price/{number}/", {"client_id": "me"})  # the server picks a winning bid
    assert stand.show(number)["intended_status"] == "running" and machine.state == "booting"


def test_a_contract_that_ended_is_kept_for_two_days(stand: VastStand) -> None:
    number = stand.create(SPOT)
    machine = stand.up(number)
    stand.world.on_taken["vast"](machine)
    assert triple(stand, number) == ("stopped", "stopped", "stopped")
    stand.world.clock.advance(47 * 3600)
    assert stand.show(number) is not None
    stand.world.clock.advance(2 * 3600)
    end = time.monotonic() + 60
    while machine.ended is None and time.monotonic() < end:
        time.sleep(0.01)
    assert stand.show(number) is None


def test_a_contract_ends_by_its_date(stand: VastStand) -> None:
    number = stand.create(SPOT)
    stand.up(number)
    stand.world.clock.advance(2_500_001)
    assert stand.show(number)["actual_status"] == "stopped"


def test_an_empty_purse_stops_everything() -> None:
    stand = VastStand(credit=Decimal("0.5"))
    number = stand.create()
    stand.up(number)
    stand.world.clock.advance(5 * 3600)
    assert triple(stand, number) == ("stopped", "stopped", "stopped")
    assert stand.call("GET", "/api/v0/users/current")["credit"] == 0 > stand.call("GET", "/api/v0/users/current/")["balance"]


def test_a_start_without_gpus_waits_and_then_happens(stand: VastStand) -> None:
    first = stand.create(SPOT)
    stand.up(first)
    stand.call("PUT", f"/api/v0/instances/{first}/", {"state": "stopped"})
    second = stand.create(SPOT)
    answer = stand.call("PUT", f"/api/v0/instances/{first}/", {"state": "running"})
    assert answer["success"] is False and "unavailable" in answer["msg"]
    assert stand.show(first)["actual_status"] == "scheduling"
    stand.call("DELETE", f"/api/v0/instances/{second}/")
    assert stand.show(first)["actual_status"] is None and stand.machine(first).state == "booting"
    stand.call("PUT", f"/api/v0/instances/{first}/", {"state": "stopped"})
    assert stand.show(first)["actual_status"] == "stopped"


def test_failed_boots_and_dead_hosts(stand: VastStand) -> None:
    number = stand.create(SPOT)
    machine = stand.machine(number)
    machine.state = "unhealthy"
    row = stand.show(number)
    assert row["actual_status"] == "created" and row["status_msg"].startswith("Error") and machine.rate() == DISK
    vast_cloud.set_up(stand.world, {"boot_error_text": "manifest unknown"})
    assert stand.show(number)["status_msg"] == "Error: manifest unknown"
    stand.up(number)
    machine.state = "unhealthy"
    assert stand.show(number)["actual_status"] == "offline" and stand.show(number)["ports"] == {}
    vast_cloud.set_up(stand.world, {"dead_status": "exited"})
    assert stand.show(number)["actual_status"] == "exited"


@pytest.mark.parametrize("how", ["reboot", "recycle"])
def test_a_reboot_is_billed_on(stand: VastStand, how: str) -> None:
    number = stand.create(SPOT)
    stand.call("PUT", f"/api/v0/instances/{how}/{number}/", {}, 400)
    machine = stand.up(number)
    stand.call("PUT", f"/api/v0/instances/{how}/{number}/", {})
    assert stand.show(number)["actual_status"] == "rebooting" and machine.rate() == DISK + Decimal("0.16")
    stand.up(number)
    assert stand.show(number)["actual_status"] == "running"


def test_destroyed_and_destroyed_again(stand: VastStand) -> None:
    number = stand.create(SPOT)
    vast_cloud.set_up(stand.world, {"delete_refusals": 1, "delete_lies": 1})
    path = f"/api/v0/instances/{number}/"
    assert stand.call("DELETE", path)["success"] is False
    assert stand.call("DELETE", path)["success"] is True and stand.machine(number).ended is None  # it lied
    assert stand.call("DELETE", path, {})["success"] is True and stand.machine(number).ended is not None
    assert stand.call("DELETE", path, {}, 404)["error"] == "no_such_instance"
    assert stand.call("GET", path) == {"instances": None}
    vast_cloud.set_up(stand.world, {"gone_as": "404", "gone_twice": "false"})
    assert stand.call("GET", path, None, 404)["error"] == "no_such_instance"
    assert stand.call("DELETE", path)["success"] is False
    assert stand.call("GET", "/api/v0/instances/5/", None, 404)["error"] == "no_such_instance"


def test_many_are_destroyed_at_once() -> None:
    stand = VastStand()
    numbers = [stand.create() for _turn in range(3)]
    assert stand.call("DELETE", "/api/v0/instances/", {"instance_ids": numbers})["success"] is True
    stand.call("DELETE", "/api/v0/instances/", {"instance_ids": []}, 400)
    assert all(machine.ended for machine in stand.world.machines.values())


def test_labels(stand: VastStand) -> None:
    number = stand.create(SPOT, label="a")
    stand.call("PUT", f"/api/v0/instances/{number}/", {"label": "b"})
    assert stand.show(number)["label"] == stand.machine(number).name == "b"
    stand.call("PUT", f"/api/v0/instances/{number}/", {"label": "x" * 1025}, 400)
    stand.call("PUT", f"/api/v0/instances/{number}/", {"state": "frozen"}, 400)
    stand.call("PUT", f"/api/v0/instances/{number}/", {}, 400)


def test_logs_are_uploaded_elsewhere(stand: VastStand) -> None:
    number = stand.create(SPOT)
    stand.machine(number).console += ["one", "two", "three"]
    url = stand.call("PUT", f"/api/v0/instances/request_logs/{number}/", {"tail": "2", "filter": "t"})["result_url"]
    store = stand.client()
    assert store.get(url).status_code == 404
    stand.world.clock.advance(2)
    assert store.get(url).text == "two\nthree\n"
    assert stand.http.get(url).status_code == 400  # nobody's key belongs there
