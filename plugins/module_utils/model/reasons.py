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
    KEPT = "Kept"
    HELD = "Held"
    WAITING = "Waiting"
    FOREIGN = "Foreign"
    IDLE = "Idle"
    BUSY = "Busy"
    GPU_LOST = "GpuLost"
    GPUS_MISSING = "GpusMissing"
    GPU_BACK = "GpuBack"
    LAUNCH_REFUSED = "LaunchRefused"
    PAUSED = "Paused"


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
    DELETE_EXTRA = "delete_extra"
    REPORT = "report"
