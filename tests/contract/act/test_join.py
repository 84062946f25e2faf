# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines on their way to being nodes: those that come, those that never do, and what is done about each (L-11, L-13, L-19)."""

from __future__ import annotations

import json
import typing as t
from decimal import Decimal

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import LockLost

from sandbox.vast_life import interrupt

from .rig import Rig, moment

Build = t.Callable[..., Rig]
CHEAP = {"type": "gpu_1x_rtx6000", "region": "us-west-1", "stock": 4, "boot": 20}


def failed(rig: Rig, done: dict[str, t.Any]) -> str:
    """The message of the only machine, which failed and was given back in the same run; checks what every such end leaves."""
    (row,) = done["machines"]
    assert row["result"] == "failed", row
    assert row["message"].endswith("(terminated)"), row
    assert done["outcome"] == "partial"
    assert rig.left() == {}
    (line,) = rig.ledger()
    (machine,) = rig.machines(living=False)
    assert (line["reason"], line["joined"], line["ids"]) == ("FailedJoin", False, [machine.id])
    assert Decimal(line["cost"]) > 0
    rig.check_bill()
    assert any("gpu_1x_rtx6000" in key for key in rig.blocks())
    return str(row["message"])


# ---- those that never come


def test_L11_a_machine_that_its_cloud_took_back_is_given_up_at_once(rig: Rig) -> None:
    rig.behave("mesh_fails")  # it is seen to run, and gets no further
    rig.behave("vanish", seconds=200)
    rig.rent()
    started = rig.clock.now()
    message = failed(rig, rig.join())
    assert message.startswith("instance: lambda calls the machine preempted Lambda took it back")
    assert (rig.clock.now() - started).total_seconds() < 600


def test_L11_a_machine_that_vanishes_from_the_list_is_given_up(rig: Rig) -> None:
    rig.behave("never_boots")
    rig.rent()
    machine = rig.machine()

    def leave(request: httpx.Request) -> None:
        if request.url.path.endswith("/instances") and rig.clock.now() > machine.created and not machine.ended and seen:
            rig.world.release(machine)
            machine.destroyed = machine.ended
        seen.append(request.url.path)

    seen: list[str] = []
    rig.watcher = leave
    done = rig.join()
    assert f"lambda does not list the machine {machine.id} any more" in done["machines"][0]["message"]
    assert rig.left() == {}


def test_L11_a_machine_that_comes_up_broken_is_given_up_before_its_time(rig: Rig) -> None:
    rig.behave("boot_error")
    rig.rent()
    message = failed(rig, rig.join())
    assert message.startswith("instance: lambda calls the machine unhealthy for")
    lived = moment(rig.ledger()[0]["end"]) - rig.machines(living=False)[0].created
    assert 300 <= lived.total_seconds() < 900


def test_L11_a_machine_that_dies_after_its_node_registered_is_given_up_before_its_time(rig: Rig) -> None:
    rig.behave("never_ready")
    rig.behave("dies", seconds=90)
    rig.rent()
    message = failed(rig, rig.join())
    assert message.startswith("node: lambda calls the machine unhealthy for")


@pytest.mark.parametrize(
    "behaviour, words",
    [
        ("never_boots", "instance: the machine boots"),
        ("mesh_fails", "instance: the machine runs and is not in the mesh yet"),
        ("never_ready", "node: Node is not Ready"),
        ("gpu_missing", "ready: 0 of 1 nvidia.com/gpu"),
    ],
)
def test_L11_at_the_deadline_the_step_and_the_reason_are_named(rig: Rig, behaviour: str, words: str) -> None:
    rig.training["registrationTimeout"] = "4m30s"
    rig.behave(behaviour)
    rig.rent()
    started = moment(rig.claim()["launch_started"])
    message = failed(rig, rig.join())
    assert message.startswith(words)
    lived = (moment(rig.ledger()[0]["end"]) - started).total_seconds()
    assert 240 <= lived < 360


