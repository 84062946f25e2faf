# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""provider_verify for own machines: where it takes them from, what it asks their power services, and what it never does."""

from __future__ import annotations

import base64
import json
import time
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.verify.facts.fact import Reply
from ansible_collections.tgp.gpu.plugins.module_utils.verify.facts.webhook import SECONDS, PowerService, table
from ansible_collections.tgp.gpu.plugins.module_utils.verify.own_machines import NOBODY

from sandbox.wsgi import Environ, StartResponse
from tests.contract.clouds.stands import KEY

from .stage import OWN, OWN_MACHINES, Subject, own_machines

CLASS: dict[str, t.Any] = {
    "apiVersion": "tgp.io/v1",
    "kind": "GPUNodeClass",
    "metadata": {"name": "own"},
    "spec": {
        "providers": [
            {
                "name": "webhook",
                "machines": [
                    {
                        "name": "rack-2",
                        "gpuCount": 2,
                        "scaleUpEndpoint": "/rack-2/start",
                        "scaleDownEndpoint": "/rack-2/stop",
                        "statusEndpoint": "/rack-2/status",
                    }
                ],
            }
        ],
        "networking": {"backend": "none"},
        "talosConfig": {"machineConfigTemplate": "machine: {}"},
    },
}


@pytest.fixture
def own() -> t.Iterator[Subject]:
    made = Subject(OWN)
    yield made
    made.close()


class Sent:
    """The calls that reach the power service, as "METHOD path header"; ``answer`` replaces the status endpoint's."""

    def __init__(self, subject: Subject, answer: t.Callable[[Environ], tuple[str, str] | None] = lambda _environ: None) -> None:
        self.calls: list[str] = []
        self._app, self._answer = subject.app, answer
        subject.app = self

    def __call__(self, environ: Environ, start_response: StartResponse) -> t.Iterable[bytes]:
        header = environ.get("HTTP_AUTHORIZATION") or environ.get("HTTP_X_POWER_KEY", "")
        self.calls.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']} {header}".strip())
        given = self._answer(environ)
        if given is None:
            return self._app(environ, start_response)
        start_response(given[0], [("content-type", "application/json")])
        return [given[1].encode()]


def outcomes(result: t.Mapping[str, t.Any]) -> dict[str, str]:
    return {row["id"].removeprefix("webhook."): row["outcome"] for row in result["report"]["facts"]}


def named(result: t.Mapping[str, t.Any]) -> set[str]:
    hidden = {row["id"].removeprefix("webhook.") for row in result["report"]["facts"] if row["hidden_by"]}
    return {name for name, outcome in outcomes(result).items() if outcome not in ("matches", "not checked")} - hidden


def seen(result: t.Mapping[str, t.Any]) -> dict[str, str]:
    return {row["id"].removeprefix("webhook."): row["seen"] for row in result["report"]["facts"]}


# ---- what is asked


def test_only_status_endpoints_are_asked_and_refused_calls_come_last(own: Subject) -> None:
    sent = Sent(own)
    own.run(webhook_machines=own_machines(2))
    assert sent.calls == [
        f"GET /rack-1/status {KEY}",
        f"GET /rack-2/status {KEY}",
        f"GET /rack-1/status {KEY}",
        f"GET /rack-2/status {KEY}",
        f"GET /{NOBODY}/status {KEY}",
        "GET /rack-1/status",
        "GET /rack-1/status Bearer tgp-verify-provider-invalid-key",
    ]


def test_the_time_of_an_answer_is_real_in_a_world_that_runs_faster(own: Subject) -> None:
    """The client's timeout counts real seconds, so a busy host must not make a service slow."""
    own.world.clock.run_at(1000)
    sent = Sent(own, lambda _environ: time.sleep(0.02))
    result = own.run(webhook_machines=own_machines(1))
    assert sent.calls and outcomes(result)["machine_1.seconds"] == "matches"


def test_the_screen_says_which_machine_has_which_number(own: Subject) -> None:
    own.run(check=True)
    assert [line for line in own.lines if "rack" in line] == [
        f"webhook: machine {number} is rack-{number}" for number in OWN_MACHINES
    ]
    assert "  GET status of machine 3 once more" in own.lines


