# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sandbox's Vultr: its traps, its manner of refusing, and what can be chosen of its behaviour."""

from __future__ import annotations

import base64
import time
import typing as t
from decimal import Decimal

import httpx
import pytest

from sandbox import vultr_cloud
from sandbox.clock import SimClock
from sandbox.scenario import ScenarioError, parse
from sandbox.vultr_account import Account
from sandbox.world import Machine, World

KEY = "UNIT0123456789ABCDEF"
PLACE = {"type": "vcg-a16-6c-64g-16vram", "region": "ewr", "stock": 9, "boot": 100}
IMAGE = f"https://factory.talos.dev/image/{'ab' * 32}/v1.13.9/vultr-amd64.raw"
LOCKED = "Unable to destroy server: Unable to remove VM: Server is currently locked"


class VultrStand:
    """A client with a good key. Time stands still unless it is moved, and machines come up by :meth:`up` only."""

    def __init__(self, rate_limits: bool = False, **switches: t.Any) -> None:
        self.world = World(SimClock(speed=1e-9, start=1_800_000_000.0))
        self.world.secrets["VULTR_API_KEY"] = KEY
        parse({"vultr": {"offers": [PLACE], **switches}, "rate_limits": rate_limits}).furnish(self.world)
        self.http = httpx.Client(
            transport=httpx.WSGITransport(app=vultr_cloud.app(self.world)),
            base_url="http://vultr.test/v2",
            headers={"authorization": f"Bearer {KEY}", "content-type": "application/json"},
        )

    def call(self, method: str, path: str, body: t.Any = None, status: int = 200, **options: t.Any) -> t.Any:
        answer = self.http.request(method, path, json=body, **options)
        assert answer.status_code == status, answer.text
        if status == 204:
            return None
        assert answer.headers["content-type"] == "application/json"
        if status >= 400:
            assert answer.json()["status"] == status and set(answer.json()) == {"error", "status"}
        return answer.json() if status < 400 else answer.json()["error"]

    def create(self, status: int = 202, **fields: t.Any) -> t.Any:
        """The machine, or the error."""
        body = {"region": "ewr", "plan": PLACE["type"], "os_id": 2284, "label": "a", **fields}
        answer = self.call("POST", "/instances", {key: value for key, value in body.items() if value is not None}, status)
        return answer["instance"] if status == 202 else answer

    def machine(self, form: dict[str, t.Any]) -> Machine:
        return self.world.machines[form["id"]]

    def show(self, form: dict[str, t.Any]) -> t.Any:
        return self.call("GET", f"/instances/{form['id']}")["instance"]

    def up(self, form: dict[str, t.Any]) -> None:
        self.world.clock.advance(100)
        self.machine(form).state = "active"

    def words(self, form: dict[str, t.Any]) -> tuple[str, ...]:
        shown = self.show(form)
        return shown["status"], shown["power_status"], shown["server_status"], shown["main_ip"]


@pytest.fixture
def stand() -> t.Iterator[VultrStand]:
    made = VultrStand()
    yield made
    made.world.clock.close()


def test_a_machine_boots_in_steps_and_has_no_address_at_first(stand: VultrStand) -> None:
    made = stand.create(user_data=base64.b64encode(b"#cloud-config\n").decode(), tags=["tgp:cluster=lab"], block_devices=None)
    assert made["status"] == "pending" and made["default_password"] and made["gateway_v4"] == "0.0.0.0"
    assert stand.machine(made).payload == "#cloud-config\n" and made["tags"] == ["tgp:cluster=lab"]
    seen = [stand.words(made)]
    for _step in range(3):
        stand.world.clock.advance(20)
        seen.append(stand.words(made))
    assert [one[:3] for one in seen] == [
        ("pending", "running", "none"),
        ("active", "running", "locked"),
        ("active", "running", "installingbooting"),
        ("active", "running", "installingbooting"),
    ]
    assert seen[0][3] == "0.0.0.0" and seen[1][3].startswith("198.19.")
    stand.up(made)
    assert stand.words(made)[:3] == ("active", "running", "ok")
    stand.world.clock.advance(600)
    assert "default_password" not in stand.show(made)


def test_a_delete_is_refused_while_it_is_locked_and_bills_whole_hours(stand: VultrStand) -> None:
    made = stand.create()
    assert stand.call("DELETE", f"/instances/{made['id']}", status=500) == LOCKED
    stand.up(made)
    stand.call("DELETE", f"/instances/{made['id']}", status=204)
    assert stand.machine(made).cost(stand.world.clock.now()) == Decimal("0.49")
    deadline = time.monotonic() + 30
    while stand.http.get(f"/instances/{made['id']}").status_code == 200 and time.monotonic() < deadline:
        stand.world.clock.advance(4)
        time.sleep(0.01)
    assert stand.call("GET", f"/instances/{made['id']}", status=404) == "instance not found"
    assert stand.call("DELETE", f"/instances/{made['id']}", status=404) == "instance not found"
    assert stand.call("GET", "/instances")["instances"] == []


