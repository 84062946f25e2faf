# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report of one run, put together from the results of its steps; its last word is one of OUTCOMES (L-8)."""

from __future__ import annotations

import typing as t
from collections import Counter

#: from the best to the worst; a run is as good as the worst of its steps
OUTCOMES = ("ok", "changed", "lock_busy", "shortfall", "guard_refused", "partial", "error", "lock_lost")
_MONEY = ("cost_hour_now", "cost_day_now", "cost_hour_after", "cost_day_after")
_MACHINE = ("name", "pool", "cloud", "model", "phase", "price_hour", "result", "message")


def begun(run_id: str, playbook: str, started: str) -> Json:
    """The report of a run of which nothing has ended yet. ``started`` is a time as text."""
    return {
        "version": 1,
        "run_id": run_id,
        "playbook": playbook,
        "mode": "",
        "started": started,
        "ended": None,
        "outcome": "ok",
        "changed": False,
        "counts": {},
        "cost": {},
        "machines": [],
        "shortfall": [],
        "problems": [],
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


def with_step(report: Json, step: str, started: str, ended: str, result: t.Mapping[str, t.Any], *, mode: str = "") -> Json:
    """The report with one more step. Later lines about a machine replace earlier ones; a problem is reported once."""
    outcome = outcome_of(result)
    machines: Json = {machine["name"]: machine for machine in report["machines"]}
    for row in result.get("machines") or ():
        machines[row["name"]] = {key: row.get(key) or "" for key in _MACHINE}
    planned = Counter(str(entry.get("action")) for entry in result.get("plan") or () if entry.get("action"))
    counts = Counter(report["counts"]) + planned
    summary = result.get("summary") or {}
    problems = [str(problem) for problem in result.get("problems") or ()]
    if result.get("failed"):
        problems.append(str(result.get("msg") or "failed"))
    line = {"step": step, "started": started, "ended": ended, "outcome": outcome, "changed": bool(result.get("changed"))}
    rows = list(machines.values())
    ends = Counter(f"machines_{row['result']}" for row in rows if row["result"])
    return {
        **report,
        "mode": report["mode"] or mode,
        "outcome": worst(report["outcome"], outcome),
        "changed": report["changed"] or bool(result.get("changed")),
        "counts": {**{key: value for key, value in counts.items() if not key.startswith("machines_")}, **ends},
        "cost": {**report["cost"], **{key: str(summary[key]) for key in _MONEY if summary.get(key) is not None}},
        "machines": rows,
        "shortfall": [*report["shortfall"], *(result.get("shortfall") or ())],
        "problems": list(dict.fromkeys([*report["problems"], *problems])),
        "steps": [*report["steps"], line],
    }


def closed(report: Json, ended: str) -> Json:
    """The report of a run that is over."""
    return {**report, "ended": ended}


Json = dict[str, t.Any]
