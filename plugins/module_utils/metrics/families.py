# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every metric there is: name, kind, labels, and what it says. docs/reference/metrics.md is made of this table (docs/metrics_page.py)."""

from __future__ import annotations

import bisect
import dataclasses
import typing as t

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
MOST_NAMES = 200  # pools, models, regions or teams with a name of their own in the metrics; the rest are together under OTHER
OTHER = "other"
_MINUTES = (30.0, 60.0, 120.0, 180.0, 300.0, 450.0, 600.0, 900.0, 1200.0, 1800.0, 3600.0, 10800.0, 43200.0, 86400.0)
_CALLS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_DEFAULTS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)


def _doubled(first: float, number: int) -> tuple[float, ...]:
    return tuple(first * 2.0**power for power in range(number))


@dataclasses.dataclass(frozen=True, slots=True)
class Family:
    """One metric. A counter's name is without its suffix ``_total``. ``source``: records (claims, ledger and documents, read at the end of
    each run), plan (what the last plan saw), process (counted while runs work, kept in the state folder) or run. ``least``: of values that
    fall together the smallest counts, and not their sum. ``per_machine``: only with the option metrics_per_machine."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str
    source: str
    buckets: tuple[float, ...] = ()
    least: bool = False
    per_machine: bool = False

    @property
    def shown(self) -> str:
        """The name in queries."""
        return f"{self.name}_total" if self.kind == COUNTER else self.name


_POOL = ("pool", "provider")
_OLD = ("provider", "gpu_type", "region")
RECORDS, PLAN, PROCESS, RUN = "records", "plan", "process", "run"

_RECORDS = (
    Family("tgp_machines", GAUGE, (*_POOL, "phase"), "Machines by the phase of their claim.", RECORDS),
    Family("tgp_gpus", GAUGE, (*_POOL, "model"), "GPUs of machines that are billed or used now.", RECORDS),
    Family("tgp_gpus_missing", GAUGE, _POOL, "GPUs that are paid for and that their nodes do not show.", RECORDS),
    Family("tgp_cost_dollars_per_hour", GAUGE, _POOL, "What all machines cost per hour now.", RECORDS),
    Family("tgp_idle_cost_dollars_per_hour", GAUGE, _POOL, "The part of it for machines that are idle.", RECORDS),
    Family("tgp_spend_dollars", COUNTER, _POOL, "What machines have cost, those that are gone and those that still run.", RECORDS),
    Family(
        "tgp_spend_by_use_dollars",
        GAUGE,
        ("use",),
        "The same of the ledger and of machines that still run, by what the money was for. What a running machine was for can change.",
        RECORDS,
    ),
    Family(
        "tgp_spend_by_team_dollars",
        GAUGE,
        ("team",),
        "The same by the team whose pods used the GPUs (L-45). Only where a pod, a namespace or a document names a team.",
        RECORDS,
    ),
    Family(
        "tgp_spend_unassigned_dollars",
        GAUGE,
        ("state",),
        "What no team's pods used, by the state of the GPUs. With the sum of all teams it is all that was spent.",
        RECORDS,
    ),
    Family("tgp_gpu_seconds_by_team", GAUGE, ("team",), "Seconds × GPUs that pods of a team asked for while they ran.", RECORDS),
    Family("tgp_budget_dollars", GAUGE, ("scope", "name", "period"), "Amount of a budget.", RECORDS),
    Family("tgp_budget_spent_dollars", GAUGE, ("scope", "name", "period"), "What was spent of it in the running period.", RECORDS),
    Family(
        "tgp_budget_left_dollars", GAUGE, ("scope", "name", "period"), "What is left of it; below 0 when it is exceeded.", RECORDS
    ),
    Family("tgp_limit_machines", GAUGE, ("scope", "name"), "Most machines of a pool, a class or all (maxNodes).", RECORDS),
    Family("tgp_limit_dollars_per_hour", GAUGE, ("scope", "name"), "Most dollars per hour of a class or all.", RECORDS),
    Family(
        "tgp_launches",
        COUNTER,
        ("pool", "provider", "result", "reason"),
        "Create calls by result, refusals with their reason.",
        RECORDS,
    ),
    Family("tgp_machines_ended", COUNTER, (*_POOL, "reason"), "Machines that are gone, by the reason of their end.", RECORDS),
    Family(
        "tgp_failed_joins", COUNTER, (*_POOL, "cause"), "Machines that never became usable, by the code of the diagnosis.", RECORDS
    ),
    Family("tgp_failed_joins_recent", GAUGE, _POOL, "Those of the last hour.", RECORDS),
    Family("tgp_failed_joins_dollars", COUNTER, (*_POOL, "cause"), "What they cost.", RECORDS),
    Family("tgp_ready_duration_seconds", HISTOGRAM, _POOL, "From the create call until a machine was usable.", RECORDS, _MINUTES),
    Family(
        "tgp_phase_duration_seconds",
        HISTOGRAM,
        ("provider", "phase"),
        "Time in a phase that a machine has left.",
        RECORDS,
        _MINUTES,
    ),
    Family(
        "tgp_terminating_oldest_timestamp_seconds",
        GAUGE,
        ("provider",),
        "When the first destroy call was sent to the machine that is terminating longest.",
        RECORDS,
        least=True,
    ),
    Family("tgp_documents", GAUGE, ("kind",), "Valid documents.", RECORDS),
    Family("tgp_documents_faulty", GAUGE, (), "Documents with faults, and files or lists that could not be read.", RECORDS),
    Family("tgp_records_damaged", GAUGE, ("record",), "Claims and ledger lines that cannot be read.", RECORDS),
    Family(
        "tgp_machine_info",
        GAUGE,
        ("name", "pool", "provider", "model", "region", "node", "phase"),
        "1 for each machine.",
        RECORDS,
        per_machine=True,
    ),
    Family("tgp_machine_cost_dollars", GAUGE, ("name",), "What a machine has cost so far.", RECORDS, per_machine=True),
    Family("tgp_machine_price_dollars_per_hour", GAUGE, ("name",), "What it costs per hour.", RECORDS, per_machine=True),
    Family("tgp_machine_idle_since_timestamp_seconds", GAUGE, ("name",), "Since when it is idle.", RECORDS, per_machine=True),
)
_PLAN = (
    Family(
        "tgp_orphans",
        GAUGE,
        ("provider", "kind"),
        "Things of ours without a claim, as the last plan that looked for them saw them.",
        PLAN,
    ),
    Family(
        "tgp_orphan_oldest_timestamp_seconds",
        GAUGE,
        ("provider", "kind"),
        "When the orphan that is known longest was first seen.",
        PLAN,
        least=True,
    ),
    Family("tgp_gpus_demand", GAUGE, ("pool", "state"), "GPUs that autoscale counted: wanted, used, free, coming, waiting.", PLAN),
    Family(
        "tgp_pods_waiting",
        GAUGE,
        ("pool", "served"),
        "Pods that wait for GPUs; served: a machine is there or on its way for them.",
        PLAN,
    ),
    Family("tgp_shortfall_machines", GAUGE, ("pool",), "Machines that are wanted and will not come.", PLAN),
    Family("tgp_pools_paused", GAUGE, (), "Pools of which nothing is launched or terminated.", PLAN),
    Family("tgp_offers_blocked", GAUGE, (), "Offers, hosts, providers and pools that are backed off after a failure.", PLAN),
    Family("tgp_provider_up", GAUGE, ("provider",), "1 where the machines of a provider could be listed.", PLAN),
    Family("tgp_provider_key_refused", GAUGE, ("provider",), "1 where a provider refused our key.", PLAN),
    Family("tgp_mesh_up", GAUGE, (), "1 where the mesh could be read.", PLAN),
    Family(
        "tgp_gpu_utilization_ratio",
        GAUGE,
        ("name",),
        "GPU utilization of the busiest GPU, in pools with idleSignal utilization or both.",
        PLAN,
        per_machine=True,
    ),
    Family(
        "tgp_gpu_xid",
        GAUGE,
        ("name", "gpu", "xid"),
        "1 for the last XID of a GPU, in pools whose dcgm-exporters are read.",
        PLAN,
        per_machine=True,
    ),
)
_PROCESS = (
    Family("tgp_provider_requests", COUNTER, ("provider", "operation", "status"), "Calls of providers, mesh and cluster.", PROCESS),
    Family(
        "tgp_provider_request_duration_seconds", HISTOGRAM, ("provider", "operation"), "How long these calls took.", PROCESS, _CALLS
    ),
    Family("tgp_rate_limit_waits", COUNTER, ("provider",), "Calls that waited under the rate limit of an account.", PROCESS),
    Family("tgp_rate_limit_wait_seconds", COUNTER, ("provider",), "How long they waited together.", PROCESS),
    Family(
        "tgp_offer_cache_requests", COUNTER, ("provider", "result"), "Questions for offers, by hit and miss of the cache.", PROCESS
    ),
    Family("tgp_offer_cache_age_seconds", GAUGE, ("provider",), "Age of the offers that were used last.", PROCESS),
    Family(
        "tgp_lock_attempts", COUNTER, ("result",), "Attempts to take the run lock: taken, held (by an earlier step), busy.", PROCESS
    ),
    Family("tgp_lock_wait_seconds", COUNTER, (), "How long runs waited for the run lock.", PROCESS),
    Family("tgp_drains", COUNTER, ("reason", "result"), "Drains of nodes by the reason to terminate, and how they ended.", PROCESS),
)
_RUN = (
    Family("tgp_runs", COUNTER, ("playbook", "outcome"), "Runs by playbook and outcome.", RUN),
    Family("tgp_last_run_timestamp_seconds", GAUGE, ("playbook",), "When the last run of a playbook ended.", RUN),
    Family("tgp_last_run_duration_seconds", GAUGE, ("playbook",), "How long it took.", RUN),
    Family("tgp_last_run_outcome", GAUGE, ("playbook", "outcome"), "1 for its outcome.", RUN),
    Family(
        "tgp_last_success_timestamp_seconds", GAUGE, ("playbook",), "When a run of the playbook last ended without a failure.", RUN
    ),
)
_OPERATOR = (  # the names of tgp-operator, with its labels and buckets
    Family("tgp_operator_gpu_requests", COUNTER, (*_OLD, "phase"), "Machines that reached a phase.", RECORDS),
    Family(
        "tgp_operator_gpu_request_duration_seconds",
        HISTOGRAM,
        ("provider", "gpu_type", "phase"),
        "Time in a phase that a machine has left.",
        RECORDS,
        _doubled(1.0, 10),
    ),
    Family(
        "tgp_operator_instance_launch_duration_seconds",
        HISTOGRAM,
        _OLD,
        "From the create call until a machine was usable.",
        RECORDS,
        _doubled(10.0, 8),
    ),
    Family("tgp_operator_instances_active", GAUGE, _OLD, "Machines that are billed or used now.", RECORDS),
    Family("tgp_operator_instance_hourly_cost_usd", GAUGE, _OLD, "What they cost per hour.", RECORDS),
    Family("tgp_operator_provider_requests", COUNTER, ("provider", "operation", "status"), "Calls of clouds.", PROCESS),
    Family(
        "tgp_operator_provider_request_duration_seconds",
        HISTOGRAM,
        ("provider", "operation"),
        "How long they took.",
        PROCESS,
        _DEFAULTS,
    ),
    Family(
        "tgp_operator_health_checks",
        COUNTER,
        ("provider", "status"),
        "Looks at nodes in use: healthy, unhealthy, unknown.",
        PROCESS,
    ),
    Family(
        "tgp_operator_idle_timeouts",
        COUNTER,
        ("provider", "gpu_type"),
        "Machines that were terminated because they were idle.",
        RECORDS,
    ),
)
FAMILIES: dict[str, Family] = {family.name: family for family in (*_RECORDS, *_PLAN, *_PROCESS, *_RUN, *_OPERATOR)}
#: of what the process counts for each service, what also stands under a name of tgp-operator, where the service is a cloud
ALIASES = {
    "tgp_provider_requests": "tgp_operator_provider_requests",
    "tgp_provider_request_duration_seconds": "tgp_operator_provider_request_duration_seconds",
}


@dataclasses.dataclass
class Cell:
    """One series of a histogram: how many values fell into each bucket (the last is above all bounds), and their sum."""

    counts: list[int]
    total: float = 0.0

    @classmethod
    def of(cls, family: Family) -> Cell:
        return cls([0] * (len(family.buckets) + 1))

    def add(self, family: Family, values: t.Iterable[float]) -> None:
        for value in values:
            self.counts[bisect.bisect_left(family.buckets, value)] += 1
            self.total += value

    def plus(self, other: Cell) -> Cell:
        """Both together; they have the same buckets."""
        return Cell([ours + theirs for ours, theirs in zip(self.counts, other.counts, strict=True)], self.total + other.total)


class Sample(t.NamedTuple):
    """One series: its value, or of a histogram the values that were seen, or its cell."""

    name: str
    labels: dict[str, str]
    value: float | list[float] | Cell


def names(found: t.Iterable[str]) -> dict[str, str]:
    """What each name is called in a label: itself, or OTHER for those beyond MOST_NAMES in their order."""
    known = sorted(set(found))
    return {name: name if place < MOST_NAMES else OTHER for place, name in enumerate(known)}


def together(samples: t.Iterable[Sample]) -> list[Sample]:
    """One sample for each series: equal ones are added up, of times the first counts. A histogram whose values are known stays a list."""
    merged: dict[tuple[str, tuple[tuple[str, str], ...]], t.Any] = {}
    for name, labels, value in samples:
        key = (name, tuple(sorted(labels.items())))
        if key not in merged:
            merged[key] = list(value) if isinstance(value, list) else value
        elif isinstance(value, list) and isinstance(merged[key], list):
            merged[key] += value
        elif isinstance(value, (list, Cell)):
            merged[key] = cell_of(name, merged[key]).plus(cell_of(name, value))
        else:
            merged[key] = min(merged[key], value) if FAMILIES[name].least else merged[key] + value
    return [Sample(name, dict(labels), value) for (name, labels), value in sorted(merged.items(), key=lambda entry: entry[0])]


def cell_of(name: str, value: list[float] | Cell) -> Cell:
    """The values of a histogram as its cell."""
    if isinstance(value, Cell):
        return value
    cell = Cell.of(FAMILIES[name])
    cell.add(FAMILIES[name], value)
    return cell
