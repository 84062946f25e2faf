# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waiting for many nodes at once (L-11), against the emulator on a real socket: what ends a wait, how soon, and with which words."""

from __future__ import annotations

import base64
import collections
import pathlib
import random
import threading
import time
import typing as t
from datetime import timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import Forbidden, ServerError
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.kube import csr
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth.credentials import connect
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.kube.wait import Evidence, Expected, NodeOutcome, wait_for
from ansible_collections.tgp.gpu.plugins.module_utils.model import Node
from ansible_collections.tgp.gpu.plugins.module_utils.runs.node_wait import missing

from sandbox.kube import pki

from .conftest import Cluster

STRANGER = "stranger-0123456789abcdef0123"
# half a second of the world lasts ten, and the five until the next look a hundred: who ends within the first was woken
SLOWLY = pytest.mark.parametrize("speed", [0.05])


@pytest.fixture
def real(cluster: Cluster, served: pathlib.Path) -> t.Iterator[Kube]:
    """Our client over a socket, where connections are lost as they are in life."""
    kube = connect(Task({"kubeconfig": str(served)}, clock=cluster.clock))
    yield kube
    kube.close()


def wanted(cluster: Cluster, *names: str, seconds: float = 20, gpus: int = 0, **more: t.Any) -> list[Expected]:
    end = cluster.clock.now() + timedelta(seconds=seconds)
    return [Expected(name, name, end, lambda node: missing(node, "nvidia.com/gpu", gpus, ()), **more) for name in names]


def later(seconds: float, work: t.Callable[[], t.Any]) -> threading.Timer:
    timer = threading.Timer(seconds, work)
    timer.start()
    return timer


# ---- how soon


@SLOWLY
def test_fifty_nodes_end_the_wait_with_the_last_of_them(cluster: Cluster, real: Kube) -> None:
    names = [f"n{number:02}" for number in range(50)]
    chance, made = random.Random(7), []

    def arrive() -> None:
        for name in names:
            time.sleep(chance.uniform(0, 0.12))
            cluster.node(name)
        made.append(cluster.clock.seconds())

    arriving = threading.Thread(target=arrive)
    arriving.start()
    outcomes = wait_for(real, wanted(cluster, *names), clock=cluster.clock)
    ended = cluster.clock.seconds()
    arriving.join()
    assert all(one.ready for one in outcomes.values()) and set(outcomes) == set(names)
    assert ended - made[0] <= 0.5


@SLOWLY
def test_what_is_done_for_a_ready_node_ends_the_wait_when_it_is_done(cluster: Cluster, real: Kube) -> None:
    """The end of the work wakes the waiting one; it does not sleep on until the next look."""
    for turn in range(8):
        cluster.node(f"n{turn}")
        done: list[float] = []

        def work(_claim: str, _node: Node, done: list[float] = done) -> None:
            time.sleep(0.05)
            done.append(cluster.clock.seconds())

        wait_for(real, wanted(cluster, f"n{turn}"), clock=cluster.clock, on_ready=work)
        assert cluster.clock.seconds() - done[0] < 0.5


def test_each_node_is_finished_once_and_side_by_side(cluster: Cluster, real: Kube) -> None:
    names = [f"n{number}" for number in range(10)]
    for name in names:
        cluster.node(name)
    calls: collections.Counter[str] = collections.Counter()
    all_at_work = threading.Barrier(10)

    def finish(claim: str, node: Node) -> None:
        calls[claim] += 1
        cluster.report(node.name, gpus=1)  # news of the node while it is finished
        all_at_work.wait(60)

    outcomes = wait_for(real, wanted(cluster, *names, seconds=120), clock=cluster.clock, on_ready=finish)
    assert calls == dict.fromkeys(names, 1) and all(one.ready for one in outcomes.values())


def test_one_list_and_one_watch_serve_all(cluster: Cluster, real: Kube) -> None:
    names = [f"n{number}" for number in range(30)]
    later(0.3, lambda: [cluster.node(name) for name in names])
    before = cluster.world.calls.get("kubernetes", 0)
    wait_for(real, wanted(cluster, *names), clock=cluster.clock)
    assert cluster.world.calls["kubernetes"] - before == 2


