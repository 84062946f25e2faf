# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Replacements that come before a drifted machine goes (L-5): who gets one, when, and what else the plan says."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import time
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Action,
    Attempt,
    Calendar,
    Claim,
    DamagedClaim,
    Deletion,
    DisruptionBudget,
    Ledger,
    Observation,
    Offer,
    Phase,
    Placement,
    Plan,
    Pod,
    Pool,
    SpendingBudget,
    Toleration,
    Window,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.record import from_record, to_record
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.spec_hash import generation

from .build import at, claim, decide, instance, node, node_class, of, offer, one, pod, pool, seen, specs
from .test_L22_saved_plan import SavedPlan, applied, saved

GPU = "nvidia.com/gpu"
ANYWHERE = Placement(tolerations=(Toleration(operator="Exists"),))
NOW = node_class(talos_patches=("machine: {}",))
THEN = node_class()
REPLACE = pool(drift_policy="Replace")
FRESH = generation(NOW, REPLACE)
A, B, C, D = (f"tgp-a1b2c3d4-p-{place:05}" for place in (1, 2, 3, 4))
WAS = "made from an older class or pool"
MANY = (offer("0.42", id="g", available=9),)


def old(name: str = A, **facts: t.Any) -> Claim:
    """A machine made before the class got its patch, launched at 10:00 and usable since 10:06."""
    usual: dict[str, t.Any] = {"launch_started": at("10:00"), "created": at("10:00"), "initialized": at("10:06")}
    return claim(name, **{**usual, "generation": generation(THEN, REPLACE), **facts})


def new(name: str = B, phase: Phase = Phase.READY, replaces: str = A, **facts: t.Any) -> Claim:
    """The replacement of a machine, launched at 11:45, and usable since 11:50 if its phase says so."""
    usual: dict[str, t.Any] = {"created": at("11:45"), "generation": FRESH, "replaces": replaces}
    if phase is not Phase.PENDING:
        usual["launch_started"] = at("11:45")
    if phase is Phase.READY:
        usual |= {"registered": at("11:49"), "initialized": at("11:50")}
    return claim(name, phase, **{**usual, **facts})


def job(where: str, name: str = "", **facts: t.Any) -> Pod:
    return pod(name or f"job-{where}", node=where, **{"requests": {GPU: 1}, "placement": ANYWHERE, **facts})


def world(
    claims: t.Sequence[Claim], pods: t.Sequence[Pod] | None = None, offers: t.Sequence[Offer] = MANY, **facts: t.Any
) -> Observation:
    """Each usable machine has its Node; each old one a pod with one GPU unless ``pods`` says otherwise."""
    there = [one.name for one in claims if one.phase is Phase.READY]
    usual: dict[str, t.Any] = {
        "claims": tuple(claims),
        "nodes": tuple(node(name, created=at("10:05")) for name in there),
        "instances": tuple(instance(one.name, created=one.launch_started, id=one.instance_id) for one in claims if one.instance_id),
        "pods": tuple(job(one.name) for one in claims if one.phase is Phase.READY and not one.replaces)
        if pods is None
        else tuple(pods),
        "offers": tuple(offers),
    }
    return seen(facts.pop("now", at("12:00")), **{**usual, **facts})


def run(claims: t.Sequence[Claim], wanted: Pool = REPLACE, mode: str = "autoscale", **facts: t.Any) -> Plan:
    settings = facts.pop("settings", {})
    classes = facts.pop("classes", (NOW,))
    return decide(world(claims, **facts), specs(wanted, classes=classes), mode, **settings)


def going(found: Plan, reason: str = "Drifted") -> dict[str, str]:
    return {action.name: action.detail for action in of(found, "destroy") if action.reason == reason}


def told(found: Plan, reason: str = "Drifted") -> dict[str, str]:
    return {action.name: action.detail for action in of(found, "report") if action.reason == reason}


def launched(found: Plan) -> Action:
    action = one(found, "launch")
    assert action.reason == "Replacement" and action.claim is not None
    return action


def replaced(found: Plan) -> list[str]:
    return [action.claim.replaces for action in of(found, "launch") if action.claim is not None]


# ---- the record


def test_L02_a_claim_without_the_field_replaces_nothing() -> None:
    record = to_record(new())
    assert from_record(record).replaces == A
    del record["replaces"]
    assert from_record(record).replaces == ""


# ---- drifted


