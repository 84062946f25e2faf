# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Of what people are told at once, and how often (L-8, L-10, L-11, L-12)."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import CloudView, Deletion, InstanceState, Notice, Phase, Plan
from ansible_collections.tgp.gpu.plugins.module_utils.planner.notices import due, remembered

from .build import NOON, at, claim, decide, instance, node, seen


def told(found: Plan) -> list[tuple[str, str]]:
    return [(one.kind, one.subject) for one in found.notices]


def going(started: str, **facts: t.Any) -> t.Any:
    deletion = Deletion(reason="Empty", requested=at(started), started=at(started), last_error="423: locked")
    return claim(phase=Phase.TERMINATING, instance_id="i-1", ids_seen=("i-1",), deletion=deletion, **facts)


def there(**facts: t.Any) -> t.Any:
    return instance(id="i-1", state=InstanceState.TERMINATING, **facts)


@pytest.mark.parametrize("mode", ["reap", "provision", "everything"])
@pytest.mark.parametrize("started, loud", [("11:45:00", False), ("11:44:59", True)])
def test_L10_a_destroy_of_more_than_fifteen_minutes_is_told(mode: str, started: str, loud: bool) -> None:
    found = decide(seen(claims=(going(started),), instances=(there(),)), mode=mode)
    assert told(found) == ([("destroy_pending", claim().name)] if loud else [])
    assert "destroy_pending" in found.judged
    if loud:
        assert (
            "423: locked" in found.notices[0].text and "minutes ago, still exists, and is billed $0.42/h" in found.notices[0].text
        )
        assert found.notices[0].data["ids"] == "i-1"


def test_L10_one_that_is_gone_by_now_is_not_told() -> None:
    """Nothing ran for an hour; the machine went meanwhile, and this run will finish its claim."""
    assert told(decide(seen(claims=(going("11:00"),)))) == []


def test_L10_an_unusable_list_proves_nothing() -> None:
    found = decide(seen(claims=(going("11:00"),), clouds={"lambda": CloudView(None, ())}))
    assert told(found) == [("destroy_pending", going("11:00").name), ("provider_unreadable", "lambda")]
    assert "may still exist" in found.notices[0].text and "could not be listed" in found.notices[0].text
    assert "destroy_pending" not in found.judged, "that it is over cannot be known either"


def test_L12_O1_an_orphan_is_told_in_the_second_run() -> None:
    orphan = instance(id="i-9", created=at("11:00"))
    first = decide(seen(at("11:59:01"), instances=(orphan,)))
    assert told(first) == []
    early = decide(seen(at("12:00:00"), instances=(orphan,), findings=first.findings))
    assert told(early) == []
    second = decide(seen(at("12:00:01"), instances=(orphan,), findings=first.findings))
    assert told(second) == [("orphan_found", "lambda i-9")]
    assert "it is terminated" in second.notices[0].text


def test_L12_O3_a_machine_that_may_be_another_is_told_at_once() -> None:
    name = instance().name
    found = decide(seen(instances=(instance(id="i-9"),), nodes=(node(name, labels={"tgp.io/instance-id": "other"}),)))
    assert ("orphan_found", "lambda i-9") in told(found)


def test_L12_a_guard_that_held_is_told_under_one_key_whatever_the_numbers() -> None:
    def run(number: int) -> Plan:
        machines = tuple(instance(f"tgp-a1b2c3d4-p-0000{one}", id=f"i-{one}", created=at("11:00")) for one in range(number))
        findings = {f"O1|lambda|i-{one}": at("11:00") for one in range(number)}
        return decide(seen(instances=machines, findings=findings))

    keys = [[one.key for one in run(number).notices if one.kind == "mass_guard"] for number in (3, 4, 5)]
    assert keys[0] == []
    assert keys[1] == keys[2] == ["mass_guard|machines without a claim (O1)"]


@pytest.mark.parametrize("until, loud", [("12:00:00", False), ("12:00:01", True)])
def test_L11_a_paused_pool_is_told_as_long_as_it_is_paused(until: str, loud: bool) -> None:
    found = decide(seen(blocks={"pool:default/p": at(until)}), mode="provision")
    assert told(found) == ([("failed_joins", "default/p")] if loud else [])


# ---- how often

ONE = Notice("orphan_found", "orphan_found|x", "x", "")
SOFT = Notice("budget_soft", "budget_soft|pool p 2026-W34", "pool p", "")
ALL = frozenset({"orphan_found", "budget_soft"})


def runs(present: t.Sequence[bool], minutes: int, notice: Notice = ONE, judged: t.Collection[str] = ALL) -> list[bool]:
    """Whether it was told in each of the runs, ``minutes`` apart."""
    memory: dict[str, datetime] = {}
    spoken = []
    for number, is_there in enumerate(present):
        now = NOON + timedelta(minutes=minutes * number)
        notices = [notice] if is_there else []
        found = due(notices, memory, now)
        spoken.append(bool(found))
        memory = remembered(notices, memory, [one.key for one in found], judged, now)
    return spoken


def test_a_thing_is_told_once_and_again_after_a_day_while_it_lasts() -> None:
    assert runs([True] * 5, 8 * 60) == [True, False, False, True, False]
    assert runs([True, True], 24 * 60 - 1) == [True, False]
    assert runs([True, True], 24 * 60) == [True, True]


def test_what_is_over_and_comes_back_is_told_anew() -> None:
    assert runs([True, True, False, True], 5) == [True, False, False, True]


def test_a_run_that_could_not_look_forgets_nothing_for_a_day() -> None:
    assert runs([True, False, True], 5, judged=()) == [True, False, False]
    assert runs([True, False, True], 13 * 60, judged=()) == [True, False, True]


def test_L16_a_soft_budget_is_told_once_in_its_period() -> None:
    assert runs([True] * 5, 13 * 60, SOFT) == [True, False, False, False, False]
    assert runs([True] * 3, 13 * 60, dataclasses.replace(SOFT, kind="budget_hard")) == [True, False, True]


def test_what_did_not_arrive_is_tried_again() -> None:
    assert remembered([ONE], {}, [], ALL, NOON) == {}
    assert due([ONE], {}, NOON) == [ONE]


def test_an_idle_run_changes_nothing_in_the_memory() -> None:
    memory = {ONE.key: NOON}
    later = NOON + timedelta(hours=1)
    assert remembered([ONE], memory, [], ALL, later) == memory
    assert remembered([], {}, [], ALL, later) == {}
