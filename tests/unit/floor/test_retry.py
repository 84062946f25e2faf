# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The retry policy: how long the pauses are, what ends them, and which writes are resent after a 429."""

from __future__ import annotations

import math
import random
import typing as t

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import errors
from ansible_collections.tgp.gpu.plugins.module_utils.core.http import Answer, retry_after
from ansible_collections.tgp.gpu.plugins.module_utils.core.rate_limit import RetryPolicy, resend
from ansible_collections.tgp.gpu.plugins.module_utils.kube import client as kube
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.tailscale import client as tailscale
from ansible_collections.tgp.gpu.plugins.module_utils.operations.teardown import teardown
from ansible_collections.tgp.gpu.plugins.module_utils.providers.vast import api as vast
from ansible_collections.tgp.gpu.plugins.module_utils.providers.webhook import cloud as webhook

from .test_http import Clock, api, ok

EVEN = RetryPolicy(tries=4, first=2.0, longest=10.0, jitter=(1.0, 1.0), deadline=math.inf)


@pytest.fixture(params=[0.0, 0.5, 1.0], ids=["least", "middle", "most"])
def drawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """Where in its range each factor of jitter is drawn."""
    share = float(request.param)
    monkeypatch.setattr(random, "uniform", lambda low, high: low + (high - low) * share)
    return share


def limited(asked: float | None = None, code: str | None = None) -> errors.RateLimited:
    return errors.RateLimited("cloud: 429", status=429, code=code, retry_after=asked)


def pauses(policy: RetryPolicy, failures: t.Sequence[errors.TgpError], **options: t.Any) -> tuple[list[float], int]:
    """The pauses made, and the tries, of a call that fails so; it succeeds when no failure is left."""
    clock, tries = Clock(), 0

    def send() -> str:
        nonlocal tries
        tries += 1
        if tries <= len(failures):
            raise failures[tries - 1]
        return "done"

    try:
        assert resend(send, policy, clock, **options) == "done"
    except errors.TgpError as error:
        assert error is failures[tries - 1]
    return clock.slept, tries


def test_without_retry_after_pauses_grow_to_the_longest() -> None:
    assert [EVEN.pause(tried) for tried in (1, 2, 3, 4, 5, 9999)] == [2.0, 4.0, 8.0, 10.0, 10.0, 10.0]


def test_jitter_draws_from_a_share_of_the_pause(drawn: float) -> None:
    full = RetryPolicy(first=2.0, longest=10.0)
    assert [full.pause(tried) for tried in (1, 2, 5)] == [2.0 * drawn, 4.0 * drawn, 10.0 * drawn]


@pytest.mark.parametrize(("asked", "pause"), [(0.0, 1.0), (0.5, 1.0), (7.0, 7.0), (60.0, 60.0), (86400.0, 60.0)])
def test_retry_after_counts_within_its_bounds_however_often_it_was_tried(asked: float, pause: float) -> None:
    assert RetryPolicy().pause(1, asked) == RetryPolicy().pause(5, asked) == pause


def test_the_number_of_tries_ends_it() -> None:
    assert pauses(EVEN, [limited()] * 9) == ([2.0, 4.0, 8.0], 4)
    assert pauses(EVEN, [limited(), limited(5.0)]) == ([2.0, 5.0], 3)


def test_a_pause_that_would_end_behind_the_deadline_is_not_begun() -> None:
    tight = RetryPolicy(tries=99, first=2.0, longest=10.0, jitter=(1.0, 1.0), deadline=24.5)
    assert pauses(tight, [limited()] * 9) == ([2.0, 4.0, 8.0, 10.0], 5)
    assert pauses(tight, [limited(25.0)]) == ([], 1)


def test_only_a_429_is_resent_unless_the_caller_says_more() -> None:
    for failure in (errors.LostAnswer("lost"), errors.ServerError("500", status=500), errors.LockLost("lost")):
        assert pauses(EVEN, [failure]) == ([], 1)
    assert pauses(EVEN, [errors.LostAnswer("lost")], when=lambda error: True) == ([2.0], 2)


def test_a_refused_launch_keeps_the_retry_after_of_its_429() -> None:
    refusal = errors.LaunchRefused("busy", reason="rate", retry_after=7.0)
    assert pauses(EVEN, [refusal, refusal], when=lambda error: True) == ([7.0, 7.0], 3)


def test_a_quota_that_no_pause_brings_back_is_not_asked_again() -> None:
    policy = RetryPolicy(quota_codes=("daily",))
    assert pauses(policy, [limited(code="daily")]) == ([], 1)
    assert pauses(policy, [limited(2.0, code="burst")]) == ([2.0], 2)


def test_what_is_to_be_checked_before_each_try_ends_them_when_it_fails() -> None:
    checks: list[int] = []

    def confirm() -> None:
        checks.append(len(checks))
        if len(checks) == 3:
            raise errors.LockLost("taken over")

    def send() -> None:
        raise limited()

    with pytest.raises(errors.LockLost):
        resend(send, EVEN, Clock(), before=confirm)
    assert checks == [0, 1, 2]


