# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sandbox's Paperspace: credentials, lists, templates, startup scripts, networks, addresses, and its manner of refusing."""

from __future__ import annotations

import base64
import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.providers.paperspace.cloud import FACTS

from .conftest import Hand
from .paperspace_team import Team


@pytest.fixture
def team() -> t.Iterator[Team]:
    made = Team()
    yield made
    made.close()


def test_a_bad_key_is_null_for_the_session_and_401_elsewhere(team: Team) -> None:
    bad = {"authorization": "Bearer wrong-key-that-nobody-gave"}
    answer = team.client.get("/auth/session", headers=bad)
    assert (answer.status_code, answer.json()) == (200, None)
    answer = team.client.get("/machines", headers=bad)
    assert answer.status_code == 401 and answer.json()["code"] == "UNAUTHORIZED"
    session = team.get("/auth/session")
    assert session["team"]["namespace"] and session["team"]["maxMachines"] == 20
    assert team.get("/billing/account-standing") == {
        "isInGoodStanding": True, "hasPaymentMethod": True, "isAdminLocked": False, "messages": [],
    }  # fmt: skip
    assert team.client.get("/health", headers=bad).status_code == 200


def test_errors_have_their_codes(team: Team) -> None:
    for method, path, content, status, code in (
        ("GET", "/nowhere", b"", 404, "NOT_FOUND"),
        ("GET", "/os_templates", b"", 404, "NOT_FOUND"),
        ("PATCH", "/machines", b"", 405, "METHOD_NOT_SUPPORTED"),
        ("POST", "/machines", b"{", 400, "PARSE_ERROR"),
        ("POST", "/machines", b"[]", 400, "BAD_REQUEST"),
        ("GET", "/machines/psnone", b"", 404, "NOT_FOUND"),
        ("GET", "/machine-events/evnone", b"", 404, "NOT_FOUND"),
        ("GET", "/machines?limit=0", b"", 400, "BAD_REQUEST"),
        ("GET", "/machines?orderBy=price", b"", 400, "BAD_REQUEST"),
        ("GET", "/machines?after=@@", b"", 400, "BAD_REQUEST"),
    ):
        answer = team.call(method, path, content=content)
        assert (answer.status_code, answer.json()["code"]) == (status, code), path
    root = team.client.build_request("GET", "http://paperspace.test/machines/getMachinePublic")
    assert team.client.send(root).status_code == 404


def test_errors_may_come_with_status_200() -> None:
    team = Team(errors_as_200=True)
    answer = team.call("GET", "/machines/psnone")
    assert (answer.status_code, answer.json()) == (200, {"code": "NOT_FOUND", "message": "Machine not found"})
    team.close()


def test_types_are_the_union_over_templates_with_holes(team: Team) -> None:
    first = team.get("/os-templates", limit=3)
    rest = team.get("/os-templates", limit=50, after=first["nextPage"])
    assert first["hasMore"] and len(first["items"]) == 3 and not rest["hasMore"] and "nextPage" not in rest
    items = [*first["items"], *rest["items"]]
    assert len({one["id"] for one in items}) == len(items) == 8
    lists = [one.get("availableMachineTypes", "absent") for one in items]
    assert None in lists and "absent" in lists and any(one.get("defaultSizeGb", 0) is None for one in items)
    named = {label["machineTypeLabel"]: label["isAvailable"] for one in team.get("/os-templates", name="Ubuntu 22.04")["items"][:1]
             for label in one["availableMachineTypes"]}  # fmt: skip
    assert named["A4000"] and not named["H100x8"] and len(named) == 28


def test_capacity_can_be_asked_for_or_not(team: Team) -> None:
    assert team.get("/machine-availability", machineType="A4000", region="ny2") == {"available": True}
    assert team.get("/machine-availability", machineType="A5000", region="West Coast (CA1)") == {"available": False}
    team.close()
    without = Team(availability=False)
    assert without.call("GET", "/machine-availability?machineType=A4000&region=ny2").status_code == 404
    without.close()


