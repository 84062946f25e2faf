# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renting when the cloud refuses, is silent, or makes more than was asked for (L-2, L-13, L-14, L-16)."""

from __future__ import annotations

import copy
import dataclasses
import json
import typing as t
from datetime import datetime, timedelta, timezone

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import LaunchRefused, LockLost
from ansible_collections.tgp.gpu.plugins.module_utils.model import LaunchRequest
from ansible_collections.tgp.gpu.plugins.module_utils.providers.lambda_.cloud import LambdaCloud

from sandbox.market import set_price
from sandbox.world import Machine

from .rig import CREATE, DESTROY, Killed, Rig, moment

SOLD_OUT = {"error": {"code": "instance-operations/launch/insufficient-capacity", "message": "Not enough capacity."}}
NO_QUOTA = {"error": {"code": "global/quota-exceeded", "message": "Quota exceeded."}}
NO_KEY = {"error": {"code": "global/invalid-api-key", "message": "API key was invalid, expired, or deleted."}}
NO_SENSE = {"error": {"code": "global/invalid-parameters", "message": "user_data: too strange"}}
TOO_FAST = {"error": {"code": "global/too-many-requests", "message": "Too many requests."}}


def refuse(rig: Rig, body: t.Any, status: int = 400, **more: t.Any) -> t.Any:
    return rig.fault("status", "lambda", "POST", CREATE, status=status, body=body, **more)


def results(done: dict[str, t.Any]) -> list[str]:
    return sorted(one["result"] for one in done["machines"])


# ---- a definite refusal


