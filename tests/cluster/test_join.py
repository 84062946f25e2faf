# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our client against the real thing: tokens, certificate requests, nodes, rights, and the claims of two runs at once."""

from __future__ import annotations

import base64
import dataclasses
import pathlib
import threading
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.clock import SystemClock
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import Conflict, Forbidden, InvalidInput, Unauthorized
from ansible_collections.tgp.gpu.plugins.module_utils.kube import bootstrap_tokens, csr, nodes, pods
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.kube.informer import Follow
from ansible_collections.tgp.gpu.plugins.module_utils.kube.rbac import Right
from ansible_collections.tgp.gpu.plugins.module_utils.kube.wait import Expected, NodeOutcome, wait_for
from ansible_collections.tgp.gpu.plugins.module_utils.model import Claim, Lane, Offer, Phase, Taint
from ansible_collections.tgp.gpu.plugins.module_utils.store.configmap import ConfigMapStore
from cryptography import x509

from sandbox.kube import pki
from tests.build import ROOT
from tests.fixtures.bootstrap_tokens import make_token

from . import objects
from .plane import Plane

pytestmark = pytest.mark.cluster
Open = t.Callable[[pathlib.Path], Kube]


def _now() -> datetime:
    return datetime.now(timezone.utc).replace(microsecond=0)


def test_a_token_of_ours_lets_its_node_in_and_can_go_afterwards(plane: Plane, kube: Kube, own: str) -> None:
    token = make_token(kube, own, now=_now(), life_seconds=600)
    [found] = [one for one in bootstrap_tokens.tokens(kube) if one.id == token.id]
    assert (found.node, found.secret) == (own, "") and found.expires == token.expires
    hollow = plane.kubemark(own, token.text, taints=["tgp.io/initializing=:NoSchedule"], gpus=4)
    plane.until(lambda: objects.ready(plane, own), what="the node to be Ready")
    [request] = csr.requests(kube, token_id=token.id)
    assert (request.state, request.node) == ("issued", own)
    node = nodes.get_node(kube, own)
    assert node and node.ready and node.allocatable["nvidia.com/gpu"] == 4 and node.kubelet_version.startswith("v1.36.")
    assert Taint("tgp.io/initializing", "", "NoSchedule") in node.taints
    assert bootstrap_tokens.delete(kube, token.id) and not bootstrap_tokens.delete(kube, token.id)
    hollow.stop()
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{own}"
    before = (plane.find(lease) or {"spec": {"renewTime": ""}})["spec"]["renewTime"]
    hollow.start()

    def renewed() -> bool:
        return (plane.find(lease) or {"spec": {"renewTime": ""}})["spec"]["renewTime"] > before

    plane.until(renewed, what="the kubelet to be back without its token")
    assert nodes.delete_node(kube, own, uid=node.uid)
    hollow.stop()


def test_only_the_expected_node_is_approved(plane: Plane, kube: Kube, own: str) -> None:
    plane.bind(own, ["system:bootstrappers:tgp-test"], "system:node-bootstrapper")
    token = make_token(kube, own, now=_now(), groups="system:bootstrappers:tgp-test")
    stranger = plane.kubemark(f"evil-{own}", token.text)
    [request] = plane.until(lambda: csr.requests(kube, token_id=token.id), what="the stranger's request")
    with pytest.raises(Forbidden, match=f"system:node:evil-{own}"):
        csr.approve(kube, request, token_id=token.id, node=own)
    stranger.kill()
    hollow = plane.kubemark(own, token.text)

    def expected() -> list[csr.SigningRequest]:
        return [one for one in csr.requests(kube, token_id=token.id) if one.node == own]

    [request] = plane.until(expected, what="the expected node's request")
    assert csr.approve(kube, request, token_id=token.id, node=own)
    assert not csr.approve(kube, request, token_id=token.id, node=own)
    plane.until(lambda: objects.ready(plane, own), what="the approved node to be Ready")
    assert objects.node(plane, f"evil-{own}") is None
    hollow.stop()


def _rules() -> list[dict[str, t.Any]]:
    """What files/rbac.yml lets the account of the playbooks do in the whole cluster."""
    found = yaml.safe_load_all((ROOT / "files" / "rbac.yml").read_text(encoding="utf-8"))
    return next(one["rules"] for one in found if one["kind"] == "ClusterRole")


def _wait(client: Kube, name: str, token: bootstrap_tokens.Token) -> NodeOutcome:
    end = _now() + timedelta(seconds=60)
    expected = Expected(name, name, end, lambda node: [] if node.ready else ["Ready"], launched=_now(), token=token.id)
    return wait_for(client, [expected], clock=SystemClock())[name]


