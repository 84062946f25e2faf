# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the panels of the dashboards must show in the story of test_metrics.py, computed from the sandbox's world and never from our metrics.

Each panel is looked at in one moment of the story. What cannot be known otherwise is in SHOWN: it must have a value. What the story has no
occasion for is in SILENT, with the reason.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import time
import typing as t
from decimal import Decimal

from ansible_collections.tgp.gpu.plugins.module_utils.core.clock import from_text

from sandbox.running import ROOT

from .box import Sandbox
from .prometheus import Monitoring

Labels = frozenset[tuple[str, str]]
Bounds = tuple[float, float]
Series = dict[Labels, Bounds]
FOLDER = ROOT / "monitoring" / "dashboards"
ORPHAN = "zzzzz"  # how the name of the orphan ends
TRAINING = {"pool": "default/training", "provider": "lambda"}


def queries(job: str) -> dict[str, list[str]]:
    """The queries of each panel, by "dashboard/title", as Grafana sends them when all clusters and this job are chosen."""
    found = {}
    for path in sorted(FOLDER.glob("*.json")):
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
            sent = [target["expr"].replace("$cluster", ".*").replace("$job", job) for target in panel["targets"]]
            found[f"{path.stem}/{panel['title']}"] = sent
    return found


@dataclasses.dataclass(frozen=True)
class Truth:
    """The world in a moment. ``since``: its own time before the last run, what machines had cost then, and the clock's time; what goes on
    while the run and Prometheus work lies between then and now. ``runs``: how often each playbook ran."""

    sandbox: Sandbox
    documents: t.Sequence[t.Mapping[str, t.Any]]
    runs: t.Mapping[str, int]
    budget: Decimal
    since: t.Mapping[str, t.Any]

    @property
    def world(self) -> dict[str, t.Any]:
        return self.sandbox.world()

    @property
    def rented(self) -> list[dict[str, t.Any]]:
        return [one for one in self.world["machines"] if one["cloud"] == "lambda"]

    @property
    def living(self) -> list[dict[str, t.Any]]:
        return [one for one in self.rented if one["ended"] is None]

    @property
    def failed(self) -> list[dict[str, t.Any]]:
        """Machines that came up broken."""
        return [one for one in self.rented if any(step["text"].startswith("failed") for step in one["steps"])]

    def hourly(self) -> float:
        return float(sum(Decimal(one["price_hour"]) for one in self.living))

    def cost(self, machines: t.Sequence[t.Mapping[str, t.Any]]) -> Bounds:
        """By the world's bill; ours may be a started minute of each machine later."""
        whole = sum(float(one["cost"]) for one in machines)
        slack = sum(float(one["price_hour"]) / 60 * 2 for one in machines)
        return whole - slack, whole + slack

    def bill(self) -> Bounds:
        """Of all machines. That of an orphan counts from its adoption on, since this cloud does not say when it was made."""
        known = [one for one in self.rented if not one["name"].endswith(ORPHAN)]
        return self.cost(known)[0], self.cost(self.rented)[1]

    def spent(self) -> Bounds:
        """Between the start of the last run and now, while machines run on."""
        return float(self.since["cost"]) - self.cost(self.rented)[1] + self.cost(self.rented)[0], self.cost(self.rented)[1]


def exact(value: float, **labels: str) -> Series:
    return {frozenset(labels.items()): (value - 1e-6, value + 1e-6)}


def between(bounds: Bounds, **labels: str) -> Series:
    return {frozenset(labels.items()): bounds}


def several(parts: t.Iterable[Series]) -> Series:
    return {labels: bounds for part in parts for labels, bounds in part.items()}


def counted(values: t.Iterable[str], label: str) -> Series:
    return several(exact(number, **{label: value}) for value, number in collections.Counter(values).items())


def age(first: float, last: float, **labels: str) -> Series:
    """Of something that began between these two moments, by a clock that goes on."""
    return between((time.time() - last - 5, time.time() - first + 120), **labels)


def limits(truth: Truth, field: str) -> Series:
    """Of documents: limits of classes and pools."""
    found = []
    for one in truth.documents:
        value = one["spec"].get("limits", {}).get(field)
        if value is not None:
            is_class = one["kind"] == "GPUNodeClass"
            name = one["metadata"]["name"] if is_class else f"default/{one['metadata']['name']}"
            found.append(exact(float(value), scope="class" if is_class else "pool", name=name))
    return several(found)


def usable_after(truth: Truth) -> Series:
    """The only machine that became usable falls into a bucket of the histogram, which ends at twice its time at most."""
    (machine,) = truth.living
    (node,) = [one for name, one in truth.sandbox.nodes().items() if name == machine["name"]]
    ready = next(one for one in node["status"]["conditions"] if one["type"] == "Ready")["lastTransitionTime"]
    seconds = from_text(ready).timestamp() - from_text(machine["created"]).timestamp()
    return between((seconds / 2.5, (seconds + 30) * 2))


