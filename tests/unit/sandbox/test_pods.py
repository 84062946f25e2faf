# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods on the nodes of the world: they start, finish, stop, and stay behind when their machine dies."""

from __future__ import annotations

import typing as t
from datetime import datetime

import pytest

from sandbox.cluster import KubeError


def pod(name: str, node: str, grace: int = 30, **annotations: str) -> dict[str, t.Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "annotations": {f"sandbox/{key.replace('_', '-')}": value for key, value in annotations.items()},
        },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": grace,
            "containers": [{"name": "work", "image": "busybox:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        },
    }


class Pods:
    def __init__(self, hand: t.Any) -> None:
        self.hand = hand

    def create(self, body: dict[str, t.Any]) -> None:
        self.hand.kube("POST", "/api/v1/namespaces/default/pods", body)

    def get(self, name: str) -> dict[str, t.Any] | None:
        try:
            return t.cast(dict[str, t.Any], self.hand.kube("GET", f"/api/v1/namespaces/default/pods/{name}"))
        except KubeError as error:
            assert error.status == 404
            return None

    def delete(self, name: str) -> float:
        self.hand.kube("DELETE", f"/api/v1/namespaces/default/pods/{name}")
        return float(self.hand.box.world.clock.seconds())

    def phase(self, name: str) -> str:
        return str((self.get(name) or {}).get("status", {}).get("phase"))


@pytest.fixture
def pods(make: t.Any) -> Pods:
    hand = make(speed=300.0)
    hand.client("webhook").post("/rack-2/start", json={})
    hand.story(hand.box.world.machines["rack-2"], "done")
    return Pods(hand)


def test_a_pod_on_a_living_node_runs(pods: Pods) -> None:
    pods.create(pod("a", "rack-2"))
    pods.hand.until(lambda: pods.phase("a") == "Running")
    status = pods.get("a")["status"]  # type: ignore[index]
    assert status["podIP"] and status["containerStatuses"][0]["state"]["running"]["startedAt"]
    assert {c["type"]: c["status"] for c in status["conditions"]}["Ready"] == "True"


def test_a_pod_with_a_run_time_succeeds_when_it_is_over(pods: Pods) -> None:
    pods.create(pod("a", "rack-2", run_seconds="90"))
    pods.hand.until(lambda: pods.phase("a") == "Succeeded")
    ended = pods.get("a")["status"]["containerStatuses"][0]["state"]["terminated"]  # type: ignore[index]
    started, finished = (datetime.fromisoformat(ended[key].replace("Z", "+00:00")) for key in ("startedAt", "finishedAt"))
    assert 89 <= (finished - started).total_seconds() < 1500  # four real seconds more than its time


def test_a_stopped_pod_goes_soon_and_a_stubborn_one_when_its_grace_is_over(pods: Pods) -> None:
    pods.create(pod("soft", "rack-2", grace=3600))
    pods.create(pod("hard", "rack-2", grace=600, ignore_term="true"))
    pods.hand.until(lambda: pods.phase("soft") == pods.phase("hard") == "Running")
    asked = pods.delete("soft")
    pods.hand.until(lambda: pods.get("soft") is None)
    assert pods.hand.box.world.clock.seconds() - asked < 1800
    asked = pods.delete("hard")
    pods.hand.until(lambda: pods.get("hard") is None)
    assert pods.hand.box.world.clock.seconds() - asked >= 599


def test_on_a_dead_machine_nothing_ends(pods: Pods) -> None:
    pods.create(pod("a", "rack-2"))
    pods.hand.until(lambda: pods.phase("a") == "Running")
    pods.hand.box.machines.strike(pods.hand.box.world.machines["rack-2"], "crash")
    pods.delete("a")
    pods.hand.until(lambda: pods.hand.ready("rack-2") == "Unknown")
    assert pods.get("a") is not None
    pods.create(pod("b", "rack-2"))
    pods.hand.box.world.clock.sleep(30)
    assert pods.phase("b") in ("Pending", "None")  # taint eviction may have removed it


def test_kubelets_renew_their_leases(pods: Pods) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/rack-2"
    first = pods.hand.until(lambda: pods.hand.kube("GET", path)["spec"]["renewTime"])
    pods.hand.until(lambda: pods.hand.kube("GET", path)["spec"]["renewTime"] > first)


def test_moving_the_clock_loses_no_node(pods: Pods) -> None:
    pods.create(pod("a", "rack-2"))
    pods.hand.until(lambda: pods.phase("a") == "Running")
    pods.hand.box.world.clock.advance(7200)
    pods.hand.box.world.clock.sleep(120)
    assert pods.hand.ready("rack-2") == "True" and pods.phase("a") == "Running"
