# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""wireguard_peer on a real hub: a machine is let in and shut out again, and the session of somebody else's machine does not notice."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

from tests.build import CannotBuild
from tests.node_real import debian

from .wireguard import INTERFACE, PORT, Host, Laboratory, why_not

CLUSTER = "a1b2c3d4"
NAME = f"tgp-{CLUSTER}-training-0k3zq"
RENEWED_AFTER = 110  # seconds; WireGuard makes a new session of one that is two minutes old, and a broken one begins at once
asked = functools.cache(why_not)


@pytest.fixture
def laboratory() -> t.Iterator[Laboratory]:
    if reason := asked():
        pytest.skip(reason)
    try:
        tree = debian.wireguard()
    except CannotBuild as problem:
        pytest.skip(str(problem))
    with Laboratory(tree) as running:
        yield running


class Module:
    """wireguard_peer, called by Ansible on the hub."""

    def __init__(self, laboratory: Laboratory, conf: Path) -> None:
        self._laboratory, self._conf, self._folder = laboratory, conf, laboratory.folder
        python = self._folder / "python-of-the-hub"
        path = laboratory.environment["PATH"]
        enter = " ".join(laboratory.hub.enter("env", f"PATH='{path}'", sys.executable, "-SE"))
        python.write_text(f'#!/bin/sh\nexec {enter} "$@"\n')
        python.chmod(0o755)
        host = {"ansible_connection": "local", "ansible_python_interpreter": str(python)}
        (self._folder / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": {"hub": host}}}))

    def __call__(self, *nodes: Host, **params: t.Any) -> dict[str, t.Any]:
        peers = [{"name": NAME, "public_key": one.public_key, "allowed_ips": [f"{one.address}/32"]} for one in nodes]
        given = {"cluster_id": CLUSTER, "config_file": str(self._conf), "peers": peers, **params}
        words = ["ansible", "hub", "-i", "inventory.yml", "-m", "tgp.gpu.wireguard_peer", "-a", json.dumps(given)]
        done = subprocess.run(
            [str(Path(sys.executable).parent / words[0]), *words[1:]],
            cwd=self._folder, capture_output=True, text=True, timeout=120, check=False,
            env={**self._laboratory.environment, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_DEPRECATION_WARNINGS": "0"},
        )  # fmt: skip
        assert " => {" in done.stdout, done.stdout + done.stderr
        assert self._laboratory.hub.private_key not in done.stdout + done.stderr
        head, _arrow, told = done.stdout.partition(" => ")
        return {**json.loads(told), "failed": "FAILED" in head, "warning": " ".join(done.stderr.split())}


def test_S1_32_a_machine_is_let_in_and_shut_out_while_another_s_session_goes_on(laboratory: Laboratory) -> None:
    somebody, ours = laboratory.node("somebody"), laboratory.node("ours")
    before = (
        f"[Interface]\nPrivateKey = {laboratory.hub.private_key}\nListenPort = {PORT}\nAddress = 10.77.0.1/24\n\n"
        f"[Peer]\n# a machine of somebody else\nPublicKey = {somebody.public_key}\nAllowedIPs = {somebody.address}/32\n"
    )
    conf = laboratory.open_hub(before)
    module = Module(laboratory, conf)
    assert somebody.reaches_the_hub() and not ours.reaches_the_hub(3)
    stream = somebody.start("stream", "curl", "-sN", "--noproxy", "*", "http://10.77.0.1:8080/stream")
    sessions = [laboratory.handshake(somebody)]

    def goes_on() -> bool:
        """The other's one connection is alive, in the session that it began in, or in one that followed it in its time."""
        size = stream.log.stat().st_size
        laboratory.until(lambda: stream.log.stat().st_size > size, "the other's stream", stream, seconds=5)
        former, now = sessions[-1], laboratory.handshake(somebody)
        sessions.append(now)
        return now == former > 0 or now - former >= RENEWED_AFTER

    assert goes_on()
    first = module(ours)
    assert (first["changed"], first["added"], first["applied"]) == (True, [NAME], True)
    assert conf.read_text().startswith(before) and conf.stat().st_mode & 0o777 == 0o600
    assert ours.reaches_the_hub() and goes_on()

    second = module(ours)
    assert (second["changed"], second["kept"]) == (False, [NAME])
    (seen,) = second["peers"]
    assert seen["last_handshake"] and seen["endpoint"].startswith(f"{ours.outside}:") and goes_on()

    # a peer that only the interface has is not cut off, and an interface that lost one gets it again
    guest = "j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8="
    laboratory.hub.run("wg", "set", INTERFACE, "peer", guest, "allowed-ips", "10.77.0.99/32")
    refused = module()
    assert refused["failed"] and guest in refused["msg"] and "Nothing was changed" in refused["msg"] and ours.reaches_the_hub(5)
    for key in (guest, ours.public_key):
        laboratory.hub.run("wg", "set", INTERFACE, "peer", key, "remove")
    assert module(ours)["changed"] is True and goes_on()
    assert ours.public_key in laboratory.hub.run("wg", "show", INTERFACE, "peers").stdout

    last = module()
    assert (last["changed"], last["removed"], last["peers"]) == (True, [NAME], [])
    assert conf.read_text() == before
    assert not ours.reaches_the_hub(3) and goes_on()

    laboratory.wireguard.stop()  # the interface goes with it
    down = module(ours)
    assert (down["changed"], down["applied"]) == (True, False) and "wg-tgp is not up on the hub" in down["warning"]
