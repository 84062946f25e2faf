# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-6: how many nodes of a pool may be on their way out at once, and schedules that change it."""

from __future__ import annotations

import contextlib
import typing as t
from datetime import datetime, timedelta, timezone, tzinfo

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.model import Deletion, Phase, Plan
from ansible_collections.tgp.gpu.plugins.module_utils.model import DisruptionBudget as Budget
from ansible_collections.tgp.gpu.plugins.module_utils.model.labels import IDLE_SINCE_ANNOTATION
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.disruption_budgets import Count, Room, allowed, room, valid
from ansible_collections.tgp.gpu.plugins.module_utils.units import calendar
from hypothesis import given
from hypothesis import strategies as st

from .build import NOON, at, claim, decide, instance, node, of, pod, pool, seen, specs

TEN = Count(10)
ALL = Budget("20%")
OFFICE = Budget("0", schedule="0 9 * * 1-5", duration=8 * 3600)
UTC = timezone.utc
LONG_IDLE = {IDLE_SINCE_ANNOTATION: "2026-08-20T11:20:00Z"}


def utc(text: str) -> datetime:
    """ "2026-08-18 08:59", a Tuesday in August."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("total", "nodes", "deleting", "not_ready", "expected"),
    [
        (19, "20%", 0, 0, 4),
        (10, "10%", 0, 0, 1),
        (1, "10%", 0, 0, 1),
        (4, "25%", 0, 0, 1),
        (3, "50%", 0, 0, 2),
        (9, "10%", 0, 0, 1),
        (0, "10%", 0, 0, 0),
        (19, "20%", 2, 1, 1),
        (10, "3", 1, 0, 2),
        (10, "0", 0, 0, 0),
        (10, "abc", 0, 0, 0),
        (10, "3", 2, 2, 0),
        (11, "10%", 0, 0, 2),
        (10, "0%", 0, 0, 0),
        (10, "100%", 0, 0, 10),
        (10, "-1", 0, 0, 0),
    ],
)
def test_L06_worked_numbers(total: int, nodes: str, deleting: int, not_ready: int, expected: int) -> None:
    assert allowed(nodes, Count(total, deleting, not_ready)) == expected


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2026-08-18 08:59", 2),
        ("2026-08-18 09:00", 0),
        ("2026-08-18 16:59", 0),
        ("2026-08-18 17:00", 2),
        ("2026-08-22 10:00", 2),  # a Saturday
    ],
)
@pytest.mark.parametrize("reason", ["Empty", "Drifted", "Underutilized"])
def test_L06_no_disruption_in_office_hours(moment: str, expected: int, reason: str) -> None:
    for budgets in ((ALL, OFFICE), (OFFICE, ALL)):
        assert room(pool(disruption_budgets=budgets), reason, TEN, utc(moment)).nodes == expected


def test_L06_defaults_idle_nodes_freely_others_a_tenth_and_at_least_one() -> None:
    assert room(pool(), "Empty", TEN, NOON) == Room(None)
    for reason in ("Drifted", "Underutilized"):
        assert room(pool(), reason, Count(1), NOON).nodes == 1
        assert room(pool(), reason, Count(11), NOON).nodes == 2
        assert room(pool(), reason, Count(10, deleting=1), NOON).nodes == 0


def test_L06_the_least_of_all_budgets_in_force_counts() -> None:
    several = pool(disruption_budgets=(Budget("50%"), Budget("2"), Budget("30%", ("Drifted",))))
    assert room(several, "Empty", TEN, NOON) == Room(2, "2")
    assert room(several, "Drifted", TEN, NOON).nodes == 2
    assert room(several, "Drifted", Count(3), NOON).nodes == 1


def test_L06_a_budget_of_other_reasons_leaves_the_usual_one() -> None:
    only = pool(disruption_budgets=(Budget("0", ("Empty",)),))
    assert room(only, "Empty", TEN, NOON).nodes == 0
    assert room(only, "Drifted", TEN, NOON).nodes == 1
    outside = pool(disruption_budgets=(OFFICE,))
    assert room(outside, "Empty", TEN, utc("2026-08-18 08:59")).nodes is None
    assert room(outside, "Underutilized", TEN, utc("2026-08-18 08:59")).nodes == 1


@pytest.mark.parametrize("bad", [Budget("abc"), Budget("101%"), Budget("3", schedule="not one", duration=60)])
def test_L06_what_cannot_be_read_lets_nothing_go_and_says_so(bad: Budget) -> None:
    found = room(pool(disruption_budgets=(Budget("5"), bad)), "Empty", TEN, NOON)
    assert found.nodes == 0 and "default/p" in found.problem and "lets no node go" in found.problem


def test_L06_what_a_budget_may_say() -> None:
    assert all(valid(text) for text in ("0", "12", "0%", "100%", "10 %".replace(" ", "")))
    assert not any(valid(text) for text in ("", "abc", "101%", "-1", "1.5", "10%%", "²"))


# ---- schedules


def test_L06_a_schedule_follows_its_time_zone() -> None:
    berlin = pool(disruption_budgets=(Budget("0", schedule="0 9 * * *", duration=3600, time_zone="Europe/Berlin"),))

    def free(moment: str) -> bool:
        return room(berlin, "Empty", TEN, utc(moment)).nodes is None

    assert free("2026-08-18 06:59") and not free("2026-08-18 07:00") and free("2026-08-18 08:00")  # summer: two hours ahead
    assert free("2026-01-20 07:59") and not free("2026-01-20 08:00") and free("2026-01-20 09:00")  # winter: one


def _due(text: str, where: tzinfo, since: datetime, now: datetime) -> list[datetime]:
    """The minutes (UTC) after ``since`` up to ``now`` at which a schedule of that length would have begun."""
    schedule, minute = calendar.parse_cron(text), timedelta(minutes=1)
    moments = (since + place * minute for place in range(1, int((now - since) / minute) + 1))
    return [moment for moment in moments if calendar.active(schedule, where, minute, moment)]


def test_L06_the_two_days_of_changing_clocks() -> None:
    berlin = calendar.zone("Europe/Berlin")
    spring, autumn = (utc("2026-03-29 00:00"), utc("2026-03-29 12:00")), (utc("2026-10-25 00:00"), utc("2026-10-25 12:00"))
    assert _due("30 2 * * *", berlin, *spring) == [utc("2026-03-29 01:00")]  # there is no 02:30: at 03:00, when the gap ends
    assert _due("30 2 * * *", berlin, *autumn) == [utc("2026-10-25 00:30")]  # there are two: at the first
    assert _due("30 * * * *", berlin, autumn[0], utc("2026-10-25 02:00")) == [utc("2026-10-25 00:30"), utc("2026-10-25 01:30")]


def test_L06_a_schedule_is_in_force_through_the_repeated_hour() -> None:
    berlin, lasts = calendar.zone("Europe/Berlin"), timedelta(hours=1)
    schedule = calendar.parse_cron("30 2 * * *")
    inside = [utc("2026-10-25 00:30"), utc("2026-10-25 00:59"), utc("2026-10-25 01:10"), utc("2026-10-25 01:29")]
    assert all(calendar.active(schedule, berlin, lasts, moment) for moment in inside)
    outside = [utc("2026-10-25 00:29"), utc("2026-10-25 01:30"), utc("2026-10-25 01:45"), utc("2026-10-25 02:10")]
    assert not any(calendar.active(schedule, berlin, lasts, moment) for moment in outside)


def test_L06_a_schedule_may_last_over_midnight_and_over_days() -> None:
    weekend = calendar.parse_cron("0 18 * * 5")
    for moment, expected in (
        ("2026-08-21 17:59", False),
        ("2026-08-21 18:00", True),
        ("2026-08-23 12:00", True),
        ("2026-08-24 05:59", True),
        ("2026-08-24 06:00", False),
    ):
        assert calendar.active(weekend, UTC, timedelta(hours=60), utc(moment)) is expected


@pytest.mark.parametrize(
    "text",
    ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "5-1 * * * *", "*/0 * * * *",
     "a * * * *", "1- * * * *", "* * * * mon-", "0 0 31 2 *", "0 0 31 4,6 *", "0 0 30 2 *", "@reboot"],
)  # fmt: skip
def test_L06_what_is_no_schedule(text: str) -> None:
    with pytest.raises(InvalidInput):
        calendar.parse_cron(text)


@given(st.text("0123456789*/,-#LW@ AFJMNORSTUafjmnorstu²", max_size=24))
def test_L06_any_text_is_a_schedule_or_a_refusal(text: str) -> None:
    with contextlib.suppress(InvalidInput):
        calendar.active(calendar.parse_cron(text), UTC, timedelta(hours=1), NOON)


def test_L06_words_and_names_of_days_and_months() -> None:
    assert calendar.parse_cron("@daily") == calendar.parse_cron("0 0 * * *")
    week = (utc("2026-02-28 00:00"), utc("2026-03-08 00:00"))  # from a Saturday
    for text, same in (
        ("0 9 * JAN-Mar mon-FRI", "0 9 * 1-3 1-5"),
        ("0 9 * * fri-sun", "0 9 * * 5,6,0"),
        ("0 9 * * 6-0,2", "0 9 * * 2,6,7"),
        ("0 9 * * 0-0", "0 9 * * 0"),
        ("0 9 * * sun-sun", "0 9 * * 7"),
        ("0 9 * * sun-tue", "0 9 * * 0,1,2"),
    ):
        assert _due(text, UTC, *week) == _due(same, UTC, *week) != []
    assert _due("0 0 29 2 *", UTC, utc("2028-02-28 00:00"), utc("2028-03-01 00:00")) == [utc("2028-02-29 00:00")]
    with pytest.raises(InvalidInput):
        calendar.zone("Mars/Olympus")


def _numbers(low: int, high: int) -> st.SearchStrategy[frozenset[int] | None]:
    return st.none() | st.frozensets(st.integers(low, high), min_size=1, max_size=3)


@given(
    st.tuples(_numbers(0, 59), _numbers(0, 23), _numbers(1, 31), _numbers(1, 12), _numbers(0, 6)),
    st.integers(0, 4 * 365 * 24 * 60),
    st.integers(1, 3 * 24 * 60),
)
def test_L06_a_schedule_is_in_force_after_each_minute_that_fits(
    fields: tuple[frozenset[int] | None, ...], minutes: int, lasts: int
) -> None:
    """Counted minute by minute: a field fits by its numbers (None = any), and of two restricted kinds of days one is enough."""
    text = " ".join("*" if field is None else ",".join(map(str, sorted(field))) for field in fields)
    now, length = utc("2026-01-01 00:00") + timedelta(minutes=minutes), timedelta(minutes=lasts)
    try:
        schedule = calendar.parse_cron(text)
    except InvalidInput:
        assert fields[4] is None and fields[2] is not None and min(fields[2]) > 29  # no month has the day
        return

    def fits(moment: datetime) -> bool:
        values = (moment.minute, moment.hour, moment.day, moment.month, moment.isoweekday() % 7)
        minute, hour, day, month, weekday = (field is None or value in field for field, value in zip(fields, values, strict=True))
        either = fields[2] is not None and fields[4] is not None
        return minute and hour and month and (day or weekday if either else day and weekday)

    expected = any(fits(now - timedelta(minutes=place)) for place in range(lasts))
    assert calendar.active(schedule, UTC, length, now) is expected


# ---- in a plan


def idle_pool(count: int, *budgets: Budget, broken: int = 0, going: int = 0, **settings: t.Any) -> tuple[int, Plan]:
    """How many of ``count`` idle nodes go for being empty; of others, ``broken`` are not Ready and ``going`` are on their way out."""
    names = [f"tgp-a1b2c3d4-p-{place:05}" for place in range(count + broken + going)]
    claims = [claim(name) for name in names[: count + broken]]
    claims += [claim(name, Phase.TERMINATING, deletion=Deletion("Expired", at("11:55"))) for name in names[count + broken :]]
    nodes = [node(name, ready=not count <= place < count + broken, annotations=LONG_IDLE) for place, name in enumerate(names)]
    observed = seen(claims=claims, nodes=nodes, instances=[instance(name) for name in names])
    found = decide(observed, specs(pool(disruption_budgets=budgets)), **settings)
    return len([action for action in of(found, "destroy") if action.reason == "Empty"]), found


def test_L18_budget_of_half_of_three_lets_two_go() -> None:
    number, found = idle_pool(3, Budget("50%", ("Empty",)))
    assert number == 2
    (kept,) = [action for action in of(found, "report") if action.reason == "Empty"]
    assert kept.detail == "idle, kept by disruption budget 50%"


def test_L06_idle_nodes_need_no_budget() -> None:
    assert idle_pool(10)[0] == 10
    assert idle_pool(10, broken=3, going=3)[0] == 10


def test_L06_what_is_going_or_broken_uses_the_budget_up() -> None:
    assert idle_pool(7, Budget("5"), broken=1, going=2)[0] == 2
    assert idle_pool(8, Budget("50%"), going=2)[0] == 3
    assert idle_pool(4, Budget("2"), broken=2)[0] == 0


def test_L06_the_smaller_of_budget_and_max_remove_per_run_counts() -> None:
    assert idle_pool(5, Budget("3"), max_remove_per_run=1)[0] == 1
    number, found = idle_pool(5, Budget("3"), max_remove_per_run=4)
    assert number == 3 and any("kept by disruption budget 3" in action.detail for action in of(found, "report"))


def test_L06_a_budget_that_cannot_be_read_fails_the_run_and_lets_nothing_go() -> None:
    number, found = idle_pool(2, Budget("abc"))
    assert number == 0 and any("'abc'" in problem for problem in found.problems)


def test_L06_age_and_other_forced_ends_ask_no_budget() -> None:
    names = [f"tgp-a1b2c3d4-p-{place:05}" for place in range(3)]
    observed = seen(
        claims=[claim(names[0]), claim(names[1]), claim(names[2], launch_started=at("11:05"))],
        nodes=[node(names[0]), node(names[1]), node(names[2], annotations={"tgp.io/terminate": "now"})],
        instances=[instance(name) for name in names],
        pods=[pod(name, node=name) for name in names],
    )
    closed = pool(disruption_budgets=(Budget("0"),), expire_after=3600)
    found = decide(observed, specs(closed))
    assert sorted(action.reason for action in of(found, "destroy")) == ["Expired", "Expired", "Manual"]