def test_L14_without_capacity_the_next_offer_is_taken(rig: Rig) -> None:
    refuse(rig, SOLD_OUT)
    assert results(rig.rent()) == ["launched"]
    machine, claim = rig.machine(), rig.claim()
    assert machine.offer.type == "gpu_1x_a6000"
    assert (claim["offer"]["instance_type"], claim["reserved_price"]) == ("gpu_1x_a6000", "1.09")
    assert [(one["result"], one["error_class"]) for one in claim["attempts"]] == [("refused", "capacity"), ("ok", "")]
    (key,) = rig.blocks()
    assert "gpu_1x_rtx6000" in key
    assert rig.join()["machines"][0]["result"] == "ready"
    assert rig.nodes()[machine.name]["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "gpu_1x_a6000"


def test_L11_a_second_choice_of_another_size_is_awaited_with_all_its_gpus(build: t.Callable[..., Rig]) -> None:
    kinds = [{"type": kind, "region": "us-south-2", "stock": 2, "boot": 20} for kind in ("gpu_1x_rtx6000", "gpu_2x_a6000")]
    rig = build(**{"lambda": kinds})
    rig.training["maxHourlyPrice"] = "3.00"
    refuse(rig, SOLD_OUT)
    rig.rent()
    assert rig.claim()["expected_gpus"] == 2
    assert rig.join()["machines"][0]["result"] == "ready"
    assert rig.nodes()[rig.machine().name]["metadata"]["labels"]["tgp.io/gpu-count"] == "2"


def test_L16_a_dearer_second_choice_passes_the_limits_again(rig: Rig) -> None:
    """Both first tries are refused; 1.09 fits once under 1.80 and not twice, whoever comes first."""
    rig.demo_class["limits"]["maxHourlyCost"] = "1.80"
    refuse(rig, SOLD_OUT, times=2)
    done = rig.rent(nodes=2)
    assert results(done) == ["failed", "launched"]
    assert [str(one.offer.price_hour) for one in rig.machines()] == ["1.09"]
    assert any(one.get("event") == "skipped" and "limit:maxHourlyCost" in one["text"] for one in rig.events())
    failed = next(one for one in rig.claims().values() if one["phase"] == "Failed")
    assert failed["deletion"]["reason"] == "LaunchFailed"
    assert rig.creates() == 3


def test_L16_a_dearer_second_choice_passes_the_budget_of_its_team_again(rig: Rig) -> None:
    """As above, with 1.80 a day for the team of the pool."""
    rig.document("GPUNodePool", "training")["metadata"]["labels"] = {"tgp.io/team": "red"}
    known = {"team": "red", "period": "day", "amount": "1.80", "time_zone": "UTC", "soft_percent": 80}
    refuse(rig, SOLD_OUT, times=2)
    plan = rig.plan("provision", pools=["training"], nodes=2, team_budgets=[known])
    done = rig.run("launch", plan["run_id"], team_budgets=[known])
    rig.unlock(plan["run_id"])
    assert results(done) == ["failed", "launched"]
    assert any(one.get("event") == "skipped" and "limit:budget.team too little left" in one["text"] for one in rig.events())


def test_L14_quota_gives_up_the_cloud(rig: Rig) -> None:
    refuse(rig, NO_QUOTA, times=None)
    done = rig.rent()
    assert results(done) == ["failed"]
    assert "Quota exceeded" in done["problems"][0]
    assert rig.creates() == 1
    assert list(rig.blocks()) == ["cloud:lambda"]
    rig.reap()
    assert rig.left() == {}
    (line,) = rig.ledger()
    assert (line["reason"], line["cost"]) == ("LaunchFailed", "0")
    again = rig.plan("provision", pools=["training"], nodes=1, check=True)
    assert again["outcome"] == "shortfall"  # the block list keeps the next run from trying at once


@pytest.mark.parametrize("status", [401, 403])
def test_L14_a_refused_key_gives_up_the_cloud_for_this_run_only(rig: Rig, status: int) -> None:
    refuse(rig, NO_KEY, status)
    assert results(rig.rent()) == ["failed"]
    assert (rig.creates(), rig.blocks(), rig.machines()) == (1, {}, [])


def test_L14_an_invalid_request_fails_the_claim_at_once(rig: Rig) -> None:
    refuse(rig, NO_SENSE)
    done = rig.rent()
    assert results(done) == ["failed"]
    assert (rig.creates(), rig.blocks()) == (1, {})
    claim = rig.claim()
    assert (claim["phase"], claim["deletion"]["reason"]) == ("Failed", "LaunchFailed")
    assert "was answered 400" in claim["history"][-1][2] and "too strange" in done["problems"][0]


def test_L14_long_words_of_a_cloud_do_not_burst_the_record(rig: Rig) -> None:
    """The API server takes about a megabyte; what cannot be written any more could not even be given up."""
    error = {"code": "instance-operations/launch/insufficient-capacity", "message": f"no room {'x' * 500_000}", "suggestion": ""}
    rig.fault("status", "lambda", "POST", CREATE, status=400, body={"error": error}, times=None)
    (row,) = rig.rent()["machines"]
    assert row["result"] == "failed" and "no room" in row["message"]
    claim = rig.claim()
    assert (claim["phase"], claim["deletion"]["reason"]) == ("Failed", "LaunchFailed")
    assert all(len(one["message"]) <= 500 for one in claim["attempts"]) and len(claim["attempts"]) > 2
    rig.reap()
    assert rig.left() == {}


def test_L14_half_a_character_in_a_refusal_ends_no_launch(rig: Rig) -> None:
    """A sentence that its cloud cut in the middle of a pair can be read, but not be written into a record."""
    error = {"code": "instance-operations/launch/insufficient-capacity", "message": "no room \ud83d", "suggestion": "\ud83d\ude00"}
    rig.fault("status", "lambda", "POST", CREATE, status=400, body={"error": error}, times=1)
    assert rig.rent()["machines"][0]["result"] == "launched"
    assert any("no room ? 😀" in one for one in rig.lines)
    assert rig.claim()["attempts"][0]["message"].endswith("was answered 400 instance-operations/launch/insufficient-capacity.")


def test_L14_a_rate_limited_create_call_is_retried(rig: Rig) -> None:
    refuse(rig, TOO_FAST, 429, times=2, headers={"retry-after": "30"})
    started = rig.clock.now()
    assert results(rig.rent()) == ["launched"]
    assert rig.machine().offer.type == "gpu_1x_rtx6000"
    assert rig.machine().created - started >= timedelta(seconds=60)
    assert rig.creates() == 3


def test_L14_retries_after_a_rate_limit_end_after_five_times(rig: Rig) -> None:
    refuse(rig, TOO_FAST, 429, times=None, headers={"retry-after": "1"})
    assert results(rig.rent()) == ["failed"]
    assert rig.creates() == 6
    assert (rig.machines(), rig.blocks()) == ([], {})


def test_L14_a_success_ends_the_doubling(rig: Rig) -> None:
    refuse(rig, SOLD_OUT)
    rig.rent()
    assert rig.state("blocklist")["history"]
    rig.destroy()
    rig.advance(601)  # the block is over, its memory is not
    rig.rent()
    assert rig.machine().offer.type == "gpu_1x_rtx6000"
    assert (rig.blocks(), rig.state("blocklist")["history"]) == ({}, {})


def slow_until_failed(rig: Rig) -> t.Callable[[httpx.Request], None]:
    """From its first create call on the world lives in real time, until a claim is recorded as failed: how soon this host comes to what the
    first claim was told must not decide whether the next one's turn comes before that."""
    usual = rig.clock.speed

    def watch(request: httpx.Request) -> None:
        if request.url.path.endswith(CREATE):
            rig.clock.run_at(1)
        elif request.method == "PUT" and b"LaunchFailed" in request.content:
            rig.clock.run_at(usual)

    return watch


@pytest.mark.parametrize(("body", "status", "words"), [(NO_KEY, 401, "does not take our key"), (NO_QUOTA, 400, "")])
def test_L14_what_one_claim_is_told_is_not_asked_by_the_others(rig: Rig, body: t.Any, status: int, words: str) -> None:
    """Three claims, one bad key: the cloud is left alone from the first refusal on, and the alarm is raised once."""
    rig.world.rate_limits = True  # one create call at a time, as the cloud paces them
    rig.watcher = slow_until_failed(rig)
    refuse(rig, body, status, times=None)
    assert results(rig.rent(nodes=3)) == ["failed"] * 3
    assert rig.creates() == 1
    assert len([text for text in rig.warnings if "ALARM" in text]) == (1 if words else 0)
    assert all(words in text for text in rig.warnings if "ALARM" in text)


def later(rig: Rig, price: str) -> dict[str, t.Any]:
    """The launch step of a plan that waited for more than five minutes, while the cheapest offer changed."""
    plan = rig.plan("provision", pools=["training"], nodes=1)
    rig.advance(301)
    set_price(rig.world, {"cloud": "lambda", "type": "gpu_1x_rtx6000", "price": price})
    done = rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    return done


def test_L13_old_prices_are_read_again_before_they_are_rented_by(rig: Rig) -> None:
    assert results(later(rig, "0.71")) == ["launched"]
    assert (rig.machine().offer.type, rig.claim()["reserved_price"]) == ("gpu_1x_rtx6000", "0.71")


def test_L13_what_became_too_dear_meanwhile_is_left_out(rig: Rig) -> None:
    assert results(later(rig, "9.00")) == ["launched"]
    assert rig.machine().offer.type == "gpu_1x_a6000"


def test_L13_old_prices_that_cannot_be_read_again_rent_nothing(rig: Rig) -> None:
    plan = rig.plan("provision", pools=["training"], nodes=1)
    rig.advance(301)
    rig.fault("status", "lambda", "GET", "/instance-types", status=503, times=None)
    done = rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    assert (results(done), rig.creates(), rig.tokens()) == (["waiting"], 0, [])
    rig.faults.clear()
    assert results(rig.rent()) == ["launched"]


# ---- a refusal that leaves a machine behind


@pytest.fixture
def leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first create call is refused and leaves a billed machine, as one of Vast does whose bid is too low."""
    real, left = LambdaCloud.launch, []

    def launch(self: LambdaCloud, request: LaunchRequest) -> str:
        made = real(self, request)
        if left:
            return made
        left.append(made)
        raise LaunchRefused("The bid is too low.", reason="capacity", instance_id=made, cloud="lambda")

    monkeypatch.setattr(LambdaCloud, "launch", launch)


@pytest.mark.usefixtures("leaving")
def test_L14_what_a_refusal_leaves_behind_is_recorded_then_destroyed(rig: Rig) -> None:
    seen: list[tuple[list[str], str]] = []

    def watch(request: httpx.Request) -> None:
        if request.url.path.endswith(DESTROY):
            seen.append((rig.claim()["ids_seen"], rig.claim()["attempts"][-1]["instance_id"]))

    rig.watcher = watch
    assert results(rig.rent()) == ["launched"]
    left, machine = rig.machines(living=False)
    assert seen == [([left.id], left.id)]  # on record before the call
    assert left.ended and not machine.ended
    claim = rig.claim()
    assert (claim["instance_id"], claim["ids_seen"]) == (machine.id, [left.id, machine.id])
    assert [(one["result"], one["instance_id"]) for one in claim["attempts"]] == [("refused", left.id), ("ok", "")]
    assert rig.join()["machines"][0]["result"] == "ready"
    rig.destroy()
    assert rig.left() == {}
    assert sorted(line["reason"] for line in rig.ledger()) == ["LaunchRefused", "Manual"]
    assert sorted(one for line in rig.ledger() for one in line["ids"]) == sorted([left.id, machine.id])
    rig.check_bill()


@pytest.mark.usefixtures("leaving")
def test_L14_what_cannot_be_given_back_is_torn_down_and_never_adopted(rig: Rig) -> None:
    broken = rig.fault("status", "lambda", "POST", DESTROY, status=500, times=None)
    assert results(rig.rent()) == ["failed"]
    (left,) = rig.machines()
    claim = rig.claim()
    assert (claim["phase"], claim["instance_id"], claim["ids_seen"]) == ("Failed", "", [left.id])
    broken.times = 0
    assert results(rig.rent()) == ["launched"]  # another claim; this one is not taken for its machine
    assert {one["instance_id"] for one in rig.claims().values()} == {"", next(one.id for one in rig.machines() if one is not left)}
    rig.reap()
    assert left.ended and len(rig.machines()) == 1
    rig.destroy()
    assert rig.left() == {}
    rig.check_bill()


@pytest.mark.usefixtures("leaving")
@pytest.mark.parametrize("mode", ["provision", "reap"])
def test_L14_a_run_killed_between_record_and_destroy_is_continued(rig: Rig, mode: str) -> None:
    """The machine is on record as left behind: a next run gives it back, and does not adopt it by its name."""
    rig.behave("never_boots")  # nor does it join the mesh, however long a slow test machine gives it
    plan = rig.plan("provision", pools=["training"], nodes=1)
    before = [one["name"] for one in rig.claims().values()]

    def die(request: httpx.Request) -> None:
        if request.url.path.endswith(DESTROY):
            raise Killed(request.url.path)

    rig.watcher = die
    with pytest.raises(Killed):
        rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    rig.watcher = lambda _request: None
    (left,) = rig.machines()
    assert (rig.claim()["instance_id"], rig.claim()["ids_seen"]) == ("", [left.id])
    if mode == "reap":
        assert results(rig.reap()) == ["gone"]
        assert rig.left() == {}
    else:
        assert results(rig.rent()) == ["launched"]
        assert left.ended and [one["name"] for one in rig.claims().values()] == before
        assert rig.claim()["instance_id"] == rig.machine().id != left.id
        rig.destroy()
        assert rig.left() == {}
    rig.check_bill()


# ---- no answer


def test_L02_an_answer_lost_after_the_effect_is_adopted(rig: Rig) -> None:
    rig.fault("lost_after", "lambda", "POST", CREATE)
    assert results(rig.rent()) == ["adopted"]
    machine, claim = rig.machine(), rig.claim()
    assert (claim["instance_id"], claim["ids_seen"], claim["unknown_since"]) == (machine.id, [machine.id], None)
    assert rig.creates() == 1
    assert rig.join()["machines"][0]["result"] == "ready"
    rig.destroy()
    assert rig.left() == {}


@pytest.mark.parametrize("status", [500, 502, 504])
def test_L02_a_server_error_after_the_effect_is_adopted(rig: Rig, status: int) -> None:
    rig.fault("status_after", "lambda", "POST", CREATE, status=status, body="<html>Bad gateway</html>")
    assert results(rig.rent()) == ["adopted"]
    assert rig.claim()["instance_id"] == rig.machine().id
    assert rig.creates() == 1


def test_L02_an_unparsable_success_is_adopted(rig: Rig) -> None:
    rig.fault("truncate", "lambda", "POST", CREATE)
    assert results(rig.rent()) == ["adopted"]
    assert (len(rig.machines()), rig.creates()) == (1, 1)


def test_L02_an_unknown_outcome_waits_out_its_window(rig: Rig) -> None:
    """Lost before the effect: inside the window nothing is planned and the claim counts; after it the next offer is taken."""
    rig.fault("lost_before", "lambda", "POST", CREATE)
    done = rig.rent()
    assert results(done) == ["waiting"]
    name = rig.claim()["name"]
    assert rig.claim()["unknown_since"]
    assert "no second create call" in done["problems"][0]

    rig.advance(300)
    inside = rig.plan("provision", pools=["training"], nodes=1)
    rig.unlock(inside["run_id"])
    assert inside["launch"] == []
    assert rig.run("launch", inside["run_id"])["machines"] == []
    rig.unlock(inside["run_id"])
    assert (rig.creates(), list(rig.claims())) == (1, [name])
    rig.demo_class["limits"]["maxNodes"] = 1
    more = rig.plan("provision", pools=["training"], nodes=2, check=True)
    assert more["shortfall"][0]["reason"] == "limit:maxNodes"  # the one in doubt counts

    rig.advance(301)
    done = rig.rent()
    assert done["plan"]["launch"] == [name]
    assert results(done) == ["launched"]
    assert rig.machine().name == name
    assert rig.machine().offer.type == "gpu_1x_a6000"
    assert rig.creates() == 2


def test_L02_a_machine_that_appears_late_is_adopted_by_the_next_run(rig: Rig) -> None:
    rig.fault("lost_after", "lambda", "POST", CREATE)
    late = rig.fault("body", "lambda", "GET", "/instances$", body={"data": []}, times=None, after_calls=1)
    assert results(rig.rent()) == ["waiting"]
    late.times = 0
    assert rig.rent()["machines"] == []
    assert rig.claim()["instance_id"] == rig.machine().id
    assert rig.join()["machines"][0]["result"] == "ready"
    assert rig.creates() == 1


def test_L02_a_failed_look_up_is_no_proof_of_absence(rig: Rig) -> None:
    """The window is over, but the list cannot be read: still no second create call."""
    rig.fault("lost_after", "lambda", "POST", CREATE)
    broken = rig.fault("status", "lambda", "GET", "/instances$", status=403, times=None, after_calls=1)
    assert results(rig.rent()) == ["waiting"]
    rig.advance(900)
    plan = rig.plan("provision", pools=["training"], nodes=1)
    rig.unlock(plan["run_id"])
    assert (plan["launch"], rig.creates()) == ([], 1)
    broken.times = 0
    rig.rent()
    assert rig.claim()["instance_id"] == rig.machine().id


def billed_from_its_tag(machine: Machine) -> None:
    """The world bills a twin from the moment that its tag names, too. Without it, its bill is older than what anybody can read of it."""
    (made,) = (int(tag["value"]) for tag in machine.details["tags"] if tag["key"] == "tgp:created")
    machine.created = max(machine.created, datetime.fromtimestamp(made, timezone.utc))


def twin(rig: Rig, seconds: int) -> t.Callable[[httpx.Request], None]:
    """The cloud makes one more machine for the same create call, ``seconds`` later. It boots for a day: of two with the same user data only
    the first to come up gets in, and that is not what these tests are about."""

    def watch(request: httpx.Request) -> None:
        if not request.url.path.endswith("/instances") or len(rig.machines()) != 1:
            return
        first = rig.machine()
        details = copy.deepcopy(first.details)
        for tag in details["tags"]:
            if tag["key"] == "tgp:created":
                tag["value"] = str(int(tag["value"]) + seconds)
        details["addresses"] = ("198.18.9.9", "10.19.9.9")
        offer, now = dataclasses.replace(first.offer, boot_seconds=86400), rig.clock.now()
        rig.world.rent(Machine("0" * 32, "lambda", first.name, first.hostname, offer, now, payload=first.payload, details=details))

    return watch


def test_L02_of_two_machines_under_one_name_the_oldest_stays(rig: Rig) -> None:
    rig.fault("lost_after", "lambda", "POST", CREATE)
    rig.watcher = twin(rig, 14)
    assert results(rig.rent()) == ["adopted"]
    rig.watcher = lambda _request: None
    first, second = rig.machines(living=False)
    claim = rig.claim()
    assert claim["instance_id"] == first.id
    assert set(claim["ids_seen"]) == {first.id, second.id}
    rig.until(lambda: second.ended, "the second one is destroyed")
    assert first.ended is None
    assert rig.join()["machines"][0]["result"] == "ready"
    rig.destroy()
    assert rig.left() == {}
    lines = {line["reason"]: line["ids"] for line in rig.ledger()}
    assert lines == {"Duplicate": [second.id], "Manual": [first.id]}
    billed_from_its_tag(second)
    rig.check_bill(late=2)


def test_L02_a_second_machine_that_cannot_be_destroyed_now_goes_later(rig: Rig) -> None:
    rig.fault("lost_after", "lambda", "POST", CREATE)
    rig.fault("status", "lambda", "POST", "terminate", status=500, times=4)
    rig.watcher = twin(rig, 14)
    rig.rent()
    rig.watcher = lambda _request: None
    first, second = rig.machines(living=False)
    assert rig.claim()["instance_id"] == first.id
    assert set(rig.claim()["ids_seen"]) == {first.id, second.id}
    assert rig.join()["machines"][0]["result"] == "ready"
    rig.faults.clear()
    rig.reap()
    rig.until(lambda: second.ended, "the second one is destroyed")
    assert first.ended is None
    rig.destroy()
    assert rig.left() == {}
    assert {line["reason"]: line["ids"] for line in rig.ledger()} == {"Duplicate": [second.id], "Manual": [first.id]}
    billed_from_its_tag(second)
    rig.check_bill(late=2)


def test_L02_a_second_machine_that_goes_with_its_claim_is_booked_too(rig: Rig) -> None:
    """The closing line tells of one machine; the other's money must not be missing from books and budgets."""
    rig.fault("lost_after", "lambda", "POST", CREATE)
    rig.fault("status", "lambda", "POST", "terminate", status=500, times=None)
    rig.watcher = twin(rig, 14)
    rig.rent()
    rig.watcher = lambda _request: None
    first, second = rig.machines()
    rig.faults.clear()
    seen = rig.run("info")
    assert (seen["totals"]["instances"], [one["instance_id"] for one in seen["machines"]]) == (2, [first.id]), (
        "a status hides neither"
    )
    assert seen["machines"][0]["ip"] == first.details["addresses"][0] != second.details["addresses"][0]
    rig.advance(600)
    rig.destroy()
    assert rig.left() == {}
    assert {line["reason"]: line["ids"] for line in rig.ledger()} == {"Duplicate": [second.id], "Manual": [first.id]}
    billed_from_its_tag(second)
    rig.check_bill(late=2)


# ---- what lets a machine in


def test_L02_key_and_token_of_an_interrupted_try_are_taken_back(rig: Rig) -> None:
    plan = rig.plan("provision", pools=["training"], nodes=1)
    with rig.killed_at(5, after=True) as cut:  # key, the list of tokens (put, then made), token, and the claim with all of them
        rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    assert cut.seen >= 5
    assert rig.left() == {"keys": 1, "claims": 1, "tokens": 1}
    old = (rig.claim()["mesh_key_id"], rig.claim()["token_id"])
    assert all(old)
    rig.rent()
    rig.advance(601)  # it is not known whether the create call was sent
    assert results(rig.rent()) == ["launched"]
    assert rig.left() == {"instances": 1, "keys": 1, "claims": 1, "tokens": 1}
    assert rig.claim()["mesh_key_id"] != old[0]
    assert rig.claim()["token_id"] != old[1]


def test_L02_a_key_that_never_reached_its_claim_ends_by_itself(rig: Rig) -> None:
    """It is known to nobody any more, and is used by nobody; the token is found on our list."""
    plan = rig.plan("provision", pools=["training"], nodes=1)
    with rig.killed_at(4, after=True):
        rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    assert rig.left() == {"keys": 1, "claims": 1, "tokens": 1} and not rig.claim()["mesh_key_id"]
    assert results(rig.rent()) == ["launched"]
    assert rig.left() == {"instances": 1, "keys": 2, "claims": 1, "tokens": 1}
    rig.join()
    rig.advance(3600)
    assert "keys" not in rig.left()


def test_L02_key_and_token_of_a_machine_that_was_not_rented_reach_its_claim(rig: Rig) -> None:
    """The write before the create call fails, a later one does not: what was made is taken back."""
    plan = rig.plan("provision", pools=["training"], nodes=1)
    rig.fault(
        "status", "kubernetes", "PUT", f"configmaps/tgp-claim-{plan['launch'][0]}", status=403, body={"message": "no"}, times=1
    )
    assert results(rig.run("launch", plan["run_id"])) == ["failed"]
    rig.unlock(plan["run_id"])
    claim = rig.claim()
    assert (rig.creates(), claim["phase"], claim["launch_started"]) == (0, "Pending", None)
    assert claim["mesh_key_id"] and list(rig.state("tokens")) == [claim["token_id"]]
    rig.destroy()
    assert rig.left() == {}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 10))
