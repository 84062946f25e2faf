# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Signs of life, guards and orphans (L-12a): what may be at work is not ended on the word of one list."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import CloudView, InstanceState, MeshChoice, MeshKey, Phase, Plan
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Destroy, Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection import mass_deletion_guard
from ansible_collections.tgp.gpu.plugins.module_utils.planner.plan import plan
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES as CLOUDS

from .build import at, claim, decide, device, instance, node, node_class, of, pool, seen, specs

STAMP = {"cluster": "a1b2c3d4", "generation": "g-1"}


def twice(minutes: float = 15, cloud: str = "lambda", start: str = "13:00", **facts: t.Any) -> Plan:
    """The plan of a run that saw the same some minutes before."""
    wanted = specs(pool(), classes=(node_class(clouds=(cloud,), mesh=facts.pop("mesh", MeshChoice(tags=("tag:gpu",)))),))
    if "instances" in facts:
        facts["clouds"] = {cloud: CloudView(facts.pop("instances"), ())}
    world = seen(at(start), generations=("g-1",), **facts)
    settings = Settings(mode="reap")
    first = plan(world, wanted, settings, CLOUDS, "run-1")
    later = dataclasses.replace(world, now=world.now + timedelta(minutes=minutes), findings=first.findings)
    return plan(later, wanted, settings, CLOUDS, "run-2")


# ---- orphans


def test_L12a_orphan_of_our_generation_with_an_online_device_is_adopted_and_gets_its_time_to_join() -> None:
    found = twice(instances=(instance(marks=STAMP),), devices=(device(online=True),))
    assert not of(found, "destroy")
    (adopted,) = [one.claim for one in found.actions if one.reason == "Adopted"]
    assert adopted is not None and adopted.phase is Phase.JOINING
    facts: dict[str, t.Any] = {"instances": (instance(marks=STAMP),), "devices": (device(online=True),), "claims": (adopted,)}
    assert not of(twice(start="13:16", **facts), "destroy")  # rented two hours ago, adopted a quarter of an hour ago
    assert [one.reason for one in of(twice(start="13:46", **facts), "destroy")] == ["FailedJoin"]


def test_L12a_orphan_of_our_generation_that_shows_no_life_goes_when_old_enough_after_two_runs() -> None:
    facts: dict[str, t.Any] = {"instances": (instance(marks=STAMP),), "devices": (device(online=False),)}
    assert [one.reason for one in of(twice(**facts), "destroy")] == ["Orphan"]
    assert not of(twice(0.5, **facts), "destroy")


@pytest.mark.parametrize(
    ("mesh", "devices", "why"),
    [
        (MeshChoice("wireguard"), (), "a WireGuard hub does not tell whether it is alive"),
        (MeshChoice("none"), None, "it is in no mesh that tells whether it is alive"),
        (MeshChoice(tags=("tag:gpu",)), None, "the mesh, which tells whether it is alive, could not be read"),
    ],
)
def test_L12a_orphan_without_a_node_of_which_no_mesh_tells_is_left_to_a_person(mesh: MeshChoice, devices: t.Any, why: str) -> None:
    """It may work for the cluster of which this one is a restored copy: unknown never deletes."""
    facts: dict[str, t.Any] = {"instances": (instance(marks=STAMP),), "devices": devices}
    found = twice(600, mesh=mesh, **facts)
    assert {(one.kind, one.reason) for one in found.actions} == {("report", "O1")}
    assert why in found.actions[0].detail and [why in one for one in found.problems] == [True]
    assert f"destroy.yml -e tgp_machine={instance().name}" in found.problems[0]
    asked = Settings(mode="destroy", destroy=Destroy(names=(instance().name,)))
    wanted = specs(pool(), classes=(node_class(mesh=mesh),))
    by_name = plan(seen(at("13:00"), generations=("g-1",), **facts), wanted, asked, CLOUDS, "run-3")
    assert [one.reason for one in of(by_name, "destroy")] == ["Manual"]


