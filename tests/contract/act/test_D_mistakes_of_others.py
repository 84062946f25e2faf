# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Mistakes that comparable programs made, each as the sentence that must be true here (rows D of docs/evidence/coverage.md), on
emulators."""

from __future__ import annotations

import typing as t

from .rig import DESTROY, Rig


def only(done: dict[str, t.Any]) -> str:
    (row,) = done["machines"]
    return str(row["result"])


def test_D01_a_removed_node_leaves_no_machine_behind(rig: Rig) -> None:
    rig.provision()
    machine = rig.machine()
    assert only(rig.destroy()) == "gone"
    assert rig.machines() == [] and machine.ended is not None and rig.left() == {}
    order = [line for line in rig.writes() if DESTROY in line or line.endswith(f"DELETE /api/v1/nodes/{machine.name}")]
    assert DESTROY in order[0] and "DELETE" in order[-1], "the machine first, its Node afterwards"


def test_D02_D14_a_failed_destroy_is_not_forgotten_and_succeeds_in_the_next_run(rig: Rig) -> None:
    rig.provision()
    broken = rig.fault("status", "lambda", "POST", DESTROY, status=500, times=None)
    done = rig.destroy()
    assert only(done) == "pending" and done["problems"]
    assert rig.claim()["phase"] == "Terminating" and list(rig.nodes()) == [rig.machine().name]
    broken.times = 0
    assert only(rig.reap()) == "gone"
    assert rig.left() == {} and len(rig.ledger()) == 1


def test_D03_a_pod_that_its_budget_keeps_survives(rig: Rig) -> None:
    rig.training["drainTimeout"] = "30s"
    rig.provision()
    name = rig.machine().name
    rig.pod(name, budget=True)
    assert only(rig.destroy()) == "pending"
    pods = rig.kube("GET", "/api/v1/namespaces/default/pods")["items"]
    assert [one["metadata"]["name"] for one in pods if one["spec"].get("nodeName") == name] == ["job"]
    assert rig.machine().ended is None
    assert not [line for line in rig.writes() if "DELETE" in line and "/pods/job" in line]


def test_D04_two_runs_within_a_minute_rent_once(rig: Rig) -> None:
    rig.provision()
    first = rig.creates()
    rig.provision()
    assert (first, rig.creates(), len(rig.machines())) == (1, 1, 1)


def test_D09_one_node_for_each_machine_and_it_takes_pods(rig: Rig) -> None:
    rig.provision(nodes=2)
    nodes = rig.nodes()
    assert sorted(nodes) == sorted(one.name for one in rig.machines()) and len(nodes) == 2
    for one in nodes.values():
        assert not one["spec"].get("unschedulable")
        assert not {taint["key"] for taint in one["spec"].get("taints", [])} & {"tgp.io/initializing", "tgp.io/disrupted"}
    assert not [line for line in rig.writes() if line.endswith("POST /api/v1/nodes")], "the kubelet makes its Node, nobody else"


def test_D15_a_refusal_leads_to_the_next_offer(rig: Rig) -> None:
    body = {"error": {"code": "instance-operations/launch/insufficient-capacity", "message": "Not enough capacity."}}
    rig.fault("status", "lambda", "POST", "launch", status=400, body=body, times=1)
    (row,) = rig.rent()["machines"]
    assert row["result"] == "launched"
    assert [one["result"] for one in rig.claim()["attempts"]] == ["refused", "ok"]
