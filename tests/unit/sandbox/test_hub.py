# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hub's file decides whose tunnel stands; and a machine's own end is read as wg-quick or Talos would."""

from __future__ import annotations

import os
import pathlib
import typing as t

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.payload import payload
from ansible_collections.tgp.gpu.plugins.module_utils.model import Lane

from sandbox.hub import Hub, Tunnel, parse, public_key, tunnel_of
from sandbox.payload import TALOS, UBUNTU, Refused
from sandbox.payload_reader import read
from sandbox.scenario import ScenarioError
from sandbox.scenario import parse as scenario
from tests.fixtures.tunnels import HUB, PRIVATE, PUBLIC, make_tunnelled

HUB_PRIVATE = "aHViJ3MgcHJpdmF0ZSBrZXkgb2YgdGVzdHMgLi4uLi4="
MINE = Tunnel(PRIVATE, "10.77.0.11", HUB, 51820, "wg-tgp")


def conf(*peers: tuple[str, str], own: str = "ListenPort = 51820") -> str:
    return f"[Interface]\n{own}\n" + "".join(f"\n[Peer]\nPublicKey = {key}\nAllowedIPs = {allowed}\n" for key, allowed in peers)


def hub(folder: pathlib.Path, text: str, key: str = HUB) -> Hub:
    path = folder / "wg-tgp.conf"
    path.write_text(text)
    return Hub(str(path), key)


def test_the_public_key_is_that_of_wg_pubkey() -> None:
    assert public_key(PRIVATE) == PUBLIC == MINE.public_key
    for wrong in ("", "short", PRIVATE[:-2], "not base64 " * 4):
        with pytest.raises(ValueError, match="Key is not the correct length or format"):
            public_key(wrong)


@pytest.mark.parametrize(
    "text, why",
    [
        (conf((PUBLIC, "10.77.0.11/32")), ""),
        (conf((HUB, "10.77.0.12/32"), (PUBLIC, "10.9.0.0/16, 10.77.0.11/32")), ""),
        (conf((PUBLIC, "10.77.0.0/24")), ""),
        (conf((PUBLIC, "10.77.0.0/24"), (HUB, "10.77.0.11/32")), "10.77.0.11 does not belong to this key"),
        (conf((PUBLIC, "10.77.0.11/32"), (HUB, "10.77.0.11/32")), "10.77.0.11 does not belong to this key"),
        (conf((HUB, "10.77.0.11/32"), (PUBLIC, "10.77.0.11/32")), ""),
        (conf((PUBLIC, "10.77.0.12/32")), "10.77.0.11 does not belong to this key"),
        (conf((HUB, "10.77.0.11/32")), "the hub does not know this key"),
        (conf(), "the hub does not know this key"),
        (conf((PUBLIC, "10.77.0.11/32"), own="ListenPort = 51821"), "the hub listens at port 51821"),
        (conf((PUBLIC, "10.77.0.11/32"), own="# nothing"), ""),
        ("", "the hub does not know this key"),
    ],
)
def test_a_tunnel_stands_when_key_and_address_belong_together(tmp_path: pathlib.Path, text: str, why: str) -> None:
    assert hub(tmp_path, text).refusal(MINE) == why


def test_the_hubs_own_key_is_given_or_that_of_its_file(tmp_path: pathlib.Path) -> None:
    text = conf((PUBLIC, "10.77.0.11/32"), own=f"PrivateKey = {HUB_PRIVATE}")
    made = Tunnel(PRIVATE, "10.77.0.11", public_key(HUB_PRIVATE), 51820)
    assert hub(tmp_path, text, "").refusal(made) == "" and hub(tmp_path, text, "").refusal(MINE) == "the hub has another key"
    assert hub(tmp_path, text).refusal(made) == "the hub has another key"
    assert hub(tmp_path, conf(own="PrivateKey = x"), "").refusal(made) == "the hub's own key is none"


