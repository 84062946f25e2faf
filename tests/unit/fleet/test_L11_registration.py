# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-11: registered, initialized, failed joins."""

from __future__ import annotations

import dataclasses
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    CloudChoice,
    CloudView,
    Deletion,
    InstanceState,
    Machine,
    Phase,
    Taint,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.cost.cost import ledger_line
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption import idleness
from ansible_collections.tgp.gpu.plugins.module_utils.planner.offers import launch_backoff
from ansible_collections.tgp.gpu.plugins.module_utils.planner.provisioning.registration import not_initialized
from ansible_collections.tgp.gpu.plugins.module_utils.units.values import print_money

from .build import at, claim, decide, instance, node, node_class, of, offer, one, pod, pool, seen, specs

JOINING = claim(phase=Phase.JOINING, launch_started=at("12:00"), created=at("12:00"))
NEW = node(created=at("12:03"))


def test_L11_initialized_node_makes_the_claim_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idleness, "SCALE_DOWN_DELAY_AFTER_ADD", 0)
    found = decide(seen(at("12:05"), claims=(JOINING,), nodes=(NEW,), instances=(instance(),)))
    updated = one(found, "update").claim
    assert updated is not None and updated.phase is Phase.READY
    assert (updated.registered, updated.initialized, updated.node_uid) == (at("12:05"), at("12:05"), NEW.uid)


def test_L21_an_own_machine_that_comes_back_drained_is_not_usable_before_it_was_opened() -> None:
    """Its Node lacks nothing but what its last drain took: a claim that were Ready by that would keep a closed Node for ever."""
    own = offer("0", cloud="webhook", id="gpu1", instance_type="gpu1")
    back = claim("gpu1", Phase.JOINING, offer=own, instance_id="gpu1", ids_seen=("gpu1",), launch_started=at("11:55"))
    closed = node("gpu1", annotations={"tgp.io/drain-started": "2026-08-19T10:00:00Z"}, unschedulable=True)
    machine = instance("gpu1", cloud="webhook", id="gpu1", created=None, price_hour=None)
    view = {"webhook": CloudView((machine,), ())}
    wanted = specs(classes=(node_class(clouds=(CloudChoice("webhook", machines=(Machine("gpu1", 1, "", ""),)),)),))
    found = decide(seen(clouds=view, claims=(back,), nodes=(closed,)), wanted, "autoscale")
    assert found.join == ("gpu1",)
    assert [action.claim.phase for action in of(found, "update") if action.claim is not None] == [Phase.JOINING]
    opened = dataclasses.replace(closed, annotations={}, unschedulable=False)
    later = one(decide(seen(clouds=view, claims=(back,), nodes=(opened,)), wanted, "autoscale"), "update").claim
    assert later is not None and later.phase is Phase.READY


@pytest.mark.parametrize(
    "key",
    [
        "tgp.io/initializing",
        "example.com/agent",
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/network-unavailable",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "readiness.k8s.io/network",
    ],
)
def test_L11_taints_that_say_not_yet(key: str) -> None:
    wanted = pool(startup_taints=(Taint("example.com/agent", "", "NoSchedule"),))
    tainted = dataclasses.replace(NEW, taints=(Taint(key, "", "NoSchedule"),))
    assert not_initialized(JOINING, tainted, wanted) == (f"taint {key}",)
    assert not not_initialized(JOINING, dataclasses.replace(NEW, taints=(Taint("gpu-node", "true", "NoSchedule"),)), wanted)


def test_L11_time_slices_are_all_expected() -> None:
    sliced = dataclasses.replace(JOINING, expected_gpus=8)
    for count, ready in ((0, False), (2, False), (8, True)):
        made = dataclasses.replace(NEW, allocatable={"nvidia.com/gpu": count} if count else {})
        assert (not not_initialized(sliced, made, pool())) is ready
    two = dataclasses.replace(NEW, allocatable={"nvidia.com/gpu": 2})
    assert not not_initialized(sliced, two, pool(gpu_wait="any"))
    assert not not_initialized(sliced, dataclasses.replace(NEW, allocatable={}), pool(gpu_wait="none"))


