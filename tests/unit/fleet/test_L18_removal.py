# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-18: how many idle nodes go, and which; L-21: own machines."""

from __future__ import annotations

import dataclasses
import typing as t
from decimal import Decimal

from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    CloudChoice,
    CloudView,
    InstanceState,
    Machine,
    MeshChoice,
    Offer,
    Phase,
    Plan,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.labels import IDLE_SINCE_ANNOTATION
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.voluntary import Candidate, choose

from .build import at, claim, decide, instance, node, node_class, of, offer, pod, pool, seen, specs

LONG_IDLE = {IDLE_SINCE_ANNOTATION: "2026-08-20T11:20:00Z"}


def name(place: int) -> str:
    return f"tgp-a1b2c3d4-p-0000{place}"


def idle_fleet(*prices: str, wanted: t.Any = None, busy: tuple[int, ...] = (), **settings: t.Any) -> list[str]:
    """Prices of the machines that go, in order; all are idle for 40 minutes but ``busy`` ones."""
    claims = tuple(claim(name(place), offer=offer(price)) for place, price in enumerate(prices))
    nodes = tuple(node(made.name, annotations=LONG_IDLE) for made in claims)
    machines = tuple(instance(made.name, price_hour=made.offer.price_hour) for made in claims)
    pods = tuple(pod(f"job-{place}", node=name(place)) for place in busy)
    found = decide(seen(claims=claims, nodes=nodes, instances=machines, pods=pods), specs(wanted or pool()), **settings)
    order = choose([Candidate(one, at("11:20")) for one in claims], len(claims), 0).go
    going = {action.name for action in of(found, "destroy")}
    return [str(one.offer.price_hour) for one in order if one.name in going]


def test_L18_min_nodes_keeps_the_cheapest() -> None:
    assert idle_fleet("0.39", "0.60", "0.42", wanted=pool(min_nodes=1)) == ["0.60", "0.42"]
    assert idle_fleet("0.39", "0.60", "0.42") == ["0.60", "0.42", "0.39"]


def test_L18_busy_nodes_fill_the_floor() -> None:
    assert idle_fleet("0.39", "0.60", "0.42", wanted=pool(min_nodes=1), busy=(1,)) == ["0.42", "0.39"]


def test_L18_equal_prices_keep_the_youngest() -> None:
    old, young = claim(name(1), launch_started=at("10:00")), claim(name(2), launch_started=at("11:00"))
    chosen = choose([Candidate(young, at("11:20")), Candidate(old, at("11:20"))], 2, 1)
    assert chosen.go == (old,) and chosen.kept == (young,)


def test_L18_the_dearest_goes_before_the_largest() -> None:
    large, dear = claim(name(1), offer=offer("0.40", gpu_count=8)), claim(name(2), offer=offer("0.41", gpu_count=1))
    assert choose([Candidate(large, at("11:10")), Candidate(dear, at("11:20"))], 2, 0).go == (dear, large)


def test_L18_most_gpus_first_then_longest_idle_then_name() -> None:
    sizes = [claim(name(count), offer=offer("0", gpu_count=count)) for count in (1, 2, 4)]
    chosen = choose([Candidate(one, at("11:20")) for one in sizes], 3, 0)
    assert [one.offer.gpu_count for one in chosen.go] == [4, 2, 1]
    one_by_one = choose([Candidate(one, at("11:20")) for one in sizes], 3, 0, 1)
    assert [one.offer.gpu_count for one in one_by_one.go] == [4] and len(one_by_one.later) == 2
    same = [claim(name(place)) for place in (3, 1, 2)]
    idle_times = {name(1): at("11:20"), name(2): at("11:10"), name(3): at("11:20")}
    assert [one.name for one in choose([Candidate(one, idle_times[one.name]) for one in same], 3, 0).go] == [
        name(2),
        name(1),
        name(3),
    ]


def test_L18_max_remove_per_run() -> None:
    assert idle_fleet("0.39", "0.60", max_remove_per_run=1) == ["0.60"]


def test_L18_nothing_goes_while_the_same_shape_joins() -> None:
    ready, joining = claim(name(1)), claim(name(2), Phase.JOINING, launch_started=at("11:50"))
    observed = {"nodes": (node(name(1), annotations=LONG_IDLE),), "instances": (instance(name(1)), instance(name(2)))}
    assert not of(decide(seen(claims=(ready, joining), **observed)), "destroy")
    other = dataclasses.replace(joining, offer=offer(gpu_count=8))
    assert of(decide(seen(claims=(ready, other), **observed)), "destroy")


def test_L18_a_pool_that_just_grew_is_left_alone_for_ten_minutes() -> None:
    def decided(grew: str) -> bool:
        claims = (claim(name(1)), claim(name(2), initialized=at(grew)))
        nodes = (node(name(1), annotations=LONG_IDLE), node(name(2)))
        found = decide(seen(claims=claims, nodes=nodes, instances=(instance(name(1)), instance(name(2)))))
        return bool(of(found, "destroy"))

    assert not decided("11:50:01")
    assert decided("11:50")


