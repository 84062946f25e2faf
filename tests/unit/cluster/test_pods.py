# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods and nodes out of raw JSON: effective requests, odd fields, and what ten thousand pods cost."""

from __future__ import annotations

import json
import time
import typing as t

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import BadShape
from ansible_collections.tgp.gpu.plugins.module_utils.core.http import Api
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.kube.nodes import merged_taints
from ansible_collections.tgp.gpu.plugins.module_utils.kube.nodes import parse as parse_node
from ansible_collections.tgp.gpu.plugins.module_utils.kube.pods import effective_requests, is_gpu, pods, reducer
from ansible_collections.tgp.gpu.plugins.module_utils.model import Taint
from ansible_collections.tgp.gpu.plugins.module_utils.units.values import whole

GPU = "nvidia.com/gpu"


def kube(answer: t.Callable[[httpx.Request], httpx.Response] | None = None) -> Kube:
    handler = answer or (lambda request: httpx.Response(500))
    return Kube(Api("kubernetes", "http://kube.test", transport=httpx.MockTransport(handler)))


def box(request: int = 0, limit: int = 0, **more: t.Any) -> dict[str, t.Any]:
    resources = {"requests": {GPU: str(request)} if request else {}, "limits": {GPU: str(limit)} if limit else {}}
    return {"name": "x", "resources": resources, **more}


def gpus(spec: dict[str, t.Any]) -> int:
    return effective_requests(spec, is_gpu).get(GPU, 0)


def test_L17_effective_request_worked_numbers() -> None:
    assert gpus({"containers": [box(1), box(1)], "initContainers": [box(4)]}) == 4
    assert gpus({"containers": [box(1)], "initContainers": [box(1, restartPolicy="Always"), box(1)]}) == 2
    assert gpus({"containers": [box(2)], "initContainers": [box(1)]}) == 2
    assert gpus({"containers": [box(limit=1)]}) == 1
    assert gpus({"containers": [{"name": "x", "resources": {"requests": {"cpu": "2"}}}]}) == 0
    assert gpus({"containers": [{"name": "x"}]}) == 0


def test_L17_a_sidecar_counts_only_for_init_containers_after_it() -> None:
    before = {"containers": [box(1)], "initContainers": [box(2), box(3, restartPolicy="Always")]}
    after = {"containers": [box(1)], "initContainers": [box(3, restartPolicy="Always"), box(2)]}
    assert gpus(before) == 4 and gpus(after) == 5


def test_L17_what_a_pod_asks_for_as_a_whole_is_what_the_scheduler_reserves() -> None:
    """Pod-level resources: cpu and memory only; GPUs stay the containers'."""
    one = {"resources": {"requests": {"cpu": "2", "memory": "1Gi", GPU: "1"}}}
    whole_pod = {"resources": {"requests": {"cpu": "16"}, "limits": {"cpu": "32", "memory": "64Gi"}}, "overhead": {"cpu": "50m"}}
    spec = {"containers": [one, one], "initContainers": [{"resources": {"requests": {"cpu": "20"}}}], **whole_pod}
    assert effective_requests(spec, lambda name: True) == {"cpu": 16050, "memory": 64 << 30, GPU: 2}
    assert effective_requests(spec, is_gpu) == {GPU: 2}


