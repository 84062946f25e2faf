# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sandbox's Paperspace: a machine's whole life by its API, and what it costs."""

from __future__ import annotations

import typing as t
from datetime import timedelta
from decimal import Decimal

import pytest

from .paperspace_team import Team


@pytest.fixture
def team() -> t.Iterator[Team]:
    made = Team()
    yield made
    made.close()


def test_a_machine_is_made_and_becomes_ready(team: Team) -> None:
    answer = team.create(name="tgp-lab-1")
    machine, event = answer["data"], answer["event"]
    assert machine["state"] == "provisioning" and machine["publicIp"] is None and machine["region"] == "East Coast (NY2)"
    assert (machine["usageRate"], machine["storageRate"]) == (0.76, 0.0137)
    assert machine["accelerators"] == [{"name": "RTX A4000", "memory": 16 * 2**30, "count": 1}]
    assert (event["name"], event["state"], event["machineId"]) == ("create", "new", machine["id"])
    team.pass_time(3)
    assert team.event(event["id"])["state"] == "in progress"
    team.up(machine["id"])
    assert team.state(machine["id"]) == "serviceready"
    ended = team.event(event["id"])
    assert ended["state"] == "done" and ended["error"] is None and ended["dtFinished"] > ended["dtStarted"]
    team.pass_time(20)
    assert team.state(machine["id"]) == "ready"
    assert team.get(f"/machines/{machine['id']}")["publicIp"]


@pytest.mark.parametrize("region", ["ny2", "NY2", "East Coast (NY2)"])
def test_every_form_of_a_region_is_taken(team: Team, region: str) -> None:
    assert team.create(region=region)["data"]["region"] == "East Coast (NY2)"
    assert len(team.get("/machines", region=region)["items"]) == 1
    assert team.get("/machines", region="ca1")["items"] == []


@pytest.mark.parametrize(
    ("field", "value", "status", "says"),
    [
        ("name", "", 400, "at least 1"),
        ("name", None, 400, "Required"),
        ("name", 5, 400, "Expected string, received number"),
        ("machineType", "A9000", 400, "Invalid machine type"),
        ("machineType", "H100x8", 400, "not available for machine type"),
        ("templateId", "tnothing", 404, "Template not found"),
        ("templateId", "twin2019", 403, "Windows"),
        ("region", "mars", 400, "Invalid region"),
        ("diskSize", 51, 400, "Invalid disk size"),
        ("diskSize", True, 400, "Expected number, received boolean"),
        ("publicIpType", "shared", 400, "Invalid enum"),
        ("startupScriptId", "sxnone", 404, "Startup script not found"),
        ("networkId", "nenone", 404, "Private network not found"),
        ("enableNvlink", True, 400, "NVLink"),
        ("autoSnapshotEnabled", True, 400, "Snapshots"),
        ("autoShutdownEnabled", True, 400, "autoShutdownTimeout"),
        ("accessorIds", ["u1"], 404, "User u1"),
        ("tags", ["a"], 400, "Unrecognized key"),
    ],
)
def test_a_field_that_cannot_be_so(team: Team, field: str, value: t.Any, status: int, says: str) -> None:
    answer = team.call("POST", "/machines", team.order(**{field: value}))
    assert answer.status_code == status and says in answer.text
    assert set(answer.json()) <= {"code", "message", "issues"}
    assert team.get("/machines")["items"] == []


def test_without_capacity_the_machine_ends_off_and_bills_its_disk(team: Team) -> None:
    answer = team.create(machineType="A5000", region="ca1")
    assert answer["data"]["state"] == "provisioning"
    team.pass_time(61)
    identity = answer["data"]["id"]
    team.until(lambda: team.state(identity) == "off")
    event = team.event(answer["event"]["id"])
    assert event["state"] == "error" and "capacity" in event["error"]
    machine = team.world.machines[identity]
    assert machine.rate() == Decimal("0.0137")
    team.call("DELETE", f"/machines/{identity}")
    assert machine.rate() == 0 and machine.offer.stock == 0


def test_without_capacity_it_may_stay_in_provisioning() -> None:
    team = Team(no_capacity="provisioning", no_capacity_seconds=5)
    answer = team.create(machineType="A5000", region="ca1")
    team.pass_time(6)
    team.until(lambda: team.event(answer["event"]["id"])["state"] == "error")
    assert team.state(answer["data"]["id"]) == "provisioning"
    team.close()


