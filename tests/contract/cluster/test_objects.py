# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes, pods, tokens, certificate requests, secrets, rights and the client's own manners."""

from __future__ import annotations

import base64
import dataclasses
import threading
import typing as t
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import (
    BadShape,
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    RateLimited,
    Unauthorized,
)
from ansible_collections.tgp.gpu.plugins.module_utils.core.redact import redact
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.kube import bootstrap_tokens, csr
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth.credentials import connect
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube, cluster_id, ensure_namespace, read_secret
from ansible_collections.tgp.gpu.plugins.module_utils.kube.drain.eviction import evict
from ansible_collections.tgp.gpu.plugins.module_utils.kube.nodes import (
    advertise,
    annotate,
    attached_volumes,
    change,
    cordon,
    delete_node,
    get_node,
    label,
    nodes,
    uncordon,
)
from ansible_collections.tgp.gpu.plugins.module_utils.kube.pods import pods
from ansible_collections.tgp.gpu.plugins.module_utils.kube.rbac import Right, of_call
from ansible_collections.tgp.gpu.plugins.module_utils.model import Node, Taint

from sandbox.kube import pki
from tests.fixtures.bootstrap_tokens import make_token

from .conftest import UID, Cluster

# ---- nodes and pods


def read_node(kube: Kube, name: str) -> Node:
    node = get_node(kube, name)
    assert node is not None
    return node


def test_nodes_and_pods_page_by_page(cluster: Cluster, kube: Kube) -> None:
    for number in range(7):
        cluster.node(f"n{number}", gpus=number, labels={"half": str(number % 2)})
        cluster.pod(f"p{number}", f"n{number}", gpus=number)
    found, _version = kube.collect("/api/v1/nodes", lambda raw: raw["metadata"]["name"], limit=3)
    assert sorted(found) == [f"n{number}" for number in range(7)]
    assert {node.name: node.allocatable.get("nvidia.com/gpu", 0) for node in nodes(kube)}["n4"] == 4
    assert len(nodes(kube, selector="half=1")) == 3
    assert [pod.name for pod in pods(kube, node="n3")] == ["p3"] and pods(kube, node="n3")[0].requests == {"nvidia.com/gpu": 3}
    assert get_node(kube, "none") is None


