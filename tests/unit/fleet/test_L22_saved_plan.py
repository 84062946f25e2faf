# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-22: a plan that is kept, and what of it may still be done in the world of later."""

from __future__ import annotations

import copy
import dataclasses
import json
import typing as t
from datetime import timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.model import Claim, Observation, Phase, Plan, Specs
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Destroy, Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers.launch_backoff import key_of
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plan import plan
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plans.preconditions import (
    CheckedPlan,
    StepCheck,
    check_plan,
    settings_of,
    specs_of,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plans.record import from_record, refuse_other, to_record
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plans.saved_plan import SavedPlan, bound, make

from .build import CAPABILITIES, CLUSTER, NOON, at, claim, device, instance, node, node_class, offer, one, pod, pool, seen, specs
from .pods import waiting
from .test_L17_autoscale import TOLERATES

LATER = at("12:05")
IDLE = {"annotations": {"tgp.io/idle-since": "2026-08-20T11:40:00Z"}}
HELD = {"annotations": {**IDLE["annotations"], "tgp.io/do-not-disrupt": "true"}}
ANOTHER = "its Node is another one now (UID other, in the plan uid-tgp-a1b2c3d4-p-0000n)"
N = claim("tgp-a1b2c3d4-p-0000n", idle_since=at("11:40"), version="7")
TWO = (pool(), pool("q"))
WANTED = specs(*TWO, q=1, p=0)


def world(now: t.Any = NOON, price: str | None = "0.42", **facts: t.Any) -> Observation:
    """Node n of pool p is idle, and pool q has no machine yet."""
    usual: dict[str, t.Any] = {"claims": (N,), "nodes": (node(N.name, **IDLE),), "instances": (instance(N.name),), "pods": ()}
    offers = () if price is None else (offer(price, id="g"),)
    return seen(now, offers=offers, **{**usual, **facts})


def saved(observed: Observation | None = None, wanted: Specs = WANTED, mode: str = "everything", **settings: t.Any) -> SavedPlan:
    chosen = Settings(mode=mode, **settings)
    observed = observed or world()
    made = make(plan(observed, wanted, chosen, CAPABILITIES, "run-1"), observed, wanted, chosen, "run-1")
    return from_record(json.loads(json.dumps(to_record(made))))


def applied(kept: SavedPlan, observed: Observation, wanted: Specs = WANTED, closed: t.Any = None, **settings: t.Any) -> CheckedPlan:
    chosen = settings_of(kept, Settings(**settings))
    return check_plan(kept, observed, specs_of(kept, wanted), chosen, CAPABILITIES, closed or {})


def words(found: CheckedPlan) -> dict[str, str]:
    return {f"{one.step.kind} {one.step.name}": f"{one.result}: {one.why}".rstrip(": ") for one in found.checks}


def of(found: CheckedPlan, kind: str) -> StepCheck:
    (only,) = [one for one in found.checks if one.step.kind == kind]
    return only


def launched(found: CheckedPlan) -> Claim:
    action = of(found, "launch").action
    assert action is not None and action.claim is not None
    return action.claim


# ---- the worked example


def test_L22_the_plan_has_both_steps_and_their_preconditions() -> None:
    kept = saved()
    assert [(step.kind, step.reason) for step in kept.steps] == [("destroy", "Empty"), ("launch", "Wanted")]
    destroy, launch = kept.steps
    assert (destroy.needs.claim_version, destroy.needs.node_uid, destroy.claim) == ("7", f"uid-{N.name}", None)
    assert (launch.needs.offer, launch.needs.price_bound, launch.needs.claim_version) == ("lambda/g", Decimal("0.4410"), "")
    assert (kept.costs.hour_now, kept.costs.hour_after, kept.costs.day_after) == ("0.42", "0.42", "10.08")
    assert (kept.cluster_id, kept.run_id, kept.made_at, kept.request.mode) == (CLUSTER, "run-1", NOON, "everything")


def test_L22_nothing_changed_everything_is_done() -> None:
    found = applied(saved(), world(LATER))
    assert [one.result for one in found.checks] == ["applied", "applied"] and found.same_world
    assert [action.kind for action in found.plan.actions] == ["destroy", "launch"]


def test_L22_busy_is_refused_and_a_price_within_five_per_cent_is_done() -> None:
    """The rule's own numbers: n busy, offer 0.43 of 0.42, bound 0.441."""
    found = applied(saved(), world(LATER, "0.43", pods=(pod(node=N.name),)))
    assert words(found)[f"destroy {N.name}"] == "refused: busy: pod default/job"
    assert of(found, "launch").result == "applied" and of(found, "launch").why == "at $0.43/h instead of $0.42/h"
    assert not [one for one in found.plan.actions if one.kind == "destroy"] and not found.same_world
    made = launched(found)
    assert (made.reserved_price, made.price_bound) == (Decimal("0.43"), Decimal("0.4410"))


@pytest.mark.parametrize("price, result", [("0.441", "applied"), ("0.4411", "refused"), ("0.45", "refused"), ("0.10", "applied")])
def test_L22_the_bound_is_inclusive(price: str, result: str) -> None:
    found = applied(saved(), world(LATER, price))
    assert of(found, "launch").result == result and of(found, "destroy").result == "applied"
    if price == "0.45":
        assert of(found, "launch").why == "offer lambda/g costs $0.45/h now, the plan bears up to $0.441/h"


def test_L22_the_bound_is_of_the_planned_price() -> None:
    assert bound(Decimal("0.42")) == Decimal("0.441")


# ---- what removes


@pytest.mark.parametrize(
    "changed, why",
    [
        ({"claims": ()}, "its claim is gone"),
        ({"nodes": (node(N.name, uid="other", **IDLE),)}, ANOTHER),
        ({"nodes": (node(N.name, **HELD),)}, "tgp.io/do-not-disrupt"),
        ({"pods": None}, "pods unknown"),
        ({"nodes": (node(N.name, annotations={}),)}, "idle"),
    ],
)
def test_L22_a_machine_that_may_not_go_any_more_stays(changed: dict[str, t.Any], why: str) -> None:
    found = applied(saved(), world(LATER, **changed))
    assert of(found, "destroy").result == "refused" and why in of(found, "destroy").why
    assert not [one for one in found.plan.actions if one.kind == "destroy"]


def test_L22_another_reason_is_another_decision() -> None:
    young = specs(pool(expire_after=3600 + 240), pool("q"), q=1, p=0)  # over at 12:04
    found = applied(saved(wanted=young), world(LATER), young)
    assert of(found, "destroy").result == "refused" and of(found, "destroy").why.startswith("now it would be Expired")


def test_L22_what_was_given_back_meanwhile_is_done() -> None:
    found = applied(saved(), world(LATER, claims=(), instances=(), nodes=()), closed={N.name: at("12:02")})
    assert (of(found, "destroy").result, of(found, "destroy").why) == ("done", "terminated already")


def test_L22_facts_are_noted_and_nothing_is_added() -> None:
    """A second machine has become idle for long enough since: it goes by the next plan, not by this one."""
    other = claim("tgp-a1b2c3d4-p-0000z", idle_since=at("11:52"))
    idle = {"annotations": {"tgp.io/idle-since": "2026-08-20T11:52:00Z"}}
    both: dict[str, t.Any] = {"claims": (N, other), "nodes": (node(N.name, **IDLE), node(other.name, **idle))}
    both["instances"] = (instance(N.name), instance(other.name))
    kept = saved(world(**both))
    assert [step.name for step in kept.steps if step.kind == "destroy"] == [N.name]
    found = applied(kept, world(LATER, **both))
    assert [one.name for one in found.plan.actions if one.kind == "destroy"] == [N.name]
    busy = applied(kept, world(LATER, **{**both, "pods": (pod(node=N.name),)}))
    assert {one.kind for one in busy.plan.actions} == {"annotate", "update", "launch"}, "that n is busy is noted"


def test_L22_leftovers_that_went_by_themselves_are_done_and_unknown_ones_refused() -> None:
    lost = device("tgp-a1b2c3d4-p-00009", last_seen=at("11:00"))
    findings = {f"O9||{lost.id}": at("11:30")}
    tagged = specs(*TWO, classes=(node_class(),))
    kept = saved(world(devices=(lost,), findings=findings), tagged, "reap")
    assert [step.kind for step in kept.steps] == ["destroy", "delete_device"]
    assert of(applied(kept, world(LATER, devices=(lost,), findings=findings), tagged), "delete_device").result == "applied"
    gone = of(applied(kept, world(LATER, devices=()), tagged), "delete_device")
    assert (gone.result, gone.why) == ("done", "gone already")
    unknown = of(applied(kept, world(LATER, devices=None), tagged), "delete_device")
    assert (unknown.result, unknown.why) == ("refused", "whether it is still there is unknown")
    online = of(
        applied(kept, world(LATER, devices=(dataclasses.replace(lost, online=True),), findings=findings), tagged), "delete_device"
    )
    assert online.result == "refused" and "is online in the mesh" in online.why


def test_L22_the_mass_guard_holds_at_application_too() -> None:
    lost = [device(f"tgp-a1b2c3d4-p-0000{place}", last_seen=at("11:00")) for place in range(4)]
    findings = {f"O9||{one.id}": at("11:30") for one in lost}
    observed = world(devices=tuple(lost), findings=findings)
    kept = saved(observed, WANTED, "reap", allow_mass_delete=True)
    assert len([step for step in kept.steps if step.kind == "delete_device"]) == 4
    found = applied(kept, observed)
    assert {one.result for one in found.checks if one.step.kind == "delete_device"} == {"refused"}
    assert "guard_refused" in found.checks[-1].why
    assert {one.result for one in applied(kept, observed, allow_mass_delete=True).checks} == {"applied"}


def test_L22_destroy_by_name_is_kept_with_force() -> None:
    kept = saved(world(), WANTED, "destroy", destroy=Destroy(names=(N.name,), force=True))
    assert kept.request.destroy == Destroy(names=(N.name,), force=True)
    found = applied(kept, world(LATER, pods=(pod(node=N.name),)))
    action = of(found, "destroy").action
    assert action is not None and action.claim is not None and action.claim.deletion is not None and action.claim.deletion.force


# ---- what rents


def fresh(**facts: t.Any) -> Observation:
    return seen(facts.pop("now", LATER), **{"offers": (offer("0.42", id="g"),), **facts})


Q = specs(pool("q"), q=1)


def one_launch(wanted: Specs = Q, **settings: t.Any) -> tuple[SavedPlan, str]:
    kept = saved(fresh(now=NOON), wanted, "provision", **settings)
    (step,) = kept.steps
    return kept, step.name


def test_L22_applying_twice_launches_once() -> None:
    kept, name = one_launch()
    made = launched(applied(kept, fresh(), Q))
    assert (made.name, made.phase, made.version) == (name, Phase.PENDING, "")
    sent = dataclasses.replace(made, phase=Phase.PROVISIONING, launch_started=LATER)
    for phase, more in [
        (Phase.PROVISIONING, {"instance_id": "i"}),
        (Phase.BOOTING, {"instance_id": "i"}),
        (Phase.READY, {"instance_id": "i"}),
    ]:
        again = applied(kept, fresh(claims=(dataclasses.replace(sent, phase=phase, **more),)), Q)
        assert (of(again, "launch").result, of(again, "launch").why) == ("done", f"was launched already ({phase.value})")
        assert not [one for one in again.plan.actions if one.kind == "launch"]
    for now, why in [(LATER, "may still show its effect"), (at("12:20"), "no machine appeared since")]:
        open_call = applied(kept, fresh(now=now, claims=(sent,)), Q)
        assert of(open_call, "launch").result == "done" and why in of(open_call, "launch").why


def test_L22_a_claim_whose_call_was_not_sent_goes_on_at_an_agreed_price() -> None:
    """The first application was killed between its record and its create call."""
    kept, name = one_launch()
    unsent = dataclasses.replace(launched(applied(kept, fresh(), Q)), version="9")
    again = launched(applied(kept, fresh(claims=(unsent,), offers=(offer("0.44", id="g"),)), Q))
    assert (again.name, again.version, again.reserved_price) == (name, "9", Decimal("0.44"))
    dear = applied(kept, fresh(claims=(unsent,), offers=(offer("0.45", id="g"),)), Q)
    assert of(dear, "launch").result == "refused"


def test_L22_a_launch_whose_answer_was_lost_for_good_goes_on_as_planned() -> None:
    """Its ten minutes are over: the plan takes the offer of now. What changed since the plan was made is not touched."""
    open_call = claim("tgp-a1b2c3d4-q-00007", Phase.PROVISIONING, pool="default/q", offer=offer("0.39", id="old"), version="3")
    kept = saved(fresh(now=NOON, claims=(open_call,)), Q, "provision")
    assert [(step.kind, step.needs.offer) for step in kept.steps] == [("resume", "lambda/g")]
    found = of(applied(kept, fresh(claims=(open_call,)), Q), "resume")
    assert found.result == "applied" and found.action is not None and found.action.claim is not None
    made = found.action.claim
    assert (made.offer.id, made.version, made.launch_started, [one.result for one in made.attempts]) == (
        "g",
        "3",
        None,
        ["refused"],
    )
    assert of(applied(kept, fresh(claims=(open_call,), offers=(offer("0.45", id="g"),)), Q), "resume").result == "refused"
    changed = dataclasses.replace(open_call, version="4")
    later = of(applied(kept, fresh(claims=(changed,)), Q), "resume")
    assert (later.result, later.action) == ("done", None) and "no machine appeared since" in later.why
    assert of(applied(kept, fresh(), Q), "resume").why == "its claim is gone"


def test_L22_a_name_that_was_used_is_never_used_again() -> None:
    kept, name = one_launch()
    closed = applied(kept, fresh(), Q, {name: at("12:01")})
    assert (of(closed, "launch").result, of(closed, "launch").why) == ("done", "was launched and terminated already")
    lost = applied(kept, fresh(instances=(instance(name),)), Q)
    assert of(lost, "launch").result == "refused" and "without a claim" in of(lost, "launch").why


@pytest.mark.parametrize(
    "changed, wanted, why",
    [
        ({"offers": ()}, Q, "offer lambda/g: is not offered any more"),
        ({"offers": (offer("0.42", id="g", available=0),)}, Q, "offer lambda/g: not available"),
        ({"offers": (offer(None, id="g"),)}, Q, "offer lambda/g: price unknown"),
        ({"blocks": {key_of(offer("0.42", id="g")): at("13:00")}}, Q, "blocked"),
        ({"devices": None}, Q, "mesh unknown"),
        ({"nodes": None}, Q, "nodes unknown"),
        ({"claims": None}, Q, "the claims could not be read"),
        ({}, specs(pool("other"), other=0), "no document describes its pool default/q any more"),
        ({}, specs(pool("q", generation="new"), q=1), "the documents of default/q were changed"),
        ({}, specs(pool("q"), classes=(node_class(generation="new"),), q=1), "the documents of default/q were changed"),
        ({"claims": (claim("tgp-a1b2c3d4-q-00001", pool="default/q"),)}, Q, "default/q has as many machines as it wants by now"),
    ],
)
def test_L22_a_launch_whose_ground_is_gone_is_refused(changed: dict[str, t.Any], wanted: Specs, why: str) -> None:
    kept, _name = one_launch()
    if changed.get("claims"):
        changed = {**changed, "instances": (instance("tgp-a1b2c3d4-q-00001"),), "nodes": (node("tgp-a1b2c3d4-q-00001"),)}
    found = applied(kept, fresh(**changed), wanted)
    assert of(found, "launch").result == "refused" and why in of(found, "launch").why, words(found)


def test_L22_a_limit_that_is_reached_meanwhile_refuses_what_does_not_fit() -> None:
    wanted = specs(pool("q"), pool("p"), classes=(node_class(max_hourly_cost=Decimal("1.26")),), q=2)
    kept = saved(fresh(now=NOON), wanted, "provision")
    assert len(kept.steps) == 2
    stranger: dict[str, t.Any] = {"claims": (claim(),), "instances": (instance(),), "nodes": (node(),)}
    assert [one.result for one in applied(kept, fresh(**stranger), wanted).checks] == ["applied", "applied"], "1.26 is inclusive"
    dearer = {**stranger, "offers": (offer("0.43", id="g"),)}
    found = applied(kept, fresh(**dearer), wanted)
    assert [one.result for one in found.checks] == ["applied", "refused"]
    assert found.checks[1].why == "offer lambda/g: limit:maxHourlyCost"


def test_L22_the_narrower_limit_of_both_runs_counts() -> None:
    kept, _name = one_launch(max_hourly_total=Decimal("0.42"), max_nodes_total=3)
    dear = fresh(offers=(offer("0.43", id="g"),))
    for given in (None, Decimal(9)):
        assert of(applied(kept, dear, Q, max_hourly_total=given), "launch").why == "offer lambda/g: limit:max_hourly_total"
    assert of(applied(kept, fresh(), Q, max_nodes_total=0), "launch").why == "offer lambda/g: limit:max_nodes_total"
    assert settings_of(kept, Settings(max_nodes_total=5)).max_nodes_total == 3


def test_L22_the_wanted_number_is_that_of_the_plan() -> None:
    wanted = specs(pool("q"), q=3)
    kept = saved(fresh(now=NOON), wanted, "provision")
    assert len(kept.steps) == 3
    here: dict[str, t.Any] = {"claims": (claim("tgp-a1b2c3d4-q-0000x", pool="default/q"),)}
    here |= {"instances": (instance("tgp-a1b2c3d4-q-0000x"),), "nodes": (node("tgp-a1b2c3d4-q-0000x"),)}
    assert [one.result for one in applied(kept, fresh(**here), wanted).checks] == ["applied", "applied", "refused"]


def test_L22_only_choices_within_the_bound_stay() -> None:
    first, second, third = offer("0.42", id="a"), offer("0.43", id="b"), offer("0.60", id="c")
    kept = saved(fresh(now=NOON, offers=(first, second, third)), Q, "provision")
    now = (offer("0.44", id="a"), second, third, offer("0.43", id="new"))
    made = launched(applied(kept, fresh(offers=now), Q))
    assert made.offer.id == "a" and [one.id for one in made.candidates] == ["b"]


def test_L22_everything_neither_gives_back_nor_rents_the_same_shape_in_one_run() -> None:
    """L-18: a pool that grows gives nothing back."""
    found = plan(world(), specs(*TWO, p=2), Settings(mode="everything"), CAPABILITIES, "run-1")
    assert [one.kind for one in found.actions if one.kind in ("launch", "destroy")] == ["launch"]
    kept = [action for action in found.actions if action.kind == "report" and action.name == N.name]
    assert "of the same shape is still joining" in kept[0].detail


def test_L22_everything_is_reap_where_nothing_is_wanted() -> None:
    for mode in ("reap", "everything"):
        found = plan(world(), specs(), Settings(mode=mode), CAPABILITIES, "run-1")
        assert one(Plan(tuple(a for a in found.actions if a.kind == "destroy")), "destroy").reason == "Empty"


# ---- the record


def record() -> dict[str, t.Any]:
    made = saved()
    return to_record(made)


@pytest.mark.parametrize(
    "path, value, field",
    [
        ("format_version", 2, "plan.format_version"),
        ("format_version", True, "plan.format_version"),
        ("format_version", None, "plan.format_version"),
        ("cluster_id", None, "plan.cluster_id"),
        ("made_at", "yesterday", "plan.made_at"),
        ("request.mode", 7, "plan.request.mode"),
        ("steps", {}, "plan.steps"),
        ("steps.1.price_hour", "much", "plan.steps[1].price_hour"),
        ("steps.1.price_hour", "NaN", "plan.steps[1].price_hour"),
        ("steps.1.price_hour", 0.42, "plan.steps[1].price_hour"),
        ("steps.1.claim.offer.gpu_count", "1", "plan.steps[1].claim.offer.gpu_count"),
        ("steps.0.needs.more", "x", "plan.steps[0].needs.more"),
        ("costs.hour_now", None, "plan.costs.hour_now"),
        ("steps.1.name", "tgp-a1b2c3d4-q-99999", "plan.digest"),
        ("steps.1.needs.price_bound", "99", "plan.digest"),
        ("digest", "0", "plan.digest"),
        ("digest", None, "plan.digest"),
    ],
)
def test_L22_a_plan_that_was_altered_is_refused_by_field(path: str, value: t.Any, field: str) -> None:
    content: t.Any = copy.deepcopy(record())
    place, *parts = content, *path.split(".")
    for part in parts[:-1]:
        place = place[int(part)] if isinstance(place, list) else place[part]
    place[parts[-1]] = value
    with pytest.raises(InvalidInput) as refused:
        from_record(content)
    assert refused.value.message.startswith(field) and "plan.yml" in str(refused.value)


@pytest.mark.parametrize("content", [None, [], "plan", {}, {"format_version": 1}, {"hosts": "all"}])
def test_L22_what_is_no_plan_is_refused(content: t.Any) -> None:
    with pytest.raises(InvalidInput, match="plan"):
        from_record(content)


@pytest.mark.parametrize("mode", ["status", "sometimes"])
def test_L22_a_mode_that_changes_nothing_is_no_plan(mode: str) -> None:
    made = saved()
    odd = dataclasses.replace(made, request=dataclasses.replace(made.request, mode=mode))
    with pytest.raises(InvalidInput, match=r"plan\.request\.mode"):
        from_record(to_record(odd))


def test_L22_a_launch_without_its_claim_or_price_is_refused() -> None:
    made = saved()
    launch = made.steps[1]
    bare = dataclasses.replace(made, steps=(dataclasses.replace(launch, claim=None),))
    with pytest.raises(InvalidInput, match=r"plan\.steps\[0\]\.claim"):
        from_record(to_record(bare))
    free = dataclasses.replace(
        made, steps=(dataclasses.replace(launch, needs=dataclasses.replace(launch.needs, price_bound=None)),)
    )
    with pytest.raises(InvalidInput, match=r"plan\.steps\[0\]\.needs\.price_bound"):
        from_record(to_record(free))


def test_L22_a_saved_plan_is_good_for_thirty_minutes() -> None:
    made = saved()
    refuse_other(made, CLUSTER, NOON + timedelta(minutes=30))
    refuse_other(made, CLUSTER, NOON - timedelta(seconds=60))
    with pytest.raises(InvalidInput, match=r"plan\.made_at.*30m1s ago; plans are good for 30m"):
        refuse_other(made, CLUSTER, NOON + timedelta(minutes=30, seconds=1))
    with pytest.raises(InvalidInput, match=r"plan\.made_at.*still to come"):
        refuse_other(made, CLUSTER, NOON - timedelta(seconds=61))
    with pytest.raises(InvalidInput, match=r"plan\.cluster_id.*a1b2c3d4, this is ffffffff"):
        refuse_other(made, "ffffffff", NOON)


def test_L22_the_hash_is_of_claims_nodes_and_prices() -> None:
    first = saved().inputs
    versioned = saved(world(claims=(dataclasses.replace(N, version="8"),))).inputs
    assert (
        len({first, versioned, saved(world(price="0.43")).inputs, saved(world(nodes=(node(N.name, uid="u", **IDLE),))).inputs}) == 4
    )
    assert saved(world()).inputs == first


def test_L22_a_launch_that_made_nothing_makes_room_for_others() -> None:
    """It is of no use to the pods that wait: the same plan gives it up and rents others in its place, all of them when it is applied."""
    begun = claim(
        phase=Phase.PENDING, version="3", created=at("11:55"), offer=offer("1.50", id="four", gpu_count=4), expected_gpus=4
    )
    pods = tuple(waiting(f"w{number}", 1, placement=TOLERATES) for number in range(4))
    crowd, asked = seen(claims=(begun,), offers=(offer("0.40", id="one"),), pods=pods), specs(pool())
    found = applied(saved(crowd, asked, "autoscale"), crowd, asked)
    assert sorted((one.step.kind, one.result) for one in found.checks) == [("destroy", "applied"), *[("launch", "applied")] * 4]


def test_L22_an_applied_launch_waits_for_all_slices() -> None:
    sliced = specs(pool("q", slices=4), q=1)
    kept, two = saved(seen(offers=(offer(id="g", gpu_count=2),)), sliced), seen(LATER, offers=(offer(id="g", gpu_count=2),))
    assert launched(applied(kept, two, sliced)).expected_gpus == 8
