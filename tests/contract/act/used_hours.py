# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stories by chance about machines and the pods on them, and what the hours of each machine went to, second by second, from the world's own
tables: when containers started and ended by the API server, and when pods left it. Written after docs/reference/rules.md (L-44, L-45) and not
after the code: it knows neither spans nor pieces.

Of our own records it takes two things. The moments at which a machine was recorded, because a pod that is gone at the next one leaves no other
trace; and when a machine joined, was usable and was drained, which is decided and not measured. A run that ends a machine records it first, and
its claim is gone when the run is over, so the moments are read after each module.
"""

from __future__ import annotations

import collections
import dataclasses
import random
import typing as t
from datetime import datetime, timedelta

from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute

from .rig import Rig, moment

Line = dict[str, t.Any]
TIME = "%Y-%m-%dT%H:%M:%SZ"
LONGEST_GAP = 7200  # seconds without a record, after which idleness is not believed (docs/reference/rules.md, L-44)
TYPES = {1: ("gpu_1x_a6000", "gpu_1x_a10", "gpu_1x_rtx6000"), 2: ("gpu_2x_a6000",), 4: ("gpu_4x_a6000",)}
SPACES = {"research": "blue", "serving": "green", "batch": ""}  # namespaces and the team that each names
TEAMS = ("red", "blue", "")
PEOPLE = ("ada", "bob", "")
SCENARIO: dict[str, t.Any] = {
    "lambda": [{"type": name, "region": "us-west-1", "stock": 9, "boot": 20} for names in TYPES.values() for name in names],
    "vast": {
        "offers": [
            {
                "gpu": "RTX 4090",
                "gpus": gpus,
                "vm": True,
                "boot": 300,
                "disk_gb": 900.0,
                "price": price,
                "storage": "0.4",
                "pull_gb": 0,
            }
            for gpus, price in ((1, "0.35"), (1, "0.36"), (1, "0.37"), (2, "0.74"), (2, "0.75"), (4, "1.45"), (4, "1.5"))
            for _host in range(3)
        ]
    },
    "machines": [],
}


@dataclasses.dataclass
class Job:
    """A pod of the world's: ``gpus`` 0 = it asks for none, ``daemon`` = a DaemonSet made it. ``end``: its container's; ``gone``: it left the
    API server."""

    name: str
    namespace: str
    node: str
    gpus: int
    team: str
    requester: str
    daemon: bool
    start: datetime
    end: datetime | None = None
    gone: datetime | None = None

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    @property
    def counts(self) -> bool:
        return self.gpus > 0 and not self.daemon


class Tale:
    """One world in which machines are rented, pods come and go, runs happen, die or are late, and everything ends."""

    def __init__(self, rig: Rig, seed: int) -> None:
        self.rig, self.chance = rig, random.Random(seed)
        self.metrics: dict[str, t.Any] = {"metrics_file": str(rig.folder / "tgp.prom")}
        self.jobs: list[Job] = []
        self.looks: dict[str, list[datetime]] = collections.defaultdict(list)  # machine → when it was recorded
        self.shut: dict[str, list[tuple[datetime, bool]]] = collections.defaultdict(list)  # Node → whether it was cordoned, when
        self.joining: dict[str, datetime] = {}  # machine → when its Node or device was there, by its claim
        self.seen: collections.Counter[str] = collections.Counter()  # what happened in it
        self.spaces = self.chance.random() < 0.5  # labels of namespaces count
        self.pool_team = self.chance.choice(("", "violet"))
        self.gpus = self.chance.choice(sorted(TYPES))
        self.cloud = self.chance.choice(("lambda", "lambda", "vast"))  # the second bills only the disk until a machine runs
        self._numbers = iter(range(10_000))
        rig.call = lambda code, task: execute(code.SPEC, code.run, _as_reap(task), code.__name__)
        self._module = rig.run
        rig.run = self._run_module  # type: ignore[method-assign]

    def play(self) -> None:
        rig, chance = self.rig, self.chance
        self._describe()
        for name, team in SPACES.items():
            rig.kube("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": {"tgp.io/team": team} if team else {}}})
        if chance.random() < 0.3:
            self._happens("fail")
        self._happens("rent")
        for _number in range(chance.randint(6, 14)):
            rig.advance(chance.choice((30, 400, 1500, 4000)) * chance.uniform(0.2, 1.0))
            if chance.random() < 0.08:
                rig.advance(chance.uniform(1, 3) * LONGEST_GAP)
            self._happens(chance.choice(self._possible()))
        rig.advance(chance.uniform(10, 2000))
        self._happens("destroy")
        assert rig.left() == {} and not rig.claims()

    def _describe(self) -> None:
        rig = self.rig
        rig.training["disruption"] = {
            "consolidateAfter": self.chance.choice(("Never", "Never", "20m")),
            "consolidationPolicy": "WhenIdle",
        }
        rig.training["maxHourlyPrice"] = "9"
        rig.documents = [one for one in rig.documents if one["metadata"]["name"] != "own"]
        rig.demo_class["providers"] = [
            {"name": "lambda", "settings": {"sshKey": "tgp"}} if self.cloud == "lambda" else {"name": "vast", "settings": {}}
        ]
        rig.training["template"]["spec"]["lanes"] = ["kubelet"]
        rig.demo_class["limits"] = {"maxHourlyCost": "90", "maxNodes": 6}
        rig.training["template"]["spec"]["requirements"] = [
            {"key": "tgp.io/provider", "operator": "In", "values": [self.cloud]},
            {"key": "tgp.io/gpu-count", "operator": "In", "values": [str(self.gpus)]},
        ]
        if self.pool_team:
            rig.document("GPUNodePool", "training")["metadata"]["labels"] = {"tgp.io/team": self.pool_team}

    def _run_module(self, module: str, run_id: str = "", **params: t.Any) -> dict[str, t.Any]:
        try:
            return self._module(module, run_id, **{**self.metrics, **params})
        finally:
            self._note_looks()

    # ---- what happens

    def _possible(self) -> tuple[str, ...]:
        """Each as often as it is likely. Who stops a pod also runs something soon."""
        if not self._nodes():
            return ("rent", "rent", "run")
        pods = ("end", "end", "end", "delete") if self._running() else ("start", "start", "start")
        return (*pods, "start", "start", "run", "run", "run", "kill", "rent")

    def publish(self, gateway: str) -> None:
        """One more run, which finds nothing to do and pushes its metrics to a real Pushgateway."""
        inner = self.rig._transport
        self.rig._transport = lambda url: None if url.startswith(gateway) else inner(url)  # type: ignore[method-assign]
        self.metrics["metrics_push_url"] = gateway
        self._happens("run")

    def _happens(self, what: str) -> None:
        self.seen[what] += 1
        getattr(self, f"_{what}")()
        self._note_looks()

    def _options(self) -> dict[str, t.Any]:
        return {"namespace_teams": self.spaces}

    def _rent(self) -> None:
        if len(self.rig.machines()) < 3:
            self.rig.rent(**self._options())
            self.rig.join()

    def _fail(self) -> None:
        """A machine never boots; a later run finds that out."""
        self.rig.behave("never_boots", times=1)
        self.rig.rent(**self._options())
        self.rig.advance(3600)
        self.rig.reap(**self._options())

    def _start(self) -> None:
        """A pod comes, where it finds room as the scheduler would."""
        chance, used = self.chance, collections.Counter[str]()
        for job in self.jobs:
            used[job.node] += job.gpus if job.end is None and job.gone is None else 0
        free = {node: self.gpus - used[node] for node in sorted(self._nodes(open_only=True))}
        node = chance.choice(sorted(free)) if free else ""
        if not node:
            return
        kind = chance.random()
        gpus = 0 if kind < 0.1 else min(free[node], chance.randint(1, self.gpus))
        namespace, team, requester = chance.choice((*SPACES, "default")), chance.choice(TEAMS), chance.choice(PEOPLE)
        name = f"job-{next(self._numbers)}"
        labels = {key: value for key, value in (("tgp.io/team", team), ("tgp.io/requester", requester)) if value}
        daemon = kind > 0.93
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "x", "uid": "x", "controller": True}
        meta = {"name": name, "labels": labels, "ownerReferences": [owner] if daemon else []}
        limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        spec = {
            "nodeName": node,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": "x", "resources": limits}],
        }
        path = f"/api/v1/namespaces/{namespace}/pods"
        self.rig.kube("POST", path, {"metadata": meta, "spec": spec})
        self.rig.until(lambda: self.rig.kube("GET", f"{path}/{name}")["status"].get("phase") == "Running", f"{name} runs")
        state = self.rig.kube("GET", f"{path}/{name}")["status"]["containerStatuses"][0]["state"]
        team = team or (SPACES.get(namespace, "") if self.spaces else "") or self.pool_team
        self.jobs.append(Job(name, namespace, node, gpus, team, requester, daemon, moment(state["running"]["startedAt"])))

    def _end(self) -> None:
        """A pod's container ends; the pod stays listed."""
        if not (running := self._running()):
            return
        job = self.chance.choice(running)
        (container,) = self.rig.kube("GET", job.path)["status"]["containerStatuses"]
        began, ended = container["state"]["running"]["startedAt"], self.rig.clock.now().strftime(TIME)
        container["state"] = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": began, "finishedAt": ended}}
        self.rig.kube("PATCH", f"{job.path}/status", {"status": {"phase": "Succeeded", "containerStatuses": [container]}})
        job.end = moment(ended)

    def _delete(self) -> None:
        """A pod is deleted, whether it has ended or not."""
        if listed := [job for job in self.jobs if job.gone is None]:
            self._leaves(self.chance.choice(listed))

    def _leaves(self, job: Job) -> None:
        self.rig.kube("DELETE", f"{job.path}?gracePeriodSeconds=0")
        self.rig.until(lambda: self.rig.api.request("GET", job.path)[0] == 404, f"{job.name} is gone")
        job.gone = self.rig.clock.now()
        job.end = job.end or job.gone

    def _run(self) -> None:
        self.rig.reap(**self._options())

    def _kill(self) -> None:
        with self.rig.killed_at(self.chance.randint(1, 3), after=self.chance.random() < 0.5):
            self.rig.reap(**self._options())

    def _destroy(self) -> None:
        plan = self.rig.plan("destroy", all=True, force=True, **self._options())
        self.rig.run("teardown", plan["run_id"], orphans=plan["orphans"], unrecorded=plan.get("unrecorded", []))
        self.rig.unlock(plan["run_id"])

    # ---- the world's tables

    def prices(self, line: Line) -> list[float]:
        """Dollars of one GPU in each second of a machine's life: its bill, spread as the world's prices of each second say."""
        (number,) = line["ids"]
        machine, start = self.rig.world.machines[number], moment(line["start"])
        seconds = _between(start, moment(line["end"]))
        changes = [(_between(start, since), float(price)) for since, price in machine.rates]
        rates = [float(machine.price_hour)] * seconds
        for since, price in changes:
            rates[max(since, 0) :] = [price] * max(0, seconds - max(since, 0))
        whole = sum(rates)
        return [float(line["cost"]) * rate / whole / line["gpu_count"] for rate in rates]

    def _nodes(self, *, open_only: bool = False) -> list[str]:
        """Of machines that live. ``open_only``: those that a scheduler may choose."""
        living = {machine.name for machine in self.rig.machines()}
        return [name for name, node in self.rig.nodes().items() if name in living and not (open_only and _shut(node))]

    def _running(self) -> list[Job]:
        return [job for job in self.jobs if job.end is None and job.gone is None and job.node in self._nodes()]

    def _note_looks(self) -> None:
        for name, claim in self.rig.claims().items():
            until = moment(claim["work"]["until"]) if claim.get("work") else None
            if until is not None and until not in self.looks[name]:
                self.looks[name].append(until)
            for entered, phase, _why in claim["history"]:
                if phase == "Joining":
                    self.joining.setdefault(name, moment(entered))
        now = self.rig.clock.now()
        for name, node in self.rig.nodes().items():
            self.shut[name].append((now, _shut(node)))
        living = set(self._nodes())
        for job in self.jobs:
            if job.gone is None and job.node not in living:
                job.gone = now


