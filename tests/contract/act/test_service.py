# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lane service from rent to bill: containers of RunPod and Vast in the tailnet, published in the cluster, judged by what they answer."""

from __future__ import annotations

import copy
import json
import typing as t

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap import container
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput

from sandbox.mesh_proxy import set_busy

from .rig import Rig

Build = t.Callable[..., Rig]
RUNPOD = {"offers": [{"type": "NVIDIA GeForce RTX 4090", "region": "US-TX-3", "stock": 4, "boot": 20}]}
VAST = {
    "offers": [
        {"gpu": "RTX 4090", "place": "Texas, US", "price": price, "data_centre": True, "stock": 4, "boot": 20}
        for price in ("0.36", "0.38", "0.40")
    ]
}
CLOUDS = {"runpod": RUNPOD, "vast": VAST}
SECRET = "hf_0123456789abcdefghijklmnop"
POOL: dict[str, t.Any] = {
    "apiVersion": "tgp.io/v1",
    "kind": "GPUNodePool",
    "metadata": {"name": "llm", "namespace": "default"},
    "spec": {
        "nodeClassRef": {"name": "containers"},
        "maxHourlyPrice": "2",
        "template": {
            "metadata": {"labels": {"team": "a"}},
            "spec": {
                "lanes": ["service"],
                "service": {
                    "image": "registry.example/llm:1",
                    "command": ["serve"],
                    "args": ["--port", "8000"],
                    "ports": [8000],
                    "environment": {"MODEL": "small"},
                    "healthPath": "/health",
                },
            },
        },
        "disruption": {"idleProbe": {"url": "/idle"}, "consolidateAfter": "10m", "minAge": "0s"},
    },
}


def documents(*clouds: str) -> list[dict[str, t.Any]]:
    node_class = {
        "apiVersion": "tgp.io/v1",
        "kind": "GPUNodeClass",
        "metadata": {"name": "containers"},
        "spec": {
            "providers": [{"name": cloud} for cloud in clouds],
            "tailscaleConfig": {"tags": ["tag:gpu"]},
            "limits": {"maxNodes": 4, "maxHourlyCost": "10"},
        },
    }
    return [node_class, copy.deepcopy(POOL)]


@pytest.fixture(params=CLOUDS)
def served(request: pytest.FixtureRequest, build: Build) -> Rig:
    """A sandbox whose only documents are a class of one cloud of containers, and a pool of services."""
    return made(build, request.param)


def made(build: Build, cloud: str = "runpod", **options: t.Any) -> Rig:
    rig = build(**{cloud: CLOUDS[cloud]}, **options)
    rig.documents = documents(cloud)
    return rig


@pytest.fixture
def pods(build: Build) -> Rig:
    return made(build)


def pool(rig: Rig) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", rig.documents[1]["spec"])


def spec(rig: Rig) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", pool(rig)["template"]["spec"]["service"])


def services(rig: Rig) -> dict[str, dict[str, t.Any]]:
    """Services of ours by name."""
    found = rig.kube("GET", "/api/v1/namespaces/default/services")["items"]
    return {one["metadata"]["name"]: one for one in found if "tgp.io/claim" in (one["metadata"].get("labels") or {})}


def endpoints(rig: Rig) -> list[dict[str, t.Any]] | None:
    status, found = rig.api.request("GET", "/api/v1/namespaces/default/configmaps/tgp-endpoints-llm")
    return json.loads(found["data"]["endpoints.json"]) if status == 200 else None


def gone(rig: Rig) -> bool:
    """Nothing of ours is left anywhere, and the bill is right."""
    rig.check_bill()
    return rig.left() == {} and services(rig) == {} and endpoints(rig) is None


# ---- the good way


