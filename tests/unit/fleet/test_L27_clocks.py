# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-27: what a host decides whose clock is wrong, and what a moment in the future says."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta, timezone

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import clock as clocks
from ansible_collections.tgp.gpu.plugins.module_utils.model import Deletion, Observation, Phase, Plan
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Destroy, Settings
from ansible_collections.tgp.gpu.plugins.module_utils.model.labels import IDLE_SINCE_ANNOTATION
from ansible_collections.tgp.gpu.plugins.module_utils.planner import clock_skew
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption import emptiness
from hypothesis import given, settings
from hypothesis import strategies as st

from .build import NOON, at, claim, decide, deletions, followed, instance, node, of, offer, pod, pool, seen, specs
from .test_L24_voluntary import wanted, worlds

HOUR = timedelta(hours=1)


def observed(offset: float | None, now: datetime = NOON, **facts: t.Any) -> Observation:
    usual: dict[str, t.Any] = {"claims": (claim(),), "nodes": (node(),), "instances": (instance(),), "pods": (pod(),)}
    return seen(now, clock_offset=offset, clock_source="kubernetes", **{**usual, **facts})


def test_L27_two_hours_ahead_at_71_minutes_of_three_hours_nothing_ends() -> None:
    """[E] host +7200 s, expireAfter 3h, true age 71 min."""
    now = at("12:11") + 2 * HOUR
    asked = specs(pool(expire_after=3 * 3600))
    assert [one.reason for one in of(decide(observed(None, now), asked), "destroy")] == ["Expired"], "unknown: as before"
    found = decide(observed(-7200.0, now), asked)
    assert not found.actions and found.problems[0].startswith("The clock of this host is 2h ahead of that of kubernetes.")
    assert [(one.kind, one.subject) for one in found.notices] == [("clock", "kubernetes")]


@pytest.mark.parametrize(("offset", "wrong"), [(120.0, False), (-120.0, False), (120.5, True), (-121.0, True), (0.0, False)])
def test_L27_the_limit_is_two_minutes(offset: float, wrong: bool) -> None:
    found = decide(observed(offset, at("14:11")), specs(pool(expire_after=3 * 3600)))
    assert bool(found.problems) is wrong and bool(of(found, "destroy")) is not wrong


@pytest.mark.parametrize("mode", ["provision", "everything", "autoscale"])
def test_L27_nothing_is_launched_by_a_wrong_clock(mode: str) -> None:
    world = observed(7200.0, claims=(), nodes=(), instances=(), pods=(), offers=(offer(),))
    right = dataclasses.replace(world, clock_offset=0.0)
    asked = specs(pool(min_nodes=1), p=1)
    assert len(of(decide(right, asked, mode), "launch")) == 1
    assert not of(decide(world, asked, mode), "launch")


def test_L27_what_a_person_asks_for_goes_on() -> None:
    found = decide(observed(-7200.0), mode="destroy", destroy=Destroy(all=True))
    assert [one.reason for one in of(found, "destroy")] == ["Manual"] and found.problems


@pytest.mark.parametrize(
    ("reason", "phase", "goes_on"),
    [
        ("Manual", Phase.READY, True),
        ("SpotLost", Phase.READY, True),
        ("Expired", Phase.READY, False),
        ("Unhealthy", Phase.READY, False),
        ("Empty", Phase.READY, False),
        ("Expired", Phase.TERMINATING, True),
    ],
)
def test_L27_of_ends_under_way_those_go_on_that_hang_on_no_time(reason: str, phase: Phase, goes_on: bool) -> None:
    ending = followed(claim(phase=phase, deletion=Deletion(reason, at("11:40"))), specs())
    found = decide(observed(-7200.0, claims=(ending,)))
    assert [one.claim for one in found.actions] == ([ending] if goes_on else []), "the record stays as it is"


@settings(deadline=None)
@given(
    worlds(),
    wanted(),
    st.sampled_from(["reap", "everything", "autoscale", "provision"]),
    st.sampled_from([-86400.0, -121.0, 121.0, 7200.0]),
)
def test_L27_no_world_loses_or_gains_anything_by_a_wrong_clock(world: Observation, asked: t.Any, mode: str, offset: float) -> None:
    found: Plan = decide(dataclasses.replace(world, clock_offset=offset, clock_source="lambda"), asked, mode)
    going = {one.name for one in world.claims or () if one.deletion is not None or one.phase is Phase.TERMINATING}
    assert {one.name for one in deletions(found)} <= going
    assert not of(found, "launch", "resume", "update", "annotate", "taint", "restore")
    assert dict(found.findings) == dict(world.findings)


