# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drifted (L-5, L-6, L-7, L-9): what counts as drift, and that it is replaced in order or only reported."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Claim,
    Deletion,
    DisruptionBudget,
    Guard,
    Lane,
    MeshChoice,
    NodeClass,
    Phase,
    Plan,
    Pod,
    Pool,
    Probe,
    SecretRef,
    ServiceSpec,
    Taint,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.reasons import Reason
from ansible_collections.tgp.gpu.plugins.module_utils.planner.claims.spec_hash import RECIPE, drifted, generation

from .build import at, claim, decide, device, instance, node, node_class, of, offer, pod, pool, seen, specs

NOW = node_class(talos_patches=("machine: {}",), generation="documents-of-now")
THEN = node_class(talos_patches=())
REPLACE = pool(drift_policy="Replace")


def name(place: int) -> str:
    return f"tgp-a1b2c3d4-p-{place:05}"


def old(place: int = 1, **facts: t.Any) -> Claim:
    """A machine that was made before the class got its patch."""
    return claim(name(place), generation=generation(THEN, REPLACE), **facts)


def planned(claims: t.Sequence[Claim], wanted: Pool = REPLACE, pods: t.Sequence[Pod] | None = None, **facts: t.Any) -> Plan:
    """A reap at noon; each node has a job of its own unless ``pods`` says otherwise."""
    settings = facts.pop("settings", {})
    usual: dict[str, t.Any] = {
        "claims": claims,
        "nodes": [node(one.name) for one in claims],
        "instances": [instance(one.name) for one in claims],
        "pods": [pod(f"job-{one.name}", node=one.name) for one in claims] if pods is None else pods,
    }
    return decide(seen(facts.pop("now", at("12:00")), **{**usual, **facts}), specs(wanted, classes=(NOW,)), **settings)


def going(found: Plan) -> list[str]:
    return [action.name for action in of(found, "destroy") if action.reason == Reason.DRIFTED]


def told(found: Plan) -> list[str]:
    return [action.detail for action in of(found, "report") if action.reason == Reason.DRIFTED]


# ---- what counts as drift

MESH = MeshChoice(tags=("tag:gpu",))
SERVICE = ServiceSpec("registry.example/llm:1", (8000,), "/health", 8000)
FULL = node_class(
    template="machine: {}", talos_image="ghcr.io/siderolabs/installer:v1.13.0", talos_patches=("a: 1",), registry_mirrors={"docker.io": ("https://m",)}
)  # fmt: skip
ALL_LANES = {Lane.TALOS, Lane.KUBELET, Lane.SERVICE}
NODES = {Lane.TALOS, Lane.KUBELET}


@pytest.mark.parametrize(
    ("of_class", "of_pool", "lanes"),
    [
        ({"template": "machine: {type: worker}"}, {}, NODES),
        ({"template_ref": SecretRef("talos", "worker")}, {}, NODES),
        ({"talos_patches": ("a: 2",)}, {}, NODES),
        ({"registry_mirrors": {}}, {}, NODES),
        ({"talos_image": "ghcr.io/siderolabs/installer:v1.13.1"}, {}, {Lane.TALOS}),
        ({"talos_schematic": {"customization": {}}}, {}, {Lane.TALOS}),
        ({"mesh": MeshChoice(tags=("tag:other",))}, {}, ALL_LANES),
        ({"mesh": MeshChoice("none")}, {}, ALL_LANES),
        ({}, {"labels": {"team": "a"}}, {Lane.TALOS}),
        ({}, {"annotations": {"team": "a"}}, {Lane.TALOS}),
        ({}, {"service": dataclasses.replace(SERVICE, image="registry.example/llm:2")}, {Lane.SERVICE}),
        ({}, {"taints": (Taint("a", "", "NoSchedule"),)}, set()),
        ({}, {"startup_taints": (Taint("a", "", "NoSchedule"),)}, set()),
        ({}, {"requirements": (), "max_hourly_price": None, "weight": 7, "min_nodes": 3, "lanes": (Lane.KUBELET,)}, set()),
        ({"max_nodes": 9, "gpu_types": ("H100",), "generation": "other words, same meaning"}, {"generation": "x"}, set()),
        ({"mesh": MeshChoice(tags=("tag:gpu",), ephemeral=True)}, {}, set()),
    ],
)
def test_L05_what_a_machine_is_made_from_is_drift_and_nothing_else(
    of_class: dict[str, t.Any], of_pool: dict[str, t.Any], lanes: set[Lane]
) -> None:
    before = pool(service=SERVICE)
    made = generation(FULL, before)
    then, later = dataclasses.replace(FULL, **of_class), dataclasses.replace(before, **of_pool)
    found = {lane for lane in ALL_LANES if drifted(claim(lane=lane, generation=made), then, later)}
    assert found == lanes


