# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines that were handed a tunnel join when the hub's file knows them, and not before."""

from __future__ import annotations

import pathlib
import time
import typing as t

import pytest

from sandbox.box import Box
from sandbox.clock import SimClock
from sandbox.scenario import parse
from tests.fixtures.tunnels import HUB, PUBLIC, WIREGUARD, tunnel
from tests.unit.sandbox.conftest import SMALL, Hand

KNOWN = f"[Interface]\nListenPort = 51820\n\n[Peer]\n# tgp:a\nPublicKey = {PUBLIC}\nAllowedIPs = 10.77.0.11/32\n"


@pytest.fixture(name="config")
def _config(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "wg-tgp.conf"


@pytest.fixture(name="hand")
def _hand(config: pathlib.Path) -> t.Iterator[Hand]:
    world = parse({**SMALL, "wireguard": {"hub_config": str(config), "hub_key": HUB}})
    with Box(world, clock=SimClock(1200.0), seed=11) as box:
        yield Hand(box)


def handed(hand: Hand, name: str, lane: str = "kubelet", **more: t.Any) -> str:
    return hand.payload(name, lane, mesh=WIREGUARD, tunnel=tunnel(), key=" ", **more)


def texts(machine: t.Any, step: str) -> list[str]:
    return [text for _time, found, text in machine.steps if found == step]


def joined(hand: Hand, name: str) -> dict[str, t.Any]:
    node = hand.node(name)
    assert node is not None and node["status"]["addresses"][0] == {"type": "InternalIP", "address": "10.77.0.11"}
    assert hand.ready(name) == "True" and hand.box.tailnet.devices() == []
    return node


def test_a_rented_machine_joins_after_the_peer_stands_in_the_hubs_file_and_not_before(hand: Hand, config: pathlib.Path) -> None:
    machine = hand.rent("tgp-a-1", handed(hand, "tgp-a-1"))
    hand.until(lambda: texts(machine, "mesh"))
    config.write_text("[Interface]\nListenPort = 51820\n")
    time.sleep(0.2)
    assert "the hub does not know this key" in texts(machine, "mesh")[0] and PUBLIC in texts(machine, "mesh")[0]
    assert hand.node("tgp-a-1") is None and not texts(machine, "csr")
    config.write_text(KNOWN)
    hand.story(machine, "done")
    joined(hand, "tgp-a-1")
    assert texts(machine, "mesh")[-1] == "10.77.0.11 behind the hub, by wg-tgp"


def test_a_machine_with_talos_waits_on_and_joins_in_the_end(hand: Hand, config: pathlib.Path) -> None:
    config.write_text(KNOWN.replace("10.77.0.11/32", "10.77.0.12/32"))
    power = hand.client("webhook")
    told = handed(hand, "rack-1", "talos", gpu_count=2)
    assert power.post("/rack-1/start", json={"machineConfig": told}).status_code == 202
    machine = hand.box.world.machines["rack-1"]
    hand.until(lambda: any("10.77.0.11 does not belong to this key" in text for text in texts(machine, "mesh")))
    began = hand.box.world.clock.seconds()
    hand.until(lambda: hand.box.world.clock.seconds() - began > 3 * 180 + 60)
    assert hand.node("rack-1") is None and not machine.console[-1].startswith("fail")
    config.write_text(KNOWN)
    hand.story(machine, "done")
    joined(hand, "rack-1")


def test_a_hub_that_never_learns_the_key_ends_it_with_the_words_that_are_diagnosed(hand: Hand, config: pathlib.Path) -> None:
    config.write_text("[Interface]\nListenPort = 51820\n")
    machine = hand.rent("tgp-a-1", handed(hand, "tgp-a-1"))
    hand.until(lambda: machine.console and machine.console[-1].startswith("fail mesh: no handshake with the hub at "))
    assert hand.node("tgp-a-1") is None


def test_a_machine_that_comes_back_needs_its_hub_again(hand: Hand, config: pathlib.Path) -> None:
    config.write_text(KNOWN)
    power = hand.client("webhook")
    assert power.post("/rack-1/start", json={"machineConfig": handed(hand, "rack-1", "talos", gpu_count=2)}).status_code == 202
    machine = hand.box.world.machines["rack-1"]
    hand.story(machine, "done")
    uid = joined(hand, "rack-1")["metadata"]["uid"]
    assert power.post("/rack-1/stop", json={}).status_code == 202
    hand.until(lambda: machine.state == "off")
    hand.until(lambda: hand.ready("rack-1") == "Unknown")
    assert power.post("/rack-1/start", json={}).status_code == 202
    hand.story(machine, "done")
    hand.until(lambda: hand.ready("rack-1") == "True")
    assert joined(hand, "rack-1")["metadata"]["uid"] == uid and not texts(machine, "csr")


def test_talos_leaves_a_tunnel_in_its_pod_subnet_out_and_the_kubelet_has_no_address(hand: Hand, config: pathlib.Path) -> None:
    config.write_text(KNOWN)
    told = handed(hand, "rack-1", "talos", gpu_count=2)
    assert "10.244.0.0/16" in told
    power = hand.client("webhook")
    told = told.replace("10.244.0.0/16", "10.77.0.0/16")
    assert power.post("/rack-1/start", json={"machineConfig": told}).status_code == 202
    machine = hand.box.world.machines["rack-1"]
    hand.until(lambda: machine.console and "no suitable node IP found" in machine.console[-1])
    assert hand.node("rack-1") is None
