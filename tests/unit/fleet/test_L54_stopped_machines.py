# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the Node of an own machine goes that is stopped (L-54)."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    CloudChoice,
    CloudView,
    DamagedClaim,
    HandedOut,
    InstanceState,
    Machine,
    MeshChoice,
    Node,
    Observation,
    Pause,
    Phase,
    Plan,
    Specs,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cluster_state import Situation
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection.stopped_machines import stopped_rows

from .build import CAPABILITIES, at, claim, decide, deletions, device, instance, node, node_class, of, offer, one, pool, seen, specs

BOX = Machine("box", 1, "https://power.test/on", "https://power.test/off", status_endpoint="https://power.test/status")
DRAINED = {"tgp.io/drain-started": "2026-08-20T10:00:00Z"}
STOPPED = {**DRAINED, "tgp.io/stopped-since": "2026-08-20T10:05:00Z"}
HOUR = 3600


def box(annotations: t.Mapping[str, str] = DRAINED, *, ready: bool | None = False, **facts: t.Any) -> Node:
    labels = {"tgp.io/instance-id": "box", "tgp.io/provider": "webhook", **facts.pop("labels", {})}
    usual = {"ready_since": at("10:02"), "labels": labels, "annotations": dict(annotations)}
    return node("box", ready, **{**usual, **facts})


def wanted(after: int | None = HOUR, *, machine: Machine = BOX, backend: str = "none", **settings: t.Any) -> Specs:
    listed = CloudChoice("webhook", machines=(machine,), settings=settings)
    return specs(pool(delete_stopped_after=after), classes=(node_class(clouds=(listed,), mesh=mesh(backend)),))


def mesh(backend: str) -> MeshChoice:
    return MeshChoice(backend=backend, tags=("tag:gpu",))


def off(state: InstanceState = InstanceState.TERMINATED, word: str = "off", **facts: t.Any) -> CloudView:
    return CloudView((instance("box", state, cloud="webhook", id="box", created=None, raw_state=word, **facts),), ())


def world(now: datetime, there: Node | None = None, view: CloudView | None = None, **facts: t.Any) -> Observation:
    return seen(now, clouds={"webhook": view or off()}, nodes=(there or box(),), **facts)


def noted(found: Plan) -> list[str | None]:
    return [action.value for action in of(found, "annotate")]


def told(found: Plan) -> list[str]:
    return [action.detail for action in of(found, "report")]


# ---- the timer


def test_L54_the_timer_begins_when_a_run_first_sees_it_stopped_and_ends_at_its_bound() -> None:
    """Stopped at 10:05, deleteStoppedAfter 1h: at 11:04:59 it stays, at 11:05 the Node goes."""
    first = decide(world(at("10:05")), wanted())
    assert noted(first) == ["2026-08-20T10:05:00Z"] and not deletions(first)
    early = decide(world(at("11:04:59"), box(STOPPED)), wanted())
    assert not deletions(early) and not noted(early)
    assert told(early) == ["stopped for 59m59s; its Node is removed in 1s (deleteStoppedAfter 1h of default/p)"]
    due = one(decide(world(at("11:05"), box(STOPPED)), wanted()), "delete_node")
    assert (due.name, due.target, due.uid, due.reason) == ("box", "box", "uid-box", "Stopped")
    assert due.detail == "stopped for 1h; its Node is removed now (deleteStoppedAfter 1h of default/p)"


@pytest.mark.parametrize(("now", "goes"), [("10:05:59", False), ("10:06", True)])
def test_L54_at_once_means_in_the_second_run_that_sees_it_a_minute_later(now: str, goes: bool) -> None:
    """deleteStoppedAfter 0s, stopped at 10:05: at 10:05:59 it stays, at 10:06 its Node goes."""
    assert bool(deletions(decide(world(at(now), box(STOPPED)), wanted(0)))) is goes


