# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The truth from outside, and the levers."""

from __future__ import annotations

import json
import typing as t
from decimal import Decimal
from pathlib import Path

import httpx
import pytest
import yaml

from sandbox import control, kubelet, strangers
from sandbox.cluster import KubeError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def stand(make: t.Any) -> tuple[t.Any, httpx.Client]:
    hand = make()
    transport = httpx.WSGITransport(app=control.app(hand.box))
    return hand, httpx.Client(transport=transport, base_url="http://sandbox")


def test_the_world_in_one_picture(stand: t.Any) -> None:
    hand, client = stand
    key, token = hand.key(), hand.token()
    machine = hand.rent("tgp-a-1", hand.payload("tgp-a-1", key=key, token=token))
    hand.story(machine, "done")
    world = client.get("/world").json()
    shown = next(entry for entry in world["machines"] if entry["name"] == "tgp-a-1")
    assert shown["state"] == "active" and shown["type"] == "gpu_1x_a10" and shown["steps"][-1]["step"] == "done"
    assert Decimal(shown["cost"]) > 0 and float(shown["billed_seconds"]) >= 276
    assert world["nodes"][0]["ready"] == "True" and world["nodes"][0]["gpus"] == 1
    assert world["devices"][0]["online"] and world["keys"][0]["used"] == 1 and world["keys"][0]["invalid"]
    totals = world["totals"]
    assert (totals["instances"], totals["devices"], totals["keys"], totals["nodes"]) == (1, 1, 1, 1)
    assert totals["hourly"] == "1.29"
    assert world["calls"]["lambda"] == 1
    assert [write["what"] for write in world["writes"]] == ["POST /api/v1/instance-operations/launch"]
    text = json.dumps(world)
    for secret in (key, token, *hand.box.world.secrets.values()):
        assert secret not in text or secret == hand.box.world.secrets["TS_OAUTH_CLIENT_ID"]


def test_the_clock_can_be_moved_forward_only(stand: t.Any) -> None:
    hand, client = stand
    before = hand.box.world.clock.seconds()
    assert client.post("/clock", json={"advance": 600}).status_code == 200
    assert hand.box.world.clock.seconds() - before >= 600
    listed: list[t.Any] = [{"advance": -1}, {"advance": "now"}, {"advance": True}, {}, []]
    for nonsense in listed:
        answer = client.post("/clock", json=nonsense)
        assert answer.status_code == 400 and answer.json()["message"]
    assert client.post("/clock", content="{").status_code == 400
    speed, now = hand.box.world.clock.speed, hand.box.world.clock.seconds()
    for nonsense in (
        '{"speed": NaN}',
        '{"speed": 10001}',
        '{"advance": 864000, "speed": 0}',
        '{"advance": 1e300}',
        '{"advance": Infinity}',
    ):
        answer = client.post("/clock", content=nonsense)
        assert answer.status_code == 400 and answer.json()["message"], nonsense
    assert hand.box.world.clock.speed == speed and hand.box.world.clock.seconds() - now < 432_000  # nothing of it was done


def test_faults_come_and_go(stand: t.Any) -> None:
    hand, client = stand
    rule = {"service": "webhook", "kind": "status", "status": 503, "times": None}
    assert client.post("/faults", json=[rule]).status_code == 201
    assert hand.client("webhook").get("/rack-1/status").status_code == 503
    assert client.get("/faults").json()["faults"][0]["hits"] == 1
    assert client.delete("/faults").json() == {"faults": []}
    assert hand.client("webhook").get("/rack-1/status").status_code == 200
    assert client.post("/faults", json={"kind": "meteor"}).status_code == 400
    assert "services are" in client.post("/faults", json={"kind": "hang", "service": "moon"}).json()["message"]


