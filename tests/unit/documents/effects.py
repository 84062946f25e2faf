# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What documents lead to: plans for many worlds, and what a machine is made from, marked with and asked. Each is something to compare."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import subprocess
import types
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.kube.bootstrap_tokens import Token
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Claim,
    CloudChoice,
    CloudView,
    GpuUtilization,
    GpuXids,
    Instance,
    InstanceState,
    Lane,
    LaunchRequest,
    Ledger,
    Machine,
    Node,
    NodeClass,
    Observation,
    Offer,
    Phase,
    Placement,
    Plan,
    Pod,
    Pool,
    Source,
    Specs,
    StatusCondition,
    Taint,
    Toleration,
    Volume,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.model.queues import ATOMIC, CapacityBuffer, ProvisioningRequest
from ansible_collections.tgp.gpu.plugins.module_utils.observe import clients, context
from ansible_collections.tgp.gpu.plugins.module_utils.observe.context import Context
from ansible_collections.tgp.gpu.plugins.module_utils.observe.gather import ClusterFacts
from ansible_collections.tgp.gpu.plugins.module_utils.observe.probe import Prober
from ansible_collections.tgp.gpu.plugins.module_utils.operations.launch import payload, wireguard_peers
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.spec_hash import generation
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import ledger_line, read_ledger
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption import idleness
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers import account_volumes
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plan import plan
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning import acceptance, pre_pull, reservations
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling import capacity
from ansible_collections.tgp.gpu.plugins.module_utils.providers.lambda_.cloud import LambdaCloud
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES
from ansible_collections.tgp.gpu.plugins.module_utils.providers.webhook.cloud import WebhookCloud
from ansible_collections.tgp.gpu.plugins.module_utils.units.values import print_time

from tests.fixtures.talos_nodes import make
from tests.fixtures.tunnels import PRIVATE, PUBLIC

from ..fleet.build import CLUSTER, at, claim, device, followed, node, offer, pod
from ..fleet.pods import waiting

Json = dict[str, t.Any]
Rented = tuple[Claim, Node, Instance]

# ---- what may be rented

HOST = {"verified": "true", "cuda": "12.8", "inet-down": "500", "ports": "10", "static-ip": "true", "duration": "864000"}
POOR = {"cuda": "12.2", "inet-down": "150"}
VM: Json = {"lanes": (Lane.KUBELET,), "vcpus": 8, "memory_mib": 131072, "disk_gib": 200, "gpu_memory_mib": 24576}
SMALL: Json = {**VM, "vcpus": 2, "memory_mib": 16384, "disk_gib": 50, "gpu_memory_mib": 16384}
SPOT: Json = {"cloud": "vast", "spot": True, "reliability": Decimal("0.99"), "traits": HOST, **VM}
A10, PAIR, H100, BIG = (
    offer("0.40", id="a10", **VM),
    offer("0.80", id="a10x2", gpu_count=2, **VM),
    offer("2.20", id="h100", model="H100", **{**VM, "gpu_memory_mib": 81920}),
    offer("9.00", id="a10x9", gpu_count=9, **VM),
)
GOOD = offer("0.30", id="v-good", cloud="vast", reliability=Decimal("0.99"), host_id="1", traits=HOST, **VM)
MARKET = (
    A10,
    PAIR,
    H100,
    GOOD,
    offer("0.50", id="a10-east", region="us-east", cloud_region="us-east-1", **VM),
    offer("0.35", id="small", **SMALL),
    offer("0.45", id="bare", **{**VM, "lanes": (Lane.TALOS, Lane.KUBELET)}),
    offer("0.25", id="v-poor", cloud="vast", reliability=Decimal("0.93"), host_id="2", traits=POOR, **VM),
    offer("0.24", id="v-spot", min_bid=Decimal("0.10"), host_id="3", **SPOT),
    offer("0.28", id="v-dear-spot", min_bid=Decimal("0.27"), host_id="4", **SPOT),
)