def test_L11_one_that_never_comes_does_not_hold_up_the_others(rig: Rig) -> None:
    rig.training["registrationTimeout"] = "5m"
    rig.behave("never_boots", times=1)
    rig.rent(nodes=2)
    done = rig.join()
    assert sorted(one["result"] for one in done["machines"]) == ["failed", "ready"]
    events = {(one["event"], one["name"]): moment(one["time"]) for one in rig.events() if one["kind"] == "progress"}
    joined = next(when for (event, _name), when in events.items() if event == "joined")
    given_up = next(when for (event, _name), when in events.items() if event == "failed")
    assert (given_up - joined).total_seconds() > 60
    assert rig.left() == {"instances": 1, "devices": 1, "nodes": 1, "claims": 1}


def test_L11_the_third_failed_join_within_an_hour_pauses_the_pool(rig: Rig) -> None:
    rig.training["registrationTimeout"] = "2m"
    rig.behave("never_boots")
    rig.rent(nodes=2)
    assert len(rig.join()["problems"]) == 2
    before = rig.plan("provision", pools=["training"], nodes=1, check=True)
    assert [one["action"] for one in before["plan"]] == ["launch"]
    rig.provision()
    after = rig.plan("provision", pools=["training"], nodes=1, check=True)
    assert [one["reason"] for one in after["shortfall"]] == ["paused after failed joins"]
    assert "pool:default/training" in rig.blocks()
    rig.advance(3601)
    later = rig.plan("provision", pools=["training"], nodes=1, check=True)
    assert later["shortfall"] == []
    assert len(rig.ledger()) == 3


def test_L11_failed_joins_that_nobody_waited_for_pause_the_pool_too(rig: Rig) -> None:
    """Found by the clock of reap.yml (or autoscale.yml, which never waits) instead of by a wait."""
    rig.training["registrationTimeout"] = "2m"
    rig.behave("never_boots")
    for nodes in (2, 1):
        assert "pool:default/training" not in rig.blocks()
        rig.rent(nodes=nodes)
        rig.advance(121)
        assert {row["result"] for row in rig.reap()["machines"]} == {"gone"}
    assert [line["reason"] for line in rig.ledger()] == ["FailedJoin"] * 3
    assert "pool:default/training" in rig.blocks()
    after = rig.plan("autoscale", check=True)
    assert not after["launch"]
    provision = rig.plan("provision", pools=["training"], nodes=1, check=True)
    assert [one["reason"] for one in provision["shortfall"]] == ["paused after failed joins"]


def test_L11_a_failed_machine_that_cannot_be_destroyed_now_stays_on_record(rig: Rig) -> None:
    rig.training["registrationTimeout"] = "2m"
    rig.behave("never_boots")
    rig.rent()
    rig.fault("status", "lambda", "POST", "terminate", status=403, times=None)
    (row,) = rig.join()["machines"]
    assert row["result"] == "failed"
    assert "not terminated yet" in row["message"]
    claim = rig.claim()
    assert (claim["deletion"]["reason"], claim["deletion"]["attempts"]) == ("FailedJoin", 1)
    assert rig.ledger() == []
    rig.faults.clear()
    rig.reap()
    assert rig.left() == {}
    assert len(rig.ledger()) == 1


# ---- the price


@pytest.mark.parametrize("bills, result", [("2.10", "ready"), ("2.11", "failed")])
def test_L13_a_price_more_than_five_percent_above_the_limit_is_not_paid(build: Build, bills: str, result: str) -> None:
    rig = build(**{"lambda": [{**CHEAP, "price": "1.90", "bills": bills}]})
    rig.rent()
    assert Decimal(rig.claim()["reserved_price"]) == Decimal("1.90")
    (row,) = rig.join()["machines"]
    assert row["result"] == result, row
    if result == "ready":
        assert Decimal(rig.claim()["price_paid"]) == Decimal("2.10")
        assert rig.reap()["machines"] == []
        return
    assert "the price jumped to $2.11/h" in row["message"]
    assert rig.left() == {}
    (line,) = rig.ledger()
    assert (line["reason"], line["price_hour"]) == ("PriceJump", "2.11")
    rig.check_bill()
    assert len(rig.blocks()) == 1


