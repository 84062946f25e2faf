# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-18: a drain that was given up keeps the rest of its pool for three minutes, for every reason that can wait."""

from __future__ import annotations

import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Claim,
    Deletion,
    DisruptionBudget,
    Placement,
    Plan,
    SpendingBudget,
    Toleration,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.spec_hash import generation
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import read_ledger
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption import voluntary
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.drain_rules import backoff_after_block

from .build import NOON, at, claim, decide, instance, node, node_class, of, pod, pool, seen, specs

FIRST, SECOND, OTHER = "tgp-a1b2c3d4-p-00001", "tgp-a1b2c3d4-p-00002", "tgp-a1b2c3d4-q-00003"
LONG_IDLE = {"tgp.io/idle-since": "2026-08-20T11:20:00Z"}


def given_up(when: datetime, times: int = 1, name: str = FIRST, **facts: t.Any) -> Claim:
    """A node whose drain was given up at ``when``, for the ``times``-th time in a row."""
    pause, count = backoff_after_block(times - 1)
    return claim(name, blocked_until=when + pause, blocked_times=count, **facts)


def idle_pair(first: Claim, second: Claim | None = None, **settings: t.Any) -> Plan:
    wanted = settings.pop("wanted", pool())
    claims = (first, second or claim(SECOND))
    nodes = tuple(node(one.name, annotations=LONG_IDLE) for one in claims)
    observed = seen(
        claims=claims, nodes=nodes, instances=tuple(instance(one.name) for one in claims), ledger=settings.pop("ledger", None)
    )
    return decide(observed, specs(wanted, pool("q")), **settings)


def gone(found: Plan) -> list[str]:
    return [one.name for one in of(found, "destroy")]


@pytest.mark.parametrize("times", [1, 2, 3, 4, 7])
@pytest.mark.parametrize(("ago", "goes"), [(0, False), (179, False), (180, True)])
def test_L18_nothing_goes_for_being_idle_within_three_minutes_of_a_drain_that_was_given_up(
    times: int, ago: int, goes: bool
) -> None:
    found = idle_pair(given_up(NOON - timedelta(seconds=ago), times))
    assert gone(found) == ([SECOND] if goes else [])
    text = f"the drain of {FIRST} in its pool was given up less than 3m ago"
    assert any(text in one.detail for one in of(found, "report") if one.name == SECOND) is not goes


def test_L18_the_pause_after_a_failure_is_of_its_pool_and_can_be_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gone(idle_pair(given_up(at("11:59")), claim(OTHER, pool="default/q"))) == [OTHER]
    assert gone(idle_pair(claim(FIRST, blocked_until=None, blocked_times=2))) == [FIRST, SECOND], "long over"
    monkeypatch.setattr(voluntary, "SCALE_DOWN_DELAY_AFTER_FAILURE", 60)
    assert gone(idle_pair(given_up(at("11:59")))) == [SECOND]


def test_L18_what_was_begun_goes_on_after_a_failure_elsewhere() -> None:
    begun = claim(SECOND, deletion=Deletion("Empty", at("11:58")))
    (action,) = of(idle_pair(given_up(at("11:59")), begun), "destroy")
    assert action.name == SECOND and action.claim is not None and action.claim.deletion == begun.deletion


def test_L18_no_drifted_node_goes_after_a_failure() -> None:
    old, now = node_class(), node_class(talos_patches=("machine: {}",), generation="new")
    wanted = pool(drift_policy="Replace", disruption_budgets=(DisruptionBudget("100%"),))
    made = generation(old, wanted)
    for ago, goes in ((179, []), (180, [SECOND])):
        claims = (given_up(NOON - timedelta(seconds=ago), generation=made), claim(SECOND, generation=made))
        observed = seen(
            claims=claims,
            nodes=tuple(node(one.name) for one in claims),
            instances=tuple(instance(one.name) for one in claims),
            pods=tuple(pod(f"job-{one.name}", node=one.name) for one in claims),
        )
        found = decide(observed, specs(wanted, classes=(now,)))
        assert gone(found) == goes, ago


def test_L18_no_node_that_is_used_too_little_goes_after_a_failure() -> None:
    wanted = pool(consolidation_policy="WhenUnderutilized", disruption_budgets=(DisruptionBudget("100%"),))
    tolerant = Placement(tolerations=(Toleration(operator="Exists"),))
    for ago, goes in ((179, []), (180, [SECOND])):
        claims = (
            given_up(NOON - timedelta(seconds=ago), underused_since=at("11:30"), expected_gpus=4),
            claim(SECOND, underused_since=at("11:30"), expected_gpus=4),
        )
        observed = seen(
            claims=claims,
            nodes=tuple(node(one.name, allocatable={"nvidia.com/gpu": 4}) for one in claims),
            instances=tuple(instance(one.name) for one in claims),
            pods=tuple(
                pod(
                    f"job-{one.name}",
                    node=one.name,
                    requests={"nvidia.com/gpu": 1},
                    placement=tolerant,
                    started=at("11:20"),
                    created=at("11:20"),
                )
                for one in claims
            ),
        )
        assert gone(decide(observed, specs(wanted))) == goes, ago


def test_L18_what_must_go_asks_for_no_pause() -> None:
    expired = pool(expire_after=1800)
    assert gone(idle_pair(given_up(at("11:59")), wanted=expired)) == [FIRST, SECOND]


def test_L18_at_the_end_of_the_money_there_is_no_pause() -> None:
    wanted = pool(budget=SpendingBudget("day", Decimal("0.01"), action="drain_idle"))
    assert gone(idle_pair(given_up(at("11:59")), wanted=wanted, ledger=read_ledger([]))) == [SECOND]
