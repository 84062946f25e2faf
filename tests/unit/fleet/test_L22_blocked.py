# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-22: what the preflight found is an input of the decision (``Specs.blocked``), for each class and pool."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Plan, Pool, Specs
from hypothesis import given
from hypothesis import strategies as st

from .build import decide, node_class, of, offer, pool, seen, specs
from .test_L17_autoscale import ONE, asks, scale, world

WHY = "GPUNodeClass c: machine.systemd is no field of Talos"
LAUNCHING = ["provision", "everything", "autoscale"]


def without(wanted: Specs, **blocked: str) -> Specs:
    """The specs with what the preflight found; ``p`` stands for pool default/p, other names for classes."""
    keys = {one.name: one.key for one in wanted.pools}
    return dataclasses.replace(wanted, blocked={keys.get(name, name): why for name, why in blocked.items()})


def pools_of(found: Plan) -> list[str]:
    return sorted(one.pool for one in of(found, "launch"))


def market(number: int = 4) -> t.Any:
    return seen(offers=tuple(offer("0.42", id=f"o{one}") for one in range(number)))


@pytest.mark.parametrize("mode", LAUNCHING)
@pytest.mark.parametrize("name", ["c", "p"])
def test_L22_a_blocked_class_or_pool_launches_nothing_and_says_why(mode: str, name: str) -> None:
    found = decide(market(), without(specs(pool(min_nodes=1)), **{name: WHY}), mode)
    assert not of(found, "launch")
    assert [one.reason for one in found.shortfall] == [f"a machine could not join: {WHY}"]
    assert bool(found.problems) == (mode == "autoscale"), "elsewhere the shortfall is the problem of the run"


@pytest.mark.parametrize("mode", LAUNCHING)
@pytest.mark.parametrize("name", ["c", "p"])
def test_L22_another_pool_goes_on(mode: str, name: str) -> None:
    """The class of p is blocked, or p alone; q is of another class."""
    both = specs(pool(min_nodes=1), pool("q", node_class="d", min_nodes=1), classes=[node_class(), node_class("d")])
    found = decide(market(), without(both, **{name: WHY}), mode)
    assert pools_of(found) == ["default/q"]
    assert [(one.pool, WHY in one.reason) for one in found.shortfall] == [("default/p", True)]


def test_L22_a_blocked_pool_leaves_others_of_its_class_alone() -> None:
    both = specs(pool(min_nodes=1), pool("q", min_nodes=1))
    assert pools_of(decide(market(), without(both, p=WHY), "autoscale")) == ["default/q"]
    assert pools_of(decide(market(), without(both, c=WHY), "autoscale")) == []


def test_L22_a_pod_is_served_by_the_pool_that_is_not_blocked() -> None:
    """The heavier pool would be chosen. That it is blocked is no problem of the run while another one serves the pod."""
    both = specs(pool(weight=90), pool("q", node_class="d"), classes=[node_class(), node_class("d")])
    assert pools_of(scale(world(asks(), offers=(ONE,)), both)) == ["default/p"]
    found = scale(world(asks(), offers=(ONE,)), without(both, c=WHY))
    assert pools_of(found) == ["default/q"] and not found.problems


def test_L22_a_pod_that_only_a_blocked_pool_serves_has_the_reason_and_the_run_a_problem() -> None:
    found = scale(world(asks(), offers=(ONE,)), without(specs(pool()), c=WHY))
    assert not of(found, "launch") and any(WHY in one for one in found.problems)
    assert [WHY in one.reason for one in found.waiting] == [True]


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=4),
    st.sets(st.sampled_from(["p0", "p1", "p2", "p3", "c0", "c1"])),
    st.sampled_from(LAUNCHING),
)
def test_L22_only_blocked_pools_lose_their_launches(floors: list[int], names: set[str], mode: str) -> None:
    """Each pool launches what it launches without a block, or nothing if its class or itself is blocked."""
    pools: list[Pool] = [pool(f"p{i}", node_class=f"c{i % 2}", min_nodes=floor) for i, floor in enumerate(floors)]
    free = specs(*pools, classes=[node_class("c0"), node_class("c1")])
    wanted = without(free, **dict.fromkeys(names, WHY))
    expected = [key for key in pools_of(decide(market(8), free, mode)) if not {key.split("/")[1], f"c{int(key[-1]) % 2}"} & names]
    assert pools_of(decide(market(8), wanted, mode)) == expected