def machine_rows(truth: Truth) -> Series:
    return several(
        exact(
            float(one["price_hour"]),
            **TRAINING,
            name=one["name"],
            node=one["name"],
            model=one["model"],
            region=one["region"].removesuffix("-1"),
            phase="Ready",
        )
        for one in truth.living
    )


def calls(truth: Truth) -> Series:
    """Of services that only runs call. The cluster is also called by the test."""
    return several(exact(truth.world["calls"][name], provider=name) for name in ("lambda", "webhook", "tailscale"))


def left_of_budget(truth: Truth) -> Bounds:
    least, most = truth.spent()
    return float(truth.budget) - most, float(truth.budget) - least


def share_of_budget(truth: Truth) -> Bounds:
    least, most = truth.spent()
    return least / float(truth.budget), most / float(truth.budget)


def job_time(truth: Truth) -> Bounds:
    """Seconds for which the pod of team red has run, at the start of the last run and now."""
    (container,) = truth.sandbox.get("/api/v1/namespaces/default/pods/training-job")["status"]["containerStatuses"]
    began = from_text(container["state"]["running"]["startedAt"]).timestamp()
    return truth.since["now"] - began, from_text(truth.world["now"]).timestamp() - began


def team_bill(truth: Truth) -> Bounds:
    """What the pod's GPU cost, give or take the minutes that are billed whole."""
    (machine,) = truth.living
    second = float(machine["price_hour"]) / machine["gpus"] / 3600
    least, most = job_time(truth)
    return (least - 60) * second, (most + 60) * second


