# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a cloud is asked for is never narrower than what some pool would take."""

from __future__ import annotations

from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import CloudChoice, Lane, OfferQuery, Pool, Requirement
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers import gpu_models
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers.ranking import query_of, select
from hypothesis import given
from hypothesis import strategies as st

from .build import CAPABILITIES, NOON, node_class, offer, pool, specs


def needs(key: str, operator: str, *values: str) -> Requirement:
    return Requirement(key, operator, values)


def test_L13_one_pool_is_asked_for_as_it_says() -> None:
    wanted = pool(
        requirements=(
            needs("tgp.io/gpu-type", "In", "A100 80GB", "RTX4090"),
            needs("tgp.io/gpu-count", "In", "2", "4", "8"),
            needs("tgp.io/gpu-count", "Lt", "8"),
            needs("tgp.io/gpu-memory", "Gte", "24576"),
        ),
        max_hourly_price=Decimal("4.00"),
        lanes=(Lane.KUBELET,),
        expire_after=7200,
    )
    asked = query_of(specs(wanted, classes=[node_class(min_disk_gib=200)]))
    assert asked == OfferQuery(
        models=("A100", "A100-PCIE", "A100-SXM", "RTX4090"),
        gpu_counts=(2, 4),
        min_gpu_memory_mib=24576,
        max_price_hour=Decimal("4.00"),
        disk_gib=200,
        spot=False,
        lanes=(Lane.KUBELET,),
        rent_seconds=7200,
    )


def test_L13_class_and_pool_narrow_together() -> None:
    wanted = pool(requirements=(needs("tgp.io/gpu-type", "In", "A100-SXM", "H100"),))
    asked = query_of(specs(wanted, classes=[node_class(gpu_types=("A100",), gpu_count=8, gpu_memory_mib=40960, spot_allowed=True)]))
    assert (asked.models, asked.gpu_counts, asked.min_gpu_memory_mib, asked.spot) == (("A100-SXM",), (8,), 40960, None)


@pytest.mark.parametrize(("values", "spot"), [(("true",), True), (("false",), False), (("true", "false"), None)])
def test_L13_spot_alone_may_be_asked_for(values: tuple[str, ...], spot: bool | None) -> None:
    wanted = pool(requirements=(needs("tgp.io/spot", "In", *values),))
    assert query_of(specs(wanted, classes=[node_class(spot_allowed=True)])).spot is spot


def test_L13_two_pools_are_asked_for_at_once() -> None:
    small = pool("small", node_class="s", max_hourly_price=Decimal("0.50"), expire_after=3600)
    large = pool("large", node_class="l", max_hourly_price=Decimal("9.00"), expire_after=None)
    classes = [
        node_class("s", gpu_types=("RTX4090",), gpu_count=1, gpu_memory_mib=24576, min_disk_gib=100),
        node_class("l", gpu_types=("H100-SXM",), gpu_count=8, gpu_memory_mib=81920, spot_allowed=True),
    ]
    asked = query_of(specs(small, large, classes=classes))
    assert asked.models == ("RTX4090", "H100-SXM") and asked.gpu_counts == (1, 8)
    assert asked.min_gpu_memory_mib == 24576 and asked.max_price_hour == Decimal("9.00")
    assert asked.disk_gib == 100 and asked.spot is None and asked.rent_seconds is None
    only = query_of(specs(small, large, classes=classes, small=1))
    assert only.models == ("RTX4090",) and only.rent_seconds == 3600
    day = pool("day", node_class="l", expire_after=86400)
    assert query_of(specs(small, day, classes=classes)).rent_seconds == 3600, "select holds each pool's own time against the offers"


def test_L13_a_pool_without_a_wish_takes_the_restriction_away() -> None:
    open_pool = pool("any", node_class="any")
    named = pool("named", max_hourly_price=Decimal("1"), requirements=(needs("tgp.io/gpu-type", "In", "A10"),))
    asked = query_of(specs(open_pool, named, classes=[node_class(), node_class("any", spot_allowed=True)]))
    assert asked == OfferQuery(lanes=(Lane.TALOS, Lane.KUBELET))


def test_a_cloud_is_asked_for_the_pools_that_would_take_it() -> None:
    here = pool("here", node_class="v", requirements=(needs("tgp.io/gpu-type", "In", "RTX4090"),))
    there = pool("there", node_class="l", requirements=(needs("tgp.io/gpu-type", "In", "H100"),))
    other = pool("other", node_class="v", requirements=(needs("tgp.io/provider", "In", "lambda"),))
    off = CloudChoice("vast", enabled=False)
    classes = [node_class("v", ("vast", "lambda")), node_class("l", ("lambda", off))]
    assert query_of(specs(here, there, other, classes=classes), "vast").models == ("RTX4090",)
    assert query_of(specs(here, there, classes=classes), "lambda").models == (
        "RTX4090", "H100", "H100-PCIE", "H100-SXM", "H100-NVL"
    )  # fmt: skip
    assert query_of(specs(there, classes=classes), "vast") == OfferQuery()


_models = st.sampled_from(["A10", "A100", "A100 80GB", "A100-SXM", "RTX 4090", "H100"])
_rules = st.one_of(
    st.builds(lambda names: needs("tgp.io/gpu-type", "In", *names), st.lists(_models, min_size=1, max_size=2)),
    st.builds(lambda name: needs("tgp.io/gpu-type", "NotIn", name), _models),
    st.builds(lambda op, n: needs("tgp.io/gpu-count", op, str(n)), st.sampled_from(["In", "Gt", "Lt", "Gte"]), st.integers(1, 8)),
    st.builds(
        lambda op, n: needs("tgp.io/gpu-memory", op, str(n * 8192)), st.sampled_from(["In", "Gt", "Gte"]), st.integers(1, 10)
    ),
    st.just(needs("tgp.io/spot", "In", "true")),
)
_prices = st.decimals("0.1", "9", places=2)


@st.composite
def _pools(draw: st.DrawFn) -> Pool:
    return pool(
        draw(st.sampled_from("abc")),
        requirements=tuple(draw(st.lists(_rules, max_size=3))),
        max_hourly_price=draw(st.none() | _prices),
    )


@given(
    st.lists(_pools(), min_size=1, max_size=3, unique_by=lambda one: one.name),
    st.none() | st.lists(_models, min_size=1, max_size=2),
    st.booleans(),
    st.sampled_from(gpu_models.known()),
    st.sampled_from([24576, 40960, 81920]),
    st.integers(1, 8),
    _prices,
    st.booleans(),
)
def test_L13_nothing_that_a_pool_takes_is_outside_of_the_question(
    pools: list[Pool], types: list[str] | None, allowed: bool, model: str, memory: int, count: int, price: Decimal, spot: bool
) -> None:
    group = node_class(gpu_types=tuple(types or ()), spot_allowed=allowed)
    asked = query_of(specs(*pools, classes=[group]))
    thing = offer(str(price), model=model, gpu_memory_mib=memory, gpu_count=count, spot=spot)
    taken = any(select([thing], one, group, CAPABILITIES, Settings(), NOON).candidates for one in pools)
    inside = (
        (not asked.models or model in asked.models)
        and (not asked.gpu_counts or count in asked.gpu_counts)
        and (asked.min_gpu_memory_mib is None or memory >= asked.min_gpu_memory_mib)
        and (asked.max_price_hour is None or price <= asked.max_price_hour)
        and asked.spot in (None, spot)
    )
    assert inside or not taken
