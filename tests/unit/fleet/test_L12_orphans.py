# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-12: things of ours that nobody knows. One test per case, and the mass guard."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    CloudChoice,
    CloudView,
    Deletion,
    Extra,
    Instance,
    InstanceState,
    Machine,
    MeshKey,
    Node,
    Phase,
    Plan,
    SpendingBudget,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.model.labels import INSTANCE_ID_LABEL
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.bill import cost
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import ledger_line, read_ledger
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection.mass_deletion_guard import allowed
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling import capacity

from .build import CLUSTER, at, claim, decide, deletions, device, instance, node, node_class, of, offer, one, pool, seen, specs
from .build import pod as a_pod


def twice(first: str = "11:59", second: str = "12:00", **facts: t.Any) -> Plan:
    """Two runs over the same world; what the first one remembers is known to the second."""
    earlier = decide(seen(at(first), **facts))
    assert not deletions(earlier), earlier.actions
    claims = {made.name: made for made in facts.get("claims", ())}
    claims.update({action.name: t.cast(t.Any, action.claim) for action in of(earlier, "update")})
    return decide(seen(at(second), **{**facts, "claims": tuple(claims.values()), "findings": earlier.findings}))


def reports(found: Plan) -> list[str]:
    return [action.reason for action in of(found, "report")]


OLD = instance(created=at("11:00"))


def test_L12_O1_machine_without_claim_goes_in_the_second_run() -> None:
    action = one(twice(instances=(OLD,)), "destroy")
    assert action.reason == "Orphan" and action.claim is not None
    assert (action.claim.name, action.claim.instance_id, action.claim.ids_seen) == (OLD.name, OLD.id, (OLD.id,))
    assert action.claim.launch_started == at("11:00")  # its whole life is paid for


@pytest.mark.parametrize("mode", ["reap", "provision", "destroy"])
def test_L12_O11_a_machine_of_a_claims_name_at_another_cloud_goes(mode: str) -> None:
    """Its create call had been given up as lost, the claim went on elsewhere, and then the machine came after all."""
    late = instance(id="i-late")
    clouds = {"lambda": CloudView((late,), ()), "vast": CloudView((instance(cloud="vast"),), ())}
    facts = seen(clouds=clouds, claims=(claim(cloud="vast"),), nodes=(node(),), pods=(a_pod(),))
    action = one(decide(facts, mode=mode), "delete_instance")
    assert (action.target, action.value, action.reason, action.price_hour) == ("i-late", "lambda", "Duplicate", Decimal("-0.42"))
    assert not of(decide(facts, mode=mode), "destroy")
    assert all("i-late" not in (action.claim.ids_seen if action.claim else ()) for action in decide(facts, mode=mode).actions)
    stamped = instance(id="i-other", marks={"tgp:cluster": "ffffffff"})
    theirs = dataclasses.replace(facts, clouds={**clouds, "lambda": CloudView((stamped,), ())})
    assert not deletions(decide(theirs, mode=mode))


def test_L16_a_machine_of_a_claims_name_at_another_cloud_counts() -> None:
    clouds = {"lambda": CloudView((instance(id="i-late"),), (offer(),)), "vast": CloudView((instance(cloud="vast"),), ())}
    facts = seen(clouds=clouds, claims=(claim(cloud="vast"),), nodes=(node(),), ledger=read_ledger([]))
    room = [specs(classes=(node_class(max_nodes=most, clouds=("lambda", "vast")),), p=2) for most in (2, 3)]
    assert [len(of(decide(facts, spec, "provision"), "launch")) for spec in room] == [0, 1]
    money = SpendingBudget("day", Decimal("0.41"), action="drain_all")  # of the other one nothing is known yet but that it runs
    assert [action.reason for action in of(decide(facts, specs(pool(budget=money))), "destroy")] == ["Budget"]


