# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that a person moves in and out (L-48): made by hand at a provider, at work as a Node, and back again."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import BadShape, InvalidInput, TgpError

from sandbox import strangers
from sandbox.world import Machine

from .rig import Rig, bill, moment
from .test_vultr import build_vultr

NODE = "gpu-box-1"


def by_hand(rig: Rig, cloud: str = "lambda", name: str = "somebodys-box") -> Machine:
    """A machine without a stamp, that runs."""
    machine = strangers.rent(rig.box, cloud, name)
    rig.outlast_list_delay()
    rig.until(lambda: rig.world.machines[machine.id].state not in ("booting", "starting"), "runs")
    return machine


def at_work(rig: Rig, cloud: str = "lambda") -> Machine:
    machine = by_hand(rig, cloud)
    strangers.join(rig.box, machine, NODE)
    rig.pod(NODE)
    return machine


def adopt(rig: Rig, machine: Machine, **more: t.Any) -> dict[str, t.Any]:
    return rig.run(
        "adopt", **{"pool": "training", "provider": machine.cloud, "id": machine.id, "node": NODE, "apply": True, **more}
    )


def release(rig: Rig, name: str, **more: t.Any) -> dict[str, t.Any]:
    return rig.run("release", machine=name, **more)


def test_L48_a_machine_made_by_hand_is_shown_and_then_adopted_with_its_pod(rig: Rig) -> None:
    machine = at_work(rig)
    before = rig.writes()
    shown = adopt(rig, machine, apply=False)
    assert not shown["changed"] and shown["adopted"] == [] and rig.writes() == before
    assert adopt(rig, machine, check=True)["changed"] and rig.writes() == before
    done = adopt(rig, machine)
    assert done["changed"] and done["adopted"] == [shown["machines"][0]["name"]]
    claim = rig.claim()
    assert (claim["instance_id"], claim["node_name"], claim["phase"], claim["pool"]) == (
        machine.id,
        NODE,
        "Ready",
        "default/training",
    )
    node = rig.nodes()[NODE]
    assert node["metadata"]["labels"]["tgp.io/nodepool"] == "training" and machine.name == claim["name"]
    before = rig.writes()
    assert not adopt(rig, machine)["changed"] and rig.writes() == before
    rig.advance(7200)
    rig.reap()
    assert machine.ended is None and rig.kube("GET", "/api/v1/namespaces/default/pods/job")["status"]["phase"] == "Running"


def test_L48_the_bill_begins_with_the_adoption_and_ends_with_the_release(rig: Rig) -> None:
    machine = at_work(rig)
    rig.advance(36_000)
    adopted = rig.clock.now()
    name = adopt(rig, machine)["adopted"][0]
    rig.advance(3600)
    done = release(rig, name)
    released = rig.clock.now()
    assert done == {"changed": True, "objects": [], "machines": [name]}
    assert any("runs on and costs 0.69 $/h" in text and "its owner has to, at lambda" in text for text in rig.warnings)
    (line,) = rig.ledger()
    assert (line["name"], line["reason"], line["ids"]) == (name, "Released", [machine.id])
    assert (
        abs((moment(line["start"]) - adopted).total_seconds()) < 60 and abs((moment(line["end"]) - released).total_seconds()) < 60
    )
    hours = (moment(line["end"]) - moment(line["start"])).total_seconds() / 3600
    assert abs(float(bill([line])) - 0.69 * hours) < 0.02
    assert rig.claims() == {} and machine.ended is None
    before = rig.writes()
    assert not release(rig, name)["changed"] and rig.writes() == before


def test_L48_a_machine_that_is_released_keeps_its_pod_and_loses_our_marks(rig: Rig) -> None:
    machine = at_work(rig)
    name = adopt(rig, machine)["adopted"][0]
    before = rig.writes()
    shown = release(rig, name, check=True)
    assert shown["changed"] and "handed out" in shown["diff"]["after"] and rig.writes() == before
    release(rig, name)
    node = rig.nodes()[NODE]
    assert not [key for key in node["metadata"]["labels"] if key.startswith("tgp.io/")]
    assert not [key for key in node["metadata"].get("annotations", {}) if key.startswith("tgp.io/")]
    assert "tgp.io/ephemeral" not in [taint["key"] for taint in node["spec"].get("taints", [])]
    assert rig.kube("GET", "/api/v1/namespaces/default/pods/job")["status"]["phase"] == "Running"
    assert machine.name == f"ex-{name}"


