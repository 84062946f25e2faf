# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose a machine is (L-1a): name, cluster, stamp, generation, claims; and that every decision asks it."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.model import CloudView, Deletion, Instance, Observation, Phase, Plan
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import MODES, Destroy, Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cluster_state import Situation
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection import auxiliary_resources, orphans
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection.ownership import (
    Ownership,
    Proof,
    Store,
    claimed,
    generations_of,
    owner_of,
    remembered,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plan import plan
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES
from hypothesis import given
from hypothesis import strategies as st

from .build import NOON, at, claim, device, instance, node, node_class, offer, pool, specs
from .build import seen as observed

OURS, OTHER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
NAME = "tgp-a1b2c3d4-p-00001"
STAMP = {"cluster": "a1b2c3d4", "generation": OURS, "nonce": NAME}
STAMPED = ("gcp", "lambda", "runpod", "vast", "vultr")
ENDS = ("destroy", "delete_instance")


def machine(cloud: str, marks: t.Mapping[str, str], **facts: t.Any) -> Instance:
    return instance(cloud=cloud, marks=dict(marks), **facts)


def verdict_of(one: Instance, *claims: t.Any) -> tuple[Ownership, Proof | None]:
    found = owner_of(one, CAPABILITIES[one.cloud], Store("a1b2c3d4", (OURS,), claimed(claims)))
    return found.ownership, found.proof


def test_L1a_capabilities_say_which_clouds_carry_a_stamp() -> None:
    assert {name for name, one in CAPABILITIES.items() if one.stamped} == set(STAMPED)
    assert all(CAPABILITIES[name].tags for name in STAMPED)


@pytest.mark.parametrize("cloud", STAMPED)
@pytest.mark.parametrize(
    ("marks", "unclaimed", "with_claim"),
    [
        (STAMP, (Ownership.OURS, Proof.STAMP), (Ownership.OURS, Proof.STAMP)),
        ({}, (Ownership.FOREIGN, None), (Ownership.OURS, Proof.CLAIM)),
        ({"cluster": "a1b2c3d4"}, (Ownership.FOREIGN, None), (Ownership.OURS, Proof.CLAIM)),  # the stamp of version 0.1
        ({"created": "1"}, (Ownership.FOREIGN, None), (Ownership.OURS, Proof.CLAIM)),
        ({"cluster": "ffffffff", "generation": OURS}, (Ownership.FOREIGN, None), (Ownership.FOREIGN, None)),
        ({"cluster": "a1b2c3d4", "generation": OTHER}, (Ownership.FOREIGN, None), (Ownership.FOREIGN, None)),
    ],
)
def test_L1a_stamp_then_claim(cloud: str, marks: dict[str, str], unclaimed: t.Any, with_claim: t.Any) -> None:
    one = machine(cloud, marks)
    assert verdict_of(one) == unclaimed
    assert verdict_of(one, claim(cloud=cloud)) == with_claim


def test_L1a_where_no_stamp_is_possible_the_name_decides() -> None:
    one = machine("paperspace", {})
    assert verdict_of(one) == (Ownership.OURS, Proof.NAME)
    assert verdict_of(dataclasses.replace(one, name="tgp-ffffffff-p-00001"))[0] is Ownership.FOREIGN
    assert verdict_of(dataclasses.replace(one, name="my-workstation"))[0] is Ownership.UNRELATED


def test_L1a_a_claim_of_another_cloud_with_the_same_id_proves_nothing() -> None:
    assert verdict_of(machine("vast", {}), claim(cloud="runpod"))[0] is Ownership.FOREIGN


def test_L1a_a_renamed_machine_is_ours_by_its_claim() -> None:
    renamed = machine("vast", STAMP, name="renamed", id="i-00001")
    assert verdict_of(renamed, claim(cloud="vast"))[0] is Ownership.OURS
    assert verdict_of(renamed)[0] is Ownership.UNRELATED


def test_L1a_the_record_of_generations() -> None:
    assert generations_of({}) == ()
    assert generations_of({"generation": "b", "earlier": ["a", "b"]}) == ("b", "a")
    for odd in ({"generation": ""}, {"generation": 7}, {"drawn": "x"}, {"generation": "a", "earlier": [None]}):
        with pytest.raises(InvalidInput):
            generations_of(odd)


def test_L1a_a_lost_record_is_found_again_in_the_claims() -> None:
    known = [claim(store_generation=one) for one in ("b", "a", "b", "")]
    assert remembered(known) == "b"
    assert remembered([claim()]) == ""


# ---- decisions


def decide(mode: str = "reap", **facts: t.Any) -> Plan:
    """Two looks 15 minutes apart at the same world, the second one's plan."""
    wanted = specs(classes=(node_class(clouds=("vast", "runpod", "lambda", "paperspace")),))
    world = observed(at("12:15"), generations=(OURS,), **facts)
    settings = Settings(mode=mode, destroy=Destroy(all=mode == "destroy"))
    first = plan(world, wanted, settings, CAPABILITIES, "run-1")
    later = dataclasses.replace(world, now=world.now + timedelta(minutes=15), findings=first.findings)
    return plan(later, wanted, settings, CAPABILITIES, "run-2")


def ended(found: Plan) -> set[str]:
    return {one.claim.instance_id if one.claim else one.target for one in found.actions if one.kind in ENDS}


def reports(found: Plan) -> list[str]:
    return [one.detail for one in found.actions if one.kind == "report"]


@pytest.mark.parametrize("cloud", ["vast", "runpod"])
def test_L1a_E_foreign_with_our_name_and_no_stamp_is_reported_and_never_deleted(cloud: str) -> None:
    found = decide(clouds={cloud: CloudView((machine(cloud, {}),), ())})
    assert not ended(found)
    assert reports(found) == [f"{cloud} i-00001 has a name of this cluster, no stamp of ours and no claim; it is never changed"]


@pytest.mark.parametrize("cloud", ["vast", "runpod"])
@pytest.mark.parametrize("mode", MODES)
def test_L1a_E_ours_and_foreign_of_one_name_ours_stays_and_foreign_is_reported(cloud: str, mode: str) -> None:
    ours, foreign = machine(cloud, STAMP), machine(cloud, {}, id="foreign", created=at("10:00"))
    mine = claim(cloud=cloud, offer=offer(cloud=cloud), pool="default/p")
    nodes = (node(labels={"tgp.io/instance-id": "i-00001"}),)
    found = decide(mode, clouds={cloud: CloudView((ours, foreign), ())}, claims=(mine,), nodes=nodes)
    assert "foreign" not in ended(found)
    assert all("foreign" not in one.claim.ids_seen for one in found.actions if one.claim)
    assert mode != "reap" or any("foreign has a name of this cluster" in one for one in reports(found))


def test_L1a_E_an_empty_store_reports_the_machines_of_another_generation() -> None:
    theirs = {**STAMP, "generation": OTHER}
    found = decide(clouds={"lambda": CloudView((machine("lambda", theirs),), ())}, devices=(device(online=True),))
    assert not [one for one in found.actions if one.kind != "report"]
    assert f"another record store (generation {OTHER})" in reports(found)[0]
    assert any("adopt.yml" in one for one in found.warnings)


def test_L1a_E_the_same_generation_from_a_backup_of_the_store_is_adopted() -> None:
    nodes = (node(labels={"tgp.io/instance-id": "i-00001"}),)
    found = decide(clouds={"lambda": CloudView((machine("lambda", STAMP),), ())}, nodes=nodes, pods=())
    assert "Adopted" in [one.reason for one in found.actions]
    assert not [one for one in found.actions if one.kind in ENDS and one.reason == "Orphan"]


def test_L1a_machines_of_version_0_1_stay_ours_by_their_claims_and_are_reported_without() -> None:
    old = machine("vast", {"cluster": "a1b2c3d4"})
    mine = claim(cloud="vast", offer=offer(cloud="vast"))
    listed = {"vast": CloudView((old,), ())}
    assert not any("stamp" in one for one in reports(decide(clouds=listed, claims=(mine,), nodes=(node(),))))
    found = decide(clouds=listed)
    assert not ended(found)
    assert "no generation in its stamp" in reports(found)[0]


@pytest.mark.parametrize("phase", [Phase.READY, Phase.TERMINATING, Phase.JOINING])
def test_L1a_a_claim_for_a_machine_with_a_foreign_stamp_ends_nothing(phase: Phase) -> None:
    theirs = {**STAMP, "generation": OTHER}
    deletion = Deletion("Expired", NOON) if phase is Phase.TERMINATING else None
    mine = claim(
        phase=phase, cloud="vast", offer=offer(cloud="vast"), deletion=deletion, instance_id="i-00001", ids_seen=("i-00001",)
    )
    for mode in ("reap", "destroy", "autoscale", "everything"):
        found = decide(mode, clouds={"vast": CloudView((machine("vast", theirs),), ())}, claims=(mine,))
        assert not ended(found)
        assert mode == "everything" or any("carries the stamp of another record store" in one for one in found.problems)


# ---- any world

_marks = st.sampled_from(
    [
        {},
        STAMP,
        {"cluster": "a1b2c3d4"},
        {**STAMP, "generation": OTHER},
        {"cluster": "ffffffff", "generation": OURS},
        {"created": "1"},
    ]
)
_names = st.sampled_from([NAME, "tgp-a1b2c3d4-p-00002", "tgp-ffffffff-p-00003", "someone"])


@st.composite
def worlds(draw: st.DrawFn) -> Observation:
    clouds, claims, nodes, devices = {}, [], [], []
    for cloud in ("lambda", "paperspace", "runpod", "vast"):
        rows = []
        for number in range(draw(st.integers(0, 3))):
            when = at("11:00") + timedelta(minutes=draw(st.integers(0, 59)))
            rows.append(machine(cloud, draw(_marks), name=draw(_names), id=f"{cloud}-{number}", created=when))
        clouds[cloud] = CloudView(tuple(rows), ())
    for name in (NAME, "tgp-a1b2c3d4-p-00002"):
        if draw(st.booleans()):
            cloud = draw(st.sampled_from(sorted(clouds)))
            known = draw(st.sampled_from(["", *(f"{cloud}-{number}" for number in range(3))]))
            phase = draw(st.sampled_from([Phase.PROVISIONING, Phase.BOOTING, Phase.READY, Phase.TERMINATING]))
            claims.append(
                claim(
                    name,
                    phase,
                    cloud=cloud,
                    offer=offer(cloud=cloud),
                    instance_id=known,
                    ids_seen=(known,) if known else (),
                    deletion=Deletion("Manual", NOON) if phase is Phase.TERMINATING else None,
                )  # fmt: skip
            )
        if draw(st.booleans()):
            nodes.append(node(name, draw(st.sampled_from([True, False, None]))))
        if draw(st.booleans()):
            devices.append(device(name, draw(st.sampled_from([True, False, None]))))
    return observed(
        at("13:00"), clouds=clouds, claims=tuple(claims), nodes=tuple(nodes), devices=tuple(devices), generations=(OURS,)
    )


@given(worlds(), st.sampled_from(MODES))
def test_L1a_no_action_of_any_plan_is_about_a_foreign_machine(world: Observation, mode: str) -> None:
    wanted = specs(pool(), classes=(node_class(clouds=("vast", "runpod", "lambda", "paperspace")),))
    settings = Settings(mode=mode, destroy=Destroy(all=mode == "destroy", force=True), allow_mass_delete=True)
    findings: t.Mapping[str, t.Any] = {}
    for later in (0, 15, 30):
        current = dataclasses.replace(world, now=world.now + timedelta(minutes=later), findings=findings)
        with pytest.MonkeyPatch.context() as patch:
            for module in (orphans, auxiliary_resources):
                patch.setattr(module, "ORPHAN_AGE", 0)
            found = plan(current, wanted, settings, CAPABILITIES, f"run-{later}")
        findings = found.findings
        situation = Situation(current, wanted, settings, CAPABILITIES)
        foreign = {one.id for one in situation.listed() if situation.ownership(one) is not Ownership.OURS}
        assert not ended(found) & foreign
        for action in found.actions:
            if action.claim is not None and action.kind != "update":
                assert action.claim.instance_id not in foreign
            if action.reason == "Adopted":
                assert action.claim is not None and action.claim.instance_id not in foreign
