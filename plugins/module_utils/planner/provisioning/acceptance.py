# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The acceptance test of a new node (L-35): which pod tests it, and what the state of that pod says of its GPUs."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

from ...model import AcceptanceTest, Claim, ContainerState, Node, Pool, PrePull, TrialPod
from ...model.labels import (
    ACCEPTANCE_LABEL,
    ACCEPTANCE_TEST_ANNOTATION,
    CLUSTER_API_DRAIN_LABEL,
    CLUSTER_LABEL,
    MANAGED_BY_LABEL,
    SCALE_UP_ANNOTATION,
)
from ...model.names import label_value
from ...units.values import print_duration, print_time
from ..scheduling.capacity import gpu_resource, planned_resources
from .registration import allocatable_gpus, asked_test

VECTORADD = "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0"
HUNG_SHARE: t.Final = Decimal("0.8")  # of its timeout that a container has to run without an end to count as hung
LATE: t.Final = 60  # seconds after its timeout at which a pod that the kubelet has not ended is given up
_NOT_BY_ITSELF = frozenset({126, 127, 137, 143})  # not executable, not found, killed, asked to end: none of them speaks of a GPU
PULL_FAULTS = ("ErrImage", "ImagePull", "InvalidImageName", "RegistryUnavailable", "ImageInspectError")


class TrialOutcome(enum.Enum):
    """What is to be done: ``START`` a pod, ``WAIT`` for it, take the node (``PASSED``), give the machine up (``FAILED``), or remove the pod and
    try ``AGAIN``, because it says nothing of the GPUs."""

    START = "start"
    WAIT = "wait"
    PASSED = "passed"
    FAILED = "failed"
    AGAIN = "again"


@dataclasses.dataclass(frozen=True, slots=True)
class TrialVerdict:
    """``container``: whose log shows it, empty = none's."""

    outcome: TrialOutcome
    why: str = ""
    container: str = ""


def described(pool: Pool, model: str) -> str:
    """For the lines of a plan; empty without a test."""
    test = asked_test(pool, model)
    return "" if test is None else f"acceptance: {test.name}, up to {test.timeout} s"


def fingerprint(claim: Claim, test: AcceptanceTest | PrePull) -> str:
    """Tells the pod of this test (or these images) and launch from that of another: an own machine keeps its name, and a document may be
    corrected."""
    launched = print_time(claim.launched)
    return hashlib.sha256(json.dumps([dataclasses.astuple(test), launched]).encode()).hexdigest()[:16]


def pod_name(claim: Claim) -> str:
    """One name for each claim, so that a pod is found again and never made twice."""
    return f"{claim.name}-acceptance"


def assess(pod: TrialPod | None, wanted: str, test: AcceptanceTest, now: datetime) -> TrialVerdict:
    """What the pod says. ``wanted`` is the fingerprint. Only a program that ended by itself with an error, or that ran on without an end, fails
    a node; everything else is unknown."""
    if pod is None:
        return TrialVerdict(TrialOutcome.START)
    if pod.deleting:
        return TrialVerdict(TrialOutcome.WAIT, "the pod of an earlier try is being removed")
    if pod.fingerprint != wanted:
        return TrialVerdict(TrialOutcome.AGAIN, "the pod is that of another test or launch")
    if pod.phase == "Succeeded":
        return TrialVerdict(TrialOutcome.PASSED)
    if pod.phase == "Failed":
        return _ended_badly(pod, test)
    if now >= pod.created + timedelta(seconds=test.timeout + LATE):
        return TrialVerdict(TrialOutcome.AGAIN, f"no end came within {print_duration(test.timeout)}: {_progress(pod, test)}")
    return TrialVerdict(TrialOutcome.WAIT, _progress(pod, test))


def _ended_badly(pod: TrialPod, test: AcceptanceTest) -> TrialVerdict:
    if pod.reason == "DeadlineExceeded":
        longest = max(pod.containers, key=_ran, default=None)
        if longest is not None and _ran(longest) >= float(HUNG_SHARE * test.timeout):
            return TrialVerdict(
                TrialOutcome.FAILED, f"container {longest.name} ran for {_ran(longest):.0f} s without an end", longest.name
            )
        return TrialVerdict(TrialOutcome.AGAIN, f"no end came within {print_duration(test.timeout)}: {_progress(pod, test)}")
    if pod.reason:  # it was ended from outside: by the kubelet at its admission, an eviction, a shutdown
        return TrialVerdict(TrialOutcome.AGAIN, f"the pod was ended ({pod.reason}: {pod.message})".replace(": )", ")"))
    for container in pod.containers:
        if container.reason == "Error" and container.exit_code not in (None, 0) and container.exit_code not in _NOT_BY_ITSELF:
            return TrialVerdict(
                TrialOutcome.FAILED, f"container {container.name} ended with exit status {container.exit_code}", container.name
            )
    return TrialVerdict(TrialOutcome.AGAIN, _progress(pod, test))


