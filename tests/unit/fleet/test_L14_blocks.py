# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-14: what is left alone after a failure, and for how long."""

from __future__ import annotations

import dataclasses
import json

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.fleet import blocks

from .build import at, offer

KEY = blocks.key_of(offer())


def minutes(state: blocks.State, moment: str, key: str = KEY) -> float:
    until = blocks.active(state, at(moment)).get(key)
    return 0 if until is None else (until - at(moment)).total_seconds() / 60


def test_L14_capacity_doubles_up_to_an_hour() -> None:
    state: blocks.State = {}
    for moment, expected in (("12:00", 10), ("12:11", 20), ("12:32", 40), ("13:13", 60), ("14:14", 60)):
        state = blocks.after_failure(state, KEY, "capacity", at(moment))
        assert minutes(state, moment) == expected
    state = json.loads(json.dumps(state))
    assert minutes(state, "15:13") == 1 and minutes(state, "15:14") == 0


def test_L14_success_and_time_reset() -> None:
    state = blocks.after_failure({}, KEY, "capacity", at("12:00"))
    again = blocks.after_failure(blocks.after_success(state, KEY), KEY, "capacity", at("12:01"))
    assert minutes(again, "12:01") == 10
    assert minutes(blocks.after_failure(state, KEY, "capacity", at("15:09:59")), "15:09:59") == 20
    assert minutes(blocks.after_failure(state, KEY, "capacity", at("15:10")), "15:10") == 10


@pytest.mark.parametrize(
    ("reason", "expected"), [("conflict", 10), ("unknown", 10), ("quota", 30), ("balance", 60), ("join", 60), ("spotlost", 60)]
)
def test_L14_length_of_a_block(reason: str, expected: int) -> None:
    key = blocks.keys_after(offer(), reason)[0]
    assert minutes(blocks.after_failure({}, key, reason, at("12:00")), "12:00", key) == expected


@pytest.mark.parametrize("reason", ["auth", "invalid", "rate"])
def test_L14_some_failures_block_nothing_for_later_runs(reason: str) -> None:
    assert blocks.keys_after(offer(), reason) == ()
    assert not blocks.active(blocks.after_failure({}, KEY, reason, at("12:00")), at("12:00"))


def test_L14_scope() -> None:
    hosted = offer(cloud="vast", host_id="h-9")
    sibling = offer(cloud="vast", id="other", instance_type="gpu_2x", host_id="h-9")
    now = at("12:01")
    join: blocks.State = {}
    for key in blocks.keys_after(hosted, "join"):
        join = blocks.after_failure(join, key, "join", at("12:00"))
    assert blocks.blocked(sibling, blocks.active(join, now), now)
    assert not blocks.blocked(dataclasses.replace(sibling, host_id="h-8"), blocks.active(join, now), now)
    quota = blocks.after_failure({}, blocks.key_of(hosted), "quota", at("12:00"))
    assert blocks.blocked(dataclasses.replace(sibling, host_id="h-8"), blocks.active(quota, now), now)
    assert not blocks.blocked(offer(), blocks.active(quota, now), now)
    spot = dataclasses.replace(offer(), spot=True)
    assert blocks.key_of(spot) != KEY


def test_L14_shorter_block_never_replaces_a_longer_one() -> None:
    state = blocks.after_failure(blocks.after_failure({}, KEY, "join", at("12:00")), KEY, "conflict", at("12:10"))
    assert minutes(state, "12:10") == 50
