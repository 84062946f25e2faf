# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Draining against a real API server with its own budgets, controllers and kubelets. The drain's clock runs five times as fast."""

from __future__ import annotations

import pathlib
import threading
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.kube.drain.drain import Drained, DrainOptions, Target, drain
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.drain_rules import rules_of

from sandbox.clock import SimClock

from . import objects
from .hollow import HollowNode
from .plane import Plane

pytestmark = pytest.mark.cluster
POOL = "tgp.io/nodepool"


class Stage:
    """A namespace, and nodes of one pool that only this test uses."""

    def __init__(self, plane: Plane, kube: Kube, own: str) -> None:
        self.plane, self.kube, self.own = plane, kube, own
        self.space = objects.namespace(plane, own)
        self.clock = SimClock(5, start=time.time())
        self.hollows: list[HollowNode] = []
        self.add_node()

    @property
    def node(self) -> str:
        return self.hollows[0].name

    def add_node(self) -> str:
        name = f"{self.own}-{len(self.hollows)}"
        self.hollows.append(self.plane.kubemark(name, self.plane.bootstrap_token(), labels={POOL: self.own}, gpus=8))
        self.plane.until(lambda: objects.ready(self.plane, name), what=f"{name} to be Ready")
        return name

    def spec(self, grace: int = 1) -> objects.Object:
        return {**objects.pod_spec(grace=grace), "nodeSelector": {POOL: self.own}}

    def work(self, kind: str, name: str, grace: int = 1, **labels: str) -> str:
        """One running pod of a controller; returns its uid."""
        objects.workload(self.plane, kind, self.space, name, self.spec(grace), labels=labels)
        return self.plane.until(lambda: self.uids("Running").get(name), what=f"{name} to run")

    def uids(self, phase: str = "") -> dict[str, str]:
        """uid by the label app, of pods that stay."""
        return {one["metadata"]["labels"]["app"]: one["metadata"]["uid"] for one in objects.pods(self.plane, self.space, phase)}

    def drain(self, reason: str, timeout: float = 300, **more: t.Any) -> Drained:
        uid = more.pop("uid", "") or (objects.node(self.plane, self.node) or {"metadata": {"uid": "gone"}})["metadata"]["uid"]
        return drain(self.kube, [Target(self.node, uid, reason)], DrainOptions(timeout=timeout, **more), clock=self.clock)[0]

    def as_before(self) -> bool:
        """The node carries no sign of a drain."""
        node = objects.node(self.plane, self.node) or {}
        marks = [*node["metadata"].get("annotations", {}), *(one["key"] for one in node["spec"].get("taints", []))]
        marks += node["metadata"]["labels"]
        signs = ("tgp.io/disrupted", "tgp.io/drain-started", "node.kubernetes.io/exclude-from-external-load-balancers")
        return not node["spec"].get("unschedulable") and not set(signs) & set(marks)


@pytest.fixture
def stage(plane: Plane, kube: Kube, own: str) -> t.Iterator[Stage]:
    made = Stage(plane, kube, own)
    yield made
    # At once: nobody is left to end pods gently, and the collector of lost pods takes a minute.
    plane.delete(f"/api/v1/namespaces/{made.space}/pods", gracePeriodSeconds=0)
    plane.delete(f"/api/v1/namespaces/{made.space}")
    for hollow in made.hollows:
        hollow.kill()
        plane.delete(f"/api/v1/nodes/{hollow.name}")


def _blockers(result: Drained) -> list[tuple[str, str]]:
    return [(one.pod.rpartition("/")[2].partition("-")[0], one.by) for one in result.blocked]


def test_L09_an_evictable_pod_goes_and_the_node_stays_cordoned(stage: Stage) -> None:
    before = stage.work("deployments", "train")
    result = stage.drain("Drifted")
    assert result.drained and not result.blocked
    assert stage.uids().get("train") != before and not objects.pods(stage.plane, stage.space, on=stage.node)
    node = objects.node(stage.plane, stage.node) or {}
    assert node["spec"]["unschedulable"] and "tgp.io/disrupted" in {one["key"] for one in node["spec"]["taints"]}


def test_L09_a_budget_holds_a_voluntary_drain_back_and_the_node_is_as_before(stage: Stage) -> None:
    """The real eviction API refuses by a real PodDisruptionBudget, and the node's marks are removed again."""
    before = stage.work("deployments", "web")
    objects.budget(stage.plane, stage.space, "keep", {"app": "web"}, minAvailable=1)
    began = stage.clock.now()
    result = stage.drain("Drifted", timeout=30)
    assert not result.drained and (stage.clock.now() - began).total_seconds() >= 25
    [(pod, by)] = _blockers(result)
    assert pod == "web" and "keep" in by
    assert stage.uids("Running") == {"web": before} and stage.as_before()