def test_L54_never_is_the_behaviour_without_the_field() -> None:
    for there in (box(), box(STOPPED)):
        assert decide(world(at("23:00"), there), wanted(None)).actions == ()


def test_L54_a_second_run_at_the_same_moment_writes_nothing() -> None:
    found = decide(world(at("10:30"), box(STOPPED)), wanted())
    assert {action.kind for action in found.actions} == {"report"}


def test_L54_a_node_that_was_ready_in_between_begins_anew() -> None:
    """Noted at 10:05, Ready until 10:50: it is stopped since 10:50, so its Node goes at 11:50, not at 11:05."""
    there = box(STOPPED, ready_since=at("10:50"))
    found = decide(world(at("11:10"), there), wanted())
    assert noted(found) == ["2026-08-20T10:50:00Z"] and not deletions(found)
    again = box({**DRAINED, "tgp.io/stopped-since": "2026-08-20T10:50:00Z"}, ready_since=at("10:50"))
    assert not deletions(decide(world(at("11:49:59"), again), wanted()))
    assert deletions(decide(world(at("11:50"), again), wanted()))


@pytest.mark.parametrize(
    ("text", "value", "warns"),
    [
        ("soon", "2026-08-20T12:00:00Z", "is not a time"),
        ("2026-08-20T12:01:00Z", None, ""),
        ("2026-08-20T12:30:00Z", None, "lies in the future"),
    ],
    ids=["no time", "a little ahead", "far ahead"],
)
def test_L54_a_note_that_is_no_time_or_lies_ahead_removes_nothing(text: str, value: str | None, warns: str) -> None:
    found = decide(world(at("12:00"), box({**DRAINED, "tgp.io/stopped-since": text})), wanted(0))
    assert not deletions(found) and noted(found) == [value] * (value is not None)
    assert [one for one in found.warnings if warns in one] == list(found.warnings) and bool(found.warnings) is bool(warns)


# ---- what is stopped


@pytest.mark.parametrize(
    ("state", "word"), [(InstanceState.RUNNING, "on"), (InstanceState.PENDING, "starting")], ids=["on", "starting"]
)
def test_L54_one_that_its_owner_switched_on_is_not_stopped_any_more(state: InstanceState, word: str) -> None:
    found = decide(world(at("12:00"), box(STOPPED), off(state, word)), wanted())
    assert not deletions(found) and noted(found) == [None]
    again = decide(world(at("12:05"), box(), off(state, word)), wanted())
    assert not deletions(again) and not noted(again)


def test_L54_a_ready_node_and_an_online_device_say_that_it_is_on() -> None:
    found = decide(world(at("12:00"), box(STOPPED, ready=True)), wanted())
    assert not deletions(found) and noted(found) == [None]
    online = world(at("12:00"), box(STOPPED), devices=(device("box", True),))
    found = decide(online, wanted(backend="tailscale"))
    assert not deletions(found) and noted(found) == [None]


@pytest.mark.parametrize(
    ("view", "backend", "facts", "why"),
    [
        (off(InstanceState.UNKNOWN, "unknown", problem="503 of power.test"), "none", {}, "503 of power.test"),
        (off(InstanceState.TERMINATING, "stopping"), "none", {}, "it is stopping"),
        (CloudView(None, (), problem="no answer"), "none", {}, "the machines of webhook could not be read"),
        (CloudView((), ()), "none", {}, "the machines of webhook could not be read"),
        (off(), "tailscale", {"devices": None}, "whether its mesh device is online is unknown"),
        (off(), "tailscale", {"devices": (device("box", None),)}, "whether its mesh device is online is unknown"),
    ],
    ids=["status failed", "stopping", "no list", "not listed", "no mesh", "mesh silent"],
)
def test_L54_unknown_removes_nothing_and_keeps_the_timer(view: CloudView, backend: str, facts: dict[str, t.Any], why: str) -> None:
    found = decide(world(at("12:00"), box(STOPPED), view, **facts), wanted(backend=backend))
    assert not deletions(found) and not noted(found)
    assert f"whether it is stopped is unknown ({why}), so its Node stays" in told(found)
    later = decide(world(at("12:05"), box(STOPPED)), wanted())
    assert deletions(later), "the time before counts"