def test_the_file_is_read_again_when_it_changes_and_may_be_missing(tmp_path: pathlib.Path) -> None:
    one = hub(tmp_path, conf())
    path = tmp_path / "wg-tgp.conf"
    assert one.peers == {}
    path.write_text(conf((PUBLIC, "10.77.0.11/32")))
    os.utime(path, ns=(1, 1))
    assert one.peers == {PUBLIC: "10.77.0.11"} and one.refusal(MINE) == ""
    path.unlink()
    assert one.peers == {} and one.refusal(MINE)
    path.write_text(conf((PUBLIC, "10.77.0.11/32")))
    assert one.refusal(MINE) == ""
    assert Hub().refusal(MINE) == "there is no hub in this world"


def test_what_is_none_of_wireguards_own_is_passed_over() -> None:
    found = parse(
        f"# a note\n[Interface]\nAddress = 10.77.0.1/24\nPostUp = x\n[Peer] # tgp:a\nPublicKey={PUBLIC}\nAllowedIPs=nowhere,10.77.0.11/32\n"
    )
    assert found.peers == ((PUBLIC, ("10.77.0.11/32",)),) and found.port == 0


def test_a_machines_end_needs_a_hub_and_its_address() -> None:
    text = (
        f"[Interface]\nAddress = 10.77.0.11/24\nPrivateKey = {PRIVATE}\n[Peer]\nPublicKey = {HUB}\nEndpoint = 203.0.113.10:51820\n"
    )
    assert tunnel_of(text, "wg-tgp", "10.77.0.11") == MINE
    assert tunnel_of(text, "wg-tgp", "10.77.0.12") is None
    assert tunnel_of(text.replace("Endpoint", "Nothing"), "wg-tgp", "10.77.0.11") is None
    assert tunnel_of(text.replace("PrivateKey", "Nothing"), "wg-tgp", "10.77.0.11") is None


@pytest.mark.parametrize("release", [{}, {"talos_version": "1.11.6", "kubernetes_version": "1.34.1"}])
@pytest.mark.parametrize("lane, system", [(Lane.TALOS, TALOS), (Lane.KUBELET, UBUNTU)])
def test_the_payload_of_either_lane_is_read(lane: Lane, system: str, release: dict[str, str]) -> None:
    found = read(payload(make_tunnelled(lane=lane, **release)).text, system)
    assert found is not None and found.mesh is None and found.tunnel is not None
    assert (found.tunnel.public_key, found.tunnel.address, found.tunnel.hub_key) == (PUBLIC, "10.77.0.11", HUB)
    assert (found.tunnel.port, found.tunnel.interface) == (51820, "wg-tgp")
    assert found.node_subnets == (("10.77.0.0/24",) if lane is Lane.TALOS else ())


def talos(change: t.Callable[[list[dict[str, t.Any]]], t.Any]) -> str:
    documents = list(yaml.safe_load_all(payload(make_tunnelled()).text))
    change(documents)
    return yaml.safe_dump_all(documents)


