# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Talos's own messages on the other end of the line: as the server our client talks to, and as the client of the sandbox's machine."""

from __future__ import annotations

import base64
import json
import pathlib
import queue
import subprocess
import threading
import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.talos.api.grpc import CertificateWanted, GrpcError
from ansible_collections.tgp.gpu.plugins.module_utils.talos.api.machine import MachineApi, Trust
from ansible_collections.tgp.gpu.plugins.module_utils.talos.api.peer import Untrusted
from ansible_collections.tgp.gpu.plugins.module_utils.talos.config import build
from ansible_collections.tgp.gpu.plugins.module_utils.talos.template import to_yaml

from sandbox.talos_maintenance import Maintenance
from tests.fixtures.talos_nodes import make

from .conftest import built

pytestmark = pytest.mark.cluster

INSTALLER = f"factory.talos.dev/metal-installer/{'a' * 64}:v1.13.9"


def config(note: str = "") -> str:
    documents = build(make(install_disk="/dev/vda", installer_image=INSTALLER))
    if note:
        documents[0]["machine"]["files"] = [{"path": "/var/lib/note", "content": note, "permissions": 384, "op": "create"}]
    return to_yaml(documents)


class Witness:
    """The server made of Talos's code. ``next()`` is what it decoded from the next call."""

    def __init__(self, program: pathlib.Path) -> None:
        self._process = subprocess.Popen([program, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._said: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()  # it would wait for a reader before it answers a large call
        start = self.next()
        self.api, self.fingerprint = MachineApi("127.0.0.1", start["port"]), start["fingerprint"]
        self.trust = Trust(fingerprint=self.fingerprint)

    def next(self) -> dict[str, t.Any]:
        return t.cast("dict[str, t.Any]", json.loads(self._said.get(timeout=60)))

    def _listen(self) -> None:
        for line in t.cast(t.IO[str], self._process.stdout):
            self._said.put(line)

    def close(self) -> None:
        t.cast(t.IO[str], self._process.stdin).close()
        self._process.wait(10)


@pytest.fixture
def program(request: pytest.FixtureRequest) -> pathlib.Path:
    return built("maintenance", request)


@pytest.fixture
def witness(program: pathlib.Path) -> t.Iterator[Witness]:
    running = Witness(program)
    yield running
    running.close()


@pytest.mark.parametrize("size", [0, 300_000], ids=["small", "large"])
def test_talos_decodes_what_our_client_sends(witness: Witness, size: int) -> None:
    text = config("x" * size)
    seen = witness.api.look()
    assert (seen.state, seen.version, seen.arch, seen.platform, seen.mode) == ("maintenance", "v1.13.9", "amd64", "metal", "metal")
    assert seen.fingerprint == witness.fingerprint  # as Talos itself computes it
    applied = witness.api.apply(text.encode(), witness.trust)
    decoded = witness.next()
    assert base64.b64decode(decoded["config"]).decode() == text
    assert (decoded["mode"], decoded["dry_run"], decoded["unknown"], decoded["taken"]) == ("AUTO", False, 0, True)
    assert (applied.mode, applied.details) == ("no-reboot", "taken by the witness") and applied.warnings[-1] == "a warning with ü"


def test_a_configured_machine_is_told_by_its_wish_for_a_certificate(witness: Witness) -> None:
    witness.api.apply(config().encode(), witness.trust)
    for _look in range(10):
        assert witness.api.look().state == "configured"
    with pytest.raises(CertificateWanted):
        witness.api.apply(config().encode(), witness.trust)


def test_a_refusal_comes_in_talos_own_words(witness: Witness) -> None:
    with pytest.raises(GrpcError, match="unknown keys found during decoding") as caught:
        witness.api.apply(b"version: v1alpha1\nmachine: {systemd: {}}\n", witness.trust)
    assert caught.value.code == "unknown"
    with pytest.raises(GrpcError, match="configuration validation failed") as caught:
        witness.api.apply(b"version: v1alpha1\nmachine: {type: worker}\n", witness.trust)
    assert caught.value.code == "invalid_argument"
    assert witness.api.look().state == "maintenance"


def test_another_machine_gets_nothing(witness: Witness) -> None:
    with pytest.raises(Untrusted):
        witness.api.apply(config().encode(), Trust(fingerprint=Maintenance().fingerprint))
    assert witness.api.look().state == "maintenance"


@pytest.mark.witness
def test_talos_own_client_talks_to_the_machine_of_the_sandbox(program: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "worker.yaml").write_text(config())
    with Maintenance(warnings=("old field",), lingers=True) as machine:
        command = [program, "call", f"127.0.0.1:{machine.port}", machine.fingerprint, tmp_path / "worker.yaml"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {
            "version": "v1.13.9",
            "arch": "amd64",
            "platform": "metal",
            "mode": "metal",
            "warnings": ["old field"],
            "taken_as": "no_reboot",
            "details": "Applied configuration without a reboot",
        }
        assert machine.applied == [config()]
        again = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert again.returncode == 1 and "certificate required" in again.stderr
