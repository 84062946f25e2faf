# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Giving machines back when something is in the way: nothing is lost, nothing is deleted too early, nothing is paid for twice (L-10)."""

from __future__ import annotations

import copy
import json
import re
import typing as t

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import LockLost
from ansible_collections.tgp.gpu.plugins.module_utils.operations.teardown import slots, teardown

from sandbox.world import Machine

from .rig import DESTROY, Rig, bill, moment

Build = t.Callable[..., Rig]


def only(done: dict[str, t.Any]) -> tuple[str, str]:
    (row,) = done["machines"]
    return row["result"], row["message"]


def settled(rig: Rig, late: int = 1) -> dict[str, t.Any]:
    """Everything is gone, and the books have one line, as high as the cloud's own bill."""
    assert rig.left() == {}
    (line,) = rig.ledger()
    rig.check_bill(late)
    return line


# ---- the order


def test_L10_the_order_of_a_teardown(rig: Rig) -> None:
    rig.provision()
    machine, claim = rig.machine(), rig.claim()
    rig.pod(machine.name)
    before = len(rig.writes())
    assert only(rig.destroy())[0] == "gone"
    settled(rig)
    steps = [
        ("cordon", rf"kubernetes PATCH /api/v1/nodes/{machine.name}$"),
        ("evict", r"kubernetes POST /api/v1/namespaces/default/pods/job/eviction$"),
        ("destroy", rf"lambda POST .*{DESTROY}$"),
        ("device", r"tailscale DELETE .*/device/"),
        ("node", rf"kubernetes DELETE /api/v1/nodes/{machine.name}$"),
        ("ledger", r"kubernetes (POST|PATCH) .*/configmaps(/tgp-ledger.*)?$"),
        ("claim", rf"kubernetes DELETE .*/configmaps/tgp-claim-{claim['name']}$"),
    ]
    order = [word for line in rig.writes()[before:] for word, pattern in steps if re.search(pattern, line)]
    first = list(dict.fromkeys(order))
    assert [one for one in first if one != "ledger"] == ["cordon", "evict", "destroy", "device", "node", "claim"]
    assert first.index("ledger") < first.index("claim")


def test_L10_key_and_token_go_before_the_claim(rig: Rig) -> None:
    """A machine that never joined still holds what would let somebody in."""
    rig.behave("never_boots")
    rig.rent()
    before = len(rig.writes())
    assert only(rig.destroy())[0] == "gone"
    settled(rig)
    found = [line for line in rig.writes()[before:] if " DELETE " in line or DESTROY in line]
    kinds = [re.sub(r"[^ ]*/", "", line) for line in found]
    assert DESTROY.rpartition("/")[2] in kinds[0]
    assert "/keys/" in found[1]
    assert "/bootstrap-token-" in found[2].replace("secrets/", "/")
    assert "/tgp-claim-" in found[-1]


def test_I6_the_node_is_not_deleted_before_the_machine_is_gone(rig: Rig) -> None:
    """The cloud says "terminating" for a while: the Node stays until the machine is out of the list."""
    rig.provision()
    machine = rig.machine()
    seen: list[str | None] = []

    def watch(request: httpx.Request) -> None:
        if request.method == "DELETE" and "/nodes/" in request.url.path:
            seen.append(machine.state)
            assert machine.ended is not None

    rig.watcher = watch
    rig.destroy()
    assert seen == ["terminated"]
    settled(rig)


# ---- dying in the middle


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("number", range(1, 19, 2))
def test_L10_a_run_that_dies_while_giving_back_is_continued(build: Build, number: int, after: bool) -> None:
    rig = build(speed=400)
    rig.provision()
    rig.pod(rig.machine().name)
    with rig.killed_at(number, after=after):
        plan = rig.plan("destroy", all=True, run_id="dies")
        rig.run("teardown", plan["run_id"])
    rig.unlock("dies")
    rig.destroy()
    settled(rig, late=5)


