# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-22: a claim that cannot be read concerns its own machine and the limits; two changes of one claim at the same time."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Claim, CloudView, DamagedClaim, MadeToken, MeshKey, Phase
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.diff import rebased
from hypothesis import given
from hypothesis import strategies as st

from .build import at, claim, decide, deletions, device, instance, node, node_class, of, offer, pool, seen, specs

NAME = "tgp-a1b2c3d4-p-00001"
OTHER = "tgp-a1b2c3d4-p-00002"
DAMAGED = DamagedClaim(NAME, f"ConfigMap tgp-system/tgp-claim-{NAME}", "it is not a JSON object", pool="default/p")
LIMITED = node_class(max_nodes=2)


def world(moment: str = "12:00", damaged: tuple[DamagedClaim, ...] = (DAMAGED,), **facts: t.Any) -> t.Any:
    return dataclasses.replace(seen(at(moment), **facts), damaged=damaged)


@pytest.mark.parametrize("mode", ["reap", "autoscale", "everything", "destroy", "provision"])
@pytest.mark.parametrize("ready", [True, False, None])
def test_L22_nothing_of_a_damaged_claim_is_ended_or_adopted(mode: str, ready: bool | None) -> None:
    """Old enough, seen twice, idle, offline: whatever a rule could say of it."""
    nodes = () if ready is None else (node(ready=ready, ready_since=at("02:00"), labels={"tgp.io/instance-id": "i-00001"}),)
    findings = {
        f"{case}|lambda|{key}": at("03:00")
        for case, key in (("O1", "i-00001"), ("O4", "i-00001"), ("O7", f"uid-{NAME}"), ("Extra", "x"))
    }
    findings |= {"O9||d-00001": at("03:00"), "Token||abc": at("03:00")}
    found = decide(
        world(
            instances=(instance(created=at("02:00")),),
            nodes=nodes,
            devices=(device(created=at("02:00"), last_seen=at("03:00")),),
            keys=(MeshKey("k1", f"tgp {NAME}", created=at("02:00")),),
            tokens=(MadeToken("abc", NAME, at("12:10")),),
            findings=findings,
        ),
        specs(pool()),
        mode=mode,
    )
    assert not [one for one in found.actions if one.kind != "report" and one.name == NAME]
    assert not deletions(found)
    (failure,) = found.failures
    assert NAME in failure and "cannot be read" in failure
    assert [(one.kind, one.subject) for one in found.notices] == [("records", NAME)]


def test_L16_a_damaged_claim_counts_by_what_the_cloud_lists() -> None:
    wanted = specs(pool(), classes=[LIMITED], p=3)
    facts: dict[str, t.Any] = {"instances": (instance(),), "offers": (offer(),)}
    found = decide(world(**facts), wanted, mode="provision")
    assert len(of(found, "launch")) == 1, "two machines are the limit, and one may exist"
    assert found.shortfall[0].reason == "limit:maxNodes"
    assert NAME not in [one.name for one in of(found, "launch")]


def test_L16_nothing_is_launched_of_the_class_of_a_damaged_claim_without_a_machine() -> None:
    """Its price and its size are unknown: any limit may be reached already."""
    other = pool("q", node_class="d")
    wanted = specs(pool(), other, classes=[LIMITED, node_class("d")], p=3, q=1)
    found = decide(world(offers=(offer(),)), wanted, mode="provision")
    assert [one.pool for one in of(found, "launch")] == ["default/q"]
    assert "cannot be read" in next(one.reason for one in found.shortfall if one.pool == "default/p")


def test_L16_a_damaged_claim_of_an_unknown_class_pauses_every_class() -> None:
    unknown = DamagedClaim("tgp-a1b2c3d4-gone-00001", "there", "torn")
    found = decide(world(damaged=(unknown,), offers=(offer(),)), specs(pool(), classes=[LIMITED], p=1), mode="provision")
    assert not of(found, "launch")


