# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Making contracts of Vast's offers: what is checked, what is refused, and what a refusal leaves behind."""

from __future__ import annotations

import typing as t
from decimal import Decimal

import pytest

from sandbox.vast_cloud import vast_offer

from .vast_stand import VM_IMAGE, VastStand

PLAIN, GUEST, TAKEN = 11, 12, 13


@pytest.fixture
def stand() -> VastStand:
    return VastStand(
        vast_offer({"gpu": "RTX 3090", "id": PLAIN, "price": "0.16", "min_bid": "0.08", "disk_gb": 100, "ports": 3}),
        vast_offer({"gpu": "RTX 4090", "id": GUEST, "price": "0.36", "vm": True, "storage": "0.72"}),
        vast_offer({"gpu": "RTX 4090", "id": TAKEN, "stock": 0}),
    )


LONG = {f"NAME_{index:03d}": "x" * 240 for index in range(140)}


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"client_id": "you"}, "invalid_args"),
        ({"image": ...}, "invalid_args"),
        ({"image": "x" * 1025}, "invalid_args"),
        ({"disk": 7}, "invalid_args"),
        ({"disk": "16"}, "invalid_args"),
        ({"disk": 101}, "invalid_args"),
        ({"label": "x" * 257}, "invalid_args"),
        ({"env": {"A": "x" * 257}}, "invalid_args"),
        ({"env": {"x" * 257: "A"}}, "invalid_args"),
        ({"env": LONG}, "invalid_args"),
        ({"env": {"--privileged": "1"}}, "invalid_args"),
        ({"env": {"-p everything": "1"}}, "invalid_args"),
        ({"env": {"-p 0:0": "1"}}, "invalid_args"),
        ({"env": {"-p 65536:65536": "1"}}, "invalid_args"),
        ({"env": {"-p 69999:69999": "1"}}, "invalid_args"),
        ({"env": {f"-p {port}:{port}": "1" for port in range(1000, 1065)}}, "invalid_args"),
        ({"onstart": "x" * 4049}, "invalid_args"),
        ({"onstart": "x" * 4000, "args": ["-c", "x" * 60]}, "invalid_args"),
        ({"runtype": "vnc"}, "invalid_args"),
        ({"target_state": "frozen"}, "invalid_args"),
        ({"price": 0.0001}, "invalid_price"),
        ({"price": 129}, "invalid_price"),
        ({"price": "cheap"}, "invalid_price"),
        ({"template_hash_id": "abc"}, "invalid_args"),
        ({"volume_info": {"create_new": True}}, "invalid_args"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_refused_leaves_nothing(stand: VastStand, fields: dict[str, t.Any], error: str) -> None:
    assert stand.create(PLAIN, 400, **fields)["error"] == error
    assert not stand.world.machines and stand.world.offers[0].stock == 1


@pytest.mark.parametrize(
    ("offer", "fields", "error"),
    [
        (GUEST, {"runtype": "args"}, "invalid_args"),
        (GUEST, {"runtype": "jupyter_direct"}, "invalid_args"),
        (GUEST, {"image": "vastai/kvm:ubuntu_terminal"}, "invalid_args"),
        (GUEST, {"env": {"-v V.1:/mnt": "1"}}, "invalid_args"),
        (PLAIN, {}, "invalid_args"),
    ],
    ids=str,
)
def test_what_a_guest_needs(stand: VastStand, offer: int, fields: dict[str, t.Any], error: str) -> None:
    wanted = {"vm": True, "image": VM_IMAGE, "runtype": "ssh_direct", **fields}
    assert stand.create(offer, 400, **wanted)["error"] == error


def test_a_guest_needs_a_key_in_the_account(stand: VastStand) -> None:
    for key in stand.call("GET", "/api/v0/ssh/"):
        stand.call("DELETE", f"/api/v0/ssh/{key['id']}/")
    wanted = {"vm": True, "image": VM_IMAGE, "runtype": "ssh_direct"}
    assert stand.create(GUEST, 400, **wanted)["error"] == "no_ssh_key_for_vm"
    stand.call("POST", "/api/v0/ssh/", {"ssh_key": "no key"}, 400)
    stand.call("POST", "/api/v0/ssh/", {"ssh_key": "ssh-ed25519 AAAAC3Nza me"})
    number = stand.create(GUEST, **wanted)
    stand.call("POST", f"/api/v0/instances/{number}/ssh/", {"ssh_key": "ssh-ed25519 AAAAC3Nzb you"}, 400)


def test_a_guest_is_given_script_and_environment(stand: VastStand) -> None:
    fields = {"vm": True, "image": VM_IMAGE, "runtype": "ssh_direct", "label": "tgp:x:n-1", "onstart": "#!/bin/bash\ntrue"}
    machine = stand.machine(stand.create(GUEST, env={"A": "b", "-p 41641:41641/udp": "1", "-h box": "1"}, **fields))
    assert (machine.name, machine.hostname, machine.payload) == ("tgp:x:n-1", "box", "#!/bin/bash\ntrue")
    assert machine.details["system"] == "ubuntu" and machine.details["environment"] == {"A": "b"}
    stand.call("DELETE", f"/api/v0/instances/{machine.id}/")
    assert stand.machine(stand.create(GUEST, **{**fields, "onstart": "echo no shebang"})).payload is None


@pytest.mark.parametrize(
    ("fields", "command"),
    [
        ({"runtype": "args", "onstart": "/bin/sh", "args": ["-c", "tailscaled & sleep 9"]}, "tailscaled & sleep 9"),
        ({"runtype": "args", "args_str": "serve --port 80"}, "serve --port 80"),
        ({"runtype": "ssh_direc ssh_proxy", "onstart": "echo hello"}, "echo hello"),
    ],
)
def test_what_a_container_is_given(stand: VastStand, fields: dict[str, t.Any], command: str) -> None:
    env = {"A": "b", "-e C=d": "1", "-p 8000:8000": "1"}
    number = stand.create(PLAIN, env=env, **fields)
    details = stand.machine(number).details
    assert (details["system"], details["image"], details["command"]) == ("container", "pytorch/pytorch", command)
    assert (
        details["ports"][0] == 8000 and {"A": "b", "C": "d", "CONTAINER_ID": str(number)}.items() <= details["environment"].items()
    )
    assert details["environment"]["VAST_TCP_PORT_8000"].isdecimal()
    assert ["A", "b"] in stand.show(number)["extra_env"]


def test_what_a_container_was_given_is_shown(stand: VastStand) -> None:
    number = stand.create(PLAIN, runtype="args", onstart="/bin/sh", args=["-c", "serve"], args_str="--port 80")
    row = stand.show(number)
    assert row["image_args"] == ["-c", "serve", "--port", "80"] and row["onstart"] == "/bin/sh"
    assert (row["vms_enabled"], row["is_vm_deverified"], row["external"], row["sla_r_claim"]) == (False, False, None, 0.0)
    assert row["mem_usage"] is None and row["mem_limit"] > 0


def test_identity_ports_are_the_same_inside_and_outside(stand: VastStand) -> None:
    """Whoever asks for 70000 or more gets a free port of the host, and is told which."""
    number = stand.create(PLAIN, runtype="args", env={"-p 8000:8000": "1", "-p 70000:70000": "1", "-p 70001:70001/udp": "1"})
    details = stand.machine(number).details
    tcp, udp = (details["environment"][f"VAST_{name}"] for name in ("TCP_PORT_70000", "UDP_PORT_70001"))
    assert 1024 <= int(tcp) <= 65535 and 1024 <= int(udp) <= 65535 and len({tcp, udp}) == 2
    assert details["ports"] == [8000, int(tcp), int(udp)]
    stand.up(number)
    stand.world.clock.advance(5)
    ports = stand.show(number)["ports"]
    assert set(ports) == {"8000/tcp", f"{tcp}/tcp", f"{udp}/udp"}
    assert ports[f"{tcp}/tcp"][0]["HostPort"] == tcp and ports[f"{udp}/udp"][0]["HostPort"] == udp
    assert ports["8000/tcp"][0]["HostPort"] != "8000"


def test_a_text_of_variables_is_not_applied(stand: VastStand) -> None:
    assert "A" not in stand.machine(stand.create(PLAIN, env="-e A=b")).details["environment"]


def test_an_offer_can_be_taken_once(stand: VastStand) -> None:
    gone = stand.create(TAKEN, 410)
    assert "3907" in gone["msg"] and "no_such_ask" in gone["msg"] and gone["ask_id"] == TAKEN
    assert "3603" in stand.create(TAKEN, 400, cancel_unavail=False)["msg"]
    assert "3603" in stand.create(999, 400)["msg"]
    number = stand.create(PLAIN)
    assert "no_such_ask" in stand.create(PLAIN, 410)["msg"]
    stand.call("DELETE", f"/api/v0/instances/{number}/")
    assert stand.create(PLAIN) != number


def test_a_bid_too_low_leaves_a_stopped_instance_that_is_billed(stand: VastStand) -> None:
    refused = stand.create(PLAIN, 400, price=0.05, cancel_unavail=True)
    left = stand.machine(refused["new_contract"])
    assert refused["success"] is False and left.state == "stopped" and stand.world.offers[0].stock == 1
    stand.world.clock.advance(3600)
    now = stand.world.clock.now()
    assert round(left.cost(now), 6) == round(Decimal(16) * Decimal("0.15") / 720, 6)
    row = stand.show(refused["new_contract"])
    assert (row["actual_status"], row["intended_status"], row["is_bid"]) == ("stopped", "stopped", True)
    stand.call("DELETE", f"/api/v0/instances/{left.id}/")
    stand.world.clock.advance(3600)
    assert left.cost(stand.world.clock.now()) < Decimal("0.0034") and stand.world.offers[0].stock == 1


def test_a_start_that_fails(stand: VastStand) -> None:
    stand = VastStand(*stand.world.offers, start_failures=2)
    assert "no_such_ask" in stand.create(PLAIN, 410, cancel_unavail=True)["msg"] and not stand.world.machines
    number = stand.create(PLAIN, cancel_unavail=False)
    assert stand.show(number)["actual_status"] == "stopped" and stand.machine(number).rate() > 0


def test_money_ends_it(stand: VastStand) -> None:
    poor = VastStand(*stand.world.offers, credit=Decimal(0))
    assert poor.create(PLAIN, 400)["error"] == "insufficient_credit"
    young = VastStand(*stand.world.offers, spend_limit=Decimal("0.40"))
    young.create(GUEST, vm=True, image=VM_IMAGE)
    young.up(20_771_845)
    assert young.create(PLAIN, 400)["error"] == "spend_rate_limit"


def test_only_so_many_ports_are_mapped(stand: VastStand) -> None:
    number = stand.create(PLAIN, runtype="ssh_direct", env={f"-p {port}:{port}": "1" for port in (8000, 8001, 8002)})
    assert stand.show(number)["ports"] == {} and stand.show(number)["public_ipaddr"] is None
    stand.up(number)
    assert stand.show(number)["ports"] == {}
    stand.world.clock.advance(2.5)
    assert set(stand.show(number)["ports"].values()) == {None}
    stand.world.clock.advance(2.5)
    mapped = stand.show(number)["ports"]
    assert mapped["22/tcp"] is None and all(mapped[f"{port}/tcp"][0]["HostPort"].isdecimal() for port in (8000, 8001, 8002))
    assert stand.show(number)["public_ipaddr"].strip().startswith("203.0.113.")
