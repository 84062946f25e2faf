# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Questions to services over real sockets of this machine: directly, through a proxy, and by a command."""

from __future__ import annotations

import http.server
import socket
import sys
import threading
import typing as t
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.model import Device, IdleProbe, Pool, ServiceSpec
from ansible_collections.tgp.gpu.plugins.module_utils.observe import probe
from ansible_collections.tgp.gpu.plugins.module_utils.observe.probe import Prober

HERE = Device("n1", "tgp-a1b2c3d4-llm-00001", addresses=("127.0.0.1", "::1"), online=True)
FAR = Device("n2", "tgp-a1b2c3d4-llm-00002", addresses=("100.64.0.9",), online=True)


class Service:
    """Answers every path with ``status`` and ``text``; ``asked`` are the request lines. As a proxy it answers for all hosts."""

    def __init__(self) -> None:
        self.status, self.text, self.asked, self.hangs = 200, "{}", [], threading.Event()
        self.hangs.set()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                outer.hangs.wait(20)
                self.send_response(outer.status)
                self.end_headers()
                self.wfile.write(outer.text.encode())

            def log_message(self, *_words: t.Any) -> None:
                """Nothing is printed."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Service]:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    made = Service()
    yield made
    made.hangs.set()
    made.server.shutdown()


def spec(port: int) -> ServiceSpec:
    return ServiceSpec("registry.example/llm:1", (port, 9000), "/health", port)


def prober(proxy: str = "") -> Prober:
    return Prober(Task({"mesh_proxy": proxy, "allow_commands": [sys.executable, "/nowhere/is-idle"]}))


def closed_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.parametrize(("status", "well"), [(200, True), (204, True), (301, False), (404, False), (503, False)])
def test_2xx_is_healthy_and_every_other_answer_is_not(service: Service, status: int, well: bool) -> None:
    service.status = status
    found = prober().health(spec(service.port), HERE)
    assert found.healthy is well and (well or str(status) in found.detail)
    assert service.asked == ["/health"]


def test_where_nothing_listens_the_service_is_down() -> None:
    found = prober().health(spec(port := closed_port()), HERE)
    assert (found.healthy, found.detail) == (False, f"nothing listens on port {port}")


def test_who_takes_the_call_and_does_not_answer_is_down(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_TIMEOUT", 0.3)
    service.hangs.clear()
    found = prober().health(spec(service.port), HERE)
    assert found.healthy is False and "no answer" in found.detail


def test_no_way_there_is_unknown() -> None:
    def silence(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("timed out", request=request)

    found = Prober(Task({}, transport=lambda _url: httpx.MockTransport(silence))).health(spec(8000), FAR)
    assert found.healthy is None and "see mesh_proxy" in found.detail
    nowhere = Device("n3", "x", online=True)
    assert prober().health(spec(8000), nowhere).healthy is None


def test_a_proxy_leads_into_the_tailnet(service: Service) -> None:
    found = prober(f"http://127.0.0.1:{service.port}").health(spec(8000), FAR)
    assert found.healthy is True
    (asked,) = service.asked
    assert (urlsplit(asked).netloc, urlsplit(asked).path) == ("100.64.0.9:8000", "/health")


def test_a_proxy_that_is_not_there_is_unknown_and_refused_beforehand(service: Service) -> None:
    lost = f"http://127.0.0.1:{closed_port()}"
    found = prober(lost).health(spec(8000), FAR)
    assert found.healthy is None and lost in found.detail
    with pytest.raises(InvalidInput, match="does not answer"):
        prober(lost).check_way()
    service.status = 502
    assert "through" in prober(f"http://127.0.0.1:{service.port}").check_way()
    assert prober().check_way() == "services are asked directly"


def pool(port: int, found: IdleProbe) -> Pool:
    return Pool("default", "llm", "c", service=spec(port), idle_probe=found)


@pytest.mark.parametrize(
    ("status", "text", "idle"),
    [
        (200, '{"idle": true}', True), (200, '{"idle": false, "more": 1}', False), (200, "idle\n", True), (200, '"busy"', False),
        (200, "", None), (200, '{"idle": "yes"}', None), (200, "[]", None), (204, "", None), (500, '{"idle": true}', None),
    ],
)  # fmt: skip
def test_L03_only_a_clear_answer_says_idle_or_busy(service: Service, status: int, text: str, idle: bool | None) -> None:
    service.status, service.text = status, text
    found, detail = prober().idle(pool(service.port, IdleProbe("/idle")), HERE)
    assert found is idle and detail
    assert service.asked == ["/idle"]


def test_L03_who_is_not_there_is_neither_idle_nor_busy() -> None:
    assert prober().idle(pool(closed_port(), IdleProbe("/idle")), HERE)[0] is None


@pytest.mark.parametrize(("code", "idle"), [(0, True), (1, False), (2, None), (137, None)])
def test_L03_a_command_says_it_by_its_exit_code(code: int, idle: bool | None) -> None:
    found, detail = prober().idle(pool(8000, IdleProbe(command=(sys.executable, "-c", f"raise SystemExit({code})"))), HERE)
    assert found is idle and str(code) in detail


def test_a_command_gets_name_address_and_ports_and_none_of_our_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", "rpa_0123456789abcdefghijklmnop")
    wanted = {
        "TGP_NAME": HERE.hostname,
        "TGP_ADDRESS": "127.0.0.1",
        "TGP_PORT": "8000",
        "TGP_PORTS": "8000,9000",
        "TGP_MESH_PROXY": "",
    }
    code = f"import os; raise SystemExit(not ({wanted!r}.items() <= os.environ.items() and 'RUNPOD_API_KEY' not in os.environ))"
    assert prober().idle(pool(8000, IdleProbe(command=(sys.executable, "-c", code))), HERE)[0] is True


@pytest.mark.parametrize(("check", "allowed", "why"), [(True, True, "is not run in check mode"), (False, False, "does not allow")])
def test_L28_a_command_runs_only_where_it_may(tmp_path: Path, check: bool, allowed: bool, why: str) -> None:
    mark = tmp_path / "ran"
    task = Task({"allow_commands": [sys.executable] if allowed else []}, check_mode=check)
    command = (sys.executable, "-c", f"open({str(mark)!r}, 'w')")
    found, detail = Prober(task).idle(pool(8000, IdleProbe(command=command)), HERE)
    assert found is None and why in detail and not mark.exists()


def test_a_command_has_no_shell_and_its_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    found, detail = prober().idle(pool(8000, IdleProbe(command=("/nowhere/is-idle", "; true"))), HERE)
    assert found is None and "cannot be run" in detail
    monkeypatch.setattr(probe, "_COMMAND", 0.2)
    found, detail = prober().idle(pool(8000, IdleProbe(command=(sys.executable, "-c", "import time; time.sleep(5)"))), HERE)
    assert found is None and "did not end" in detail
