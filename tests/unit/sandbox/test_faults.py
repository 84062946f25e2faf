# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every kind of fault, seen by the collection's own HTTP client, mounted in process and through a real socket."""

from __future__ import annotations

import io
import threading
import typing as t

import flask
import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors
from ansible_collections.tgp.gpu.plugins.module_utils.core.http import Api
from ansible_collections.tgp.gpu.plugins.module_utils.core.rate_limit import RetryPolicy
from cheroot import wsgi

from sandbox.clock import SimClock
from sandbox.faults import Fault, Faults, FaultyApp, LostConnection
from sandbox.world import World
from sandbox.wsgi import MACHINE_AGENT, CountingApp, Service, is_write


class Counter:
    """A tiny service: POST adds one, GET shows the number."""

    def __init__(self) -> None:
        self.value = 0
        self.app = flask.Flask("counter")

        @self.app.get("/n")
        def show() -> t.Any:
            return {"value": self.value, "padding": "x" * 40}

        @self.app.post("/n")
        def add() -> t.Any:
            self.value += 1
            return {"value": self.value}


@pytest.fixture
def clock() -> t.Iterator[SimClock]:
    clock = SimClock(speed=1000.0)
    yield clock
    clock.close()


@pytest.fixture(scope="module")
def socket() -> t.Iterator[tuple[str, list[t.Any]]]:
    """A server's address, and the place to put the app that it shall serve."""
    apps: list[t.Any] = []
    server = wsgi.Server(("127.0.0.1", 0), lambda environ, start: apps[-1](environ, start), numthreads=3)
    server.prepare()
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield f"http://127.0.0.1:{server.bind_addr[1]}", apps
    server.stop()
    thread.join()


@pytest.fixture(params=["in process", "served"])
def service(request: pytest.FixtureRequest, clock: SimClock, socket: t.Any) -> t.Iterator[tuple[Counter, Faults, Api]]:
    counter, faults = Counter(), Faults()
    app = FaultyApp(counter.app, faults, "counter", clock)
    retry = RetryPolicy(tries=1)
    if request.param == "in process":
        yield counter, faults, Api("counter", "http://counter.test", transport=httpx.WSGITransport(app=app), retry=retry)
        return
    url, apps = socket
    apps.append(app)
    api = Api("counter", url, retry=retry)
    yield counter, faults, api
    api.close()


def test_without_a_rule_nothing_changes(service: t.Any) -> None:
    counter, _faults, api = service
    assert api.call("POST", "/n").json == {"value": 1}
    assert api.get("/n")["value"] == 1


def test_status_is_answered_without_effect(service: t.Any) -> None:
    counter, faults, api = service
    faults.add({"kind": "status", "status": 429, "headers": {"Retry-After": "7"}, "body": {"message": "slow down"}})
    with pytest.raises(errors.RateLimited) as caught:
        api.call("POST", "/n")
    assert caught.value.retry_after == 7 and "slow down" in str(caught.value)
    assert counter.value == 0


def test_status_after_comes_with_the_effect(service: t.Any) -> None:
    counter, faults, api = service
    faults.add({"kind": "status_after", "status": 502, "body": "<html>bad gateway</html>"})
    with pytest.raises(errors.ServerError):
        api.call("POST", "/n")
    assert counter.value == 1


@pytest.mark.parametrize(("kind", "value"), [("lost_before", 0), ("lost_after", 1), ("hang", 0), ("hang_after", 1)])
def test_a_lost_answer_is_a_lost_answer_for_the_client(service: t.Any, kind: str, value: int) -> None:
    counter, faults, api = service
    faults.add({"kind": kind})
    with pytest.raises(errors.LostAnswer):
        api.call("POST", "/n")
    assert counter.value == value
    assert api.call("POST", "/n").json == {"value": value + 1}


def test_truncated_and_foreign_bodies_are_no_answer(service: t.Any) -> None:
    _counter, faults, api = service
    faults.add({"kind": "truncate"})
    with pytest.raises(errors.BadShape):
        api.get("/n")
    faults.add({"kind": "body", "body": "<html>maintenance</html>"})
    with pytest.raises(errors.BadShape):
        api.get("/n")
    faults.add({"kind": "body", "body": {"devices": {}}})
    assert api.get("/n") == {"devices": {}}


def test_stale_repeats_what_was_seen_before(service: t.Any) -> None:
    _counter, faults, api = service
    assert api.get("/n")["value"] == 0
    api.call("POST", "/n")
    faults.add({"kind": "stale", "method": "GET", "times": 2})
    assert [api.get("/n")["value"] for _ in range(3)] == [0, 0, 1]


def test_delay_is_world_time(service: t.Any, clock: SimClock) -> None:
    _counter, faults, api = service
    faults.add({"kind": "delay", "seconds": 30})
    before = clock.seconds()
    assert api.get("/n")["value"] == 0
    assert clock.seconds() - before >= 30


def test_a_dripping_answer_is_whole_at_its_end(service: t.Any, clock: SimClock) -> None:
    counter, faults, api = service
    faults.add({"kind": "drip", "method": "POST", "seconds": 30})
    before = clock.seconds()
    assert api.call("POST", "/n").json == {"value": 1} and counter.value == 1
    assert clock.seconds() - before >= 30


def test_an_answer_drips_in_pieces_and_a_stream_does_not(clock: SimClock) -> None:
    faults = Faults([{"kind": "drip", "seconds": 50, "times": None}])
    app = FaultyApp(Counter().app, faults, "counter", clock)

    def pieces(query: str) -> list[bytes]:
        environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/n", "QUERY_STRING": query, "SERVER_NAME": "x", "SERVER_PORT": "80"}
        environ |= {"wsgi.url_scheme": "http", "wsgi.input": io.BytesIO(), "wsgi.errors": io.StringIO()}
        return list(app(environ, lambda *_head: None))

    (whole,) = pieces("watch=true")
    found = pieces("")
    assert len(found) == 10 and b"".join(found) == whole


