# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Marks of nodes after the join (L-19): what is lost comes back with the next run, what is others' stays, the startup taint goes last."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import httpx
import pytest

from .rig import Rig

GONE = "tgp.io/nodepool"
FOREIGN = {"key": "example.org/repair", "effect": "NoSchedule"}


def patch(rig: Rig, body: dict[str, t.Any]) -> None:
    rig.kube("PATCH", f"/api/v1/nodes/{rig.machine().name}", body)


def node(rig: Rig) -> dict[str, t.Any]:
    return rig.nodes()[rig.machine().name]


def keys(rig: Rig) -> set[str]:
    return {one["key"] for one in node(rig)["spec"].get("taints") or []}


def node_writes(rig: Rig) -> list[str]:
    return [one for one in rig.writes() if "PATCH /api/v1/nodes/" in one and "/status" not in one]


def test_L19_lost_marks_come_back_and_those_of_others_stay(rig: Rig) -> None:
    rig.training["template"]["metadata"] = {"labels": {"team": "vision"}, "annotations": {"example.org/owner": "me"}}
    rig.provision()
    before = node(rig)
    patch(
        rig,
        {
            "metadata": {
                "labels": {GONE: None, "team": "other", "example.org/mine": "yes"},
                "annotations": {"tgp.io/claim": "x", "example.org/owner": None},
            },
            "spec": {"taints": [FOREIGN], "unschedulable": True},
        },
    )
    (row,) = rig.join()["machines"]
    assert row["result"] == "repaired", row
    for word in (
        f"label {GONE}",
        "label team",
        "annotation tgp.io/claim",
        "annotation example.org/owner",
        "taint gpu-node=true:NoSchedule",
    ):
        assert word in row["message"]
    after = node(rig)
    assert after["metadata"]["labels"] == before["metadata"]["labels"] | {"example.org/mine": "yes"}
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]
    assert keys(rig) >= {"gpu-node", "tgp.io/ephemeral", FOREIGN["key"]} and after["spec"]["unschedulable"] is True
    writes = rig.writes()
    assert rig.join()["machines"] == [] and rig.writes() == writes


def test_L19_a_changed_document_reaches_nodes_in_use(rig: Rig) -> None:
    rig.provision()
    rig.training["template"]["metadata"] = {"labels": {"team": "speech"}}
    (row,) = rig.join()["machines"]
    assert (row["result"], node(rig)["metadata"]["labels"]["team"]) == ("repaired", "speech")


def test_L19_check_mode_tells_of_lost_marks_and_sets_none(rig: Rig) -> None:
    rig.provision()
    patch(rig, {"metadata": {"labels": {GONE: None}}})
    writes = rig.writes()
    done = rig.run("join", "look", check=True)
    assert done["changed"] and done["machines"][0]["result"] == "drifted"
    assert f"label {GONE}" in done["machines"][0]["message"]
    assert rig.writes() == writes


def test_L19_who_changes_a_node_at_the_same_moment_is_not_overwritten(rig: Rig) -> None:
    rig.provision()
    patch(rig, {"spec": {"taints": None}})

    def interfere(request: httpx.Request) -> None:
        if request.method == "PATCH" and "/api/v1/nodes/" in request.url.path and not done:
            done.append(request.url.path)
            patch(rig, {"spec": {"taints": [FOREIGN]}})

    done: list[str] = []
    rig.watcher = interfere
    (row,) = rig.join()["machines"]
    assert (row["result"], len(done)) == ("repaired", 1)
    assert keys(rig) == {"gpu-node", "tgp.io/ephemeral", FOREIGN["key"]}


def test_L19_another_node_of_the_same_name_is_left_alone(rig: Rig) -> None:
    rig.provision()
    name = rig.machine().name
    rig.kube("DELETE", f"/api/v1/nodes/{name}")
    rig.kube("POST", "/api/v1/nodes", {"metadata": {"name": name}})
    before = len(node_writes(rig))
    assert rig.join()["machines"] == [] and len(node_writes(rig)) == before


def test_L19_a_node_that_takes_the_name_at_the_same_moment_gets_no_marks(rig: Rig) -> None:
    rig.provision()
    patch(rig, {"metadata": {"labels": {GONE: None}}})
    name = rig.machine().name

    def replace(request: httpx.Request) -> None:
        if (request.method, request.url.path) == ("GET", f"/api/v1/nodes/{name}") and not done:
            done.append(request.url.path)
            rig.kube("DELETE", request.url.path)
            rig.kube("POST", "/api/v1/nodes", {"metadata": {"name": name}})

    done: list[str] = []
    rig.watcher = replace
    (row,) = rig.join()["machines"]
    assert (row["result"], len(done)) == ("drifted", 1) and "another Node has taken this name" in str(row)
    assert GONE not in node(rig)["metadata"].get("labels", {})


def test_L19_a_node_that_is_on_its_way_out_gets_no_marks(rig: Rig) -> None:
    rig.provision()
    rig.unlock(rig.plan("destroy", all=True)["run_id"])
    assert rig.claim()["phase"] == "Ready" and rig.claim()["deletion"]["reason"] == "Manual"
    patch(rig, {"metadata": {"labels": {GONE: None}}})
    before = len(node_writes(rig))
    assert rig.join()["machines"] == [] and len(node_writes(rig)) == before


