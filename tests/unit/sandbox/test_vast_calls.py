# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists, keys, pace, rights and money of the sandbox's Vast, and its place in a sandbox."""

from __future__ import annotations

import json
import time
import typing as t
from datetime import timedelta
from decimal import Decimal

import pytest

from sandbox import vast_cloud
from sandbox.box import Box
from sandbox.clock import SimClock
from sandbox.scenario import parse
from sandbox.vast_cloud import vast_offers

from .vast_stand import KEY, VastStand


@pytest.fixture(scope="module")
def many() -> VastStand:
    """60 instances, labelled n-0 to n-58 and one without a label."""
    stand = VastStand(*vast_offers(seed=1, count=60), list_after=0.0)
    for index, offer in enumerate(list(stand.world.offers)):
        stand.create(int(offer.type), disk=8, label=f"n-{index}" if index < 59 else None)
    return stand


def test_the_list_has_pages(many: VastStand) -> None:
    seen, token, sizes = [], None, []
    while True:
        page = many.listed(limit="25", **({"after_token": token} if token else {}))
        seen += [row["id"] for row in page["instances"]]
        sizes.append(len(page["instances"]))
        token = page["next_token"]
        if token is None:
            break
    assert sizes == [25, 25, 10] and seen == sorted(set(seen)) and page["total_instances"] == 60
    assert many.listed()["instances_found"] == 60 and len(many.listed()["instances"]) == 25


def test_the_list_is_filtered_ordered_and_cut(many: VastStand) -> None:
    rows = many.listed(select_filters=json.dumps({"label": {"in": ["n-3", "n-7"]}}), select_cols='["id", "label"]')["instances"]
    assert [set(row) for row in rows] == [{"id", "label"}] * 2
    assert len(many.listed(select_filters='{"label": {"in": [null]}}')["instances"]) == 1
    rows = many.listed(order_by='[{"col": "id", "dir": "desc"}]')["instances"]
    assert [row["id"] for row in rows] == sorted((row["id"] for row in rows), reverse=True)
    assert many.listed(select_filters='{"label": {"in": ["n-3"]}}')["label_counts"] == {"n-3": 1}


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ({"limit": "26"}, "invalid_request"),
        ({"limit": "0"}, "invalid_request"),
        ({"after_token": "nonsense"}, "invalid_token"),
        ({"select_filters": '{"dph_total": {"lt": 1}}'}, "invalid_request"),
        ({"select_filters": '{"num_gpus": {"eq": 1}}'}, "invalid_request"),
        ({"select_filters": "{"}, "invalid_request"),
        ({"select_filters": '{"label": {"like": "n-%"}}'}, "invalid_request"),
        ({"order_by": "id"}, "invalid_request"),
    ],
    ids=str,
)
def test_impossible_lists(query: dict[str, str], error: str) -> None:
    answer = VastStand().http.get("/api/v1/instances/", params=query)  # also of an account without instances
    assert (answer.status_code, answer.json()["error"]) == (400, error)


def test_the_old_list_is_gone(many: VastStand) -> None:
    assert many.call("GET", "/api/v0/instances/", None, 410)["error"] == "deprecated_endpoint"
    assert {row["label"] for row in many.call("GET", "/api/v0/instances/filters/")["filters"]} >= {"n-1", None}


def test_a_new_instance_is_listed_after_a_minute() -> None:
    """Unless a scenario says otherwise: the longest that was seen."""
    stand = VastStand()
    number = stand.create()
    stand.world.clock.advance(59)
    assert stand.listed()["instances"] == [] and stand.show(number)["id"] == number
    stand.world.clock.advance(2)
    assert [row["id"] for row in stand.listed()["instances"]] == [number]


def test_a_new_instance_is_listed_late_and_a_list_can_be_half() -> None:
    stand = VastStand(list_after=30.0)
    numbers = [stand.create(), stand.create()]
    assert stand.listed()["instances"] == [] and stand.show(numbers[0])["id"] == numbers[0]
    stand.world.clock.advance(31)
    vast_cloud.set_up(stand.world, {"partial_lists": 1})
    assert [len(stand.listed()["instances"]) for _turn in range(2)] == [1, 2]