def test_L02_a_run_that_dies_while_renting_is_continued(build: t.Callable[..., Rig], number: int, after: bool) -> None:
    """Whatever the last write was, the next runs end with one machine, and a reap with nothing."""
    rig = build(speed=400)
    plan = rig.plan("provision", pools=["training"], nodes=1)
    with rig.killed_at(number, after=after):
        rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    rig.rent()
    rig.advance(601)
    rig.rent()
    assert rig.join()["machines"][-1]["result"] == "ready"
    assert len(rig.machines()) == 1
    assert [one["phase"] for one in rig.claims().values()] == ["Ready"]
    assert rig.creates() <= 2
    rig.destroy()
    rig.advance(61)
    rig.reap()
    assert {name: count for name, count in rig.left().items() if name != "tokens"} == {}
    assert len(rig.ledger()) == 1


@pytest.mark.parametrize("service, path", [("tailscale", "/keys"), ("kubernetes", "/namespaces/kube-system/secrets")])
def test_a_machine_that_gets_no_key_or_token_is_not_rented_and_stops_no_other(rig: Rig, service: str, path: str) -> None:
    rig.fault("status", service, "POST", path, status=403, body={"message": "not now"}, after_calls=1)
    plan = rig.plan("provision", pools=["training"], nodes=3)
    rig.faults.clear()
    rig.fault("status", service, "POST", path, status=403, body={"message": "not now"}, after_calls=1)
    done = rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    assert results(done) == ["failed", "launched", "launched"]
    assert done["outcome"] == "partial"
    assert (len(rig.machines()), rig.creates()) == (2, 2)
    left_out = next(one["name"] for one in done["machines"] if one["result"] == "failed")
    assert rig.claims()[left_out]["launch_started"] is None
    assert results(rig.rent(nodes=3)) == ["launched"]  # the next run makes up for it
    assert {one.name for one in rig.machines()} == set(rig.claims())


