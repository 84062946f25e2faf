# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RunPod's pods over HTTP: the whole life, the shape of the object, lists, logs and money."""

from __future__ import annotations

import json
import shlex
import typing as t
from datetime import timedelta
from decimal import Decimal

import httpx
import pytest

from sandbox import runpod_cloud, runpod_more

from .runpod_stand import H100, RTX4090, Stand

KEYS = {
    "id", "name", "status", "actions", "image", "args", "entrypoint", "cmd", "disk", "mounts", "ports", "env", "registry", "gpu",
    "cloud", "dataCenterId", "cudaVersion", "ssh", "template", "cost", "locked", "globalNetworking", "runtime", "createdAt", "startedAt",
}  # fmt: skip


@pytest.fixture
def stand() -> t.Iterator[Stand]:
    one = Stand()
    yield one
    one.close()


@pytest.fixture
def still() -> t.Iterator[Stand]:
    """Time moves only when it is told to."""
    one = Stand(speed=0.001)
    yield one
    one.close()


def test_the_life_of_a_pod(stand: Stand) -> None:
    order = stand.order(ports=["22/tcp", "8888/http"], env={"TGP_OWNER": "prod"}, gpu={"id": RTX4090, "count": 2})
    answer = stand.call("POST", "/v2/pods", order)
    made = answer.json()
    assert answer.status_code == 201 and set(made) == KEYS
    assert (
        made["status"] == "RUNNING"
        and made["startedAt"] == made["createdAt"]
        and made["runtime"] is None
        and made["ssh"]["direct"] is None
    )
    assert made["cost"] == 1.18 and made["dataCenterId"] == "EU-RO-1" and made["cudaVersion"] == "12.8"
    assert made["env"] == {"TGP_OWNER": "prod"} and made["gpu"]["count"] == 2
    machine = stand.world.machines[made["id"]]
    stand.until(lambda: (stand.show(machine)["ssh"]["direct"] or {}).get("port"))
    shown = stand.show(machine)
    assert shown["status"] == "RUNNING" and shown["actions"] == ["stop", "restart", "terminate"]
    assert {port["type"] for port in shown["runtime"]["ports"]} == {"tcp", "http"}
    assert all(port["public"] and port["ip"] for port in shown["runtime"]["ports"])
    assert shown["ssh"]["direct"]["command"] == f"ssh root@{machine.ip} -p {shown['ssh']['direct']['port']}"
    assert machine.details["environment"]["RUNPOD_POD_ID"] == machine.id
    gone = stand.call("DELETE", f"/v2/pods/{machine.id}")
    assert (gone.status_code, gone.content) == (204, b"")
    again = stand.call("DELETE", f"/v2/pods/{machine.id}")
    assert again.status_code == 404 and again.json()["detail"] == "pod not found"
    assert again.headers["content-type"] == "application/problem+json"
    assert stand.call("GET", "/v2/pods").json() == {"pods": []}
    assert machine.ended is not None


@pytest.mark.parametrize("words", ["recorded", "documented"])
def test_states_come_one_after_the_other_and_ports_come_late(still: Stand, words: str) -> None:
    """As recorded, RUNNING is said from the creation on, and only the runtime tells; the vendor's document has three words."""
    still.account.boot_states = words
    recorded = words == "recorded"
    machine = still.pod(still.order(ports=["22/tcp"]))
    still.until(lambda: machine.steps)
    assert still.show(machine)["status"] == ("RUNNING" if recorded else "PROVISIONING") and still.show(machine)["runtime"] is None
    still.world.clock.advance(11)
    still.until(lambda: still.show(machine)["status"] == ("RUNNING" if recorded else "STARTING"))
    assert still.show(machine)["runtime"] is None and bool(still.show(machine)["startedAt"]) is recorded
    still.world.clock.advance(81)
    still.world.clock.advance(10)
    still.until(lambda: (still.show(machine)["runtime"] or {}).get("ports"))
    assert still.show(machine)["runtime"]["ports"][0] == {"private": 22, "public": None, "type": "tcp", "ip": None}
    still.world.clock.advance(still.account.ports_after)
    assert still.show(machine)["runtime"]["ports"][0]["public"]


