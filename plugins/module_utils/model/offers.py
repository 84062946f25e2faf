# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What clouds rent: what they can do, offers, machines, and what is asked for when one is rented."""

from __future__ import annotations

import dataclasses
import enum
import typing as t
from datetime import datetime
from decimal import Decimal

from .names import Labels


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
    """How a rented machine becomes useful (docs/explanation/architecture.md)."""

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
class Quality:
    """Requirements on the host of a machine, beside its size. None = not asked; what is not known of an offer meets no spec.

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
class Capability:
    """What a cloud can do, as data. One record per cloud file; decisions read it instead of asking for names.

    ``lanes``: lanes its machines can serve, best first. ``carrier`` and ``user_data_limit`` (bytes, None = it carries none): how a VM
    gets its payload. ``tags``: own marks can be set at launch; ``stamped``: they are on every machine of ours from its first moment, so that
    one without them is not ours, whatever its name. ``created_time``: its list tells when a machine was made.
    ``registration_timeout``: seconds of L-11. ``list_delay``: seconds for which a new machine may be missing from its list.
    ``billing_granularity``: seconds; a started unit is billed whole. ``billing_minimum``: seconds that are billed at least.
    ``billed_until_gone`` False: its documentation says that the bill ends with the accepted destroy call, not with the machine's last breath.
    ``bills_boot`` False: until a machine runs only its disk is billed. ``tells_start``: its list says when the bill of a machine began.
    ``charges_lag``: its API tells what each machine was billed (``TellsCharges`` of providers/base.py), in full so many seconds after the
    machine's end; None = it does not tell. ``states``: every word its API has for a machine's state.
    ``lane_reason``: why its machines serve no other lane, a sentence for people. ``login``: the SSH user of its Ubuntu images.
    ``node_quality``: what hosts of nodes must be where nobody says anything else. ``restamps``: what of a machine that runs already can be
    changed, "name" and "marks"; empty: nothing, so that one that was made by hand cannot be marked as ours (``Restamps`` of
    providers/base.py). ``user_data_stays``: its API and its machines show user data as long as a machine exists, so that it is emptied once
    the machine has joined (``KeepsUserData`` there). ``off_costs_less``: a machine that powers itself off is billed less than one that runs,
    so that a guard on it saves money (L-46). ``volumes``: how many existing volumes of the account a machine can be given at launch
    (``HasVolumes`` of providers/base.py); 0 = none. ``volume_paths``: a regular expression that their places in the machine match, "" = any
    absolute path.
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
    billing_minimum: int = 0
    billed_until_gone: bool = True
    bills_boot: bool = True
    tells_start: bool = False
    charges_lag: int | None = None
    states: t.Mapping[str, StateFacts] = dataclasses.field(default_factory=dict)
    credential_env: tuple[str, ...] = ()
    rented: bool = True
    lane_reason: str = ""
    login: str = ""
    node_quality: Quality = Quality()
    user_data_stays: bool = False
    off_costs_less: bool = False
    restamps: tuple[str, ...] = ()
    volumes: int = 0
    volume_paths: str = ""

    @property
    def terminal(self) -> frozenset[str]:
        """Its own words for "gone and not billed"."""
        return frozenset(
            word for word, facts in self.states.items() if facts.state is InstanceState.TERMINATED and not facts.billed
        )

    def read_state(self, word: str) -> InstanceState:
        """Our word for the cloud's; UNKNOWN for one that nobody documented."""
        facts = self.states.get(word)
        return facts.state if facts else InstanceState.UNKNOWN


