# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine says of its login, told as a cause and a remedy, by itself and in a diagnosis."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap import container
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.kubelet.script import BOOTSTRAP
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.facts import Findings
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.log_patterns import causes, meaning
from ansible_collections.tgp.gpu.plugins.module_utils.diagnosis.rules import diagnose
from ansible_collections.tgp.gpu.plugins.module_utils.model import Lane

NOW = datetime(2026, 11, 21, 9, tzinfo=timezone.utc)
CODES = {
    "key_used": "used_key",
    "key_expired": "expired_key",
    "key_over": "used_key",
    "tags": "tag_not_permitted",
    "server": "mesh_unreachable",
}
NAME = "tgp-a1b2c3d4-training-0k3zq"
LINES = {
    "invalid key: API key kExample1CNTRL not valid": "key_over",
    "backend error: invalid key: API key does not exist": "key_unknown",
    "invalid key: invalid API token": "key_malformed",
    "Received error: requested tags [tag:k8s] are invalid or not permitted": "tags",
    "oauth authkeys require --advertise-tags": "client_secret",
    "backend error: authkey already used": "key_used",
    "authkey expired": "key_expired",
    "authkey revoked": "key_unknown",
    "invalid pre auth key": "key_unknown",
    "handling register with auth key: auth-key not found": "key_unknown",
    "failed to parse auth-key: key too short, expected at least 77 chars after prefix, got 3": "key_malformed",
    "not logged in: To authenticate, visit https://login.tailscale.com/a/1": "key_missing",
    "fetch control key: Get https://hs.example/key?v=130: connect: connection refused": "server",
    "Get https://hs.example/key: x509: certificate signed by unknown authority": "tls",
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


@pytest.mark.parametrize("line", LINES)
def test_L11_every_refusal_becomes_a_diagnosis_of_its_own(line: str) -> None:
    told = diagnose(Findings(NAME, NOW, uses_mesh=True, console=tuple(line.splitlines()), devices_read=True))
    code = "tag_not_permitted" if LINES[line] == "client_secret" else CODES.get(LINES[line], "mesh_login_refused")
    assert told.certain is (LINES[line] != "key_over")  # Tailscale's words do not tell used from expired
    assert told.code == code and any(part in told.evidence[0] for part in line.splitlines())


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize(
    ("lane", "before"),
    [
        (Lane.KUBELET, "fail mesh: tailscale up failed (key used or expired, its tag not owned, or no way to the server): "),
        (Lane.SERVICE, "tgp-fail login: tailscale up: "),
    ],
)
def test_L11_the_words_that_our_scripts_put_before_a_refusal_change_nothing(lane: Lane, before: str, line: str) -> None:
    scripts = BOOTSTRAP if lane is Lane.KUBELET else container._SCRIPT
    assert before.partition(": ")[2] in scripts
    said = before + " ".join(line.splitlines())
    told = diagnose(Findings(NAME, NOW, lane=lane, uses_mesh=True, console=(said,), devices_read=True))
    assert told.code == ("tag_not_permitted" if LINES[line] == "client_secret" else CODES.get(LINES[line], "mesh_login_refused"))