@pytest.mark.parametrize("mode", ["autoscale", "everything"])
def test_L05_a_busy_node_that_drifted_is_replaced_before_it_goes(mode: str) -> None:
    found = run([old()], mode=mode)
    action = launched(found)
    assert action.claim is not None and action.claim.replaces == A and action.claim.generation == FRESH
    assert action.detail == f"lambda gpu_1x in us-west-1, 1 × A10; replaces {A}, which was {WAS}"
    assert not going(found) and told(found) == {A: f"{WAS}; waits for its replacement {action.name}, which this run launches"}


@pytest.mark.parametrize("mode", ["autoscale", "everything"])
@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.PROVISIONING, Phase.BOOTING, Phase.JOINING])
def test_L05_it_waits_while_its_replacement_is_on_its_way_and_gets_no_second_one(phase: Phase, mode: str) -> None:
    found = run([old(), new(phase=phase)], mode=mode)
    assert not of(found, "launch", "destroy")
    assert told(found) == {A: f"{WAS}; waits for its replacement {B}"}


@pytest.mark.parametrize("mode", ["autoscale", "everything", "reap"])
def test_L05_it_goes_when_its_replacement_is_usable(mode: str) -> None:
    found = run([old(), new()], mode=mode)
    assert going(found) == {A: WAS} and not of(found, "launch")


@pytest.mark.parametrize(
    "facts",
    [
        {"nodes": (node(A), node(B, ready=False))},
        {"nodes": (node(A),)},
        {"nodes": (node(A), node(B, allocatable={}))},
    ],
)
def test_L05_a_replacement_that_is_of_no_use_now_is_waited_for(facts: dict[str, t.Any]) -> None:
    found = run([old(), new()], **facts)
    assert not going(found) and told(found) == {A: f"{WAS}; waits for its replacement {B}"} and not replaced(found)


def test_L05_with_surge_off_it_goes_at_once() -> None:
    off = dataclasses.replace(REPLACE, surge=False)
    found = run([old()], off)
    assert going(found) == {A: WAS} and not of(found, "launch")
    expiring = run([old()], dataclasses.replace(off, expire_after=2 * 3600 + 60))
    assert not of(expiring, "launch") and not told(expiring, "Expired")


def test_L05_the_node_of_a_request_is_never_replaced() -> None:
    request = pool(drift_policy="Replace", request=True)
    assert going(run([old()], request)) == {A: WAS} and not of(run([old()], request), "launch")


def test_L05_a_run_that_launches_nothing_says_so_only_where_a_replacement_is_needed() -> None:
    assert going(run([old()], mode="reap")) == {A: f"{WAS}; without a replacement first: reap.yml launches none"}
    spare = claim(B, generation=FRESH)
    assert going(run([old(), spare], mode="reap", pods=[job(A)])) == {A: WAS}, "its pod fits on the other node"


# ---- who needs one


def test_L05_pods_that_fit_on_other_nodes_need_no_replacement() -> None:
    free = claim(B, generation=FRESH)
    found = run([old(), free], pods=[job(A)])
    assert going(found) == {A: WAS} and not of(found, "launch")
    full = run([old(), free], pods=[job(A), job(B)])
    assert replaced(full) == [A] and not going(full)


def test_L05_nodes_that_have_drifted_too_are_no_place_to_go() -> None:
    found = run([old(), old(B)], pods=[job(A)], wanted=dataclasses.replace(REPLACE, consolidation_policy="Never"))
    assert set(going(found)) == {B} and not replaced(found), "the empty one first, and it needs none"
    alone = run([old(), old(B)], pods=[job(A), job(B, "small", requests={})])
    assert not going(alone) and len(replaced(alone)) == 1


@pytest.mark.parametrize("wanted", [{"replicas": 1}, {"min_nodes": 1}])
def test_L05_a_machine_that_its_pool_counts_is_replaced_although_it_is_empty(wanted: dict[str, t.Any]) -> None:
    counted = dataclasses.replace(REPLACE, consolidation_policy="Never", **wanted)
    found = run([old()], counted, pods=[])
    assert replaced(found) == [A] and not going(found)
    assert going(run([old(), new()], counted, pods=[])) == {A: WAS}
    more = run([old(), claim(C, generation=FRESH)], counted, pods=[])
    assert not replaced(more), "its pool has enough without it"