@pytest.mark.parametrize(("marks", "settings", "goes"), [
    (STOPPED, {}, True), ({"tgp.io/stopped-since": "2026-08-20T10:05:00Z"}, {}, False),
    ({"tgp.io/stopped-since": "2026-08-20T10:05:00Z"}, {"bulkStatusEndpoint": "/status"}, True),
], ids=["drained", "not drained", "one endpoint for all"])  # fmt: skip
def test_L54_without_a_status_endpoint_only_a_node_that_a_run_drained_is_stopped(
    marks: dict[str, str], settings: dict[str, t.Any], goes: bool
) -> None:
    silent = dataclasses.replace(BOX, status_endpoint="")
    found = decide(world(at("12:00"), box(marks)), wanted(machine=silent, **settings))
    assert bool(deletions(found)) is goes
    if not goes:
        assert told(found) == [
            "whether it is stopped is unknown (it has no status endpoint, and its Node was not drained), so its Node stays"
        ]


@pytest.mark.parametrize("labels", [{"tgp.io/provisioned": "false"}, {"tgp.io/instance-id": "other"}, {"tgp.io/nodepool": "other"}])
def test_L54_a_node_that_is_not_ours_or_of_no_pool_stays(labels: dict[str, str]) -> None:
    assert not deletions(decide(world(at("12:00"), box(STOPPED, labels=labels)), wanted()))


def test_L54_nothing_goes_while_claims_or_nodes_are_unknown_or_a_record_may_be_of_it() -> None:
    there = box(STOPPED)
    damaged, released = DamagedClaim("box", "its claim", "half a JSON"), HandedOut("webhook", "box", "box", at("9:00"))
    for facts in ({"claims": None}, {"damaged": (damaged,)}, {"released": (released,)}):
        assert not deletions(decide(world(at("12:00"), there, **facts), wanted())), facts
    blind = dataclasses.replace(world(at("12:00"), there), nodes=None)
    assert not deletions(decide(blind, wanted()))


def test_L54_two_pools_that_the_node_may_be_of_keep_it() -> None:
    base = wanted()
    twin = dataclasses.replace(base, pools=(*base.pools, pool(namespace="team", delete_stopped_after=60)))
    found = decide(world(at("12:00"), box(STOPPED)), twin)
    assert not deletions(found)
    assert told(found) == ["whether it is stopped is unknown (it may be of default/p or team/p), so its Node stays"]


# ---- what keeps it


@pytest.mark.parametrize("view", [off(), off(InstanceState.PENDING, "starting")], ids=["still off", "starting"])
def test_L54_a_claim_ends_the_timer(view: CloudView) -> None:
    """The power service may say off for a while after the call."""
    rack = offer("0.30", cloud="webhook", id="box")
    mine = claim("box", Phase.PROVISIONING, offer=rack, launch_started=at("11:58"))
    found = decide(world(at("12:00"), box(STOPPED), view, claims=(mine,)), wanted())
    assert noted(found) == [None] and not of(found, "delete_node")


def test_L54_one_that_this_plan_switches_on_keeps_its_node() -> None:
    rented = dataclasses.replace(off(), offers=(offer("0", cloud="webhook", id="box", instance_type="box"),))
    base = wanted()
    asked = dataclasses.replace(base, nodes={"default/p": 1})
    found = decide(world(at("12:00"), box(STOPPED), rented), asked, "everything")
    assert [action.name for action in of(found, "launch")] == ["box"]
    assert not deletions(found) and not noted(found)