def test_lists_come_in_pages_that_neither_repeat_nor_lose(team: Team) -> None:
    made = [team.create(name=f"tgp-{number}", machineType="A5000", region="ca1")["data"]["id"] for number in range(5)]
    first = team.get("/machines", limit=2, orderBy="name")
    assert [one["name"] for one in first["items"]] == ["tgp-0", "tgp-1"]
    team.call("DELETE", f"/machines/{made[0]}")
    team.pass_time(9)
    team.until(lambda: len(team.get("/machines")["items"]) == 4)
    second = team.get("/machines", limit=2, orderBy="name", after=first["nextPage"])
    assert [one["name"] for one in second["items"]] == ["tgp-2", "tgp-3"]
    last = team.get("/machines", limit=2, orderBy="name", after=second["nextPage"])
    assert [one["name"] for one in last["items"]] == ["tgp-4"] and last["hasMore"] is False and last["nextPage"] is None
    assert [one["name"] for one in team.get("/machines", order="desc", orderBy="name")["items"]][0] == "tgp-4"


def test_the_name_filter_may_be_loose_or_exact(team: Team) -> None:
    team.create(name="tgp-1")
    team.create(name="tgp-11")
    assert len(team.get("/machines", name="tgp-1")["items"]) == 2
    assert team.get("/machines", machineType="A4000", agentType="LinuxHeadless")["items"] != []
    team.close()
    exact = Team(name_filter="exact")
    exact.create(name="tgp-1")
    exact.create(name="tgp-11")
    assert len(exact.get("/machines", name="tgp-1")["items"]) == 1
    exact.close()


@pytest.mark.parametrize("kind", ["startup-scripts", "private-networks"])
def test_the_name_filter_is_that_of_scripts_and_networks_too(kind: str) -> None:
    """A public client asks for its script by a part of the name, because it has renamed it since."""
    for switches, found in (({}, ["sky-add-key", "sky-add-key-0a1b"]), ({"name_filter": "exact"}, ["sky-add-key"])):
        team = Team(**switches)
        for name in ("sky-add-key-0a1b", "other", "sky-add-key"):
            body = {"name": name, **({"script": "true"} if kind == "startup-scripts" else {"region": "ny2"})}
            assert team.call("POST", f"/{kind}", body).status_code == 200
        assert [one["name"] for one in team.get(f"/{kind}", name="sky-add-key", orderBy="name")["items"]] == found
        assert len(team.get(f"/{kind}")["items"]) == 3 and team.get(f"/{kind}", name="nothing")["items"] == []
        team.close()


def test_a_script_runs_at_boot_and_is_never_shown(team: Team) -> None:
    text = "#!/bin/bash\necho hello-from-the-script"
    made = team.call("POST", "/startup-scripts", {"name": "tgp-lab-1", "script": text}).json()
    assert "hello" not in str(made) and made["assignedMachineIds"] == [] and made["isRunOnce"] is False
    identity = team.ready(startupScriptId=made["id"])
    machine = team.world.machines[identity]
    assert machine.payload == text and machine.details["system"] == "ubuntu"
    assert team.get(f"/startup-scripts/{made['id']}")["assignedMachineIds"] == [identity]
    assert "hello" not in str(team.get("/startup-scripts"))
    team.call("PATCH", f"/machines/{identity}/restart")
    team.up(identity)
    assert machine.payload == text
    gone = team.call("DELETE", f"/startup-scripts/{made['id']}").json()
    assert gone["dtDeleted"] and team.call("GET", f"/startup-scripts/{made['id']}").status_code == 404
    team.call("PATCH", f"/machines/{identity}/restart")
    team.up(identity)
    assert machine.payload is None


def test_a_script_that_runs_once(team: Team) -> None:
    made = team.call("POST", "/startup-scripts", {"name": "once", "script": "true", "isRunOnce": True}).json()
    identity = team.ready(startupScriptId=made["id"])
    assert team.world.machines[identity].payload == "true"
    team.call("PATCH", f"/machines/{identity}/restart")
    team.up(identity)
    assert team.world.machines[identity].payload is None


def test_a_script_taken_away_while_the_machine_boots_does_not_run(team: Team) -> None:
    made = team.call("POST", "/startup-scripts", {"name": "soon", "script": "true"}).json()
    identity = team.create(startupScriptId=made["id"])["data"]["id"]
    team.call("DELETE", f"/startup-scripts/{made['id']}")
    assert team.world.machines[identity].payload is None


