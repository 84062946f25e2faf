# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Ubuntu machine with a WireGuard tunnel: the file of wg-quick, and the bootstrap program really run with it."""

from __future__ import annotations

import pathlib
import stat
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.kubelet.cloud_config import conf
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.payload import documents_for, payload
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.model import Carrier, Lane
from ansible_collections.tgp.gpu.plugins.module_utils.talos.template import machine_document
from test_bootstrap import CARRIED, STEPS, Machine
from test_kubelet import files_of, settings

from tests.fixtures.tunnels import HUB, PRIVATE, PUBLIC, WIREGUARD, make_tunnelled, tunnel

CONF = f"""\
# Written by the Ansible collection tgp.gpu.
[Interface]
Address = 10.77.0.11/24
PrivateKey = {PRIVATE}
MTU = 1420

[Peer]
PublicKey = {HUB}
Endpoint = 203.0.113.10:51820
AllowedIPs = 10.77.0.0/24, 192.168.10.0/24
PersistentKeepalive = 25
"""
TUNNELLED: dict[str, t.Any] = {"mesh": WIREGUARD, "tunnel": tunnel(), "auth_key": "", "endpoint": "https://10.77.0.1:6443"}


def written(**changes: t.Any) -> str:
    spec = make_tunnelled(lane=Lane.KUBELET, **changes)
    documents, _warnings = documents_for(spec, None)
    assert spec.tunnel is not None
    return conf(documents, machine_document(documents) or {}, spec.tunnel)


@pytest.fixture(name="machine")
def _machine(tmp_path: pathlib.Path) -> Machine:
    return Machine(tmp_path, mesh=WIREGUARD)


def test_the_file_says_what_talos_would_be_told() -> None:
    assert written() == CONF
    assert written(talos_version="1.11.6", kubernetes_version="1.34.1") == CONF
    more = f"{{apiVersion: v1alpha1, kind: WireguardConfig, name: wg-tgp, mtu: 1412, listenPort: 51821, firewallMark: 7, peers: [{{publicKey: {PUBLIC}, presharedKey: {HUB}, persistentKeepaliveInterval: 1m30s}}]}}"  # fmt: skip # noqa: E501
    text = written(patches=(more,))
    assert "MTU = 1412\nListenPort = 51821\nFwMark = 7\n" in text
    assert text.endswith(f"\n[Peer]\nPublicKey = {PUBLIC}\nPresharedKey = {HUB}\nPersistentKeepalive = 90\n")


@pytest.mark.parametrize("duration, words", [("1.5s", "whole seconds"), ("100ms", "whole seconds")])
def test_what_wg_quick_cannot_be_told_is_refused(duration: str, words: str) -> None:
    peer = f"{{publicKey: {PUBLIC}, persistentKeepaliveInterval: {duration}}}"
    more = f"{{apiVersion: v1alpha1, kind: WireguardConfig, name: wg-tgp, peers: [{peer}]}}"
    with pytest.raises(InvalidInput, match=words):
        written(patches=(more,))


def test_the_key_stands_in_its_own_file_for_root_alone_and_nothing_of_tailscale_is_there() -> None:
    contents, document = files_of(**TUNNELLED)
    modes = {file["path"]: file["permissions"] for file in document["write_files"]}
    assert [path for path, content in contents.items() if PRIVATE in content] == ["/etc/wireguard/wg-tgp.conf"]
    assert modes["/etc/wireguard/wg-tgp.conf"] == "0600" and contents["/etc/wireguard/wg-tgp.conf"] == CONF
    assert "/etc/tgp/authkey" not in contents
    found = settings(contents)
    assert (found["MESH_BACKEND"], found["MESH_INTERFACE"], found["MESH_ADDRESS"]) == ("wireguard", "wg-tgp", "10.77.0.11")
    assert (found["MESH_HUB_KEY"], found["MESH_ENDPOINT"], found["KERNEL_MODULES"]) == (HUB, "203.0.113.10:51820", "wireguard")
    assert '"mtu": 1420' in contents["/etc/tgp/cni.conflist"]


def test_the_nodes_own_bridge_keeps_out_of_what_lies_behind_the_hub() -> None:
    contents, _document = files_of(**{**TUNNELLED, "tunnel": tunnel(allowed=("10.77.0.0/24", "172.16.0.0/12"))})
    assert "192.168.219.0/24" in contents["/etc/tgp/cni.conflist"]


def test_the_tunnel_is_not_left_out_and_others_are_said_to_be() -> None:
    other = (
        f"machine: {{}}\ncluster: {{}}\n---\n{{apiVersion: v1alpha1, kind: WireguardConfig, name: wg9, privateKey: {PRIVATE}}}\n"
    )
    assert payload(make_tunnelled(lane=Lane.KUBELET)).warnings == ()
    (warning,) = payload(make_tunnelled(lane=Lane.KUBELET), other).warnings
    assert "WireguardConfig" in warning