@pytest.mark.parametrize(("number", "noted"), [(3, False), (4, True)], ids=["before its call is noted", "before its call is sent"])
def test_L10_work_that_comes_while_no_run_goes_on_is_not_taken_along(rig: Rig, number: int, noted: bool) -> None:
    """A run drains an idle node and is killed before it deletes the machine. An hour later a pod that tolerates every taint is there."""
    rig.provision()
    rig.advance(1300)
    rig.reap()
    rig.advance(700)
    plan = rig.plan("reap")
    assert plan["destroy"]
    machine = rig.machine()
    with rig.killed_at(number, after=False):  # cordon, phase Terminating, the destroy call on record, the call
        rig.run("teardown", plan["run_id"])
    rig.unlock(plan["run_id"])
    assert rig.claim()["phase"] == "Terminating" and bool(rig.claim()["deletion"]["started"]) is noted and machine.ended is None
    rig.advance(3600)
    rig.pod(machine.name)
    rig.reap()
    before = rig.writes()
    done = rig.reap()
    assert only(done) == ("in_use", "kept: pod default/job came after the drain") and machine.ended is None
    assert rig.writes() == before and not done["changed"] and done["outcome"] == "ok", "a second run writes nothing"
    (row,) = [one for one in done["plan"]["plan"] if one["name"] == machine.name]
    assert row["detail"] == "pod default/job came after the drain; it is deleted when that has ended"
    rig.kube("DELETE", "/api/v1/namespaces/default/pods/job")
    rig.advance(60)
    assert only(rig.reap())[0] == "gone" and settled(rig)["reason"] == "Empty"