def test_scripts_are_assigned_changed_and_limited(team: Team) -> None:
    limit = 16 * 1024
    assert team.call("POST", "/startup-scripts", {"name": "a", "script": "x" * limit}).status_code == 200
    assert team.call("POST", "/startup-scripts", {"name": "a", "script": "x" * (limit + 1)}).status_code == 400
    assert team.call("POST", "/startup-scripts", {"name": "a"}).json()["issues"][0]["message"] == "Required"
    one, two = (team.call("POST", "/startup-scripts", {"name": n, "script": n}).json()["id"] for n in ("one", "two"))
    identity = team.create()["data"]["id"]
    assert team.call("POST", f"/startup-scripts/{one}/assign", {"machineId": identity}).json()["assignedMachineIds"] == [identity]
    team.call("POST", f"/startup-scripts/{two}/assign", {"machineId": identity})
    assert team.get(f"/startup-scripts/{one}")["assignedMachineIds"] == [] and team.world.machines[identity].payload == "two"
    assert team.call("PUT", f"/startup-scripts/{two}", {"script": "new", "isEnabled": True}).status_code == 200
    assert team.world.machines[identity].payload == "new"
    assert team.call("POST", f"/startup-scripts/{two}/unassign", {"machineId": identity}).json()["assignedMachineIds"] == []
    assert team.call("POST", f"/startup-scripts/{two}/unassign", {"machineId": identity}).status_code == 400
    assert len(team.get("/startup-scripts", name="two")["items"]) == 1


def test_an_assigned_script_may_refuse_to_go() -> None:
    team = Team(script_delete_while_assigned=412)
    made = team.call("POST", "/startup-scripts", {"name": "held", "script": "true"}).json()["id"]
    identity = team.create(startupScriptId=made)["data"]["id"]
    assert team.call("DELETE", f"/startup-scripts/{made}").status_code == 412
    team.call("DELETE", f"/machines/{identity}")
    team.pass_time(9)
    team.until(lambda: team.call("DELETE", f"/startup-scripts/{made}").status_code == 200)
    team.close()


def test_a_network_stays_while_machines_are_in_it(team: Team) -> None:
    network = team.call("POST", "/private-networks", {"name": "tgp-lab", "region": "ny2"}).json()
    assert network["region"] == "East Coast (NY2)" and network["network"].startswith("10.")
    other = team.call("POST", "/private-networks", {"name": "far", "region": "ca1"}).json()
    assert team.call("POST", "/machines", team.order(networkId=other["id"])).status_code == 400
    identity = team.create(networkId=network["id"])["data"]["id"]
    assert team.call("DELETE", f"/private-networks/{network['id']}").status_code == 412
    team.call("DELETE", f"/machines/{identity}")
    assert team.call("DELETE", f"/private-networks/{network['id']}").status_code == 412  # it is not gone yet
    team.pass_time(9)
    team.until(lambda: team.call("DELETE", f"/private-networks/{network['id']}").json() == {"id": network["id"]})
    assert [one["id"] for one in team.get("/private-networks")["items"]] == [other["id"]]
    assert team.call("PUT", f"/private-networks/{other['id']}", {"name": "farther"}).json()["name"] == "farther"
    assert team.call("DELETE", f"/private-networks/{network['id']}").status_code == 404


def test_a_static_address_outlives_its_machine_and_is_billed(team: Team) -> None:
    identity = team.ready(publicIpType="static")
    held = team.get("/public-ips")["items"]
    assert [one["assignedMachineId"] for one in held] == [identity]
    assert team.get(f"/machines/{identity}")["publicIp"] == held[0]["ip"]
    team.call("DELETE", f"/machines/{identity}")
    team.pass_time(9)
    team.until(lambda: team.get("/public-ips")["items"][0]["assignedMachineId"] is None)
    account = team.world.__dict__["paperspace_account"]
    before = account.extras_cost(team.world.clock.now())
    team.pass_time(36000)
    assert Decimal("0.040") < account.extras_cost(team.world.clock.now()) - before < Decimal("0.042")
    assert team.call("DELETE", f"/public-ips/{held[0]['ip']}").status_code == 200
    assert team.get("/public-ips")["items"] == []


def test_addresses_can_be_claimed_and_moved(team: Team) -> None:
    held = team.call("POST", "/public-ips", {"region": "ny2"}).json()
    identity = team.ready()
    moved = team.call("PUT", f"/public-ips/{held['ip']}", {"machineId": identity}).json()
    assert moved["assignedMachineId"] == identity and team.get(f"/machines/{identity}")["publicIp"] == held["ip"]
    assert team.call("PUT", f"/public-ips/{held['ip']}", {"machineId": None}).json()["assignedMachineId"] is None
    assert team.get(f"/machines/{identity}")["publicIp"] is None
    assert team.call("POST", "/public-ips", {"region": "mars"}).status_code == 400