def test_L09_an_eviction_is_tried_again_until_the_budget_opens(stage: Stage) -> None:
    """The answers 429 of the real eviction API, until its controller has seen that the budget is gone."""
    before = stage.work("deployments", "web")
    objects.budget(stage.plane, stage.space, "keep", {"app": "web"}, minAvailable=1)
    path = f"/apis/policy/v1/namespaces/{stage.space}/poddisruptionbudgets/keep"
    opening = threading.Timer(3, stage.plane.delete, (path,))
    opening.start()
    result = stage.drain("Drifted", timeout=120)
    opening.join()
    assert result.drained and not result.blocked
    assert stage.uids().get("web") != before


def test_L09_a_pod_under_two_budgets_is_named_so(stage: Stage) -> None:
    before = stage.work("deployments", "web", tier="front")
    objects.budget(stage.plane, stage.space, "one", {"app": "web"}, maxUnavailable=1)
    objects.budget(stage.plane, stage.space, "two", {"tier": "front"}, maxUnavailable=1)
    result = stage.drain("Drifted", timeout=20)
    assert not result.drained and stage.as_before()
    [(pod, by)] = _blockers(result)
    assert pod == "web" and ("multiple" in by or "more than one" in by)
    assert stage.uids("Running") == {"web": before}


def test_L09_a_forceful_drain_deletes_at_the_deadline_what_the_budget_keeps(stage: Stage) -> None:
    """What the eviction API refuses to the end is deleted, and the Node is empty."""
    before = stage.work("deployments", "web", grace=2)
    objects.budget(stage.plane, stage.space, "keep", {"app": "web"}, minAvailable=1)
    result = stage.drain("Expired", timeout=30)
    assert result.drained
    assert stage.uids().get("web") != before and not objects.pods(stage.plane, stage.space, on=stage.node)


def test_L09_a_pod_that_returns_elsewhere_under_its_name_counts_as_gone(stage: Stage) -> None:
    """A real StatefulSet controller makes a pod of the same name and another uid while the drain waits."""
    before = stage.work("statefulsets", "db")
    other = stage.add_node()
    result = stage.drain("Drifted")
    assert result.drained
    [pod] = objects.running(stage.plane, stage.space, 1, on=other)
    assert pod["metadata"]["name"] == "db-0" and pod["metadata"]["uid"] != before


def test_L09_a_bare_pod_stops_a_voluntary_drain_before_the_first_eviction(stage: Stage) -> None:
    train = stage.work("deployments", "train")
    objects.pod(stage.plane, stage.space, "alone", stage.spec())
    objects.running(stage.plane, stage.space, 2)
    result = stage.drain("Drifted")
    assert not result.drained and _blockers(result) == [("alone", "unmanaged")]
    assert stage.uids("Running")["train"] == train and stage.as_before()
    assert stage.drain("Expired").drained
    assert "alone" not in stage.uids()


def test_L09_daemons_and_finished_pods_are_left_alone(stage: Stage) -> None:
    daemon = stage.work("daemonsets", "plugin")
    objects.pod(stage.plane, stage.space, "done", {**stage.spec(), "restartPolicy": "Never"})
    stage.plane.until(lambda: "done" in stage.uids("Running"), what="the pod to run")
    stage.plane.patch(f"/api/v1/namespaces/{stage.space}/pods/done/status", {"status": {"phase": "Succeeded"}})
    done = stage.plane.until(lambda: stage.uids("Succeeded").get("done"), what="the pod to be finished")
    result = stage.drain("Drifted")
    assert result.drained and not result.blocked
    assert stage.uids() == {"plugin": daemon, "done": done}


def test_L09_another_node_of_that_name_is_not_touched(stage: Stage) -> None:
    before = stage.work("deployments", "train")
    stage.drain("Drifted", uid="00000000-0000-4000-8000-000000000000")
    assert stage.as_before() and stage.uids("Running") == {"train": before}


def test_L09_pods_of_a_machine_that_is_gone_are_removed_without_grace(stage: Stage) -> None:
    before = stage.work("deployments", "train", grace=600)
    stage.hollows[0].kill()
    refused = stage.drain("InstanceGone", timeout=60)
    assert not refused.drained and refused.outcome == "ready" and stage.uids() == {"train": before}
    lost = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}
    stage.plane.patch(f"/api/v1/nodes/{stage.node}/status", lost)
    assert stage.drain("InstanceGone", timeout=60).drained
    assert stage.uids().get("train") != before and not objects.pods(stage.plane, stage.space, on=stage.node)


def test_L09_a_rehearsal_names_the_blocker_and_changes_nothing(stage: Stage) -> None:
    before = {name: stage.work("deployments", name) for name in ("train", "web")}
    objects.budget(stage.plane, stage.space, "keep", {"app": "web"}, minAvailable=1)
    result = stage.drain("Drifted", check=True)
    assert _blockers(result) == [("web", "keep")]
    assert stage.uids("Running") == before and stage.as_before()


