# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may be spent in a day, and what was: by the clock and the bills of the sandbox, not by the code under test."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

from sandbox.world import Machine, cost_until

if t.TYPE_CHECKING:
    from .sight import Sight

SCOPES = ("pool", "class", "all")
ACTIONS = ("stop_launch", "drain_idle", "drain_all")
_DAY = timedelta(days=1)


@dataclasses.dataclass(frozen=True)
class Purse:
    """So many dollars a day of everything in ``scope``; a day begins when it is ``hour`` in UTC, in some time zone's midnight."""

    scope: str
    amount: Decimal
    action: str
    hour: int

    @classmethod
    def parse(cls, text: str) -> Purse:
        """As in a line of a story: ``pool 1.80 drain_all 3``."""
        scope, amount, action, hour = text.split()
        if scope not in SCOPES or action not in ACTIONS or not 0 <= int(hour) <= 12:
            raise ValueError(f"no budget: {text}")
        return cls(scope, Decimal(amount), action, int(hour))

    def since(self, now: datetime) -> datetime:
        """When the running day began."""
        today = now.replace(hour=self.hour, minute=0, second=0, microsecond=0)
        return today if today <= now else today - _DAY

    def until(self, now: datetime) -> datetime:
        return self.since(now) + _DAY

    def covers(self, name: str) -> bool:
        """Whether it pays for a machine of that name (or for the one whose name a text holds); only pool training and its class have one."""
        return self.scope == "all" or not ("-batch-" in name or "-later-" in name)

    def as_document(self) -> dict[str, t.Any]:
        """For a pool or class."""
        return {"period": "day", "amount": str(self.amount), "timeZone": f"Etc/GMT+{self.hour}", "action": self.action}

    def as_option(self) -> dict[str, t.Any]:
        """For the option ``budget``."""
        return {
            "period": "day",
            "amount": str(self.amount),
            "time_zone": f"Etc/GMT+{self.hour}",
            "soft_percent": 80,
            "action": self.action,
        }


def spans_of(machine: Machine, times: t.Sequence[tuple[str, datetime]], now: datetime) -> list[tuple[datetime, datetime]]:
    """From when to when it was ours."""
    found, since = list[tuple[datetime, datetime]](), machine.created if times[0][0] == "out" else None
    for kind, moment in times:
        if kind == "in":
            since = moment
        elif since is not None:
            found.append((since, moment))
            since = None
    return [*found, *([(since, machine.ended or now)] if since is not None else [])]


def billed(sight: Sight, machine: Machine, since: datetime) -> Decimal:
    """What the world billed for it from ``since`` on, in the times in which it was ours (L-48)."""
    now, times = sight.now, sight.moved.times.get(machine.id)
    spans = spans_of(machine, times, now) if times else [(machine.created, now)]
    return sum((cost_until(machine, max(end, since)) - cost_until(machine, max(start, since)) for start, end in spans), Decimal(0))


def spent(sight: Sight, since: datetime) -> Decimal:
    """At least so much was billed from ``since`` on for machines that a run can know of."""
    return sum((billed(sight, one, since) * sight.shown_part(one) for one in _known(sight)), Decimal(0))


def _known(sight: Sight) -> list[Machine]:
    return [one for one in sight.known() if sight.purse is None or sight.purse.covers(one.name)]


def promised(sight: Sight) -> Decimal:
    """What is left of the first hours of those that stay."""
    now, claims = sight.now, sight.claims()
    left = [
        sight.agreed_rate(one) - cost_until(one, now) * sight.shown_part(one)
        for one in _known(sight)
        if one.ended is None and one.name in claims and not claims[one.name].get("deletion")
    ]
    return sum((one for one in left if one > 0), Decimal(0))


def minute_more(machine: Machine, now: datetime) -> Decimal:
    """How much more it would cost had it lived a minute longer: what its cloud bills whole is whole here as well. So where hours are billed, a
    minute costs nothing, or the hour that begins in it."""
    unit, lived = timedelta(seconds=machine.offer.unit_seconds), (machine.ended or now) - machine.created
    units = -(-(lived + timedelta(minutes=1)) // unit) + (lived // -unit)
    return machine.offer.price_hour * units * machine.offer.unit_seconds / Decimal(3600)


def unsure(sight: Sight, since: datetime) -> Decimal:
    """A minute of each machine: a ledger may be so much below the bill (I-13)."""
    return sum((one.offer.price_hour / 60 for one in _known(sight) if one.ended is None or one.ended > since), Decimal(0))