def _ran(container: ContainerState) -> float:
    if container.started is None or container.finished is None:
        return 0.0
    return (container.finished - container.started).total_seconds()


def _progress(pod: TrialPod, test: AcceptanceTest) -> str:
    """How far it is, and why not further; a problem of the image is named as one."""
    if pod.reason == "Unschedulable":
        return f"the pod is not scheduled: {pod.message}"
    for container in pod.containers:
        detail = f"{container.reason}: {container.message}".rstrip(": ")
        if container.exit_code is None and container.started is None and container.reason.startswith(PULL_FAULTS):
            return f"the image {test.image or VECTORADD} cannot be pulled ({detail})"
        if container.exit_code not in (None, 0):
            return f"container {container.name} ended with exit status {container.exit_code} ({detail})"
    waiting = next((one.reason for one in pod.containers if one.started is None and one.reason), "")
    return f"the pod is {pod.phase}{f' ({waiting})' if waiting else ''}"


def pod(claim: Claim, node: Node, pool: Pool, test: AcceptanceTest, namespace: str, cluster_id: str) -> dict[str, t.Any]:
    """The pod that tests the node. It tolerates our own startup taint, too."""
    containers = [
        _container(number, amount, resource, test) for number, (resource, amount) in enumerate(_shares(claim, node, pool, test))
    ]
    mark = {ACCEPTANCE_TEST_ANNOTATION: fingerprint(claim, test)}
    made = pod_on(node, claim, pod_name(claim), namespace, cluster_id, ACCEPTANCE_LABEL, mark, test.timeout, containers)
    if test.runtime_class:
        made["spec"]["runtimeClassName"] = test.runtime_class
    return made


def pod_on(
    node: Node,
    claim: Claim,
    name: str,
    namespace: str,
    cluster_id: str,
    label: str,
    mark: t.Mapping[str, str],
    timeout: int,
    containers: t.Sequence[t.Mapping[str, t.Any]],
) -> dict[str, t.Any]:
    """A pod of ours on a new node. The scheduler places it, so that it waits while others hold the GPUs; one with ``nodeName`` would be
    refused by the kubelet. It tolerates everything. Kubernetes removes it with its Node at the latest."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {
                MANAGED_BY_LABEL: "tgp.gpu",
                CLUSTER_LABEL: cluster_id,
                label: label_value(claim.name),
                CLUSTER_API_DRAIN_LABEL: "skip",  # no drain waits for it
            },
            "annotations": {**mark, SCALE_UP_ANNOTATION: "false"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}],
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": timeout,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.name]}]}]
                    }
                }
            },
            "containers": list(containers),
        },
    }


def _shares(claim: Claim, node: Node, pool: Pool, test: AcceptanceTest) -> tuple[tuple[str, int], ...]:
    """Resource and amount of each container. vectorAdd uses the first GPU that it sees, so each gets a container of its own. So does each
    slice of shared GPUs: a request for two may be met by one card, and only all slices together are sure to meet every card. An own image
    gets whole GPUs at once, so that it can test what connects them. A program sees one MIG instance at most, so each of these gets a
    container, too."""
    resource = gpu_resource(claim.offer.model, pool)
    if pool.mig:
        planned = planned_resources(claim.offer, pool)
        instances = tuple(
            (name, 1) for name in sorted(planned) for _one in range(min(planned[name], node.allocatable.get(name, 0)))
        )
        instances = instances or ((min(planned), 1),)
        return instances[:1] if test.gpus == "one" else instances
    if test.gpus == "one":
        return ((resource, 1),)
    number = max(1, min(claim.expected_gpus, allocatable_gpus(claim, node, pool)))
    return ((resource, 1),) * number if not test.image or pool.slices > 1 else ((resource, number),)


def _container(number: int, gpus: int, resource: str, test: AcceptanceTest) -> dict[str, t.Any]:
    return {
        "name": f"gpu-{number}",
        "image": test.image or VECTORADD,
        **({"command": list(test.command)} if test.command else {}),
        "resources": {"limits": {resource: str(gpus)}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
