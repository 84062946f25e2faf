# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-0: durations, money, times."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.units.values import (
    parse_duration,
    parse_money,
    parse_time,
    print_duration,
    print_money,
    print_time,
)
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h30m", 5400), ("90", 90), (90, 90), ("90s", 90), ("720h", 2592000), ("0s", 0), ("10m", 600), ("1.5h", 5400)],
)
def test_L00_durations_are_go_style_or_seconds(text: str | int, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["1d", "-5m", "", "m", "10 m", "1h-30m", "ten", True, 1.5, None, "٣s"])
def test_L00_other_durations_are_refused(text: object) -> None:
    with pytest.raises(InvalidInput):
        parse_duration(text)  # type: ignore[arg-type]


def test_L00_never_only_where_it_is_allowed() -> None:
    assert parse_duration("Never", never=True) is None
    with pytest.raises(InvalidInput, match="not allowed here"):
        parse_duration("Never")


@given(st.integers(min_value=0, max_value=10**8))
def test_L00_durations_survive_printing(seconds: int) -> None:
    assert parse_duration(print_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        ("0.345", "0.345"),
        ("0.42", "0.42"),
        ("0.1435", "0.1435"),
        ("10", "10.00"),
        ("0.1", "0.10"),
        ("0.143545", "0.1435"),
        ("0", "0.00"),
    ],
)
def test_L00_money_prints_two_to_four_decimals(amount: str, text: str) -> None:
    assert print_money(Decimal(amount)) == text


def test_L00_money_is_exact_text() -> None:
    assert parse_money("50.0") == Decimal("50.0")
    assert parse_money("0.1") + parse_money("0.2") == parse_money("0.3")


@pytest.mark.parametrize("value", ["-1", "a lot", "", "NaN", "Infinity", 0.42, True, None])
def test_L00_impossible_money_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput):
        parse_money(value)  # type: ignore[arg-type]


def test_L00_times_are_utc_seconds_with_z() -> None:
    moment = datetime(2026, 8, 21, 2, 0, 0, 500000, tzinfo=timezone(timedelta(hours=2)))
    assert print_time(moment) == "2026-08-21T00:00:00Z"
    assert parse_time("2026-08-21T02:00:00+02:00") == parse_time("2026-08-21T00:00:00Z")
    for wrong in ("yesterday", "2026-08-21T00:00:00", ""):
        with pytest.raises(InvalidInput):
            parse_time(wrong)


@pytest.mark.parametrize("text", ["99999999h", "9" * 30, "9" * 5000, "9" * 5000 + "h"])
def test_L00_what_is_longer_than_a_century_is_a_century(text: str) -> None:
    """Annotations of pods are written by anybody: none may stop a run by a length that no date can bear."""
    assert parse_duration(text) == 100 * 365 * 24 * 3600
    assert datetime(2026, 8, 20, tzinfo=timezone.utc) + timedelta(seconds=parse_duration(text) or 0) > datetime(
        2100, 1, 1, tzinfo=timezone.utc
    )
    assert parse_duration("876000h") == parse_duration("876001h") == parse_duration("875999h") + 3600  # type: ignore[operator]


def test_L00_times_at_the_ends_of_the_calendar() -> None:
    assert print_time(parse_time("9999-12-31T23:59:59Z")) == "9999-12-31T23:59:59Z"
    assert parse_time("9999-12-31T23:59:59-05:00") == parse_time("9999-12-31T23:59:59Z")
    assert parse_time("0001-01-01T00:00:00+05:00") == parse_time("0001-01-01T00:00:00Z")
