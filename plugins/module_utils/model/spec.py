# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the user wants."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, time
from decimal import Decimal

from .cluster import AcceptanceTest, PrePull, SecretRef, Taint, WorkRecord
from .mesh import MeshChoice
from .names import Labels
from .offers import Guard, Lane, Quality, VolumeMount

DRAIN_TIMEOUT: t.Final = 600  # seconds for which pods may take to leave, of a pool that says nothing (L-9)
IDLE_BELOW: t.Final = Decimal(
    "0.05"
)  # share of each GPU below which a node's GPUs count as unused, of a pool that says nothing (L-36)
IDLE_WINDOW: t.Final = 1800  # seconds for which it must stay below, of a pool that says nothing (L-36)
UNHEALTHY_TIMEOUT: t.Final = 1200  # seconds for which a Node may be ill, of a pool that says nothing (L-20)
UNHEALTHY_FOR: t.Final = 1800  # seconds for which a sign of ill health lasts, of an entry that says nothing (L-37)


@dataclasses.dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement on offer labels (L-13): operator In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Machine:
    """One own machine behind power webhooks (L-21)."""

    name: str
    gpu_count: int
    scale_up_endpoint: str
    scale_down_endpoint: str
    gpu_type: str = ""
    gpu_memory_mib: int | None = None
    node_name: str = ""
    status_endpoint: str = ""
    hourly_cost: Decimal = Decimal(0)
    region: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class CloudChoice:
    """One entry of a class's ``providers``. ``settings`` are the cloud's own options (image, ssh key ...). ``implicit``: nobody named the
    cloud, so that it is passed over in silence when there is no credential for it. ``bid_margin``: by which share a bid is above the
    lowest that would win. ``spot_discount_min``: see :class:`NodeClass`; None = as there. ``quality``: what its settings say of hosts of
    nodes; it goes before what the cloud's own record says. ``key_for_machines``: the operator wrote ``credentials`` and ``machines`` side by
    side, so that the key may go to the machines' hosts. ``volumes``: existing volumes that every machine of this cloud gets (L-51)."""

    cloud: str
    priority: int = 0
    enabled: bool = True
    credentials: SecretRef | None = None
    machines: tuple[Machine, ...] = ()
    settings: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    implicit: bool = False
    bid_margin: Decimal = Decimal("0.1")
    spot_discount_min: Decimal | None = None
    quality: Quality = Quality()
    key_for_machines: bool = False
    volumes: tuple[VolumeMount, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class NodeClass:
    """GPUNodeClass: infrastructure, credentials, limits. ``spot_discount_min``: the share by which spot has to be cheaper than the best
    firm offer; None = the run's setting. ``talos_patches``: texts of strategic merge patches. ``registry_mirrors``: registry → URLs.
    ``talos_schematic``: what is in the Talos image, as the Image Factory takes it; None = unknown. ``allowed_namespaces``: whose pools,
    where they are objects of the cluster, may use it; None = all. ``guard`` None = the default of each cloud (L-46)."""

    name: str
    clouds: tuple[CloudChoice, ...]
    template: str | None = None
    template_ref: SecretRef | None = None
    talos_image: str = ""
    talos_schematic: t.Mapping[str, t.Any] | None = None
    talos_patches: tuple[str, ...] = ()
    registry_mirrors: t.Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    mesh: MeshChoice = MeshChoice()
    gpu_types: tuple[str, ...] = ()
    gpu_memory_mib: int | None = None
    gpu_count: int | None = None
    min_vcpus: int | None = None
    min_memory_mib: int | None = None
    min_disk_gib: int | None = None
    regions: tuple[str, ...] = ()
    spot_allowed: bool = False
    quality: Quality = Quality()
    spot_discount_min: Decimal | None = None
    max_nodes: int | None = None
    max_hourly_cost: Decimal | None = None
    resources: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    strategy: str = "weighted"
    generation: str = ""
    budget: SpendingBudget | None = None
    allowed_namespaces: tuple[str, ...] | None = None
    guard: Guard | None = None

    def settings_of(self, cloud: str) -> t.Mapping[str, t.Any]:
        """The cloud's own options in this class; empty when the class does not name it."""
        return next((choice.settings for choice in self.clouds if choice.cloud == cloud), {})

    def volumes_of(self, cloud: str) -> tuple[VolumeMount, ...]:
        """The existing volumes that its machines of this cloud get; empty when the class does not name the cloud."""
        return next((choice.volumes for choice in self.clouds if choice.cloud == cloud), ())


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceSpec:
    """What a pool of lane service runs, and how one sees that it works. ``environment_from``: variables whose values stand in Secrets.

    ``health_path`` is asked on ``health_port`` inside the mesh; 2xx = healthy. ``mesh_client``: "inject" (our start script brings it) or
    "image" (the image enters the mesh itself, by the environment). Without ``command`` the image's own start is used.
    """

    image: str
    ports: tuple[int, ...]
    health_path: str
    health_port: int
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    environment: Labels = dataclasses.field(default_factory=dict)
    environment_from: t.Mapping[str, SecretRef] = dataclasses.field(default_factory=dict)
    mesh_client: str = "inject"


@dataclasses.dataclass(frozen=True, slots=True)
class IdleProbe:
    """How a machine is asked whether it is idle: a path on the health port of a service, or on ``port`` of a node; or a command on the
    controller. One of the two."""

    url: str = ""
    command: tuple[str, ...] = ()
    port: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """How many nodes of a pool may go at once (L-6). ``nodes``: a number or a share like "10%". ``reasons``: Empty, Drifted,
    Underutilized; none = all. ``schedule``: cron of five fields in ``time_zone``; in force from each due time for ``duration``
    seconds. Without it always."""

    nodes: str
    reasons: tuple[str, ...] = ()
    schedule: str = ""
    duration: int | None = None
    time_zone: str = "UTC"


@dataclasses.dataclass(frozen=True, slots=True)
class UnhealthyCondition:
    """A sign on a Node by which its machine counts as unhealthy (L-37): the condition ``type`` with ``status`` True or False, or the taint of
    this key (one that ends with "/": every taint of that prefix) and, unless it is empty, of this ``value``. ``contains``: reason or message
    of the condition holds one of these texts; none = whatever they say. ``xids``: instead of both, one of these XIDs of a GPU (L-55).
    ``lasts``: for so many seconds. ``action``: Replace, ReplaceWhenEmpty, Report or Ignore."""

    type: str = ""
    status: str = "True"
    taint: str = ""
    value: str = ""
    contains: tuple[str, ...] = ()
    xids: tuple[int, ...] = ()
    lasts: int = UNHEALTHY_FOR
    action: str = "Report"


@dataclasses.dataclass(frozen=True, slots=True)
class Pool:
    """GPUNodePool, or a GPURequest as a pool of one node (``request`` True). ``replicas``: the exact number of its machines, whatever pods
    wait; None = ``min_nodes`` is the floor.

    ``idle_signal``: whether pods, the utilization of GPUs or both say that a node is idle (L-36); utilization does where every GPU was used
    below the share ``idle_below`` for ``idle_window`` seconds.
    ``idle_probed``: a node is idle only if its ``idle_probe`` says so, too.
    ``pack``: which offer is taken for waiting pods, "price" (the cheapest per GPU they use) or "fewest" (the one that holds most of
    them). ``schedulers``: whose pods count beside the default scheduler's. ``scale_up_delay``: seconds a pod has to wait first.
    ``slices``: how many pods share each GPU by time slicing, or by MPS where ``mps`` is True, offered as nvidia.com/gpu.shared if
    ``slices_renamed``.
    ``mig``: each MIG profile with the number of its instances on a GPU, empty = its GPUs are whole (L-52).
    ``dra_driver``: the DRA driver that offers the GPUs of its nodes, empty = a device plugin does.
    ``provisioning_classes``: of the ProvisioningRequests that it serves, and ``capacity_buffers``: whether it serves these (L-42).
    ``delete_stopped_after``: seconds after which the Node of an own machine that is stopped goes (L-54); None = never.
    ``surge``: a machine that drifted or expires is replaced before it goes. ``acceptance``: None = new nodes are not tested.
    ``pre_pull``: None = new nodes pull nothing before pods come.
    ``unhealthy_conditions``: its own entries; they go before those that hold for every pool (L-37).
    ``orphaned_policy``: what becomes of its machines when its document is gone, Drain or Keep (L-25). ``source``: what its document was
    read from, as :class:`Document` has it; ``source_uid``: the uid of an object."""

    namespace: str
    name: str
    node_class: str
    requirements: tuple[Requirement, ...] = ()
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()
    labels: Labels = dataclasses.field(default_factory=dict)
    annotations: Labels = dataclasses.field(default_factory=dict)
    lanes: tuple[Lane, ...] = ()
    max_hourly_price: Decimal | None = None
    max_nodes: int | None = None
    resources: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    min_nodes: int = 0
    weight: int = 0
    consolidate_after: int | None = 600
    delete_stopped_after: int | None = None
    consolidation_policy: str = "WhenIdle"
    expire_after: int | None = None
    expire_jitter: Decimal = Decimal(0)
    drift_policy: str = "Report"
    surge: bool = True
    gpu_loss_policy: str = "Keep"
    utilization_threshold: Decimal = Decimal("0.5")
    replace_cheaper: Decimal = Decimal(0)
    termination_grace: int = 600
    drain_timeout: int = DRAIN_TIMEOUT
    min_age: int = 600
    registration_timeout: int | None = None
    unhealthy_timeout: int | None = None
    unhealthy_conditions: tuple[UnhealthyCondition, ...] = ()
    calendar: Calendar | None = None
    idle_mode: str = "workload"
    idle_signal: str = "pods"
    idle_below: Decimal = IDLE_BELOW
    idle_window: int = IDLE_WINDOW
    idle_probed: bool = False
    gpu_wait: str = "all"
    acceptance: AcceptanceTest | None = None
    pre_pull: PrePull | None = None
    request: bool = False
    cloud: str = ""
    generation: str = ""
    service: ServiceSpec | None = None
    idle_probe: IdleProbe | None = None
    disruption_budgets: tuple[DisruptionBudget, ...] = ()
    budget: SpendingBudget | None = None
    pack: str = "price"
    schedulers: tuple[str, ...] = ()
    scale_up_delay: int = 0
    slices: int = 1
    slices_renamed: bool = False
    mps: bool = False
    mig: tuple[tuple[str, int], ...] = ()
    dra_driver: str = ""
    provisioning_classes: tuple[str, ...] = ()
    capacity_buffers: bool = False
    replicas: int | None = None
    orphaned_policy: str = "Drain"
    source: str = ""
    source_uid: str = ""
    document_labels: Labels = dataclasses.field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def reads_exporters(self) -> bool:
        """Whether runs read the dcgm-exporter of its nodes: for the use of GPUs (L-36), or for XIDs (L-55)."""
        return self.idle_signal != "pods" or any(entry.xids for entry in self.unhealthy_conditions)


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """One thing that documents were read from: a file, a folder, or one list of the cluster's API. ``pools``: keys of the pools and
    requests in it, faulty ones included. ``problem``: why what is not in it may be there all the same; empty = it was read in whole.
    ``quiet``: reported only where a claim's document was read there, since it may well be as it should (a kind whose CRD is not installed) or
    is reported otherwise."""

    pools: tuple[str, ...] = ()
    problem: str = ""
    quiet: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Pause:
    """What a person paused (L-31): ``scope`` all, class or pool, with its name or key. ``annotation``: a document says so; else the record
    beside the claims does."""

    scope: str
    name: str = ""
    why: str = ""
    since: datetime | None = None
    annotation: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class StatusObject:
    """A document that is an object of the cluster, with the ``status`` that was read beside it. ``key`` is that of its pool, of a class its
    name; ``place`` names it in faults; ``version`` is its resourceVersion; ``deleted``: it has a deletionTimestamp, and stays for its
    ``finalizers``."""

    kind: str
    key: str
    path: str
    place: str
    uid: str
    generation: int
    version: str
    status: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    deleted: bool = False
    finalizers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Specs:
    """All documents of one run, checked. ``nodes`` maps a pool key to the number of machines wanted in this run; pools that are not in
    it want none if any is, else what their documents say. ``blocked`` maps the name of a class, or the key of a pool, to why a machine of it
    could not join: nothing is launched there (the preflight found it). ``imageless`` maps a class and a cloud to why its machines of lane talos
    have no image to boot: offers of them are left out (L-56).

    ``pools`` may launch. ``paused`` are the keys of pools that may not, with the reason: their document or class is faulty, or is being
    deleted; ``held`` are those of them whose own document is valid. ``deleted`` are keys whose object has a deletionTimestamp.
    ``faults``: sentences by the place of the document. ``sources``: what was read, by its id. ``pauses`` are those of annotations,
    ``objects`` what has a status.
    """

    classes: t.Mapping[str, NodeClass]
    pools: tuple[Pool, ...]
    nodes: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    blocked: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    imageless: t.Mapping[tuple[str, str], str] = dataclasses.field(default_factory=dict)
    held: tuple[Pool, ...] = ()
    paused: t.Mapping[str, str] = dataclasses.field(default_factory=dict)
    deleted: frozenset[str] = frozenset()
    faults: t.Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    sources: t.Mapping[str, Source] = dataclasses.field(default_factory=dict)
    pauses: tuple[Pause, ...] = ()
    objects: tuple[StatusObject, ...] = ()

    @property
    def described(self) -> tuple[Pool, ...]:
        """Every pool with a valid document."""
        return (*self.pools, *self.held)

    def pool_of(self, key: str) -> Pool | None:
        """What the pool's document says; None when it is absent or faulty."""
        return next((pool for pool in self.described if pool.key == key), None)

    def choice(self, cloud: str) -> CloudChoice | None:
        """The ``providers`` entry for a cloud; enabled ones first."""
        entries = [choice for node_class in self.classes.values() for choice in node_class.clouds if choice.cloud == cloud]
        return next((choice for choice in entries if choice.enabled), entries[0] if entries else None)


# ---- money over time: what may be spent in a period, and what was


@dataclasses.dataclass(frozen=True, slots=True)
class SpendingBudget:
    """What a pool, a class, a team or the whole cluster may cost in a period (L-16). ``period``: day, week (from Monday) or month, as the
    calendar of ``time_zone`` has them. From ``soft_percent`` of ``amount`` on a notice is sent; at ``amount`` ``action`` is taken:
    stop_launch, drain_idle or drain_all. For a team it is stop_launch."""

    period: str
    amount: Decimal
    time_zone: str = "UTC"
    soft_percent: Decimal = Decimal(80)
    action: str = "stop_launch"


@dataclasses.dataclass(frozen=True, slots=True)
class GpuLoss:
    """A time in which the node of a machine in use lacked ``missing`` of the ``of`` GPUs (or slices) that it was to show (L-20a).
    ``until`` None = it did so to the end, or still does."""

    since: datetime
    missing: int
    of: int
    until: datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class LedgerLine:
    """What one machine cost: a closing line of the ledger, or (``closed`` False) a machine that still lives, as of now.

    ``price_hour`` and ``disk_hour`` (a part of it) in dollars; ``cost`` is what it cost until ``end``. ``granularity``: the seconds its cloud
    bills at once, ``minimum``: those that it bills at least (lines of older versions: 0); ``bills_boot`` False: disk and GPUs are billed apart;
    ``off_costs_less``: a machine that is off is billed less. ``cost_least`` and ``cost_most``: between them lies what the provider billed, None
    = a line of an older version; ``start_told``: the provider says when its bill began. ``start`` None = nothing was ever rented.
    ``worked_since`` and ``work_watched`` are those of the claim; lines of older versions say neither, so that their use is unknown.
    ``traffic_price_gb_down`` and ``_up`` are dollars per GB that its offer named; ``cost`` has no traffic. ``gpu_losses``: when GPUs that were
    paid for were missing. ``attempts``: create calls by cloud, result and error class; ``phases``: seconds in each phase; ``cause``: the code
    of the diagnosis of a machine that never became usable; ``draining_since``: when its end was decided; ``work``: what pods used of its
    ``slots`` GPUs or slices.
    Lines of older versions have none of the five."""

    key: str
    name: str
    pool: str
    node_class: str
    cloud: str
    model: str
    gpu_count: int
    region: str
    spot: bool
    ids: tuple[str, ...]
    price_hour: Decimal
    disk_hour: Decimal
    start: datetime | None
    end: datetime
    running_since: datetime | None
    interrupted_at: datetime | None
    initialized: datetime | None
    worked_since: datetime | None
    work_watched: bool
    idle_since: datetime | None
    cost: Decimal
    granularity: int
    bills_boot: bool
    off_costs_less: bool
    reason: str
    why: str
    joined: bool
    closed: bool = True
    cost_least: Decimal | None = None
    cost_most: Decimal | None = None
    start_told: bool = False
    minimum: int = 0
    traffic_price_gb_down: Decimal | None = None
    traffic_price_gb_up: Decimal | None = None
    gpu_losses: tuple[GpuLoss, ...] = ()
    attempts: tuple[tuple[str, str, str, int], ...] = ()
    phases: tuple[tuple[str, int], ...] = ()
    cause: str = ""
    draining_since: datetime | None = None
    slots: int = 0
    work: WorkRecord | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Ledger:
    """The books as they were read. ``torn`` names the places of lines that cannot be understood: what they cost is unknown, so that every
    sum is "at least" as long as there are any."""

    lines: tuple[LedgerLine, ...] = ()
    torn: tuple[str, ...] = ()


# ---- when a pool is in use: office hours and the like


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """Hours of a week. ``days``: 0 (Monday) to 6, on which it begins; ``start`` and ``end``: local times of day, an ``end`` that is not
    after ``start`` lies on the next day. ``min_nodes``: the floor meanwhile, None = the pool's. ``hard_stop``: local time of day after
    the end at which machines that are still there go by force, None = they may finish."""

    days: frozenset[int]
    start: time
    end: time
    min_nodes: int | None = None
    hard_stop: time | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Calendar:
    """A pool's windows in one time zone (a name of the tz database). Outside of all of them nothing is launched and no node is kept."""

    time_zone: str
    windows: tuple[Window, ...]