@pytest.mark.parametrize("given_back", [True, False])
def test_L21_an_own_machine_that_somebody_else_switched_on_is_left_alone(given_back: bool) -> None:
    """Its Node keeps our labels of the last time; what our last drain left on it tells that we are done with it."""
    marks = {"tgp.io/drain-started": "2026-08-19T10:00:00Z"} if given_back else {}
    mine = node("box", labels={"tgp.io/instance-id": "box"}, annotations=marks)
    machine = instance("box", cloud="webhook", id="box", created=None)
    wanted = specs(classes=(node_class(clouds=(CloudChoice("webhook", machines=(Machine("box", 1, "", ""),)),)),))
    found = decide(seen(clouds={"webhook": CloudView((machine,), ())}, nodes=(mine,)), wanted)
    assert [action.reason for action in of(found, "update")] == ["Adopted"] * (not given_back)
    told = [action.detail for action in of(found, "report")]
    assert told == ["is switched on, but not by us; it is not changed"] * given_back and not found.notices


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (InstanceState.RUNNING, "is switched on, but not by us; it is not changed"),
        (InstanceState.PENDING, "is being switched on, but not by us; it is not changed"),
        (InstanceState.TERMINATING, "is being switched off, but not by us; it is not changed"),
        (InstanceState.UNKNOWN, "may be switched on: its state is unknown; it is not changed"),
    ],
)
def test_L21_of_an_own_machine_nothing_is_said_that_is_not_known(state: InstanceState, words: str) -> None:
    machine = instance("box", state, cloud="webhook", id="box", created=None)
    wanted = specs(classes=(node_class(clouds=(CloudChoice("webhook", machines=(Machine("box", 1, "", ""),)),)),))
    found = decide(seen(clouds={"webhook": CloudView((machine,), ())}), wanted)
    assert [action.detail for action in of(found, "report")] == [words] and not deletions(found)


def test_L12_O1_what_its_disk_costs_is_not_forgotten() -> None:
    """Where disk and GPUs are billed apart, the disk of a machine that never ran is all there is to pay."""
    lone = instance(state=InstanceState.PENDING, cloud="vast", created=at("12:00"), storage_price_hour=Decimal("0.02"))
    facts = seen(at("12:20"), instances=(lone,), findings={f"O1|vast|{lone.id}": at("12:05")})
    claim = one(decide(facts), "destroy").claim
    assert claim is not None and Decimal(ledger_line(claim, end=at("13:00"), bills_boot=False)["cost"]) == Decimal("0.02")


def test_L12_O1_time_line() -> None:
    orphan = instance(created=at("12:00:05"))
    findings: t.Mapping[str, datetime] = {}
    for moment, goes in (("12:05", False), ("12:10", False), ("12:15:05", True)):
        found = decide(seen(at(moment), instances=(orphan,), findings=findings))
        assert bool(of(found, "destroy")) is goes
        findings = found.findings
    assert cost(Decimal("0.42"), at("12:00:05"), at("12:15:05")) == Decimal("0.105")


def test_L12_O1_two_runs_must_be_a_minute_apart() -> None:
    assert not of(twice("11:59:01", instances=(OLD,)), "destroy")


def test_L12_O1_age_from_first_sighting_when_the_cloud_tells_none() -> None:
    ageless = instance(created=None)
    assert not of(twice("11:50", "12:00", instances=(ageless,)), "destroy")
    assert of(twice("11:49:59", "12:00", instances=(ageless,)), "destroy")


def test_L12_O1_machines_of_one_name_go_together() -> None:
    twin = instance(id="i-twin", created=at("11:01"))
    action = one(twice(instances=(twin, OLD)), "destroy")
    assert action.claim is not None and action.claim.ids_seen == (OLD.id, "i-twin")
    assert not of(twice(instances=(dataclasses.replace(twin, created=at("11:50")), OLD)), "destroy")


def test_L12_O1_report_policy_only_reports() -> None:
    findings = decide(seen(at("11:50"), instances=(OLD,))).findings
    found = decide(seen(instances=(OLD,), findings=findings), orphan_policy="report")
    assert not deletions(found) and reports(found) == ["O1"]


def test_L12_O2_working_node_gets_its_claim_back() -> None:
    known = node(labels={"tgp.io/instance-id": OLD.id})
    found = decide(seen(instances=(OLD,), nodes=(known,)))
    adopted = one(found, "update")
    assert adopted.reason == "Adopted" and adopted.claim is not None and not deletions(found)
    assert (adopted.claim.phase, adopted.claim.pool, adopted.claim.node_class) == (Phase.READY, "default/p", "c")
    again = decide(seen(at("12:05"), instances=(OLD,), nodes=(known,), claims=(adopted.claim,)))
    assert not of(again, "destroy") and not any(action.reason == "Adopted" for action in again.actions)


