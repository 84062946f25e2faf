# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules for machines of lane service: device and answer instead of a Node, and unknown never ends one."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Claim,
    CloudView,
    Device,
    IdleProbe,
    Instance,
    InstanceState,
    Lane,
    Observation,
    Phase,
    Plan,
    Pool,
    Probe,
    Published,
    ServiceSpec,
    Specs,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.service import described_pool

from .build import NOON, at, claim, decide, deletions, device, instance, node_class, of, offer, one, pool, seen, specs

NAME = "tgp-a1b2c3d4-p-00001"
SPEC = ServiceSpec("registry.example/llm:1", (8000,), "/health", 8000, command=("serve",))
WELL, ILL, SILENT = Probe(True), Probe(False, "it answers 503"), Probe(None, "no way into the tailnet")


def served(name: str = NAME, phase: Phase = Phase.READY, **facts: t.Any) -> Claim:
    usual: dict[str, t.Any] = {
        "lane": Lane.SERVICE, "mesh_backend": "tailscale", "mesh_device_id": f"d-{name[-5:]}", "mesh_seen": at("11:05"),
        "node_uid": "", "price_paid": Decimal("0.42"),
    }  # fmt: skip
    return claim(name, phase, offer=offer(cloud="runpod"), **{**usual, **facts})


def rented(name: str = NAME, state: InstanceState = InstanceState.RUNNING) -> Instance:
    return instance(name, state, cloud="runpod")


def services(**facts: t.Any) -> Pool:
    return pool(lanes=(Lane.SERVICE,), service=SPEC, **facts)


def wanted(**facts: t.Any) -> Specs:
    return specs(services(**facts), classes=(node_class(clouds=("runpod",)),))


def world(now: datetime = NOON, probe: Probe | None = WELL, **facts: t.Any) -> Observation:
    """One Ready service that answers, unless said otherwise. ``instances`` are those of runpod."""
    machines = facts.pop("instances", (rented(),))
    usual: dict[str, t.Any] = {"claims": (served(),), "devices": (device(online=True),), "probes": {NAME: probe} if probe else {}}
    return seen(now, clouds={"runpod": CloudView(machines, ())}, **{**usual, **facts})


def twice(minutes: float, mode: str = "reap", spec: Specs | None = None, **facts: t.Any) -> Plan:
    """The plan of a run ``minutes`` after one that saw the same."""
    first = decide(world(**facts), spec or wanted(), mode)
    later = world(NOON + timedelta(minutes=minutes), **facts)
    claims = {action.name: action.claim for action in first.actions if action.claim is not None and action.kind == "update"}
    kept = tuple(claims.get(one.name, one) for one in later.claims or ())
    return decide(dataclasses.replace(later, findings=first.findings, claims=kept), spec or wanted(), mode)


@pytest.mark.parametrize(
    ("pool_name", "part", "its"),
    [("infer", "infer", True), ("infer-llama", "infer", False), ("p" * 38 + "-long", "p" * 38 + "-l", True)],
)
def test_L12_a_machine_without_record_is_of_the_pool_whose_name_it_carries(pool_name: str, part: str, its: bool) -> None:
    """The whole of it, or its first forty characters: not of any pool whose name begins alike."""
    found = described_pool(f"tgp-a1b2c3d4-{part}-00001", [pool(pool_name, service=SPEC)])
    assert (found is not None) is its


def reasons(found: Plan) -> list[tuple[str, str]]:
    return [(action.kind, action.reason) for action in deletions(found)]


# ---- healthy, broken, unknown


def test_L20_a_service_that_answers_stays_although_no_node_is_there() -> None:
    assert deletions(twice(60)) == []


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"probe": ILL}, "it answers 503"),
        ({"probe": None, "devices": (device(online=False),)}, "its mesh device is offline"),
        ({"probe": None, "devices": ()}, "it is not in the mesh"),
    ],
)
def test_L20_one_that_does_not_work_for_twenty_minutes_goes(facts: dict[str, t.Any], words: str) -> None:
    assert deletions(twice(19.9, **facts)) == []
    found = twice(20, **facts)
    assert reasons(found) == [("destroy", "Unhealthy")]
    assert words in one(found, "destroy").detail


@pytest.mark.parametrize("facts", [{"probe": SILENT}, {"probe": None}, {"probe": None, "devices": None}])
def test_L20_unknown_ends_no_service_and_is_said(facts: dict[str, t.Any]) -> None:
    found = twice(600, **facts)
    assert deletions(found) == []
    assert any("whether it works is unknown" in text for text in found.warnings)