def own(specs: Specs) -> list[Offer]:
    """What the own machines of its classes are offered as."""
    return [
        Offer(
            "webhook", one.name, one.name, one.gpu_type, one.gpu_count, one.hourly_cost, one.region, one.region, one.gpu_memory_mib,
            available=1, host_id=one.name, lanes=(Lane.TALOS, Lane.KUBELET),
        )
        for node_class in specs.classes.values()
        for choice in node_class.clouds
        for one in choice.machines
    ]  # fmt: skip


# ---- worlds

THURSDAY = at("12:00")
MONDAY, SATURDAY = at("06:30") + timedelta(days=4), at("06:30") + timedelta(days=2)
MOMENTS = (
    THURSDAY,
    MONDAY,
    *(MONDAY + timedelta(hours=hours) for hours in (0.75, 10, 12, 13)),
    SATURDAY,
)  # Berlin is two hours ahead


@dataclasses.dataclass(frozen=True)
class Scene:
    """A moment in the life of a pool's machines."""

    pool: Pool
    node_class: NodeClass
    now: datetime

    def ago(self, minutes: float) -> datetime:
        return self.now - timedelta(minutes=minutes)

    def machine(self, number: int, minutes: float, idle: float | None = None, rented: Offer = A10, **facts: t.Any) -> Rented:
        """One that was launched so many minutes ago; ``idle`` minutes without work, None = busy. ``claim`` and ``node``: what is not usual."""
        name, ready = f"tgp-{CLUSTER}-base-{number:05d}", self.ago(minutes - 5)
        since = None if idle is None else self.ago(idle)
        known = {
            "pool": self.pool.key, "node_class": self.pool.node_class, "launch_started": self.ago(minutes), "created": self.ago(minutes),
            "phase_since": ready, "idle_since": since, "registered": ready, "initialized": ready, "offer": rented,
            "reserved_price": rented.price_hour, **facts.get("claim", {}),
        }  # fmt: skip
        low = f"{print_time(self.ago(45))}/{print_time(self.now)} below 5%"
        marked = {} if since is None else {"tgp.io/idle-since": print_time(since), "tgp.io/low-utilization": low}
        here = {
            "labels": {"tgp.io/nodepool": "base", "tgp.io/nodeclass": self.pool.node_class}, "created": self.ago(minutes - 3),
            "ready_since": ready, "annotations": marked, "allocatable": {"nvidia.com/gpu": rented.gpu_count}, **facts.get("node", {}),
        }  # fmt: skip
        listed = Instance(
            rented.cloud, f"i-{number:05d}", name, InstanceState.RUNNING, created=self.ago(minutes), price_hour=rented.price_hour,
            model="A10", gpu_count=rented.gpu_count,
        )  # fmt: skip
        return claim(name, **known), node(name, **here), listed

    def groups(self) -> list[list[Rented]]:
        """Machines that live together; each group is a world of its own."""
        machine, joining = self.machine, {"phase": Phase.JOINING, "registered": None, "initialized": None}
        silent = {"ready": False, "ready_since": None}
        made = generation(self.node_class, self.pool).split(".")
        older = {"generation": ".".join((made[0], *("0" * 12 for _part in made[1:])))}
        held = {"annotations": {"tgp.io/do-not-disrupt": "true"}}
        return [
            [],
            [machine(1, 200, 30)],
            [machine(1, 200, 12), machine(2, 200, 70), machine(3, 200)],
            [machine(1, 3, 2), machine(2, 15, 11)],
            [machine(1, 70), machine(2, 1450), machine(3, 1400, 5)],
            *([machine(1, age, rented=one, claim=joining, node=silent)] for age in (25, 40) for one in (A10, GOOD)),
            [machine(1, 5, rented=PAIR, claim=joining, node={"allocatable": {"nvidia.com/gpu": 1}})],
            [machine(1, 200, node={"ready": False, "ready_since": self.ago(7)}), machine(2, 200), machine(3, 200)],
            [machine(1, 200, 5, rented=PAIR, node={"allocatable": {"nvidia.com/gpu": 1}}), machine(2, 200)],
            [
                machine(1, 200, node={"conditions": (ODD,)}),
                machine(2, 200, 1, node={"taints": (Taint("odd", "yes", "NoSchedule"),)}),
                machine(3, 200, node={"annotations": {"tgp.io/xid": "79"}}),
            ],
            [machine(1, 200, 5, claim=older), machine(2, 200, rented=PAIR)],
            [machine(1, 200, rented=BIG), machine(2, 200, rented=BIG)],
            [machine(1, 200, rented=BIG, claim={"underused_since": self.ago(30)})],
            [machine(1, 12, 6), machine(2, 200)],
            [machine(1, 1445, node=held)],
        ]

    def pods(self, machines: t.Sequence[Rented], gpus: int, *, small: bool) -> list[Pod]:
        """A job with so many GPUs on each machine that is not idle; ``small``: a pod without GPUs on the others."""
        facts: Json = {
            "created": self.ago(60),
            "started": self.ago(60),
            "owner_kind": "ReplicaSet",
            "owner_api": "apps/v1",
            "placement": ANYWHERE,
        }
        found = []
        for one, _node, _instance in machines:
            if one.idle_since is None or small:
                requests = {"nvidia.com/gpu": min(gpus, one.offer.gpu_count)} if one.idle_since is None else {}
                found.append(pod(f"job-{one.name}", node=one.name, requests=requests, **facts))
        return found


