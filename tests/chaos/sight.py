# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is true in the sandbox, and what one call is about: all that the invariants look at. Nothing here asks the code under test."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

from sandbox.world import Machine

from ..contract.act.rig import RENTED
from . import hub, own
from .grounds import CLOUDS
from .moving import Moved
from .purse import Purse

if t.TYPE_CHECKING:
    from ..contract.act.rig import Rig
    from .folder import Files
    from .silence import Silences

Json = dict[str, t.Any]
MIG = "nvidia.com/mig-"
_NAME = re.compile(r"tgp-([0-9a-f]{8})-[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?-[0-9a-z]{5}")
_CREATE = {one.cloud: (one.create[0], re.compile(one.create[1])) for one in CLOUDS}
_DESTROY = {one.cloud: (one.destroy[0], re.compile(one.destroy[1])) for one in CLOUDS}
_LISTS = {
    **{one.cloud: re.compile(one.lists) for one in CLOUDS if not one.has_own()},  # own machines are asked one by one
    # Tailscale's API, which newer headscales speak too, and headscale's own
    "tailscale": re.compile(r"/devices(\?|$)|/api/v1/node(\?|$)"),
}
_KUBE_LISTS = {
    "/api/v1/nodes": "nodes",
    "/api/v1/namespaces/tgp-system/configmaps": "claims",
    "/apis/tgp.io/v1/namespaces/tgp-system/gpunodeclaims": "claim objects",
}
_EVICT = re.compile(r"^/api/v1/namespaces/([^/]+)/pods/([^/]+)/eviction$")
_POD = re.compile(r"^/api/v1/namespaces/([^/]+)/pods/([^/]+)$")
CLASS_OF = {"training": "demo", "batch": "demo-2", "later": "demo-later"}  # of pools that stories have
_FRESH = timedelta(seconds=330)  # a price may be five minutes old when a machine is ordered


def works(pod: Json) -> bool:
    """Whether a pod counts as work."""
    meta = pod["metadata"]
    if pod.get("status", {}).get("phase") in ("Succeeded", "Failed") or "deletionTimestamp" in meta:
        return False
    kinds = {one["kind"] for one in meta.get("ownerReferences") or ()}
    return (meta.get("namespace") == "default" or _wants_gpu(pod)) and not kinds & {"DaemonSet", "Node"}


def _wants_gpu(pod: Json) -> bool:
    """A pod of the system's that asks for a GPU, or has a claim for a device, works like any other."""
    limits = [(one.get("resources") or {}).get("limits", {}) for one in pod["spec"]["containers"]]
    return bool(pod["spec"].get("resourceClaims")) or any(name.startswith("nvidia.com/") for one in limits for name in one)