def test_L05_order_of_tags_and_mirrors_is_no_drift() -> None:
    one = node_class(mesh=MeshChoice(tags=("tag:a", "tag:b")), registry_mirrors={"a": ("x",), "b": ("y",)})
    other = node_class(mesh=MeshChoice(tags=("tag:b", "tag:a")), registry_mirrors={"b": ("y",), "a": ("x",)})
    assert not drifted(claim(generation=generation(one, REPLACE)), other, REPLACE)


def test_L05_a_fingerprint_never_changes_without_a_new_number() -> None:
    """Who sees this fail has changed what goes into a fingerprint: give RECIPE a new number, or every machine drifts at the upgrade."""
    assert RECIPE == "g2"
    assert generation(FULL, pool(service=SERVICE, labels={"team": "a"})) == "g2.975123f98b01.92582e6b886d.ca694c42d9dd.5e253af543ac"
    assert generation(NodeClass("c", ()), pool()) == "g2.d1c9f0108ed0.a89b586fdf9c.65db48b9a9af.5e253af543ac"


@pytest.mark.parametrize("foreign", ["0123456789abcdef", "g1.a.b.c.d", "g22.a.b.c.d"])
def test_L05_a_fingerprint_of_another_version_is_no_drift_and_is_noted_anew_once(foreign: str) -> None:
    found = planned([claim(name(1), generation=foreign)])
    assert not going(found) and not told(found)
    (update,) = of(found, "update")
    assert update.claim is not None and update.claim.generation == generation(NOW, REPLACE)
    again = planned([update.claim])
    assert not of(again, "update", "destroy")


def test_L05_a_machine_whose_making_is_unknown_has_not_drifted() -> None:
    found = planned([claim(name(1), generation="")])
    assert not going(found) and not told(found)
    assert [one.claim.generation for one in of(found, "update") if one.claim is not None] == [""]  # other facts are news


def test_L05_own_machines_and_pools_without_document_do_not_drift() -> None:
    own = old(1, cloud="webhook", offer=offer(cloud="webhook"), instance_id="", ids_seen=())
    assert not going(planned([own])) and not told(planned([own]))
    lost = old(1, pool="default/other")
    assert not going(planned([lost]))


# ---- what becomes of it


def test_L05_drift_is_only_reported_unless_the_pool_replaces() -> None:
    found = planned([old()], pool())
    assert not going(found)
    assert told(found) == ["made from an older class or pool; it stays (disruption.driftPolicy: Replace lets it go)"]


def test_L05_a_busy_node_that_drifted_goes_with_reason_and_price() -> None:
    found = planned([old(1), claim(name(2), generation=generation(NOW, REPLACE))])
    (action,) = of(found, "destroy")
    assert (action.name, action.reason, action.detail) == (name(1), "Drifted", "made from an older class or pool")
    assert str(action.price_hour) == "-0.42" and action.claim is not None and action.claim.deletion is not None
    assert [one.name for one in of(found, "report") if one.reason == "Kept"] == [name(2)], "nothing says that it is kept"


def test_L05_one_after_the_other_whatever_the_budget_allows() -> None:
    claims = [old(place) for place in range(3)]
    wide = dataclasses.replace(REPLACE, disruption_budgets=(DisruptionBudget("100%"),))
    found = planned(claims, wide)
    assert len(going(found)) == 1
    assert told(found) == ["made from an older class or pool; goes in a later run (max_remove_per_run)"] * 2
    assert len(going(planned(claims, wide, settings={"max_remove_per_run": 2}))) == 2
    assert len(going(planned(claims, REPLACE, settings={"max_remove_per_run": 2}))) == 1, "a tenth, at least one"


def test_L06_a_closed_budget_keeps_what_drifted_and_says_so() -> None:
    closed = dataclasses.replace(REPLACE, disruption_budgets=(DisruptionBudget("0", ("Drifted",)),))
    found = planned([old()], closed)
    assert not going(found) and told(found) == ["made from an older class or pool; kept by disruption budget 0"]


