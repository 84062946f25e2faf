# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks on a real control plane: the clouds and their machines are the sandbox's, the cluster they join is not.

A cluster's clock cannot be moved. So every test has a sandbox of its own, rents first and moves the sandbox's clock afterwards. Each playbook
runs as an account with its own rights and no more; the last test compares these with what the API server noted of all the tests before it.
"""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.kube.needed_rights import NEEDS, rights_in, rights_of
from ansible_collections.tgp.gpu.plugins.module_utils.kube.rbac import Right

from . import objects
from .accounts import SPACE, Accounts
from .objects import GPU
from .plane import Plane
from .stage import Stage, cleared

pytestmark = pytest.mark.cluster
IDLE = 10 * 60 + 60
PAUSE = 15 * 60 + 60
SYSTEM = "kube-system"
DIAGNOSIS = Right("get", "nodes/proxy")  # asked for evidence and granted to nobody (docs/how_to/diagnosis.md)


class Manned(Stage):
    """Each playbook runs as the account that has its rights."""

    accounts: Accounts

    def run(self, name: str, **variables: t.Any) -> t.Any:
        return self.begun(name, **variables).succeeded()

    def begun(self, name: str, without: Right | None = None, **variables: t.Any) -> t.Any:
        self.enter_by(self.plane.server, self.accounts.token(name, without))
        documents = None if name == "archive" else self.documents()
        return self.playbook(name, documents=documents, extra_vars=variables)


@pytest.fixture(scope="module")
def accounts(plane: Plane) -> Accounts:
    return Accounts(plane, os.urandom(2).hex())


@pytest.fixture
def stage(plane: Plane, accounts: Accounts, tmp_path: pathlib.Path) -> t.Iterator[Manned]:
    made = Manned(plane, tmp_path, drain_timeout="8s")
    made.accounts = accounts
    try:
        yield from cleared(made)
    finally:
        plane.delete(f"/api/v1/nodes/{made.rack}")


def test_from_nothing_to_gpu_nodes_and_back_to_nothing(stage: Manned) -> None:
    """provision.yml and reap.yml with lanes kubelet and talos: certificates, taints, allocatable GPUs and pods are the real control plane's."""
    stage.run("provision")
    rented = stage.rented()
    assert stage.names() == {rented, stage.rack}
    claims = stage.claims()
    assert {name: (one["cloud"], one["lane"], one["phase"]) for name, one in claims.items()} == {
        rented: ("lambda", "kubelet", "Ready"),
        stage.rack: ("webhook", "talos", "Ready"),
    }
    for name, cloud, gpus in ((rented, "lambda", "1"), (stage.rack, "webhook", "2")):
        node = objects.ready(stage.plane, name)
        assert node is not None, f"{name} is not Ready"
        assert node["status"]["allocatable"][GPU] == gpus
        labels = node["metadata"]["labels"]
        assert labels["tgp.io/provisioned"] == "true" and labels["tgp.io/provider"] == cloud
        assert labels["tgp.io/nodepool"] == stage.pools[cloud] and labels["tgp.io/gpu-count"] == gpus
        assert "gpu-node" in stage.taints(name) and "tgp.io/initializing" not in stage.taints(name)
        assert claims[name]["node_uid"] == node["metadata"]["uid"]
    assert not stage.new_tokens(), "a bootstrap token outlived the join"

    versions = {name: stage.node(name)["metadata"]["resourceVersion"] for name in claims}
    again = stage.run("provision")
    assert again.count("changed") == 0
    assert {name: stage.node(name)["metadata"]["resourceVersion"] for name in claims} == versions

    stage.run_job(rented, f"training-{stage.mark}")
    stage.run("reap")
    stage.advance(IDLE)
    stage.run("reap")
    assert stage.names() == {rented}, "the busy one stays, the idle one goes"
    assert objects.ready(stage.plane, rented) and not stage.node(rented)["spec"].get("unschedulable")
    stage.end_job(f"training-{stage.mark}")
    stage.run("reap")
    stage.advance(IDLE)
    stage.run("reap")
    assert stage.nothing_is_left()
    assert stage.lock_holders() and not any(stage.lock_holders())


def test_destroy_gives_everything_back_even_below_a_running_job(stage: Manned) -> None:
    """destroy.yml with force against real garbage collection: pods, Node, token and Lease are gone."""
    stage.run("provision")
    stage.run_job(stage.rented(), f"training-{stage.mark}")
    stage.run("destroy", everything=True, force=True)
    assert stage.nothing_is_left()
    assert not any(stage.lock_holders())