def test_L10_work_that_comes_between_drain_and_deletion_is_not_taken_along(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that tolerates every taint takes the GPU that the drain has freed."""
    rig.provision()
    rig.advance(1300)
    rig.reap()
    rig.advance(700)
    machine, usual = rig.machine(), teardown._Teardown._terminating

    def taken(self: t.Any) -> t.Any:
        ended = usual(self)
        rig.pod(machine.name)
        return ended

    monkeypatch.setattr(teardown._Teardown, "_terminating", taken)
    assert only(rig.reap()) == ("in_use", "kept: pod default/job came after the drain") and machine.ended is None
    monkeypatch.undo()
    assert only(rig.reap())[0] == "in_use" and machine.ended is None
    rig.kube("DELETE", "/api/v1/namespaces/default/pods/job")
    rig.advance(60)
    assert only(rig.reap())[0] == "gone" and settled(rig)["reason"] == "Empty"


# ---- what the cloud may answer


def test_L10_destroy_is_asked_again_until_it_is_gone(rig: Rig) -> None:
    """Three runs, five minutes apart, as in the rule's example; the bill runs until the cloud's own ends."""
    rig.provision()
    machine = rig.machine()
    broken = rig.fault("status", "lambda", "POST", DESTROY, status=500, times=None)
    assert only(rig.destroy())[0] == "pending"
    first = rig.claim()["deletion"]
    assert (first["attempts"], rig.claim()["phase"]) == (1, "Terminating")
    assert "500" in first["last_error"]
    rig.advance(180)
    (row,) = rig.reap()["machines"]
    assert row["result"] == "pending"
    second = rig.claim()["deletion"]
    assert (second["attempts"], second["started"]) == (2, first["started"])
    assert rig.machine() is machine
    assert rig.claim()["name"] in rig.nodes()  # nothing else is touched before the machine is gone
    broken.times = 0
    rig.advance(180)
    assert only(rig.reap())[0] == "gone"
    line = settled(rig)
    assert machine.ended is not None
    assert abs((moment(line["end"]) - machine.ended).total_seconds()) < 60


def test_L10_a_destroy_that_is_pending_for_long_raises_an_alarm(rig: Rig) -> None:
    """It is raised from the sixteenth minute on, by each run, says what is true of the world, and ends with the machine."""

    def alarms() -> list[str]:
        found = [text for text in rig.warnings if "ALARM" in text]
        rig.warnings.clear()
        return found

    rig.provision()
    machine = rig.machine()
    broken = rig.fault("status", "lambda", "POST", DESTROY, status=500, times=None)
    rig.destroy()
    started = moment(rig.claim()["deletion"]["started"])
    rig.advance(600)
    rig.reap()
    assert (rig.clock.now() - started).total_seconds() < 900 and alarms() == []
    for _run in range(2):
        rig.advance(905)
        done = rig.reap()
        result, why = only(done)
        (alarm,) = alarms()
        assert (result, alarm) == ("pending", f"ALARM: {machine.name} (lambda {machine.id}) still exists: {why}") and "500" in why
        assert machine.ended is None and any(machine.name in text for text in done["problems"])
    broken.times = 0
    rig.advance(180)
    assert only(rig.reap())[0] == "gone" and alarms() == []
    settled(rig)


def test_L10_no_alarm_says_that_a_machine_exists_which_is_gone(rig: Rig) -> None:
    """Only its device is in the way; that costs nothing."""
    rig.provision()
    rig.fault("status", "tailscale", "DELETE", "/device/", status=403, body={"message": "no"}, times=None)
    assert only(rig.destroy())[0] == "pending"
    rig.advance(905)
    done = rig.reap()
    assert only(done)[0] == "pending" and done["problems"]
    assert rig.machines() == [] and not [text for text in rig.warnings if "ALARM" in text]


@pytest.mark.parametrize("status", [401, 403])
def test_L10_a_refused_key_is_an_alarm_at_once(rig: Rig, status: int) -> None:
    rig.provision()
    body = {"error": {"code": "global/invalid-api-key", "message": "API key was invalid."}}
    rig.fault("status", "lambda", "POST", DESTROY, status=status, body=body, times=None)
    assert only(rig.destroy())[0] == "pending"
    assert len([text for text in rig.warnings if "ALARM" in text]) == 1
    assert sum(DESTROY in one for one in rig.writes()) == 1
    assert rig.claim()["phase"] == "Terminating"


def test_L10_a_refused_key_stops_the_cloud_for_this_run(rig: Rig) -> None:
    """With many machines the account is not hammered with a key that it does not take."""
    rig.rent(nodes=3)
    rig.join()
    body = {"error": {"code": "global/invalid-api-key", "message": "API key was invalid."}}
    rig.fault("status", "lambda", "POST", DESTROY, status=401, body=body, times=1)
    done = rig.destroy()
    assert "pending" in {one["result"] for one in done["machines"]}
    rig.reap()
    assert rig.left() == {}
    assert len(rig.ledger()) == 3


def test_L10_not_found_is_success(rig: Rig) -> None:
    rig.provision()
    machine = rig.machine()
    body = {"error": {"code": "global/object-does-not-exist", "message": "Specified instance does not exist."}}

    def leave(request: httpx.Request) -> None:
        if request.url.path.endswith(DESTROY) and not machine.ended:
            rig.world.release(machine)
            machine.destroyed = machine.ended

    rig.watcher = leave
    rig.fault("status", "lambda", "POST", DESTROY, status=404, body=body)
    assert only(rig.destroy())[0] == "gone"
    assert rig.left() == {}
    assert len(rig.ledger()) == 1


def test_L10_a_wrong_address_is_not_taken_for_gone(rig: Rig) -> None:
    """A 404 without the cloud's own code is a proxy's, not an answer about the machine."""
    rig.provision()
    rig.fault("status", "lambda", "POST", DESTROY, status=404, body="<html>not here</html>", times=None)
    assert only(rig.destroy())[0] == "pending"
    assert rig.machine().ended is None
    assert len(rig.claims()) == 1


def test_L10_patience_is_given_when_it_is_asked_for(rig: Rig) -> None:
    rig.provision()
    rig.fault("status", "lambda", "POST", DESTROY, status=429, headers={"retry-after": "20"}, times=2)
    started = rig.clock.now()
    assert only(rig.destroy())[0] == "gone"
    assert (rig.clock.now() - started).total_seconds() >= 40
    settled(rig)


@pytest.mark.parametrize("kind", ["lost_before", "lost_after", "status_after"])
def test_L10_a_lost_answer_to_destroy_does_no_harm(rig: Rig, kind: str) -> None:
    rig.provision()
    rig.fault(kind, "lambda", "POST", DESTROY, status=502)
    assert only(rig.destroy())[0] == "gone"
    settled(rig, late=3)


def test_L10_a_list_that_fails_never_counts_as_gone(rig: Rig) -> None:
    """Destroy seems to succeed, and nobody can say what became of the machine: it stays on record."""
    rig.provision()
    machine = rig.machine()
    rig.fault("body", "lambda", "POST", DESTROY, body={"data": {"terminated_instances": []}}, times=None)
    broken = rig.fault("status", "lambda", "GET", "/instances", status=403, times=None)
    plan = rig.plan("destroy", all=True)
    done = rig.run("teardown", plan["run_id"])
    rig.unlock(plan["run_id"])
    assert only(done)[0] == "pending"
    assert (machine.ended, len(rig.claims()), machine.name in rig.nodes()) == (None, 1, True)
    broken.times = 0
    rig.fault("body", "lambda", "GET", "/instances$", body={"data": []}, times=None)
    assert only(rig.reap())[0] == "pending"  # an empty list against the word of the machine's own record
    assert (machine.ended, len(rig.claims())) == (None, 1)
    rig.faults.clear()
    assert only(rig.reap())[0] == "gone"
    settled(rig)


@pytest.mark.parametrize(
    "service, path",
    [
        ("tailscale", "/device/"),
        ("kubernetes", "/api/v1/nodes/tgp-"),
        ("kubernetes", "/configmaps/tgp-claim"),
        ("tailscale", "/keys/"),
    ],
)
def test_L10_whatever_cannot_be_deleted_is_deleted_by_the_next_run(rig: Rig, service: str, path: str) -> None:
    if "keys" in path:
        rig.behave("never_boots")
        rig.rent()
    else:
        rig.provision()
    rig.fault("status", service, "DELETE", path, status=403, body={"message": "no"}, times=1)
    assert only(rig.destroy())[0] == "pending"
    assert rig.machines() == []
    end = rig.claim()["gone_since"]
    rig.advance(600)
    assert only(rig.reap())[0] == "gone"
    assert settled(rig)["end"] == end  # nothing is billed while only our own orphans are in the way


def test_L10_a_mesh_that_cannot_be_opened_keeps_no_machine(rig: Rig) -> None:
    """Its credential is gone: the machine costs money and goes, its device and its key wait for a run that has one."""
    rig.provision()
    without = {"tailscale_oauth_client_id": None, "tailscale_oauth_client_secret": None}
    plan = rig.plan("destroy", all=True, **without)
    result, message = only(rig.run("teardown", plan["run_id"], **without))
    rig.unlock(plan["run_id"])
    assert (result, len(rig.machines())) == ("pending", 0)
    assert "mesh device is not: There is no credential for the tailnet" in message
    end = rig.claim()["gone_since"]
    rig.advance(600)
    assert only(rig.reap())[0] == "gone"
    assert settled(rig)["end"] == end


def test_L10_volumes_that_cannot_be_seen_are_waited_for_like_others(rig: Rig) -> None:
    rig.provision()
    rig.fault("status", "kubernetes", "GET", "volumeattachments", status=403, times=None)
    before = rig.clock.now()
    assert only(rig.destroy())[0] == "gone"
    assert (rig.clock.now() - before).total_seconds() >= 120
    (warning,) = [one for one in rig.warnings if "volumes still attached after 120 s: unknown" in one]
    assert "volumeattachments" in warning
    settled(rig)


def test_L10_one_that_hangs_does_not_hold_up_the_others(rig: Rig) -> None:
    first, _second, _third = rig.rent(nodes=3)["plan"]["launch"]
    rig.join()
    node = f"/api/v1/nodes/{first}$"
    rig.fault("status", "kubernetes", "DELETE", node, status=403, body={"message": "no"}, times=None)
    done = rig.destroy()
    assert sorted(one["result"] for one in done["machines"]) == ["gone", "gone", "pending"]
    assert (rig.machines(), list(rig.claims())) == ([], [first])


def test_L10_a_record_that_cannot_be_written_hides_nothing_of_the_others(rig: Rig) -> None:
    first, second = rig.rent(nodes=2)["plan"]["launch"]
    rig.join()
    plan = rig.plan("destroy", all=True)
    rig.fault("status", "kubernetes", "PUT", f"configmaps/tgp-claim-{first}", status=503, times=None)
    done = rig.run("teardown", plan["run_id"])
    rig.unlock(plan["run_id"])
    assert {one["name"]: one["result"] for one in done["machines"]} == {first: "pending", second: "gone"}
    assert [one.name for one in rig.machines()] == [first]  # nothing is destroyed that is not on record
    rig.faults.clear()
    rig.reap()
    assert rig.left() == {}


def test_L02_a_create_call_that_may_still_show_its_effect_is_not_closed(rig: Rig) -> None:
    """The run died with the create call on its way, and the cloud lists late: giving back waits until it must have shown."""
    plan = rig.plan("provision", pools=["training"], nodes=1)
    with rig.killed_at(6, after=True):  # key, list of tokens (twice), token, record, create
        rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    machine, claim = rig.machine(), rig.claim()
    assert (claim["instance_id"], bool(claim["launch_started"])) == ("", True)
    late = rig.fault("body", "lambda", "GET", "/instances$", body={"data": []}, times=None)
    assert only(rig.destroy())[0] == "pending"
    late.times = 0
    assert only(rig.reap())[0] == "gone"
    assert machine.ended is not None
    settled(rig)


# ---- whose machine it is


def test_I3_only_what_is_ours_is_touched(rig: Rig) -> None:
    """Machines of others in the same account, with a foreign and with a free name, and their devices."""
    rig.provision()
    ours = rig.machine()
    for number, name in enumerate(("my-workstation", "tgp-ffffffff-training-0k3zq")):
        details = {**copy.deepcopy(ours.details), "addresses": (f"198.18.7.{number}", f"10.19.7.{number}"), "tags": []}
        rig.world.rent(Machine(f"{number:032x}", "lambda", name, name, ours.offer, rig.clock.now(), details=details))
        rig.box.tailnet.set_online(rig.box.tailnet.add_device(name, tags=["tag:gpu"]).node_id, False)
    done = rig.destroy()
    assert [(one["name"], one["result"]) for one in done["machines"]] == [(ours.name, "gone")]
    rig.advance(7200)
    rig.reap()
    rig.advance(120)
    rig.reap()
    assert sorted(one.name for one in rig.machines()) == ["my-workstation", "tgp-ffffffff-training-0k3zq"]


@pytest.mark.parametrize(
    "says, result",
    [
        ({"connectedToControl": True}, "kept: it came online"),
        ({"isExternal": True}, "kept: nobody says whether it is online"),
        ({"connectedToControl": False}, "Orphan"),
    ],
)
def test_L12_O9_a_device_goes_only_while_it_is_said_to_be_offline(rig: Rig, says: dict[str, bool], result: str) -> None:
    """The plan saw it offline; what the mesh says now counts."""
    rig.provision()
    (device,) = rig.box.tailnet.devices()
    body = {"id": device.id, "nodeId": device.node_id, "hostname": "x", "name": "x.example.ts.net", "addresses": [], **says}
    rig.fault("body", "tailscale", "GET", "/device/", body=body, times=None)
    orphan = {"kind": "delete_device", "name": "x", "target": device.node_id, "uid": "", "reason": "Orphan", "cloud": ""}
    done, goes = rig.run("teardown", "x", only_named=True, orphans=[orphan]), result == "Orphan"
    assert only(done) == ("removed" if goes else "left", f"device: {result}")
    assert (len(rig.box.tailnet.devices()), done["changed"], done["outcome"]) == (1 - goes, goes, "changed" if goes else "ok")


def test_I3_a_name_that_is_not_there_is_a_problem_and_no_deed(rig: Rig) -> None:
    rig.provision()
    before = rig.writes()
    plan = rig.plan("destroy", names=["my-workstation"])
    rig.unlock(plan["run_id"])
    assert plan["problems"] == ["There is no machine named my-workstation."]
    assert (plan["destroy"], rig.writes()) == ([], before)


def test_L10_a_cloud_is_not_asked_about_what_a_refusal_left_at_another(rig: Rig) -> None:
    """Refused by Vast, rented at Lambda: an id that this cloud cannot have must not stand before its own machine's end."""
    rig.rent()
    claim = rig.claim()
    place = f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{claim['name']}"
    refused = {**claim["attempts"][0], "offer": "vast/7", "result": "refused", "error_class": "conflict", "instance_id": "2800123"}
    edited = {**claim, "attempts": [refused, *claim["attempts"]], "ids_seen": ["2800123", *claim["ids_seen"]]}
    record = rig.kube("GET", place)
    rig.kube("PUT", place, {**record, "data": {"claim.json": json.dumps(edited)}})
    rig.fault("status", "lambda", "GET", "/instances/2800123", status=400, times=None)
    asked: list[bytes] = []
    rig.watcher = lambda request: (
        asked.append(request.url.raw_path + request.content) if request.url.host == "lambda.test" else None
    )
    assert only(rig.destroy())[0] == "gone"
    assert asked and not any(b"2800123" in one for one in asked)
    assert rig.left() == {}


def test_L10_what_lived_unlisted_is_billed_until_it_was_destroyed(rig: Rig) -> None:
    """Its cloud lists nothing for an hour, while its Node is Ready: since then it is missing, and costs on."""
    rig.provision()
    rig.outlast_list_delay()
    rig.fault("body", "lambda", "GET", "/instances$", body={"data": []}, times=None)
    gone = {"error": {"code": "global/object-does-not-exist", "message": "Specified instance does not exist."}}
    rig.fault("status", "lambda", "GET", "/instances/", status=404, body=gone, times=None)
    rig.reap()
    assert rig.claim()["gone_since"] is not None
    rig.advance(3600)
    assert only(rig.destroy())[0] == "gone"
    rig.faults.clear()
    settled(rig)


@pytest.mark.parametrize("slow", [1, 2, 3])
def test_L10_one_answer_as_slow_as_the_whole_wait_does_not_end_it(rig: Rig, slow: int) -> None:
    """Two minutes and more for one look at the cloud that says whether the machine is gone: the next looks are made all the same."""
    rig.provision()
    asked: list[str] = []

    def answer_late(request: httpx.Request) -> None:
        if request.url.host == "lambda.test":
            asked.append(request.method)
            if "POST" in asked and asked[asked.index("POST") :].count("GET") == slow and request.method == "GET":
                rig.clock.advance(180)

    rig.watcher = answer_late
    assert only(rig.destroy()) == ("gone", "Manual")
    settled(rig, late=4)


# ---- draining


def idle_node(rig: Rig, **disruption: t.Any) -> str:
    """A node that reap.yml wants to give back: idle for longer than its pool allows."""
    rig.training.setdefault("disruption", {}).update(disruption)
    rig.provision()
    rig.advance(601)
    rig.reap()
    rig.advance(601)
    return rig.machine().name


def hold_log(rig: Rig, name: str) -> None:
    """A pod on the node that does not count as work, under a budget that never lets it go."""
    pod = {
        "metadata": {
            "name": "log", "namespace": "kube-system", "labels": {"app": "log"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "x", "controller": True}],
        },
        "spec": {"nodeName": name, "tolerations": [{"operator": "Exists"}], "containers": [{"name": "c", "image": "x"}]},
    }  # fmt: skip
    rig.kube("POST", "/api/v1/namespaces/kube-system/pods", pod)
    rig.until(
        lambda: rig.kube("GET", "/api/v1/namespaces/kube-system/pods/log")["status"].get("phase") == "Running", "the pod runs"
    )
    budget = {"metadata": {"name": "log"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "log"}}}}
    rig.kube("POST", "/apis/policy/v1/namespaces/kube-system/poddisruptionbudgets", budget)