@pytest.mark.parametrize("spot", [True, False])
@pytest.mark.parametrize("told", [True, False])
def test_L12_O2_labels_of_a_node_in_use_stay_as_they_are(spot: bool, told: bool) -> None:
    """A claim made anew says of the machine what the lost one said: pods choose nodes by these labels."""
    rented = offer(spot=spot, cloud="vast", gpu_memory_mib=24564)
    lost = claim(offer=rented, instance_id="i-1")
    marked = node(labels=capacity.node_labels(lost, pool(), CLUSTER))
    facts: dict[str, t.Any] = {"spot": spot, "region": "us-west-1", "instance_type": "gpu_1x"} if told else {}
    machine = instance(cloud="vast", id="i-1", **facts)
    found = decide(seen(clouds={"vast": CloudView((machine,), ())}, nodes=(marked,)))
    adopted = one(found, "update").claim
    assert adopted is not None and capacity.node_labels(adopted, pool(), CLUSTER) == marked.labels


def test_L12_O2_is_expected_to_show_all_slices() -> None:
    """The plugin that shares its two GPUs may not be at work yet."""
    machine, itself = instance(gpu_count=2), node(labels={"tgp.io/instance-id": "i-00001"}, allocatable={"nvidia.com/gpu": 2})
    found = decide(seen(instances=(machine,), nodes=(itself,)), specs(pool(slices=4)))
    adopted = one(found, "update").claim
    assert adopted is not None and (adopted.expected_gpus, adopted.initialized) == (8, None)


def test_L12_O2_counts_for_provision() -> None:
    known = node(labels={"tgp.io/instance-id": OLD.id})
    found = decide(seen(instances=(OLD,), nodes=(known,)), specs(p=1), "provision")
    assert of(found, "update") and not of(found, "launch") and not found.shortfall


@pytest.mark.parametrize("labels", [{}, {"tgp.io/instance-id": "i-other"}])
def test_L12_O3_ready_node_without_the_label_is_only_reported(labels: dict[str, str]) -> None:
    found = twice(instances=(OLD,), nodes=(node(labels=labels),))
    assert not deletions(found) and reports(found) == ["O3"]


def test_L12_O4_not_ready_node_goes_with_its_machine() -> None:
    sick = node(ready=False, ready_since=at("11:55"))
    assert one(twice(instances=(OLD,), nodes=(sick,)), "destroy").claim.node_uid == sick.uid  # type: ignore[union-attr]
    recent = dataclasses.replace(sick, ready_since=at("11:55:01"))
    assert not of(twice(instances=(OLD,), nodes=(recent,)), "destroy")


def test_L12_O5_ready_node_protects_and_the_third_run_fails_loudly() -> None:
    findings: t.Mapping[str, datetime] = {}
    made = claim()
    for moment, loud in (("12:00", False), ("12:00:30", False), ("12:01", False), ("12:02", True), ("12:03", True)):
        found = decide(seen(at(moment), claims=(made,), nodes=(node(),), pods=None, findings=findings))
        assert not deletions(found) and found.warnings and bool(found.problems) is loud, moment
        findings = found.findings
        made = t.cast(t.Any, of(found, "update")[0].claim) if of(found, "update") else made
    back = decide(seen(at("12:04"), claims=(made,), nodes=(node(),), instances=(OLD,), pods=None, findings=findings))
    assert not back.problems and not back.findings


def test_L12_O6_lost_machine_is_torn_down_in_the_second_run() -> None:
    sick = node(ready=None, ready_since=at("11:50"))
    assert one(twice(claims=(claim(),), nodes=(sick,)), "destroy").reason == "InstanceGone"
    assert one(twice(claims=(claim(),)), "destroy").reason == "InstanceGone"
    recent = node(ready=None, ready_since=at("11:55:01"))
    assert not of(twice(claims=(claim(),), nodes=(recent,)), "destroy")
    unsure = node(ready=None, ready_since=None)
    assert not of(twice(claims=(claim(),), nodes=(unsure,)), "destroy")


