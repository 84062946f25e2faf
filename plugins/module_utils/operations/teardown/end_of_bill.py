# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the bill of a machine hangs on at its end (L-10, L-16): the last look before the destroy call, and when the bill ended."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime

from ...model import Claim, Instance, InstanceState, Node
from ...observe.context import Context
from ...planner.cost.bill import last_seen
from ...planner.cost.cost import noted
from ...providers.registry import CAPABILITIES
from ...units.values import whole_second


def last_look(context: Context, claim: Claim, node: Node | None) -> Claim:
    """The claim with what its cloud says of its bill, where something is missing: when it began, and where disk and GPUs are billed apart,
    between which moments its GPUs ran."""
    capability = CAPABILITIES[claim.cloud]
    if capability.bills_boot and (claim.billed_since is not None or not capability.tells_start):
        return claim
    own = _own(context.clients.instances(claim.cloud), claim)
    return claim if own is None else noted(claim, own, capability, context.clocks.billed_now(), node)


def shown_at(context: Context, claim: Claim) -> datetime | None:
    """When the newest list was asked for that shows its machine, before the first destroy call; where that list lacks it or says that it has
    failed, the last sign of life that is recorded: the call itself is none. None after it, or without a list."""
    if claim.deletion is not None and claim.deletion.started is not None:
        return None
    listing = context.clients.listing(claim.cloud)
    if listing is None:
        return None
    own = _own(listing.items, claim)
    # Lambda lists one that it has taken back, and may not bill it
    shown = own is not None and own.state is not InstanceState.FAILED
    return context.clocks.billed(listing.asked) if shown else last_seen(dataclasses.replace(claim, deletion=None))


def seen_running(context: Context, claim: Claim) -> datetime | None:
    """When the newest list was asked for, where that shows its machine running."""
    listing = context.clients.listing(claim.cloud)
    own = None if listing is None else _own(listing.items, claim)
    if listing is None or own is None or own.state is not InstanceState.RUNNING:
        return None
    return context.clocks.billed(listing.asked).replace(microsecond=0)


def _own(listed: t.Iterable[Instance] | None, claim: Claim) -> Instance | None:
    """Its own machine, unless it is on its way out already."""
    living = (one for one in listed or () if not one.gone and one.state is not InstanceState.TERMINATING)
    return next((one for one in living if one.id == claim.instance_id), None)


def end_of_bill(context: Context, cloud: str, accepted: datetime | None, absent: t.Iterable[datetime]) -> datetime:
    """The last time it was possibly alive (L-10); where the cloud's bill ends with the accepted call, that moment. ``absent``: when the lists
    were answered that did not show it first. The whole second after it, because records keep whole ones."""
    if accepted is not None and not CAPABILITIES[cloud].billed_until_gone:
        end = accepted
    else:
        now = context.clock.now()
        end = context.clocks.billed_now() - (now - max(absent, default=now))
    return whole_second(end)
