# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-16: limits are inclusive, counted before the call, for everything that may be billed. Cost of a claim."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    CloudChoice,
    CloudView,
    Deletion,
    Machine,
    MeshChoice,
    Offer,
    Phase,
    Placement,
    Plan,
    Pool,
    SpendingBudget,
    Toleration,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.bill import cost
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import claim_cost, read_ledger
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.limits import may_switch, reserved, room
from ansible_collections.tgp.gpu.plugins.module_utils.units.values import print_money

from .build import NOON, at, claim, decide, instance, node, node_class, of, offer, pool, seen, specs
from .pods import waiting

ANYWHERE = Placement(tolerations=(Toleration(operator="Exists"),))


def nine(price: str = "5.50") -> list[object]:
    return [claim(f"tgp-a1b2c3d4-p-0000{place}", offer=offer(price)) for place in range(9)]


def test_L16_cost_limit_is_inclusive() -> None:
    made = node_class(max_hourly_cost=Decimal("50.0"))
    held = reserved(nine())  # type: ignore[arg-type]
    assert held.total.cost == Decimal("49.50")
    assert room(offer("0.51"), pool(), made, held, Settings()) == "limit:maxHourlyCost"
    assert room(offer("0.50"), pool(), made, held, Settings()) == ""


def launched(limit: int, *claims: object, wanted: int = 3, instances: tuple[object, ...] = ()) -> Plan:
    observed = seen(claims=claims, offers=(offer(),), instances=instances)
    return decide(observed, specs(classes=(node_class(max_nodes=limit),), p=wanted), "provision")


def test_L16_terminating_counts_until_it_is_confirmed_gone() -> None:
    ready, joining = claim(), claim("tgp-a1b2c3d4-p-00002", Phase.JOINING, launch_started=at("11:50"))
    ending = claim("tgp-a1b2c3d4-p-00003", Phase.TERMINATING, deletion=Deletion("Empty", at("11:55")))
    full = launched(3, ready, joining, ending)
    assert not of(full, "launch") and full.shortfall[0].reason == "limit:maxNodes"
    assert len(of(launched(3, ready, joining), "launch")) == 1


def test_L16_unknown_outcomes_orphans_and_duplicates_count() -> None:
    lost = claim(phase=Phase.PROVISIONING, launch_started=at("11:55"), unknown_since=at("11:55:30"))
    assert not of(launched(1, lost, wanted=2), "launch")
    orphan = instance("tgp-a1b2c3d4-p-0abcd")
    assert not of(launched(1, wanted=1, instances=(orphan,)), "launch")
    twins = (instance(), instance(id="second", created=at("11:01")))
    assert not of(launched(2, claim(), wanted=2, instances=twins), "launch")


@pytest.mark.parametrize("other", [pool("p-large"), pool("p", namespace="lab")])
def test_L16_an_orphan_counts_for_its_class_beside_a_pool_of_a_like_name(other: Pool) -> None:
    found = decide(
        seen(instances=(instance("tgp-a1b2c3d4-p-0abcd"),), offers=(offer(),)),
        specs(pool(), other, classes=(node_class(max_nodes=1),), p=1),
        "provision",
    )
    assert not of(found, "launch") and found.shortfall[0].reason == "limit:maxNodes"


def test_L16_failed_counts_only_with_a_possible_machine() -> None:
    assert not of(launched(1, claim(phase=Phase.FAILED), wanted=1), "launch")
    assert of(launched(1, claim(phase=Phase.FAILED, launch_started=None), wanted=1), "launch")


def test_L16_heavier_pool_first_then_name() -> None:
    light, heavy = pool("a", weight=10), pool("b", weight=20)
    found = decide(seen(offers=(offer(),)), specs(light, heavy, classes=(node_class(max_nodes=1),), a=1, b=1), "provision")
    assert [action.pool for action in of(found, "launch")] == ["default/b"]
    assert [(one.pool, one.missing, one.reason) for one in found.shortfall] == [("default/a", 1, "limit:maxNodes")]
    equal = decide(seen(offers=(offer(),)), specs(pool("b"), pool("a"), classes=(node_class(max_nodes=1),), a=1, b=1), "provision")
    assert [action.pool for action in of(equal, "launch")] == ["default/a"]