@pytest.mark.parametrize(
    ("devices", "goes"),
    [((), False), (None, False), ((device("tgp-a1b2c3d4-gone-00001"),), True)],
    ids=["the tailnet has no device of it", "the tailnet could not be read", "its device is offline"],
)
def test_L12a_orphan_of_a_class_that_nobody_knows_is_left_to_a_person(devices: t.Any, goes: bool) -> None:
    """Its documents were deleted: which mesh would tell whether it is alive is unknown, unless one has a device of it."""
    other = instance("tgp-a1b2c3d4-gone-00001", marks=STAMP)
    found = twice(600, instances=(other,), devices=devices)
    if goes:
        assert [one.reason for one in of(found, "destroy")] == ["Orphan"]
        return
    assert {(one.kind, one.reason) for one in found.actions} == {("report", "O1")}
    (problem,) = found.problems
    assert "no class says which mesh tells whether it is alive" in problem and "destroy.yml -e tgp_machine=" in problem
    assert [one.kind for one in found.notices] == ["orphan_found"]


def test_L12a_orphan_whose_node_is_silent_goes_in_every_mesh() -> None:
    silent = node(ready=False, ready_since=at("12:00"), labels={**node().labels})
    found = twice(instances=(instance(marks=STAMP),), nodes=(silent,), mesh=MeshChoice("wireguard"))
    assert [one.reason for one in of(found, "destroy")] == ["Orphan"]


def test_L12a_orphan_of_another_generation_is_reported_whatever_its_age() -> None:
    other = instance(marks={**STAMP, "generation": "g-2"})
    for online in (True, False):
        assert {one.kind for one in twice(600, instances=(other,), devices=(device(online=online),)).actions} == {"report"}


def test_L12a_where_no_stamp_is_possible_an_online_device_means_report_only() -> None:
    machine = instance(cloud="paperspace")
    found = twice(instances=(machine,), devices=(device(online=True),), cloud="paperspace")
    assert {one.kind for one in found.actions} == {"report"}
    assert [one.kind for one in found.notices] == ["orphan_found"]
    assert "It is billed and stays; to terminate it, run destroy.yml" in found.problems[0], "the run says so and fails"
    gone = twice(instances=(machine,), devices=(device(online=False),), cloud="paperspace")
    assert [one.reason for one in of(gone, "destroy")] == ["Orphan"]


@pytest.mark.parametrize("online", [True, None])
def test_L12a_a_device_that_may_be_online_is_never_deleted(online: bool | None) -> None:
    assert not of(twice(600, devices=(device(online=online),)), "delete_device")


@pytest.mark.parametrize(("created", "foreign", "goes"), [("12:00", False, True), ("13:14", False, False), ("12:00", True, False)])
def test_L12a_a_key_that_another_store_may_be_about_to_use_stays(created: str, foreign: bool, goes: bool) -> None:
    key = MeshKey("k-1", "tgp tgp-a1b2c3d4-p-00001", at(created))
    machines = (instance(marks={**STAMP, "generation": "g-2"}),) if foreign else ()
    assert bool(of(twice(keys=(key,), instances=machines), "delete_key")) is goes


# ---- machines with a claim


def test_L12a_a_machine_that_is_not_listed_and_online_in_the_mesh_is_not_gone() -> None:
    lost = claim(gone_since=at("12:00"))
    facts: dict[str, t.Any] = {"claims": (lost,), "nodes": (node(ready=None, ready_since=at("11:30")),)}
    assert [one.reason for one in of(decide(seen(at("12:10"), devices=(device(),), **facts)), "destroy")] == ["InstanceGone"]
    kept = decide(seen(at("12:10"), devices=(device(online=True),), **facts))
    assert not of(kept, "destroy") and "its mesh device is online" in kept.warnings[0]


