# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What traffic may cost where a cloud bills it by the GB (L-16): an estimate beside the price per hour. No price, limit, budget or ledger line
contains it, because what clouds list of a machine does not tell how much it has transferred."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

from ...core.errors import InvalidInput
from ...model import LedgerLine, Offer

ONCE_GB = 30  # downloaded after the boot: driver and container images, and a model of some GB
HOUR_GB = 1  # per hour of life, in each direction: logs, metrics, requests and their answers
_MOST_GB = 1_000_000
_MICROSECONDS_PER_HOUR = 3_600_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class Assumption:
    """The traffic of a machine of which nothing is known: ``once_gb`` GB downloaded once, then ``hour_gb`` GB per hour in each direction."""

    once_gb: int = ONCE_GB
    hour_gb: int = HOUR_GB

    @classmethod
    def of(cls, params: t.Mapping[str, t.Any]) -> Assumption:
        """As the options ``traffic_once_gb`` and ``traffic_hour_gb`` say. InvalidInput for an amount that cannot be."""
        for name in ("traffic_once_gb", "traffic_hour_gb"):
            if not 0 <= params[name] <= _MOST_GB:
                raise InvalidInput(f"{name} must be between 0 and {_MOST_GB}, got {params[name]}.", remedy="Give whole GB.")
        return cls(params["traffic_once_gb"], params["traffic_hour_gb"])

    def __str__(self) -> str:
        return f"{self.once_gb} GB downloaded once and {self.hour_gb} GB per hour in each direction"


class Estimate(t.NamedTuple):
    """Dollars once, and dollars per hour."""

    once: Decimal
    hour: Decimal

    def until(self, lived: timedelta) -> Decimal:
        """Dollars after so much time."""
        return self.once + self.hour * (lived // timedelta(microseconds=1)) / _MICROSECONDS_PER_HOUR


@dataclasses.dataclass(frozen=True, slots=True)
class Total:
    """The estimate for ``machines`` whose cloud bills traffic."""

    machines: int
    dollars: Decimal


def of_prices(down: Decimal | None, up: Decimal | None, assumed: Assumption) -> Estimate | None:
    """At these dollars per GB. None where no traffic is billed, or nothing is reported; one that is not reported counts as free."""
    if not down and not up:
        return None
    down, up = down or Decimal(0), up or Decimal(0)
    return Estimate(down * assumed.once_gb, (down + up) * assumed.hour_gb)


def of_offer(offer: Offer, assumed: Assumption) -> Estimate | None:
    """What the traffic of a machine of this offer may cost."""
    return of_prices(offer.traffic_price_gb_down, offer.traffic_price_gb_up, assumed)


def of_lines(lines: t.Iterable[LedgerLine], since: datetime | None, until: datetime, assumed: Assumption) -> Total:
    """What traffic may have cost from ``since`` (None = ever) to ``until``; the download falls on the time of the launch."""
    costs: list[Decimal] = []
    for line in lines:
        priced = of_prices(line.traffic_price_gb_down, line.traffic_price_gb_up, assumed)
        if priced is None or line.start is None:
            continue
        first, last = max(line.start, since) if since else line.start, min(line.end, until)
        if first < last:
            once = priced.once if first == line.start else Decimal(0)
            costs.append(Estimate(once, priced.hour).until(last - first))
    return Total(len(costs), sum(costs, Decimal(0)))
