# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which offers serve a pool, and in which order (L-13). Every excluded offer leaves with the first reason that excludes it."""

from __future__ import annotations

import collections
import dataclasses
import functools
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

from ...model import Capability, CloudChoice, Lane, NodeClass, Offer, OfferQuery, Pool, Requirement, Specs
from ...model.defaults import PRICE_TTL, Settings
from ...model.labels import (
    GPU_COUNT_LABEL,
    GPU_MEMORY_LABEL,
    GPU_TYPE_LABEL,
    PROVIDER_LABEL,
    REGION_LABEL,
    RELIABILITY_LABEL,
    SPOT_LABEL,
    TOPOLOGY_REGION_LABEL,
)
from . import account_volumes, gpu_attributes, gpu_models, mig_profiles, requirements
from . import launch_backoff as blocklist
from .requirements import for_nodes, good_enough, outlasts, region_matches

IMAGE = "image"  # the machine would boot an image of Talos that its cloud has not (L-56)

# The order of the checks; part of the contract, because people and tests compare reasons.
REASONS = (
    "provider disabled",
    "no accepted lane",
    "gpu type",
    "gpu count",
    "gpu memory",
    "mig profiles",
    "mps clients",
    "vcpus",
    "memory",
    "disk",
    "region",
    "volume",
    "spot not allowed",
    "requirements",
    "quality",
    "not available",
    IMAGE,
    "blocked",
    "price unknown",
    "price too old",
    "maxHourlyPrice",
    "spot discount",
)
PRICE_TOLERANCE: t.Final = Decimal("0.05")  # the share by which a price may lie above what was agreed to before it has jumped
SPOT_DISCOUNT_MIN: t.Final = Decimal(0)  # the share by which spot must be cheaper where neither entry nor class says one
DEFAULT_LANES = (Lane.TALOS, Lane.KUBELET)  # lane takeover is experimental and lane service makes no node: both only by name
_STAGE_OF_KEY = {
    GPU_TYPE_LABEL: "gpu type",
    GPU_COUNT_LABEL: "gpu count",
    GPU_MEMORY_LABEL: "gpu memory",
    REGION_LABEL: "region",
    TOPOLOGY_REGION_LABEL: "region",
    SPOT_LABEL: "spot not allowed",
    RELIABILITY_LABEL: "quality",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Selection:
    """``candidates`` best first. ``rejected`` maps "cloud/offer id" to the first reason (one of REASONS)."""

    candidates: tuple[Offer, ...]
    rejected: t.Mapping[str, str]

    def counts(self) -> dict[str, int]:
        """How many offers each reason excluded, in the order of the checks."""
        count = collections.Counter(self.rejected.values())
        return {reason: count[reason] for reason in (*REASONS, *sorted(set(count) - set(REASONS))) if count[reason]}


def offer_key(offer: Offer) -> str:
    """Offer ids are unique inside one cloud only."""
    return f"{offer.cloud}/{offer.id}"


def accepted_lanes(pool: Pool) -> tuple[Lane, ...]:
    """The lanes a pool accepts, best first."""
    return pool.lanes or DEFAULT_LANES


def lane_of(offer: Offer, pool: Pool, capability: Capability) -> Lane | None:
    """The lane on which this offer would serve the pool, None if there is none."""
    possible = offer.lanes or capability.lanes
    return next((lane for lane in accepted_lanes(pool) if lane in possible and lane in capability.lanes), None)


def no_lane(cloud: str, pool: Pool, capability: Capability | None) -> str:
    """Why a cloud's machines serve no lane that the pool accepts, and the way out, as one sentence for people."""
    asked = ", ".join(lane.value for lane in accepted_lanes(pool))
    if capability is None:
        return f"{cloud}: there is no such cloud"
    why = capability.lane_reason or f"its machines cannot serve lane {asked}"
    others = [lane.value for lane in capability.lanes if lane not in accepted_lanes(pool)]
    instead = f"accept lane {' or '.join(others)}, or leave the cloud out" if others else "leave the cloud out"
    return f"{cloud}: {why}; {instead}"


def lanes_refused(pool: Pool, node_class: NodeClass, capabilities: t.Mapping[str, Capability]) -> str:
    """Why no cloud of the class can ever serve the pool, whatever it has on offer; empty when one may."""
    clouds = [choice.cloud for choice in node_class.clouds if choice.enabled and pool.cloud in ("", choice.cloud)]
    if not clouds or any(set(accepted_lanes(pool)) & set(capabilities[cloud].lanes) for cloud in clouds if cloud in capabilities):
        return ""
    return "; ".join(no_lane(cloud, pool, capabilities.get(cloud)) for cloud in clouds)


def select(
    offers: t.Iterable[Offer],
    pool: Pool,
    node_class: NodeClass,
    capabilities: t.Mapping[str, Capability],
    settings: Settings,
    now: datetime,
    blocks: t.Mapping[str, datetime] | None = None,
    *,
    oldest: int = PRICE_TTL,
    account: account_volumes.Account | None = None,
    imageless: t.Collection[str] = (),
) -> Selection:
    """Filter and sort. Limits (L-16) are not asked here: they depend on what else is launched. ``blocks``: key → until.
    ``oldest``: seconds, the age up to which a price is believed. ``account``: the volumes of each cloud (L-51); None = they are not judged,
    for callers that rent nothing. ``imageless``: clouds whose machines of lane talos have no image to boot, as this run has found (L-56).

    An auction's offer is judged, sorted and returned at the price of our bid (planner/offers/ranking.py)."""
    filters = _Filters(
        pool, node_class, capabilities, now, {} if settings.ignore_blocklist else blocks or {}, oldest, account, imageless
    )
    rejected: dict[str, str] = {}
    passed: list[Offer] = []
    for offer in map(filters.priced, offers):
        reason = filters.first_reason(offer)
        if reason:
            rejected[offer_key(offer)] = reason
        else:
            passed.append(offer)
    passed = _drop_dear_spot(passed, filters.discount, capabilities, rejected)
    priorities = {choice.cloud: choice.priority for choice in node_class.clouds}
    passed.sort(
        key=lambda offer: _sort_key(offer, node_class.strategy, priorities.get(offer.cloud, 0), capabilities[offer.cloud].rented)
    )
    return Selection(tuple(passed), dict(sorted(rejected.items())))


def score(total: Decimal, priority: int, strategy: str) -> tuple[Decimal, Decimal]:
    """What offers are sorted by, lowest first. ``weighted``: each step of priority costs ten per cent."""
    if strategy == "cheapest":
        return (total, total)
    if strategy == "priority":
        return (Decimal(priority), total)
    return (total * (1 + Decimal(priority) / 10), total)


def per_gpu(total: Decimal, priority: int, strategy: str, used: int) -> tuple[Decimal, ...]:
    """The score for each of so many used GPUs; strict priorities stay whole."""
    first, second = score(total, priority, strategy)
    return (first, second / used) if strategy == "priority" else (first / used,)


def _sort_key(offer: Offer, strategy: str, priority: int, rented: bool) -> tuple[t.Any, ...]:
    total = offer.price_hour or Decimal(0)
    size = 0 if rented else offer.gpu_count  # of our own machines the smallest that serves goes first (L-21)
    reliability = offer.reliability if offer.reliability is not None else Decimal(-1)
    return (*score(total, priority, strategy), size, -reliability, offer.cloud, offer.region, offer.id)


def _drop_dear_spot(
    offers: list[Offer],
    discount: t.Callable[[Offer], Decimal],
    capabilities: t.Mapping[str, Capability],
    rejected: dict[str, str],
) -> list[Offer]:
    """Spot is taken only when it is cheaper by the share ``discount`` (0 = always) than the best firm machine that one could rent instead,
    which has as many GPUs or more."""
    firm: dict[int, Decimal] = {}
    for offer in offers:
        if not offer.spot and offer.price_hour is not None and capabilities[offer.cloud].rented:
            firm[offer.gpu_count] = min(offer.price_hour, firm.get(offer.gpu_count, offer.price_hour))
    kept = []
    for offer in offers:
        share = discount(offer) if offer.spot else Decimal(0)
        best = min((price for count, price in firm.items() if count >= offer.gpu_count), default=None) if share > 0 else None
        if best is not None and offer.price_hour is not None and offer.price_hour > best * (1 - share):
            rejected[offer_key(offer)] = "spot discount"
        else:
            kept.append(offer)
    return kept


class _Filters:
    """The checks of one pool, in the order of REASONS."""

    def __init__(
        self,
        pool: Pool,
        node_class: NodeClass,
        capabilities: t.Mapping[str, Capability],
        now: datetime,
        blocks: t.Mapping[str, datetime],
        oldest: int,
        account: account_volumes.Account | None = None,
        imageless: t.Collection[str] = (),
    ) -> None:
        self.pool = pool
        self.node_class = node_class
        self.disk_gib = requirements.wanted_gib(node_class)
        self.capabilities = capabilities
        self.blocks = blocks
        self.now = now
        self.imageless = {*imageless, *blocklist.without_images(node_class, blocks, now)}
        self.oldest = now - timedelta(seconds=oldest)
        self.choices: dict[str, CloudChoice] = {choice.cloud: choice for choice in node_class.clouds if choice.enabled}
        self.places = {
            cloud: account_volumes.regions(choice.volumes, account.get(cloud) or ())
            for cloud, choice in self.choices.items()
            if choice.volumes and account is not None
        }
        self.by_stage: dict[str, list[Requirement]] = collections.defaultdict(list)
        for requirement in pool.requirements:
            self.by_stage[_STAGE_OF_KEY.get(requirement.key, "requirements")].append(requirement)
        self.checks = tuple(zip(REASONS, self._checks(), strict=False))

    def priced(self, offer: Offer) -> Offer:
        """With the disk that the class wants, and at our bid where it is an auction's."""
        choice = self.choices.get(offer.cloud)
        if choice is None:
            return offer
        return priced(requirements.cut(offer, self.disk_gib), choice.bid_margin, self.pool.max_hourly_price)

    def discount(self, offer: Offer) -> Decimal:
        """What the cloud's entry says, else the class."""
        choice = self.choices.get(offer.cloud)
        shares = (choice.spot_discount_min if choice else None, self.node_class.spot_discount_min)
        return next((share for share in shares if share is not None), SPOT_DISCOUNT_MIN)

    def first_reason(self, offer: Offer) -> str:
        for reason, passes in self.checks:
            if not passes(offer) or not all(requirements.met(requirement, offer) for requirement in self.by_stage.get(reason, ())):
                return reason
        return ""

    def _checks(self) -> tuple[t.Callable[[Offer], bool], ...]:
        wanted = self.node_class
        return (
            self._provider,
            self._lane,
            lambda offer: not wanted.gpu_types or any(requirements.is_offered(kind, offer) for kind in wanted.gpu_types),
            lambda offer: offer.gpu_count > 0 and wanted.gpu_count in (None, offer.gpu_count),
            lambda offer: _at_least(offer.gpu_memory_mib, wanted.gpu_memory_mib),
            lambda offer: not self.pool.mig or not mig_profiles.against(offer.model, offer.gpu_memory_mib, dict(self.pool.mig)),
            lambda offer: not self.pool.mps or self.pool.slices <= gpu_attributes.mps_clients(offer.model),
            lambda offer: _at_least(offer.vcpus, wanted.min_vcpus),
            lambda offer: _at_least(offer.memory_mib, wanted.min_memory_mib),
            lambda offer: _at_least(offer.disk_gib, wanted.min_disk_gib),
            lambda offer: (
                not wanted.regions or any(region_matches(region, offer.region, offer.cloud_region) for region in wanted.regions)
            ),
            lambda offer: offer.cloud not in self.places or offer.cloud_region in self.places[offer.cloud],
            lambda offer: wanted.spot_allowed or not offer.spot,
            lambda offer: True,
            self._quality,
            lambda offer: offer.available is None or offer.available > 0,
            lambda offer: offer.cloud not in self.imageless or self._lane_of(offer) is not Lane.TALOS,
            lambda offer: blocklist.blocked(offer, self.blocks, self.now) is None,
            lambda offer: offer.price_hour is not None,
            lambda offer: offer.seen is None or offer.seen >= self.oldest,
            self._price,
        )

    def _provider(self, offer: Offer) -> bool:
        if offer.cloud not in self.capabilities or offer.cloud not in self.choices:
            return False
        return not self.pool.cloud or self.pool.cloud == offer.cloud

    def _lane_of(self, offer: Offer) -> Lane | None:
        return lane_of(offer, self.pool, self.capabilities[offer.cloud])

    def _lane(self, offer: Offer) -> bool:
        return self._lane_of(offer) is not None

    def _quality(self, offer: Offer) -> bool:
        if not good_enough(offer, self.node_class.quality) or not outlasts(offer, self.pool.expire_after):
            return False
        capability = self.capabilities[offer.cloud]
        if self._lane_of(offer) is Lane.SERVICE:
            return True
        return good_enough(offer, for_nodes(self.choices[offer.cloud].quality, self.node_class.quality, capability.node_quality))

    def _price(self, offer: Offer) -> bool:
        limit = self.pool.max_hourly_price
        return limit is None or (offer.price_hour is not None and offer.price_hour <= limit)


def _at_least(value: int | None, wanted: int | None) -> bool:
    """An unknown value never satisfies a spec."""
    return wanted is None or (value is not None and value >= wanted)


def price_verdict(paid: Decimal, limit: Decimal | None) -> str:
    """The price after the launch against maxHourlyPrice: ok, warn (above it), or jump (above it by more than the tolerance)."""
    if limit is None or paid <= limit:
        return "ok"
    return "warn" if paid <= limit * (1 + PRICE_TOLERANCE) else "jump"


# ---- what to bid where spot is an auction (L-13): a margin above the lowest bid that would win, and never more than may be paid


def bid(min_bid: Decimal, margin: Decimal, cap: Decimal | None = None) -> Decimal:
    """Dollars per hour to offer for the machine without its disk. ``cap``: the most that may be paid for it, None = no bound; below
    ``min_bid`` it leaves no bid that could win, and ``min_bid`` is returned for the caller's own check."""
    wanted = min_bid * (1 + margin)
    return wanted if cap is None else max(min(wanted, cap), min_bid)


def priced(offer: Offer, margin: Decimal, max_hourly_price: Decimal | None) -> Offer:
    """An auction's offer at the price of our bid, disk included; every other offer as it is. When even the lowest bid is above the
    limit, the price is that of the lowest bid, so that the offer leaves for its price."""
    if not offer.spot or offer.min_bid is None:
        return offer
    disk = offer.storage_price_hour
    cap = None if max_hourly_price is None else max_hourly_price - disk
    return dataclasses.replace(offer, price_hour=bid(offer.min_bid, margin, cap) + disk)


# ---- what the clouds have to be asked so that no offer is missed that a desired pool could take. The union over the pools: a restriction
# stays only as far as every pool has it. Rules that a search cannot express (regions, quality, blocks) are left to ``offers.select``,
# which checks everything again

_T = t.TypeVar("_T")
_COUNTS = range(1, 33)  # GPUs in one machine, to find out which of them number operators allow


def query_of(specs: Specs, cloud: str = "") -> OfferQuery:
    """The question for one cloud, "" = for any. Pools of which no machine is wanted do not count, unless no numbers are given at all.

    Without a pool that would take the cloud the question is unrestricted.
    """
    wanted = [pool for pool in specs.pools if not specs.nodes or specs.nodes.get(pool.key, 0) > 0]
    asked = [
        _one(pool, node_class)
        for pool in wanted
        if (node_class := specs.classes.get(pool.node_class)) is not None and takes(pool, node_class, cloud)
    ]
    return functools.reduce(_union, asked) if asked else OfferQuery()


def takes(pool: Pool, node_class: NodeClass, cloud: str) -> bool:
    """Whether the pool may rent from the cloud."""
    if not cloud:
        return True
    named = any(choice.cloud == cloud and choice.enabled for choice in node_class.clouds)
    return named and pool.cloud in ("", cloud) and all(_says(requirement, cloud) for requirement in _on(pool, PROVIDER_LABEL))


def _one(pool: Pool, node_class: NodeClass) -> OfferQuery:
    return OfferQuery(
        models=_models(pool, node_class),
        gpu_counts=_counts(pool, node_class),
        min_gpu_memory_mib=_memory(pool, node_class),
        max_price_hour=pool.max_hourly_price,
        disk_gib=requirements.wanted_gib(node_class),
        spot=spot_wanted(pool, node_class),
        lanes=accepted_lanes(pool),
        rent_seconds=pool.expire_after,
    )


def _union(first: OfferQuery, second: OfferQuery) -> OfferQuery:
    return OfferQuery(
        models=_both(first.models, second.models),
        gpu_counts=_both(first.gpu_counts, second.gpu_counts),
        min_gpu_memory_mib=_least(first.min_gpu_memory_mib, second.min_gpu_memory_mib),
        max_price_hour=_most(first.max_price_hour, second.max_price_hour),
        disk_gib=max(first.disk_gib, second.disk_gib),
        spot=first.spot if first.spot is second.spot else None,
        lanes=_both(first.lanes, second.lanes),
        rent_seconds=_least(first.rent_seconds, second.rent_seconds),
    )


def _both(first: tuple[_T, ...], second: tuple[_T, ...]) -> tuple[_T, ...]:
    """Either's values; nothing when one of them restricts nothing."""
    return tuple(dict.fromkeys((*first, *second))) if first and second else ()


def _least(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else min(first, second)


def _most(first: Decimal | None, second: Decimal | None) -> Decimal | None:
    return None if first is None or second is None else max(first, second)


# ---- one pool's own words


def _on(pool: Pool, key: str) -> list[Requirement]:
    return [requirement for requirement in pool.requirements if requirement.key == key]


def _says(requirement: Requirement, cloud: str) -> bool:
    """Whether a requirement on the cloud's name lets this cloud pass."""
    return requirements.met(requirement, _probe(cloud=cloud))


def _probe(**facts: t.Any) -> Offer:
    """An offer of which nothing is known but ``facts``, to try a requirement on."""
    usual: dict[str, t.Any] = {"cloud": "", "id": "", "instance_type": "", "model": "", "gpu_count": 0, "price_hour": None}
    return Offer(**{**usual, **facts})


def _models(pool: Pool, node_class: NodeClass) -> tuple[str, ...]:
    """Canonical names of every model that may serve; a spec without form (A100) means all forms of it."""
    lists = [requirement.values for requirement in _on(pool, GPU_TYPE_LABEL) if requirement.operator == "In"]
    lists += [node_class.gpu_types] if node_class.gpu_types else []
    if not lists:
        return ()
    return tuple(
        name
        for name in gpu_models.known()
        if all(any(requirements.is_model(spec, name, None) for spec in specs) for specs in lists)
    )


def _counts(pool: Pool, node_class: NodeClass) -> tuple[int, ...]:
    """Numbers of GPUs that may serve, where the pool says so."""
    rules = _on(pool, GPU_COUNT_LABEL)
    if node_class.gpu_count is None and not any(rule.operator == "In" for rule in rules):
        return ()
    numbers = _COUNTS if node_class.gpu_count is None else (node_class.gpu_count,)
    return tuple(number for number in numbers if all(requirements.met(rule, _probe(gpu_count=number)) for rule in rules))


def _memory(pool: Pool, node_class: NodeClass) -> int | None:
    """The least memory per GPU in MiB."""
    bounds = [node_class.gpu_memory_mib] if node_class.gpu_memory_mib is not None else []
    for requirement in _on(pool, GPU_MEMORY_LABEL):
        if requirement.operator in ("Gt", "Gte", "In"):
            numbers = [int(text) for text in requirement.values if text.isdecimal()]
            if numbers and len(numbers) == len(requirement.values):
                bounds.append(min(numbers) + (1 if requirement.operator == "Gt" else 0))
    return max(bounds, default=None)


def spot_wanted(pool: Pool, node_class: NodeClass) -> bool | None:
    """Whether the pool takes interruptible machines only, or none; None where both will do, or neither."""
    kinds = [
        spot
        for spot in ((False, True) if node_class.spot_allowed else (False,))
        if all(requirements.met(requirement, _probe(spot=spot)) for requirement in _on(pool, SPOT_LABEL))
    ]
    return kinds[0] if len(kinds) == 1 else None
