# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""New nodes that have to pass an acceptance test before pods come (L-35)."""

from __future__ import annotations

import contextlib
import json
import typing as t

import httpx
import pytest

from .rig import Cut, Killed, Rig, moment
from .test_autoscale import ask, scale, state
from .test_loop import Looping

PODS = "/api/v1/namespaces/tgp-system/pods"


def with_test(rig: Rig, **fields: t.Any) -> None:
    """With more time than a host under load takes for a test; what is about the time gives its own."""
    rig.training["acceptance"] = {"test": "vectoradd", "timeout": "30m", **fields}


def pods(rig: Rig) -> list[dict[str, t.Any]]:
    return [one for one in rig.kube("GET", PODS)["items"]]


def taints(rig: Rig) -> list[str]:
    return [taint["key"] for node in rig.nodes().values() for taint in node["spec"].get("taints") or ()]


def openings(rig: Rig) -> list[str]:
    """From now on, the Nodes that a write lets pods on."""
    found: list[str] = []

    def watch(request: httpx.Request) -> None:
        if request.method == "PATCH" and request.url.path.startswith("/api/v1/nodes/"):
            spec = json.loads(request.content).get("spec") or {}
            if "taints" in spec and "tgp.io/initializing" not in [taint["key"] for taint in spec["taints"] or ()]:
                found.append(request.url.path.rpartition("/")[2])

    rig.watcher = watch
    return found


def test_L35_a_node_that_passes_takes_pods_and_its_claim_says_when(rig: Rig) -> None:
    with_test(rig)
    calls: list[str] = []
    rig.watcher = lambda request: (
        calls.append(f"{request.method} {request.url.path}") if request.url.path.startswith(PODS) else None
    )
    rig.rent()
    (row,) = rig.join()["machines"]
    assert row["result"] == "ready", row
    claim = rig.claim()
    assert claim["accepted"] and claim["phase"] == "Ready"
    (node,) = rig.nodes().values()
    assert node["metadata"]["annotations"]["tgp.io/accepted-at"] == claim["accepted"]
    assert "tgp.io/initializing" not in taints(rig)
    assert pods(rig) == []
    writes = [call for call in calls if not call.startswith("GET")]
    assert writes == [f"POST {PODS}", f"DELETE {PODS}/{claim['name']}-acceptance"]
    lines = [one for one in rig.events() if one["kind"] == "progress"]
    assert [one["event"] for one in lines if one["event"] in ("testing", "accepted", "joined")] == ["testing", "accepted", "joined"]