def test_nothing_to_wait_for_asks_nobody(cluster: Cluster, real: Kube) -> None:
    assert wait_for(real, [], clock=cluster.clock) == {}
    assert cluster.world.calls.get("kubernetes", 0) == 0


# ---- what is told


def test_steps_are_told_once_in_order_with_their_times(cluster: Cluster, real: Kube) -> None:
    told: list[tuple[str, str]] = []
    cluster.node("a", ready=False)
    later(0.3, lambda: cluster.report("a"))
    later(0.6, lambda: cluster.report("a", gpus=2))
    [outcome] = wait_for(
        real, wanted(cluster, "a", gpus=2), clock=cluster.clock, on_step=lambda claim, step, _text: told.append((claim, step))
    ).values()
    assert told == [("a", "node"), ("a", "ready"), ("a", "complete")]
    assert sorted(outcome.seen, key=lambda step: outcome.seen[step]) == ["node", "ready", "complete"]
    assert outcome.node is not None and outcome.node.allocatable["nvidia.com/gpu"] == 2
    assert outcome.message == "" and 0 < outcome.seconds < 20


def evidence_of(cluster: Cluster, seconds: float = 1.0, **what: t.Any) -> NodeOutcome:
    """How a wait for a machine ends that never becomes a node."""
    [outcome] = wait_for(
        cluster.client(), wanted(cluster, "a", seconds=seconds), clock=cluster.clock, evidence=lambda _claim: Evidence(**what)
    ).values()
    assert not outcome.ready
    return outcome


def test_L11_the_reason_of_a_timeout_is_the_step_that_was_not_reached(cluster: Cluster) -> None:
    def words(**what: t.Any) -> tuple[str, str]:
        outcome = evidence_of(cluster, 0.2, **what)
        return outcome.step, outcome.message

    assert words() == ("launched", "nothing was seen of it")
    assert words(instance="booting") == ("instance", "the machine boots")
    meshed = {"instance": "active", "running": True, "uses_mesh": True}
    assert words(**meshed) == ("instance", "the machine runs and is not in the mesh yet")
    assert words(instance="active", running=True) == ("instance", "the machine runs, no certificate request came")
    assert words(**meshed, device="d1", device_online=True) == ("device", "its mesh device is online, no certificate request came")
    assert words(**meshed, device="d1", device_online=False)[1].startswith("its mesh device is not online")


def test_L11_hopeless_machines_are_not_waited_for(cluster: Cluster) -> None:
    outcome = evidence_of(cluster, 600, hopeless="the cloud says terminated")
    assert outcome.seconds < 600 and outcome.message == "the cloud says terminated"


def request(cluster: Cluster, token_id: str, state: str = "") -> None:
    """A certificate request as a machine with that token would send it, decided by somebody."""
    _key, text = pki.new_request("system:node:a", ["system:nodes"])
    spec = {
        "request": base64.b64encode(text.encode()).decode(),
        "signerName": csr.SIGNER,
        "usages": ["digital signature", "client auth"],
    }
    token = f"token-of-{token_id}-0123456789abcdef"
    cluster.api.add_token(
        token, f"system:bootstrap:{token_id}", rules=[("create", "certificates.k8s.io", "certificatesigningrequests")]
    )
    status, answer = cluster.api.request("POST", csr.PATH, {"metadata": {"name": f"csr-{token_id}"}, "spec": spec}, token=token)
    assert status == 201, answer
    if state:
        now = cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": state, "status": "True", "reason": "Test", "message": "no", "lastUpdateTime": now}
        answer["status"] = {"conditions": [condition]}
        cluster.must("PUT", f"{csr.PATH}/csr-{token_id}/approval", answer)


def test_L11_a_request_that_waits_for_approval_is_named(cluster: Cluster) -> None:
    request(cluster, "abcdef")
    outcome = evidence_of(cluster, 0.5, instance="active", running=True, token_id="abcdef")
    assert outcome.step == "csr" and outcome.message == "its certificate request csr-abcdef is pending, no Node came"


