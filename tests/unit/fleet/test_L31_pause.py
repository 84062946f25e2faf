# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-31: of a paused pool no rule launches, drains or terminates anything."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import BadShape
from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import Document
from ansible_collections.tgp.gpu.plugins.module_utils.documents.parse import understand
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Action,
    Deletion,
    Instance,
    Node,
    Observation,
    Pause,
    Phase,
    Specs,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Destroy
from ansible_collections.tgp.gpu.plugins.module_utils.planner import pauses
from hypothesis import given, settings
from hypothesis import strategies as st

from .build import NOON, at, claim, decide, deletions, instance, node, node_class, of, offer, pool, seen, specs
from .test_L17_autoscale import asks
from .test_L24_invariants import wanted, worlds

BY_POOL = Pause("pool", "default/p", "provider incident", at("11:30"))
BY_CLASS = Pause("class", "c", "", annotation=True)
EVERYTHING = Pause("all", "", "", at("11:30"))
SCOPES = pytest.mark.parametrize("pause", [BY_POOL, BY_CLASS, EVERYTHING], ids=["pool", "class", "all"])
NAME = "tgp-a1b2c3d4-p-00001"
IDLE = {"tgp.io/idle-since": "2026-08-20T11:20:00Z"}


def idle_machine(**facts: t.Any) -> Observation:
    """One that a reap takes down for being idle."""
    return seen(claims=(claim(**facts),), instances=(instance(),), nodes=(node(annotations=IDLE),), offers=(offer(),), findings={})


def paused_by(pause: Pause, world: Observation, asked: Specs) -> tuple[Observation, Specs]:
    if pause.annotation:
        return world, dataclasses.replace(asked, pauses=(pause,))
    return dataclasses.replace(world, pauses=(pause,)), asked


@SCOPES
def test_L31_an_idle_machine_stays_and_the_plan_says_why_and_what_it_costs(pause: Pause) -> None:
    world, asked = idle_machine(), specs()
    assert [one.reason for one in deletions(decide(world, asked))] == ["Empty"]
    found = decide(*paused_by(pause, world, asked))
    assert deletions(found) == []
    (report,) = [one for one in of(found, "report") if one.name == NAME]
    assert report.reason == "Paused" and pauses.sentence(pause) in report.detail and "it would go as Empty" in report.detail
    assert [(one.pool, one.machines, one.price_hour) for one in found.paused] == [("default/p", 1, Decimal("0.42"))]
    assert not found.problems and not found.failures


@SCOPES
@pytest.mark.parametrize("mode", ["provision", "everything", "autoscale"])
def test_L31_nothing_is_launched_and_nothing_counts_as_missing(pause: Pause, mode: str) -> None:
    asked = specs(pool(min_nodes=2)) if mode != "provision" else specs(p=2)
    world = seen(offers=(offer(),))
    assert len(of(decide(world, asked, mode), "launch")) == 2
    found = decide(*paused_by(pause, world, asked), mode)
    assert of(found, "launch", "resume") == [] and found.shortfall == () and found.problems == ()


def test_L31_a_waiting_pod_gets_a_machine_of_another_pool_or_reads_why_not() -> None:
    world = seen(offers=(offer(),), pods=(asks(),), pauses=(BY_POOL,))
    assert [one.pool for one in of(decide(world, specs(pool("p", weight=9), pool("q")), "autoscale"), "launch")] == ["default/q"]
    (lone,) = decide(world, specs(pool("p")), "autoscale").waiting
    assert lone.reason == pauses.sentence(BY_POOL)


@SCOPES
@pytest.mark.parametrize("reason", ["Expired", "SpotLost", "Budget", "PriceJump", "DocumentGone"])
def test_L31_no_reason_is_strong_enough_and_a_drain_under_way_stops(pause: Pause, reason: str) -> None:
    under_way = Deletion(reason=reason, requested=at("11:50"))
    world, asked = idle_machine(deletion=under_way), specs()
    assert deletions(decide(world, asked)) or reason == "DocumentGone"
    found = decide(*paused_by(pause, world, asked))
    assert deletions(found) == [] and of(found, "restore") == []


@SCOPES
def test_L31_what_is_past_its_drain_is_finished(pause: Pause) -> None:
    world = idle_machine(phase=Phase.TERMINATING, deletion=Deletion(reason="Empty", requested=at("11:50")))
    assert [one.name for one in deletions(decide(*paused_by(pause, world, specs())))] == [NAME]


@SCOPES
def test_L31_destroy_by_name_is_carried_out_and_terminate_on_a_node_waits(pause: Pause) -> None:
    world, asked = paused_by(pause, idle_machine(), specs())
    by_name = decide(world, asked, "destroy", destroy=Destroy(pools=("p",)))
    assert [one.reason for one in deletions(by_name)] == ["Manual"] and [one.pool for one in by_name.paused] == ["default/p"]
    noted = dataclasses.replace(world, nodes=(node(annotations={"tgp.io/terminate": "now"}),))
    assert deletions(decide(noted, asked)) == []


