# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits on machines, money and GPUs (L-16). All are inclusive; everything that may be billed counts."""

from __future__ import annotations

import dataclasses
import typing as t
from decimal import Decimal

from ...model import Claim, NodeClass, Offer, Pool
from ...model.defaults import Settings
from ...model.resources import AMD_GPU, NVIDIA_GPU
from ..claims.record import counts
from ..offers import gpu_models

RESOURCE_OF_VENDOR = {"nvidia": NVIDIA_GPU, "amd": AMD_GPU}


def gpu_resource(model: str) -> str:
    """The Kubernetes resource name under which a model's device plugin offers its GPUs."""
    return RESOURCE_OF_VENDOR.get(gpu_models.vendor(model) or "nvidia", NVIDIA_GPU)


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """What is used of a limit: machines, dollars per hour, GPUs by resource name."""

    nodes: int = 0
    cost: Decimal = Decimal(0)
    gpus: t.Mapping[str, int] = dataclasses.field(default_factory=dict)

    def plus(self, offer: Offer, price: Decimal) -> Use:
        """With one more machine like ``offer`` at ``price``."""
        resource = gpu_resource(offer.model)
        more = {**self.gpus, resource: self.gpus.get(resource, 0) + offer.gpu_count}
        return Use(self.nodes + 1, self.cost + price, more)

    def minus(self, offer: Offer, price: Decimal) -> Use:
        """Without one machine like ``offer`` at ``price``, which it has."""
        resource = gpu_resource(offer.model)
        return Use(self.nodes - 1, self.cost - price, {**self.gpus, resource: self.gpus[resource] - offer.gpu_count})


@dataclasses.dataclass(frozen=True, slots=True)
class Reserved:
    """Everything reserved so far, in all, per class and per pool. Immutable: each reservation makes a new one."""

    total: Use = Use()
    classes: t.Mapping[str, Use] = dataclasses.field(default_factory=dict)
    pools: t.Mapping[str, Use] = dataclasses.field(default_factory=dict)

    def plus(self, offer: Offer, price: Decimal, node_class: str, pool: str) -> Reserved:
        """With one more machine. Empty class or pool = unknown; it then counts in the total only."""
        classes, pools = dict(self.classes), dict(self.pools)
        if node_class:
            classes[node_class] = classes.get(node_class, Use()).plus(offer, price)
        if pool:
            pools[pool] = pools.get(pool, Use()).plus(offer, price)
        return Reserved(self.total.plus(offer, price), classes, pools)

    def without(self, offer: Offer, price: Decimal, node_class: str, pool: str) -> Reserved:
        """Without one machine that is counted."""
        classes, pools = dict(self.classes), dict(self.pools)
        classes[node_class] = classes[node_class].minus(offer, price)
        pools[pool] = pools[pool].minus(offer, price)
        return Reserved(self.total.minus(offer, price), classes, pools)


def reserved(claims: t.Iterable[Claim]) -> Reserved:
    """What the claims reserve: all but Failed ones that certainly never had a machine."""
    held = Reserved()
    for claim in claims:
        if counts(claim):
            held = held.plus(claim.offer, claim.price, claim.node_class, claim.pool)
    return held


def room(offer: Offer, pool: Pool, node_class: NodeClass, held: Reserved, settings: Settings) -> str:
    """Why one more machine like ``offer`` does not fit (limit:maxNodes, limit:maxHourlyCost ...); empty when it fits."""
    if offer.price_hour is None:
        return "price unknown"
    in_class = held.classes.get(node_class.name, Use()).plus(offer, offer.price_hour)
    in_pool = held.pools.get(pool.key, Use()).plus(offer, offer.price_hour)
    in_all = held.total.plus(offer, offer.price_hour)
    resource = gpu_resource(offer.model)
    checks: tuple[tuple[str, int | Decimal, int | Decimal | None], ...] = (
        ("limit:maxNodes", in_class.nodes, node_class.max_nodes),
        ("limit:maxHourlyCost", in_class.cost, node_class.max_hourly_cost),
        (f"limit:{resource}", in_class.gpus[resource], node_class.resources.get(resource)),
        ("limit:pool.maxNodes", in_pool.nodes, pool.max_nodes),
        (f"limit:pool.{resource}", in_pool.gpus[resource], pool.resources.get(resource)),
        ("limit:max_nodes_total", in_all.nodes, settings.max_nodes_total),
        ("limit:max_hourly_total", in_all.cost, settings.max_hourly_total),
    )
    return next((name for name, used, limit in checks if limit is not None and used > limit), "")


def may_switch(
    claim: Claim,
    price: Decimal | None,
    claims: t.Iterable[Claim],
    node_class: NodeClass,
    pool: Pool | None,
    *,
    offer: Offer | None = None,
    settings: Settings | None = None,
) -> str:
    """Why a claim that is being launched must not go over to ``price`` (and ``offer``, if it is of another size); empty = it may.

    ``claims`` are all claims as stored now; the claim itself is counted with the new price instead of its own.
    """
    others = reserved(other for other in claims if other.name != claim.name)
    wanted = dataclasses.replace(offer or claim.offer, price_hour=price)
    if pool is None:
        pool = Pool(*(claim.pool.partition("/")[::2]), node_class=node_class.name)
    elif pool.max_hourly_price is not None and (price is None or price > pool.max_hourly_price):
        return "maxHourlyPrice"
    return room(wanted, pool, node_class, others, settings or Settings())