def test_L35_a_node_that_fails_never_takes_pods_and_its_host_is_not_rented_again(build: t.Callable[..., Rig]) -> None:
    """The whole way: the test fails, the evidence, the end of the machine, what is remembered, and the next machine is of another host."""
    rig = build()
    with_test(rig)
    rig.behave("bad_gpu", times=1)
    opened = openings(rig)
    rented = rig.rent()
    (line,) = [one for one in rented["plan"]["plan"] if one["action"] == "launch"]
    assert line["detail"].endswith("acceptance: vectoradd, up to 1800 s")
    offer = rig.claim()["offer"]
    done = rig.join()
    (row,) = done["machines"]
    assert row["result"] == "failed" and done["outcome"] == "partial", row
    words = "acceptance test vectoradd failed: container gpu-0 ended with exit status 1: Failed to allocate device vector A"
    assert words in row["message"] and row["message"].endswith("(terminated)")
    assert opened == [] and rig.left() == {}
    (line,) = rig.ledger()
    assert (line["reason"], line["joined"]) == ("FailedJoin", False)
    rig.check_bill()
    (kept,) = rig.run("info")["blocked"]
    assert (kept["reason"], kept["claim"]) == ("acceptance", row["name"]) and words in kept["why"] and kept["since"] < kept["until"]
    (file,) = (rig.folder / "state" / "evidence").glob("*.json")
    found = json.loads(file.read_text())
    assert found["diagnosis"]["code"] == "acceptance_failed"
    assert found["findings"]["test_log"][-1].startswith("Failed to allocate")
    rig.rent()
    assert rig.claim()["offer"]["instance_type"] != offer["instance_type"]
    assert rig.join()["machines"][0]["result"] == "ready"
    assert opened == list(rig.claims())


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ({"kind": "image_missing"}, "cannot be pulled (ImagePullBackOff"),
        ({"kind": "hanging_gpu"}, "ran for"),
    ],
)
def test_L35_what_gives_no_result_lasts_until_the_deadline_and_a_gpu_that_hangs_does_not(
    rig: Rig, behaviour: dict[str, t.Any], words: str
) -> None:
    with_test(rig, timeout="60s")
    rig.training["registrationTimeout"] = "4m"
    rig.behave(**behaviour)
    rig.rent()
    (row,) = rig.join()["machines"]
    assert row["result"] == "failed" and words in row["message"], row
    hangs = behaviour["kind"] == "hanging_gpu"
    (file,) = (rig.folder / "state" / "evidence").glob("*.json")
    assert json.loads(file.read_text())["diagnosis"]["code"] == ("acceptance_failed" if hangs else "acceptance_unknown")
    lived = (moment(rig.ledger()[0]["end"]) - moment(rig.ledger()[0]["start"])).total_seconds()
    assert lived < 240 if hangs else 300 <= lived < 420
    assert rig.run("info")["blocked"][0]["reason"] == ("acceptance" if hangs else "join")
    assert rig.left() == {}


def test_L35_a_test_that_was_evicted_is_tried_again_in_the_same_run(rig: Rig) -> None:
    with_test(rig)
    rig.behave("test_evicted")
    rig.rent()
    (row,) = rig.join()["machines"]
    assert row["result"] == "ready", row
    told = [one["event"] for one in rig.events() if one["kind"] == "progress"]
    assert [one for one in told if one in ("testing", "untested", "accepted")] == ["testing", "untested", "testing", "accepted"]


def claim_written(phase: str) -> t.Callable[[httpx.Request], bool]:
    return lambda request: "/configmaps/tgp-claim-" in request.url.path and f'\\"phase\\":\\"{phase}'.encode() in _dense(request)


def _dense(request: httpx.Request) -> bytes:
    return request.content.replace(b" ", b"")


@pytest.mark.parametrize(
    ("behaviour", "write"),
    [
        ("", lambda request: (request.method, request.url.path) == ("POST", PODS)),
        ("", lambda request: b"tgp.io/accepted-at" in request.content),
        ("", claim_written("Ready")),
        ("bad_gpu", lambda request: request.url.path.endswith("/tgp-state-blocklist") or b"tgp-state-blocklist" in request.content),
        ("bad_gpu", claim_written("Failed")),
    ],
    ids=["pod", "node", "claim", "host", "failed"],
)
def test_L35_a_run_that_is_killed_after_any_of_its_writes_finds_the_test_again(
    rig: Rig, behaviour: str, write: t.Callable[[httpx.Request], bool]
) -> None:
    """kill -9 after each write that belongs to a test; before it is after the one before. The next runs end where one that was not killed
    ends: one pod, one result, one host remembered."""
    with_test(rig)
    if behaviour:
        rig.behave(behaviour, times=1)
    rig.rent()
    (name,) = rig.claims()
    made: list[str] = []

    def watch(request: httpx.Request) -> None:
        if (request.method, request.url.path) == ("POST", PODS):
            made.append(name)
        if request.method != "GET" and not struck and write(request):
            struck.append(Cut(1, after=True))
            rig.cut = struck[0]

    struck: list[Cut] = []
    rig.watcher = watch
    with contextlib.suppress(Killed):
        rig.join()
    assert struck
    rig.cut = None
    for _again in range(2):
        rig.reap()
        rig.join()
        rig.advance(61)
    rig.until(lambda: not pods(rig), "the pod goes, by us or with its Node")
    assert made == [name]
    rig.check_bill(late=2)
    if behaviour:
        assert rig.left() == {} and rig.ledger()[0]["reason"] in ("FailedJoin", "LaunchFailed")
        assert [one["claim"] for one in rig.run("info")["blocked"]] == [name]
    else:
        assert rig.claim()["accepted"] and rig.claim()["phase"] == "Ready"
        assert "tgp.io/initializing" not in taints(rig)


