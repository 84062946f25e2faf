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
    COSCHEDULING_LABEL,
    FORMER_CONSUMES_REQUEST_ANNOTATION,
    JOBSET_LABEL,
    KUEUE_GROUP_LABEL,
    KUEUE_GROUP_SIZE_ANNOTATION,
    LWS_GROUP_LABEL,
    LWS_LABEL,
    LWS_SIZE_ANNOTATION,
    VOLCANO_GROUP_ANNOTATION,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Gang:
    """``needed``: the pods that wait and all have to get a place, in the order of packing. ``spare``: further ones of it, which are of use
    only if those get one. ``why``: why it cannot begin, whatever is rented; empty = it can."""

    name: str
    needed: tuple[Pod, ...]
    spare: tuple[Pod, ...] = ()
    why: str = ""


def gang_of(pod: Pod) -> str:
    """What people call the gang that the pod is of; empty without one."""
    for key in (CONSUMES_REQUEST_ANNOTATION, FORMER_CONSUMES_REQUEST_ANNOTATION):
        if name := pod.annotations.get(key):
            return f"ProvisioningRequest {pod.namespace}/{name}"
    if pod.pod_group or (name := pod.labels.get(COSCHEDULING_LABEL)) or (name := pod.annotations.get(VOLCANO_GROUP_ANNOTATION)):
        return f"PodGroup {pod.namespace}/{pod.pod_group or name}"
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


def gangs(asking: t.Sequence[Pod], everyone: t.Iterable[Pod]) -> tuple[Gang, ...]:
    """The gangs of pods that ask for a place, which are in the order of packing; the gang whose first pod comes first is the first.

    A gang has as many pods as they say, else as many as there are. Those that have a node, or are nominated to one, need no place.
    """
    waiting: dict[str, list[Pod]] = {}
    for pod in asking:
        if name := gang_of(pod):
            waiting.setdefault(name, []).append(pod)
    if not waiting:
        return ()
    there: dict[str, list[Pod]] = collections.defaultdict(list)
    for pod in everyone:
        if not pod.ended and pod.deletion is None and (name := gang_of(pod)) in waiting:
            there[name].append(pod)
    return tuple(_gang(name, pods, there[name]) for name, pods in waiting.items())


def _gang(name: str, asking: t.Sequence[Pod], members: t.Sequence[Pod]) -> Gang:
    sizes = [size for pod in members if (size := declared_size(pod)) is not None]
    size = max(sizes, default=len(members))
    placed = sum(1 for pod in members if pod.node or pod.nominated_node)
    count = max(0, size - placed)
    if len(members) < size:
        return Gang(name, tuple(asking), why=f"{name}: {len(members)} of {size} pods exist")
    if len(asking) < count:
        return Gang(name, tuple(asking), why=f"{name}: {len(asking)} of the {count} pods that it needs wait for a machine")
    return Gang(name, tuple(asking[:count]), tuple(asking[count:]))
