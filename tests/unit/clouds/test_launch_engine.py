# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launch engine on a cloud whose answers are written down beforehand: what it does, in which order, and after how long."""

from __future__ import annotations

import functools
import typing as t
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import (
    ApiError,
    LaunchRefused,
    LaunchUnknown,
    ServerError,
    TgpError,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model import Capability, Instance, InstanceState, Lane, Offer
from ansible_collections.tgp.gpu.plugins.module_utils.providers.launch_engine import (
    LaunchCandidate,
    LaunchEngine,
    Outcome,
    oldest_first,
)

NOON = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
FACTS = {name: Capability(name, lanes=(Lane.KUBELET,), list_delay=delay) for name, delay in (("slow", 60), ("quick", 0))}


class Time:
    """A clock that only sleep moves."""

    speed = 1.0

    def __init__(self) -> None:
        self.moment = NOON
        self.awake: t.Callable[[], None] = lambda: None  # what happened during a sleep

    def now(self) -> datetime:
        return self.moment

    def sleep(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)
        self.awake()


class Bench:
    """A cloud, a journal and the engine. ``answers`` to create calls and ``lists`` of machines come in turn, the last list for good; ``seen``
    is what happened."""

    def __init__(self, *answers: str | TgpError, lists: t.Sequence[list[Instance] | ApiError] = (), **settings: bool) -> None:
        self.answers, self.lists = list(answers), list(lists) or [[]]
        self.seen: list[str] = []
        self.texts: list[str] = []
        self.clock = Time()
        self.unwanted: set[str] = set()
        self.stays: TgpError | None = None
        self.engine = LaunchEngine(
            facts=FACTS,
            journal=self,
            find=self.find,
            give_back=self.give_back,
            progress=lambda step, text: self.texts.append(f"{step}: {text}"),
            clock=self.clock,
            **settings,
        )

    @property
    def seconds(self) -> float:
        return (self.clock.now() - NOON).total_seconds()

    def launch(self, *offers: str) -> Outcome:
        wanted = [offer(one) for one in offers or ("slow/1",)]
        return self.engine.launch(LaunchCandidate(one, functools.partial(self.prepare, one)) for one in wanted)

    # ---- what the engine is given

    def prepare(self, one: Offer) -> t.Callable[[], str] | None:
        if one.id in self.unwanted:
            return None
        self.seen.append(f"record {one.id}")
        return functools.partial(self.create, one)

    def create(self, one: Offer) -> str:
        self.seen.append(f"create {one.id}")
        answer = self.answers.pop(0)
        if isinstance(answer, TgpError):
            raise answer
        return answer

    def find(self) -> list[Instance]:
        self.seen.append("list")
        machines = self.lists.pop(0) if len(self.lists) > 1 else self.lists[0]
        if isinstance(machines, ApiError):
            raise machines
        return list(machines)

    def give_back(self, refusal: LaunchRefused) -> None:
        if refusal.instance_id:
            self.seen.append(f"terminate {refusal.instance_id}")
            if self.stays is not None:
                raise self.stays

    def created(self, one: Offer, instance_id: str) -> None:
        self.seen.append(f"write id {instance_id}")

    def refused(self, one: Offer, refusal: LaunchRefused) -> None:
        self.seen.append(f"write {refusal.reason} {refusal.instance_id or ''}".rstrip())

    def unknown(self, one: Offer, unknown: LaunchUnknown) -> None:
        self.seen.append("write unknown")


def offer(name: str) -> Offer:
    cloud, _slash, number = name.partition("/")
    return Offer(cloud=cloud, id=number, instance_type="small", model="A10", gpu_count=1, price_hour=Decimal(1))


def refusal(reason: str, status: int | None = 400, left: str | None = None, **details: t.Any) -> LaunchRefused:
    return LaunchRefused(f"no: {reason}", reason=reason, instance_id=left, status=status, **details)


def machine(identity: str, minute: int | None = 0) -> Instance:
    created = None if minute is None else NOON + timedelta(minutes=minute)
    return Instance("slow", identity, "tgp-x", InstanceState.RUNNING, created=created)


LOST = LaunchUnknown("The answer was lost.")
LIMITED = refusal("rate", 429)


def test_L02_the_call_is_on_record_before_it_is_sent_and_its_id_right_after() -> None:
    bench = Bench("101")
    assert bench.launch() == Outcome(offer("slow/1"), "101")
    assert (bench.seen, bench.seconds) == (["record 1", "create 1", "write id 101"], 0)


# ---- a lost answer


def test_L02_an_answer_without_an_id_is_a_lost_one() -> None:
    bench = Bench("", "102", lists=[[], [machine("101")]])
    assert [found.id for found in bench.launch("slow/1", "slow/2").found] == ["101"]
    assert bench.seen == ["record 1", "create 1", "write unknown", "list", "list"]


def test_L02_a_lost_answer_is_looked_up_and_never_repeated() -> None:
    late = [machine("101")]
    bench = Bench(LOST, lists=[[], ServerError("502"), [], [], late])
    assert bench.launch("slow/1", "slow/2") == Outcome(offer("slow/1"), found=(machine("101"),))
    assert bench.seen == ["record 1", "create 1", "write unknown", *["list"] * 5]
    assert bench.seconds == 40
    assert bench.texts == ["unknown: The answer was lost. Looking for it by name.", "unknown: look-up failed: 502"]


@pytest.mark.parametrize(("cloud", "looks", "seconds"), [("quick", 3, 20), ("slow", 7, 60)])
def test_L02_a_machine_that_is_not_found_ends_the_launch(cloud: str, looks: int, seconds: int) -> None:
    """Three looks, or as many as the cloud may list it late; no other offer is tried, because the machine may still show."""
    bench = Bench(LOST)
    with pytest.raises(LaunchUnknown):
        bench.launch(f"{cloud}/1", "slow/2")
    assert bench.seen == ["record 1", "create 1", "write unknown", *["list"] * looks]
    assert bench.seconds == seconds


def test_L02_of_two_machines_of_one_name_the_oldest_comes_first() -> None:
    bench = Bench(LOST, lists=[[machine("9", None), machine("3", 2), machine("2", 1), machine("1", 2)]])
    assert [one.id for one in bench.launch().found] == ["2", "1", "3", "9"]
    assert oldest_first([]) == []


# ---- a rate limit


@pytest.mark.parametrize(("asked", "seconds"), [(None, 15), (7.0, 14), (0.0, 2), (900.0, 120)])
def test_L14_a_rate_limited_call_is_sent_again_after_a_backoff(asked: float | None, seconds: float) -> None:
    """Each call is recorded anew. The cloud's own pause counts, from 1 to 60 s."""
    limited = refusal("rate", 429, retry_after=asked)
    bench = Bench(limited, limited, "101")
    assert bench.launch().instance_id == "101"
    assert bench.seen == [*["record 1", "create 1"] * 3, "write id 101"]
    assert bench.seconds == seconds
    assert bench.texts[0] == f"waiting: slow is rate limited, retrying in {5 if asked is None else min(max(asked, 1), 60):.0f} s"


def test_L14_a_cloud_that_stays_rate_limited_gets_six_calls_and_no_other_offer() -> None:
    bench = Bench(*[LIMITED] * 6, "202")
    assert bench.launch("slow/1", "slow/2", "quick/3").instance_id == "202"
    assert bench.seen == [*["record 1", "create 1"] * 6, "write rate", "record 3", "create 3", "write id 202"]
    assert bench.seconds == 5 + 10 + 20 + 40 + 60


def test_L14_a_machine_that_is_there_before_a_call_is_sent_again_is_taken() -> None:
    bench = Bench(LIMITED, lists=[[machine("3", 2), machine("2", 1)]], look_before_resend=True)
    assert bench.launch().instance_id == "2"
    assert bench.seen == ["record 1", "create 1", "list", "write id 2"]


def test_L14_a_list_that_fails_keeps_no_call_from_being_sent_again() -> None:
    """The answer to the call was that nothing was made."""
    bench = Bench(LIMITED, "101", lists=[ServerError("502")], look_before_resend=True)
    assert bench.launch().instance_id == "101"
    assert bench.seen == ["record 1", "create 1", "list", "record 1", "create 1", "write id 101"]


@pytest.mark.parametrize("retried", [True, False])
def test_L14_a_call_that_never_reached_its_cloud_is_sent_again_where_that_is_wanted(retried: bool) -> None:
    bench = Bench(refusal("rate", None), "101", retry_unsent=retried)
    if retried:
        assert bench.launch().instance_id == "101"
        assert bench.texts == ["waiting: slow takes no calls now, retrying in 5 s"]
    else:
        with pytest.raises(LaunchRefused):
            bench.launch()
        assert bench.seen == ["record 1", "create 1", "write rate"]


def test_L14_a_refusal_that_left_a_machine_is_not_sent_again_whatever_its_status() -> None:
    bench = Bench(refusal("rate", 429, left="7"))
    with pytest.raises(LaunchRefused):
        bench.launch()
    assert bench.seen == ["record 1", "create 1", "write rate 7", "terminate 7"]


def test_L14_an_offer_that_is_not_wanted_after_the_backoff_is_left() -> None:
    bench = Bench(LIMITED, "202")
    bench.clock.awake = lambda: bench.unwanted.add("1")
    assert bench.launch("slow/1", "slow/2").instance_id == "202"
    assert bench.seen == ["record 1", "create 1", "record 2", "create 2", "write id 202"]


# ---- other refusals


@pytest.mark.parametrize("reason", ["capacity", "conflict"])
def test_L14_a_refusal_leads_to_the_next_offer(reason: str) -> None:
    bench = Bench(refusal(reason), "202")
    assert bench.launch("slow/1", "slow/2") == Outcome(offer("slow/2"), "202")
    assert bench.seen == ["record 1", "create 1", f"write {reason}", "record 2", "create 2", "write id 202"]
    assert bench.texts == [f"refused: slow 1: {reason}: no: {reason}"]


@pytest.mark.parametrize("reason", ["quota", "balance", "auth"])
def test_L14_what_holds_for_all_offers_of_a_cloud_leads_to_the_next_cloud(reason: str) -> None:
    bench = Bench(refusal(reason), "303")
    assert bench.launch("slow/1", "slow/2", "quick/3").instance_id == "303"
    assert bench.seen == ["record 1", "create 1", f"write {reason}", "record 3", "create 3", "write id 303"]


def test_L14_an_invalid_request_ends_the_launch() -> None:
    bench = Bench(refusal("invalid"))
    with pytest.raises(LaunchRefused, match="no: invalid"):
        bench.launch("slow/1", "quick/2")
    assert bench.seen == ["record 1", "create 1", "write invalid"]


def test_L14_the_last_refusal_is_the_failure() -> None:
    bench = Bench(refusal("capacity"), refusal("quota"))
    with pytest.raises(LaunchRefused, match="no: quota"):
        bench.launch("slow/1", "slow/2", "slow/3")


def test_L14_without_a_wanted_offer_nothing_is_recorded_or_sent() -> None:
    bench = Bench()
    bench.unwanted = {"1", "2"}
    with pytest.raises(LaunchRefused, match="No offer was tried"):
        bench.launch("slow/1", "slow/2")
    assert bench.seen == []


def test_L14_what_a_refused_call_left_behind_is_on_record_then_terminated_then_the_next_is_tried() -> None:
    bench = Bench(refusal("capacity", left="7"), "202")
    assert bench.launch("slow/1", "slow/2").instance_id == "202"
    assert bench.seen == ["record 1", "create 1", "write capacity 7", "terminate 7", "record 2", "create 2", "write id 202"]


def test_L14_what_cannot_be_terminated_ends_the_launch() -> None:
    bench = Bench(refusal("capacity", left="7"))
    bench.stays = TgpError("It stays.")
    with pytest.raises(TgpError, match="It stays"):
        bench.launch("slow/1", "slow/2")
    assert bench.seen == ["record 1", "create 1", "write capacity 7", "terminate 7"]