def test_the_wait_lets_in_its_own_machine_with_no_more_than_the_shipped_rights(
    plane: Plane, kube: Kube, open_kube: Open, own: str
) -> None:
    client = open_kube(objects.person(plane, own, _rules()))
    assert bootstrap_tokens.may_ask(client)
    token = make_token(kube, own, now=_now(), groups=bootstrap_tokens.OWN_GROUP)
    hollow = plane.kubemark(own, token.text)
    outcome = _wait(client, own, token)
    assert outcome.ready and set(outcome.seen) >= {"csr", "node", "ready", "complete"}
    [request] = csr.requests(kube, token_id=token.id)
    assert (request.state, request.node) == ("issued", own)
    hollow.stop()


def test_the_wait_denies_another_name_and_ends_with_it(plane: Plane, kube: Kube, open_kube: Open, own: str) -> None:
    client = open_kube(objects.person(plane, own, _rules()))
    token = make_token(kube, own, now=_now(), groups=bootstrap_tokens.OWN_GROUP)
    stranger = plane.kubemark(f"evil-{own}", token.text)
    outcome = _wait(client, own, token)
    assert not outcome.ready and outcome.step == "csr" and f"system:node:evil-{own}" in outcome.message
    [request] = csr.requests(kube, token_id=token.id)
    assert (request.state, request.node) == ("denied", f"evil-{own}") and outcome.seconds < 30
    assert objects.node(plane, f"evil-{own}") is None
    stranger.kill()


def _two_in_one(machine: Kube, own: str, name: str) -> None:
    """A request of this node's and one of another's in one text: readers of PEM take different ones."""
    texts = [pki.new_request(f"system:node:{node}", ["system:nodes"])[1] for node in (own, f"evil-{own}")]
    encoded = base64.b64encode(f"x{''.join(texts)}".encode()).decode()
    spec = {"request": encoded, "signerName": csr.SIGNER, "usages": ["digital signature", "client auth"]}
    kind = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    machine.create(csr.PATH, {**kind, "metadata": {"name": name}, "spec": spec})