@pytest.mark.parametrize(("launched", "goes"), [("11:50", True), ("11:50:01", False)])
def test_L12_O6_a_machine_that_its_cloud_lists_late_is_not_lost(launched: str, goes: bool) -> None:
    """Ten minutes after its create call it counts as missed."""
    young = claim(phase=Phase.BOOTING, launch_started=at(launched), gone_since=at("11:55"))
    found = decide(seen(claims=(young,)))
    assert [action.reason for action in of(found, "destroy")] == ["FailedJoin"] * goes


def test_L12_O6_a_machine_that_comes_back_is_kept() -> None:
    gone = decide(seen(at("11:50"), claims=(claim(),)))
    missed = one(gone, "update").claim
    assert missed is not None and missed.gone_since == at("11:50")
    found = decide(seen(claims=(missed,), instances=(OLD,)))
    assert not of(found, "destroy") and one(found, "update").claim.gone_since is None  # type: ignore[union-attr]


def test_L12_O7_node_without_machine_and_claim() -> None:
    sick = node(ready=False, ready_since=at("11:50"))
    action = one(twice(nodes=(sick,)), "delete_node")
    assert (action.target, action.uid) == (sick.name, sick.uid)
    for protected in (
        dataclasses.replace(sick, labels={}),
        dataclasses.replace(sick, name="workstation"),
        dataclasses.replace(sick, name="tgp-ffffffff-p-00001"),
        dataclasses.replace(sick, ready_since=at("11:55:01")),
        dataclasses.replace(sick, ready_since=None),
    ):
        assert not deletions(twice(nodes=(protected,)))


def test_L12_O7_needs_the_list_of_its_own_cloud() -> None:
    sick = node(ready=False, ready_since=at("11:50"), labels={"tgp.io/provider": "vast"})
    assert not deletions(twice(nodes=(sick,)))
    assert not deletions(twice(nodes=(sick,), clouds={"lambda": CloudView(()), "vast": CloudView(None)}))
    assert deletions(twice(nodes=(sick,), clouds={"vast": CloudView(())}))


def test_L12_O7_the_node_of_a_machine_that_was_renamed_stays() -> None:
    """Its label says which machine it is, whatever that is called."""
    sick = node(ready=False, ready_since=at("11:50"), labels={INSTANCE_ID_LABEL: "i-00001"})
    other = instance("renamed-by-hand", id="i-00001")
    assert not of(twice(nodes=(sick,), instances=(other,)), "delete_node")
    assert of(twice(nodes=(sick,), instances=(dataclasses.replace(other, id="i-2"),)), "delete_node")


@pytest.mark.parametrize(
    ("labels", "stamp", "goes"),
    [
        ({INSTANCE_ID_LABEL: "i-00001"}, {"tgp:cluster": "ffffffff"}, True),
        ({INSTANCE_ID_LABEL: "i-other"}, {"tgp:cluster": "ffffffff"}, False),  # it is the Node's own, whatever its stamp says
        ({}, {"tgp:cluster": "ffffffff"}, False),
        ({INSTANCE_ID_LABEL: "i-00001"}, {"tgp:cluster": "a1b2c3d4"}, False),
        ({INSTANCE_ID_LABEL: "i-00001"}, {}, False),
    ],
)
def test_L12_O7_a_machine_of_another_cluster_holds_no_node_of_its_name(
    labels: dict[str, str], stamp: dict[str, str], goes: bool
) -> None:
    sick = node(ready=False, ready_since=at("11:50"), labels=labels)
    theirs = instance(sick.name, id="i-other", marks=stamp)
    assert bool(of(twice(nodes=(sick,), instances=(theirs,)), "delete_node")) == goes


def test_L12_O7_a_node_with_a_claim_is_its_claim_s() -> None:
    sick = node(ready=False, ready_since=at("11:50"))
    found = twice(nodes=(sick,), claims=(claim(),))
    assert one(found, "destroy").reason == "InstanceGone" and not of(found, "delete_node")


def test_L12_O8_ready_node_without_anything_is_only_reported() -> None:
    found = twice(nodes=(node(),))
    assert not deletions(found) and reports(found) == ["O8"]


# ---- clouds that are not asked, because no document names them any more

ELSEWHERE = {"tgp.io/provider": "vast", INSTANCE_ID_LABEL: "i-1"}