def test_L9_a_pod_that_comes_meanwhile_keeps_the_node(rig: Rig) -> None:
    name = idle_node(rig)
    plan = rig.plan("reap")
    assert plan["destroy"] == [name]
    rig.pod(name)
    done = rig.run("teardown", plan["run_id"])
    rig.unlock(plan["run_id"])
    assert only(done)[0] == "kept"
    claim = rig.claim()
    assert (claim["phase"], claim["deletion"], claim["idle_since"]) == ("Ready", None, None)
    assert (rig.machine().ended, rig.nodes()[name]["spec"].get("unschedulable", False)) == (None, False)


def test_L9_a_blocked_voluntary_drain_is_undone_and_tried_later(rig: Rig) -> None:
    """A pod that does not count as work, under a budget that never lets it go; then the pauses 15 and 30 minutes."""
    rig.training["drainTimeout"] = "30s"
    name = idle_node(rig)
    hold_log(rig, name)

    result, message = only(rig.reap())
    assert (result, "log" in message) == ("kept", True)
    claim = rig.claim()
    pause = (moment(claim["blocked_until"]) - rig.clock.now()).total_seconds()
    assert (claim["phase"], claim["deletion"], claim["blocked_times"]) == ("Ready", None, 1)
    assert 800 < pause <= 900
    node = rig.nodes()[name]
    assert not node["spec"].get("unschedulable")
    assert [one["key"] for one in node["spec"]["taints"] if one["key"] == "tgp.io/disrupted"] == []
    assert "tgp.io/drain-started" not in node["metadata"]["annotations"]
    assert rig.reap()["machines"] == []  # not again before the pause is over
    rig.advance(901)
    assert only(rig.reap())[0] == "kept"
    claim = rig.claim()
    assert claim["blocked_times"] == 2
    assert 1700 < (moment(claim["blocked_until"]) - rig.clock.now()).total_seconds() <= 1800
    rig.kube("DELETE", "/apis/policy/v1/namespaces/kube-system/poddisruptionbudgets/log")
    rig.advance(1801)
    assert only(rig.reap())[0] == "gone"
    settled(rig)


