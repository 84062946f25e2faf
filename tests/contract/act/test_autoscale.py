# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods ask, machines come and go: runs of autoscale one after the other, against the emulators with their scheduler."""

from __future__ import annotations

import typing as t
from decimal import Decimal

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput

from sandbox import pod_groups
from sandbox.provisioning_requests import DEFINITIONS
from tests.unit.floor.told import ROOT

from .rig import Rig

GPU = "nvidia.com/gpu"
IDLE = 11 * 60


def ask(rig: Rig, name: str, gpus: int = 1, resource: str = GPU, labels: dict[str, str] | None = None, **spec: t.Any) -> None:
    """A pod that wants GPUs, anywhere unless its spec says where. ``pull``: seconds that its image takes; ``notes``: its
    annotations."""
    notes = {**spec.pop("notes", {}), **({"sandbox/pull-seconds": str(spec.pop("pull"))} if "pull" in spec else {})}
    container = {"name": "c", "image": "x", "resources": {"limits": {resource: str(gpus)}}}
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "x", "controller": True}]
    body = {
        "metadata": {"name": name, "ownerReferences": owners, "labels": labels or {}, "annotations": notes},
        "spec": {"tolerations": [{"operator": "Exists"}], "containers": [container], **spec},
    }
    rig.kube("POST", "/api/v1/namespaces/default/pods", body)
    rig.until(lambda: state(rig, name) != ("Pending", ""), "the scheduler has looked at it")


def state(rig: Rig, name: str) -> tuple[str, str]:
    """A pod's phase, and why it is not scheduled."""
    status = rig.kube("GET", f"/api/v1/namespaces/default/pods/{name}")["status"]
    found = [one for one in status.get("conditions") or [] if one["type"] == "PodScheduled" and one["status"] == "False"]
    return status.get("phase", ""), found[0].get("reason", "") if found else ""


def runs(rig: Rig, name: str) -> None:
    rig.until(lambda: state(rig, name)[0] == "Running", f"{name} runs")


def scale(rig: Rig, **params: t.Any) -> dict[str, t.Any]:
    """What autoscale.yml does; the plan's result with those of the steps."""
    plan = rig.plan("autoscale", **params)
    done: dict[str, t.Any] = {**plan, "scale": {}, "joined": {}}
    try:
        names = plan["launch"] + plan["destroy"]
        if names or plan["orphans"]:
            done["scale"] = rig.run("scale", plan["run_id"], names=names, only_named=True, orphans=plan["orphans"])
        if plan["join"]:
            done["joined"] = rig.run("join", plan["run_id"], names=plan["join"], wait=False)
    finally:
        rig.unlock(plan["run_id"])
    return done


def complete(rig: Rig, **params: t.Any) -> None:
    """Runs until one has found the GPUs of every rented machine's Node; one of them lets those in that ask for a certificate."""

    def gpus() -> list[int]:
        rented = [one for name, one in rig.nodes().items() if name.startswith("tgp-")]
        return [int(one["status"].get("allocatable", {}).get(GPU, 0)) for one in rented]

    def again() -> bool:
        there = bool(gpus()) and all(gpus())
        found = scale(rig, **params)
        assert found["launch"] == [] and {one["result"] for one in found["joined"].get("machines", [])} <= {"admitted", "ready"}
        return there

    rig.until(again, "GPUs are there")


def test_L17_a_request_that_its_own_limit_ended_rents_no_other_until_somebody_asks(rig: Rig) -> None:
    spec = {
        "gpuType": "A10",
        "provider": "lambda",
        "maxHourlyPrice": "1.50",
        "maxLifetime": "4h",
        "tailscaleConfig": {"tags": ["tag:gpu"]},
    }
    node_class = next(one for one in rig.documents if one["kind"] == "GPUNodeClass")
    spec["talosConfig"] = node_class["spec"]["talosConfig"]
    rig.documents = [{"apiVersion": "tgp.io/v1", "kind": "GPURequest", "metadata": {"name": "once"}, "spec": spec}]
    assert len(scale(rig)["launch"]) == 1
    complete(rig)
    rig.advance(4 * 3600)
    over = scale(rig)
    assert (len(over["destroy"]), over["launch"]) == (1, []) and rig.machines() == []
    for _timer in range(2):
        after = scale(rig)
        assert (after["launch"], after["destroy"]) == ([], [])
        assert any("GPURequest once has been served" in one for one in rig.warnings[-3:]), rig.warnings
        rig.advance(600)
    assert len(rig.ledger()) == 1
    plan = rig.plan("provision", pools=["once"])
    rig.unlock(plan["run_id"])
    assert len(plan["launch"]) == 1