def stays(pod: Json) -> bool:
    """Whether a pod is bound to its place: by a ResourceClaim, required affinity to pods, required anti-affinity over more than a node (the
    next node will do for one that keeps others off its own), or a hard spread."""
    spec = pod["spec"]
    rules = spec.get("affinity") or {}
    near, apart = (
        (rules.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for kind in ("podAffinity", "podAntiAffinity")
    )
    return bool(
        spec.get("resourceClaims")
        or near
        or any(one["topologyKey"] != "kubernetes.io/hostname" for one in apart)
        or any(one.get("whenUnsatisfiable") == "DoNotSchedule" for one in spec.get("topologySpreadConstraints") or ())
    )


def pool_in(name: str) -> str:
    """The name of the pool in a machine's name; own machines keep theirs, and there is one pool for them."""
    if not name.startswith("tgp-"):
        return "training"
    return name.split("-", 2)[-1].rpartition("-")[0]


@dataclasses.dataclass
class Limits:
    """Those of the class."""

    nodes: int
    cost_hour: Decimal
    gpus: int


@dataclasses.dataclass
class Run:
    """One run of a playbook: ``good`` are the lists it was truly given, ``bad`` those it asked for in vain, ``reads`` that it may write
    nothing."""

    name: str
    mode: str
    reads: bool = False
    good: set[str] = dataclasses.field(default_factory=set)
    bad: set[str] = dataclasses.field(default_factory=set)
    calls: int = 0
    lock_read: dict[tuple[str, str], datetime] = dataclasses.field(
        default_factory=dict
    )  # (holder, last sign of life) to when first read
    struck: set[str] = dataclasses.field(default_factory=set)  # calls that a fault had its hand in
    repeats: bool = False  # one of them was sent again
    acted: bool = False  # it changed something at a cloud or in the mesh
    refused: bool = False  # a create call of it had no good answer


@dataclasses.dataclass
class Call:
    """One outgoing call. ``status`` 0 = there was no answer; ``struck`` = a fault had its hand in it."""

    run: Run
    service: str
    method: str
    path: str
    body: str
    writes: bool
    status: int = 0
    struck: str = ""
    cut: bool = False  # the run did not wait for the end of its answer

    def lists(self) -> str:
        """Which list it asks for, "" for none."""
        if self.method != "GET":
            return ""
        bare = self.path.partition("?")[0]
        if self.service == "kubernetes":
            kind = _KUBE_LISTS.get(bare, "")
            return "" if kind == "claims" and "claim%3Dtrue" not in self.path else kind
        if self.service == "directory":
            return "claims" if bare == "/claims" else ""
        found = _LISTS.get(self.service)
        return self.service if found is not None and found.search(self.path) else ""

    def is_good(self) -> bool:
        """Whether its answer was the service's own. One that only looks like it (stale, an empty list) counts: nobody can tell."""
        return 200 <= self.status < 300 and not self.cut and self.struck not in ("truncate", "status", "status_after")

    def acts(self) -> bool:
        """Whether it changed something at a cloud or in the mesh."""
        return self.writes and 200 <= self.status < 300 and self.service in (*RENTED, own.CLOUD, "tailscale", "hub")

    def creates(self) -> bool:
        return self._is_one_of(_CREATE)

    def destroys(self) -> bool:
        return self._is_one_of(_DESTROY)

    def _is_one_of(self, calls: t.Mapping[str, tuple[str, re.Pattern[str]]]) -> bool:
        method, path = calls.get(self.service, ("-", _NAME))
        return self.method == method and path.search(self.path) is not None

    def deleted(self, prefix: str) -> str:
        """What a DELETE of a path with that beginning is aimed at."""
        bare = self.path.partition("?")[0]
        return bare.removeprefix(prefix) if self.method == "DELETE" and bare.startswith(prefix) else ""

    def device(self) -> str:
        """The device of the mesh that it removes, "" for none."""
        return (self.deleted("/api/v2/device/") or self.deleted("/api/v1/node/")) if self.service == "tailscale" else ""

    def pod_that_goes(self) -> tuple[str, str]:
        """Namespace and name of the pod that it evicts or deletes, ("", "") for none."""
        pattern = _EVICT if self.method == "POST" else _POD
        match = pattern.search(self.path.partition("?")[0]) if self.service == "kubernetes" else None
        gone = self.method == "DELETE" or (self.method == "POST" and "dryRun" not in self.path + self.body)
        return (match[1], match[2]) if match is not None and gone else ("", "")

    def claim(self) -> Json:
        """The claim that it writes, {} when it writes none."""
        if "/gpunodeclaims" in self.path and self.writes:
            return _record(json.loads(self.body)) if self.body and self.method != "DELETE" else {}
        if (
            self.service in ("kubernetes", "directory", "second cluster")
            and self.method in ("POST", "PUT")
            and "claim.json" in self.body
        ):
            return t.cast(Json, json.loads(json.loads(self.body)["data"]["claim.json"]))
        return {}


def _record(body: t.Any) -> Json:
    """What is written to an object of a claim: the whole object, or a patch."""
    if isinstance(body, dict):
        return t.cast(Json, body.get("record") or {})
    return next((step["value"] for step in body if step["path"] == "/record"), {})


class Sight:
    """The world, read from the sandbox's own tables. ``silences`` come with silence.py."""

    silences: Silences

    def __init__(self, rig: Rig, limits: Limits) -> None:
        self.rig, self.limits = rig, limits
        kube = rig.box.kube
        assert kube is not None
        self._store = kube.store
        uid = self._table("", "namespaces")["kube-system"]["metadata"]["uid"]
        self.cluster_id = uid.replace("-", "")[:8]
        self.files: Files | None = None  # our records, where they are files
        self.objects = False  # whether our claims are objects
        self.deleted_claims: set[str] = set()  # names of those that a person deleted
        self.deleted: set[str] = set()  # pools whose object a person deleted, so that their machines end at once
        self.hub = ""  # the file of the WireGuard hub, where there is one
        self.peers_before: list[str] = []  # machines that it knew before the newest call
        self._keys: dict[str, str] = {}
        self.guarded: dict[str, float] = {}  # pods that a budget never lets go, and the seconds they may take to end
        self.forgotten: set[str] = set()  # names whose claim somebody removed by hand
        self.ailing: dict[str, datetime] = {}  # nodes of which a health agent complains, and since when
        self.ailed: set[str] = set()  # those of which it did so for long enough, until they were well again
        self.tested_since: datetime | None = None  # since when the pool asks for an acceptance test
        self.installed: set[str] = set()  # definitions of kinds that a line brought
        self.pulls_since: datetime | None = None  # since when the pool names images to pull first
        self.pull_asked: set[str] = set()  # machines for which a pod was to be made that pulls them
        self.pull_judged: set[str] = set()  # those that took pods since, each judged once
        self.pull_disturbed = False  # whether a call about such pods had no good answer
        self.mesh = ""  # the mesh that a line made the class of pool training enter
        self.moved = Moved()
        self.rejected: dict[tuple[str, str, str], datetime] = {}  # offers whose machine failed it, and when that machine ended
        self.gpus_lost: dict[str, datetime] = {}  # nodes that GPUs were taken from, and when it was last
        self.started: set[str] = set()  # own machines that a run of ours switched on last
        self.unbooked: set[str] = set()  # those of which the ledger cannot know every hour
        self.by_hand: set[str] = set()  # ids of machines that somebody ended at the cloud's own page
        self.former: list[tuple[datetime, tuple[str, str, str], Decimal]] = []  # until when an offer was shown at which price
        self.purse: Purse | None = None
        self.foreign: dict[str, Machine] = {}  # machines of others by id, whatever their names say
        self.foreign_things: set[tuple[str, str]] = set()  # ("device", id) and ("Node", uid) of others
        self.asked: set[str] = set()  # names that a person asked to end
        self.vanished: dict[str, datetime] = {}  # pools whose document is gone, and since when
        self.unread: set[str] = set()  # documents that no run can read: gone, broken, or in a source that tells nothing
        self.broken_class: set[str] = set()  # of those, pools whose own document is read: only their class cannot be
        self.said: dict[str, list[Json]] = {}  # what each of those said, and whenever it was changed before
        self.copied: dict[str, Json] | None = None  # claims in the newest second cluster when it was restored; None = an empty one
        self.kept: dict[str, datetime] = {}  # pools of which machines stay when the document goes (orphanedPolicy), and since when
        self.misread: set[str] = set()  # ids of machines of which a look by id had a wrong answer
        self.outdated: set[str] = set()  # own machines whose webhook told an old status since their owner switched them on
        self.unwritable: set[str] = set()  # names whose claim could not be changed at any time
        self.begun: set[tuple[str, str]] = set()  # names and reasons of ends that were true when they began
        self.given_up: set[str] = set()  # names that began to go as DocumentGone while that was so
        self.paused: set[str] = set()  # pools that a person paused
        self.over: set[str] = set()  # machines that were past their drain, or ordered by name, when a pause began
        self._went: dict[str, datetime] = {}
        self._parsed: dict[str, tuple[int, Json]] = {}

    def _table(self, group: str, plural: str, namespace: str | None = None) -> dict[str, Json]:
        with self._store.lock:
            return {item.obj["metadata"]["name"]: item.obj for item in self._store.table((group, plural)).select(namespace)}

    @property
    def now(self) -> datetime:
        return self.rig.clock.now()

    def ours(self, name: str) -> bool:
        match = _NAME.fullmatch(name)
        return name in self.started or name in self.moved.names() if match is None else match[1] == self.cluster_id

    def made(self) -> list[Machine]:
        """Every machine of ours there ever was, the oldest first. An own one whose claim somebody removed is its owner's, until a run takes
        it back by its Node."""
        lost = self.forgotten - set(self.claims()) if self.forgotten else set()
        machines = [one for one in self.rig.world.machines.values() if own.is_own(one) and one.name not in lost]
        machines = sorted([*self.rig.machines(living=False), *machines], key=lambda one: one.created)
        return [one for one in machines if self.ours(one.name) and one.id not in self.foreign]

    def living(self) -> list[Machine]:
        return [one for one in self.made() if one.ended is None and one.state not in ("stopping", "off")]

    def agreed_rate(self, machine: Machine) -> Decimal:
        """What it costs an hour; where the price had moved in the five minutes before it was made, at the price that was shown."""
        offer, rate = machine.offer, machine.rate()
        return min([rate, *(rate - offer.price_hour + old for old in self._shown(machine))])

    def shown_part(self, machine: Machine) -> Decimal:
        """The part of its price, up to 1, that was shown when it was ordered."""
        price = machine.offer.price_hour
        return min([price, *self._shown(machine)]) / price

    def _shown(self, machine: Machine) -> list[Decimal]:
        """Other prices that its offer was shown at in the five minutes before it was made."""
        key = (machine.offer.cloud, machine.offer.type, machine.offer.region)
        return [old for until, what, old in self.former if what == key and timedelta(0) <= machine.created - until <= _FRESH]

    def known(self) -> list[Machine]:
        """Machines of ours that a run can know of with what they cost: not a second one under a name, which came of a lost answer; none
        whose claim was removed by hand; and none that was struck where nobody tells since when its GPUs are billed (Vast.ai)."""
        first = {one.name: one for one in reversed(self.made())}.values()
        return [one for one in first if one.name not in self.forgotten and not (one.cloud == "vast" and "struck" in one.details)]

    def by_id(self) -> dict[str, Machine]:
        return {one.id: one for one in self.rig.world.machines.values() if one.cloud in RENTED or own.is_own(one)}

    def by_name(self, name: str) -> list[Machine]:
        return [one for one in self.rig.world.machines.values() if one.name == name and one.id not in self.foreign]

    def aimed_at(self, call: Call) -> list[Machine]:
        """The machines that a destroy call names."""
        words = set(re.findall(r"[\w-]+", f"{call.path.partition('?')[0]} {call.body}"))
        return [one for one in self.by_id().values() if one.cloud == call.service and one.id in words]

    def claims(self) -> dict[str, Json]:
        if self.files is not None:
            return self.files.claims()
        if self.objects:
            return {name: one["record"] for name, one in self.kinds("gpunodeclaims").items() if one["record"].get("name")}
        with self._store.lock:
            items = self._store.table(("", "configmaps")).select("tgp-system")
        found = {}
        for item in items:
            text = (item.obj.get("data") or {}).get("claim.json")
            if text is None:
                continue
            known = self._parsed.get(item.key)
            if known is None or known[0] != item.rv:
                try:
                    known = self._parsed[item.key] = item.rv, json.loads(text)
                except ValueError:
                    continue  # a damaged record says nothing
            found[known[1]["name"]] = known[1]
        return found

    def ledger(self) -> list[Json]:
        if self.files is not None:
            return self.files.ledger()
        with self._store.lock:
            items = self._store.table(("", "configmaps")).select("tgp-system")
        parts = [item.obj for item in items if "tgp.io/ledger" in (item.obj["metadata"].get("labels") or {})]
        return [json.loads(text) for one in parts for text in (one.get("data") or {}).values()]

    def kinds(self, plural: str) -> dict[str, Json]:
        """Objects of one of our kinds by name, the deleted ones that something holds among them."""
        return self._table("tgp.io", plural)

    def configmap(self, name: str) -> Json | None:
        """One of our namespace."""
        return self._table("", "configmaps", "tgp-system").get(name)

    def requests(self) -> dict[str, Json]:
        """ProvisioningRequests by name."""
        return self._table("autoscaling.x-k8s.io", "provisioningrequests")

    def buffers(self) -> dict[str, Json]:
        """CapacityBuffers by name."""
        return self._table("autoscaling.x-k8s.io", "capacitybuffers")

    def nodes(self) -> dict[str, Json]:
        return self._table("", "nodes")

    def places(self) -> list[str]:
        """Nodes of ours by name. Own machines keep theirs, cordoned, until they are on again and let in."""
        racks = {one.name for one in self.rig.world.machines.values() if own.is_own(one)}
        closed = {name for name in racks if not self.is_ready(name) or self.is_cordoned(name)}
        return sorted(name for name in self.nodes() if self.ours(name) and name not in closed)

    def is_ready(self, name: str) -> bool:
        conditions = (self.nodes().get(name) or {}).get("status", {}).get("conditions") or []
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def not_ready_since(self, name: str) -> datetime | None:
        """Since when its Node is not Ready; None while it is, or is not there."""
        for one in (self.nodes().get(name) or {}).get("status", {}).get("conditions") or []:
            if one["type"] == "Ready" and one["status"] != "True":
                return datetime.fromisoformat(one["lastTransitionTime"].replace("Z", "+00:00"))
        return None

    def gpus(self, name: str) -> int:
        """How many GPUs its Node shows, or the DRA driver on it publishes."""
        if self.rig.ground.dra:  # type: ignore[attr-defined]
            slices = [one["spec"] for one in self._table("resource.k8s.io", "resourceslices").values()]
            return sum(len(one["devices"]) for one in slices if one.get("nodeName") == name)
        return sum(self._amounts(name, "allocatable").values())

    def rented(self, machine: Machine) -> int:
        """How many GPUs its Node is to show, or instances of them where MIG divides them: on every machine of a pool, on none of a request."""
        capacity = self._amounts(machine.name, "capacity")
        divided = any(one.startswith(MIG) for one in capacity) if capacity else pool_in(machine.name) in ("training", "batch")
        return machine.offer.gpu_count * (self.rig.ground.instances if divided else 1)  # type: ignore[attr-defined]

    def _amounts(self, name: str, key: str) -> dict[str, int]:
        found = (self.nodes().get(name) or {}).get("status", {}).get(key) or {}
        return {one: int(amount) for one, amount in found.items() if one == "nvidia.com/gpu" or one.startswith(MIG)}

    def fewer_gpus_since(self, name: str) -> datetime:
        """Since when its Node shows as few GPUs as it does; since it is there, where none were taken away."""
        made = self.nodes()[name]["metadata"]["creationTimestamp"]
        return self.gpus_lost.get(name) or datetime.fromisoformat(made.replace("Z", "+00:00"))

    def work(self, node: str) -> list[Json]:
        """Pods that count on a node: not finished, not told to end, of no DaemonSet, not static, in the system's namespaces only with a GPU."""
        return [one for one in self.pods() if one["spec"].get("nodeName") == node and works(one)]

    def pods(self) -> list[Json]:
        """Of all namespaces."""
        with self._store.lock:
            return [item.obj for item in self._store.table(("", "pods")).select(None)]

    def is_node(self, machine: Machine) -> bool:
        """Whether it shall be a node of the cluster; containers that serve are none."""
        spec = self.told(machine)[-1]
        return "service" not in ((spec.get("template") or {}).get("spec") or {}).get("lanes", ())

    def is_cordoned(self, name: str) -> bool:
        """Whether its Node takes no pods."""
        return bool((self.nodes().get(name) or {"spec": {}})["spec"].get("unschedulable"))

    def is_complete(self, machine: Machine) -> bool:
        """Its Node is Ready, open to pods, and shows every GPU."""
        taints = {one["key"] for one in (self.nodes().get(machine.name) or {"spec": {}})["spec"].get("taints") or ()}
        shown = self.gpus(machine.name) >= self.rented(machine)
        return self.is_ready(machine.name) and shown and "tgp.io/initializing" not in taints

    def pool_of(self, machine: Machine) -> Json | None:
        """The spec of the document of its pool or request, as it is now; None when there is none."""
        return self.documents().get(pool_in(machine.name))

    def documents(self) -> dict[str, Json]:
        """Specs of pools and requests by name."""
        return {name: spec for name, spec in self._wanted().items() if name not in self.vanished}

    def told(self, machine: Machine) -> list[Json]:
        """What its document says; where no run can read it, everything that it ever said."""
        name = pool_in(machine.name)
        now = [self._wanted().get(name, {})]
        if name not in self.unread or name not in self.said:
            return now
        return [*self.said[name], *now] if name in self.broken_class else self.said[name]

    def _wanted(self) -> dict[str, Json]:
        kinds = ("GPUNodePool", "GPURequest")
        return {one["metadata"]["name"]: one["spec"] for one in self.rig.documents if one["kind"] in kinds}

    def was_gone(self, name: str, pool: str) -> bool:
        """Whether it began to go while its document was gone: a teardown that has begun is carried out."""
        return name in self.given_up and pool in self._went

    def note_documents(self) -> None:
        """Remember what documents say before they change."""
        for name, spec in self._wanted().items():
            known = self.said.setdefault(name, [])
            if spec not in known and (name not in self.unread or name in self.broken_class):
                known.append(copy.deepcopy(spec))

    def see_documents(self, gone: set[str], unread: set[str], *, all_: bool) -> None:
        """Which documents are gone, and which no run can read. One that goes again is gone since it first went: whether a run saw it
        between nobody can tell."""
        self.note_documents()
        pools = set(self._wanted())
        self.vanished = {name: self._went.setdefault(name, self.now) for name in sorted(gone & pools)}
        self.broken_class = set() if all_ else {name for name in pools - unread if CLASS_OF[name] in unread}
        self.unread = pools if all_ else {name for name in pools if {name, CLASS_OF[name]} & unread}

    def pod(self, namespace: str, name: str) -> Json | None:
        return self._table("", "pods", namespace).get(name)

    def peers(self) -> list[str]:
        """Names of machines that the hub knows."""
        return hub.peers(self.hub) if self.hub else []

    def keeps_others(self) -> bool:
        """Whether the hub has what it had before any run."""
        return hub.keeps_others(self.hub)

    def device(self, device_id: str) -> t.Any:
        return self.rig.box.tailnet.device(device_id)

    def lease_version(self) -> str:
        """The resourceVersion of the run lock's Lease, "" when there is none."""
        lease = self._table("coordination.k8s.io", "leases", "tgp-system").get(f"tgp-{self.cluster_id}")
        return str((lease or {"metadata": {}})["metadata"].get("resourceVersion") or "")

    def holder(self) -> str:
        """Who holds the run lock for the whole cluster."""
        lease = self._table("coordination.k8s.io", "leases", "tgp-system").get(f"tgp-{self.cluster_id}")
        return str((lease or {}).get("spec", {}).get("holderIdentity") or "")

    def renewed(self) -> str:
        """When the holder of the run lock was last heard of."""
        lease = self._table("coordination.k8s.io", "leases", "tgp-system").get(f"tgp-{self.cluster_id}")
        return str((lease or {}).get("spec", {}).get("renewTime") or "")

    def secrets(self) -> set[str]:
        """Every value that may be seen by nobody."""
        tailnet, talos = self.rig.box.tailnet, self.rig.box.talos
        found = {text for name, text in self.rig.world.secrets.items() if name != "TS_OAUTH_CLIENT_ID"}
        found |= {one.secret for one in tailnet._keys.values() if one.kind == "auth"}
        found |= {talos.trustd_token, talos.bootstrap_token, talos.cluster_secret, talos.os_key.splitlines()[1]}
        if self.hub:
            for one in self.made():
                if one.id not in self._keys:
                    self._keys[one.id] = hub.private_key(one)
            found |= set(self._keys.values())
        return {one for one in found if len(one) >= 16}
