# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one way out: what is retried, what never is, and what an error says."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors
from ansible_collections.tgp.gpu.plugins.module_utils.core.clock import SystemClock
from ansible_collections.tgp.gpu.plugins.module_utils.core.http import Api
from ansible_collections.tgp.gpu.plugins.module_utils.core.rate_limit import Bucket, RateLimiter, RetryPolicy
from ansible_collections.tgp.gpu.plugins.module_utils.core.redact import MASK, register

SECRET = "sk-live-0123456789abcdefghij"


class Clock:
    """Counts the seconds it was asked to sleep."""

    speed = 1.0

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> t.Any:
        return datetime(2026, 8, 20, 12, tzinfo=timezone.utc)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def api(answers: list[t.Any], clock: Clock | None = None, **options: t.Any) -> tuple[Api, list[httpx.Request]]:
    """An Api whose network gives ``answers`` one after the other (an exception is raised), and the requests it saw."""
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        answer = answers[min(len(seen), len(answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return t.cast(httpx.Response, answer)

    options.setdefault("headers", {"authorization": f"Bearer {SECRET}"})
    return Api("cloud", "http://cloud.test", transport=httpx.MockTransport(handle), clock=clock or Clock(), **options), seen


def ok(body: t.Any = None) -> httpx.Response:
    return httpx.Response(200, json={} if body is None else body)


@pytest.mark.parametrize("failure", [httpx.Response(500), httpx.Response(503), httpx.Response(429), httpx.ReadTimeout("late")])
def test_a_read_is_tried_again(failure: t.Any) -> None:
    client, seen = api([failure, ok({"a": 1})])
    assert client.get("/x") == {"a": 1}
    assert len(seen) == 2


@pytest.mark.parametrize("failure", [httpx.Response(500), httpx.Response(503), httpx.Response(429), httpx.ReadTimeout("late")])
def test_a_write_is_sent_once(failure: t.Any) -> None:
    client, seen = api([failure, ok()])
    with pytest.raises(errors.ApiError):
        client.call("POST", "/x", json={})
    assert len(seen) == 1


@pytest.mark.parametrize(("asked", "connect", "read"), [(None, 10.0, 30.0), (120.0, 10.0, 120.0), (4.0, 4.0, 4.0)])
def test_patience_with_an_answer_is_none_with_a_connection(asked: float | None, connect: float, read: float) -> None:
    client, seen = api([ok()])
    client.call("POST", "/x", json={}, timeout=asked)
    assert (seen[0].extensions["timeout"]["connect"], seen[0].extensions["timeout"]["read"]) == (connect, read)


def test_a_write_that_never_left_is_sent_again() -> None:
    client, seen = api([httpx.ConnectError("refused"), ok()])
    assert client.call("POST", "/x", json={}).status == 200
    assert len(seen) == 2


def test_a_delete_that_may_be_repeated_is_retried() -> None:
    client, seen = api([httpx.Response(502), ok()])
    client.call("DELETE", "/x", idempotent=True)
    assert len(seen) == 2


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (httpx.Response(401), errors.Unauthorized),
        (httpx.Response(403), errors.Forbidden),
        (httpx.Response(404), errors.NotFound),
        (httpx.Response(410), errors.NotFound),
        (httpx.Response(409), errors.Conflict),
        (httpx.Response(429), errors.RateLimited),
        (httpx.Response(500), errors.ServerError),
        (httpx.Response(302, headers={"location": "https://elsewhere.test/"}), errors.BadShape),
        (httpx.ReadError("reset"), errors.LostAnswer),
        (httpx.ConnectTimeout("slow"), errors.Unreachable),
    ],
)
def test_every_answer_has_its_error(answer: t.Any, kind: type[errors.ApiError]) -> None:
    client, _seen = api([answer], retry=RetryPolicy(tries=1))
    with pytest.raises(kind) as caught:
        client.call("POST", "/x", json={})
    assert "cloud" in str(caught.value)


def test_retry_after_is_honoured_but_clamped() -> None:
    clock = Clock()
    client, _seen = api(
        [httpx.Response(429, headers={"retry-after": "7"}), httpx.Response(429, headers={"retry-after": "0"}), ok()], clock
    )
    client.get("/x")
    assert clock.slept == [7.0, 1.0]
    clock = Clock()
    client, _seen = api([httpx.Response(429, headers={"retry-after": "86400"}), ok()], clock)
    client.get("/x")
    assert clock.slept == [60.0]


def test_pauses_grow_at_most_to_the_cap_and_end_at_the_number_of_tries() -> None:
    clock = Clock()
    client, seen = api([httpx.Response(503)], clock, retry=RetryPolicy(tries=6, first=1.0, longest=4.0, deadline=1e9))
    with pytest.raises(errors.ServerError):
        client.get("/x")
    assert len(seen) == 6
    assert all(0 <= pause <= min(4.0, 2.0**turn) for turn, pause in enumerate(clock.slept))


def test_an_answer_that_is_no_json_is_not_empty() -> None:
    client, _seen = api([httpx.Response(200, text="<html>maintenance</html>")])
    with pytest.raises(errors.BadShape, match="not taken as an empty list"):
        client.get("/x")


@pytest.mark.parametrize(("value", "kind"), [({}, list), ([], dict), ("1", int), (True, int), (None, list)])
def test_an_odd_shape_names_the_field(value: t.Any, kind: type) -> None:
    client, _seen = api([ok()])
    with pytest.raises(errors.BadShape, match="data.items should be"):
        client.expect(value, kind, "GET /x", "data.items")


def test_no_secret_in_any_error() -> None:
    register(SECRET)
    body = {"error": {"code": "bad", "message": f"the key {SECRET} is wrong"}, "echo": SECRET}
    client, _seen = api([httpx.Response(400, json=body)])
    with pytest.raises(errors.ApiError) as caught:
        client.get("/x")
    text = f"{caught.value} {caught.value.details} {caught.value.body}"
    assert SECRET not in text
    assert MASK in text


@pytest.mark.parametrize(
    "key", ["sk-live-0123456789…abcdefghij", "sk-live-0123456789\nabcdefghij", "sk-live-0123456789abcdefghij "]
)
def test_a_key_that_no_header_can_carry_is_a_sentence_without_the_key(key: str) -> None:
    with pytest.raises(errors.InvalidInput, match="authorization") as caught:
        api([ok()], headers={"authorization": f"Bearer {key}"})
    assert "0123456789" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("HTTPS_PROXY", "ftp://proxy.test"), ("SSL_CERT_FILE", "/nowhere/bundle.pem")],
)
def test_an_environment_that_allows_no_connection_is_a_sentence(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(errors.InvalidInput, match="HTTPS_PROXY.*SSL_CERT_FILE"):
        Api("cloud", "https://cloud.test")


def test_a_watch_that_is_refused_and_breaks_off_is_an_error_of_ours() -> None:
    def body() -> t.Iterator[bytes]:
        yield b"the server is"
        raise httpx.ReadTimeout("late")

    client, _seen = api([httpx.Response(500, content=body())])
    with pytest.raises(errors.ApiError, match="500"), client.stream("/x"):
        pass


@pytest.mark.parametrize(
    "answer", [httpx.Response(500), httpx.Response(404), httpx.ReadTimeout("late"), httpx.ConnectError("no"), ok]
)
def test_a_secret_in_an_address_is_in_no_error(answer: t.Any) -> None:
    register(SECRET)
    client, _seen = api([httpx.Response(200, text="<html>") if answer is ok else answer], retry=RetryPolicy(tries=1))
    with pytest.raises(errors.ApiError) as caught:
        client.get(f"/up?token={SECRET}")
    assert SECRET not in caught.value.message and f"/up?token={MASK}" in caught.value.message


def test_a_folder_for_the_pace_that_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """XDG_RUNTIME_DIR may still be that of the user one was before."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TGP_RUNTIME_DIR", str(tmp_path / "file"))
    with pytest.raises(errors.InvalidInput, match="file/tgp-pace-.*TGP_RUNTIME_DIR"):
        RateLimiter("account", {"": Bucket(1.0)}).wait("", SystemClock())


def test_a_refused_key_says_what_to_check() -> None:
    answer = httpx.Response(401, json={"error": {"code": "global/invalid-api-key", "message": "no"}})
    client, _seen = api([answer], auth_hint="Check CLOUD_KEY.")
    with pytest.raises(errors.Unauthorized, match="global/invalid-api-key: no. Check CLOUD_KEY."):
        client.get("/x")


@pytest.mark.parametrize("address", ["cloud.test", "ftp://cloud.test", ""])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(errors.InvalidInput, match="not an http"):
        Api("cloud", address)


def test_a_call_after_the_end_is_an_error_of_ours_and_is_not_repeated() -> None:
    client, seen = api([ok()])
    client.close()
    with pytest.raises(errors.ApiError, match="GET /x was not sent: the connections are closed"):
        client.get("/x")
    with pytest.raises(errors.ApiError, match="GET /watch was not sent: the connections are closed"), client.stream("/watch"):
        pass
    assert seen == []


def test_a_line_of_a_watch_ends_with_its_line_end_alone() -> None:
    """JSON may have the next-line letter within a text; half an object is none."""
    parts = [b'{"a": "x', '\u0085y \u2028z"}\n{"b"'.encode(), b': 1}\r\n\n{"c": 2}']
    client, _seen = api([httpx.Response(200, content=iter(parts))])
    with client.stream("/x") as lines:
        assert [json.loads(line) for line in lines if line.strip()] == [{"a": "x\u0085y \u2028z"}, {"b": 1}, {"c": 2}]


class Page(http.server.BaseHTTPRequestHandler):
    """Answers everything, and tells nobody."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_words: object) -> None:
        pass


@pytest.mark.parametrize(("spared", "reached"), [("10.0.0.0/8, 127.0.0.0/8", True), ("127.0.0.1", True), ("10.0.0.0/8,x/y", False)])
def test_a_network_in_no_proxy_is_kept(monkeypatch: pytest.MonkeyPatch, spared: str, reached: bool) -> None:
    """Pods behind a company's proxy have the cluster's Services there as a network; the proxy knows no way to them."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", spared)
    monkeypatch.delenv("no_proxy", raising=False)
    server = http.server.HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = Api("cluster", f"http://127.0.0.1:{server.server_port}", clock=Clock(), retry=RetryPolicy(tries=1))
    try:
        if reached:
            assert client.get("/") == {}
        else:
            with pytest.raises(errors.Unreachable):
                client.get("/")
    finally:
        client.close()
        server.shutdown()
        server.server_close()


def test_a_thread_keeps_its_connection_and_many_threads_share_some_pools() -> None:
    class Kept(Page):
        protocol_version = "HTTP/1.1"
        callers: t.ClassVar[list[t.Any]] = []

        def do_GET(self) -> None:
            self.callers.append(self.client_address)
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Kept)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    client = Api("cluster", f"http://127.0.0.1:{server.server_port}", clock=Clock())
    try:
        assert [client.get("/") for _ in range(5)] == [{}] * 5
        assert len(set(Kept.callers)) == 1
        with ThreadPoolExecutor(40) as pool:
            assert list(pool.map(client.get, ["/"] * 80)) == [{}] * 80
        assert 1 < len(client._clients._pools) <= 16
    finally:
        client.close()
        server.shutdown()
        server.server_close()
    late: list[object] = []
    for _ in range(20):  # threads whose pool was never made, too
        thread = threading.Thread(target=lambda: late.append(_refused(client)))
        thread.start()
        thread.join()
    assert late == ["cluster: GET / was not sent: the connections are closed."] * 20


def _refused(client: Api) -> str:
    try:
        return str(client.get("/"))
    except errors.ApiError as error:
        return error.message


def test_an_answer_that_never_ends_is_a_lost_one() -> None:
    """Something comes all the time, so that no pause is too long."""
    whole = threading.Event()

    class Dripping(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                for _ in range(4000):
                    self.wfile.write(b" ")
                    self.wfile.flush()
                    time.sleep(0.02)
                whole.set()

        def log_message(self, *_words: t.Any) -> None:
            """Quiet."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Dripping)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    patient = Api("cloud", f"http://127.0.0.1:{server.server_port}", timeout=0.1, retry=RetryPolicy(tries=1))
    try:
        with pytest.raises(errors.LostAnswer, match="did not end within 1 s"):
            patient.get("/list")
        assert not whole.is_set(), "it was given up before its end"
    finally:
        patient.close()
        server.shutdown()
        server.server_close()