def test_L13_a_price_that_jumps_when_the_node_is_ready_is_not_paid_on(build: Build) -> None:
    """The last look, after the node was marked as complete, shows it: the machine goes in the same run."""
    rig = build(**{"lambda": [{**CHEAP, "price": "1.90"}]})
    rig.rent()
    machine = rig.machine()

    def jump(request: httpx.Request) -> None:
        if request.method == "PATCH" and request.url.path.endswith(f"/nodes/{machine.name}") and machine.offer.price_hour < 2:
            machine.offer.price_hour = Decimal("2.11")
            rig.advance(6)

    rig.watcher = jump
    (row,) = rig.join()["machines"]
    assert (row["result"], rig.left()) == ("failed", {})
    assert "the price jumped to $2.11/h" in row["message"]
    assert [line["reason"] for line in rig.ledger()] == ["PriceJump"]


# ---- faults on the way


@pytest.mark.parametrize("kind, status", [("status", 500), ("lost_before", 500), ("lost_after", 500)])
def test_L11_a_fault_while_marking_does_not_cost_the_machine(rig: Rig, kind: str, status: int) -> None:
    rig.rent()
    rig.fault(kind, "kubernetes", "PATCH", r"/api/v1/nodes/tgp-", status=status, times=2)
    assert rig.join()["machines"][0]["result"] == "ready"
    node = next(iter(rig.nodes().values()))
    assert "tgp.io/initializing" not in [one["key"] for one in node["spec"]["taints"]]
    assert rig.left() == {"instances": 1, "devices": 1, "nodes": 1, "claims": 1}


def test_L11_a_claim_that_cannot_be_written_does_not_cost_the_machine(rig: Rig) -> None:
    rig.rent()
    rig.fault("status", "kubernetes", "PUT", "configmaps/tgp-claim", status=503, times=4)
    (row,) = rig.join()["machines"]
    assert row["result"] == "ready", row
    assert rig.claim()["phase"] == "Ready"


def test_L11_one_record_that_cannot_be_written_leaves_no_other_machine_behind(rig: Rig) -> None:
    rig.training["registrationTimeout"] = "3m"
    rig.behave("never_boots")
    first, second = rig.rent(nodes=2)["plan"]["launch"]
    rig.fault("status", "kubernetes", "PUT", f"configmaps/tgp-claim-{first}", status=503, times=None)
    rows = {one["name"]: one for one in rig.join()["machines"]}
    assert rows[second]["message"].endswith("(terminated)")
    assert "not terminated yet" in rows[first]["message"]
    assert [one.name for one in rig.machines()] == [first]
    rig.faults.clear()
    rig.reap()  # finds it overdue
    assert rig.left() == {}
    assert {one["name"]: one["reason"] for one in rig.ledger()} == {first: "FailedJoin", second: "FailedJoin"}


def test_L11_a_block_list_that_cannot_be_written_keeps_no_machine(rig: Rig) -> None:
    rig.training["registrationTimeout"] = "2m"
    rig.behave("never_boots")
    rig.rent()
    rig.fault("status", "kubernetes", "", "tgp-state-blocklist", status=500, times=None)
    (row,) = rig.join()["machines"]
    assert row["result"] == "failed" and row["message"].endswith("(terminated)")
    assert any("block list" in one for one in rig.warnings)
    assert rig.left() == {}


