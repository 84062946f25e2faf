# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""WhenUnderutilized (L-5, L-7): which nodes are used too little, and which of them are needless."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Claim,
    CloudView,
    Deletion,
    DisruptionBudget,
    Expression,
    Node,
    NodeTerm,
    Offer,
    OffersNotRead,
    Others,
    Phase,
    Placement,
    Plan,
    Pod,
    PodTerm,
    Pool,
    Spread,
    Taint,
    Toleration,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.reasons import Reason
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.spec_hash import generation
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption import consolidation
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption.consolidation import Use
from hypothesis import given
from hypothesis import strategies as st

from .build import at, claim, decide, instance, node, node_class, of, offer, pod, pool, seen, specs

PACK = pool(consolidation_policy="WhenUnderutilized")
EMPTYING = {"tgp.io/tidy": "yes"}
A, B, C = (f"tgp-a1b2c3d4-p-{letter * 5}" for letter in "abc")


def machine(name: str, price: str = "0.60", gpus: int = 4, **facts: t.Any) -> Claim:
    """One that has been used too little for a long time, as far as it is concerned."""
    return claim(name, offer=offer(price, gpu_count=gpus, id=f"g-{name[-1]}"), **{"underused_since": at("11:30"), **facts})


def work(where: str, gpus: int, number: int = 0, **facts: t.Any) -> Pod:
    tolerant = Placement(tolerations=(Toleration(operator="Exists"),))
    usual = {
        "placement": tolerant,
        "node": where,
        "requests": {"nvidia.com/gpu": gpus},
        "started": at("11:20"),
        "created": at("11:20"),
    }
    return pod(f"job-{where[-1]}-{number}", **{**usual, **facts})


def planned(claims: t.Sequence[Claim], pods: t.Sequence[Pod], wanted: Pool = PACK, **facts: t.Any) -> Plan:
    settings = facts.pop("settings", {})
    usual: dict[str, t.Any] = {
        "claims": claims,
        "nodes": [ready(one) for one in claims],
        "instances": [instance(one.name, price_hour=one.offer.price_hour) for one in claims],
        "pods": pods,
    }
    return decide(seen(facts.pop("now", at("12:00")), **{**usual, **facts}), specs(wanted, classes=(node_class(),)), **settings)


def ready(one: Claim, **facts: t.Any) -> Node:
    return node(one.name, **{"allocatable": {"nvidia.com/gpu": one.offer.gpu_count}, **facts})


def going(found: Plan) -> list[str]:
    return [action.name for action in of(found, "destroy") if action.reason == Reason.UNDERUTILIZED]


def told(found: Plan, name: str = A) -> str:
    return "".join(action.detail for action in of(found, "report") if action.reason == Reason.UNDERUTILIZED and action.name == name)


def claim_of(found: Plan, name: str) -> Claim:
    (action,) = [one for one in of(found, "update", "destroy") if one.name == name]
    assert action.claim is not None
    return action.claim


TWO = (machine(A), machine(B, "0.50"))
HALF_FULL = (work(A, 1), work(B, 2), work(B, 1, 1))


# ---- the worked numbers


def test_L05_a_quarter_used_and_a_place_elsewhere_goes_with_reason_and_price() -> None:
    (action,) = of(planned(TWO, HALF_FULL), "destroy")
    assert (action.name, action.reason, str(action.price_hour)) == (A, "Underutilized", "-0.60")
    assert action.detail == "1 of 4 GPUs are used; its pods fit on other nodes"


def test_L05_no_place_elsewhere_stays() -> None:
    found = planned(TWO, (work(A, 1), work(B, 2), work(B, 2, 1)))
    assert not going(found) and told(found) == "1 of 4 GPUs are used; its pods do not fit on other nodes"


def test_L05_half_used_is_not_below_half() -> None:
    found = planned(TWO, (work(A, 2), work(B, 1), work(B, 1, 1)))
    assert not going(found) and not told(found)
    assert claim_of(found, A).underused_since is None


