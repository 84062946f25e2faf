# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-14: what is left alone after a failure, and for how long."""

from __future__ import annotations

import dataclasses
import json
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Attempt, Claim, Phase
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.record import from_record, to_record
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cluster_state import recovery
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers import launch_backoff

from .build import CAPABILITIES, at, claim, decide, instance, of, offer, one, seen, specs

KEY = launch_backoff.key_of(offer())


def minutes(state: launch_backoff.State, moment: str, key: str = KEY) -> float:
    until = launch_backoff.active(state, at(moment)).get(key)
    return 0 if until is None else (until - at(moment)).total_seconds() / 60


def test_L14_capacity_doubles_up_to_an_hour() -> None:
    state: launch_backoff.State = {}
    for moment, expected in (("12:00", 10), ("12:11", 20), ("12:32", 40), ("13:13", 60), ("14:14", 60)):
        state = launch_backoff.after_failure(state, KEY, "capacity", at(moment))
        assert minutes(state, moment) == expected
    state = json.loads(json.dumps(state))
    assert minutes(state, "15:13") == 1 and minutes(state, "15:14") == 0


def test_L14_success_and_time_reset() -> None:
    state = launch_backoff.after_failure({}, KEY, "capacity", at("12:00"))
    again = launch_backoff.after_failure(launch_backoff.after_success(state, KEY), KEY, "capacity", at("12:01"))
    assert minutes(again, "12:01") == 10
    assert minutes(launch_backoff.after_failure(state, KEY, "capacity", at("15:09:59")), "15:09:59") == 20
    assert minutes(launch_backoff.after_failure(state, KEY, "capacity", at("15:10")), "15:10") == 10


@pytest.mark.parametrize(
    ("reason", "expected"), [("conflict", 10), ("unknown", 10), ("quota", 30), ("balance", 60), ("join", 60), ("spotlost", 60)]
)
def test_L14_length_of_a_block(reason: str, expected: int) -> None:
    key = launch_backoff.keys_after(offer(), reason)[0]
    assert minutes(launch_backoff.after_failure({}, key, reason, at("12:00")), "12:00", key) == expected


@pytest.mark.parametrize("reason", ["auth", "invalid", "rate"])
def test_L14_some_failures_block_nothing_for_later_runs(reason: str) -> None:
    assert launch_backoff.keys_after(offer(), reason) == ()
    assert not launch_backoff.active(launch_backoff.after_failure({}, KEY, reason, at("12:00")), at("12:00"))


def test_L14_scope() -> None:
    hosted = offer(cloud="vast", host_id="h-9")
    sibling = offer(cloud="vast", id="other", instance_type="gpu_2x", host_id="h-9")
    now = at("12:01")
    join: launch_backoff.State = {}
    for key in launch_backoff.keys_after(hosted, "join"):
        join = launch_backoff.after_failure(join, key, "join", at("12:00"))
    assert launch_backoff.blocked(sibling, launch_backoff.active(join, now), now)
    assert not launch_backoff.blocked(dataclasses.replace(sibling, host_id="h-8"), launch_backoff.active(join, now), now)
    quota = launch_backoff.after_failure({}, launch_backoff.key_of(hosted), "quota", at("12:00"))
    assert launch_backoff.blocked(dataclasses.replace(sibling, host_id="h-8"), launch_backoff.active(quota, now), now)
    assert not launch_backoff.blocked(offer(), launch_backoff.active(quota, now), now)
    spot = dataclasses.replace(offer(), spot=True)
    assert launch_backoff.key_of(spot) != KEY


def test_L14_shorter_block_never_replaces_a_longer_one() -> None:
    state = launch_backoff.after_failure(launch_backoff.after_failure({}, KEY, "join", at("12:00")), KEY, "conflict", at("12:10"))
    assert minutes(state, "12:10") == 50


# ---- a refusal that leaves a machine behind


def refused(**facts: object) -> Claim:
    """A create call of 11:00 was refused and left machine r-1; nobody has destroyed it yet."""
    attempt = Attempt(at("11:00"), "lambda/g-0.42", "refused", "capacity", "bid too low", "r-1")
    phase = t.cast(Phase, facts.pop("phase", Phase.PROVISIONING))
    usual = {"attempts": (attempt,), "ids_seen": ("r-1",), "launch_started": at("11:00")}
    return claim(phase=phase, **{**usual, **facts})  # type: ignore[arg-type]


def test_L14_what_a_refusal_left_behind_is_never_adopted() -> None:
    left = instance(id="r-1")
    found = recovery(refused(), [left], at("11:01"))
    assert (found.what, found.instance, found.duplicates) == ("launch", None, (left,))
    assert recovery(refused(), [], at("11:01")).what == "launch"  # a definite refusal: nothing is waited for
    own = instance(id="i-2")
    both = recovery(refused(), [left, own], at("11:01"))
    assert (both.what, both.instance, both.duplicates) == ("adopt", own, (left,))
    ending = recovery(refused(phase=Phase.FAILED), [left], at("11:01"))
    assert (ending.what, ending.instance, ending.duplicates) == ("teardown", None, (left,))


def test_L14_a_claim_with_something_left_behind_goes_on_or_is_torn_down() -> None:
    world = seen(claims=(refused(),), instances=(instance(id="r-1"),), offers=(offer("0.42"), offer("0.50")))
    again = one(decide(world, specs(p=1), "provision"), "resume").claim
    assert again is not None and again.offer.id == "g-0.50" and again.rejects == {"r-1"} and again.ids_seen == ("r-1",)
    ended = one(decide(world), "destroy")
    assert ended.reason == "LaunchFailed" and ended.claim is not None and ended.claim.ids_seen == ("r-1",)
    assert not of(decide(world), "update")


def test_L14_an_attempt_remembers_what_it_left_behind_and_old_records_are_read() -> None:
    record = to_record(refused())
    assert from_record(record) == refused()
    for attempt in record["attempts"]:
        del attempt["instance_id"]
    assert from_record(record).rejects == frozenset()
    assert CAPABILITIES["lambda"].bills_boot


def test_L14_what_is_unknown_and_what_is_left_behind_count_until_they_are_gone() -> None:
    """Two offers, one refused with capacity, one without an answer: the claim counts all the time (the worked example)."""
    waiting = claim(
        phase=Phase.PROVISIONING,
        launch_started=at("11:00"),
        unknown_since=at("11:00:30"),
        attempts=(
            Attempt(at("11:00"), "lambda/a", "refused", "capacity"),
            Attempt(at("11:00:30"), "lambda/b", "unknown", "unknown"),
        ),
    )
    offers = (offer("0.40", id="a"), offer("0.41", id="b"), offer("0.42", id="c"))
    during = decide(seen(at("11:09"), claims=(waiting,), offers=offers), specs(p=1), "provision")
    assert [action.reason for action in during.actions] == ["Waiting"]
    after = one(decide(seen(at("11:11"), claims=(waiting,), offers=offers), specs(p=1), "provision"), "resume").claim
    assert after is not None and after.offer.id == "c"
