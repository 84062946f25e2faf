# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What status says about money: now, today, this month, the budgets, and when buying would have paid (L-16, S1-07)."""

from __future__ import annotations

import typing as t
from datetime import datetime
from decimal import Decimal

from ..model import Claim, Ledger
from ..observe.context import Context
from ..planner.cost.budgets import Purse, open_purses, outlook
from ..planner.cost.ledger import books
from ..planner.cost.price_history import break_even_hours
from ..providers.registry import CAPABILITIES
from ..units import periods
from ..units.money import parse_money, print_money


def spending(context: Context, ledger: Ledger | None, claims: t.Sequence[Claim], now: datetime) -> dict[str, t.Any]:
    """JSON-safe, amounts as text. ``whole`` False: the books could not be read whole, so that every sum is "at least"."""
    context.task.read("time_zone", periods.zone)
    zone = context.task.params.get("time_zone") or "UTC"
    forecast = outlook(books(ledger or Ledger(), claims, now, CAPABILITIES), claims, now, zone)
    purses = open_purses(context.wishes, context.settings.budget, ledger, claims, now, CAPABILITIES)
    return {
        "hour": print_money(forecast.hour),
        "today": {"key": forecast.day_key, "spent": print_money(forecast.day), "forecast": print_money(forecast.day_forecast)},
        "month": {
            "key": forecast.month_key,
            "spent": print_money(forecast.month),
            "forecast": print_money(forecast.month_forecast),
        },
        "time_zone": zone,
        "whole": ledger is not None and not ledger.torn,
        "budgets": [budget_row(purse) for purse in purses.all],
        "break_even": _break_even(context.task.read("purchase_price", parse_money), claims),
    }


def sentences(money: t.Mapping[str, t.Any]) -> list[str]:
    """The same for people."""
    least = "" if money["whole"] else "at least "
    parts = [
        f"{word} ({money[word]['key']}): {least}${money[word]['spent']}, ${money[word]['forecast']} at its end if nothing changes"
        for word in ("today", "month")
    ]
    lines = [f"  ${money['hour']}/h now; {'; '.join(parts)}; {money['time_zone']}"]
    for entry in money["budgets"]:
        who = "the cluster" if entry["scope"] == "all" else f"{entry['scope']} {entry['name']}"
        spent = f"{least}${entry['spent']} of ${entry['amount']} ({entry['percent']} %)"
        lines.append(
            f"  {entry['period']} budget of {who}, {entry['key']}: {spent}, {entry['state']}; when it is used up: {entry['action']}"
        )
    for entry in money["break_even"]:
        lines.append(
            f"  buying for ${entry['purchase_price']} instead of renting {entry['what']} "
            f"at ${entry['price_hour']}/h pays after {entry['hours']} h"
        )
    return lines


def budget_row(purse: Purse) -> dict[str, t.Any]:
    """A budget as data."""
    state = "used up" if purse.used_up else "low" if purse.soft else "in bounds"
    return {
        "scope": purse.scope,
        "name": purse.name,
        "period": purse.budget.period,
        "key": purse.period.key,
        "amount": print_money(purse.budget.amount),
        "spent": print_money(purse.spent),
        "percent": str((purse.spent * 100 / purse.budget.amount).quantize(Decimal("0.1"))),
        "state": state if purse.whole else f"{state}, as far as the books can be read",
        "action": purse.budget.action,
    }


def _break_even(purchase: Decimal | None, claims: t.Sequence[Claim]) -> list[dict[str, t.Any]]:
    if purchase is None:
        return []
    kinds = sorted({(claim.cloud, claim.offer.gpu_count, claim.offer.model, claim.price) for claim in claims if claim.price > 0})
    return [
        {
            "what": f"{cloud} {count} × {model or 'GPU'}",
            "price_hour": print_money(hourly),
            "purchase_price": print_money(purchase),
            "hours": break_even_hours(purchase, hourly),
        }
        for cloud, count, model, hourly in kinds
    ]
