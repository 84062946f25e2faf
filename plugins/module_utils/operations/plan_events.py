# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is told of a plan once it counts: every decision as an event, and notices for people who do not watch the run."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime

from ..core.errors import ApiError, BadShape
from ..core.notifications import Delivery, Message, Sender
from ..core.task import Task
from ..model import Notice, Plan
from ..observe.context import Context
from ..planner import notices

_MEMORY = "notices"  # in the state beside the claims: key of a notice → when people were told


def tell_decisions(task: Task, plan: Plan) -> None:
    """One event for each action, with its reason and its price; for what will not come; and for what is in the way."""
    for one in plan.actions:
        task.tell(
            "decision",
            action=one.kind,
            name=one.name,
            pool=one.pool,
            reason=one.reason,
            text=one.detail,
            target=one.target,
            price_hour=one.price_hour if one.price_hour else None,
        )
    for missing in plan.shortfall:
        task.tell(
            "decision",
            action="shortfall",
            pool=missing.pool,
            missing=missing.missing,
            reason=missing.reason,
            rejected=missing.rejected,
        )
    for problem in (*plan.problems, *plan.failures):
        task.tell("decision", action="refuse", reason="problem", text=problem)


class Telling:
    """The notices of one plan on their way to people. Made before the plan is recorded, ``finish`` called afterwards: in between they are
    delivered. Nothing of this fails a run."""

    def __init__(self, context: Context, plan: Plan) -> None:
        self._context, self._plan = context, plan
        self._told: t.Mapping[str, datetime] | None = None
        self._late: Delivery | None = None
        self._sender = sender = Sender(context.task)
        if sender.is_set:
            self._told = self._read()
            due = notices.due(plan.notices, self._told or {}, context.clock.now())
            self._delivery = sender.begin([Message(**_fields(one)) for one in due])
            return
        self._delivery = Delivery(sender, context.task, ())
        for one in plan.notices:
            context.task.tell("notice", notice=one.kind, name=one.subject, key=one.key, text=one.text, data=dict(one.data))

    def add(self, more: t.Sequence[Notice]) -> None:
        """Notices of what was found out since."""
        self._plan = dataclasses.replace(self._plan, notices=(*self._plan.notices, *more))
        if self._sender.is_set:
            late = notices.due(more, self._told or {}, self._context.clock.now())
            self._late = self._sender.begin([Message(**_fields(one)) for one in late])
            return
        for one in more:
            self._context.task.tell("notice", notice=one.kind, name=one.subject, key=one.key, text=one.text, data=dict(one.data))

    def finish(self) -> None:
        """Wait for them, within their deadline, and remember which arrived."""
        arrived = [one.key for one in self._delivery.arrived(self._context.warn)]
        arrived += [] if self._late is None else [one.key for one in self._late.arrived(self._context.warn)]
        if self._told is None:
            return
        plan, now = self._plan, self._context.clock.now()
        known = notices.remembered(plan.notices, self._told, arrived, plan.judged, now)
        if known != self._told:
            try:
                self._context.write_times(_MEMORY, known)
            except ApiError as error:
                self._context.warn(f"It could not be noted what people were told; they may be told again: {error}")

    def _read(self) -> t.Mapping[str, datetime] | None:
        try:
            return self._context.read_times(_MEMORY)
        except (ApiError, ValueError) as error:
            self._context.warn(f"What people were told before could not be read; they may be told again: {error}")
            damaged = isinstance(error, BadShape) and error.service == "claims"
            return {} if damaged else None  # a damaged record is written anew


def _fields(notice: Notice) -> dict[str, t.Any]:
    return {field.name: getattr(notice, field.name) for field in dataclasses.fields(notice)}