def test_L11_a_denied_request_ends_the_wait(cluster: Cluster) -> None:
    request(cluster, "abcdef", "Denied")
    outcome = evidence_of(cluster, 600, instance="active", running=True, token_id="abcdef")
    assert outcome.seconds < 600 and "csr-abcdef is denied" in outcome.message


def test_another_tokens_request_says_nothing_of_this_machine(cluster: Cluster) -> None:
    request(cluster, "abcdef", "Denied")
    outcome = evidence_of(cluster, 0.5, instance="active", running=True, token_id="ghijkl")
    assert outcome.step == "instance"


# ---- which Node


def test_L11_an_older_node_of_the_name_is_not_taken(cluster: Cluster, real: Kube) -> None:
    cluster.node("a")
    launched = cluster.clock.now() + timedelta(seconds=90)
    [outcome] = wait_for(real, wanted(cluster, "a", seconds=0.5, launched=launched), clock=cluster.clock).values()
    assert not outcome.ready and "older than the machine" in outcome.message and outcome.step == "launched"


def test_a_new_node_in_the_place_of_an_older_one_is_taken(cluster: Cluster, real: Kube) -> None:
    cluster.node("a")
    cluster.clock.advance(300)
    launched = cluster.clock.now()

    def replace() -> None:
        cluster.must("DELETE", "/api/v1/nodes/a")
        cluster.node("a")

    later(0.4, replace)
    [outcome] = wait_for(real, wanted(cluster, "a", launched=launched), clock=cluster.clock).values()
    assert outcome.ready and outcome.node is not None and outcome.node.created >= launched - timedelta(seconds=1)


def test_an_own_machine_returns_with_its_old_node(cluster: Cluster, real: Kube) -> None:
    cluster.node("rack")
    cluster.report("rack", ready=None)
    cluster.clock.advance(3600)
    told: list[str] = []
    expected = wanted(cluster, "rack", launched=cluster.clock.now(), returns=True)
    seen_off: list[list[str]] = []

    def boot() -> None:
        seen_off.append(list(told))
        cluster.report("rack", gpus=2)

    later(0.5, boot)
    [outcome] = wait_for(real, expected, clock=cluster.clock, on_step=lambda _claim, step, _text: told.append(step)).values()
    assert outcome.ready and outcome.node is not None and outcome.node.allocatable["nvidia.com/gpu"] == 2
    assert seen_off == [[]], "the Node of a machine that is off is no step"


def test_a_deleted_node_is_not_complete(cluster: Cluster, real: Kube) -> None:
    cluster.node("a", ready=False)
    later(0.3, lambda: cluster.must("DELETE", "/api/v1/nodes/a"))
    [outcome] = wait_for(real, wanted(cluster, "a", seconds=1.0), clock=cluster.clock).values()
    assert not outcome.ready and outcome.message == "its Node was deleted"


# ---- faults


@pytest.mark.parametrize("speed", [10.0])
def test_what_fails_for_a_ready_node_is_tried_again(cluster: Cluster, real: Kube) -> None:
    cluster.node("a")
    cluster.node("b")
    calls: collections.Counter[str] = collections.Counter()

    def finish(claim: str, _node: Node) -> None:
        calls[claim] += 1
        if claim == "a" and calls["a"] < 3:
            raise ServerError("kubernetes: a passing fault", service="kubernetes", status=500)

    outcomes = wait_for(real, wanted(cluster, "a", "b", seconds=120), clock=cluster.clock, on_ready=finish)
    assert all(one.ready for one in outcomes.values()) and calls == {"a": 3, "b": 1}


@pytest.mark.parametrize("speed", [10.0])
def test_what_fails_to_the_end_is_the_reason(cluster: Cluster, real: Kube) -> None:
    cluster.node("a")

    def finish(_claim: str, _node: Node) -> None:
        raise ServerError("kubernetes: it is full", service="kubernetes", status=500)

    [outcome] = wait_for(real, wanted(cluster, "a", seconds=12), clock=cluster.clock, on_ready=finish).values()
    assert not outcome.ready and outcome.step == "ready" and "it is full" in outcome.message


