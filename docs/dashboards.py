# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Grafana dashboards in monitoring/dashboards. ``python docs/dashboards.py`` writes them.

In an expression ``@`` stands for the matchers that the variables of a dashboard make.
"""

from __future__ import annotations

import dataclasses
import json
import typing as t
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "monitoring" / "dashboards"
#: of Grafana 10.0; newer releases convert it when they load a dashboard, older ones do not know what a newer release wrote
SCHEMA = 38
SELECTOR = 'cluster=~"$cluster",job="$job"'
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_PAGE = "https://github.com/tgp-gpu/tgp.gpu/blob/main/docs/how_to/metrics.md"
_RUNS = "tgp_last_run_timestamp_seconds"  # every controller that leaves metrics has it
DOLLARS, SECONDS, SHARE, NUMBER = "currencyUSD", "s", "percentunit", "short"
Json = dict[str, t.Any]


@dataclasses.dataclass(frozen=True)
class Panel:
    """``queries``: expression → legend, of which Grafana fills in the labels. ``kind``: stat (one number or a few), bars, lines, stairs
    (lines of counts), states (a coloured yes or no over time) or table. ``bad``: the value from which it is red."""

    title: str
    kind: str
    unit: str
    description: str
    queries: t.Mapping[str, str]
    bad: float | None = None


@dataclasses.dataclass(frozen=True)
class Dashboard:
    name: str
    title: str
    description: str
    panels: tuple[Panel, ...]


def _one(expression: str, legend: str = "") -> dict[str, str]:
    return {expression: legend}


_POOL = "{{pool}} at {{provider}}"
_BUDGET = "{{scope}} {{name}}, {{period}}"

COST = Dashboard(
    "cost",
    "Cost",
    "What machines cost now, what they have cost, and what is left of budgets.",
    (
        Panel(
            "Cost per hour",
            "stat",
            DOLLARS,
            "What all machines together cost per hour now.",
            _one("sum(tgp_cost_dollars_per_hour{@})"),
        ),
        Panel(
            "Idle cost per hour",
            "stat",
            DOLLARS,
            "The part of it for machines on which nothing runs.",
            _one("sum(tgp_idle_cost_dollars_per_hour{@})"),
        ),
        Panel(
            "Spent",
            "stat",
            DOLLARS,
            "What machines have cost, those that run and those in the ledger.",
            _one("sum(tgp_spend_dollars_total{@})"),
        ),
        Panel(
            "Spent on failed joins",
            "stat",
            DOLLARS,
            "What machines cost that never became usable.",
            _one("sum(tgp_failed_joins_dollars_total{@})"),
        ),
        Panel(
            "Cost per hour by pool",
            "lines",
            DOLLARS,
            "What the machines of each pool cost per hour, by provider.",
            _one("sum by (pool, provider) (tgp_cost_dollars_per_hour{@})", _POOL),
        ),
        Panel(
            "Spending by pool",
            "lines",
            DOLLARS,
            "What the machines of each pool have cost. A line falls only when archive.yml takes machines out of the ledger.",
            _one("sum by (pool) (tgp_spend_dollars_total{@})", "{{pool}}"),
        ),
        Panel(
            "What the money was for",
            "bars",
            DOLLARS,
            "The same money by its use: useful work, starting, idle times, failures.",
            _one("sum by (use) (tgp_spend_by_use_dollars{@})", "{{use}}"),
        ),
        Panel(
            "Spending by team",
            "lines",
            DOLLARS,
            "What each team's pods used of the same money. Nothing is shown while no pod, namespace or document names a team.",
            _one("sum by (team) (tgp_spend_by_team_dollars{@})", "{{team}}"),
        ),
        Panel(
            "Spending that no team used",
            "bars",
            DOLLARS,
            "The rest of the same money, by the state of the GPUs. With the teams it is all that was spent.",
            _one("sum by (state) (tgp_spend_unassigned_dollars{@})", "{{state}}"),
        ),
        Panel(
            "Share of budgets that is spent",
            "bars",
            SHARE,
            "Of the running period. Nothing is launched on a budget that is used up.",
            _one("max by (scope, name, period) (tgp_budget_spent_dollars{@} / tgp_budget_dollars{@})", _BUDGET),
            bad=0.8,
        ),
        Panel(
            "Left of budgets",
            "lines",
            DOLLARS,
            "Below 0 when a budget is exceeded.",
            _one("max by (scope, name, period) (tgp_budget_left_dollars{@})", _BUDGET),
        ),
        Panel(
            "Limits per hour",
            "bars",
            DOLLARS,
            "The most that the machines of a class, or all machines, may cost per hour.",
            _one("max by (scope, name) (tgp_limit_dollars_per_hour{@})", "{{scope}} {{name}}"),
        ),
    ),
)
FLEET = Dashboard(
    "fleet",
    "Fleet",
    "Machines, orphans, documents, and whether runs still happen.",
    (
        Panel("Machines", "stat", NUMBER, "Machines with a claim, in every phase.", _one("sum(tgp_machines{@})")),
        Panel("Orphans", "stat", NUMBER, "Things of ours that have no claim.", _one("sum(tgp_orphans{@})"), bad=1),
        Panel(
            "Faulty documents",
            "stat",
            NUMBER,
            "Documents with faults, and sources that could not be read.",
            _one("max(tgp_documents_faulty{@})"),
            bad=1,
        ),
        Panel(
            "Paused pools", "stat", NUMBER, "Pools of which nothing is launched or terminated.", _one("max(tgp_pools_paused{@})")
        ),
        Panel(
            "Machines by phase",
            "stairs",
            NUMBER,
            "Machines by the phase of their claim. Draining: in use, and to be terminated.",
            _one("sum by (phase) (tgp_machines{@})", "{{phase}}"),
        ),
        Panel(
            "Machines by pool",
            "stairs",
            NUMBER,
            "Machines of each pool, by provider.",
            _one("sum by (pool, provider) (tgp_machines{@})", _POOL),
        ),
        Panel(
            "Machines that are gone",
            "stairs",
            NUMBER,
            "Machines that the ledger holds, by the reason of their end.",
            _one("sum by (reason) (tgp_machines_ended_total{@})", "{{reason}}"),
        ),
        Panel(
            "Machines that are missing",
            "stairs",
            NUMBER,
            "Machines that are wanted and will not come. Nothing is shown while none is missing.",
            _one("sum by (pool) (tgp_shortfall_machines{@})", "{{pool}}"),
        ),
        Panel(
            "Limits of machines",
            "bars",
            NUMBER,
            "The most machines of a pool, of a class, or of all (maxNodes).",
            _one("max by (scope, name) (tgp_limit_machines{@})", "{{scope}} {{name}}"),
        ),
        Panel(
            "Orphans by kind",
            "stairs",
            NUMBER,
            "Machines, Nodes, devices and others that have no claim, by provider.",
            _one("sum by (provider, kind) (tgp_orphans{@})", "{{kind}} {{provider}}"),
        ),
        Panel(
            "Age of the oldest orphan",
            "lines",
            SECONDS,
            "Since it was first seen. reap removes an orphan in the second run that sees it.",
            _one("time() - min by (provider, kind) (tgp_orphan_oldest_timestamp_seconds{@})", "{{kind}} {{provider}}"),
            bad=1800,
        ),
        Panel(
            "Longest termination",
            "lines",
            SECONDS,
            "Since the first terminate call for the machine that is terminating longest. It is billed meanwhile.",
            _one("time() - min by (provider) (tgp_terminating_oldest_timestamp_seconds{@})", "{{provider}}"),
            bad=900,
        ),
        Panel(
            "Since the last run",
            "bars",
            SECONDS,
            "Since the last run of each playbook ended. Nothing launches or terminates machines between runs.",
            _one("time() - max by (playbook) (tgp_last_run_timestamp_seconds{@})", "{{playbook}}"),
        ),
        Panel(
            "Duration of the last run",
            "lines",
            SECONDS,
            "How long the last run of each playbook took.",
            _one("max by (playbook) (tgp_last_run_duration_seconds{@})", "{{playbook}}"),
        ),
        Panel(
            "Runs by outcome",
            "stairs",
            NUMBER,
            "Runs that this controller counted, by playbook and outcome.",
            _one("sum by (playbook, outcome) (tgp_runs_total{@})", "{{playbook}}: {{outcome}}"),
        ),
    ),
)
JOINS = Dashboard(
    "joins",
    "Joins and failures",
    "Create calls and their refusals, how long machines take to become usable, and which never did.",
    (
        Panel(
            "Create calls",
            "stat",
            NUMBER,
            "Create calls for the machines of the claims and the ledger, by result.",
            _one("sum by (result) (tgp_launches_total{@})", "{{result}}"),
        ),
        Panel(
            "Failed joins of the last hour",
            "stat",
            NUMBER,
            "Three of one pool within an hour pause it.",
            _one("sum(tgp_failed_joins_recent{@})"),
            bad=2,
        ),
        Panel(
            "Blocked offers",
            "stat",
            NUMBER,
            "Offers, hosts, providers and pools in backoff after a failure.",
            _one("max(tgp_offers_blocked{@})"),
        ),
        Panel(
            "Failed joins by cause",
            "stairs",
            NUMBER,
            "Machines that never became usable, by the code of the diagnosis.",
            _one("sum by (cause) (tgp_failed_joins_total{@})", "{{cause}}"),
        ),
        Panel(
            "Refusals",
            "stairs",
            NUMBER,
            "Create calls that a provider refused, by reason. Nothing is shown while none was refused.",
            _one('sum by (provider, reason) (tgp_launches_total{result="refused",@})', "{{provider}}: {{reason}}"),
        ),
        Panel(
            "Time until a machine is usable",
            "lines",
            SECONDS,
            "From the create call until the node is initialized: half of the machines of the claims and the ledger, and 95 of 100.",
            {
                "histogram_quantile(0.5, sum by (le) (tgp_ready_duration_seconds_bucket{@}))": "half",
                "histogram_quantile(0.95, sum by (le) (tgp_ready_duration_seconds_bucket{@}))": "95 of 100",
            },
        ),
        Panel(
            "Mean time in a phase",
            "bars",
            SECONDS,
            "Of machines that have left the phase.",
            _one(
                "sum by (phase) (tgp_phase_duration_seconds_sum{@}) / sum by (phase) (tgp_phase_duration_seconds_count{@})",
                "{{phase}}",
            ),
        ),
        Panel(
            "Drains",
            "stairs",
            NUMBER,
            "Drains of nodes that this controller counted, by result.",
            _one("sum by (result) (tgp_drains_total{@})", "{{result}}"),
        ),
    ),
)
PROVIDERS = Dashboard(
    "providers",
    "Providers",
    "Whether providers answer, how often they are called, and how long that takes.",
    (
        Panel(
            "Machines could be listed",
            "states",
            NUMBER,
            "1 where the last plan could list the machines of a provider.",
            _one("min by (provider) (tgp_provider_up{@})", "{{provider}}"),
        ),
        Panel(
            "Key refused",
            "states",
            NUMBER,
            "1 where a provider refuses our key. Its machines can neither be listed nor terminated.",
            _one("max by (provider) (tgp_provider_key_refused{@})", "{{provider}}"),
            bad=1,
        ),
        Panel(
            "Mesh could be read",
            "states",
            NUMBER,
            "1 where the last plan could read the mesh.",
            _one("min(tgp_mesh_up{@})", "mesh"),
        ),
        Panel(
            "Calls",
            "bars",
            NUMBER,
            "All calls that this controller counted: of providers, the mesh, the cluster and others.",
            _one("sum by (provider) (tgp_provider_requests_total{@})", "{{provider}}"),
        ),
        Panel(
            "Calls per hour by status",
            "lines",
            NUMBER,
            "What services answered. not_found is usual: it says that something is gone.",
            _one("sum by (provider, status) (increase(tgp_provider_requests_total{@}[1h]))", "{{provider}}: {{status}}"),
        ),
        Panel(
            "Duration of calls",
            "lines",
            SECONDS,
            "95 of 100 calls of the last hour took no longer.",
            _one(
                "histogram_quantile(0.95, sum by (provider, le) (increase(tgp_provider_request_duration_seconds_bucket{@}[1h])))",
                "{{provider}}",
            ),
        ),
        Panel(
            "Waits under a rate limit",
            "lines",
            SECONDS,
            "How long calls waited so that the rate limit of an account is kept.",
            _one("sum by (provider) (tgp_rate_limit_wait_seconds_total{@})", "{{provider}}"),
        ),
        Panel(
            "Create calls by provider",
            "stairs",
            NUMBER,
            "Create calls for the machines of the claims and the ledger.",
            _one("sum by (provider, result) (tgp_launches_total{@})", "{{provider}}: {{result}}"),
        ),
        Panel(
            "Questions for offers",
            "stairs",
            NUMBER,
            "Whether the cache of offers had an answer (hit) or the provider was asked (miss).",
            _one("sum by (provider, result) (tgp_offer_cache_requests_total{@})", "{{provider}}: {{result}}"),
        ),
        Panel(
            "Age of offers",
            "lines",
            SECONDS,
            "Age of the offers that were used last.",
            _one("max by (provider) (tgp_offer_cache_age_seconds{@})", "{{provider}}"),
        ),
        Panel(
            "Looks at nodes in use",
            "stairs",
            NUMBER,
            "Whether a node was healthy when a plan looked at it.",
            _one("sum by (provider, status) (tgp_operator_health_checks_total{@})", "{{provider}}: {{status}}"),
        ),
        Panel(
            "Attempts to take the run lock",
            "stairs",
            NUMBER,
            "busy: another run held the lock. held: an earlier step of the same run has it.",
            _one("sum by (result) (tgp_lock_attempts_total{@})", "{{result}}"),
        ),
    ),
)
GPUS = Dashboard(
    "gpus",
    "GPUs",
    "GPUs that are paid for, what pods ask for, and each machine.",
    (
        Panel("GPUs", "stat", NUMBER, "GPUs of machines that are billed or used now.", _one("sum(tgp_gpus{@})")),
        Panel(
            "Missing GPUs",
            "stat",
            NUMBER,
            "GPUs that are paid for and that their nodes do not show.",
            _one("sum(tgp_gpus_missing{@})"),
            bad=1,
        ),
        Panel(
            "GPUs by model",
            "stairs",
            NUMBER,
            "GPUs that are paid for, by model.",
            _one("sum by (model) (tgp_gpus{@})", "{{model}}"),
        ),
        Panel(
            "GPUs by pool",
            "stairs",
            NUMBER,
            "GPUs of each pool, by provider.",
            _one("sum by (pool, provider) (tgp_gpus{@})", _POOL),
        ),
        Panel(
            "Cost of a GPU per hour",
            "lines",
            DOLLARS,
            "What the machines of a pool cost per hour, for each of their GPUs.",
            _one("sum by (pool) (tgp_cost_dollars_per_hour{@}) / sum by (pool) (tgp_gpus{@})", "{{pool}}"),
        ),
        Panel(
            "Idle share of the cost",
            "lines",
            SHARE,
            "Which part of what a pool costs per hour is for machines on which nothing runs.",
            _one(
                "sum by (pool) (tgp_idle_cost_dollars_per_hour{@}) / sum by (pool) (tgp_cost_dollars_per_hour{@})",
                "{{pool}}",
            ),
        ),
        Panel(
            "Demand for GPUs",
            "stairs",
            NUMBER,
            "GPUs that the last autoscale counted: wanted, used, free, coming, waiting.",
            _one("sum by (state) (tgp_gpus_demand{@})", "{{state}}"),
        ),
        Panel(
            "Waiting pods",
            "stairs",
            NUMBER,
            "Pods that wait for GPUs, as the last autoscale saw them. served: a machine is there or on its way for them.",
            _one("sum by (served) (tgp_pods_waiting{@})", "served: {{served}}"),
        ),
        Panel(
            "GPU time by team",
            "lines",
            SECONDS,
            "Time × GPUs that the pods of each team asked for while they ran. Nothing is shown while nothing names a team.",
            _one("sum by (team) (tgp_gpu_seconds_by_team{@})", "{{team}}"),
        ),
        Panel(
            "GPU utilization",
            "lines",
            SHARE,
            "Of the busiest GPU of each machine, in pools with idleSignal utilization or both. Needs the option metrics_per_machine.",
            _one("max by (name) (tgp_gpu_utilization_ratio{@})", "{{name}}"),
        ),
        Panel(
            "Idle machines",
            "lines",
            SECONDS,
            "Since when each machine is idle. Needs the option metrics_per_machine.",
            _one("time() - max by (name) (tgp_machine_idle_since_timestamp_seconds{@})", "{{name}}"),
        ),
        Panel(
            "Machines and their prices",
            "table",
            DOLLARS,
            "Each machine and what it costs per hour. Needs the option metrics_per_machine.",
            _one(
                "sum by (name, pool, provider, model, region, node, phase) "
                "(tgp_machine_info{@} * on (name) group_left () max by (name) (tgp_machine_price_dollars_per_hour{@}))",
            ),
        ),
        Panel(
            "Machines and their cost",
            "table",
            DOLLARS,
            "Each machine and what it has cost so far. Needs the option metrics_per_machine.",
            _one("max by (name) (tgp_machine_cost_dollars{@})"),
        ),
    ),
)
DASHBOARDS = (COST, FLEET, JOINS, PROVIDERS, GPUS)
_KINDS = {
    "stat": "stat",
    "bars": "bargauge",
    "lines": "timeseries",
    "stairs": "timeseries",
    "states": "state-timeline",
    "table": "table",
}
_INSTANT = ("stat", "bars", "table")
_WIDTHS = {"stat": 6, "states": 8}  # of the 24 columns of a row
_HEIGHTS = {"stat": 4, "states": 6}


def expression(text: str) -> str:
    """As Grafana gets it: with the matchers of the variables."""
    return text.replace("@", SELECTOR)


def made(dashboard: Dashboard) -> Json:
    """The dashboard as Grafana imports it."""
    return {
        "uid": f"tgp-gpu-{dashboard.name}",
        "title": f"tgp.gpu / {dashboard.title}",
        "description": dashboard.description,
        "tags": ["tgp.gpu"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "1m",
        "time": {"from": "now-24h", "to": "now"},
        "timezone": "",
        "links": [
            {
                "type": "dashboards",
                "title": "tgp.gpu",
                "tags": ["tgp.gpu"],
                "asDropdown": True,
                "keepTime": True,
                "includeVars": True,
            },
            {"type": "link", "title": "Metrics and alerts", "url": _PAGE, "icon": "doc", "targetBlank": True},
        ],
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "panels": list(_panels(dashboard.panels)),
    }


def _variables() -> list[Json]:
    """Where the metrics are, of which cluster, and by which job. Only the Pushgateway gives them the label ``cluster``, so its value for
    all matches series without it, too. A cluster that is scraped by several jobs has each series several times, so one is chosen."""
    asked = {"type": "query", "datasource": _SOURCE, "refresh": 2, "sort": 1, "hide": 0, "options": [], "current": {}}
    clusters = f"label_values({_RUNS}, cluster)"
    jobs = f'label_values({_RUNS}{{cluster=~"$cluster"}}, job)'
    return [
        {
            "type": "datasource",
            "name": "datasource",
            "label": "Prometheus",
            "query": "prometheus",
            "hide": 0,
            "current": {},
            "options": [],
        },
        {
            **asked,
            "name": "cluster",
            "label": "Cluster",
            "definition": clusters,
            "query": {"query": clusters, "refId": "cluster"},
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        },
        {
            **asked,
            "name": "job",
            "label": "Job",
            "definition": jobs,
            "query": {"query": jobs, "refId": "job"},
            "includeAll": False,
            "multi": False,
        },
    ]


def _panels(panels: t.Iterable[Panel]) -> t.Iterator[Json]:
    """Side by side, as many as fit into a row."""
    left, top, height = 0, 0, 0
    for number, panel in enumerate(panels, 1):
        width, high = _WIDTHS.get(panel.kind, 12), _HEIGHTS.get(panel.kind, 8)
        if left + width > 24 or (height and high != height):
            left, top, height = 0, top + height, 0
        height = max(height, high)
        yield _panel(panel, number, {"x": left, "y": top, "w": width, "h": high})
        left += width


def _panel(panel: Panel, number: int, place: Json) -> Json:
    steps: list[Json] = [{"color": "green", "value": None}]
    if panel.bad is not None:
        steps.append({"color": "red", "value": panel.bad})
    if panel.kind == "states" and panel.bad is None:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": 1}]
    return {
        "id": number,
        "type": _KINDS[panel.kind],
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}, "custom": _custom(panel)},
            "overrides": [],
        },
        "options": _options(panel),
        "targets": [_target(panel, expr, legend, "ABC"[place]) for place, (expr, legend) in enumerate(panel.queries.items())],
    }


def _target(panel: Panel, expr: str, legend: str, ref: str) -> Json:
    instant = panel.kind in _INSTANT
    return {
        "refId": ref,
        "datasource": _SOURCE,
        "expr": expression(expr),
        "legendFormat": legend or panel.title,
        "instant": instant,
        "range": not instant,
        "format": "table" if panel.kind == "table" else "time_series",
    }


def _custom(panel: Panel) -> Json:
    if panel.kind not in ("lines", "stairs"):
        return {}
    stairs = {"lineInterpolation": "stepAfter"} if panel.kind == "stairs" else {}
    return {"lineWidth": 2, "showPoints": "never", "fillOpacity": 10, **stairs}


def _options(panel: Panel) -> Json:
    last = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    if panel.kind == "stat":
        return {"reduceOptions": last, "colorMode": "value", "graphMode": "none", "textMode": "auto"}
    if panel.kind == "bars":
        return {"reduceOptions": last, "orientation": "horizontal", "displayMode": "basic"}
    if panel.kind == "table":
        return {"showHeader": True}
    return {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}, "tooltip": {"mode": "multi"}}


def texts() -> dict[str, str]:
    """The content of each file, by its name."""
    return {f"{one.name}.json": json.dumps(made(one), indent=1, sort_keys=True) + "\n" for one in DASHBOARDS}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in texts().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
