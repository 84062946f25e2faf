# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Images that a new node pulls before pods come (L-43): which pod makes the kubelet pull them, and what its state says. Nothing here fails a
node: what is not pulled is a warning."""

from __future__ import annotations

import dataclasses
import enum
import typing as t
from datetime import datetime, timedelta

from ...model import Claim, ContainerState, Node, Pool, PrePull, TrialPod
from ...model.labels import PRE_PULL_IMAGES_ANNOTATION, PRE_PULL_LABEL
from .acceptance import LATE, PULL_FAULTS, fingerprint, pod_on
from .registration import was_in_use

NO_PROGRAM = "/tgp.io/no-program"
"""What the containers are to start: no image has it, so each ends as soon as its image is there."""
_CREATES = ("CreateContainer", "RunContainer", "StartError", "CrashLoopBackOff", "Completed", "Error", "ContainerCannotRun")
"""Reasons of a container whose image is there: the kubelet went on to make or start it."""


class PullOutcome(enum.Enum):
    """What is to be done: ``START`` a pod, ``WAIT`` for it, remove it and try ``AGAIN``, or take the node (``DONE``)."""

    START = "start"
    WAIT = "wait"
    AGAIN = "again"
    DONE = "done"


@dataclasses.dataclass(frozen=True, slots=True)
class PullVerdict:
    """``lacks``: a sentence for each image that is not there. ``pulled``: how many are."""

    outcome: PullOutcome
    lacks: tuple[str, ...] = ()
    pulled: int = 0


def described(pool: Pool) -> str:
    """For the lines of a plan; empty without images."""
    pull = pool.pre_pull
    return "" if pull is None else f"pulls {counted(pull)} first, up to {pull.timeout} s"


def counted(pull: PrePull) -> str:
    """How many images, in words."""
    return f"{len(pull.images)} image{'s' if len(pull.images) > 1 else ''}"


def wanted(claim: Claim, pool: Pool | None, node: Node) -> PrePull | None:
    """The images that the node still has to pull; None = there are none, or it is in use, so that its pods have pulled what they need."""
    return None if was_in_use(claim, node) or claim.initialized is not None or pool is None else pool.pre_pull


def pod_name(claim: Claim) -> str:
    """One name for each claim, so that a pod is found again and never made twice."""
    return f"{claim.name}-pre-pull"


def pod(claim: Claim, node: Node, pull: PrePull, namespace: str, cluster_id: str) -> dict[str, t.Any]:
    """The pod whose containers name the images. It asks for no resources, so it fits on every node."""
    containers = [
        {
            "name": f"image-{number}",
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": [NO_PROGRAM],
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
        for number, image in enumerate(pull.images)
    ]
    mark = {PRE_PULL_IMAGES_ANNOTATION: fingerprint(claim, pull)}
    made = pod_on(node, claim, pod_name(claim), namespace, cluster_id, PRE_PULL_LABEL, mark, pull.timeout, containers)
    if pull.secrets:
        made["spec"]["imagePullSecrets"] = [{"name": name} for name in pull.secrets]
    return made


def assess(pod: TrialPod | None, mark: str, pull: PrePull, now: datetime, until: datetime) -> PullVerdict:
    """What the pod says. ``mark`` is the fingerprint; from ``until`` on the node is taken whatever is missing."""
    over = now >= until
    lacks = tuple(f"{image} (there was no time to pull it)" for image in pull.images)
    if pod is not None and pod.fingerprint == mark and not pod.deleting:
        states = dict(zip(pull.images, _states(pod, pull), strict=True))
        pulled = sum(_is_there(state) for state in states.values())
        waiting = [image for image, state in states.items() if not _is_there(state) and not _has_failed(state)]
        lacks = tuple(f"{image} ({_why(pod, state)})" for image, state in states.items() if not _is_there(state))
        ended = pod.phase in ("Failed", "Succeeded")
        if not waiting or ended or over or now >= pod.created + timedelta(seconds=pull.timeout + LATE):
            return PullVerdict(PullOutcome.DONE, lacks, pulled)
        return PullVerdict(PullOutcome.WAIT, lacks, pulled)
    if over:
        return PullVerdict(PullOutcome.DONE, lacks)
    if pod is None:
        return PullVerdict(PullOutcome.START, lacks)
    return PullVerdict(PullOutcome.WAIT if pod.deleting else PullOutcome.AGAIN, lacks)


def _states(pod: TrialPod, pull: PrePull) -> list[ContainerState | None]:
    """Of each image, None = the kubelet has not begun with it."""
    by_name = {container.name: container for container in pod.containers}
    return [by_name.get(f"image-{number}") for number in range(len(pull.images))]


def _is_there(state: ContainerState | None) -> bool:
    return state is not None and (state.pulled or state.started is not None or state.reason.startswith(_CREATES))


def _has_failed(state: ContainerState | None) -> bool:
    return state is not None and state.reason.startswith(PULL_FAULTS)


def _why(pod: TrialPod, state: ContainerState | None) -> str:
    """Why the image is not there, in the kubelet's words where it has any."""
    if state is not None and _has_failed(state):
        return f"{state.reason}: {state.message}".rstrip(": ")
    return f"{pod.reason}: {pod.message}".strip(": ") or "the pull has not ended"
