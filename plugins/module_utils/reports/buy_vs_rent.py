# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rent or buy, in numbers."""

from __future__ import annotations

import typing as t
from decimal import Decimal

from ..core.task import Task
from ..planner.cost.price_history import break_even_hours
from ..units.money import parse_money, print_money


def purchase_of(task: Task, rows: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, t.Any]:
    """``purchase`` against the cheapest row with a price; None when no purchase price was given. ``hours`` None = never."""
    price = task.read("purchase_price", parse_money)
    if price is None:
        return {"purchase": None}
    power = task.read("power_price", parse_money) or Decimal(0)
    watts = task.params["power_watts"]
    cheapest = next((one for one in rows if one["price_hour"] is not None), None)
    if cheapest is None:
        return {
            "purchase": {
                "hours": None,
                "rent_hour": None,
                "sentence": "Nothing can be rented, so there is nothing to compare with.",
            }
        }
    rent = Decimal(cheapest["price_hour"])
    hours = break_even_hours(price, rent, power, watts)
    thing = f"{cheapest['cloud']} {cheapest['id']} at {print_money(rent)} $/h"
    if hours is None:
        sentence = f"Buying never pays: power alone ({watts} W at {print_money(power)} $/kWh) costs as much as {thing}."
    else:
        days = Decimal(hours) / 24
        sentence = (
            f"Buying for {print_money(price)} $ pays after {hours} hours of use ({days:.0f} days without a pause) against {thing}."
        )
    return {"purchase": {"hours": hours, "rent_hour": cheapest["price_hour"], "sentence": sentence}}