def survives(rig: Rig, machine: Machine) -> None:
    """Runs of every kind come, long after; the machine is there."""
    for _run in range(3):
        rig.advance(3600)
        rig.reap()
    rig.reap("everything")
    rig.destroy()
    assert machine.ended is None and NODE in rig.nodes()


def test_L48_no_run_ends_a_released_machine(rig: Rig) -> None:
    """Without a pod: it would be idle long ago, and its Node is not Ready at the end."""
    machine = by_hand(rig)
    strangers.join(rig.box, machine, NODE)
    release(rig, adopt(rig, machine)["adopted"][0])
    assert rig.box.kubelets is not None
    rig.box.kubelets.silence(NODE)
    survives(rig, machine)


def test_L48_no_run_ends_a_machine_of_ours_whose_stamp_cannot_be_taken_off(rig: Rig) -> None:
    """Lambda's tags stay for ever, and the Node has the name of a machine of ours."""
    rig.provision()
    machine, name = rig.machine(), rig.claim()["name"]
    release(rig, name)
    assert {one["key"] for one in machine.details["tags"]} >= {"tgp:cluster", "tgp:generation"}
    machine.name = name  # and somebody gives it back its name
    assert rig.box.kubelets is not None
    rig.box.kubelets.silence(name)
    devices = len(rig.box.tailnet.devices())
    for _run in range(3):
        rig.advance(3600)
        rig.reap()
    rig.destroy()
    assert machine.ended is None and name in rig.nodes() and len(rig.box.tailnet.devices()) == devices


def test_L48_a_released_machine_is_adopted_again(rig: Rig) -> None:
    machine = at_work(rig)
    first = adopt(rig, machine)["adopted"][0]
    release(rig, first)
    rig.advance(600)
    second = adopt(rig, machine)["adopted"][0]
    assert rig.claim()["instance_id"] == machine.id and rig.state("released") == {}
    assert not adopt(rig, machine)["changed"]
    rig.destroy(force=True)
    assert machine.ended is not None
    assert first != second and {line["name"] for line in rig.ledger()} == {first, second}


@pytest.mark.parametrize("after", [False, True])
def test_L48_an_adoption_killed_at_any_write_goes_on_and_loses_nothing(build: t.Callable[..., Rig], after: bool) -> None:
    for number in range(1, 12):
        rig = build()
        machine = at_work(rig)
        with rig.killed_at(number, after=after) as cut:
            adopt(rig, machine)
        if cut.seen < number:
            break
        for _run in range(2):
            rig.advance(700)
            rig.reap()
        assert machine.ended is None, number
        adopt(rig, machine)
        assert rig.claim()["instance_id"] == machine.id and machine.name == rig.claim()["name"]
        assert not adopt(rig, machine)["changed"]
        rig.close()
    assert number > 4


@pytest.mark.parametrize("after", [False, True])
def test_L48_a_release_killed_at_any_write_goes_on_and_ends_nothing(build: t.Callable[..., Rig], after: bool) -> None:
    """Once it is on the list of what was handed out, an idle machine is not ended, however often runs come before the release is finished."""
    for number in range(1, 14):
        rig = build()
        machine = by_hand(rig)
        strangers.join(rig.box, machine, NODE)
        name = adopt(rig, machine)["adopted"][0]
        with rig.killed_at(number, after=after) as cut:
            release(rig, name)
        if cut.seen < number:
            break
        if rig.state("released"):
            if rig.claims():  # a provision in between says so, and gives the Node no marks again
                labels = rig.nodes()[NODE]["metadata"].get("labels")
                plan = rig.plan("provision", check=True)
                assert any(
                    f"Its release was cut off: run release.yml -e tgp_machine={name} again." in text for text in plan["problems"]
                )
                rig.join()
                assert rig.nodes()[NODE]["metadata"].get("labels") == labels, number
            for _run in range(3):
                rig.advance(3600)
                rig.reap()
            assert machine.ended is None, number
        release(rig, name)
        assert rig.claims() == {} and len(rig.ledger()) == 1
        assert not release(rig, name)["changed"]
        rig.advance(3600)
        rig.reap()
        assert machine.ended is None and NODE in rig.nodes()
        rig.close()
    assert number > 4


