# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan as people and playbooks read it: rows, what stands above their columns, and a summary."""

from __future__ import annotations

import collections
import typing as t
from decimal import Decimal

from ...model import Action, Observation, Plan
from ...model.reasons import ActionKind
from ...units.values import print_money
from ..cost.cost import per_day
from ..pauses import paused_rows
from ..provisioning.limits import reserved

CHANGES = tuple(kind for kind in ActionKind if kind is not ActionKind.REPORT)
COLUMNS = ("action", "name", "pool", "cloud", "type", "gpus", "region", "price_hour", "price_day", "reason", "detail")
_SIGNED = {ActionKind.LAUNCH: "+", ActionKind.DESTROY: "-", ActionKind.DELETE_INSTANCE: "-"}


def rows(plan: Plan, *, reports: bool = True) -> list[dict[str, t.Any]]:
    """One JSON-safe mapping per action, keys COLUMNS. Prices are text; with a sign where the action changes what is paid."""
    return [_row(action) for action in plan.actions if reports or action.kind != ActionKind.REPORT]


def summary(plan: Plan, observation: Observation) -> dict[str, t.Any]:
    """Counts per kind of action, dollars per hour and day now and afterwards, what is missing and why, warnings and problems."""
    now = reserved(observation.claims or ()).total.cost
    later = now + sum((action.price_hour for action in plan.actions if action.kind != ActionKind.REPORT), Decimal(0))
    kinds = collections.Counter(action.kind for action in plan.actions)
    reasons = collections.Counter(
        f"{action.kind}:{action.reason}" for action in plan.actions if action.kind in (ActionKind.DESTROY, ActionKind.REPORT)
    )
    return {
        "changes": sum(kinds[kind] for kind in CHANGES),
        "actions": {kind: kinds[kind] for kind in (*CHANGES, ActionKind.REPORT)},
        "reasons": dict(sorted(reasons.items())),
        "cost_hour_now": print_money(now),
        "cost_hour_after": print_money(later),
        "cost_day_now": print_money(per_day(now)),
        "cost_day_after": print_money(per_day(later)),
        "shortfall": [
            {"pool": shortfall.pool, "missing": shortfall.missing, "reason": shortfall.reason, "rejected": dict(shortfall.rejected)}
            for shortfall in plan.shortfall
        ],
        "missing": sum(shortfall.missing for shortfall in plan.shortfall),
        "warnings": list(plan.warnings),
        "problems": list(plan.problems),
        "paused": paused_rows(plan.paused),
    }


def headings(rows: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, str]:
    """The columns in which any of the rows says something, in order, each with its heading."""
    shown = (name for name in COLUMNS if any(row[name] not in ("", None) for row in rows))
    return {name: name.replace("_", "/") if name.startswith("price") else name for name in shown}


def _row(action: Action) -> dict[str, t.Any]:
    claim = action.claim
    offer = claim.offer if claim else None
    price = abs(action.price_hour) if action.price_hour else (claim.price if claim else None)
    sign = _SIGNED.get(action.kind, "") if price else ""
    return {
        "action": action.kind,
        "name": action.name,
        "pool": action.pool,
        "cloud": claim.cloud
        if claim
        else action.value
        if action.kind in (ActionKind.DELETE_INSTANCE, ActionKind.DELETE_EXTRA)
        else "",
        "type": offer.instance_type if offer else "",
        "gpus": f"{offer.gpu_count} × {offer.model}" if offer else "",
        "region": (offer.cloud_region or offer.region) if offer else "",
        "price_hour": None if price is None else f"{sign}{print_money(price)}",
        "price_day": None if price is None else f"{sign}{print_money(per_day(price))}",
        "reason": action.reason,
        "detail": action.detail,
    }
