# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rents the machines of claims that wait for one: limits, enrolment secrets, payload, and the claim as the record of each create call.

The launch engine sends the calls. The secrets of a node (mesh key, bootstrap token) exist only between their making and the create call,
inside this process.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import typing as t
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from decimal import Decimal

from ...core.errors import ApiError, InvalidInput, LaunchRefused, LaunchUnknown, LockLost, TgpError
from ...model import Attempt, Claim, Deletion, Instance, Lane, LaunchRequest, NodeClass, Offer, Phase, Pool
from ...model.defaults import PRICE_TTL
from ...model.reasons import Reason
from ...observe.context import Context
from ...planner.claims.record import LONGEST_WORDS, advance, class_of
from ...planner.cost.budgets import budgets, open_purses
from ...planner.cost.teams import shares
from ...planner.offers import launch_backoff, ranking, requirements
from ...planner.offers.ranking import offer_key, query_of
from ...planner.pauses import Pauses, sentence
from ...planner.provisioning.limits import may_switch
from ...planner.scheduling.capacity import planned_gpus
from ...providers.launch_engine import LaunchCandidate, LaunchEngine, Outcome
from ...providers.registry import CAPABILITIES
from ..teardown.duplicate_instances import give_back, give_back_rejected
from .payload import Enrolment, boot_settings, enrol, lane_for, of_lane, payload_for

_MAX_OFFERS = 25
_WORKERS = 96
_FOR_THIS_RUN = frozenset({"quota", "balance", "auth"})  # what would be said to every other claim, too
_ALARM = {
    "auth": "does not take our key: nothing more is rented there in this run. Check the key and its rights.",
    "balance": "has no money left for us: nothing more is rented there for an hour. Add money to the account.",
}


@dataclasses.dataclass(frozen=True)
class Launched:
    """How one claim ended in this step: ``result`` is launched, adopted, waiting (unknown outcome, or no fresh prices) or failed."""

    claim: Claim
    result: str
    message: str = ""


def _nobody_waits(_claim: Claim) -> None:
    """What is launched is followed by a later step."""


def launch_all(
    context: Context,
    claims: t.Sequence[Claim],
    on_launched: t.Callable[[Claim], None] = _nobody_waits,
    stopped: threading.Event | None = None,
) -> list[Launched]:
    """Launch every claim side by side; one failing claim never stops the others. LockLost ends the whole step. ``on_launched`` is called
    with each claim as soon as it has its machine, in the thread that launched it. Once ``stopped`` is set no create call is sent."""
    if not claims:
        return []

    def launch(claim: Claim) -> Launched:
        launched = _guarded(context, claim, shared)
        if launched.result in ("launched", "adopted"):
            on_launched(launched.claim)
        return launched

    context.records.tokens.expect(
        claim.name for claim in claims if claim.lane is not Lane.SERVICE and CAPABILITIES[claim.cloud].rented
    )
    shared = Shared(Prices(context, context.clock.now() - timedelta(seconds=PRICE_TTL)), stopped or threading.Event())
    with ThreadPoolExecutor(max_workers=min(_WORKERS, len(claims)), thread_name_prefix="launch") as pool:
        outcomes = list(pool.map(launch, claims))
    return outcomes


@dataclasses.dataclass
class Shared:
    """What all claims of one step go by: prices that are not too old, clouds that are skipped by now, with the reason, classes and clouds whose
    image of Talos is missing, and whether the step was stopped."""

    prices: Prices
    stopped: threading.Event
    left_alone: dict[str, str] = dataclasses.field(default_factory=dict)
    imageless: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)


def _guarded(context: Context, claim: Claim, shared: Shared) -> Launched:
    launch: _Launch | None = None
    try:
        launch = _Launch(context, claim, shared)
        return launch.run()
    except LockLost:
        raise
    except TgpError as error:
        if launch is not None:
            launch.settle()
        current, text = context.records.current(claim), str(error)
        if current.launch_started is not None and not current.instance_id:
            text = f"{text} It may have been rented all the same, and is looked for by its name from the next run on."
        context.progress.step(claim.name, "error", text)
        return Launched(current, "failed", text)