def test_L9_what_was_asked_for_by_force_is_not_forgotten_when_its_pods_cannot_be_read(rig: Rig) -> None:
    rig.provision()
    rig.pod(rig.machine().name)
    plan = rig.plan("destroy", all=True, force=True)
    rig.fault("status", "kubernetes", "GET", "/api/v1/pods", status=403, times=None)
    done = rig.run("teardown", plan["run_id"])
    rig.unlock(plan["run_id"])
    rig.faults.clear()
    assert only(done)[0] == "pending" and "403 Forbidden" in done["problems"][0]
    assert rig.claim()["deletion"]["force"]
    assert only(rig.reap())[0] == "gone"


def test_L9_a_node_whose_marks_could_not_be_taken_off_is_opened_by_the_next_run(rig: Rig) -> None:
    """The drain was given up, and at that moment the API server refused: with the record gone, too, it would stay closed for ever."""
    rig.training["drainTimeout"] = "30s"
    name = idle_node(rig)
    hold_log(rig, name)

    def refuse(request: httpx.Request) -> None:
        if request.url.path.endswith("/eviction"):
            rig.watcher = lambda _request: None
            rig.fault("status", "kubernetes", "PATCH", f"/nodes/{name}", status=500, times=None)

    plan = rig.plan("reap")
    rig.watcher = refuse
    done = rig.run("teardown", plan["run_id"])
    rig.unlock(plan["run_id"])
    rig.faults.clear()
    assert only(done)[0] == "pending" and rig.nodes()[name]["spec"]["unschedulable"]
    rig.training["disruption"] = {"consolidationPolicy": "Never"}
    rig.reap()
    assert not rig.nodes()[name]["spec"].get("unschedulable") and rig.claim()["deletion"] is None


