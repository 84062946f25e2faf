# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sandbox's Lambda: rulesets, the audit log, its manner of refusing, and what can be chosen of its behaviour."""

from __future__ import annotations

import time
import typing as t
from decimal import Decimal

import httpx
import pytest

from sandbox import lambda_cloud
from sandbox.clock import SimClock
from sandbox.lambda_account import Account
from sandbox.scenario import parse
from sandbox.world import Machine, World

KEY = "secret_unit_0123456789abcdef"
PLACE = {"type": "gpu_1x_a10", "region": "us-east-1", "stock": 9}
RULE = {"protocol": "udp", "port_range": [41641, 41641], "source_network": "0.0.0.0/0", "description": "mesh"}


class LambdaStand:
    """A client with a good key. Time stands still unless it is moved, and machines come up by :meth:`up` only."""

    def __init__(self, rate_limits: bool = False, **switches: t.Any) -> None:
        self.world = World(SimClock(speed=1e-9, start=1_800_000_000.0))
        self.world.secrets["LAMBDA_API_KEY"] = KEY
        parse({"lambda": {"offers": [PLACE], **switches}, "rate_limits": rate_limits}).furnish(self.world)
        self.http = httpx.Client(
            transport=httpx.WSGITransport(app=lambda_cloud.app(self.world)),
            base_url="http://lambda.test/api/v1",
            headers={"authorization": f"Bearer {KEY}"},
        )

    def call(self, method: str, path: str, body: t.Any = None, status: int = 200) -> t.Any:
        answer = self.http.request(method, path, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()["data" if status == 200 else "error"]

    def launch(self, status: int = 200, **fields: t.Any) -> t.Any:
        """The machine, or the error."""
        body = {"region_name": "us-east-1", "instance_type_name": "gpu_1x_a10", "ssh_key_names": ["tgp"], **fields}
        answer = self.call("POST", "/instance-operations/launch", body, status)
        return self.world.machines[answer["instance_ids"][0]] if status == 200 else answer

    def terminate(self, machine: Machine) -> None:
        self.call("POST", "/instance-operations/terminate", {"instance_ids": [machine.id]})

    def up(self, machine: Machine) -> None:
        self.world.clock.advance(machine.offer.boot_seconds)
        with self.world.lock:
            machine.state = "active"

    def show(self, machine: Machine) -> t.Any:
        return self.call("GET", f"/instances/{machine.id}")

    def ruleset(self, **fields: t.Any) -> t.Any:
        return self.call("POST", "/firewall-rulesets", {"name": "nodes", "region": "us-east-1", "rules": [RULE], **fields})

    def until(self, what: t.Callable[[], t.Any]) -> None:
        """Wait (real seconds) for what a thread of the emulator does."""
        end = time.monotonic() + 60
        while not what():
            assert time.monotonic() < end, "did not happen"
            time.sleep(0.01)


@pytest.fixture
def stand() -> LambdaStand:
    return LambdaStand()


# ---- rulesets


def test_a_ruleset_is_changed_in_part(stand: LambdaStand) -> None:
    made = stand.ruleset()
    path = f"/firewall-rulesets/{made['id']}"
    renamed = stand.call("PATCH", path, {"name": "other"})
    assert renamed == {**made, "name": "other"}
    rules = [{**RULE, "port_range": [22, 80], "protocol": "tcp"}]
    assert stand.call("PATCH", path, {"rules": rules}) == {**renamed, "rules": rules} == stand.call("GET", path)
    assert stand.call("PATCH", path, {}) == stand.call("GET", path)
    assert stand.call("PATCH", path, {"rules": []})["rules"] == []


def test_the_ruleset_of_all_regions_is_that_of_the_account(stand: LambdaStand) -> None:
    changed = stand.call("PATCH", "/firewall-rulesets/global", {"rules": [RULE]})
    assert (changed["id"], changed["rules"]) == ("global", [RULE]) and set(changed) == {"id", "name", "rules"}
    assert stand.call("GET", "/firewall-rulesets/global") == changed and stand.call("GET", "/firewall-rules") == [RULE]
    assert stand.call("PATCH", "/firewall-rulesets/global", {}) == changed
    refused = stand.call("PATCH", "/firewall-rulesets/global", {"name": "mine"}, 400)
    assert refused["code"] == "global/invalid-parameters" and refused["message"].startswith("name:")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"region": "us-west-1"}, "region"),
        ({"name": "x" * 65}, "name"),
        ({"name": None}, "name"),
        ({"rules": {}}, "rules"),
        ({"rules": [{**RULE, "protocol": "sctp"}]}, "protocol"),
        ({"rules": [{**RULE, "port_range": [443, 80]}]}, "port_range"),
        ({"rules": [{**RULE, "port_range": [0, 80]}]}, "port_range"),
        ({"rules": [{**RULE, "port_range": "80"}]}, "port_range"),
        ({"rules": [{**RULE, "source_network": "::/0"}]}, "source_network"),
        ({"rules": [{name: value for name, value in RULE.items() if name != "description"}]}, "description"),
    ],
    ids=str,
)
def test_a_change_that_cannot_be_leaves_the_ruleset_as_it_is(stand: LambdaStand, change: dict[str, t.Any], field: str) -> None:
    made = stand.ruleset()
    refused = stand.call("PATCH", f"/firewall-rulesets/{made['id']}", {"name": "other", **change}, 400)
    assert refused["code"] == "global/invalid-parameters" and refused["message"].startswith(f"{field}:")
    assert stand.call("GET", "/firewall-rulesets") == [made]