@pytest.mark.parametrize(
    "service, path", [("lambda", "/instances"), ("tailscale", "/devices"), ("kubernetes", "certificatesigning")]
)
def test_L11_a_list_that_fails_for_a_while_fails_no_join(rig: Rig, service: str, path: str) -> None:
    rig.rent()
    rig.fault("status", service, "GET", path, status=403, times=5)
    (row,) = rig.join()["machines"]
    assert row["result"] == "ready", row
    assert rig.left() == {"instances": 1, "devices": 1, "nodes": 1, "claims": 1}


def test_L11_a_cloud_that_cannot_be_connected_fails_no_join(rig: Rig) -> None:
    """Its key is gone: the node becomes Ready all the same, and the wait for others is not its business."""
    rig.rent()
    done = rig.run("join", "keyless", lambda_api_key=None)
    rig.unlock("keyless")
    assert [one["result"] for one in done["machines"]] == ["ready"]
    assert rig.claim()["phase"] == "Ready"


def test_L11_an_empty_list_by_mistake_fails_no_join_whose_node_is_ready(rig: Rig) -> None:
    rig.training["registrationTimeout"] = "20m"
    rig.box.machines.timings["gpu"] = 200.0  # the Node is Ready long before its GPUs are there
    rig.rent()
    rig.fault("body", "lambda", "GET", "/instances", body={"data": []}, times=None, after_calls=3)
    (row,) = rig.join()["machines"]
    assert row["result"] == "ready", row
    assert rig.machine().ended is None


def test_L11_a_stale_node_of_the_same_name_is_not_taken_for_the_machine(rig: Rig) -> None:
    rig.training["registrationTimeout"] = "3m"
    plan = rig.plan("provision", pools=["training"], nodes=1)
    (name,) = plan["launch"]
    rig.kube("POST", "/api/v1/nodes", {"metadata": {"name": name}})
    rig.behave("never_boots")
    rig.advance(120)
    rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    (row,) = rig.join()["machines"]
    assert row["result"] == "failed"
    assert "a Node of this name from" in row["message"]
    assert "older than the machine" in row["message"]
    assert [one.ended is None for one in rig.machines(living=False)] == [False]


# ---- those that come


def test_L19_marks_of_a_node_are_exactly_these(rig: Rig) -> None:
    rig.training["template"]["metadata"] = {"labels": {"team": "vision"}, "annotations": {"example.org/owner": "me"}}
    rig.provision()
    machine, claim = rig.machine(), rig.claim()
    node = rig.nodes()[machine.name]
    labels = {key: value for key, value in node["metadata"]["labels"].items() if not key.startswith(("kubernetes.io/", "beta."))}
    assert labels == {
        "tgp.io/nodepool": "training",
        "tgp.io/nodeclass": "demo",
        "tgp.io/provider": "lambda",
        "tgp.io/provisioned": "true",
        "tgp.io/cluster": machine.name.split("-")[1],
        "tgp.io/gpu-type": claim["offer"]["model"],
        "tgp.io/gpu-count": "1",
        "tgp.io/gpu-memory": "24576",
        "nvidia.com/gpu.present": "true",
        "tgp.io/region": claim["offer"]["region"],
        "tgp.io/spot": "false",
        "tgp.io/instance-id": machine.id,
        "node.kubernetes.io/instance-type": "gpu_1x_rtx6000",
        "topology.kubernetes.io/region": "us-west-1",
        "topology.kubernetes.io/zone": "us-west-1",
        "team": "vision",
    }
    annotations = node["metadata"]["annotations"]
    expected = {
        "tgp.io/instance-id": machine.id,
        "tgp.io/price-hour": "0.69",
        "tgp.io/created-at": claim["created"],
        "tgp.io/claim": machine.name,
        "example.org/owner": "me",
    }
    assert {key: value for key, value in annotations.items() if key.startswith(("tgp.io/", "example.org/"))} == expected
    taints = [(one["key"], one.get("value", ""), one["effect"]) for one in node["spec"]["taints"]]
    assert sorted(taints) == [("gpu-node", "true", "NoSchedule"), ("tgp.io/ephemeral", "true", "NoSchedule")]
    assert (claim["node_uid"], claim["phase"]) == (node["metadata"]["uid"], "Ready")