def test_a_stopped_pod_frees_its_gpus_and_bills_its_volume(still: Stand) -> None:
    machine = still.pod(still.order(gpu={"id": RTX4090, "count": 8}, mounts={"persistent": {"size": 100, "path": "/data"}}))
    still.world.clock.advance(3600)
    answer = still.call("POST", f"/v2/pods/{machine.id}/action", {"action": "stop"})
    assert answer.json()["status"] == "EXITED" and answer.json()["cost"] == 0 and answer.json()["actions"] == ["start", "terminate"]
    still.world.clock.advance(730 * 3600)
    # 8 x 0.59 and 120 GB x 0.10 / 730 for an hour, then 100 GB x 0.20 a month
    assert round(machine.cost(still.world.clock.now()), 2) == Decimal("24.74")
    still.world.clock.advance(300)  # until the last of it is billed
    records = still.call("GET", f"/v2/billing/pods?podId={machine.id}").json()["records"]
    assert round(sum(record["totalAmount"] for record in records), 2) == 24.74
    assert (
        round(sum(record["diskAmount"] for record in records), 2) == 20.02
        and round(sum(one["gpuAmount"] for one in records), 2) == 4.72
    )
    other = still.pod(still.order("tgp-b", gpu={"id": RTX4090, "count": 4}))
    refused = still.call("POST", f"/v2/pods/{machine.id}/action", {"action": "start"})
    assert refused.status_code == 400 and "not enough free GPUs" in refused.json()["detail"]
    still.call("DELETE", f"/v2/pods/{other.id}")
    assert still.call("POST", f"/v2/pods/{machine.id}/action", {"action": "start"}).json()["runtime"] is None
    assert still.call("POST", f"/v2/pods/{machine.id}/action", {"action": "start"}).status_code == 409
    assert still.call("POST", f"/v2/pods/{machine.id}/action", {"action": "terminate"}).status_code == 204


def test_a_change_resets_a_running_pod_and_a_lock_forbids_it(stand: Stand) -> None:
    machine = stand.pod(stand.order())
    stand.step(machine, "done")
    path = f"/v2/pods/{machine.id}"
    assert stand.call("PATCH", path, {"name": "other", "locked": True}).json()["name"] == "other"
    assert stand.show(machine)["status"] == "RUNNING" and "stop" not in stand.show(machine)["actions"]
    assert stand.call("PATCH", path, {"image": "x:2"}).status_code == 409
    assert stand.call("POST", f"{path}/action", {"action": "stop"}).status_code == 409
    changed = stand.call("PATCH", path, {"locked": False, "image": "x:2", "env": {"A": "b"}}).json()
    assert changed["runtime"] is None and changed["image"] == "x:2" and changed["env"] == {"A": "b"}
    stand.until(lambda: "pulling x:2" in machine.console)


SHELL = {"entrypoint": ["/bin/sh", "-c"], "cmd": ["echo 'a b'; exec sleep 9"]}
KEPT = json.dumps(SHELL, separators=(",", ":"))


@pytest.mark.parametrize(
    ("fields", "args", "lists", "runs"),
    [
        ({}, "", ([], []), ""),
        ({"args": "serve --port '80 80'"}, "serve --port '80 80'", ([], ["serve", "--port", "80 80"]), "serve --port '80 80'"),
        (SHELL, KEPT, (SHELL["entrypoint"], SHELL["cmd"]), shlex.join([*SHELL["entrypoint"], *SHELL["cmd"]])),
        ({"cmd": ["serve", "a b"]}, '{"cmd":["serve","a b"]}', ([], ["serve", "a b"]), "serve 'a b'"),
        ({"entrypoint": [], "cmd": []}, "", ([], []), ""),
        ({"args": KEPT}, KEPT, (SHELL["entrypoint"], SHELL["cmd"]), shlex.join([*SHELL["entrypoint"], *SHELL["cmd"]])),
        ({"args": "serve 'a b'", "cmd": ["serve", "a b"]}, "serve 'a b'", ([], ["serve", "a b"]), "serve 'a b'"),
        ({"args": "{ serve; }"}, "{ serve; }", ([], ["{", "serve;", "}"]), "{ serve; }"),
    ],
)
def test_a_command_is_a_text_or_two_lists(still: Stand, fields: t.Any, args: str, lists: t.Any, runs: str) -> None:
    answer = still.call("POST", "/v2/pods", still.order(**fields))
    made = answer.json()
    assert answer.status_code == 201 and (made["args"], (made["entrypoint"], made["cmd"])) == (args, lists)
    assert still.world.machines[made["id"]].details["command"] == runs
    still.account.exec_form = False
    assert "cmd" not in still.show(still.world.machines[made["id"]])


