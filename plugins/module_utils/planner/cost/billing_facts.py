# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the bill of a machine hangs on, from what its cloud says of it (L-16): the price, and when its GPUs ran."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

from ...model import Capability, Claim, Instance, InstanceState, Node

_INEXACT = timedelta(seconds=30)  # uptimes come in tenths of a minute, and with an answer that was on its way


def noted(claim: Claim, instance: Instance, capability: Capability | None, now: datetime, node: Node | None = None) -> Claim:
    """The claim with what ``instance``, its own machine, says of its bill.

    Where disk and GPUs are billed apart: since when the GPUs run (the first sighting, if the cloud does not tell), and when they were
    taken away or stopped. No cloud tells that; a Node that fell silent after it began to run tells it better than the first look at the cloud.
    """
    paid = claim.price_paid if instance.price_hour is None else instance.price_hour
    running, interrupted = claim.running_since, claim.interrupted_at
    if capability is not None and not capability.bills_boot:
        told = instance.running_since
        exact = instance.state is InstanceState.RUNNING  # else a bound, for a claim that knows nothing better
        if told is not None and (running is None or (exact and told < running - _INEXACT)):
            running = told
        elif running is None and instance.state is InstanceState.RUNNING:
            running = now
        if (instance.interrupted or instance.halted) and interrupted is None:
            interrupted = _silent_since(node, running) or now
    changed = (paid, running, interrupted) != (claim.price_paid, claim.running_since, claim.interrupted_at)
    return dataclasses.replace(claim, price_paid=paid, running_since=running, interrupted_at=interrupted) if changed else claim


def _silent_since(node: Node | None, running: datetime | None) -> datetime | None:
    if node is None or node.ready or node.ready_since is None or running is None or node.ready_since <= running:
        return None
    return node.ready_since
