# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clocks, the progress line, the event log and tables."""

from __future__ import annotations

import json
import threading
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.clock import FileClock, from_environment, from_text, looks, to_text
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import ServerError
from ansible_collections.tgp.gpu.plugins.module_utils.core.events import Events, Progress, render
from ansible_collections.tgp.gpu.plugins.module_utils.observe.clients import Feed

from sandbox.clock import SimClock

NOON = datetime(2026, 8, 21, 12, 0, 0, tzinfo=timezone.utc)


class At:
    """A clock that stands still until it is moved."""

    speed = 1.0

    def __init__(self) -> None:
        self.moment = NOON

    def now(self) -> datetime:
        return self.moment

    def sleep(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


def test_L00_times_are_rfc3339_utc_whole_seconds() -> None:
    assert to_text(NOON.replace(microsecond=999_999)) == "2026-08-21T12:00:00Z"
    assert from_text("2026-08-21T14:00:00+02:00") == NOON
    with pytest.raises(ValueError, match="no time zone"):
        from_text("2026-08-21T12:00:00")


def test_the_collection_follows_the_sandbox_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "clock.json"
    world = SimClock(speed=50, path=str(path))
    monkeypatch.setenv("TGP_CLOCK_FILE", str(path))
    clock = from_environment()
    assert isinstance(clock, FileClock)
    world.advance(3600)
    assert abs((clock.now() - world.now()).total_seconds()) < 5
    world.run_at(2)
    assert abs((clock.now() - world.now()).total_seconds()) < 1
    assert clock.speed == 2


def test_a_sleep_ends_when_the_clock_is_moved(tmp_path: Path) -> None:
    path = tmp_path / "clock.json"
    world = SimClock(path=str(path))
    started = world.seconds()
    threading.Timer(0.1, world.advance, [3600]).start()
    FileClock(str(path)).sleep(3000)
    assert world.seconds() - started >= 3600, "nobody waits for 50 minutes of real time"


@pytest.mark.parametrize(
    ("answers", "seen"),
    [([0] * 20, [0, 5, 10, 15, 20, 25, 30]), ([0, 100], [0, 5, 110]), ([100], [0, 105, 110]), ([10] * 20, [0, 15, 30])],
)
def test_what_is_waited_for_is_looked_at_several_times_however_slow_the_answers_are(
    answers: list[float], seen: list[float]
) -> None:
    """Within 30 s, every 5 s, at least three times; an answer takes as long as ``answers`` says."""
    clock, at = At(), []
    for number, _ in enumerate(looks(clock, within=30, every=5, least=3)):
        at.append((clock.now() - NOON).total_seconds())
        clock.moment += timedelta(seconds=[*answers, *[0] * 20][number])
    assert at == seen


def test_the_clock_cannot_go_back() -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        SimClock().advance(-1)


def test_a_step_shows_elapsed_time_and_cost_and_is_logged(tmp_path: Path) -> None:
    said: list[str] = []
    progress = Progress(said.append, At(), Events(str(tmp_path / "events.jsonl"), At(), "run-1"))
    progress.step("tgp-x", "joined", "complete", since=NOON - timedelta(seconds=1230), price_hour=Decimal("0.42"), cloud="lambda")
    assert said[0].split() == ["20m30s", "$0.1435", "tgp-x", "joined", "complete"]
    record = json.loads((tmp_path / "events.jsonl").read_text())
    assert record == {
        "time": "2026-08-21T12:00:00Z", "run": "run-1", "seq": 1, "kind": "progress", "name": "tgp-x", "event": "joined", "text": "complete",
        "elapsed": 1230.0, "price_hour": "0.42", "cost": "0.1435", "cloud": "lambda",
    }  # fmt: skip


def test_without_a_log_nothing_is_logged(tmp_path: Path) -> None:
    Progress(lambda line: None, At(), None).step("x", "e")
    Progress(lambda line: None, At(), Events("", At(), "run-1")).step("x", "e")
    assert not list(tmp_path.iterdir())


def test_a_table_is_aligned() -> None:
    rows = [{"name": "a", "price": "0.69"}, {"name": "long-name", "price": None}]
    assert render(rows, {"name": "node", "price": "$/h"}, right=("price",)) == [
        "  node        $/h",
        "  ---------  ----",
        "  a          0.69",
        "  long-name",
    ]
    assert render([], {"name": "node"}) == []


def test_a_feed_reads_once_for_many_and_keeps_the_last_good_list() -> None:
    clock, calls = At(), []

    def read() -> list[int]:
        calls.append(1)
        if len(calls) == 2:
            raise ServerError("cloud: GET /x was answered 500: no text.")
        return [len(calls)]

    feed: Feed[int] = Feed(read, clock, max_age=5)
    assert feed.items() == (1,) and feed.items() == (1,) and len(calls) == 1
    clock.sleep(5)
    assert feed.items() == (1,) and "500" in feed.problem
    clock.sleep(5)
    assert feed.items() == (3,) and not feed.problem


def test_a_list_that_takes_longer_than_it_is_fresh_is_read_once_for_many_and_keeps_the_date_of_the_question() -> None:
    clock, calls = At(), []

    def read() -> list[int]:
        calls.append(clock.now())
        clock.sleep(60)
        return [len(calls)]

    feed: Feed[int] = Feed(read, clock, max_age=5)
    assert [feed.items() for _claim in range(10)] == [(1,)] * 10 and calls == [NOON]
    listing = feed.listing()
    assert listing is not None and listing.asked == NOON, "what came to be in that minute may not be in it"
    assert listing.answered == NOON + timedelta(seconds=60), "what is not in it may have lived until then"
    clock.sleep(4.9)
    assert feed.items() == (1,)
    clock.sleep(0.1)
    assert feed.items() == (2,) and len(calls) == 2


def test_a_list_that_was_asked_for_before_something_happened_is_read_again_once_for_all_that_ask() -> None:
    clock, calls = At(), []

    def read() -> list[int]:
        clock.sleep(60)
        calls.append(1)
        return [len(calls)]

    feed: Feed[int] = Feed(read, clock, max_age=5)
    assert feed.items() == (1,)
    created = NOON + timedelta(seconds=30)
    assert [feed.items_since(created) for _claim in range(10)] == [(2,)] * 10 and len(calls) == 2


def test_a_moment_that_is_still_to_come_by_the_clock_of_another_host_means_now() -> None:
    clock, calls = At(), []

    def read() -> list[int]:
        calls.append(1)
        return [len(calls)]

    feed: Feed[int] = Feed(read, clock, max_age=5)
    assert feed.items() == (1,)
    clock.sleep(1)
    ahead = timedelta(minutes=1)
    assert [feed.items_since(clock.now() + ahead) for _claim in range(10)] == [(2,)] * 10 and len(calls) == 2
    clock.sleep(1)
    assert [feed.items(clock.now() + ahead) for _claim in range(10)] == [(3,)] * 10 and len(calls) == 3


def test_an_older_list_is_no_answer_to_those_who_need_a_newer_one() -> None:
    clock, answers = At(), [[1], ServerError("cloud: GET /x was answered 500: no text.")]

    def read() -> list[int]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    feed: Feed[int] = Feed(read, clock, max_age=5)
    assert feed.items_since(NOON) == (1,)
    clock.sleep(1)
    with pytest.raises(ServerError, match="500"):
        feed.items_since(clock.now())
    listing = feed.listing()
    assert listing is not None and listing.items == (1,) and listing.asked == NOON, "others keep it with its date"


def test_a_feed_that_never_read_is_unknown_not_empty() -> None:
    def read() -> list[int]:
        raise ServerError("cloud: down")

    assert Feed(read, At()).items() is None