def test_L11_our_own_last_acts_are_left_out_when_marking() -> None:
    bare = dataclasses.replace(NEW, labels={}, taints=(Taint("tgp.io/initializing", "", "NoSchedule"),))
    wanted = pool(labels={"team": "ml"})
    assert not not_initialized(JOINING, bare, wanted, marking=True)
    assert set(not_initialized(JOINING, bare, wanted)) == {"taint tgp.io/initializing", "label tgp.io/provisioned", "label team"}
    assert not_initialized(JOINING, None, wanted) == ("no Node",)


def test_L11_deadline_is_that_of_the_cloud_or_the_pool() -> None:
    observed = {"claims": (JOINING,), "instances": (instance(),)}
    assert not of(decide(seen(at("12:29:59"), **observed)), "destroy")
    assert one(decide(seen(at("12:30"), **observed)), "destroy").reason == "FailedJoin"
    short = specs(pool(registration_timeout=1200))
    assert not of(decide(seen(at("12:19:59"), **observed), short), "destroy")
    assert one(decide(seen(at("12:20"), **observed), short), "destroy").reason == "FailedJoin"


def test_L11_facts_beat_the_clock() -> None:
    found = decide(seen(at("12:31"), claims=(JOINING,), nodes=(NEW,), instances=(instance(),)))
    assert not of(found, "destroy") and of(found, "update")


def test_L11_a_node_that_lacks_only_our_marks_is_in_time() -> None:
    """The run that should have marked it was killed; the next one goes on with it instead of renting another."""
    bare = dataclasses.replace(NEW, labels={}, taints=(Taint("tgp.io/initializing", "", "NoSchedule"),))
    facts = {"claims": (JOINING,), "nodes": (bare,), "instances": (instance(),)}
    assert not of(decide(seen(at("12:31"), **facts)), "destroy")
    found = decide(seen(at("12:31"), offers=(offer(),), **facts), specs(p=1), "provision")
    assert not of(found, "launch") and one(found, "resume").name == JOINING.name


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"instances": (instance(state=InstanceState.PENDING),)}, "instance_not_running"),
        ({"instances": (instance(),)}, "overlay_offline"),
        ({"instances": (instance(),), "nodes": (dataclasses.replace(NEW, ready=False),)}, "node_not_ready"),
        ({"instances": (instance(),), "nodes": (dataclasses.replace(NEW, allocatable={}),)}, "gpu_missing"),
    ],
)
def test_L11_class_of_the_failure(facts: dict[str, object], expected: str) -> None:
    young = dataclasses.replace(JOINING, phase=Phase.BOOTING)
    assert one(decide(seen(at("12:30"), claims=(young,), **facts)), "destroy").detail.startswith(expected)
    online = dataclasses.replace(young, mesh_seen=at("12:05"))
    if expected == "overlay_offline":
        assert one(decide(seen(at("12:30"), claims=(online,), **facts)), "destroy").detail.startswith("node_not_registered")


def test_L11_machine_that_never_appeared_is_given_up_after_the_window_and_two_runs() -> None:
    ghost = dataclasses.replace(JOINING, phase=Phase.PROVISIONING)
    for moment in ("12:05", "12:09:59"):
        found = decide(seen(at(moment), claims=(ghost,)))
        assert not of(found, "destroy")
        ghost = of(found, "update")[0].claim if of(found, "update") else ghost  # type: ignore[assignment]
    action = one(decide(seen(at("12:11"), claims=(ghost,))), "destroy")
    assert action.reason == "FailedJoin" and action.detail.startswith("no_instance")


def test_L11_no_decision_while_the_cloud_cannot_be_listed() -> None:
    from ansible_collections.tgp.gpu.plugins.module_utils.model import CloudView

    found = decide(seen(at("14:00"), claims=(JOINING,), clouds={"lambda": CloudView(problem="lambda: 503")}))
    assert not of(found, "destroy") and "503" in found.failures[0]


def test_L11_a_ready_node_older_than_the_machine_is_not_its_own() -> None:
    old = node(created=at("10:00"), ready_since=at("10:00"))
    found = decide(seen(at("12:05"), claims=(JOINING,), nodes=(old,), instances=(instance(),)))
    assert one(found, "destroy").detail.startswith("stale_node")


