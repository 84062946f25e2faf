# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the emulator does in its own time: expiry, controllers, the scheduler, rights of made-up users."""

from __future__ import annotations

import json
import threading
import time
import typing as t

import httpx
import pytest

from sandbox.clock import SimClock
from sandbox.kube import KubeApi

from . import probes
from .probes import eventually, ok, refused

Json = dict[str, t.Any]


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def api(clock: SimClock) -> t.Iterator[KubeApi]:
    api = KubeApi(clock, seed=1, history=5).start()
    yield api
    api.stop()


def node(kube: httpx.Client, name: str, gpus: int = 0, labels: Json | None = None, taints: list[Json] | None = None) -> None:
    body = {"metadata": {"name": name, "labels": labels or {}}, "spec": {"taints": taints or []}}
    ok(kube.post("/api/v1/nodes", json=body), 201)
    capacity = {"cpu": "4", "memory": "16Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    status = {"capacity": capacity, "conditions": [{"type": "Ready", "status": "True"}]}
    ok(kube.patch(f"/api/v1/nodes/{name}/status", json={"status": status}, headers=probes.MERGE))


def gpu_pod(kube: httpx.Client, space: str, name: str, gpus: int = 1, **spec: t.Any) -> None:
    container = {"name": "main", "image": "x:1", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    probes.new_pod(kube, space, name, containers=[container], **spec)


def where(kube: httpx.Client, space: str, name: str) -> str | None:
    return t.cast("str | None", ok(kube.get(probes.pods(space, name)))["spec"].get("nodeName"))


def why_waiting(kube: httpx.Client, space: str, name: str) -> str:
    def look() -> str | None:
        conditions = ok(kube.get(probes.pods(space, name)))["status"].get("conditions") or []
        return next((entry["message"] for entry in conditions if entry.get("reason") == "Unschedulable"), None)

    return t.cast(str, eventually(look))


def test_scheduler_gives_gpus_while_there_are_some(kube: httpx.Client, space: str) -> None:
    node(kube, "gpu-1", 2)
    for name in ("a", "b", "c"):
        gpu_pod(kube, space, name)
    assert "1 Insufficient nvidia.com/gpu" in why_waiting(kube, space, "c")
    assert where(kube, space, "a") == where(kube, space, "b") == "gpu-1"
    node(kube, "gpu-2", 1)
    eventually(lambda: where(kube, space, "c") == "gpu-2")


def test_scheduler_minds_taints_selectors_and_affinity(kube: httpx.Client, space: str) -> None:
    taint = {"key": "tgp.io/ephemeral", "effect": "NoSchedule"}
    node(kube, "tainted", 1, {"tgp.io/gpu-memory": "81920"}, [taint])
    gpu_pod(kube, space, "plain")
    assert "untolerated taint" in why_waiting(kube, space, "plain")
    tolerations = [{"key": "tgp.io/ephemeral", "operator": "Exists"}]
    gpu_pod(kube, space, "picky", tolerations=tolerations, nodeSelector={"tgp.io/provider": "lambda"})
    assert "didn't match Pod's node affinity/selector" in why_waiting(kube, space, "picky")

    def affinity(operator: str, *values: str) -> Json:
        term = {"matchExpressions": [{"key": "tgp.io/gpu-memory", "operator": operator, "values": list(values)}]}
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}

    gpu_pod(kube, space, "big", tolerations=tolerations, affinity=affinity("Gt", "100000"))
    assert "node affinity" in why_waiting(kube, space, "big")
    gpu_pod(kube, space, "fits", tolerations=tolerations, affinity=affinity("In", "40960", "81920"))
    eventually(lambda: where(kube, space, "fits") == "tainted")


def test_watch_from_a_forgotten_revision_ends_with_410(kube: httpx.Client, space: str) -> None:
    start = ok(kube.get(probes.maps(space)))["metadata"]["resourceVersion"]
    for number in range(12):
        probes.new_map(kube, space, f"m{number}")
    found = probes.events(kube, probes.maps(space), {"resourceVersion": start, "timeoutSeconds": "1"})
    assert [event["type"] for event in found] == ["ERROR"]
    status = found[0]["object"]
    assert status["kind"] == "Status" and status["code"] == 410 and status["reason"] == "Expired"


def test_watch_ends_in_clock_time(kube: httpx.Client, clock: SimClock, space: str) -> None:
    threading.Timer(0.2, clock.advance, (600,)).start()
    begun = clock.seconds()
    assert probes.events(kube, probes.maps(space), {"resourceVersion": "0", "timeoutSeconds": "300"})
    assert clock.seconds() - begun >= 600, "it ends when the clock is moved, long before 300 s have passed for the client"


def test_page_asked_for_too_late_is_410(kube: httpx.Client, clock: SimClock, space: str) -> None:
    for number in range(4):
        probes.new_map(kube, space, f"m{number}")
    token = ok(kube.get(probes.maps(space), params={"limit": "2"}))["metadata"]["continue"]
    ok(kube.get(probes.maps(space), params={"limit": "2", "continue": token}))
    clock.advance(301)
    refused(kube.get(probes.maps(space), params={"limit": "2", "continue": token}), 410, "Expired")


def test_bootstrap_token_ends_with_the_clock_and_is_cleaned(kube: httpx.Client, clock: SimClock, space: str) -> None:
    token = probes.new_bootstrap_token(kube, space, seconds=600)
    headers = probes.as_token(kube, token)
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    ok(kube.get(path, headers=headers))
    clock.advance(601)
    refused(kube.get(path, headers=headers), 401, "Unauthorized")
    eventually(lambda: probes.gone(kube, f"/api/v1/namespaces/kube-system/secrets/bootstrap-token-{token[:6]}"))


def test_pods_of_a_lost_node_are_collected(kube: httpx.Client, clock: SimClock, space: str) -> None:
    node(kube, "gpu-1", 1)
    gpu_pod(kube, space, "one")
    eventually(lambda: where(kube, space, "one") == "gpu-1")
    ok(kube.delete("/api/v1/nodes/gpu-1"))
    time.sleep(0.3)
    ok(kube.get(probes.pods(space, "one")))
    clock.advance(41)
    eventually(lambda: probes.gone(kube, probes.pods(space, "one")))


def test_silent_node_becomes_unknown_and_a_busy_one_does_not(kube: httpx.Client, clock: SimClock, space: str) -> None:
    for name in ("silent", "busy"):
        node(kube, name)
        lease = {"metadata": {"name": name}, "spec": {"holderIdentity": name}}
        ok(kube.post("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", json=lease), 201)
    clock.advance(60)
    now = clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/busy"
    ok(kube.patch(path, json={"spec": {"renewTime": now}}, headers=probes.MERGE))

    def state(name: str) -> str:
        return t.cast(str, ok(kube.get(f"/api/v1/nodes/{name}"))["status"]["conditions"][0]["status"])

    eventually(lambda: state("silent") == "Unknown")
    assert state("busy") == "True"
    taints = {taint["key"] for taint in ok(kube.get("/api/v1/nodes/silent"))["spec"]["taints"]}
    assert taints == {"node.kubernetes.io/unreachable"}


def test_no_execute_taint_empties_the_node(kube: httpx.Client, clock: SimClock, space: str) -> None:
    node(kube, "gpu-1", 3)
    gpu_pod(kube, space, "goes")
    gpu_pod(kube, space, "stays", tolerations=[{"operator": "Exists"}])
    gpu_pod(kube, space, "lingers", tolerations=[{"key": "tgp.io/gone", "operator": "Exists", "tolerationSeconds": 60}])
    eventually(lambda: all(where(kube, space, name) for name in ("goes", "stays", "lingers")))
    taints = [{"key": "tgp.io/gone", "effect": "NoExecute"}]
    ok(kube.patch("/api/v1/nodes/gpu-1", json={"spec": {"taints": taints}}, headers=probes.MERGE))

    def leaving(name: str) -> bool:
        return "deletionTimestamp" in ok(kube.get(probes.pods(space, name)))["metadata"]

    eventually(lambda: leaving("goes"))
    assert not leaving("stays") and not leaving("lingers")
    clock.advance(61)
    eventually(lambda: leaving("lingers"))
    assert not leaving("stays")


def test_token_with_few_rights(api: KubeApi, kube: httpx.Client, space: str) -> None:
    token = "a-token-with-few-rights-0123456789"
    api.add_token(token, "jane", ["viewers"], [("get", "", "nodes"), ("list", "", "nodes"), ("create", "", "pods/eviction")])
    headers = probes.as_token(kube, token)
    ok(kube.get("/api/v1/nodes", headers=headers))
    body = refused(kube.delete("/api/v1/nodes/x", headers=headers), 403, "Forbidden")
    assert (
        body["message"] == 'nodes "x" is forbidden: User "jane" cannot delete resource "nodes" in API group "" at the cluster scope'
    )
    assert body["details"] == {"name": "x", "kind": "nodes"}
    refused(kube.get("/api/v1/nodes", params={"watch": "true"}, headers=headers), 403, "Forbidden")
    refused(kube.post(f"{probes.pods(space, 'none')}/eviction", json={}, headers=headers), 404, "NotFound")
    review = probes._review
    assert review(kube, headers, verb="create", resource="pods", subresource="eviction")
    assert review(kube, headers, verb="get", resource="nodes") and not review(kube, headers, verb="patch", resource="nodes")


def test_seed_and_cluster_uid() -> None:
    uid = "a1b2c3d4-0000-4000-8000-000000000000"
    one, other = KubeApi(seed=7, cluster_uid=uid), KubeApi(seed=7, cluster_uid=uid)
    for api in (one, other):
        assert api.request("GET", "/api/v1/namespaces/kube-system")[1]["metadata"]["uid"] == uid
    uids = [api.request("GET", "/api/v1/namespaces/default")[1]["metadata"]["uid"] for api in (one, other)]
    assert uids[0] == uids[1]
    assert one.admin_token == other.admin_token
    assert one.request("GET", "/api/v1/namespaces/tgp-system")[0] == 404


def test_apply_of_lists_by_key(kube: httpx.Client) -> None:
    """Two managers own different conditions of one node; each may take only its own away."""
    probes.new_node(kube, "n")

    def put(manager: str, *types: str) -> list[str]:
        conditions = [{"type": kind, "status": "True"} for kind in types]
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"conditions": conditions}}
        response = kube.patch(
            "/api/v1/nodes/n/status", params={"fieldManager": manager}, content=json.dumps(body), headers=probes.APPLY
        )
        return [entry["type"] for entry in ok(response)["status"]["conditions"]]

    assert put("a", "A") == ["A"]
    assert put("b", "B", "C") == ["A", "B", "C"]
    assert put("b", "C") == ["A", "C"]