def test_L06_while_one_goes_the_next_waits() -> None:
    leaving = old(1, phase=Phase.TERMINATING, deletion=Deletion("Drifted", at("11:55")))
    found = planned([leaving, old(2)], pods=[pod("job", node=name(2))])
    assert going(found) == [name(1)] and told(found) == [
        "made from an older class or pool; kept by disruption budget 10%, the usual one"
    ]


def test_L06_what_expires_in_the_same_run_uses_the_budget_up() -> None:
    aged = dataclasses.replace(REPLACE, expire_after=3600)
    found = planned([old(1), old(2, launch_started=at("11:01"))], aged)
    assert [(one.name, one.reason) for one in of(found, "destroy")] == [(name(1), "Expired")] and len(told(found)) == 1


def test_L05_the_mass_guard_holds_besides() -> None:
    wide = dataclasses.replace(REPLACE, disruption_budgets=(DisruptionBudget("100%"),))
    claims = [old(place) for place in range(5)]
    found = planned(claims, wide, settings={"max_remove_per_run": 5})
    assert not going(found) and any("guard_refused" in problem for problem in found.problems)
    assert [one.key for one in found.notices] == ["mass_guard|nodes of default/p (Drifted)"]
    assert len(going(planned(claims, wide, settings={"max_remove_per_run": 3}))) == 3
    assert len(going(planned(claims, wide, settings={"max_remove_per_run": 5, "allow_mass_delete": True}))) == 5


