# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks on a real control plane: the clouds and their machines are the sandbox's, the cluster they join is not.

A cluster's clock cannot be moved. So every test has a sandbox of its own, rents first and moves the sandbox's clock afterwards.
"""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest
import yaml

from tests.e2e.box import ROOT, Sandbox

from . import objects
from .objects import GPU
from .plane import Plane

pytestmark = pytest.mark.cluster
IDLE = 10 * 60 + 60
PAUSE = 15 * 60 + 60
LEASES = "/apis/coordination.k8s.io/v1/namespaces/tgp-system/leases"
SYSTEM = "kube-system"
NOTHING = {"instances": 0, "devices": 0, "keys": 0}


class Stage(Sandbox):
    """A sandbox whose machines join the plane, with one pool of rented machines and one of a single own machine."""

    def __init__(self, plane: Plane, folder: pathlib.Path, *, drain_timeout: str = "60s") -> None:
        self.plane = plane
        self.mark = os.urandom(2).hex()
        self.rack = f"rack-{self.mark}"
        self.pools = {"lambda": f"rented-{self.mark}", "webhook": f"own-{self.mark}"}
        self.drain_timeout = drain_timeout
        scenario = folder / "scenario.yaml"
        scenario.write_text(yaml.safe_dump(self._scenario()))
        self._tokens_before: set[str] = set()
        super().__init__(folder, speed=1, scenario=scenario, kubeconfig=plane.kubeconfig)
        self._tokens_before = set(self.tokens())

    def _scenario(self) -> dict[str, t.Any]:
        return {
            "lambda": [{"type": "gpu_1x_a10", "region": "us-east-1", "stock": 4, "boot": 0.5}],
            "machines": [{"name": self.rack, "gpus": 2, "model": "RTX3090", "memory_gib": 24, "boot": 0.5, "stop": 0.2}],
            "timings": {"packages": 0.1, "mesh": 0.1, "csr": 0.1, "ready": 0.3, "gpu": 0.3},
            "rate_limits": False,
        }

    def documents(self) -> list[dict[str, t.Any]]:
        own = {"name": self.rack, "gpuCount": 2, "gpuType": "RTX3090"}
        for key, verb in (("scaleUpEndpoint", "start"), ("scaleDownEndpoint", "stop"), ("statusEndpoint", "status")):
            own[key] = f"/{self.rack}/{verb}"
        providers = [
            {"name": "lambda", "settings": {"sshKey": "tgp"}},
            {"name": "webhook", "settings": {"payload": "body"}, "machines": [own]},
        ]
        node_class = {
            "apiVersion": "tgp.io/v1",
            "kind": "GPUNodeClass",
            "metadata": {"name": f"class-{self.mark}"},
            "spec": {
                "providers": providers,
                "talosConfig": {"machineConfigTemplateFile": str(ROOT / "examples" / "templates" / "worker.yaml")},
                "tailscaleConfig": {"tags": ["tag:gpu"]},
                "limits": {"maxNodes": 3, "maxHourlyCost": "10.00"},
            },
        }
        return [node_class, *(self._pool(cloud, name) for cloud, name in self.pools.items())]

    def _pool(self, cloud: str, name: str) -> dict[str, t.Any]:
        inner = {
            "requirements": [{"key": "tgp.io/provider", "operator": "In", "values": [cloud]}],
            "taints": [{"key": "gpu-node", "value": "true", "effect": "NoSchedule"}],
        }
        return {
            "apiVersion": "tgp.io/v1",
            "kind": "GPUNodePool",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "nodeClassRef": {"name": f"class-{self.mark}"},
                "template": {"spec": inner},
                "drainTimeout": self.drain_timeout,
                "disruption": {"consolidateAfter": "10m"},
            },
        }

    def run(self, name: str, **variables: t.Any) -> t.Any:
        """A playbook with this stage's documents, to its good end."""
        return self.playbook(name, documents=self.documents(), extra_vars=variables).succeeded()

    def names(self) -> set[str]:
        """The machines that are billed, or are on."""
        return {one["name"] for one in self.living()}

    def rented(self) -> str:
        return next(one["name"] for one in self.living() if one["cloud"] == "lambda")

    def node(self, name: str) -> dict[str, t.Any]:
        return self.plane.get(f"/api/v1/nodes/{name}")

    def taints(self, name: str) -> set[str]:
        return {one["key"] for one in self.node(name)["spec"].get("taints", [])}

    def nothing_is_left(self) -> bool:
        """No machine, device, key, claim, token or Node of a rented machine; an own machine's Node stays, as it does by rule."""
        nodes = {
            name for name, one in self.nodes().items() if one["metadata"].get("labels", {}).get("tgp.io/nodepool") == self.pools["lambda"]
        }
        left = self.left()
        return {key: left[key] for key in NOTHING} == NOTHING and not self.claims() and not nodes and not self.new_tokens()

    def new_tokens(self) -> set[str]:
        return set(self.tokens()) - self._tokens_before

    def lock_holders(self) -> list[str]:
        """Who holds the run lock, by its Lease."""
        return [one["spec"].get("holderIdentity") or "" for one in self.plane.get(LEASES)["items"]]