def test_L17_pod_pending_machine_rented_pod_runs_machine_goes(rig: Rig) -> None:
    ask(rig, "train")
    first = scale(rig)
    (pod,) = first["waiting"]
    assert (pod["pod"], pod["gpus"], pod["reason"]) == ("default/train", 1, "") and pod["machine"] == rig.claim()["name"]
    assert [one["result"] for one in first["scale"]["machines"]] == ["launched"] and first["joined"] == {}

    second = scale(rig)  # it boots: nothing more is rented, and nobody waits for it
    assert second["launch"] == [] and rig.creates() == 1
    assert second["gpus"][-1] | {"pool": ""} == {
        "pool": "", "machines": 0, "wanted": 1, "used": 0, "free": 0, "coming": 1, "waiting": 1
    }  # fmt: skip

    complete(rig)
    scale(rig)
    runs(rig, "train")
    assert rig.creates() == 1
    assert rig.claim()["phase"] == "Ready"

    rig.advance(IDLE)
    assert scale(rig)["destroy"] == [], "it works"
    rig.kube("DELETE", "/api/v1/namespaces/default/pods/train")
    rig.until(lambda: rig.api.request("GET", "/api/v1/namespaces/default/pods/train")[0] == 404, "the pod is gone")
    scale(rig)
    rig.advance(IDLE)
    last = scale(rig)
    assert [one["result"] for one in last["scale"]["machines"]] == ["gone"]
    assert rig.left() == {} and rig.creates() == 1
    rig.check_bill()


def test_B14_a_pod_that_pulls_its_image_keeps_its_machine_which_is_neither_idle_nor_late(rig: Rig) -> None:
    """It takes three quarters of an hour: longer than a node may be idle, and longer than a machine may take to join."""
    ask(rig, "train", pull=2700)
    scale(rig)
    complete(rig)
    scale(rig)
    rig.until(lambda: waits_for(rig, "train") == "ContainerCreating", "the kubelet pulls")
    for _run in range(3):
        rig.advance(IDLE)
        found = scale(rig)
        assert (found["launch"], found["destroy"], found["waiting"], found["problems"]) == ([], [], [], [])
        assert waits_for(rig, "train") == "ContainerCreating" and rig.claim()["phase"] == "Ready" and not rig.claim()["idle_since"]
    rig.advance(IDLE + 300)
    runs(rig, "train")
    assert rig.creates() == 1


def waits_for(rig: Rig, name: str) -> str:
    """What the pod's container waits for."""
    containers = rig.kube("GET", f"/api/v1/namespaces/default/pods/{name}")["status"].get("containerStatuses") or [{}]
    return str(containers[0].get("state", {}).get("waiting", {}).get("reason", ""))


def test_L17_a_pod_that_asks_for_any_vendors_gpu_runs(rig: Rig) -> None:
    ask(rig, "train", resource="tgp.io/gpu")
    assert [one["reason"] for one in scale(rig)["waiting"]] == [""]
    complete(rig)
    scale(rig)
    runs(rig, "train")
    last = scale(rig)
    assert (rig.creates(), last["launch"], last["join"]) == (1, [], [])


def test_L22_a_second_run_writes_nothing(rig: Rig) -> None:
    ask(rig, "train")
    ask(rig, "huge", 64)
    scale(rig)
    complete(rig)
    scale(rig)
    runs(rig, "train")
    scale(rig)
    before = rig.writes()
    again = scale(rig)
    assert rig.writes() == before and not again["changed"]
    assert [(one["pod"], one["reason"]) for one in again["waiting"]] == [("default/huge", "no machine with 64 GPUs")]


def test_I14_check_mode_shows_the_plan_and_writes_nothing(rig: Rig) -> None:
    ask(rig, "train")
    before = rig.writes()
    plan = rig.plan("autoscale", check=True)
    assert rig.writes() == before and len(plan["launch"]) == 1 and plan["changed"]
    assert any("waiting pod" in line for line in rig.lines) and any("default/train" in line for line in rig.lines)