def test_a_ruleset_in_use_stays(stand: LambdaStand) -> None:
    made = stand.ruleset()
    machine = stand.launch(firewall_rulesets=[{"id": made["id"]}])
    path = f"/firewall-rulesets/{made['id']}"
    assert stand.call("GET", path)["instance_ids"] == [machine.id]
    refused = stand.call("DELETE", path, None, 400)
    assert refused["code"] == "firewall-rulesets/firewall-ruleset-in-use" and refused["suggestion"]
    stand.terminate(machine)
    assert stand.call("DELETE", path) == {}
    gone = stand.call("PATCH", path, {"name": "x"}, 404)
    assert gone["code"] == "global/object-does-not-exist" and gone["suggestion"]


# ---- refusals


@pytest.mark.parametrize(
    "fields",
    [
        {"region_name": "moon-1"},
        {"instance_type_name": "gpu_9x_none"},
        {"ssh_key_names": ["nobody"]},
        {"image": {"family": "windows"}},
        {"image": {"id": "0" * 32}},
        {"file_system_names": ["none"]},
        {"firewall_rulesets": [{"id": "0" * 32}]},
    ],
    ids=str,
)
def test_a_launch_of_what_does_not_exist_says_what_to_do(stand: LambdaStand, fields: dict[str, t.Any]) -> None:
    refused = stand.launch(404, **fields)
    assert refused["code"] == "global/object-does-not-exist" and refused["suggestion"]
    assert not stand.world.machines


def test_what_is_no_object_of_a_launch_is_simply_not_found(stand: LambdaStand) -> None:
    for method, path, body in (
        ("DELETE", f"/ssh-keys/{'0' * 32}", None),
        ("POST", "/filesystems", {"name": "data", "region": "moon-1"}),
        ("POST", "/firewall-rulesets", {"name": "data", "region": "moon-1", "rules": []}),
        ("GET", "/tickets", None),
    ):
        assert stand.call(method, path, body, 404)["code"] == "global/not-found", path
    for path in (f"/instances/{'0' * 32}", f"/firewall-rulesets/{'0' * 32}"):
        assert stand.call("GET", path, None, 404)["code"] == "global/object-does-not-exist", path
    assert stand.call("DELETE", f"/filesystems/{'0' * 32}", None, 404)["code"] == "global/object-does-not-exist"


