# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people are told by apprise, and when: that a matter begins and that it is over, never twice, and only urgent things at night."""

from __future__ import annotations

import dataclasses
import time
import typing as t
from datetime import datetime, timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.core.notifications import Message
from ansible_collections.tgp.gpu.plugins.module_utils.core.redact import redact
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.model import Notice, Phase
from ansible_collections.tgp.gpu.plugins.module_utils.observe.people import People
from ansible_collections.tgp.gpu.plugins.module_utils.planner import notices
from ansible_collections.tgp.gpu.plugins.module_utils.planner.notices import Announcement
from ansible_collections.tgp.gpu.plugins.module_utils.units.calendar import HoursOfDay, TimeOfDay
from hypothesis import given
from hypothesis import strategies as st

from .build import NOON, claim

URGENT = Notice("orphan_found", "orphan_found|lambda i-1", "lambda i-1", "It has no claim.")
CALM = Notice("gpus_missing", "gpus_missing|m-1", "m-1", "It shows 7 of 8 GPUs.")
BOTH = frozenset({"orphan_found", "gpus_missing"})


@dataclasses.dataclass
class Memory:
    """What people know, over some runs."""

    known: dict[str, datetime] = dataclasses.field(default_factory=dict)

    def run(
        self,
        *present: Notice,
        now: datetime,
        quiet: bool = False,
        judged: t.Collection[str] = BOTH,
        arrives: bool = True,
        reminded: bool = True,
    ) -> list[tuple[str, str]]:
        """The messages of one run."""
        words = notices.begun(present, self.known, now, quiet=quiet, reminded=reminded)
        words += notices.resolved(present, self.known, judged, quiet=quiet)
        self.known = notices.people_know(present, self.known, words if arrives else [], judged, now)
        return [(word.key, word.state) for word in words]


def later(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def test_a_matter_is_told_when_it_begins_and_when_it_is_over() -> None:
    people = Memory()
    told = [people.run(*present, now=later(minutes)) for minutes, present in enumerate([[URGENT], [URGENT], [], [], [URGENT]])]
    assert told == [[(URGENT.key, "began")], [], [(URGENT.key, "resolved")], [], [(URGENT.key, "began")]]


def test_one_that_lasts_is_told_again_after_a_day_unless_a_summary_has_it() -> None:
    for reminded, again in ((True, [(CALM.key, "began")]), (False, [])):
        people = Memory()
        people.run(CALM, now=NOON)
        assert people.run(CALM, now=later(24 * 60 - 1), reminded=reminded) == []
        assert people.run(CALM, now=later(24 * 60), reminded=reminded) == again


def test_in_quiet_hours_only_urgent_matters_are_told_and_the_rest_when_they_end() -> None:
    people = Memory()
    assert people.run(URGENT, CALM, now=NOON, quiet=True) == [(URGENT.key, "began")]
    assert people.run(CALM, now=later(5), quiet=True) == []
    assert sorted(people.run(CALM, now=later(60))) == [(CALM.key, "began"), (URGENT.key, "resolved")]


def test_a_matter_that_came_and_went_at_night_is_not_told() -> None:
    people = Memory()
    people.run(CALM, now=NOON, quiet=True)
    assert people.run(now=later(60)) == [] and people.known == {}


def test_what_did_not_arrive_is_tried_again_its_end_too() -> None:
    people = Memory()
    assert people.run(CALM, now=NOON, arrives=False) == people.run(CALM, now=later(5)) == [(CALM.key, "began")]
    assert people.run(now=later(10), arrives=False) == people.run(now=later(3000)) == [(CALM.key, "resolved")]


def test_a_run_that_did_not_look_says_neither_that_it_is_over_nor_that_it_began() -> None:
    people = Memory()
    people.run(CALM, now=NOON)
    assert people.run(now=later(5), judged=()) == []
    assert people.run(CALM, now=later(10)) == []


HAPPENINGS = st.lists(
    st.tuples(st.sampled_from([(), (URGENT,), (CALM,), (URGENT, CALM)]), st.booleans(), st.booleans(), st.integers(1, 400)),
    max_size=25,
)


@given(HAPPENINGS)
def test_beginnings_and_ends_take_turns_and_nothing_urgent_waits(
    happenings: list[tuple[tuple[Notice, ...], bool, bool, int]],
) -> None:
    """Whatever comes, goes, and gets lost: people never hear of an end of which they did not hear the beginning, nor of one twice."""
    people, now = Memory(), NOON
    heard: dict[str, str] = {}
    for present, quiet, arrives, minutes in happenings:
        now += timedelta(minutes=minutes)
        words = people.run(*present, now=now, quiet=quiet, arrives=arrives, reminded=False)
        for key, state in words:
            assert (state == "resolved") == (heard.get(key) == "began")
            assert not quiet or (key == URGENT.key and state == "began")
            if arrives:
                heard[key] = state
        if URGENT in present and arrives:
            assert heard[URGENT.key] == "began"
        if not present and not quiet and arrives:
            assert people.known == {} and "began" not in heard.values()


@given(HAPPENINGS)
def test_a_run_in_which_nothing_changes_leaves_what_people_know_as_it_is(
    happenings: list[tuple[tuple[Notice, ...], bool, bool, int]],
) -> None:
    people, now = Memory(), NOON
    for present, quiet, arrives, minutes in happenings:
        now += timedelta(minutes=minutes)
        people.run(*present, now=now, quiet=quiet, arrives=arrives, reminded=False)
        if arrives:
            before = dict(people.known)
            assert people.run(*present, now=now + timedelta(seconds=30), quiet=quiet, reminded=False) == []
            assert people.known == before


def test_the_records_of_receivers_and_of_people_do_not_mix() -> None:
    memory = {CALM.key: NOON, f"@{CALM.key}": later(1)}
    assert notices.known_to_people(memory) == ({CALM.key: NOON}, {CALM.key: later(1)})


# ---- the summary


def test_a_summary_has_machines_their_cost_and_what_lasts_once_a_day() -> None:
    machines = [
        claim("tgp-a1b2c3d4-p-00001", idle_since=NOON),
        claim("tgp-a1b2c3d4-p-00002", pool="default/q"),
        claim("tgp-a1b2c3d4-p-00003", phase=Phase.TERMINATING, gone_since=NOON),
    ]
    (word,) = notices.summary(machines, [CALM], {}, NOON)
    assert (word.subject, word.state) == ("2 machines, $0.84/h", "summary")
    assert word.text.splitlines() == [
        "default/p: 1 machine, $0.42/h, 1 idle.",
        "default/q: 1 machine, $0.42/h, 0 idle.",
        "gpus_missing: It shows 7 of 8 GPUs.",
    ]
    known = notices.people_know([], {}, [word], (), later(3))
    assert notices.summary(machines, [], known, NOON) == []
    assert notices.summary([], [], known, later(4))[0].text == "No machine.\nNothing is wrong."
    much_later = later(3 * 24 * 60)
    assert notices.people_know([], known, [], BOTH, much_later) == known


def test_a_summary_is_not_over() -> None:
    assert notices.resolved([], {notices.SUMMARY: NOON}, BOTH, quiet=False) == []
    assert Announcement("k", "resolved", "", "") == Announcement("k", state="resolved", subject="", text="")


# ---- hours


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("22:00-07:00", ["22:00", "23:59", "00:00", "06:59"], ["07:00", "12:00", "21:59"]),
        ("09:30-17:00 UTC", ["09:30", "16:59"], ["09:29", "17:00", "00:00"]),
        ("22:00-07:00 Asia/Tokyo", ["13:00", "21:59"], ["22:00", "12:59"]),
    ],
)
def test_quiet_hours_hold_from_the_first_minute_until_before_the_last(text: str, inside: list[str], outside: list[str]) -> None:
    hours = HoursOfDay.of(text)
    found = {clock: hours.holds(datetime.fromisoformat(f"2026-08-21T{clock}:00+00:00")) for clock in (*inside, *outside)}
    assert found == {**dict.fromkeys(inside, True), **dict.fromkeys(outside, False)}


