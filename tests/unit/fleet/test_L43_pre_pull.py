# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-43: a new node pulls the images of prePull before pods come, and no node fails by it."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import Document
from ansible_collections.tgp.gpu.plugins.module_utils.documents.parse import parse
from ansible_collections.tgp.gpu.plugins.module_utils.kube.pods import is_trial, trial_pod
from ansible_collections.tgp.gpu.plugins.module_utils.model import ContainerState, Phase, PrePull, Taint, TrialPod
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.record import follow, from_record, remembered, to_record
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning import pre_pull, registration
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.acceptance import fingerprint
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.pre_pull import PullOutcome, PullVerdict
from hypothesis import given
from hypothesis import strategies as st

from sandbox import pre_pull as kubelet_words

from .build import CAPABILITIES, at, claim, node, pool
from .build import pod as a_workload

PULL = PrePull(("llm:1", "tools:2"))
MINE = "f" * 16
CREATING = ContainerState("image-0", reason="ContainerCreating")
THERE = ContainerState("image-0", 128, "StartError", started=at("00:00"), pulled=True)
FAILED = ContainerState("image-0", reason="ImagePullBackOff", message="not found")


def a_pod(*containers: ContainerState, phase: str = "Pending", **facts: t.Any) -> TrialPod:
    named = tuple(dataclasses.replace(one, name=f"image-{number}") for number, one in enumerate(containers))
    return dataclasses.replace(TrialPod("p", "u", "c", MINE, at("12:00"), phase, containers=named), **facts)


def verdict(pod: TrialPod | None, now: str = "12:01", until: str = "12:30", pull: PrePull = PULL) -> PullVerdict:
    return pre_pull.assess(pod, MINE, pull, at(now), at(until))


@pytest.mark.parametrize(
    ("pod", "expected", "pulled"),
    [
        (None, PullOutcome.START, 0),
        (a_pod(), PullOutcome.WAIT, 0),
        (a_pod(CREATING, CREATING), PullOutcome.WAIT, 0),
        (a_pod(THERE, CREATING), PullOutcome.WAIT, 1),
        (a_pod(FAILED, CREATING), PullOutcome.WAIT, 0),
        (a_pod(THERE, THERE, phase="Failed"), PullOutcome.DONE, 2),
        (a_pod(THERE, FAILED), PullOutcome.DONE, 1),
        (a_pod(FAILED, FAILED), PullOutcome.DONE, 0),
        (a_pod(phase="Failed", reason="Evicted"), PullOutcome.DONE, 0),
        (a_pod(THERE, CREATING, phase="Failed", reason="DeadlineExceeded"), PullOutcome.DONE, 1),
        (a_pod(THERE, THERE, phase="Failed", deleting=True), PullOutcome.WAIT, 0),
        (a_pod(THERE, THERE, phase="Failed", fingerprint="of an earlier launch"), PullOutcome.AGAIN, 0),
    ],
)
def test_L43_what_a_pod_says(pod: TrialPod | None, expected: PullOutcome, pulled: int) -> None:
    found = verdict(pod)
    assert (found.outcome, found.pulled) == (expected, pulled)
    if expected is PullOutcome.DONE:
        assert len(found.lacks) == 2 - pulled


@pytest.mark.parametrize(
    ("state", "there"),
    [
        (ContainerState("x", reason="ContainerCreating"), False),
        (ContainerState("x", reason="ErrImagePull", message="no such host"), False),
        (ContainerState("x", reason="InvalidImageName"), False),
        (ContainerState("x", reason="ErrImageNeverPull"), False),
        (ContainerState("x", 137, "ContainerStatusUnknown"), False),
        (ContainerState("x", reason="ContainerCreating", pulled=True), True),
        (ContainerState("x", reason="CreateContainerError", message="no users found"), True),
        (ContainerState("x", reason="CreateContainerConfigError"), True),
        (ContainerState("x", reason="RunContainerError", message="no such file"), True),
        (ContainerState("x", 128, "StartError"), True),
        (ContainerState("x", 127, "ContainerCannotRun"), True),
        (ContainerState("x", 0, "Completed", started=at("12:00")), True),
        (ContainerState("x", started=at("12:00")), True),
    ],
)
def test_L43_an_image_is_there_once_the_kubelet_makes_its_container(state: ContainerState, there: bool) -> None:
    assert verdict(a_pod(state), pull=PrePull(("llm:1",))).pulled == int(there)