def test_filesystems_have_names_of_their_own(stand: LambdaStand) -> None:
    stand.call("POST", "/filesystems", {"name": "data", "region": "us-east-1"})
    assert stand.call("POST", "/filesystems", {"name": "data", "region": "us-east-1"}, 400)["code"] == "global/duplicate"
    stand.call("POST", "/filesystems", {"name": "data", "region": "us-west-1"})
    for name in ("1st", "with blank", "x" * 61, ""):
        assert stand.call("POST", "/filesystems", {"name": name, "region": "us-east-1"}, 400)["code"] == "global/invalid-parameters"


@pytest.mark.parametrize(("form", "body"), [("json", None), ("text", "Too many requests."), ("empty", "")])
@pytest.mark.parametrize("says_when", [True, False])
def test_forms_of_a_429(form: str, body: str | None, says_when: bool) -> None:
    stand = LambdaStand(rate_limits=True, pace_form=form, retry_after=says_when)
    assert stand.http.get("/instances").status_code == 200
    answer = stand.http.get("/instances")
    assert answer.status_code == 429
    if body is None:
        assert answer.json()["error"]["code"] == "global/too-many-requests"
    else:
        assert answer.text == body
    assert answer.headers.get("Retry-After") == ("1" if says_when else None)
    stand.world.clock.advance(60)
    assert stand.http.post("/instance-operations/launch", json={}).status_code == 400
    stand.world.clock.advance(2)
    early = stand.http.post("/instance-operations/launch", json={})
    assert early.status_code == 429 and early.headers.get("Retry-After") == ("12" if says_when else None)


# ---- the audit log


def events(stand: LambdaStand, **query: str) -> list[dict[str, t.Any]]:
    """All pages."""
    found: list[dict[str, t.Any]] = []
    while True:
        answer = stand.http.get("/audit-events", params=query)
        assert answer.status_code == 200 and set(answer.json()) == {"data", "page_token"}, answer.text
        found += answer.json()["data"]
        if answer.json()["page_token"] is None:
            return found
        query["page_token"] = answer.json()["page_token"]


def test_every_change_is_in_the_audit_log(stand: LambdaStand) -> None:
    key = stand.call("POST", "/ssh-keys", {"name": "mine", "public_key": "ssh-ed25519 AAAA me"})
    machine = stand.launch(name="a", ssh_key_names=["mine"])
    stand.launch(400, quantity=2)
    stand.call("POST", f"/instances/{machine.id}", {"name": "b"})
    stand.up(machine)
    stand.call("POST", "/instance-operations/restart", {"instance_ids": [machine.id]})
    stand.terminate(machine)
    stand.call("DELETE", f"/ssh-keys/{key['id']}")
    volume = stand.call("POST", "/filesystems", {"name": "data", "region": "us-east-1"})
    stand.call("DELETE", f"/filesystems/{volume['id']}")
    ruleset = stand.ruleset()
    stand.call("PATCH", f"/firewall-rulesets/{ruleset['id']}", {"name": "x"})
    stand.call("PATCH", "/firewall-rulesets/global", {"rules": []})
    stand.call("PUT", "/firewall-rules", {"data": [RULE]})
    stand.call("DELETE", f"/firewall-rulesets/{ruleset['id']}")
    told = events(stand)
    assert [(one["resource_name"], one["action"], one["resource_lrns"][0].rpartition(":")[2]) for one in told] == [
        ("ssh_key", "created", key["id"]),
        ("instance", "launched", machine.id),
        ("instance", "updated", machine.id),
        ("instance", "restarted", machine.id),
        ("instance", "terminated", machine.id),
        ("ssh_key", "deleted", key["id"]),
        ("filesystem", "created", volume["id"]),
        ("filesystem", "deleted", volume["id"]),
        ("firewall_ruleset", "created", ruleset["id"]),
        ("firewall_ruleset", "updated", ruleset["id"]),
        ("firewall_ruleset", "updated", "global"),
        ("firewall_ruleset", "updated", "global"),
        ("firewall_ruleset", "deleted", ruleset["id"]),
    ]
    launched = told[1]
    assert launched["additional_details"] == {
        "instance_lrn": f"lrn:cloud:instance:{machine.id}", "instance_type": "gpu_1x_a10", "region": "us-east-1",
    }  # fmt: skip
    assert launched["service_name"] == "cloud" and launched["request_api_key_lrn"].startswith("lrn:cloud:api_key:")
    assert len({one["event_id"] for one in told}) == len(told) and KEY not in str(told)