@pytest.mark.parametrize(
    ("old", "new", "share", "expected"),
    [
        ("0.60", "0.42", "0.3", True),
        ("0.60", "0.43", "0.3", False),
        ("0.60", "0.60", "0", False),
        ("0.60", "0.59", "0", True),
    ],
)
def test_L05_equal_to_the_share_is_cheap_enough(old: str, new: str, share: str, expected: bool) -> None:
    assert consolidation.saves(Decimal(old), Decimal(new), Decimal(share)) is expected


def test_L05_the_threshold_is_strict_and_the_pools() -> None:
    assert Use(1, 4).below(Decimal("0.5")) and not Use(2, 4).below(Decimal("0.5"))
    assert not Use(1, 4).below(Decimal("0.25")) and Use(1, 4).below(Decimal("0.26")) and not Use(0, 0).below(Decimal("0.5"))
    low = dataclasses.replace(PACK, utilization_threshold=Decimal("0.25"))
    assert not going(planned(TWO, HALF_FULL, low))


# ---- when


def test_L05_only_with_the_policy() -> None:
    for policy in ("WhenIdle", "Never"):
        found = planned(TWO, HALF_FULL, pool(consolidation_policy=policy))
        assert not going(found) and not told(found)
    assert not going(planned(TWO, HALF_FULL, dataclasses.replace(PACK, consolidate_after=None)))


def test_L05_the_time_is_kept_in_the_claim_and_begins_when_a_run_first_sees_it() -> None:
    fresh = (machine(A, underused_since=None), machine(B, "0.50", underused_since=None))
    first = planned(fresh, HALF_FULL)
    assert not going(first) and told(first) == "1 of 4 GPUs are used; not yet 10m"
    assert claim_of(first, A).underused_since == at("12:00")
    claims = [claim_of(first, A), claim_of(first, B)]
    second = planned(claims, HALF_FULL, now=at("12:09:59"))
    assert not going(second) and not of(second, "update"), "nothing new to write"
    assert going(planned(claims, HALF_FULL, now=at("12:10"))) == [A]


@pytest.mark.parametrize("event", ["started", "created", "deletion"])
def test_L05_the_last_event_of_a_pod_begins_the_time_anew(event: str) -> None:
    fresh = work(B, 0, 7, node=A, requests={}, **{event: at("11:50:01")})
    facts: dict[str, t.Any] = {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}
    pods = (*HALF_FULL, dataclasses.replace(fresh, **facts))
    assert not going(planned(TWO, pods))
    assert going(planned(TWO, pods, now=at("12:00:01"))) == [A]


def test_L05_a_daemon_that_restarts_begins_nothing() -> None:
    daemon = work(A, 0, 8, requests={}, started=at("11:59"), owner_kind="DaemonSet", owner_api="apps/v1")
    assert going(planned(TWO, (*HALF_FULL, daemon))) == [A]


def test_L03_a_node_that_became_empty_waits_for_its_idle_time() -> None:
    found = planned(TWO, HALF_FULL[1:])
    assert not going(found) and claim_of(found, A).underused_since is None


# ---- which, and where to


def test_L05_dearest_first_and_one_per_run() -> None:
    claims = (machine(A, "0.40"), machine(B, "0.60"), machine(C, "0.50"))
    pods = (work(A, 1), work(B, 1), work(C, 1))
    found = planned(claims, pods)
    assert going(found) == [B]
    wide = dataclasses.replace(PACK, disruption_budgets=(DisruptionBudget("100%"),))
    assert going(planned(claims, pods, wide)) == [B]
    assert going(planned(claims, pods, wide, settings={"max_remove_per_run": 3})) == [B, C], "the third takes their pods"


def test_L05_a_node_that_takes_pods_stays_in_that_run() -> None:
    wide = dataclasses.replace(PACK, disruption_budgets=(DisruptionBudget("100%"),))
    found = planned((machine(A), machine(B, "0.50")), (work(A, 1), work(B, 1)), wide, settings={"max_remove_per_run": 5})
    assert going(found) == [A] and "it takes the pods of another node" in told(found, B)