def test_L05_what_is_no_work_moves_nobody() -> None:
    system = [job(A, "dns", namespace="kube-system", requests={}), job(A, "plugin", owner_kind="DaemonSet", owner_api="apps/v1")]
    wanted = dataclasses.replace(REPLACE, consolidation_policy="Never")
    found = run([old()], wanted, pods=system)
    assert going(found) == {A: WAS} and not of(found, "launch")


def test_L05_the_offer_holds_all_pods_that_move() -> None:
    large = old(offer=offer("2.00", id="big", gpu_count=4), expected_gpus=4)
    nodes = (node(A, allocatable={GPU: 4}),)
    offers = (offer("0.42", id="small"), offer("1.90", id="other", instance_type="gpu_4x", gpu_count=4))
    busy = [job(A, "a", requests={GPU: 2}), job(A, "b", requests={GPU: 1})]
    found = launched(run([large], pods=busy, nodes=nodes, offers=offers))
    assert found.claim is not None and found.claim.offer.id == "other"
    without = run([large], pods=busy, nodes=nodes, offers=offers[:1])
    assert not going(without) and told(without) == {
        A: f"{WAS}; kept: no replacement can be launched: no machine that is large enough"
    }


def test_L05_a_machine_of_the_same_kind_takes_pods_that_ask_for_labels_of_a_running_node() -> None:
    choosy = job(A, placement=dataclasses.replace(ANYWHERE, selector=(("nvidia.com/gpu.product", "NVIDIA-A10"),)))
    assert replaced(run([old()], pods=[choosy])) == [A]
    other = run([old()], pods=[choosy], offers=(offer("0.42", id="x", instance_type="gpu_other"),))
    assert "no machine that is large enough" in told(other)[A]


# ---- one after the other


def test_L05_replacements_on_their_way_count_against_the_bound() -> None:
    wide = dataclasses.replace(REPLACE, disruption_budgets=(DisruptionBudget("100%"),))
    claims = [old(A), old(C), new(B, Phase.BOOTING)]
    found = run(claims, wide)
    assert not of(found, "launch", "destroy")
    assert told(found)[C] == f"{WAS}; goes in a later run (max_remove_per_run)"
    two = run(claims, wide, settings={"max_remove_per_run": 2})
    assert replaced(two) == [C] and not going(two)


def test_L05_a_launched_replacement_counts_against_the_bound_in_its_own_run() -> None:
    """Two of three slots are taken by replacements that the run launches, so one node goes."""
    wide = dataclasses.replace(REPLACE, disruption_budgets=(DisruptionBudget("3"),), consolidation_policy="Never")
    idle = [old(f"tgp-a1b2c3d4-p-{place:05}") for place in range(11, 15)]
    before = dataclasses.replace(wide, min_nodes=4)
    found = run([old(), *idle], before, pods=[], settings={"max_remove_per_run": 3, "allow_mass_delete": True})
    assert (len(going(found)), len(replaced(found))) == (1, 2)


def test_L05_the_one_with_a_usable_replacement_goes_first() -> None:
    found = run(
        [old(A, launch_started=at("09:00")), old(C), new(B, replaces=C)], pods=[job(A), job(C), job(C, "second", requests={})]
    )
    assert set(going(found)) == {C} and not replaced(found)


def test_L06_a_closed_budget_launches_no_replacement() -> None:
    closed = dataclasses.replace(REPLACE, disruption_budgets=(DisruptionBudget("0", ("Drifted",)),))
    found = run([old()], closed)
    assert not of(found, "launch", "destroy") and told(found) == {A: f"{WAS}; kept by disruption budget 0"}


def test_L06_a_replacement_is_no_node_of_which_a_budget_takes_its_share() -> None:
    names = [f"tgp-a1b2c3d4-p-{place:05}" for place in range(11, 20)]
    found = run([old(), *(old(name) for name in names), new()], settings={"max_remove_per_run": 5})
    assert set(going(found)) == {A} and not replaced(found), "a tenth of ten nodes, and not of eleven"


def test_L07_what_is_held_gets_no_replacement() -> None:
    held = (node(A, annotations={"tgp.io/do-not-disrupt": "true"}),)
    found = run([old()], nodes=held)
    assert not of(found, "launch", "destroy") and "held by" in told(found)[A]