def test_power_costs_and_off_bills_the_disk(team: Team) -> None:
    identity = team.ready()
    machine = team.world.machines[identity]
    before, stock = machine.ip, machine.offer.stock
    assert team.call("PATCH", f"/machines/{identity}/stop", content=b"").json()["data"]["state"] == "stopping"
    team.pass_time(21)
    team.until(lambda: team.state(identity) == "off")
    assert team.get(f"/machines/{identity}")["publicIp"] is None and machine.offer.stock == stock + 1
    cost = machine.cost(team.world.clock.now())
    team.pass_time(3600 * 10)
    assert Decimal("0.136") < machine.cost(team.world.clock.now()) - cost < Decimal("0.15")
    answer = team.call("PATCH", f"/machines/{identity}/start", {})
    assert answer.json()["event"]["name"] == "start" and answer.json()["data"]["state"] == "starting"
    again = team.call("PATCH", f"/machines/{identity}/start")
    assert again.status_code == 409 and again.json()["message"] == "This machine is currently starting."
    team.up(identity)
    assert machine.ip not in (None, before) and machine.rate() == Decimal("0.7737") and machine.offer.stock == stock
    assert team.call("PATCH", f"/machines/{identity}/restart").json()["data"]["state"] == "restarting"
    team.up(identity)
    names = [(one["name"], one["state"]) for one in team.get("/machine-events", machineId=identity)["items"]]
    assert names == [("create", "done"), ("stop", "done"), ("start", "done"), ("restart", "done")]


def test_a_deleted_machine_is_gone_and_costs_no_more(team: Team) -> None:
    identity = team.ready()
    machine = team.world.machines[identity]
    stock = machine.offer.stock
    answer = team.call("DELETE", f"/machines/{identity}")
    assert answer.status_code == 200 and answer.json()["event"]["name"] == "deactivate"
    assert team.call("DELETE", f"/machines/{identity}").json()["event"]["id"] == answer.json()["event"]["id"]
    cost = machine.cost(team.world.clock.now())
    team.pass_time(3600)
    team.until(lambda: team.call("GET", f"/machines/{identity}").status_code == 404)
    assert team.call("DELETE", f"/machines/{identity}").status_code == 404
    assert team.get("/machines")["items"] == [] and machine.cost(team.world.clock.now()) == cost
    assert machine.offer.stock == stock + 1
    assert team.event(answer.json()["event"]["id"])["state"] == "done"


def test_a_network_can_go_as_soon_as_its_machine_is_gone() -> None:
    """How soon that is can be chosen; a client that waits for a fixed time succeeds or not."""
    team = Team(delete_seconds=600)
    network = team.call("POST", "/private-networks", {"name": "tgp-lab", "region": "ny2"}).json()["id"]
    identity = team.create(networkId=network)["data"]["id"]
    team.call("DELETE", f"/machines/{identity}")
    team.pass_time(60)
    assert team.call("DELETE", f"/private-networks/{network}").status_code == 412
    team.pass_time(600)
    team.until(lambda: team.call("GET", f"/machines/{identity}").status_code == 404)
    assert team.call("DELETE", f"/private-networks/{network}").status_code == 200
    team.close()


def test_deletions_may_take_a_time_by_chance() -> None:
    team = Team(delete_seconds=10, delete_spread=8000)
    made = [team.create(name=f"tgp-{number}", machineType="A5000", region="ca1")["data"]["id"] for number in range(12)]
    for identity in made:
        team.call("DELETE", f"/machines/{identity}")
    team.pass_time(4000)
    team.until(lambda: len(team.get("/machines")["items"]) < len(made))
    assert team.get("/machines")["items"], "some take longer"
    team.pass_time(4011)
    team.until(lambda: not team.get("/machines")["items"])
    team.close()


def test_a_deletion_may_be_refused_fail_or_leave_a_trace() -> None:
    team = Team(delete_while_starting=409, delete_while_on=412, delete_fails=1, deleted_shown=True)
    identity = team.create()["data"]["id"]
    assert team.call("DELETE", f"/machines/{identity}").json()["code"] == "CONFLICT"
    team.up(identity)
    assert team.call("DELETE", f"/machines/{identity}").json()["code"] == "PRECONDITION_FAILED"
    team.call("PATCH", f"/machines/{identity}/stop")
    team.pass_time(21)
    team.until(lambda: team.state(identity) == "off")
    failed = team.call("DELETE", f"/machines/{identity}").json()["event"]
    assert failed["state"] == "error" and team.state(identity) == "off"
    team.call("DELETE", f"/machines/{identity}")
    team.pass_time(9)
    team.until(lambda: team.get(f"/machines/{identity}")["dtDeleted"])
    assert team.get("/machines")["items"] == []
    team.close()


