# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Kubernetes knows: nodes, their taints, pods, and keys of Secrets."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime

from .devices import DeviceRequest, DeviceRoom, PodClaim
from .names import Labels

# ---- where a pod may run, as it says itself: selectors, tolerations, and how it gets on with other pods

DEFAULT_SCHEDULER = "default-scheduler"


@dataclasses.dataclass(frozen=True, slots=True)
class Expression:
    """One condition on a label: operator In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class NodeTerm:
    """One alternative of a required node affinity: all of its conditions hold. ``fields`` are conditions on metadata.name."""

    labels: tuple[Expression, ...] = ()
    fields: tuple[Expression, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Toleration:
    """What a pod tolerates. An empty key stands for every key, an empty effect for every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Others:
    """Pods that one keeps away from: those of ``namespaces`` (empty = of any) whose labels meet all conditions."""

    namespaces: tuple[str, ...]
    labels: tuple[Expression, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class PodTerm:
    """A required rule about ``others`` in the same domain: nodes with the same value of the label ``key``."""

    key: str
    others: Others


@dataclasses.dataclass(frozen=True, slots=True)
class Spread:
    """A topology spread constraint that has to hold, over domains of the label ``key``. ``selector``: whose pods of its namespace count, None =
    none. With fewer than ``min_domains`` domains the least number of pods is 0. ``honor_affinity`` and ``honor_taints``: nodes that do not
    suit the pod, or have taints that it does not tolerate, are no domains."""

    key: str
    max_skew: int
    selector: tuple[Expression, ...] | None = None
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Placement:
    """What a pod says about its place. ``selector`` are label and value; of ``terms`` one has to hold (empty = no affinity).

    ``alone``: no pod of these on the same node. ``unsupported`` names a required rule that nothing here can follow, empty without.
    ``claims``: it asks for devices by resource claims. ``scheduler`` places it. ``spread``, ``near`` (all of its terms) and ``apart`` (none of
    them, over more than one node) have to hold. ``volumes`` are the persistent volume claims that it uses, as long as nobody has read where
    they can be reached; then ``reach`` says it: of each entry one term has to hold, or ``unplaceable`` why no node serves them. ``avoids``:
    pods that it keeps away from by rules that cannot be followed to the letter (part of what ``unsupported`` names). ``devices``:
    what its claims ask for, once that has been looked up.
    """

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    alone: tuple[Others, ...] = ()
    unsupported: str = ""
    claims: bool = False
    priority: int = 0
    scheduler: str = DEFAULT_SCHEDULER
    spread: tuple[Spread, ...] = ()
    volumes: tuple[str, ...] = ()
    avoids: tuple[Others, ...] = ()
    near: tuple[PodTerm, ...] = ()
    apart: tuple[PodTerm, ...] = ()
    reach: tuple[tuple[NodeTerm, ...], ...] = ()
    unplaceable: str = ""
    devices: tuple[DeviceRequest, ...] = ()

    @property
    def minds_others(self) -> bool:
        """Whether its place depends on where other pods are, beyond its own node (L-40)."""
        return bool(self.spread or self.near or self.apart)

    @property
    def unjudged(self) -> str:
        """Why nobody here can say on which other node the pod could run; empty when the rules of this collection can."""
        if self.claims:
            return "resource claims"
        return self.unsupported or ("persistent volume" if self.volumes or self.unplaceable else "")

    @property
    def unmovable(self) -> str:
        """Why at best a look at the other pods and nodes says on which other node the pod could run; empty when none is needed."""
        if self.unjudged:
            return self.unjudged
        if self.near or self.apart:
            return "required podAffinity" if self.near else f"required podAntiAffinity over {self.apart[0].key}"
        return "hard topology spread" if self.spread else "persistent volume" if self.reach else ""


# ---- what Kubernetes knows


@dataclasses.dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node. ``value`` may be empty. ``added``: since when it is there, where Kubernetes says so; no part of what it is."""

    key: str
    value: str
    effect: str
    added: datetime | None = dataclasses.field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclasses.dataclass(frozen=True, slots=True)
class StatusCondition:
    """A condition of an object's status. ``status``: True, False or Unknown, as text. ``since``: its last transition, None = not given."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: datetime | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A Kubernetes Node. ``ready`` None = condition Unknown or absent; ``ready_since`` = its last transition. ``conditions`` are the others.
    ``devices``: the GPUs that a DRA driver offers on it, None = none does; they are in ``allocatable``, too."""

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
    conditions: tuple[StatusCondition, ...] = ()
    devices: DeviceRoom | None = None

    def offered(self, resource: str) -> int:
        """How much of a resource pods may ask of it; ``nvidia.com/gpu`` counts shared GPUs (``nvidia.com/gpu.shared``), too."""
        return sum(amount for name, amount in self.allocatable.items() if name == resource or name.startswith(f"{resource}."))


@dataclasses.dataclass(frozen=True, slots=True)
class MadeToken:
    """A bootstrap token that we made, or were about to make: its id, which is not a secret, the machine it is for, and its end."""

    id: str
    machine: str
    expires: datetime


@dataclasses.dataclass(frozen=True, slots=True)
class Pod:
    """A pod, reduced to what decisions need. ``requests`` are effective requests (L-17), only GPU resources by default;
    of a pod that waits for a node every resource.

    ``owner_kind`` and ``owner_api`` are those of the controlling owner, empty without one. ``finished`` is the latest end of a
    container once the phase is Succeeded or Failed, ``ran_since`` the earliest start of one. ``deletion`` includes the grace period, as the API
    server writes it. ``waiting`` is the scheduler's reason or a container's, ``waiting_why`` the scheduler's sentence about it. ``claims``: its
    ResourceClaims;
    ``claims_problem``: why what they ask for cannot be judged, empty = it can, None = nobody looked. ``follows``: the uid of a pod that has to
    run on the same node, and that asks for what both need. ``container_gpus``: the most GPUs of NVIDIA that one of its containers asks for, 0 =
    at most one. ``pod_group``: the PodGroup of its spec. ``placeholder``: there is no such pod, it
    stands for one that an object asks room for.
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
    waiting_why: str = ""
    placement: Placement = Placement()
    claims: tuple[PodClaim, ...] = ()
    claims_problem: str | None = None
    follows: str = ""
    pod_group: str = ""
    ran_since: datetime | None = None
    placeholder: bool = False
    container_gpus: int = 0

    @property
    def ended(self) -> bool:
        """Whether all its containers have ended for good: it uses nothing any more."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def static(self) -> bool:
        """Whether the kubelet runs it by itself; the API server has its mirror only."""
        return self.mirror or self.owner_kind == "Node"

    @property
    def of_daemon_set(self) -> bool:
        return self.owner_kind == "DaemonSet" and self.owner_api.startswith("apps/")

    @property
    def comes_with_node(self) -> bool:
        """Whether every node that it fits has one like it, also one that is yet to come."""
        return self.static or self.of_daemon_set

    def is_nominated_to(self, node: str) -> bool:
        """Whether the scheduler preempts pods of this node for it (status.nominatedNodeName), and has not bound it yet."""
        return self.nominated_node == node and not self.node


# ---- what GPU pods used of a machine, as runs recorded it (L-44)


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class PodOwner:
    """For whom a pod runs. ``team`` and ``requester`` empty = unknown."""

    namespace: str
    team: str = ""
    requester: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class PodUse:
    """What the pods of one owner used: seconds × GPUs (or slices)."""

    owner: PodOwner
    gpu_seconds: int


@dataclasses.dataclass(frozen=True, slots=True)
class WorkingPod:
    """A GPU pod that ran when a run last recorded its machine. ``gpus``: how many (or slices) it asks for."""

    uid: str
    owner: PodOwner
    gpus: int


@dataclasses.dataclass(frozen=True, slots=True)
class WorkSpan:
    """Recorded time of a machine, at most a day. In ``useful`` seconds a GPU pod ran, of ``unmeasured`` ones it is unknown. ``unseen``: seconds
    × GPUs of which is unknown who used them."""

    start: datetime
    end: datetime
    useful: int = 0
    unmeasured: int = 0
    uses: tuple[PodUse, ...] = ()
    unseen: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class WorkRecord:
    """What GPU pods used of a machine from its create call ``until`` then, and which of them were ``running`` at that moment."""

    until: datetime
    running: tuple[WorkingPod, ...] = ()
    spans: tuple[WorkSpan, ...] = ()


# ---- what a new node goes through before pods come, and our pods for it

ACCEPTANCE_TIMEOUT: t.Final = 300  # seconds for one try of an acceptance test, of a pool that says nothing (L-35)
PRE_PULL_TIMEOUT: t.Final = 600  # seconds for the images of a prePull, of a pool that says nothing (L-43)


@dataclasses.dataclass(frozen=True, slots=True)
class AcceptanceTest:
    """What a new node has to pass before pods may come (L-35). ``image`` empty: the CUDA sample vectorAdd; without ``command`` the image's own
    start is used. ``gpus``: all or one. ``timeout``: seconds for one try, its image included. ``runtime_class``: of its pod, empty = the
    node's default."""

    image: str = ""
    command: tuple[str, ...] = ()
    runtime_class: str = ""
    timeout: int = ACCEPTANCE_TIMEOUT
    gpus: str = "all"

    @property
    def name(self) -> str:
        """As people know it."""
        return self.image or "vectoradd"


@dataclasses.dataclass(frozen=True, slots=True)
class PrePull:
    """The images that a new node pulls before pods come (L-43). ``secrets``: names of Secrets for their registries, which only the kubelet
    reads. ``timeout``: seconds after which the node is taken without them."""

    images: tuple[str, ...]
    secrets: tuple[str, ...] = ()
    timeout: int = PRE_PULL_TIMEOUT


@dataclasses.dataclass(frozen=True, slots=True)
class ContainerState:
    """One container of a pod of ours. ``exit_code`` None = it has not ended; ``started`` None = it never ran. ``reason`` and ``message`` are
    those of its end, or of what it waits for. ``pulled``: the kubelet names the image that it has."""

    name: str
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    started: datetime | None = None
    finished: datetime | None = None
    pulled: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class TrialPod:
    """A pod of ours on the node of ``claim`` that tests it (L-35) or pulls images (L-43). ``fingerprint`` says which test or images of which
    machine it is about. ``reason`` and ``message`` are those of the pod as a whole: who ended it, or why the scheduler does not place it.
    ``deleting``: it is being removed."""

    name: str
    uid: str
    claim: str
    fingerprint: str
    created: datetime
    phase: str
    deleting: bool = False
    reason: str = ""
    message: str = ""
    containers: tuple[ContainerState, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class DevicePlugin:
    """A DaemonSet that advertises GPUs; ``dra``: as devices of a DRA driver."""

    namespace: str
    name: str
    placement: Placement = Placement()
    dra: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class DevicePlugins:
    """Those of the cluster. ``problem``: why they could not be read."""

    found: tuple[DevicePlugin, ...] = ()
    problem: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class SecretRef:
    """A key of a Kubernetes Secret."""

    name: str
    key: str
    namespace: str = "tgp-system"