def test_L16_gpu_resources() -> None:
    made = node_class(resources={"nvidia.com/gpu": 8})
    two = offer("1.0", gpu_count=2)
    held = reserved([claim("tgp-a1b2c3d4-p-00001", offer=two), claim("tgp-a1b2c3d4-p-00002", offer=two)])
    assert room(offer("2.0", gpu_count=4), pool(), made, held, Settings()) == ""
    assert room(offer("4.0", gpu_count=8), pool(), made, held, Settings()) == "limit:nvidia.com/gpu"
    assert room(offer("2.0", gpu_count=4, model="MI300X"), pool(), made, held, Settings()) == ""
    found = decide(
        seen(claims=(), offers=(offer("1", gpu_count=16, id="big"), offer("2", gpu_count=4, id="small"))),
        specs(classes=(made,), p=1),
        "provision",
    )
    assert [action.claim.offer.id for action in of(found, "launch") if action.claim] == ["small"]


def test_L16_pool_and_global_limits() -> None:
    held = reserved([claim()])
    assert room(offer(), pool(max_nodes=1), node_class(), held, Settings()) == "limit:pool.maxNodes"
    assert room(offer(), pool(resources={"nvidia.com/gpu": 1}), node_class(), held, Settings()) == "limit:pool.nvidia.com/gpu"
    assert room(offer(), pool(), node_class(), held, Settings(max_nodes_total=1)) == "limit:max_nodes_total"
    assert room(offer(), pool(), node_class(), held, Settings(max_hourly_total=Decimal("0.83"))) == "limit:max_hourly_total"
    assert room(offer(), pool(), node_class(), held, Settings(max_hourly_total=Decimal("0.84"))) == ""


def test_L16_price_paid_counts_instead_of_the_reserved_one() -> None:
    assert reserved([claim(price_paid=Decimal("0.60"))]).total.cost == Decimal("0.60")


def test_L16_a_plan_reserves_one_launch_after_the_other() -> None:
    made = node_class(max_hourly_cost=Decimal("1.00"))
    found = decide(seen(offers=(offer("0.42"),)), specs(classes=(made,), p=5), "provision")
    assert len(of(found, "launch")) == 2
    assert (found.shortfall[0].missing, found.shortfall[0].reason) == (3, "limit:maxHourlyCost")


def test_L16_going_over_to_a_dearer_offer_asks_the_limits_again() -> None:
    made = node_class(max_hourly_cost=Decimal("1.00"))
    mine, other = claim(), claim("tgp-a1b2c3d4-p-00002")
    assert may_switch(mine, Decimal("0.58"), [mine, other], made, pool()) == ""
    assert may_switch(mine, Decimal("0.59"), [mine, other], made, pool()) == "limit:maxHourlyCost"
    assert may_switch(mine, Decimal("0.58"), [mine, other], made, pool(max_hourly_price=Decimal("0.5"))) == "maxHourlyPrice"
    assert may_switch(mine, Decimal("0.58"), [mine, other], made, None) == ""
    assert may_switch(mine, None, [mine], made, None) == "price unknown"


@pytest.mark.parametrize(("granularity", "dollars"), [(1, "0.0169"), (60, "0.0333"), (3600, "1.00")])
def test_L16_cost_with_the_clouds_rounding(granularity: int, dollars: str) -> None:
    assert print_money(cost(Decimal(1), NOON, NOON + timedelta(seconds=61), granularity)) == dollars


def test_L16_cost_is_never_negative_and_nothing_before_a_create_call() -> None:
    assert cost(Decimal(1), NOON, NOON - timedelta(seconds=5)) == 0
    assert claim_cost(claim(phase=Phase.PENDING), at("13:00")) == 0
    assert claim_cost(claim(launch_started=at("12:00")), at("13:00")) == Decimal("0.42")