def test_L17_a_pod_that_nobody_can_serve_gets_a_reason_and_no_machine(rig: Rig) -> None:
    ask(rig, "picky", nodeSelector={"team": "red"})
    found = scale(rig)
    assert found["outcome"] == "shortfall" and found["problems"] == [] and rig.creates() == 0
    assert [one["reason"] for one in found["waiting"]] == ["selector team=red"]


def test_B07_volume_and_spread_choose_the_zones_in_which_machines_are_rented(build: t.Callable[..., Rig]) -> None:
    """The emulated scheduler has its own code for these rules: what is rented for the pods runs them."""
    zone = "topology.kubernetes.io/zone"
    offers = [
        {"type": "gpu_1x_a10", "region": region, "stock": 4, "boot": 20} for region in ("us-east-1", "us-south-2", "us-west-1")
    ]
    rig = build(**{"lambda": offers, "machines": []})
    rig.demo_class["limits"] = {"maxNodes": 5, "maxHourlyCost": "20.00"}
    term = {"matchExpressions": [{"key": zone, "operator": "In", "values": ["us-west-1"]}]}
    spec = {"capacity": {"storage": "1Gi"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
    rig.kube("POST", "/api/v1/persistentvolumes", {"metadata": {"name": "pv"}, "spec": spec})
    claim = {"metadata": {"name": "data"}, "spec": {"volumeName": "pv", "accessModes": ["ReadWriteOnce"]}}
    rig.kube("POST", "/api/v1/namespaces/default/persistentvolumeclaims", claim)
    app = {"matchLabels": {"app": "web"}}
    rule = {"topologyKey": zone, "maxSkew": 1, "minDomains": 2, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": app}
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("data", "lost")]
    ask(rig, "db", volumes=volumes[:1])
    ask(rig, "stray", volumes=volumes[1:])
    for name in ("web-0", "web-1"):
        ask(rig, name, labels=app["matchLabels"], topologySpreadConstraints=[rule])
    first = scale(rig)
    assert {one["pod"]: one["reason"] for one in first["waiting"] if one["reason"]} == {
        "default/stray": "persistent volume claim lost does not exist"
    }
    claims = rig.claims()
    machine = {one["pod"].removeprefix("default/"): claims[one["machine"]] for one in first["waiting"] if one["machine"]}
    assert machine["db"]["offer"]["cloud_region"] == "us-west-1"
    assert machine["web-0"]["offer"]["cloud_region"] != machine["web-1"]["offer"]["cloud_region"]
    complete(rig)
    scale(rig)
    for name in ("db", "web-0", "web-1"):
        runs(rig, name)
    assert rig.creates() == len(rig.machines()) and scale(rig)["launch"] == []


def test_L21_own_machines_by_size(rig: Rig) -> None:
    """Pods that no rented machine may serve switch the smallest own machine on that is large enough."""
    rig.document("GPUNodePool", "own")["spec"]["limits"]["maxNodes"] = 2
    ask(rig, "large", 2, nodeSelector={"tgp.io/provider": "webhook"})
    assert scale(rig)["launch"] == ["rack-2"]
    ask(rig, "small", nodeSelector={"tgp.io/provider": "webhook"})
    assert scale(rig)["launch"] == ["rack-1"]
    assert scale(rig)["launch"] == [] and rig.creates() == 0


def test_L21_an_own_machine_that_comes_back_between_two_runs_is_opened_again(rig: Rig) -> None:
    """Its Node is as its last drain left it: closed, although it lacks nothing else."""
    own = rig.document("GPUNodePool", "own")["spec"]
    own["limits"]["maxNodes"] = 1
    rig.provision(pool="own")
    rig.destroy()
    rig.until(lambda: not ready(rig, "rack-1"), "the Node is not Ready any more")
    assert rig.nodes()["rack-1"]["spec"]["unschedulable"]
    own["minNodes"] = 1
    assert scale(rig)["launch"] == ["rack-1"]
    rig.advance(300)
    rig.until(lambda: ready(rig, "rack-1"), "the Node is Ready")
    assert scale(rig)["join"] == ["rack-1"]
    assert rig.claim()["phase"] == "Ready"
    node = rig.nodes()["rack-1"]
    assert not node["spec"].get("unschedulable") and [one["key"] for one in node["spec"]["taints"]] == ["tgp.io/ephemeral"]
    assert "tgp.io/drain-started" not in node["metadata"]["annotations"]


def ready(rig: Rig, name: str) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in rig.nodes()[name]["status"]["conditions"])


def test_L17_launches_and_drains_side_by_side(rig: Rig) -> None:
    """A machine goes although another is being rented, in one run."""
    rig.provision(pool="training")
    scale(rig)
    rig.advance(IDLE)
    rig.document("GPUNodePool", "own")["spec"]["limits"]["maxNodes"] = 1
    ask(rig, "own", nodeSelector={"tgp.io/provider": "webhook"})
    both = scale(rig)
    assert sorted(one["result"] for one in both["scale"]["machines"]) == ["gone", "launched"]


def test_nothing_is_rented_where_no_machine_could_join_and_the_rest_goes_on(rig: Rig) -> None:
    rig.provision(pool="training")
    scale(rig)
    rig.advance(IDLE)
    ask(rig, "own", nodeSelector={"tgp.io/provider": "webhook"})
    found = scale(rig, talos_secrets=None)
    assert found["launch"] == [] and len(found["destroy"]) == 1
    assert "could not join" in found["problems"][0] and "could not join" in found["waiting"][0]["reason"]
    assert rig.left() == {}


@pytest.mark.parametrize("params", [{"pools": ["training"]}, {"nodes": 2}])
def test_what_only_provision_understands_is_refused(rig: Rig, params: dict[str, t.Any]) -> None:
    with pytest.raises(InvalidInput, match="cannot be used in mode autoscale"):
        rig.plan("autoscale", **params)


def test_L16_the_role_takes_the_names_of_the_plan_as_they_stand() -> None:
    """An empty list is no leave to rent for whatever waits: the plan may have refused it."""
    task = next(
        one for one in yaml.safe_load((ROOT / "roles" / "scale" / "tasks" / "main.yml").read_text()) if "tgp.gpu.fleet_scale" in one
    )
    assert task["tgp.gpu.fleet_scale"]["only_named"] is True


def test_L39_a_gang_of_four_with_room_for_two_launches_none_and_with_room_for_four_launches_four(rig: Rig) -> None:
    """As JobSet makes it: pods with its label, which nothing else holds together."""
    rig.training["limits"] = {"maxNodes": 2}
    container = {"name": "c", "image": "x", "resources": {"limits": {GPU: "1"}}}
    for number in range(4):
        meta = {"name": f"worker-{number}", "labels": {"jobset.sigs.k8s.io/jobset-name": "train"}}
        spec = {"tolerations": [{"operator": "Exists"}], "containers": [container], "nodeSelector": {"tgp.io/nodepool": "training"}}
        rig.kube("POST", "/api/v1/namespaces/default/pods", {"metadata": meta, "spec": spec})
    rig.until(lambda: all(state(rig, f"worker-{number}")[1] == "Unschedulable" for number in range(4)), "all wait", 60)
    none = scale(rig)
    assert none["launch"] == [] and rig.creates() == 0
    assert {one["reason"] for one in none["waiting"]} == {"JobSet default/train: room for 2 of 4; limit:pool.maxNodes"}
    rig.training["limits"] = {"maxNodes": 4}
    assert len(scale(rig)["launch"]) == 4 and len(rig.machines()) == 4


def test_L39_a_pod_group_says_how_many_of_its_pods_have_to_fit(rig: Rig) -> None:
    """Room for two of four. No call is made for groups before a pod of one waits, and the kind is listed only where it is served."""
    rig.training["limits"] = {"maxNodes": 2}
    asked: list[str] = []
    rig.watcher = lambda request: asked.append(request.url.path)

    def reasons() -> set[str]:
        asked.clear()
        found = scale(rig)
        assert found["launch"] == [] and rig.creates() == 0
        return {one["reason"] for one in found["waiting"]}

    def calls() -> list[str]:
        return [one for one in asked if one == "/apis" or "podgroups" in one]

    assert reasons() == set() and calls() == []
    for number in range(4):
        ask(rig, f"worker-{number}", labels={pod_groups.LABEL: "train"}, nodeSelector={"tgp.io/nodepool": "training"})
    assert reasons() == {"PodGroup default/train: room for 2 of 4; limit:pool.maxNodes"} and calls() == ["/apis"]
    rig.kube("POST", DEFINITIONS, pod_groups.manifest())
    (missing,) = reasons()
    assert "there is no such PodGroup of scheduling.x-k8s.io" in missing and calls() == ["/apis", pod_groups.ALL]
    rig.kube("POST", pod_groups.path("default"), pod_groups.group("train", 3))
    assert reasons() == {"PodGroup default/train: room for 2 of 3; limit:pool.maxNodes"}
    rig.kube("PATCH", pod_groups.path("default", "train"), {"spec": {"minMember": 2}})
    rig.fault("status", "kubernetes", "GET", "podgroups", status=403, times=None)
    (unknown,) = reasons()
    assert "PodGroups of scheduling.x-k8s.io could not be read" in unknown
    rig.faults.clear()
    assert len(scale(rig)["launch"]) == 2 and len(rig.machines()) == 2


def test_L39_a_gang_of_which_a_create_call_was_refused_gets_the_rest_in_a_later_run(rig: Rig) -> None:
    """The machine that came is kept and counted until then, since offers are blocked for less time than a node may be idle."""
    body = {"error": {"code": "instance-operations/launch/insufficient-capacity", "message": "Not enough capacity."}}
    rig.fault("status", "lambda", "POST", "launch", status=400, body=body, after_calls=1, times=None)
    for number in range(2):
        ask(
            rig,
            f"worker-{number}",
            labels={"jobset.sigs.k8s.io/jobset-name": "train"},
            nodeSelector={"tgp.io/nodepool": "training"},
        )
    assert len(scale(rig)["launch"]) == 2 and len(rig.machines()) == 1
    (came,) = (one.name for one in rig.machines())
    rig.faults.clear()

    def whole() -> bool:
        rig.advance(120)
        assert came not in scale(rig)["destroy"]
        return len(rig.machines()) == 2

    rig.until(whole, "the rest is launched")
    assert came in {one.name for one in rig.machines()} and scale(rig)["launch"] == []


def test_B11_two_teams_on_shared_nodes_one_teams_budget_stops_only_its_launches(build: t.Callable[..., Rig]) -> None:
    """Both work on one node of two GPUs. Then red's money is used up: its next pod waits, blue's gets a machine, and nothing goes."""
    rig = build(**{"lambda": [{"type": "gpu_2x_a6000", "region": "us-south-2", "stock": 4, "boot": 20}]})
    rig.training["maxHourlyPrice"] = "3.00"
    red, blue = {"tgp.io/team": "red"}, {"tgp.io/team": "blue"}
    ask(rig, "red-1", labels=red)
    ask(rig, "blue-1", labels=blue)
    known = {"team": "red", "period": "month", "time_zone": "UTC", "soft_percent": 80}
    rich = {"team_budgets": [{**known, "amount": "100"}]}
    first = scale(rig, **rich)
    assert len(first["launch"]) == 1 and rig.claim()["launched_for"] == [["blue", 1], ["red", 1]]
    complete(rig)
    scale(rig, **rich)
    for name in ("red-1", "blue-1"):
        runs(rig, name)
    rig.advance(3600)
    poor = {"team_budgets": [{**known, "amount": "0.25"}]}
    ask(rig, "blue-2", 2, labels=blue)  # the older one gets the machine from the scheduler
    ask(rig, "red-2", 2, labels=red)
    rig.lines.clear()
    found = scale(rig, **poor)
    assert {one["pod"]: one["reason"] for one in found["waiting"]} == {
        "default/red-2": "limit:budget.team used up: month budget of team red",
        "default/blue-2": "",
    }
    assert (len(found["launch"]), found["destroy"]) == (1, []) and rig.creates() == 2
    assert any("budget_hard" in str(one) and "team red" in str(one) for one in rig.events())
    asked = rig.clock.now()
    (budget,) = rig.run("info", **poor)["spending"]["budgets"]
    assert (budget["scope"], budget["name"], budget["left"], budget["state"]) == ("team", "red", "0.00", "used up")
    assert any("month budget of team red" in line and "used up" in line for line in rig.lines)
    used = {row["name"]: Decimal(row["cost"]) for row in rig.run("report")["report"]["split"]["teams"]}
    between = rig.machines()[0].price_hour * Decimal((rig.clock.now() - asked).total_seconds()) / 3600
    assert abs(used["red"] - Decimal(budget["spent"])) <= Decimal("0.01") + between and used["red"] >= Decimal("0.25")
    complete(rig, **poor)
    scale(rig, **poor)
    runs(rig, "blue-2")
    again = scale(rig, **poor)
    assert (again["launch"], again["destroy"]) == ([], []) and state(rig, "red-2")[0] == "Pending"
    before = rig.writes()
    scale(rig, **poor)
    assert rig.writes() == before
