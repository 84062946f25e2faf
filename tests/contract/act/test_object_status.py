# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs write into the status of classes, pools and requests that are objects of the cluster, and when they do not."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml

from schemas.crd_status import status as status_schema
from schemas.crds import definitions
from tests.fixtures.demo import demo_documents

from .rig import URLS, Rig

Json = dict[str, t.Any]
ROOT = Path(__file__).resolve().parents[3]
POOL = "/apis/tgp.io/v1/namespaces/default/gpunodepools/mine"
CLASS = "/apis/tgp.io/v1/gpunodeclasses/demo"
BY_DEFAULT = status_schema("GPUNodePool")["default"]  # shown until a run writes
THERE: Json = {"documents": [], "documents_from_cluster": True}


def pool(name: str = "mine", **spec: t.Any) -> Json:
    requirements = [{"key": "tgp.io/provider", "operator": "In", "values": ["lambda"]}]
    inner = {"nodeClassRef": {"name": "demo"}, "maxHourlyPrice": "3", "template": {"spec": {"requirements": requirements}}, **spec}
    return {"apiVersion": "tgp.io/v1", "kind": "GPUNodePool", "metadata": {"name": name, "namespace": "default"}, "spec": inner}


@pytest.fixture
def cluster(rig: Rig) -> Rig:
    """The kinds, the demo class as an object, and one pool that wants two machines."""
    for definition in definitions():
        rig.kube("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    node_class = next(one for one in demo_documents() if one["kind"] == "GPUNodeClass")
    talos = node_class["spec"]["talosConfig"]
    talos["machineConfigTemplate"] = Path(talos.pop("machineConfigTemplateFile")).read_text()
    rig.kube("POST", "/apis/tgp.io/v1/gpunodeclasses", node_class)
    rig.kube("POST", "/apis/tgp.io/v1/namespaces/default/gpunodepools", pool(replicas=2))
    return rig


def status(rig: Rig, path: str = POOL) -> Json:
    return t.cast(Json, rig.kube("GET", path).get("status") or {})


def condition(rig: Rig, kind: str, path: str = POOL) -> tuple[str, str] | None:
    found = [one for one in status(rig, path).get("conditions", []) if one["type"] == kind]
    return (found[0]["status"], found[0]["reason"]) if found else None


def writes(rig: Rig, act: t.Callable[[], t.Any]) -> list[str]:
    """The status writes that an act sends."""
    sent: list[str] = []
    rig.watcher = lambda request: sent.append(request.url.path) if request.method == "PATCH" else None
    act()
    rig.watcher = lambda _request: None
    return [path for path in sent if path.startswith("/apis/tgp.io") and path.endswith("/status")]


def provision(rig: Rig, **params: t.Any) -> Json:
    plan = rig.plan("provision", **THERE, **params)
    rig.run("launch", plan["run_id"], **THERE)
    rig.run("join", plan["run_id"], **THERE)
    rig.unlock(plan["run_id"])
    return plan


def test_a_pool_is_launching_then_ready_then_unchanged(cluster: Rig) -> None:
    assert sorted(writes(cluster, lambda: provision(cluster))) == [f"{CLASS}/status", f"{POOL}/status"]
    first = status(cluster)
    assert (first["observedGeneration"], first["wanted"], first["ready"], first["launching"], first["replicas"]) == (1, 2, 0, 2, 2)
    assert condition(cluster, "Ready") == ("False", "Launching") and condition(cluster, "Reconciling") == ("True", "Launching")
    cluster.reap(**THERE)
    second = status(cluster)
    assert (second["wanted"], second["ready"], second["launching"], second["gpus"]) == (2, 2, 0, 2)
    assert condition(cluster, "Ready") == ("True", "MachinesReady") and condition(cluster, "Reconciling") is None
    assert second["hourlyCost"] == status(cluster, CLASS)["hourlyCost"] != "0.00"
    assert condition(cluster, "Ready", CLASS) == ("True", "Usable")
    assert writes(cluster, lambda: cluster.reap(**THERE)) == [], "nothing has changed"
    cluster.advance(601)
    assert len(writes(cluster, lambda: cluster.reap(**THERE))) == 2, "the heartbeat"
    ready = next(one for one in status(cluster)["conditions"] if one["type"] == "Ready")
    assert ready["lastTransitionTime"] < status(cluster)["lastRunTime"]


def test_check_mode_saved_plans_and_files_write_no_status(cluster: Rig) -> None:
    checked = writes(cluster, lambda: cluster.plan("provision", check=True, **THERE))
    saved = writes(cluster, lambda: cluster.plan("provision", save_to=str(cluster.folder / "plan.json"), **THERE))
    assert checked == saved == []
    assert writes(cluster, lambda: cluster.run("info", **THERE)) == []
    assert writes(cluster, lambda: cluster.provision()) == [], "documents that are files have no status"


def test_a_faulty_object_is_stalled_and_the_other_goes_on(cluster: Rig) -> None:
    wrong = pool("typo", replicas=1)
    wrong["spec"]["template"]["spec"]["requirements"].append({"key": "tgp.io/gpu-type", "operator": "In", "values": ["RTX4099"]})
    cluster.kube("POST", "/apis/tgp.io/v1/namespaces/default/gpunodepools", wrong)
    cluster.reap("autoscale", **THERE)
    path = POOL.replace("mine", "typo")
    assert condition(cluster, "DocumentsValid", path) == ("False", "InvalidDocument")
    assert condition(cluster, "Stalled", path) == ("True", "InvalidDocument") and condition(cluster, "Ready", path) == (
        "False",
        "InvalidDocument",
    )
    told = next(one["message"] for one in status(cluster, path)["conditions"] if one["type"] == "Ready")
    assert "'RTX4099' is not a known GPU model" in told and told.startswith("spec.template.spec.requirements[1].values[0]: ")
    assert condition(cluster, "DocumentsValid") == ("True", "Valid") and status(cluster)["launching"] == 2


def test_a_typing_error_in_one_of_five_pools_stops_that_pool_alone(cluster: Rig) -> None:
    """provision.yml ends with 2, because the plan has a problem; the other four get their machines."""
    names = ("two", "three", "four", "typo")
    for name in names:
        one = pool(name, replicas=1)
        if name == "typo":
            one["spec"]["template"]["spec"]["requirements"].append({"key": "tgp.io/gpu-type", "operator": "In", "values": ["A1O"]})
        cluster.kube("POST", "/apis/tgp.io/v1/namespaces/default/gpunodepools", one)
    plan = provision(cluster)
    assert plan["outcome"] == "partial" and len(plan["launch"]) == 5, (
        "two machines of the first pool, and one of each of the others"
    )
    (problem,) = plan["problems"]
    assert problem.startswith(
        "GPUNodePool default/typo of the cluster: spec.template.spec.requirements[1].values[0]: 'A1O' is not a known"
    )
    valid = {name: condition(cluster, "DocumentsValid", POOL.replace("mine", name)) for name in ("mine", *names)}
    assert valid == {**dict.fromkeys(valid, ("True", "Valid")), "typo": ("False", "InvalidDocument")}
    assert len(cluster.machines()) == 5


def test_a_shortfall_has_its_reason_and_survives_a_reap(cluster: Rig) -> None:
    cluster.kube("PATCH", POOL, {"spec": {"maxHourlyPrice": "0.01"}})
    cluster.reap("autoscale", **THERE)
    assert condition(cluster, "Ready") == ("False", "InsufficientCapacity") and condition(cluster, "Stalled") is None
    assert status(cluster)["observedGeneration"] == 2 and status(cluster)["reason"] == "maxHourlyPrice"
    assert writes(cluster, lambda: cluster.reap(**THERE)) == [], "a run that launches nothing knows no better"
    cluster.kube("PATCH", POOL, {"spec": {"maxHourlyPrice": "3", "limits": {"maxNodes": 2}}})
    cluster.kube("PATCH", CLASS, {"spec": {"limits": {"maxNodes": 1}}})
    cluster.reap("autoscale", **THERE)
    assert condition(cluster, "Stalled") == ("True", "LimitReached") and status(cluster)["reason"] == "limit:maxNodes"


def test_a_request_shows_its_machine(cluster: Rig) -> None:
    talos = cluster.kube("GET", CLASS)["spec"]["talosConfig"]
    spec = {
        "gpuType": "A10",
        "provider": "lambda",
        "maxLifetime": "2h",
        "talosConfig": talos,
        "tailscaleConfig": {"tags": ["tag:gpu"]},
    }
    cluster.kube("DELETE", POOL)
    cluster.kube(
        "POST",
        "/apis/tgp.io/v1/gpurequests",
        {"apiVersion": "tgp.io/v1", "kind": "GPURequest", "metadata": {"name": "one"}, "spec": spec},
    )
    path = "/apis/tgp.io/v1/gpurequests/one"
    provision(cluster)
    assert status(cluster, path)["phase"] == "Pending" and status(cluster, path)["provider"] == "lambda"
    cluster.reap(**THERE)
    found = status(cluster, path)
    claim = cluster.claim()
    assert found["phase"] == "Ready" and found["instanceID"] == claim["instance_id"] and found["nodeName"] == claim["name"]
    assert found["address"] and found["hourlyPrice"] and found["expiryTime"]
    cluster.advance(7300)
    cluster.reap("autoscale", **THERE)
    assert status(cluster, path)["phase"] == "Terminating"
    for _run in range(2):
        cluster.advance(120)
        cluster.reap("autoscale", **THERE)
    assert status(cluster, path)["phase"] == "Completed" and condition(cluster, "Ready", path) == ("True", "Completed")


def test_destroy_shows_what_ends(cluster: Rig) -> None:
    provision(cluster)
    cluster.reap("destroy", all=True, **THERE)
    assert status(cluster)["terminating"] == 2 and condition(cluster, "Ready") == ("False", "MachinesMissing")


@pytest.mark.parametrize("granted", [True, False], ids=["shipped-roles", "without-the-right"])
def test_a_missing_right_is_named_once_and_stops_nothing(cluster: Rig, granted: bool) -> None:
    """As the account of files/rbac.yml: its rights are enough, and one that is missing is told with verb and resource."""
    cluster.kube("POST", "/apis/tgp.io/v1/namespaces/default/gpunodepools", pool("other", replicas=1))
    for manifest in yaml.safe_load_all((ROOT / "files" / "rbac.yml").read_text()):
        if not granted:
            manifest["rules"] = [rule for rule in manifest.get("rules", ()) if "gpunodepools/status" not in rule["resources"]]
        meta = manifest["metadata"]
        if meta["name"] == "tgp-gpu-node-bootstrapper":
            continue  # the sandbox has it
        place = f"namespaces/{meta['namespace']}/" if "namespace" in meta else ""
        group = "/api/v1" if manifest["apiVersion"] == "v1" else f"/apis/{manifest['apiVersion']}"
        cluster.kube("POST", f"{group}/{place}{manifest['kind'].lower()}s", manifest)
    cluster.api.add_token("token-of-the-account-0123456789", "system:serviceaccount:tgp-system:tgp-gpu")
    cluster.api.write_kubeconfig(str(cluster.kubeconfig), URLS["kubernetes"], "token-of-the-account-0123456789")
    plans: list[Json] = []
    sent = [path for path in writes(cluster, lambda: plans.append(provision(cluster))) if "gpunodepools" in path]
    assert len(cluster.machines()) == 3
    if granted:
        assert len(sent) == 2 and plans[0]["problems"] == [] and condition(cluster, "Ready") == ("False", "Launching")
        return
    of_class, of_pools = plans[0]["problems"]
    assert "patch gpunodeclasses/status.tgp.io" in of_class and "patch gpunodepools/status.tgp.io" in of_pools, of_pools
    assert len(sent) == 1 and status(cluster) == BY_DEFAULT


@pytest.mark.parametrize(("times", "written"), [(1, True), (None, False)], ids=["once", "always"])
def test_a_conflict_is_tried_once_more(cluster: Rig, times: int | None, written: bool) -> None:
    cluster.fault("status", "kubernetes", "PATCH", "gpunodepools/mine/status$", status=409, times=times)
    plans: list[Json] = []
    sent = writes(cluster, lambda: plans.append(provision(cluster)))
    assert sent.count(f"{POOL}/status") == 2 and (status(cluster) != BY_DEFAULT) is written and plans[0]["problems"] == []


def test_an_object_that_changes_meanwhile_gets_the_status_of_what_was_read(cluster: Rig) -> None:
    """Another writer is faster: its change stays, and observedGeneration says which spec the status is about."""
    changed = [True]

    def meddle(request: t.Any) -> None:
        if changed and request.method == "PATCH" and request.url.path == f"{POOL}/status":
            changed.clear()
            cluster.kube("PATCH", POOL, {"spec": {"replicas": 1}})

    cluster.watcher = meddle
    provision(cluster)
    cluster.watcher = lambda _request: None
    found = cluster.kube("GET", POOL)
    assert found["spec"]["replicas"] == 1 and found["metadata"]["generation"] == 2
    assert found["status"]["observedGeneration"] == 1 and found["status"]["wanted"] == 2
