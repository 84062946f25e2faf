# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of the collection as frozen records: what exists (offers, instances, devices, nodes, pods) and what we remember.

Units: money is Decimal US dollars per hour, GPU and system memory MiB, disk GiB, time aware UTC datetimes, durations seconds.
``None`` always means "unknown" or "not said", never zero. Collections are tuples; a collection that could not be read is None.
"""

from __future__ import annotations

from .claims import Attempt, Claim, DamagedClaim, Deletion, Limits, Peer, Phase
from .cluster import DevicePlugin, DevicePlugins, Expression, MadeToken, Node, NodeTerm, Others, Placement, Pod, Taint, Toleration
from .decisions import Action, KubernetesEvent, Notice, ObjectReference, PausedPool, Plan, Shortfall, Tally, WaitingPod
from .mesh import Device, MeshKey
from .names import Labels
from .observation import CloudView, Observation, OffersNotRead, Probe, Published
from .offers import (
    Capability,
    Carrier,
    Container,
    Extra,
    Instance,
    InstanceState,
    Lane,
    LaunchRequest,
    Offer,
    OfferQuery,
    Quality,
    StateFacts,
)
from .spec import (
    Calendar,
    CloudChoice,
    DisruptionBudget,
    Hub,
    IdleProbe,
    Ledger,
    LedgerLine,
    Machine,
    MeshChoice,
    NodeClass,
    Pause,
    Pool,
    Requirement,
    SecretRef,
    ServiceSpec,
    Source,
    Specs,
    SpendingBudget,
    StatusObject,
    Window,
)

__all__ = [
    "Action",
    "Attempt",
    "Calendar",
    "Capability",
    "Carrier",
    "Claim",
    "CloudChoice",
    "CloudView",
    "Container",
    "DamagedClaim",
    "Deletion",
    "Device",
    "DevicePlugin",
    "DevicePlugins",
    "DisruptionBudget",
    "Expression",
    "Extra",
    "IdleProbe",
    "Instance",
    "InstanceState",
    "KubernetesEvent",
    "Labels",
    "Lane",
    "LaunchRequest",
    "Ledger",
    "LedgerLine",
    "Limits",
    "Machine",
    "MadeToken",
    "Hub",
    "MeshChoice",
    "MeshKey",
    "Node",
    "NodeClass",
    "NodeTerm",
    "Notice",
    "ObjectReference",
    "Observation",
    "Offer",
    "OffersNotRead",
    "OfferQuery",
    "Others",
    "Peer",
    "Pause",
    "PausedPool",
    "Phase",
    "Placement",
    "Plan",
    "Pod",
    "Pool",
    "Probe",
    "Published",
    "Quality",
    "Requirement",
    "SecretRef",
    "ServiceSpec",
    "Shortfall",
    "Source",
    "SpendingBudget",
    "StatusObject",
    "StateFacts",
    "Taint",
    "Tally",
    "Toleration",
    "WaitingPod",
    "Window",
    "Specs",
]