def test_L17_a_damaged_claim_is_one_of_the_wanted_machines() -> None:
    found = decide(world(instances=(instance(),), offers=(offer(),)), specs(pool(), p=1), mode="provision")
    assert not of(found, "launch") and not found.shortfall


def test_L22_other_machines_go_on_beside_a_damaged_claim() -> None:
    idle = claim(OTHER, idle_since=at("10:00"))
    busy_not = node(OTHER, annotations={"tgp.io/idle-since": "2026-08-20T10:00:00Z"})
    machines = (instance(), instance(OTHER))
    found = decide(world(claims=(idle,), nodes=(node(), busy_not), instances=machines), specs(pool()), mode="reap")
    assert [one.name for one in of(found, "destroy")] == [OTHER]


@pytest.mark.parametrize("mode", ["reap", "autoscale", "provision", "everything", "destroy"])
def test_L30_a_provider_that_cannot_be_read_is_a_failure_in_every_mode(mode: str) -> None:
    found = decide(seen(clouds={"lambda": CloudView(problem="lambda: 401 Unauthorized")}), specs(pool()), mode=mode)
    assert any("401" in one for one in found.failures)
    assert [(one.kind, one.subject) for one in found.notices] == [("provider_unreadable", "lambda")]


@pytest.mark.parametrize("mode", ["reap", "provision", "everything", "autoscale"])
def test_L30_a_provider_of_other_documents_is_no_failure_of_this_run(mode: str) -> None:
    """Two teams share a store: the run of one has neither documents nor a key for the provider of the other."""
    clouds = {"lambda": CloudView((), ()), "vast": CloudView(problem="There is no API key of vast.", expected=False)}
    found = decide(seen(claims=(claim(offer=offer(cloud="vast")),), nodes=(node(),), clouds=clouds), specs(pool()), mode=mode)
    assert (found.failures, found.notices, deletions(found)) == ((), (), [])
    assert any("vast could not be listed" in one and "No document of this run" in one for one in found.warnings)


# ---- two changes at the same time

BASE = claim(phase=Phase.BOOTING)
OBSERVED: tuple[dict[str, t.Any], ...] = (
    {"ip": "192.0.2.1"},
    {"idle_since": at("11:40")},
    {"mesh_device_id": "d-1"},
    {"gone_since": at("11:41")},
)
DECIDED: tuple[dict[str, t.Any], ...] = (
    {"instance_id": "i-other"},
    {"phase": Phase.JOINING, "phase_since": at("11:30")},
    {"launch_started": at("11:31")},
    {"ids_seen": ("i-1", "i-2")},
)


def changed(facts: t.Mapping[str, t.Any], version: str) -> Claim:
    return dataclasses.replace(BASE, **{**facts, "version": version})


@given(mine=st.sampled_from(OBSERVED + DECIDED), theirs=st.sampled_from(OBSERVED + DECIDED))
def test_L22_a_merge_loses_nothing_and_overwrites_no_decision(mine: dict[str, t.Any], theirs: dict[str, t.Any]) -> None:
    merged = rebased(BASE, changed(mine, "1"), changed(theirs, "2"))
    if mine in DECIDED and theirs in DECIDED:
        assert merged is None
        return
    assert merged is not None and merged.version == "2"
    assert {name: getattr(merged, name) for name in (*mine, *theirs)} == {**theirs, **mine}


def test_L22_the_same_observation_with_two_values_contradicts() -> None:
    assert rebased(BASE, changed({"ip": "192.0.2.1"}, "1"), changed({"ip": "192.0.2.2"}, "2")) is None
    assert rebased(BASE, changed({"ip": "192.0.2.1"}, "1"), changed({"ip": "192.0.2.1"}, "2")) is not None


def test_L22_a_new_version_without_a_change_is_written_over() -> None:
    merged = rebased(BASE, changed({"instance_id": "i-mine"}, "1"), changed({}, "2"))
    assert merged is not None and (merged.instance_id, merged.version) == ("i-mine", "2")
