# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Prometheus, node_exporter and Pushgateway of Debian as processes on loopback, and the alerts in the order in which they fire."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import threading
import time
import typing as t

import httpx
import pytest
import yaml

from sandbox.running import ROOT
from tests.build import CannotBuild
from tests.node_real import debian

RULES = ROOT / "monitoring" / "prometheus_rules.yml"
_PATIENCE = 60.0  # real seconds


def programs() -> pathlib.Path:
    """Their folder. Where they cannot be had the test is skipped with one line; with TGP_REQUIRE_PLANE=1 it fails."""
    try:
        return debian.prometheus()
    except CannotBuild as problem:
        if os.environ.get("TGP_REQUIRE_PLANE") == "1":
            pytest.fail(f"TGP_REQUIRE_PLANE=1, but {problem}", pytrace=False)
        pytest.skip(str(problem))


def promtool(*words: str, text: str | None = None) -> str:
    """What it says. AssertionError when it ends with another status than 0."""
    command = [str(programs() / "promtool"), *words]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return t.cast(int, probe.getsockname()[1])


class Monitoring:
    """``file`` is read by node_exporter, ``gateway`` is the URL of the Pushgateway, ``listen`` the port at which a loop is scraped. ``fired``
    are the alerts in the order in which they were first seen; their times (for) are left out, since promtool tests those."""

    def __init__(self, folder: pathlib.Path, stack: contextlib.ExitStack) -> None:
        self._folder, self._stack, self._bin = folder, stack, programs()
        texts = folder / "texts"
        texts.mkdir()
        self.file = texts / "tgp.prom"
        node, gateway, self.listen, own = (free_port() for _ in range(4))
        self.gateway = f"http://127.0.0.1:{gateway}"
        collector = ["--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={texts}"]
        self._start("prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{node}", *collector)
        self._start("prometheus-pushgateway", f"--web.listen-address=127.0.0.1:{gateway}")
        targets = {"file": node, "gateway": gateway, "loop": self.listen}
        settings = [f"--config.file={self._configured(targets)}", f"--storage.tsdb.path={folder / 'data'}"]
        self._start("prometheus", *settings, f"--web.listen-address=127.0.0.1:{own}")
        self._client = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{own}", timeout=_PATIENCE, trust_env=False))
        self.fired: list[str] = []
        self._stop = threading.Event()
        watch = threading.Thread(target=self._watch, name="alerts", daemon=True)
        stack.callback(lambda: (self._stop.set(), watch.join(_PATIENCE))[0])
        self.until(self._is_ready, "Prometheus answers")
        watch.start()

    def _configured(self, targets: t.Mapping[str, int]) -> pathlib.Path:
        rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
        for rule in rules["groups"][0]["rules"]:
            rule.pop("for", None)
        jobs = [
            {"job_name": job, "honor_labels": job == "gateway", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
            for job, port in targets.items()
        ]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": jobs,
        }
        for name, content in (("rules.yml", rules), ("prometheus.yml", config)):
            (self._folder / name).write_text(yaml.safe_dump(content))
        promtool("check", "config", str(self._folder / "prometheus.yml"))
        return self._folder / "prometheus.yml"

    def _start(self, name: str, *words: str) -> None:
        log = self._stack.enter_context((self._folder / f"{name}.log").open("w"))
        process = subprocess.Popen([str(self._bin / name), *words], cwd=self._folder, stdout=log, stderr=log)
        self._stack.callback(lambda: (process.terminate(), process.wait(_PATIENCE))[0])

    def _is_ready(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return self._client.get("/-/ready").status_code == 200
        return False

    def _watch(self) -> None:
        while not self._stop.wait(0.2):
            with contextlib.suppress(httpx.TransportError):
                for name in sorted(self.firing()):
                    if name not in self.fired:
                        self.fired.append(name)

    # ---- questions

    def firing(self) -> set[str]:
        answer = self._client.get("/api/v1/alerts").raise_for_status().json()
        return {alert["labels"]["alertname"] for alert in answer["data"]["alerts"] if alert["state"] == "firing"}

    def value(self, query: str) -> float | None:
        """Of a query with one result at most."""
        answer = self._client.get("/api/v1/query", params={"query": query}).raise_for_status().json()["data"]["result"]
        assert len(answer) <= 1, answer
        return float(answer[0]["value"][1]) if answer else None

    def series(self, query: str) -> dict[frozenset[tuple[str, str]], float]:
        """All results of a query by their labels."""
        answer = self._client.get("/api/v1/query", params={"query": query}).raise_for_status().json()["data"]["result"]
        named = [
            (frozenset(one["metric"].items() - {("__name__", one["metric"].get("__name__"))}), one["value"][1]) for one in answer
        ]
        return {labels: float(value) for labels, value in named}

    def course(self, query: str, began: float) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """The results of a query for each second since ``began``: labels, and moments with values."""
        asked = {"query": query, "start": began, "end": time.time(), "step": "1"}
        answer = self._client.get("/api/v1/query_range", params=asked).raise_for_status().json()["data"]["result"]
        return [(one["metric"], [(float(when), float(value)) for when, value in one["values"]]) for one in answer]

    def becomes(self, query: str, wanted: float) -> None:
        """Wait until the next scrapes have it."""
        self.until(
            lambda: (found := self.value(query)) is not None and abs(found - wanted) < 1e-6,
            f"{query} is {wanted}",
            lambda: f"it is {self.value(query)}",
        )

    def fires(self, *names: str) -> None:
        """Wait until these have fired, and no others beside those before them."""
        before = len(self.fired)
        self.until(lambda: set(names) <= set(self.fired), f"{', '.join(names)} fire")
        assert set(self.fired[before:]) <= set(names), self.fired

    def until(self, what: t.Callable[[], bool], words: str, shown: t.Callable[[], str] = str) -> None:
        """Wait for it. ``shown``: what there is instead."""
        end = time.monotonic() + _PATIENCE
        while not what():
            assert time.monotonic() < end, f"did not happen in {_PATIENCE:.0f} s: {words}; {shown()}"
            time.sleep(0.1)
