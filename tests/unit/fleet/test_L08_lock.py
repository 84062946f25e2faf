# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-8: whose lock it is."""

from __future__ import annotations

from ansible_collections.tgp.gpu.plugins.module_utils.planner.run_lock import Reading, confirmation_due, decide, renewal_due

from .build import at


def read(moment: str, renewed: str = "12:00:00", holder: str = "other") -> Reading:
    return Reading(holder, at(renewed), 900, at(moment))


def test_L08_takeover_needs_two_readings_ten_seconds_apart() -> None:
    assert decide(read("12:14:59"), None, "me") == "busy"
    assert decide(read("12:15:00"), None, "me") == "busy"
    first = read("12:15:01")
    assert decide(first, None, "me") == "read_again"
    assert decide(read("12:15:10"), first, "me") == "read_again"
    assert decide(read("12:15:11"), first, "me") == "take"


def test_L08_a_renewal_between_the_readings_keeps_the_lock() -> None:
    first = read("12:15:01")
    assert decide(read("12:15:11", renewed="12:15:05"), first, "me") == "busy"
    assert decide(read("12:45:11", renewed="12:15:05"), first, "me") == "read_again"
    assert decide(read("12:15:11", holder="third"), first, "me") == "read_again"


def test_L08_free_and_mine() -> None:
    assert decide(None, None, "me") == "free"
    assert decide(read("12:00:01", holder=""), None, "me") == "free"
    assert decide(read("12:00:01", holder="me"), None, "me") == "mine"


def test_L08_renewal_before_half_of_the_time_is_over() -> None:
    assert not renewal_due(at("12:00"), at("12:04:59"))
    assert renewal_due(at("12:00"), at("12:05"))
    assert renewal_due(at("12:00"), at("12:01"), duration=120)
    assert not renewal_due(at("12:00"), at("12:00"))


def test_L08_a_clock_that_was_put_back_renews_at_once() -> None:
    """Else the run would go on, and rent, for as long as it was put back, while another takes its lock."""
    assert renewal_due(at("12:00"), at("11:59:59")) and renewal_due(at("12:00"), at("11:00"))
    assert confirmation_due(at("12:00"), at("11:59:59")) and not confirmation_due(at("12:00"), at("12:00"))


def test_L08_a_call_that_costs_renews_unless_that_was_just_done() -> None:
    assert not confirmation_due(at("12:00"), at("12:00:04"))
    assert confirmation_due(at("12:00"), at("12:00:05"))
