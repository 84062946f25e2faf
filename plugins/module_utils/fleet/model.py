# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of the collection as frozen records: what exists (offers, instances, devices, nodes, pods) and what we remember.

Units: money is Decimal US dollars per hour, GPU and system memory MiB, disk GiB, time aware UTC datetimes, durations seconds.
``None`` always means "unknown" or "not said", never zero. Collections are tuples; a collection that could not be read is None.
"""

from __future__ import annotations

import dataclasses
import enum
import typing as t
from datetime import datetime
from decimal import Decimal

Labels = t.Mapping[str, str]


class Phase(str, enum.Enum):
    """Phases of a claim (L-2), in their order."""

    PENDING = "Pending"
    PROVISIONING = "Provisioning"
    BOOTING = "Booting"
    JOINING = "Joining"
    READY = "Ready"
    TERMINATING = "Terminating"
    FAILED = "Failed"


class InstanceState(str, enum.Enum):
    """What a cloud says of a machine, in our words. UNKNOWN = a word of the cloud we do not know: not ready, not gone."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPED = "stopped"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Lane(str, enum.Enum):
    """How a rented machine becomes useful (docs/architecture.md)."""

    TALOS = "talos"
    TAKEOVER = "takeover"
    KUBELET = "kubelet"
    SERVICE = "service"


class Carrier(str, enum.Enum):
    """How a cloud hands a machine what it boots with: cloud-init's user data, a shell script that the cloud runs as root, or a short
    script and environment variables of limited length."""

    USER_DATA = "user-data"
    SCRIPT = "script"
    ENVIRONMENT = "environment"


class StateFacts(t.NamedTuple):
    """What one of a cloud's own words for a state means: our word, and whether anything of the machine is billed in it."""

    state: InstanceState
    billed: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Capability:
    """What a cloud can do, as data. One record per cloud file; decisions read it instead of asking for names.

    ``lanes``: lanes its machines can serve, best first. ``carrier`` and ``user_data_limit`` (bytes, None = it carries none): how a VM
    gets its payload. ``tags``: own marks can be set at launch; ``stamped``: they are on every machine of ours from its first moment, so that
    one without them is somebody's, whatever its name. ``created_time``: its list tells when a machine was made.
    ``registration_timeout``: seconds of L-11. ``list_delay``: seconds for which a new machine may be missing from its list.
    ``billing_granularity``: seconds; a started unit is billed whole. ``billed_until_gone`` False: its documentation says that the bill
    ends with the accepted destroy call, not with the machine's last breath. ``bills_boot`` False: until a machine runs only its disk is
    billed. ``states``: every word its API has for a machine's state. ``lane_reason``: why its machines serve no other lane, a sentence
    for people.
    """

    cloud: str
    lanes: tuple[Lane, ...]
    spot: bool = False
    stop: bool = False
    tags: bool = False
    stamped: bool = False
    created_time: bool = False
    carrier: Carrier = Carrier.USER_DATA
    user_data_limit: int | None = None
    registration_timeout: int = 1200
    list_delay: int = 0
    billing_granularity: int = 1
    billed_until_gone: bool = True
    bills_boot: bool = True
    states: t.Mapping[str, StateFacts] = dataclasses.field(default_factory=dict)
    credential_env: tuple[str, ...] = ()
    rented: bool = True
    lane_reason: str = ""

    @property
    def terminal(self) -> frozenset[str]:
        """Its own words for "gone and not billed"."""
        return frozenset(
            word for word, facts in self.states.items() if facts.state is InstanceState.TERMINATED and not facts.billed
        )

    def read_state(self, word: str) -> InstanceState:
        """Our word for the cloud's; UNKNOWN for one that nobody documented."""
        found = self.states.get(word)
        return found.state if found else InstanceState.UNKNOWN


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """Something a cloud would rent now. ``price_hour`` is the total for the whole machine, disk and fixed fees included.

    ``model`` is the canonical GPU name (fleet/gpus.py), ``gpu_memory_mib`` is per GPU. ``region`` is our standard region
    ("us-east", "us-west", "eu-central" ...) or the cloud's own word where none fits; ``cloud_region`` is always the cloud's.
    ``available`` None = the cloud does not count. ``disk_gib`` is the disk one gets at this price, ``storage_price_hour`` its part of it.
    ``min_bid`` (spot by auction): the lowest machine price per hour, without disk, that would run now. ``price_estimated``: the price is
    a published one; the true one is known only once the machine exists. ``traits`` are facts about the host for wishes about quality
    (fleet/quality.py): verified "true"/"false", cuda "12.8", inet-down Mbit/s, ports, static-ip, duration seconds, stock.
    """

    cloud: str
    id: str
    instance_type: str
    model: str
    gpu_count: int
    price_hour: Decimal | None
    region: str = ""
    cloud_region: str = ""
    gpu_memory_mib: int | None = None
    vcpus: int | None = None
    memory_mib: int | None = None
    disk_gib: int | None = None
    spot: bool = False
    storage_price_hour: Decimal = Decimal(0)
    available: int | None = None
    reliability: Decimal | None = None
    host_id: str = ""
    arch: str = "amd64"
    lanes: tuple[Lane, ...] = ()
    seen: datetime | None = None
    min_bid: Decimal | None = None
    price_estimated: bool = False
    traits: Labels = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class OfferQuery:
    """What a cloud is asked for. A cloud that can search narrows by it; every other ignores it, and the answer may always hold more.

    Empty or None = no restriction. ``models`` are canonical names, ``disk_gib`` is the disk that prices shall include, ``spot`` None = both
    kinds. ``lanes`` are the accepted lanes. ``rent_seconds``: how long the machine may be wanted (hosts have an end date).
    """

    models: tuple[str, ...] = ()
    gpu_counts: tuple[int, ...] = ()
    min_gpu_memory_mib: int | None = None
    max_price_hour: Decimal | None = None
    disk_gib: int = 64
    spot: bool | None = None
    lanes: tuple[Lane, ...] = ()
    rent_seconds: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Instance:
    """A rented (or powered-on) machine as its cloud lists it. ``marks`` are tags or labels of ours found on it.

    ``price_hour`` is what it costs while it runs, disk included. ``interrupted``: the cloud took its GPUs away (spot lost, money or
    contract over); it does not come back by itself in time. ``running_since``: when its GPUs began to be billed, where the cloud
    tells. ``ports``: container port to "address:port" as reached from outside.
    """

    cloud: str
    id: str
    name: str
    state: InstanceState
    raw_state: str = ""
    created: datetime | None = None
    price_hour: Decimal | None = None
    ip: str = ""
    private_ip: str = ""
    region: str = ""
    instance_type: str = ""
    model: str = ""
    gpu_count: int | None = None
    host_id: str = ""
    marks: Labels = dataclasses.field(default_factory=dict)
    problem: str = ""
    interrupted: bool = False
    spot: bool | None = None
    running_since: datetime | None = None
    storage_price_hour: Decimal = Decimal(0)
    ports: Labels = dataclasses.field(default_factory=dict)

    @property
    def gone(self) -> bool:
        """True when it exists no more and is not billed."""
        return self.state is InstanceState.TERMINATED


