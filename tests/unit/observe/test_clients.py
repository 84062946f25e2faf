# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A slow read holds up those who ask for the same, and nobody else."""

from __future__ import annotations

import threading
import types
import typing as t
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.clock import SystemClock
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import ApiError, InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.model import Specs
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.observe import clients as observe_clients
from ansible_collections.tgp.gpu.plugins.module_utils.observe.clients import Once
from ansible_collections.tgp.gpu.plugins.module_utils.observe.context import Context

SECONDS = 10.0  # until a test counts as hung


class Slow:
    """A read that waits until it is let go, and counts its calls."""

    def __init__(self, value: t.Any) -> None:
        self.value = value
        self.calls = 0
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, *_given: t.Any, **_more: t.Any) -> t.Any:
        self.calls += 1
        self.begun.set()
        assert self.go_on.wait(SECONDS)
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class Cloud:
    """A connected cloud that lists nothing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = 0

    def instances(self) -> list[t.Any]:
        return []

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def pool() -> t.Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=4) as workers:
        yield workers


@pytest.fixture
def connects(monkeypatch: pytest.MonkeyPatch) -> dict[str, t.Callable[..., t.Any]]:
    """How each cloud connects, by its name."""
    ways: dict[str, t.Callable[..., t.Any]] = {}
    monkeypatch.setattr(observe_clients, "connect_cloud", lambda name, *_given, **_more: ways[name]())
    monkeypatch.setattr(observe_clients, "cloud_credential", lambda *_given: None)
    return ways


def context(claims: t.Callable[[], list[t.Any]] = list) -> Context:
    task: t.Any = types.SimpleNamespace(clock=SystemClock(), began=0.0, events=None, warn=lambda _text: None, params={})
    store: t.Any = types.SimpleNamespace(claims=claims)
    nothing: t.Any = None
    return Context(task, nothing, store, Specs({}, ()), Settings(), "a1b2c3d4", "run", nothing)


def result(future: Future[t.Any]) -> t.Any:
    return future.result(SECONDS)


# ---- values that are read once


def test_a_slow_read_holds_up_no_other_key(pool: ThreadPoolExecutor) -> None:
    once, slow = Once(), Slow("late")
    first = pool.submit(once, "a", slow)
    assert slow.begun.wait(SECONDS)
    assert result(pool.submit(once, "b", lambda: "at once")) == "at once"
    assert not first.done()
    slow.go_on.set()
    assert result(first) == "late"


def test_two_callers_of_one_key_make_one_read(pool: ThreadPoolExecutor) -> None:
    once, slow = Once(), Slow("value")
    first = pool.submit(once, "a", slow)
    assert slow.begun.wait(SECONDS)
    second = pool.submit(once, "a", slow)
    slow.go_on.set()
    assert (result(first), result(second), once("a", slow)) == ("value", "value", "value")
    assert slow.calls == 1


def test_a_failed_read_is_not_remembered(pool: ThreadPoolExecutor) -> None:
    """Nor handed to those who wait for it: each of them reads itself."""
    once, slow = Once(), Slow(ApiError("no answer"))
    first = pool.submit(once, "a", slow)
    assert slow.begun.wait(SECONDS)
    second = pool.submit(once, "a", lambda: "value")
    slow.go_on.set()
    with pytest.raises(ApiError, match="no answer"):
        result(first)
    assert result(second) == "value"
    assert once("a", slow) == "value"


def test_a_read_may_ask_for_other_keys() -> None:
    once = Once()
    assert once("a", lambda: once("b", lambda: 1) + 1) == 2


@pytest.mark.parametrize("how", ["put", "forget"])
def test_a_read_that_began_before_does_not_replace_what_is_newer(pool: ThreadPoolExecutor, how: str) -> None:
    once, slow = Once(), Slow("old")
    first = pool.submit(once, "a", slow)
    assert slow.begun.wait(SECONDS)
    if how == "put":
        once.put("a", "new")
    else:
        once.forget("a")
    slow.go_on.set()
    assert result(first) == "old"
    assert once("a", lambda: "new") == "new"


# ---- clouds and claims


def test_a_cloud_that_connects_slowly_holds_up_no_other_one(
    pool: ThreadPoolExecutor, connects: dict[str, t.Callable[..., t.Any]]
) -> None:
    opened, slow = context(), Slow(Cloud("vast"))
    connects.update(vast=slow, runpod=lambda: Cloud("runpod"))
    late = [pool.submit(opened.clients.cloud, "vast") for _number in range(2)]
    assert slow.begun.wait(SECONDS)
    assert result(pool.submit(opened.clients.cloud, "runpod")).name == "runpod"
    assert result(pool.submit(opened.clients.instances, "runpod")) == ()
    assert result(pool.submit(opened.once, "version", lambda: "1.36")) == "1.36"
    assert not any(one.done() for one in late)
    slow.go_on.set()
    assert [result(one).name for one in late] == ["vast", "vast"]
    assert slow.calls == 1


def test_a_slow_read_of_anything_holds_up_no_cloud(pool: ThreadPoolExecutor, connects: dict[str, t.Callable[..., t.Any]]) -> None:
    opened, slow = context(), Slow("1.36")
    connects.update(vast=lambda: Cloud("vast"))
    version = pool.submit(opened.once, "server version", slow)
    assert slow.begun.wait(SECONDS)
    assert result(pool.submit(opened.clients.cloud, "vast")).name == "vast"
    slow.go_on.set()
    assert result(version) == "1.36"


def test_a_slow_list_of_one_cloud_holds_up_no_other_list(
    pool: ThreadPoolExecutor, connects: dict[str, t.Callable[..., t.Any]]
) -> None:
    opened, slow, vast = context(), Slow([]), Cloud("vast")
    vast.instances = slow  # type: ignore[method-assign]
    connects.update(vast=lambda: vast, runpod=lambda: Cloud("runpod"))
    late = pool.submit(opened.clients.instances, "vast")
    assert slow.begun.wait(SECONDS)
    assert result(pool.submit(opened.clients.instances, "runpod")) == ()
    slow.go_on.set()
    assert result(late) == ()


def test_a_failure_to_connect_is_remembered(connects: dict[str, t.Callable[..., t.Any]]) -> None:
    refused = Slow(InvalidInput("no key"))
    refused.go_on.set()
    connects.update(vast=refused)
    opened = context()
    for _number in range(2):
        with pytest.raises(InvalidInput, match="no key"):
            opened.clients.cloud("vast")
    assert refused.calls == 1


def test_a_cloud_that_was_given_up_is_closed_and_not_asked_again(connects: dict[str, t.Callable[..., t.Any]]) -> None:
    made: list[Cloud] = []
    connects.update(vast=lambda: made.append(Cloud("vast")) or made[-1])
    opened = context()
    opened.clients.cloud("vast")
    opened.clients.give_up("vast", ApiError("unauthorized"))
    with pytest.raises(ApiError, match="unauthorized"):
        opened.clients.cloud("vast")
    opened.refresh()  # of a run that waited: what is known now may be different
    assert opened.clients.cloud("vast") is made[1]
    opened.close()
    assert [one.closed for one in made] == [1, 1]


def test_claims_are_read_once_until_a_refresh() -> None:
    reads: list[int] = []
    opened = context(lambda: reads.append(1) or [])
    for expected in (1, 2):
        assert opened.records.known_claims() == opened.records.known_claims() == []
        assert len(reads) == expected
        opened.refresh()
