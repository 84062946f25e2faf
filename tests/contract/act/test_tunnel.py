# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S1-32, S3-39: machines that reach the cluster through a WireGuard hub: addresses, keys, and what the hub is to know."""

from __future__ import annotations

import base64
import gzip
import json
import re

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.wireguard.conf import public_key

from sandbox.world import Machine

from .rig import Cut, Killed, Rig

HUB = {
    "endpoint": "203.0.113.10:51820",
    "publicKey": "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8=",
    "network": "10.77.0.0/24",
    "addresses": "10.77.0.8/29",
    "hub": "hub-1",
}


@pytest.fixture
def tunnel(rig: Rig) -> Rig:
    rig.demo_class.pop("tailscaleConfig", None)
    rig.demo_class["providers"] = [one for one in rig.demo_class["providers"] if one["name"] == "lambda"]
    rig.demo_class["wireguardConfig"] = dict(HUB)
    rig.documents = [one for one in rig.documents if one["metadata"]["name"] in ("demo", "training")]
    return rig


def private_key(machine: Machine) -> str:
    """From what the machine was handed at boot."""
    files = yaml.safe_load(str(machine.payload))["write_files"]
    for file in files:
        content = file["content"]
        if str(file.get("encoding", "")).startswith("gz"):
            content = gzip.decompress(base64.b64decode(content)).decode()
        found = re.search(r"PrivateKey\s*=\s*(\S{44})", content)
        if found:
            return found[1]
    raise AssertionError("no private key was handed over")


def test_S3_39_a_machine_gets_an_address_and_a_key_of_its_own(tunnel: Rig) -> None:
    done = tunnel.rent(nodes=2)
    assert [one["result"] for one in done["machines"]] == ["launched", "launched"]
    claims = tunnel.claims()
    (hub,) = done["hubs"]
    assert (hub["host"], hub["interface"], len(hub["peers"])) == ("hub-1", "wg-tgp", 2)
    for machine in tunnel.machines():
        secret = private_key(machine)
        (peer,) = [one for one in hub["peers"] if one["name"] == machine.name]
        assert peer["public_key"] == public_key(secret)
        assert re.fullmatch(r"10\.77\.0\.(8|9|1[0-5])/32", peer["allowed_ips"][0])
        assert secret not in json.dumps([done, claims, tunnel.lines, tunnel.warnings])
    assert len({one["allowed_ips"][0] for one in hub["peers"]}) == 2
    assert not [one for one in tunnel.writes() if "tailscale" in one]


def test_S3_39_hubs_hear_of_a_machine_until_its_record_is_gone(tunnel: Rig) -> None:
    tunnel.rent()
    (peer,) = tunnel.plan("reap", check=True)["hubs"][0]["peers"]
    assert peer["name"] == tunnel.machine().name
    done = tunnel.destroy(force=True)
    cluster = peer["name"].split("-")[1]
    assert done["hubs"] == [{"host": "hub-1", "interface": "wg-tgp", "cluster_id": cluster, "peers": [], "gone": [peer["name"]]}]
    assert tunnel.plan("reap")["hubs"][0]["peers"] == []
    tunnel.advance(31 * 86400)
    assert tunnel.plan("reap", check=True)["hubs"][0]["gone"] == []


def test_S3_39_the_hub_keeps_the_peer_of_a_machine_whose_record_was_lost(tunnel: Rig) -> None:
    """An adopted machine's key is on no record; without its peer it would be cut off while it works."""
    (peer,) = tunnel.rent()["hubs"][0]["peers"]
    name, file = peer["name"], tunnel.folder / "hub.conf"
    file.write_text(f"[Interface]\n[Peer]\nPublicKey = {peer['public_key']}\nAllowedIPs = {peer['allowed_ips'][0]}\n")
    tunnel.box.hub.config, tunnel.box.hub._key = str(file), HUB["publicKey"]
    assert tunnel.join()["machines"][0]["result"] == "ready"
    tunnel.kube("DELETE", f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{name}")
    (hub,) = tunnel.reap()["hubs"]
    assert tunnel.claim()["peer"] is None and (hub["peers"], hub["unknown"], hub["gone"]) == ([], [name], [])
    (hub,) = tunnel.destroy(force=True)["hubs"]
    assert hub["gone"] == [name] and "unknown" not in hub


def test_L12a_another_cluster_with_the_same_id_takes_no_peer_from_a_machine(tunnel: Rig) -> None:
    """Its store has no claim for the machine, and the cloud lists it: the hub keeps what it knows, and so it does while a list fails."""
    tunnel.rent()
    twin = tunnel.twin()
    (hub,) = twin.reap()["hubs"]
    assert (hub["peers"], hub["unknown"], hub.get("state")) == ([], [tunnel.machine().name], None)
    tunnel.advance(60)
    tunnel.fault("status", "lambda", "GET", "/api/v1/instances$", status=503, times=None)
    (hub,) = twin.reap()["hubs"]
    assert (hub["peers"], hub.get("unknown"), hub["state"]) == ([], None, "present")


def test_S3_39_the_documents_may_have_forgotten_the_class(tunnel: Rig) -> None:
    tunnel.rent()
    tunnel.documents = []
    (hub,) = tunnel.plan("reap", check=True)["hubs"]
    assert (hub["host"], len(hub["peers"])) == ("hub-1", 1)


def test_S3_39_an_interrupted_launch_keeps_its_address_and_gets_another_key(tunnel: Rig) -> None:
    tunnel.cut = Cut(5, after=True)  # the generation, claim, its peer, token, token's id
    with pytest.raises(Killed):
        tunnel.rent()
    tunnel.cut = None
    (before,) = tunnel.claims().values()
    assert before["peer"]["address"].startswith("10.77.0.") and before["peer"]["public_key"] and not tunnel.machines()
    tunnel.rent()
    after = tunnel.claim()
    assert after["peer"]["address"] == before["peer"]["address"]
    assert after["peer"]["public_key"] == public_key(private_key(tunnel.machine())) != before["peer"]["public_key"]


def test_S3_39_a_network_without_room_is_told_before_anything_is_rented(tunnel: Rig) -> None:
    tunnel.demo_class["wireguardConfig"]["addresses"] = "10.77.0.0/30"
    plan = tunnel.plan("provision", pools=["training"], nodes=3, check=True)
    assert [one["action"] for one in plan["plan"]].count("launch") == 2
    assert "no address is free in 10.77.0.0/30" in " ".join(plan["problems"])


def test_S1_41_a_loop_does_not_begin_where_a_hub_is_to_be_told(tunnel: Rig) -> None:
    with pytest.raises(InvalidInput, match="a loop has none"):
        tunnel.plan("autoscale", loop=True)
    tunnel.demo_class["wireguardConfig"].pop("hub")
    assert tunnel.plan("autoscale", loop=True)["hubs"] == []
