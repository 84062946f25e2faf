# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-18: floors and launches that follow a calendar, and the hour at which the last machine goes."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Calendar, Plan, Pool, Window
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.schedule import hours
from hypothesis import given
from hypothesis import strategies as st

from .build import claim, decide, instance, node, of, offer, one, pod, pool, seen, specs

BERLIN = ZoneInfo("Europe/Berlin")
WORKDAYS = frozenset(range(5))
OFFICE = Window(WORKDAYS, time(8), time(18), min_nodes=1)


def berlin(text: str) -> datetime:
    """A local moment like "2026-08-21 18:00" (a Friday), in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN).astimezone(timezone.utc)


def office(*windows: Window, zone: str = "Europe/Berlin", **facts: t.Any) -> Pool:
    return pool(calendar=Calendar(zone, windows or (OFFICE,)), **facts)


def at_work(now: datetime, wanted: Pool, **more: t.Any) -> Plan:
    """A machine since the morning of that day, idle for an hour."""
    morning = now - timedelta(hours=9)
    idle = (now - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    known = claim(launch_started=morning, registered=morning, initialized=morning, node_uid="uid-tgp-a1b2c3d4-p-00001")
    facts = {"claims": (known,), "instances": (instance(),), "nodes": (node(annotations={"tgp.io/idle-since": idle}),), **more}
    return decide(seen(now, **facts), specs(wanted))


def test_L18_the_floor_of_a_window_ends_with_it() -> None:
    assert not of(at_work(berlin("2026-08-21 17:59:59"), office()), "destroy")
    gone = one(at_work(berlin("2026-08-21 18:00:00"), office()), "destroy")
    assert gone.reason == "Empty"


def test_L18_a_busy_node_stays_until_the_hard_stop() -> None:
    stopping = office(dataclasses.replace(OFFICE, hard_stop=time(20)), termination_grace=600)
    busy = {"pods": (pod(),)}
    for moment, wanted in (("18:00:00", office()), ("23:59:00", office()), ("19:59:59", stopping)):
        assert not of(at_work(berlin(f"2026-08-21 {moment}"), wanted, **busy), "destroy"), moment
    gone = one(at_work(berlin("2026-08-21 20:00:00"), stopping, **busy), "destroy")
    assert gone.reason == "Expired" and "hard stop of its pool's calendar" in gone.detail


def test_L18_of_windows_that_end_together_the_one_with_a_hard_stop_counts() -> None:
    """Every day until six, and on Fridays the last ones go at eight: in whichever order that is written."""
    friday = Window(frozenset({4}), time(12), time(18), hard_stop=time(20))
    for windows in ((OFFICE, friday), (friday, OFFICE)):
        assert hours(office(*windows), berlin("2026-08-21 19:59:59")).stop is None
        assert hours(office(*windows), berlin("2026-08-21 20:00:00")).stop == berlin("2026-08-21 20:00:00")
        assert hours(office(*windows), berlin("2026-08-20 20:00:00")).stop is None, "a Thursday"


def test_L18_a_hold_delays_the_hard_stop_by_the_grace_period_at_most() -> None:
    stopping = office(dataclasses.replace(OFFICE, hard_stop=time(20)), termination_grace=600)
    held = {"pods": (pod(),), "nodes": (node(annotations={"tgp.io/do-not-disrupt": "true"}),)}
    assert not of(at_work(berlin("2026-08-21 20:09:59"), stopping, **held), "destroy")
    assert one(at_work(berlin("2026-08-21 20:10:00"), stopping, **held), "destroy").reason == "Expired"


def test_L18_outside_of_all_windows_nothing_is_launched() -> None:
    facts = {"offers": (offer(),)}
    inside = decide(seen(berlin("2026-08-21 08:00"), **facts), specs(office()), "provision")
    assert len(of(inside, "launch")) == 1, "minNodes of the window"
    for moment in ("2026-08-21 07:59:59", "2026-08-21 18:00", "2026-08-22 12:00"):
        asked = decide(seen(berlin(moment), **facts), specs(office(), p=1), "provision")
        assert not of(asked, "launch") and asked.shortfall[0].reason.startswith("outside its calendar, which opens"), moment
    assert asked.shortfall[0].reason == "outside its calendar, which opens Mon 2026-08-24 08:00 Europe/Berlin"
    unasked = decide(seen(berlin("2026-08-22 12:00"), **facts), specs(office(min_nodes=3)), "provision")
    assert not unasked.actions and not unasked.shortfall


def test_L18_a_window_over_midnight_belongs_to_the_day_on_which_it_begins() -> None:
    night = office(Window(frozenset({4}), time(22), time(6), 2, time(7)))
    for moment, floor in (("2026-08-21 21:59", 0), ("2026-08-21 22:00", 2), ("2026-08-22 05:59", 2), ("2026-08-22 06:00", 0)):
        assert hours(night, berlin(moment)).min_nodes == floor, moment
    assert hours(night, berlin("2026-08-22 06:59")).stop is None
    assert hours(night, berlin("2026-08-22 07:00")).stop == berlin("2026-08-22 07:00")
    assert hours(night, berlin("2026-08-28 21:59")).stop == berlin("2026-08-22 07:00"), "until it opens again"
    assert hours(night, berlin("2026-08-28 22:00")).stop is None


def test_L18_a_whole_day_has_no_gap() -> None:
    always = office(Window(frozenset(range(7)), time(0), time(0), 1, time(0)))
    assert all(hours(always, berlin("2026-08-21 00:00") + timedelta(minutes=20 * step)).min_nodes == 1 for step in range(200))


def test_L18_the_largest_floor_of_windows_that_overlap_counts() -> None:
    both = office(OFFICE, Window(WORKDAYS, time(12), time(13), 3), Window(WORKDAYS, time(9), time(10)), min_nodes=2)
    for moment, floor in (("11:59", 1), ("12:30", 3), ("13:00", 1), ("09:30", 2)):
        assert hours(both, berlin(f"2026-08-21 {moment}")).min_nodes == floor, moment


@pytest.mark.parametrize(
    ("day", "opens", "closes"),
    [
        ("2026-03-27", "07:00", "17:00"),
        ("2026-03-30", "06:00", "16:00"),
        ("2026-10-23", "06:00", "16:00"),
        ("2026-10-26", "07:00", "17:00"),
    ],
)
def test_L18_hours_are_those_of_the_clock_on_the_wall(day: str, opens: str, closes: str) -> None:
    for text, open_now in ((opens, True), (closes, False)):
        moment = datetime.fromisoformat(f"{day}T{text}:00+00:00")
        assert bool(hours(office(), moment).closed) is not open_now
        assert bool(hours(office(), moment - timedelta(seconds=1)).closed) is open_now


def test_L18_a_pool_without_a_calendar_is_always_open() -> None:
    found = hours(pool(min_nodes=2), berlin("2026-08-22 03:00"))
    assert (found.min_nodes, found.closed, found.stop) == (2, "", None)


WINDOWS = st.builds(
    Window,
    st.frozensets(st.integers(0, 6), min_size=1),
    st.times().map(lambda one: one.replace(second=0, microsecond=0)),
    st.times().map(lambda one: one.replace(second=0, microsecond=0)),
    st.none() | st.integers(0, 5),
    st.none() | st.times().map(lambda one: one.replace(second=0, microsecond=0)),
)


@given(st.lists(WINDOWS, min_size=1, max_size=3), st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)))
def test_L18_a_pool_is_open_or_says_when_it_opens_and_never_both(windows: list[Window], naive: datetime) -> None:
    now = naive.replace(tzinfo=timezone.utc)
    found = hours(office(*windows), now)
    assert not (found.closed and found.min_nodes) and (found.stop is None or (bool(found.closed) and found.stop <= now))
    if found.closed:
        opens = datetime.strptime(found.closed.split("opens ")[1].removesuffix(" Europe/Berlin"), "%a %Y-%m-%d %H:%M")
        assert not hours(office(*windows), opens.replace(tzinfo=BERLIN).astimezone(timezone.utc)).closed
