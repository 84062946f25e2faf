# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Deciding with lists that cannot be trusted, beside other runs, and without leave to write (L-8, L-12, I-3, I-14)."""

from __future__ import annotations

import copy
import json
import typing as t

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput, Locked, LockLost, TgpError

from sandbox.world import Machine

from .rig import Rig

DELETIONS = ("destroy", "delete_instance", "delete_node", "delete_device", "delete_key")
UNUSABLE: list[dict[str, t.Any]] = [
    {"kind": "status", "status": 500},
    {"kind": "status", "status": 403},
    {"kind": "body", "body": {"data": {"odd": "shape"}}},
    {"kind": "body", "body": "<html>Please log in</html>"},
    {"kind": "truncate"},
    {"kind": "lost_before"},
]
names = [f"{one['kind']}-{one.get('status', type(one.get('body')).__name__)}" for one in UNUSABLE]


def deletions(plan: dict[str, t.Any]) -> list[str]:
    return [one["name"] for one in plan["plan"] if one["action"] in DELETIONS]


def destroyed(plan: dict[str, t.Any]) -> list[str]:
    """Machines only. A key or a token without a claim opens the door for nobody we know, whatever the lists of machines say (O13)."""
    return [one["name"] for one in plan["plan"] if one["action"] == "destroy"]


def reap(rig: Rig, **params: t.Any) -> dict[str, t.Any]:
    """Plan only."""
    plan = rig.plan("reap", **params)
    rig.unlock(plan["run_id"])
    return plan