def test_the_last_moment_of_a_time_of_the_day_follows_the_clocks_of_the_place() -> None:
    eight = TimeOfDay.of("08:00 Europe/Berlin")
    assert eight.last(datetime.fromisoformat("2026-08-21T06:00:00+00:00")).isoformat() == "2026-08-21T06:00:00+00:00"
    assert eight.last(datetime.fromisoformat("2026-08-21T05:59:59+00:00")).isoformat() == "2026-08-20T06:00:00+00:00"
    assert eight.last(datetime.fromisoformat("2026-12-21T07:30:00+00:00")).isoformat() == "2026-12-21T07:00:00+00:00"


# ---- options

SECRET = "T0123456789-secret-of-a-room"
URL = f"slack://{SECRET}/B0123456789/xoxb-0123456789"


def people(**params: t.Any) -> People:
    return People(Task(params), lambda: None)


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"notify_apprise": [URL, "no url"]}, "notify_apprise: entry 2 must be a URL of apprise"),
        ({"notify_apprise": "/no/such/file"}, "/no/such/file cannot be read: No such file"),
        ({"notify_quiet": "22:00-07:00"}, "notify_quiet is given without notify_apprise"),
        ({"notify_summary": "08:00"}, "notify_summary is given without notify_apprise"),
        ({"notify_apprise": URL, "notify_quiet": "22-7"}, "notify_quiet: '22' must be a time of the day"),
        ({"notify_apprise": URL, "notify_quiet": "07:00-07:00"}, "'07:00-07:00' has no length"),
        ({"notify_apprise": URL, "notify_summary": "08:00 Mars/Olympus"}, "'Mars/Olympus' is not a time zone"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_without_their_secrets(params: dict[str, t.Any], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        people(**params)
    assert said in str(refused.value) and SECRET not in str(refused.value)


def test_urls_come_from_a_list_a_line_a_file_and_the_environment(tmp_path: t.Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rooms"
    file.write_text(f"# the room of the team\n{URL}\n\n")
    assert people(notify_apprise=[URL, "secret"])._entries == [URL, "secret"]
    assert people(notify_apprise=f"{URL} {file}")._entries == [URL, URL]
    monkeypatch.setenv("TGP_NOTIFY_APPRISE", URL)
    assert people()._entries == [URL]
    assert SECRET not in redact(f"the token {SECRET} of a room")


def test_what_apprise_logs_reaches_no_other_log(caplog: pytest.LogCaptureFixture) -> None:
    away = People(Task({"notify_apprise": "json://127.0.0.1:1/room-of-somebody"}), lambda: None)
    problem = away.deliver(Message("orphan_found", URGENT.key, URGENT.subject, URGENT.text), time.monotonic())
    assert problem == "json did not take it: the 10 seconds for notices were over."
    problem = away.deliver(Message("orphan_found", URGENT.key, URGENT.subject, URGENT.text), time.monotonic() + 60)
    assert problem == "json did not take it, or cannot be reached."
    assert [record for record in caplog.records if record.name == "apprise"] == []


def test_without_the_library_the_run_does_not_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(InvalidInput, match="needs the Python library apprise"):
        people(notify_apprise=URL)
    assert not people().is_set
