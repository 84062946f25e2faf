# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a saved plan may still be done (L-22): every step is compared with the observed state, and none is added.

What removes is done if a plan of this very moment would do the same for the same reason; so every rule that protects a machine
protects it here, too. What rents is done if its own offer is still there at a price that was agreed to.
"""

from __future__ import annotations

import collections
import dataclasses
import typing as t
from datetime import datetime
from decimal import Decimal

from ...model import Action, Capability, Claim, Observation, Offer, Phase, Plan, Pool, Specs
from ...model.defaults import Settings
from ...model.names import free_index
from ...model.reasons import ActionKind
from ..claim_sync import settle
from ..claims.record import LIVE
from ..cluster_state import RETRY, Situation
from ..garbage_collection import mass_deletion_guard, orphans
from ..offers.ranking import lane_of, offer_key
from ..plan import plan
from ..plan_builder import Draft
from ..provisioning.launch_planner import refuse_to_launch
from ..provisioning.reservations import LaunchCapacity
from ..scheduling import scale_up
from ..scheduling.capacity import planned_gpus
from .saved_plan import SavedPlan, Step, documents_of, inputs_hash, is_step, unsent

APPLIED, REFUSED, DONE = "applied", "refused", "done"


@dataclasses.dataclass(frozen=True, slots=True)
class StepCheck:
    """What becomes of one step: applied, refused, or done already (by an earlier application, or by itself)."""

    step: Step
    result: str
    why: str = ""
    action: Action | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class CheckedPlan:
    """``plan`` is what to carry out: the applied steps and the facts of this run. ``same_world``: nothing has changed since the plan was
    made."""

    plan: Plan
    checks: tuple[StepCheck, ...]
    same_world: bool


def settings_of(saved: SavedPlan, settings: Settings) -> Settings:
    """The settings of a run that applies ``saved``: its mode, and of both runs' limits the narrower ones."""
    request = saved.request
    return dataclasses.replace(
        settings,
        mode=request.mode,
        destroy=request.destroy,
        max_nodes_total=_narrower(request.max_nodes_total, settings.max_nodes_total),
        max_hourly_total=_narrower(request.max_hourly_total, settings.max_hourly_total),
    )


def specs_of(saved: SavedPlan, specs: Specs) -> Specs:
    """The documents of now with the numbers of machines that the plan was asked for."""
    return dataclasses.replace(specs, nodes={wanted.pool: wanted.nodes for wanted in saved.request.wanted})


def check_plan(
    saved: SavedPlan,
    observation: Observation,
    specs: Specs,
    settings: Settings,
    capabilities: t.Mapping[str, Capability],
    closed: t.Mapping[str, datetime],
) -> CheckedPlan:
    """Hold every step against ``observation``. ``specs`` and ``settings`` as :func:`specs_of` and :func:`settings_of` give them;
    ``closed``: the end of the last machine of each name that was terminated and booked."""
    fresh = plan(observation, specs, settings, capabilities, saved.run_id)
    situation = Situation(observation, specs, settings, capabilities)
    launches = Launches(saved, fresh, situation, closed)
    checks = tuple(_check(step, fresh, situation, launches, closed) for step in saved.steps)
    checks = launches.without_split_gangs(checks)
    applied = [check.action for check in checks if check.action is not None]
    written = {action.name for action in applied if action.claim is not None}
    facts = [action for action in fresh.actions if not is_step(action) and action.kind != ActionKind.REPORT]
    facts = [fact for fact in facts if fact.claim is None or fact.name not in written]
    warnings = tuple(dict.fromkeys((*fresh.warnings, *fresh.problems)))  # of things that are no part of this plan
    carried = dataclasses.replace(fresh, actions=(*facts, *applied), shortfall=(), problems=(), warnings=warnings)
    rented = [step.claim for step in saved.steps if step.claim is not None]
    return CheckedPlan(carried, checks, inputs_hash(observation, launches.as_of_now(rented)) == saved.inputs)