def _shut(node: t.Mapping[str, t.Any]) -> bool:
    return bool(node["spec"].get("unschedulable"))


def _as_reap(task: Task) -> Task:
    task.playbook = "reap"
    return task


# ---- the integral


@dataclasses.dataclass
class Integral:
    """Seconds by use; seconds × GPUs and dollars by view (teams, namespaces, requesters, and unassigned: what nobody's pods used) and word."""

    uses: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    gpus: dict[str, collections.Counter[str]] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(collections.Counter)
    )
    cost: dict[str, dict[str, float]] = dataclasses.field(
        default_factory=lambda: collections.defaultdict(lambda: collections.defaultdict(float))
    )

    def add(self, view: str, word: str, gpus: int, dollars: float) -> None:
        """For one second; ``dollars`` of one GPU."""
        if gpus:
            self.gpus[view][word] += gpus
            self.cost[view][word] += gpus * dollars


def integral(lines: t.Iterable[Line], tale: Tale) -> Integral:
    """Of all machines."""
    found = Integral()
    for line in lines:
        name = line["name"]
        jobs = [job for job in tale.jobs if job.node == name and job.counts]
        looks = [look for look in tale.looks[name] if moment(line["start"]) < look < moment(line["end"])]
        _machine(found, line | {"joining": tale.joining.get(name), "shut": tale.shut[name]}, jobs, looks, tale.prices(line))
    return found