@dataclasses.dataclass(frozen=True, slots=True)
class Guard:
    """When a machine of lane kubelet powers itself off (L-46): seconds of silence of the API server, and of the controller while the API
    server answers; None = never."""

    silent_for: int | None = None
    controller_silent_for: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """Something a cloud would rent now. ``price_hour`` is the total for the whole machine, disk and fixed fees included.

    ``model`` is the canonical GPU name (planner/offers/gpu_models.py), ``gpu_memory_mib`` is per GPU. ``region`` is our standard region
    ("us-east", "us-west", "eu-central" ...) or the cloud's own word where none fits; ``cloud_region`` is always the cloud's.
    ``available`` None = the cloud does not count. ``disk_gib`` is the disk one gets at this price, ``storage_price_hour`` its part of it.
    ``min_bid`` (spot by auction): the lowest machine price per hour, without disk, that would run now. ``price_estimated``: the price is
    a published one; the true one is known only once the machine exists. ``traffic_price_gb_down`` and ``_up``: dollars per GB towards the
    machine and away from it, beside ``price_hour``; None where a cloud bills no traffic or does not tell. ``traits`` are facts about the
    host for specs about quality (planner/offers/requirements.py): verified "true"/"false", cuda "12.8", inet-down Mbit/s, ports,
    static-ip, duration seconds, stock.
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
    traffic_price_gb_down: Decimal | None = None
    traffic_price_gb_up: Decimal | None = None
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
    contract over); it does not come back by itself in time. ``halted``: it stands still, and only its disk is billed.
    ``running_since``: when its GPUs began to be billed, where the cloud tells. ``disk_gib``: the whole GiB of its disk, None where
    it does not tell. ``ports``: container port to "address:port" as reached from outside.
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
    halted: bool = False
    spot: bool | None = None
    running_since: datetime | None = None
    storage_price_hour: Decimal = Decimal(0)
    disk_gib: int | None = None
    ports: Labels = dataclasses.field(default_factory=dict)

    @property
    def gone(self) -> bool:
        """True when it exists no more and is not billed."""
        return self.state is InstanceState.TERMINATED

    @property
    def state_word(self) -> str:
        """Its state for people: in the cloud's own word, as its console shows it, else in ours."""
        return self.raw_state or self.state.value


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
class Volume:
    """A volume that the account has beside machines and that machines of its region can mount. It is its owner's: nothing here makes, changes
    or deletes one. ``region`` is the cloud's own word. ``size_gb``: decimal GB that are billed, None where the cloud does not tell.
    ``price_month``: dollars for 30 days, None where the price is not known."""

    cloud: str
    id: str
    name: str
    region: str
    size_gb: Decimal | None = None
    price_month: Decimal | None = None
    in_use: bool | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Charge:
    """What a provider billed for one machine in one of its billing periods. ``instance_id`` is empty where its API names machines by
    ``words`` only: the words of the entry, among them the machine's name. ``amount``: dollars without ``traffic`` (dollars, too).
    ``rounding``: by how many dollars the amount may be rounded."""

    instance_id: str
    words: frozenset[str]
    amount: Decimal
    traffic: Decimal = Decimal(0)
    rounding: Decimal = Decimal(0)


@dataclasses.dataclass(frozen=True, slots=True)
class VolumeMount:
    """A volume that a class wants in its machines: ``name`` is its name or its id, ``path`` the folder in the machine. ``gb_month``: what the
    user says that a GB costs in a month; None = as the cloud's record has it."""

    name: str
    path: str
    gb_month: Decimal | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Everything a cloud needs to make one machine. ``user_data`` (for VMs) is a secret, already in the form of the cloud's carrier;
    ``environment`` goes with it where the carrier is the environment. ``container`` instead of both on lane service. ``marks`` become
    tags where the cloud has them. For an auction the bid is ``offer.price_hour`` less the disk's part. ``volumes`` are mounted and stay
    when the machine goes."""

    name: str
    offer: Offer
    user_data: str | None = dataclasses.field(default=None, repr=False)
    environment: t.Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    container: Container | None = None
    marks: Labels = dataclasses.field(default_factory=dict)
    max_price_hour: Decimal | None = None
    settings: t.Mapping[str, t.Any] = dataclasses.field(default_factory=dict)
    volumes: tuple[VolumeMount, ...] = ()
