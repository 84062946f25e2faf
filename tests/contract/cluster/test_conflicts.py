# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A certificate request and a Node are written as they were last seen, without being read again; who changed them meanwhile loses nothing."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import timedelta

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import Conflict, Forbidden
from ansible_collections.tgp.gpu.plugins.module_utils.kube import bootstrap_tokens, csr
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.kube.nodes import advertise, change
from ansible_collections.tgp.gpu.plugins.module_utils.kube.wait import Evidence, Expected, wait_for
from ansible_collections.tgp.gpu.plugins.module_utils.model import Taint

from .conftest import Cluster
from .test_objects import ask, asking, read_node

STARTUP = {"key": "tgp.io/initializing", "effect": "NoSchedule"}


@pytest.fixture
def calls(cluster: Cluster) -> list[str]:
    """Those of ``kube``, as "METHOD path"."""
    inner, made = cluster.app, []

    def app(environ: dict[str, t.Any], start_response: t.Any) -> t.Iterable[bytes]:
        made.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        return t.cast("t.Iterable[bytes]", inner(environ, start_response))

    cluster.app = app
    return made


@pytest.fixture
def kube(cluster: Cluster, calls: list[str]) -> Kube:
    return cluster.client()


# ---- nodes


def test_a_node_is_completed_by_two_writes_and_no_read(cluster: Cluster, kube: Kube, calls: list[str]) -> None:
    cluster.node("n", gpus=1, taints=[STARTUP])
    node, before = read_node(kube, "n"), len(calls)
    offering = advertise(kube, node, "tgp.io/gpu", 1)
    assert change(kube, "n", uid=node.uid, labels={"tgp.io/nodepool": "ml"}, remove_taints=[STARTUP["key"]], base=offering)
    assert calls[before:] == ["PATCH /api/v1/nodes/n/status", "PATCH /api/v1/nodes/n"]
    node = read_node(kube, "n")
    assert (node.taints, node.labels["tgp.io/nodepool"], node.allocatable["tgp.io/gpu"]) == ((), "ml", 1)


@pytest.mark.parametrize("moment", ["before the first write", "between the two"])
def test_what_others_write_to_a_node_while_it_is_completed_is_kept(cluster: Cluster, kube: Kube, moment: str) -> None:
    def others() -> None:
        client = cluster.client()
        taint = Taint("example.test/theirs", "x", "NoSchedule")
        change(client, "n", labels={"example.test/team": "a"}, add_taints=[taint], allow=["example.test/team", taint.key])

    cluster.node("n", taints=[STARTUP])
    node = read_node(kube, "n")
    if moment == "before the first write":
        others()
    offering = advertise(kube, node, "tgp.io/gpu", 1)
    if moment == "between the two":
        others()
    assert change(kube, "n", uid=node.uid, remove_taints=[STARTUP["key"]], base=offering)
    node = read_node(kube, "n")
    assert [str(one) for one in node.taints] == ["example.test/theirs=x:NoSchedule"]
    assert (node.labels["example.test/team"], node.allocatable["tgp.io/gpu"]) == ("a", 1)


@pytest.mark.parametrize("path", ["/nodes/n/status$", "/nodes/n$"])
def test_a_node_is_completed_after_a_conflict(cluster: Cluster, kube: Kube, path: str) -> None:
    cluster.node("n", taints=[STARTUP])
    node = read_node(kube, "n")
    fault = cluster.faults.add({"kind": "status", "method": "PATCH", "path": path, "status": 409})
    offering = advertise(kube, node, "tgp.io/gpu", 1)
    assert change(kube, "n", uid=node.uid, remove_taints=[STARTUP["key"]], base=offering) and fault.hits == 1
    node = read_node(kube, "n")
    assert (node.taints, node.allocatable["tgp.io/gpu"]) == ((), 1)