def test_L16_stock_is_not_promised_twice() -> None:
    scarce, dear = offer("0.40", id="a", available=1), offer("0.50", id="b")
    found = decide(seen(offers=(scarce, dear)), specs(p=2), "provision")
    assert [action.claim.offer.id for action in of(found, "launch") if action.claim] == ["a", "b"]


def test_L14_candidates_follow_in_order_and_are_at_most_25_in_all() -> None:
    many: tuple[Offer, ...] = tuple(offer(f"0.{place + 10}") for place in range(40))
    found = of(decide(seen(offers=many), specs(p=1), "provision"), "launch")[0].claim
    assert found is not None and len(found.candidates) == 24
    prices = [found.offer.price_hour, *(one.price_hour for one in found.candidates)]
    assert prices == sorted(prices)  # type: ignore[type-var]


def test_L16_a_second_choice_never_brings_more_gpus_where_gpus_are_limited() -> None:
    offers = (offer("0.40", id="one"), offer("0.41", id="two", gpu_count=2), offer("0.42", id="three"))
    limited = specs(classes=(node_class(resources={"nvidia.com/gpu": 2}),), p=2)
    for action in of(decide(seen(offers=offers), limited, "provision"), "launch"):
        assert action.claim is not None and [one.id for one in action.claim.candidates] == ["three"]
    free = of(decide(seen(offers=offers), specs(p=1), "provision"), "launch")[0].claim
    assert free is not None and [one.id for one in free.candidates] == ["two", "three"]


@pytest.mark.parametrize(("alive", "free"), [(True, 1), (False, 2)], ids=["works as our node", "switched on by somebody else"])
@pytest.mark.parametrize("mode", ["provision", "autoscale"])
def test_L16_an_own_machine_that_lost_its_claim_counts_while_it_is_our_node(alive: bool, free: int, mode: str) -> None:
    """It gets its claim back in this very run, and must not be one more beside the limit."""
    racks = tuple(Machine(f"rack-{number}", 1, "http://up", "http://down") for number in (1, 2, 3))
    boxes = node_class(clouds=(CloudChoice("webhook", machines=racks),), mesh=MeshChoice("none"), max_nodes=2)
    on = instance("rack-1", cloud="webhook", id="rack-1", created=None, gpu_count=1, price_hour=Decimal("0.30"))
    rest = tuple(offer("0.30", cloud="webhook", id=one.name) for one in racks[1:])
    nodes = (node("rack-1", labels={"tgp.io/instance-id": "rack-1", "tgp.io/nodepool": "p"}),) if alive else ()
    asking = tuple(waiting(f"w-{number}", placement=ANYWHERE) for number in range(4)) if mode == "autoscale" else ()
    observation = seen(clouds={"webhook": CloudView((on,), rest)}, nodes=nodes, pods=asking)
    found = decide(observation, specs(pool(), classes=(boxes,), p=3), mode)
    assert len(of(found, "launch")) == free
    assert [one.reason for one in of(found, "update")] == (["Adopted"] if alive else [])


def test_L16_an_own_machine_that_lost_its_claim_is_on_the_budget() -> None:
    machine = Machine("rack-1", 1, "http://up", "http://down")
    boxes = node_class(clouds=(CloudChoice("webhook", machines=(machine,)), CloudChoice("lambda")))
    on = instance("rack-1", cloud="webhook", id="rack-1", created=at("11:00"), gpu_count=1, price_hour=Decimal("1.00"))
    mine = node("rack-1", labels={"tgp.io/instance-id": "rack-1", "tgp.io/nodepool": "p"})
    clouds = {"webhook": CloudView((on,), ()), "lambda": CloudView((), (offer("0.42"),))}
    budget = SpendingBudget("day", Decimal("1.40"))
    for nodes, launches in (((mine,), 0), ((), 2)):
        found = decide(
            seen(clouds=clouds, nodes=nodes, ledger=read_ledger([])),
            specs(pool(budget=budget), classes=(boxes,), p=2),
            "provision",
        )
        assert len(of(found, "launch")) == launches