@pytest.mark.parametrize(("price", "dollars"), [("0.42", "0.1435"), ("1.10", "0.3758")])
def test_L11_cost_of_a_failed_join(price: str, dollars: str) -> None:
    rented = offer(price)
    failed = dataclasses.replace(
        JOINING, offer=rented, reserved_price=rented.price_hour, deletion=Deletion("FailedJoin", at("12:20"))
    )
    line = ledger_line(failed, end=at("12:20:30"))
    assert print_money(Decimal(line["cost"])) == dollars and line["reason"] == "FailedJoin" and line["joined"] is False


def test_L11_three_failed_joins_in_an_hour_pause_the_pool() -> None:
    state: launch_backoff.State = {}
    for moment in ("12:00", "12:20", "12:59:59"):
        assert not launch_backoff.active(state, at(moment))
        state = launch_backoff.after_failed_join(state, "default/p", at(moment))
    active = launch_backoff.active(state, at("13:00"))
    assert active == {"pool:default/p": at("13:59:59")}
    found = decide(seen(at("13:00"), offers=(offer(),), blocks=active), specs(p=1), "provision")
    assert not of(found, "launch") and found.shortfall[0].reason == "paused after failed joins"
    slow: launch_backoff.State = {}
    for moment in ("12:00", "12:40", "13:20", "14:00"):
        slow = launch_backoff.after_failed_join(slow, "default/p", at(moment))
    assert not launch_backoff.active(slow, at("14:00"))


def test_L11_provision_reports_an_overdue_machine_and_plans_its_replacement() -> None:
    found = decide(seen(at("12:30"), claims=(JOINING,), instances=(instance(),), offers=(offer(),)), specs(p=1), "provision")
    assert not of(found, "destroy") and one(found, "report").reason == "FailedJoin" and of(found, "launch")


def test_L11_a_complete_node_that_no_run_opens_goes_when_its_time_has_passed_twice() -> None:
    """The run that should have opened it was killed. The next provision does; where only reap runs, it must not be billed for ever."""
    closed = dataclasses.replace(NEW, taints=(Taint("tgp.io/initializing", "", "NoSchedule"),), labels={})
    for moment, goes in (("12:30", False), ("12:59:59", False), ("13:00", True)):
        facts = seen(at(moment), claims=(JOINING,), nodes=(closed,), instances=(instance(),), offers=(offer(),))
        found = of(decide(facts), "destroy")
        assert bool(found) is goes, moment
        assert not goes or (found[0].reason == "FailedJoin" and found[0].detail.startswith("not_opened"))
        assert not of(decide(facts, specs(p=1), "provision"), "launch"), "its join is about to open it"


def test_L11_a_complete_node_is_opened_by_autoscale_before_it_is_given_up() -> None:
    closed = dataclasses.replace(NEW, taints=(Taint("tgp.io/initializing", "", "NoSchedule"),), labels={})
    for moment, goes in (("13:00", False), ("13:29:59", False), ("13:30", True)):
        facts = seen(at(moment), claims=(JOINING,), nodes=(closed,), instances=(instance(),), offers=(offer(),))
        found = decide(facts, specs(p=1), "autoscale")
        assert bool(of(found, "destroy")) is goes, moment
        assert goes or found.join == (JOINING.name,), moment


def test_L11_a_node_that_no_run_has_opened_stays_while_pods_work_on_it() -> None:
    """They may tolerate its taint, or somebody has opened it by hand."""
    closed = dataclasses.replace(NEW, taints=(Taint("tgp.io/initializing", "", "NoSchedule"),), labels={})
    for pods, goes in (((pod(node=closed.name),), False), (None, False), ((pod(node="another"),), True), ((), True)):
        facts = seen(at("14:00"), claims=(JOINING,), nodes=(closed,), instances=(instance(),), offers=(offer(),), pods=pods)
        assert bool(of(decide(facts), "destroy")) is goes, pods


def test_L11_twenty_minutes_and_a_late_look() -> None:
    """Its GPU appears at 12:19:59, the run looks at 12:21, a minute after the deadline: the facts count."""
    short = specs(pool(registration_timeout=1200))
    late = {"claims": (JOINING,), "nodes": (NEW,), "instances": (instance(),)}
    found = decide(seen(at("12:21"), **late), short)
    assert not of(found, "destroy") and one(found, "update").claim.initialized == at("12:21")  # type: ignore[union-attr]
    bare = {**late, "nodes": (dataclasses.replace(NEW, allocatable={}),)}
    assert one(decide(seen(at("12:21"), **bare), short), "destroy").reason == "FailedJoin"