@pytest.mark.parametrize(("marks", "why"), [
    ({"tgp.io/do-not-disrupt": "true"}, "held by tgp.io/do-not-disrupt"),
    ({"tgp.io/hold-until": "2026-08-20T18:00:00Z"}, "held by tgp.io/hold-until 2026-08-20T18:00:00Z"),
])  # fmt: skip
def test_L54_a_hold_keeps_the_node(marks: dict[str, str], why: str) -> None:
    found = decide(world(at("12:00"), box({**STOPPED, **marks})), wanted())
    assert not deletions(found) and told(found) == [f"stopped for 1h55m; its Node stays: {why}"]


def test_L54_a_paused_pool_keeps_it() -> None:
    found = decide(world(at("12:00"), box(STOPPED), pauses=(Pause("pool", "default/p", "until Monday"),)), wanted())
    assert not deletions(found)
    assert any("its Node stays: " in text and "until Monday" in text for text in told(found))


# ---- the mesh device


@pytest.mark.parametrize(("payload", "tags", "first"), [
    ("body", ("tag:gpu",), "delete_device"), ("none", ("tag:gpu",), "delete_node"), ("body", ("tag:server",), "delete_node"),
])  # fmt: skip
def test_L54_a_device_that_runs_made_goes_before_the_node(payload: str, tags: tuple[str, ...], first: str) -> None:
    """One that is installed for good keeps its own device, and so does one with a tag of others."""
    documents = wanted(backend="tailscale", payload=payload)
    found = decide(world(at("12:00"), box(STOPPED), devices=(device("box", False, tags=tags),)), documents)
    assert [action.kind for action in deletions(found)] == [first]
    then = decide(world(at("12:05"), box(STOPPED)), documents)
    assert [action.kind for action in deletions(then)] == ["delete_node"], "a run that was killed in between is resumed"


# ---- which runs, and what they show


@pytest.mark.parametrize(
    ("mode", "goes"), [("reap", True), ("autoscale", True), ("everything", True), ("provision", False), ("status", False)]
)
def test_L54_runs_that_end_machines_remove_nodes(mode: str, goes: bool) -> None:
    assert bool(deletions(decide(world(at("12:00"), box(STOPPED)), wanted(), mode))) is goes


def test_L54_status_shows_the_time_that_is_left() -> None:
    situation = Situation(world(at("10:35"), box(STOPPED)), wanted(), Settings(), CAPABILITIES)
    assert stopped_rows(situation) == [
        {
            "name": "box", "node": "box", "pool": "default/p", "stopped_since": "2026-08-20T10:05:00Z", "removed_at": "2026-08-20T11:05:00Z",
            "text": "stopped for 30m; its Node is removed in 30m (deleteStoppedAfter 1h of default/p)",
        }
    ]  # fmt: skip


def test_L54_over_a_day_the_node_goes_once_and_only_after_an_hour_off() -> None:
    """Every five minutes a run, with stops and hands that switch it on: the Node never goes earlier than an hour after the last stop."""
    there: Node | None = box(ready=True, ready_since=at("8:00"))
    last = at("8:00")
    for minute in range(0, 600, 5):
        now = at("8:00") + timedelta(minutes=minute)
        on = minute in range(60, 90) or minute in range(140, 160)
        if there is None:
            break
        if on or minute == 0:
            last = now
        there = dataclasses.replace(there, ready=on, ready_since=there.ready_since if there.ready is on else now)
        view = off(InstanceState.RUNNING, "on") if on else off()
        found = decide(world(now, there, view), wanted())
        for action in of(found, "annotate"):
            marks = {key: value for key, value in there.annotations.items() if key != "tgp.io/stopped-since"}
            there = dataclasses.replace(
                there, annotations={**marks, **({"tgp.io/stopped-since": action.value} if action.value else {})}
            )
        if of(found, "delete_node"):
            assert now - last >= timedelta(hours=1) and not on
            there = None
    assert there is None
