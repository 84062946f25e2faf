# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The generation of a record store (L-1a): drawn once, shown, stamped, lost, and taken over by a person."""

from __future__ import annotations

import re
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import BadShape, InvalidInput, Locked

from sandbox import strangers

from .rig import RENTED, Rig
from .test_service import made

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
STATE = "/api/v1/namespaces/tgp-system/configmaps/tgp-state-generation"


def lose_records(rig: Rig) -> None:
    """The namespace of the records is gone; machines, Nodes and devices are there."""
    rig.kube("DELETE", "/api/v1/namespaces/tgp-system")


def adopt(rig: Rig, generation: str | None = None, **more: t.Any) -> dict[str, t.Any]:
    return rig.run("adopt", generation=generation, **more)


def test_L1a_the_first_run_that_writes_draws_a_generation_and_no_other_does(rig: Rig) -> None:
    rig.plan("reap", check=True)
    rig.run("info")
    assert rig.state("generation") == {}
    rig.reap()
    drawn = rig.state("generation")
    assert UUID.fullmatch(drawn["generation"])
    before = rig.writes()
    rig.reap()
    assert rig.state("generation") == drawn and rig.writes() == before


def test_L1a_status_shows_the_generation(rig: Rig) -> None:
    assert rig.run("info")["store"] == {"cluster_id": rig.cluster_id, "generation": ""}
    assert any("generation not drawn yet" in line for line in rig.lines)
    rig.reap()
    drawn = rig.state("generation")["generation"]
    assert rig.run("info")["store"]["generation"] == drawn
    assert any(f"cluster {rig.cluster_id}, generation {drawn}" in line for line in rig.lines)


def test_L1a_status_names_foreign_machines_and_counts_none_of_them(rig: Rig) -> None:
    rig.provision()
    stranger = strangers.rent(rig.box, "lambda", f"tgp-{rig.cluster_id}-training-zzzzz")
    found = rig.run("info")
    assert [(one["cloud"], one["id"]) for one in found["foreign"]] == [("lambda", stranger.id)]
    assert found["totals"]["instances"] == 1 and stranger.name not in {one["name"] for one in found["machines"]}
    assert any(f"not ours: {stranger.name}, lambda {stranger.id} has a name of this cluster" in line for line in rig.lines)


def test_L1a_a_directory_store_has_a_generation_of_its_own(rig: Rig) -> None:
    rig.reap()
    in_folder = {"claim_store": "directory"}
    plan = rig.plan("reap", **in_folder)
    rig.run("unlock", plan["run_id"], **in_folder)
    found = rig.run("info", **in_folder)["store"]["generation"]
    assert UUID.fullmatch(found) and found != rig.state("generation")["generation"]


def test_L1a_machines_are_stamped_at_lambda(rig: Rig) -> None:
    rig.rent()
    tags = {one["key"]: one["value"] for one in rig.machine().details["tags"]}
    assert tags["tgp:generation"] == rig.state("generation")["generation"] == rig.claim()["store_generation"]
    assert tags["tgp:cluster"] == rig.cluster_id


@pytest.mark.parametrize(("cloud", "where"), [("vast", "environment"), ("runpod", "env_form")])
def test_L1a_machines_are_stamped_in_their_environment(build: t.Callable[..., Rig], cloud: str, where: str) -> None:
    rig = made(build, cloud)
    rig.rent(pool="llm")
    assert rig.machine().details[where]["TGP_GENERATION"] == rig.state("generation")["generation"]


def test_L1a_a_record_that_was_removed_is_found_again_in_the_claims(rig: Rig) -> None:
    rig.provision()
    drawn = rig.state("generation")["generation"]
    rig.kube("DELETE", STATE)
    rig.reap()
    assert rig.state("generation")["generation"] == drawn
    assert rig.machine().ended is None


@pytest.mark.parametrize("text", ['{"generation": 7}', '{"genera'])
def test_L1a_for_a_damaged_record_the_claims_stand_in(rig: Rig, text: str) -> None:
    rig.provision()
    drawn, name = rig.state("generation")["generation"], rig.machine().name
    rig.kube("PATCH", STATE, {"data": {"state.json": text}})
    rig.rent(nodes=2)
    assert {tag["value"] for one in rig.machines() for tag in one.details["tags"] if tag["key"] == "tgp:generation"} == {drawn}
    assert any(f"the claims say generation {drawn}" in one for one in rig.warnings)
    rig.destroy()
    assert name not in {one.name for one in rig.machines()}


def test_L1a_a_damaged_record_without_claims_stops_the_run(rig: Rig) -> None:
    rig.reap()
    rig.kube("PATCH", STATE, {"data": {"state.json": '{"generation": 7}'}})
    with pytest.raises(BadShape, match="tgp-state-generation"):
        rig.plan("reap")


def test_L1a_an_odd_answer_is_no_damaged_record(rig: Rig) -> None:
    """A proxy's page, or half an answer: the record is whole, so nobody is told to delete it, and no claim stands in for it."""
    rig.provision()
    rig.fault("truncate", "kubernetes", "GET", STATE)
    with pytest.raises(BadShape) as caught:
        rig.plan("reap")
    assert "damaged" not in "".join(rig.warnings) and "Delete" not in str(caught.value)