def _machine(found: Integral, line: Line, jobs: t.Sequence[Job], looks: t.Iterable[datetime], prices: t.Sequence[float]) -> None:
    """Second by second: who ran, as far as anybody can know. ``prices``: of each second of one GPU."""
    start, end = moment(line["start"]), moment(line["end"])
    usable = moment(line["initialized"] or line["end"])
    moments = sorted({start, end, *looks})
    for since, until in zip(moments, moments[1:], strict=False):
        listed = [job for job in jobs if until != end and job.start <= until and (job.gone is None or job.gone > until)]
        lost = [job for job in jobs if job not in listed and job.start <= since and not (job.end and job.end <= since)]
        # two hours of what could have been used: before it is usable, a machine shows what it does by itself
        blind = until - max(since, usable) > timedelta(seconds=LONGEST_GAP)
        shut = until != end and [was for noted, was in line["shut"] if noted <= until][-1:] == [True]
        for second in range(_between(start, since), _between(start, until)):
            here = start + timedelta(seconds=second)
            running = [job for job in listed if job.start <= here and not (job.end and job.end <= here)]
            _second(found, line, here, running, lost, prices[second], blind=blind, shut=shut)


def _second(
    found: Integral,
    line: Line,
    here: datetime,
    running: t.Sequence[Job],
    lost: t.Sequence[Job],
    price: float,
    *,
    blind: bool,
    shut: bool,
) -> None:
    """``shut``: whoever looked next found the Node cordoned, so that no pod came since its machine was to end."""
    slots, state = line["gpu_count"], _state(line, here)
    if not running:
        silent = state == "waiting" or (state == "draining" and not shut)
        unknown = state != "failed" and (lost or (blind and silent))
        found.uses["unmeasured" if unknown else state] += 1
        found.add("unassigned", "unmeasured" if unknown else state, slots, price)
        return
    free = slots - sum(job.gpus for job in running)
    unseen = min(free, sum(job.gpus for job in lost))
    assert free >= 0, "pods use more than there is"
    found.uses["useful"] += 1
    for job in running:
        found.add("teams", job.team or "unknown", job.gpus, price)
        found.add("namespaces", job.namespace, job.gpus, price)
        found.add("requesters", job.requester or "unknown", job.gpus, price)
    found.add("unassigned", "unmeasured", unseen, price)
    found.add("unassigned", "idle", free - unseen, price)


def _state(line: Line, here: datetime) -> str:
    """What a machine is without a pod."""
    if not line["joined"]:
        return "failed"
    if line["draining_since"] and here >= moment(line["draining_since"]):
        return "draining"
    if here >= moment(line["initialized"]):
        return "waiting"
    return "joining" if line["joining"] and here >= line["joining"] else "booting"


def _between(start: datetime, end: datetime) -> int:
    return (end - start) // timedelta(seconds=1)