@pytest.mark.parametrize("ready", [True, False])
def test_L12_O15_a_node_of_a_cloud_that_is_not_asked_is_a_problem_of_the_run(ready: bool) -> None:
    """Its claim and its class are gone: its machine may exist and be billed, and no list of this run could show it."""
    lone = node(ready=ready, ready_since=at("11:00"), labels=ELSEWHERE)
    found = decide(seen(nodes=(lone,)))
    assert not deletions(found) and reports(found) == ["O15"]
    (problem,) = found.problems
    assert problem.startswith(f"{lone.name}: its Node has no claim, and its machine i-1 at vast may exist and be billed"), problem
    assert [(one.kind, one.subject) for one in found.notices] == [("orphan_found", "vast i-1")]
    for known in (
        {
            "claims": (claim(cloud="vast"),),
            "clouds": {"lambda": CloudView((), ()), "vast": CloudView((instance(cloud="vast"),), ())},
        },
        {"clouds": {"lambda": CloudView((), ()), "vast": CloudView(None)}},  # its list is unknown, which the run says
        {"nodes": (dataclasses.replace(lone, labels={}),)},
        {"nodes": (dataclasses.replace(lone, name="tgp-ffffffff-p-00001"),)},
        {"nodes": (dataclasses.replace(lone, labels={**lone.labels, "tgp.io/provider": "webhook"}),)},  # nobody bills it
    ):
        told = decide(seen(**{"nodes": (lone,), **known}))
        assert "O15" not in reports(told) and not any("may exist and be billed" in text for text in told.problems), known


def test_L12_O15_a_machine_that_was_seen_before_its_cloud_lost_its_class_is_not_forgotten() -> None:
    findings = {"O1|vast|i-7": at("11:00"), "O1|lambda|i-8": at("11:00"), "O7|vast|uid": at("11:00")}
    found = decide(seen(findings=findings))
    assert found.findings == {key: at("11:00") for key in findings if "vast" in key}
    (warning,) = found.warnings
    assert warning.startswith("vast i-7: seen without a claim at 2026-08-20T11:00:00Z, and vast is not asked any more"), warning
    assert not found.problems and not deletions(found)
    again = decide(seen(findings=findings, clouds={"lambda": CloudView((), ()), "vast": CloudView(())}))
    assert not again.warnings and not again.findings, "its cloud does not list it"


def test_L12_O9_offline_device_by_name_and_tag() -> None:
    action = one(twice(devices=(device(last_seen=at("11:49:59")),)), "delete_device")
    assert action.target == "d-00001"
    for protected in (
        device(last_seen=at("11:50")),
        device(last_seen=None),
        device(online=None),
        device(tags=("tag:laptop",)),
        device("tgp-ffffffff-p-00001"),
        device("laptop"),
    ):
        assert not deletions(twice(devices=(protected,)))


def test_L12_O9_device_of_anything_known_stays() -> None:
    gone = (device(last_seen=at("11:00")),)
    assert not of(twice(devices=gone, claims=(claim(),), nodes=(node(),), instances=(OLD,), pods=None), "delete_device")
    assert not of(twice(devices=gone, nodes=(node(),)), "delete_device")
    renamed = (device("tgp-a1b2c3d4-p-00009", last_seen=at("11:00"), id="d-7"),)
    known = (claim(mesh_device_id="d-7"),)
    assert not of(twice(devices=renamed, claims=known, nodes=(node(),), instances=(OLD,), pods=None), "delete_device")


def test_L12_O9_no_device_goes_while_a_cloud_cannot_be_listed() -> None:
    """Its machine may be one of that cloud."""
    gone = (device(last_seen=at("11:00")),)
    assert of(twice(devices=gone, clouds={"lambda": CloudView(()), "vast": CloudView(())}), "delete_device")
    assert not of(twice(devices=gone, clouds={"lambda": CloudView(()), "vast": CloudView(None)}), "delete_device")


@pytest.mark.parametrize(
    ("stamp", "goes"),
    [
        ({"cluster": "ffffffff", "generation": "g"}, True),
        ({"cluster": CLUSTER, "generation": "of another store"}, False),
    ],
)
def test_L12_O9_a_machine_of_another_cluster_holds_no_device_of_its_name(stamp: dict[str, str], goes: bool) -> None:
    machine = dataclasses.replace(OLD, marks=stamp)
    found = twice(devices=(device(last_seen=at("11:00")),), instances=(machine,), generations=("g-1",))
    assert bool(of(found, "delete_device")) is goes and not of(found, "destroy", "delete_instance")


