# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every answer that an emulator gives is held against the table of its service, as it leaves the emulator: what faults do to it on the way is
no concern. A test fails during which an emulator in the process of the tests gave a wrong one, and so does the end of a sandbox that runs as
a process of its own (``tests/answers/sandbox.py``).
"""

from __future__ import annotations

import collections
import threading
import typing as t
from urllib.parse import unquote_plus

import flask
import pytest

from .lambda_answers import LAMBDA
from .runpod_answers import RUNPOD
from .shapes import Answer, Table
from .tailscale_answers import TAILSCALE
from .vast_answers import VAST

TABLES: dict[str, Table] = {table.service: table for table in (LAMBDA, RUNPOD, VAST, TAILSCALE)}
_PROPERTY = "answers checked"
_MOST = 10  # faults that are told


def check(emulator: flask.Flask, response: flask.Response) -> tuple[str, list[str]] | None:
    """The service of an answer and what is wrong with it; None without a table for it. For the signal of a finished request: an emulator is
    known by the name of its app."""
    table, request = TABLES.get(emulator.name), flask.request
    if table is None or request.method in ("HEAD", "OPTIONS") or response.status_code in (301, 308) or _is_headscale(emulator):
        return None
    answer = Answer(
        request.method,
        request.path,
        response.status_code,
        response.mimetype or "",
        response.get_data(),
        unquote_plus(request.query_string.decode("latin-1")),
        response.headers,
    )
    return table.service, table.check(answer)


class Watch:
    """A plugin of pytest that listens to the emulators."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # emulators on sockets answer in threads
        self._counts: collections.Counter[str] = collections.Counter()
        self._faults: dict[str, None] = {}

    def pytest_configure(self) -> None:
        flask.request_finished.connect(self.listen)

    def pytest_unconfigure(self) -> None:
        flask.request_finished.disconnect(self.listen)

    def listen(self, emulator: flask.Flask, response: flask.Response, **_more: t.Any) -> None:
        checked = check(emulator, response)
        if checked is None:
            return
        service, found = checked
        with self._lock:
            self._counts[service] += 1
            self._faults.update(dict.fromkeys(found))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> t.Generator[None, object, object]:
        """What the fixtures of the test asked before counts with it."""
        result = yield
        found = self._take(item)
        assert not found, told(found)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> t.Generator[None, object, object]:
        result = yield
        found = self._take(item)
        assert not found, told(found)
        return result

    def _take(self, item: pytest.Item) -> list[str]:
        """The faults since the last time; the counts are handed to the report of the test."""
        with self._lock:
            counts, found = self._counts, list(self._faults)
            self._counts, self._faults = collections.Counter(), {}
        item.user_properties += [(_PROPERTY, one) for one in sorted(counts.items())]
        return found


def _is_headscale(emulator: flask.Flask) -> bool:
    """headscale serves its own API beside the one it shares with Tailscale, of which it leaves out fields; it has no table."""
    return emulator.name == "tailscale" and any(rule.rule.startswith("/api/v1/") for rule in emulator.url_map.iter_rules())


def told(found: list[str]) -> str:
    """The message of a test that fails by these faults."""
    more = [f"… and {len(found) - _MOST} more"] if len(found) > _MOST else []
    return "\n".join(["an emulator gave answers that the service does not give:", *found[:_MOST], *more])


def answers_line(reports: t.Iterable[t.Any]) -> str:
    """Such as "lambda 812, vast 90": answers that were checked in tests that passed; empty without any."""
    sums: collections.Counter[str] = collections.Counter()
    for report in reports:
        for name, value in report.user_properties if report.when == "call" else ():
            if name == _PROPERTY:
                sums[value[0]] += value[1]
    return ", ".join(f"{service} {number}" for service, number in sorted(sums.items()))