def test_a_change_of_one_list_leaves_the_other(still: Stand) -> None:
    machine = still.pod(still.order(**SHELL))
    path = f"/v2/pods/{machine.id}"
    assert still.call("PATCH", path, {"cmd": ["true"]}).json()["args"] == '{"entrypoint":["/bin/sh","-c"],"cmd":["true"]}'
    assert still.call("PATCH", path, {"entrypoint": []}).json()["args"] == '{"cmd":["true"]}'
    changed = still.call("PATCH", path, {"args": "serve"}).json()
    assert (changed["entrypoint"], changed["cmd"]) == ([], ["serve"]) and machine.details["command"] == "serve"
    refused = still.call("PATCH", path, {"args": "serve", "cmd": ["other"]})
    assert refused.status_code == 400 and machine.details["args"] == "serve"
    assert still.call("POST", "/v2/pods", still.order("b", args="serve", entrypoint=["sh"])).status_code == 400


def test_an_image_with_a_program_of_its_own_takes_a_command_as_arguments(still: Stand) -> None:
    still.account.own_entrypoint = ("registry.example/agent",)
    for fields, runs in (
        ({"args": "sh -c true"}, "/entrypoint sh -c true"),
        ({"cmd": ["sh", "-c", "true"]}, "/entrypoint sh -c true"),
        ({"entrypoint": ["sh", "-c"], "cmd": ["true"]}, "sh -c true"),
        ({}, ""),
    ):
        assert still.pod(still.order(**fields)).details["command"] == runs


def test_an_api_without_exec_form_does_not_know_its_fields(still: Stand) -> None:
    still.account.exec_form = False
    for name in ("entrypoint", "cmd"):
        refused = still.call("POST", "/v2/pods", still.order(**{name: ["sh"]}))
        assert refused.status_code == 422 and refused.json()["errors"] == [f"$: additional properties '{name}' not allowed"]
    assert not still.world.machines


def test_lists_come_whole_or_in_pages(still: Stand) -> None:
    names = [f"tgp-{number}" for number in range(5)]
    for name in names:
        still.pod(still.order(name))
    whole = still.call("GET", "/v2/pods?limit=1").json()
    assert "pagination" not in whole and len(whole["pods"]) == 5
    still.account.page_size = 2
    found, cursor = [], None
    for size in (2, 2, 1):
        page = still.call("GET", "/v2/pods", params={"cursor": cursor} if cursor else {}).json()
        assert len(page["pods"]) == size
        found += [pod["name"] for pod in page["pods"]]
        cursor = page["pagination"]["nextCursor"]
    assert sorted(found) == names and cursor is None and page["pagination"]["hasNextPage"] is False
    assert still.call("GET", "/v2/pods?cursor=nonsense").status_code == 422


def test_a_new_pod_may_not_be_found_for_a_while(still: Stand) -> None:
    still.account.shy_seconds = 30.0
    machine = still.pod(still.order())
    assert still.call("GET", f"/v2/pods/{machine.id}").status_code == 404
    assert still.call("DELETE", f"/v2/pods/{machine.id}").status_code == 404
    assert [pod["id"] for pod in still.call("GET", "/v2/pods").json()["pods"]] == [machine.id]
    still.world.clock.advance(31)
    assert still.call("DELETE", f"/v2/pods/{machine.id}").status_code == 204


def test_the_log_is_a_stream_of_events(stand: Stand) -> None:
    machine = stand.pod(stand.order(args='sh -c "echo \'open"'))
    stand.step(machine, "restart")
    answer = stand.call("GET", f"/v2/pods/{machine.id}/logs")
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert {event["source"] for event in events} == {"system", "container"} and set(events[0]) == {"source", "line", "ts"}
    mine = stand.call("GET", f"/v2/pods/{machine.id}/logs?source=container&tail=1").text
    assert mine.count("data: ") == 1 and "unexpected EOF" in mine
    identity = answer.text.splitlines()[0].removeprefix("id: ")
    rest = stand.call("GET", f"/v2/pods/{machine.id}/logs?tail=1", headers={"Last-Event-ID": identity}).text
    assert identity == events[0]["ts"] and rest.count("data: ") >= len(events) - 1 and identity not in rest
    late = stand.call("GET", f"/v2/pods/{machine.id}/logs?tail=0&since={events[-1]['ts']}").text
    assert events[-1]["ts"] in late and events[0]["ts"] not in late, "a moment to go on from counts more than the tail"
    assert stand.call("GET", f"/v2/pods/{machine.id}/logs?tail=0").text == "", "a tail of 0 is no history"
    for query in ("tail=-1", "tail=5001", "source=other", "since=then"):
        assert stand.call("GET", f"/v2/pods/{machine.id}/logs?{query}").status_code == 422