def test_a_defect_of_ours_is_not_swallowed(cluster: Cluster, real: Kube) -> None:
    cluster.node("a")

    def finish(_claim: str, _node: Node) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        wait_for(real, wanted(cluster, "a"), clock=cluster.clock, on_ready=finish)


@pytest.mark.parametrize(
    "rule",
    [
        {"kind": "lost_before", "times": 3},
        {"kind": "status", "status": 503, "times": 2},
        {"kind": "status", "status": 429, "headers": {"retry-after": "1"}, "times": 1},
        {
            "kind": "status",
            "status": 410,
            "body": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"},
            "times": 2,
        },
    ],
    ids=["cut", "unavailable", "busy", "expired"],
)
def test_a_lost_watch_is_mended(cluster: Cluster, real: Kube, rule: dict[str, t.Any]) -> None:
    cluster.faults.add({"method": "GET", "path": "watch=true", **rule})
    later(0.6, lambda: cluster.node("a"))
    [outcome] = wait_for(real, wanted(cluster, "a", seconds=15), clock=cluster.clock).values()
    assert outcome.ready


def test_trouble_that_is_over_is_no_reason(cluster: Cluster, real: Kube) -> None:
    cluster.faults.add({"kind": "status", "status": 503, "path": "certificatesigningrequests.*watch=true", "times": 1})
    [outcome] = wait_for(real, wanted(cluster, "a", seconds=2, token="abcdef"), clock=cluster.clock).values()
    assert outcome.message == "nothing was seen of it"


def test_a_watch_that_forgot_the_past_begins_anew(cluster: Cluster, real: Kube) -> None:
    """The server says so within the stream, as a line of its own."""
    event = b'{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"reason":"Expired","message":"too old","metadata":{}}}\n'
    cluster.faults.add({"kind": "body", "method": "GET", "path": "watch=true", "body": event.decode(), "times": 1})
    later(0.4, lambda: cluster.node("a"))
    [outcome] = wait_for(real, wanted(cluster, "a", seconds=15), clock=cluster.clock).values()
    assert outcome.ready


def test_a_missing_right_ends_the_wait_and_is_named(cluster: Cluster) -> None:
    cluster.api.add_token(STRANGER, "stranger", rules=[("list", "", "nodes")])
    expected = wanted(cluster, "a", seconds=600)
    with pytest.raises(Forbidden) as caught:
        wait_for(cluster.client(STRANGER), expected, clock=cluster.clock)
    assert cluster.clock.now() < expected[0].deadline
    assert "watch" in str(caught.value) and "nodes" in str(caught.value)


@pytest.mark.parametrize("speed", [20.0])
def test_nothing_is_given_up_while_the_server_cannot_be_asked(cluster: Cluster, real: Kube) -> None:
    cluster.faults.add({"kind": "status", "status": 503, "path": "nodes", "times": None})
    with pytest.raises(ServerError, match="503"):
        wait_for(real, wanted(cluster, "a", seconds=3), clock=cluster.clock)
    cluster.faults.clear()


def test_L11_facts_beat_the_clock(cluster: Cluster, real: Kube) -> None:
    """A run that was killed comes back after the deadline: the node that is complete by now is complete."""
    cluster.node("a")
    outcomes = wait_for(real, wanted(cluster, "a", "b", seconds=-600), clock=cluster.clock)
    assert {claim: one.ready for claim, one in outcomes.items()} == {"a": True, "b": False}


def test_a_slow_cloud_does_not_hide_a_ready_node(cluster: Cluster, real: Kube) -> None:
    cluster.node("a", ready=False)
    finished, in_time = threading.Event(), []

    def evidence(_claim: str) -> Evidence:
        in_time.append(finished.wait(60))  # an answer that comes after the node is finished
        return Evidence(instance="active")

    later(0.3, lambda: cluster.report("a"))
    wait_for(
        real,
        wanted(cluster, "a", "b", seconds=5),
        clock=cluster.clock,
        evidence=evidence,
        on_ready=lambda _claim, _node: finished.set(),
    )
    assert in_time and all(in_time)