@dataclasses.dataclass(frozen=True, slots=True)
class Extra:
    """Something of ours beside machines that a cloud keeps, and may bill, until it is removed: a startup script, a network, an address.

    ``name`` is that of the machine it was made for; ``kind`` is the cloud's own word."""

    cloud: str
    kind: str
    id: str
    name: str
    created: datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Container:
    """What an unprivileged container is to run (lane service). ``environment`` and ``command`` may hold secrets.

    ``command`` is the text of a ``/bin/sh`` script that does everything, or empty: the image's own start. ``ports`` are the ports of
    the container that shall be reachable inside the mesh; none of them is opened to the world."""

    image: str
    command: str = dataclasses.field(default="", repr=False)
    environment: t.Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    ports: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Everything a cloud needs to make one machine. ``user_data`` (for VMs) is a secret, already in the form of the cloud's carrier;
    ``environment`` goes with it where the carrier is the environment. ``container`` instead of both on lane service. ``marks`` become
    tags where the cloud has them. For an auction the bid is ``offer.price_hour`` less the disk's part."""

    name: str
    offer: Offer
    user_data: str | None = dataclasses.field(default=None, repr=False)
    environment: t.Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    container: Container | None = None
    marks: Labels = dataclasses.field(default_factory=dict)
    max_price_hour: Decimal | None = None
    settings: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """An entry of the mesh. ``hostname`` is what the node asked for, ``name`` what the mesh made of it ("-1" suffix possible)."""

    id: str
    hostname: str
    name: str = ""
    addresses: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    online: bool | None = None
    created: datetime | None = None
    last_seen: datetime | None = None
    ephemeral: bool = False
    external: bool = False
    authorized: bool = True
    problem: str = ""
    key_expiry_disabled: bool | None = None
    expires: datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class MeshKey:
    """An enrolment key without its secret. ``description`` names the node it was made for."""

    id: str
    description: str
    created: datetime | None = None
    expires: datetime | None = None
    invalid: bool | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node. ``value`` may be empty."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A Kubernetes Node. ``ready`` None = condition Unknown or absent; ``ready_since`` = its last transition."""

    name: str
    uid: str
    created: datetime
    ready: bool | None
    ready_since: datetime | None = None
    ready_message: str = ""
    unschedulable: bool = False
    labels: Labels = dataclasses.field(default_factory=dict)
    annotations: Labels = dataclasses.field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    allocatable: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    addresses: tuple[str, ...] = ()
    os_image: str = ""
    kubelet_version: str = ""
    resource_version: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Pod:
    """A pod, reduced to what decisions need. ``requests`` are effective requests (L-17), only GPU resources by default.

    ``owner_kind`` and ``owner_api`` are those of the controlling owner, empty without one. ``finished`` is the latest end of a
    container once the phase is Succeeded or Failed. ``deletion`` includes the grace period, as the API server writes it.
    """

    namespace: str
    name: str
    uid: str
    phase: str
    node: str = ""
    owner_kind: str = ""
    owner_api: str = ""
    mirror: bool = False
    deletion: datetime | None = None
    created: datetime | None = None
    started: datetime | None = None
    finished: datetime | None = None
    requests: t.Mapping[str, int] = dataclasses.field(default_factory=dict)
    labels: Labels = dataclasses.field(default_factory=dict)
    annotations: Labels = dataclasses.field(default_factory=dict)
    grace_seconds: int = 30
    priority_class: str = ""
    empty_dir: bool = False
    nominated_node: str = ""
    waiting: str = ""