# ---- own machines


def own(count: int, **facts: t.Any) -> Machine:
    return Machine(f"box-{count}", count, f"http://power.example/box-{count}/on", f"http://power.example/box-{count}/off", **facts)


BOXES = (own(4), own(1), own(2))
OWN = node_class(clouds=(CloudChoice("webhook", machines=BOXES),), mesh=MeshChoice(backend="none"))


def box_offer(count: int, available: int = 1) -> Offer:
    return Offer("webhook", f"box-{count}", f"box-{count}", "", count, Decimal(0), available=available, host_id=f"box-{count}")


def box(count: int, state: InstanceState) -> t.Any:
    return instance(f"box-{count}", state, cloud="webhook", id=f"box-{count}", created=None, price_hour=Decimal(0), gpu_count=count)


def boxes(on: tuple[int, ...] = ()) -> dict[str, CloudView]:
    states = {count: InstanceState.RUNNING if count in on else InstanceState.TERMINATED for count in (1, 2, 4)}
    return {
        "webhook": CloudView(
            tuple(box(count, state) for count, state in states.items()),
            tuple(box_offer(count, int(count not in on)) for count in states),
        )
    }


def power(
    now: str = "12:00", claims: tuple[t.Any, ...] = (), mode: str = "provision", on: tuple[int, ...] = (), **facts: t.Any
) -> Plan:
    wanted = facts.pop("wanted", 1)
    return decide(seen(at(now), clouds=boxes(on), claims=claims, **facts), specs(pool(), classes=(OWN,), p=wanted), mode)


def test_L21_the_smallest_machine_goes_on_first_and_gives_the_claim_its_name() -> None:
    assert [action.name for action in of(power(wanted=2), "launch")] == ["box-1", "box-2"]
    launched = of(power(), "launch")[0].claim
    assert launched is not None and (launched.name, launched.node_name, launched.candidates) == ("box-1", "box-1", ())


def test_L21_no_more_machines_than_there_are() -> None:
    found = power(wanted=5)
    assert len(of(found, "launch")) == 3 and found.shortfall[0].missing == 2 and found.shortfall[0].reason == "not available"


def test_L21_a_machine_in_use_or_with_a_ready_node_is_not_off() -> None:
    using = claim("box-1", offer=box_offer(1), cloud="webhook", instance_id="box-1", ids_seen=("box-1",))
    assert [action.name for action in of(power(claims=(using,), on=(1,), wanted=2), "launch")] == ["box-2"]
    by_hand = node("box-1")
    assert [action.name for action in of(power(nodes=(by_hand,)), "launch")] == ["box-2"]


def test_L21_nothing_more_is_sent_while_it_boots() -> None:
    booting = of(power(), "launch")[0].claim
    assert booting is not None
    sent = dataclasses.replace(
        booting, phase=Phase.PROVISIONING, launch_started=at("12:00"), instance_id="box-1", ids_seen=("box-1",)
    )
    for moment in ("12:00:10", "12:00:20", "12:14:59"):
        found = power(moment, (sent,))
        assert not of(found, "launch") and len(of(found, "resume")) == 1
        assert not of(power(moment, (sent,), "reap"), "destroy")
    failed = of(power("12:15", (sent,), "reap"), "destroy")
    assert failed[0].reason == "FailedJoin"


def test_L21_ready_node_makes_it_usable_although_the_node_is_old() -> None:
    sent = claim(
        "box-1",
        Phase.PROVISIONING,
        offer=box_offer(1),
        launch_started=at("12:00"),
        instance_id="box-1",
        ids_seen=("box-1",),
    )
    kept = node("box-1", created=at("08:00"), ready=False)
    waiting = power("12:02", (sent,), "reap", nodes=(kept,))
    assert not of(waiting, "update", "destroy") or of(waiting, "update")[0].claim.registered is None  # type: ignore[union-attr]
    up = power("12:03", (sent,), "reap", on=(1,), nodes=(dataclasses.replace(kept, ready=True),))
    assert of(up, "update")[0].claim.phase is Phase.READY  # type: ignore[union-attr]


def test_L21_a_machine_switched_on_by_hand_is_reported_not_switched_off() -> None:
    findings = power("11:00", mode="reap", on=(2,)).findings
    found = power(mode="reap", on=(2,), findings=findings)
    assert not of(found, "destroy") and [action.reason for action in of(found, "report")] == ["O1"]


def test_L21_largest_idle_machine_goes_first() -> None:
    claims = tuple(
        claim(f"box-{count}", offer=box_offer(count), cloud="webhook", instance_id=f"box-{count}", ids_seen=(f"box-{count}",))
        for count in (1, 2, 4)
    )
    nodes = tuple(node(made.name, annotations=LONG_IDLE, allocatable={"nvidia.com/gpu": 4}) for made in claims)
    found = decide(
        seen(clouds=boxes((1, 2, 4)), claims=claims, nodes=nodes), specs(pool(), classes=(OWN,)), "reap", max_remove_per_run=1
    )
    assert [action.name for action in of(found, "destroy")] == ["box-4"]
