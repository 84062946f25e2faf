# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-41: where whole hours are billed, an idle machine stays until shortly before the next one (table in docs/reference/rules.md)."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Deletion, Plan
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.paid_hours import LEAD, SHORTEST, against, goes_from, paid_until
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES as REAL
from hypothesis import given
from hypothesis import strategies as st

from . import build
from .build import NOON, at, claim, decide, instance, node, of, pool, seen, specs
from .test_L05_consolidation import HALF_FULL, TWO, A, going, planned, told

NAME = "tgp-a1b2c3d4-p-00001"
HOUR = 3600


@pytest.mark.parametrize(
    ("due", "unit", "goes"),
    [
        ("11:30", HOUR, "11:50"),
        ("11:10", HOUR, "11:50"),
        ("11:49:59", HOUR, "11:50"),
        ("11:50", HOUR, "11:50"),
        ("11:55", HOUR, "11:55"),
        ("12:00", HOUR, "12:50"),
        ("12:05", HOUR, "12:50"),
        ("11:30", 60, "11:30"),
        ("11:30", 1, "11:30"),
        ("10:30", HOUR, "10:30"),  # a clock that went back
    ],
)
def test_L41_launched_at_11(due: str, unit: int, goes: str) -> None:
    assert goes_from(at("11:00"), at(due), unit) == at(goes)


def test_L41_what_each_cloud_bills() -> None:
    """Nothing changes for those that bill by the minute or second."""
    assert {name for name, facts in REAL.items() if facts.billing_granularity >= SHORTEST} == {"vultr"}
    assert LEAD < SHORTEST


_SECONDS = st.integers(0, 10 * 86400)


@given(_SECONDS, st.integers(1, 86400), _SECONDS)
def test_L41_waiting_costs_nothing_and_ends(due: int, unit: int, late: int) -> None:
    """Whatever the unit: never before its time, never into the next unit unless it was in its last minutes, and not taken back later."""
    start = at("11:00")
    could = start + timedelta(seconds=due)
    goes = goes_from(start, could, unit)
    assert could <= goes and (goes - could).total_seconds() < unit
    if unit >= SHORTEST:
        assert goes < paid_until(start, could, unit), "the hour that is paid is not exceeded"
        assert goes == could or goes == paid_until(start, could, unit) - timedelta(seconds=LEAD)
    else:
        assert goes == could
    assert goes_from(start, could + timedelta(seconds=late), unit) >= goes, "a machine that could go later goes no earlier"


# ---- in a plan


@pytest.fixture
def hourly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The provider of the rule tests bills whole hours. Machines are launched at 11:00 there, and usable from 11:10 on."""
    monkeypatch.setitem(build.CAPABILITIES, "lambda", dataclasses.replace(build.CAPABILITIES["lambda"], billing_granularity=HOUR))


def idle(now: datetime, since: str = "11:20", wanted: t.Any = None, **facts: t.Any) -> Plan:
    noted = {"tgp.io/idle-since": f"2026-08-20T{since}:00Z"}
    observed = seen(now, claims=(claim(NAME, **facts),), nodes=(node(NAME, annotations=noted),), instances=(instance(NAME),))
    return decide(observed, specs(wanted or pool()))


def goes(found: Plan) -> list[str]:
    return [str(one.reason) for one in of(found, "destroy")]


@pytest.mark.usefixtures("hourly")
@pytest.mark.parametrize(("now", "gone"), [("11:31", []), ("11:49", []), ("11:50", ["Empty"]), ("12:05", ["Empty"])])
def test_L41_an_idle_node_goes_from_ten_minutes_before_its_next_hour_on(now: str, gone: list[str]) -> None:
    """A run that comes after the hour ends it at once: waiting for the next end could go on for ever."""
    found = idle(at(now))
    assert goes(found) == gone
    words = [one.detail for one in found.actions if "started hour is paid" in one.detail]
    assert bool(words) is not bool(gone)


def test_L41_without_whole_hours_it_goes_at_once() -> None:
    assert goes(idle(at("11:31"))) == ["Empty"]


@pytest.mark.parametrize("cloud", sorted(REAL))
def test_L41_whether_its_idle_time_is_over_is_another_rules_matter(cloud: str) -> None:
    """A rule that lets a machine go before its idle time is over is not overruled where no whole hour is paid."""
    kept = against(claim(NAME), at("11:30"), at("11:20"), REAL[cloud])
    assert bool(kept) is (REAL[cloud].rented and REAL[cloud].billing_granularity >= SHORTEST)


@pytest.mark.usefixtures("hourly")
def test_L41_what_has_begun_goes_on_and_an_exact_number_waits_for_no_hour() -> None:
    begun = Deletion("Empty", at("11:30"))
    assert goes(idle(at("11:31"), deletion=begun)) == ["Empty"]
    assert goes(idle(at("11:31"), wanted=pool(replicas=0))) == ["Empty"]


@pytest.mark.usefixtures("hourly")
@pytest.mark.parametrize(("now", "gone"), [("11:45", []), ("11:50", [A]), ("12:30", [A])])
def test_L41_so_does_one_that_is_used_too_little(now: str, gone: list[str]) -> None:
    found = planned(TWO, HALF_FULL, now=at(now))
    assert going(found) == gone
    assert bool(gone) or "its started hour is paid; it goes from 2026-08-20T11:50:00Z on" in told(found)


@pytest.mark.usefixtures("hourly")
def test_L41_only_what_can_wait_waits() -> None:
    """The maximum lifetime, a failure and the like are not delayed."""
    assert goes(idle(NOON, wanted=pool(expire_after=1800))) == ["Expired"]