@SCOPES
def test_L31_orphans_of_a_paused_pool_stay(pause: Pause) -> None:
    old = NOON - timedelta(hours=2)
    lost: tuple[Instance, ...] = (instance(created=old),)
    lone: tuple[Node, ...] = (node("tgp-a1b2c3d4-p-00002", False, ready_since=old),)
    world = seen(instances=lost, nodes=lone)
    world = dataclasses.replace(world, now=NOON, findings=decide(dataclasses.replace(world, now=at("11:50"))).findings)
    assert {one.kind for one in deletions(decide(world, specs()))} == {"destroy", "delete_node"}
    found = decide(*paused_by(pause, world, specs()))
    assert deletions(found) == [] and {one.reason for one in of(found, "report")} == {"Paused"}


def test_L31_other_pools_go_on() -> None:
    other = "tgp-a1b2c3d4-q-00002"
    world = seen(
        claims=(claim(), claim(other, pool="default/q")),
        instances=(instance(), instance(other)),
        nodes=(node(annotations=IDLE), node(other, annotations=IDLE)),
        pauses=(BY_POOL,),
    )
    assert [one.name for one in deletions(decide(world, specs(pool("p"), pool("q"))))] == [other]


@settings(deadline=None)
@given(
    worlds(),
    wanted(),
    st.sampled_from(["provision", "reap", "everything", "autoscale"]),
    st.sampled_from([BY_POOL, BY_CLASS, EVERYTHING]),
)
def test_L31_in_any_world_nothing_of_a_paused_pool_begins_or_ends(
    world: Observation, asked: Specs, mode: str, pause: Pause
) -> None:
    over = {one.name for one in world.claims or () if one.phase is Phase.TERMINATING}
    found = decide(*paused_by(pause, world, asked), mode)

    def is_paused(action: Action) -> bool:
        return pause.scope != "pool" or action.pool == pause.name or "-p-" in action.name

    kinds = ("launch", "destroy", "restore", *(kind for kind in ("delete_instance", "delete_node", "delete_device", "delete_key")))
    assert [one for one in of(found, *kinds) if is_paused(one) and one.name not in over] == []
    if pause.scope == "pool":  # and of other pools everything goes on as before, but for what the limits leave
        free = decide(world, asked, mode)
        ends = {(one.kind, one.name) for one in of(free, "delete_node", "delete_device") if not is_paused(one)}
        assert ends <= {(one.kind, one.name) for one in of(found, "delete_node", "delete_device")}


# ---- where pauses come from


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("true", ""),
        ("True", ""),
        ("", ""),
        ("maintenance", "maintenance"),
        ("yes", "yes"),
        ("false", None),
        (" False ", None),
        (None, None),
    ],
)
def test_L31_the_annotation_of_a_document(value: str | None, why: str | None) -> None:
    meta = {"name": "p", "annotations": {} if value is None else {"tgp.io/paused": value}}
    found = pauses.annotated("pool", "default/p", meta)
    assert (found.why if found else None) == why


def test_L31_a_faulty_document_is_paused_all_the_same() -> None:
    meta = {"name": "p", "annotations": {"tgp.io/paused": "true"}}
    document = {
        "apiVersion": "tgp.io/v1",
        "kind": "GPUNodePool",
        "metadata": meta,
        "spec": {"nodeClassRef": {"name": "c"}, "wrong": 1},
    }
    made, _warnings = understand([Document("pools.yml#1", document)])
    assert made.pauses == (Pause("pool", "default/p", annotation=True),)
    found = decide(idle_machine(), dataclasses.replace(made, classes={"c": node_class()}))
    assert deletions(found) == [] and [one.pool for one in found.paused] == ["default/p"]


def test_L31_the_record_is_read_as_it_was_written() -> None:
    kept = (EVERYTHING, Pause("class", "c", "x: y", NOON), BY_POOL)
    assert pauses.read(pauses.written(kept)) == kept


@pytest.mark.parametrize(
    "state",
    [
        {"pool/default/p": {}},
        {"pool/default/p": {"why": "", "since": "soon"}},
        {"zone/x": {"why": "", "since": "2026-08-20T11:30:00Z"}},
        {"all": 5},
    ],
)
def test_L31_a_damaged_record_is_refused(state: dict[str, t.Any]) -> None:
    with pytest.raises(BadShape, match="tgp-state-pauses"):
        pauses.read(state)


def test_L31_pausing_twice_changes_nothing_and_resuming_everything_ends_all() -> None:
    things = [("pool", "default/p")]
    once = pauses.changed((), things, "why", NOON, resume=False)
    assert once == (Pause("pool", "default/p", "why", NOON),)
    assert pauses.changed(once, things, None, at("13:00"), resume=False) == once
    (other,) = pauses.changed(once, things, "else", at("13:00"), resume=False)
    assert (other.why, other.since) == ("else", NOON)
    assert pauses.changed(once, things, None, NOON, resume=True) == ()
    assert pauses.changed(once, [("class", "c")], None, NOON, resume=True) == once
    assert pauses.changed((*once, EVERYTHING), [("all", "")], None, NOON, resume=True) == ()