def test_L12_O10_online_device_is_only_reported() -> None:
    found = twice(devices=(device(online=True),))
    assert not deletions(found) and reports(found) == ["O10"]


def test_L12_O12_terminating_claim_is_no_orphan() -> None:
    going = claim(phase=Phase.TERMINATING, deletion=Deletion("Empty", at("11:50")))
    assert one(decide(seen(claims=(going,), instances=(OLD,))), "destroy").reason == "Empty"


def test_L12_O13_unused_key_without_claim() -> None:
    key = MeshKey("k-1", "tgp-a1b2c3d4-p-00001")
    assert one(decide(seen(keys=(key,))), "delete_key").target == "k-1"
    for protected in (
        dataclasses.replace(key, invalid=True),
        dataclasses.replace(key, description="ci runner"),
        dataclasses.replace(key, description="tgp-ffffffff-p-00001"),
    ):
        assert not of(decide(seen(keys=(protected,))), "delete_key")
    held = {"claims": (claim(mesh_key_id="k-1"),), "nodes": (node(),), "instances": (OLD,)}
    assert not of(decide(seen(keys=(dataclasses.replace(key, description="tgp-a1b2c3d4-x-99999"),), **held)), "delete_key")


def test_L12_O13_cut_description_still_names_its_claim() -> None:
    long = "tgp-a1b2c3d4-a-very-long-pool-name-that-goes-on-and-o-00000"
    key = MeshKey("k-1", long[:50])
    assert not of(decide(seen(keys=(key,), claims=(claim(long, Phase.PENDING),))), "delete_key")


def test_L12_O14_foreign_machine_is_reported_and_left_alone() -> None:
    found = twice(
        instances=(instance("tgp-ffffffff-p-00001", created=at("10:00")), instance("workstation", created=at("10:00"), id="w"))
    )
    assert not deletions(found) and reports(found) == ["O14"]
    asked = decide(seen(instances=(instance("workstation", id="w"),)), report_foreign=True)
    assert reports(asked) == ["Foreign"]


def test_L12_O14_a_name_of_ours_without_the_stamp_is_somebodys() -> None:
    """RunPod has no tags; its names repeat, so name and stamp must agree."""
    copy = dataclasses.replace(OLD, cloud="runpod", marks={})
    found = twice(instances=(copy,))
    assert not deletions(found) and reports(found) == ["O14"]
    stamped = dataclasses.replace(copy, marks={"node": copy.name, "cluster": "a1b2c3d4"})
    assert of(twice(instances=(stamped,)), "destroy")
    other = dataclasses.replace(copy, marks={"node": copy.name, "cluster": "ffffffff"})
    assert not deletions(twice(instances=(other,)))


def test_L12_O15_unusable_list_decides_nothing_and_forgets_nothing() -> None:
    sick = node(ready=False, ready_since=at("11:00"))
    first = decide(seen(at("11:50"), nodes=(sick,), instances=(instance("tgp-a1b2c3d4-p-00007", created=at("10:00")),)))
    blind = decide(seen(at("11:55"), nodes=(sick,), clouds={"lambda": CloudView(None, problem="503")}, findings=first.findings))
    assert not deletions(blind) and blind.findings == first.findings


def test_L12_empty_list_by_mistake_deletes_nothing() -> None:
    claims = tuple(claim(f"tgp-a1b2c3d4-p-0000{place}") for place in range(4))
    nodes = tuple(node(made.name) for made in claims)
    found = twice(claims=claims, nodes=nodes, pods=None)
    assert not deletions(found) and sum("is Ready, but" in text for text in found.warnings) == 4


@pytest.mark.parametrize("missing", ["nodes", "claims"])
def test_L12_without_the_cluster_nothing_is_deleted(missing: str) -> None:
    facts = {"nodes": (), "claims": (claim(phase=Phase.FAILED),), "instances": (OLD,), "devices": (device(),)}
    for mode in ("reap", "destroy", "provision"):
        found = decide(seen(**{**facts, missing: None}), mode=mode)
        assert not deletions(found) and not of(found, "launch", "resume") and found.problems