def test_a_request_that_reads_as_two_is_denied(plane: Plane, kube: Kube, open_kube: Open, own: str) -> None:
    token = make_token(kube, own, now=_now(), groups=bootstrap_tokens.OWN_GROUP)
    machine = open_kube(plane.write_kubeconfig(f"{own}-machine", {"token": token.text}))
    _two_in_one(machine, own, f"one-{own}")
    raw = kube.get(f"{csr.PATH}/one-{own}")
    raw["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "Test", "message": "to see who is signed"}]}
    kube.replace(f"{csr.PATH}/one-{own}/approval", raw)
    signed = plane.until(lambda: (kube.get(f"{csr.PATH}/one-{own}").get("status") or {}).get("certificate"), what="the certificate")
    names = x509.load_pem_x509_certificate(base64.b64decode(signed)).subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    assert [one.value for one in names] == [f"system:node:evil-{own}"], "the cluster reads the other one"
    _two_in_one(machine, own, f"two-{own}")
    client = open_kube(objects.person(plane, own, _rules()))
    [request] = [one for one in csr.requests(client, token_id=token.id) if one.name == f"two-{own}"]
    assert csr.answer(client, request, token_id=token.id, node=own) == "denied"


def test_who_may_not_approve_for_the_signer_approves_nothing(plane: Plane, kube: Kube, open_kube: Open, own: str) -> None:
    rules = [one for one in _rules() if "signers" not in one["resources"]]
    client = open_kube(objects.person(plane, own, rules))
    token = make_token(kube, own, now=_now(), groups=bootstrap_tokens.OWN_GROUP)
    hollow = plane.kubemark(own, token.text)
    [request] = plane.until(lambda: csr.requests(kube, token_id=token.id), what="the request")
    with pytest.raises(Forbidden):
        csr.answer(client, request, token_id=token.id, node=own)
    assert csr.requests(kube, token_id=token.id)[0].state == "pending"
    hollow.stop()


def test_an_expired_token_is_named_as_a_credential_that_is_not_accepted(plane: Plane, open_kube: Open, own: str) -> None:
    client = open_kube(plane.write_kubeconfig(own, {"token": plane.bootstrap_token(seconds=-60)}))
    with pytest.raises(Unauthorized):
        client.get("/version")


def test_marks_are_set_and_foreign_ones_stay(plane: Plane, kube: Kube, own: str) -> None:
    foreign = {"key": "example.test/theirs", "value": "x", "effect": "NoSchedule"}
    startup = {"key": "tgp.io/initializing", "effect": "NoSchedule"}
    body = {"metadata": {"name": own, "labels": {"example.test/a": "b"}}, "spec": {"taints": [foreign, startup]}}
    uid = plane.create("/api/v1/nodes", body)["metadata"]["uid"]
    change = {
        "labels": {"tgp.io/nodepool": "ml"},
        "annotations": {"tgp.io/expires-at": "2026-01-02T03:04:05Z"},
        "add_taints": [Taint("tgp.io/ephemeral", "true", "NoExecute")],
        "remove_taints": ["tgp.io/initializing"],
        "unschedulable": True,
    }
    assert nodes.change(kube, own, uid=uid, **change) and not nodes.change(kube, own, uid=uid, **change)
    raw = objects.node(plane, own) or {}
    assert raw["metadata"]["labels"].items() >= {"example.test/a": "b", "tgp.io/nodepool": "ml"}.items()
    keys = {one["key"] for one in raw["spec"]["taints"]}
    assert (
        raw["spec"]["unschedulable"] and keys >= {"example.test/theirs", "tgp.io/ephemeral"} and "tgp.io/initializing" not in keys
    )
    assert nodes.uncordon(kube, own, uid=uid) and not nodes.uncordon(kube, own, uid=uid)
    with pytest.raises(InvalidInput):
        nodes.change(kube, own, remove_taints=["example.test/theirs"])
    with pytest.raises(Conflict):
        nodes.cordon(kube, own, uid="00000000-0000-4000-8000-000000000000")


def test_taints_of_two_writers_are_both_kept(plane: Plane, kube: Kube, open_kube: Open, own: str) -> None:
    plane.create("/api/v1/nodes", {"metadata": {"name": own}})
    others = [open_kube(plane.kubeconfig) for _ in range(6)]
    begin = threading.Barrier(len(others))

    def add(client: Kube, number: int) -> None:
        begin.wait()
        nodes.change(client, own, add_taints=[Taint(f"tgp.io/t{number}", "", "PreferNoSchedule")])

    threads = [threading.Thread(target=add, args=(client, number)) for number, client in enumerate(others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    node = nodes.get_node(kube, own)
    assert node and {f"tgp.io/t{number}" for number in range(6)} <= {taint.key for taint in node.taints}


def test_a_node_is_deleted_only_if_it_is_the_one_that_was_meant(plane: Plane, kube: Kube, own: str) -> None:
    first = plane.create("/api/v1/nodes", {"metadata": {"name": own}})["metadata"]["uid"]
    assert nodes.delete_node(kube, own, uid=first) and not nodes.delete_node(kube, own, uid=first)
    second = plane.create("/api/v1/nodes", {"metadata": {"name": own}})["metadata"]["uid"]
    with pytest.raises(Conflict):
        nodes.delete_node(kube, own, uid=first)
    assert nodes.delete_node(kube, own, uid=second)


def test_pods_are_read_with_the_gpus_the_scheduler_reserves(plane: Plane, kube: Kube, own: str) -> None:
    hollow = plane.kubemark(own, plane.bootstrap_token(), gpus=2)
    plane.until(lambda: objects.ready(plane, own), what="the node to be Ready")
    space = objects.namespace(plane, own)
    objects.workload(plane, "deployments", space, "train", objects.pod_spec(gpus=1, on=own), replicas=3)
    objects.running(plane, space, 2)

    def waiting() -> bool:
        return any(pod.waiting == "Unschedulable" for pod in pods.pods(kube) if pod.namespace == space)

    plane.until(waiting, what="the third pod to find no GPU")
    bound = [pod for pod in pods.pods(kube, node=own) if pod.namespace == space]
    assert [(pod.owner_kind, dict(pod.requests), pod.phase) for pod in bound] == [
        ("ReplicaSet", {"nvidia.com/gpu": 1}, "Running")
    ] * 2
    plane.delete(f"/api/v1/namespaces/{space}")
    hollow.stop()


def test_L17_a_kubelet_keeps_the_neutral_gpus_that_the_shipped_rights_may_set(plane: Plane, open_kube: Open, own: str) -> None:
    client = open_kube(objects.person(plane, own, _rules()))
    hollow = plane.kubemark(own, plane.bootstrap_token(), gpus=2)
    found = plane.until(lambda: objects.ready(plane, own), what="the node to be Ready")
    assert nodes.advertise(client, nodes.parse(client, found), "tgp.io/gpu", 2)
    node = nodes.get_node(client, own)
    assert node and not nodes.advertise(client, node, "tgp.io/gpu", 2)
    with pytest.raises(Conflict, match="another Node has taken this name"):
        nodes.advertise(client, dataclasses.replace(node, uid="00000000-0000-4000-8000-000000000000"), "tgp.io/gpu", 1)

    def status() -> dict[str, t.Any]:
        found = objects.node(plane, own)
        return found["status"] if found else {}

    def beat() -> str:
        return max(one["lastHeartbeatTime"] for one in status()["conditions"])

    before = beat()
    without = {"status": {"allocatable": {"tgp.io/gpu": None}}}  # the kubelet works that out anew
    plane.patch(f"/api/v1/nodes/{own}/status", without, kind="merge")
    plane.until(lambda: beat() > before, what="the kubelet to report its status")
    assert [status()[kind].get("tgp.io/gpu") for kind in ("capacity", "allocatable")] == ["2", "2"]
    space = objects.namespace(plane, own)
    spec = objects.pod_spec(on=own)
    spec["containers"][0]["resources"] = {"limits": {"tgp.io/gpu": "2"}}
    objects.pod(plane, space, "any-vendor", spec)
    objects.running(plane, space, 1)
    plane.delete(f"/api/v1/namespaces/{space}")
    hollow.stop()


def test_missing_rights_are_named_before_and_at_the_call(plane: Plane, open_kube: Open, own: str) -> None:
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]}]
    client = open_kube(objects.person(plane, own, rules))
    assert isinstance(nodes.nodes(client), list)
    wanted = [Right("list", "nodes"), Right("create", "pods/eviction"), Right("list", "poddisruptionbudgets", "policy")]
    told = client.missing_rights(wanted)
    assert len(told) == 2 and "pods/eviction" in told[0] and "poddisruptionbudgets.policy" in told[1]
    plane.create("/api/v1/nodes", {"metadata": {"name": own}})
    with pytest.raises(Forbidden, match=f"not allowed to patch nodes {own}") as refused:
        nodes.cordon(client, own)
    grant = {"apiGroups": [""], "resources": ["nodes"], "verbs": [refused.value.details["verb"]]}
    plane.patch(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{own}", {"rules": [*rules, grant]}, kind="merge")
    plane.until(lambda: not client.missing_rights([Right("patch", "nodes")]), what="the granted right")
    assert nodes.cordon(client, own)


def test_both_kinds_of_kubeconfig_lead_to_the_same_cluster(plane: Plane, open_kube: Open) -> None:
    uid = plane.get("/api/v1/namespaces/kube-system")["metadata"]["uid"]
    clients = [open_kube(plane.kubeconfig), open_kube(plane.certificate_kubeconfig)]
    assert {client.cluster_id() for client in clients} == {uid[:8]}
    assert all(abs(client.skew()) < 3 for client in clients)


def test_a_followed_collection_sees_what_happens(plane: Plane, kube: Kube, own: str) -> None:
    seen: list[tuple[str, str]] = []

    def listener(kind: str, _key: str, item: t.Any) -> None:
        seen.append((kind, item if isinstance(item, str) else ""))

    follow: Follow[str] = Follow(kube, "/api/v1/nodes", lambda raw: raw["metadata"]["name"])
    follow.add(listener)
    plane.until(lambda: seen and seen[0][0] == "all", what="the first list")
    plane.create("/api/v1/nodes", {"metadata": {"name": own}})
    plane.until(lambda: ("set", own) in seen, what="the new node to be seen")
    plane.delete(f"/api/v1/nodes/{own}")
    plane.until(lambda: ("gone", own) in seen, what="the node's end to be seen")
    started = time.monotonic()
    assert follow.remove(listener) and time.monotonic() - started < 30, "it waits for no end of its watch"


def test_two_runs_cannot_both_change_a_claim(plane: Plane, open_kube: Open, own: str) -> None:
    one, other = (ConfigMapStore(open_kube(plane.kubeconfig)) for _ in range(2))
    offer = Offer("lambda", "o1", "gpu_1x_a10", "A10", 1, Decimal("0.75"), region="us-west")
    claim = Claim(
        f"tgp-{own}"[:60].rstrip("-"),
        "default/pool",
        "class",
        "lambda",
        Lane.KUBELET,
        Phase.PENDING,
        _now(),
        _now(),
        offer,
        Decimal("0.75"),
    )
    written = one.write(claim)
    with pytest.raises(Conflict):
        other.write(dataclasses.replace(written, version=""))
    read = other.claim(written.name)
    assert read == written
    other.write(dataclasses.replace(written, ids_seen=("501",)))
    with pytest.raises(Conflict):
        one.write(dataclasses.replace(written, ids_seen=("502",)))
    with pytest.raises(Conflict):
        one.remove(written)
    lines = [(store, {"key": f"{own}-{n}", "n": n, "cost": "0"}) for n in range(6) for store in (one, other)]
    with ThreadPoolExecutor(len(lines)) as pool:
        first = list(pool.map(lambda pair: pair[0].ledger(pair[1]), lines))
    assert sum(first) == 6, "each line is written by one of them"
    assert sorted(line["n"] for line in one.ledger_lines() if line.get("key", "").startswith(own)) == list(range(6))
    left = one.claim(written.name)
    assert left is not None
    one.remove(left)
