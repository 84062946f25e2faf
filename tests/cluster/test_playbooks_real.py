# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks on a real control plane: the clouds and their machines are the sandbox's, the cluster they join is not.

A cluster's clock cannot be moved. So every test has a sandbox of its own, rents first and moves the sandbox's clock afterwards.
"""

from __future__ import annotations

import pathlib
import typing as t

import pytest

from . import objects
from .objects import GPU
from .plane import Plane
from .stage import Stage

pytestmark = pytest.mark.cluster
IDLE = 10 * 60 + 60
PAUSE = 15 * 60 + 60
SYSTEM = "kube-system"


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
    """provision.yml and reap.yml with lanes kubelet and talos: certificates, taints, allocatable GPUs and pods are the real control plane's."""
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
    """destroy.yml with force against real garbage collection: pods, Node, token and Lease are gone."""
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
        stage.plane.until(lambda: objects.apps(stage.plane, SYSTEM, node) == [app], what="the guarded pod to run")
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
        assert objects.apps(stage.plane, SYSTEM, node) == [app]

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