# ---- a write


def test_a_write_that_was_turned_away_is_resent_where_the_caller_says_so() -> None:
    clock = Clock()
    answers = [httpx.Response(429, headers={"retry-after": "3"}), httpx.Response(429), ok({"id": 1})]
    client, seen = api(answers, clock)
    assert client.call("POST", "/x", json={}, resend_rate_limited=EVEN).json == {"id": 1}
    assert (len(seen), clock.slept) == (3, [3.0, 4.0])


def test_a_write_is_given_up_after_the_tries_of_its_policy() -> None:
    clock = Clock()
    client, seen = api([httpx.Response(429)], clock)
    with pytest.raises(errors.RateLimited):
        client.call("POST", "/x", json={}, resend_rate_limited=EVEN)
    assert (len(seen), clock.slept) == (4, [2.0, 4.0, 8.0])


@pytest.mark.parametrize("failure", [httpx.Response(500), httpx.Response(503), httpx.ReadTimeout("late")])
def test_a_write_of_unknown_outcome_is_not_resent_after_a_429(failure: t.Any) -> None:
    client, seen = api([httpx.Response(429), failure, ok()])
    with pytest.raises((errors.ServerError, errors.LostAnswer)):
        client.call("POST", "/x", json={}, resend_rate_limited=EVEN)
    assert len(seen) == 2


def test_a_read_takes_the_policy_of_the_call_for_a_429_and_its_own_for_the_rest() -> None:
    clock = Clock()
    client, seen = api(
        [httpx.Response(503), httpx.Response(429), ok()], clock, retry=RetryPolicy(first=0.25, jitter=(1.0, 1.0), tries=2)
    )
    client.call("GET", "/x", resend_rate_limited=EVEN)
    assert (len(seen), clock.slept) == (3, [0.25, 2.0])


# ---- Retry-After


@pytest.mark.parametrize(
    ("header", "body", "seconds"),
    [
        ("9", None, 9.0),
        ("-1", None, 0.0),
        ("Thu, 20 Aug 2026 12:00:30 GMT", None, 30.0),
        ("Thu, 20 Aug 2026 11:00:00 GMT", None, 0.0),
        ("soon", None, None),
        ("", {"retry_after": 7}, 7.0),
        ("9", {"retry_after": 7}, 9.0),
        ("", {"retry_after": "7"}, None),
        ("", {"retry_after": True}, None),
        ("", ["retry_after"], None),
    ],
)
def test_the_answer_says_when_to_come_again_by_header_or_body(header: str, body: t.Any, seconds: float | None) -> None:
    assert retry_after(Answer(429, {"retry-after": header}, "", body), Clock()) == seconds


# ---- the numbers of the clients


def test_writes_to_the_cluster_come_back_spread_out_and_never_early(drawn: float) -> None:
    policy = kube._TURNED_AWAY
    spread = 1.0 + drawn / 2
    assert policy.tries == 4
    assert [policy.pause(tried) for tried in (1, 3)] == [spread, spread]
    assert [policy.pause(1, asked) for asked in (0.0, 2.0, 90.0)] == [spread, 2.0 * spread, 30.0 * spread]


def test_a_mesh_key_waits_half_a_minute_at_most(drawn: float) -> None:
    policy = tailscale._RATE_LIMITED
    assert policy.tries == 4
    assert [policy.pause(tried) for tried in (1, 2, 3)] == [(0.5 + drawn) * second for second in (1, 2, 4)]
    assert [policy.pause(1, asked) for asked in (0.0, 3.0, 90.0)] == [0.1, 3.0, 30.0]


def test_vast_waits_by_the_interval_of_the_call_and_a_minute_at_most(drawn: float) -> None:
    policy = vast._rate_limited(8.0)
    factor = 0.8 + 0.4 * drawn
    assert (policy.tries, policy.deadline) == (6, 180.0)
    assert [policy.pause(tried) for tried in (1, 2, 4)] == pytest.approx([13.6 * factor, 23.12 * factor, 50.0 * factor])
    assert policy.pause(5) <= 60.0 and policy.pause(1, 600.0) == 60.0


def test_a_power_service_is_called_twice() -> None:
    assert pauses(webhook._SWITCH, [limited()] * 2) == ([2.0], 2)
    assert [webhook._SWITCH.pause(1, asked) for asked in (0.0, 5.0, 90.0)] == [2.0, 5.0, 60.0]


def test_a_destroy_call_is_resent_for_two_minutes() -> None:
    assert pauses(teardown._RATE_LIMITED, [limited()] * 99) == ([1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0], 8)
    assert pauses(teardown._RATE_LIMITED, [limited(600.0)] * 2) == ([], 1)
