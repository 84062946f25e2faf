# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Four test pods that share the GPUs of one node, and are removed in any case (S4-13, S3-27).

Two ask the device plugin for a GPU (path CDI), two only the runtime nvidia (path wrapper). Each ends by itself after its time
(``activeDeadlineSeconds``), whatever becomes of this process; what a killed run left is removed by the next one.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from ..core.clock import Clock, from_text
from ..core.errors import TgpError
from ..core.redact import redact_foreign
from ..core.task import like_an_interrupt, undisturbed
from ..diagnosis.evidence.node import events_of_pod, waiting_of
from ..diagnosis.gpus.facts import ClusterGpus, GpuTestRun
from ..kube.client import Json, Kube
from ..kube.pods import pod_path
from ..model import Node
from ..model.labels import GPU_TEST_LABEL, HOSTNAME_LABEL
from ..model.resources import NVIDIA_GPU
from ..planner.provisioning.acceptance import VECTORADD

SMI_IMAGE = "nvcr.io/nvidia/cuda:12.8.1-base-ubuntu22.04"
SMI = "nvidia-smi"
PATHS = ("CDI", "CDI", "wrapper", "wrapper")
_PASSED = "Test PASSED"
_SMI_WORKS = "NVIDIA-SMI"
_EVERY = 2.0  # seconds between two looks
_OVER = ("Succeeded", "Failed")


def node_to_test(cluster: ClusterGpus) -> Node | None:
    """The node with the most free GPUs of those that were asked about; None when none shows any."""
    ready = [one.node for one in cluster.nodes if one.shown and one.node.ready]
    return max(ready, key=lambda node: (_free(node, cluster), node.name), default=None)


def _free(node: Node, cluster: ClusterGpus) -> int:
    return node.allocatable.get(NVIDIA_GPU, 0) - cluster.used.get(node.name, {}).get(NVIDIA_GPU, 0)


def run_tests(
    kube: Kube, clock: Clock, namespace: str, node: Node, run_id: str, seconds: int, *, smi: bool = False
) -> tuple[GpuTestRun, ...]:
    """What became of each pod within ``seconds``. A pod that could not be created or read is one that failed, with the reason.
    ``smi``: a fifth one runs nvidia-smi."""
    paths = (*PATHS, SMI) if smi else PATHS
    _remove_leftovers(kube, namespace, clock.now())
    names = [f"tgp-gpu-test-{run_id[-8:].lower()}-{number}" for number in range(1, len(paths) + 1)]
    refused: dict[str, str] = {}
    with like_an_interrupt():
        try:
            for name, path in zip(names, paths, strict=True):
                try:
                    kube.create(f"/api/v1/namespaces/{namespace}/pods", pod_body(name, path, node, run_id, seconds))
                except TgpError as error:
                    refused[name] = f"it could not be created: {str(error)[:300]}"
            found = _followed(kube, clock, namespace, set(names) - set(refused), run_id, seconds)
            return tuple(
                GpuTestRun(name, path, *_outcome(kube, namespace, found.get(name), refused.get(name, ""), path), node=node.name)
                for name, path in zip(names, paths, strict=True)
            )
        finally:
            with undisturbed():
                for name in names:
                    _removed(kube, namespace, name)


def pod_body(name: str, path: str, node: Node, run_id: str, seconds: int) -> Json:
    """A pod that adds two vectors on a GPU, or shows what nvidia-smi says. It gets no token and no capability."""
    limits = {NVIDIA_GPU: "1"} if path == "CDI" else {}
    environment = [] if path == "CDI" else [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
    container = {
        "name": "vectoradd",
        "image": SMI_IMAGE if path == SMI else VECTORADD,
        **({"command": [SMI]} if path == SMI else {}),
        "env": environment,
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "1Gi", **limits}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "restartPolicy": "Never",
        "runtimeClassName": "nvidia",
        "activeDeadlineSeconds": seconds,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "nodeSelector": {HOSTNAME_LABEL: node.labels.get(HOSTNAME_LABEL, node.name)},
        "tolerations": [{"operator": "Exists"}],
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {GPU_TEST_LABEL: run_id}}, "spec": spec}


def _followed(kube: Kube, clock: Clock, namespace: str, names: set[str], run_id: str, seconds: int) -> dict[str, Json]:
    """The pods as they were last seen: when all have ended, or their time is over."""
    until = clock.now() + timedelta(seconds=seconds)
    found: dict[str, Json] = {}
    while names:
        listed = kube.list(f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": f"{GPU_TEST_LABEL}={run_id}"})
        found = {str(pod["metadata"]["name"]): pod for pod in listed}
        ended = {name for name, pod in found.items() if (pod.get("status") or {}).get("phase") in _OVER}
        if names <= ended or clock.now() >= until:
            break
        clock.sleep(_EVERY)
    return found


def _outcome(kube: Kube, namespace: str, pod: Json | None, refused: str, path: str) -> tuple[bool, str]:
    """Whether it passed, and what was seen."""
    if pod is None:
        return False, refused or "it is gone: another client deleted it"
    name, status = pod["metadata"]["name"], pod.get("status") or {}
    try:
        if status.get("phase") not in _OVER:
            return False, f"it did not end in time: {why_pod_waits(kube, namespace, pod)}"
        if status.get("reason"):
            return False, redact_foreign(f"{status['reason']}: {status.get('message') or ''}")[:300]
        text = kube.call("GET", f"{pod_path(namespace, name)}/log", params={"tailLines": "20"}).text
    except TgpError as error:
        return False, f"what it printed could not be read: {str(error)[:200]}"
    wanted = _SMI_WORKS if path == SMI else _PASSED
    if status["phase"] == "Succeeded" and wanted in text:
        return True, next(line.strip() for line in text.splitlines() if wanted in line)
    lines = [line.strip() for line in redact_foreign(text).splitlines() if line.strip()]
    return False, f"it printed: {lines[-1][:200]}" if lines else "it printed nothing"


def why_pod_waits(kube: Kube, namespace: str, pod: Json) -> str:
    """What a pod waits for, in the words of kubelet, scheduler or its newest Event; without anything that may be a secret."""
    status = pod.get("status") or {}
    containers = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    waiting = next((words for one in containers if (words := waiting_of(one))), "")
    unscheduled = next((str(one.get("message")) for one in status.get("conditions") or () if one.get("status") == "False"), "")
    events = events_of_pod(kube, namespace, pod["metadata"]["name"])
    newest = str(events[0]) if events else ""
    return redact_foreign(waiting or unscheduled or newest or str(status.get("phase") or "Pending"))[:300]


def _remove_leftovers(kube: Kube, namespace: str, now: datetime) -> None:
    """Test pods whose time is over are of runs that were killed; those of a run at the same time stay."""
    try:
        listed = kube.list(f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": GPU_TEST_LABEL})
    except TgpError:
        return  # to create the pods says why
    for pod in listed:
        lasts = timedelta(seconds=int(pod["spec"].get("activeDeadlineSeconds") or 0))
        if from_text(pod["metadata"]["creationTimestamp"]) + lasts <= now:
            _removed(kube, namespace, pod["metadata"]["name"])


def _removed(kube: Kube, namespace: str, name: str) -> None:
    """It ends by itself and the next run removes it if this fails; nothing is to hide what was found."""
    try:
        kube.delete(pod_path(namespace, name), grace=0)
    except TgpError:
        return