def test_L12a_the_providers_word_does_not_end_what_is_online() -> None:
    facts: dict[str, t.Any] = {"claims": (claim(),), "instances": (instance(state=InstanceState.FAILED),)}
    facts["nodes"] = (node(ready=None, ready_since=at("11:50")),)
    assert of(decide(seen(devices=(device(),), **facts)), "destroy")
    assert not of(decide(seen(devices=(device(online=True),), **facts)), "destroy")


SICK = {"ready": None, "ready_since": at("11:00")}


@pytest.mark.parametrize(
    ("devices", "machine", "goes"),
    [
        ((device(online=True),), {}, False),
        ((device(online=None),), {}, False),
        (None, {}, False),
        ((device(online=False),), {}, True),
        ((), {}, True),
        ((device(online=True),), {"problem": "the host is unhealthy"}, True),
    ],
)
def test_L12a_the_only_node_of_a_pool_goes_only_with_a_second_witness(
    devices: t.Any, machine: dict[str, t.Any], goes: bool
) -> None:
    found = decide(seen(claims=(claim(),), nodes=(node(**SICK),), instances=(instance(**machine),), devices=devices))
    assert bool(of(found, "destroy")) is goes
    assert goes or "is the only node of default/p" in found.problems[0]


def test_L12a_a_ready_node_without_gpus_is_its_own_witness() -> None:
    bare = node(ready=True, allocatable={})
    facts: dict[str, t.Any] = {
        "claims": (claim(),),
        "nodes": (bare,),
        "instances": (instance(),),
        "devices": (device(online=True),),
    }
    first = decide(seen(at("12:00"), **facts))
    assert [one.reason for one in of(decide(seen(at("12:21"), findings=first.findings, **facts)), "destroy")] == ["Unhealthy"]


def test_L12a_E_a_copy_of_the_store_ends_no_machine_that_is_online() -> None:
    """Two pools of one, restored from a backup: every Node is Unknown, every device is online."""
    names = ("tgp-a1b2c3d4-p-00001", "tgp-a1b2c3d4-q-00001")
    world = seen(
        at("16:00"),
        claims=tuple(
            claim(name, pool=f"default/{part}", instance_id=name, ids_seen=(name,)) for name, part in zip(names, "pq", strict=True)
        ),
        nodes=tuple(node(name, ready=None, ready_since=at("12:00")) for name in names),
        instances=tuple(instance(name, id=name) for name in names),
        devices=tuple(device(name, online=True) for name in names),
    )
    found = decide(world, specs(pool(), pool("q")))
    assert not [one for one in found.actions if one.kind.startswith(("destroy", "delete"))]


# ---- many at once


@pytest.mark.parametrize(
    ("known", "dead", "alive"), [(1, 3, 1), (2, 3, 1), (3, 3, 1), (4, 3, 2), (6, 3, 3), (8, 4, 4), (100, 50, 50)]
)
def test_L12a_mass_guard_is_one_or_half_for_what_shows_life_and_three_or_half_for_what_does_not(
    known: int, dead: int, alive: int
) -> None:
    assert mass_deletion_guard.most(known) == dead
    assert mass_deletion_guard.most(known, alive=True) == alive


@pytest.mark.parametrize(("size", "online", "goes"), [(2, True, 1), (5, True, 2), (2, False, 2), (5, False, 5)])
def test_L12a_failed_joins_that_show_life_go_by_and_by(size: int, online: bool, goes: int) -> None:
    claims = tuple(claim(f"tgp-a1b2c3d4-p-000{place:02d}", Phase.JOINING) for place in range(size))
    claims = tuple(dataclasses.replace(one, instance_id=f"i-{one.name[-5:]}") for one in claims)
    world = seen(
        at("13:00"),
        claims=claims,
        instances=tuple(instance(one.name) for one in claims),
        devices=tuple(device(one.name, online=online) for one in claims),
    )
    assert len(of(decide(world), "destroy")) == goes
    assert len(of(decide(world, allow_mass_delete=True), "destroy")) == size
