# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The truth from outside, and the levers."""

from __future__ import annotations

import json
import typing as t
from decimal import Decimal

import httpx
import pytest

from sandbox import control


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