def test_an_instance_is_listed_in_the_moment_of_its_creation() -> None:
    """Also where that moment is rounded up to a whole microsecond."""
    stand = VastStand(list_after=0.0)
    stand.world.clock.advance(7e-7)
    number = stand.create()
    assert stand.machine(number).created.timestamp() > stand.world.clock.seconds()
    assert [row["id"] for row in stand.listed()["instances"]] == [number]


# ---- who may call


@pytest.mark.parametrize("status", [401, 404])
@pytest.mark.parametrize("authorization", ["", "Bearer wrong", f"Basic {KEY}", KEY])
def test_a_bad_key(status: int, authorization: str) -> None:
    stand = VastStand(auth_status=status)
    for path in ("/api/v1/instances/", "/api/v0/instances/5/", "/api/v0/users/current"):
        answer = stand.client(authorization).get(path)
        assert (answer.status_code, answer.json()["error"], answer.json()["msg"]) == (status, "auth_error", "Invalid user key")
    assert stand.client().get("/api/v0/users/current/", params={"api_key": KEY}).status_code == status  # not in addresses


def test_rights_and_two_factors() -> None:
    stand = VastStand(missing_rights="instance_write billing_read")
    assert stand.create(8_099_001, 403)["success"] is False
    assert stand.call("GET", "/api/v0/charges/", None, 403)["error"] == "invalid_args"
    stand.listed()
    guarded = VastStand(two_factor=True)
    assert guarded.create(8_099_001, 401)["msg"].startswith("Two Factor Authentication")
    assert VastStand(session_expired=True).create(8_099_001, 404)["msg"].startswith("Session expired")


def test_addresses_end_with_a_slash() -> None:
    stand = VastStand()
    for method, path in (("GET", "/api/v1/instances"), ("POST", "/api/v0/bundles"), ("GET", "/api/v0/instances/5")):
        answer = stand.http.request(method, path)
        assert answer.status_code == 308 and answer.headers["location"].endswith(f"{path}/")
    assert stand.call("GET", "/api/v0/nothing/", None, 404)["success"] is False


@pytest.mark.parametrize(("key", "value"), [("auth_status", 500), ("gone_as", "410"), ("pace_form", "xml"), ("mood", "bad")])
def test_impossible_switches(key: str, value: t.Any) -> None:
    with pytest.raises(ValueError, match=key):
        vast_cloud.set_up(VastStand().world, {key: value})


# ---- how fast


def paced(**switches: t.Any) -> VastStand:
    stand = VastStand(**switches)
    stand.world.rate_limits = True
    return stand


@pytest.mark.parametrize(
    ("method", "path", "interval"),
    [
        ("GET", "/api/v1/instances/", 1.0),
        ("GET", "/api/v0/instances/7/", 2.0),
        ("PUT", "/api/v0/instances/7/", 1.0),
        ("PUT", "/api/v0/instances/bid_price/7/", 5.5),
        ("DELETE", "/api/v0/instances/7/", 3.0),
        ("GET", "/api/v0/ssh/", 1.0),
        ("GET", "/api/v0/secrets/", 3.0),
    ],
)
def test_each_endpoint_has_its_pace(method: str, path: str, interval: float) -> None:
    stand = paced()
    first = stand.http.request(method, path).status_code
    assert first != 429
    stand.world.clock.advance(interval - 0.1)
    early = stand.http.request(method, path)
    assert early.status_code == 429 and early.text.startswith("API requests too frequent") and f"threshold={interval}" in early.text
    stand.world.clock.advance(0.2)
    assert stand.http.request(method, path).status_code == first
    assert stand.http.get("/api/v0/users/current/").status_code == 200  # another endpoint


def test_creating_too_fast_is_punished() -> None:
    stand = paced()
    stand.http.put("/api/v0/asks/1/", json={})
    assert stand.http.put("/api/v0/asks/1/", json={}).status_code == 429
    stand.world.clock.advance(5)
    assert stand.http.put("/api/v0/asks/1/", json={}).status_code == 429
    stand.world.clock.advance(7.1)
    assert stand.http.put("/api/v0/asks/1/", json={}).status_code == 400