def test_L20_a_run_that_cannot_tell_neither_begins_the_time_nor_ends_it() -> None:
    first = decide(world(probe=ILL), wanted())
    blind = decide(dataclasses.replace(world(NOON + timedelta(minutes=10), SILENT), findings=first.findings), wanted())
    last = decide(dataclasses.replace(world(NOON + timedelta(minutes=20), ILL), findings=blind.findings), wanted())
    assert reasons(last) == [("destroy", "Unhealthy")]
    well = decide(dataclasses.replace(world(NOON + timedelta(minutes=10)), findings=first.findings), wanted())
    again = decide(dataclasses.replace(world(NOON + timedelta(minutes=20), ILL), findings=well.findings), wanted())
    assert deletions(again) == []


def test_L20_many_at_once_speak_against_us() -> None:
    names = [f"tgp-a1b2c3d4-p-0000{number}" for number in range(1, 4)]
    facts: dict[str, t.Any] = {
        "claims": tuple(served(name) for name in names), "instances": tuple(rented(name) for name in names),
        "devices": tuple(device(name, online=True) for name in names), "probes": {name: ILL for name in names}, "probe": None,
    }  # fmt: skip
    found = twice(60, **facts)
    assert deletions(found) == [] and any("guard_refused: 3 of 3" in text for text in found.problems)


# ---- joining


def coming(**facts: t.Any) -> Claim:
    return served(phase=Phase.JOINING, **facts)


@pytest.mark.parametrize(
    ("facts", "cause"),
    [
        ({"instances": (rented(state=InstanceState.PENDING),), "devices": ()}, "instance_not_running"),
        ({"devices": ()}, "mesh_offline"),
        ({"devices": (device(online=False),)}, "mesh_offline"),
        ({"probe": ILL}, "unhealthy"),
        ({"probe": SILENT}, "unhealthy"),
    ],
)
def test_L11_what_is_not_usable_in_time_goes_with_its_cause(facts: dict[str, t.Any], cause: str) -> None:
    probe = facts.pop("probe", None)
    late = world(at("11:20"), probe, claims=(coming(),), **facts)
    found = one(decide(late, wanted()), "destroy")
    assert found.reason == "FailedJoin" and found.detail.startswith(f"{cause}: not usable after 1200 s")
    early = dataclasses.replace(late, now=at("11:19:59"))
    assert deletions(decide(early, wanted())) == []


def test_L11_facts_beat_the_clock_for_a_service_that_answers() -> None:
    late = world(at("13:00"), claims=(coming(),))
    assert deletions(decide(late, wanted())) == []
    assert [action.kind for action in decide(late, wanted(), "provision").actions if action.name == NAME] == ["resume"]


def test_L11_without_the_mesh_nothing_is_decided_about_a_late_service() -> None:
    found = decide(world(at("13:00"), None, claims=(coming(),), devices=None), wanted())
    assert deletions(found) == [] and any("the mesh could not be read" in text for text in found.warnings)


# ---- lost and found


def test_O5_a_service_that_answers_protects_a_machine_its_cloud_does_not_list() -> None:
    found = twice(60, instances=())
    assert deletions(found) == [] and any("it answers, but runpod does not list" in text for text in found.warnings)
    assert deletions(twice(60, instances=(), probe=SILENT)) == []


def test_O6_a_silent_one_that_is_not_listed_is_gone() -> None:
    facts: dict[str, t.Any] = {"instances": (), "probe": None, "devices": (device(online=False),)}
    assert deletions(decide(world(**facts), wanted())) == []
    assert reasons(twice(2, **facts)) == [("destroy", "InstanceGone")]


@pytest.mark.parametrize("mode", ["reap", "provision"])
def test_O2_a_service_without_a_record_gets_it_back(mode: str) -> None:
    found = [action for action in decide(world(claims=()), wanted(), mode).actions if action.reason == "Adopted"]
    assert len(found) == 1
    made = found[0].claim
    assert made is not None
    assert (made.lane, made.phase, made.pool, made.instance_id) == (Lane.SERVICE, Phase.JOINING, "default/p", "i-00001")
    assert (made.mesh_device_id, made.mesh_backend) == ("d-00001", "tailscale")


def test_O1_a_machine_without_a_record_that_does_not_answer_goes_after_two_sightings() -> None:
    silent = {"claims": (), "probe": ILL, "devices": (device(online=False),)}
    assert reasons(twice(15, **silent)) == [("destroy", "Orphan")]
    other = specs(pool(), classes=(node_class(clouds=("runpod",)),))
    assert reasons(twice(15, spec=other, **silent)) == [("destroy", "Orphan")]