def test_I12_no_secret_in_claims_events_lines_and_results(rig: Rig) -> None:
    refuse(rig, SOLD_OUT)
    rig.fault("status", "tailscale", "POST", "/keys", status=500, after_calls=2)
    secrets: set[str] = set()
    rig.watcher = lambda _request: secrets.update(key.secret for key in rig.box.tailnet.live_keys())
    done = [rig.rent(nodes=2), rig.join()]
    payloads = [one.payload or "" for one in rig.machines()]
    secrets |= {rig.world.secrets[name] for name in ("LAMBDA_API_KEY", "TS_OAUTH_CLIENT_SECRET")}
    secrets |= {line.strip().split()[-1] for text in payloads for line in text.splitlines() if "token:" in line}
    assert len(secrets) >= 4
    assert any(secret in text for secret in secrets for text in payloads)  # they were made, and used
    said = json.dumps([done, rig.configmaps("tgp.io/claim"), rig.configmaps("tgp.io/state"), rig.events(), rig.lines, rig.warnings])
    assert [secret for secret in secrets if secret in said] == []


# ---- the record comes first


def test_L02_without_its_record_no_create_call_is_sent(rig: Rig) -> None:
    plan = rig.plan("provision", pools=["training"], nodes=2)
    first, second = plan["launch"]
    rig.fault("status", "kubernetes", "PUT", f"configmaps/tgp-claim-{first}", status=500, times=None)
    done = rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    assert {one["name"]: one["result"] for one in done["machines"]} == {first: "failed", second: "launched"}
    assert [one.name for one in rig.machines()] == [second]
    assert rig.creates() == 1


