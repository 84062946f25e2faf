# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that have to run at once (L-39): which belong together, and how many of a gang need a place before any of them is of use."""

from __future__ import annotations

import collections
import dataclasses
import typing as t

from ...model import Pod
from ...model.labels import (
    CONSUMES_REQUEST_ANNOTATION,
    FORMER_CONSUMES_REQUEST_ANNOTATION,
    JOBSET_LABEL,
    KUEUE_GROUP_LABEL,
    KUEUE_GROUP_SIZE_ANNOTATION,
    LWS_GROUP_LABEL,
    LWS_LABEL,
    LWS_SIZE_ANNOTATION,
)
from ...model.queues import PodGroups, pod_group_of


@dataclasses.dataclass(frozen=True, slots=True)
class Gang:
    """``pods``: those that wait, in the order of packing. ``least``: how many of them have to get a place before any is of use; the others are
    ordinary demand then. ``why``: why it cannot begin, whatever is rented; empty = it can."""

    name: str
    pods: tuple[Pod, ...]
    least: int
    why: str = ""


def gang_of(pod: Pod) -> str:
    """What people call the gang that the pod is of; empty without one."""
    for key in (CONSUMES_REQUEST_ANNOTATION, FORMER_CONSUMES_REQUEST_ANNOTATION):
        if name := pod.annotations.get(key):
            return f"ProvisioningRequest {pod.namespace}/{name}"
    if group := pod_group_of(pod):
        return f"PodGroup {group.namespace}/{group.name}"
    if name := pod.labels.get(KUEUE_GROUP_LABEL):
        return f"pod group {pod.namespace}/{name}"
    if (name := pod.labels.get(LWS_LABEL)) and LWS_GROUP_LABEL in pod.labels:
        return f"LeaderWorkerSet {pod.namespace}/{name}, group {pod.labels[LWS_GROUP_LABEL]}"
    if name := pod.labels.get(JOBSET_LABEL):
        return f"JobSet {pod.namespace}/{name}"
    return ""


def declared_size(pod: Pod) -> int | None:
    """How many pods its gang has, where the pod says so."""
    for key in (KUEUE_GROUP_SIZE_ANNOTATION, LWS_SIZE_ANNOTATION):
        text = pod.annotations.get(key, "")
        if text.isascii() and text.isdigit() and len(text) < 10:
            return int(text)
    return None


def gangs(asking: t.Sequence[Pod], everyone: t.Iterable[Pod], groups: PodGroups = PodGroups()) -> tuple[Gang, ...]:
    """The gangs of pods that ask for a place, which are in the order of packing; the gang whose first pod comes first is the first.

    A gang needs as many pods as its PodGroup or its pods say, else as many as there are. Those that have a node, or are nominated to one,
    need no place.
    """
    waiting: dict[t.Hashable, list[Pod]] = {}
    for pod in asking:
        if name := gang_of(pod):
            waiting.setdefault((name, pod_group_of(pod)), []).append(pod)
    if not waiting:
        return ()
    there: dict[t.Hashable, list[Pod]] = collections.defaultdict(list)
    for pod in everyone:
        if not pod.ended and pod.deletion is None and (key := (gang_of(pod), pod_group_of(pod))) in waiting:
            there[key].append(pod)
    return tuple(_gang(pods, there[key], groups) for key, pods in waiting.items())


def _gang(asking: t.Sequence[Pod], members: t.Sequence[Pod], groups: PodGroups) -> Gang:
    name = gang_of(asking[0])
    size, why = _size(asking[0], members, groups)
    placed = sum(1 for pod in members if pod.node or pod.nominated_node)
    count = max(0, size - placed)
    if not why and len(members) < size:
        why = f"{len(members)} of {size} pods exist"
    elif not why and len(asking) < count:
        why = f"{len(asking)} of the {count} pods that it needs wait for a machine"
    return Gang(name, tuple(asking), count, f"{name}: {why}" if why else "")


def _size(pod: Pod, members: t.Sequence[Pod], groups: PodGroups) -> tuple[int, str]:
    """How many pods its gang needs, and why that is unknown or not enough to begin."""
    key = pod_group_of(pod)
    if key is not None and key.api in groups.unread:
        return 0, f"how many of its pods have to run at once is unknown, since PodGroups of {key.api} could not be read"
    if key is not None and key.api in groups.read:
        group = groups.groups.get(key)
        if group is None:
            return 0, f"there is no such PodGroup of {key.api}, and its pods cannot start before there is one"
        return len(members) if group.least is None else group.least, group.problem
    sizes = [size for one in members if (size := declared_size(one)) is not None]
    return max(sizes, default=len(members)), ""