def test_L05_pods_that_were_moved_in_thought_take_their_room() -> None:
    """Two nodes with a pod of one each, a third with one free GPU: only one of them goes."""
    claims = (machine(A, "0.70"), machine(B, "0.60"), machine(C, "0.50"))
    pods = tuple(dataclasses.replace(one, placement=Placement()) for one in (work(A, 1), work(B, 1), work(C, 3)))
    wide = dataclasses.replace(PACK, disruption_budgets=(DisruptionBudget("100%"),))
    blocked = [ready(claims[0]), ready(claims[1], taints=(Taint("only", "b", "NoSchedule"),)), ready(claims[2])]
    found = planned(claims, pods, wide, nodes=blocked, settings={"max_remove_per_run": 5})
    assert going(found) == [A] and "do not fit" in told(found, B)


@pytest.mark.parametrize(
    "facts",
    [
        {"ready": False},
        {"unschedulable": True},
        {"taints": (Taint("tgp.io/disrupted", "Empty", "NoSchedule"),)},
        {"taints": (Taint("nobody", "", "NoSchedule"),)},
    ],
)
def test_L05_pods_go_only_where_they_may(facts: dict[str, t.Any]) -> None:
    strict = tuple(dataclasses.replace(one, placement=Placement()) for one in HALF_FULL)
    assert not going(planned(TWO, strict, nodes=[ready(TWO[0]), ready(TWO[1], **facts)]))
    assert going(planned(TWO, strict)) == [A]


def test_L05_never_onto_nodes_that_are_not_ours_or_on_their_way_out() -> None:
    foreign = node("worker-1", labels={}, allocatable={"nvidia.com/gpu": 8})
    alone = planned(TWO[:1], HALF_FULL[:1], nodes=[ready(TWO[0]), foreign])
    assert not going(alone) and "do not fit" in told(alone)
    leaving = dataclasses.replace(TWO[1], phase=Phase.TERMINATING, deletion=Deletion("Manual", at("11:55")))
    assert not going(planned((TWO[0], leaving), HALF_FULL))
    expired = dataclasses.replace(PACK, expire_after=2 * 3600, disruption_budgets=(DisruptionBudget("100%"),))
    assert not going(planned((TWO[0], dataclasses.replace(TWO[1], launch_started=at("10:00"))), HALF_FULL, expired))


def test_L05_cpu_and_memory_count_as_far_as_they_are_known() -> None:
    hungry = work(A, 1, requests={"nvidia.com/gpu": 1, "cpu": 4000})
    room = {"nvidia.com/gpu": 4, "cpu": 8000}
    nodes = [ready(TWO[0], allocatable=room), ready(TWO[1], allocatable=room)]
    others = [dataclasses.replace(one, requests={**one.requests, "cpu": 2000}) for one in HALF_FULL[1:]]
    assert going(planned(TWO, (hungry, *others), nodes=nodes)) == [A]
    others = [dataclasses.replace(one, requests={**one.requests, "cpu": 2001}) for one in HALF_FULL[1:]]
    assert not going(planned(TWO, (hungry, *others), nodes=nodes))


def test_L18_min_nodes_protects() -> None:
    assert not going(planned(TWO, HALF_FULL, dataclasses.replace(PACK, min_nodes=2)))
    assert "kept for minNodes 2" in told(planned(TWO, HALF_FULL, dataclasses.replace(PACK, min_nodes=2)))
    assert going(planned(TWO, HALF_FULL, dataclasses.replace(PACK, min_nodes=1))) == [A]


def test_L18_nothing_goes_while_the_pool_grows() -> None:
    joining = machine(C, phase=Phase.JOINING, launch_started=at("11:55"))
    found = planned((*TWO, joining), HALF_FULL, nodes=[ready(one) for one in TWO])
    assert not going(found) and "is still joining" in told(found)
    young = (TWO[0], dataclasses.replace(TWO[1], initialized=at("11:50:01")))
    assert not going(planned(young, HALF_FULL))