def _check(step: Step, fresh: Plan, situation: Situation, launches: Launches, closed: t.Mapping[str, datetime]) -> StepCheck:
    if situation.seen.claims is None:
        return StepCheck(step, REFUSED, "the claims could not be read")
    if step.claim is not None:
        return StepCheck(step, *launches.check(step, step.claim))
    return _removal(step, fresh, situation, closed)


def _removal(step: Step, fresh: Plan, situation: Situation, closed: t.Mapping[str, datetime]) -> StepCheck:
    """Anything but a launch: what the plan of now would do, too, and for the same reason."""
    claim = next((recorded for recorded in situation.claims if recorded.name == step.name), None)
    if claim is None and step.needs.claim_version:
        return StepCheck(step, DONE, "terminated already") if step.name in closed else StepCheck(step, REFUSED, "its claim is gone")
    if claim is not None and (step.kind == ActionKind.UPDATE or (step.kind == ActionKind.RESUME and claim.phase is Phase.READY)):
        return StepCheck(step, DONE, "has its claim" if step.kind == ActionKind.UPDATE else "is usable already")
    other = _other_node(step, claim, situation)
    if other:
        return StepCheck(step, REFUSED, other)
    now = next((action for action in fresh.actions if _same(action, step)), None)
    if now is not None and now.reason == step.reason:
        return StepCheck(step, APPLIED, now.detail, now)
    if now is not None:
        return StepCheck(step, REFUSED, f"now it would be {now.reason}: {now.detail}".rstrip(": "))
    kept = [
        action.detail or action.reason for action in fresh.actions if action.kind == ActionKind.REPORT and action.name == step.name
    ]
    if kept:
        return StepCheck(step, REFUSED, "; ".join(kept))
    there = still_there(step, situation)
    if there is False:
        return StepCheck(step, DONE, "gone already")
    held = {notice.text for notice in fresh.notices if notice.kind == mass_deletion_guard.MASS_GUARD}
    guarded = [text for text in fresh.problems if text in held]
    why = guarded[0] if guarded else "the rules do not ask for it any more" if there else "whether it is still there is unknown"
    return StepCheck(step, REFUSED, why)


def _same(action: Action, step: Step) -> bool:
    same_thing = (action.kind, action.name, action.target, action.value) == (step.kind, step.name, step.target, step.value)
    return same_thing and (not step.uid or action.uid == step.uid)


def _other_node(step: Step, claim: Claim | None, situation: Situation) -> str:
    """A Node of the same name with another UID is another machine."""
    if not step.needs.node_uid or claim is None:
        return ""
    node = situation.nodes_by_name.get(claim.node_name or claim.name)
    if node is None or node.uid == step.needs.node_uid:
        return ""
    return f"its Node is another one now (UID {node.uid}, in the plan {step.needs.node_uid})"


_Limit = t.TypeVar("_Limit", int, Decimal)


def _narrower(first: _Limit | None, second: _Limit | None) -> _Limit | None:
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)


# ---- launches of a saved plan, one after the other under the limits of now. Their names stand in the plan: none can be done twice

Answer = tuple[str, str, Action | None]


