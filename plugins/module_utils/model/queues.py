# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Objects of the cluster that say how many pods want room: ProvisioningRequests and CapacityBuffers of autoscaling.x-k8s.io (L-42), and
PodGroups, of which the pods have to run at once (L-39)."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime

from .cluster import Pod, StatusCondition
from .labels import ATOMIC_CLASS as ATOMIC
from .labels import (
    CONSUMES_REQUEST_ANNOTATION,
    COSCHEDULING_LABEL,
    FORMER_CONSUMES_REQUEST_ANNOTATION,
    VOLCANO_GROUP_ANNOTATION,
)

BEST_EFFORT_ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
CHECK_CAPACITY = "check-capacity.autoscaling.x-k8s.io"
PROVISIONING_CLASSES = (ATOMIC, BEST_EFFORT_ATOMIC, CHECK_CAPACITY)
"""Classes of ProvisioningRequests that a pool can serve. The last one rents nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProvisioningRequest:
    """A ProvisioningRequest with the pods that it asks room for, as placeholders. ``problem``: why nobody can say what it asks for. ``details``
    and ``conditions`` are those of its status."""

    namespace: str
    name: str
    uid: str
    version: str
    generation: int
    created: datetime
    provisioning_class: str
    pods: tuple[Pod, ...] = ()
    problem: str = ""
    conditions: tuple[StatusCondition, ...] = ()
    details: t.Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"ProvisioningRequest {self.namespace}/{self.name}"

    def condition(self, kind: str) -> StatusCondition | None:
        return next((one for one in self.conditions if one.type == kind), None)

    def has(self, kind: str) -> bool:
        """Whether a condition is True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"


@dataclasses.dataclass(frozen=True, slots=True)
class RequestStatus:
    """What shall stand in the status of a request. ``conditions`` take the place of those of the same type."""

    request: ProvisioningRequest
    conditions: tuple[StatusCondition, ...]
    details: t.Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class CapacityBuffer:
    """A CapacityBuffer. ``pod``: a placeholder of its template, None = there is none, and ``reason`` and ``problem`` say why. ``scale``: the
    replicas of the object that ``percentage`` is of. ``limits``: resource to amount. ``status``: without conditions."""

    namespace: str
    name: str
    uid: str
    version: str
    generation: int
    pod: Pod | None = None
    reason: str = ""
    problem: str = ""
    replicas: int | None = None
    percentage: int | None = None
    scale: int | None = None
    limits: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    conditions: tuple[StatusCondition, ...] = ()
    status: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    template: str = ""
    template_generation: int = 0

    @property
    def title(self) -> str:
        return f"CapacityBuffer {self.namespace}/{self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class BufferStatus:
    """What shall stand in the status of a buffer, beside ``conditions``, of which each takes the place of the one of its type."""

    buffer: CapacityBuffer
    conditions: tuple[StatusCondition, ...]
    status: t.Mapping[str, t.Any]


# ---- PodGroups: API groups that have the kind, and what runs read of it

NATIVE_GROUPS = "scheduling.k8s.io"
COSCHEDULING_GROUPS = "scheduling.x-k8s.io"
VOLCANO_GROUPS = "scheduling.volcano.sh"


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class PodGroupKey:
    """Which PodGroup. ``api``: the API group of its kind."""

    api: str
    namespace: str
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class PodGroup:
    """``least``: how many of its pods have to run at once, None = all there are. ``problem``: why that is unknown."""

    key: PodGroupKey
    least: int | None = None
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class PodGroups:
    """What was read. ``read``: the API groups that were; ``unread``: those that could not be. What is in neither is not served, or no pod
    that waits names it."""

    groups: t.Mapping[PodGroupKey, PodGroup] = dataclasses.field(default_factory=dict)
    read: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()


def pod_group_of(pod: Pod) -> PodGroupKey | None:
    """The PodGroup that the pod names, unless it is one of a ProvisioningRequest."""
    if any(pod.annotations.get(key) for key in (CONSUMES_REQUEST_ANNOTATION, FORMER_CONSUMES_REQUEST_ANNOTATION)):
        return None
    named = (
        (NATIVE_GROUPS, pod.pod_group),
        (COSCHEDULING_GROUPS, pod.labels.get(COSCHEDULING_LABEL)),
        (VOLCANO_GROUPS, pod.annotations.get(VOLCANO_GROUP_ANNOTATION)),
    )
    return next((PodGroupKey(api, pod.namespace, name) for api, name in named if name), None)