def test_a_broken_machine_hangs_in_provisioning_with_a_failed_event() -> None:
    team = Team(behaviours=[{"kind": "boot_error"}])
    answer = team.create()
    team.until(lambda: team.world.machines[answer["data"]["id"]].state == "unhealthy", advance=60)
    assert team.state(answer["data"]["id"]) == "provisioning"
    assert team.event(answer["event"]["id"])["state"] == "error"
    team.close()


def test_a_machine_may_be_made_without_being_started(team: Team) -> None:
    answer = team.create(startOnCreate=False)
    identity = answer["data"]["id"]
    team.until(lambda: team.state(identity) == "off", advance=60)
    assert team.event(answer["event"]["id"])["state"] == "done" and team.world.machines[identity].rate() == Decimal("0.0137")


def test_changes(team: Team) -> None:
    identity = team.ready()
    renamed = team.call("PUT", f"/machines/{identity}", {"name": "other"}).json()
    assert renamed["data"]["name"] == "other" and renamed["event"]["state"] == "done"
    assert team.call("PUT", f"/machines/{identity}", {"diskSize": 250}).status_code == 412
    assert team.call("PUT", f"/machines/{identity}", {"autoShutdownEnabled": True}).status_code == 400
    team.call("PATCH", f"/machines/{identity}/stop")
    team.pass_time(21)
    team.until(lambda: team.state(identity) == "off")
    grown = team.call("PUT", f"/machines/{identity}", {"diskSize": 250, "machineType": "A4000x2"}).json()["data"]
    assert (grown["storageRate"], grown["usageRate"], grown["accelerators"][0]["count"]) == (0.0342, 1.52, 2)


def test_the_providers_own_brake(team: Team) -> None:
    identity = team.ready(autoShutdownEnabled=True, autoShutdownTimeout=1)
    other = team.ready()
    assert team.call("PUT", f"/machines/{other}", {"autoShutdownEnabled": True, "autoShutdownTimeout": 2}).status_code == 200
    team.pass_time(3600)
    team.until(lambda: team.state(identity) in ("stopping", "off"))
    assert team.state(other) == "ready"
    team.pass_time(3600)
    team.until(lambda: team.state(other) in ("stopping", "off"))


def test_accounts_that_may_not_create() -> None:
    for switches, words in (
        ({"max_machines": 0, "limit_status": 403}, "limit"),
        ({"payment_method": False}, "payment"),
        ({"good_standing": False}, "standing"),
        ({"admin_locked": True}, "locked"),
        ({"needs_approval": ["A4000"]}, "quota"),
    ):
        team = Team(**switches)
        answer = team.call("POST", "/machines", team.order())
        assert answer.status_code == 403 and words in answer.json()["message"], switches
        team.close()


def test_prices_may_differ_from_the_table() -> None:
    team = Team(offers=[{"type": "A4000", "region": "ny2", "bills": "1.11"}])
    assert team.create()["data"]["usageRate"] == 1.11
    team.close()


def test_times_are_those_of_the_world(team: Team) -> None:
    begin = team.world.clock.now()
    made = team.create()["data"]["dtCreated"]
    assert made.endswith("Z") and made >= (begin - timedelta(seconds=1)).isoformat()[:19]


def test_a_lost_machine_is_gone_at_once(team: Team) -> None:
    script = team.call("POST", "/startup-scripts", {"name": "a", "script": "true"}).json()["id"]
    answer = team.create(startupScriptId=script)
    machine = team.world.machines[answer["data"]["id"]]
    stock = machine.offer.stock
    team.box.machines.strike(machine, "vanish")
    assert team.call("GET", f"/machines/{machine.id}").status_code == 404 and team.get("/machines")["items"] == []
    assert team.event(answer["event"]["id"])["error"] == "The machine was lost."
    assert team.get(f"/startup-scripts/{script}")["assignedMachineIds"] == []
    assert machine.rate() == 0 and machine.offer.stock == stock + 1


def test_a_body_that_is_too_large(team: Team) -> None:
    answer = team.call("POST", "/startup-scripts", {"name": "a", "script": "x" * 1_100_000})
    assert answer.status_code == 413 and answer.json()["code"] == "PAYLOAD_TOO_LARGE"