def test_behaviours_can_be_added(stand: t.Any) -> None:
    hand, client = stand
    assert client.post("/behaviours", json={"kind": "boot_error"}).status_code == 201
    machine = hand.rent("tgp-a-1")
    hand.until(lambda: machine.state == "unhealthy")
    assert client.post("/behaviours", json={"kind": "sulk"}).status_code == 400


def test_a_machine_can_be_killed_and_taken_back(stand: t.Any) -> None:
    hand, client = stand
    machine = hand.rent("tgp-a-1", hand.payload("tgp-a-1"))
    hand.story(machine, "done")
    assert client.post("/machines/tgp-a-1/kill").json()["state"] == "active"
    hand.until(lambda: hand.ready("tgp-a-1") == "Unknown")
    assert machine.ended is None
    assert client.post("/machines/tgp-a-1/vanish").status_code == 200
    assert machine.ended is not None
    assert client.post("/machines/tgp-a-1/vanish").status_code == 404
    assert client.post("/machines/tgp-a-1/tickle").status_code == 404


def test_prices_and_stock_can_be_set(stand: t.Any) -> None:
    hand, client = stand
    machine = hand.rent("tgp-a-1")
    place = {"cloud": "lambda", "type": "gpu_1x_a10", "region": "us-east-1"}
    changed = client.post("/prices", json={**place, "price": "2.50"}).json()["offers"]
    assert [one["price_hour"] for one in changed] == ["2.50"]
    assert (machine.rate(), hand.rent("tgp-a-2").rate()) == (Decimal("1.29"), Decimal("2.50"))
    shown = [one["price_hour"] for one in client.get("/world").json()["machines"] if one["cloud"] == "lambda"]
    assert shown == ["1.29", "2.50"]
    assert client.post("/stock", json={**place, "stock": 0}).json()["offers"][0]["stock"] == 0
    assert {one["stock"] for one in client.get("/offers").json()["offers"]} == {0, 2}
    for path, body, status in (
        ("/prices", {**place, "price": "2.505"}, 400),
        ("/prices", {**place, "price": "dear"}, 400),
        ("/prices", {**place, "price": True}, 400),
        ("/prices", {**place, "price": "1e999999"}, 400),
        ("/prices", {**place, "price": "NaN"}, 400),
        ("/prices", {**place, "price": "-0.01"}, 400),
        ("/prices", {**place, "region": "moon", "price": 1}, 404),
        ("/prices", {"price": 1}, 400),
        ("/stock", {**place, "stock": -1}, 400),
        ("/stock", {**place, "stock": 1, "colour": "red"}, 400),
        ("/stock", [], 400),
    ):
        answer = client.post(path, json=body)
        assert answer.status_code == status and answer.json()["message"], body