def test_one_that_is_switched_off_is_billed_on(stand: VultrStand) -> None:
    made = stand.create()
    stand.up(made)
    stand.call("POST", f"/instances/{made['id']}/halt", status=204)
    assert stand.words(made)[:3] == ("active", "stopped", "ok")
    stand.world.clock.advance(3600)
    assert stand.machine(made).cost(stand.world.clock.now()) == Decimal("0.98")
    stand.call("POST", f"/instances/{made['id']}/start", status=204)
    assert stand.words(made)[1] == "running"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"os_id": 270}, "Cannot add instance. Specified os_id not available"),
        ({"os_id": None}, "Exactly one of"),
        ({"snapshot_id": "x"}, "Exactly one of"),
        ({"os_id": None, "snapshot_id": "x"}, "Invalid snapshot."),
        ({"user_data": "not base64!"}, "Invalid user_data (check base64 encoding)"),
        ({"plan": "vcg-a17"}, "Invalid plan chosen."),
        ({"region": "xyz"}, "Invalid region chosen."),
        ({"region": "ams"}, "Plan is not available in the selected region."),
        ({"firewall_group_id": "x"}, "Invalid firewall group."),
    ],
)
def test_what_a_create_call_is_refused_for(stand: VultrStand, fields: dict[str, t.Any], why: str) -> None:
    assert why in stand.create(400, **fields)
    assert stand.world.machines == {}


def test_every_call_needs_the_content_type_and_most_need_the_key(stand: VultrStand) -> None:
    assert "Content-Type" in stand.call("GET", "/account", status=400, headers={"content-type": "application/json; charset=utf-8"})
    nobody = {"authorization": "Bearer wrong"}
    assert stand.call("GET", "/account", status=401, headers=nobody) == "Invalid API token."
    assert stand.call("GET", "/plans", headers=nobody)["plans"]
    assert stand.call("GET", "/regions/ewr/availability", headers=nobody) == {"available_plans": []}
    assert PLACE["type"] in stand.call("GET", "/regions/ewr/availability")["available_plans"]


def test_cursors_are_opaque_and_have_to_be_quoted(stand: VultrStand) -> None:
    made = [stand.create(label=f"m{number}")["id"] for number in range(5)]
    found: list[str] = []
    cursor = ""
    while True:
        answer = stand.call("GET", "/instances", params={"per_page": 2, **({"cursor": cursor} if cursor else {})})
        found += [one["id"] for one in answer["instances"]]
        assert answer["meta"]["total"] == 5
        cursor = answer["meta"]["links"]["next"]
        if not cursor:
            break
        assert not cursor.startswith("http") and {"+", "/", "="} & set(cursor)
    assert found == made
    assert "per_page" in stand.call("GET", "/instances", status=400, params={"per_page": 501})
    assert "cursor" in stand.call("GET", "/instances", status=400, params={"cursor": "2"})


def test_type_is_not_the_beginning_of_the_name(stand: VultrStand) -> None:
    plans = {one["id"]: one for one in stand.call("GET", "/plans", params={"type": "all"})["plans"]}
    whole, part = plans["vcg-a16-6c-64g-16vram"], plans["vcg-a16-2c-8g-2vram"]
    assert whole["type"] == "vdm" and not {"gpu_count", "gpu_vram_gb", "gpu_type"} & set(whole)
    assert part["type"] == "vcg" and part["gpu_vram_gb"] == 2 and part["hourly_cost"] < whole["hourly_cost"]
    assert plans["vcg-h100-216c-1914gb-640vram"]["deploy_ondemand"] is False
    assert all("" in one["locations"] for one in plans.values())
    assert {one["type"] for one in stand.call("GET", "/plans", params={"type": "vcg"})["plans"]} == {"vcg"}


def test_a_snapshot_is_pending_then_complete_or_gone(stand: VultrStand) -> None:
    good = stand.call("POST", "/snapshots/create-from-url", {"url": IMAGE, "uefi": True, "description": "talos"}, 202)["snapshot"]
    bad = stand.call("POST", "/snapshots/create-from-url", {"url": f"{IMAGE}.zst"}, 202)["snapshot"]
    assert (good["status"], bad["status"]) == ("pending", "pending")
    assert stand.create(400, os_id=None, snapshot_id=good["id"]) == "Invalid snapshot."
    stand.world.clock.advance(301)
    assert [one["id"] for one in stand.call("GET", "/snapshots", params={"description": "talos"})["snapshots"]] == [good["id"]]
    assert stand.call("GET", f"/snapshots/{good['id']}")["snapshot"]["status"] == "complete"
    assert stand.call("GET", f"/snapshots/{bad['id']}", status=404) == "Not found."
    made = stand.create(os_id=None, snapshot_id=good["id"])
    stand.up(made)
    assert stand.machine(made).details["system"] == "talos"
    assert stand.words(made)[2] == "locked"  # for ever, as images of one's own show it
    stand.call("DELETE", f"/snapshots/{good['id']}", status=204)


