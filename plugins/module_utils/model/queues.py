# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests for room that are objects of the cluster and no pods (L-42): ProvisioningRequests and CapacityBuffers of
autoscaling.x-k8s.io."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime

from .cluster import Pod
from .labels import ATOMIC_CLASS as ATOMIC

BEST_EFFORT_ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
CHECK_CAPACITY = "check-capacity.autoscaling.x-k8s.io"
PROVISIONING_CLASSES = (ATOMIC, BEST_EFFORT_ATOMIC, CHECK_CAPACITY)
"""Classes of ProvisioningRequests that a pool can serve. The last one rents nothing."""


@dataclasses.dataclass(frozen=True, slots=True)
class StatusCondition:
    """A condition of an object's status. ``status``: True, False or Unknown, as text."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None


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
