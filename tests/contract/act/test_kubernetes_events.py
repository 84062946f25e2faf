# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-32: what `kubectl describe` shows of pods, Nodes and pools after runs, and which calls that takes."""

from __future__ import annotations

import typing as t

import pytest

from .rig import URLS, Rig
from .test_autoscale import ask, scale
from .test_object_status import POOL, THERE, cluster, provision  # noqa: F401  the fixture

Json = dict[str, t.Any]
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


def told(rig: Rig, kind: str, name: str = "") -> list[tuple[str, str]]:
    """Type and reason of ours about objects of a kind, in the order of their names, as v1 shows them to kubectl."""
    found = [one for one in rig.kube("GET", "/api/v1/events")["items"] if one.get("reportingComponent") == "tgp.io/gpu"]
    of = [one for one in found if one["involvedObject"]["kind"] == kind and name in ("", one["involvedObject"]["name"])]
    return [(one["type"], one["reason"]) for one in sorted(of, key=lambda one: (one["eventTime"], one["reason"]))]


def sent(rig: Rig, act: t.Callable[[], t.Any]) -> int:
    """How many events an act sends."""
    posts: list[str] = []
    rig.watcher = lambda request: posts.append(request.url.path) if "/events.k8s.io/" in request.url.path else None
    act()
    rig.watcher = lambda _request: None
    return len(posts)


def test_a_pool_and_its_node_tell_of_a_machine_from_launch_to_end(cluster: Rig) -> None:  # noqa: F811
    cluster.kube("PATCH", POOL, {"spec": {"replicas": 1}})
    assert sent(cluster, lambda: provision(cluster)) == 3, "launched, ready, and the Node is initialized"
    node = cluster.claim()["name"]
    assert told(cluster, "GPUNodePool") == [("Normal", "Launched"), ("Normal", "MachineReady")]
    assert told(cluster, "Node") == [("Normal", "Initialized")]
    found = next(one for one in cluster.kube("GET", EVENTS)["items"] if one["reason"] == "MachineReady")
    assert found["note"].startswith(f"{node}: lambda gpu_1x_") and "/h; after " in found["note"]
    assert found["related"]["name"] == node and found["regarding"]["uid"] == cluster.kube("GET", POOL)["metadata"]["uid"]
    initialized = next(one for one in cluster.kube("GET", EVENTS)["items"] if one["reason"] == "Initialized")
    assert initialized["regarding"]["uid"] == cluster.nodes()[node]["metadata"]["uid"]
    assert sent(cluster, lambda: cluster.reap(**THERE)) == 0, "nothing has changed"
    cluster.kube("PATCH", POOL, {"spec": {"replicas": 0}})
    cluster.advance(700)
    plan = cluster.plan("autoscale", **THERE)
    cluster.run("scale", plan["run_id"], names=plan["destroy"], **THERE)
    assert told(cluster, "Node", node)[1:] == [("Normal", "DisruptionTerminating")]
    assert told(cluster, "GPUNodePool")[2:] == [("Normal", "Terminated")]
    assert cluster.warnings == []


def test_pods_are_told_where_they_will_run_or_why_not(rig: Rig) -> None:
    ask(rig, "fits")
    ask(rig, "too-big", gpus=64)
    assert sent(rig, lambda: scale(rig)) == 2, "documents that are files have no events of pools"
    assert told(rig, "Pod", "fits") == [("Normal", "GpuNominated")]
    assert told(rig, "Pod", "too-big") == [("Warning", "GpuNotScaledUp")]
    assert sent(rig, lambda: scale(rig)) == 0, "told within 15 minutes"
    assert len(rig.state("events")) == 2
    rig.advance(901)
    assert sent(rig, lambda: scale(rig)) >= 1 and told(rig, "Pod", "too-big")[1:] == [("Warning", "GpuNotScaledUp")]


