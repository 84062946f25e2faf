# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What node_wait says of Nodes that do not come, and Nodes that end a wait because they will never do (L-11)."""

from __future__ import annotations

import pathlib
import typing as t
from datetime import timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.evidence.node import refused, token_exists
from ansible_collections.tgp.gpu.plugins.module_utils.kube.bootstrap_tokens import delete
from ansible_collections.tgp.gpu.plugins.module_utils.kube.wait import Expected, wait_for
from ansible_collections.tgp.gpu.plugins.module_utils.model import Node
from ansible_collections.tgp.gpu.plugins.modules import node_wait

from tests.fixtures.bootstrap_tokens import make_token

from .conftest import Cluster

NOTHING_WAITS = "NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized"


@pytest.fixture
def ask(cluster: Cluster, served: pathlib.Path) -> t.Callable[..., tuple[dict[str, t.Any], list[str]]]:
    """node_wait as Ansible calls it: its result by node, and what was printed."""

    def call(**params: t.Any) -> tuple[dict[str, t.Any], list[str]]:
        said: list[str] = []
        defaults = {name: one.get("default") for name, one in node_wait.SPEC["argument_spec"].items()}
        task = Task({**defaults, "kubeconfig": str(served), "timeout": 1, **params}, progress=said.append, clock=cluster.clock)
        result = execute(node_wait.SPEC, node_wait.run, task)
        return {one["name"]: one for one in result["nodes"]} | {"msg": result.get("msg")}, said

    return call


def test_L11_each_late_node_gets_its_own_diagnosis(cluster: Cluster, ask: t.Any) -> None:
    cluster.node("good", gpus=1)
    cluster.node("poor")
    cluster.node("deaf", ready=False)
    cluster.report("deaf", ready=False, message=NOTHING_WAITS)
    found, said = ask(nodes=["good", "poor", "deaf", "absent"], gpus=1)
    assert found["good"]["diagnosis"] is None
    assert {name: found[name]["diagnosis"]["code"] for name in ("poor", "deaf", "absent")} == {
        "poor": "gpu_missing",
        "deaf": "cni_not_ready",
        "absent": "unknown",
    }
    assert "[gpu_missing]" in found["msg"] and "[cni_not_ready]" in found["msg"]
    assert [line for line in said if line.startswith("deaf did not become usable")]
    assert "Node: none" in found["absent"]["diagnosis"]["looked_at"]
    assert len([line for line in said if "remedy" in line]) == 3


def test_L11_what_node_wait_may_not_read_is_named(cluster: Cluster, ask: t.Any) -> None:
    cluster.faults.add(
        {"kind": "status", "service": "kubernetes", "method": "GET", "path": "certificatesigning", "status": 403, "times": None}
    )
    found, _said = ask(nodes=["absent"])
    assert [line for line in found["absent"]["diagnosis"]["looked_at"] if "certificate requests: could not be read" in line]


def test_L11_an_old_node_is_called_stale(cluster: Cluster, ask: t.Any) -> None:
    cluster.node("a")
    later = (cluster.clock.now() + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    found, _said = ask(nodes=["a"], newer_than=later)
    assert found["a"]["diagnosis"]["code"] == "stale_node"


def test_L11_a_node_that_will_never_do_ends_the_wait_at_once(cluster: Cluster) -> None:
    cluster.node("a")
    cluster.node("b")

    def wrong(node: Node) -> str:
        return "it runs another image" if node.name == "a" else ""

    end = cluster.clock.now() + timedelta(seconds=600)
    expected = [Expected(name, name, end, lambda _node: (), wrong=wrong) for name in ("a", "b")]
    found = wait_for(cluster.client(), expected, clock=cluster.clock)
    assert (found["a"].ready, found["a"].step, found["a"].message) == (False, "ready", "it runs another image")
    assert found["a"].hopeless == "it runs another image" and found["b"].ready and found["b"].hopeless == ""
    assert found["a"].seconds < 60


def test_a_token_is_looked_for_without_being_read(cluster: Cluster) -> None:
    kube = cluster.client()
    token = make_token(kube, "a", now=cluster.clock.now())
    asked: list[str] = []
    inner = kube.call
    kube.call = lambda method, path, **more: asked.append(method) or inner(method, path, **more)  # type: ignore[method-assign,func-returns-value]
    assert token_exists(kube, token.id) and asked == ["DELETE"]
    assert token_exists(kube, token.id), "it is still there"
    delete(kube, token.id)
    assert not token_exists(kube, token.id)


@pytest.mark.parametrize(
    "status, text, closed",
    [
        (503, "error trying to reach service: dial tcp 100.64.0.9:50000: connect: connection refused", True),
        (503, "error trying to reach service: remote error: tls: certificate required", False),
        (503, "error trying to reach service: dial tcp 100.64.0.9:50000: i/o timeout", False),
        (403, 'nodes "a" is forbidden: cannot get resource "nodes/proxy"', False),
        (404, "not found", False),
        (200, "connection refused", False),
    ],
)
def test_only_a_refused_connection_says_that_nothing_listens(cluster: Cluster, status: int, text: str, closed: bool) -> None:
    body = {"kind": "Status", "message": text, "code": status}
    cluster.faults.add(
        {"kind": "status", "service": "kubernetes", "path": ":50000/proxy", "status": status, "body": body, "times": None}
    )
    assert bool(refused(cluster.client(), "a")) is closed


def test_a_node_that_the_control_plane_does_not_reach_says_nothing_about_one_port(cluster: Cluster) -> None:
    body = {"kind": "Status", "message": "dial tcp 100.64.0.9: connect: connection refused", "code": 503}
    cluster.faults.add({"kind": "status", "service": "kubernetes", "path": "/proxy", "status": 503, "body": body, "times": None})
    assert refused(cluster.client(), "a") == ""