def test_L43_what_is_missing_is_named_with_the_words_of_the_kubelet() -> None:
    assert verdict(a_pod(THERE, FAILED)).lacks == ("tools:2 (ImagePullBackOff: not found)",)
    assert verdict(a_pod(THERE, CREATING, phase="Failed", reason="Evicted", message="low on disk")).lacks == (
        "tools:2 (Evicted: low on disk)",
    )
    assert verdict(a_pod(THERE, CREATING), now="12:30").lacks == ("tools:2 (the pull has not ended)",)
    assert verdict(None, now="12:30").lacks == ("llm:1 (there was no time to pull it)", "tools:2 (there was no time to pull it)")


@pytest.mark.parametrize(
    ("pod", "now", "expected"),
    [
        (None, "12:29:59", PullOutcome.START),
        (None, "12:30", PullOutcome.DONE),
        (a_pod(CREATING, CREATING), "12:10:59", PullOutcome.WAIT),
        (a_pod(CREATING, CREATING), "12:11", PullOutcome.DONE),
        (a_pod(CREATING, CREATING, created=at("12:25")), "12:29:59", PullOutcome.WAIT),
        (a_pod(CREATING, CREATING, created=at("12:25")), "12:30", PullOutcome.DONE),
        (a_pod(deleting=True), "12:30", PullOutcome.DONE),
        (a_pod(fingerprint="of others"), "12:30", PullOutcome.DONE),
    ],
)
def test_L43_E_the_node_is_taken_without_them_at_its_time(pod: TrialPod | None, now: str, expected: PullOutcome) -> None:
    """600 s for the images and 60 s for the kubelet after the pod was made, and at the deadline of the join whatever is missing."""
    assert verdict(pod, now).outcome is expected


@given(
    st.lists(st.sampled_from([CREATING, THERE, FAILED, ContainerState("x")]), max_size=4),
    st.sampled_from(["Pending", "Running", "Failed", "Succeeded", "Unknown"]),
    st.sampled_from(["", "Evicted", "DeadlineExceeded", "Unschedulable"]),
    st.booleans(),
    st.sampled_from([MINE, "other"]),
    st.integers(0, 4000),
)
def test_L43_nothing_outlasts_the_deadline_and_every_image_is_counted(
    states: list[ContainerState], phase: str, reason: str, deleting: bool, mark: str, passed: int
) -> None:
    pod = a_pod(*states, phase=phase, reason=reason, deleting=deleting, fingerprint=mark)
    found = pre_pull.assess(pod, MINE, PULL, at("12:00") + timedelta(seconds=passed), at("12:30"))
    assert found.pulled + len(found.lacks) == len(PULL.images)
    if passed >= 1800:
        assert found.outcome is PullOutcome.DONE


# ---- what the pod asks of the node


def test_L43_the_pod_names_each_image_and_starts_none_of_their_programs() -> None:
    mine, pull = claim(phase=Phase.JOINING), PrePull(("llm:1", "tools:2"), ("registry",), 120)
    body = pre_pull.pod(mine, node(), pull, "tgp-system", "a1b2c3d4")
    spec, meta = body["spec"], body["metadata"]
    assert meta["name"] == "tgp-a1b2c3d4-p-00001-pre-pull"
    assert meta["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": node().name, "uid": node().uid}]
    assert meta["labels"]["tgp.io/pre-pull"] == mine.name and "tgp.io/acceptance" not in meta["labels"]
    assert [one["image"] for one in spec["containers"]] == ["llm:1", "tools:2"]
    assert {(*one["command"], one["imagePullPolicy"]) for one in spec["containers"]} == {("/tgp.io/no-program", "IfNotPresent")}
    assert all("resources" not in one for one in spec["containers"])
    assert (spec["restartPolicy"], spec["activeDeadlineSeconds"]) == ("Never", 120)
    assert spec["tolerations"] == [{"operator": "Exists"}] and spec["automountServiceAccountToken"] is False
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node().name]}]}]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert "imagePullSecrets" not in pre_pull.pod(mine, node(), PULL, "tgp-system", "a1b2c3d4")["spec"]


def test_L43_the_pod_is_ours_and_is_read_as_the_kubelet_of_the_sandbox_writes_it() -> None:
    mine = claim(phase=Phase.JOINING)
    body = pre_pull.pod(mine, node(), PrePull(("a/there:1", "a/missing:1", "a/broken:1")), "tgp-system", "a1b2c3d4")
    body["metadata"] |= {"uid": "u", "creationTimestamp": "2026-09-01T12:00:00Z"}
    found = []
    for _seconds, status in kubelet_words.course(body, {}, 0.0, first=True):
        body["status"] = {**body.get("status", {}), **status(body, at("12:01"))}
        pod = trial_pod(body)
        said = pre_pull.assess(pod, pod.fingerprint, PrePull(("a/there:1", "a/missing:1", "a/broken:1")), at("12:02"), at("12:30"))
        found.append((said.outcome, said.pulled))
    assert found == [(PullOutcome.WAIT, 0), *[(PullOutcome.DONE, 2)] * 3]
    assert pod.claim == mine.name


