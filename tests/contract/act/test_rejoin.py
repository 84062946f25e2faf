# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine that has not become a node is told anew: new secrets for it alone, the old ones worthless, and nobody else told anything."""

from __future__ import annotations

import json
import stat
import typing as t
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import Forbidden, InvalidInput, Locked, TimedOut
from ansible_collections.tgp.gpu.plugins.module_utils.kube import csr

from sandbox import kubelet, payload_reader
from sandbox.box import IN_PROCESS

from .rig import Rig


def _rented(rig: Rig) -> str:
    rig.behave("mesh_fails")
    rig.rent()
    return rig.machine().name


def test_new_secrets_are_written_for_the_owner_alone_and_the_old_ones_are_worthless(rig: Rig, tmp_path: Path) -> None:
    name, dest = _rented(rig), tmp_path / "told"
    dest.write_text("what stood there before")
    dest.chmod(0o644)
    before = rig.claim()
    done = rig.run("rejoin", name=name, dest=str(dest), lock_wait=0)
    after = rig.claim()
    assert (done["name"], done["cloud"], done["changed"]) == (name, "lambda", True) and done["deadline"]
    assert done["login"] == "ubuntu"
    assert stat.S_IMODE(dest.stat().st_mode) == 0o600
    intent = payload_reader.read(dest.read_text(), "ubuntu")
    assert intent is not None and intent.mesh is not None
    assert (intent.node_name, intent.token.partition(".")[0]) == (name, after["token_id"])
    assert after["token_id"] != before["token_id"] and after["mesh_key_id"] != before["mesh_key_id"]
    assert after["instance_id"] == before["instance_id"] and rig.creates() == 1
    assert rig.tokens() == [f"bootstrap-token-{after['token_id']}"]
    assert intent.token not in json.dumps(done) and intent.mesh.key not in json.dumps(done)
    assert rig.left()["keys"] == 1


def test_a_rehearsal_makes_nothing(rig: Rig, tmp_path: Path) -> None:
    name, dest = _rented(rig), tmp_path / "told"
    before = rig.claims()
    rig.run("rejoin", name=name, dest=str(dest), lock_wait=0, check=True)
    assert not dest.exists() and rig.claims() == before


@pytest.mark.parametrize(
    "given, words",
    [({"name": "tgp-nobody"}, "There is no machine tgp-nobody"), ({"name": "rack-1"}, "There is no machine rack-1")],
)
def test_a_machine_that_is_not_known_is_refused(rig: Rig, tmp_path: Path, given: dict[str, t.Any], words: str) -> None:
    _rented(rig)
    with pytest.raises(InvalidInput, match=words):
        rig.run("rejoin", dest=str(tmp_path / "told"), lock_wait=0, **given)
    assert not (tmp_path / "told").exists()


def test_a_node_is_left_alone(rig: Rig, tmp_path: Path) -> None:
    rig.provision()
    name = rig.claim()["name"]
    with pytest.raises(InvalidInput, match="is a node already"):
        rig.run("rejoin", name=name, dest=str(tmp_path / "told"), lock_wait=0)


def test_nothing_is_made_beside_another_run(rig: Rig, tmp_path: Path) -> None:
    name = _rented(rig)
    rig.plan("provision", nodes=1)
    before = rig.claims()
    with pytest.raises(Locked):
        rig.run("rejoin", name=name, dest=str(tmp_path / "told"), lock_wait=0)
    assert rig.claims() == before


def _told_anew(rig: Rig, dest: Path) -> tuple[str, str]:
    """The name of a machine that did not join, and the token that it is told now."""
    name = _rented(rig)
    rig.run("rejoin", name=name, dest=str(dest), lock_wait=0)
    intent = payload_reader.read(dest.read_text(), "ubuntu")
    assert intent is not None
    return name, intent.token


def _asks(rig: Rig, token: str, node: str) -> None:
    """What the kubelet does with the token."""
    request, _key = kubelet.new_key(node)
    client = rig.box.cluster.connect(IN_PROCESS, rig.box.cluster.ca_pem, token=token)
    try:
        kubelet.request_certificate(client, request)
    finally:
        client.close()


def test_a_machine_that_was_told_anew_is_let_in_under_its_own_name(rig: Rig, tmp_path: Path) -> None:
    name, token = _told_anew(rig, tmp_path / "told")
    _asks(rig, token, name)
    assert not rig.run("rejoin", name=name, state="approved", check=True)["changed"]
    assert csr.parse(rig.kube("GET", csr.PATH)["items"][0]).state == "pending"
    assert rig.run("rejoin", name=name, state="approved")["changed"]
    assert csr.parse(rig.kube("GET", csr.PATH)["items"][0]).state == "issued"
    assert not rig.run("rejoin", name=name, state="approved")["changed"]


def test_whoever_asks_for_another_name_with_its_token_is_denied(rig: Rig, tmp_path: Path) -> None:
    name, token = _told_anew(rig, tmp_path / "told")
    _asks(rig, token, "tgp-a1b2c3d4-victim")
    with pytest.raises(Forbidden, match="is denied: its common name is 'system:node:tgp-a1b2c3d4-victim'"):
        rig.run("rejoin", name=name, state="approved")
    assert csr.parse(rig.kube("GET", csr.PATH)["items"][0]).state == "denied"


def test_a_machine_that_asks_for_nothing_is_not_waited_for_for_ever(rig: Rig, tmp_path: Path) -> None:
    name, _token = _told_anew(rig, tmp_path / "told")
    with pytest.raises(TimedOut, match="within 30 s"):
        rig.run("rejoin", name=name, state="approved", timeout=30)