# ---- what we remember ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Deletion:
    """Why and how far a claim is being taken down. ``requested`` is set at the decision, ``started`` at the first destroy call."""

    reason: str
    requested: datetime
    started: datetime | None = None
    drain_deadline: datetime | None = None
    last_error: str = ""
    attempts: int = 0
    force: bool = False


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
class Claim:
    """The record "we want, have or had this machine" (L-2). Written before the first billable call; holds no secret.

    ``pool`` is "namespace/name". ``offer`` is the offer being tried or rented, ``candidates`` the ones to try after it.
    ``ids_seen`` are all machine ids ever handed out under this name. ``expected_gpus`` is what must become allocatable.
    ``running_since`` and ``interrupted_at``: between them the GPUs are billed, where a cloud bills disk and GPUs apart.
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
    registered: datetime | None = None
    initialized: datetime | None = None
    idle_since: datetime | None = None
    blocked_until: datetime | None = None
    blocked_times: int = 0
    gone_since: datetime | None = None
    running_since: datetime | None = None
    interrupted_at: datetime | None = None
    generation: str = ""
    deletion: Deletion | None = None
    attempts: tuple[Attempt, ...] = ()
    history: tuple[tuple[datetime, str, str], ...] = ()
    version: str = ""  # of the store (resourceVersion); not part of the record itself

    @property
    def price(self) -> Decimal:
        """Dollars per hour that count against limits."""
        return self.reserved_price if self.price_paid is None else self.price_paid

    @property
    def rejects(self) -> frozenset[str]:
        """Ids of machines that refused create calls left behind."""
        return frozenset(one.instance_id for one in self.attempts if one.result == "refused" and one.instance_id)


# ---- one look at the world -----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class CloudView:
    """What one cloud answered in this run. ``instances``, ``offers`` or ``extras`` None = that read failed or was not made, ``problem``
    says how."""

    instances: tuple[Instance, ...] | None = None
    offers: tuple[Offer, ...] | None = None
    problem: str = ""
    extras: tuple[Extra, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """What a service (lane service) answered when it was asked. ``healthy`` and ``idle`` None = it could not be asked, or its answer
    said neither; the details are for people."""

    healthy: bool | None = None
    detail: str = ""
    idle: bool | None = None
    idle_detail: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Observation:
    """Everything observed in one run (L-12 order: clouds, mesh, nodes, pods, claims). None = could not be read."""

    now: datetime
    cluster_id: str
    clouds: t.Mapping[str, CloudView]
    devices: tuple[Device, ...] | None = None
    keys: tuple[MeshKey, ...] | None = None
    nodes: tuple[Node, ...] | None = None
    pods: tuple[Pod, ...] | None = None
    claims: tuple[Claim, ...] | None = None
    findings: t.Mapping[str, datetime] = dataclasses.field(default_factory=dict)
    blocks: t.Mapping[str, datetime] = dataclasses.field(default_factory=dict)
    probes: t.Mapping[str, Probe] = dataclasses.field(default_factory=dict)  # of services, by machine name


# ---- what the user wants -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement on offer labels (L-13): operator In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class SecretRef:
    """A key of a Kubernetes Secret."""

    name: str
    key: str
    namespace: str = "tgp-system"


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
class Quality:
    """What is asked of the host of a machine, beside its size. None = not asked; what is not known of an offer meets no wish.

    ``min_reliability``: a share of time, 0 to 1. ``min_cuda``: the newest CUDA its driver must support, like "12.8". ``min_bandwidth``:
    Mbit/s towards the machine. ``min_ports``: ports reachable from outside. ``min_duration``: seconds that its host still offers it."""

    min_reliability: Decimal | None = None
    verified: bool = False
    min_cuda: str = ""
    min_bandwidth: int | None = None
    static_ip: bool = False
    min_ports: int | None = None
    min_duration: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CloudChoice:
    """One entry of a class's ``providers``. ``settings`` are the cloud's own options (image, ssh key ...). ``implicit``: nobody named the
    cloud, so that it is passed over in silence when there is no credential for it. ``bid_margin``: by which share a bid is above the
    lowest that would win. ``spot_discount_min``: see :class:`NodeClass`; None = as there."""

    cloud: str
    priority: int = 0
    enabled: bool = True
    credentials: SecretRef | None = None
    machines: tuple[Machine, ...] = ()
    settings: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    implicit: bool = False
    bid_margin: Decimal = Decimal("0.1")
    spot_discount_min: Decimal | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class MeshChoice:
    """The class's mesh: ``backend`` tailscale (also headscale) or none."""

    backend: str = "tailscale"
    tags: tuple[str, ...] = ()
    ephemeral: bool = True
    accept_routes: bool = False
    advertise_routes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class NodeClass:
    """GPUNodeClass: infrastructure, credentials, limits. ``spot_discount_min``: the share by which spot has to be cheaper than the best
    firm offer; None = the run's setting."""

    name: str
    clouds: tuple[CloudChoice, ...]
    template: str | None = None
    template_ref: SecretRef | None = None
    talos_image: str = ""
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
    """How a service is asked whether it is idle: a path on its health port, or a command on the controller. One of the two."""

    url: str = ""
    command: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Pool:
    """GPUNodePool, or a GPURequest as a pool of one node (``request`` True). ``nodes`` = machines wanted by provision."""

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
    consolidation_policy: str = "WhenIdle"
    expire_after: int | None = None
    termination_grace: int = 600
    drain_timeout: int = 600
    min_age: int = 600
    registration_timeout: int | None = None
    idle_mode: str = "workload"
    gpu_wait: str = "all"
    request: bool = False
    cloud: str = ""
    generation: str = ""
    service: ServiceSpec | None = None
    idle_probe: IdleProbe | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Wishes:
    """All documents of one run, checked. ``nodes`` maps a pool key to the number of machines wanted now (None: as they are)."""

    classes: t.Mapping[str, NodeClass]
    pools: tuple[Pool, ...]
    nodes: t.Mapping[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Action:
    """One step of a plan, with its reason and its price.

    ``kind``: launch (new claim to be written and launched), resume (a claim of an earlier run goes on), update (claim facts to be
    written), annotate (node annotation idle-since set or removed), destroy (claim gets its deletion; drain, then teardown),
    delete_node, delete_device, delete_key, delete_extra (leftovers without a claim; of an extra ``target`` is its id, ``uid`` its kind,
    ``value`` its cloud), delete_instance (a second machine under the name of a claim
    that goes on: ``target`` its id, ``value`` its cloud), report (nothing is done). ``claim`` is the claim as it shall be written, in at
    most one action per claim (a delete_instance comes after an update or resume of its claim); ``target`` the node name, device id or
    key id for leftovers; ``price_hour`` what it adds (+) or saves (-).
    """

    kind: str
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
class Plan:
    """What a run would do. Pure data: the same observation and wishes always give the same plan (I-8).

    ``findings`` replaces the stored list of first sightings (two-run rule). ``problems`` make the play fail at its end.
    """

    actions: tuple[Action, ...] = ()
    shortfall: tuple[Shortfall, ...] = ()
    warnings: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    findings: t.Mapping[str, datetime] = dataclasses.field(default_factory=dict)