ODD = StatusCondition("Odd", "True", "Odd", "a fatal thing", at("05:00"))
ANYWHERE = Placement(tolerations=(Toleration(operator="Exists"),))


def queue(now: datetime) -> list[Pod]:
    """Pods that wait: ordinary ones, large ones, young ones, those of another scheduler, those that tolerate what pools taint."""
    old, young = now - timedelta(minutes=10), now - timedelta(seconds=30)
    return [
        waiting("plain", created=old),
        waiting("young", created=young, placement=ANYWHERE),
        waiting("large", gpus=2, created=old, placement=ANYWHERE),
        waiting("gang", created=old, placement=dataclasses.replace(ANYWHERE, scheduler="volcano")),
        *(waiting(f"many-{number}", created=old, placement=ANYWHERE) for number in range(5)),
    ]


def spent(pool: Pool, dollars: str, now: datetime) -> Ledger:
    """So much, yesterday evening or today."""
    facts: Json = {"pool": pool.key, "node_class": pool.node_class, "launch_started": now - timedelta(hours=2)}
    made = claim(f"tgp-{CLUSTER}-base-00099", offer=offer(dollars), **facts)
    return read_ledger([ledger_line(made, end=now - timedelta(hours=1))])


def stopped(machine: Machine, now: datetime) -> tuple[Node, Instance]:
    """The Node of an own machine that was stopped 45 minutes ago, and what its power service says."""
    marks = {key: print_time(now - timedelta(minutes=45)) for key in ("tgp.io/drain-started", "tgp.io/stopped-since")}
    labels = {"tgp.io/nodepool": "base", "tgp.io/provider": "webhook", "tgp.io/instance-id": machine.name}
    rack = node(machine.name, False, labels=labels, annotations=marks, ready_since=now - timedelta(minutes=50))
    return rack, Instance("webhook", machine.name, machine.name, InstanceState.TERMINATED, raw_state="off")