@pytest.fixture
def stage(plane: Plane, tmp_path: pathlib.Path) -> t.Iterator[Stage]:
    made = Stage(plane, tmp_path, drain_timeout="8s")
    yield made
    try:
        if made.claims():
            made.run("destroy", everything=True, force=True)
    finally:
        made.close()
        plane.delete(f"/api/v1/nodes/{made.rack}")


def test_from_nothing_to_gpu_nodes_and_back_to_nothing(stage: Stage) -> None:
    stage.run("provision")
    rented = stage.rented()
    assert stage.names() == {rented, stage.rack}
    claims = stage.claims()
    assert {name: (one["cloud"], one["lane"], one["phase"]) for name, one in claims.items()} == {
        rented: ("lambda", "kubelet", "Ready"),
        stage.rack: ("webhook", "talos", "Ready"),
    }
    for name, cloud, gpus in ((rented, "lambda", "1"), (stage.rack, "webhook", "2")):
        node = objects.ready(stage.plane, name)
        assert node is not None, f"{name} is not Ready"
        assert node["status"]["allocatable"][GPU] == gpus
        labels = node["metadata"]["labels"]
        assert labels["tgp.io/provisioned"] == "true" and labels["tgp.io/provider"] == cloud
        assert labels["tgp.io/nodepool"] == stage.pools[cloud] and labels["tgp.io/gpu-count"] == gpus
        assert "gpu-node" in stage.taints(name) and "tgp.io/initializing" not in stage.taints(name)
        assert claims[name]["node_uid"] == node["metadata"]["uid"]
    assert not stage.new_tokens(), "a bootstrap token outlived the join"

    versions = {name: stage.node(name)["metadata"]["resourceVersion"] for name in claims}
    again = stage.run("provision")
    assert again.count("changed") == 0
    assert {name: stage.node(name)["metadata"]["resourceVersion"] for name in claims} == versions

    stage.run_job(rented, f"training-{stage.mark}")
    stage.run("reap")
    stage.advance(IDLE)
    stage.run("reap")
    assert stage.names() == {rented}, "the busy one stays, the idle one goes"
    assert objects.ready(stage.plane, rented) and not stage.node(rented)["spec"].get("unschedulable")
    stage.end_job(f"training-{stage.mark}")
    stage.run("reap")
    stage.advance(IDLE)
    stage.run("reap")
    assert stage.nothing_is_left()
    assert stage.lock_holders() and not any(stage.lock_holders())


def test_destroy_gives_everything_back_even_below_a_running_job(stage: Stage) -> None:
    stage.run("provision")
    stage.run_job(stage.rented(), f"training-{stage.mark}")
    stage.run("destroy", everything=True, force=True)
    assert stage.nothing_is_left()
    assert not any(stage.lock_holders())


def test_a_budget_holds_an_idle_node_until_the_deadline_and_the_node_is_as_before(stage: Stage) -> None:
    """The pod is no work (it is the cluster's own and uses no GPU), so the node counts as idle; its budget is asked all the same."""
    stage.run("provision", pool=stage.pools["lambda"])
    node, app = stage.rented(), f"guarded-{stage.mark}"
    spec = {**objects.pod_spec(on=node), "tolerations": [{"operator": "Exists"}]}
    objects.workload(stage.plane, "deployments", SYSTEM, app, spec)
    budgets = f"/apis/policy/v1/namespaces/{SYSTEM}/poddisruptionbudgets"
    try:
        stage.plane.until(
            lambda: [one for one in objects.pods(stage.plane, SYSTEM, "Running", node)], what="the guarded pod to run"
        )
        objects.budget(stage.plane, SYSTEM, app, {"app": app}, minAvailable=1)
        stage.run("reap")
        stage.advance(IDLE)
        before = stage.claims()[node]
        held = stage.run("reap")

        assert held.seconds >= 8, "the drain did not last until its deadline"
        assert f"kept: {SYSTEM}/{app}" in held.words and app in held.words
        assert stage.names() == {node}
        now = stage.node(node)
        assert not now["spec"].get("unschedulable")
        assert stage.taints(node) == {"gpu-node", "tgp.io/ephemeral"}
        assert not {key for key in now["metadata"]["annotations"] if key.startswith("tgp.io/drain")}
        assert "node.kubernetes.io/exclude-from-external-load-balancers" not in now["metadata"]["labels"]
        claim = stage.claims()[node]
        assert claim["phase"] == "Ready" and not claim.get("deletion")
        assert claim["blocked_until"] and claim["blocked_times"] == 1 and not before.get("blocked_until")
        assert [one["metadata"]["labels"]["app"] for one in objects.pods(stage.plane, SYSTEM, "Running", node)] == [app]

        paused = stage.run("reap")
        assert paused.count("changed") == 0 and paused.seconds < 8, "it is left in peace until the pause is over"

        stage.plane.delete(f"{budgets}/{app}")
        stage.advance(PAUSE)
        stage.run("reap")
        assert stage.nothing_is_left()
        assert not any(stage.lock_holders())
    finally:
        stage.plane.delete(f"{budgets}/{app}")
        stage.plane.delete(f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{app}", propagationPolicy="Background")