def test_L05_fewest_pods_first_then_the_oldest() -> None:
    claims = [old(1), old(2, launch_started=at("10:00")), old(3, launch_started=at("10:30"))]
    pods = [pod("a", node=name(1)), pod("b", node=name(1)), pod("c", node=name(2)), pod("d", node=name(3))]
    assert going(planned(claims, pods=pods)) == [name(2)]
    pods.append(pod("e", node=name(2)))
    assert going(planned(claims, pods=pods)) == [name(3)]


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"annotations": {"tgp.io/do-not-disrupt": "true"}}, "held by tgp.io/do-not-disrupt"),
        ({"annotations": {"karpenter.sh/do-not-disrupt": "true"}}, "held by karpenter.sh/do-not-disrupt"),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}}, "scale-down-disabled"),
        ({"annotations": {"tgp.io/hold-until": "2026-08-20T12:00:01Z"}}, "held by tgp.io/hold-until"),
        ({"annotations": {"tgp.io/hold-until": "2026-08-20T12:00:00Z"}}, ""),
        ({"ready": False}, "its Node is not Ready"),
    ],
)
def test_L07_holds_of_the_node_stop_drift(facts: dict[str, t.Any], why: str) -> None:
    found = planned([old()], nodes=[node(name(1), **facts)])
    assert bool(going(found)) == (not why)
    assert all(why in text for text in told(found))


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"annotations": {"tgp.io/do-not-disrupt": "true"}}, "hold: tgp.io/do-not-disrupt"),
        ({"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}, "hold: cluster-autoscaler"),
        ({"owner_kind": "", "owner_api": ""}, "unmanaged"),
        ({"owner_kind": "", "owner_api": "", "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}}, ""),
        ({"empty_dir": True}, ""),
        ({"annotations": {"cluster.x-k8s.io/drain": "wait-completed"}}, ""),
        ({"annotations": {"tgp.io/do-not-disrupt": "true", "cluster.x-k8s.io/drain": "skip"}}, ""),
        ({"annotations": {"tgp.io/do-not-disrupt": "true"}, "owner_kind": "DaemonSet", "owner_api": "apps/v1"}, ""),
        ({"annotations": {"tgp.io/do-not-disrupt": "true"}, "phase": "Succeeded", "finished": at("11:59")}, ""),
    ],
)
def test_L07_L09_pods_that_must_not_move_stop_drift_before_the_first_eviction(facts: dict[str, t.Any], why: str) -> None:
    usual = {"name": "work", "node": name(1)}
    found = planned([old()], pods=[pod("other", node=name(1)), pod(**{**usual, **facts})])
    assert bool(going(found)) == (not why)
    assert all(f"default/work ({why}" in text for text in told(found)) and bool(told(found)) == bool(why)


def test_L07_a_duration_counts_from_the_pods_start() -> None:
    held = pod("work", node=name(1), started=at("10:00"), annotations={"karpenter.sh/do-not-disrupt": "2h"})
    assert not going(planned([old()], pods=[held], now=at("11:59:59")))
    assert going(planned([old()], pods=[held], now=at("12:00")))
    assert not going(planned([old()], pods=[dataclasses.replace(held, started=None)], now=at("12:00")))


@pytest.mark.parametrize(
    ("facts", "moment", "goes"),
    [
        ({"initialized": at("11:50:01")}, "12:00", False),
        ({"initialized": at("11:50")}, "12:00", True),
        ({"blocked_until": at("12:00:01")}, "12:00", False),
        ({"blocked_until": at("12:00")}, "12:00", True),
    ],
)
def test_L05_young_nodes_and_blocked_ones_wait(facts: dict[str, t.Any], moment: str, goes: bool) -> None:
    assert bool(going(planned([old(**facts)], now=at(moment)))) is goes


def test_L05_unknown_pods_let_nothing_go() -> None:
    found = decide(
        seen(claims=[old()], nodes=[node(name(1))], instances=[instance(name(1))], pods=None), specs(REPLACE, classes=(NOW,))
    )
    assert not going(found) and "pods unknown" in told(found)[0]


def test_L05_a_pod_about_to_arrive_keeps_the_node() -> None:
    coming = pod("soon", "Pending", node="", nominated_node=name(1))
    assert not going(planned([old()], pods=[coming]))


def test_L05_a_killed_run_is_continued_with_its_times_and_a_second_plan_is_the_same() -> None:
    first = planned([old()])
    (action,) = of(first, "destroy")
    assert action.claim is not None
    again = planned([action.claim], now=at("12:05"))
    (repeated,) = of(again, "destroy")
    assert repeated.claim == action.claim
    back = planned([dataclasses.replace(action.claim, generation=generation(NOW, REPLACE))])
    (update,) = of(back, "update")
    assert not of(back, "destroy") and update.claim is not None and update.claim.deletion is None


def test_L05_min_nodes_does_not_protect_from_replacement() -> None:
    assert going(planned([old()], dataclasses.replace(REPLACE, min_nodes=1)))


def test_L05_an_idle_drifted_node_goes_as_idle() -> None:
    idle = node(name(1), annotations={"tgp.io/idle-since": "2026-08-20T11:20:00Z"})
    (action,) = of(planned([old()], nodes=[idle], pods=[]), "destroy")
    assert action.reason == "Empty"


@pytest.mark.parametrize(("idle", "goes"), [(True, True), (False, False), (None, False)])
def test_L05_a_service_is_replaced_only_while_it_is_idle(idle: bool | None, goes: bool) -> None:
    rented = offer(cloud="runpod", id="r")
    before = dataclasses.replace(REPLACE, service=SERVICE)
    made = claim(
        name(1), lane=Lane.SERVICE, offer=rented, node_name="", node_uid="", mesh_device_id="d", generation=generation(NOW, before)
    )
    after = dataclasses.replace(before, service=dataclasses.replace(SERVICE, image="registry.example/llm:2"))
    observed = seen(
        clouds={"runpod": t.cast(t.Any, _view(instance(name(1), cloud="runpod")))},
        claims=[made],
        devices=[device(name(1), online=True, id="d")],
        probes={name(1): Probe(True, "", idle, "it says so")},
    )
    found = decide(observed, specs(after, classes=(dataclasses.replace(NOW, clouds=node_class(clouds=("runpod",)).clouds),)))
    assert bool(going(found)) is goes
    assert goes or told(found) == [
        "made from an older class or pool; kept: a service goes only while its idleProbe says that it is idle"
    ]


def _view(one: t.Any) -> t.Any:
    from ansible_collections.tgp.gpu.plugins.module_utils.model import CloudView

    return CloudView((one,), ())


def test_L46_a_changed_guard_is_drift_of_machines_of_lane_kubelet_and_none_at_all_is_as_before() -> None:
    plain, guarded = node_class(), node_class(guard=Guard(86400))
    lanes = {lane: claim(lane=lane, generation=generation(plain, REPLACE)) for lane in (Lane.KUBELET, Lane.TALOS)}
    assert {lane: drifted(one, guarded, REPLACE) for lane, one in lanes.items()} == {Lane.KUBELET: True, Lane.TALOS: False}
    assert not any(drifted(one, plain, REPLACE) for one in lanes.values())