def situations(specs: Specs) -> t.Iterator[tuple[str, Observation, Specs]]:
    """Mode, what is seen, and what is desired for then."""
    pool = next(one for one in specs.described if one.name == "base")

    def asked(number: int = 0) -> Specs:
        return dataclasses.replace(specs, nodes={pool.key: number} if number else {})

    def world(now: datetime, offers: t.Sequence[Offer], dollars: str = "0", **facts: t.Any) -> Observation:
        listed = facts.pop("instances", ())
        clouds = {
            cloud: CloudView(tuple(one for one in listed if one.cloud == cloud), tuple(one for one in offers if one.cloud == cloud))
            for cloud in ("lambda", "paperspace", "runpod", "vast", "webhook")
        }
        used = {True: GpuUtilization(Decimal("0.02")), False: GpuUtilization(Decimal("0.5"))}
        nodes = facts.get("nodes", ())
        usual: Json = {"devices": (), "keys": (), "tokens": (), "nodes": (), "pods": (), "claims": ()}
        usual["utilization"] = {one.name: used["tgp.io/idle-since" in one.annotations] for one in nodes}
        usual["xids"] = {one.name: GpuXids({"0": (79,)}, since=now) for one in nodes if "tgp.io/xid" in one.annotations}
        return Observation(now, CLUSTER, clouds, **{**usual, **facts}, ledger=spent(pool, dollars, now))

    for one in MARKET:
        yield "provision", world(THURSDAY, [one]), asked(1)
    for number in (2, 4, 9):
        yield "provision", world(THURSDAY, MARKET), asked(number)
        yield "provision", world(THURSDAY, [*MARKET, *own(specs)]), asked(number)
        yield "provision", world(THURSDAY, own(specs)), asked(number)
    for dollars in ("17", "20", "28"):
        yield "provision", world(THURSDAY, MARKET, dollars), asked(1)
    for now in MOMENTS:
        yield "autoscale", world(now, MARKET), asked()
    waiters = queue(THURSDAY)
    for pods in (*([one] for one in waiters), waiters[4:], waiters):
        yield "autoscale", world(THURSDAY, MARKET, pods=tuple(pods)), asked()
        yield "autoscale", world(THURSDAY, [A10, PAIR], pods=tuple(pods)), asked()
    spare = dataclasses.replace(waiters[0], placeholder=True)
    request = ProvisioningRequest("default", "train", "r", "1", 1, THURSDAY, ATOMIC, (spare,))
    yield "autoscale", dataclasses.replace(world(THURSDAY, MARKET), requests=(request,)), asked()
    buffer = CapacityBuffer("default", "spare", "b", "1", 1, spare, replicas=9)
    yield "autoscale", dataclasses.replace(world(THURSDAY, MARKET), buffers=(buffer,)), asked()
    for choice in specs.classes[pool.node_class].clouds:
        for machine in choice.machines:
            rack, off = stopped(machine, THURSDAY)
            yield "reap", world(THURSDAY, MARKET, nodes=(rack,), instances=[off]), asked()
    gone = dataclasses.replace(specs, pools=(), sources={"pools.yml": Source()})
    for now in MOMENTS:
        scene = Scene(pool, specs.classes[pool.node_class], now)
        for machines in scene.groups():
            here: Json = {
                "claims": tuple(followed(one, specs) for one, _node, _instance in machines),
                "nodes": tuple(one for _claim, one, _instance in machines),
                "instances": [one for _claim, _node, one in machines],
            }
            for mode, gpus, small, dollars, desired in (
                ("reap", 1, False, "0", asked()),
                ("reap", 4, True, "17", asked()),
                ("autoscale", 4, False, "27", asked()),
                ("reap", 1, False, "27", gone),
            ):
                if desired is gone:
                    missed: Json = {"document_gone_since": scene.ago(20), "source": "pools.yml"}
                    here["claims"] = tuple(dataclasses.replace(one, **missed) for one in here["claims"])
                yield mode, world(now, MARKET, dollars, pods=tuple(scene.pods(machines, gpus, small=small)), **here), desired