def test_all_resources_on_demand() -> None:
    spec = {"containers": [{"resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}}], "overhead": {"cpu": "50m"}}
    assert effective_requests(spec, lambda name: True) == {"cpu": 300, "memory": 1 << 30}


@pytest.mark.parametrize(
    "text, resource, number",
    [
        ("2", GPU, 2),
        ("1k", GPU, 1000),
        ("16Gi", "memory", 16 << 30),
        ("1.5", "cpu", 1500),
        ("100m", "cpu", 100),
        ("1e3", "memory", 1000),
        ("100m", "memory", 1),
        ("12E", "memory", 12 * 10**18),
        ("1n", "cpu", 1),
    ],
)
def test_quantities(text: str, resource: str, number: int) -> None:
    assert whole(text, resource) == number


@pytest.mark.parametrize("text", ["", "2x", "Gi", "1 Gi", "0x10"])
def test_odd_quantities_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        whole(text)


def raw_pod(number: int = 0, **status: t.Any) -> dict[str, t.Any]:
    filler = {f"example.com/note-{index}": "x" * 60 for index in range(8)}
    return {
        "metadata": {
            "name": f"pod-{number}",
            "namespace": f"ns-{number % 50}",
            "uid": f"00000000-0000-0000-0000-{number:012d}",
            "creationTimestamp": "2026-08-20T12:00:00Z",
            "labels": {"app": "web", "pod-template-hash": "abc123"},
            "annotations": {**filler, "karpenter.sh/do-not-disrupt": "true"},
            "ownerReferences": [{"kind": "ReplicaSet", "apiVersion": "apps/v1", "name": "web", "uid": "u", "controller": True}],
            "managedFields": [{"manager": "kubelet", "fieldsV1": {f"f:{index}": {"f:x": {}} for index in range(40)}}],
        },
        "spec": {
            "nodeName": f"node-{number % 1000}",
            "containers": [{"name": "c", "image": "registry.example/web:1", "resources": {"limits": {GPU: "1", "cpu": "2"}}}],
            "volumes": [{"name": "cache", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 0,
        },
        "status": {"phase": "Running", "startTime": "2026-08-20T12:00:05Z", **status},
    }


def test_a_pod_is_reduced_to_what_rules_read() -> None:
    pod = reducer(kube())(raw_pod(7))
    assert (pod.namespace, pod.name, pod.node) == ("ns-7", "pod-7", "node-7")
    assert (pod.owner_kind, pod.owner_api, pod.mirror) == ("ReplicaSet", "apps/v1", False)
    assert pod.requests == {GPU: 1} and pod.empty_dir and pod.grace_seconds == 0
    assert dict(pod.annotations) == {"karpenter.sh/do-not-disrupt": "true"}


@pytest.mark.parametrize(
    ("volumes", "may_go", "keeps"),
    [
        ([], "", False),
        ([{"name": "a", "emptyDir": {}}], "", True),
        ([{"name": "a", "emptyDir": None}], "", True),
        ([{"name": "a", "emptyDir": {"medium": "Memory"}}], "", False),
        ([{"name": "a", "hostPath": {"path": "/data"}}], "", True),
        ([{"name": "a", "configMap": {"name": "x"}}], "", False),
        ([{"name": "a", "emptyDir": {}}], "b", True),
        ([{"name": "a", "emptyDir": {}}], "b, a", False),
        ([{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {"path": "/"}}], "a", True),
    ],
)
def test_L07_local_data_and_the_volumes_that_may_go(volumes: list[dict[str, t.Any]], may_go: str, keeps: bool) -> None:
    raw = raw_pod()
    raw["spec"]["volumes"] = volumes
    raw["metadata"].setdefault("annotations", {})["cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"] = may_go
    assert reducer(kube())(raw).empty_dir is keeps


def test_ends_and_waiting_reasons() -> None:
    ends = [{"state": {"terminated": {"finishedAt": f"2026-08-20T12:2{minute}:40Z"}}} for minute in (1, 0)]
    pod = reducer(kube())(raw_pod(phase="Succeeded", containerStatuses=ends))
    assert pod.finished is not None and pod.finished.minute == 21 and pod.waiting == ""
    stuck = reducer(kube())(raw_pod(phase="Pending", containerStatuses=[{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]))
    assert stuck.waiting == "ImagePullBackOff" and stuck.finished is None
    gated = raw_pod(phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}])
    assert reducer(kube())(gated).waiting == "SchedulingGated"


@pytest.mark.parametrize(
    "damage",
    [
        lambda pod: pod["metadata"].pop("uid"),
        lambda pod: pod.pop("spec"),
        lambda pod: pod["spec"].update(containers="none"),
        lambda pod: pod["metadata"].update(creationTimestamp="yesterday"),
        lambda pod: pod["spec"]["containers"][0]["resources"]["limits"].update({GPU: "many"}),
    ],
)
def test_an_odd_pod_is_an_error_not_a_missing_pod(damage: t.Callable[[dict], t.Any]) -> None:
    raw = raw_pod()
    damage(raw)
    with pytest.raises(BadShape, match="pod-0"):
        reducer(kube())(raw)


def test_ten_thousand_pods_cost_little_processor_time() -> None:
    text = json.dumps([raw_pod(number) for number in range(10_000)])
    raw = json.loads(text)
    reduce = reducer(kube())
    begun = time.process_time()
    records = [reduce(one) for one in raw]
    print(f"10,000 pods: {time.process_time() - begun:.2f} s of CPU after decoding")
    assert len(records) == 10_000


def answer_pages(request: httpx.Request) -> httpx.Response:
    """Three pages; the second is refused once with 410."""
    token = request.url.params.get("continue")
    seen.append(token)
    if token == "1" and seen.count("1") == 1:
        return httpx.Response(410, json={"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    page = int(token or 0)
    metadata = {"resourceVersion": "9", **({"continue": str(page + 1)} if page < 2 else {})}
    return httpx.Response(200, json={"kind": "PodList", "metadata": metadata, "items": [raw_pod(page)]})


seen: list[str | None] = []


def test_a_forgotten_snapshot_begins_the_list_anew() -> None:
    seen.clear()
    assert [pod.name for pod in pods(kube(answer_pages))] == ["pod-0", "pod-1", "pod-2"]
    assert seen == [None, "1", None, "1", "2"]
    seen.clear()
    assert [raw["metadata"]["name"] for raw in kube(answer_pages).pages("/api/v1/pods")] == ["pod-0", "pod-1", "pod-2"]


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "PodList", "metadata": {}, "items": None},
        {"kind": "PodList", "metadata": {}},
        {"kind": "PodList", "items": []},
        {"kind": "Status", "status": "Success"},
        {"kind": "Pod", "metadata": {}, "items": []},
        {"metadata": {}, "items": []},
        {"kind": "PodList", "metadata": {}, "items": [None]},
        {"kind": "PodList", "metadata": {}, "items": [{"spec": {}}]},
        [],
        "maintenance",
    ],
)
def test_an_odd_list_is_never_an_empty_one(body: t.Any) -> None:
    with pytest.raises(BadShape):
        pods(kube(lambda request: httpx.Response(200, json=body)))


def test_a_node_is_read_and_an_odd_one_refused() -> None:
    raw = {
        "metadata": {"name": "n", "uid": "u", "creationTimestamp": "2026-08-20T12:00:00Z", "resourceVersion": "5"},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]},
        "status": {
            "conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}],
            "allocatable": {"cpu": "7900m", "memory": "1Ki", GPU: "2"},
        },
    }
    node = parse_node(kube(), raw)
    assert node.ready is None and node.ready_message == "NodeStatusUnknown" and node.taints == (Taint("a", "", "NoSchedule"),)
    assert node.allocatable == {"cpu": 7900, "memory": 1024, GPU: 2}
    del raw["metadata"]["uid"]
    with pytest.raises(BadShape, match="the Node n has an odd field"):
        parse_node(kube(), raw)


def test_foreign_taints_keep_their_place() -> None:
    have = [{"key": "a", "effect": "NoSchedule"}, {"key": "tgp.io/x", "value": "1", "effect": "NoSchedule"}]
    added = merged_taints(have, [Taint("tgp.io/x", "2", "NoSchedule"), Taint("tgp.io/y", "", "NoExecute")], [])
    assert added == [have[0], {"key": "tgp.io/x", "value": "2", "effect": "NoSchedule"}, {"key": "tgp.io/y", "effect": "NoExecute"}]
    assert merged_taints(have, [], ["tgp.io/x"]) == [have[0]]
