# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mistakes that comparable programs made, each as the sentence that must be true here (docs/evidence/coverage.md, rows D and K).

Those that need a cloud or a cluster are in tests/contract/act/test_D_mistakes_of_others.py.
"""

from __future__ import annotations

import dataclasses
import functools
import typing as t
from decimal import Decimal

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import Document
from ansible_collections.tgp.gpu.plugins.module_utils.documents.parse import parse
from ansible_collections.tgp.gpu.plugins.module_utils.kube.pods import effective_requests
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Claim,
    CloudChoice,
    CloudView,
    Machine,
    MeshChoice,
    Phase,
    Placement,
    Taint,
    Toleration,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.defaults import Settings
from ansible_collections.tgp.gpu.plugins.module_utils.model.resources import GPU_RESOURCES
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.record import advance
from ansible_collections.tgp.gpu.plugins.module_utils.planner.disruption import drain_rules
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection.termination_steps import Facts, Step, next_step
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling import binpacking, capacity
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.binpacking import is_gpu
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.pending_pods import demand
from ansible_collections.tgp.gpu.plugins.module_utils.units.values import parse_money, print_money

from .build import NOON, at, claim, decide, instance, node, node_class, of, offer, one, pod, pool, seen, specs
from .pods import GPU, waiting

PLUGIN = pod("plugin", owner_kind="DaemonSet", owner_api="apps/v1", requests={GPU: 1})


def test_D10_short_ids_are_ids() -> None:
    short = instance(id="12345", created=at("11:00"))
    known = node(labels={"tgp.io/instance-id": "12345"})
    adopted = one(decide(seen(instances=(short,), nodes=(known,))), "update").claim
    assert adopted is not None and (adopted.instance_id, adopted.ids_seen) == ("12345", ("12345",))


def test_D11_a_credential_is_found_by_name_and_key_alone() -> None:
    document = {
        "apiVersion": "tgp.io/v1",
        "kind": "GPUNodeClass",
        "metadata": {"name": "c"},
        "spec": {"providers": [{"name": "lambda", "credentialsRef": {"name": "keys", "key": "lambda"}}]},
    }
    found, _warnings = parse([Document("a", document)])
    credentials = found.classes["c"].clouds[0].credentials
    assert credentials is not None and (credentials.namespace, credentials.name, credentials.key) == (
        "tgp-system",
        "keys",
        "lambda",
    )


@pytest.mark.parametrize(("moment", "reasons"), [("12:09:59", []), ("12:10", ["Empty"])])
def test_D12_a_node_with_daemons_only_is_idle_after_exactly_its_time(moment: str, reasons: list[str]) -> None:
    """However often somebody looks, and however fresh the kubelet's heartbeat is."""
    resting = node(annotations={"tgp.io/idle-since": "2026-08-20T12:00:00Z"})
    found = decide(seen(at(moment), claims=(claim(),), nodes=(resting,), instances=(instance(),), pods=(PLUGIN,)))
    assert [action.reason for action in of(found, "destroy")] == reasons and not of(found, "annotate")


def test_D13_a_machine_is_destroyed_where_it_was_rented() -> None:
    """Whatever the documents name now: the claim knows its cloud."""
    rented = claim(offer=offer("0.42", cloud="vast"), launch_started=at("11:00"))
    facts: dict[str, t.Any] = {"clouds": {"vast": CloudView((instance(cloud="vast"),), ()), "lambda": CloudView((), ())}}
    observed = seen(claims=(rented,), nodes=(node(annotations={"tgp.io/terminate": "now"}),), **facts)
    action = one(decide(observed, specs(classes=(node_class(clouds=("lambda",)),))), "destroy")
    assert action.claim is not None and action.claim.cloud == "vast"


def test_D16_an_id_that_its_cloud_never_lists_is_no_machine() -> None:
    """It failed, it is not Ready; and the next one is rented."""
    ghost = claim(
        phase=Phase.PROVISIONING, launch_started=at("11:40"), instance_id="i-ghost", ids_seen=("i-ghost",), gone_since=at("11:45")
    )
    given_up = one(decide(seen(claims=(ghost,))), "destroy")
    assert given_up.reason == "FailedJoin" and given_up.detail.startswith("no_instance")
    ending = dataclasses.replace(t.cast(Claim, given_up.claim), phase=Phase.TERMINATING)
    found = decide(seen(claims=(ending,), offers=(offer("0.42"),)), specs(p=1), "provision")
    assert one(found, "launch").name != ghost.name


