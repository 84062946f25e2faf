# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a claim costs (L-16): price times lived time, whole billing units, never negative, never rounded."""

from __future__ import annotations

import typing as t
from datetime import datetime
from decimal import Decimal

from .durations import print_time
from .model import Claim

HOURS_PER_DAY = 24


def cost(price_hour: Decimal, start: datetime, end: datetime, granularity: int = 1) -> Decimal:
    """Dollars for a machine from ``start`` to ``end``. ``granularity`` in seconds; a started unit is billed whole."""
    lived = end - start
    microseconds = max(0, (lived.days * 86400 + lived.seconds) * 1_000_000 + lived.microseconds)
    units = -(-microseconds // (granularity * 1_000_000))
    return price_hour * units * granularity / Decimal(3600)


def claim_cost(claim: Claim, end: datetime, granularity: int = 1) -> Decimal:
    """Dollars of a claim until ``end``, the last time its machine was possibly alive. Nothing before a create call was sent."""
    if claim.launch_started is None:
        return Decimal(0)
    return cost(claim.price, claim.launch_started, end, granularity)


def per_day(price_hour: Decimal) -> Decimal:
    """Dollars per day at a price per hour."""
    return price_hour * HOURS_PER_DAY


def ledger_line(claim: Claim, *, end: datetime, granularity: int = 1) -> dict[str, t.Any]:
    """The closing record of a claim, JSON-safe; amounts are exact text. ``joined`` tells whether it ever became usable."""
    started = claim.launch_started
    return {
        "name": claim.name,
        "pool": claim.pool,
        "class": claim.node_class,
        "cloud": claim.cloud,
        "instance_type": claim.offer.instance_type,
        "model": claim.offer.model,
        "gpu_count": claim.offer.gpu_count,
        "region": claim.offer.region,
        "spot": claim.offer.spot,
        "ids": list(claim.ids_seen),
        "price_hour": str(claim.price),
        "start": print_time(started) if started else None,
        "end": print_time(end),
        "seconds": max(0, int((end - started).total_seconds())) if started else 0,
        "cost": str(claim_cost(claim, end, granularity)),
        "reason": claim.deletion.reason if claim.deletion else "",
        "joined": claim.initialized is not None,
    }