def test_L06_budgets_of_underutilized() -> None:
    closed = dataclasses.replace(PACK, disruption_budgets=(DisruptionBudget("0", ("Underutilized",)),))
    found = planned(TWO, HALF_FULL, closed)
    assert not going(found) and told(found).endswith("kept by disruption budget 0")
    other = dataclasses.replace(PACK, disruption_budgets=(DisruptionBudget("0", ("Drifted", "Empty")),))
    assert going(planned(TWO, HALF_FULL, other)) == [A]


def test_L17_nothing_is_packed_closer_while_pods_wait_for_a_place() -> None:
    hungry = work(A, 1, 9, node="", phase="Pending", waiting="Unschedulable", started=None)
    found = planned(TWO, (*HALF_FULL, hungry))
    assert not going(found) and "pod default/job-a-9 waits for a place" in told(found)


def test_L05_unknown_pods_let_nothing_go() -> None:
    observed = seen(claims=TWO, nodes=[ready(one) for one in TWO], instances=[instance(one.name) for one in TWO], pods=None)
    assert not of(decide(observed, specs(PACK)), "destroy")


# ---- pods that must not be moved (L-7)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"annotations": {"tgp.io/do-not-disrupt": "true"}}, "hold: tgp.io/do-not-disrupt"),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}, "hold: "),
        ({"owner_kind": "", "owner_api": ""}, "unmanaged"),
        ({"empty_dir": True}, "local-data"),
        ({"empty_dir": True, "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}, ""),
        ({"annotations": {"tgp.io/do-not-disrupt": "yes"}}, ""),
    ],
)
def test_L07_pods_that_must_not_be_moved_stop_underutilized(facts: dict[str, t.Any], why: str) -> None:
    found = planned(TWO, (dataclasses.replace(HALF_FULL[0], **facts), *HALF_FULL[1:]))
    assert bool(going(found)) == (not why) and why in told(found)