def told(found: Plan) -> list[t.Any]:
    """Of a plan what people and later steps go by, without the copy of its document that a claim carries."""
    rows = []
    for one in found.actions:
        if one.kind == "update":
            continue  # what was noted says nothing of what is done
        row: list[t.Any] = [one.kind, one.reason, one.detail, one.pool, one.target, one.value, one.price_hour]
        if one.claim is not None:
            made = one.claim
            row += [
                made.offer.id,
                made.offer.price_hour,
                made.lane,
                made.expected_gpus,
                made.phase,
                made.node_name.replace(one.name, ""),
            ]
            row += [[other.id for other in made.candidates], made.deletion and made.deletion.reason]
        rows.append(row)
    said = [found.shortfall, found.warnings, found.problems, found.waiting, found.tally, found.join, found.admit]
    said.append([one.conditions for one in found.buffers])
    return [rows, said, sorted(found.findings)]


def plans(specs: Specs, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[list[t.Any]]:
    """What each of the worlds is planned to become, in two runs: the second knows what the first saw 25 minutes before."""
    monkeypatch.setattr(idleness, "SCALE_DOWN_DELAY_AFTER_ADD", 0)
    for mode, seen, desired in situations(specs):
        settings = Settings(mode=mode)
        once = plan(seen, desired, settings, CAPABILITIES, "run-1")
        yield told(once)
        later = dataclasses.replace(seen, now=seen.now + timedelta(minutes=25), findings=once.findings)
        yield told(plan(later, desired, settings, CAPABILITIES, "run-2"))


# ---- what a machine is made from


def recorder(sent: list[t.Any], answer: t.Any = None) -> t.Callable[..., t.Any]:
    """Something to call that notes what it is given."""

    def call(*given: t.Any, **more: t.Any) -> t.Any:
        sent.append((given, more))
        return answer

    return call


def stand_in(monkeypatch: pytest.MonkeyPatch, sent: list[t.Any]) -> t.Any:
    """A context that knows a cluster and reads Secrets that tell their names; ``sent`` gets what the mesh is asked for."""
    facts = ClusterFacts(make().secrets, "https://100.64.0.1:6443", "home", "1.36.3", "1.13.6", "")
    monkeypatch.setattr(payload, "cluster_facts", lambda _context: facts)
    for module in (payload, context, clients):
        monkeypatch.setattr(module, "read_secret", lambda _kube, *place: f"machine: {{from: {'/'.join(place)}}}")
    monkeypatch.setattr(payload, "make_token", lambda *_given, **_more: Token("abcdef", "", None, "0123456789abcdef"))
    monkeypatch.setattr(payload, "take_back_all", recorder([]))
    monkeypatch.setattr(wireguard_peers, "generate", lambda: (PRIVATE, PUBLIC))
    key = types.SimpleNamespace(id="k", secret="tskey-auth-k-s", created=THURSDAY)
    world = types.SimpleNamespace(
        cluster_id=CLUSTER,
        task=types.SimpleNamespace(params={}),
        once=lambda _key, read: read(),
        kube=None,
        warn=lambda _text: None,
        clock=types.SimpleNamespace(now=lambda: THURSDAY),
        records=types.SimpleNamespace(money=contextlib.nullcontext(), tokens=types.SimpleNamespace(kept=tuple)),
        store=types.SimpleNamespace(claims=list),
        clients=types.SimpleNamespace(mesh=lambda: types.SimpleNamespace(keys=tuple, create_key=recorder(sent, key))),
    )
    world.template_of = functools.partial(Context.template_of, world)
    return world


def rendered(specs: Specs, monkeypatch: pytest.MonkeyPatch) -> t.Iterator[t.Any]:
    """What a machine is handed on each lane, the key and the end of a tunnel that are made for it, the marks of its Node and how long it is
    drained, what each cloud is sent, the pod that tests a new node, and how services are asked whether they are idle."""
    pool = next(one for one in specs.described if one.name == "base")
    node_class = specs.classes[pool.node_class]
    sent: list[t.Any] = []
    context = stand_in(monkeypatch, sent)
    rest = tuple(one for one in node_class.clouds if one.cloud != "webhook")
    bootable = dataclasses.replace(node_class, clouds=(*rest, CloudChoice("webhook", settings={"payload": "body"})))
    for lane, cloud in ((Lane.TALOS, "webhook"), (Lane.KUBELET, "lambda"), (Lane.SERVICE, "vast")):
        rented = offer("0.40", id="x", cloud=cloud, lanes=(lane,))
        facts: Json = {"pool": pool.key, "node_class": node_class.name, "offer": rented, "lane": lane}
        one = claim(f"tgp-{CLUSTER}-base-00001", Phase.PENDING, **facts)
        notes: Json = {}
        try:
            enrolment = payload.enrol(context, one, bootable, notes.update)
            given = payload.payload_for(context, one, rented, dataclasses.replace(pool, lanes=()), bootable, enrolment)
            yield lane, notes, given.text, given.environment, given.container
        except InvalidInput as error:
            yield lane, notes, str(error)
        yield (
            capacity.node_labels(one, pool, CLUSTER),
            capacity.node_annotations(one, pool),
            Context.drain_timeout(context, pool),
        )
    if pool.acceptance is not None:
        two = claim(phase=Phase.JOINING, offer=PAIR, expected_gpus=2)
        shown = node(allocatable={"nvidia.com/gpu": 2})
        yield acceptance.pod(two, shown, pool, pool.acceptance, "tgp-system", CLUSTER)["spec"]
    if pool.pre_pull is not None:
        yield pre_pull.pod(claim(phase=Phase.JOINING), node(), pool.pre_pull, "tgp-system", CLUSTER)["spec"]
    yield sent
    if node_class.mesh.hub is not None:
        yield [reservations.draw(node_class.mesh.hub, (), f"node-{number}") for number in range(4)]
    for choice in node_class.clouds:
        yield from _of_cloud(context, node_class, choice)
    if pool.idle_probe is not None and pool.service is not None:
        yield _asked_for_idleness(pool, monkeypatch)


def _of_cloud(context: t.Any, node_class: NodeClass, choice: CloudChoice) -> t.Iterator[t.Any]:
    if choice.credentials is not None:
        yield clients.cloud_credential(context.task, context.kube, choice.cloud, choice)
    if choice.cloud == "lambda":
        settings = {"sshKey": "theirs", **node_class.settings_of("lambda")}
        request = LaunchRequest(f"tgp-{CLUSTER}-base-00001", offer(), settings=settings)
        yield LambdaCloud("secret_x_0123456789", clock=context.clock)._launch_body(request)
    known = [Volume(choice.cloud, name, name, "US-TX-3", size_gb=Decimal(100)) for name in ("models", "other")]
    if choice.volumes:
        yield account_volumes.mounted(choice.volumes, known, "US-TX-3"), account_volumes.costs([choice], known)
    for machine in choice.machines:
        calls: list[t.Any] = []
        with contextlib.closing(
            WebhookCloud([machine], transport=lambda _url, calls=calls: _listening(calls), node_ready=recorder(calls))
        ) as cloud:  # type: ignore[misc]
            cloud.instances()
            cloud.switch_on(machine)
            cloud.terminate(machine.name)
        yield calls


def _listening(calls: list[t.Any]) -> httpx.MockTransport:
    """Notes each call, and answers that the machine is off."""

    def answer(request: httpx.Request) -> httpx.Response:
        calls.append(f"{request.method} {request.url}")
        return httpx.Response(200, json={"status": "off"})

    return httpx.MockTransport(answer)


def _asked_for_idleness(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> list[t.Any]:
    calls: list[t.Any] = []
    ended = subprocess.CompletedProcess(["x"], 0, b"", b"")
    monkeypatch.setattr(subprocess, "run", lambda command, **_more: calls.append(command) or ended)
    params = {"allow_commands": ["is-idle"], "mesh_proxy": "http://127.0.0.1:1056"}
    Prober(Task(params, transport=lambda _url: _listening(calls))).idle(pool, device(addresses=("100.64.0.9",)))
    return calls
