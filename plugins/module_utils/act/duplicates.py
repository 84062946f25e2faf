# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Second machines under one claim's name (L-2, O11): given back, and booked on a line of their own."""

from __future__ import annotations

import dataclasses
import re

from ..fleet.cost import ledger_line
from ..fleet.model import Claim, Deletion, Instance
from ..observe.context import Context

REASON = "Duplicate"


def give_back(context: Context, claim: Claim, instance: Instance) -> None:
    """Destroy ``instance``, which is not the claim's own, and write down what it cost."""
    context.cloud(instance.cloud).terminate(instance.id)
    now = context.clock.now()
    booked = dataclasses.replace(
        claim,
        ids_seen=(instance.id,),
        launch_started=instance.created or claim.launch_started,
        price_paid=claim.price_paid if instance.price_hour is None else instance.price_hour,
        initialized=None,
        deletion=Deletion(reason=REASON, requested=now),
    )
    line = ledger_line(booked, end=now, granularity=context.granularity(instance.cloud))
    line["key"] = f"{claim.name}.{re.sub(r'[^a-z0-9-]', '-', instance.id.lower())}.x"
    context.store.ledger(line)


def without_booked(context: Context, claim: Claim) -> tuple[str, ...]:
    """The ids of a claim that its own closing line stands for."""
    if len(claim.ids_seen) < 2:
        return claim.ids_seen
    lines = [one for one in context.store.ledger_lines() if one.get("name") == claim.name and one.get("reason") == REASON]
    booked = {identity for line in lines for identity in line.get("ids", ())}
    return tuple(one for one in claim.ids_seen if one not in booked)