def test_L02_the_record_of_the_create_call_is_older_than_the_call(rig: Rig) -> None:
    """At every create call the stored claim says what is being rented, for how much, and since when."""
    seen: list[dict[str, t.Any]] = []
    rig.watcher = lambda request: seen.extend(rig.claims().values()) if request.url.path.endswith(CREATE) else None
    refuse(rig, SOLD_OUT)
    rig.rent()
    assert [(one["phase"], one["offer"]["instance_type"], one["reserved_price"]) for one in seen] == [
        ("Provisioning", "gpu_1x_rtx6000", "0.69"),
        ("Provisioning", "gpu_1x_a6000", "1.09"),
    ]
    assert all(one["launch_started"] and not one["instance_id"] for one in seen)
    assert moment(seen[0]["launch_started"]) <= rig.machine().created


def test_L02_an_id_that_cannot_be_noted_is_found_by_name(rig: Rig) -> None:
    """The create call succeeds and the record of it fails: the next run adopts."""
    plan = rig.plan("provision", pools=["training"], nodes=1)
    path = f"configmaps/tgp-claim-{plan['launch'][0]}"
    rig.fault(
        "status", "kubernetes", "PUT", path, status=500, times=None, after_calls=1
    )  # the one with key, token and launch_started passes
    done = rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    assert (results(done), rig.claim()["instance_id"]) == (["failed"], "")
    assert "may have been rented all the same" in done["problems"][0], "people must not take it for a launch that made nothing"
    machine = rig.machine()
    rig.faults.clear()
    assert rig.rent()["machines"] == []
    assert rig.claim()["instance_id"] == machine.id
    assert rig.creates() == 1