def test_a_container_comes_serves_and_goes_and_nothing_is_left(served: Rig) -> None:
    rented = served.rent(pool="llm")
    assert [one["result"] for one in rented["machines"]] == ["launched"], rented
    machine = served.machine()
    joined = served.join()
    assert [(one["result"], one["phase"]) for one in joined["machines"]] == [("ready", "Ready")], joined
    claim = served.claim()
    assert (claim["lane"], claim["token_id"], claim["mesh_key_id"]) == ("service", "", "")
    (device,) = served.box.tailnet.devices()
    assert claim["mesh_device_id"] == device.node_id and served.tokens() == [] and served.box.tailnet.live_keys() == []
    found = services(served)[machine.name]
    assert found["metadata"]["annotations"]["tailscale.com/tailnet-fqdn"] == served.box.tailnet.dns_name(device)
    assert (found["metadata"]["labels"]["tgp.io/nodepool"], found["metadata"]["labels"]["team"]) == ("llm", "a")
    assert found["spec"]["type"] == "ExternalName" and [one["port"] for one in found["spec"]["ports"]] == [8000]
    assert endpoints(served) == [
        {
            "name": machine.name, "fqdn": served.box.tailnet.dns_name(device), "address": device.ipv4, "ports": [8000],
            "cloud": machine.cloud, "model": "RTX4090",
        }
    ]  # fmt: skip
    assert served.nodes() == {} or not any(name.startswith("tgp-") for name in served.nodes())
    done = served.destroy()
    assert [one["result"] for one in done["machines"]] == ["gone"], done
    assert gone(served)
    (line,) = served.ledger()
    assert line["joined"] is True and line["ids"] == [machine.id]


def test_I9_a_second_provision_writes_nothing(served: Rig) -> None:
    served.provision(pool="llm")
    before = served.writes()
    plan = served.rent(pool="llm")["plan"]
    assert (plan["changed"], plan["launch"], served.join()["changed"]) == (False, [], False)
    assert served.writes() == before


def test_I14_a_rehearsal_writes_nothing(pods: Rig) -> None:
    plan = pods.plan("provision", check=True, pools=["llm"], nodes=1)
    assert [one["action"] for one in plan["plan"]] == ["launch"] and pods.writes() == []
    pods.provision(pool="llm")
    before = pods.writes()
    pods.advance(3600)
    pods.plan("reap", check=True)
    assert pods.writes() == before


def test_no_talos_secret_is_needed_where_only_containers_run(pods: Rig) -> None:
    nothing = {"talos_secrets": None, "control_plane_endpoint": None}
    plan = pods.plan("provision", pools=["llm"], nodes=1, **nothing)
    pods.run("launch", plan["run_id"], **nothing)
    pods.unlock(plan["run_id"])
    assert [one["result"] for one in pods.join()["machines"]] == ["ready"]
    checks = {one["what"]: one for one in pods.run("validate", **nothing)["checks"]}
    assert checks["services"]["ok"] and "Talos secrets" not in checks and "template of containers" not in checks


def test_S3_35_every_machine_has_its_line(pods: Rig) -> None:
    pods.provision(pool="llm", nodes=3)
    names = sorted(one.name for one in pods.machines())
    assert len(names) == 3 and [one["name"] for one in endpoints(pods) or []] == names == sorted(services(pods))
    pods.reap("destroy", names=[names[0]])
    assert [one["name"] for one in endpoints(pods) or []] == names[1:] == sorted(services(pods))
    pods.destroy()
    assert gone(pods)


def test_secrets_reach_the_container_and_nothing_else(pods: Rig) -> None:
    pods.kube("POST", "/api/v1/namespaces", {"metadata": {"name": "tgp-system"}})
    pods.kube("POST", "/api/v1/namespaces/tgp-system/secrets", {"metadata": {"name": "hub"}, "stringData": {"token": SECRET}})
    spec(pods)["environmentFrom"] = {"HF_TOKEN": {"name": "hub", "key": "token"}}
    pods.provision(pool="llm")
    environment = pods.machine().details["environment"]
    assert (environment["HF_TOKEN"], environment["MODEL"]) == (SECRET, "small")
    key = environment["TS_AUTHKEY"]
    told = json.dumps([pods.claims(), pods.events(), pods.lines, pods.warnings, services(pods), endpoints(pods)])
    assert SECRET not in told and key not in told


# ---- what is refused before anything is rented


@pytest.mark.parametrize(
    ("breaks", "words"),
    [
        (
            lambda rig: spec(rig).update(environmentFrom={"T": {"name": "hub", "key": "t"}}),
            "default/llm: The Secret tgp-system/hub",
        ),
        (lambda rig: rig.documents[1]["metadata"].update(namespace="nowhere"), "there is no namespace nowhere for its Services"),
        (lambda rig: pool(rig)["template"]["metadata"]["labels"].update(team="no label value!"), "label"),
        (lambda rig: spec(rig).update(args=[f"{number * number * 7919:x}" for number in range(2000)]), "after packing"),
    ],
)
def test_what_could_not_start_or_be_published_is_refused(pods: Rig, breaks: t.Callable[[Rig], t.Any], words: str) -> None:
    breaks(pods)
    with pytest.raises(Exception, match=words):
        pods.plan("provision", pools=[pods.documents[1]["metadata"].get("namespace", "default") + "/llm"], nodes=1)
    assert pods.machines(living=False) == [] and pods.claims() == {}