def test_L1a_a_claim_of_version_0_1_stays_ours_after_the_upgrade(rig: Rig) -> None:
    """Its machine has tags without a generation, its claim no such field, its store no generation."""
    rig.provision()
    machine = rig.machine()
    machine.details["tags"] = [one for one in machine.details["tags"] if one["key"] != "tgp:generation"]
    name = rig.claim()["name"]
    path = f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{name}"
    text = rig.kube("GET", path)["data"]["claim.json"]
    rig.kube("PATCH", path, {"data": {"claim.json": re.sub(r',"store_generation":"[^"]*"', "", text)}})
    rig.kube("DELETE", STATE)
    rig.pod(name)
    rig.advance(3600)
    rig.reap()
    assert machine.ended is None and rig.claim()["instance_id"] == machine.id
    rig.destroy()
    assert machine.ended is not None and rig.left() == {}


# ---- taking over


def test_L1a_adopt_lists_and_changes_nothing_without_a_generation(rig: Rig) -> None:
    rig.provision()
    old, name = rig.state("generation")["generation"], rig.machine().name
    assert adopt(rig)["machines"] == []
    lose_records(rig)
    rig.reap()
    before = rig.writes()
    found = adopt(rig)
    assert not found["changed"] and rig.writes() == before
    assert [(one["generation"], one["name"], one["mesh_online"]) for one in found["machines"]] == [(old, name, True)]
    assert any("give their generation" in line for line in rig.lines)


def test_L12a_E_a_lost_store_reports_until_a_person_confirms(rig: Rig) -> None:
    rig.provision()
    old, machine = rig.state("generation")["generation"], rig.machine()
    rig.pod(machine.name)
    lose_records(rig)
    for _run in range(3):
        plan = rig.reap()["plan"]
        rig.advance(700)
    assert rig.claims() == {} and machine.ended is None
    assert [row["name"] for row in plan["plan"] if row["action"] == "report"] == [machine.name]
    new = rig.state("generation")["generation"]
    said = adopt(rig, old, check=True)
    assert said["changed"] and said["adopted"] == [machine.name] and old in said["diff"]["after"]
    assert rig.state("generation")["generation"] == new
    done = adopt(rig, old)
    assert (done["changed"], done["generation"], done["earlier"]) == (True, old, [new])
    assert any("are online in the mesh" in text for text in rig.warnings)
    assert not adopt(rig, old)["changed"]
    rig.reap()
    assert rig.claim()["instance_id"] == machine.id and machine.ended is None
    rig.destroy()
    assert rig.left() == {}


def test_L1a_machines_of_both_generations_are_ours_after_it(rig: Rig) -> None:
    rig.provision()
    old, first = rig.state("generation")["generation"], rig.machine()
    lose_records(rig)
    rig.provision()
    assert {one.id for one in rig.machines()} > {first.id} and len(rig.claims()) == 1
    adopt(rig, old)
    rig.reap()
    assert len(rig.claims()) == 2
    rig.destroy()
    assert rig.left() == {}


@pytest.mark.parametrize("generation", ["", "X", "0B6F3C1E-5D0A-4F0E-9A53-3F1D2C4B5A69", "0b6f3c1e-5d0a-4f0e-9a53-3f1d2c4b5a69"])
def test_L1a_adopt_refuses_what_no_machine_carries(rig: Rig, generation: str) -> None:
    rig.provision()
    before = rig.writes()
    with pytest.raises(InvalidInput):
        adopt(rig, generation)
    assert rig.writes() == before


def test_L1a_adopt_waits_for_no_other_run(rig: Rig) -> None:
    rig.provision()
    old = rig.state("generation")["generation"]
    lose_records(rig)
    rig.lock_elsewhere()
    with pytest.raises(Locked):
        adopt(rig, old)
    assert rig.state("generation") == {}


@pytest.mark.parametrize("cloud", RENTED)
def test_L1a_a_stranger_can_be_rented_at_every_cloud(build: t.Callable[..., Rig], cloud: str) -> None:
    """The sandbox's lever itself: a machine of this name, without marks, on the account."""
    scenario = {
        "vast": {"offers": [{"gpu": "RTX 4090", "place": "Texas, US", "price": "0.36", "stock": 1}]},
        "runpod": {"offers": [{"type": "NVIDIA GeForce RTX 4090", "region": "US-TX-3", "stock": 1}]},
        "paperspace": {"offers": [{"type": "A4000", "region": "ny2", "stock": 1}]},
        "gcp": {"gpus_all_regions": 1, "gpus_per_region": 1, "offers": [{"type": "g2-standard-4", "zone": "us-central1-a"}]},
        "vultr": {"offers": [{"type": "vcg-a16-6c-64g-16vram", "region": "ewr", "stock": 1}]},
    }
    rig = build(**({cloud: scenario[cloud]} if cloud in scenario else {}))
    machine = strangers.rent(rig.box, cloud, f"tgp-{rig.cluster_id}-x-00000")
    assert (machine.cloud, machine.name) == (cloud, f"tgp-{rig.cluster_id}-x-00000")
    assert rig.writes() == []
