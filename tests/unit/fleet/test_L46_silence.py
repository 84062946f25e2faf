# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-46: when a machine that nobody looks after powers itself off. Looks are ten minutes apart."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Guard
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection.silence import (
    ANSWER,
    LOOK_EVERY,
    NO_NODE,
    RENEWED,
    SILENCE,
    UNKNOWN,
    Silence,
    guard_of,
    look,
    why_off,
)
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES
from hypothesis import given
from hypothesis import strategies as st

from .build import node_class

DAY = 86400
API = Guard(DAY)
BOTH = Guard(DAY, DAY)
Look = tuple[str, str]
SAW: Look = (SILENCE, "")
OLD: Look = (RENEWED, "2026-11-27T18:00:00.000000Z")


def ends(looks: t.Iterable[Look], guard: Guard, *, every: int = LOOK_EVERY, first: int = LOOK_EVERY) -> tuple[int, str] | None:
    """(uptime, who was silent) of the look that powers off; None = the machine stays on."""
    known: Silence | None = None
    for number, (seen, renewed) in enumerate(looks):
        known = look(known, first + number * every, seen, renewed)
        if why := why_off(known, seen, guard):
            return known.uptime, why
    return None


def test_L46_the_api_server_answers_at_0600_for_the_last_time_and_a_day_later_the_machine_is_off() -> None:
    assert ends([(ANSWER, ""), *[SAW] * 144], API) == (600 + DAY, "api")
    assert ends([(ANSWER, ""), *[SAW] * 143], API) is None


@pytest.mark.parametrize("answer", [(ANSWER, ""), OLD])
def test_L46_one_answer_after_23_h_50_min_of_silence_and_a_whole_day_begins_anew(answer: Look) -> None:
    looks = [(ANSWER, ""), *[SAW] * 143, answer]
    assert ends([*looks, *[SAW] * 143], API) is None
    assert ends([*looks, *[SAW] * 144], API) == (600 + 2 * DAY, "api")


def test_L46_a_machine_that_boots_into_silence_has_a_whole_day_from_its_first_look() -> None:
    assert ends([SAW] * 144, API) is None
    assert ends([SAW] * 145, API) == (600 + DAY, "api")


def test_L46_thirty_hours_in_which_the_machine_was_suspended_count_as_twenty_minutes() -> None:
    known = look(Silence(3600), 3600 + 30 * 3600, SILENCE)
    assert (known.api, why_off(known, SILENCE, API)) == (1200, "")


def test_L46_a_busy_machine_whose_controller_is_silent_for_a_weekend_stays_on_by_default() -> None:
    assert ends([OLD] * (3 * 144), API) is None


def test_L46_with_controllerSilentFor_it_is_off_a_day_after_the_first_look_that_saw_the_last_renewal() -> None:
    assert ends([OLD] * 144, BOTH) is None
    assert ends([OLD] * 145, BOTH) == (600 + DAY, "controller")
    assert ends([OLD] * 144 + [(RENEWED, "2026-11-28T17:50:00Z")] + [OLD] * 144, BOTH) is None


@pytest.mark.parametrize("odd", [(ANSWER, ""), (UNKNOWN, ""), SAW])
def test_L46_looks_that_do_not_show_the_lease_are_no_time_of_a_silent_controller(odd: Look) -> None:
    looks = [OLD, *[odd] * 100, *[OLD] * 144]
    assert ends(looks[:-1], Guard(None, DAY)) is None
    assert ends(looks, Guard(None, DAY)) == (600 + 100 * 600 + DAY, "controller")


def test_L46_a_fault_of_the_machine_neither_counts_nor_forgets() -> None:
    assert ends([SAW] * 145 + [(UNKNOWN, "")], Guard(2 * DAY)) is None
    known = look(Silence(3600, api=DAY - 600), 4200, UNKNOWN)
    assert (known.api, why_off(known, UNKNOWN, Guard(600))) == (DAY - 600, "")
    assert look(known, 4800, SILENCE).api == DAY


def test_L46_a_machine_that_never_became_a_node_is_off_after_a_day_although_the_api_server_answers() -> None:
    assert ends([(NO_NODE, "")] * 145, API) == (600 + DAY, "api")


def test_L46_a_note_that_is_later_than_now_is_of_another_boot() -> None:
    assert look(Silence(90000, api=DAY, controller=DAY, renewed=OLD[1]), 600, SILENCE) == Silence(600)


def test_L46_never_is_never() -> None:
    assert ends([SAW] * 2000, Guard(None, DAY)) is None
    assert ends([OLD] * 2000, Guard(DAY, None)) is None


def test_L46_the_default_is_a_day_where_a_machine_that_is_off_costs_less_and_nothing_elsewhere() -> None:
    plain, said = node_class(), node_class(guard=Guard(3600))
    given_by = {cloud: guard_of(plain, facts) for cloud, facts in CAPABILITIES.items()}
    assert {cloud for cloud, guard in given_by.items() if guard == Guard(DAY)} == {"gcp", "paperspace", "vast"}
    assert {cloud for cloud, guard in given_by.items() if guard is None} == {"lambda", "runpod", "vultr", "webhook"}
    assert guard_of(said, CAPABILITIES["lambda"]) == Guard(3600)
    assert guard_of(node_class(guard=Guard()), CAPABILITIES["gcp"]) is None


_LOOKS = st.lists(
    st.tuples(st.sampled_from([RENEWED, ANSWER, SILENCE, NO_NODE, UNKNOWN]), st.sampled_from(["a", "b"]), st.integers(0, 5000)),
    max_size=60,
)


@given(_LOOKS, st.integers(3600, 20000), st.integers(3600, 20000))
def test_L46_nothing_ends_that_was_not_silent_for_its_whole_time(
    looks: list[tuple[str, str, int]], silent: int, controller: int
) -> None:
    guard, known, uptime = Guard(silent, controller), None, 0
    last_answer = last_news = 0
    seen_renewal = ""
    for seen, renewed, passed in looks:
        uptime += passed
        known = look(known, uptime, seen, renewed)
        why = why_off(known, seen, guard)
        if seen in (RENEWED, ANSWER):
            last_answer = uptime
        if seen == RENEWED and renewed != seen_renewal:
            last_news, seen_renewal = uptime, renewed
        assert why != "api" or (seen in (SILENCE, NO_NODE) and uptime - last_answer >= silent)
        assert why != "controller" or (seen == RENEWED and uptime - last_news >= controller)
        assert known.api <= uptime and known.controller <= uptime
