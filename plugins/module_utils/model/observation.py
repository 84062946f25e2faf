# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at the world."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime
from decimal import Decimal

from .claims import Claim, DamagedClaim, HandedOut
from .cluster import DevicePlugins, MadeToken, Node, Pod
from .devices import DynamicResources
from .mesh import Device, MeshKey
from .names import Labels
from .offers import Extra, Instance, Offer, Volume
from .queues import CapacityBuffer, PodGroups, ProvisioningRequest
from .spec import Ledger, Pause


class OffersNotRead(Exception):
    """A decision depends on what can be rented, and its observation was made without a look at that. Read the offers, decide anew."""


@dataclasses.dataclass(frozen=True, slots=True)
class CloudView:
    """What one cloud answered in this run. ``instances``, ``offers`` or ``extras`` None = that read failed or was not made, ``problem``
    says how. ``expected`` False: only a claim names the cloud; no document of this run does, and nothing of it is configured here.
    ``refused``: it did not take our key. ``volumes``: those of the account, read with the offers where a class wants some; None = not read,
    or that read failed."""

    instances: tuple[Instance, ...] | None = None
    offers: tuple[Offer, ...] | None = None
    problem: str = ""
    extras: tuple[Extra, ...] | None = None
    expected: bool = True
    refused: bool = False
    volumes: tuple[Volume, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Published:
    """A Service of ours in the cluster; ``name`` is that of its machine."""

    namespace: str
    name: str
    uid: str


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """What a service (lane service), or the idle probe of a node, answered when it was asked. ``healthy`` and ``idle`` None = it could not
    be asked, or its answer said neither; the details are for people."""

    healthy: bool | None = None
    detail: str = ""
    idle: bool | None = None
    idle_detail: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class GpuUtilization:
    """How much a node's GPUs are used: ``busiest`` is the share of the busiest one that is known, None = none is. ``why``: what is unknown;
    empty = the share of every GPU is known."""

    busiest: Decimal | None = None
    why: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class GpuXids:
    """The XIDs that the dcgm-exporter of a node has of its GPUs (L-55). ``last``: by the exporter's number of the GPU the last XID since the
    exporter started; several where its lines differ, empty = none; a GPU that is not there is unknown. ``why``: what is unknown; empty = of
    no GPU. ``since``: when the exporter's pod was made; None = unknown."""

    last: t.Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    why: str = ""
    since: datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Observation:
    """Everything observed in one run (L-12 order: clouds, mesh, nodes, pods, claims). None = could not be read.

    ``clock_offset``: seconds by which the clock of ``clock_source`` (the API server, a cloud) is ahead of ours, at least."""

    now: datetime
    cluster_id: str
    clouds: t.Mapping[str, CloudView]
    devices: tuple[Device, ...] | None = None
    keys: tuple[MeshKey, ...] | None = None
    tokens: tuple[MadeToken, ...] | None = None
    nodes: tuple[Node, ...] | None = None
    pods: tuple[Pod, ...] | None = None
    trials: tuple[Pod, ...] | None = None  # pods of ours that test a node (L-35) or pull images on it (L-43); not among ``pods``
    claims: tuple[Claim, ...] | None = None
    findings: t.Mapping[str, datetime] = dataclasses.field(default_factory=dict)
    blocks: t.Mapping[str, datetime] = dataclasses.field(default_factory=dict)
    block_words: t.Mapping[str, str] = dataclasses.field(default_factory=dict)  # why, by the key of a block, where that is known
    probes: t.Mapping[str, Probe] = dataclasses.field(default_factory=dict)  # of services and nodes, by machine name
    utilization: t.Mapping[str, GpuUtilization] = dataclasses.field(
        default_factory=dict
    )  # by the Node's name, where a pool asks for it
    xids: t.Mapping[str, GpuXids] = dataclasses.field(default_factory=dict)  # the same
    services: tuple[Published, ...] | None = ()
    ledger: Ledger | None = None  # read only where a budget or a report asks for it
    clock_offset: float | None = None
    clock_source: str = ""
    damaged: tuple[DamagedClaim, ...] = ()  # beside ``claims``, those that cannot be read
    mesh_problem: str = ""  # why the mesh could not be read
    state_problems: t.Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # findings or blocklist, and why it could not be read
    device_plugins: DevicePlugins | None = None  # None = not looked at
    dynamic: DynamicResources | None = None  # None = not looked at; ``nodes`` and ``pods`` hold what follows of it
    generations: tuple[str, ...] = ()  # of our record store, the current one first (planner/garbage_collection/ownership.py)
    released: tuple[HandedOut, ...] = ()  # machines that were handed out (L-48)
    offers_read: bool = True  # False = no cloud was asked for its offers
    pauses: tuple[Pause, ...] = ()  # of the record beside the claims
    buffers: tuple[CapacityBuffer, ...] = ()  # where a pool serves them, and the mode asks for them
    requests: tuple[ProvisioningRequest, ...] = ()  # that are not over and that a pool serves, where the mode asks for them
    pod_groups: PodGroups = PodGroups()  # those of API groups that pods which wait name, in mode autoscale
    namespaces: t.Mapping[str, Labels] | None = None  # their labels; None = not read