def test_a_proxy_that_is_not_there_is_refused(pods: Rig) -> None:
    with pytest.raises(InvalidInput, match="mesh_proxy '1.2.3.4:5' is not an http"):
        pods.plan("provision", pools=["llm"], nodes=1, mesh_proxy="1.2.3.4:5")

    def refuse(request: httpx.Request) -> None:
        if request.url.host == "tgp-check.invalid":
            raise httpx.ConnectError("Connection refused", request=request)

    pods.watcher = refuse
    with pytest.raises(InvalidInput, match="mesh_proxy http://mesh.test:1056 does not answer"):
        pods.plan("provision", pools=["llm"], nodes=1)


# ---- those that never come


def failed(rig: Rig) -> str:
    (row,) = rig.join()["machines"]
    assert row["result"] == "failed" and row["message"].endswith("(terminated)"), row
    assert gone(rig)
    (line,) = rig.ledger()
    assert (line["reason"], line["joined"]) == ("FailedJoin", False)
    return str(row["message"])


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("never_boots", "instance: instance_not_running: it is not in the mesh yet"),
        ("mesh_fails", "i/o timeout - The machine has no way to the mesh's coordination server. [mesh_unreachable]"),
        ("unhealthy_path", "device: unhealthy: it answers 503"),
    ],
)
def test_L11_at_the_deadline_the_step_and_the_cause_are_named(pods: Rig, behaviour: str, words: str) -> None:
    pool(pods)["registrationTimeout"] = "4m30s"
    pods.behave(behaviour)
    pods.rent(pool="llm")
    assert words in failed(pods)


@pytest.mark.parametrize("unseen", [False, True])
def test_L11_a_container_that_its_cloud_ended_is_given_up_at_once(build: Build, unseen: bool) -> None:
    """Its GPUs are billed, whether a run saw it at work or only when it had exited."""
    rig = made(build, "vast")
    spec(rig).update(command=["false"], args=[])
    rig.rent(pool="llm")
    (machine,) = rig.machines()
    while unseen and machine.details.get("phase") != "exited":
        rig.clock.sleep(1)
    rig.advance(120 if unseen else 0)
    started = rig.clock.now()
    assert "vast calls the machine exited" in failed(rig)
    assert (rig.clock.now() - started).total_seconds() < 600


def test_L11_one_that_never_comes_does_not_hold_up_the_others(pods: Rig) -> None:
    pool(pods)["registrationTimeout"] = "5m"
    pods.behave("never_boots", times=1)
    pods.rent(pool="llm", nodes=2)
    assert sorted(one["result"] for one in pods.join()["machines"]) == ["failed", "ready"]
    assert len(services(pods)) == 1 and len(endpoints(pods) or []) == 1


def test_L11_when_the_mesh_cannot_be_read_at_the_deadline_nothing_is_given_back(pods: Rig) -> None:
    pool(pods)["registrationTimeout"] = "2m"
    pods.rent(pool="llm")
    pods.fault("status", "tailscale", "GET", "/devices", status=500, times=10_000)
    joined = pods.join()
    (row,), (problem,) = joined["machines"], joined["problems"]
    assert row["result"] == "waiting" and "the mesh cannot be read" in row["message"], row
    assert problem.endswith("tries again."), "it is not given up, so nobody takes another offer"
    pods.faults.clear()
    assert [one["result"] for one in pods.provision(pool="llm")["machines"]] == ["ready"]


# ---- kills


@pytest.mark.parametrize("after", [False, True])
def test_L02_a_run_killed_anywhere_is_continued(build: Build, after: bool) -> None:
    number, seen = 1, 0
    rig = made(build)
    while True:
        with rig.killed_at(number, after=after) as cut:
            rig.provision(pool="llm")
        seen = cut.seen
        rig.advance(700)  # what a create call may still show has shown itself
        rig.provision(pool="llm")
        assert len(rig.machines()) == 1 and sorted(services(rig)) == [rig.machine().name], number
        assert [one["name"] for one in endpoints(rig) or []] == [rig.machine().name]
        with rig.killed_at(3, after=after):
            rig.destroy()
        rig.destroy()
        assert rig.left() == {} and services(rig) == {} and endpoints(rig) is None, number
        if seen < number:
            break
        number += 3
    assert number > 6


# ---- going