def test_ten_searches_a_minute_and_so_many_a_day() -> None:
    stand = paced(search_quota=12)
    codes = [stand.http.post("/api/v0/bundles/", json={}).status_code for _turn in range(11)]
    assert codes == [200] * 10 + [429]
    stand.world.clock.advance(61)
    assert [stand.http.post("/api/v0/bundles/", json={}).status_code for _turn in range(2)] == [200, 200]
    ended = stand.http.post("/api/v0/bundles/", json={})
    assert (ended.status_code, ended.json()["error"]) == (429, "search_quota_exceeded")
    reset = float(ended.headers["X-RateLimit-Reset"])
    stand.world.clock.advance(reset - stand.world.clock.seconds() + 1)
    assert stand.http.post("/api/v0/bundles/", json={}).status_code == 200


@pytest.mark.parametrize(("form", "key"), [("detail", "detail"), ("json", "error")])
def test_forms_of_a_429(form: str, key: str) -> None:
    stand = paced(pace_form=form, retry_after=True)
    answer = [stand.http.get("/api/v1/instances/") for _turn in range(2)][1]
    assert key in answer.json() and answer.headers["Retry-After"] == "1"
    if form == "json":
        assert answer.json()["error"] == "rate_limit_exceeded" and answer.json()["retry_after"] == 1


def test_both_forms_of_a_429_in_turn() -> None:
    stand = paced(pace_form="mixed")
    answers = [stand.http.get("/api/v1/instances/") for _turn in range(4)][1:]
    assert [one.status_code for one in answers] == [429] * 3
    assert [one.headers["Content-Type"].partition(";")[0] for one in answers] == ["text/plain", "application/json", "text/plain"]
    assert "retry_after" not in answers[1].json() and "Retry-After" not in answers[1].headers


# ---- money and keys


def test_charges_name_what_the_world_bills() -> None:
    stand = VastStand()
    number = stand.create(label="a")
    stand.up(number)
    stand.world.clock.advance(26 * 3600)
    machine, late = stand.machine(number), timedelta(minutes=5)
    first = machine.created.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    day = json.dumps({"day": {"gte": first, "lte": first + 3 * 86400}, "type": {"in": ["instance"]}})
    page = stand.http.get("/api/v0/charges/", params={"select_filters": day}).json()
    hours, traffic = float(machine.cost(stand.world.clock.now() - late)), float(machine.traffic_cost())
    rows = page["results"]
    assert sum(row["amount"] for row in rows) == pytest.approx(hours + traffic, abs=0.005) and traffic > 0
    assert [row["start"] for row in rows] == [first + 86400 * number for number in range(len(rows))] and len(rows) in (2, 3)
    assert {row["source"] for row in rows} == {f"instance-{number}"} and rows[0]["metadata"] == {"label": "a"}
    kinds = {item["type"]: item["amount"] for item in rows[-1]["items"]}
    assert (
        set(kinds) <= {"gpu", "disk", "bwd", "bwu"} and "bwd" in kinds and rows[-1]["amount"] == pytest.approx(sum(kinds.values()))
    )
    left = stand.call("GET", "/api/v0/users/current/")["credit"]
    assert left == pytest.approx(1000 - float(machine.cost(stand.world.clock.now())) - traffic)
    assert stand.http.get("/api/v0/charges/").status_code == 400
    assert stand.http.get("/api/v0/charges/", params={"select_filters": day, "limit": "501"}).status_code == 400
    assert stand.call("GET", "/api/v1/invoices/")["results"][0]["amount"] == 1000


def test_keys_of_account_and_container() -> None:
    stand = VastStand(ssh_key=False)
    assert stand.call("GET", "/api/v0/ssh/") == [] and stand.call("GET", "/api/v0/users/current/")["ssh_key"] is None
    made = stand.call("POST", "/api/v0/ssh/", {"ssh_key": "ssh-ed25519 AAAA me"})["key"]
    stand.call("POST", "/api/v0/ssh/", {"ssh_key": "ssh-ed25519 AAAA me"}, 400)
    stand.call("PUT", f"/api/v0/ssh/{made['id']}/", {"ssh_key": "ssh-ed25519 BBBB me"})
    assert [key["public_key"] for key in stand.call("GET", "/api/v0/ssh/")] == ["ssh-ed25519 BBBB me"]
    stand.call("DELETE", "/api/v0/ssh/5/", None, 404)
    number = stand.create()
    stand.call("POST", f"/api/v0/instances/{number}/ssh/", {"ssh_key": "ssh-ed25519 CCCC me"})
    held = stand.call("GET", f"/api/v0/instances/{number}/ssh/")["ssh_keys"]
    assert [key["public_key"] for key in held] == ["ssh-ed25519 BBBB me", "ssh-ed25519 CCCC me"]
    stand.call("DELETE", f"/api/v0/instances/{number}/ssh/{held[1]['id']}/")
    stand.call("DELETE", f"/api/v0/instances/{number}/ssh/{held[1]['id']}/", None, 404)