def test_a_log_shows_its_last_hundred_lines_unless_more_are_asked_for(still: Stand) -> None:
    machine, now = still.pod(still.order()), still.world.clock.now()
    machine.details["log"] = [(now + timedelta(seconds=number), "container", str(number)) for number in range(150)]
    counts = {query: still.call("GET", f"/v2/pods/{machine.id}/logs{query}").text.count("data: ") for query in ("", "?tail=120")}
    assert counts == {"": 100, "?tail=120": 120}


def test_without_money_there_is_no_pod_and_none_stays(still: Stand) -> None:
    still.account.balance = Decimal("1.00")
    assert still.call("POST", "/v2/pods", still.order(gpu={"id": RTX4090, "count": 2})).status_code == 402
    machine = still.pod(still.order())
    still.world.clock.advance(7200)
    assert still.show(machine)["status"] == "EXITED"
    kept = still.account.kept_without_money
    still.world.clock.advance(kept - 60)
    assert still.show(machine)["status"] == "EXITED"
    still.world.clock.advance(120)
    assert still.call("GET", f"/v2/pods/{machine.id}").status_code == 404 and machine.ended is not None
    still.account.balance = None
    still.account.spend_limit = Decimal("0.10")
    assert "spend limit" in still.call("POST", "/v2/pods", still.order()).json()["detail"]


def test_a_pod_with_a_network_volume_outlives_the_balance_and_money_saves_the_others(still: Stand) -> None:
    volume = still.call("POST", "/v2/network-volumes", {"name": "v", "size": 20, "dataCenter": "EU-RO-1"}).json()["id"]
    kept = still.pod(still.order("kept", mounts={"network": [{"volumeId": volume, "path": "/data"}]}))
    saved = still.pod(still.order("saved"))
    still.account.balance = Decimal("0.01")
    still.world.clock.advance(3600)
    assert {still.show(one)["status"] for one in (kept, saved)} == {"EXITED"}
    still.account.balance = Decimal(50)
    assert still.show(saved)["status"] == "EXITED", "money alone starts nothing"
    still.world.clock.advance(still.account.kept_without_money + 60)
    assert still.show(saved)["status"] == "EXITED"
    still.account.balance = Decimal("0.01")
    still.show(kept)
    still.world.clock.advance(still.account.kept_without_money + 60)
    assert [one["id"] for one in still.call("GET", "/v2/pods").json()["pods"]] == [kept.id]


def test_keys_registries_and_volumes(still: Stand) -> None:
    assert still.call("PUT", "/v2/account/ssh-keys", {"keys": ["ssh-ed25519 AAAA me"]}).json() == {"keys": ["ssh-ed25519 AAAA me"]}
    machine = still.pod(still.order(startSsh=True))
    assert machine.details["environment"]["PUBLIC_KEY"] == "ssh-ed25519 AAAA me"
    registry = still.call("POST", "/v2/registries", {"name": "r", "username": "u", "password": "hidden-hidden-hidden"})
    assert registry.status_code == 201 and "hidden" not in registry.text
    identity = registry.json()["id"]
    assert still.call("POST", "/v2/pods", still.order("b", registry=identity)).status_code == 201
    assert still.call("POST", "/v2/pods", still.order("b", registry="none")).status_code == 404
    assert still.call("DELETE", f"/v2/registries/{identity}").status_code == 204
    volume = {"name": "v", "size": 20, "dataCenter": "US-KS-2"}
    made = still.call("POST", "/v2/network-volumes", volume).json()
    assert still.call("POST", "/v2/network-volumes", {**volume, "dataCenter": "us-ks-2"}).status_code == 400
    assert still.call("PATCH", f"/v2/network-volumes/{made['id']}", {"size": 10}).status_code == 400
    mounts = {"network": [{"volumeId": made["id"], "path": "/data"}]}
    assert still.call("POST", "/v2/pods", still.order("c", mounts=mounts)).json()["dataCenterId"] == "US-KS-2"
    assert still.call("DELETE", f"/v2/network-volumes/{made['id']}").status_code == 409


def test_the_limits_ride_on_every_answer_and_hold() -> None:
    one = Stand(speed=0.001, rate_limits=True)
    answers = [one.call("GET", "/v2/pods") for _ in range(61)]
    assert answers[0].headers["RateLimit"].startswith('"minute";r=59;t=')
    assert answers[0].headers["RateLimit-Policy"] == '"minute";q=60;w=60, "hour";q=3000;w=3600, "day";q=50000;w=86400'
    last = answers[-1]
    assert last.status_code == 429 and last.json()["detail"] == "rate limit exceeded for the minute window"
    assert 1 <= int(last.headers["Retry-After"]) <= 60 and '"minute";r=0' in last.headers["RateLimit"]
    one.world.clock.advance(61)
    assert one.call("GET", "/v2/pods").status_code == 200
    one.close()