def test_L11_what_let_the_machine_in_is_taken_back(rig: Rig) -> None:
    rig.provision()
    claim = rig.claim()
    assert (claim["token_id"], claim["mesh_key_id"], rig.tokens()) == ("", "", [])
    (device,) = rig.box.tailnet.devices()
    assert claim["mesh_device_id"] in (device.id, device.node_id)
    key = rig.box.tailnet.key(device.key_id)
    assert key is not None and key.revoked is not None


def test_L11_one_whose_record_cannot_be_written_holds_up_no_other(rig: Rig) -> None:
    """Of two machines one was left by a killed run, usable and with its token on record; that it was taken back cannot be noted."""
    rig.provision()
    first = rig.claim()
    path = f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{first['name']}"
    rig.kube("PATCH", path, {"data": {"claim.json": json.dumps({**first, "token_id": "abcdef"})}})
    rig.rent(nodes=2)
    broken = rig.fault("status", "kubernetes", "PUT", f"tgp-claim-{first['name']}$", status=500, times=None)
    done = rig.join()
    assert sorted(one["result"] for one in done["machines"]) == ["ready", "waiting"]
    assert [one["phase"] for one in rig.claims().values()] == ["Ready", "Ready"]
    (problem,) = done["problems"]
    assert problem.startswith(first["name"]) and problem.endswith("The next run of provision.yml tries again.")
    broken.times = 0
    assert [one["result"] for one in rig.join()["machines"]] == ["ready"]
    assert rig.claims()[first["name"]]["token_id"] == ""


def test_I9_a_second_join_has_nothing_to_do(rig: Rig) -> None:
    rig.provision()
    before = rig.writes()
    assert rig.join()["machines"] == []
    plan = rig.plan("provision", pools=["training"], nodes=1)
    rig.unlock(plan["run_id"])
    assert (plan["changed"], plan["plan"], rig.writes()) == (False, [], before)


@pytest.mark.parametrize("gone", [False, True], ids=["there", "taken back"])
def test_L16_what_the_list_shows_late_is_asked_for_by_its_id(build: Build, gone: bool) -> None:
    """Else nobody would know what it costs and since when its GPUs run, until another run sees it listed; an auction may end before."""
    offer = {"gpu": "RTX 3090", "place": "Sweden, SE", "price": "0.20", "vm": True, "boot": 20}
    rig = build(**{"lambda": [], "machines": [], "vast": {"offers": [offer], "list_after": 3600}})
    rig.demo_class["providers"] = [{"name": "vast"}]
    rig.demo_class["instanceRequirements"] = {}
    rig.training.clear()
    rig.training.update({"nodeClassRef": {"kind": "GPUNodeClass", "name": "demo"}, "maxHourlyPrice": "1.00"})
    assert rig.provision()["machines"][0]["result"] == "ready"
    claim, machine = rig.claim(), rig.machine()
    assert Decimal(claim["price_paid"]) == machine.rate().quantize(Decimal("0.000001"))
    assert (moment(claim["launch_started"]) < moment(claim["running_since"]) <= moment(claim["initialized"])) and claim["ip"]
    if gone:
        rig.advance(1200)
        interrupt(rig.world, machine)
    rig.advance(600)
    assert [one["result"] for one in rig.destroy()["machines"]] == ["gone"]
    rig.check_bill(late=12)


def test_L08_a_look_at_what_still_boots_changes_nothing_and_says_so(rig: Rig) -> None:
    rig.behave("never_boots")
    rig.rent()
    done = rig.run("join", "look", wait=False)
    rig.unlock("look")
    assert (done["machines"], done["changed"], done["outcome"]) == ([], False, "ok")


