# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``spec.budget`` of a class, a pool or a request: what may be spent in a day, a week or a month."""

from __future__ import annotations

import typing as t
from decimal import Decimal

from ..core.errors import InvalidInput
from ..model import SpendingBudget
from ..units.money import parse_money
from ..units.periods import zone
from .reading import Reader

PATH = "spec.budget"
Spec = t.Mapping[str, t.Any]


def budget(spec: Spec, reader: Reader) -> SpendingBudget | None:
    """The budget of a document; None when it names none, or a faulty one."""
    wish = spec.get("budget")
    if wish is None:
        return None
    time_zone = wish.get("timeZone")
    for field, check in (("amount", lambda: _dollars(wish["amount"])), ("timeZone", lambda: zone(time_zone or "UTC"))):
        try:
            check()
        except InvalidInput as error:
            reader.fault(f"{PATH}.{field}", str(error))
            return None
    return budget_of(wish["period"], wish["amount"], time_zone, wish.get("softPercent"), wish.get("action"))


def budget_of(period: str, amount: t.Any, time_zone: str | None, soft_percent: int | None, action: str | None) -> SpendingBudget:
    """A budget of its parts, None = the usual. InvalidInput for an amount or a time zone that is none."""
    dollars = _dollars(amount)
    zone(time_zone or "UTC")
    return SpendingBudget(
        period=period,
        amount=dollars,
        time_zone=time_zone or "UTC",
        soft_percent=Decimal(80 if soft_percent is None else soft_percent),
        action=action or "stop_launch",
    )


def _dollars(amount: t.Any) -> Decimal:
    dollars = parse_money(amount)
    if dollars == 0:
        raise InvalidInput("A budget of 0 lets nothing be launched.", remedy="Give an amount above 0, or leave the budget out.")
    return dollars
