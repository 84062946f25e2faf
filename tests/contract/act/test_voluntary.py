# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drifted and Underutilized from the plan to the ledger (L-5, L-6, L-7, L-9)."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput

from .rig import Rig, moment

PATCH = "machine: {sysctls: {vm.swappiness: '10'}}"
SHARED: dict[str, t.Any] = {
    "lambda": [{"type": "gpu_2x_a6000", "region": "us-south-2", "stock": 4, "boot": 20}],
    "machines": [],
}


def change_the_class(rig: Rig) -> None:
    rig.demo_class["talosConfig"]["patches"] = [PATCH]


def destroyed(plan: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    return [one for one in plan["plan"] if one["action"] == "destroy"]


def drift_reports(plan: dict[str, t.Any], reason: str = "Drifted") -> list[str]:
    return [one["detail"] for one in plan["plan"] if one["action"] == "report" and one["reason"] == reason]


def untouched(rig: Rig, name: str) -> bool:
    """The node is as before a drain."""
    node = rig.nodes()[name]
    taints = [one["key"] for one in node["spec"].get("taints", [])]
    return not node["spec"].get("unschedulable") and "tgp.io/disrupted" not in taints


@pytest.fixture
def aged(rig: Rig) -> Rig:
    """One usable node with a pod that may move, old enough to go, and a class that has changed since."""
    rig.training["disruption"]["driftPolicy"] = "Replace"
    rig.provision()
    rig.pod(rig.claim()["node_name"])
    change_the_class(rig)
    rig.advance(1200)
    return rig


def test_L5_drift_is_reported_and_nothing_is_written(rig: Rig) -> None:
    rig.provision()
    rig.pod(rig.claim()["node_name"])
    change_the_class(rig)
    rig.advance(1200)
    rig.reap()
    before = rig.writes()
    done = rig.reap()
    assert destroyed(done["plan"]) == [] and len(drift_reports(done["plan"])) == 1
    assert rig.writes() == before and not done["plan"]["changed"] and len(rig.machines()) == 1


def test_L5_a_rehearsal_shows_the_drifted_node_with_reason_and_price_and_writes_nothing(aged: Rig) -> None:
    before = aged.writes()
    plan = aged.plan("reap", check=True)
    (row,) = destroyed(plan)
    assert row["name"] == aged.claim()["name"] and row["reason"] == "Drifted" and plan["changed"]
    assert row["price_hour"].startswith("-") and row["price_day"].startswith("-")
    assert aged.writes() == before


def test_L9_a_drifted_node_is_emptied_given_back_and_replaced(aged: Rig) -> None:
    old = aged.machine()
    done = aged.reap()
    assert [one["result"] for one in done["machines"]] == ["gone"]
    assert old.ended is not None and aged.claims() == {}
    (line,) = aged.ledger()
    assert line["reason"] == "Drifted" and any("pods/job/eviction" in one for one in aged.writes())
    aged.provision()
    aged.advance(1200)
    assert aged.machine() is not old and drift_reports(aged.reap()["plan"]) == []
    assert aged.machine().ended is None
    aged.check_bill()


def test_L6_a_closed_budget_keeps_it_and_an_open_one_lets_it_go(aged: Rig) -> None:
    aged.training["disruption"]["budgets"] = [{"nodes": "0", "reasons": ["Drifted"]}]
    aged.reap()
    before = aged.writes()
    plan = aged.reap()["plan"]
    assert destroyed(plan) == [] and drift_reports(plan) == ["made from an older class or pool; kept by disruption budget 0"]
    assert aged.writes() == before, "a second run without change writes nothing"
    aged.training["disruption"]["budgets"] = [{"nodes": "100%"}]
    assert [one["reason"] for one in destroyed(aged.reap()["plan"])] == ["Drifted"]
    assert aged.machines() == []


def test_L6_drifted_nodes_go_one_after_the_other(rig: Rig) -> None:
    rig.training["disruption"].update(driftPolicy="Replace", consolidationPolicy="Never")
    rig.demo_class["limits"] = {"maxNodes": 5, "maxHourlyCost": "20.00"}
    rig.provision(nodes=3)
    change_the_class(rig)
    rig.advance(1200)
    for left in (2, 1, 0):
        done = rig.reap()
        assert len(destroyed(done["plan"])) == 1 and len(rig.machines()) == left
    assert [line["reason"] for line in rig.ledger()] == ["Drifted"] * 3


def test_L18_max_remove_per_run_is_the_users(rig: Rig) -> None:
    rig.demo_class["limits"] = {"maxNodes": 5, "maxHourlyCost": "20.00"}
    rig.provision(nodes=3)
    rig.advance(601)
    rig.reap()
    rig.advance(601)
    assert len(destroyed(rig.plan("reap", check=True))) == 3
    assert len(destroyed(rig.plan("reap", check=True, max_remove_per_run=1))) == 1
    assert destroyed(rig.plan("reap", check=True, max_remove_per_run=0)) == []
    with pytest.raises(InvalidInput, match="max_remove_per_run is -1"):
        rig.plan("reap", check=True, max_remove_per_run=-1)


def test_L9_rule_blocked_pods_stop_drift_before_the_first_eviction(aged: Rig) -> None:
    name = aged.claim()["node_name"]
    aged.pod(name, "bare", owner="")
    aged.reap()
    before = aged.writes()
    plan = aged.reap()["plan"]
    assert destroyed(plan) == [] and "default/bare (unmanaged)" in drift_reports(plan)[0]
    assert aged.writes() == before and untouched(aged, name) and aged.machine().ended is None


def test_L9_a_pod_that_must_not_move_and_came_after_the_plan_stops_it_too(aged: Rig) -> None:
    name = aged.claim()["node_name"]
    plan = aged.plan("reap")
    assert [one["reason"] for one in destroyed(plan)] == ["Drifted"]
    aged.pod(name, "bare", owner="")
    done = aged.run("teardown", plan["run_id"], orphans=plan["orphans"])
    aged.unlock(plan["run_id"])
    assert [one["result"] for one in done["machines"]] == ["kept"] and "default/bare (unmanaged)" in done["machines"][0]["message"]
    assert not any("eviction" in one for one in aged.writes()) and untouched(aged, name)
    assert aged.claim()["deletion"] is None and aged.machine().ended is None


def test_L9_a_pods_budget_holds_drift_back_and_it_is_tried_again_later(aged: Rig) -> None:
    aged.training["drainTimeout"] = "30s"
    name = aged.claim()["node_name"]
    aged.pod(name, "web", budget=True)
    done = aged.reap()
    assert [one["result"] for one in done["machines"]] == ["kept"] and untouched(aged, name)
    claim = aged.claim()
    pause = (moment(claim["blocked_until"]) - aged.clock.now()).total_seconds()
    assert claim["deletion"] is None and claim["phase"] == "Ready" and 600 < pause <= 900
    assert "its drain was blocked" in drift_reports(aged.reap()["plan"])[0]
    aged.kube("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web")
    aged.advance(900)
    assert [one["result"] for one in aged.reap()["machines"]] == ["gone"]


@pytest.mark.parametrize("again", [True, False])
def test_L9_a_node_that_a_killed_run_had_begun_to_empty_is_opened_again_or_goes(aged: Rig, again: bool) -> None:
    name = aged.claim()["node_name"]
    plan = aged.plan("reap")
    with aged.killed_at(2, after=False):  # the first write is the cordon
        aged.run("teardown", plan["run_id"], orphans=plan["orphans"])
    aged.unlock(plan["run_id"])
    assert not untouched(aged, name) and aged.claim()["deletion"]["reason"] == "Drifted"
    if again:
        assert [one["result"] for one in aged.reap()["machines"]] == ["gone"]
        return
    aged.training["disruption"]["budgets"] = [{"nodes": "0"}]
    before = aged.writes()
    assert ("restore", name) in [(one["action"], one["name"]) for one in aged.plan("reap", check=True)["plan"]]
    assert aged.writes() == before
    aged.fault("status", "kubernetes", "PATCH", f"/nodes/{name}$", status=409, times=1)
    aged.reap()
    assert aged.claim()["deletion"] is not None or untouched(aged, name), "the record stays until the marks are off"
    aged.reap()
    assert untouched(aged, name) and aged.claim()["deletion"] is None and aged.machine().ended is None
    before = aged.writes()
    assert not aged.reap()["plan"]["changed"] and aged.writes() == before


def test_L5_an_own_machine_does_not_drift(rig: Rig) -> None:
    own = rig.document("GPUNodePool", "own")["spec"]
    own["disruption"] = {"driftPolicy": "Replace", "consolidationPolicy": "Never"}
    rig.provision(pool="own")
    change_the_class(rig)
    rig.advance(1200)
    plan = rig.reap()["plan"]
    assert destroyed(plan) == [] and drift_reports(plan) == []


# ---- used too little


def gpu_pod(rig: Rig, node: str, name: str) -> None:
    """A running pod that a controller made, with one GPU."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "x", "controller": True}
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"nodeName": node, "tolerations": [{"operator": "Exists"}], "containers": [container]}
    rig.kube("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec})
    rig.until(lambda: rig.kube("GET", f"/api/v1/namespaces/default/pods/{name}")["status"].get("phase") == "Running", "runs")


def pack(rig: Rig, nodes: int) -> None:
    """So many nodes of two GPUs with a pod of one each, and a run that has noted that they are used too little."""
    rig.demo_class["limits"] = {"maxNodes": 3, "maxHourlyCost": "20.00"}
    rig.demo_class["providers"] = [one for one in rig.demo_class["providers"] if one["name"] == "lambda"]
    rig.documents.remove(rig.document("GPUNodePool", "own"))
    rig.training["disruption"] = {
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "utilizationThreshold": "60%",
        "consolidateAfter": "10m",
    }
    rig.training["maxHourlyPrice"] = "4.00"
    rig.provision(nodes=nodes)
    assert len(rig.claims()) == nodes
    for place, claim in enumerate(rig.claims().values()):
        gpu_pod(rig, claim["node_name"], f"job-{place}")
    rig.reap()


@pytest.fixture
def packed(build: t.Callable[..., Rig]) -> Rig:
    """Two nodes of two GPUs with a pod of one each: below 60 per cent, and one of them is needless."""
    rig = build(**SHARED)
    pack(rig, 2)
    rig.advance(900)
    return rig


def test_L5_a_needless_node_goes_and_the_other_stays(packed: Rig) -> None:
    before = packed.writes()
    plan = packed.plan("reap", check=True)
    (row,) = destroyed(plan)
    assert row["reason"] == "Underutilized" and row["detail"] == "1 of 2 GPUs are used; its pods fit on other nodes"
    assert row["price_hour"].startswith("-") and packed.writes() == before
    done = packed.reap()
    assert [one["result"] for one in done["machines"]] == ["gone"] and len(packed.machines()) == 1
    assert [line["reason"] for line in packed.ledger()] == ["Underutilized"]
    packed.reap()
    assert len(packed.machines()) == 1


def test_L5_the_first_run_only_notes_it_and_the_second_writes_nothing(packed: Rig) -> None:
    packed.training["disruption"]["consolidateAfter"] = "1h"
    packed.reap()
    before = packed.writes()
    plan = packed.reap()["plan"]
    assert destroyed(plan) == [] and drift_reports(plan, "Underutilized") == ["1 of 2 GPUs are used; not yet 1h"] * 2
    assert packed.writes() == before


def test_L7_pods_that_must_not_move_keep_a_node(packed: Rig) -> None:
    for place in range(2):
        path = f"/api/v1/namespaces/default/pods/job-{place}"
        packed.kube("PATCH", path, {"metadata": {"annotations": {"tgp.io/do-not-disrupt": "true"}}})
    packed.reap()
    plan = packed.reap()["plan"]
    assert destroyed(plan) == [] and all("pods that must not be moved" in one for one in drift_reports(plan, "Underutilized"))
    packed.kube("PATCH", "/api/v1/namespaces/default/pods/job-0", {"metadata": {"annotations": {"tgp.io/do-not-disrupt": None}}})
    assert [one["reason"] for one in destroyed(packed.reap()["plan"])] == ["Underutilized"]


def test_L5_a_cheaper_machine_is_looked_for_only_when_asked(build: t.Callable[..., Rig]) -> None:
    """A node of two GPUs for one pod, and a machine of one GPU for half of its price."""
    rig = build(
        **{**SHARED, "lambda": [*SHARED["lambda"], {"type": "gpu_1x_a6000", "region": "us-south-2", "stock": 0, "boot": 20}]}
    )
    pack(rig, 1)
    rig.advance(900)
    plan = rig.plan("reap", check=True)
    assert destroyed(plan) == [] and drift_reports(plan, "Underutilized") == [
        "1 of 2 GPUs are used; its pods do not fit on other nodes"
    ]
    rig.training["disruption"]["replaceCheaperPercent"] = 30
    assert destroyed(rig.plan("reap", check=True)) == []
    with rig.world.lock:
        next(one for one in rig.world.offers if one.type == "gpu_1x_a6000").stock = 1
    plan = rig.plan("reap", check=True)
    assert destroyed(plan) == [] and "to move its pods would lose $" in drift_reports(plan, "Underutilized")[0]
    [pod] = rig.kube("GET", "/api/v1/namespaces/default/pods")["items"]
    checkpoints = {"metadata": {"annotations": {"tgp.io/checkpoint-interval": "1m"}}}
    rig.kube("PATCH", f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}", checkpoints)
    (row,) = destroyed(rig.plan("reap", check=True))
    assert "lambda gpu_1x_a6000 for $" in row["detail"] and "would do instead of $" in row["detail"]