def test_D17_every_container_counts() -> None:
    def box(count: int) -> dict[str, t.Any]:
        return {"name": "x", "resources": {"limits": {"tgp.io/gpu": str(count)}}}

    none = {"name": "proxy", "resources": {}}
    counted = functools.partial(is_gpu, gpu_resources=GPU_RESOURCES)
    assert effective_requests({"containers": [none, box(2)]}, counted)["tgp.io/gpu"] == 2
    assert effective_requests({"containers": [none], "initContainers": [box(1)]}, counted)["tgp.io/gpu"] == 1


def test_D17_a_selector_for_the_architecture_matches() -> None:
    place = capacity.of_offer(offer(), pool(), node_class(), "a1b2c3d4", True)
    tolerant = (Toleration(operator="Exists"),)
    for arch, why in (("amd64", ""), ("arm64", "selector kubernetes.io/arch=arm64")):
        assert binpacking.against(waiting(placement=Placement((("kubernetes.io/arch", arch),), tolerations=tolerant)), place) == why


def test_D17_gated_pods_ask_for_nothing() -> None:
    assert demand([waiting(waiting="SchedulingGated")], (pool(),), Settings(), NOON).pods == ()


def test_D20_half_a_cent_is_not_lost() -> None:
    assert print_money(parse_money("0.345")) == "0.345"
    assert sum((parse_money("0.345") for _one in range(1000)), Decimal(0)) == Decimal("345.000")
    tight = node_class(max_hourly_cost=Decimal("0.69"))
    found = decide(seen(offers=(offer("0.345"),)), specs(classes=(tight,), p=3), "provision")
    assert len(of(found, "launch")) == 2, "two halves of 0.69 fit exactly"


@pytest.mark.parametrize(("moment", "goes"), [("12:09", False), ("12:10", True)])
def test_K02_idle_for_a_while_then_emptied_then_off(moment: str, goes: bool) -> None:
    mine = claim("rack-1", offer=offer("0", cloud="webhook", id="rack-1"), instance_id="rack-1")
    facts: dict[str, t.Any] = {"clouds": {"webhook": CloudView((instance("rack-1", cloud="webhook", id="rack-1"),), ())}}
    resting = node("rack-1", annotations={"tgp.io/idle-since": "2026-08-20T12:00:00Z"})
    found = decide(seen(at(moment), claims=(mine,), nodes=(resting,), **facts))
    assert bool(of(found, "destroy")) is goes
    if goes:
        going = one(found, "destroy").claim
        assert going is not None and drain_rules.mode_of("Empty") is drain_rules.Mode.VOLUNTARY
        assert next_step(going, Facts(at(moment), node=True, instance="present")) is Step.DRAIN
        drained = advance(going, Phase.TERMINATING, at(moment), "Empty")
        assert next_step(drained, Facts(at(moment), node=True, instance="present")) is Step.DESTROY


def test_K04_a_booting_machine_counts_once() -> None:
    machines = tuple(Machine(f"rack-{count}", count, "http://up", "http://down") for count in (1, 2))
    own = specs(classes=(node_class(clouds=(CloudChoice("webhook", machines=machines),), mesh=MeshChoice("none")),))
    offers = tuple(
        offer("0", id=f"rack-{count}", cloud="webhook", gpu_count=count, model="", instance_type="own") for count in (1, 2)
    )
    asking = waiting(placement=Placement(tolerations=(Toleration(operator="Exists"),)))
    view = {"webhook": CloudView((), offers)}
    first = one(decide(seen(clouds=view, pods=(asking,)), own, "autoscale"), "launch").claim
    assert first is not None and first.name == "rack-1"
    sent = dataclasses.replace(first, phase=Phase.PROVISIONING, launch_started=NOON, instance_id="rack-1", ids_seen=("rack-1",))
    for moment in ("12:00:10", "12:00:20", "12:14:50"):
        again = decide(seen(at(moment), clouds=view, pods=(asking,), claims=(sent,)), own, "autoscale")
        assert not of(again, "launch", "destroy"), moment


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"placement": Placement((("team", "red"),))}, "selector team=red"),
        ({"placement": Placement()}, "taint gpu:NoSchedule not tolerated"),
        ({"requests": {"amd.com/gpu": 1}, "placement": Placement(tolerations=(Toleration(operator="Exists"),))}, "amd.com/gpu"),
    ],
)
def test_K06_selectors_taints_and_other_resources_are_looked_at(facts: dict[str, t.Any], why: str) -> None:
    tainted = binpacking.Bin("a", {GPU: 1}, {}, (Taint("gpu", "", "NoSchedule"),))
    assert binpacking.fit([waiting(**facts)], [tainted], GPU_RESOURCES).placed == {}
    if "requests" not in facts:
        assert binpacking.against(waiting(**facts), tainted) == why
