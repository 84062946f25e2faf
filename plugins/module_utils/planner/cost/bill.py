# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a provider bills for a machine (L-16): price times lived time in whole billing units, never negative, never rounded; and between which
amounts its bill lies where it does not say when it began and ended.

Where a cloud bills disk and GPUs apart (``bills_boot`` False), the disk counts as long as the machine exists, and the rest of its price
only while it runs.
"""

from __future__ import annotations

import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

from ...model import Claim

NOTHING = Decimal(0)


def cost(price_hour: Decimal, start: datetime, end: datetime, granularity: int = 1, minimum: int = 0) -> Decimal:
    """Dollars for a machine from ``start`` to ``end``. ``granularity`` in seconds; a started unit is billed whole, and of a machine that
    lived at all ``minimum`` seconds at least."""
    lived = end - start
    microseconds = max(0, (lived.days * 86400 + lived.seconds) * 1_000_000 + lived.microseconds)
    if microseconds:
        microseconds = max(microseconds, minimum * 1_000_000)
    units = -(-microseconds // (granularity * 1_000_000))
    return price_hour * units * granularity / Decimal(3600)


def billed(
    price: Decimal,
    disk: Decimal,
    life: tuple[datetime, datetime],
    running: tuple[datetime | None, datetime | None],
    granularity: int = 1,
    *,
    bills_boot: bool = True,
    minimum: int = 0,
) -> Decimal:
    """Dollars of a machine at ``price`` per hour, ``disk`` of it for storage, that lived from ``life[0]`` to ``life[1]``; its GPUs ran
    between ``running``, which counts where disk and GPUs are billed apart."""
    start, end = life
    if bills_boot:
        return cost(price, start, end, granularity, minimum)
    disk = min(disk, price)
    total = cost(disk, start, end, granularity, minimum)
    if running[0] is not None:
        total += cost(price - disk, running[0], min(running[1] or end, end), granularity, minimum)
    return total


# ---- how exact that is (L-16): between which amounts the bill of the provider lies

LOST_ANSWER: t.Final = 600  # seconds; after a create call without an answer its machine may still be made (L-2)
INEXACT: t.Final = 30  # seconds; uptimes come in tenths of a minute, and with an answer that was on its way
_SECOND = timedelta(seconds=1)
_SILENT = timedelta(seconds=60)  # a Node is Ready for almost so long after its machine has ended


def bounds(
    claim: Claim,
    end: datetime,
    granularity: int = 1,
    *,
    bills_boot: bool = True,
    alive: datetime | None = None,
    minimum: int = 0,
    off_costs_less: bool = False,
) -> tuple[Decimal, Decimal]:
    """The least and the most dollars that its provider can have billed for a claim that is booked until ``end``.

    The bill begins in the second that the provider names, else between the create call and its answer. It ends between the moment ``alive``, at
    which the provider still showed the machine (without it: what the record shows), and ``end``. Where GPUs are billed apart, they began to run
    within half a minute of what was noted, and when they were taken away nobody says. Where a machine that is off costs less, at the least its
    disk was billed all the time, and the rest until it was last seen running: nothing that is off comes on again by itself."""
    start = claim.bill_start
    if start is None:
        return NOTHING, NOTHING
    begun = min(_begun(claim, start), end)
    ended = min(max(alive or last_seen(claim), begun), end)
    least, most = (claim.running_since, claim.interrupted_at), (claim.running_since, claim.interrupted_at)
    if claim.running_since is None:
        most = (ended, None)  # it may have begun to run since the last look
    else:
        stopped, inexact = claim.interrupted_at, timedelta(seconds=INEXACT)
        shown = [moment for moment in (claim.running_since, claim.initialized, claim.worked_since) if moment is not None]
        least = (claim.running_since + inexact, None if stopped is None else min(stopped, max(shown)))
        decided = claim.deletion.requested if claim.deletion is not None else end
        most = (max(start, claim.running_since - inexact), None if stopped is None else max(stopped, decided))
    if off_costs_less and bills_boot:  # it lacked capacity from the first moment on, or was powered off from inside
        ran = begun + timedelta.resolution if minimum else begun  # a minimum is billed of a machine that ran at all
        least = (begun, min(max(_ran_last(claim) or ran, ran), ended))
    price, disk = claim.price, claim.offer.storage_price_hour
    return (
        billed(price, disk, (begun, ended), least, granularity, bills_boot=bills_boot and not off_costs_less, minimum=minimum),
        billed(price, disk, (start, end), most, granularity, bills_boot=bills_boot, minimum=minimum),
    )


def _begun(claim: Claim, start: datetime) -> datetime:
    """The last moment at which the bill can have begun."""
    if claim.billed_since is not None:
        return start + _SECOND
    if claim.adopted is not None:
        return min(max(claim.adopted, start), start + timedelta(seconds=LOST_ANSWER))
    answer = answered(claim)
    return start + timedelta(seconds=LOST_ANSWER) if answer is None or answer + _SECOND < start else answer + _SECOND


def answered(claim: Claim) -> datetime | None:
    """When the create call of its machine was answered; None where the answer was lost, and for a machine that was adopted."""
    last = claim.attempts[-1] if claim.attempts else None
    return last.time if last is not None and last.result == "ok" else None


def _ran_last(claim: Claim) -> datetime | None:
    """The last moment at which the record shows that its machine ran; None = it never did."""
    work = None if claim.work is None or claim.is_service else claim.work.until - _SILENT
    listed = None if claim.deletion is None else claim.deletion.seen_running
    times = (claim.registered, claim.initialized, claim.worked_since, work, listed)
    return max((moment for moment in times if moment is not None), default=None)


def last_seen(claim: Claim) -> datetime:
    """The last moment at which the record shows that its machine existed."""
    work = None if claim.work is None or claim.is_service else claim.work.until - _SILENT
    asked = claim.deletion.started if claim.deletion is not None else None
    if asked is not None and claim.gone_since is not None and claim.gone_since < asked:
        asked = None  # its cloud did not list it any more when the call was sent
    times = (claim.launch_started, claim.initialized, claim.worked_since, work, asked)
    return max((moment for moment in times if moment is not None), default=claim.created)