def test_variables_of_the_account_reach_every_new_instance() -> None:
    stand = VastStand()
    stand.call("POST", "/api/v0/secrets/", {"key": "HF_TOKEN", "value": "of-the-account"})
    stand.call("POST", "/api/v0/secrets/", {"key": "A", "value": "of-the-account"})
    stand.call("POST", "/api/v0/secrets/", {"key": "A", "value": "twice"}, 400)
    stand.call("POST", "/api/v0/secrets/", {"key": "", "value": "x"}, 400)
    stand.call("POST", "/api/v0/secrets/", {"key": "B"}, 400)
    number = stand.create(env={"A": "own"})
    given = stand.machine(number).details["environment"]
    assert (given["HF_TOKEN"], given["A"]) == ("of-the-account", "own")
    assert stand.show(number)["extra_env"] == [["A", "own"]]
    stand.call("PUT", "/api/v0/secrets/", {"key": "HF_TOKEN", "value": "new"})
    assert stand.call("GET", "/api/v0/secrets/")["secrets"] == {"HF_TOKEN": "new", "A": "of-the-account"}
    stand.call("DELETE", "/api/v0/secrets/", {"key": "HF_TOKEN"})
    stand.call("DELETE", "/api/v0/secrets/", {"key": "HF_TOKEN"}, 404)
    stand.call("PUT", "/api/v0/secrets/", {"key": "HF_TOKEN", "value": "x"}, 404)
    assert "HF_TOKEN" not in stand.machine(stand.create()).details["environment"]
    weak = VastStand(missing_rights="user_write")
    assert weak.call("POST", "/api/v0/secrets/", {"key": "A", "value": "b"}, 403)["success"] is False


# ---- in a sandbox


def test_a_spot_machine_of_a_sandbox_vanishes() -> None:
    """The whole way: scenario, story of the machine, behaviour, bill."""
    offer = {"gpu": "RTX 4090", "id": 31, "price": "0.4", "min_bid": "0.2", "vm": True, "storage": "0.72", "boot": 60}
    scenario = {
        "vast": {"offers": [offer], "list_after": 0},
        "behaviours": [{"kind": "vanish", "cloud": "vast", "seconds": 660}],
        "rate_limits": False,
    }
    with Box(parse(scenario), clock=SimClock(speed=1.0)) as box:  # time passes by moves: how busy this machine is does not matter
        stand = VastStand.__new__(VastStand)
        stand.world, stand.app = box.world, box.apps["vast"]
        stand.http = stand.client(f"Bearer {box.world.secrets['VAST_API_KEY']}")
        machine = stand.machine(stand.create(31, price=0.25))

        def until(what: t.Callable[[], t.Any]) -> None:
            end = time.monotonic() + 60
            while not what():
                assert time.monotonic() < end, machine.steps
                time.sleep(0.01)

        until(lambda: machine.steps)  # it has begun to boot
        box.world.clock.advance(61)
        until(lambda: machine.state == "active")
        box.world.clock.advance(600)
        until(lambda: machine.state == "stopped")
        box.world.clock.advance(60)
        row = stand.show(int(machine.id))
        assert [row[name] for name in ("cur_state", "intended_status", "next_state")] == ["stopped"] * 3
        spans = machine.bill(box.world.clock.now())
        assert [price for span, price in spans if span] == [Decimal("0.016"), Decimal("0.266"), Decimal("0.016")]
        running = next(span for span, price in spans if price == Decimal("0.266"))
        assert 570 < running.total_seconds() < 630
