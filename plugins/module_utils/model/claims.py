# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The claim of a machine, from the decision to its end (L-2)."""

from __future__ import annotations

import dataclasses
import enum
from datetime import datetime
from decimal import Decimal

from .cluster import AcceptanceTest, PodOwner, PrePull, SecretRef, WorkRecord
from .offers import Lane, Offer
from .spec import IDLE_BELOW, IDLE_WINDOW, Calendar, DisruptionBudget, GpuLoss, UnhealthyCondition

ADOPTED = "adopted:"  # how the history of a claim begins that was made for a machine without one


class Phase(str, enum.Enum):
    """Phases of a claim (L-2), in their order."""

    PENDING = "Pending"
    PROVISIONING = "Provisioning"
    BOOTING = "Booting"
    JOINING = "Joining"
    READY = "Ready"
    TERMINATING = "Terminating"
    FAILED = "Failed"


@dataclasses.dataclass(frozen=True, slots=True)
class Deletion:
    """Why and how far a claim is being taken down. ``requested`` is set at the decision, ``started`` at the first destroy call.
    ``seen_running``: when its cloud was asked last, before that call, and said that it runs. ``cause``: the code of the diagnosis, where one
    was made."""

    reason: str
    requested: datetime
    started: datetime | None = None
    seen_running: datetime | None = None
    drain_deadline: datetime | None = None
    last_error: str = ""
    attempts: int = 0
    force: bool = False
    cause: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Attempt:
    """One create call of a claim: what was tried and how it ended (result: ok, refused, unknown). ``instance_id``: a machine that a
    refusal left behind; it is billed, is never the claim's own, and has to be destroyed."""

    time: datetime
    offer: str
    result: str
    error_class: str = ""
    message: str = ""
    instance_id: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """What the WireGuard hub ``host`` (its name in the inventory) has to know of a machine: its ``address`` and its public key."""

    host: str
    interface: str
    address: str
    public_key: str


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What the documents of a machine say of its use and its end, as they were last read (L-25): it holds while they are absent or
    faulty. The fields are those of :class:`Pool`. ``credentials`` (where the key stands, never the key) and ``mesh_tags`` are the
    class's."""

    expire_after: int | None
    expire_jitter: Decimal
    consolidate_after: int | None
    consolidation_policy: str
    max_hourly_price: Decimal | None
    min_nodes: int
    replicas: int | None
    min_age: int
    termination_grace: int
    drain_timeout: int
    registration_timeout: int | None
    unhealthy_timeout: int | None
    calendar: Calendar | None
    disruption_budgets: tuple[DisruptionBudget, ...]
    idle_mode: str
    gpu_wait: str
    request: bool
    orphaned_policy: str
    credentials: SecretRef | None = None
    mesh_tags: tuple[str, ...] = ()
    acceptance: AcceptanceTest | None = None
    idle_signal: str = "pods"
    idle_below: Decimal = IDLE_BELOW
    idle_window: int = IDLE_WINDOW
    idle_probed: bool = False
    unhealthy_conditions: tuple[UnhealthyCondition, ...] = ()
    dra_driver: str = ""
    pre_pull: PrePull | None = None
    mig: tuple[tuple[str, int], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """The record "we want, have or had this machine" (L-2). Written before the first billable call; holds no secret.

    ``pool`` is "namespace/name". ``offer`` is the offer being tried or rented, ``candidates`` the ones to try after it.
    ``ids_seen`` are all machine ids ever handed out under this name. ``expected_gpus`` is what must become allocatable.
    ``price_bound``: no offer above it is rented, because an approved plan said so.
    ``generation`` is the hash of class, pool and template (drift); ``store_generation`` that of the record store, as stamped on the machine.
    ``source`` is where its pool or request was last read (empty = inline, or a claim of version 0.1), ``source_uid`` the uid of an object,
    ``limits`` what it said (None = a claim of version 0.1), ``document_gone_since`` when a run first missed it there.
    ``accepted`` is when its node passed the acceptance test of its pool (None = there was none, or not yet).
    ``worked_since`` is when the first pod was at work on its node; ``work_watched`` False: it was used before anybody noted that (a claim of
    an older version, or one made for a running machine).
    ``replaces`` is the name of the machine in whose place this one comes; it means nothing once that machine is gone.
    ``billed_since`` is the second in which its bill began, where its cloud says so.
    ``running_since`` and ``interrupted_at``: between them the GPUs are billed, where a cloud bills disk and GPUs apart.
    ``gpu_losses``: when its node lacked GPUs, in their order (L-20a).
    ``work`` is what GPU pods used of it (L-44), None = no run has recorded any; ``owner`` for whom it was launched (L-45), None = a
    claim of an older version, or one made for a running machine.
    ``launched_for``: teams with the GPUs of theirs that it was launched for (L-16), kept where teams have budgets.
    """

    name: str
    pool: str
    node_class: str
    cloud: str
    lane: Lane
    phase: Phase
    phase_since: datetime
    created: datetime
    offer: Offer
    reserved_price: Decimal
    candidates: tuple[Offer, ...] = ()
    index: int = 0
    expected_gpus: int = 0
    launch_started: datetime | None = None
    unknown_since: datetime | None = None
    instance_id: str = ""
    ids_seen: tuple[str, ...] = ()
    price_paid: Decimal | None = None
    ip: str = ""
    node_name: str = ""
    node_uid: str = ""
    mesh_backend: str = ""
    mesh_key_id: str = ""
    mesh_device_id: str = ""
    token_id: str = ""
    mesh_seen: datetime | None = None
    peer: Peer | None = None
    registered: datetime | None = None
    initialized: datetime | None = None
    accepted: datetime | None = None
    worked_since: datetime | None = None
    work_watched: bool = False
    idle_since: datetime | None = None
    underused_since: datetime | None = None
    blocked_until: datetime | None = None
    blocked_times: int = 0
    gone_since: datetime | None = None
    billed_since: datetime | None = None
    running_since: datetime | None = None
    interrupted_at: datetime | None = None
    price_bound: Decimal | None = None
    generation: str = ""
    store_generation: str = ""
    source: str = ""
    source_uid: str = ""
    limits: Limits | None = None
    document_gone_since: datetime | None = None
    replaces: str = ""
    gpu_losses: tuple[GpuLoss, ...] = ()
    work: WorkRecord | None = None
    owner: PodOwner | None = None
    launched_for: tuple[tuple[str, int], ...] = ()
    deletion: Deletion | None = None
    attempts: tuple[Attempt, ...] = ()
    history: tuple[tuple[datetime, str, str], ...] = ()
    version: str = ""  # of the store (resourceVersion); not part of the record itself

    @property
    def bill_start(self) -> datetime | None:
        """When its bill began: what its cloud says, else the create call. None before one was sent."""
        return None if self.launch_started is None else self.billed_since or self.launch_started

    @property
    def launched(self) -> datetime:
        """When its launch began: the create call, or the claim while none was sent. What is older belongs to an earlier machine of its name."""
        return self.launch_started or self.created

    @property
    def price(self) -> Decimal:
        """Dollars per hour that count against limits."""
        return self.reserved_price if self.price_paid is None else self.price_paid

    @property
    def is_service(self) -> bool:
        """Whether its machine is a container without a Node (docs/how_to/service_lane.md)."""
        return self.lane is Lane.SERVICE

    @property
    def adopted(self) -> datetime | None:
        """When the claim was made for a machine that had none; its time to join begins then."""
        return self.history[0][0] if self.history and self.history[0][2].startswith(ADOPTED) else None

    @property
    def rejects(self) -> frozenset[str]:
        """Ids of machines that refused create calls left behind."""
        return frozenset(attempt.instance_id for attempt in self.attempts if attempt.result == "refused" and attempt.instance_id)


@dataclasses.dataclass(frozen=True, slots=True)
class DamagedClaim:
    """A claim that exists and cannot be read: ``where`` it is and the ``problem``. A machine of its ``name`` may exist. The other facts
    are what could be found in it or beside it."""

    name: str
    where: str
    problem: str
    pool: str = ""
    node_class: str = ""
    cloud: str = ""
    ids: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class HandedOut:
    """A machine that was handed out (L-48): it has no claim, and no run changes or ends it. ``name`` is what its claim was called."""

    cloud: str
    id: str
    name: str
    time: datetime
