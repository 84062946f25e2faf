# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A list of machines that takes longer to read than it is fresh is read once for all claims, whichever cloud it is of."""

from __future__ import annotations

import re
import types
import typing as t
from datetime import datetime, timedelta, timezone

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Specs
from ansible_collections.tgp.gpu.plugins.module_utils.observe import clients as observe_clients
from ansible_collections.tgp.gpu.plugins.module_utils.observe.clients import Clients

from .stands import Stand

CLAIMS = 20
SLOW = 8.0  # seconds for each call of a list: more than the 5 s for which a list is fresh


class Moments:
    """A clock that only the list's calls move."""

    speed = 1.0

    def __init__(self) -> None:
        self.moment = datetime(2026, 8, 21, 12, tzinfo=timezone.utc)

    def now(self) -> datetime:
        return self.moment

    def sleep(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


class SlowList:
    """The emulator, whose list takes its time. ``calls`` counts those of the list."""

    def __init__(self, stand: Stand, clock: Moments) -> None:
        self.calls = 0
        self._app, self._path, self._clock = stand.app, re.compile(stand.list_path), clock
        stand.app = self  # type: ignore[assignment]

    def __call__(self, environ: t.Any, start_response: t.Any) -> t.Any:
        if environ["REQUEST_METHOD"] == "GET" and self._path.search(environ["PATH_INFO"]):
            self.calls += 1
            self._clock.sleep(SLOW)
        return self._app(environ, start_response)


@pytest.fixture
def clock() -> Moments:
    return Moments()


@pytest.fixture
def slow(stand: Stand, clock: Moments) -> SlowList:
    return SlowList(stand, clock)


@pytest.fixture
def clients(stand: Stand, slow: SlowList, clock: Moments, monkeypatch: pytest.MonkeyPatch) -> Clients:
    """A run's clouds, of which one is the stand's."""
    cloud = stand.cloud()
    monkeypatch.setattr(observe_clients, "connect_cloud", lambda *_which, **_how: cloud)
    monkeypatch.setattr(observe_clients, "cloud_credential", lambda *_which: None)
    task = types.SimpleNamespace(clock=clock, events=None)
    return Clients(task, None, lambda: Specs({}, {}), tuple)  # type: ignore[arg-type]


def test_many_claims_read_a_slow_list_once(stand: Stand, slow: SlowList, clients: Clients) -> None:
    once = calls_of_one_list(stand, slow)
    for _claim in range(CLAIMS):
        assert clients.instances(stand.service) is not None
    assert slow.calls == once


def test_many_claims_that_need_a_newer_list_read_it_once(stand: Stand, slow: SlowList, clients: Clients, clock: Moments) -> None:
    """Such as all whose create call got no answer: they are looked up by their name."""
    once = calls_of_one_list(stand, slow)
    listing = clients.listing(stand.service)
    assert listing is not None and listing.asked < clock.now()
    lost = clock.now()
    for _claim in range(CLAIMS):
        clients.instances_since(stand.service, lost)
    assert slow.calls == 2 * once
    newer = clients.listing(stand.service)
    assert newer is not None and newer.asked == lost


def calls_of_one_list(stand: Stand, slow: SlowList) -> int:
    stand.cloud().instances()
    calls, slow.calls = slow.calls, 0
    assert calls
    return calls