def test_L09_without_the_right_to_evict_the_right_is_named_and_the_node_is_as_before(
    stage: Stage, open_kube: t.Callable[[pathlib.Path], Kube]
) -> None:
    before = stage.work("deployments", "train")
    rules = [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    ]
    stage.kube = open_kube(objects.person(stage.plane, stage.own, rules))
    result = stage.drain("Drifted")
    assert not result.drained and "create pods/eviction" in result.message
    assert stage.uids("Running") == {"train": before} and stage.as_before()


def test_L09_two_nodes_are_emptied_side_by_side(stage: Stage) -> None:
    stage.add_node()
    objects.workload(stage.plane, "deployments", stage.space, "train", stage.spec(), replicas=6)
    objects.running(stage.plane, stage.space, 6)
    names = [hollow.name for hollow in stage.hollows]
    targets = [Target(name, (objects.node(stage.plane, name) or {})["metadata"]["uid"], "Manual") for name in names]
    results = drain(stage.kube, targets, DrainOptions(timeout=300), clock=stage.clock)
    assert [(one.node, one.drained) for one in results] == [(name, True) for name in names]
    assert not [pod for name in names for pod in objects.pods(stage.plane, stage.space, on=name)]


def test_L09_local_data_is_lost_for_no_underuse_and_for_every_other_reason(stage: Stage) -> None:
    spec = {**stage.spec(), "volumes": [{"name": "scratch", "emptyDir": {}}]}
    objects.workload(stage.plane, "deployments", stage.space, "cache", spec)
    before = stage.plane.until(lambda: stage.uids("Running").get("cache"), what="cache to run")
    kept = stage.drain("Underutilized", rules=rules_of("Underutilized"))
    assert not kept.drained and _blockers(kept) == [("cache", "local-data")]
    assert stage.uids("Running") == {"cache": before} and stage.as_before()
    assert stage.drain("Drifted", rules=rules_of("Drifted")).drained
    assert stage.uids().get("cache") != before


def test_L09_a_finalizer_keeps_the_record_of_a_pod_and_not_the_machine(stage: Stage) -> None:
    """Its containers have ended, so nothing is lost with the machine; whoever set the finalizer still finds the pod."""
    objects.workload(stage.plane, "deployments", stage.space, "slow", stage.spec())
    [pod] = objects.running(stage.plane, stage.space, 1)
    path = f"/api/v1/namespaces/{stage.space}/pods/{pod['metadata']['name']}"
    stage.plane.patch(path, {"metadata": {"finalizers": ["example.test/last-words"]}}, "merge")
    result = stage.drain("Drifted", timeout=120)
    assert result.drained and result.evicted and result.duration < 60, result
    kept = stage.plane.get(path)
    assert kept["metadata"]["uid"] == pod["metadata"]["uid"] and kept["status"]["phase"] in ("Succeeded", "Failed")
    stage.plane.patch(path, {"metadata": {"finalizers": None}}, "merge")
    stage.plane.until(lambda: stage.plane.find(path) is None, what="the pod to go")


def test_L09_a_pod_is_given_its_own_grace(stage: Stage) -> None:
    stage.work("deployments", "train", grace=45)
    [pod] = objects.pods(stage.plane, stage.space, "Running")
    path = f"/api/v1/namespaces/{stage.space}/pods/{pod['metadata']['name']}"
    stage.hollows[0].stop()  # so nobody says that it has ended
    result = stage.drain("Drifted", timeout=20)
    assert not result.drained and _blockers(result) == [("train", "terminating")]
    told = stage.plane.get(path)["metadata"]
    assert told["uid"] == pod["metadata"]["uid"] and told["deletionGracePeriodSeconds"] == 45


def test_L09_a_drain_outlives_a_restart_of_the_api_server(stage: Stage) -> None:
    """It is killed while a budget holds the eviction back, is away for two seconds, and opens the budget after it came again."""
    before = stage.work("deployments", "web")
    objects.budget(stage.plane, stage.space, "keep", {"app": "web"}, minAvailable=1)
    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(stage.drain, "Drifted", timeout=600)
        stage.plane.until(lambda: not stage.as_before(), what="the drain to begin")
        time.sleep(1)
        stage.plane.kill_apiserver()
        time.sleep(2)
        stage.plane.start_apiserver()
        assert stage.uids() == {"web": before} and not going.done()
        stage.plane.delete(f"/apis/policy/v1/namespaces/{stage.space}/poddisruptionbudgets/keep")
        result = going.result(timeout=120)
    assert result.drained and not result.blocked, result
    assert stage.uids().get("web") != before and not objects.pods(stage.plane, stage.space, on=stage.node)