# ---- idle-since that lies in the future


def judged(since: str, *pods: t.Any) -> emptiness.Idle:
    marked = node(annotations={IDLE_SINCE_ANNOTATION: since})
    return emptiness.node_idle(claim(), marked, pods, pool(), Settings(), NOON)


def test_L27_idle_since_a_little_ahead_counts_as_now() -> None:
    for text in ("2026-08-20T12:00:01Z", "2026-08-20T12:01:59Z", "2026-08-20T12:02:00Z"):
        found = judged(text)
        assert found.since == NOON and not found.write and not found.eligible and not found.warnings


def test_L27_idle_since_far_ahead_is_unknown_and_left_as_it_is() -> None:
    found = judged("2026-08-20T12:02:01Z")
    assert found.busy is None and not found.write and not found.eligible and "lies in the future" in found.warnings[0]
    assert judged("2026-08-20T14:00:00Z", pod()).busy is True, "a pod is seen whatever the clocks say"


# ---- what answers say


class Still:
    """A clock that stands."""

    speed = 1.0

    def __init__(self, *apart: str) -> None:
        self.apart = apart

    def now(self) -> datetime:
        return NOON

    def sleep(self, seconds: float) -> None: ...


def told(one: Still) -> tuple[str, float] | None:
    return clocks.others_ahead(one, {"kubernetes", "lambda"}, 0.0)


def date(seconds: float) -> dict[str, str]:
    return {"date": (NOON + timedelta(seconds=seconds)).astimezone(timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")}


def test_L27_a_date_tells_whole_seconds_and_a_slow_answer_tells_less() -> None:
    quick, slow = Still(), Still()
    clocks.compare(quick, "kubernetes", date(-7200), NOON, NOON)
    assert told(quick) == ("kubernetes", -7199.0)
    clocks.compare(slow, "kubernetes", date(150), NOON, NOON + timedelta(seconds=60))
    assert told(slow) == ("kubernetes", 90.0), "90 s are certain: that is within the limit"
    clocks.compare(slow, "kubernetes", date(150), NOON, NOON)
    assert told(slow) == ("kubernetes", 150.0), "a quick answer says more"


def test_L27_how_long_a_machine_runs_is_counted_by_the_clock_that_says_it() -> None:
    one = Still()
    assert clocks.now_of(one, "vast") == NOON
    clocks.compare(one, "vast", date(7200), NOON, NOON)
    clocks.compare(one, "lambda", date(60), NOON, NOON)
    assert clocks.now_of(one, "vast") == NOON + timedelta(seconds=7200)
    assert clock_skew.corrected(NOON, 7200.0) == NOON + timedelta(seconds=7200)
    assert clock_skew.corrected(NOON, -120.0) == clock_skew.corrected(NOON, None) == NOON


def test_L27_the_one_that_differs_most_counts() -> None:
    one = Still()
    clocks.compare(one, "kubernetes", date(0), NOON, NOON)
    clocks.compare(one, "lambda", date(600), NOON, NOON)
    clocks.compare(one, "image factory", date(6000), NOON, NOON)
    assert told(one) == ("lambda", 600.0)


def test_L27_a_clock_that_was_set_meanwhile_is_seen() -> None:
    one = Still()
    clocks.compare(one, "kubernetes", date(7200), NOON, NOON)
    clocks.compare(one, "kubernetes", date(0), NOON, NOON)
    assert told(one) == ("kubernetes", 0.0)


def test_L27_what_says_nothing() -> None:
    one = Still("kubernetes")
    clocks.compare(one, "kubernetes", date(7200), NOON, NOON)
    clocks.compare(one, "lambda", {**date(7200), "age": "7200"}, NOON, NOON)
    clocks.compare(one, "lambda", {}, NOON, NOON)
    clocks.compare(one, "lambda", {"date": "yesterday"}, NOON, NOON)
    assert told(one) is None
