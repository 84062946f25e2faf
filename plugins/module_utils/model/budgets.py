# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Money over time: what may be spent in a period, and what was."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from decimal import Decimal


@dataclasses.dataclass(frozen=True, slots=True)
class SpendingBudget:
    """What a pool, a class or the whole cluster may cost in a period (L-16). ``period``: day, week (from Monday) or month, as the calendar
    of ``time_zone`` has them. From ``soft_percent`` of ``amount`` on people are told; at ``amount`` ``action`` is taken: stop_launch,
    drain_idle or drain_all."""

    period: str
    amount: Decimal
    time_zone: str = "UTC"
    soft_percent: Decimal = Decimal(80)
    action: str = "stop_launch"


@dataclasses.dataclass(frozen=True, slots=True)
class LedgerLine:
    """What one machine cost: a closing line of the ledger, or (``closed`` False) a machine that still lives, as of now.

    ``price_hour`` and ``disk_hour`` (a part of it) in dollars; ``cost`` is what it cost until ``end``. ``granularity``: the seconds its cloud
    bills at once; ``bills_boot`` False: disk and GPUs are billed apart. ``start`` None = nothing was ever rented. ``worked_since`` and
    ``work_watched`` are those of the claim; lines of older versions say neither, so that their use is unknown. ``traffic_price_gb_down`` and
    ``_up`` are dollars per GB that its offer named; ``cost`` contains no traffic."""

    key: str
    name: str
    pool: str
    node_class: str
    cloud: str
    model: str
    gpu_count: int
    region: str
    spot: bool
    ids: tuple[str, ...]
    price_hour: Decimal
    disk_hour: Decimal
    start: datetime | None
    end: datetime
    running_since: datetime | None
    interrupted_at: datetime | None
    initialized: datetime | None
    worked_since: datetime | None
    work_watched: bool
    idle_since: datetime | None
    cost: Decimal
    granularity: int
    bills_boot: bool
    reason: str
    why: str
    joined: bool
    closed: bool = True
    traffic_price_gb_down: Decimal | None = None
    traffic_price_gb_up: Decimal | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Ledger:
    """The books as they were read. ``torn`` names the places of lines that cannot be understood: what they cost is unknown, so that every
    sum is "at least" as long as there are any."""

    lines: tuple[LedgerLine, ...] = ()
    torn: tuple[str, ...] = ()