def test_changes_write_once_and_only_what_is_missing(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    assert annotate(kube, "n", {"tgp.io/idle-since": "2026-08-20T12:00:00Z"}) is True
    before = len(cluster.writes())
    assert annotate(kube, "n", {"tgp.io/idle-since": "2026-08-20T12:00:00Z"}) is False
    assert label(kube, "n", {"tgp.io/none": None}) is False and uncordon(kube, "n") is False
    assert len(cluster.writes()) == before
    assert annotate(kube, "n", {"tgp.io/idle-since": None}) is True
    node = get_node(kube, "n")
    assert node is not None and "tgp.io/idle-since" not in node.annotations
    assert cordon(kube, "n") and not cordon(kube, "n")
    node = get_node(kube, "n")
    assert node is not None and node.unschedulable


def test_L17_a_node_offers_a_resource_of_ours_once(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n", gpus=2)
    before = len(cluster.writes())
    written = advertise(kube, read_node(kube, "n"), "tgp.io/gpu", 2)
    assert written == cluster.read("/api/v1/nodes/n") and len(cluster.writes()) == before + 1
    assert advertise(kube, read_node(kube, "n"), "tgp.io/gpu", 2) is None and len(cluster.writes()) == before + 1
    for kind in ("capacity", "allocatable"):
        assert {name: written["status"][kind].get(name) for name in ("tgp.io/gpu", "nvidia.com/gpu")} == {
            "tgp.io/gpu": "2",
            "nvidia.com/gpu": "2",
        }
    assert advertise(kube, read_node(kube, "n"), "tgp.io/gpu", 4) is not None
    node = read_node(kube, "n")
    assert node.allocatable["tgp.io/gpu"] == 4
    with pytest.raises(InvalidInput, match="not ours"):
        advertise(kube, node, "nvidia.com/gpu", 8)
    with pytest.raises(Conflict, match="another Node has taken this name"):
        advertise(kube, dataclasses.replace(node, uid="another"), "tgp.io/gpu", 8)
    assert read_node(kube, "n").allocatable["tgp.io/gpu"] == 4
    with pytest.raises(NotFound):
        advertise(kube, dataclasses.replace(node, name="none"), "tgp.io/gpu", 1)


def test_foreign_keys_are_never_touched(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n", taints=[{"key": "dedicated", "value": "a", "effect": "NoSchedule"}])
    with pytest.raises(InvalidInput, match="not ours: team"):
        label(kube, "n", {"team": "a"})
    with pytest.raises(InvalidInput, match="dedicated"):
        change(kube, "n", remove_taints=["dedicated"])
    assert change(kube, "n", labels={"team": "a"}, allow={"team"}, add_taints=[Taint("tgp.io/x", "", "NoSchedule")])
    change(kube, "n", remove_taints=["tgp.io/x"])
    node = get_node(kube, "n")
    assert node is not None and [str(one) for one in node.taints] == ["dedicated=a:NoSchedule"] and node.labels["team"] == "a"


def test_taints_that_others_add_meanwhile_are_not_lost(cluster: Cluster, kube: Kube) -> None:
    cluster.node("n")
    before = kube.get("/api/v1/nodes/n")
    change(cluster.client(), "n", add_taints=[Taint("tgp.io/theirs", "", "NoSchedule")])
    assert change(kube, "n", add_taints=[Taint("tgp.io/ours", "", "NoSchedule")], base=before)
    node = get_node(kube, "n")
    assert node is not None and {one.key for one in node.taints} >= {"tgp.io/theirs", "tgp.io/ours"}


def test_a_node_that_was_replaced_is_left_alone(cluster: Cluster, kube: Kube) -> None:
    uid = cluster.node("n")["metadata"]["uid"]
    with pytest.raises(Conflict, match="another Node has taken this name"):
        annotate(kube, "n", {"tgp.io/x": "1"}, uid="other")
    with pytest.raises(Conflict):
        delete_node(kube, "n", uid="other")
    assert delete_node(kube, "n", uid=uid) is True and delete_node(kube, "n", uid=uid) is False
    with pytest.raises(NotFound):
        annotate(kube, "n", {"tgp.io/x": "1"})
    with pytest.raises(InvalidInput, match="name and UID"):
        delete_node(kube, "n", uid="")
    for name in ("../pods", "a/b", ""):
        with pytest.raises(InvalidInput):
            get_node(kube, name)


def test_attached_volumes(cluster: Cluster, kube: Kube) -> None:
    path = "/apis/storage.k8s.io/v1/volumeattachments"
    for name, node in (("a", "n"), ("b", "other")):
        spec = {"attacher": "csi", "nodeName": node, "source": {"persistentVolumeName": f"pv-{name}"}}
        cluster.must("POST", path, {"metadata": {"name": name}, "spec": spec})
    assert attached_volumes(kube, "n") == ["pv-a"] and attached_volumes(kube, "none") == []


# ---- tokens and certificate requests


def test_a_token_is_one_nodes_credential_until_it_is_deleted(cluster: Cluster, kube: Kube) -> None:
    token = make_token(kube, "tgp-a1b2c3d4-p-00000", now=cluster.clock.now(), life_seconds=1800)
    assert token.secret not in repr(token) and token.secret not in redact(token.text)
    assert bootstrap_tokens.put(kube, token) is False, "somebody has the id"
    (found,) = bootstrap_tokens.tokens(kube)
    assert (found.id, found.node, found.secret) == (token.id, "tgp-a1b2c3d4-p-00000", "") and found.expires == token.expires
    joining = cluster.client(token.text)
    secret = cluster.read(f"/api/v1/namespaces/kube-system/secrets/bootstrap-token-{token.id}")
    assert secret is not None and base64.b64decode(secret["data"]["auth-extra-groups"]) == b"system:bootstrappers:nodes"
    assert b"tgp-a1b2c3d4-p-00000" in base64.b64decode(secret["data"]["description"])
    assert bootstrap_tokens.delete(kube, token.id) is True and bootstrap_tokens.delete(kube, token.id) is False
    with pytest.raises(Unauthorized):
        joining.list("/api/v1/nodes")


def test_a_token_ends_by_itself(cluster: Cluster, kube: Kube) -> None:
    token = make_token(kube, "n", now=cluster.clock.now(), life_seconds=600)
    cluster.clock.advance(601)
    with pytest.raises(Unauthorized, match="401"):
        cluster.client(token.text).get("/api/v1/nodes/n")


@pytest.mark.parametrize("life", [0, 59, 3601])
def test_tokens_do_not_live_long(cluster: Cluster, kube: Kube, life: int) -> None:
    with pytest.raises(InvalidInput):
        make_token(kube, "n", now=cluster.clock.now(), life_seconds=life)
    with pytest.raises(InvalidInput):
        make_token(kube, "n", now=cluster.clock.now(), groups="system:masters")
    with pytest.raises(InvalidInput):
        bootstrap_tokens.delete(kube, "../x")


def ask(cluster: Cluster, token: bootstrap_tokens.Token, node: str, name: str, groups: t.Sequence[str] = ("system:nodes",)) -> None:
    _key, request = pki.new_request(f"system:node:{node}", list(groups))
    body = {
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(request.encode()).decode(),
            "signerName": csr.SIGNER,
            "usages": ["digital signature", "client auth"],
        },
    }
    status, answer = cluster.api.request("POST", csr.PATH, body, token=token.text)
    assert status == 201, answer


def asking(cluster: Cluster, kube: Kube) -> bootstrap_tokens.Token:
    """A token with which a machine may ask for the certificate of node gpu-1."""
    cluster.must(
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "metadata": {"name": "tgp"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:bootstrappers:tgp"}],
        },
    )
    return make_token(kube, "gpu-1", now=cluster.clock.now(), groups="system:bootstrappers:tgp")


def test_only_the_expected_node_is_approved(cluster: Cluster, kube: Kube) -> None:
    token = asking(cluster, kube)
    ask(cluster, token, "gpu-1", "good")
    ask(cluster, token, "control-plane", "evil")
    found = {one.name: one for one in csr.requests(kube, token_id=token.id)}
    assert {name: one.state for name, one in found.items()} == {"good": "pending", "evil": "pending"}
    assert found["good"].node == "gpu-1" and found["good"].token_id == token.id
    with pytest.raises(Forbidden, match="control-plane"):
        csr.approve(kube, found["evil"], token_id=token.id, node="gpu-1")
    with pytest.raises(Forbidden, match="username"):
        csr.approve(kube, found["good"], token_id="aaaaaa", node="gpu-1")
    assert csr.approve(kube, found["good"], token_id=token.id, node="gpu-1") is True
    assert csr.approve(kube, found["good"], token_id=token.id, node="gpu-1") is False
    states = {one.name: one.state for one in csr.requests(kube)}
    assert states["good"] in ("approved", "issued") and states["evil"] == "pending"
    assert csr.requests(kube, token_id="zzzzzz") == []


# ---- secrets, identity, namespace


def test_secrets_are_read_and_hidden(cluster: Cluster, kube: Kube) -> None:
    value = base64.b64encode(b"a-very-secret-api-key-0001\n").decode()
    body = {"metadata": {"name": "keys"}, "data": {"lambda": value, "binary": base64.b64encode(b"\xff\xfe").decode(), "none": ""}}
    cluster.must("POST", "/api/v1/namespaces/default/secrets", body)
    assert read_secret(kube, "default", "keys", "lambda") == "a-very-secret-api-key-0001"
    assert "a-very-secret-api-key-0001" not in redact("x a-very-secret-api-key-0001 y") and value not in redact(value)
    with pytest.raises(NotFound, match="default/none does not exist"):
        read_secret(kube, "default", "none", "x")
    with pytest.raises(NotFound, match="has no key vast.*binary, lambda"):
        read_secret(kube, "default", "keys", "vast")
    with pytest.raises(InvalidInput, match="not text"):
        read_secret(kube, "default", "keys", "binary")
    with pytest.raises(InvalidInput, match="empty"):
        read_secret(kube, "default", "keys", "none")


def test_L01_cluster_id_is_the_head_of_the_uid(kube: Kube) -> None:
    assert cluster_id(kube) == UID[:8] == "a1b2c3d4" and cluster_id(kube, "0123abcd") == "0123abcd"


@pytest.mark.parametrize("option", ["0123abcd\n", "0123ABCD", "0123abcde", " 0123abcd"])
def test_L01_an_odd_cluster_id_is_refused(kube: Kube, option: str) -> None:
    """It becomes a part of every name; a block of YAML ends with a line end."""
    with pytest.raises(InvalidInput, match="8 lower-case hexadecimal"):
        cluster_id(kube, option)


@pytest.mark.parametrize("name", [".", "..", "a/b", "", "a-", "n" * 254])
def test_a_name_that_leads_to_another_path_is_refused(cluster: Cluster, kube: Kube, name: str) -> None:
    """The client drops "." from a path: a deletion would be sent to the whole collection."""
    cluster.node("n")
    for call in (lambda: get_node(kube, name), lambda: delete_node(kube, name, uid="x"), lambda: cordon(kube, name)):
        with pytest.raises(InvalidInput, match="not a name of a Node"):
            call()
    assert get_node(kube, "n") is not None


def test_the_namespace_is_made_once(cluster: Cluster, kube: Kube) -> None:
    assert ensure_namespace(kube) is True and ensure_namespace(kube) is False


# ---- rights


def test_a_missing_right_is_named_with_its_rule(cluster: Cluster) -> None:
    cluster.api.add_token("a-fake-token-of-a-reader-0001", "reader", rules=[("get", "", "nodes"), ("list", "", "nodes")])
    reader = cluster.client("a-fake-token-of-a-reader-0001")
    with pytest.raises(Forbidden) as caught:
        reader.create("/api/v1/namespaces/tgp-system/configmaps", {"metadata": {"name": "x"}})
    text = str(caught.value)
    assert "not allowed to create configmaps in namespace tgp-system" in text
    assert 'Role in tgp-system: {apiGroups: [""], resources: ["configmaps"], verbs: ["create"]}' in text
    needed = [
        Right("list", "nodes"),
        Right("create", "pods/eviction"),
        Right("update", "leases", "coordination.k8s.io", "tgp-system"),
    ]
    missing = reader.missing_rights(needed)
    assert len(missing) == 2 and "create pods/eviction" in missing[0] and "update leases.coordination.k8s.io" in missing[1]
    assert cluster.client().missing_rights(needed) == [] and reader.missing_rights([]) == []


def test_a_right_of_all_covers_that_of_one_and_is_not_named_beside_it(cluster: Cluster) -> None:
    every, one = Right("patch", "nodes"), Right("patch", "nodes", name="n")
    here = Right("patch", "pods", namespace="a", name="p")
    assert every.covers(one) and not one.covers(every) and Right("patch", "pods").covers(here) and not every.covers(here)
    assert not Right("patch", "pods", namespace="b").covers(here)
    cluster.api.add_token(
        "a-fake-token-of-a-reader-0002", "reader-2", rules=[("create", "authorization.k8s.io", "selfsubjectaccessreviews")]
    )
    reader = cluster.client("a-fake-token-of-a-reader-0002")
    reader.needs = (every, Right("list", "pods"))
    with pytest.raises(Forbidden, match="not allowed to patch nodes n. Missing as well: list pods. ") as caught:
        reader.patch("/api/v1/nodes/n", {})
    assert "patch nodes," not in str(caught.value)


@pytest.mark.parametrize(
    "method, path, words",
    [
        ("GET", "/api/v1/nodes", "list nodes"),
        ("GET", "/api/v1/nodes/n", "get nodes n"),
        ("GET", "/api/v1/namespaces/kube-system", "get namespaces kube-system"),
        ("POST", "/api/v1/namespaces", "create namespaces"),
        ("POST", "/api/v1/namespaces/a/pods/p/eviction", "create pods/eviction p in namespace a"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", "update leases.coordination.k8s.io l in namespace a"),
        ("DELETE", "/api/v1/nodes/n", "delete nodes n"),
    ],
)
def test_paths_in_words(method: str, path: str, words: str) -> None:
    assert str(of_call(method, path)) == words


def test_no_path_no_right() -> None:
    assert of_call("GET", "/version") is None and str(of_call("GET", "/api/v1/pods", watch=True)) == "watch pods"


def test_a_wrong_token_is_told_with_its_context(cluster: Cluster) -> None:
    with pytest.raises(Unauthorized):
        nodes(cluster.client("a-wrong-token-0123456789abcdef"))


# ---- over the network


def test_connect_by_kubeconfig_over_tls(cluster: Cluster, served: Path) -> None:
    kube = connect(Task({"kubeconfig": str(served)}, clock=cluster.clock))
    cluster.node("n")
    assert [node.name for node in nodes(kube)] == ["n"]
    assert abs(kube.skew()) < 1e9 and kube.server_time().tzinfo is not None
    with pytest.raises(InvalidInput, match="has no context 'other'"):
        connect(Task({"kubeconfig": str(served), "context": "other"}))
    served.write_text(served.read_text().replace(cluster.api.admin_token, "a-wrong-token-0123456789abcdef"))
    with pytest.raises(Unauthorized) as caught:
        nodes(connect(Task({"kubeconfig": str(served)})))
    assert "context sandbox of" in str(caught.value) and "a-wrong-token" not in str(caught.value)
    kube.close()


def test_a_watch_tells_changes_and_can_be_cancelled(cluster: Cluster, served: Path) -> None:
    kube = connect(Task({"kubeconfig": str(served)}, clock=cluster.clock))
    _found, version = kube.collect("/api/v1/nodes", lambda raw: raw)
    watch = kube.watch("/api/v1/nodes", {"resourceVersion": version})
    seen: list[str] = []
    reader = threading.Thread(target=lambda: seen.extend(f"{kind} {raw['metadata']['name']}" for kind, raw in _quiet(watch)))
    reader.start()
    cluster.must("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
    cluster.must("DELETE", "/api/v1/nodes/n")
    for _ in range(3000):
        if any(line.startswith("DELETED") for line in seen):
            break
        threading.Event().wait(0.02)
    watch.cancel()
    reader.join(60)
    assert not reader.is_alive() and seen[0] == "ADDED n" and seen[-1] == "DELETED n"
    kube.close()


def _quiet(watch: t.Any) -> t.Iterator[tuple[str, dict[str, t.Any]]]:
    from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import LostAnswer

    try:
        yield from watch
    except LostAnswer:
        return


@pytest.mark.parametrize("speed", [60.0])
def test_a_write_that_the_server_has_no_time_for_is_tried_again(cluster: Cluster, kube: Kube) -> None:
    """An API server under load turns calls away before it looks at them, and says when to come again."""
    rule = {"kind": "status", "status": 429, "headers": {"retry-after": "1"}, "times": 2}
    path = "/api/v1/namespaces/default/configmaps"
    began = cluster.clock.now()
    cluster.faults.add({**rule, "method": "POST", "path": "configmaps"})
    found = kube.create(path, {"metadata": {"name": "c"}, "data": {"a": "1"}})
    assert (cluster.clock.now() - began).total_seconds() >= 2
    cluster.faults.add({**rule, "method": "PUT", "path": "configmaps"})
    kube.replace(f"{path}/c", {**found, "data": {"a": "2"}})
    cluster.faults.add({**rule, "method": "DELETE", "path": "configmaps"})
    assert kube.delete(f"{path}/c") and kube.find(f"{path}/c") is None
    cluster.faults.add({**rule, "method": "POST", "path": "configmaps", "times": None})
    with pytest.raises(RateLimited):
        kube.create(path, {"metadata": {"name": "d"}})


@pytest.mark.parametrize("body", ["<html>no such page</html>", {"error": "no upstream"}])
def test_a_404_of_something_in_between_is_never_taken_for_gone(cluster: Cluster, kube: Kube, body: t.Any) -> None:
    """Of a Node, a claim or a lock that "is not there" nothing is left: what says so has to be the API server."""
    cluster.node("n")
    uid = cluster.must("GET", "/api/v1/nodes/n")["metadata"]["uid"]
    cluster.faults.add({"kind": "status", "status": 404, "path": "nodes/n", "times": None, "body": body})
    with pytest.raises(BadShape, match="answered 404, not by the API server"):
        get_node(kube, "n")
    with pytest.raises(BadShape, match="answered 404, not by the API server"):
        delete_node(kube, "n", uid=uid)
    cluster.faults.clear()
    assert get_node(kube, "m") is None and not delete_node(kube, "m", uid=uid)
    cluster.pod("p", "n")
    [pod] = pods(kube, node="n")
    cluster.faults.add({"kind": "status", "status": 404, "path": "eviction", "times": 1, "body": body})
    assert evict(kube, pod).kind == "silent" and evict(kube, pod).kind == "evicted" and evict(kube, pod).kind == "gone"


def test_L09_a_budget_that_many_evictions_write_is_no_second_budget(cluster: Cluster, kube: Kube) -> None:
    """What the API server says when the budget's own record was changed by others all the time."""
    cluster.pod("p", "n")
    [pod] = pods(kube, node="n")
    message = 'Timeout: couldn\'t update PodDisruptionBudget "web" due to conflicts'
    busy = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Timeout", "code": 504, "message": message}
    cluster.faults.add({"kind": "status", "status": 504, "path": "eviction", "body": busy})
    refused = evict(kube, pod)
    assert (refused.kind, refused.by) == ("refused", "server error 504") and "due to conflicts" in refused.message