_ALL = {"scope": "all", "name": "all", "period": "month"}
_INSTANCE = {"provider": "lambda", "kind": "instance"}
#: panel → the moment in which it is looked at, and all or some of the series that it must show then
EXPECTED: dict[str, tuple[str, t.Callable[[Truth], Series]]] = {
    "cost/Cost per hour": ("idle", lambda truth: exact(truth.hourly())),
    "cost/Idle cost per hour": ("idle", lambda truth: exact(truth.hourly())),
    "cost/Spent": ("end", lambda truth: between(truth.bill())),
    "cost/Spent on failed joins": ("idle", lambda truth: between(truth.cost(truth.failed))),
    "cost/Cost per hour by pool": ("idle", lambda truth: exact(truth.hourly(), **TRAINING)),
    "cost/Spending by pool": ("idle", lambda truth: between(truth.spent(), pool="default/training")),
    "cost/What the money was for": ("idle", lambda truth: between(truth.cost(truth.failed), use="failed_join")),
    "cost/Spending by team": ("team", lambda truth: between(team_bill(truth), team="red")),
    "cost/Spending that no team used": ("team", lambda truth: between(truth.cost(truth.failed), state="failed")),
    "cost/Share of budgets that is spent": ("idle", lambda truth: between(share_of_budget(truth), **_ALL)),
    "cost/Left of budgets": ("idle", lambda truth: between(left_of_budget(truth), **_ALL)),
    "cost/Limits per hour": ("idle", lambda truth: limits(truth, "maxHourlyCost")),
    "fleet/Machines": ("idle", lambda truth: exact(len(truth.living))),
    "fleet/Orphans": ("orphan", lambda truth: exact(1)),
    "fleet/Faulty documents": ("fault", lambda truth: exact(1)),
    "fleet/Paused pools": ("idle", lambda truth: exact(0)),
    "fleet/Machines by phase": ("idle", lambda truth: exact(len(truth.living), phase="Ready")),
    "fleet/Machines by pool": ("idle", lambda truth: exact(len(truth.living), **TRAINING)),
    "fleet/Machines that are gone": (
        "end",
        lambda truth: several(
            [exact(len(truth.failed), reason="FailedJoin"), exact(1, reason="Orphan"), exact(1, reason="Manual")]
        ),
    ),
    "fleet/Limits of machines": ("idle", lambda truth: limits(truth, "maxNodes")),
    "fleet/Orphans by kind": ("orphan", lambda truth: exact(1, **_INSTANCE)),
    "fleet/Age of the oldest orphan": (
        "orphan",
        lambda truth: age(truth.since["now"], from_text(truth.world["now"]).timestamp(), **_INSTANCE),
    ),
    "fleet/Longest termination": (
        "stuck",
        lambda truth: age(truth.since["now"], from_text(truth.world["now"]).timestamp(), provider="lambda"),
    ),
    "fleet/Since the last run": (
        "idle",
        lambda truth: age(truth.since["now"], from_text(truth.world["now"]).timestamp(), playbook="reap"),
    ),
    "fleet/Duration of the last run": (
        "idle",
        lambda truth: between((0.0, from_text(truth.world["now"]).timestamp() - truth.since["now"]), playbook="reap"),
    ),
    "fleet/Runs by outcome": (
        "idle",
        lambda truth: several(exact(number, playbook=name, outcome="changed") for name, number in truth.runs.items()),
    ),
    "joins/Create calls": ("idle", lambda truth: several([exact(len(truth.rented), result="ok"), exact(1, result="refused")])),
    "joins/Failed joins of the last hour": ("first", lambda truth: exact(len(truth.failed))),
    "joins/Failed joins by cause": ("idle", lambda truth: exact(len(truth.failed), cause="machine_broken")),
    "joins/Refusals": ("idle", lambda truth: exact(1, provider="lambda", reason="capacity")),
    "joins/Time until a machine is usable": ("idle", usable_after),
    "providers/Machines could be listed": (
        "fault",
        lambda truth: several([exact(0, provider="lambda"), exact(1, provider="webhook")]),
    ),
    "providers/Key refused": ("fault", lambda truth: several([exact(1, provider="lambda"), exact(0, provider="webhook")])),
    "providers/Mesh could be read": ("idle", lambda truth: exact(1)),
    "providers/Calls": ("idle", calls),
    "providers/Create calls by provider": (
        "idle",
        lambda truth: several(
            [exact(len(truth.rented), provider="lambda", result="ok"), exact(1, provider="lambda", result="refused")]
        ),
    ),
    "gpus/GPUs": ("idle", lambda truth: exact(sum(one["gpus"] for one in truth.living))),
    "gpus/Missing GPUs": ("idle", lambda truth: exact(0)),
    "gpus/GPUs by model": (
        "idle",
        lambda truth: counted([one["model"] for one in truth.living for _gpu in range(one["gpus"])], "model"),
    ),
    "gpus/GPUs by pool": ("idle", lambda truth: exact(sum(one["gpus"] for one in truth.living), **TRAINING)),
    "gpus/Cost of a GPU per hour": (
        "idle",
        lambda truth: exact(truth.hourly() / sum(one["gpus"] for one in truth.living), pool="default/training"),
    ),
    "gpus/Idle share of the cost": ("idle", lambda truth: exact(1, pool="default/training")),
    "gpus/Demand for GPUs": ("loop", lambda truth: several(exact(0, state=state) for state in ("used", "free", "coming"))),
    "gpus/Waiting pods": ("loop", lambda truth: several([exact(1, served="false"), exact(0, served="true")])),
    "gpus/GPU time by team": ("team", lambda truth: between(job_time(truth), team="red")),
    "gpus/Idle machines": (
        "idle",
        lambda truth: age(truth.since["now"], from_text(truth.world["now"]).timestamp(), name=truth.living[0]["name"]),
    ),
    "gpus/Machines and their prices": ("idle", machine_rows),
    "gpus/Machines and their cost": (
        "idle",
        lambda truth: between((0.0, truth.cost(truth.living)[1]), name=truth.living[0]["name"]),
    ),
}
#: panel → the moment in which it has a value; what it is, only our own processes know
SHOWN = {
    "joins/Blocked offers": "idle",
    "joins/Mean time in a phase": "idle",
    "joins/Drains": "end",
    "providers/Calls per hour by status": "idle",
    "providers/Duration of calls": "idle",
    "providers/Waits under a rate limit": "idle",
    "providers/Questions for offers": "idle",
    "providers/Age of offers": "idle",
    "providers/Looks at nodes in use": "idle",
    "providers/Attempts to take the run lock": "idle",
}
SILENT = {
    "fleet/Machines that are missing": "every pool gets the machines that it wants",
    "gpus/GPU utilization": "no pool of the story has the idleSignal utilization",
}


def wrong(seen: Monitoring, truth: Truth, moment: str, job: str) -> list[str]:
    """What the panels of a moment show otherwise, as sentences."""
    asked, found = queries(job), []
    for panel, (when, expected) in EXPECTED.items():
        if when == moment:
            found += [f"{panel}: {one}" for query in asked[panel] for one in _differences(seen.series(query), expected(truth))]
    for panel in (panel for panel, when in SHOWN.items() if when == moment):
        values = [value for query in asked[panel] for value in seen.series(query).values()]
        if not [value for value in values if math.isfinite(value)]:
            found.append(f"{panel}: shows {values}")
    return found


def _differences(shown: t.Mapping[Labels, float], expected: Series) -> t.Iterator[str]:
    if not expected:
        yield "nothing is expected"
    for labels, (least, most) in expected.items():
        value = shown.get(labels)
        if value is None or not least <= value <= most:
            yield f"{dict(labels)} is {value}, not in [{least}, {most}]; all: {[(dict(one), shown[one]) for one in shown]}"