def test_an_invalid_key_goes_where_the_key_goes(own: Subject) -> None:
    sent = Sent(own)
    own.run(webhook_auth_header="X-Power-Key")
    assert sent.calls[-2:] == ["GET /rack-1/status", "GET /rack-1/status tgp-verify-provider-invalid-key"]


def test_user_and_password_of_an_address_are_left_out_and_replaced(own: Subject) -> None:
    sent = Sent(own)
    (machine,) = own_machines(1)
    machine["status_endpoint"] = "https://admin:secret-of-the-bmc@power.test/rack-1/status"
    result = own.run(webhook_machines=[machine], webhook_auth_value=None)
    headers = [call.partition("/status")[2].strip().removeprefix("Basic ") for call in sent.calls]
    users = [base64.b64decode(one).decode() for one in headers]
    good = "admin:secret-of-the-bmc"
    assert users == [good, good, good, "", "admin:tgp-verify-provider-invalid-key"]
    assert "secret-of-the-bmc" not in json.dumps(result)


def test_each_service_is_asked_once_with_an_invalid_key(own: Subject) -> None:
    machines = own_machines(3)
    machines[2]["status_endpoint"] = "https://other.test/rack-3/status"
    sent = Sent(own)
    result = own.run(webhook_machines=machines)
    assert [call for call in sent.calls if "invalid" in call] == [
        f"GET /rack-{number}/status Bearer tgp-verify-provider-invalid-key" for number in (1, 3)
    ]
    assert {"unknown_2", "no_key_2.http", "bad_key_2.http"} <= set(outcomes(result)) and not result.get("failed")


# ---- what cannot be checked


def test_a_machine_without_a_status_endpoint_is_not_checked(own: Subject) -> None:
    machines = own_machines(2)
    del machines[0]["status_endpoint"]
    result = own.run(webhook_machines=machines)
    found = outcomes(result)
    assert not result.get("failed")
    assert {outcome for name, outcome in found.items() if "machine_1" in name} == {"not checked"}
    assert {outcome for name, outcome in found.items() if "machine_1" not in name} == {"matches"}


def test_without_any_status_endpoint_it_is_refused(own: Subject) -> None:
    machines = own_machines(2)
    for machine in machines:
        del machine["status_endpoint"]
    result = own.run(webhook_machines=machines)
    assert result["failed"] and "no machine has a status endpoint" in result["msg"] and own.world.calls == {}


def test_without_a_credential_calls_without_it_are_not_checked(own: Subject) -> None:
    own.world.secrets.clear()
    sent = Sent(own)
    result = own.run(webhook_auth_value=None)
    assert not result.get("failed") and len(sent.calls) == 9
    assert [name for name, outcome in outcomes(result).items() if outcome == "not checked"] == ["no_key_1.http", "bad_key_1.http"]


def test_an_address_without_the_name_is_not_asked_about_another_machine(own: Subject) -> None:
    machines = [{**one, "name": f"box-{number}"} for number, one in enumerate(own_machines(1), 1)]
    result = own.run(webhook_machines=machines)
    assert not result.get("failed") and outcomes(result)["unknown_1"] == "not checked"


def test_the_name_is_found_in_a_query_too(own: Subject) -> None:
    sent = Sent(own, lambda environ: ("200 OK", '{"state": "off"}'))
    (machine,) = own_machines(1)
    machine["status_endpoint"] = "/power?node=rack-1&verbose=1"
    result = own.run(webhook_machines=[machine])
    assert len(sent.calls) == 5 and outcomes(result)["unknown_1"] == "differs"


# ---- services that keep no contract


def test_a_service_that_lets_everybody_in_is_named(own: Subject) -> None:
    own.world.secrets.clear()
    result = own.run()
    assert result["failed"] and "Not as expected: webhook.no_key_1.http, webhook.bad_key_1.http." in result["msg"]
    assert "docs/reference/clouds.md" in result["msg"]


def test_a_refusal_is_named_once(own: Subject) -> None:
    result = own.run(webhook_auth_value="another-key")
    assert named(result) == {f"machine_{number}.http" for number in OWN_MACHINES}
    assert seen(result)["machine_1.http"] == "HTTP 401"