class _NotGivenBack(Exception):
    """What a refused create call left behind could not be terminated: the claim has to be torn down with all its ids."""


class _Launch:
    """The launch of one claim, and the journal of its engine. ``claim`` is always the record as last written."""

    def __init__(self, context: Context, claim: Claim, shared: Shared) -> None:
        self.context = context
        self.claim = claim
        self.shared = shared
        self._said = ""  # of the last attempt in whole: the record leaves out the words of the cloud
        self._unwritten = False  # `claim` has facts that its record has not
        self._enrolment = Enrolment()
        paused = context.specs.paused.get(claim.pool)
        if paused is not None:
            raise InvalidInput(f"{claim.name}: nothing is launched for {claim.pool}: {paused}")
        pause = Pauses(context.specs.pauses).of(claim.pool, claim.node_class)
        if pause is not None:
            raise InvalidInput(f"{claim.name}: nothing is launched for {claim.pool}: {sentence(pause)}")
        self.pool = context.specs.pool_of(claim.pool)
        self.node_class = class_of(claim, context.specs)

    def run(self) -> Launched:
        """Rent one machine, from the claim's offers as they are sold now. What its result says is in the record when this returns."""
        try:
            self._give_back_rejected()  # of a run that was killed before it could
            offers = self._fresh_offers()
            if not offers:
                text = f"its offers are older than {PRICE_TTL} s, and none of them is there any more; the next run plans anew"
                self.context.progress.step(self.claim.name, "waiting", text)
                return Launched(self.claim, "waiting", text)
            self._enrolment = enrol(self.context, self.claim, self.node_class, self._write, self._keep)
            return self._rent(offers)
        except _NotGivenBack as problem:
            return self._fail(str(problem))

    def _rent(self, offers: t.Sequence[Offer]) -> Launched:
        candidates = [LaunchCandidate(offer, functools.partial(self._prepare, offer)) for offer in offers]
        try:
            outcome = self._engine().launch(candidates)
        except LaunchRefused:
            return self._fail("no offer could be rented")
        except LaunchUnknown as unknown:
            for key in launch_backoff.keys_after(self.claim.offer, "unknown"):
                self.context.records.block(key, "unknown")
            return Launched(self.claim, "waiting", f"{unknown.message} Not found by name yet; no second create call is sent.")
        return self._adopt(outcome) if outcome.found else Launched(self.claim, "launched")

    def _engine(self) -> LaunchEngine:
        """Claims have names of their own, so no other host launches one: a call is sent again without a look for its machine."""
        return LaunchEngine(
            facts=CAPABILITIES,
            journal=self,
            find=self._find,
            give_back=lambda _refusal: self._give_back_rejected(),
            progress=functools.partial(self.context.progress.step, self.claim.name),
            clock=self.context.clock,
            retry_unsent=True,
        )

    def _fresh_offers(self) -> list[Offer]:
        recorded = (self.claim.offer, *self.claim.candidates)[:_MAX_OFFERS]
        offers = (self.shared.prices.fresh(offer, self.pool, self.node_class) for offer in recorded)
        return [offer for offer in offers if offer is not None]

    # ---- before the create call

    def _affordable(self, offer: Offer) -> bool:
        """A dearer second choice must pass the limits again, counted with everything launched meanwhile."""
        if offer.price_hour is None:
            return False
        bound = self.claim.price_bound
        if bound is not None and offer.price_hour > bound:
            self.context.progress.step(
                self.claim.name, "skipped", f"{offer.cloud} {offer.id}: ${offer.price_hour}/h, approved were ${bound}/h"
            )
            return False
        if offer.price_hour <= self.claim.reserved_price:
            return True
        with self.context.records.money:
            claims = self.context.store.claims()
            problem = may_switch(
                self.claim, offer.price_hour, claims, self.node_class, self.pool, offer=offer, settings=self.context.settings
            ) or self._over_budget(offer, offer.price_hour, claims)
            if problem:
                self.context.progress.step(self.claim.name, "skipped", f"{offer.cloud} {offer.id}: {problem}")
                return False
            self._write(reserved_price=offer.price_hour)
        return True

    def _over_budget(self, offer: Offer, price: Decimal, claims: t.Sequence[Claim]) -> str:
        """Why no budget bears an hour at ``price``, counted with everything but this claim; empty = they do."""
        context = self.context
        if not budgets(context.specs, context.settings):
            return ""
        others = [claim for claim in claims if claim.name != self.claim.name]
        try:
            ledger = context.records.ledger()
        except ApiError as error:
            context.warn(f"The ledger could not be read, so what was spent is unknown: {error}")
            ledger = None
        purses = open_purses(context.specs, context.settings, ledger, others, context.clock.now(), CAPABILITIES)
        teams = shares(self.claim.launched_for, planned_gpus(offer, self.pool))
        return purses.room(self.claim.pool, self.node_class.name, price, teams)

    # ---- the create call

    def _prepare(self, offer: Offer) -> t.Callable[[], str] | None:
        """The create call, recorded and under the lock; None when the offer is too dear, or its cloud refuses what every claim asks for."""
        if offer.cloud in self.shared.left_alone or not self._affordable(offer):
            return None
        context = self.context
        cloud = context.clients.cloud(offer.cloud)
        self._enrolment = of_lane(context, self.claim, self._enrolment, lane_for(offer, self.pool), self._keep)
        payload = payload_for(context, self.claim, offer, self.pool, self.node_class, self._enrolment)
        image = self._image(offer, payload.lane)
        if image is None:
            return None
        cloud.queue()
        if offer.cloud in self.shared.left_alone:  # by what another claim met while this one queued
            return None
        if self.shared.stopped.is_set():
            raise TgpError("Not launched: machines that are launched could not be joined.")
        now = context.clock.now()
        provisioning = (
            self.claim
            if self.claim.phase is Phase.PROVISIONING
            else advance(self.claim, Phase.PROVISIONING, now, f"create call to {offer.cloud}")
        )
        self._write(
            provisioning,
            offer=offer,
            cloud=offer.cloud,
            lane=payload.lane,
            reserved_price=t.cast(Decimal, offer.price_hour),
            expected_gpus=planned_gpus(offer, self.pool),
            launch_started=now,
            billed_since=None,
            store_generation=self.context.once("generation", self.context.records.draw_generation),
        )
        context.lock.confirm()
        context.progress.step(
            self.claim.name,
            "renting",
            f"{offer.cloud} {offer.instance_type} {offer.cloud_region} ${offer.price_hour}/h, lane {payload.lane.value}",
            since=self.claim.launch_started,
            price_hour=offer.price_hour,
            cloud=offer.cloud,
        )
        request = LaunchRequest(
            name=self.claim.name,
            offer=offer,
            user_data=payload.text,
            environment=payload.environment,
            container=payload.container,
            marks=self._marks(now),
            max_price_hour=self.pool.max_hourly_price if self.pool else None,
            settings={**self.node_class.settings_of(offer.cloud), **image},
            volumes=self.node_class.volumes_of(offer.cloud),
        )
        return functools.partial(cloud.launch, request)

    def _image(self, offer: Offer, lane: Lane) -> dict[str, str] | None:
        """The setting for an image that the class does not name; None, so that the next offer is tried, when the account has none."""
        place = (self.node_class.name, offer.cloud)
        if lane is Lane.TALOS and (why := self.shared.imageless.get(place)):  # asked for an earlier offer
            self._said = why
            return None
        try:
            return boot_settings(self.context, self.node_class, offer.cloud, lane)
        except LockLost:
            raise
        except TgpError as error:
            self._said = self.shared.imageless[place] = str(error)
            self.context.progress.step(self.claim.name, "skipped", f"{offer.cloud} {offer.id}: {error}")
            return None

    def _marks(self, now: datetime) -> dict[str, str]:
        return {
            "cluster": self.context.cluster_id,
            "generation": self.claim.store_generation,
            "pool": self.claim.pool,
            "nonce": self.claim.name,
            "created": str(int(now.timestamp())),
        }

    # ---- after it: the engine's journal

    def created(self, offer: Offer, instance_id: str) -> None:
        """The id is written before anything else: a run that is killed here must find the machine again."""
        self._write(instance_id=instance_id, ids_seen=_with(self.claim.ids_seen, instance_id), attempts=self._attempt(offer, "ok"))
        self._went_well(offer)
        self.context.progress.step(
            self.claim.name,
            "rented",
            f"{offer.cloud} id {instance_id}",
            since=self.claim.launch_started,
            price_hour=self.claim.price,
            cloud=offer.cloud,
        )

    def _went_well(self, offer: Offer) -> None:
        """A success ends the doubling of the offer's blocks (L-14). That it cannot be noted must not hide the machine."""
        try:
            self.context.records.succeeded(launch_backoff.key_of(offer))
        except ApiError as error:
            self.context.progress.step(self.claim.name, "record", f"block list not written: {error}", quiet=True)

    def refused(self, offer: Offer, refusal: LaunchRefused) -> None:
        """The id of what it left behind is recorded apart from the claim's own."""
        context, left = self.context, refusal.instance_id or ""
        attempts = self._attempt(offer, "refused", refusal.reason, refusal.message, left)
        if left:
            self._write(attempts=attempts, ids_seen=_with(self.claim.ids_seen, left))
        else:
            self._write(attempts=attempts, launch_started=None)  # nothing was made: nothing is billed or waited for
        for key in launch_backoff.keys_after(offer, refusal.reason):
            context.records.block(key, refusal.reason)
        if refusal.reason in _FOR_THIS_RUN:
            with context.records.money:
                first = offer.cloud not in self.shared.left_alone
                self.shared.left_alone.setdefault(offer.cloud, refusal.reason)
            if first and refusal.reason in _ALARM:
                context.warn(f"ALARM: {offer.cloud} {_ALARM[refusal.reason]} {refusal.message}")

    def _give_back_rejected(self) -> None:
        """Terminate what refused calls left behind; _NotGivenBack with what was in the way."""
        if not self.claim.rejects:
            return
        try:
            give_back_rejected(self.context, self.claim)
        except LockLost:
            raise
        except TgpError as error:
            raise _NotGivenBack(f"what a refused create call left behind could not be terminated: {error}") from error
        self._write(launch_started=None)

    def unknown(self, offer: Offer, unknown: LaunchUnknown) -> None:
        attempts = self._attempt(offer, "unknown", "unknown", unknown.message)
        self._write(unknown_since=self.context.clock.now(), attempts=attempts)

    def _find(self) -> list[Instance]:
        """Our machines of this claim's name. What a refused call left behind is not meant. A list that was asked for before the answer was
        lost proves nothing; a later one serves all whose answers were lost."""
        claim, rejects = self.claim, self.claim.rejects
        named = [
            instance
            for instance in self.context.clients.instances_since(claim.cloud, claim.unknown_since or self.context.clock.now())
            if instance.name == self.claim.name and not instance.gone and instance.id not in rejects
        ]
        return [instance for instance in named if self.context.records.is_ours(instance)]

    def _adopt(self, outcome: Outcome) -> Launched:
        """Go on with the oldest machine that was found after a lost answer, and terminate its duplicates."""
        keep, *duplicates = outcome.found
        ids = self.claim.ids_seen
        for instance in outcome.found:
            ids = _with(ids, instance.id)
        self._write(instance_id=keep.id, ids_seen=ids, unknown_since=None, price_paid=keep.price_hour, ip=keep.ip)
        self._went_well(self.claim.offer)
        for instance in duplicates:
            self.context.progress.step(
                self.claim.name, "duplicate", f"{instance.cloud} id {instance.id} has the same name and is terminated"
            )
            give_back(self.context, self.claim, instance)
        self.context.progress.step(self.claim.name, "adopted", f"{keep.cloud} id {keep.id} was there already")
        return Launched(self.claim, "adopted")

    def _fail(self, why: str) -> Launched:
        now = self.context.clock.now()
        left = "; ".join(f"{cloud} is skipped in this run ({reason})" for cloud, reason in sorted(self.shared.left_alone.items()))
        recorded = self.claim.attempts[-1].message if self.claim.attempts else ""
        last = self._said or recorded or left or "every offer was beyond the limits"
        message = f"{why}: {last}"
        failed = advance(self.claim, Phase.FAILED, now, message)
        self._write(failed, deletion=Deletion(reason=Reason.LAUNCH_FAILED, requested=now))
        self.context.progress.step(self.claim.name, "failed", message)
        return Launched(self.claim, "failed", message)

    # ---- the record

    def _attempt(self, offer: Offer, result: str, error_class: str = "", message: str = "", left: str = "") -> tuple[Attempt, ...]:
        self._said = message[:LONGEST_WORDS]
        attempt = Attempt(self.context.clock.now(), offer_key(offer), result, error_class, self._said, left)
        return (*self.claim.attempts, attempt)

    def _keep(self, **changes: t.Any) -> None:
        """For the next write: what is found without the record, too, after a kill."""
        self.claim = dataclasses.replace(self.claim, **changes)
        self._unwritten = True

    def settle(self) -> None:
        """Write what no later write took along. What cannot be written is found by its name later (L-12)."""
        if self._unwritten:
            try:
                self._write()
            except ApiError as error:
                self.context.progress.step(self.claim.name, "record", f"not written: {error}", quiet=True)

    def _write(self, base: Claim | None = None, **changes: t.Any) -> None:
        self.claim = self.context.store.write(dataclasses.replace(base or self.claim, **changes))
        self._unwritten = False
        self.context.records.remember(self.claim)