@pytest.mark.parametrize(
    ("namespace", "cluster", "ours"),
    [("tgp-system", "a1b2c3d4", True), ("default", "a1b2c3d4", False), ("tgp-system", "other", False)],
)
def test_L43_the_pod_does_not_count_as_work(namespace: str, cluster: str, ours: bool) -> None:
    labels = pre_pull.pod(claim(), node(), PULL, "tgp-system", "a1b2c3d4")["metadata"]["labels"]
    assert is_trial(dataclasses.replace(a_workload("x"), namespace=namespace, labels=labels), cluster) is ours


def test_L43_a_pod_of_another_launch_or_of_other_images_is_told_apart() -> None:
    mine = claim(phase=Phase.JOINING)
    later = dataclasses.replace(mine, launch_started=at("11:30"))
    marks = {fingerprint(one, pull) for one in (mine, later) for pull in (PULL, PrePull(("llm:1",)))}
    assert len(marks) == 4


# ---- when it is wanted, and what it adds to the deadline


def test_L43_a_node_in_use_pulls_nothing() -> None:
    asks, mine = pool(pre_pull=PULL), claim(phase=Phase.JOINING)
    assert pre_pull.wanted(mine, asks, node()) is PULL
    assert pre_pull.wanted(mine, pool(), node()) is None
    assert pre_pull.wanted(mine, None, node()) is None
    assert pre_pull.wanted(claim(), asks, node()) is None  # it is complete
    adopted = dataclasses.replace(mine, history=((at("11:20"), "Joining", "adopted: its record was lost"),))
    assert pre_pull.wanted(adopted, asks, node()) is None
    assert pre_pull.wanted(adopted, asks, node(taints=(Taint("tgp.io/initializing", "", "NoSchedule"),))) is PULL


def test_L43_E_the_deadline_of_a_join_is_later_by_the_time_of_the_images() -> None:
    mine, facts = claim(phase=Phase.JOINING), CAPABILITIES["lambda"]
    assert registration.timeout(mine, pool(registration_timeout=600), facts) == 600
    assert registration.timeout(mine, pool(registration_timeout=600, pre_pull=PULL), facts) == 1200
    usual = registration.timeout(mine, pool(), facts)
    assert registration.timeout(mine, pool(pre_pull=PrePull(("llm:1",), timeout=90)), facts) == usual + 90


def test_L43_a_claim_remembers_the_images_and_older_records_have_none() -> None:
    mine = follow(claim(), pool(pre_pull=PrePull(("llm:1",), ("registry",), 90)), None)
    again = from_record(to_record(mine))
    known = remembered(again)
    assert again == mine and known is not None and known.pre_pull == PrePull(("llm:1",), ("registry",), 90)
    old = to_record(mine)
    del old["limits"]["pre_pull"]
    limits = from_record(old).limits
    assert limits is not None and limits.pre_pull is None


# ---- what is refused before anything is rented


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"images": []}, "spec.prePull.images"),
        ({}, "images"),
        ({"images": ["a/Llm"]}, "spec.prePull.images[0]"),
        ({"images": ["llm:1", "llm 2"]}, "spec.prePull.images[1]"),
        ({"images": ["llm:"]}, "is not the name of an image"),
        ({"images": ["llm:1"], "imagePullSecrets": ["Registry"]}, "spec.prePull.imagePullSecrets[0]"),
        ({"images": ["llm:1"], "timeout": "29s"}, "too short to pull an image"),
        ({"images": ["llm:1"], "timeout": "Never"}, "spec.prePull.timeout"),
        ({"images": ["llm:1"], "policy": "Always"}, "policy"),
    ],
)
def test_L43_wrong_images_are_refused(given_: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        documents(given_)
    assert words in str(refused.value)


def test_L43_each_image_is_pulled_once() -> None:
    digest = f"ghcr.io/a/b-c@sha256:{'0' * 64}"
    images = ["llm", "localhost:5000/x/y_z:v1.2-3", digest, "llm"]
    assert documents({"images": images, "timeout": "30s"}) == PrePull(("llm", "localhost:5000/x/y_z:v1.2-3", digest), (), 30)


def documents(pre: dict[str, t.Any]) -> PrePull | None:
    contents: tuple[tuple[str, str, dict[str, t.Any]], ...] = (
        ("GPUNodeClass", "c", {"providers": [{"name": "lambda"}]}),
        ("GPUNodePool", "p", {"nodeClassRef": {"name": "c"}, "maxHourlyPrice": "2", "prePull": pre}),
    )
    texts = [
        Document(name, {"apiVersion": "tgp.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
        for kind, name, spec in contents
    ]
    return parse(texts)[0].pools[0].pre_pull