def test_L12a_a_machine_without_a_record_whose_device_is_online_gets_its_claim_back() -> None:
    found = twice(15, claims=(), probe=ILL)
    assert [one.reason for one in found.actions if one.kind in ("update", "destroy")] == ["Adopted"]


# ---- idle and old

IDLE, BUSY, UNSURE = Probe(True, idle=True), Probe(True, idle=False), Probe(True, idle_detail="it answers 500")
ASKED = {"idle_probe": IdleProbe("/idle"), "min_age": 0}


def idle_for(minutes: float, probe: Probe = IDLE, **facts: t.Any) -> Plan:
    """A run at noon about a service that has been idle for so long."""
    since = NOON - timedelta(minutes=minutes)
    return decide(world(probe=probe, claims=(served(idle_since=since),)), wanted(**{**ASKED, **facts}))


def test_L03_an_idle_service_goes_after_its_time() -> None:
    assert deletions(idle_for(9.9)) == []
    assert reasons(idle_for(10)) == [("destroy", "Empty")]
    assert deletions(idle_for(10, consolidate_after=1200)) == []
    assert deletions(idle_for(10, min_age=3600)) == []
    assert deletions(idle_for(10, min_nodes=1)) == []


def test_L03_the_first_answer_idle_begins_the_time_and_a_busy_one_ends_it() -> None:
    began = one(decide(world(probe=IDLE), wanted(**ASKED)), "update").claim
    assert began is not None and began.idle_since == NOON
    ended = one(idle_for(10, BUSY), "update").claim
    assert ended is not None and ended.idle_since is None


def test_L03_unknown_is_never_idle() -> None:
    found = idle_for(600, UNSURE)
    assert deletions(found) == [] and of(found, "update") == []
    assert "whether it is idle is unknown: it answers 500" in one(found, "report").detail


def test_L03_without_an_idle_probe_only_age_ends_a_service() -> None:
    facts = {"idle_probe": None}
    assert deletions(idle_for(600, **facts)) == []
    assert reasons(idle_for(600, **facts, expire_after=3600)) == [("destroy", "Expired")]


def test_I9_a_second_run_changes_nothing() -> None:
    assert [action.kind for action in decide(world(), wanted(), "provision").actions if action.kind != "report"] == []
    assert [action.kind for action in decide(world(probe=IDLE, claims=(served(idle_since=NOON),)), wanted(**ASKED)).actions] == [
        "report"
    ]


def test_devices_of_other_machines_say_nothing() -> None:
    other: Device = device("tgp-a1b2c3d4-p-00002", online=True)
    assert reasons(twice(20, probe=None, devices=(other,)))[0] == ("destroy", "Unhealthy")


# ---- Services without anything

SERVICE = Published("default", NAME, "uid-service")


def test_O16_a_service_object_without_machine_and_record_goes_in_the_second_run() -> None:
    nothing: dict[str, t.Any] = {"claims": (), "instances": (), "devices": (), "probe": None, "services": (SERVICE,)}
    assert deletions(twice(0.5, **nothing)) == []
    found = twice(1, **nothing)
    action = next(action for action in found.actions if action.kind == "delete_service")
    assert (action.name, action.target, action.uid) == (NAME, f"default/{NAME}", "uid-service")


def test_O16_a_machine_of_another_cluster_holds_no_service_of_its_name() -> None:
    """Its stamp says whose it is, so the Service of that name is not its."""
    gone: dict[str, t.Any] = {"claims": (), "devices": (), "probe": None, "services": (SERVICE,)}
    foreign = dataclasses.replace(rented(), marks={"cluster": "ffffffff", "generation": "g"})
    found = twice(1, **gone, instances=(foreign,))
    assert [(one.kind, one.name) for one in found.actions] == [("delete_service", NAME), ("report", NAME)]
    older = dataclasses.replace(foreign, marks={})
    assert not [one for one in twice(1, **gone, instances=(older,)).actions if one.kind == "delete_service"]


@pytest.mark.parametrize(
    "facts",
    [
        {"services": (SERVICE,)},
        {"services": (SERVICE,), "claims": (), "probe": ILL},
        {"services": (SERVICE,), "claims": (), "instances": None, "devices": ()},
        {"services": None, "claims": (), "instances": ()},
        {
            "services": (Published("default", "tgp-ffffffff-p-00001", "u"), Published("default", "web", "v")),
            "claims": (),
            "instances": (),
        },
    ],
)
def test_O16_one_that_has_any_of_them_or_is_not_ours_stays(facts: dict[str, t.Any]) -> None:
    found = twice(5, **facts)
    assert [action for action in found.actions if action.kind == "delete_service"] == []