def _with(ids: tuple[str, ...], new: str) -> tuple[str, ...]:
    return ids if new in ids else (*ids, new)


# ---- prices that are too old to rent by are read again, once per cloud and step (L-13)


class Prices:
    """What can be rented by in one step. An offer that is only queued for its cloud's pacing may be older than ``oldest`` by then: the
    price paid is looked at after the launch."""

    def __init__(self, context: Context, oldest: datetime) -> None:
        self._context = context
        self._oldest = oldest

    def fresh(self, offer: Offer, pool: Pool | None, node_class: NodeClass) -> Offer | None:
        """The offer, or what it is now, at our bid where it is an auction's; None when it is gone, sold out, or cannot be read."""
        if offer.seen is None or offer.seen >= self._oldest:
            return offer
        listed = self._listed(offer.cloud).get(offer_key(offer))
        if listed is None or listed.available == 0:
            return None
        choice = next((entry for entry in node_class.clouds if entry.cloud == offer.cloud), None)
        limit = pool.max_hourly_price if pool else None
        listed = requirements.cut(listed, requirements.wanted_gib(node_class))
        now = listed if choice is None else ranking.priced(listed, choice.bid_margin, limit)
        return None if now.price_hour is None or (limit is not None and now.price_hour > limit) else now

    def _listed(self, cloud: str) -> dict[str, Offer]:
        return self._context.once(("offers again", cloud), lambda: self._read(cloud))

    def _read(self, cloud: str) -> dict[str, Offer]:
        try:
            offers = self._context.clients.cloud(cloud).offers(query_of(self._context.specs, cloud))
        except TgpError as error:
            self._context.warn(f"The offers of {cloud} are too old to rent by and could not be read again: {error}")
            return {}
        return {offer_key(offer): offer for offer in offers}