def test_a_service_that_fails_is_not_answered(own: Subject) -> None:
    assert own.stand is not None
    own.stand.faults.add({"kind": "status", "path": "/rack-2/status$", "status": 500, "times": None})
    result = own.run()
    assert {name for name, outcome in outcomes(result).items() if outcome == "no answer"} == {
        name for name in outcomes(result) if "machine_2" in name
    }
    assert "HTTP 500" in seen(result)["machine_2.state"]


def test_an_unknown_machine_may_be_an_error_of_the_server(own: Subject) -> None:
    Sent(own, lambda environ: ("500 Error", "{}") if NOBODY in environ["PATH_INFO"] else None)
    result = own.run()
    assert not result.get("failed") and seen(result)["unknown_1"] == "HTTP 500 without a state"


@pytest.mark.parametrize(
    ("state", "told"),
    [("poweredOff", "the word 'poweredoff'"), ("rack-1", "another word"), ("ON", "the word 'on'"), ("", "another word")],
)
def test_only_words_that_are_no_name_are_shown(own: Subject, state: str, told: str) -> None:
    Sent(own, lambda environ: ("200 OK", json.dumps({"state": state})) if "rack-1" in environ["PATH_INFO"] else None)
    result = own.run(webhook_auth_value=None)
    assert seen(result)["machine_1.word"] == told


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [("off", "starting", "matches"), ("stopping", "off", "matches"), ("on", "off", "differs"), ("off", "on", "differs")],
)
def test_a_state_may_move_on_between_two_answers(first: str, second: str, outcome: str) -> None:
    made = table([True], [PowerService(1, named=True, keyed=True)], 5.0)
    replies = {"machine_1": Reply(200, {"state": first}), "again_1": Reply(200, {"state": second})}
    (fact,) = [one for one in made.facts if one.id == "webhook.machine_1.again"]
    assert fact.verdict(replies, lane="").outcome == outcome


@pytest.mark.parametrize(
    ("location", "told"),
    [("https://else.test/a", "HTTP 301 to an https address"), ("/login", "HTTP 301 to a path"), ("", "HTTP 301 to a path")],
)
def test_where_a_redirect_leads_is_told_without_the_address(location: str, told: str) -> None:
    made = table([True], [], 5.0)
    replies = {"machine_1": Reply(301, headers={"location": location, SECONDS: "0"})}
    found = {one.id: one.verdict(replies, lane="") for one in made.facts if one.asks == ("machine_1",)}
    assert found["webhook.machine_1.redirect"].seen == told
    assert found["webhook.machine_1.http"].outcome == "not seen"


# ---- where the machines come from


def test_machines_of_a_document(own: Subject, tmp_path: Path) -> None:
    file = tmp_path / "class.yml"
    file.write_text(yaml.safe_dump(CLASS), encoding="utf-8")
    sent = Sent(own)
    result = own.run(documents=[str(file)], webhook_machines=None)
    assert not result.get("failed"), result["msg"]
    assert [call for call in sent.calls if call == f"GET /rack-2/status {KEY}"] and "rack-1" not in str(sent.calls)


def test_machines_of_the_environment(own: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "GPU_COUNT": "1",
        "NAME": "rack-3",
        "SCALE_UP_ENDPOINT": "https://power.test/rack-3/start",
        "SCALE_DOWN_ENDPOINT": "https://power.test/rack-3/stop",
        "STATUS_ENDPOINT": "https://power.test/rack-3/status",
    }.items():
        monkeypatch.setenv(f"BOX_{name}", value)
    result = own.run(webhook_machines=None)
    assert not result.get("failed"), result["msg"]
    assert "webhook: machine 1 is rack-3" in own.lines


def test_a_key_of_a_secret_has_to_be_given(own: Subject) -> None:
    document = json.loads(json.dumps(CLASS))
    document["spec"]["providers"][0]["credentialsRef"] = {"name": "power", "key": "token"}
    result = own.run(documents=[document], webhook_machines=None, webhook_auth_value=None)
    assert result["failed"] and "Set WEBHOOK_AUTH_VALUE" in result["msg"] and own.world.calls == {}


def test_the_key_goes_to_no_host_that_only_a_document_names(own: Subject) -> None:
    document = json.loads(json.dumps(CLASS).replace('"/rack-2', '"https://else.test/rack-2'))
    result = own.run(documents=[document], webhook_machines=None)
    assert result["failed"] and "webhook_hosts" in result["msg"] and own.world.calls == {}


