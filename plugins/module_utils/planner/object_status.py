# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of documents that are objects of the cluster, as kubectl, Argo CD and Flux read it.

Ready says whether an object has what it asks for by itself: replicas, minNodes, the machine of a request, a number given to the run. Machines
for waiting pods show in Launching and in the counts, and do not make a pool unready. Reconciling and Stalled are there only while True, as
kstatus expects them: Stalled when a person has to act, Reconciling while a later run may succeed.
"""

from __future__ import annotations

import dataclasses
import functools
import typing as t
from datetime import datetime
from decimal import Decimal

from ..core.errors import InvalidInput
from ..model import Capability, Claim, CloudChoice, Node, NodeClass, Observation, Pause, Plan, Pool, Specs, StatusObject
from ..model.claims import Phase
from ..model.defaults import LAUNCHING, Settings
from ..model.reasons import ActionKind, Finding
from ..units.values import parse_time, print_money, print_time
from . import finalizers
from .claims.record import BEFORE_READY, counts, may_have_instance
from .cost.budgets import EVERYTHING, Purse, open_purses
from .cost.cost import add_up
from .disruption.expiration import age_of
from .disruption.schedule import hours
from .offers import launch_backoff
from .offers.requirements import is_offered
from .pauses import Pauses, sentence
from .scheduling import completed_requests

Json = dict[str, t.Any]

HEARTBEAT: t.Final = 600  # seconds; what changes all the time is written no more often
_HEARTBEATS = ("lastRunTime", "spent")
_PRICES = ("minHourlyPrice", "maxHourlyPrice")
_COMPLETED = "Completed"


@dataclasses.dataclass(frozen=True)
class World:
    """What a run knows when it has decided."""

    seen: Observation
    specs: Specs
    decided: Plan
    settings: Settings
    capabilities: t.Mapping[str, Capability]

    @functools.cached_property
    def claims(self) -> tuple[Claim, ...]:
        """As the plan has written them."""
        claims = {claim.name: claim for claim in self.seen.claims or ()}
        written = [action for action in self.decided.actions if action.claim is not None and action.kind is not ActionKind.REPORT]
        return tuple({**claims, **{action.name: t.cast(Claim, action.claim) for action in written}}.values())

    @functools.cached_property
    def nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self.seen.nodes or ()}

    @functools.cached_property
    def purses(self) -> tuple[Purse, ...]:
        seen = self.seen
        return open_purses(self.specs, self.settings, seen.ledger, seen.claims or (), seen.now, self.capabilities).all

    def purse(self, scope: str, name: str) -> Purse | None:
        """The budget of one pool or class by itself."""
        return next((purse for purse in self.purses if (purse.scope, purse.name) == (scope, name)), None)

    @functools.cached_property
    def _pauses(self) -> Pauses:
        return Pauses((*self.seen.pauses, *self.specs.pauses), self.specs.described)

    def pause(self, one: StatusObject) -> Pause | None:
        """The one that holds for an object (L-31)."""
        if one.kind == "GPUNodeClass":
            return self._pauses.of("", one.key)
        pool = self.specs.pool_of(one.key)
        return self._pauses.of(one.key, pool.node_class if pool is not None else "")

    def trouble(self, claim: Claim) -> str:
        """Why a machine that was usable is not now; empty when it is, or nobody could ask."""
        if claim.gone_since is not None:
            return f"{claim.name}: its machine is gone"
        if claim.is_service or self.seen.nodes is None:
            return ""
        node = self.nodes.get(claim.node_name)
        return "" if node is not None and node.ready else f"{claim.name}: its Node is {'missing' if node is None else 'not Ready'}"


@dataclasses.dataclass(frozen=True)
class Machines:
    """Those of one object, by what they are good for. ``troubled``: what is wrong with machines that were usable."""

    ready: tuple[Claim, ...]
    launching: tuple[Claim, ...]
    terminating: tuple[Claim, ...]
    failed: tuple[Claim, ...]
    troubled: tuple[str, ...]
    cost: Decimal

    @classmethod
    def of(cls, claims: t.Sequence[Claim], world: World) -> Machines:
        stay = [claim for claim in claims if claim.deletion is None and claim.phase is not Phase.TERMINATING]
        usable = [claim for claim in stay if claim.phase is Phase.READY]
        troubles = {claim.name: world.trouble(claim) for claim in usable}
        billed = (claim for claim in claims if counts(claim) and may_have_instance(claim) and claim.gone_since is None)
        return cls(
            ready=tuple(claim for claim in usable if not troubles[claim.name]),
            launching=tuple(claim for claim in stay if claim.phase in BEFORE_READY),
            terminating=tuple(claim for claim in claims if claim not in stay),
            failed=tuple(claim for claim in stay if claim.phase is Phase.FAILED),
            troubled=tuple(text for text in troubles.values() if text),
            cost=add_up(claim.price for claim in billed),
        )

    @property
    def existing(self) -> int:
        """Machines that are there, or on their way."""
        return len(self.ready) + len(self.launching) + len(self.troubled)

    @property
    def numbers(self) -> Json:
        return {"ready": len(self.ready), "launching": len(self.launching), "terminating": len(self.terminating)}


class Readiness(t.NamedTuple):
    """Whether an object has what it asks for, and what stands in its way. ``stalled``: only a person can change that."""

    ready: bool
    reason: str
    message: str
    stalled: bool = False


def _deleting(one: StatusObject, world: World) -> Readiness:
    """With what it waits for; only an object with our finalizer waits for us."""
    if not finalizers.is_held(one):
        return Readiness(False, "Deleting", "The object is being deleted.")
    return Readiness(
        False, "Deleting", finalizers.waiting(finalizers.waits_for(one, world.specs, world.claims, world.seen.damaged))
    )


def statuses(world: World) -> list[tuple[StatusObject, Json]]:
    """The wanted status of every object. Nothing while the claims could not be read: what is unknown is not written."""
    if world.seen.claims is None:
        return []
    make = {"GPUNodeClass": _of_class, "GPUNodePool": _of_pool, "GPURequest": _of_request}
    return [(one, make[one.kind](one, world)) for one in world.specs.objects]


# ---- each kind


def _of_pool(one: StatusObject, world: World) -> Json:
    pool, machines = _pool_of(one, world), Machines.of(_claims_of(one.key, world), world)
    asked = _asked(one, pool, world)
    missing = sum(shortfall.missing for shortfall in world.decided.shortfall if shortfall.pool == one.key)
    wanted = asked if pool is not None and pool.replicas is not None else max(asked, machines.existing + missing)
    own = world.purse("pool", one.key)
    expiries = [] if pool is None else [age_of(claim, None, pool, world.seen.now).due for claim in machines.ready]
    return _status(
        one,
        world,
        _readiness(one, asked, machines, world),
        machines,
        _whose(one, pool),
        wanted=wanted,
        replicas=machines.existing,
        **machines.numbers,
        gpus=sum(claim.expected_gpus for claim in machines.ready),
        hourlyCost=print_money(machines.cost),
        **_money(own),
        nextExpiry=_moment(min((moment for moment in expiries if moment is not None), default=None)),
        reason=_short(one, world),
    )


def _of_request(one: StatusObject, world: World) -> Json:
    pool, claims = _pool_of(one, world), _claims_of(one.key, world)
    machines = Machines.of(claims, world)
    asked = _asked(one, pool, world)
    claim = next(iter((*machines.ready, *machines.launching)), claims[-1] if claims else None)
    served = claim is None and completed_requests.is_noted(world.decided.findings, one.key)
    readiness = _readiness(one, asked, machines, world)
    if served:
        readiness = Readiness(True, _COMPLETED, "Its machine ended by idleTimeout or maxLifetime. provision.yml rents another one.")
    own = world.purse("pool", one.key)
    facts: Json = {}
    if claim is not None:
        facts = {
            "provider": claim.cloud,
            "region": claim.offer.region,
            "instanceID": claim.instance_id,
            "machineName": claim.name,
            "nodeName": claim.node_name if claim.registered else "",
            "address": claim.ip,
            "hourlyPrice": print_money(claim.price),
            "expiryTime": None if pool is None else _moment(age_of(claim, None, pool, world.seen.now).due),
        }
    phase = _COMPLETED if served else Phase.PENDING.value if claim is None else claim.phase.value
    if claim is not None and claim.deletion is not None:
        phase = Phase.TERMINATING.value
    return _status(
        one, world, readiness, machines, _whose(one, pool), phase=phase, **facts, **_money(own), reason=_short(one, world)
    )


def _of_class(one: StatusObject, world: World) -> Json:
    node_class = None if world.specs.faults.get(one.place) else world.specs.classes.get(one.key)
    machines = Machines.of([claim for claim in world.claims if claim.node_class == one.key], world)
    own = world.purse("class", one.key)
    providers = [] if node_class is None else [_provider(choice, node_class, one, world) for choice in node_class.clouds]
    usable = [entry for entry in providers if entry["health"] in ("Healthy", "Unknown")]
    if one.deleted:
        readiness = _deleting(one, world)
    elif node_class is None:
        readiness = _invalid(one, world)
    elif one.key in world.specs.blocked:
        readiness = Readiness(False, "CannotJoin", world.specs.blocked[one.key], stalled=True)
    elif not usable:
        readiness = Readiness(False, "ProvidersUnavailable", "; ".join(entry.get("message", "") for entry in providers).strip("; "))
    else:
        readiness = Readiness(True, "Usable", f"{len(usable)} of {len(providers)} providers can be used.")
    return _status(
        one,
        world,
        readiness,
        machines,
        ("", one.key),
        pools=sum(1 for pool in world.specs.described if pool.node_class == one.key),
        **machines.numbers,
        hourlyCost=print_money(machines.cost),
        **_money(own),
        providers=providers,
    )


def _provider(choice: CloudChoice, node_class: NodeClass, one: StatusObject, world: World) -> Json:
    entry: Json = {"name": choice.cloud}
    view = world.seen.clouds.get(choice.cloud)
    before: Json = next((old for old in one.status.get("providers") or () if old.get("name") == choice.cloud), {})
    if not choice.enabled:
        return {**entry, "health": "Disabled"}
    if view is None:
        entry |= {"health": "Unknown"}
    elif view.instances is None:
        entry |= {"health": "Unavailable", "message": view.problem or "its machines could not be listed"}
    else:
        entry |= {"health": "Healthy"}
        images = launch_backoff.words_of_images(node_class, world.seen.blocks, world.seen.block_words, world.seen.now)
        entry |= {"message": images[choice.cloud]} if choice.cloud in images else {}
    offers = None if view is None or not world.seen.offers_read else view.offers
    if offers is None:  # those that were seen last
        return entry | {name: before[name] for name in _PRICES if name in before}
    prices = [offer.price_hour for offer in offers if offer.price_hour is not None and _fits(offer, node_class)]
    return entry | ({"minHourlyPrice": print_money(min(prices)), "maxHourlyPrice": print_money(max(prices))} if prices else {})


def _fits(offer: t.Any, node_class: NodeClass) -> bool:
    """Whether it has the GPUs that the class wants."""
    if node_class.gpu_count is not None and offer.gpu_count != node_class.gpu_count:
        return False
    return not node_class.gpu_types or any(is_offered(model, offer) for model in node_class.gpu_types)


# ---- what they share


def _pool_of(one: StatusObject, world: World) -> Pool | None:
    """What the object describes; None when it is faulty, or a file describes the pool of that name."""
    pool = world.specs.pool_of(one.key)
    return pool if pool is not None and pool.source_uid == one.uid and not world.specs.faults.get(one.place) else None


def _claims_of(key: str, world: World) -> list[Claim]:
    return [claim for claim in world.claims if claim.pool == key]


def _asked(one: StatusObject, pool: Pool | None, world: World) -> int:
    """How many machines the document or the run asks for, whatever pods wait."""
    if pool is None or one.deleted:
        return 0
    if pool.request:
        return 1
    now = hours(pool, world.seen.now)
    asked = world.specs.nodes.get(one.key, 0) if pool.replicas is None else 0
    return 0 if now.closed else max(now.min_nodes, asked)


def _invalid(one: StatusObject, world: World) -> Readiness:
    told = [sentence.removeprefix(f"{one.place}: ") for sentence in world.specs.faults.get(one.place, ())]
    text = " ".join(told) or world.specs.paused.get(one.key, "It cannot be used with the other documents; the run reports why.")
    return Readiness(False, "InvalidDocument", text, stalled=True)


def _paused(pause: Pause) -> str:
    words = sentence(pause)
    return f"{words[0].upper()}{words[1:].rstrip('.')}."


def _readiness(one: StatusObject, asked: int, machines: Machines, world: World) -> Readiness:
    specs = world.specs
    pool = _pool_of(one, world)
    if one.deleted:
        return _deleting(one, world)
    if pool is None:
        return _invalid(one, world)
    count = f"{len(machines.ready)} of {asked} machines are ready."
    if one.key in specs.paused:
        return Readiness(False, "ClassNotReady", specs.paused[one.key], stalled=True)
    if len(machines.ready) >= asked:
        return Readiness(True, "MachinesReady" if asked else "NoMachinesWanted", count if asked else "No machine is asked for.")
    if (pause := world.pause(one)) is not None:
        return Readiness(False, Finding.PAUSED, f"{count} {_paused(pause)}")
    for name in (one.key, pool.node_class):
        if name in specs.blocked:
            return Readiness(False, "CannotJoin", f"{count} {specs.blocked[name]}", stalled=True)
    if len(machines.ready) + len(machines.launching) >= asked:  # what pods wait for besides does not count
        return Readiness(False, "Launching", count)
    short = _short(one, world)
    if short.startswith("limit:budget"):
        return Readiness(False, "BudgetExceeded", f"{count} {short}")
    if short.startswith("limit:"):
        return Readiness(False, "LimitReached", f"{count} {short}", stalled=True)
    if short:
        return Readiness(False, "InsufficientCapacity", f"{count} {short}")
    if machines.launching:
        return Readiness(False, "Launching", count)
    return Readiness(False, "MachinesMissing", count)


def _short(one: StatusObject, world: World) -> str:
    """The first reason why machines that are wanted will not come. A run that launches nothing cannot tell, and keeps what one has found that
    does: two playbooks by turns would else write by turns."""
    if world.settings.mode not in LAUNCHING:
        return str(one.status.get("reason", "")) if one.status.get("observedGeneration") == one.generation else ""
    reasons = [shortfall.reason for shortfall in world.decided.shortfall if shortfall.pool == one.key]
    reasons += [pod.reason for pod in world.decided.waiting if pod.pool == one.key and pod.reason]
    return reasons[0] if reasons else ""


def _whose(one: StatusObject, pool: Pool | None) -> tuple[str, str] | None:
    return None if pool is None else (one.key, pool.node_class)


def _money(purse: Purse | None) -> Json:
    return {} if purse is None else {"spent": print_money(purse.spent), "budget": print_money(purse.budget.amount)}


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else print_time(moment)


def _status(
    one: StatusObject, world: World, readiness: Readiness, machines: Machines, whose: tuple[str, str] | None, **facts: t.Any
) -> Json:
    """``whose``: pool and class whose budgets hold for the object."""
    told = {name: value for name, value in facts.items() if value is not None and value != ""}
    now = print_time(world.seen.now)
    conditions = [_condition(one, now, *entry) for entry in _conditions(one, world, readiness, machines, whose)]
    return {"observedGeneration": one.generation, **told, "conditions": conditions, "lastRunTime": now}


_Entry = tuple[str, bool, str, str]  # type, status, reason, message


def _conditions(
    one: StatusObject, world: World, readiness: Readiness, machines: Machines, whose: tuple[str, str] | None
) -> t.Iterator[_Entry]:
    faults = world.specs.faults.get(one.place)
    yield "Ready", readiness.ready, readiness.reason, readiness.message
    yield (
        ("DocumentsValid", False, "InvalidDocument", _invalid(one, world).message)
        if faults
        else ("DocumentsValid", True, "Valid", "")
    )
    names = ", ".join(sorted(claim.name for claim in machines.launching))
    yield ("Launching", True, "MachinesOnTheirWay", names) if names else ("Launching", False, "NothingLaunches", "")
    troubles = [*machines.troubled, *(f"{claim.name}: its launch failed" for claim in machines.failed)]
    yield ("Degraded", True, "MachinesUnhealthy", "; ".join(troubles)) if troubles else ("Degraded", False, "Healthy", "")
    used_up = next((purse for purse in world.purses if whose and _covers(purse, whose) and purse.used_up), None)
    budget = f"{used_up.title}: ${print_money(used_up.budget.amount)} are used up." if used_up else ""
    yield "BudgetExceeded", bool(budget), "BudgetUsedUp" if budget else "WithinBudget", budget
    pause = world.pause(one)
    by = "NotPaused" if pause is None else "PausedByAnnotation" if pause.annotation else "PausedByPlaybook"
    yield Finding.PAUSED, pause is not None, by, "" if pause is None else _paused(pause)
    if readiness.stalled:
        yield "Stalled", True, readiness.reason, readiness.message
    elif not readiness.ready and pause is None:
        yield "Reconciling", True, readiness.reason, readiness.message


def _covers(purse: Purse, whose: tuple[str, str]) -> bool:
    """A budget of a pool says nothing of its class."""
    return purse.scope == EVERYTHING or purse.covers(*whose)


def _condition(one: StatusObject, now: str, kind: str, holds: bool, reason: str, message: str) -> Json:
    status = "True" if holds else "False"
    old: Json = next((entry for entry in one.status.get("conditions") or () if entry.get("type") == kind), {})
    since = old.get("lastTransitionTime") if old.get("status") == status else None
    return {
        "type": kind,
        "status": status,
        "observedGeneration": one.generation,
        "lastTransitionTime": since or now,
        "reason": reason,
        "message": message,
    }


# ---- what has to be written


def change(old: t.Mapping[str, t.Any], new: t.Mapping[str, t.Any], now: datetime) -> Json | None:
    """The merge patch from one status to the other; None when nothing has changed but what may wait (L-30)."""
    if _steady(old) == _steady(new) and not _is_due(old.get("lastRunTime"), now):
        return None
    patch = {name: value for name, value in new.items() if old.get(name) != value}
    return {**patch, **{name: None for name in old if name not in new}}


def _steady(status: t.Mapping[str, t.Any]) -> Json:
    kept = {name: value for name, value in status.items() if name not in _HEARTBEATS}
    if "providers" in kept:
        kept["providers"] = [{name: value for name, value in entry.items() if name not in _PRICES} for entry in kept["providers"]]
    return kept


def _is_due(text: t.Any, now: datetime) -> bool:
    try:
        return (now - parse_time(text)).total_seconds() >= HEARTBEAT
    except (InvalidInput, AttributeError, TypeError):  # never written, or by another hand
        return True