def test_L03_a_service_goes_when_it_says_that_it_is_idle(served: Rig) -> None:
    served.provision(pool="llm")
    machine = served.machine()
    set_busy(machine, True)
    served.advance(1800)
    assert served.reap()["machines"] == []
    set_busy(machine, False)
    assert served.reap()["machines"] == [] and served.claim()["idle_since"]
    served.advance(300)
    assert served.reap()["machines"] == []
    served.advance(301)
    assert [one["result"] for one in served.reap()["machines"]] == ["gone"]
    assert gone(served) and served.ledger()[0]["reason"] == "Empty"


def test_L03_one_that_got_work_since_the_plan_stays(pods: Rig) -> None:
    pods.provision(pool="llm")
    pods.advance(1800)
    pods.reap()
    pods.advance(700)
    plan = pods.plan("reap")
    assert plan["destroy"]
    set_busy(pods.machine(), True)
    done = pods.run("teardown", plan["run_id"], orphans=plan["orphans"])
    pods.unlock(plan["run_id"])
    assert [one["result"] for one in done["machines"]] == ["kept"], done
    assert pods.claim()["deletion"] is None and len(services(pods)) == 1


def test_L10_one_that_got_work_while_no_run_goes_on_stays(pods: Rig) -> None:
    """A run is killed after it has closed the claim of an idle container and before its destroy call."""
    pods.provision(pool="llm")
    pods.advance(1800)
    pods.reap()
    pods.advance(700)
    plan = pods.plan("reap")
    machine = pods.machine()
    with pods.killed_at(2, after=False):
        pods.run("teardown", plan["run_id"], orphans=plan["orphans"])
    pods.unlock(plan["run_id"])
    assert pods.claim()["phase"] == "Terminating" and machine.ended is None
    set_busy(machine, True)
    done = pods.reap()
    assert [one["result"] for one in done["machines"]] == ["in_use"] and machine.ended is None
    assert "busy: " in next(one["detail"] for one in done["plan"]["plan"] if one["name"] == machine.name)
    set_busy(machine, False)
    assert [one["result"] for one in pods.reap()["machines"]] == ["gone"]


def test_L20_a_service_that_does_not_answer_for_long_is_given_back(pods: Rig) -> None:
    pods.provision(pool="llm")
    pods.machine().details["unhealthy_until"] = float("inf")
    set_busy(pods.machine(), True)
    assert pods.reap()["machines"] == []
    pods.advance(1100)
    assert pods.reap()["machines"] == []
    pods.advance(200)
    assert [one["result"] for one in pods.reap()["machines"]] == ["gone"]
    assert gone(pods) and pods.ledger()[0]["reason"] == "Unhealthy"


def test_L20_no_way_into_the_tailnet_ends_nothing(pods: Rig) -> None:
    pods.provision(pool="llm")

    def no_way(request: httpx.Request) -> None:
        if request.url.host.startswith("100."):
            raise httpx.ConnectError("No route to host", request=request)

    pods.watcher = no_way
    for _run in range(3):
        pods.advance(1500)
        plan = pods.plan("reap")
        pods.unlock(plan["run_id"])
        assert plan["destroy"] == []


