# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is spent per hour now, what today and this month have cost so far, and what they will cost if nothing changes (L-16)."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime
from decimal import Decimal

from ...model import Claim, LedgerLine
from ...units.periods import period_of
from ..claims.phases import counts, may_have_instance
from .ledger import add_up, between

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
    spent = [add_up(between(line, one.start, now) for line in lines) for one in (day, month)]
    left = [hour * Decimal((one.end - now).total_seconds()) / _SECONDS for one in (day, month)]
    return Outlook(hour, day.key, spent[0], spent[0] + left[0], month.key, spent[1], spent[1] + left[1])