def test_L48_a_stamp_is_set_and_taken_off_where_the_cloud_can(build: t.Callable[..., Rig]) -> None:
    """Vultr: what others wrote beside it stays."""
    rig = build_vultr(build, "kubelet")
    machine = by_hand(rig, "vultr")
    machine.details["tags"] = ["billing=team-a"]
    strangers.join(rig.box, machine, NODE)
    rig.pod(NODE)
    name = adopt(rig, machine)["adopted"][0]
    tags = dict(tag.split("=", 1) for tag in machine.details["tags"])
    generation = rig.state("generation")["generation"]
    assert (tags["tgp:cluster"], tags["tgp:generation"], tags["billing"], machine.name) == (
        rig.cluster_id,
        generation,
        "team-a",
        name,
    )
    assert not adopt(rig, machine)["changed"]
    release(rig, name)
    assert machine.details["tags"] == ["billing=team-a"] and machine.name == f"ex-{name}"


# ---- what is refused


def refused(rig: Rig, machine: Machine, words: str, **more: t.Any) -> None:
    before = rig.writes()
    with pytest.raises(InvalidInput) as caught:
        adopt(rig, machine, **more)
    assert words in str(caught.value), str(caught.value)
    assert set(rig.writes()[len(before) :]) <= {"kubernetes POST /api/v1/namespaces"}  # where the run lock is
    assert rig.claims() == {} and machine.ended is None


def test_L48_what_cannot_be_meant_is_refused(rig: Rig) -> None:
    machine = at_work(rig)
    refused(rig, machine, "lists no machine with this id", id="0920582c7ff041399e34823a0be62549")
    refused(rig, machine, "there is no pool trainig", pool="trainig")
    refused(rig, machine, "there is no Node gpu-box-2", node="gpu-box-2")
    refused(rig, machine, "own machines are not adopted", provider="webhook")
    refused(rig, machine, "not among the providers of the documents", provider="vultr")
    refused(rig, machine, "must be a provider, got 'lamda'", provider="lamda")
    refused(rig, machine, "must be given, too", pool=None)
    refused(rig, machine, "Give one of them", generation="0b6f3c1e-5d0a-4f0e-9a53-3f1d2c4b5a69")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"gpuTypes": ["H100"]}, "gpu type (it is lambda gpu_1x_rtx6000, 1 x QUADRO-RTX6000, us-west, 0.69 $/h)"),
        ({"gpuCount": 2}, "gpu count"),
        ({"regions": ["eu-central"]}, "region"),
        ({"minVcpus": 128}, "vcpus"),
    ],
)
def test_L48_a_machine_that_does_not_fit_the_class_is_refused_with_the_field(rig: Rig, spec: dict[str, t.Any], words: str) -> None:
    machine = at_work(rig)
    rig.demo_class.setdefault("instanceRequirements", {}).update(spec)
    refused(rig, machine, words)


def test_L48_a_price_above_the_pools_and_a_full_class_are_refused(rig: Rig) -> None:
    machine = at_work(rig)
    rig.training["maxHourlyPrice"] = "0.50"
    refused(rig, machine, "maxHourlyPrice")
    rig.training["maxHourlyPrice"] = "2.00"
    rig.demo_class.setdefault("limits", {})["maxHourlyCost"] = "0.10"
    refused(rig, machine, "limit:maxHourlyCost")


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        ({"cluster": "0badcafe", "generation": "x"}, "its stamp is that of cluster 0badcafe"),
        ({"generation": "0b6f3c1e-5d0a-4f0e-9a53-3f1d2c4b5a69"}, "its stamp is that of another record store"),
    ],
)
def test_L48_a_machine_of_others_is_refused(rig: Rig, marks: dict[str, str], words: str) -> None:
    machine = strangers.rent(rig.box, "lambda", "theirs", marks)
    rig.outlast_list_delay()
    rig.until(lambda: machine.state == "active", "runs")
    strangers.join(rig.box, machine, NODE)
    refused(rig, machine, words)


