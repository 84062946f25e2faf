# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Launches of a saved plan, one after the other under the limits of now. Their names stand in the plan: none can be done twice."""

from __future__ import annotations

import collections
import dataclasses
import typing as t
from datetime import datetime
from decimal import Decimal

from ...model import Action, Claim, Offer, Phase, Plan, Pool
from ...model.names import free_index
from ...model.reasons import ActionKind
from ..claim_sync import settle
from ..claims.phases import LIVE
from ..claims.recovery import RETRY
from ..cluster_state import Situation
from ..garbage_collection import orphans
from ..offers.ranking import lane_of, offer_key
from ..plan_builder import Draft
from ..provisioning.launch_planner import Market, refuse_to_launch
from ..scheduling.capacity import planned_gpus
from .saved_plan import SavedPlan, Step, documents_of, unsent

Answer = tuple[str, str, Action | None]


class Launches:
    """Judges the steps that rent, in the order of the plan; each that is applied is reserved for the next one."""

    def __init__(self, saved: SavedPlan, fresh: Plan, situation: Situation, closed: t.Mapping[str, datetime]) -> None:
        self.saved, self.fresh = saved, fresh
        self.situation = situation
        self.closed = closed
        self.claims = {claim.name: claim for claim in situation.claims}
        if situation.seen.claims is None:
            return
        self.draft = Draft(situation, {claim.name: settle(claim, situation) for claim in situation.claims})
        self.draft.decisions = {one.name: one for one in fresh.actions if one.kind == ActionKind.DESTROY}
        self.market = Market(self.draft, orphans.machines(situation))
        waiting = [one for one in self.draft.settled.values() if one.recovery.what in RETRY and one.claim.deletion is None]
        self.room = _wanted_now(fresh, {one.claim.name: one.claim for one in waiting})
        self.indexes: dict[str, set[int]] = collections.defaultdict(set)
        for one in self.draft.settled.values():
            if one.claim.phase in LIVE:
                self.indexes[one.claim.pool].add(one.claim.index)

    def judge(self, step: Step, planned: Claim) -> Answer:
        """Applied with its action, refused or done, with the reason."""
        current = self.claims.get(step.name)
        again = self._goes_on(step, planned, current)
        over = "" if again is not None else self._over(planned) if current is None else self._going(current)
        if over:
            found = self._found(current)
            return ("applied", found.detail, found) if found is not None else ("done", over, None)
        pool = self.situation.pool(planned)
        node_class = self.situation.wishes.classes.get(planned.node_class)
        if pool is None or node_class is None:
            return "refused", f"no document describes its pool {planned.pool} any more", None
        if documents_of(planned, self.situation.wishes) != step.needs.generation:
            return "refused", f"the documents of {planned.pool} were changed since the plan was made", None
        if current is None and step.needs.claim_version:
            return "refused", "its claim is gone", None
        if current is None and self.situation.rented(planned.cloud) and step.name in self.situation.taken_names:
            return "refused", "there is a machine, Node or mesh device of this name without a claim", None
        reason = refuse_to_launch(self.draft, pool, node_class)
        if reason:
            return "refused", reason, None
        if current is not None:
            self.market.own_in_use.discard(current.name)
        offer, rest, reason = self.market.find(planned, pool, node_class, step.needs.price_bound or Decimal(0))
        if offer is None:
            return "refused", reason, None
        if current is None and self.room[planned.pool] <= 0:
            return "refused", f"{planned.pool} has as many machines as it wants by now", None
        self.market.reserve(offer, pool, node_class)
        self.room[planned.pool] -= 1 if current is None else 0
        claim = self._claim(step, planned, again or current, offer, rest, pool)
        added = t.cast(Decimal, offer.price_hour) - (current.price if current is not None else Decimal(0))
        action = Action(step.kind, step.name, step.reason, step.detail, pool=planned.pool, claim=claim, price_hour=added)
        return "applied", _price(step, offer), action

    def as_of_now(self, claims: t.Sequence[Claim]) -> list[Claim]:
        """The planned claims with the prices that their offers have now; an offer that is gone has none."""
        if self.situation.seen.claims is None:
            return []
        prices = {offer_key(one): one.price_hour for one in self._candidates(claims)}
        return [
            dataclasses.replace(one, offer=dataclasses.replace(one.offer, price_hour=prices.get(offer_key(one.offer))))
            for one in claims
        ]

    def _candidates(self, claims: t.Sequence[Claim]) -> t.Iterator[Offer]:
        for key in sorted({claim.pool for claim in claims}):
            pool = self.situation.pool_by_key.get(key)
            node_class = self.situation.wishes.classes.get(pool.node_class) if pool else None
            if pool is not None and node_class is not None:
                yield from self.market.selection(pool, node_class).candidates

    def _goes_on(self, step: Step, planned: Claim, current: Claim | None) -> Claim | None:
        """What the plan made of a launch of an earlier run that certainly rented nothing, if that is still as the plan saw it."""
        if (
            step.kind != ActionKind.RESUME
            or current is None
            or current.version != step.needs.claim_version
            or current.deletion is not None
        ):
            return None
        same = self.draft.settled[current.name].recovery.what in RETRY
        return dataclasses.replace(planned, version=current.version) if same else None

    def _going(self, current: Claim) -> str:
        """Why nothing is left to be rented for a claim that exists; empty when its create call was not sent."""
        if current.deletion is not None:
            return f"was launched, and is being given back ({current.deletion.reason})"
        if unsent(current):
            return ""
        found = self.draft.settled[current.name].recovery
        return found.why if found.what in ("wait", *RETRY) else f"was launched already ({current.phase.value})"

    def _found(self, current: Claim | None) -> Action | None:
        """How any run would go on with a machine that was made by the call of a run that did not live to note it."""
        if current is None or current.deletion is not None or self.draft.settled[current.name].recovery.what != "adopt":
            return None
        return next((one for one in self.fresh.actions if (one.kind, one.name) == (ActionKind.RESUME, current.name)), None)

    def _over(self, planned: Claim) -> str:
        """The same where there is no claim: it was there since the plan was made."""
        end = self.closed.get(planned.name)
        if end is not None and (self.situation.rented(planned.cloud) or end >= self.saved.made_at):
            return "was launched and given back already"
        return ""

    def _claim(self, step: Step, planned: Claim, current: Claim | None, offer: Offer, rest: tuple[Offer, ...], pool: Pool) -> Claim:
        """The claim to be written: the planned one at the price of now, or the unsent one of an earlier run."""
        now, base = self.situation.now, current or planned
        taken = self.indexes[planned.pool]
        if current is None:
            base = dataclasses.replace(
                base,
                phase=Phase.PENDING,
                phase_since=now,
                version="",
                index=base.index if base.index not in taken else free_index(taken),
                history=((now, Phase.PENDING.value, f"planned by {self.saved.run_id}"),),
            )
            taken.add(base.index)
        lane = lane_of(offer, pool, self.situation.capabilities[offer.cloud])
        return dataclasses.replace(
            base,
            offer=offer,
            cloud=offer.cloud,
            candidates=rest,
            lane=lane or base.lane,
            reserved_price=t.cast(Decimal, offer.price_hour),
            price_bound=step.needs.price_bound,
            expected_gpus=planned_gpus(offer, pool),
        )


def _wanted_now(fresh: Plan, waiting: t.Mapping[str, Claim]) -> collections.Counter[str]:
    """How many more machines each pool wants by a plan of this moment: what it would launch, and what it could not."""
    found: collections.Counter[str] = collections.Counter(one.pool for one in fresh.actions if one.kind == ActionKind.LAUNCH)
    for one in fresh.shortfall:
        found[one.pool] += one.missing
    resumed = {one.name for one in fresh.actions if one.kind == ActionKind.RESUME}
    for name, claim in waiting.items():  # a launch of an earlier run that goes on, and found no offer, counts as missing, too
        if name not in resumed:
            found[claim.pool] -= 1
    return found


def _price(step: Step, offer: Offer) -> str:
    planned = step.claim.offer.price_hour if step.claim else None
    return "" if planned == offer.price_hour else f"at ${offer.price_hour}/h instead of ${planned}/h"
