# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a claim costs (L-16): price times lived time, whole billing units, never negative, never rounded.

Where a cloud bills disk and GPUs apart (``bills_boot`` False), the disk counts as long as the machine exists, and the rest of its price
only while it runs.
"""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime
from decimal import Decimal

from ...model import Claim, Lane
from ...units.durations import print_time
from .utilization import use_of

HOURS_PER_DAY = 24


def cost(price_hour: Decimal, start: datetime, end: datetime, granularity: int = 1) -> Decimal:
    """Dollars for a machine from ``start`` to ``end``. ``granularity`` in seconds; a started unit is billed whole."""
    lived = end - start
    microseconds = max(0, (lived.days * 86400 + lived.seconds) * 1_000_000 + lived.microseconds)
    units = -(-microseconds // (granularity * 1_000_000))
    return price_hour * units * granularity / Decimal(3600)


def claim_cost(claim: Claim, end: datetime, granularity: int = 1, *, bills_boot: bool = True) -> Decimal:
    """Dollars of a claim until ``end``, the last time its machine was possibly alive. Nothing before a create call was sent.

    ``bills_boot`` False: the GPUs count from ``running_since`` to ``interrupted_at``, the disk all the time."""
    if claim.launch_started is None:
        return Decimal(0)
    return billed(
        claim.price,
        claim.offer.storage_price_hour,
        (claim.launch_started, end),
        (claim.running_since, claim.interrupted_at),
        granularity,
        bills_boot=bills_boot,
    )


def billed(
    price: Decimal,
    disk: Decimal,
    life: tuple[datetime, datetime],
    running: tuple[datetime | None, datetime | None],
    granularity: int = 1,
    *,
    bills_boot: bool = True,
) -> Decimal:
    """Dollars of a machine at ``price`` per hour, ``disk`` of it for storage, that lived from ``life[0]`` to ``life[1]``; its GPUs ran
    between ``running``, which counts where disk and GPUs are billed apart."""
    start, end = life
    if bills_boot:
        return cost(price, start, end, granularity)
    disk = min(disk, price)
    total = cost(disk, start, end, granularity)
    if running[0] is not None:
        total += cost(price - disk, running[0], min(running[1] or end, end), granularity)
    return total


def per_day(price_hour: Decimal) -> Decimal:
    """Dollars per day at a price per hour."""
    return price_hour * HOURS_PER_DAY


def ledger_line(claim: Claim, *, end: datetime, granularity: int = 1, bills_boot: bool = True) -> dict[str, t.Any]:
    """The closing record of a claim, JSON-safe; amounts are exact text. ``joined`` tells whether it ever became usable,
    ``why`` the cause when it did not.
    ``running_since`` and ``interrupted_at`` say between which times the GPUs were billed, where that is not all the time.
    ``useful_seconds`` are those from its first work to its last idle time (or its end), 0 if no work was seen, None if that is unknown;
    ``idle_seconds`` is the usable time after them, all of it without work. ``granularity`` and ``bills_boot`` say how its cloud bills.
    ``traffic_price_gb_down`` and ``_up`` are dollars per GB, which ``cost`` leaves out: how many GB there were is not known."""
    started = claim.launch_started
    if claim.lane is Lane.SERVICE:  # it is at work from its first answer
        claim = dataclasses.replace(claim, worked_since=claim.initialized, work_watched=True)
    useful, idle = _use(claim, end)
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
        "storage_price_hour": str(claim.offer.storage_price_hour),
        "traffic_price_gb_down": _text(claim.offer.traffic_price_gb_down),
        "traffic_price_gb_up": _text(claim.offer.traffic_price_gb_up),
        "running_since": print_time(claim.running_since) if claim.running_since else None,
        "interrupted_at": print_time(claim.interrupted_at) if claim.interrupted_at else None,
        "cost": str(claim_cost(claim, end, granularity, bills_boot=bills_boot)),
        "reason": claim.deletion.reason if claim.deletion else "",
        "why": claim.deletion.last_error if claim.deletion and claim.initialized is None else "",
        "joined": claim.initialized is not None,
        "initialized": print_time(claim.initialized) if claim.initialized else None,
        "idle_since": print_time(claim.idle_since) if claim.initialized and claim.idle_since else None,
        "worked_since": print_time(claim.worked_since) if claim.worked_since else None,
        "work_watched": claim.work_watched,
        "useful_seconds": useful,
        "idle_seconds": idle,
        "granularity": granularity,
        "bills_boot": bills_boot,
    }


def _text(amount: Decimal | None) -> str | None:
    return None if amount is None else str(amount)


def _use(claim: Claim, end: datetime) -> tuple[int | None, int]:
    """Useful and idle seconds, both 0 for a machine that was never usable; useful None = unknown."""
    found = use_of(claim, end)
    if found is None:
        return 0, 0
    idle = int((found.stopped - found.idle).total_seconds())
    if found.began is not None:
        return int((found.idle - found.began).total_seconds()), idle
    return (0, int((found.stopped - found.usable).total_seconds())) if found.watched else (None, idle)