class Launches:
    """Checks the steps that rent, in the order of the plan; each that is applied is reserved for the next one."""

    def __init__(self, saved: SavedPlan, fresh: Plan, situation: Situation, closed: t.Mapping[str, datetime]) -> None:
        self.saved, self.fresh = saved, fresh
        self.situation = situation
        self.closed = closed
        self.claims = {claim.name: claim for claim in situation.claims}
        if situation.seen.claims is None:
            return
        self.draft = Draft(situation, {claim.name: settle(claim, situation) for claim in situation.claims})
        self.draft.decisions = {action.name: action for action in fresh.actions if action.kind == ActionKind.DESTROY}
        self.capacity = LaunchCapacity(self.draft, orphans.machines(situation))
        waiting = [
            settled for settled in self.draft.undecided() if settled.recovery.what in RETRY and settled.claim.deletion is None
        ]
        self.room = _wanted_now(fresh, {settled.claim.name: settled.claim for settled in waiting})
        self.replaced = {action.claim.replaces for action in fresh.actions if action.kind == ActionKind.LAUNCH and action.claim}
        self.indexes: dict[str, set[int]] = collections.defaultdict(set)
        for settled in self.draft.settled.values():
            if settled.claim.phase in LIVE:
                self.indexes[settled.claim.pool].add(settled.claim.index)

    def check(self, step: Step, planned: Claim) -> Answer:
        """Applied with its action, refused or done, with the reason."""
        current = self.claims.get(step.name)
        again = self._goes_on(step, planned, current)
        over = "" if again is not None else self._over(planned) if current is None else self._going(current)
        if over:
            matching = self._found(current)
            return ("applied", matching.detail, matching) if matching is not None else ("done", over, None)
        pool = self.situation.pool(planned)
        node_class = self.situation.specs.classes.get(planned.node_class)
        if pool is None or node_class is None:
            return "refused", f"no document describes its pool {planned.pool} any more", None
        if documents_of(planned, self.situation.specs) != step.needs.generation:
            return "refused", f"the documents of {planned.pool} were changed since the plan was made", None
        if current is None and step.needs.claim_version:
            return "refused", "its claim is gone", None
        if current is None and self.situation.rented(planned.cloud) and step.name in self.situation.taken_names:
            return "refused", "there is a machine, Node or mesh device of this name without a claim", None
        reason = refuse_to_launch(self.draft, pool, node_class)
        if reason:
            return "refused", reason, None
        if current is not None:
            self.capacity.own_in_use.discard(current.name)
        offer, rest, reason = self.capacity.find(planned, pool, node_class, step.needs.price_bound or Decimal(0))
        if offer is None:
            return "refused", reason, None
        if current is None and (full := self._full(planned)):
            return "refused", full, None
        self.capacity.reserve(offer, pool, node_class, planned.launched_for or None)
        claim = self._claim(step, planned, again or current, offer, rest, pool)
        added = t.cast(Decimal, offer.price_hour) - (current.price if current is not None else Decimal(0))
        action = Action(step.kind, step.name, step.reason, step.detail, pool=planned.pool, claim=claim, price_hour=added)
        return "applied", _price(step, offer), action

    def without_split_gangs(self, checks: tuple[StepCheck, ...]) -> tuple[StepCheck, ...]:
        """The same, with launches refused that are for pods of a gang too few of which would get a place (L-39)."""
        rented = {check.step.name: check.action for check in checks if check.action is not None and check.action.claim is not None}
        asked = [name for name, action in rented.items() if (action.kind, action.reason) == (ActionKind.LAUNCH, scale_up.DEMAND)]
        if not asked:
            return checks
        draft = Draft(self.situation, self.draft.settled, dict(self.draft.decisions))
        for name, action in rented.items():
            if name in draft.settled:
                draft.decisions[name] = action
            else:
                draft.launches.append(action)
        split = scale_up.split_gangs(draft, asked)
        return tuple(
            StepCheck(check.step, REFUSED, split[check.step.name]) if check.step.name in split else check for check in checks
        )

    def _full(self, planned: Claim) -> str:
        """Why no new machine is wanted any more; else it counts as the one that was. A replacement counts for nothing but its own machine."""
        if planned.replaces:
            if planned.replaces not in self.replaced:
                return f"{planned.replaces} is not to be replaced any more"
            self.replaced.remove(planned.replaces)
        elif self.room[planned.pool] <= 0:
            return f"{planned.pool} has as many machines as it wants by now"
        else:
            self.room[planned.pool] -= 1
        return ""

    def as_of_now(self, claims: t.Sequence[Claim]) -> list[Claim]:
        """The planned claims with the prices that their offers have now; an offer that is gone has none."""
        if self.situation.seen.claims is None:
            return []
        prices = {offer_key(offer): offer.price_hour for offer in self._candidates(claims)}
        return [
            dataclasses.replace(claim, offer=dataclasses.replace(claim.offer, price_hour=prices.get(offer_key(claim.offer))))
            for claim in claims
        ]

    def _candidates(self, claims: t.Sequence[Claim]) -> t.Iterator[Offer]:
        for key in sorted({claim.pool for claim in claims}):
            pool = self.situation.pool_by_key.get(key)
            node_class = self.situation.specs.classes.get(pool.node_class) if pool else None
            if pool is not None and node_class is not None:
                yield from self.capacity.selection(pool, node_class).candidates

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
            return f"was launched, and is being terminated ({current.deletion.reason})"
        if unsent(current):
            return ""
        recovery = self.draft.settled[current.name].recovery
        return recovery.why if recovery.what in ("wait", *RETRY) else f"was launched already ({current.phase.value})"

    def _found(self, current: Claim | None) -> Action | None:
        """How any run would go on with a machine that was made by the call of a run that did not live to note it."""
        if current is None or current.deletion is not None or self.draft.settled[current.name].recovery.what != "adopt":
            return None
        return next(
            (action for action in self.fresh.actions if (action.kind, action.name) == (ActionKind.RESUME, current.name)), None
        )

    def _over(self, planned: Claim) -> str:
        """The same where there is no claim: it was there since the plan was made."""
        end = self.closed.get(planned.name)
        if end is not None and (self.situation.rented(planned.cloud) or end >= self.saved.made_at):
            return "was launched and terminated already"
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
    wanted: collections.Counter[str] = collections.Counter(
        action.pool for action in fresh.actions if action.kind == ActionKind.LAUNCH and not (action.claim and action.claim.replaces)
    )
    for shortfall in fresh.shortfall:
        wanted[shortfall.pool] += shortfall.missing
    resumed = {action.name for action in fresh.actions if action.kind == ActionKind.RESUME}
    for name, claim in waiting.items():  # a launch of an earlier run that goes on, and found no offer, counts as missing, too
        if name not in resumed:
            wanted[claim.pool] -= 1
    return wanted