def test_without_the_memory_the_name_keeps_it_from_being_told_twice(rig: Rig) -> None:
    ask(rig, "too-big", gpus=64)
    rig.advance(901 - rig.clock.now().timestamp() % 900)  # the name is the same within a quarter of an hour of the clock
    assert sent(rig, lambda: scale(rig)) == 1
    rig.kube("DELETE", "/api/v1/namespaces/tgp-system/configmaps/tgp-state-events")
    assert sent(rig, lambda: scale(rig)) == 1, "it is asked to be written, and is there"
    assert told(rig, "Pod") == [("Warning", "GpuNotScaledUp")] and len(rig.state("events")) == 1
    assert [text for text in rig.warnings if "Events" in text] == []


def test_a_pool_says_why_it_is_not_ready_and_a_pause_once(cluster: Rig) -> None:  # noqa: F811
    cluster.kube("PATCH", POOL, {"spec": {"maxHourlyPrice": "0.01"}})
    cluster.reap("autoscale", **THERE)
    assert told(cluster, "GPUNodePool") == [("Warning", "InsufficientCapacity")]
    cluster.kube("PATCH", POOL, {"metadata": {"annotations": {"tgp.io/paused": "maintenance"}}})
    assert sent(cluster, lambda: cluster.reap("autoscale", **THERE)) == 1
    cluster.advance(901)
    assert sent(cluster, lambda: cluster.reap("autoscale", **THERE)) == 0, "it is as it should be"
    assert ("Normal", "Paused") in told(cluster, "GPUNodePool")


def test_a_refused_launch_is_told(cluster: Rig) -> None:  # noqa: F811
    cluster.kube("PATCH", POOL, {"spec": {"replicas": 1}})
    words = {"error": {"code": "global/invalid-parameters", "message": "words-of-the-service-0815"}}
    cluster.fault("status", "lambda", "POST", "/launch", status=400, body=words, times=None)
    provision(cluster)
    assert told(cluster, "GPUNodePool") == [("Warning", "LaunchFailed")]
    (event,) = cluster.kube("GET", EVENTS)["items"]
    assert "was answered 400 global/invalid-parameters" in event["note"]
    assert "words-of-the-service" not in event["note"], "as in every record, the sentence of the provider is not stored"


def test_check_mode_and_saved_plans_tell_nothing(cluster: Rig) -> None:  # noqa: F811
    cluster.kube("PATCH", POOL, {"spec": {"maxHourlyPrice": "0.01"}})
    for more in ({"check": True}, {"save_to": str(cluster.folder / "plan.json")}):
        assert sent(cluster, lambda more=more: cluster.plan("provision", **THERE, **more)) == 0
    assert sent(cluster, lambda: cluster.run("info", **THERE)) == 0


@pytest.mark.parametrize("status", [403, 500])
def test_what_cannot_be_written_is_one_warning_and_stops_nothing(rig: Rig, status: int) -> None:
    """Also the account of a cluster where files/rbac.yml was applied before there were events."""
    rules = [
        {"apiGroups": ["", "apps", "policy", "coordination.k8s.io", "tgp.io", "storage.k8s.io"], "resources": ["*"], "verbs": ["*"]}
    ]
    if status == 403:
        rig.kube("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "old"}, "rules": rules})
        subject = {"kind": "ServiceAccount", "namespace": "default", "name": "old"}
        bound = {"roleRef": {"kind": "ClusterRole", "name": "old"}, "subjects": [subject], "metadata": {"name": "old"}}
        rig.kube("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", bound)
        rig.api.add_token("token-of-the-account-0123456789", "system:serviceaccount:default:old")
        rig.api.write_kubeconfig(str(rig.kubeconfig), URLS["kubernetes"], "token-of-the-account-0123456789")
    else:
        rig.fault("status", "kubernetes", "POST", "/events.k8s.io/", status=500, times=None)
    for number in range(3):
        ask(rig, f"too-big-{number}", gpus=64)
    done = scale(rig)
    warnings = [text for text in rig.warnings if "Kubernetes Events" in text]
    assert len(warnings) == 1 and done["problems"] == [] and told(rig, "Pod") == []
    if status == 403:
        assert "create events.events.k8s.io in namespace default" in warnings[0]
