# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words by which a plan says what it does and why. They stand in plans, records, events and notices: a word is never given another meaning.

A word read from a record may be that of another version, so fields that hold words from records are plain text.
"""

from __future__ import annotations

import enum


class Reason(enum.StrEnum):
    """Why a machine ends, the strongest reason first (L-26). ``CALENDAR`` is of version 0.1."""

    INSTANCE_GONE = "InstanceGone"
    DUPLICATE = "Duplicate"
    ORPHAN = "Orphan"
    SPOT_LOST = "SpotLost"
    LAUNCH_FAILED = "LaunchFailed"
    FAILED_JOIN = "FailedJoin"
    PRICE_JUMP = "PriceJump"
    BUDGET = "Budget"
    EXPIRED = "Expired"
    UNHEALTHY = "Unhealthy"
    DOCUMENT_GONE = "DocumentGone"
    FORCED = "Manual(force)"
    """``MANUAL`` with the flag of its deletion: the same reason with another drain."""
    MANUAL = "Manual"
    CALENDAR = "Calendar"
    REPLACED = "Replaced"
    DRIFTED = "Drifted"
    UNDERUTILIZED = "Underutilized"
    EMPTY = "Empty"


class Finding(enum.StrEnum):
    """Why a machine is not terminated, as reported or marked on its Node."""

    OBSERVED = "Observed"
    ADOPTED = "Adopted"
    RELEASED = "Released"
    KEPT = "Kept"
    HELD = "Held"
    WAITING = "Waiting"
    FOREIGN = "Foreign"
    IDLE = "Idle"
    BUSY = "Busy"
    GPUS_UNUSED = "GpusUnused"
    GPUS_USED = "GpusUsed"
    GPU_LOST = "GpuLost"
    GPUS_MISSING = "GpusMissing"
    GPU_BACK = "GpuBack"
    UNHEALTHY_SIGN = "UnhealthySign"
    LAUNCH_REFUSED = "LaunchRefused"
    PAUSED = "Paused"
    STOPPED = "Stopped"
    SWITCHED_ON = "SwitchedOn"


class EventReason(enum.StrEnum):
    """Why a Kubernetes Event is written (L-32): about pods, Nodes, machines, and pools, requests and classes, whose words are those of their
    condition Ready."""

    GPU_NOMINATED = "GpuNominated"
    GPU_NOT_SCALED_UP = "GpuNotScaledUp"

    INITIALIZED = "Initialized"
    DISRUPTION_TERMINATING = "DisruptionTerminating"
    DISRUPTION_BLOCKED = "DisruptionBlocked"
    FAILED_DRAINING = "FailedDraining"
    GPU_LOST = "GpuLost"
    GPU_BACK = "GpuBack"

    LAUNCHED = "Launched"
    LAUNCH_FAILED = "LaunchFailed"
    LAUNCH_UNKNOWN = "LaunchUnknown"
    MACHINE_READY = "MachineReady"
    JOIN_FAILED = "JoinFailed"
    TERMINATED = "Terminated"
    TERMINATION_PENDING = "TerminationPending"

    INVALID_DOCUMENT = "InvalidDocument"
    CLASS_NOT_READY = "ClassNotReady"
    CANNOT_JOIN = "CannotJoin"
    PROVIDERS_UNAVAILABLE = "ProvidersUnavailable"
    INSUFFICIENT_CAPACITY = "InsufficientCapacity"
    LIMIT_REACHED = "LimitReached"
    BUDGET_EXCEEDED = "BudgetExceeded"
    PAUSED = "Paused"
    COMPLETED = "Completed"


class TeamLimit(enum.StrEnum):
    """Why the budget of a team lets no machine be launched for it (L-16), said of pods that wait and of pools that lack machines; behind it
    stands which budget it is."""

    USED_UP = "limit:budget.team used up"
    TOO_LITTLE = "limit:budget.team too little left"
    UNKNOWN = "limit:budget.team unknown"


class RequestReason(enum.StrEnum):
    """Reasons of conditions of a ProvisioningRequest (L-42), which but for one are those of the cluster autoscaler."""

    ACCEPTED = "Accepted"
    FOUND = "CapacityIsFound"
    NOT_FOUND = "CapacityIsNotFound"
    PROVISIONED = "CapacityIsProvisioned"
    FAILED_TO_CHECK = "FailedToCheckCapacity"
    TIME_EXPIRED = "CapacityReservationTimeExpired"
    CONSUMED = "CapacityBookingConsumed"
    EXPIRED = "Expired"
    MACHINE_LOST = "MachineLost"


class BufferReason(enum.StrEnum):
    """Reasons of conditions of a CapacityBuffer (L-42), which are those of Karpenter."""

    RESOLVED = "Resolved"
    NO_SCALABLE = "ScalableRefNotFound"
    NO_TEMPLATE = "PodTemplateNotFound"
    RESOLUTION_FAILED = "ResolutionFailed"
    FITS = "FitsExistingCapacity"
    NEEDS_MORE = "RequiresNewCapacity"
    NOT_READY = "NotReadyForProvisioning"
    EMPTY = "BufferEmpty"


class ActionKind(enum.StrEnum):
    """What a step of a plan does, in the order in which a plan counts its steps."""

    LAUNCH = "launch"
    RESUME = "resume"
    UPDATE = "update"
    ANNOTATE = "annotate"
    TAINT = "taint"
    UNTAINT = "untaint"
    RESTORE = "restore"
    DESTROY = "destroy"
    DELETE_INSTANCE = "delete_instance"
    DELETE_NODE = "delete_node"
    DELETE_DEVICE = "delete_device"
    DELETE_KEY = "delete_key"
    DELETE_TOKEN = "delete_token"
    DELETE_SERVICE = "delete_service"
    DELETE_POD = "delete_pod"
    DELETE_EXTRA = "delete_extra"
    REPORT = "report"