def test_L48_a_node_of_another_pool_or_machine_is_refused(rig: Rig) -> None:
    machine = by_hand(rig)
    strangers.join(rig.box, machine, NODE, {"tgp.io/nodepool": "render", "tgp.io/instance-id": "i-1"})
    refused(rig, machine, "has the label tgp.io/nodepool=render, not training")
    refused(rig, machine, "has the label tgp.io/instance-id=i-1")


def test_L48_a_machine_that_has_a_claim_is_refused(rig: Rig) -> None:
    rig.provision()
    machine, name = rig.machine(), rig.claim()["name"]
    before = rig.writes()
    with pytest.raises(InvalidInput, match=f"it is {name} of pool default/training already"):
        adopt(rig, machine, node=name)
    assert rig.writes() == before


def test_L48_a_node_that_is_not_usable_is_refused(rig: Rig) -> None:
    machine = at_work(rig)
    rig.kube("PATCH", f"/api/v1/nodes/{NODE}/status", {"status": {"allocatable": {"nvidia.com/gpu": "0"}}})
    refused(rig, machine, "is not usable: 0 of 1 nvidia.com/gpu")


def test_L48_what_cannot_be_read_is_refused(rig: Rig) -> None:
    machine = at_work(rig)
    rig.fault("status", "lambda", "GET", "/instances$", status=500, times=None)
    refused(rig, machine, "it is unknown whether it may be adopted: the machines of lambda could not be listed")
    rig.faults.clear()
    name = adopt(rig, machine)["adopted"][0]
    rig.fault("status", "lambda", "GET", "/instances$", status=500, times=None)
    with pytest.raises(InvalidInput, match="could not be listed"):
        release(rig, name)
    assert rig.state("released") == {} and rig.claim()["name"] == name


def test_L48_a_damaged_list_of_released_machines_stops_every_run(rig: Rig) -> None:
    rig.provision()
    name = rig.claim()["name"]
    release(rig, name)
    rig.kube("PATCH", "/api/v1/namespaces/tgp-system/configmaps/tgp-state-released", {"data": {"state.json": '{"lambda/x": 7}'}})
    with pytest.raises(BadShape, match="tgp-state-released"):
        rig.plan("reap")
    assert rig.machine().ended is None


def test_L48_a_taint_that_evicts_is_refused_while_pods_run_there(rig: Rig) -> None:
    machine = at_work(rig)
    rig.training["template"]["spec"]["taints"] = [{"key": "gpu-node", "value": "true", "effect": "NoExecute"}]
    refused(rig, machine, "would evict the pods of Node gpu-box-1")


def test_L48_a_machine_without_a_node_has_the_pools_time_to_join(rig: Rig) -> None:
    machine = by_hand(rig)
    name = adopt(rig, machine, node=None)["adopted"][0]
    assert rig.claim()["phase"] == "Joining" and any("has no Node" in text and name in text for text in rig.warnings)
    rig.reap()
    assert machine.ended is None
    release(rig, name)
    rig.advance(7200)
    rig.reap()
    assert machine.ended is None and rig.claims() == {}


def test_L48_what_is_being_terminated_is_not_released(rig: Rig) -> None:
    machine = by_hand(rig)
    strangers.join(rig.box, machine, NODE)
    rig.pod(NODE, budget=True)
    name = adopt(rig, machine)["adopted"][0]
    rig.destroy()
    assert machine.ended is None and rig.claim()["deletion"]
    with pytest.raises(InvalidInput, match="its end has begun"):
        release(rig, name)
    assert rig.state("released") == {}


def test_L48_names_of_no_machine_are_refused(rig: Rig) -> None:
    with pytest.raises(TgpError, match="must be the name of a machine of this cluster"):
        release(rig, "tgp-00000000-training-00000")
