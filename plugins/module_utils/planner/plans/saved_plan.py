# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan that is kept, to be read, approved and applied later (L-22): what shall be done, and what has to be true for it still."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import typing as t
from datetime import datetime
from decimal import Decimal

from ...model import Action, Claim, Observation, Phase, Plan, Specs
from ...model.defaults import Destroy, Settings
from ...model.reasons import ActionKind, Finding
from ...units.values import print_money
from ..claims.spec_hash import generation
from ..cost.cost import per_day
from ..offers.ranking import PRICE_TOLERANCE, offer_key
from ..provisioning.limits import reserved

VERSION = 1
FACTS = (
    ActionKind.UPDATE,
    ActionKind.ANNOTATE,
    ActionKind.RESTORE,
    ActionKind.REPORT,
)  # what any run that writes notes down for itself; an adopted machine is more than that


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """How many machines a pool ("namespace/name") was wanted to have."""

    pool: str
    nodes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What the plan was asked for. The limits are those of the run's options; None = none."""

    mode: str
    wanted: tuple[Wanted, ...] = ()
    destroy: Destroy = Destroy()
    max_nodes_total: int | None = None
    max_hourly_total: Decimal | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Precondition:
    """What the plan saw and an action rests on; empty = it rests on nothing of the kind.

    ``claim_version`` is the store's ("" = there was no claim), ``node_uid`` that of the machine's Node, ``generation`` the fingerprint of
    the documents. ``offer`` is "cloud/offer id"; its price may be up to ``price_bound``, inclusive.
    """

    claim_version: str = ""
    node_uid: str = ""
    generation: str = ""
    offer: str = ""
    price_bound: Decimal | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One action of the plan (see model.Action), with its precondition. ``claim`` is there where something is to be rented."""

    kind: ActionKind
    name: str
    reason: str
    detail: str
    pool: str
    target: str
    uid: str
    value: str | None
    price_hour: Decimal
    claim: Claim | None
    needs: Precondition


@dataclasses.dataclass(frozen=True, slots=True)
class Costs:
    """Dollars per hour and day, as text for people."""

    hour_now: str
    hour_after: str
    day_now: str
    day_after: str


@dataclasses.dataclass(frozen=True, slots=True)
class SavedPlan:
    """``inputs`` is the hash of what the plan rests on (:func:`inputs_hash`). Holds no secret: claims hold none."""

    format_version: int
    cluster_id: str
    run_id: str
    made_at: datetime
    request: Request
    inputs: str
    costs: Costs
    steps: tuple[Step, ...]


def make(plan: Plan, observation: Observation, specs: Specs, settings: Settings, run_id: str) -> SavedPlan:
    """The plan of this observation as it is kept. Facts that every run notes by itself are no steps of it."""
    versions = {claim.name: claim.version for claim in observation.claims or ()}
    uids = {node.name: node.uid for node in observation.nodes or ()}
    actions = [action for action in plan.actions if is_step(action)]
    now = reserved(observation.claims or ()).total.cost
    after = now + sum((action.price_hour for action in actions), Decimal(0))
    hour_day = (print_money(now), print_money(after), print_money(per_day(now)), print_money(per_day(after)))
    return SavedPlan(
        VERSION,
        observation.cluster_id,
        run_id,
        observation.now,
        Request(
            settings.mode,
            tuple(Wanted(pool, specs.nodes[pool]) for pool in sorted(specs.nodes)),
            settings.destroy,
            settings.max_nodes_total,
            settings.max_hourly_total,
        ),
        inputs_hash(observation, [action.claim for action in actions if _rents(action) and action.claim]),
        Costs(*hour_day),
        tuple(_step(action, versions, uids, specs) for action in actions),
    )


def is_step(action: Action) -> bool:
    """Whether a person has to agree to it: it rents, removes, or makes a machine ours."""
    return action.kind not in FACTS or (action.kind == ActionKind.UPDATE and action.reason == Finding.ADOPTED)


def bound(price: Decimal) -> Decimal:
    """The highest price at which a launch that was planned at ``price`` may still be done, inclusive."""
    return price * (1 + PRICE_TOLERANCE)


def inputs_hash(observation: Observation, rented: t.Iterable[Claim]) -> str:
    """SHA-256 over claims with their versions, our view of Nodes by name and UID, and the offers chosen with their prices."""
    offers = {offer_key(claim.offer): claim.offer.price_hour for claim in rented}
    content = {
        "claims": {claim.name: claim.version for claim in observation.claims or ()},
        "nodes": {node.name: node.uid for node in observation.nodes or ()},
        "offers": {key: str(price) for key, price in offers.items()},
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def documents_of(claim: Claim, specs: Specs) -> str:
    """The fingerprint of the documents that a machine of this claim would be made from now; empty without them."""
    pool = next((candidate for candidate in specs.pools if candidate.key == claim.pool), None)
    node_class = specs.classes.get(claim.node_class)
    return generation(node_class, pool) if pool is not None and node_class is not None else ""


def _rents(action: Action) -> bool:
    return action.kind == ActionKind.LAUNCH or (action.kind == ActionKind.RESUME and bool(action.claim) and unsent(action.claim))


def unsent(claim: Claim | None) -> bool:
    """True for a claim whose create call was not sent: only then may one be."""
    return (
        claim is not None
        and claim.phase in (Phase.PENDING, Phase.PROVISIONING)
        and claim.launch_started is None
        and not claim.instance_id
    )


def _step(action: Action, versions: t.Mapping[str, str], uids: t.Mapping[str, str], specs: Specs) -> Step:
    claim = action.claim
    rents = _rents(action)
    needs = Precondition(
        claim_version=versions.get(action.name, ""),
        node_uid=(uids.get(claim.node_name or claim.name, "") if claim else "") if not rents else "",
        generation=documents_of(claim, specs) if claim and rents else "",
        offer=offer_key(claim.offer) if claim and rents else "",
        price_bound=bound(claim.offer.price_hour) if claim and rents and claim.offer.price_hour is not None else None,
    )
    return Step(
        action.kind,
        action.name,
        action.reason,
        action.detail,
        action.pool,
        action.target,
        action.uid,
        action.value,
        action.price_hour,
        claim if rents else None,
        needs,
    )