def test_rules_count_calls_and_end(service: t.Any) -> None:
    _counter, faults, api = service
    faults.add(
        {"kind": "status", "service": "counter", "path": "^/n$", "method": "get", "after_calls": 1, "times": 1, "status": 503}
    )
    faults.add({"kind": "status", "service": "other", "times": None})
    api.call("POST", "/n")
    assert api.get("/n")["value"] == 1
    with pytest.raises(errors.ServerError):
        api.get("/n")
    assert api.get("/n")["value"] == 1
    assert [fault.hits for fault in faults.all()] == [1, 0]
    faults.clear()
    assert faults.all() == []


@pytest.mark.parametrize(
    "rule",
    [
        "status",
        {},
        {"kind": "meteor"},
        {"kind": "status", "stat": 500},
        {"kind": "status", "status": "500"},
        {"kind": "status", "status": 9},
        {"kind": "status", "path": "("},
        {"kind": "delay", "seconds": -1},
        {"kind": "delay", "seconds": float("nan")},
        {"kind": "status", "times": True},
        {"kind": "status", "times": -1},
        {"kind": "status", "after_calls": -1},
        {"kind": "status", "status": 199},
        {"kind": "status", "headers": {"retry-after": 5}},
        {"kind": "status", "headers": {"x-a": "b\r\nx-c: d"}},
        {"kind": "status", "headers": {"x a": "b"}},
    ],
)
def test_nonsense_is_refused(rule: t.Any) -> None:
    with pytest.raises(ValueError):
        Fault.parse(rule)


def test_machines_of_the_world_meet_no_faults_and_are_not_counted(clock: SimClock) -> None:
    world, faults, counter = World(clock), Faults([{"kind": "lost_before", "times": None}]), Counter()
    app = CountingApp(FaultyApp(counter.app, faults, "counter", clock), world, "counter")
    machine = httpx.Client(
        transport=httpx.WSGITransport(app=app), base_url="http://c", headers={"user-agent": f"{MACHINE_AGENT}/1"}
    )
    assert machine.post("/n").status_code == 200
    assert world.calls == {} and world.writes == []
    person = httpx.Client(transport=httpx.WSGITransport(app=app), base_url="http://c")
    for call in (person.get, person.post):
        with pytest.raises(LostConnection):
            call("/n")
    assert world.calls == {"counter": 2}
    assert [(service, what) for _time, service, what in world.writes] == [("counter", "POST /n")]


@pytest.mark.parametrize(
    ("method", "path", "query", "write"),
    [
        ("GET", "/api/v1/instances", "", False),
        ("POST", "/api/v2/oauth/token", "", False),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "", False),
        ("POST", "/api/v1/nodes", "dryRun=All", False),
        ("POST", "/api/v1/nodes", "fieldManager=tgp", True),
        ("DELETE", "/api/v2/device/n1", "", True),
        ("PATCH", "/api/v1/nodes/a", "", True),
    ],
)
def test_what_counts_as_a_write(method: str, path: str, query: str, write: bool) -> None:
    assert is_write(method, path, query) is write


@pytest.mark.parametrize(
    ("status", "reason", "words"),
    [
        (403, "Forbidden", 'admission webhook "policy.example.com" denied the request'),
        (409, "Conflict", 'Operation cannot be fulfilled on configmaps "tgp-claim-x": the object has been modified'),
        (422, "Invalid", "field is immutable when `immutable` is set"),
        (500, "InternalError", "failed calling webhook"),
        (418, "", "rejected the request"),
    ],
)
def test_an_error_of_the_api_server_without_a_body_is_a_status_object(
    status: int, reason: str, words: str, clock: SimClock
) -> None:
    faults = Faults([{"kind": "status", "service": "kubernetes", "status": status, "times": None}])
    app = FaultyApp(Counter().app, faults, "kubernetes", clock)
    with httpx.Client(transport=httpx.WSGITransport(app=app), base_url="https://kube.test") as client:
        answer = client.put("/api/v1/namespaces/tgp-system/configmaps/tgp-claim-x", json={})
    body = answer.json()
    assert (answer.status_code, body["kind"], body["code"], body["reason"]) == (status, "Status", status, reason)
    assert words in body["message"]
    assert body["details"] == {"kind": "configmaps", "name": "tgp-claim-x"}


def test_apps_with_the_same_routes_share_what_was_compiled_and_nothing_else() -> None:
    def app(answer: str, path: str = "/one/<name>", method: str = "GET") -> Service:
        service = Service("twice")
        service.add_url_rule(path, "show", lambda name: f"{answer} {name}", methods=[method])
        return service

    def ask(service: Service, path: str = "/one/a", method: str = "GET") -> tuple[int, str]:
        answer = service.test_client().open(path, method=method)
        return answer.status_code, answer.text if answer.status_code == 200 else ""

    first, second = app("first"), app("second")
    assert [ask(first), ask(second), ask(first)] == [(200, "first a"), (200, "second a"), (200, "first a")]
    assert ask(app("other", "/other/<name>")) == (404, "") and ask(app("posted", method="POST")) == (405, "")
    for one in (first, second):
        assert ask(one, method="OPTIONS")[0] == 200 and ask(one, method="DELETE")[0] == 405
    whole = [one.url_map.bind("sandbox.invalid").map for one in (first, second, app("posted", method="POST"))]
    assert whole[0] is whole[1] and whole[0] is not whole[2]
    assert [rule.rule for rule in second.url_map.iter_rules("show")] == ["/one/<name>"]