@pytest.mark.parametrize(
    ("planned", "known", "fine"),
    [(2, 2, True), (3, 3, True), (4, 8, True), (5, 8, False), (50, 100, True), (51, 100, False), (4, 4, False)],
)
def test_L12_mass_guard_numbers(planned: int, known: int, fine: bool) -> None:
    assert allowed(planned, known, Settings()) is fine
    assert allowed(planned, known, Settings(allow_mass_delete=True))


def crowd(count: int) -> tuple[Instance, ...]:
    return tuple(instance(f"tgp-a1b2c3d4-p-1000{place}", created=at("10:00"), id=f"o-{place}") for place in range(count))


def test_L12_mass_guard_holds_back_one_kind_only() -> None:
    sick: tuple[Node, ...] = (node("tgp-a1b2c3d4-p-zzzzz", ready=False, ready_since=at("11:00")),)
    found = twice(instances=crowd(4), nodes=sick)
    assert not of(found, "destroy") and one(found, "delete_node")
    assert found.problems[0].startswith("guard_refused: 4 of 4 machines without a claim (O1)")
    findings = decide(seen(at("11:50"), instances=crowd(4))).findings
    freed = decide(seen(instances=crowd(4), findings=findings), allow_mass_delete=True)
    assert len(of(freed, "destroy")) == 4 and not freed.problems


def test_L12_mass_guard_for_lost_machines() -> None:
    claims = tuple(claim(f"tgp-a1b2c3d4-p-0000{place}") for place in range(4))
    found = twice(claims=claims)
    assert not of(found, "destroy") and "claims whose machine is gone" in found.problems[0]


def test_L12_status_only_reads() -> None:
    findings = decide(seen(at("11:50"), instances=(OLD,))).findings
    found = decide(seen(instances=(OLD,), nodes=(node("tgp-a1b2c3d4-p-zzzzz"),), findings=findings), mode="status")
    assert {action.kind for action in found.actions} <= {"report"} and "O8" in reports(found)


# ---- what clouds keep beside machines


SCRIPT = Extra("lambda", "startup script", "s-1", OLD.name, created=at("11:00"))


def beside(*extras: Extra, instances: tuple[Instance, ...] | None = (), read: bool = True) -> dict[str, t.Any]:
    return {"clouds": {"lambda": CloudView(instances, (), extras=extras if read else None)}}


def test_L12_O13_an_extra_without_machine_and_claim_goes_in_the_second_run() -> None:
    found = one(twice(**beside(SCRIPT)), "delete_extra")
    assert (found.name, found.target, found.uid, found.value) == (OLD.name, "s-1", "startup script", "lambda")


@pytest.mark.parametrize(
    "facts",
    [
        beside(SCRIPT, instances=(dataclasses.replace(OLD, created=at("11:58")),)),
        {**beside(SCRIPT), "claims": (claim(OLD.name, Phase.PROVISIONING, launch_started=at("11:58")),)},
        beside(dataclasses.replace(SCRIPT, created=at("11:55"))),
        beside(dataclasses.replace(SCRIPT, created=None)),
        beside(dataclasses.replace(SCRIPT, name="tgp-ffffffff-p-00001")),
        beside(dataclasses.replace(SCRIPT, name="my-script")),
        beside(SCRIPT, instances=None),
        beside(SCRIPT, read=False),
    ],
    ids=["has a machine", "has a claim", "young", "age unknown", "foreign", "not ours", "machines unknown", "extras unknown"],
)
def test_L12_O13_other_extras_stay(facts: dict[str, t.Any]) -> None:
    assert not of(twice(**facts), "delete_extra")


def test_L12_O13_an_extra_that_cannot_be_seen_now_is_not_forgotten() -> None:
    first = decide(seen(at("11:59"), **beside(SCRIPT)))
    blind = decide(seen(at("12:00"), **beside(read=False), findings=first.findings))
    assert blind.findings == first.findings
    assert one(decide(seen(at("12:01"), **beside(SCRIPT), findings=blind.findings)), "delete_extra")


def test_L12_mass_guard_holds_for_extras() -> None:
    many = tuple(dataclasses.replace(SCRIPT, id=f"s-{place}", name=f"tgp-a1b2c3d4-p-0000{place}") for place in range(5))
    found = twice(**beside(*many))
    assert not of(found, "delete_extra") and "things beside machines (lambda)" in found.problems[0]