def _price(step: Step, offer: Offer) -> str:
    planned = step.claim.offer.price_hour if step.claim else None
    return "" if planned == offer.price_hour else f"at ${offer.price_hour}/h instead of ${planned}/h"


# ---- whether the thing that a step of a saved plan is about exists: yes, no, or unknown, which is None and never no

_T = t.TypeVar("_T")


def still_there(step: Step, situation: Situation) -> bool | None:
    """For what removes something; of kinds that is unknown here nothing is known."""
    seen = situation.seen
    if step.kind in (ActionKind.DESTROY, ActionKind.RESUME):
        return True if any(claim.name == step.name for claim in situation.claims) else _listed(step.name, situation)
    if step.kind == ActionKind.DELETE_INSTANCE:
        listed = situation.instances(step.value or "")
        return None if listed is None else step.target in listed.by_id
    if step.kind == ActionKind.DELETE_EXTRA:
        view = seen.clouds.get(step.value or "")
        return _shown(None if view is None else view.extras, lambda extra: (extra.kind, extra.id) == (step.uid, step.target))
    if step.kind == ActionKind.DELETE_NODE:
        return _shown(seen.nodes, lambda node: node.uid == step.uid)
    if step.kind == ActionKind.DELETE_DEVICE:
        return _shown(seen.devices, lambda device: device.id == step.target)
    if step.kind == ActionKind.DELETE_KEY:
        return _shown(seen.keys, lambda key: key.id == step.target)
    if step.kind == ActionKind.DELETE_TOKEN:
        return _shown(seen.tokens, lambda token: token.id == step.target)
    if step.kind == ActionKind.DELETE_POD:
        return _shown(seen.trials, lambda pod: pod.uid == step.uid)
    if step.kind == ActionKind.DELETE_SERVICE:
        return _shown(seen.services, lambda published: published.uid == step.uid)
    return None


def _shown(listed: t.Iterable[_T] | None, is_it: t.Callable[[_T], bool]) -> bool | None:
    """Whether a list shows the thing; None when the list could not be read."""
    return None if listed is None else any(map(is_it, listed))


def _listed(name: str, situation: Situation) -> bool | None:
    """A machine of this name; no only when every cloud could be listed."""
    if any(instance.name == name for instance in situation.listed()):
        return True
    return None if situation.unlisted else False
