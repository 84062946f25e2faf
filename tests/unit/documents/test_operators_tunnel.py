# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""S3-39: the WireGuard settings of tgp-operator, which describe one node's end of a tunnel, become those of a hub."""

from __future__ import annotations

import re
import typing as t

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import Document
from ansible_collections.tgp.gpu.plugins.module_utils.documents.parse import parse

from .test_faults import CLASS, REQUEST, problems, with_

OPERATORS = {
    "privateKey": "gI6EdUSYvn8ugXOt8QQD6Yc+JyiZxIhp3GInSWRfWGE=",
    "publicKey": "HIgo9xNzJMWLKASShiTqIybxZ0U3wGLiUeJ1PKf8ykw=",
    "serverEndpoint": "203.0.113.10:51820",
    "allowedIPs": ["10.0.0.0/24", "192.168.10.0/24"],
    "address": "10.0.0.2/24",
}
IN_SECRETS = {
    f"{field}SecretRef": {"name": "wireguard-config", "key": key}
    for field, key in (
        ("privateKey", "private-key"),
        ("publicKey", "public-key"),
        ("serverEndpoint", "server.endpoint"),
        ("allowedIPs", "allowed-ips"),
        ("address", "address"),
    )
}


@pytest.mark.parametrize("base", [CLASS, REQUEST])
def test_S3_39_the_operators_wireguard_is_converted(base: dict[str, t.Any]) -> None:
    """What it says can be pasted, once the hub's key stands in it, and nobody sees the node's keys."""
    (found,) = problems(with_(base, "spec.talosConfig.wireGuardConfig", OPERATORS))
    assert "spec.talosConfig.wireGuardConfig: write it as spec.wireguardConfig; each node gets a key and an address" in found
    (written,) = re.findall(r"Here: `(.*?)`\.", found)
    section = yaml.safe_load(written)["wireguardConfig"]
    assert section == {
        "endpoint": "203.0.113.10:51820",
        "publicKey": "HUB_PUBLIC_KEY",
        "network": "10.0.0.0/24",
        "allowedIPs": ["192.168.10.0/24"],
    }
    assert OPERATORS["privateKey"] not in found and OPERATORS["publicKey"] not in found and "IP:port" not in found
    (key,) = problems(with_(CLASS, "spec.wireguardConfig", section))
    assert "spec.wireguardConfig.publicKey: must be a WireGuard key" in key
    section["publicKey"] = "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8="
    specs, _warnings = parse([Document("a.yaml", with_(CLASS, "spec.wireguardConfig", section))])
    hub = specs.classes["base"].mesh.hub
    assert hub is not None and (hub.network, hub.allowed) == ("10.0.0.0/24", ("10.0.0.0/24", "192.168.10.0/24"))


def test_S3_39_what_stands_in_secrets_is_named_with_the_command_that_reads_it() -> None:
    (found,) = problems(with_(CLASS, "spec.talosConfig.wireGuardConfig", IN_SECRETS))
    assert "`wireguardConfig: {endpoint: ENDPOINT, publicKey: HUB_PUBLIC_KEY, network: NETWORK}`" in found
    read = "from `kubectl get secret wireguard-config -o jsonpath='{.data."
    assert f"ENDPOINT is the hub's IP:port, {read}server\\.endpoint}}' | base64 -d`." in found
    assert f"{read}address}}'" in found and f"{read}allowed-ips}}'" in found and "private" not in found.partition("Here:")[2]


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"serverEndpoint": "vpn.example.com:51820"}, 'Replace "vpn.example.com:51820" with IP:port'),
        ({"address": "10.0.0.2"}, "NETWORK is that of hub and nodes"),
        ({"addressSecretRef": {"name": "a; rm -rf /", "key": "k"}}, "around the old address."),
        ({"allowedIPs": "10.0.0.0/24", "address": ["x"]}, "network: NETWORK}`"),
    ],
)
def test_S3_39_what_cannot_be_converted_is_said(section: dict[str, t.Any], words: str) -> None:
    (found,) = problems(with_(CLASS, "spec.talosConfig.wireGuardConfig", section))
    assert words in found
