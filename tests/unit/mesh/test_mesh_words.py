# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine says of its login, and what the mesh lists of it, told as causes and remedies."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta, timezone

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.fleet.model import Device, MeshKey
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.find import find_device
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.node_words import causes, meaning
from ansible_collections.tgp.gpu.plugins.module_utils.mesh.whereabouts import whereabouts

NOW = datetime(2026, 11, 21, 9, tzinfo=timezone.utc)
NAME = "tgp-a1b2c3d4-training-0k3zq"
LINES = {
    "invalid key: API key kExample1CNTRL not valid": "key_over",
    "backend error: invalid key: API key does not exist": "key_unknown",
    "invalid key: invalid API token": "key_malformed",
    "Received error: requested tags [tag:k8s] are invalid or not permitted": "tags",
    "oauth authkeys require --advertise-tags": "client_secret",
    "backend error: authkey already used": "key_used",
    "authkey expired": "key_expired",
    "authkey revoked": "key_revoked",
    "invalid pre auth key": "key_unknown",
    "handling register with auth key: auth-key not found": "key_unknown",
    "failed to parse auth-key: key too short, expected at least 77 chars after prefix, got 3": "key_malformed",
    "not logged in: To authenticate, visit https://login.tailscale.com/a/1": "key_missing",
    "fetch control key: Get https://hs.example/key?v=130: connect: connection refused": "server",
    "Get https://hs.example/key: x509: certificate signed by unknown authority": "tls",
    "health: state=NeedsMachineAuth": "approval",
    "is CONFIG_TUN enabled in your kernel? `modprobe tun` failed; stat /dev/net/tun: no such file": "tun",
    "Error: changing settings via 'tailscale up' requires mentioning all\nnon-default flags.": "state",
}


@pytest.mark.parametrize("line", LINES)
def test_every_known_line_has_cause_and_remedy(line: str) -> None:
    told = meaning(f"2026/11/21 09:00:00 boot\n{line}\nmore of no interest\n")
    assert told is not None and told.cause == LINES[line]
    assert told.text.endswith(".") and told.remedy.endswith(".") and told.quote in " ".join(line.split())


def test_every_cause_is_tested() -> None:
    assert set(causes()) == set(LINES.values())


def test_the_last_line_counts_and_nothing_known_says_nothing() -> None:
    told = meaning("fetch control key: Get https://hs.example/key\nlater\nauthkey expired\n")
    assert told is not None and told.cause == "key_expired"
    assert meaning("") is None and meaning("kubelet started\nNode ready") is None


KEY = MeshKey(id="k1", description=f"tgp {NAME}", created=NOW, expires=NOW + timedelta(hours=1), invalid=False)
DEVICE = Device(id="n1", hostname=NAME, name=f"{NAME}.tail.ts.net", addresses=("100.64.0.7",), online=True, created=NOW)


@pytest.mark.parametrize(
    ("device", "key", "stage", "well", "hopeless"),
    [
        ({}, None, "online", True, False),
        ({"online": None}, None, "online", True, False),
        ({"name": f"{NAME}-1.tail.ts.net"}, None, "suffixed", True, False),
        ({"name": f"{NAME}-k3j9x2ab"}, None, "suffixed", True, False),
        ({"online": False, "last_seen": NOW}, None, "offline", False, False),
        ({"online": False}, None, "silent", False, False),
        ({"authorized": False}, None, "unapproved", False, True),
        ({"problem": "tailnet lock lets no traffic through: locked out"}, None, "locked", False, True),
        (None, {}, "waiting", False, False),
        (None, {"expires": NOW}, "key_over", False, True),
        (None, {"invalid": True}, "vanished", False, True),
        (None, None, "vanished", False, True),
    ],
)
def test_whereabouts(
    device: dict[str, object] | None, key: dict[str, object] | None, stage: str, well: bool, hopeless: bool
) -> None:
    devices = [] if device is None else [dataclasses.replace(DEVICE, **device)]  # type: ignore[arg-type]
    found = find_device(devices, hostname=NAME, tags=(), created_after=None)
    told = whereabouts(found, None if key is None else dataclasses.replace(KEY, **key), NOW)  # type: ignore[arg-type]
    assert (told.stage, told.well, told.hopeless) == (stage, well, hopeless)
    assert str(told).endswith(".") and (told.remedy or told.stage in ("online", "waiting"))