def test_L9_a_person_is_told_what_is_in_the_way_and_may_force_it(rig: Rig) -> None:
    rig.training["drainTimeout"] = "30s"
    rig.provision()
    name = rig.machine().name
    rig.pod(name, budget=True)
    done = rig.destroy()
    result, message = only(done)
    assert (result, "job" in message) == ("pending", True)
    assert done["problems"]
    assert rig.machine().ended is None
    assert only(rig.destroy(force=True))[0] == "gone"
    settled(rig)


def test_L10_a_slow_drain_holds_up_no_machine_without_pods(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "_DRAINING", 1)
    rig.training["drainTimeout"] = "10m"
    rig.provision(nodes=3)
    busy, *empty = sorted(rig.nodes())
    rig.pod(busy, budget=True)
    began = rig.clock.now()
    results = {one["name"]: one["result"] for one in rig.destroy()["machines"]}
    assert results == {busy: "pending", **dict.fromkeys(empty, "gone")}
    ends = {line["name"]: (moment(line["end"]) - began).total_seconds() for line in rig.ledger()}
    assert sorted(ends) == empty and max(ends.values()) < 300


def test_S1_25_a_node_asked_to_terminate_goes_at_once(rig: Rig) -> None:
    rig.provision(nodes=2)
    asked, other = sorted(rig.nodes())
    rig.pod(asked)
    rig.kube("PATCH", f"/api/v1/nodes/{asked}", {"metadata": {"annotations": {"tgp.io/terminate": "soon"}}})
    assert rig.reap()["machines"] == [], "no other value counts"
    rig.kube("PATCH", f"/api/v1/nodes/{asked}", {"metadata": {"annotations": {"tgp.io/terminate": "now"}}})
    assert only(rig.reap())[0] == "gone"
    assert [one.name for one in rig.machines()] == [other] and sorted(rig.nodes()) == [other]
    (line,) = rig.ledger()
    assert (line["name"], line["reason"]) == (asked, "Manual")