# ---- why there is none


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"wanted": dataclasses.replace(REPLACE, max_nodes=1)}, "limit:pool.maxNodes"),
        ({"classes": (dataclasses.replace(NOW, max_nodes=1),)}, "limit:maxNodes"),
        ({"classes": (dataclasses.replace(NOW, max_hourly_cost=Decimal("0.83")),)}, "limit:maxHourlyCost"),
        ({"classes": (dataclasses.replace(NOW, resources={GPU: 1}),)}, f"limit:{GPU}"),
        ({"settings": {"max_nodes_total": 1}}, "limit:max_nodes_total"),
        ({"settings": {"max_hourly_total": Decimal("0.50")}}, "limit:max_hourly_total"),
    ],
)
def test_L05_without_room_in_the_limits_it_goes_first_and_says_why(facts: dict[str, t.Any], why: str) -> None:
    found = run([old()], **facts)
    assert going(found) == {A: f"{WAS}; without a replacement first: {why}"} and not of(found, "launch")


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"offers": ()}, "no offers"),
        ({"offers": (offer("0.42", id="g", available=0),)}, "not available"),
        ({"blocks": {"pool:default/p": at("12:30")}}, "paused after failed joins"),
        ({"devices": None}, "mesh unknown"),
        ({"damaged": (DamagedClaim(C, "configmap", "broken", pool="default/p"),)}, "a claim of the pool cannot be read"),
        ({"classes": (dataclasses.replace(NOW, max_hourly_cost=Decimal("0.30")),)}, "limit:maxHourlyCost"),
    ],
)
def test_L05_what_may_pass_keeps_it_and_is_said(facts: dict[str, t.Any], why: str) -> None:
    found = run([old()], **facts)
    assert not going(found) and not of(found, "launch")
    assert told(found) == {A: f"{WAS}; kept: no replacement can be launched: {why}"}


def test_L05_a_pool_that_is_closed_or_blocked_keeps_it() -> None:
    night = Calendar("UTC", (Window(frozenset(range(7)), time(20), time(23)),))
    shut = told(run([old()], dataclasses.replace(REPLACE, calendar=night)))
    assert shut[A].startswith(f"{WAS}; kept: no replacement can be launched: outside its calendar, which opens")
    blocked = dataclasses.replace(specs(REPLACE, classes=(NOW,)), blocked={"default/p": "no rights"})
    found = decide(world([old()]), blocked, "autoscale")
    assert not of(found, "launch", "destroy") and told(found)[A].endswith("a machine could not join: no rights")


def test_L16_money_that_is_spent_does_not_come_back_with_the_old_machine() -> None:
    poor = dataclasses.replace(REPLACE, budget=SpendingBudget("day", Decimal("0.10")))
    found = run([old()], poor, ledger=Ledger())
    assert not going(found) and not of(found, "launch")
    assert told(found) == {A: f"{WAS}; kept: no replacement can be launched: limit:budget.pool"}


# ---- while both are there


def test_L05_a_replacement_that_waits_is_not_idle_for_an_hour() -> None:
    idle = {"annotations": {"tgp.io/idle-since": "2026-08-20T10:00:00Z"}}
    held = node(A, annotations={"tgp.io/do-not-disrupt": "true"})

    def seen_at(moment: str) -> Plan:
        claims = [old(), new(created=at("10:30"), launch_started=at("10:30"), registered=at("10:40"), initialized=at("10:45"))]
        return run(claims, nodes=(held, node(B, **idle)), now=at(moment))

    assert not going(seen_at("11:44:59"), "Empty")
    kept = [action.detail for action in of(seen_at("11:44:59"), "report") if action.name == B]
    assert kept == [f"idle, but it comes in the place of {A}"]
    assert set(going(seen_at("11:45"), "Empty")) == {B}, "usable for an hour"


def test_L05_the_idle_time_of_a_replacement_begins_when_the_old_one_is_gone() -> None:
    """The pods that left the old one may still be on their way."""
    both = run([old(), new()], nodes=(node(A), node(B, annotations={"tgp.io/idle-since": "2026-08-20T11:50:00Z"})))
    assert [(one.target, one.value) for one in of(both, "annotate") if one.target == B] == [(B, None)]
    again = run([old(), new()], nodes=(node(A), node(B)))
    assert not [one for one in of(again, "annotate") if one.target == B], "nothing is noted while it waits"
    alone = run([new()], dataclasses.replace(REPLACE, consolidate_after=600), nodes=(node(B),), now=at("12:30"))
    assert [(one.target, one.value) for one in of(alone, "annotate")] == [(B, "2026-08-20T12:30:00Z")]
    assert not going(alone, "Empty")


