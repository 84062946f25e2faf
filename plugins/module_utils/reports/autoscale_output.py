# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What fleet_plan does besides in mode autoscale: pods and GPUs for the result and the screen."""

from __future__ import annotations

import typing as t

from ..core.errors import InvalidInput
from ..core.table import render
from ..core.task import Task
from ..model import Plan

AUTOSCALE = "autoscale"
_CHOICES = {  # of a run, with the modes that look at them
    "pools": ("provision", "everything", "destroy"),
    "nodes": ("provision", "everything"),
    "names": ("destroy",),
    "all": ("destroy",),
    "force": ("destroy",),
}
_GPUS = ("pool", "machines", "wanted", "used", "free", "coming", "waiting")
_PODS = {"pod": "waiting pod", "gpus": "gpus", "pool": "pool", "machine": "machine", "reason": "why not"}


def refuse_choices(task: Task) -> None:
    """What the run's mode would not look at is refused, lest somebody believes that it did."""
    params, mode = task.params, task.params["mode"]
    given = [one for one, modes in _CHOICES.items() if mode not in modes and not _is_empty(params.get(one))]
    if given:
        told = "; ".join(f"{task.called(one)} is for {', '.join(_CHOICES[one])}" for one in given)
        looks = f" Mode {mode} looks at all pools." if "pools" in given else ""
        raise InvalidInput(
            f"{', '.join(map(task.called, given))} cannot be used in mode {mode}.", remedy=f"Leave it out: {told}.{looks}"
        )


def _is_empty(choice: t.Any) -> bool:
    return choice is False or choice is None or choice in ("", [], {})


def demand_of(plan: Plan) -> dict[str, t.Any]:
    """The part of the result that is about pods."""
    return {"waiting": _pods(plan), "gpus": _gpus(plan), "join": sorted({*plan.join, *plan.admit})}


def show_demand(say: t.Callable[[str], None], plan: Plan) -> None:
    """Two tables: GPUs per pool, and the pods that wait. Nothing where no pods were looked at."""
    numbers = tuple(name for name in _GPUS if name != "pool")
    for line in render(_gpus(plan), {name: name for name in _GPUS}, right=numbers):
        say(line)
    for line in render(_pods(plan), _PODS, right=("gpus",)):
        say(line)


def _gpus(plan: Plan) -> list[dict[str, t.Any]]:
    return [{**{name: getattr(one, name) for name in _GPUS}, "pool": one.pool or "(none)"} for one in plan.tally]


def _pods(plan: Plan) -> list[dict[str, t.Any]]:
    return [
        {"pod": f"{one.namespace}/{one.name}", "gpus": one.gpus, "pool": one.pool, "machine": one.machine, "reason": one.reason}
        for one in plan.waiting
    ]