def _evictions(plane: Plane) -> int:
    """How many the API server was asked for until now."""
    with open(plane.audit_log, encoding="utf-8") as log:
        return sum((json.loads(line).get("objectRef") or {}).get("subresource") == "eviction" for line in log)


def test_a_budget_holds_an_idle_node_until_the_deadline_and_the_node_is_as_before(stage: Manned) -> None:
    """The pod is no work (it is the cluster's own and uses no GPU), so the node counts as idle; its budget is asked all the same."""
    stage.run("provision", pool=stage.pools["lambda"])
    node, app = stage.rented(), f"guarded-{stage.mark}"
    spec = {**objects.pod_spec(on=node), "tolerations": [{"operator": "Exists"}]}
    objects.workload(stage.plane, "deployments", SYSTEM, app, spec)
    budgets = f"/apis/policy/v1/namespaces/{SYSTEM}/poddisruptionbudgets"
    try:
        stage.plane.until(lambda: objects.apps(stage.plane, SYSTEM, node) == [app], what="the guarded pod to run")
        objects.budget(stage.plane, SYSTEM, app, {"app": app}, minAvailable=1)
        stage.run("reap")
        stage.advance(IDLE)
        before = stage.claims()[node]
        held = stage.run("reap")

        assert held.seconds >= 8, "the drain did not last until its deadline"
        assert f"kept: {SYSTEM}/{app}" in held.words and app in held.words
        assert stage.names() == {node}
        now = stage.node(node)
        assert not now["spec"].get("unschedulable")
        assert stage.taints(node) == {"gpu-node", "tgp.io/ephemeral"}
        assert not {key for key in now["metadata"]["annotations"] if key.startswith("tgp.io/drain")}
        assert "node.kubernetes.io/exclude-from-external-load-balancers" not in now["metadata"]["labels"]
        claim = stage.claims()[node]
        assert claim["phase"] == "Ready" and not claim.get("deletion")
        assert claim["blocked_until"] and claim["blocked_times"] == 1 and not before.get("blocked_until")
        assert objects.apps(stage.plane, SYSTEM, node) == [app]

        tried = _evictions(stage.plane)
        paused = stage.run("reap")
        assert paused.count("changed") == 0 and _evictions(stage.plane) == tried > 0, "it is left in peace until the pause is over"

        stage.plane.delete(f"{budgets}/{app}")
        stage.advance(PAUSE)
        stage.run("reap")
        assert stage.nothing_is_left()
        assert not any(stage.lock_holders())
    finally:
        stage.plane.delete(f"{budgets}/{app}")
        stage.plane.delete(f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{app}", propagationPolicy="Background")


# ---- rights


def _each(verbs: str, resource: str, group: str = "", namespace: str = "") -> tuple[Right, ...]:
    return tuple(Right(verb, resource, group, namespace) for verb in verbs.split())


# Why runs of this file do without some of the rights of their playbook.
UNUSED: dict[str, tuple[Right, ...]] = {
    "no pool here asks for a test or for images; tests/contract/act/test_acceptance.py, test_pre_pull.py": (
        Right("create", "pods", "", SPACE),
        Right("get", "pods/log", "", SPACE),
    ),
    "no pool here goes by the utilization of GPUs, for which status lists pods; tests/contract/act/test_utilization.py": (
        Right("get", "pods/proxy"),
        Right("list", "pods"),
    ),
    "no class here has guard.controllerSilentFor; tests/contract/act/test_guard.py": (
        Right("get", "rolebindings", "rbac.authorization.k8s.io", SPACE, "tgp-gpu-guard"),
    ),
    "nobody here reads labels of namespaces for teams; tests/contract/act/test_report.py": (Right("list", "namespaces"),),
    "the API server asks for it itself while an approval is written": (
        Right("approve", "signers", "certificates.k8s.io", name="kubernetes.io/kube-apiserver-client-kubelet"),
    ),
    "there is no pool of services; tests/cluster/test_services_real.py": rights_in("default"),
    "there is no object of these kinds; tests/cluster/test_crds.py, tests/contract/act/test_object_status.py": tuple(
        right
        for kind in ("gpunodeclasses", "gpunodepools", "gpurequests")
        for right in (*_each("list get patch", kind, "tgp.io"), *_each("patch", f"{kind}/status", "tgp.io"))
    ),
    "claims are ConfigMaps here; tests/contract/act/test_claim_stores.py": (
        *_each("get create patch delete", "gpunodeclaims", "tgp.io", SPACE),
        *_each("get", "configmaps", namespace=SPACE),  # release.yml reads the mark of a move there
        Right("get", "customresourcedefinitions", "apiextensions.k8s.io", name="gpunodeclaims.tgp.io"),
    ),
    "a run before has made what this one updates, and a list of machines to adopt takes no lock": (
        *_each("create update", "configmaps", namespace=SPACE),
        *_each("get create update", "leases", "coordination.k8s.io", SPACE),
        Right("get", "namespaces", name=SPACE),
    ),
    "no line of the ledger is a year old, and no history of prices is full": _each("patch delete", "configmaps", namespace=SPACE),
    "reap.yml and destroy.yml terminate by the code that the others share with them": (
        *_each("watch delete", "pods"),
        *_each("create", "pods/eviction"),
        *_each("list watch", "poddisruptionbudgets", "policy"),
        *_each("list", "volumeattachments", "storage.k8s.io"),
        *_each("delete", "nodes"),
        *_each("delete", "secrets", namespace=SYSTEM),
    ),
    "no machine is moved in or out here; tests/contract/act/test_moving.py": (
        *_each("get list patch", "nodes"),
        Right("patch", "nodes/status"),
        Right("get", "secrets", "", SPACE),
    ),
    "no pool here has draDriver; tests/cluster/test_devices_real.py, tests/contract/act/test_devices.py": tuple(
        Right("list", kind, "resource.k8s.io") for kind in ("deviceclasses", "resourceclaims", "resourceslices")
    ),
    "no pool here has provisioningClasses; tests/cluster/test_provisioning_requests_real.py": (
        *_each("list", "provisioningrequests", "autoscaling.x-k8s.io"),
        *_each("patch", "provisioningrequests/status", "autoscaling.x-k8s.io"),
        *_each("list", "podtemplates"),
    ),
    "no pool here has capacityBuffers; tests/cluster/test_provisioning_requests_real.py": (
        *_each("list", "capacitybuffers", "autoscaling.x-k8s.io"),
        *_each("patch", "capacitybuffers/status", "autoscaling.x-k8s.io"),
        *(Right("get", plural, "apps") for plural in ("deployments", "statefulsets", "replicasets")),
    ),
    "no pod with persistent volumes waits; tests/contract/act/test_autoscale.py": (
        *_each("list", "persistentvolumeclaims"),
        *_each("list", "persistentvolumes"),
        *_each("list", "storageclasses", "storage.k8s.io"),
    ),
    "no pod of a PodGroup waits; tests/contract/act/test_autoscale.py": tuple(
        Right("list", "podgroups", group) for group in ("scheduling.k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh")
    ),
    "the own machine of these tests has a statusEndpoint; tests/node_real/test_node.py": _each("get", "nodes"),
    "evidence about a machine that does not become usable": _each("list", "events"),
}
# The same, where it is a matter of time whether one needs it.
SOMETIMES: dict[str, tuple[Right, ...]] = {
    "read again after a conflict": (*_each("get", "pods"), *_each("get", "certificatesigningrequests", "certificates.k8s.io")),
    "a run that finds claims looks for none in the other store": _each("list", "gpunodeclaims", "tgp.io", SPACE),
    "there is something to report of an object; tests/cluster/test_objects_shown_real.py": _each(
        "create", "events", "events.k8s.io"
    ),
    "apply.yml switches on an own machine of lane talos here, whose request the cluster approves by itself": (
        *_each("list watch", "certificatesigningrequests", "certificates.k8s.io"),
        *_each("update", "certificatesigningrequests/approval", "certificates.k8s.io"),
    ),
}
BY_SSH = {"join_kubelet"}  # it needs a machine that is reached by SSH; tests/e2e/test_join_kubelet.py
# diagnose needs GPUs that pods share, tests/cluster/test_device_plugin_real.py; bench_mesh pods that run, tests/contract/act/test_bench_mesh.py
OTHERS = {"bench_mesh", "diagnose"}


def test_a_right_that_is_missing_is_named_and_the_run_does_what_it_may(stage: Manned, tmp_path: pathlib.Path) -> None:
    """Ten rights, taken away one at a time: exit status 2, verb and resource in words, nothing rented or lost. What does not need the right
    is done: without the eviction of one machine's pod the other machine goes."""
    archive = str(tmp_path / "ledger.jsonl")
    lacking: tuple[tuple[str, Right, dict[str, t.Any]], ...] = (
        ("status", Right("list", "nodes"), {}),
        ("status", Right("list", "configmaps", namespace=SPACE), {}),
        ("plan", Right("list", "pods"), {"plan": str(tmp_path / "plan.json")}),
        ("report", Right("get", "namespaces", name=SYSTEM), {}),
        ("pause", Right("update", "leases", "coordination.k8s.io", SPACE), {}),
        ("archive", Right("list", "configmaps", namespace=SPACE), {"path": archive}),
        ("provision", Right("create", "secrets", namespace=SYSTEM), {}),
        ("provision", Right("update", "certificatesigningrequests/approval", "certificates.k8s.io"), {}),
    )
    for playbook, right, variables in lacking:
        done = stage.begun(playbook, right, **variables)
        assert done.rc == 2 and f"not allowed to {right.verb} {right.resource}" in done.words, (
            f"{playbook} without {right}: {done.text}"
        )
    assert not stage.names()

    stage.run("provision")
    rented, app = stage.rented(), f"left-{stage.mark}"
    spec = {**objects.pod_spec(on=rented), "tolerations": [{"operator": "Exists"}]}
    objects.workload(stage.plane, "deployments", SYSTEM, app, spec)
    try:
        stage.plane.until(lambda: objects.apps(stage.plane, SYSTEM, rented) == [app], what="the pod to run")
        stage.run("reap")
        stage.advance(IDLE)
        done = stage.begun("reap", Right("patch", "nodes"))
        assert done.rc == 2 and f"not allowed to patch nodes {rented}" in done.words, done.text
        assert stage.names() == {rented, stage.rack}
        stage.advance(PAUSE)
        done = stage.begun("reap", Right("create", "pods/eviction"))
        assert done.rc == 2 and "not allowed to create pods/eviction" in done.words, done.text
        assert stage.names() == {rented}, "the own machine had nothing to evict"
    finally:
        stage.plane.delete(f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{app}", propagationPolicy="Background")


def test_each_playbook_uses_its_rights_and_no_other(stage: Manned, accounts: Accounts, tmp_path: pathlib.Path) -> None:
    """What the API server noted of every playbook's account. Nothing was refused, and what was not used stands above with its reason."""
    plan, lambda_pool, own_pool = str(tmp_path / "plan.json"), stage.pools["lambda"], stage.pools["webhook"]
    stage.run("validate", options={"rights_of": ["validate"]})
    for name in ("status", "report", "adopt", "pause", "resume"):
        stage.run(name)
    stage.run("prices", pool=lambda_pool, cache="cluster", history="cluster")
    stage.run("archive", path=str(tmp_path / "ledger.jsonl"))
    stage.run("move_claims", to_store="cluster")
    stage.run("release")
    stage.run("plan", mode="provision", pool=own_pool, nodes=1, plan=plan)
    stage.run("apply", plan=plan)
    job = f"waits-{stage.mark}"
    spec = {**objects.pod_spec(gpus=1), "tolerations": [{"operator": "Exists"}], "nodeSelector": {"tgp.io/provider": "lambda"}}
    try:
        pod = objects.pod(stage.plane, "default", job, spec)["metadata"]
        path = f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}"
        stage.plane.until(lambda: stage.plane.get(path)["status"].get("conditions"), what="the scheduler to have looked")
        stage.run("autoscale", wait=True)
        assert len(stage.names()) == 2
    finally:
        stage.plane.delete(path, gracePeriodSeconds=0)
    stage.run("destroy", everything=True, force=True)

    reasons = {right for rights in UNUSED.values() for right in rights}
    allowed = reasons | {right for rights in SOMETIMES.values() for right in rights}
    unused: dict[Right, set[str]] = {}
    for playbook in NEEDS.keys() - BY_SSH - OTHERS:
        used = accounts.used(playbook)
        assert used, f"{playbook} was not run: this test needs those before it"
        refused = {one.right for one in used if not one.allowed and not DIAGNOSIS.covers(one.right)}
        assert not refused, f"{playbook} was refused {sorted(map(str, refused))}"
        for right in rights_of(playbook):
            if not any(right.covers(one.right) for one in used):
                unused.setdefault(right, set()).add(playbook)
    without_reason = {str(right): sorted(playbooks) for right, playbooks in unused.items() if right not in allowed}
    without_need = sorted(str(right) for right in reasons - unused.keys())
    assert (without_reason, without_need) == ({}, [])