def test_the_audit_log_dates_a_machine_and_is_searched(stand: LambdaStand) -> None:
    first = stand.launch()
    stand.world.clock.advance(100)
    middle = stand.world.clock.now().isoformat()
    stand.call("POST", "/ssh-keys", {"name": "mine"})
    stand.world.clock.advance(100)
    second = stand.launch()
    (dated,) = [one for one in events(stand) if f"lrn:cloud:instance:{first.id}" in one["resource_lrns"]]
    assert dated["event_time"] == first.created.isoformat(timespec="microseconds").replace("+00:00", "Z")
    machines = events(stand, resource_type="cloud.instance")
    assert [one["resource_lrns"] for one in machines] == [[f"lrn:cloud:instance:{one.id}"] for one in (first, second)]
    assert [one["resource_name"] for one in events(stand, start=middle)] == ["ssh_key", "instance"]
    assert [one["resource_name"] for one in events(stand, end=middle)] == ["instance", "ssh_key"]
    assert events(stand, start=middle, end=middle, resource_type="cloud.instance") == []
    for wrong in ({"start": "yesterday"}, {"end": "13:00 o'clock"}, {"page_token": "nonsense"}, {"page_token": "bmV4dDp4"}):
        answer = stand.http.get("/audit-events", params=wrong)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "global/invalid-parameters"), wrong


def test_the_audit_log_has_pages_that_neither_repeat_nor_lose() -> None:
    stand = LambdaStand(audit_page=2)
    made = [stand.launch().id for _turn in range(5)]
    first = stand.http.get("/audit-events").json()
    assert len(first["data"]) == 2 and first["page_token"]
    made.append(stand.launch().id)  # between two pages
    rest = events(stand, page_token=first["page_token"])
    assert [one["resource_lrns"][0].rpartition(":")[2] for one in (*first["data"], *rest)] == made
    stand.call("POST", "/ssh-keys", {"name": "mine"})
    assert len(events(stand, resource_type="cloud.instance")) == 6


# ---- machines


def test_a_new_machine_is_listed_late() -> None:
    stand = LambdaStand(list_after=45)
    machine = stand.launch()
    assert stand.call("GET", "/instances") == [] and stand.show(machine)["id"] == machine.id
    stand.world.clock.advance(46)
    assert [one["id"] for one in stand.call("GET", "/instances")] == [machine.id]


def test_a_machine_is_listed_in_the_moment_of_its_launch() -> None:
    """Also where that moment is rounded up to a whole microsecond: the clock of a busy process may stand still from one call to the next."""
    stand = LambdaStand()
    stand.world.clock.advance(7e-7)
    machine = stand.launch()
    assert machine.created.timestamp() > stand.world.clock.seconds()
    assert [one["id"] for one in stand.call("GET", "/instances")] == [machine.id]


def test_actions_follow_the_state() -> None:
    stand = LambdaStand(too_old_after=3600)
    machine = stand.launch()

    def codes() -> dict[str, str]:
        return {name: one.get("reason_code", "") for name, one in stand.show(machine)["actions"].items()}

    def all_but_terminate(code: str) -> dict[str, str]:
        return {**dict.fromkeys(("migrate", "rebuild", "restart", "cold_reboot"), code), "terminate": ""}

    assert codes() == all_but_terminate("vm-has-not-launched")
    stand.up(machine)
    assert codes() == all_but_terminate("")
    stand.world.clock.advance(3600)
    assert codes() == {**all_but_terminate(""), "migrate": "vm-is-too-old"}
    stand.call("POST", "/instance-operations/restart", {"instance_ids": [machine.id]})
    assert codes() == all_but_terminate("vm-action-in-progress")
    stand.terminate(machine)
    assert set(codes().values()) == {"vm-is-terminating"}


