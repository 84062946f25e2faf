# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-35: a node whose pool asks for a test takes pods only after it has passed, and only a program that fails by itself fails a node."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import AcceptanceTest, ContainerState, Phase, Taint, TrialPod
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.record import follow, from_record, remembered, to_record
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers import launch_backoff
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning import acceptance, registration
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.acceptance import TrialOutcome, assess
from ansible_collections.tgp.gpu.plugins.module_utils.units.values import print_time
from hypothesis import given
from hypothesis import strategies as st

from .build import CAPABILITIES, at, claim, node, offer, pool

TEST = AcceptanceTest()
MINE = "f" * 16


def container(code: int | None = None, reason: str = "", *, ran: float | None = None, message: str = "") -> ContainerState:
    """``ran``: it began at 12:00 and ended so many seconds later."""
    end = None if ran is None else at("12:00") + timedelta(seconds=ran)
    return ContainerState("gpu-0", code, reason, message, None if ran is None else at("12:00"), end)


def a_pod(phase: str, *containers: ContainerState, **facts: t.Any) -> TrialPod:
    base = TrialPod("p", "u", "c", MINE, at("12:00"), phase, containers=containers)
    return dataclasses.replace(base, **facts)


def outcome(pod: TrialPod | None, now: str = "12:01", test: AcceptanceTest = TEST) -> TrialOutcome:
    return assess(pod, MINE, test, at(now)).outcome


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (None, TrialOutcome.START),
        (a_pod("Succeeded"), TrialOutcome.PASSED),
        (a_pod("Succeeded", deleting=True), TrialOutcome.WAIT),
        (a_pod("Succeeded", fingerprint="of an earlier launch"), TrialOutcome.AGAIN),
        (a_pod("Failed", fingerprint="of an earlier launch"), TrialOutcome.AGAIN),
        (a_pod("Pending"), TrialOutcome.WAIT),
        (a_pod("Pending", reason="Unschedulable", message="Insufficient nvidia.com/gpu"), TrialOutcome.WAIT),
        (a_pod("Running", container()), TrialOutcome.WAIT),
        (a_pod("Failed", container(1, "Error", ran=4)), TrialOutcome.FAILED),
        (a_pod("Failed", container(139, "Error", ran=4)), TrialOutcome.FAILED),
        (a_pod("Failed", container(0, "Completed", ran=4), container(2, "Error", ran=4)), TrialOutcome.FAILED),
        (a_pod("Failed", container(126, "Error", ran=0)), TrialOutcome.AGAIN),
        (a_pod("Failed", container(127, "Error", ran=0)), TrialOutcome.AGAIN),
        (a_pod("Failed", container(137, "Error", ran=4)), TrialOutcome.AGAIN),
        (a_pod("Failed", container(143, "Error", ran=4)), TrialOutcome.AGAIN),
        (a_pod("Failed", container(128, "StartError", ran=0)), TrialOutcome.AGAIN),
        (a_pod("Failed", container(137, "OOMKilled", ran=4)), TrialOutcome.AGAIN),
        (a_pod("Failed", container(1, "Error", ran=4), reason="Evicted"), TrialOutcome.AGAIN),
        (a_pod("Failed", reason="UnexpectedAdmissionError"), TrialOutcome.AGAIN),
        (a_pod("Failed", reason="OutOfnvidia.com/gpu"), TrialOutcome.AGAIN),
        (a_pod("Failed", reason="DeadlineExceeded"), TrialOutcome.AGAIN),
        (a_pod("Failed"), TrialOutcome.AGAIN),
    ],
)
def test_L35_only_a_program_that_ends_by_itself_with_an_error_fails_a_node(pod: TrialPod | None, expected: TrialOutcome) -> None:
    assert outcome(pod) is expected


@pytest.mark.parametrize(("ran", "expected"), [(239.0, TrialOutcome.AGAIN), (240.0, TrialOutcome.FAILED)])
def test_L35_a_container_that_ran_for_four_fifths_of_the_time_hangs(ran: float, expected: TrialOutcome) -> None:
    assert outcome(a_pod("Failed", container(137, "Error", ran=ran), reason="DeadlineExceeded"), "12:05") is expected


@pytest.mark.parametrize(("now", "expected"), [("12:05:59", TrialOutcome.WAIT), ("12:06", TrialOutcome.AGAIN)])
def test_L35_a_pod_that_nobody_ends_is_given_up_a_minute_after_its_time(now: str, expected: TrialOutcome) -> None:
    assert outcome(a_pod("Pending", reason="Unschedulable"), now) is expected