def test_a_firewall_group_stays_while_a_machine_has_it(stand: VultrStand) -> None:
    group = stand.call("POST", "/firewalls", {"description": "tgp"}, 201)["firewall_group"]
    assert stand.call("GET", f"/firewalls/{group['id']}/rules")["firewall_rules"] == []
    made = stand.create(firewall_group_id=group["id"])
    assert [one["id"] for one in stand.call("GET", "/instances", params={"firewall_group_id": group["id"]})["instances"]] == [
        made["id"]
    ]
    assert "attached" in stand.call("DELETE", f"/firewalls/{group['id']}", status=400)
    with stand.world.lock:
        stand.machine(made).destroyed = stand.world.clock.now()
    stand.call("DELETE", f"/firewalls/{group['id']}", status=204)
    assert stand.call("GET", "/firewalls")["firewall_groups"] == []


def test_user_data_can_be_read_back_and_emptied(stand: VultrStand) -> None:
    data = base64.b64encode(b"a secret").decode()
    made = stand.create(user_data=data, tags=["a"])
    assert stand.call("GET", f"/instances/{made['id']}/user-data") == {"user_data": {"data": data}}
    stand.call("PATCH", f"/instances/{made['id']}", {"user_data": ""}, 202)
    assert stand.call("GET", f"/instances/{made['id']}/user-data") == {"user_data": {"data": ""}}
    assert stand.show(made)["tags"] == ["a"]


@pytest.mark.parametrize(
    ("switches", "status", "why"),
    [
        ({"quota": 0}, 400, "maximum number"),
        ({"in_credit": False}, 400, "spending limit"),
        ({"active": False}, 403, "not permitted"),
    ],
)
def test_what_can_be_chosen(switches: dict[str, t.Any], status: int, why: str) -> None:
    stand = VultrStand(**switches)
    assert why in stand.create(status)
    stand.world.clock.close()


def test_stock_may_lie() -> None:
    stand = VultrStand(lying_stock=True)
    stand.world.offers[0].stock = 0
    assert PLACE["type"] in stand.call("GET", "/regions/ewr/availability")["available_plans"]
    assert stand.create(400) == "Plan is not available in the selected region."
    stand.world.clock.close()


def test_more_than_thirty_calls_a_second_are_refused() -> None:
    stand = VultrStand(rate_limits=True)
    statuses = [stand.http.get("/account").status_code for _call in range(3)]
    assert statuses[0] == 200 and 429 in statuses
    assert stand.http.get("/account").headers["retry-after"] == "1"
    stand.world.clock.close()


@pytest.mark.parametrize(
    "section",
    [
        {"offers": [{**PLACE, "type": "vcg-a17"}]},
        {"offers": [{**PLACE, "region": "xyz"}]},
        {"offers": [{**PLACE, "colour": "red"}]},
        {"page_size": 0},
        {"locked_share": 2},
        {"quota": "many"},
    ],
)
def test_a_wrong_scenario_is_refused(section: dict[str, t.Any]) -> None:
    with pytest.raises(ScenarioError, match="vultr"):
        parse({"vultr": section})


def test_a_price_of_a_region_overrides_the_plans_and_the_list_may_lag() -> None:
    stand = VultrStand(list_after=60.0)
    stand.world.offers.append(parse({"vultr": {"offers": [{**PLACE, "region": "ams", "price": "0.60", "bills": "0.7"}]}}).offers[0])
    plans = {one["id"]: one for one in stand.call("GET", "/plans")["plans"]}
    assert plans[PLACE["type"]]["hourly_cost"] == 0.49
    assert plans[PLACE["type"]]["location_cost"]["ams"]["hourly_cost"] == 0.6 and "ewr" not in plans[PLACE["type"]]["location_cost"]
    made = stand.create()
    assert stand.call("GET", "/instances")["instances"] == [] and stand.show(made)["id"] == made["id"]
    stand.world.clock.advance(61)
    assert len(stand.call("GET", "/instances")["instances"]) == 1
    assert Account.of(stand.world).list_after == 60.0
    stand.world.clock.close()


def test_a_snapshot_can_vanish_stay_pending_be_one_too_many_and_be_listed_late(stand: VultrStand) -> None:
    body = {"url": IMAGE, "uefi": True, "description": "talos"}
    account = Account.of(stand.world)
    account.turn({"failing_imports": 1, "list_after": 10.0})
    first = stand.call("POST", "/snapshots/create-from-url", body, 202)["snapshot"]["id"]
    assert stand.call("GET", "/snapshots")["snapshots"] == [] and stand.call("GET", f"/snapshots/{first}")
    stand.world.clock.advance(301)
    assert stand.call("GET", f"/snapshots/{first}", status=404) == "Not found."
    account.turn({"stuck_imports": True, "snapshot_quota": 1})
    second = stand.call("POST", "/snapshots/create-from-url", body, 202)["snapshot"]["id"]
    assert "maximum number of snapshots" in stand.call("POST", "/snapshots/create-from-url", body, 400)
    stand.world.clock.advance(9000)
    assert stand.call("GET", f"/snapshots/{second}")["snapshot"]["status"] == "pending"