def link(documents: list[dict[str, t.Any]]) -> dict[str, t.Any]:
    return next(one for one in documents if one.get("kind") == "WireguardConfig")


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda one: one.update(privateKey="x"), "private key is invalid: illegal base64"),
        (lambda one: one.update(privateKey="c2hvcnQ="), "private key is invalid: wrong key 5 bytes"),
        (lambda one: one.update(name=""), "name must be specified"),
        (lambda one: one["peers"][0].update(publicKey="x"), "peer public key is invalid .peer index 0."),
        (lambda one: one["peers"][0].update(presharedKey="x"), "preshared key is invalid"),
        (lambda one: one["peers"][0].update(endpoint="hub.example.org:51820"), "invalid ip:port"),
        (lambda one: one["peers"][0].update(allowedIPs=["10.77.0.0"]), "ParsePrefix"),
        (lambda one: one["routes"][0].update(gateway="gate"), "ParseAddr"),
        (lambda one: one["peers"][0].update(persistentKeepaliveInterval="25"), "invalid duration '25'"),
        (lambda one: one.update(addresses=[{"address": "10.77.0.11"}]), "address is not valid"),
    ],
)
def test_talos_refuses_a_document_that_says_nothing_it_could_do(change: t.Callable[[dict[str, t.Any]], t.Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        read(talos(lambda documents: change(link(documents))), TALOS)


def test_talos_refuses_two_documents_for_one_link_and_lets_the_document_count_beside_an_interface() -> None:
    with pytest.raises(Refused, match="conflicting documents: WireguardConfig/wg-tgp and LinkConfig/wg-tgp"):
        read(talos(lambda documents: documents.append({"apiVersion": "v1alpha1", "kind": "LinkConfig", "name": "wg-tgp"})), TALOS)

    def beside(key: str) -> str:
        interface = {
            "interface": "wg-tgp",
            "addresses": ["10.9.9.9/24"],
            "wireguard": {"privateKey": key, "peers": [{"publicKey": HUB}]},
        }
        return talos(lambda documents: documents[0]["machine"].update(network={"interfaces": [interface]}))

    found = read(beside(PRIVATE), TALOS)
    assert found is not None and found.tunnel is not None and found.tunnel.address == "10.77.0.11"
    with pytest.raises(Refused, match="private key is invalid"):
        read(beside("x"), TALOS)


def test_a_link_that_is_down_or_speaks_to_nobody_is_no_way_to_the_cluster() -> None:
    for change in ({"up": False}, {"peers": []}, {"addresses": []}):
        found = read(talos(lambda documents, change=change: link(documents).update(change)), TALOS)
        assert found is not None and found.tunnel is None


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("MESH_HUB_KEY=", "MESH_HUB_KEY=x", "has no such hub"),
        ("MESH_ADDRESS=10.77.0.11", "MESH_ADDRESS=10.77.0.12", "has no such hub or address"),
        ("MESH_INTERFACE=wg-tgp", "MESH_INTERFACE=wg-xyz", "/etc/wireguard/wg-xyz.conf is missing"),
        (f"PrivateKey = {PRIVATE}", "PrivateKey = x", "the tunnel wg-tgp does not come up: Key is not"),
    ],
)
def test_ubuntu_refuses_a_tunnel_that_does_not_fit_its_settings(old: str, new: str, words: str) -> None:
    text = payload(make_tunnelled(lane=Lane.KUBELET)).text
    assert old in text
    with pytest.raises(Refused, match=words) as caught:
        read(text.replace(old, new), UBUNTU)
    assert caught.value.step == "mesh"


def test_a_scenario_names_the_file() -> None:
    made = scenario({"wireguard": {"hub_config": "/x/wg.conf", "hub_key": HUB}})
    assert (made.hub_config, made.hub_key) == ("/x/wg.conf", HUB)
    assert scenario({}).hub_config == ""
    for wrong in ({"hub_key": HUB}, {"hub_config": "/x", "more": 1}, {"hub_config": 7}):
        with pytest.raises(ScenarioError, match="wireguard"):
            scenario({"wireguard": wrong})


def test_a_file_that_cannot_be_read_is_a_reason_and_no_crash(tmp_path: pathlib.Path) -> None:
    assert Hub(str(tmp_path), HUB).refusal(MINE) == "the hub's file cannot be read: Is a directory"
    path = tmp_path / "wg-tgp.conf"
    path.write_bytes(b"\xff\xfe\x00")
    found = Hub(str(path), HUB)
    assert found.refusal(MINE) == "the hub's file cannot be read: it is not text"
    path.write_text(conf((PUBLIC, "10.77.0.11/32")))
    assert found.refusal(MINE) == ""  # it is read again
    assert Hub(str(path / "below"), HUB).refusal(MINE) == "the hub does not know this key"