def test_L35_a_problem_of_the_image_is_told_apart_from_a_gpu() -> None:
    pod = a_pod("Pending", container(None, "ImagePullBackOff", message="not found"))
    assert (
        assess(pod, MINE, TEST, at("12:01")).why
        == f"the image {acceptance.VECTORADD} cannot be pulled (ImagePullBackOff: not found)"
    )
    late = assess(pod, MINE, TEST, at("12:06"))
    assert late.outcome is TrialOutcome.AGAIN and "cannot be pulled" in late.why
    assert (
        "not scheduled: 1 Insufficient"
        in assess(a_pod("Pending", reason="Unschedulable", message="1 Insufficient nvidia.com/gpu"), MINE, TEST, at("12:01")).why
    )


@given(
    st.sampled_from(["Pending", "Running", "Failed", "Unknown"]),
    st.lists(st.builds(container, st.none() | st.integers(0, 255), st.sampled_from(["", "Error", "StartError", "OOMKilled"]))),
    st.sampled_from(["", "Evicted", "DeadlineExceeded", "NodeShutdown"]),
    st.integers(0, 10_000),
)
def test_L35_nothing_but_success_passes_and_nothing_fails_without_an_error_of_its_own(
    phase: str, containers: list[ContainerState], reason: str, seconds: int
) -> None:
    verdict = assess(a_pod(phase, *containers, reason=reason), MINE, TEST, at("12:00") + timedelta(seconds=seconds))
    assert verdict.outcome is not TrialOutcome.PASSED
    if verdict.outcome is TrialOutcome.FAILED:
        assert phase == "Failed" and reason == "" and any(one.reason == "Error" and one.exit_code for one in containers)


# ---- which pod


def amounts(body: dict[str, t.Any]) -> list[dict[str, str]]:
    return [one["resources"]["limits"] for one in body["spec"]["containers"]]


@pytest.mark.parametrize(
    ("test", "facts", "expected"),
    [
        (TEST, {}, [{"nvidia.com/gpu": "1"}] * 4),
        (AcceptanceTest(gpus="one"), {}, [{"nvidia.com/gpu": "1"}]),
        (AcceptanceTest(image="own"), {}, [{"nvidia.com/gpu": "4"}]),
        (TEST, {"slices": 2, "slices_renamed": True}, [{"nvidia.com/gpu.shared": "1"}] * 8),
        (AcceptanceTest(image="own"), {"slices": 2}, [{"nvidia.com/gpu": "1"}] * 8),
    ],
)
def test_L35_each_gpu_and_each_slice_gets_a_container_and_an_own_image_all_gpus(
    test: AcceptanceTest, facts: dict[str, t.Any], expected: list[dict[str, str]]
) -> None:
    described = pool(acceptance=test, **facts)
    number = 4 * described.slices
    resource = "nvidia.com/gpu.shared" if described.slices_renamed else "nvidia.com/gpu"
    mine = claim(phase=Phase.JOINING, offer=offer(gpu_count=4), expected_gpus=number)
    body = acceptance.pod(mine, node(allocatable={resource: number}), described, test, "tgp-system", "a1b2c3d4")
    assert amounts(body) == expected


def test_L35_the_pod_waits_for_the_scheduler_tolerates_all_and_goes_with_its_node() -> None:
    test = AcceptanceTest("own", ("/test", "--all"), "nvidia", 120)
    body = acceptance.pod(claim(phase=Phase.JOINING), node(), pool(acceptance=test), test, "tgp-system", "a1b2c3d4")
    spec, meta = body["spec"], body["metadata"]
    assert meta["name"] == "tgp-a1b2c3d4-p-00001-acceptance"
    assert meta["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": node().name, "uid": node().uid}]
    assert (spec["restartPolicy"], spec["activeDeadlineSeconds"], spec["runtimeClassName"]) == ("Never", 120, "nvidia")
    assert spec["automountServiceAccountToken"] is False and "nodeName" not in spec
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["containers"][0]["command"] == ["/test", "--all"]


def test_L35_a_pod_of_another_launch_or_test_is_told_apart() -> None:
    mine = claim(phase=Phase.JOINING)
    later = dataclasses.replace(mine, launch_started=at("11:30"))
    marks = {acceptance.fingerprint(one, test) for one in (mine, later) for test in (TEST, AcceptanceTest(timeout=301))}
    assert len(marks) == 4


# ---- when it is needed, and what it adds to the deadline


def test_L35_claim_or_node_say_that_it_has_passed_and_a_node_of_an_earlier_launch_does_not() -> None:
    mine, asks = claim(phase=Phase.JOINING), pool(acceptance=TEST)
    assert registration.required_test(mine, asks, node()) is TEST
    assert registration.required_test(mine, pool(), node()) is None
    assert registration.required_test(dataclasses.replace(mine, accepted=at("11:12")), asks, node()) is None
    for moment, needed in (("11:00", None), ("10:59:59", TEST)):
        marked = node(annotations={"tgp.io/accepted-at": print_time(at(moment))})
        assert registration.required_test(mine, asks, marked) is needed
    assert registration.required_test(mine, asks, node(annotations={"tgp.io/accepted-at": "soon"})) is TEST


