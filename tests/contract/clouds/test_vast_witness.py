# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A client that is not ours drives the emulator: Vast's official command line and library, as processes of their own over a real socket.

The command line ends with status 0 when the API refuses, so what it says is looked at.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shlex
import subprocess
import typing as t
from decimal import Decimal

import pytest

from sandbox import vast_cloud
from sandbox.clock import ClockClosed, SimClock
from sandbox.world import Machine, World

from .witness import Home, Notes, home, serving

pytestmark = pytest.mark.witness
PACKAGE = "vastai==1.9.1"
KEY = "vast_contract_0123456789abcdef0123456789"
VM_IMAGE = "docker.io/vastai/kvm:ubuntu_terminal"
SPEED = 300.0
TELLING = ("id", "label", "actual_status", "intended_status", "gpu_name", "num_gpus", "is_bid", "min_bid", "dph_total")


@dataclasses.dataclass
class Witness:
    """The emulator on a socket, and the foreign client in front."""

    world: World
    url: str
    who: Home
    notes: Notes
    folder: pathlib.Path

    def run(self, program: str, *words: str, key: str = KEY) -> subprocess.CompletedProcess[str]:
        environment = self.who.environment(
            HOME=str(self.folder),
            XDG_CONFIG_HOME=str(self.folder),
            VAST_URL=self.url,
            VAST_API_KEY=key,
            VASTAI_NO_UPDATE_CHECK="1",
            COLUMNS="200",
        )
        command = [self.who.program(program), *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        shown = words[1].partition("words = VastAI(), sys.argv[1:]\n")[2] if program == "python" else shlex.join([program, *words])
        self.notes.add(shown, done.stdout + done.stderr)
        return done

    def raw(self, *words: str, key: str = KEY) -> t.Any:
        """What the command line prints with --raw."""
        done = self.run("vastai", *words, "--raw", key=key)
        assert done.returncode == 0 and done.stdout, (done.stdout, done.stderr)
        return json.loads(done.stdout)

    def said(self, *words: str, key: str = KEY) -> str:
        """All that the command line has to say, to people."""
        done = self.run("vastai", *words, key=key)
        return done.stdout + done.stderr

    def sdk(self, code: str, *words: str) -> t.Any:
        """What ``code``, with the client ``vast`` and ``words``, prints as JSON."""
        frame = f"import json, sys\nfrom vastai import VastAI\nvast, words = VastAI(), sys.argv[1:]\n{code}"
        done = self.run("python", "-c", frame, *words)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def machine(self, number: int) -> Machine:
        return self.world.machines[str(number)]

    def until(self, number: int, state: str) -> None:
        for _turn in range(600):
            if self.machine(number).state == state:
                return
            self.world.clock.sleep(1)
        raise AssertionError(f"{number} is {self.machine(number).state}")


@pytest.fixture
def witness(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> t.Iterator[Witness]:
    who = home(PACKAGE)
    world = World(SimClock(speed=SPEED))
    world.secrets["VAST_API_KEY"] = KEY
    world.rate_limits = False  # the foreign client has no pace of its own
    world.offers += vast_cloud.catalogue()

    def boot(machine: Machine) -> None:
        try:
            world.clock.sleep(20)
        except ClockClosed:
            return
        with world.lock:
            if machine.state == "booting":
                machine.state = "active"
                machine.console += ["cloud-init is done", "hello from the guest"]

    world.on_boot = boot
    vast_cloud.set_up(world, {"list_after": 0.0})
    with serving(vast_cloud.app(world)) as url:
        made = Witness(world, url, who, Notes(request.node.name, who, url, TELLING), tmp_path)
        yield made
        made.notes.close()
        world.clock.close()


def test_search_by_the_command_line(witness: Witness) -> None:
    """It sends numbers as text, and underscores become blanks on its side."""
    query = (
        "gpu_name=RTX_4090 num_gpus=1 gpu_ram>=23 gpu_ram<=25 reliability>0.95 vms_enabled=true disk_space>=60 direct_port_count>1"
    )
    rows = witness.raw("search", "offers", query, "-o", "dph_total", "--storage", "64")
    assert rows and all(row["gpu_name"] == "RTX 4090" and row["num_gpus"] == 1 and row["gpu_ram"] == 24564 for row in rows)
    assert [row["dph_total"] for row in rows] == sorted(row["dph_total"] for row in rows)
    assert all(row["vms_enabled"] and row["reliability2"] > 0.95 and row["rentable"] for row in rows)
    first = rows[0]
    assert first["dph_total"] == pytest.approx(first["dph_base"] + 64 * first["storage_cost"] / 720)
    table = witness.run("vastai", "search", "offers", query).stdout
    assert "RTX_4090" in table and str(first["id"]) in table
    bids = witness.raw("search", "offers", "gpu_name=RTX_5090 num_gpus=1", "--type", "bid")
    assert bids and all(row["is_bid"] and row["dph_base"] == row["min_bid"] for row in bids)
    again = witness.raw("search", "offers", "gpu_name in [RTX_5090,H100_SXM] geolocation=NO", "-n", "--storage", "5", "--new")
    assert {row["gpu_name"] for row in again} == {"H100 SXM"}
    assert len(witness.raw("search", "offers", "-n", "--limit", "1000")) <= 64


def test_the_life_of_an_instance_by_the_command_line(witness: Witness) -> None:
    offer = witness.raw("search", "offers", "gpu_name=RTX_4090 num_gpus=1 vms_enabled=true", "-o", "dph_total")[0]
    given = ("--image", VM_IMAGE, "--disk", "12", "--ssh", "--direct", "--label", "tgp:test:n-1", "--cancel-unavail")
    env = ("--env", "-e A=b -p 41641:41641/udp", "--onstart-cmd", "#!/bin/bash\necho hello")
    made = witness.raw("create", "instance", str(offer["id"]), *given, *env)
    assert made["success"] is True
    number = made["new_contract"]
    young = witness.raw("show", "instance", str(number))
    assert (young["label"], young["extra_env"]["A"], young["is_bid"]) == ("tgp:test:n-1", "b", False)
    machine = witness.machine(number)
    assert machine.details["system"] == "ubuntu" and machine.payload == "#!/bin/bash\necho hello"
    assert machine.details["environment"] == {"A": "b"}
    witness.until(number, "active")
    seen = witness.raw("show", "instance", str(number))
    assert (seen["actual_status"], seen["intended_status"], seen["image_runtype"]) == ("running", "running", "ssh_direc ssh_proxy")
    listed = witness.run("vastai", "show", "instances").stdout
    assert str(number) in listed and "RTX 4090" in listed.replace("_", " ")
    assert witness.run("vastai", "ssh-url", str(number)).stdout.startswith("ssh://root@203.0.113.")
    assert "set to tgp:test:n-2" in witness.said("label", "instance", str(number), "tgp:test:n-2")
    assert machine.details["label"] == "tgp:test:n-2"
    assert [row["id"] for row in witness.raw("show", "instances", "--label", "tgp:test:n-2")] == [number]
    assert witness.run("vastai", "logs", str(number), "--tail", "2").stdout.split("\n")[:2] == ["hello from the guest", "hello"]
    witness.run("vastai", "stop", "instance", str(number))
    assert machine.state == "stopped" and machine.rate() == Decimal(12) * machine.offer.details["storage_price_hour"]
    assert witness.raw("show", "instance", str(number))["intended_status"] == "stopped"
    witness.run("vastai", "start", "instance", str(number))
    witness.until(number, "active")
    assert f"destroying instance {number}" in witness.run("vastai", "destroy", "instance", str(number), "-y").stdout
    assert machine.ended is not None
    assert witness.raw("show", "instance", str(number)) == {"instances": None}
    assert "not found" in witness.said("destroy", "instance", str(number), "-y")
    assert witness.raw("show", "instances") == []


def test_the_library_pages_through_the_list(witness: Witness) -> None:
    """30 instances are two pages."""
    witness.world.offers += vast_cloud.vast_offers(seed=3, count=60)
    code = """
offers = [offer for offer in vast.search_offers(query="direct_port_count>=1", no_default=True, limit=64) if offer["rentable"]][:30]
made = [vast.create_instance(id=offer["id"], image="pytorch/pytorch", disk=8, label=f"n-{i}", env="-e A=b")["new_contract"]
        for i, offer in enumerate(offers)]
rows = vast.show_instances()
vast.label_instance(id=made[0], label="again")
print(json.dumps([made, [row["id"] for row in rows], rows[3]["extra_env"], vast.show_instance(id=made[0])["label"]]))
"""
    made, listed, extra, label = witness.sdk(code)
    assert len(made) == 30 and listed == sorted(made) and extra["A"] == "b" and label == "again"
    kept, gone = witness.sdk(
        "rows = [row['id'] for row in vast.show_instances()]\n"
        "answers = [vast.destroy_instance(id=number)['success'] for number in rows[5:]]\n"
        "print(json.dumps([[row['id'] for row in vast.show_instances()], len(answers)]))"
    )
    assert kept == made[:5] and gone == 25
    assert sum(1 for machine in witness.world.machines.values() if machine.ended is None) == 5


def test_who_am_i_and_keys(witness: Witness) -> None:
    user = witness.raw("show", "user")
    assert user["credit"] == 1000.0 and user["ssh_key"].startswith("ssh-ed25519 ")
    added = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFNhbmRib3hLZXlXaXRob3V0UHJpdmF0ZVBhcnQy other"
    witness.run("vastai", "create", "ssh-key", added)
    keys = witness.raw("show", "ssh-keys")
    assert [key["public_key"] for key in keys][-1] == added
    witness.run("vastai", "delete", "ssh-key", str(keys[-1]["id"]))
    assert len(witness.raw("show", "ssh-keys")) == 1


@pytest.mark.parametrize("status", [401, 404])
def test_a_bad_key_is_named(witness: Witness, status: int) -> None:
    vast_cloud.set_up(witness.world, {"auth_status": status})
    said = witness.said("show", "instances", key="vast_wrong_0123456789abcdef0123456789")
    assert f"error {status}: Invalid user key" in said


def test_refusals_of_a_create(witness: Witness) -> None:
    world = witness.world

    def said(offer: str, *more: str) -> str:
        return witness.said("create", "instance", offer, "--image", "pytorch/pytorch", *more)

    assert "no_such_ask" in said("7")
    offer = next(one for one in world.offers if one.stock and one.details["min_bid"] > Decimal("0.1"))
    assert "error 400: Bid 0.05 is below" in said(offer.type, "--bid_price", "0.05", "--disk", "10")
    (left,) = world.machines.values()
    assert left.state == "stopped" and left.rate() == 10 * offer.details["storage_price_hour"]
    assert "disk" in said(offer.type, "--disk", "4")
    made = witness.raw("create", "instance", offer.type, "--image", "pytorch/pytorch", "--bid_price", "9")
    assert world.machines[str(made["new_contract"])].details["bid"] == 9
    assert "no_such_ask" in said(offer.type)
    assert "price must be" in witness.said("change", "bid", str(made["new_contract"]), "--price", "0.0001")


def test_charges_are_what_the_world_bills(witness: Witness) -> None:
    offer = next(one for one in witness.world.offers if one.stock)
    number = witness.raw("create", "instance", offer.type, "--image", "pytorch/pytorch")["new_contract"]
    witness.until(number, "active")
    witness.world.clock.advance(3600)
    witness.run("vastai", "destroy", "instance", str(number), "-y")
    witness.world.clock.advance(600)  # it is charged some minutes later
    until = str(
        int(witness.world.clock.seconds())
    )  # the library's own end is now by its clock, which may be a day before the world's
    rows = witness.sdk("print(json.dumps(vast.show_invoices_v1(charges=True, end_date=int(words[0]), limit=20)))", until)["results"]
    amount = sum(row["amount"] for row in rows if row["source"] == f"instance-{number}")
    machine = witness.machine(number)
    assert amount == pytest.approx(float(machine.cost(witness.world.clock.now()) + machine.traffic_cost()), abs=0.005)
    assert amount > float(offer.price_hour)
