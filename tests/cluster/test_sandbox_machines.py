# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sandbox's machines join a real control plane: what its kubelets say is what a real API server takes."""

from __future__ import annotations

import datetime
import os
import typing as t

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.model import Taint

from sandbox import device_plugin
from sandbox.box import Box
from sandbox.clock import SimClock
from sandbox.cluster import Cluster
from sandbox.scenario import parse
from tests.unit.sandbox.conftest import Hand

from .plane import Plane

pytestmark = pytest.mark.cluster
QUICK = {
    "lambda": [{"type": "gpu_1x_a10", "region": "us-east-1", "stock": 9, "boot": 0.5}],
    "machines": [{"name": "rack", "gpus": 2, "boot": 0.5, "stop": 0.2}],
    "timings": {"packages": 0.1, "mesh": 0.1, "csr": 0.1, "ready": 0.3, "gpu": 0.3},
    "rate_limits": False,
}


class ForeignHand(Hand):
    """Tokens of a real cluster expire in real time; its names are not reused."""

    def token(self, seconds: float = 3600, groups: str = "system:bootstrappers:nodes") -> str:
        identity, secret = os.urandom(3).hex(), os.urandom(8).hex()
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
        data = {
            "token-id": identity,
            "token-secret": secret,
            "expiration": end.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": groups,
        }
        meta = {"name": f"bootstrap-token-{identity}"}
        body = {"metadata": meta, "type": "bootstrap.kubernetes.io/token", "stringData": data, "apiVersion": "v1", "kind": "Secret"}
        self.kube("POST", "/api/v1/namespaces/kube-system/secrets", body)
        return f"{identity}.{secret}"


def start(plane: Plane) -> tuple[Box, ForeignHand]:
    box = Box(parse(QUICK), clock=SimClock(1.0), cluster=Cluster.of_kubeconfig(str(plane.kubeconfig)))
    device_plugin.install(box.cluster.admin())
    return box.start(), ForeignHand(box)


def taints(hand: Hand, name: str) -> set[str]:
    return {taint["key"] for taint in (hand.node(name) or {"spec": {}})["spec"].get("taints") or []}


@pytest.fixture
def hand(plane: Plane) -> t.Iterator[ForeignHand]:
    box, hand = start(plane)
    yield hand
    box.stop()


def test_a_rented_machine_joins_runs_a_gpu_pod_and_lets_it_finish(hand: ForeignHand, own: str) -> None:
    """What the sandbox's kubelets write is valid for a real API server, so tests on the emulator prove something."""
    machine = hand.rent(
        own, hand.payload(own, endpoint=hand.box.cluster.endpoint, taints=(Taint("gpu-node", "true", "NoSchedule"),))
    )
    hand.story(machine, "done", 30)
    node = hand.node(own)
    assert node is not None and node["status"]["allocatable"]["nvidia.com/gpu"] == "1"
    assert node["metadata"]["labels"]["tgp.io/nodepool"] == "training"
    hand.until(lambda: "node.kubernetes.io/not-ready" not in taints(hand, own))
    assert "gpu-node" in taints(hand, own)
    pods = "/api/v1/namespaces/default/pods"
    container = {"name": "work", "image": "busybox:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": own},
        "tolerations": [{"operator": "Exists"}],
        "restartPolicy": "Never",
        "containers": [container],
    }
    hand.kube("POST", pods, {"metadata": {"name": own, "annotations": {"sandbox/run-seconds": "1"}}, "spec": spec})
    hand.until(lambda: hand.kube("GET", f"{pods}/{own}")["status"]["phase"] == "Succeeded")
    hand.kube("DELETE", f"{pods}/{own}")
    hand.terminate(machine)
    hand.kube("DELETE", f"/api/v1/nodes/{own}")


def test_labels_that_a_kubelet_may_not_set_stop_talos_from_setting_any(hand: ForeignHand, own: str) -> None:
    """The real NodeRestriction refuses the label, in the words on which the sandbox's Talos fails."""
    config = hand.payload("rack", "talos", gpu_count=2, endpoint=hand.box.cluster.endpoint, token=hand.token())
    documents = list(yaml.safe_load_all(config))
    documents[0]["machine"]["nodeLabels"]["node-role.kubernetes.io/gpu"] = ""
    power = hand.client("webhook")
    assert power.post("/rack/start", json={"machineConfig": yaml.safe_dump_all(documents)}).status_code == 202
    machine = hand.box.world.machines["rack"]
    hand.story(machine, "done", 30)
    assert "not allowed to modify labels" in hand.story(machine, "labels")
    node = hand.node("rack")
    assert node is not None and "tgp.io/nodepool" not in node["metadata"]["labels"]
    power.post("/rack/stop", json={})
    hand.kube("DELETE", "/api/v1/nodes/rack")


def test_a_real_cluster_notices_a_dead_machine_by_itself(hasty_plane: Plane, own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real node lifecycle controller turns a silent Node to Unknown."""
    monkeypatch.setattr("sandbox.kubelets._HEARTBEAT", 1.0)  # this plane is in a hurry
    box, hand = start(hasty_plane)
    try:
        machine = hand.rent(own, hand.payload(own, endpoint=box.cluster.endpoint))
        hand.story(machine, "done", 30)
        box.world.clock.sleep(8)
        assert hand.ready(own) == "True"
        box.machines.strike(machine, "crash")
        hand.until(lambda: hand.ready(own) == "Unknown")
    finally:
        box.stop()