def test_L05_a_replacement_that_has_drifted_too_stays_until_the_old_one_is_gone() -> None:
    wide = dataclasses.replace(REPLACE, disruption_budgets=(DisruptionBudget("100%"),), min_age=0)
    found = run([old(), new(generation=generation(THEN, REPLACE))], wide, settings={"max_remove_per_run": 5})
    assert set(going(found)) == {A} and told(found) == {B: f"{WAS}; kept: it comes in the place of {A}"}


@pytest.mark.parametrize("mode", ["provision", "everything", "autoscale"])
@pytest.mark.parametrize("phase", [Phase.BOOTING, Phase.READY])
def test_L29_both_count_as_one(mode: str, phase: Phase) -> None:
    counted = dataclasses.replace(REPLACE, replicas=1)
    found = run([old(), new(phase=phase)], counted, mode=mode)
    assert not of(found, "launch") and not any("provision never removes any" in text for text in found.warnings)
    assert not going(found, "Empty") and not found.shortfall
    more = run([old(), new(phase=phase)], dataclasses.replace(REPLACE, replicas=2), mode=mode)
    assert [action.reason for action in of(more, "launch")] == ["Wanted"], "the second one of two is missing"
    alone = run([new(phase=phase)], counted, mode=mode)
    assert not of(alone, "launch") and not alone.shortfall, "the old one is gone: it counts"


def test_L29_provision_does_not_tell_of_one_machine_too_many() -> None:
    asked = specs(REPLACE, classes=(NOW,), p=1)
    found = decide(world([old(), new()]), asked, "provision")
    assert not of(found, "launch", "destroy") and not any("provision never removes any" in text for text in found.warnings)
    unneeded = decide(world([old(generation=FRESH), new()]), asked, "provision")
    assert any("has 2 machines, wanted are 1; provision never removes any" in text for text in unneeded.warnings)


def test_L18_a_replacement_is_no_reason_to_end_another_node_of_the_floor() -> None:
    idle = {"annotations": {"tgp.io/idle-since": "2026-08-20T10:00:00Z"}}
    wanted = dataclasses.replace(REPLACE, min_nodes=2)
    claims = [old(), claim(C, generation=FRESH), new(initialized=at("11:30"), created=at("11:20"), launch_started=at("11:20"))]
    nodes = (node(A), node(B), node(C, **idle))
    found = run(claims, wanted, pods=[job(A), job(B)], nodes=nodes, mode="reap")
    assert not going(found, "Empty")


def test_L05_consolidation_leaves_both_alone() -> None:
    packing = dataclasses.replace(REPLACE, consolidation_policy="WhenUnderutilized", utilization_threshold=Decimal(1))
    two: dict[str, t.Any] = {"offer": offer("0.80", id="pair", gpu_count=2), "expected_gpus": 2, "underused_since": at("11:00")}
    claims = [old(initialized=at("11:55"), **two), new(**two), claim(C, generation=FRESH, **two)]
    nodes = tuple(node(name, allocatable={GPU: 2}) for name in (A, B, C))
    seen_now: dict[str, t.Any] = {"pods": [job(A), job(B), job(C)], "nodes": nodes, "now": at("12:30")}
    found = run(claims, packing, mode="reap", settings={"max_remove_per_run": 0}, **seen_now)
    assert not going(found, "Underutilized")
    why = told(found, "Underutilized")
    assert set(why) == {A, C} and why[A] == "1 of 2 GPUs are used; another machine comes in its place"


@pytest.mark.parametrize("mode", ["autoscale", "everything"])
def test_L22_a_replacement_whose_launch_made_nothing_is_launched_again_with_room_for_the_pods(mode: str) -> None:
    refused = (Attempt(at("11:46"), "lambda/x", "refused", "capacity", "none left"),)
    again = new(phase=Phase.PENDING, attempts=refused)
    large = [job(A, requests={GPU: 2})]
    offers = (offer("0.42", id="small"), offer("0.90", id="pair", instance_type="gpu_2x", gpu_count=2))
    nodes = (node(A, allocatable={GPU: 2}),)
    old_one = old(offer=offer("0.85", id="gone", gpu_count=2, instance_type="gpu_2y"), expected_gpus=2)
    found = run([old_one, again], mode=mode, pods=large, offers=offers, nodes=nodes)
    resumed = one(found, "resume")
    assert resumed.name == B and resumed.claim is not None and resumed.claim.offer.id == "pair"
    assert not of(found, "launch", "destroy")