def test_keys_and_retired_interfaces(still: Stand) -> None:
    app = httpx.WSGITransport(app=runpod_cloud.app(still.world))
    still.world.secrets.update(RUNPOD_READ_ONLY_KEY="rpa_READONLY_0123456789", RUNPOD_RESTRICTED_KEY="rpa_RESTRICTED_0123456789")
    with httpx.Client(transport=app, base_url="http://runpod") as client:
        assert client.get("/v2/pods").status_code == 401
        assert client.get("/v2/pods", headers={"authorization": "Bearer rpa_wrong"}).status_code == 401
        reader = {"authorization": "Bearer rpa_READONLY_0123456789"}
        assert client.get("/v2/pods", headers=reader).status_code == 200
        assert client.post("/v2/pods", headers=reader, json=still.order()).status_code == 403
        assert client.get("/v2/pods", headers={"authorization": "Bearer rpa_RESTRICTED_0123456789"}).status_code == 403
        assert client.get("/v1/pods").status_code == 410
        described = client.get("/v2/openapi.json").json()
    assert described["info"]["version"] == "2.0.0"
    schema = described["paths"]["/pods"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["additionalProperties"] is False and "gpu" in schema["properties"]
    for method, path in runpod_more.BODIES:
        assert "requestBody" in described["paths"][path.removeprefix("/v2")][method], path
    assert still.call("DELETE", "/v2/pods").status_code == 405 and still.call("GET", "/v2/tags").status_code == 404


def test_processor_pods(still: Stand) -> None:
    body = {"name": "c", "image": "i", "cpu": {"id": "cpu3c", "vcpuCount": 2}}
    made = still.call("POST", "/v2/pods", body).json()
    assert made["cost"] == 0.06 and "gpu" not in made and made["cpu"] == {"id": "cpu3c", "vcpuCount": 2, "memory": 4}
    assert made["dataCenterId"] == "US-KS-2" and made["cudaVersion"] is None
    there = still.call("POST", "/v2/pods", {**body, "dataCenterIds": ["EU-SE-1", "EU-RO-1"]}).json()
    assert there["dataCenterId"] == "EU-RO-1"
    for wrong in ({"dataCenterIds": ["EU-SE-1"]}, {"cloud": "COMMUNITY"}):
        assert "no longer any instances" in still.call("POST", "/v2/pods", {**body, **wrong}).json()["detail"]


def test_processors_are_used_up_in_each_data_centre(still: Stand) -> None:
    still.account.cpu_stock = 8
    body = {"name": "c", "image": "i", "cpu": {"id": "cpu3c", "vcpuCount": 8}}
    question = "/v2/catalog/cpus/cpu3c?include=AVAILABILITY&product=POD,SERVERLESS&vcpuCount=8"
    assert still.call("GET", question).json()["availability"] == "LOW"
    assert [still.call("POST", "/v2/pods", body).json()["dataCenterId"] for _turn in range(2)] == ["US-KS-2", "EU-RO-1"]
    assert still.call("POST", "/v2/pods", body).status_code == 400
    sold_out = still.call("GET", question).json()
    assert sold_out["availability"] == "NONE" and {one["availability"] for one in sold_out["dataCenters"]} == {"NONE"}


def test_no_stock_of_a_type_is_no_capacity(still: Stand) -> None:
    answer = still.call("POST", "/v2/pods", still.order(gpu={"id": H100, "count": 1}))
    assert answer.status_code == 400 and "no instances available" in answer.json()["detail"]
    assert not still.world.machines


def test_a_network_volume_is_billed_by_its_size_without_pods_and_takes_the_balance(still: Stand) -> None:
    volume = still.call("POST", "/v2/network-volumes", {"name": "v", "size": 1200, "dataCenter": "EU-RO-1"}).json()["id"]
    still.account.balance = Decimal(81)
    assert still.account.storage.month == Decimal(80)
    still.world.clock.advance(730 * 3600)
    assert abs((still.account.left(still.world) or Decimal(0)) - 1) < Decimal("0.001")
    still.call("PATCH", f"/v2/network-volumes/{volume}", {"size": 2000})
    assert still.account.storage.month == Decimal(120)
    machine = still.pod(still.order(mounts={"network": [{"volumeId": volume, "path": "/data"}]}))
    assert still.call("DELETE", f"/v2/network-volumes/{volume}").status_code == 409
    still.call("DELETE", f"/v2/pods/{machine.id}")
    assert still.call("DELETE", f"/v2/network-volumes/{volume}").status_code == 204
    assert still.account.storage.month == 0 and still.account.storage.cost(still.world.clock.now()) > 79