def test_L35_O17_the_pod_of_a_killed_run_goes_in_the_second_run(rig: Rig) -> None:
    with_test(rig)
    rig.rent()

    def stop(request: httpx.Request) -> None:
        if request.method == "DELETE" and request.url.path.startswith(PODS):
            raise Killed

    rig.watcher = stop
    with pytest.raises(Killed):
        rig.join()
    rig.watcher = lambda _request: None
    assert rig.claim()["phase"] == "Ready" and len(pods(rig)) == 1
    stranger = pods(rig)[0]
    stranger["metadata"] = {"name": "a-namesake", "labels": {"tgp.io/acceptance": rig.claim()["name"]}}
    rig.kube("POST", PODS, stranger)
    for expected in (2, 1):
        rig.reap()
        assert len(pods(rig)) == expected
        rig.advance(61)
    assert [one["metadata"]["name"] for one in pods(rig)] == ["a-namesake"]


def test_L35_without_a_test_no_pod_is_asked_for(rig: Rig) -> None:
    calls: list[str] = []
    rig.watcher = lambda request: calls.append(request.url.path)
    rig.rent()
    assert rig.join()["machines"][0]["result"] == "ready"
    assert [path for path in calls if path.startswith(PODS)] == []
    assert rig.claim()["accepted"] is None


def test_L35_check_mode_names_the_test_and_makes_no_pod(rig: Rig) -> None:
    """Of a machine that is yet to be rented, and of one whose node only lacks the test."""
    with_test(rig)
    ask(rig, "train")
    before = rig.writes()
    for plan in (rig.plan("provision", check=True, pools=["training"], nodes=1), rig.run("loop", check=True)):
        (line,) = [one for one in plan["plan"] if one["action"] == "launch"]
        assert line["detail"].endswith("acceptance: vectoradd, up to 1800 s")
    assert rig.writes() == before

    rig.rent()
    rig.let_in(rig.claim()["token_id"])
    rig.until(lambda: any(one["status"].get("allocatable", {}).get("nvidia.com/gpu") for one in rig.nodes().values()), "GPUs")
    before = rig.writes()
    rig.run("join", check=True)
    assert rig.writes() == before and pods(rig) == [] and "tgp.io/initializing" in taints(rig)


@pytest.mark.parametrize("playbook", ["autoscale", "loop"])
def test_L35_autoscale_and_its_loop_do_what_provision_does(rig: Rig, playbook: str) -> None:
    """A pod waits, the first machine fails its test, the second one passes, and only then the pod comes."""
    with_test(rig)
    rig.behave("bad_gpu", times=1)
    opened = openings(rig)
    ask(rig, "train", tolerations=[{"key": key, "operator": "Exists"} for key in ("gpu-node", "tgp.io/ephemeral")])

    def looked() -> bool:
        scale(rig)
        rig.advance(10)
        return state(rig, "train")[0] == "Running"

    if playbook == "autoscale":
        rig.until(looked, "the pod runs")
    else:
        Looping(rig).while_it_runs(lambda: rig.until(lambda: state(rig, "train")[0] == "Running", "the pod runs"))
    assert rig.creates() == 2
    (line,), claim = rig.ledger(), rig.claim()
    assert (line["reason"], line["joined"]) == ("FailedJoin", False) and claim["accepted"]
    assert opened == [claim["name"]]
    (kept,) = rig.run("info")["blocked"]
    assert (kept["reason"], kept["claim"]) == ("acceptance", line["name"])
    rig.until(lambda: pods(rig) == [], "its pod goes")
    rig.check_bill()
