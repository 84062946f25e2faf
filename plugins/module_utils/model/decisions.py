# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run decided."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime
from decimal import Decimal

from .claims import Claim
from .queues import BufferStatus, RequestStatus
from .reasons import ActionKind, EventReason


@dataclasses.dataclass(frozen=True, slots=True)
class Action:
    """One step of a plan, with its reason and its price.

    ``kind``: launch (new claim to be written and launched), resume (a claim of an earlier run goes on), update (claim facts to be
    written), annotate (node annotation idle-since set or removed), restore (marks of an interrupted drain
    taken off its node), destroy (claim gets its deletion; drain, then teardown),
    delete_node, delete_device, delete_key, delete_token, delete_service ("namespace/name"), delete_extra (orphans without a claim; of
    an extra ``target`` is its id, ``uid`` its kind, ``value`` its cloud), delete_instance (a second machine under the name of a claim
    that goes on: ``target`` its id, ``value`` its cloud), report (nothing is done). ``claim`` is the claim as it shall be written, in at
    most one action per claim (a delete_instance comes after an update or resume of its claim); ``target`` the node name, device id,
    key id or token id for orphans, and in the report of a machine that waits for its replacement the name of that one; ``price_hour`` what it
    adds (+) or saves (-).
    """

    kind: ActionKind
    name: str
    reason: str
    detail: str = ""
    pool: str = ""
    claim: Claim | None = None
    target: str = ""
    uid: str = ""
    value: str | None = None
    price_hour: Decimal = Decimal(0)


@dataclasses.dataclass(frozen=True, slots=True)
class Shortfall:
    """Machines that were wanted and will not come: how many, and the first reason. ``rejected`` counts offers per reason."""

    pool: str
    missing: int
    reason: str
    rejected: t.Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Notice:
    """Something that people should know at once. ``kind``: one of those in docs/reference/events.md. ``key`` is the same
    as long as it is about the same thing, so that it is sent once; ``subject`` the machine, pool, class, cloud or record it is about;
    ``data`` more for programs, without secrets."""

    kind: str
    key: str
    subject: str
    text: str
    data: t.Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class ObjectReference:
    """An object of the cluster. ``namespace`` is empty for one that has none."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


@dataclasses.dataclass(frozen=True, slots=True)
class KubernetesEvent:
    """What `kubectl describe` of ``regarding`` shows. ``key`` tells apart what has the same reason; empty = the note does. ``related`` is a
    second object that it is about."""

    regarding: ObjectReference
    reason: EventReason
    note: str
    warning: bool = False
    related: ObjectReference | None = None
    key: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod that waits for GPUs: the machine it is counted on, or the first reason why there is none for it. ``pool`` is the machine's,
    or the one that came nearest to serving it."""

    namespace: str
    name: str
    gpus: int
    pool: str = ""
    machine: str = ""
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Tally:
    """GPUs of a pool, or of none: ``wanted`` are those ``used`` on its Ready ``machines`` and those waited for; ``free`` are Ready,
    ``coming`` are on their way or planned."""

    pool: str
    wanted: int
    machines: int
    used: int
    free: int
    coming: int
    waiting: int


@dataclasses.dataclass(frozen=True, slots=True)
class PausedPool:
    """A pool of which nothing is launched or ended, why, and what its machines cost meanwhile. ``missing``: wanted and not usable."""

    pool: str
    why: str
    machines: int
    price_hour: Decimal
    missing: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """What a run would do. Pure data: the same observation and specs always give the same plan (I-8).

    ``findings`` replaces the stored list of first sightings (two-run rule). ``problems`` make the play fail at its end, and
    so do ``failures``: what could not be read or written, while everything else goes on. ``notices`` are
    for people who do not look at the run. ``judged``: the kinds of notices that this plan
    would hold if there were any. Of a run that looks at pods ``waiting`` are those that wait, ``tally`` the GPUs per pool, ``join`` the
    machines that only lack our marks, ``admit`` those that may be asking for their certificate. ``paused`` are the pools that a person paused.
    ``requests`` and ``buffers``: what shall stand in the status of ProvisioningRequests and CapacityBuffers.
    """

    actions: tuple[Action, ...] = ()
    shortfall: tuple[Shortfall, ...] = ()
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    findings: t.Mapping[str, datetime] = dataclasses.field(default_factory=dict)
    notices: tuple[Notice, ...] = ()
    judged: frozenset[str] = frozenset()
    waiting: tuple[WaitingPod, ...] = ()
    tally: tuple[Tally, ...] = ()
    join: tuple[str, ...] = ()
    admit: tuple[str, ...] = ()
    paused: tuple[PausedPool, ...] = ()
    requests: tuple[RequestStatus, ...] = ()
    buffers: tuple[BufferStatus, ...] = ()

    @property
    def launches(self) -> list[Action]:
        """The actions for which machines are rented: new claims, and those of an earlier run that continue."""
        return [action for action in self.actions if action.kind in (ActionKind.LAUNCH, ActionKind.RESUME)]