def lose_claims(rig: Rig) -> list[str]:
    """Somebody deletes our records by hand."""
    found = list(rig.claims())
    for name in found:
        rig.kube("DELETE", f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{name}")
    return found


# ---- lists that cannot be trusted


@pytest.mark.parametrize("fault", UNUSABLE, ids=names)
@pytest.mark.parametrize("service, path", [("lambda", "/instances$"), ("tailscale", "/devices")])
def test_L12_a_list_that_is_not_usable_deletes_nothing(rig: Rig, service: str, path: str, fault: dict[str, t.Any]) -> None:
    """A machine without a claim, old enough and seen before; a device without a machine. Then one of the lists fails."""
    rig.rent()
    lose_claims(rig)
    lost = rig.box.tailnet.add_device("tgp-" + rig.machine().name.split("-")[1] + "-training-00000", tags=["tag:gpu"])
    rig.box.tailnet.set_online(lost.node_id, False)
    rig.advance(900)
    reap(rig)
    rig.advance(120)
    rig.faults.add({**copy.deepcopy(fault), "service": service, "method": "GET", "path": path, "times": None})
    plan = rig.plan("reap")
    done = rig.run("teardown", plan["run_id"], orphans=plan["orphans"])
    rig.unlock(plan["run_id"])
    about = rig.machine().name if service == "lambda" else lost.hostname
    assert about not in deletions(plan)
    assert about not in [one["name"] for one in done["machines"] if not one["message"].startswith("token:")]
    assert rig.box.tailnet.device(lost.node_id)
    assert any("could not be" in text for text in plan["problems"]) and plan["outcome"] == "partial"


@pytest.mark.parametrize("fault", UNUSABLE[:5], ids=names[:5])
@pytest.mark.parametrize("path", ["/api/v1/nodes", "/configmaps"])
def test_L12_without_nodes_or_claims_a_run_fails_and_does_nothing(rig: Rig, path: str, fault: dict[str, t.Any]) -> None:
    rig.provision()
    rig.advance(3600)
    before = rig.writes()
    rig.faults.add({**copy.deepcopy(fault), "service": "kubernetes", "method": "GET", "path": path, "times": None})
    with pytest.raises(TgpError):
        rig.plan("reap")
    assert rig.writes() == before
    assert rig.machine().ended is None
    rig.faults.clear()
    plan = rig.plan("reap")  # the lock was let go
    rig.unlock(plan["run_id"])


def test_L12_O5_an_empty_list_by_mistake_deletes_no_ready_node(rig: Rig) -> None:
    rig.rent(nodes=2)
    rig.join()
    rig.outlast_list_delay()
    rig.fault("body", "lambda", "GET", "/instances$", body={"data": []}, times=None)
    gone = {"error": {"code": "global/object-does-not-exist", "message": "Specified instance does not exist."}}
    rig.fault("status", "lambda", "GET", "/instances/", status=404, body=gone, times=None)
    for _run in range(3):
        plan = reap(rig)
        assert deletions(plan) == []
        rig.advance(120)
    assert any("its Node is Ready" in text for text in rig.warnings)
    assert plan["problems"]  # the third run fails loudly
    assert len(rig.machines()) == 2


@pytest.mark.parametrize("moment", ["yesterday", "2026-08-21T12:00:00", 7, None])
def test_L12_first_sightings_that_are_not_understood_are_told_and_written_anew(rig: Rig, moment: t.Any) -> None:
    rig.behave("never_boots")
    rig.rent()
    record = {"metadata": {"name": "tgp-state-findings"}, "data": {"state.json": json.dumps({"O1|lambda|x": moment})}}
    rig.kube("POST", "/api/v1/namespaces/tgp-system/configmaps", record)
    plan = rig.plan("reap")
    rig.unlock(plan["run_id"])
    (problem,) = plan["problems"]
    assert plan["outcome"] == "partial" and "tgp-state-findings" in problem and "'O1|lambda|x'" in problem
    assert len(rig.machines()) == 1
    assert rig.plan("reap", check=True)["problems"] == []


def test_L12_O1_needs_age_and_two_sightings(rig: Rig) -> None:
    rig.behave("never_boots")
    rig.rent()
    (name,) = lose_claims(rig)
    machine = rig.machine()
    rig.advance(400)
    assert destroyed(reap(rig)) == []
    assert [key for key in rig.state("findings") if key.startswith("O1")] == [f"O1|lambda|{machine.id}"]
    rig.advance(30)
    assert destroyed(reap(rig)) == []
    rig.advance(601)
    done = rig.reap()
    assert destroyed(done["plan"]) == [name]
    assert [one["result"] for one in done["machines"] if one["name"] == name][0] == "gone"
    assert machine.ended is not None
    (line,) = rig.ledger()
    assert line["reason"] == "Orphan"
    rig.reap()
    assert rig.left() == {}


def test_L12_a_first_sighting_deletes_nothing_however_old_the_machine_is(rig: Rig) -> None:
    rig.behave("never_boots")
    rig.rent()
    lose_claims(rig)
    rig.advance(86400)
    assert destroyed(reap(rig)) == []
    assert rig.machine().ended is None


def test_L12_the_mass_guard_refuses_and_says_so(rig: Rig) -> None:
    """Four of our machines, all of them without a claim: more likely the records are lost than the machines."""
    rig.behave("never_boots")
    rig.demo_class["limits"] = {"maxNodes": 10, "maxHourlyCost": "50.00"}
    rig.rent(nodes=4)
    lose_claims(rig)
    rig.advance(900)
    reap(rig)
    rig.advance(120)
    plan = reap(rig)
    assert destroyed(plan) == []
    assert plan["outcome"] == "guard_refused"
    machines, tokens = plan["problems"]
    assert "4" in machines and "O1)" in machines
    assert "4 of 4 bootstrap tokens" in tokens
    assert len(rig.machines()) == 4
    done = rig.reap(allow_mass_delete=True)
    assert len([one for one in done["machines"] if one["result"] == "gone"]) == 4
    assert rig.machines() == []


def test_L2_a_second_machine_under_a_claims_name_goes(rig: Rig) -> None:
    rig.provision()
    first = rig.machine()
    details = {**copy.deepcopy(first.details), "addresses": ("198.18.9.9", "10.19.9.9")}
    second = Machine("0" * 32, "lambda", first.name, first.name, first.offer, rig.clock.now(), details=details)
    rig.world.rent(second)
    rig.reap()
    rig.until(lambda: second.ended, "the second one is destroyed")
    assert first.ended is None
    assert set(rig.claim()["ids_seen"]) == {first.id, second.id}


# ---- rehearsals


@pytest.mark.parametrize(
    "service, path, kind",
    [
        ("", "^$", "status"),
        ("lambda", "/instances", "status"),
        ("lambda", "/instance-types", "truncate"),
        ("tailscale", "/devices", "lost_before"),
        ("tailscale", "/keys", "status"),
        ("kubernetes", "/nodes", "status"),
    ],
)
def test_I14_a_rehearsal_writes_nothing_also_under_faults(rig: Rig, service: str, path: str, kind: str) -> None:
    rig.rent()
    state = sorted(str(one) for one in (rig.folder / "state").rglob("*"))
    before = rig.writes()
    with rig.world.lock:
        locks = len(rig.world.writes)
    rig.fault(kind, service, "GET", path, status=500, times=None)
    calls: list[tuple[str, dict[str, t.Any]]] = [
        ("plan", {"mode": "provision", "nodes": 3}),
        ("plan", {"mode": "reap"}),
        ("plan", {"mode": "destroy", "all": True}),
        ("launch", {}),
        ("join", {}),
        ("teardown", {}),
        ("unlock", {}),
        ("info", {}),
    ]
    for module, params in calls:
        try:
            rig.run(module, "rehearsal", check=True, **params)
        except TgpError as error:
            assert service, error
    assert rig.writes() == before
    with rig.world.lock:
        assert [one for one in rig.world.writes[locks:] if "selfsubject" not in one[2]] == []
    assert sorted(str(one) for one in (rig.folder / "state").rglob("*")) == state


@pytest.mark.parametrize("odd", [{"kind": "delete_moon"}, {"target": None}, {"cloud": 7}, {"uid": ["x"]}])
def test_leftovers_that_no_plan_returned_are_refused_before_anything_is_done(rig: Rig, odd: dict[str, t.Any]) -> None:
    rig.provision()
    rig.unlock(rig.plan("destroy", all=True)["run_id"])
    orphan = {"kind": "delete_device", "name": "tgp-x", "target": "n1", "uid": "", "reason": "Orphan", "cloud": "", **odd}
    for module in ("teardown", "scale"):
        with pytest.raises(InvalidInput, match=r"orphans\[0\]"):
            rig.run(module, "odd", orphans=[orphan])
    assert len(rig.machines()) == 1


def test_a_mapping_of_numbers_rents_nothing_for_pools_that_are_not_in_it(rig: Rig) -> None:
    """But for their minNodes, which nobody has to ask for."""

    def pools(**params: t.Any) -> list[str]:
        return sorted(
            one["pool"].partition("/")[2]
            for one in rig.plan("provision", check=True, **params)["plan"]
            if one["action"] == "launch"
        )

    assert pools() == ["own", "training"]
    assert pools(nodes={"training": 2}) == ["training", "training"]
    rig.training["minNodes"] = 1
    assert pools(nodes={"own": 1}) == ["own", "training"]
    assert pools(nodes={"own": 1}, pools=["own"]) == ["own"]


def test_I14_a_rehearsed_step_says_what_the_step_will_do(rig: Rig) -> None:
    """Each step by itself, as fleet_plan says it of a run: what is planned now, then what is done."""

    def planned(module: str, **params: t.Any) -> list[tuple[str, str]]:
        done = rig.run(module, "rehearsal", check=True, **params)
        assert done["changed"] is bool(done["machines"]) and done["problems"] == []
        return [(one["name"], one["message"]) for one in done["machines"] if one["result"] == "planned"]

    plan = rig.plan("provision", pools=["training"], nodes=1)
    (name,) = plan["launch"]
    assert planned("launch") == planned("scale") == [(name, "would be rented")] and planned("join") == planned("teardown") == []
    rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    assert (
        planned("join") == [(name, "would be followed until it is usable")]
        and planned("launch") == planned("join", wait=False) == []
    )
    rig.join()
    assert planned("join") == planned("teardown") == []
    rig.unlock(rig.plan("destroy", all=True)["run_id"])
    orphan = {"kind": "delete_device", "name": "tgp-x", "target": "n1", "uid": "", "reason": "Orphan", "cloud": ""}
    assert planned("teardown", orphans=[orphan]) == [
        (name, "would be terminated: Manual"),
        ("tgp-x", "device: would be removed: Orphan"),
    ]
    assert planned("scale") == [(name, "would be terminated: Manual")] and len(rig.machines()) == 1


# ---- other runs


def test_L08_while_another_run_is_at_work_nothing_is_done(rig: Rig) -> None:
    first = rig.plan("provision", pools=["training"], nodes=1)
    before = rig.writes()
    second = rig.plan("provision", pools=["training"], nodes=1, on_lock_busy="skip")
    assert (second["outcome"], second["changed"], second["launch"]) == ("lock_busy", False, [])
    assert first["run_id"] in second["msg"]
    with pytest.raises(Locked):
        rig.plan("provision", pools=["training"], nodes=1, lock_wait=0, on_lock_busy="fail")
    with pytest.raises(Locked):
        rig.run("launch", second["run_id"])
    assert rig.writes() == before
    assert rig.run("launch", first["run_id"])["machines"][0]["result"] == "launched"
    rig.unlock(first["run_id"])
    third = rig.plan("provision", pools=["training"], nodes=1)
    rig.unlock(third["run_id"])
    assert (third["outcome"], rig.creates()) == ("ok", 1)


def test_L08_a_lock_lost_while_deciding_writes_no_more_claims(rig: Rig) -> None:
    def steal(request: httpx.Request) -> None:
        if request.method == "POST" and b"tgp-claim-" in request.content and not stolen:
            stolen.append(request)
            cluster = rig.run("info", check=True) and next(iter(rig.api.request("GET", path)[1]["items"]))["metadata"]["name"]
            rig.kube("PATCH", f"{path}/{cluster}", {"spec": {"holderIdentity": "elsewhere/1/other"}})
            rig.advance(600)

    path = "/apis/coordination.k8s.io/v1/namespaces/tgp-system/leases"
    stolen: list[t.Any] = []
    rig.watcher = steal
    with pytest.raises(LockLost):
        rig.plan("provision", pools=["training"], nodes=3)
    assert len(rig.claims()) == 1
    assert (rig.creates(), rig.machines()) == (0, [])


# ---- what cannot be counted is not zero


@pytest.mark.parametrize(
    "service, path, unknown",
    [("lambda", "/instances$", {"instances"}), ("tailscale", "/devices", {"devices"}), ("tailscale", "/keys", {"keys"})],
)
def test_what_cannot_be_read_is_unknown_and_never_zero(rig: Rig, service: str, path: str, unknown: set[str]) -> None:
    rig.provision()
    rig.fault("status", service, "GET", path, status=403, times=None)
    seen = rig.run("info")
    assert {name for name in ("instances", "devices", "keys", "nodes", "claims") if seen["totals"][name] is None} == unknown
    assert seen["unknown"]
    assert any(f"unknown {word}" in line for line in rig.lines for word in unknown)
    (machine,) = seen["machines"]
    assert machine["name"] == rig.machine().name


def test_info_says_what_there_is_and_what_it_cost(rig: Rig) -> None:
    rig.provision()
    seen = rig.run("info")
    totals = {name: seen["totals"][name] for name in ("instances", "devices", "keys", "nodes", "claims", "price_hour")}
    assert totals == {"instances": 1, "devices": 1, "keys": 0, "nodes": 1, "claims": 1, "price_hour": "0.69"}
    assert (seen["unknown"], seen["changed"], seen["machines"][0]["state"]) == ([], False, "Ready")
    rig.destroy()
    seen = rig.run("info")
    assert (seen["machines"], seen["totals"]["instances"], seen["totals"]["claims"]) == ([], 0, 0)
    assert seen["totals"]["cost"] == seen["totals"]["closed_cost"] == f"{float(rig.ledger()[0]['cost']):.4f}"


@pytest.mark.parametrize("path", ["", "/leases/"])
def test_L08_a_lock_that_cannot_be_let_go_is_a_warning(rig: Rig, path: str) -> None:
    """The cluster is silent when the run ends: what it did is done all the same, and the lock ends with its process."""
    plan = rig.plan("provision", pools=["training"], nodes=1)
    broken = rig.fault("status", "kubernetes", "", path, status=503, times=None)
    assert rig.run("unlock", plan["run_id"])["released"] is False
    (warning,) = [one for one in rig.warnings if "could not be released and ends by itself" in one]
    assert "503" in warning
    broken.times = 0
    rig.unlock(plan["run_id"])
    assert rig.plan("provision", pools=["training"], nodes=1)["outcome"] != "lock_busy"
