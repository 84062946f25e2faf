# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the clouds have to be asked so that no offer is missed that a wished pool could take.

The union over the pools: a restriction stays only as far as every pool has it. Rules that a search cannot express (regions, quality,
blocks) are left to ``offers.select``, which checks everything again.
"""

from __future__ import annotations

import functools
import typing as t
from decimal import Decimal

from ...model import NodeClass, Offer, OfferQuery, Pool, Requirement, Wishes
from ...model.labels import GPU_COUNT_LABEL, GPU_MEMORY_LABEL, GPU_TYPE_LABEL, PROVIDER_LABEL, SPOT_LABEL
from . import gpu_models, requirements
from .ranking import accepted_lanes

_T = t.TypeVar("_T")
_COUNTS = range(1, 33)  # GPUs in one machine, to find out which of them number operators allow


def query_of(wishes: Wishes, cloud: str = "") -> OfferQuery:
    """The question for one cloud, "" = for any. Pools of which no machine is wanted do not count, unless no numbers are given at all.

    Without a pool that would take the cloud the question is unrestricted.
    """
    wanted = [pool for pool in wishes.pools if not wishes.nodes or wishes.nodes.get(pool.key, 0) > 0]
    asked = [
        _one(pool, node_class)
        for pool in wanted
        if (node_class := wishes.classes.get(pool.node_class)) is not None and takes(pool, node_class, cloud)
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


def _union(one: OfferQuery, other: OfferQuery) -> OfferQuery:
    return OfferQuery(
        models=_both(one.models, other.models),
        gpu_counts=_both(one.gpu_counts, other.gpu_counts),
        min_gpu_memory_mib=_least(one.min_gpu_memory_mib, other.min_gpu_memory_mib),
        max_price_hour=_most(one.max_price_hour, other.max_price_hour),
        disk_gib=max(one.disk_gib, other.disk_gib),
        spot=one.spot if one.spot is other.spot else None,
        lanes=_both(one.lanes, other.lanes),
        rent_seconds=_least(one.rent_seconds, other.rent_seconds),
    )


def _both(one: tuple[_T, ...], other: tuple[_T, ...]) -> tuple[_T, ...]:
    """Either's values; nothing when one of them restricts nothing."""
    return tuple(dict.fromkeys((*one, *other))) if one and other else ()


def _least(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else min(one, other)


def _most(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    return None if one is None or other is None else max(one, other)


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
    """Canonical names of every model that may serve; a wish without form (A100) means all forms of it."""
    lists = [requirement.values for requirement in _on(pool, GPU_TYPE_LABEL) if requirement.operator == "In"]
    lists += [node_class.gpu_types] if node_class.gpu_types else []
    if not lists:
        return ()
    return tuple(
        name for name in gpu_models.known() if all(any(requirements.is_model(wish, name, None) for wish in one) for one in lists)
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