def test_a_template_of_ones_own(team: Team) -> None:
    identity = team.ready()
    answer = team.call("POST", "/custom-templates", {"machineId": identity, "name": "mine"}).json()
    made = answer["data"]
    assert answer["event"]["name"] == "template-create" and made["parentMachineId"] == identity
    assert team.create(templateId=made["id"])["data"]["os"] == "Ubuntu 22.04"
    assert team.call("POST", "/machines", team.order(templateId=made["id"], region="ca1")).status_code == 400
    assert team.call("PUT", f"/custom-templates/{made['id']}", {"name": "ours"}).json()["name"] == "ours"
    assert team.call("DELETE", f"/custom-templates/{made['id']}").json()["event"]["name"] == "template-delete"
    assert team.get("/custom-templates")["items"] == []
    assert team.call("POST", "/machines", team.order(templateId=made["id"])).status_code == 404


def test_the_firewall_judges_by_looks(team: Team) -> None:
    bad = "#!/bin/bash\ncurl -fsSL https://get.example.com/install.sh | sudo bash\n"
    answer = team.call("POST", "/startup-scripts", {"name": "a", "script": bad})
    assert answer.status_code == 403 and answer.headers["content-type"].startswith("text/html") and "blocked" in answer.text
    wrapped = f"#!/bin/bash\nbase64 -d <<'TGP' | bash\n{base64.b64encode(bad.encode()).decode()}\nTGP\n"
    assert team.call("POST", "/startup-scripts", {"name": "a", "script": wrapped}).status_code == 200
    harmless = "curl -o file https://example.com\nsort file | bash-completion"
    assert team.call("POST", "/startup-scripts", {"name": "a", "script": harmless}).status_code == 200


@pytest.mark.parametrize("says_when", [True, False])
def test_who_hurries_is_slowed_down(says_when: bool) -> None:
    team = Team(rate_limits=True, retry_after=says_when)
    answers = [team.call("GET", "/machines") for _ in range(25)]
    refused = [one for one in answers if one.status_code == 429]
    assert refused and refused[0].json()["code"] == "TOO_MANY_REQUESTS" and ("retry-after" in refused[0].headers) is says_when
    team.pass_time(10)
    assert team.call("GET", "/machines").status_code == 200
    team.close()


def test_content_types_do_not_matter(team: Team) -> None:
    identity = team.ready()
    for headers in ({}, {"content-type": "application/json"}, {"content-type": "text/plain"}):
        assert team.call("PATCH", f"/machines/{identity}/start", content=b"", headers=headers).status_code == 200


@pytest.mark.parametrize("once", [False, True])
def test_a_machine_becomes_a_node_by_its_script_and_stays_one(make: t.Callable[..., Hand], once: bool) -> None:
    hand = make(paperspace={"offers": [{"type": "A4000", "region": "ny2", "stock": 1, "boot": 30}]})
    spec = hand.payload("tgp-p-1", capability=FACTS, model="A4000")
    cloud = hand.client("paperspace", authorization=f"Bearer {hand.box.world.secrets['PAPERSPACE_API_KEY']}")
    script = cloud.post("/v1/startup-scripts", json={"name": "tgp-p-1", "script": spec, "isRunOnce": once})
    assert script.status_code == 200, script.text
    body = {"name": "tgp-p-1", "machineType": "A4000", "templateId": "t0nspur5", "region": "ny2", "diskSize": 100}
    made = cloud.post("/v1/machines", json={**body, "startupScriptId": script.json()["id"], "startOnCreate": True})
    machine = hand.box.world.machines[made.json()["data"]["id"]]
    hand.story(machine, "done")
    assert hand.ready("tgp-p-1") == "True"
    cloud.patch(f"/v1/machines/{machine.id}/stop")
    hand.until(lambda: hand.ready("tgp-p-1") != "True" and machine.state == "stopped")
    cloud.patch(f"/v1/machines/{machine.id}/start")
    hand.until(lambda: any(step == "done" for _time, step, _text in machine.steps) and hand.ready("tgp-p-1") == "True")
    assert [one["metadata"]["name"] for one in hand.box.nodes()] == ["tgp-p-1"]
    assert not any(step == "packages" for _time, step, _text in machine.steps)