def test_L22_a_replacement_of_a_machine_that_need_not_go_is_not_launched_again() -> None:
    found = run([old(generation=FRESH), new(phase=Phase.PENDING)])
    assert [(action.name, action.reason) for action in of(found, "destroy")] == [(B, "LaunchFailed")]


def test_L29_when_the_old_one_need_not_go_the_extra_one_ends_like_any_other() -> None:
    idle = {"annotations": {"tgp.io/idle-since": "2026-08-20T10:00:00Z"}}
    claims = [old(generation=FRESH), new(initialized=at("11:30"), launch_started=at("11:20"), created=at("11:20"))]
    nodes = (node(A), node(B, **idle))
    assert set(going(run(claims, dataclasses.replace(REPLACE, replicas=1), nodes=nodes), "Empty")) == {B}
    assert set(going(run(claims, REPLACE, nodes=nodes), "Empty")) == {B}


def test_L11_a_replacement_that_did_not_join_ends_like_any_other_and_the_next_one_comes_after_it() -> None:
    late = new(phase=Phase.BOOTING, launch_started=at("11:00"), created=at("11:00"))
    found = run([old(), late])
    assert going(found, "FailedJoin") and not replaced(found) and told(found) == {A: f"{WAS}; waits for its replacement {B}"}
    assert replaced(run([old()])) == [A]


def test_L02_a_stale_name_blocks_nothing() -> None:
    """An own machine comes again under its name: what replaced it earlier does not replace this one."""
    again = old(created=at("11:50"), launch_started=at("11:50"), initialized=at("11:52"))
    wanted = dataclasses.replace(REPLACE, min_age=0)
    assert replaced(run([again, new()], wanted, pods=[job(A), job(B)])) == [A]
    assert not of(run([new()], pods=[job(B)]), "launch", "destroy")


def test_L05_a_begun_drain_goes_on_beside_its_replacement() -> None:
    begun = old(deletion=Deletion("Drifted", at("11:55")))
    idle = {"annotations": {"tgp.io/idle-since": "2026-08-20T10:00:00Z"}}
    usable = new(initialized=at("11:40"), created=at("11:30"), launch_started=at("11:30"))
    found = run([begun, usable], nodes=(node(A), node(B, **idle)))
    assert going(found) == {A: WAS} and not going(found, "Empty")


# ---- saved plans


def kept_plan(*claims: Claim) -> SavedPlan:
    return saved(world(claims), specs(REPLACE, classes=(NOW,)))


def test_L22_a_saved_replacement_is_launched_as_long_as_its_machine_has_to_be_replaced() -> None:
    found = applied(kept_plan(old()), world([old()], now=at("12:05")), specs(REPLACE, classes=(NOW,)))
    (check,) = found.checks
    assert (check.result, check.step.reason) == ("applied", "Replacement")
    assert check.action is not None and check.action.claim is not None and check.action.claim.replaces == A


@pytest.mark.parametrize(
    "claims", [[old(), new(phase=Phase.BOOTING)], [old(), new()], [old(generation=FRESH)], [claim(C, generation=FRESH)]]
)
def test_L22_a_saved_replacement_is_refused_when_its_machine_has_one_or_needs_none(claims: list[Claim]) -> None:
    found = applied(kept_plan(old()), world(claims, now=at("12:05")), specs(REPLACE, classes=(NOW,)))
    assert [(check.result, check.why) for check in found.checks] == [("refused", f"{A} is not to be replaced any more")]


def test_L22_a_saved_launch_does_not_take_the_place_of_a_replacement() -> None:
    """One machine was missing when the plan was made; now none is, and one has to be replaced."""
    wanted = dataclasses.replace(REPLACE, replicas=1, consolidation_policy="Never")
    kept = saved(world([]), specs(wanted, classes=(NOW,)))
    found = applied(kept, world([old()], now=at("12:05")), specs(wanted, classes=(NOW,)))
    assert [(check.step.reason, check.result) for check in found.checks] == [("Wanted", "refused")]
    assert found.checks[0].why == "default/p has as many machines as it wants by now"