def test_L12_a_service_whose_record_was_lost_gets_it_back_and_is_published_again(pods: Rig) -> None:
    pods.provision(pool="llm")
    name = pods.machine().name
    pods.kube("DELETE", f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{name}")
    pods.kube("DELETE", f"/api/v1/namespaces/default/services/{name}")
    pods.advance(1800)
    pods.reap()
    assert (pods.claim()["phase"], pods.claim()["lane"]) == ("Joining", "service")
    assert [one["result"] for one in pods.provision(pool="llm")["machines"]] == ["ready"]
    assert list(services(pods)) == [name] and len(pods.machines()) == 1
    pods.destroy()
    assert gone(pods)


def test_L16_one_that_ends_while_a_list_is_on_its_way_is_billed_until_then(pods: Rig) -> None:
    """Two of one teardown share a list: it was asked for before the terminate call of one was accepted, and was answered after it."""
    pods.provision(pool="llm", nodes=2)
    first, second = pods.machines()
    pods.fault("delay", "runpod", "DELETE", f"/v2/pods/{second.id}", seconds=20, times=1)
    pods.fault("delay", "runpod", "GET", "/v2/pods$", seconds=40, times=None)
    pods.destroy()
    assert first.ended is not None and second.ended is not None and (second.ended - first.ended).total_seconds() > 10
    assert gone(pods)


# ---- what people see


def test_status_shows_endpoint_and_health(pods: Rig) -> None:
    pods.provision(pool="llm")
    (device,) = pods.box.tailnet.devices()
    (row,) = pods.run("info")["machines"]
    assert (row["endpoint"], row["healthy"], row["state"], row["lane"]) == (f"{device.ipv4}:8000", True, "Ready", "service")
    pods.machine().details["unhealthy_until"] = float("inf")
    (row,) = pods.run("info")["machines"]
    assert (row["healthy"], row["state"]) == (False, "Ready, it answers 503")


def test_nodes_and_services_join_side_by_side(build: Build) -> None:
    rig = build(runpod=RUNPOD)
    rig.documents += documents("runpod")
    plan = rig.plan("provision", pools=["training", "llm"], nodes=1)
    rig.run("launch", plan["run_id"])
    rig.unlock(plan["run_id"])
    done = rig.join()
    assert {(one["pool"], one["result"]) for one in done["machines"]} == {("default/training", "ready"), ("default/llm", "ready")}
    assert len(services(rig)) == 1 and len([name for name in rig.nodes() if name.startswith("tgp-")]) == 1
    rig.destroy()
    assert gone(rig)


def test_an_image_may_enter_the_tailnet_itself(pods: Rig) -> None:
    spec(pods).update(image="docker.io/tailscale/tailscale:stable", meshClient="image")
    del spec(pods)["command"], spec(pods)["args"]
    assert [one["result"] for one in pods.provision(pool="llm")["machines"]] == ["ready"]
    machine = pods.machine()
    assert not machine.details["command"] and machine.details["environment"]["TS_USERSPACE"] == "true"


@pytest.mark.parametrize(
    ("exec_form", "own_entrypoint", "result"), [(True, True, "ready"), (False, False, "ready"), (False, True, "failed")]
)
def test_an_image_whose_entrypoint_is_a_program_serves_where_the_api_takes_lists(
    build: Build, exec_form: bool, own_entrypoint: bool, result: str
) -> None:
    """Behind such an entrypoint the shell and its script are arguments that nobody runs."""
    rig = build(runpod={**RUNPOD, "exec_form": exec_form, "own_entrypoint": ["registry.example/llm"] if own_entrypoint else []})
    rig.documents = documents("runpod")
    spec(rig)["image"] = "registry.example/llm:1"
    rig.rent(pool="llm")
    (row,) = rig.join()["machines"]
    assert row["result"] == result, row
    assert bool(rig.box.tailnet.devices()) is (result == "ready")


def test_L13_one_that_turns_out_too_dear_is_given_back(pods: Rig) -> None:
    pods.rent(pool="llm")
    pool(pods)["maxHourlyPrice"] = "0.10"
    (row,) = pods.join()["machines"]
    assert row["result"] == "failed" and "the price jumped to $" in row["message"], row
    assert pods.ledger()[0]["reason"] == "PriceJump" and pods.left() == {}


def test_L11_the_last_words_of_its_start_script_are_told(pods: Rig) -> None:
    pool(pods)["registrationTimeout"] = "2m"
    pods.behave("mesh_fails")
    pods.rent(pool="llm")
    assert "it is not in the mesh yet; the container says: login: tailscale up: control: LoginHot" in failed(pods)


def test_L11_a_start_script_that_says_nothing_is_not_quoted(pods: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words come from the script itself: without its line there is nothing to tell, and the cause is a guess."""
    spoken = 'echo "tgp-fail $s: $*"; '
    assert spoken in container._SCRIPT
    monkeypatch.setattr(container, "_SCRIPT", container._SCRIPT.replace(spoken, ""))
    pool(pods)["registrationTimeout"] = "2m"
    pods.behave("mesh_fails")
    pods.rent(pool="llm")
    told = failed(pods)
    assert "the container says" not in told and "The machine runs and never came into the mesh. [not_in_mesh]" in told


def test_O16_the_service_of_a_machine_that_left_no_trace_is_removed(pods: Rig) -> None:
    pods.provision(pool="llm")
    machine = pods.machine()
    pods.kube("DELETE", f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{machine.name}")
    with pods.world.lock:
        pods.world.release(machine)
        machine.state, machine.destroyed = "terminated", pods.clock.now()
    pods.advance(1300)
    pods.reap()
    assert len(services(pods)) == 1
    pods.advance(61)
    assert [one["result"] for one in pods.reap()["machines"] if one["message"].startswith("service")] == ["removed"]
    assert services(pods) == {} and endpoints(pods) is None