def test_without_a_word_every_machine_that_is_up_is_too_old_to_migrate(stand: LambdaStand) -> None:
    machine = stand.launch()
    assert stand.show(machine)["actions"]["migrate"]["reason_code"] == "vm-has-not-launched"
    stand.up(machine)
    assert stand.show(machine)["actions"]["migrate"]["reason_code"] == "vm-is-too-old"


def test_a_machine_that_is_taken_back_is_shown_preempted_for_a_while() -> None:
    stand = LambdaStand(preempted_seconds=30)
    machine = stand.launch()
    stand.up(machine)
    stock = machine.offer.stock
    stand.world.on_taken["lambda"](machine)
    stand.world.on_taken["lambda"](machine)
    assert stand.show(machine)["status"] == "preempted" and [one["id"] for one in stand.call("GET", "/instances")] == [machine.id]
    assert machine.ended == stand.world.clock.now() and machine.offer.stock == stock + 1
    (told,) = [one for one in events(stand) if one["action"] == "preempted"]
    assert told["actor_lrn"] is None and told["request_api_key_lrn"] is None
    refused = stand.call("POST", "/instance-operations/restart", {"instance_ids": [machine.id]}, 409)
    assert refused["code"] == "global/conflict"
    stand.world.clock.advance(31)
    stand.until(lambda: machine.destroyed is not None)
    assert stand.call("GET", "/instances") == []
    assert stand.call("GET", f"/instances/{machine.id}", None, 404)["code"] == "global/object-does-not-exist"


def test_addresses_are_reused_only_when_they_are_to_be(stand: LambdaStand) -> None:
    def address(one: LambdaStand, machine: Machine) -> str:
        one.up(machine)
        return str(one.show(machine)["ip"])

    first = stand.launch()
    old = address(stand, first)
    stand.terminate(first)
    assert address(stand, stand.launch()) != old
    reusing = LambdaStand(reuse_addresses=True)
    kept, gone = reusing.launch(), reusing.launch()
    held, free = address(reusing, kept), address(reusing, gone)
    reusing.terminate(gone)
    again, other = reusing.launch(), reusing.launch()
    assert address(reusing, again) == free and address(reusing, other) not in (held, free)
    assert again.details["addresses"][1] != gone.details["addresses"][1], "private ones are not"


def test_a_quota_and_an_account_that_was_never_verified() -> None:
    small = LambdaStand(quota=1)
    small.launch()
    assert small.launch(400)["code"] == "global/quota-exceeded"
    assert LambdaStand(active=False).launch(403)["code"] == "global/account-inactive"
    assert Account.of(LambdaStand().world).quota is None


def test_a_file_system_is_mounted_in_its_region_and_billed_without_machines() -> None:
    stand = LambdaStand(
        file_systems=[{"name": "sets", "region": "us-east-1", "gb": 730}, {"name": "far", "region": "us-west-1", "gb": 1}]
    )
    near, far = stand.call("GET", "/file-systems")
    assert (near["bytes_used"], near["is_in_use"], near["region"]["name"]) == (730 * 10**9, False, "us-east-1")
    mounts = [{"mount_point": "/data/sets", "file_system_id": near["id"]}]
    machine = stand.launch(file_system_names=["sets"], file_system_mounts=mounts)
    assert machine.details["file_system_names"] == ["sets"], "named twice, mounted once"
    assert stand.call("GET", "/file-systems")[0]["is_in_use"] is True
    assert stand.call("DELETE", f"/filesystems/{near['id']}", status=400)["code"] == "filesystems/filesystem-in-use"
    refusal = stand.launch(400, file_system_names=["far"])
    assert refusal["code"] == "instance-operations/launch/file-system-in-wrong-region"
    stand.terminate(machine)
    storage, now = Account.of(stand.world).storage, stand.world.clock.now
    before = storage.cost(now())
    stand.world.clock.advance(3600)
    assert abs(storage.cost(now()) - before - storage.month / 730) < Decimal("0.0001"), "an hour of a month"
    stand.call("DELETE", f"/filesystems/{near['id']}")
    stand.call("DELETE", f"/filesystems/{far['id']}")
    spent = storage.cost(now())
    stand.world.clock.advance(3600)
    assert storage.month == 0 and storage.cost(now()) == spent > before
