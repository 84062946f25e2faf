# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lists that show a machine late or not at all: second machines that were billed and unnamed, machines called gone that lived."""

from __future__ import annotations

import pathlib
import threading
import time
import typing as t

import pytest

from ..act.rig import Rig
from ..clouds.instance_modules import living, run
from ..clouds.stands import Stand
from ..clouds.stands_runpod import RunpodStand
from ..clouds.stands_vast import VastStand

Build = t.Callable[..., Rig]


@pytest.fixture(autouse=True)
def own_folders(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TGP_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("TGP_STATE_DIR", str(tmp_path / "state"))


def late(stand: Stand, seconds: float) -> None:
    """From now on its list shows a new machine that late."""
    if isinstance(stand, VastStand):
        stand.mood(list_after=seconds)
    elif isinstance(stand, RunpodStand):
        stand.account.list_after = seconds


@pytest.fixture(params=[RunpodStand, VastStand], ids=lambda kind: kind.service)
def cloud(request: pytest.FixtureRequest) -> t.Iterator[Stand]:
    made = request.param()
    yield made
    made.close()


def test_L2a_two_runs_of_one_name_and_a_list_that_lags_make_one_machine(cloud: Stand) -> None:
    """The create call answers with an id, the list shows it after 45 s, a second run of the same name begins after 25 s."""
    cloud.world.clock.run_at(50)
    late(cloud, 45.0)
    first: dict[str, t.Any] = {}
    thread = threading.Thread(target=lambda: first.update(run(cloud)))
    thread.start()
    end = time.monotonic() + 60
    while not living(cloud):
        assert time.monotonic() < end
        time.sleep(0.001)
    cloud.world.clock.sleep(25)
    second = run(cloud)
    thread.join(20)
    assert len(living(cloud)) == 1, f"two machines are billed, {second['instance']['id']} and one that is named nowhere"
    (only,) = living(cloud)
    assert [one["instance"]["id"] for one in (first, second)] == [only, only]
    assert (first["changed"], second["changed"]) == (True, False)


def test_L2a_a_lost_answer_and_a_second_run_make_one_machine(cloud: Stand) -> None:
    """The list shows the machine only after the first run has given up looking: the second waits for it."""
    delay = {"vast": 60.0, "runpod": 120.0}[cloud.service]
    cloud.world.clock.run_at(100)  # fifteen seconds are too short for a busy test machine at more
    late(cloud, delay + 15)
    cloud.faults.add({"kind": "lost_after", "method": cloud.create_method, "path": cloud.create_path})
    first = run(cloud)
    assert first.get("failed") and first["error"]["kind"] == "launch_unknown"
    second = run(cloud)
    assert len(living(cloud)) == 1, "a second machine was made"
    assert not second.get("failed") and [second["instance"]["id"]] == living(cloud)


def test_L2a_absent_waits_for_a_machine_that_is_not_listed_yet(cloud: Stand) -> None:
    cloud.world.clock.run_at(400)
    late(cloud, {"vast": 75.0, "runpod": 135.0}[cloud.service])
    cloud.faults.add({"kind": "status_after", "method": cloud.create_method, "path": cloud.create_path, "status": 504})
    cloud.faults.add({"kind": "status", "method": "GET", "path": cloud.list_path, "status": 400, "times": 40, "after_calls": 1})
    assert run(cloud).get("failed")  # the answer is lost, and so is every look for it
    for rule in cloud.faults.all():
        rule.times = 0
    done = run(cloud, state="absent")
    assert living(cloud) == [] and done["changed"], "it said that there is nothing while a machine is billed"


def test_L2a_one_empty_list_does_not_prove_an_end(cloud: Stand) -> None:
    """The DELETE is accepted and does nothing, the list is empty once."""
    made = run(cloud)["instance"]["id"]
    cloud.world.clock.advance(300)
    accepted = {"vast": {"success": True}, "runpod": {}}[cloud.service]
    cloud.faults.add({"kind": "body", "method": "DELETE", "path": made, "body": accepted})
    empty: dict[str, t.Any] = {"vast": {"instances": [], "next_token": None, "total_instances": 0}, "runpod": {"pods": []}}
    cloud.faults.add({"kind": "body", "method": "GET", "path": cloud.list_path, "body": empty[cloud.service], "after_calls": 1})
    done = run(cloud, state="absent", wait=True, wait_timeout=120)
    assert living(cloud) == [made] and done.get("failed"), "it said that the machine is gone, and it lives"
    assert made in done["msg"]


def test_L2a_a_list_with_fewer_rows_than_its_total_is_unknown() -> None:
    stand = VastStand()
    try:
        made = run(stand)["instance"]["id"]
        stand.world.clock.advance(300)
        stand.mood(partial_lists=1)
        done = run(stand)
        assert len(stand.world.machines) == 1, "it rented a second machine"
        assert done["instance"]["id"] == made if not done.get("failed") else "says that there are 1" in done["msg"]
    finally:
        stand.close()


@pytest.mark.parametrize("cloud_name, seconds", [("vast", 45), ("runpod", 100)])
def test_L2a_the_fleet_looks_for_a_lost_answer_as_long_as_lists_lag(build: Build, cloud_name: str, seconds: int) -> None:
    offers: dict[str, list[dict[str, t.Any]]] = {
        "vast": [{"gpu": "RTX 4090", "place": "Texas, US", "price": "0.36", "data_centre": True, "stock": 4, "boot": 20}],
        "runpod": [{"type": "NVIDIA GeForce RTX 4090", "region": "US-TX-3", "stock": 4, "boot": 20}],
    }
    rig = build(**{cloud_name: {"offers": offers[cloud_name], "list_after": seconds}})
    service = {"image": "registry.example/llm:1", "command": ["serve"], "ports": [8000], "healthPath": "/health"}
    rig.documents = [
        {
            "apiVersion": "tgp.io/v1",
            "kind": "GPUNodeClass",
            "metadata": {"name": "containers"},
            "spec": {"providers": [{"name": cloud_name}], "tailscaleConfig": {"tags": ["tag:gpu"]}, "limits": {"maxNodes": 4}},
        },
        {
            "apiVersion": "tgp.io/v1",
            "kind": "GPUNodePool",
            "metadata": {"name": "llm", "namespace": "default"},
            "spec": {
                "nodeClassRef": {"name": "containers"},
                "maxHourlyPrice": "2",
                "template": {"spec": {"lanes": ["service"], "service": service}},
            },
        },
    ]
    rig.fault(
        "lost_after", cloud_name, {"vast": "PUT", "runpod": "POST"}[cloud_name], {"vast": "/asks/", "runpod": "/pods$"}[cloud_name]
    )
    (row,) = rig.rent(pool="llm")["machines"]
    assert row["result"] == "adopted", f"its machine is billed and not found: {row}"
    assert rig.claim()["instance_id"] == rig.machine().id


def test_L2a_the_fleet_closes_no_machine_that_one_list_misses(build: Build) -> None:
    """The destroy call is accepted and does nothing; the list and the look by the id miss the machine once."""
    rig = build()
    rig.provision()
    machine = rig.machine()
    gone = {"error": {"code": "global/object-does-not-exist", "message": "Specified instance does not exist."}}
    rig.fault("body", "lambda", "POST", "/terminate$", body={"data": {"terminated_instances": []}}, times=None)
    rig.fault("status", "lambda", "GET", f"/instances/{machine.id}$", status=404, body=gone)
    rig.fault("body", "lambda", "GET", "/instances$", body={"data": []}, after_calls=1)
    rig.destroy()
    assert machine.ended is None and list(rig.claims()) == [machine.name], "its claim was closed while it is billed"
    assert rig.ledger() == []


def _ready(rig: Rig) -> str:
    (node,) = rig.nodes().values()
    return next(one["status"] for one in node["status"]["conditions"] if one["type"] == "Ready")


def test_L2a_a_machine_that_lists_miss_and_its_id_shows_is_not_gone(build: Build) -> None:
    """Its system hangs, so its Node is not Ready, and lists miss it; it is there. It was called gone and terminated."""
    rig = build()
    rig.training.update({"unhealthyTimeout": "6h", "disruption": {"consolidateAfter": "6h"}})  # only what lists say is judged here
    rig.provision()
    machine = rig.machine()
    rig.fault("body", "lambda", "GET", "/instances$", body={"data": []}, times=None)
    rig.box.machines.strike(machine, "crash")
    rig.until(lambda: _ready(rig) != "True", "the Node is not Ready")
    for _run in range(5):
        rig.reap()
        rig.advance(200)
    assert machine.ended is None, "it was terminated as gone"
    assert rig.claim()["phase"] == "Ready"