# ---- own machines


def test_L21_an_own_machine_keeps_its_node_and_comes_back_usable(rig: Rig) -> None:
    rig.provision(pool="own")
    machine = rig.world.machines["rack-1"]
    uid = rig.nodes()["rack-1"]["metadata"]["uid"]
    assert only(rig.destroy())[0] == "gone"
    rig.until(lambda: machine.state == "off", "it is switched off")
    assert rig.left() == {}
    node = rig.nodes()["rack-1"]
    assert node["metadata"]["uid"] == uid
    assert node["spec"]["unschedulable"]
    rig.advance(120)
    rig.until(lambda: ready(rig, "rack-1") != "True", "the cluster notices")
    (row,) = rig.provision(pool="own")["machines"]
    assert row["result"] == "ready", row
    node = rig.nodes()["rack-1"]
    assert not node["spec"].get("unschedulable")
    assert not [one for one in node["spec"].get("taints", []) if one["key"] in ("tgp.io/disrupted", "tgp.io/initializing")]
    rig.destroy()
    assert rig.left() == {}
    assert len(rig.ledger()) == 2


def test_S2_03_an_own_machine_without_work_is_switched_off(rig: Rig) -> None:
    rig.provision(pool="own")
    machine = rig.world.machines["rack-1"]
    rig.pod("rack-1")
    rig.advance(1800)
    assert rig.reap()["machines"] == [] and machine.state == "on", "it works"
    rig.kube("DELETE", "/api/v1/namespaces/default/pods/job")
    assert rig.reap()["machines"] == [] and machine.state == "on", "idle from now on"
    rig.advance(601)
    assert only(rig.reap())[0] == "gone"
    rig.until(lambda: machine.state == "off", "it is switched off")
    assert rig.left() == {}


