# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Budgets (L-16): what was spent in the running period, whether one machine more may be launched, and what is used up.

The first hour of every machine is reserved when its launch is decided, so that several launches, in one run or in several soon after
each other, do not all count on the same money.
"""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime
from decimal import Decimal

from ...model import Capability, Claim, Ledger, LedgerLine, SpendingBudget, Wishes
from ...units.money import print_money
from ...units.periods import Period, period_of
from ..claims.phases import counts, may_have_instance
from .ledger import NOTHING, add_up, between, books

ACTIONS = ("stop_launch", "drain_idle", "drain_all")
EVERYTHING = "all"


@dataclasses.dataclass(frozen=True, slots=True)
class Purse:
    """One budget in its running period. ``scope`` is pool, class or all, ``name`` which one. ``spent`` is at least what was spent;
    ``whole`` False: some of the books could not be read, so it may be more. ``reserved``: first hours that are promised but not over.
    ``unseen``: the part of ``spent`` for create calls of which nobody knows whether they made a machine."""

    scope: str
    name: str
    budget: SpendingBudget
    period: Period
    spent: Decimal
    reserved: Decimal
    whole: bool
    unseen: Decimal = NOTHING

    @property
    def soft(self) -> bool:
        """From here on people are told."""
        return self.spent * 100 >= self.budget.amount * self.budget.soft_percent

    @property
    def used_up(self) -> bool:
        return self.spent >= self.budget.amount

    @property
    def ends_machines(self) -> bool:
        """Whether what is surely spent uses it up: what nobody knows ends nothing."""
        return self.whole and self.spent - self.unseen >= self.budget.amount

    @property
    def title(self) -> str:
        whose = "the cluster" if self.scope == EVERYTHING else f"{self.scope} {self.name}"
        return f"{self.budget.period} budget of {whose}"

    @property
    def says(self) -> str:
        """For people: how much of it is spent."""
        least = "" if self.whole else "at least "
        return f"{self.title}: {least}${print_money(self.spent)} of ${print_money(self.budget.amount)} spent in {self.period.key}"

    def covers(self, pool: str, node_class: str) -> bool:
        """Whether what a machine of that pool and class costs comes out of this purse."""
        return self.scope == EVERYTHING or (self.name == pool if self.scope == "pool" else self.name == node_class)

    def against(self, price: Decimal) -> str:
        """Why no machine at ``price`` may be launched; empty = it may: an hour of it is still affordable."""
        if not self.whole:
            return f"limit:budget.{self.scope} unknown"
        return f"limit:budget.{self.scope}" if self.spent + self.reserved + price > self.budget.amount else ""


@dataclasses.dataclass(frozen=True, slots=True)
class Purses:
    """All budgets of a run. Immutable: each reservation makes a new one."""

    all: tuple[Purse, ...] = ()

    def room(self, pool: str, node_class: str, price: Decimal | None) -> str:
        """Why one more machine at ``price`` per hour does not fit; empty when it fits."""
        if not self.all:
            return ""
        if price is None:
            return "price unknown"
        return next((why for purse in self.all if purse.covers(pool, node_class) and (why := purse.against(price))), "")

    def plus(self, pool: str, node_class: str, price: Decimal) -> Purses:
        """With the first hour of one more machine reserved."""
        return Purses(
            tuple(
                dataclasses.replace(purse, reserved=purse.reserved + price) if purse.covers(pool, node_class) else purse
                for purse in self.all
            )
        )


def budgets(wishes: Wishes, overall: SpendingBudget | None) -> list[tuple[str, str, SpendingBudget]]:
    """Every budget of the documents and the run, as scope, name and budget."""
    found = [("pool", pool.key, pool.budget) for pool in wishes.described if pool.budget is not None]
    found += [
        ("class", name, node_class.budget) for name, node_class in sorted(wishes.classes.items()) if node_class.budget is not None
    ]
    return [*sorted(found, key=lambda one: one[:2]), *([(EVERYTHING, EVERYTHING, overall)] if overall is not None else [])]


def open_purses(
    wishes: Wishes,
    overall: SpendingBudget | None,
    ledger: Ledger | None,
    claims: t.Iterable[Claim],
    now: datetime,
    capabilities: t.Mapping[str, Capability],
    unseen: t.Container[str] = (),
) -> Purses:
    """The budgets with what was spent of them. ``claims``: everything that is billed to us now; those named in ``unseen`` may have no
    machine; ``ledger`` None = could not be read."""
    wanted = budgets(wishes, overall)
    if not wanted:
        return Purses()
    held = [claim for claim in claims if counts(claim)]
    lines = books(ledger or Ledger(), held, now, capabilities)
    whole = ledger is not None and not ledger.torn
    ahead = _first_hours(held, lines)
    purses = []
    for scope, name, budget in wanted:
        purse = Purse(scope, name, budget, period_of(budget.period, now, budget.time_zone), NOTHING, NOTHING, whole)
        mine = [(line, between(line, purse.period.start, now)) for line in lines if purse.covers(line.pool, line.node_class)]
        spent = add_up(amount for _line, amount in mine)
        unsure = add_up(amount for line, amount in mine if not line.closed and line.name in unseen)
        reserved = add_up(amount for claim, amount in ahead if purse.covers(claim.pool, claim.node_class))
        purses.append(dataclasses.replace(purse, spent=spent, reserved=reserved, unseen=unsure))
    return Purses(tuple(purses))


def _first_hours(claims: t.Iterable[Claim], lines: t.Iterable[LedgerLine]) -> list[tuple[Claim, Decimal]]:
    """What is left of the first hour of each machine that stays."""
    so_far = {line.name: line.cost for line in lines if not line.closed}
    left = [(claim, claim.price - so_far.get(claim.name, NOTHING)) for claim in claims if claim.deletion is None]
    return [(claim, amount) for claim, amount in left if amount > 0]


# ---- what is spent per hour now, what today and this month have cost so far, and what they will cost if nothing changes (L-16)

_SECONDS = 3600


@dataclasses.dataclass(frozen=True, slots=True)
class Outlook:
    """Dollars. ``hour`` is what is billed per hour now; a period's forecast is what it cost so far + ``hour`` × the hours left of it."""

    hour: Decimal
    day_key: str
    day: Decimal
    day_forecast: Decimal
    month_key: str
    month: Decimal
    month_forecast: Decimal


def outlook(lines: t.Sequence[LedgerLine], claims: t.Iterable[Claim], now: datetime, time_zone: str = "UTC") -> Outlook:
    """``lines``: every machine, closed or not (ledger.books)."""
    hour = add_up(claim.price for claim in claims if counts(claim) and may_have_instance(claim) and claim.gone_since is None)
    day, month = (period_of(kind, now, time_zone) for kind in ("day", "month"))
    spent = [add_up(between(line, period.start, now) for line in lines) for period in (day, month)]
    left = [hour * Decimal((period.end - now).total_seconds()) / _SECONDS for period in (day, month)]
    return Outlook(hour, day.key, spent[0], spent[0] + left[0], month.key, spent[1], spent[1] + left[1])