@pytest.mark.parametrize(
    "mark",
    [
        {"tgp.io/do-not-disrupt": "1h"},
        {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"},
        {"tgp.io/hold-until": "2999-01-01T00:00:00Z"},
    ],
)
def test_L07_holds_of_the_node_stop_underutilized(mark: dict[str, str]) -> None:
    found = planned(TWO, HALF_FULL, nodes=[ready(TWO[0], annotations=mark), ready(TWO[1])])
    assert not going(found) and "held by" in told(found)


def test_L05_a_killed_run_goes_on_although_the_pods_have_left() -> None:
    first = planned(TWO, HALF_FULL)
    begun = claim_of(first, A)
    moved = dataclasses.replace(HALF_FULL[0], node=B)
    cordoned = [ready(begun, unschedulable=True), ready(TWO[1])]
    again = planned((begun, TWO[1]), (moved, *HALF_FULL[1:]), nodes=cordoned, now=at("12:05"))
    assert going(again) == [A] and claim_of(again, A).deletion == begun.deletion


# ---- something cheaper

SHARE = dataclasses.replace(PACK, replace_cheaper=Decimal("0.3"))
FULL = (work(A, 1), work(B, 4))


def market(*offers: Offer, wanted: Pool = SHARE, pods: t.Sequence[Pod] = FULL, **facts: t.Any) -> Plan:
    return planned(TWO, pods, wanted, offers=offers, **facts)


def cheap(price: str = "0.42", **facts: t.Any) -> Offer:
    return offer(price, **{"seen": at("11:59"), "id": "small", **facts})


def test_L05_a_cheaper_machine_that_takes_all_pods_replaces() -> None:
    (action,) = of(market(cheap()), "destroy")
    assert action.name == A and action.detail == "1 of 4 GPUs are used; lambda gpu_1x for $0.42/h would do instead of $0.60/h"
    assert not going(market(cheap("0.43"))), "28.3 % less is not enough"
    assert not going(market(cheap(), wanted=PACK)), "off unless asked for"
    assert not going(market())


def test_L05_what_machines_cost_now_is_asked_only_where_a_pool_wants_to_know() -> None:
    blind = {"offers_read": False}
    assert not going(planned(TWO, FULL, PACK, **blind)) and not going(planned((), (), SHARE, **blind))
    with pytest.raises(OffersNotRead):
        planned(TWO, FULL, SHARE, **blind)


def test_L05_a_replacement_is_no_less_firm_and_big_enough() -> None:
    larger = (work(A, 1), work(A, 1, 1), work(B, 4))  # half of it is used: not too little
    half = dataclasses.replace(SHARE, utilization_threshold=Decimal("0.6"))
    assert not going(market(cheap("0.20"), wanted=half, pods=larger))
    assert going(market(cheap("0.20", gpu_count=2), wanted=half, pods=larger)) == [A]


@pytest.mark.parametrize("interruptible", [False, True])
def test_L05_an_interruptible_machine_replaces_only_its_like(interruptible: bool) -> None:
    both = node_class(clouds=("lambda", "vast"), spot_allowed=True)
    claims = [dataclasses.replace(one, offer=dataclasses.replace(one.offer, spot=interruptible)) for one in TWO]
    machines = tuple(instance(one.name, price_hour=one.offer.price_hour) for one in claims)
    spot = cheap("0.10", cloud="vast", spot=True)
    observed = seen(
        claims=claims, nodes=[ready(one) for one in claims], pods=FULL,
        clouds={"lambda": CloudView(machines, ()), "vast": CloudView((), (spot,))},
    )  # fmt: skip
    assert going(decide(observed, specs(SHARE, classes=(both,)))) == ([A] if interruptible else [])


def test_L05_who_goes_within_the_hour_is_not_replaced() -> None:
    lives = dataclasses.replace(SHARE, expire_after=2 * 3600)  # launched at 11:00
    assert going(market(cheap(), wanted=lives)) == [A]
    assert not going(market(cheap(), wanted=dataclasses.replace(SHARE, expire_after=2 * 3600 - 1)))


def test_L05_a_needless_node_that_also_drifted_is_not_said_to_stay() -> None:
    """Drift is only reported in that pool, and the node goes all the same: for being used too little."""
    older = dataclasses.replace(TWO[0], generation=generation(node_class(talos_patches=("machine: {}",)), PACK))
    found = planned((older, TWO[1]), HALF_FULL)
    assert going(found) == [A] and not [one for one in of(found, "report") if one.name == A]
    assert any("it stays" in one.detail for one in of(planned((older, TWO[1]), (work(A, 2), *HALF_FULL[1:])), "report"))


# ---- pods of which nobody knows where else they fit

PINS = {
    "resource claims": Placement(claims=True),
    "required podAffinity with namespaceSelector": Placement(unsupported="required podAffinity with namespaceSelector"),
    "persistent volume": Placement(volumes=("scratch",)),
}


@pytest.mark.parametrize("why", PINS)
def test_L05_a_pod_that_may_fit_nowhere_else_stays_where_it_is(why: str) -> None:
    fixed = work(A, 1, placement=dataclasses.replace(PINS[why], tolerations=(Toleration(operator="Exists"),)))
    found = planned(TWO, (fixed, *HALF_FULL[1:]))
    assert not going(found) and f"default/job-a-0 ({why}: where else it could run is not known)" in told(found)


HOSTS = Spread("kubernetes.io/hostname", 1, (Expression("app", "In", ("x",)),))


def mindful(where: str, number: int = 0, **rules: t.Any) -> Pod:
    """A pod with app: x and rules about its neighbours."""
    rules = {"tolerations": (Toleration(operator="Exists"),), **rules}
    return work(where, 1, number, labels={"app": "x"}, placement=Placement(**rules))


def test_B07_a_pod_moves_where_its_spread_lets_it() -> None:
    """While its node is drained it is still there, and empty: a second pod on the other node would be one too many."""
    free = mindful(A, spread=(dataclasses.replace(HOSTS, max_skew=2),))
    assert going(planned(TWO, (free, mindful(B), work(B, 1, 1)))) == [A]
    found = planned(TWO, (mindful(A, spread=(HOSTS,)), mindful(B), work(B, 1, 1)))
    assert not going(found) and told(found) == "1 of 4 GPUs are used; its pods do not fit on other nodes"


def test_B07_a_pod_does_not_move_away_from_the_domains_that_its_spread_demands() -> None:
    two = (dataclasses.replace(HOSTS, min_domains=2),)
    assert not going(planned(TWO, (mindful(A, spread=two), mindful(B), work(B, 1, 1)))), "one host would be left, and hold two"


@pytest.mark.parametrize(("zone", "moves"), [("za", True), ("zb", False)])
def test_B07_a_pod_moves_within_the_zone_of_its_volume_and_of_those_it_wants_near(zone: str, moves: bool) -> None:
    key = "topology.kubernetes.io/zone"
    nodes = [ready(TWO[0], labels={key: "za"}), ready(TWO[1], labels={key: zone}), node("other", labels={key: "za"})]
    base = pod("base", node="other", labels={"app": "base"}, owner_kind="Job")
    reach = {"reach": ((NodeTerm((Expression(key, "In", ("za",)),)),),)}
    near = {"near": (PodTerm(key, Others(("default",), (Expression("app", "In", ("base",)),))),)}
    for rules in (reach, near):
        found = planned(TWO, (mindful(A, **rules), work(B, 1), work(B, 1, 1), base), nodes=nodes)
        assert going(found) == ([A] if moves else [])


def test_B07_a_pod_stays_where_another_one_keeps_it_out_of_the_other_zone() -> None:
    key = "topology.kubernetes.io/zone"
    nodes = [ready(TWO[0], labels={key: "za"}), ready(TWO[1], labels={key: "zb"})]
    keeper = work(B, 1, placement=Placement(apart=(PodTerm(key, Others(("default",), (Expression("app", "In", ("x",)),))),)))
    assert not going(planned(TWO, (mindful(A), keeper), nodes=nodes))
    assert going(planned(TWO, (work(A, 1, labels={"app": "y"}), keeper), nodes=nodes)) == [A]


def test_L05_two_full_nodes_of_resource_claims_both_stay() -> None:
    """Their pods ask for no GPU by name: 0 of 4 says nothing about what is free."""
    pods = [work(where, 0, requests={}, placement=Placement(claims=True)) for where in (A, B)]
    found = planned(TWO, pods)
    assert not going(found) and told(found).startswith("0 of 4 GPUs are used beside those of resource claims; ")


def test_L05_what_is_free_beside_resource_claims_is_no_place() -> None:
    found = planned(TWO, (work(A, 1), work(B, 0, placement=Placement(claims=True, tolerations=(Toleration(operator="Exists"),)))))
    assert going(found) == [] and told(found) == "1 of 4 GPUs are used; its pods do not fit on other nodes"


def test_L05_a_pod_that_another_one_keeps_out_of_its_zone_stays() -> None:
    keeper = work(C, 0, placement=Placement(avoids=(Others(("default",), (Expression("app", "In", ("red",)),)),)))
    red = work(A, 1, labels={"app": "red"})
    assert "pod anti-affinity of another pod" in told(planned(TWO, (red, *HALF_FULL[1:], keeper)))
    assert going(planned(TWO, (work(A, 1, labels={"app": "blue"}), *HALF_FULL[1:], keeper))) == [A]


# ---- whether a move is worth it: what the pods lose against what is saved

DEAR = (machine(A, "4.00"), machine(B, "0.50"))


@pytest.mark.parametrize(
    ("started", "expires", "outcome"),
    [
        ("11:00", None, ""),  # lost: 1 GPU of 4 for 1 h 5 min = $1.08; saved: as long again, 1 h = $4.00
        ("11:00", "12:15", "would lose $1.0833 of work and save $1.00"),  # gone in a quarter of an hour anyway
        ("11:00", "12:17", ""),  # $1.13
        ("11:55", None, ""),  # lost: 10 min = $0.17; saved: 5 min = $0.33
        ("11:59", None, "would lose $0.10 of work and save $0.0667"),  # 6 min, and 1 min
    ],
)
def test_L05_a_move_has_to_save_more_than_its_pods_lose(started: str, expires: str | None, outcome: str) -> None:
    wanted = dataclasses.replace(PACK, consolidate_after=0)
    if expires:
        life = int((at(expires) - at("11:00")).total_seconds())
        wanted = dataclasses.replace(wanted, expire_after=life)
    claims = tuple(dataclasses.replace(one, launch_started=at("11:00")) for one in DEAR)
    pods = (work(A, 1, started=at(started)), *HALF_FULL[1:])
    found = planned(claims, pods, wanted)
    assert going(found) == ([] if outcome else [A])
    assert outcome in told(found)


@pytest.mark.parametrize(
    ("interval", "gpus", "stays"),
    [
        (None, 1, True),  # lost: 1 GPU of 4 at $0.60 for 10 h 5 min = $1.51; saved: $0.10 for 10 h = $1.00
        ("6h30m", 1, False),  # 6 h 35 min = $0.99
        ("6h35m", 1, True),  # 6 h 40 min = $1.00, no more than is saved
        ("0s", 1, False),  # the delay alone
        ("Never", 1, True),
        ("often", 1, True),
    ],
)
def test_L05_checkpoints_make_a_move_cheaper(interval: str | None, gpus: int, stays: bool) -> None:
    share = dataclasses.replace(PACK, replace_cheaper=Decimal("0.1"))
    marks = {} if interval is None else {"tgp.io/checkpoint-interval": interval}
    old = {"started": at("02:00"), "created": at("02:00")}
    found = market(cheap("0.50"), wanted=share, pods=(work(A, gpus, annotations=marks, **old), work(B, 4, **old)))
    assert bool(going(found)) is not stays
    assert ("of work and save $1.00" in told(found)) is stays
    assert any("often" in text and "default/job-a-0" in text for text in found.warnings) is (interval == "often")


def test_L05_a_machine_without_a_price_is_not_weighed() -> None:
    free = (machine(A, "0"), machine(B, "0"))
    pods = (work(A, 1, started=at("11:59:59")), *HALF_FULL[1:])
    assert going(planned(free, pods, dataclasses.replace(PACK, consolidate_after=0))) == [A]


def test_L05_a_move_that_has_begun_is_not_weighed_again() -> None:
    begun = claim_of(planned(TWO, HALF_FULL), A)
    late = (work(A, 1, started=at("12:04")), *HALF_FULL[1:])
    cordoned = [ready(begun, unschedulable=True), ready(TWO[1])]
    wanted = dataclasses.replace(PACK, consolidate_after=0)
    assert going(planned((begun, TWO[1]), late, wanted, nodes=cordoned, now=at("12:05"))) == [A]


_PODS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 200_000), st.one_of(st.none(), st.integers(0, 100_000))), max_size=4)


