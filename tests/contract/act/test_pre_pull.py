# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""New nodes that pull images before pods come (L-43)."""

from __future__ import annotations

import contextlib
import json
import typing as t

import httpx
import pytest

from .rig import Cut, Killed, Rig, moment
from .test_acceptance import PODS, claim_written, openings, pods, taints, with_test
from .test_autoscale import ask, scale, state
from .test_loop import Looping

IMAGES = ["registry.example/llm:1", "registry.example/tools:2"]


def with_images(rig: Rig, *images: str, **fields: t.Any) -> None:
    """With more time than a host under load takes; what is about the time gives its own."""
    rig.training["prePull"] = {"images": list(images or IMAGES), "timeout": "30m", **fields}


def told(rig: Rig, *events: str) -> list[str]:
    return [one["event"] for one in rig.events() if one["kind"] == "progress" and one["event"] in events]


def test_L43_a_node_takes_pods_once_its_images_are_there_and_the_pod_goes(rig: Rig) -> None:
    with_images(rig, imagePullSecrets=["registry"])
    calls: list[str] = []
    made: list[dict[str, t.Any]] = []

    def watch(request: httpx.Request) -> None:
        if request.url.path.startswith(PODS):
            calls.append(f"{request.method} {request.url.path}")
            if request.method == "POST":
                assert "tgp.io/initializing" in taints(rig)
                made.append(json.loads(request.content))
        assert "/secrets/registry" not in request.url.path

    rig.watcher = watch
    rented = rig.rent()
    (line,) = [one for one in rented["plan"]["plan"] if one["action"] == "launch"]
    assert line["detail"].endswith("pulls 2 images first, up to 1800 s")
    done = rig.join()
    (row,) = done["machines"]
    assert row["result"] == "ready" and not rig.warnings, row
    claim = rig.claim()
    assert claim["phase"] == "Ready" and pods(rig) == [] and "tgp.io/initializing" not in taints(rig)
    writes = [call for call in calls if not call.startswith("GET")]
    assert writes == [f"POST {PODS}", f"DELETE {PODS}/{claim['name']}-pre-pull"]
    assert [one["image"] for one in made[0]["spec"]["containers"]] == IMAGES
    assert made[0]["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert told(rig, "pulling", "pulled", "joined") == ["pulling", "pulled", "joined"]
    before = rig.writes()
    assert rig.join()["changed"] is False and rig.writes() == before


@pytest.mark.parametrize(
    ("images", "behaviour", "words"),
    [
        (("a/llm:1", "a/missing:1"), {}, "before these images are pulled: a/missing:1 (ErrImagePull: rpc error: code = NotFound"),
        (("a/llm:1",), {"kind": "image_missing"}, "a/llm:1 (ErrImagePull"),
        (("a/llm:1",), {"kind": "test_evicted"}, "a/llm:1 (Evicted: The node was low on resource"),
        (("a/llm:1",), {"kind": "slow_pull", "seconds": 4000}, "a/llm:1 (DeadlineExceeded"),
        (("a/broken:1",), {}, ""),
    ],
    ids=["missing", "unreachable", "evicted", "slow", "broken"],
)
def test_L43_a_good_machine_stays_whatever_becomes_of_its_images(
    rig: Rig, images: tuple[str, ...], behaviour: dict[str, t.Any], words: str
) -> None:
    with_images(rig, *images, timeout="60s" if behaviour.get("kind") == "slow_pull" else "30m")
    if behaviour:
        rig.behave(**behaviour)
    rig.rent()
    done = rig.join()
    (row,) = done["machines"]
    assert row["result"] == "ready", row
    found = [one for one in rig.warnings if "images" in one or "(Err" in one]
    assert len(found) == bool(words) and words in "".join(found), rig.warnings
    assert pods(rig) == [] and rig.claim()["phase"] == "Ready" and rig.ledger() == []


def test_L43_a_pull_takes_no_time_from_the_join(rig: Rig) -> None:
    """The registration timeout is over while the node pulls, and the machine stays."""
    with_images(rig, "a/llm:1", timeout="15m")
    rig.training["registrationTimeout"] = "5m"
    rig.behave("slow_pull", seconds=400)
    rig.rent()
    (row,) = rig.join()["machines"]
    assert row["result"] == "ready", row
    claim = rig.claim()
    assert (moment(claim["initialized"]) - moment(claim["launch_started"])).total_seconds() > 400
    assert not [one for one in rig.warnings if "images" in one]


def test_L43_where_the_pod_is_refused_the_node_is_taken_at_once(rig: Rig) -> None:
    with_images(rig)
    rig.fault("status", "kubernetes", "POST", PODS, status=403, times=None)
    rig.rent()
    (row,) = rig.join()["machines"]
    assert row["result"] == "ready", row
    assert [one for one in rig.warnings if "the images of prePull are not pulled" in one]


def test_L43_images_are_pulled_once_the_test_has_passed_and_a_node_that_fails_pulls_none(build: t.Callable[..., Rig]) -> None:
    rig = build()
    with_images(rig)
    with_test(rig)
    rig.behave("bad_gpu", times=1)
    opened = openings(rig)
    rig.rent()
    assert rig.join()["machines"][0]["result"] == "failed"
    assert told(rig, "testing", "pulling") == ["testing"] and opened == []
    rig.rent()
    assert rig.join()["machines"][0]["result"] == "ready"
    assert told(rig, "testing", "accepted", "pulling", "pulled", "joined")[-5:] == [
        "testing",
        "accepted",
        "pulling",
        "pulled",
        "joined",
    ]
    assert pods(rig) == [] and rig.claim()["accepted"]


@pytest.mark.parametrize(
    "write",
    [
        lambda request: (request.method, request.url.path) == ("POST", PODS),
        lambda request: (
            request.method == "PATCH" and b"tgp.io/initializing" not in request.content and "/nodes/" in request.url.path
        ),
        claim_written("Ready"),
    ],
    ids=["pod", "node", "claim"],
)
def test_L43_a_run_that_is_killed_after_any_of_its_writes_finds_the_pull_again(
    rig: Rig, write: t.Callable[[httpx.Request], bool]
) -> None:
    with_images(rig)
    rig.rent()
    (name,) = rig.claims()
    made: list[str] = []
    struck: list[Cut] = []

    def watch(request: httpx.Request) -> None:
        if (request.method, request.url.path) == ("POST", PODS):
            made.append(name)
        if request.method != "GET" and not struck and write(request):
            struck.append(Cut(1, after=True))
            rig.cut = struck[0]

    rig.watcher = watch
    with contextlib.suppress(Killed):
        rig.join()
    assert struck
    rig.cut = None
    for _again in range(3):
        rig.reap()
        rig.join()
        rig.advance(61)
    rig.until(lambda: not pods(rig), "the pod goes, by us or with its Node")
    assert made == [name] and rig.claim()["phase"] == "Ready" and "tgp.io/initializing" not in taints(rig)
    rig.check_bill(late=2)


def test_L43_O17_the_pod_of_a_killed_run_goes_in_the_second_run_and_holds_no_idle_node(rig: Rig) -> None:
    with_images(rig)
    rig.rent()

    def stop(request: httpx.Request) -> None:
        if request.method == "DELETE" and request.url.path.startswith(PODS):
            raise Killed

    rig.watcher = stop
    with pytest.raises(Killed):
        rig.join()
    rig.watcher = lambda _request: None
    assert rig.claim()["phase"] == "Ready" and len(pods(rig)) == 1
    for expected in (1, 0):
        rig.reap()
        assert len(pods(rig)) == expected
        assert rig.claim()["idle_since"], "the pod is no work"
        rig.advance(61)


def test_L43_without_images_no_pod_is_asked_for(rig: Rig) -> None:
    calls: list[str] = []
    rig.watcher = lambda request: calls.append(request.url.path)
    rig.rent()
    assert rig.join()["machines"][0]["result"] == "ready"
    assert [path for path in calls if path.startswith(PODS)] == []


def test_L43_check_mode_names_the_images_and_makes_no_pod(rig: Rig) -> None:
    with_images(rig, "a/llm:1")
    before = rig.writes()
    plan = rig.plan("provision", check=True, pools=["training"], nodes=1)
    (line,) = [one for one in plan["plan"] if one["action"] == "launch"]
    assert line["detail"].endswith("pulls 1 image first, up to 1800 s") and rig.writes() == before
    rig.rent()
    rig.let_in(rig.claim()["token_id"])
    rig.until(lambda: any(one["status"].get("allocatable", {}).get("nvidia.com/gpu") for one in rig.nodes().values()), "GPUs")
    before = rig.writes()
    rig.run("join", check=True)
    assert rig.writes() == before and pods(rig) == [] and "tgp.io/initializing" in taints(rig)


@pytest.mark.parametrize("playbook", ["autoscale", "loop"])
def test_L43_autoscale_and_its_loop_do_what_provision_does(rig: Rig, playbook: str) -> None:
    with_images(rig)
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
    assert rig.creates() == 1 and opened == [rig.claim()["name"]]
    rig.until(lambda: [one for one in pods(rig) if one["metadata"]["name"].endswith("-pre-pull")] == [], "its pod goes")
