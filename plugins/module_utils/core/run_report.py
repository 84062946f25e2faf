# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of one run, put together from the results of its steps (docs/reference/events.md, schemas/run-report.schema.json)."""

from __future__ import annotations

import dataclasses
import typing as t
from collections import Counter

VERSION = 2
#: from the best to the worst; a run is as good as the worst of its steps (L-8)
OUTCOMES = ("ok", "changed", "lock_busy", "shortfall", "guard_refused", "partial", "error", "lock_lost")
FAILED = 2  # exit status of a playbook in which a task fails
_COSTS = ("cost_hour_now", "cost_day_now", "cost_hour_after", "cost_day_after")
_MACHINE = ("name", "pool", "cloud", "model", "phase", "price_hour", "result", "message")
_SHORT = ("name", "pool", "cloud", "model", "price_hour")
_PLANNED = ("action", "name", "pool", "cloud", "type", "region", "price_hour", "reason")
_FAILED = ("failed", "replaced", "waiting", "pending", "denied", "error")


@dataclasses.dataclass(frozen=True)
class Told:
    """What a step tells beside its result: of which cluster, its warnings, and its notices (each with ``notice``, ``key`` and ``text``)."""

    cluster_id: str = ""
    warnings: t.Sequence[str] = ()
    notices: t.Sequence[t.Mapping[str, str]] = ()


def begun(run_id: str, playbook: str, started: str, by: t.Mapping[str, str], *, check: bool = False) -> Json:
    """The report of a run of which nothing has ended yet. ``started`` is a time as text, ``by`` is who runs it (events.starter)."""
    return {
        "version": VERSION,
        "run_id": run_id,
        "playbook": playbook,
        "mode": "",
        "check": check,
        "cluster_id": "",
        "started_by": dict(by),
        "started": started,
        "ended": None,
        "outcome": "ok",
        "exit_code": None,
        "changed": False,
        "counts": {},
        "cost": {},
        "spending": {},
        "planned": [],
        "machines": [],
        "launched": [],
        "terminated": [],
        "failed": [],
        "shortfall": [],
        "checks": [],
        "problems": [],
        "error": None,
        "warnings": [],
        "notices": [],
        "hubs": [],
        "steps": [],
    }


def outcome_of(result: t.Mapping[str, t.Any]) -> str:
    """The word for one step's result as its module returned it."""
    if result.get("failed"):
        kind = (result.get("error") or {}).get("kind")
        return kind if kind in ("lock_lost", "lock_busy") else "error"
    word = str(result.get("outcome") or "ok")
    word = word if word in OUTCOMES else "ok"
    return "changed" if word == "ok" and result.get("changed") else word


def worst(*outcomes: str) -> str:
    return max(outcomes, key=OUTCOMES.index, default="ok")


def with_step(
    report: Json, step: str, started: str, ended: str, result: t.Mapping[str, t.Any], *, mode: str = "", told: Told = Told()
) -> Json:
    """The report with one more step. Later lines about a machine replace earlier ones; a problem is reported once."""
    outcome = outcome_of(result)
    machines: Json = {machine["name"]: machine for machine in report["machines"]}
    told_of = [row for row in result.get("machines") or () if isinstance(row, dict)]  # fleet_release gives names
    for row in told_of:
        machines[row["name"]] = _texts(row, _MACHINE)
    plan = [row for row in result.get("plan") or () if row.get("action")]
    counts = Counter(report["counts"]) + Counter(str(row["action"]) for row in plan)
    problems = [str(problem) for problem in result.get("problems") or ()]
    failed = bool(result.get("failed"))
    if failed:
        problems.append(str(result.get("msg") or "failed"))
    line = {"step": step, "started": started, "ended": ended, "outcome": outcome, "changed": bool(result.get("changed"))}
    rows = list(machines.values())
    ends = Counter(f"machines_{row['result']}" for row in rows if row["result"])
    launched = {machine["name"] for machine in report["launched"]}
    launched |= {row["name"] for row in told_of if row.get("launched")}
    return {
        **report,
        "mode": report["mode"] or mode,
        "cluster_id": report["cluster_id"] or told.cluster_id,
        "outcome": worst(report["outcome"], outcome),
        "changed": report["changed"] or bool(result.get("changed")),
        "counts": {**{key: value for key, value in counts.items() if not key.startswith("machines_")}, **ends},
        "cost": {**report["cost"], **_cost(result)},
        "spending": dict(result.get("spending") or report["spending"]),
        "planned": [*report["planned"], *(_texts(row, _PLANNED) for row in plan)],
        "machines": rows,
        "launched": [_texts(row, _SHORT) for row in rows if row["name"] in launched],
        "terminated": [_texts(row, _SHORT) for row in rows if _terminated(row)],
        "failed": [_texts(row, (*_SHORT, "result", "message")) for row in rows if row["result"] in _FAILED],
        "shortfall": [*report["shortfall"], *(result.get("shortfall") or ())],
        "checks": [*report["checks"], *(_texts(check, ("what", "status", "message")) for check in result.get("checks") or ())],
        "problems": list(dict.fromkeys([*report["problems"], *problems])),
        "error": report["error"] or (_error(step, result) if failed else None),
        "warnings": list(dict.fromkeys([*report["warnings"], *told.warnings])),
        "notices": [*report["notices"], *told.notices],
        "hubs": sorted({*report["hubs"], *(str(hub["host"]) for hub in result.get("hubs") or ())}),
        "steps": [*report["steps"], line],
    }


def closed(report: Json, ended: str, *, saves: bool = False) -> Json:
    """The report of a run that is over. ``saves``: it saved a plan, so tgp_accept_problems may decide how the playbook ends."""
    if report["error"]:
        code: int | None = FAILED
    elif report["problems"]:
        code = None if saves else FAILED
    else:
        code = None if report["hubs"] else 0
    return {**report, "ended": ended, "exit_code": code}


# ---- inside


def _terminated(row: t.Mapping[str, str]) -> bool:
    """A machine with a claim, or one without, whose line has its cloud; lines of what else is removed have none."""
    return row["result"] == "gone" or (row["result"] == "removed" and bool(row["cloud"]))


def _cost(result: t.Mapping[str, t.Any]) -> dict[str, str]:
    """Of a plan what is paid before and after, of a look at everything what is paid now and was paid so far."""
    summary, totals = result.get("summary") or {}, result.get("totals") or {}
    costs = {key: str(summary[key]) for key in _COSTS if summary.get(key) is not None}
    seen = {"cost_hour_now": totals.get("price_hour"), "cost_so_far": totals.get("cost")}
    return costs | {key: str(value) for key, value in seen.items() if value is not None}


def _error(step: str, result: t.Mapping[str, t.Any]) -> dict[str, str]:
    kind = (result.get("error") or {}).get("kind") or "error"
    return {"step": step, "kind": str(kind), "message": str(result.get("msg") or "failed")}


def _texts(row: t.Mapping[str, t.Any], keys: t.Iterable[str]) -> dict[str, str]:
    return {key: str(row.get(key) or "") for key in keys}


Json = dict[str, t.Any]