@given(_PODS, st.decimals("0.01", 50, places=2), st.one_of(st.none(), st.integers(-100, 500_000)))
def test_L05_checkpoints_never_cost_and_a_nearer_end_never_saves(
    drawn: list[tuple[int, int, int | None]], gpu_hour: Decimal, left: int | None
) -> None:
    now = at("12:00")
    due = None if left is None else now + timedelta(seconds=left)
    kept = [
        work(A, gpus, number, started=now - timedelta(seconds=age), annotations={} if each is None else _every(each))
        for number, (gpus, age, each) in enumerate(drawn)
    ]
    plain = [dataclasses.replace(one, annotations={}) for one in kept]
    names = ("nvidia.com/gpu",)
    cost = consolidation.restart_cost(kept, gpu_hour, names, now)
    assert 0 <= cost <= consolidation.restart_cost(plain, gpu_hour, names, now)
    assert cost <= consolidation.restart_cost(kept, gpu_hour * 2, names, now)
    remaining = consolidation.expected_remaining(kept, due, now)
    assert 0 <= remaining <= consolidation.expected_remaining(kept, None, now)
    assert due is None or remaining <= max(0, left or 0)


def _every(seconds: int) -> dict[str, str]:
    return {"tgp.io/checkpoint-interval": f"{seconds}s"}
