# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines of a tgp-operator installation are adopted (L-49): by its GPURequests, and by the Nodes of its GPUNodePools."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput, TgpError

from sandbox import strangers, tgp_operator
from sandbox.world import Machine

from .rig import Rig, moment
from .test_guard import OF_CLOUD
from .test_spot import Build, only

WORDS = {"lambda": "lambdalabs"}  # what tgp-operator calls a provider
POD = "/api/v1/namespaces/default/pods/job"


def rent(rig: Rig, cloud: str, name: str) -> Machine:
    machine = strangers.rent(rig.box, cloud, name)
    rig.outlast_list_delay()
    rig.until(lambda: rig.world.machines[machine.id].state not in ("booting", "starting"), "runs")
    return machine


def by_request(rig: Rig, cloud: str = "lambda", name: str = "my-gpu-workload", **more: t.Any) -> Machine:
    """A machine of a GPURequest, at work as the Node whose name it gave it."""
    machine = rent(rig, cloud, "tgp-instance-1753962480")
    strangers.join(rig.box, machine, tgp_operator.node_of_request(name))
    tgp_operator.request(rig.kube, name, WORDS.get(cloud, cloud), machine.id, **more)
    return machine


def by_pool(rig: Rig, cloud: str, node: str, *, marks: bool = True) -> Machine:
    """A machine of a GPUNodePool. Its Node names it, or has the labels of its configuration alone."""
    machine = rent(rig, cloud, "tgp-training-1753962480" if cloud == "gcp" else "tgp-NVIDIA_A16")
    labels, notes = tgp_operator.marks_of_node("training", cloud, machine.id) if marks else ({}, {})
    strangers.join(rig.box, machine, node, {**tgp_operator.labels_of_kubelet("training"), **labels})
    if notes:
        rig.kube("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"annotations": notes}})
    return machine


def imported(rig: Rig, **more: t.Any) -> dict[str, t.Any]:
    return rig.run("adopt", **{"from_operator": True, "pool": "training", "apply": True, **more})


def installed(rig: Rig, *, requests: bool = True, replicas: int = 0) -> Rig:
    tgp_operator.install(rig.kube, requests=requests, replicas=replicas)
    return rig


def adopted_with_its_pod(rig: Rig, machine: Machine, node: str) -> None:
    """Shown, adopted, and again; machine, pod and Node are the same as before, and the operator's objects are."""
    rig.pod(node)
    before, writes = (rig.nodes()[node]["metadata"]["uid"], rig.kube("GET", POD)["metadata"]["uid"]), rig.writes()
    shown = imported(rig, apply=False)
    assert not shown["changed"] and shown["adopted"] == [] and rig.writes() == writes
    assert imported(rig, check=True)["changed"] and rig.writes() == writes
    done = imported(rig)
    assert done["changed"] and done["adopted"] == [shown["machines"][0]["name"]] and done["not_adopted"] == []
    claim = rig.claim()
    assert (claim["instance_id"], claim["node_name"], claim["phase"], claim["pool"]) == (
        machine.id,
        node,
        "Ready",
        "default/training",
    )
    writes = rig.writes()
    again = imported(rig)
    assert not again["changed"] and again["not_adopted"] == [] and rig.writes() == writes
    assert before == (rig.nodes()[node]["metadata"]["uid"], rig.kube("GET", POD)["metadata"]["uid"])
    rig.advance(7200)
    rig.reap()
    assert machine.ended is None and rig.kube("GET", POD)["status"]["phase"] == "Running"


# ---- each provider that both have


@pytest.mark.parametrize("cloud", ["lambda", "paperspace", "vast"])
def test_L49_a_machine_of_a_gpurequest_is_adopted(build: Build, cloud: str) -> None:
    rig = installed(OF_CLOUD[cloud](build))
    machine = by_request(rig, cloud)
    adopted_with_its_pod(rig, machine, "tgp-node-my-gpu-workload")
    assert machine.name == rig.claim()["name"]


def test_L49_a_machine_of_a_gpurequest_at_runpod_stays_with_its_reason(build: Build) -> None:
    rig = installed(only(build(runpod={"offers": [{"type": "NVIDIA A40", "region": "CA-MTL-1", "stock": 1}]}), "lambda"))
    rig.demo_class["providers"].append({"name": "runpod"})
    machine = by_request(rig, "runpod")
    before = rig.writes()
    done = imported(rig)
    assert not done["changed"] and rig.claims() == {} and machine.ended is None
    assert "neither the name nor the stamp of a machine that runs can be changed" in done["not_adopted"][0]["reason"]
    assert set(rig.writes()[len(before) :]) <= {"kubernetes POST /api/v1/namespaces"}


@pytest.mark.parametrize("cloud", ["vultr", "gcp"])
def test_L49_a_machine_of_a_gpunodepool_is_adopted_by_the_marks_of_its_node(build: Build, cloud: str) -> None:
    """At Google the id is in the annotation alone: with its slash it is no value of a label."""
    rig = installed(OF_CLOUD[cloud](build), requests=False)
    tgp_operator.pool(rig.kube, "training")
    machine = by_pool(rig, cloud, "tgp-training-0a1b2c3d")
    adopted_with_its_pod(rig, machine, "tgp-training-0a1b2c3d")
    pool = rig.kube("GET", "/apis/tgp.io/v1/namespaces/default/gpunodepools/training")
    assert pool["metadata"]["finalizers"] == [tgp_operator.POOL_FINALIZER]


@pytest.mark.parametrize("cloud", ["vultr", "gcp"])
def test_L49_a_node_that_names_no_machine_is_found_by_its_address(build: Build, cloud: str) -> None:
    """The kubelet registers under the host name of its provider, with the labels of the machine configuration alone."""
    rig = installed(OF_CLOUD[cloud](build), requests=False)
    machine = by_pool(rig, cloud, "talos-7f3-k2p", marks=False)
    adopted_with_its_pod(rig, machine, "talos-7f3-k2p")


def test_L49_a_node_without_a_kubelet_gives_way_to_that_of_the_kubelet(build: Build) -> None:
    rig = installed(OF_CLOUD["vultr"](build), requests=False)
    machine = by_pool(rig, "vultr", "talos-7f3-k2p", marks=False)
    labels, notes = tgp_operator.marks_of_node("training", "vultr", machine.id)
    name = tgp_operator.node_of_pool("training", machine.id)
    meta = {"name": name, "labels": labels, "annotations": notes}
    rig.kube("POST", "/api/v1/nodes", {"metadata": meta, "spec": {"unschedulable": True}})
    done = imported(rig)
    assert [one["node"] for one in done["machines"]] == ["talos-7f3-k2p"] and done["not_adopted"] == []
    assert rig.claim()["node_name"] == "talos-7f3-k2p" and name in rig.nodes()
    writes = rig.writes()
    assert not imported(rig)["changed"] and rig.writes() == writes


# ---- the bill, and what the controller of tgp-operator does


def test_L49_the_bill_begins_with_the_import(rig: Rig) -> None:
    installed(rig)
    by_request(rig)
    rig.advance(36_000)
    moment_of_import = rig.clock.now()
    imported(rig)
    rig.advance(3600)
    rig.destroy(force=True)
    (line,) = rig.ledger()
    assert abs((moment(line["start"]) - moment_of_import).total_seconds()) < 60


def test_L49_nothing_is_adopted_while_the_controller_runs(rig: Rig) -> None:
    installed(rig, replicas=1)
    machine = by_request(rig)
    shown = imported(rig, apply=False)
    assert len(shown["machines"]) == 1 and any("--replicas=0" in text for text in rig.warnings)
    for check in (True, False):
        with pytest.raises(InvalidInput) as caught:
            imported(rig, check=check)
        assert f"kubectl -n tgp-system scale deployment {tgp_operator.DEPLOYMENT} --replicas=0" in str(caught.value)
    assert rig.claims() == {} and machine.ended is None
    tgp_operator.scale(rig.kube, 0)
    rig.until(lambda: not operator_pods(rig), "its pods are gone")
    assert imported(rig)["changed"]


def operator_pods(rig: Rig) -> list[t.Any]:
    return list(rig.kube("GET", "/api/v1/pods?labelSelector=app.kubernetes.io%2Fname%3Dtgp-operator")["items"])


def test_L49_a_pod_of_the_controller_that_ends_late_is_waited_for(rig: Rig) -> None:
    installed(rig)
    by_request(rig)
    meta = {"name": "tgp-operator-controller-manager-x", "labels": {"app.kubernetes.io/name": "tgp-operator"}}
    rig.kube(
        "POST", "/api/v1/namespaces/default/pods", {"metadata": meta, "spec": {"containers": [{"name": "manager", "image": "x"}]}}
    )
    with pytest.raises(InvalidInput, match="controller-manager-x still runs"):
        imported(rig)
    assert rig.claims() == {}


def test_L49_a_controller_that_cannot_be_looked_for_stops_the_import(rig: Rig) -> None:
    installed(rig)
    by_request(rig)
    rig.fault("status", "kubernetes", "GET", "/apis/apps/v1/deployments", status=403, times=None)
    with pytest.raises(TgpError, match="/apis/apps/v1/deployments was answered 403"):
        imported(rig)
    assert rig.claims() == {}


def test_L49_what_its_controller_does_to_adopted_machines_is_what_the_warning_says(build: Build) -> None:
    """Against advice it runs again: a deleted GPURequest ends the machine, a deleted GPUNodePool deletes pod and Node."""
    rig = installed(build())
    machine = by_request(rig)
    imported(rig)
    assert any("GPURequest my-gpu-workload" in text and "Do not start its controller" in text for text in rig.warnings)
    ended: list[str] = []
    tgp_operator.end_request(rig.kube, "my-gpu-workload", ended.append)
    assert ended == [machine.id]
    rig.close()
    rig = installed(OF_CLOUD["vultr"](build), requests=False)
    tgp_operator.pool(rig.kube, "training")
    by_pool(rig, "vultr", "tgp-training-0a1b2c3d")
    imported(rig)
    assert any("GPUNodePool default/training" in text for text in rig.warnings)
    tgp_operator.end_pool(rig.kube, "training")
    assert "tgp-training-0a1b2c3d" not in rig.nodes()


def test_L49_its_objects_are_removed_without_the_controller_and_the_machine_runs_on(rig: Rig) -> None:
    """The steps of docs/how_to/moving.md."""
    installed(rig)
    machine = by_request(rig)
    rig.pod("tgp-node-my-gpu-workload")
    imported(rig)
    path = "/apis/tgp.io/v1/gpurequests/my-gpu-workload"
    rig.kube("PATCH", path, {"metadata": {"finalizers": None}})
    rig.kube("DELETE", path)
    again = imported(rig)
    assert not again["changed"] and [one["id"] for one in again["machines"]] == [machine.id]
    rig.reap()
    assert machine.ended is None and rig.kube("GET", POD)["status"]["phase"] == "Running"


# ---- what is not adopted


def reasons(rig: Rig, **more: t.Any) -> dict[str, str]:
    """By object, of an import that writes nothing."""
    before = rig.writes()
    done = imported(rig, **more)
    assert not done["changed"] and rig.claims() == {}
    assert set(rig.writes()[len(before) :]) <= {"kubernetes POST /api/v1/namespaces"}
    return {one["source"]: one["reason"] for one in done["not_adopted"]}


def test_L49_a_faulty_object_is_a_row_with_its_reason_and_the_others_are_adopted(rig: Rig) -> None:
    installed(rig)
    machine = by_request(rig)
    tgp_operator.request(rig.kube, "a-pending", "lambdalabs", "", phase="Provisioning")
    tgp_operator.request(rig.kube, "b-unknown", "scaleway", "i-1")
    tgp_operator.request(rig.kube, "c-gone", "lambdalabs", "0920582c7ff041399e34823a0be62549")
    tgp_operator.request(rig.kube, "d-ending", "lambdalabs", "i-2", phase="Terminating")
    tgp_operator.request(rig.kube, "e-deleted", "lambdalabs", "i-3")
    rig.kube("DELETE", "/apis/tgp.io/v1/gpurequests/e-deleted")
    tgp_operator.request(rig.kube, "z-twice", "lambdalabs", machine.id)
    done = imported(rig)
    assert [one["id"] for one in done["machines"]] == [machine.id] and len(rig.claims()) == 1
    found = {one["source"].split()[1]: one["reason"] for one in done["not_adopted"]}
    for name, words in {
        "a-pending": "it has no machine yet (phase Provisioning)",
        "b-unknown": "the provider scaleway is unknown here",
        "c-gone": "lambda lists no machine with this id",
        "d-ending": "its phase is Terminating",
        "e-deleted": "being deleted",
        "z-twice": "another GPURequest names this machine, too",
    }.items():
        assert words in found.pop(name)
    assert found == {}
    assert any("not adopted: the provider scaleway is unknown here" in line for line in rig.lines)


def test_L49_a_pool_that_is_unknown_and_one_that_is_not_given(rig: Rig) -> None:
    installed(rig)
    by_request(rig)
    assert "there is no pool trainig" in reasons(rig, pool="trainig")["GPURequest my-gpu-workload"]
    assert "names no pool" in reasons(rig, pool=None)["GPURequest my-gpu-workload"]


def test_L49_a_node_of_a_pool_without_a_document_stays(build: Build) -> None:
    rig = installed(OF_CLOUD["vultr"](build), requests=False)
    machine = rent(rig, "vultr", "tgp-NVIDIA_A16")
    strangers.join(rig.box, machine, "talos-7f3-k2p", tgp_operator.labels_of_kubelet("render"))
    assert "there is no pool render" in reasons(rig)["Node talos-7f3-k2p"]


def test_L49_a_pool_that_is_being_deleted_keeps_its_nodes_out(build: Build) -> None:
    rig = installed(OF_CLOUD["vultr"](build), requests=False)
    tgp_operator.pool(rig.kube, "training")
    by_pool(rig, "vultr", "tgp-training-0a1b2c3d")
    rig.kube("DELETE", "/apis/tgp.io/v1/namespaces/default/gpunodepools/training")
    assert "GPUNodePool training is being deleted" in reasons(rig)["Node tgp-training-0a1b2c3d"]


def test_L49_a_node_whose_machine_nobody_knows_stays(build: Build) -> None:
    rig = installed(OF_CLOUD["vultr"](build), requests=False)
    machine = by_pool(rig, "vultr", "talos-7f3-k2p", marks=False)
    machine.ip = "203.0.113.250"
    assert "no machine of the providers has its name or its address" in reasons(rig)["Node talos-7f3-k2p"]


def test_L49_a_machine_that_no_object_names_and_one_without_a_node_are_told(rig: Rig) -> None:
    """tgp-operator loses machines whose Node it cannot create; they cost money."""
    installed(rig)
    machine = rent(rig, "lambda", "tgp-instance-1753962480")
    (found,) = reasons(rig).values()
    assert "its name is one that tgp-operator gives, and no object names it" in found
    tgp_operator.request(rig.kube, "my-gpu-workload", "lambdalabs", machine.id)
    (found,) = reasons(rig).values()
    assert "no Node of the cluster runs on it" in found and machine.ended is None


def test_L49_our_own_machines_and_requests_are_not_those_of_tgp_operator(rig: Rig) -> None:
    installed(rig)
    rig.provision()
    done = imported(rig)
    assert (done["changed"], done["machines"], done["not_adopted"]) == (False, [], [])


def test_L49_a_machine_that_was_handed_out_is_not_adopted_by_itself(rig: Rig) -> None:
    installed(rig)
    by_request(rig)
    rig.run("release", machine=imported(rig)["adopted"][0])
    assert "it was handed out" in reasons(rig)["GPURequest my-gpu-workload"]


def test_L49_a_list_that_cannot_be_read_adopts_nothing(rig: Rig) -> None:
    installed(rig)
    by_request(rig)
    rig.fault("status", "lambda", "GET", "/instances$", status=500, times=None)
    assert "could not be listed" in reasons(rig)["GPURequest my-gpu-workload"]


def test_L49_a_cluster_without_tgp_operator_has_nothing_to_import(rig: Rig) -> None:
    assert reasons(rig) == {} and any("no machine of tgp-operator" in line for line in rig.lines)


def test_L49_one_machine_cannot_be_meant_at_the_same_time(rig: Rig) -> None:
    for option in ("generation", "provider", "id", "node"):
        with pytest.raises(InvalidInput, match="does not belong to it"):
            imported(rig, **{option: "x"})


# ---- killed


@pytest.mark.parametrize("after", [False, True])
def test_L49_an_import_killed_at_any_write_goes_on(build: Build, after: bool) -> None:
    """Two machines; what is recorded is ours, what is not runs on."""
    for number in range(1, 20):
        rig = installed(build())
        machines = [by_request(rig, name=name) for name in ("one", "two")]
        for name in ("one", "two"):
            rig.pod(tgp_operator.node_of_request(name), f"job-{name}")
        with rig.killed_at(number, after=after) as cut:
            imported(rig)
        if cut.seen < number:
            break
        rig.reap()
        assert not [one for one in machines if one.ended], number
        assert len(imported(rig)["machines"]) == 2
        assert {one["instance_id"] for one in rig.claims().values()} == {one.id for one in machines}
        assert not imported(rig)["changed"]
        rig.close()
    assert number > 7
