# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a GPUNodePool that says when its nodes go by themselves: ``spec.disruption``."""

from __future__ import annotations

import datetime
import typing as t
from decimal import Decimal

from ..core.errors import InvalidInput
from ..model import Calendar, DisruptionBudget, Window
from ..planner.disruption.disruption_budgets import valid
from ..units.cron import parse_cron
from ..units.periods import REMEDY, zone
from .node_class import share
from .reading import Reader
from .schemas import DAYS

PATH = "spec.disruption"
UNDERUTILIZED = "WhenUnderutilized"
_SAME = {"WhenEmpty": "WhenIdle", "WhenEmptyOrUnderutilized": UNDERUTILIZED}  # Karpenter's words


def disruption(end: Spec, reader: Reader, *, services: bool = False) -> dict[str, t.Any]:
    """The Pool's fields that ``spec.disruption`` gives, by name. ``services``: the pool runs services, which share no machine."""
    policy = end.get("consolidationPolicy", "WhenIdle")
    policy = _SAME.get(policy, policy)
    if services and policy == UNDERUTILIZED:
        reader.fault(
            f"{PATH}.consolidationPolicy", "a service has its machine to itself, so it is never underutilized. Use WhenIdle."
        )
    for field in ("utilizationThreshold", "replaceCheaperPercent"):
        if field in end and policy != UNDERUTILIZED:
            reader.fault(f"{PATH}.{field}", f"has no effect without consolidationPolicy: {UNDERUTILIZED}. Remove it.")
    threshold = share(end.get("utilizationThreshold"), f"{PATH}.utilizationThreshold", reader, most=100)
    return {
        "consolidation_policy": policy,
        "utilization_threshold": Decimal("0.5") if threshold is None else threshold,
        "replace_cheaper": share(end.get("replaceCheaperPercent"), f"{PATH}.replaceCheaperPercent", reader, most=100) or Decimal(0),
        "consolidate_after": reader.duration_or_never(end.get("consolidateAfter"), f"{PATH}.consolidateAfter", 600),
        "expire_after": reader.duration_or_never(end.get("expireAfter"), f"{PATH}.expireAfter", None),
        "expire_jitter": _jitter(end, reader),
        "drift_policy": end.get("driftPolicy", "Report"),
        "gpu_loss_policy": end.get("gpuLossPolicy", "Keep"),
        "min_age": reader.duration(end.get("minAge"), f"{PATH}.minAge", 600),
        "idle_mode": end.get("idleMode", "workload"),
        "disruption_budgets": tuple(
            _budget(budget, f"{PATH}.budgets[{place}]", reader) for place, budget in enumerate(end.get("budgets", ()))
        ),
    }


def _jitter(end: Spec, reader: Reader) -> Decimal:
    if "expireJitter" in end and end.get("expireAfter", "Never") == "Never":
        reader.fault(f"{PATH}.expireJitter", "has no effect without expireAfter. Give expireAfter, or remove it.")
    return share(end.get("expireJitter"), f"{PATH}.expireJitter", reader, most=100) or Decimal(0)


def _budget(spec: Spec, path: str, reader: Reader) -> DisruptionBudget:
    nodes = str(spec["nodes"])
    if not valid(nodes):
        reader.fault(f"{path}.nodes", f'{nodes!r} is neither a number of nodes nor a share from 0% to 100%, like "10%".')
    if ("schedule" in spec) != ("duration" in spec):
        missing = "duration" if "schedule" in spec else "schedule"
        reader.fault(f"{path}.{missing}", "is missing: a budget has both a schedule and a duration, or none of the two.")
    if "timeZone" in spec and "schedule" not in spec:
        reader.fault(f"{path}.timeZone", "has no effect without a schedule. Remove it.")
    for field, read in (("schedule", parse_cron), ("timeZone", zone)):
        try:
            read(spec.get(field, "UTC" if field == "timeZone" else "@daily"))
        except InvalidInput as error:
            reader.fault(f"{path}.{field}", str(error))
    lasts = reader.duration(spec["duration"], f"{path}.duration", 1) if "duration" in spec else None
    if lasts == 0:
        reader.fault(f"{path}.duration", "is 0, so the budget would never be in force.")
    return DisruptionBudget(nodes, tuple(spec.get("reasons", ())), spec.get("schedule", ""), lasts, spec.get("timeZone", "UTC"))


# ---- ``spec.calendar`` of a GPUNodePool, valid by its schema, as the model's Calendar

CALENDAR = "spec.calendar"


def calendar(spec: Spec | None, reader: Reader, max_nodes: int | None = None) -> Calendar | None:
    """The pool's calendar, None without one. Faults: an unknown time zone, a window without length, a floor above ``max_nodes``, which the
    pool may have."""
    if spec is None:
        return None
    name = spec.get("timeZone", "UTC")
    try:
        zone(name)
    except InvalidInput:
        reader.fault(f"{CALENDAR}.timeZone", f"there is no time zone {name!r}. {REMEDY}")
    for place, window in enumerate(spec["windows"]):
        if max_nodes is not None and window.get("minNodes", 0) > max_nodes:
            reader.fault(f"{CALENDAR}.windows[{place}].minNodes", f"{window['minNodes']} is above limits.maxNodes {max_nodes}.")
    return Calendar(
        name, tuple(_window(window, f"{CALENDAR}.windows[{place}]", reader) for place, window in enumerate(spec["windows"]))
    )


def _window(spec: Spec, path: str, reader: Reader) -> Window:
    days = frozenset(DAYS.index(day) for day in spec.get("days", DAYS))
    start, end = _time(spec["from"]), _time(spec["to"])
    if start == end and spec["to"] != "24:00":
        reader.fault(f"{path}.to", f"{spec['to']} is also when the window begins. For a whole day write from 00:00 to 24:00.")
    stop = _time(spec["hardStop"]) if "hardStop" in spec else None
    return Window(days, start, end, spec.get("minNodes"), stop)


def _time(text: str) -> datetime.time:
    """A time of day of the schema's form; 24:00 is the next day's beginning."""
    hour, minute = (int(part) for part in text.split(":"))
    return datetime.time(hour % 24, minute)


Spec = t.Mapping[str, t.Any]
