# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Idle machines where whole hours are billed (L-41): terminated early, they cost the same and serve nobody."""

from __future__ import annotations

import typing as t
from datetime import datetime, timedelta

from ...model import Capability, Claim
from ...units.values import print_time

LEAD: t.Final = 600  # seconds before the next paid unit from which on an idle machine is terminated
SHORTEST: t.Final = 1800  # seconds of a unit: for a shorter one no machine waits


def goes_from(start: datetime, due: datetime, unit: int) -> datetime:
    """When a machine that is billed by ``unit`` seconds since ``start``, and could be terminated from ``due`` on, is terminated: shortly
    before the end of the unit in which ``due`` lies, and at once after that moment. So a run that comes late pays for one more unit at
    most."""
    if unit < SHORTEST or due < start:
        return due
    return max(due, paid_until(start, due, unit) - timedelta(seconds=LEAD))


def paid_until(start: datetime, moment: datetime, unit: int) -> datetime:
    """The end of the unit in which ``moment`` lies."""
    paid = timedelta(seconds=unit)
    return start + ((moment - start) // paid + 1) * paid


def goes_from_of(claim: Claim, due: datetime, capability: Capability | None) -> datetime:
    """The same for a machine of ours."""
    unit = capability.billing_granularity if capability is not None and capability.rented else 1
    return goes_from(claim.bill_start or claim.created, due, unit)


def against(claim: Claim, due: datetime, now: datetime, capability: Capability | None) -> str:
    """What keeps a machine that could be terminated since ``due``; empty = nothing. A termination that has begun goes on. Whether ``due`` has
    come is another rule's matter."""
    goes = goes_from_of(claim, due, capability)
    if goes <= due or now >= goes or claim.deletion is not None:
        return ""
    return f"its started hour is paid; it goes from {print_time(goes)} on"