def test_documents_without_own_machines_are_refused_with_their_faults(own: Subject) -> None:
    document = json.loads(json.dumps(CLASS))
    del document["spec"]["providers"][0]["machines"][0]["gpuCount"]
    result = own.run(documents=[document], webhook_machines=None)
    assert result["failed"] and "no class has provider webhook with machines" in result["msg"] and "gpuCount" in result["msg"]


def test_faults_beside_the_machines_are_warned_of(own: Subject) -> None:
    other = {
        "apiVersion": "tgp.io/v1",
        "kind": "GPUNodePool",
        "metadata": {"name": "p"},
        "spec": {"nodeClassRef": {"name": "none"}},
    }
    result = own.run(documents=[CLASS, other], webhook_machines=None)
    assert not result.get("failed"), result["msg"]
    assert any("none" in warning for warning in own.warnings)


# ---- a bulk status endpoint

RACKS = ("rack-1", "rack-2", "rack-3")


def bulk_class(own_endpoints: bool = False) -> dict[str, t.Any]:
    """A class whose power service answers for all machines at once."""
    machines = [
        {
            "name": name,
            "gpuCount": 1,
            "scaleUpEndpoint": f"/{name}/start",
            "scaleDownEndpoint": f"/{name}/stop",
            **({"statusEndpoint": f"/{name}/status"} if own_endpoints else {}),
        }
        for name in RACKS
    ]
    provider = {"name": "webhook", "machines": machines, "settings": {"bulkStatusEndpoint": "/status"}}
    return {**CLASS, "spec": {**CLASS["spec"], "providers": [provider]}}


def bulk_answer(*entries: t.Any, status: str = "200 OK") -> t.Callable[[Environ], tuple[str, str] | None]:
    return lambda environ: (status, json.dumps({"machines": entries})) if environ["PATH_INFO"] == "/status" else None


def state(name: str, word: str = "off") -> dict[str, str]:
    return {"name": name, "state": word}


@pytest.mark.parametrize("own_endpoints", [False, True])
def test_a_bulk_status_endpoint_is_requested_once(own: Subject, own_endpoints: bool) -> None:
    sent = Sent(own)
    result = own.run(documents=[bulk_class(own_endpoints)], webhook_machines=None)
    assert not result.get("failed"), result["msg"]
    assert sent.calls.count(f"GET /status {KEY}") == 1 and named(result) == set()
    assert seen(result)["bulk.listed"] == "3 of 3" and (("machine_1.http" in seen(result)) is True)
    assert outcomes(result)["machine_1.http"] == ("matches" if own_endpoints else "not checked")


ALL_OF_BULK = {f"bulk.{fact}" for fact in ("http", "machines", "names", "once", "listed", "words", "seconds")}


@pytest.mark.parametrize(
    ("answer", "false", "words"),
    [
        (bulk_answer(*map(state, RACKS), status="500 Oops"), ALL_OF_BULK, "HTTP 500"),
        (lambda environ: ("200 OK", '{"items": []}') if environ["PATH_INFO"] == "/status" else None, {"bulk.machines"}, "no list"),
        (bulk_answer(*map(state, RACKS), {"state": "on"}), {"bulk.names"}, "in 3 of 4 entries"),
        (bulk_answer(*map(state, (*RACKS, "rack-1"))), {"bulk.once"}, "1 more than once"),
        (bulk_answer(*map(state, (*RACKS[:2], "rack-9"))), {"bulk.listed"}, "2 of 3"),
        (bulk_answer(state("rack-1", "up"), *map(state, RACKS[1:])), {"bulk.words"}, "in 2 of 3 entries"),
    ],
    ids=lambda value: min(value) if isinstance(value, set) else "",
)
def test_what_a_bulk_answer_lacks_is_named(
    own: Subject, answer: t.Callable[[Environ], tuple[str, str] | None], false: set[str], words: str
) -> None:
    Sent(own, answer)
    result = own.run(documents=[bulk_class()], webhook_machines=None)
    differing = {name for name, outcome in outcomes(result).items() if outcome in ("differs", "no answer")}
    assert result["failed"] and differing == false and words in seen(result)[min(false)]
    report = json.dumps(result["report"]) + result["markdown"]
    assert not [name for name in (*RACKS, "rack-9") if name in report]