def test_L35_a_node_in_use_is_not_tested() -> None:
    asks, mine = pool(acceptance=TEST), claim(phase=Phase.JOINING)
    assert registration.not_initialized(mine, node(), asks) == ("acceptance test vectoradd",)
    assert registration.not_initialized(mine, node(), asks, marking=True) == ()
    assert registration.not_initialized(claim(), node(), asks) == ()  # it was complete before its pool asked
    adopted = dataclasses.replace(mine, history=((at("11:20"), "Joining", "adopted: its record was lost"),))
    assert registration.not_initialized(adopted, node(), asks) == ()
    closed = node(taints=(Taint("tgp.io/initializing", "", "NoSchedule"),))
    assert registration.required_test(adopted, asks, closed) is TEST


def test_L35_vectoradd_says_nothing_of_gpus_of_others() -> None:
    amd = claim(phase=Phase.JOINING, offer=offer(model="MI300X"))
    assert registration.required_test(amd, pool(acceptance=TEST), node()) is None
    own = AcceptanceTest(image="own")
    assert registration.required_test(amd, pool(acceptance=own), node()) is own


def test_L35_the_deadline_of_a_join_is_later_by_one_try() -> None:
    mine, facts = claim(phase=Phase.JOINING), CAPABILITIES["lambda"]
    assert registration.timeout(mine, pool(registration_timeout=600), facts) == 600
    assert registration.timeout(mine, pool(registration_timeout=600, acceptance=TEST), facts) == 900


def test_L35_a_claim_remembers_test_and_result_and_older_records_have_neither() -> None:
    test = AcceptanceTest("own", ("/test",), "nvidia", 120, "one")
    mine = dataclasses.replace(follow(claim(), pool(acceptance=test), None), accepted=at("11:12"))
    again = from_record(to_record(mine))
    assert again == mine
    pool_as_known = remembered(again)
    assert pool_as_known is not None and pool_as_known.acceptance == test
    old = to_record(mine)
    del old["accepted"], old["limits"]["acceptance"]
    assert from_record(old).accepted is None


# ---- hosts that are remembered

KEY = "host:vast:h-9"


def hours(state: launch_backoff.State, now: datetime) -> float:
    return (launch_backoff.active(state, now)[KEY] - now).total_seconds() / 3600


def test_L35_a_host_is_left_alone_for_an_hour_doubling_to_a_day_and_then_forgotten() -> None:
    hosted = offer(cloud="vast", host_id="h-9")
    assert KEY in launch_backoff.keys_after(hosted, "acceptance")
    state: launch_backoff.State = {}
    now = at("12:00")
    for number, expected in enumerate((1, 2, 4, 8, 16, 24, 24)):
        state = launch_backoff.after_failure(state, KEY, "acceptance", now, why="Test FAILED", claim=f"m-{number}")
        assert hours(state, now) == expected
        now += timedelta(hours=expected)
    assert not launch_backoff.active(state, now)
    assert launch_backoff.after_failure(state, KEY, "acceptance", now + timedelta(hours=3), claim="x")["history"][KEY]["times"] == 1
    assert launch_backoff.after_failure(state, KEY, "acceptance", now + timedelta(hours=2), claim="x")["history"][KEY]["times"] == 8


def test_L35_a_machine_counts_once_and_its_reason_is_kept() -> None:
    state = launch_backoff.after_failure({}, KEY, "acceptance", at("12:00"), why="exit status 1: Test FAILED", claim="m-1")
    assert launch_backoff.after_failure(state, KEY, "acceptance", at("12:10"), why="again", claim="m-1") == state
    assert launch_backoff.reasons(state, at("12:10")) == [
        {
            "key": KEY,
            "until": print_time(at("13:00")),
            "since": print_time(at("12:00")),
            "reason": "acceptance",
            "why": "exit status 1: Test FAILED",
            "claim": "m-1",
        }
    ]
    assert launch_backoff.reasons(state, at("13:00")) == []


def test_L35_the_offer_of_a_provider_that_names_no_hosts_is_left_alone_for_an_hour_each_time() -> None:
    (key,) = launch_backoff.keys_after(offer(), "acceptance")
    state: launch_backoff.State = {}
    for number, moment in enumerate(("12:00", "13:00", "14:00")):
        state = launch_backoff.after_failure(state, key, "acceptance", at(moment), claim=f"m-{number}")
        assert launch_backoff.active(state, at(moment))[key] == at(moment) + timedelta(hours=1)