@pytest.mark.parametrize("carrier", list(CARRIED))
def test_every_size_limit_holds(carrier: Carrier) -> None:
    payload(make_tunnelled(lane=Lane.KUBELET), capability=CARRIED[carrier])
    assert len(payload(make_tunnelled(lane=Lane.KUBELET)).text.encode()) < 16_000


@pytest.mark.parametrize("carrier", list(CARRIED))
def test_a_machine_with_a_tunnel_becomes_a_node_with_its_address(tmp_path: pathlib.Path, carrier: Carrier) -> None:
    machine = Machine(tmp_path, carrier, mesh=WIREGUARD)
    assert machine.run() == 0
    assert machine.steps == STEPS
    unit = machine.text("etc/systemd/system/kubelet.service.d/20-tgp.conf")
    assert "--node-ip=10.77.0.11 " in unit and "until ip -o address show to 10.77.0.11/32" in unit
    assert "socket-proxyd 10.77.0.1:6443" in machine.text("etc/systemd/system/tgp-api.service")
    assert "systemctl enable wg-quick@wg-tgp" in machine.calls
    assert not [call for call in machine.calls if "tailscale" in call]
    install = next(call for call in machine.calls if call.startswith("apt-get") and "kubelet=" in call)
    assert install.split()[-2:] == ["wireguard-tools", "nvidia-container-toolkit=1.*"]
    assert "modprobe wireguard" in machine.calls and "wireguard\n" in machine.text("etc/modules-load.d/tgp.conf")
    assert stat.S_IMODE((machine.root / "etc/wireguard").stat().st_mode) == 0o700
    assert stat.S_IMODE((machine.root / "etc/wireguard/wg-tgp.conf").stat().st_mode) == 0o600
    assert sorted(path.name for path in (machine.root / "etc/apt/sources.list.d").iterdir()) == [
        "tgp-docker.list", "tgp-kubernetes.list", "tgp-nvidia.list"
    ]  # fmt: skip
    for path in machine.root.rglob("*"):
        if path.is_file() and path.name != "wg-tgp.conf":
            assert PRIVATE not in path.read_text(errors="replace"), path


def test_without_a_handshake_it_says_who_has_to_do_what(machine: Machine) -> None:
    (machine.play / "handshake").write_text("0")
    assert machine.run() == 1
    assert machine.text("run/tgp.step") == "fail mesh\n"
    assert machine.text("var/log/tgp-bootstrap.log").splitlines()[-1].partition("fail mesh: ")[2] == (
        "no handshake with the hub at 203.0.113.10:51820: nothing listens there, its UDP port is closed, or it does not know this machine's "
        f"key yet ({PUBLIC})"
    )


def test_the_handshake_of_a_stranger_is_none(machine: Machine) -> None:
    (machine.play / "hub").write_text("b3RoZXI=")
    assert machine.run() == 1 and machine.text("run/tgp.step") == "fail mesh\n"


def test_a_start_after_the_hub_has_learnt_the_key_goes_on(machine: Machine) -> None:
    (machine.play / "handshake").write_text("0")
    assert machine.run() == 1
    (machine.play / "handshake").write_text("1763734000")
    assert machine.run() == 0 and machine.text("run/tgp.step") == "done\n"
    assert machine.run() == 0 and machine.calls.count("systemctl restart wg-quick@wg-tgp") == 2


def test_a_machine_that_is_told_again_uses_its_new_key(machine: Machine) -> None:
    """Each telling makes a new key, and the hub forgets the one before; the tunnel of the try before still stands."""
    (machine.play / "known").write_text("a2V5IG9mIHRoZSBzZWNvbmQgdGVsbGluZyAgICAgICA=")
    assert machine.run() == 1 and machine.text("run/tgp.step") == "fail mesh\n"
    conf = machine.root / "etc/wireguard/wg-tgp.conf"
    conf.write_text(conf.read_text().replace(PRIVATE, (machine.play / "known").read_text()))
    assert machine.run() == 0 and machine.text("run/tgp.step") == "done\n"


@pytest.mark.parametrize(
    "break_it, step, words",
    [
        (
            lambda machine: (
                (machine.play / "fail").write_text("systemctl restart wg-quick@"),
                (machine.play / "always").touch(),
            ),
            "mesh",
            "the tunnel wg-tgp does not come up: RTNETLINK answers: Operation not permitted",
        ),
        (lambda machine: (machine.root / "etc/wireguard/wg-tgp.conf").unlink(), "mesh", "/etc/wireguard/wg-tgp.conf is missing"),
        (
            lambda machine: ((machine.play / "fail").write_text("modprobe wireguard"), (machine.play / "always").touch()),
            "kernel",
            "the kernel has no module wireguard",
        ),
        (
            lambda machine: (machine.play / "code").write_text("000"),
            "api",
            "the tunnel to the hub stands, so the hub does not forward",
        ),
    ],
)
def test_what_cannot_become_a_node_says_why(
    machine: Machine, break_it: t.Callable[[Machine], t.Any], step: str, words: str
) -> None:
    break_it(machine)
    assert machine.run() == 1
    assert machine.text("run/tgp.step") == f"fail {step}\n"
    assert words in machine.text("var/log/tgp-bootstrap.log")
