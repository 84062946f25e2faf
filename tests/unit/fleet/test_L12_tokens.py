# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-12: bootstrap tokens of ours that no claim knows (O13)."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import MadeToken, Phase, Plan

from .build import at, claim, decide, node, of, one, seen

N = "tgp-a1b2c3d4-p-00001"
LOST = MadeToken("abc123", N, at("12:45"))  # made at 11:45


def twice(first: str = "11:59", second: str = "12:00", *tokens: MadeToken, **facts: t.Any) -> Plan:
    """Two runs that see the same tokens; the second knows what the first one remembered."""
    facts = {"tokens": tokens or (LOST,), **facts}
    earlier = decide(seen(at(first), **facts))
    assert not of(earlier, "delete_token")
    return decide(seen(at(second), **facts, findings=earlier.findings))


def test_L12_O13_a_token_without_claim_goes_in_the_second_run() -> None:
    action = one(twice(), "delete_token")
    assert (action.name, action.target, action.reason) == (N, "abc123", "Orphan")


def test_L12_O13_a_token_is_seen_twice_a_minute_apart() -> None:
    assert not of(twice("11:59:01"), "delete_token")
    assert of(twice("11:59:00"), "delete_token")


def test_L12_O13_a_token_is_older_than_ten_minutes() -> None:
    young = dataclasses.replace(LOST, expires=at("12:50"))
    assert not of(twice("11:58", "12:00", young), "delete_token"), "exactly ten minutes are not more than ten"
    assert of(twice("11:58", "12:00", dataclasses.replace(young, expires=at("12:49:59"))), "delete_token")


def test_L12_O13_a_token_whose_hour_is_over_is_gone() -> None:
    ended = dataclasses.replace(LOST, expires=at("12:00"))
    found = twice("11:58", "12:00", ended)
    assert not of(found, "delete_token") and not found.findings
    assert of(twice("11:58", "12:00", dataclasses.replace(ended, expires=at("12:00:01"))), "delete_token")


@pytest.mark.parametrize("phase", [Phase.PROVISIONING, Phase.JOINING, Phase.READY, Phase.TERMINATING])
def test_L12_O13_a_token_that_a_claim_knows_stays(phase: Phase) -> None:
    holder = claim(N, phase, token_id=LOST.id)
    found = twice(claims=(holder,), nodes=(node(),))
    assert not of(found, "delete_token") and not [key for key in found.findings if key.startswith("Token")]


def test_L12_O13_a_claim_that_knows_another_token_protects_none() -> None:
    other = claim(N, token_id="zzz999")
    assert one(twice(claims=(other,), nodes=(node(),)), "delete_token").target == LOST.id


def test_L12_O13_unread_tokens_are_not_gone_and_not_forgotten() -> None:
    first = decide(seen(at("11:58"), tokens=(LOST,)))
    blind = decide(seen(at("11:59"), tokens=None, findings=first.findings))
    assert not of(blind, "delete_token") and blind.findings == first.findings
    assert one(decide(seen(at("12:00"), tokens=(LOST,), findings=blind.findings)), "delete_token")
    assert not decide(seen(at("12:00"), tokens=(), findings=blind.findings)).findings, "read, and not there: forgotten"


def test_L12_O13_without_claims_no_token_is_touched() -> None:
    first = decide(seen(at("11:58"), tokens=(LOST,)))
    assert not of(decide(seen(tokens=(LOST,), claims=None, findings=first.findings)), "delete_token")


@pytest.mark.parametrize("mode", ["provision", "destroy", "status"])
def test_L12_O13_only_runs_that_tidy_up_touch_tokens(mode: str) -> None:
    first = decide(seen(at("11:58"), tokens=(LOST,)))
    assert not of(decide(seen(tokens=(LOST,), findings=first.findings), mode=mode), "delete_token")


@pytest.mark.parametrize("lost, known, goes", [(3, 3, 3), (4, 4, 0), (4, 8, 4), (5, 8, 0)])
def test_L12_mass_guard_holds_for_tokens(lost: int, known: int, goes: int) -> None:
    tokens = tuple(dataclasses.replace(LOST, id=f"tok{place:03}", expires=LOST.expires) for place in range(known))
    claims = tuple(claim(f"{N[:-1]}{place}", Phase.JOINING, token_id=f"tok{place:03}") for place in range(lost, known))
    found = twice("11:58", "12:00", *tokens, claims=claims)
    assert len(of(found, "delete_token")) == goes
    assert any("bootstrap tokens without a claim" in text for text in found.problems) is (goes != lost)


def test_L12_O13_tokens_in_any_order_give_one_plan() -> None:
    tokens = tuple(
        dataclasses.replace(LOST, id=f"tok{place:03}", expires=LOST.expires + timedelta(seconds=place)) for place in range(3)
    )
    assert twice("11:58", "12:00", *tokens).actions == twice("11:58", "12:00", *reversed(tokens)).actions