def ready(rig: Rig, name: str) -> str:
    conditions = rig.nodes()[name].get("status", {}).get("conditions", [])
    return next((str(one["status"]) for one in conditions if one["type"] == "Ready"), "")


def test_L21_a_power_service_that_is_down_keeps_the_claim(rig: Rig) -> None:
    rig.provision(pool="own")
    rig.fault("status", "webhook", "POST", "/rack-1/stop", status=503, times=None)
    assert only(rig.destroy())[0] == "pending"
    assert rig.world.machines["rack-1"].state == "on"
    rig.faults.clear()
    assert only(rig.reap())[0] == "gone"
    assert rig.left() == {}
    assert bill(rig.ledger()) == 0


# ---- the lock


def test_L08_a_lost_lock_ends_the_teardown_before_the_next_destroy(rig: Rig) -> None:
    rig.rent(nodes=2)
    rig.join()
    plan = rig.plan("destroy", all=True)
    path = f"/apis/coordination.k8s.io/v1/namespaces/tgp-system/leases/tgp-{rig.machines()[0].name.split('-')[1]}"

    def steal(request: httpx.Request) -> None:
        if request.method == "PATCH" and "/nodes/" in request.url.path and not stolen:
            stolen.append(rig.kube("PATCH", path, {"spec": {"holderIdentity": "elsewhere/1/other"}}))
            rig.advance(600)

    stolen: list[t.Any] = []
    rig.watcher = steal
    with pytest.raises(LockLost):
        rig.run("teardown", plan["run_id"])
    assert len(rig.machines()) == 2
    assert sum(DESTROY in one for one in rig.writes()) == 0


def test_L08_a_lost_lock_is_noticed_before_anything_else_is_deleted(rig: Rig) -> None:
    """The Lease is taken away while the machine goes: its device, Node and record are the other run's."""
    rig.provision()
    name = rig.machine().name
    path = f"/apis/coordination.k8s.io/v1/namespaces/tgp-system/leases/tgp-{name.split('-')[1]}"
    plan = rig.plan("destroy", all=True)

    def steal(request: httpx.Request) -> None:
        if request.url.path.endswith(DESTROY) and not stolen:
            stolen.append(rig.kube("PATCH", path, {"spec": {"holderIdentity": "elsewhere/1/other"}}))
            rig.advance(10)

    stolen: list[t.Any] = []
    rig.watcher = steal
    with pytest.raises(LockLost):
        rig.run("teardown", plan["run_id"])
    assert stolen and rig.machines() == []
    assert not [one for one in rig.writes() if " DELETE " in one and ("/device/" in one or "/nodes/" in one)]
    assert (list(rig.claims()), list(rig.nodes()), rig.ledger()) == ([name], [name], [])
