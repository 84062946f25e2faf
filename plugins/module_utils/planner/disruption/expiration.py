# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Maximum age (L-4): counted from the create call, recomputed from the present documents in every run."""

from __future__ import annotations

import dataclasses
import hashlib
from datetime import datetime, timedelta
from decimal import Decimal

from ...model import Claim, Node, Pool
from ...units.values import print_time
from .do_not_disrupt import node_hold
from .schedule import hours


@dataclasses.dataclass(frozen=True, slots=True)
class Age:
    """``due``: when the machine's time is over (None = never). ``expired``: it has to go now; ``why`` says more."""

    due: datetime | None
    expired: bool
    why: str = ""


def due(claim: Claim, pool: Pool) -> datetime | None:
    """When the claim's machine has to go: expireAfter (maxLifetime of a request) after its launch began. None = never."""
    if pool.expire_after is None or claim.launch_started is None:
        return None
    return claim.launch_started + timedelta(
        seconds=pool.expire_after - earlier(pool.expire_after, pool.expire_jitter, fraction(claim))
    )


def holds_end(claim: Claim, pool: Pool, now: datetime) -> datetime | None:
    """Until when holds may keep an expired machine (L-7). None = it does not expire."""
    moment, _why = _end(claim, pool, now)
    return None if moment is None else moment + timedelta(seconds=pool.termination_grace)


def earlier(seconds: int, jitter: Decimal, part: Decimal) -> int:
    """By how many whole seconds a machine goes before its time: ``part`` (0 to 1) of the share ``jitter`` of it."""
    return int(seconds * jitter * part)


def fraction(claim: Claim) -> Decimal:
    """A number from 0 to just below 1, always the same for a name, so that machines of one launch do not all go at once."""
    return Decimal(int(hashlib.sha256(claim.name.encode()).hexdigest()[:8], 16)) / 2**32


def age_of(claim: Claim, node: Node | None, pool: Pool, now: datetime) -> Age:
    """Whether the claim is expired. A hold on its node delays that by at most the termination grace period."""
    moment, why = _end(claim, pool, now)
    if moment is None or now < moment:
        return Age(moment, False)
    hold = node_hold(node, now) if node is not None else None
    last = moment + timedelta(seconds=pool.termination_grace)
    if hold is not None and hold.why and now < last:
        return Age(moment, False, f"expired, held by {hold.why} until {print_time(last)}")
    return Age(moment, True, f"due since {print_time(moment)}{why}")


def _end(claim: Claim, pool: Pool, now: datetime) -> tuple[datetime | None, str]:
    """When its time is over, by age or by the calendar, and what makes it the calendar."""
    moment, stop = due(claim, pool), hours(pool, now).stop
    if stop is not None and (moment is None or stop < moment):
        return stop, ", the hard stop of its pool's calendar"
    return moment, ""