def test_L19_nodes_that_cannot_be_read_or_written_end_nothing(rig: Rig) -> None:
    rig.provision()
    patch(rig, {"metadata": {"labels": {GONE: None}}})
    fault = rig.fault("status", "kubernetes", "GET", r"/api/v1/nodes\?", status=403, times=None)
    assert fault is not None and rig.join()["machines"] == []
    assert [text for text in rig.warnings if "Whether nodes still carry their marks" in text]
    rig.faults.clear()
    rig.fault("status", "kubernetes", "PATCH", "/api/v1/nodes/", status=403, times=None)
    done = rig.join()
    assert (done["machines"][0]["result"], done["outcome"]) == ("drifted", "partial") and done["problems"]
    rig.faults.clear()
    assert rig.join()["machines"][0]["result"] == "repaired"


def test_L19_the_startup_taint_goes_last(rig: Rig) -> None:
    """No pod may come before labels and taints are there: they go in one write, after which nothing of ours is missing."""
    seen: list[dict[str, t.Any]] = []

    def look(request: httpx.Request) -> None:
        if request.method == "PATCH" and "/api/v1/nodes/" in request.url.path:
            seen.append(json.loads(request.content))

    rig.watcher = look
    rig.provision()
    removing = [body for body in seen if "taints" in body.get("spec", {})]
    assert len(removing) == 1 and seen.index(removing[0]) == len(seen) - 1
    assert "tgp.io/initializing" not in keys(rig) and GONE in node(rig)["metadata"]["labels"]
    assert "resourceVersion" in removing[0]["metadata"]


def test_L19_a_startup_taint_that_came_back_goes_again(rig: Rig) -> None:
    rig.provision()
    patch(rig, {"spec": {"taints": [*node(rig)["spec"]["taints"], {"key": "tgp.io/initializing", "effect": "NoSchedule"}]}})
    (row,) = rig.join()["machines"]
    assert row["result"] == "repaired" and "should be gone" in row["message"]
    assert "tgp.io/initializing" not in keys(rig)


# ---- the neutral name of GPUs


def neutral(rig: Rig) -> list[str | None]:
    """What the Node says of tgp.io/gpu: capacity, allocatable."""
    status = node(rig)["status"]
    return [status[kind].get("tgp.io/gpu") for kind in ("capacity", "allocatable")]


def test_L17_a_node_offers_the_neutral_name_before_pods_may_come(rig: Rig) -> None:
    rig.provision()
    assert neutral(rig) == ["1", "1"]
    writes = [line for line in rig.writes() if f"/nodes/{rig.machine().name}" in line and "PATCH" in line]
    offered = max(place for place, line in enumerate(writes) if line.endswith("/status"))
    assert [line for line in writes[offered + 1 :] if not line.endswith("/status")], "marks, which let pods in, come after it"
    before = rig.writes()
    assert rig.join()["machines"] == [] and rig.writes() == before


@pytest.mark.parametrize("wrong", [None, "0", "4"])
def test_L17_the_neutral_name_is_set_again_and_those_of_others_stay(rig: Rig, wrong: str | None) -> None:
    rig.provision()
    path = f"/api/v1/nodes/{rig.machine().name}/status"
    odd = {"tgp.io/gpu": wrong, "example.org/dongle": "3"}
    rig.kube("PATCH", path, {"status": {"capacity": odd, "allocatable": odd}})
    assert rig.run("join", "look", check=True)["machines"][0]["result"] == "drifted" and neutral(rig) == [wrong, wrong]
    (row,) = rig.join()["machines"]
    assert row["result"] == "repaired" and f"tgp.io/gpu {wrong or 0} instead of 1" in row["message"]
    assert neutral(rig) == ["1", "1"]
    status = node(rig)["status"]
    assert (status["capacity"]["example.org/dongle"], status["allocatable"]["nvidia.com/gpu"]) == ("3", "1")
    writes = rig.writes()
    assert rig.join()["machines"] == [] and rig.writes() == writes


def test_L17_a_neutral_name_that_may_not_be_set_is_told(rig: Rig) -> None:
    rig.provision()
    rig.kube("PATCH", f"/api/v1/nodes/{rig.machine().name}/status", {"status": {"allocatable": {"tgp.io/gpu": None}}})
    refused = {
        "message": 'nodes "x" is forbidden: User "tgp" cannot patch resource "nodes/status" in API group "" at the cluster scope'
    }
    rig.fault("status", "kubernetes", "PATCH", "/status$", status=403, body=refused, times=None)
    done = rig.join()
    assert (done["machines"][0]["result"], done["outcome"]) == ("drifted", "partial")
    assert "nodes/status" in done["problems"][0]


@pytest.mark.parametrize("by_pool", [False, True])
def test_S0_25_the_templates_instance_type_is_that_of_the_node(rig: Rig, by_pool: bool) -> None:
    """From the join on, and after the next run, which restores what is lost. A label of the pool's own document goes before it."""
    talos = rig.demo_class["talosConfig"]
    text = Path(talos.pop("machineConfigTemplateFile")).read_text(encoding="utf-8")
    talos["machineConfigTemplate"] = text.replace("  nodeLabels:\n", "  nodeLabels:\n    node.kubernetes.io/instance-type: gpu\n")
    if by_pool:
        rig.training["template"]["metadata"] = {"labels": {"node.kubernetes.io/instance-type": "mine"}}
    rig.provision()
    wanted = "mine" if by_pool else "gpu"
    assert node(rig)["metadata"]["labels"]["node.kubernetes.io/instance-type"] == wanted
    rig.join()
    assert node(rig)["metadata"]["labels"]["node.kubernetes.io/instance-type"] == wanted
    patch(rig, {"metadata": {"labels": {"node.kubernetes.io/instance-type": None}}})
    rig.join()
    assert node(rig)["metadata"]["labels"]["node.kubernetes.io/instance-type"] == ("mine" if by_pool else "gpu_1x_rtx6000")