# ---- the lock


def test_L08_a_lost_lock_ends_the_step_before_the_next_paid_call(rig: Rig) -> None:
    plan = rig.plan("provision", pools=["training"], nodes=2)
    cluster = plan["run_id"] and next(iter(rig.claims())).split("-")[1]
    path = f"/apis/coordination.k8s.io/v1/namespaces/tgp-system/leases/tgp-{cluster}"

    def steal(request: httpx.Request) -> None:
        """Somebody takes over while the first key is being made; so late that a renewal is due."""
        if request.url.path.endswith("/keys") and not stolen:
            stolen.append(rig.kube("PATCH", path, {"spec": {"holderIdentity": "elsewhere/1/other"}}))
            rig.advance(600)

    stolen: list[t.Any] = []
    rig.watcher = steal
    with pytest.raises(LockLost) as caught:
        rig.run("launch", plan["run_id"])
    assert caught.value.result["outcome"] == "lock_lost"  # type: ignore[attr-defined]
    assert stolen
    assert (rig.creates(), rig.machines()) == (0, [])
    assert len(rig.claims()) == 2


def test_L08_a_lock_that_is_lost_while_the_create_call_is_recorded_ends_the_step_before_the_call(rig: Rig) -> None:
    """The last call before the one that costs; nothing after it but the confirmation would notice the loss."""
    plan = rig.plan("provision", pools=["training"], nodes=1)
    cluster = plan["run_id"] and next(iter(rig.claims())).split("-")[1]
    path = f"/apis/coordination.k8s.io/v1/namespaces/tgp-system/leases/tgp-{cluster}"

    def steal(request: httpx.Request) -> None:
        if not stolen and b"launch_started" in request.content and b"Provisioning" in request.content:
            stolen.append(rig.kube("PATCH", path, {"spec": {"holderIdentity": "elsewhere/1/other"}}))
            rig.advance(6)  # a lock confirmed less than 5 s ago is not asked about again

    stolen: list[t.Any] = []
    rig.watcher = steal
    with pytest.raises(LockLost):
        rig.run("launch", plan["run_id"])
    assert stolen
    assert (rig.creates(), rig.machines()) == (0, [])
    (claim,) = rig.claims().values()
    assert claim["phase"] == "Provisioning"


# ---- own machines


def test_L21_an_own_machine_that_does_not_answer_is_asked_once_more(rig: Rig) -> None:
    rig.fault("lost_before", "webhook", "POST", "/rack-1/start")
    assert results(rig.rent(pool="own")) == ["launched"]
    assert rig.join()["machines"][0]["result"] == "ready"


def test_L21_an_own_machine_that_refuses_fails_its_claim(rig: Rig) -> None:
    rig.fault("status", "webhook", "POST", "/rack-1/start", status=400, body={"error": "no"}, times=None)
    done = rig.rent(pool="own")
    assert results(done) == ["failed"]
    rig.reap()
    assert rig.left() == {}


def test_L21_a_machine_that_is_only_switched_on_gets_no_secrets(rig: Rig) -> None:
    """``payload: none``: it is installed for good, so neither a mesh key nor a bootstrap token is made for it."""
    own = next(one for one in rig.demo_class["providers"] if one["name"] == "webhook")
    own["settings"] = {"payload": "none"}
    assert results(rig.rent(pool="own")) == ["launched"]
    assert not rig.tokens() and not [line for line in rig.writes() if "keys" in line]
    assert not rig.claim()["mesh_key_id"] and not rig.claim()["token_id"]
