# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims as GPUNodeClaim objects, and the move between stores, in the middle of a fleet's life."""

from __future__ import annotations

import itertools
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput

from schemas.crds import claim_definition

from .rig import Rig

Json = dict[str, t.Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CLAIMS = "/apis/tgp.io/v1/namespaces/tgp-system/gpunodeclaims"
CRD: Json = {"claim_store": "crd"}


@pytest.fixture
def fleet(rig: Rig) -> Rig:
    """The kind, and two machines of ours with claims in ConfigMaps."""
    rig.kube("POST", DEFINITIONS, claim_definition())
    rig.provision(nodes=2)
    assert len(rig.claims()) == 2
    return rig


def objects(rig: Rig) -> dict[str, Json]:
    return {one["metadata"]["name"]: one for one in rig.kube("GET", CLAIMS)["items"]}


def moved(rig: Rig, to: str, **more: t.Any) -> Json:
    return rig.run("move_claims", to_store=to, **more)


def reap(rig: Rig, mode: str = "reap", **more: t.Any) -> Json:
    plan = rig.plan(mode, **CRD, **more)
    done = rig.run("teardown", plan["run_id"], orphans=plan["orphans"], **CRD)
    rig.unlock(plan["run_id"])
    return {**done, "plan": plan}


def test_a_whole_life_with_objects(rig: Rig) -> None:
    rig.kube("POST", DEFINITIONS, claim_definition())
    plan = rig.plan("provision", pools=["training"], nodes=1, **CRD)
    (name,) = plan["launch"]
    first = objects(rig)[name]
    assert first["metadata"]["finalizers"] == ["tgp.io/gpunodeclaim-finalizer"] and first["status"]["phase"] == "Pending"
    rig.run("launch", plan["run_id"], **CRD)
    rig.run("join", plan["run_id"], **CRD)
    rig.unlock(plan["run_id"])
    shown = objects(rig)[name]
    assert shown["spec"] == {"pool": "default/training", "nodeClass": "demo", "provider": "lambda"}
    assert {one["type"]: one["status"] for one in shown["status"]["conditions"]} == dict.fromkeys(
        ("Launched", "Registered", "Initialized", "Ready"), "True"
    )
    assert shown["status"]["nodeName"] == name and shown["status"]["hourlyPrice"]
    assert rig.claims() == {}, "nothing of it is a ConfigMap"
    reap(rig, "destroy", all=True)
    assert rig.machines() == [] and objects(rig) == {}
    rig.check_bill()
    about = [one for one in rig.kube("GET", "/apis/events.k8s.io/v1/namespaces/tgp-system/events")["items"]]
    assert sorted((one["regarding"]["kind"], one["reason"]) for one in about) == [
        ("GPUNodeClaim", "Launched"),
        ("GPUNodeClaim", "MachineReady"),
        ("GPUNodeClaim", "Terminated"),
    ]
    assert {one["regarding"]["uid"] for one in about} == {first["metadata"]["uid"]}


def test_a_deleted_object_ends_its_machine_and_no_other(fleet: Rig) -> None:
    moved(fleet, "crd")
    gone, stays = sorted(objects(fleet))
    fleet.kube("DELETE", f"{CLAIMS}/{gone}")
    assert gone in objects(fleet), "its finalizer holds it"
    done = reap(fleet)
    assert [row["name"] for row in done["machines"]] == [gone]
    assert set(objects(fleet)) == {stays} and [machine.name for machine in fleet.machines()] == [stays]
    (line,) = [line for line in fleet.ledger() if line["name"] == gone]
    assert line["reason"] == "Manual"


def test_the_removal_of_the_definition_ends_no_machine(fleet: Rig) -> None:
    """The API server deletes all objects of a kind with its definition; finalizers hold them, and nobody asked for the end of a machine."""
    moved(fleet, "crd")
    names = sorted(objects(fleet))
    fleet.kube("DELETE", f"{DEFINITIONS}/gpunodeclaims.tgp.io")
    assert all("deletionTimestamp" in one["metadata"] for one in objects(fleet).values())
    assert reap(fleet)["machines"] == [] and len(fleet.machines()) == 2
    assert any("is being deleted, so deleted objects end no machine" in text for text in fleet.warnings)
    assert moved(fleet, "cluster")["claims"] == names
    assert sorted(fleet.claims()) == names
    with pytest.raises(AssertionError, match="404"):
        objects(fleet)
    fleet.reap()
    assert len(fleet.machines()) == 2


@pytest.mark.parametrize(("used", "right"), [("cluster", "crd"), ("crd", "cluster")])
def test_the_wrong_store_is_refused_before_anything_is_done(fleet: Rig, used: str, right: str) -> None:
    """An empty store beside a full one: every machine would pass for one without a claim, and would be terminated."""
    if right == "crd":
        moved(fleet, "crd")
    before = fleet.writes()
    for mode in ("reap", "provision", "autoscale"):
        with pytest.raises(
            InvalidInput, match=f"claim_store is {used}, and that store is empty, while the store {right} has claims"
        ):
            fleet.plan(mode, claim_store=used)
    assert fleet.writes() == before and len(fleet.machines()) == 2


def test_a_kind_that_is_not_installed_is_said(rig: Rig) -> None:
    with pytest.raises(InvalidInput, match="does not know GPUNodeClaim objects. Install them: ansible-playbook tgp.gpu.manifests"):
        rig.plan("reap", **CRD)
    with pytest.raises(InvalidInput, match="does not know GPUNodeClaim objects"):
        moved(rig, "crd")
    assert not moved(rig, "cluster")["changed"], "there is nothing to move"


def test_a_move_there_and_back_changes_no_claim(fleet: Rig) -> None:
    before = fleet.claims()
    assert moved(fleet, "crd", check=True) | {"changed": True} == {
        "changed": True, "claims": sorted(before), "from_store": "cluster", "to_store": "crd"
    }  # fmt: skip
    assert fleet.claims() == before and objects(fleet) == {}
    moved(fleet, "crd")
    assert fleet.claims() == {} and {name: one["record"] for name, one in objects(fleet).items()} == before
    assert reap(fleet)["machines"] == []
    then = {name: one["record"] for name, one in objects(fleet).items()}
    assert moved(fleet, "cluster")["claims"] == sorted(before) and fleet.claims() == then and objects(fleet) == {}
    assert not moved(fleet, "cluster")["changed"]
    assert len(fleet.machines()) == 2


def test_a_move_to_a_folder_and_back_takes_the_generation_along(fleet: Rig) -> None:
    before, generation = fleet.claims(), fleet.state("generation")
    moved(fleet, "directory", from_store="cluster")
    with pytest.raises(InvalidInput, match="the claims were moved from there to directory"):
        fleet.plan("reap")
    with pytest.raises(InvalidInput, match="the claims were moved from there to directory"):
        fleet.plan("reap", **CRD)
    plan = fleet.plan("reap", claim_store="directory")
    fleet.unlock(plan["run_id"])
    assert plan["destroy"] == plan["orphans"] == [] and len(fleet.machines()) == 2
    moved(fleet, "cluster", from_store="directory")
    ids = {name: claim["instance_id"] for name, claim in before.items()}
    assert {name: claim["instance_id"] for name, claim in fleet.claims().items()} == ids
    assert fleet.state("generation") == generation
    with pytest.raises(InvalidInput, match="the claims were moved from there to cluster"):
        fleet.plan("reap", claim_store="directory")
    assert fleet.reap()["plan"]["orphans"] == []


def test_two_full_stores_are_refused(fleet: Rig) -> None:
    moved(fleet, "crd")
    name = sorted(objects(fleet))[0]
    copy = {**objects(fleet)[name], "metadata": {"name": name}}
    moved(fleet, "cluster")
    fleet.kube("POST", CLAIMS, copy)
    with pytest.raises(InvalidInput, match="Both stores have claims: cluster 2, crd 1"):
        moved(fleet, "crd")
    assert len(fleet.claims()) == 2


def test_a_move_is_killed_at_every_write_and_finished(fleet: Rig) -> None:
    """kill -9 before and after each write, there and back. In between no run takes a part of the claims for all, and no machine is lost."""
    ids, cuts = {name: claim["instance_id"] for name, claim in fleet.claims().items()}, 0
    for to, back in (("crd", "cluster"), ("cluster", "crd")):
        for number, after in itertools.product(range(1, 40), (False, True)):
            with fleet.killed_at(number, after=after) as cut:
                moved(fleet, to)
            if cut.seen < number:
                break
            cuts += 1
            _is_safe(fleet)
            moved(fleet, to)
            assert {name: claim["instance_id"] for name, claim in _all_in(fleet, to).items()} == ids and _all_in(fleet, back) == {}
            moved(fleet, back)
        moved(fleet, to)
    assert cuts > 20 and len(fleet.machines()) == 2


def _all_in(rig: Rig, store: str) -> dict[str, Json]:
    inside = {name: one["record"] for name, one in objects(rig).items()}
    return inside if store == "crd" else rig.claims()


def _is_safe(rig: Rig) -> None:
    """Whatever store a run is given, it is refused, or it has every claim."""
    for store in ("cluster", "crd"):
        try:
            plan = rig.plan("reap", claim_store=store)
        except InvalidInput:
            continue
        rig.unlock(plan["run_id"])
        assert plan["orphans"] == [] and len(_all_in(rig, store)) == 2
