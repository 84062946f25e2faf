# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines under a claim's name that are not its own: second ones (L-2, O11), and what refused create calls left behind (L-14).

They are terminated and booked on lines of their own.
"""

from __future__ import annotations

import dataclasses
import re
from datetime import datetime

from ...core.clock import looks
from ...core.errors import TgpError
from ...model import Attempt, Claim, Deletion, Instance, InstanceState
from ...model.reasons import Finding, Reason
from ...observe.context import Context
from ...planner.cost.cost import ledger_line, tariff
from ...providers.registry import CAPABILITIES

_CONFIRM = 60.0
_POLL = 5.0
_LOOKS = 3  # one of them may take as long as the whole wait


def give_back(context: Context, claim: Claim, instance: Instance, reason: str = Reason.DUPLICATE) -> None:
    """Destroy ``instance``, which is not the claim's own, and write down what it cost."""
    context.lock.confirm()
    asked = context.clocks.billed_now()
    context.clients.cloud(instance.cloud).terminate(instance.id)
    book(context, claim, instance, reason, asked)


def give_back_rejected(context: Context, claim: Claim) -> None:
    """Destroy what refused create calls left behind, confirm it, and write down what it cost. TgpError when that did not succeed: the
    ids stay in the claim, which has to be torn down then."""
    left = [attempt for attempt in claim.attempts if attempt.instance_id in claim.rejects]
    booked = _booked(context, claim) if left else set()
    for attempt in left:
        if attempt.instance_id not in booked:
            _give_back_rejected(context, claim, attempt)


def _give_back_rejected(context: Context, claim: Claim, attempt: Attempt) -> None:
    name, instance_id = attempt.offer.partition("/")[0], attempt.instance_id
    cloud = context.clients.cloud(name)
    instance = cloud.instance(instance_id)  # its prices, for the books
    context.lock.confirm()
    asked = context.clocks.billed_now()
    cloud.terminate(instance_id)
    for _ in looks(context.clock, within=_CONFIRM, every=_POLL, least=_LOOKS):
        if (now := cloud.instance(instance_id)) is None or now.gone:
            break
    else:
        raise TgpError(f"{name} does not yet say that {instance_id}, left behind by a refused create call, is gone.", cloud=name)
    rejected = instance or Instance(name, instance_id, claim.name, InstanceState.TERMINATED)
    made = dataclasses.replace(rejected, created=rejected.created or attempt.time)
    book(context, claim, made, Finding.LAUNCH_REFUSED, asked)
    context.progress.step(claim.name, "terminated", f"{name} id {instance_id}, which a refused create call had left behind")


def book(context: Context, claim: Claim, instance: Instance, reason: str, asked: datetime) -> None:
    """Write down what a machine cost until now that is not the claim's own. ``asked``: before its destroy call, when it still existed."""
    now, facts = context.clocks.billed_now(), CAPABILITIES[instance.cloud]
    began = instance.created or claim.launch_started
    began = (
        None if began is None else min(began, asked)
    )  # a mark or another clock may say a later time than that of its destroy call
    booked = dataclasses.replace(
        claim,
        cloud=instance.cloud,
        offer=dataclasses.replace(
            claim.offer,
            storage_price_hour=instance.storage_price_hour or claim.offer.storage_price_hour,
            traffic_price_gb_down=None,  # the claim's are those of another offer, perhaps of another host
            traffic_price_gb_up=None,
        ),
        ids_seen=(instance.id,),
        launch_started=began,
        billed_since=began if instance.created and facts.tells_start else None,
        running_since=instance.running_since or (instance.created if instance.state is InstanceState.RUNNING else None),
        interrupted_at=None,
        price_paid=claim.price_paid if instance.price_hour is None else instance.price_hour,
        registered=None,
        initialized=None,
        worked_since=None,
        work=None,
        gpu_losses=(),
        attempts=(),  # the claim's own line has them
        history=(),
        deletion=Deletion(reason, now, seen_running=asked if instance.state is InstanceState.RUNNING else None),
    )
    line = ledger_line(booked, end=now, alive=began if instance.state is InstanceState.FAILED else asked, **tariff(facts))
    line["key"] = f"{claim.name}.{re.sub(r'[^a-z0-9-]', '-', instance.id.lower())}.x"
    context.store.ledger(line)


def without_booked(context: Context, claim: Claim) -> tuple[str, ...]:
    """The ids of a claim that its own closing line stands for."""
    if len(claim.ids_seen) < 2 and not claim.rejects:
        return claim.ids_seen
    booked = _booked(context, claim)
    return tuple(instance_id for instance_id in claim.ids_seen if instance_id not in booked)


def _booked(context: Context, claim: Claim) -> set[str]:
    """Ids under the claim's name that have a line of their own."""
    records, _torn = context.store.ledger_records()
    lines = [
        record
        for record in records
        if record.get("name") == claim.name and record.get("reason") in (Reason.DUPLICATE, Finding.LAUNCH_REFUSED)
    ]
    return {identity for line in lines for identity in line.get("ids", ())}