def test_nodes_that_cannot_be_read_are_not_none_at_all(stand: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hand, client = stand
    assert (client.get("/world").json()["nodes"], client.get("/world").json()["totals"]["nodes"]) == ([], 0)

    def dead(*_words: t.Any, **_more: t.Any) -> t.Any:
        raise KubeError(0, "connection refused")

    monkeypatch.setattr(hand.box.cluster.admin(), "call", dead)
    world = client.get("/world").json()
    assert (world["nodes"], world["totals"]["nodes"]) == (None, None) and world["machines"]


def test_a_lever_that_there_is_not_is_refused_with_those_there_are(stand: t.Any) -> None:
    _hand, client = stand
    for method, path, status in (("POST", "/world", 405), ("GET", "/clocks", 404), ("DELETE", "/clock", 405)):
        answer = client.request(method, path)
        assert answer.status_code == status
        assert f"there is no {method} {path} here; there are DELETE /faults, GET /clock, " in answer.json()["message"]


@pytest.mark.parametrize("ended", [False, True])
def test_a_new_price_changes_no_bill_that_began_before(make: t.Any, ended: bool) -> None:
    hand = make(speed=1.0)
    client = httpx.Client(transport=httpx.WSGITransport(app=control.app(hand.box)), base_url="http://sandbox")
    machine, clock = hand.rent("tgp-a-1"), hand.box.world.clock
    clock.advance(1830)  # a started minute is billed whole
    if ended:
        hand.box.world.release(machine)
    before = machine.cost(clock.now())
    client.post("/prices", json={"cloud": "lambda", "price": "99"})
    client.post("/prices", json={"cloud": "lambda", "price": "3"})
    assert machine.cost(clock.now()) == before == Decimal("1.29") * 31 / 60
    clock.advance(3600)
    assert machine.cost(clock.now()) == before + (0 if ended else Decimal("1.29"))


def test_what_the_accounts_hold_is_in_the_picture(make: t.Any) -> None:
    hand = make(paperspace={"offers": [{"type": "A4000", "region": "ny2"}]})
    client = httpx.Client(transport=httpx.WSGITransport(app=control.app(hand.box)), base_url="http://sandbox")
    cloud = hand.client("paperspace", authorization=f"Bearer {hand.box.world.secrets['PAPERSPACE_API_KEY']}")
    cloud.post("/v1/startup-scripts", json={"name": "tgp-a", "script": "echo secret-of-the-script"})
    cloud.post("/v1/private-networks", json={"name": "tgp-a", "region": "ny2"})
    cloud.post("/v1/public-ips", json={"region": "ny2"})
    world = client.get("/world").json()
    totals = world["totals"]
    assert (totals["scripts"], totals["networks"], totals["static_ips"], totals["hourly"]) == (1, 1, 1, "0.0041")
    assert world["accounts"]["paperspace"]["startup_scripts"][0]["name"] == "tgp-a" and "secret-of" not in json.dumps(world)
    assert world["accounts"]["lambda"]["ssh_keys"] == ["tgp"]


def test_a_machine_can_have_traffic(stand: t.Any) -> None:
    hand, client = stand
    machine = hand.rent("tgp-a-1", hand.payload("tgp-a-1", key=hand.key(), token=hand.token()))
    machine.traffic_prices = (Decimal("0.01"), Decimal("0.10"))
    client.post("/machines/tgp-a-1/traffic", json={"down_gb": 40})
    shown = client.post("/machines/tgp-a-1/traffic", json={"down_gb": 0.5, "up_gb": 2}).json()
    assert shown["traffic"] == {"down_gb": "40.5", "up_gb": "2", "cost": "0.605000"}
    totals = client.get("/world").json()["totals"]
    assert totals["traffic"] == "0.605000" and Decimal(totals["bill"]) == Decimal(totals["cost"]) + Decimal("0.605")
    for nonsense in ({}, {"gb": 1}, {"down_gb": -1}, {"down_gb": "1"}, {"up_gb": True}, [1]):
        assert client.post("/machines/tgp-a-1/traffic", json=nonsense).status_code == 400
    assert machine.down_gb == Decimal("40.5")


def test_a_container_can_be_made_busy(stand: t.Any) -> None:
    hand, client = stand
    machine = hand.rent("tgp-a-1")
    assert client.post("/machines/tgp-a-1/busy").status_code == 200 and machine.details["busy"] is True
    assert client.post("/machines/tgp-a-1/busy", json={"busy": False}).status_code == 200 and machine.details["busy"] is False
    assert client.post("/machines/tgp-a-1/busy", json={"busy": "very"}).status_code == 400


def test_a_nodes_health_can_be_changed_as_agents_do(stand: t.Any) -> None:
    """A condition keeps its transition while its status stays; the sandbox's kubelet writes its own conditions beside it."""
    hand, client = stand
    hand.rent("tgp-a-1")
    admin = hand.box.cluster.admin()
    admin.call("POST", "/api/v1/nodes", {"metadata": {"name": "tgp-a-1"}})
    times = []
    for status in ("True", "True", "False"):
        hand.box.world.clock.advance(60)
        assert client.post("/machines/tgp-a-1/condition", json={"type": "KernelDeadlock", "status": status}).status_code == 200
        kubelet.ready(admin, "tgp-a-1", hand.box.world.clock.now())
        listed = {one["type"]: one for one in admin.call("GET", "/api/v1/nodes/tgp-a-1")["status"]["conditions"]}
        times.append(listed["KernelDeadlock"]["lastTransitionTime"])
    assert times[0] == times[1] < times[2] and listed["KernelDeadlock"]["reason"] == "NoKernelDeadlock" and "Ready" in listed
    assert client.post("/machines/tgp-a-1/gpus", json={"left": 7, "capacity": 8}).status_code == 200
    shown = admin.call("GET", "/api/v1/nodes/tgp-a-1")["status"]
    assert (shown["allocatable"]["nvidia.com/gpu"], shown["capacity"]["nvidia.com/gpu"]) == ("7", "8")
    for what, nonsense in (("condition", {"type": "X"}), ("condition", {"status": "True"}), ("gpus", {}), ("gpus", {"left": "7"})):
        assert client.post(f"/machines/tgp-a-1/{what}", json=nonsense).status_code == 400
    admin.call("DELETE", "/api/v1/nodes/tgp-a-1")
    assert "no Node" in client.post("/machines/tgp-a-1/gpus", json={"left": 1}).json()["message"]


def test_a_node_joins_without_any_machine(stand: t.Any) -> None:
    hand, client = stand
    key = hand.key()
    spec = {"key": key, "hostname": "tgp-a-1", "advertise_routes": ["10.1.0.0/16"]}
    made = client.post("/devices", json=spec)
    assert made.status_code == 201 and made.json()["online"] is True and made.json()["tags"] == ["tag:gpu"]
    device = hand.box.tailnet.device(made.json()["id"])
    assert device.hostname == "tgp-a-1" and device.enabled_routes == ["10.1.0.0/16"] and device.ephemeral
    assert hand.box.world.machines.keys() == {"rack-1", "rack-2"} and hand.box.world.writes == []
    again = client.post("/devices", json=spec)
    assert again.status_code == 409 and again.json()["message"].startswith("invalid key: API key ")
    tagged = {"key": hand.key(), "hostname": "x", "advertise_tags": ["tag:k8s"]}
    assert client.post("/devices", json=tagged).json()["message"] == "requested tags [tag:k8s] are invalid or not permitted"
    assert client.post(f"/devices/{device.node_id}", json={"online": False}).json()["last_seen"] is not None
    assert client.post("/devices/tgp-a-1", json={"online": True}).json()["online"] is True
    never = client.post("/devices", json={"key": hand.key(), "hostname": "tgp-a-2", "online": False}).json()
    assert (never["online"], never["last_seen"]) == (False, None)
    assert key not in client.get("/world").text
    nonsense: list[t.Any] = [
        {},
        [],
        {"key": key},
        {**spec, "hostname": 7},
        {**spec, "colour": "red"},
        {**spec, "advertise_tags": [1]},
    ]
    for body in [*nonsense, {**spec, "advertise_routes": ["everywhere"]}]:
        assert client.post("/devices", json=body).status_code == 400, body
    for path, body, status in (("nobody", {"online": True}, 404), ("tgp-a-1", {"online": 1}, 400), ("tgp-a-1", {}, 400)):
        assert client.post(f"/devices/{path}", json=body).status_code == status
    assert len(hand.box.tailnet.devices()) == 2


def test_a_stranger_rents_by_hand(stand: t.Any) -> None:
    hand, client = stand
    shown = client.post(
        "/strangers", json={"cloud": "lambda", "name": "tgp-a1b2c3d4-x-00000", "marks": {"cluster": "a1b2c3d4"}}
    ).json()
    assert shown["name"] == "tgp-a1b2c3d4-x-00000"
    machine = hand.box.world.machines[shown["id"]]
    assert machine.details["tags"] == [{"key": "tgp:cluster", "value": "a1b2c3d4"}]
    assert hand.box.world.writes == []
    listed: list[t.Any] = [{}, [], {"cloud": "lambda"}, {"cloud": "lambda", "name": "x", "marks": 7}]
    for nonsense in listed:
        assert client.post("/strangers", json=nonsense).status_code == 400
    assert client.post("/strangers", json={"cloud": "nowhere", "name": "x"}).status_code == 409


@pytest.mark.parametrize("restored", [False, True])
def test_a_twin_has_the_same_id_and_an_api_server_of_its_own(stand: t.Any, restored: bool) -> None:
    hand, client = stand
    hand.box.kube.request("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
    answer = client.post("/twins", json={"restored": restored}).json()
    config = yaml.safe_load(Path(answer["kubeconfig"]).read_text())
    server, token = config["clusters"][0]["cluster"]["server"], config["users"][0]["user"]["token"]
    twin = httpx.Client(base_url=server, headers={"authorization": f"Bearer {token}"}, verify=False)
    _status, first = hand.box.kube.request("GET", "/api/v1/namespaces/kube-system")
    assert twin.get("/api/v1/namespaces/kube-system").json()["metadata"]["uid"] == first["metadata"]["uid"]
    assert [one["metadata"]["name"] for one in twin.get("/api/v1/nodes").json()["items"]] == (["n"] if restored else [])
    twin.post("/api/v1/nodes", json={"metadata": {"name": "m"}})
    assert len(hand.box.kube.request("GET", "/api/v1/nodes")[1]["items"]) == 1
    assert client.post("/twins", json={"restored": "yes"}).status_code == 400


def test_a_restored_twin_serves_the_custom_objects_of_the_backup(stand: t.Any) -> None:
    hand, _client = stand
    kube, path = hand.box.kube, "/apis/tgp.io/v1/namespaces/default/gpunodepools"
    for definition in yaml.safe_load_all((ROOT / "schemas" / "crds.yaml").read_text()):
        kube.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    pool = {"apiVersion": "tgp.io/v1", "kind": "GPUNodePool", "spec": {"nodeClassRef": {"kind": "GPUNodeClass", "name": "demo"}}}
    assert kube.request("POST", path, {**pool, "metadata": {"name": "training"}})[0] == 201
    copy = strangers.restored(kube)
    assert [one["metadata"]["name"] for one in copy.request("GET", path)[1]["items"]] == ["training"]
    assert copy.request("POST", path, {**pool, "metadata": {"name": "batch"}})[0] == 201
    assert len(kube.request("GET", path)[1]["items"]) == 1
    assert strangers.twin(kube).request("GET", path)[0] == 404


def test_an_owner_switches_a_machine_by_hand_and_its_power_service_loses_track(make: t.Any) -> None:
    hand = make(machines=[{"name": "rack-1", "stop": 0}])
    client = httpx.Client(transport=httpx.WSGITransport(app=control.app(hand.box)), base_url="http://sandbox")
    power = httpx.Client(transport=httpx.WSGITransport(app=hand.box.apps["webhook"]), base_url="http://power")
    assert client.post("/machines/rack-1/power", json={"on": True}).json()["state"] == "starting"
    assert power.get("/rack-1/status").json()["state"] == "starting"
    client.post("/machines/rack-1/power", json={"on": False, "known": False})
    assert power.get("/rack-1/status").status_code == 503 and power.get("/status").json() == {"machines": []}
    client.post("/machines/rack-1/power", json={"known": True})
    assert power.get("/rack-1/status").json()["state"] == "off" and len(power.get("/status").json()["machines"]) == 1
    for nonsense in ({}, {"on": 1}, {"off": True}, [True]):
        assert client.post("/machines/rack-1/power", json=nonsense).status_code == 400
    assert client.post("/machines/rack-2/power", json={"on": True}).status_code == 404
