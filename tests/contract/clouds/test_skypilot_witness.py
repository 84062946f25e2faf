# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SkyPilot's RunPod provisioner, as a process of its own, rents a cluster from the emulator over a real socket. It is the first of its kind on
the API's version 2, and of the nightly build: the last release speaks the versions that are retired."""

from __future__ import annotations

import json
import pathlib
import typing as t

import pytest

from sandbox.faults import Fault

from .stands import KEY
from .stands_runpod import IMAGE, RunpodStand
from .witness import Dialogue, Home, Notes, home, serving

pytestmark = pytest.mark.witness
PACKAGE = "skypilot-nightly==1.0.0.dev20261027"
BESIDE = ("requests==2.34.2", "colorama==0.4.6")
SCRIPT = pathlib.Path(__file__).with_name("skypilot_witness_client.py")
SSH_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFNhbmRib3hLZXlXaXRob3V0UHJpdmF0ZVBhcnQx sky"
CLUSTER = {
    "name": "lab",
    "type": "1x_RTX4090_SECURE",
    "zone": "EU-RO-1",
    "image": IMAGE,
    "key": SSH_KEY,
    "ports": [8000],
    "count": 2,
}


class Refused(Exception):
    """The provisioner raised; ``status`` when it was its error of a call."""

    def __init__(self, said: str, status: int | None) -> None:
        super().__init__(said)
        self.said, self.status = said, status


class Provisioner:
    """One process of the provisioner."""

    def __init__(self, who: Home, notes: Notes, folder: pathlib.Path, url: str, key: str) -> None:
        self._notes = notes
        command = [who.program("python"), "-P", str(SCRIPT)]
        self._dialogue = Dialogue(command, who.environment(HOME=str(folder)), folder)
        self.close = self._dialogue.close
        self._dialogue.write({"url": url, "key": key})

    def call(self, name: str, /, **fields: t.Any) -> t.Any:
        self._dialogue.write({"call": name, "fields": fields})
        answer = self._dialogue.read()
        self._notes.add(f"{name} {json.dumps(fields)}", answer)
        if "refused" in answer:
            raise Refused(answer["refused"], answer["status"])
        return answer["data"]

    def refused(self, name: str, /, **fields: t.Any) -> Refused:
        with pytest.raises(Refused) as caught:
            self.call(name, **fields)
        return caught.value


Provisioners = t.Callable[..., Provisioner]


@pytest.fixture
def provisioners(runpod_stand: RunpodStand, tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> t.Iterator[Provisioners]:
    """Starts provisioners against one emulator."""
    who = home(PACKAGE, *BESIDE, alone=True)
    runpod_stand.world.rate_limits = False  # it polls in the tests' time
    started: list[Provisioner] = []
    with serving(runpod_stand.app) as url:
        notes = Notes(request.node.name, who, url)

        def start(key: str = KEY) -> Provisioner:
            folder = tmp_path / f"sky-{len(started)}"
            folder.mkdir()
            started.append(Provisioner(who, notes, folder, url, key))
            return started[-1]

        yield start
        for one in started:
            one.close()
        notes.close()


@pytest.mark.parametrize("page_size", [None, 1], ids=["whole", "paged"])
def test_the_life_of_a_cluster(runpod_stand: RunpodStand, provisioners: Provisioners, page_size: int | None) -> None:
    """With pages of one pod each it has to follow the cursor to find its worker."""
    runpod_stand.account.page_size = page_size
    sky = provisioners()
    made = sky.call("run_instances", **CLUSTER)
    head, worker = made["created_instance_ids"]
    assert made["head_instance_id"] == head and runpod_stand.billed() == 2
    assert {one.name for one in runpod_stand.world.machines.values()} == {"lab-head", "lab-worker"}
    assert sky.call("query_instances", name="lab") == {head: "UP", worker: "UP"}
    info = sky.call("get_cluster_info", name="lab")
    (login,) = info["instances"][head]
    machine = runpod_stand.world.machines[head]
    assert login["external_ip"] == machine.ip and login["ssh_port"] == machine.details["public_ports"]["22/tcp"]
    assert sky.call("query_ports", name="lab", ports=["8000"])["8000"]["host"] == machine.ip
    again = sky.call("run_instances", **CLUSTER)
    assert again["created_instance_ids"] == [] and runpod_stand.billed() == 2
    sky.call("terminate_instances", name="lab", worker_only=True)
    assert sky.call("query_instances", name="lab") == {head: "UP"}
    sky.call("terminate_instances", name="lab")
    assert sky.call("query_instances", name="lab") == {} and runpod_stand.billed() == 0


def test_a_stopped_pod_is_replaced(runpod_stand: RunpodStand, provisioners: Provisioners) -> None:
    sky, one = provisioners(), {**CLUSTER, "count": 1}
    (first,) = sky.call("run_instances", **one)["created_instance_ids"]
    runpod_stand.world.halt(runpod_stand.world.machines[first], runpod_stand.world.machines[first].rate())
    assert sky.call("query_instances", name="lab") == {first: "STOPPED"}
    (second,) = sky.call("run_instances", **one)["created_instance_ids"]
    assert second != first and runpod_stand.world.machines[first].destroyed is not None


def test_keys_of_the_account_are_added_once(runpod_stand: RunpodStand, provisioners: Provisioners) -> None:
    sky = provisioners()
    sky.call("register_ssh_key", public_key=SSH_KEY)
    sky.call("register_ssh_key", public_key=SSH_KEY.replace(" sky", " another-name"))
    assert runpod_stand.account.ssh_keys == [SSH_KEY]


def test_refusals(runpod_stand: RunpodStand, provisioners: Provisioners) -> None:
    sky = provisioners()
    none = sky.refused("run_instances", **{**CLUSTER, "type": "1x_A40_SECURE", "zone": "EU-SE-1"})
    assert none.status == 400 and "no longer any instances" in none.said
    assert provisioners("rpa_WRONG0123456789").refused("list_instances").status == 401
    runpod_stand.faults.add(Fault(service="runpod", method="POST", path=r"^/v2/pods$", kind="status", status=429, times=1))
    assert len(sky.call("run_instances", **{**CLUSTER, "count": 1})["created_instance_ids"]) == 1  # it waits and asks again
    assert runpod_stand.billed() == 1