def test_L21_an_own_machine_that_nobody_can_ask_is_waited_for(rig: Rig) -> None:
    """Without a status endpoint only our own calls tell that it is being switched on."""
    for machine in rig.demo_class["providers"][1]["machines"]:
        del machine["statusEndpoint"]
    (row,) = rig.provision(pool="own")["machines"]
    assert row["result"] == "ready", row
    (row,) = rig.destroy()["machines"]
    assert row["result"] == "gone", row
    rig.until(lambda: rig.world.machines["rack-1"].state == "off", "switched off")
    assert list(rig.nodes()) == ["rack-1"]  # own machines keep their Node


def test_L21_an_own_machine_that_is_called_off_while_it_boots_is_waited_for(build: Build) -> None:
    """Its power service knows no more than whether the system answered a while ago: the machine is in the mesh while it is still called off."""
    rig = build(machines=[{"name": "rack-1", "gpus": 1, "boot": 20, "status_lag": 90}])
    (row,) = rig.provision(pool="own")["machines"]
    assert row["result"] == "ready", row
    assert [one.rsplit("/", 1)[1] for one in rig.writes() if one.startswith("webhook POST /rack-1/")] == ["start"]


def test_L21_an_own_machine_that_was_called_off_all_the_time_is_switched_off(build: Build) -> None:
    """No word that it is off ends the switching: it may come up later, and nobody would know of it."""
    rig = build(machines=[{"name": "rack-1", "gpus": 1, "boot": 20, "status_lag": 1e6}])
    rig.behave("never_ready")
    (row,) = rig.provision(pool="own")["machines"]
    assert row["result"] == "failed", row
    assert [one.rsplit("/", 1)[1] for one in rig.writes() if "/rack-1/" in one] == ["start", "stop"]


def test_L21_an_own_machine_that_never_comes_is_switched_off_once_and_left_alone_for_an_hour(rig: Rig) -> None:
    """Fifteen minutes after its call up, as in the worked example."""
    rig.behave("never_ready")
    (row,) = rig.provision(pool="own")["machines"]
    assert row["result"] == "failed", row
    assert [one.rsplit("/", 1)[1] for one in rig.writes() if "/rack-1/" in one] == ["start", "stop"]
    (line,) = rig.ledger()
    assert (line["reason"], line["joined"]) == ("FailedJoin", False) and 900 <= line["seconds"] < 1500  # what a busy machine adds
    for passed, machine in ((0, "rack-2"), (2700, "rack-2"), (901, "rack-1")):
        rig.advance(passed)
        assert rig.plan("provision", pools=["own"], nodes=1, check=True)["launch"] == [machine], passed


# ---- the lock


def test_L08_the_lock_is_kept_alive_through_a_long_wait(build: Build) -> None:
    rig = build(speed=1000)
    rig.training["registrationTimeout"] = "40m"
    rig.behave("never_boots")
    rig.rent()
    renewals: list[t.Any] = []
    rig.watcher = lambda request: (
        renewals.append(rig.clock.now()) if request.method == "PUT" and "leases" in request.url.path else None
    )
    rig.join()
    gaps = [(late - early).total_seconds() for early, late in zip(renewals, renewals[1:], strict=False)]
    assert len(gaps) >= 4
    assert max(gaps) < 700


def test_L08_a_lost_lock_ends_the_wait(rig: Rig) -> None:
    rig.behave("never_boots")
    rig.rent()
    cluster = rig.machine().name.split("-")[1]
    path = f"/apis/coordination.k8s.io/v1/namespaces/tgp-system/leases/tgp-{cluster}"

    def steal(request: httpx.Request) -> None:
        if request.url.path.endswith("/instances") and not stolen:
            stolen.append(rig.kube("PATCH", path, {"spec": {"holderIdentity": "elsewhere/1/other"}}))

    stolen: list[t.Any] = []
    rig.watcher = steal
    with pytest.raises(LockLost):
        rig.join()
    assert rig.machine().ended is None  # it is the other run's business now
    assert rig.claim()["deletion"] is None