def test_a_node_that_takes_the_name_between_two_writes_is_left_alone(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n", taints=[STARTUP])
    node = read_node(kube, "n")
    offering = advertise(kube, node, "tgp.io/gpu", 1)
    cluster.must("DELETE", "/api/v1/nodes/n")
    cluster.node("n", taints=[STARTUP])
    with pytest.raises(Conflict, match="another Node has taken this name"):
        change(kube, "n", uid=node.uid, remove_taints=[STARTUP["key"]], base=offering)
    with pytest.raises(Conflict, match=f"another Node has taken this name .expected uid {node.uid}"):
        advertise(kube, node, "tgp.io/gpu", 1)
    node = read_node(kube, "n")
    assert [one.key for one in node.taints] == [STARTUP["key"]] and "tgp.io/gpu" not in node.allocatable


# ---- certificate requests


def listed(kube: Kube, token: bootstrap_tokens.Token) -> dict[str, csr.SigningRequest]:
    return {one.name: one for one in csr.requests(kube, token_id=token.id)}


def test_a_listed_request_is_answered_by_one_call(cluster: Cluster, kube: Kube, calls: list[str]) -> None:
    token = asking(cluster, kube)
    for node, verdict in (("gpu-1", "approved"), ("control-plane", "denied")):
        ask(cluster, token, node, node)
        request, before = listed(kube, token)[node], len(calls)
        assert csr.answer(kube, request, token_id=token.id, node="gpu-1") == verdict
        assert calls[before:] == [f"PUT {csr.PATH}/{node}/approval"]


def test_a_request_is_answered_after_a_conflict(cluster: Cluster, kube: Kube, calls: list[str]) -> None:
    token = asking(cluster, kube)
    ask(cluster, token, "gpu-1", "good")
    request, path = listed(kube, token)["good"], f"{csr.PATH}/good"
    cluster.must("PATCH", path, {"metadata": {"labels": {"example.test/seen": "yes"}}})
    before = len(calls)
    assert csr.answer(kube, request, token_id=token.id, node="gpu-1") == "approved"
    assert calls[before:] == [f"PUT {path}/approval", f"GET {path}", f"PUT {path}/approval"]
    raw = cluster.read(path)
    assert raw is not None and raw["metadata"]["labels"] == {"example.test/seen": "yes"}


def test_a_request_that_becomes_another_after_it_was_listed_is_not_approved(cluster: Cluster, kube: Kube) -> None:
    token = asking(cluster, kube)
    ask(cluster, token, "gpu-1", "one")
    request = listed(kube, token)["one"]
    cluster.must("DELETE", f"{csr.PATH}/one")
    ask(cluster, token, "control-plane", "one")
    with pytest.raises(Forbidden, match="'system:node:control-plane'"):
        csr.answer(kube, request, token_id=token.id, node="gpu-1")
    now = listed(kube, token)["one"]
    assert now.state == "pending" and csr.answer(kube, now, token_id=token.id, node="gpu-1") == "denied"


def test_a_request_that_somebody_else_answers_after_it_was_listed_is_left_alone(cluster: Cluster, kube: Kube) -> None:
    token = asking(cluster, kube)
    ask(cluster, token, "gpu-1", "one")
    request = listed(kube, token)["one"]
    assert csr.approve(cluster.client(), request, token_id=token.id, node="gpu-1")
    approved = cluster.read(f"{csr.PATH}/one")
    assert csr.answer(kube, request, token_id=token.id, node="gpu-1") == "" and cluster.read(f"{csr.PATH}/one") == approved
    cluster.must("DELETE", f"{csr.PATH}/one")
    assert csr.answer(kube, request, token_id=token.id, node="gpu-1") == ""


@pytest.mark.parametrize("speed", [20.0])
def test_a_list_that_is_older_than_the_answer_is_not_answered_again(cluster: Cluster, kube: Kube, calls: list[str]) -> None:
    token = asking(cluster, kube)
    ask(cluster, token, "gpu-1", "one")
    csr.requests(kube)
    lists = cluster.faults.add({"kind": "stale", "method": "GET", "path": f"^{csr.PATH}\\?limit=", "times": None})
    machine = Expected("gpu-1", "gpu-1", cluster.clock.now() + timedelta(seconds=22), lambda _node: [], token=token.id)
    other = dataclasses.replace(machine, name="gpu-2", claim="gpu-2", token="")  # the cluster answers its requests: they are listed
    booting = {
        name: Evidence(instance="active", running=True, token_id=one) for name, one in (("gpu-1", token.id), ("gpu-2", "abcdef"))
    }
    wait_for(kube, [machine, other], clock=cluster.clock, evidence=booting.__getitem__)
    assert lists.hits >= 3 and calls.count(f"PUT {csr.PATH}/one/approval") == 1
