# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard decides look by look as rule L-46 does: its program in dash, with the real curl, a TLS server, and a clock that is a file."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import random
import shlex
import shutil
import socket
import ssl
import subprocess
import threading
import typing as t
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.kubelet import guard as program
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.payload import payload
from ansible_collections.tgp.gpu.plugins.module_utils.model import Guard, Lane
from ansible_collections.tgp.gpu.plugins.module_utils.model.labels import POWERED_OFF_ANNOTATION
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection.silence import (
    ANSWER,
    NO_NODE,
    RENEWED,
    SILENCE,
    UNKNOWN,
    Silence,
    look,
    why_off,
)
from ansible_collections.tgp.gpu.plugins.module_utils.providers.registry import CAPABILITIES
from ansible_collections.tgp.gpu.plugins.module_utils.store.lease import path_of
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests import outsiders
from tests.fixtures.talos_nodes import make
from tests.unit.lanes.test_bootstrap_api import _signed
from tests.unit.lanes.test_kubelet import files_of, settings

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
LEASE = path_of("a1b2c3d4")
DAY = 86400
NODE = "tgp-a1b2c3d4-p-00001"


class Api(http.server.ThreadingHTTPServer):
    """An API server that knows its callers by their certificate. ``status`` and ``renewed`` are what it says of the Lease."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        yesterday = datetime.now(timezone.utc) - timedelta(days=1)
        authority, own, kubelet = (ec.generate_private_key(ec.SECP256R1()) for _number in range(3))

        def pem(name: str, key: ec.EllipticCurvePrivateKey) -> bytes:
            secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
            return _signed(name, key, "ca", authority, begins=yesterday) + secret

        self.ca = _signed("ca", authority, "ca", authority, begins=yesterday)
        self.client = pem(f"system:node:{NODE}", kubelet)
        (folder / "server.pem").write_bytes(pem("server", own))
        (folder / "ca.pem").write_bytes(self.ca)
        super().__init__(("127.0.0.1", 0), _Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem")
        context.load_verify_locations(folder / "ca.pem")
        context.verify_mode = ssl.CERT_OPTIONAL
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.status, self.renewed, self.calls = 200, "2026-11-27T18:00:00.000000Z", list[tuple[str, str, str]]()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_address[1]}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Api

    def do_GET(self) -> None:
        self._note("")
        spec = {"holderIdentity": "", "leaseDurationSeconds": 900} | (
            {"renewTime": self.server.renewed} if self.server.renewed else {}
        )
        noise = {"managedFields": [{"fieldsV1": {"f:spec": {"f:renewTime": {}}}}], "annotations": {"a": '{"renewTime":"2001"}'}}
        self._say(self.server.status, {"kind": "Lease", "metadata": noise, "spec": spec})

    def do_PATCH(self) -> None:
        self._note(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self._say(200, {})

    def _note(self, body: str) -> None:
        names = [part[0][1] for part in t.cast(ssl.SSLSocket, self.connection).getpeercert()["subject"]]  # type: ignore[index,union-attr]
        assert names == [f"system:node:{NODE}"]
        self.server.calls.append((self.command, self.path, body))

    def _say(self, status: int, body: dict[str, t.Any]) -> None:
        text = json.dumps(body, separators=(",", ":")).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_arguments: t.Any) -> None:
        """Say nothing."""


class Machine:
    """A node with the guard on it."""

    def __init__(self, folder: Path, api: Api, guard: Guard) -> None:
        self.root, self.api = folder, api
        for path in ("bin", "etc/tgp", "run", "proc", "var/log", "var/lib/tgp", "var/lib/kubelet/pki"):
            (folder / path).mkdir(parents=True)
        (folder / "guard").write_text(program.GUARD)
        (folder / "bin/systemctl").write_text(f'#!/bin/sh\necho "$*" >>{shlex.quote(str(folder))}/systemctl\n')
        (folder / "bin/systemctl").chmod(0o755)
        contents, _document = files_of(guard=guard, guard_lease=LEASE, name=NODE)
        (folder / "etc/tgp/node.env").write_text(contents["/etc/tgp/node.env"])
        (folder / "etc/tgp/ca.crt").write_bytes(api.ca)
        self.pem = folder / "var/lib/kubelet/pki/kubelet-client-current.pem"
        self.pem.write_bytes(api.client)
        (folder / "var/lib/tgp/done").touch()

    def look(self, uptime: int, url: str = "") -> str:
        """Let the timer fire; what systemctl was told."""
        (self.root / "proc/uptime").write_text(f"{uptime}.42 12.01\n")
        (self.root / "systemctl").unlink(missing_ok=True)
        environment = {"TGP_ROOT": str(self.root), "TGP_API": url or self.api.url, "PATH": f"{self.root}/bin:{os.environ['PATH']}"}
        made = subprocess.run(
            ["dash", str(self.root / "guard")], env=environment, capture_output=True, text=True, check=False, timeout=60
        )
        assert (made.returncode, made.stdout, made.stderr) == (0, "", "")
        told = self.root / "systemctl"
        return told.read_text() if told.exists() else ""

    @property
    def kept(self) -> Silence:
        last, api, controller, renewed = (self.root / "run/tgp-guard").read_text().split()
        return Silence(int(last), int(api), int(controller), "" if renewed == "-" else renewed)


@pytest.fixture(name="api")
def _api(tmp_path: Path) -> t.Iterator[Api]:
    api = Api(tmp_path)
    yield api
    api.shutdown()
    api.server_close()


Build = t.Callable[[Guard], Machine]


@pytest.fixture(name="machine")
def _machine(tmp_path: Path, api: Api) -> Build:
    return lambda guard: Machine(tmp_path / "machine", api, guard)


NOBODY = "https://127.0.0.1:9"


def _stage(machine: Machine, api: Api, seen: str, renewed: str) -> str:
    """Make the world such that the next look sees this; the address to look at."""
    api.status, api.renewed = (200, renewed) if seen == RENEWED else (403, "")
    machine.pem.unlink(missing_ok=True)
    if seen != NO_NODE:
        machine.pem.write_bytes(b"no certificate" if seen == UNKNOWN else api.client)
    done = machine.root / "var/lib/tgp/done"
    done.unlink(missing_ok=True)
    if seen != NO_NODE:
        done.touch()
    return NOBODY if seen == SILENCE else ""


@pytest.mark.parametrize("seed", range(6))
def test_L46_the_program_and_the_rule_agree_look_by_look(machine: Build, api: Api, seed: int) -> None:
    draw = random.Random(seed)
    guard = Guard(draw.choice([3600, None]), draw.choice([3600, None]))
    here, known, uptime, ends = machine(guard), None, 0, 0
    for _number in range(40):
        uptime = draw.randrange(600) if draw.random() < 0.03 else uptime + draw.choice([600, 600, 600, 599, 1200, 1201, 90000])
        seen = draw.choices([RENEWED, SILENCE, ANSWER, NO_NODE, UNKNOWN], [8, 8, 1, 2, 1])[0]
        renewed = draw.choice(["2026-11-27T18:00:00.000000Z"] * 9 + ["2026-11-27T18:10:00.5Z"]) if seen == RENEWED else ""
        known = look(known, uptime, seen, renewed)
        why = why_off(known, seen, guard)
        assert here.look(uptime, _stage(here, api, seen, renewed)) == ("poweroff\n" if why else ""), (seen, known)
        assert here.kept == known
        ends += bool(why)
    assert ends or None in (guard.silent_for, guard.controller_silent_for)


def test_L46_a_day_without_the_api_server_and_the_program_powers_off(machine: Build) -> None:
    here = machine(Guard(DAY))
    assert [here.look(uptime, NOBODY) for uptime in range(600, 600 + DAY, 600)] == [""] * 144
    assert here.look(600 + DAY, NOBODY) == "poweroff\n"
    assert "powering off: nothing from the api" in (here.root / "var/log/tgp-guard.log").read_text()


def test_L46_a_silent_controller_cordons_and_marks_the_node_before_the_machine_goes(machine: Build, api: Api) -> None:
    here = machine(Guard(None, 3600))
    assert [here.look(600 * number) for number in range(1, 7)] == [""] * 6
    assert {call[:2] for call in api.calls} == {("GET", LEASE)}
    assert here.look(4200) == "poweroff\n"
    method, path, body = api.calls[-1]
    assert (method, path) == ("PATCH", f"/api/v1/nodes/{NODE}")
    assert json.loads(body) == {
        "metadata": {"annotations": {POWERED_OFF_ANNOTATION: "controller-silent"}},
        "spec": {"unschedulable": True},
    }
    assert sorted(path.name for path in (here.root / "run").iterdir()) == ["tgp-guard"]


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
def test_L46_an_answer_that_is_no_lease_ends_nothing(machine: Build, api: Api, status: int) -> None:
    here, api.status = machine(Guard(3600, 3600)), status
    assert {here.look(600 * number) for number in range(1, 20)} == {""}
    assert (here.kept.api, here.kept.controller) == (0, 0)


def test_L46_a_server_of_another_authority_or_a_wrong_clock_is_unknown(machine: Build, api: Api) -> None:
    here = machine(Guard(3600, 3600))
    key = ec.generate_private_key(ec.SECP256R1())
    (here.root / "etc/tgp/ca.crt").write_bytes(_signed("ca", key, "ca", key, begins=datetime.now(timezone.utc) - timedelta(days=1)))
    assert {here.look(600 * number) for number in range(1, 20)} == {""}
    assert (here.kept.api, here.kept.controller) == (0, 0)


def test_L46_a_forwarder_with_nothing_behind_it_is_silence(machine: Build) -> None:
    here, listener = machine(Guard(3600)), socket.create_server(("127.0.0.1", 0))

    def close_each() -> None:
        with contextlib.suppress(OSError):
            while True:
                listener.accept()[0].close()

    threading.Thread(target=close_each, daemon=True).start()
    address = f"https://127.0.0.1:{listener.getsockname()[1]}"
    assert [here.look(600 * number, address) for number in range(1, 8)] == [""] * 6 + ["poweroff\n"]
    listener.close()


@pytest.mark.parametrize(
    "note", ["", "x", "1 2\n", "600 99999999999999999999 0 -\n", "600 -5 0 -\n", "600 08 $(id) -\n", "9999999 86400 0 -\n"]
)
def test_L46_a_damaged_note_begins_anew(machine: Build, note: str) -> None:
    here = machine(Guard(3600))
    (here.root / "run/tgp-guard").write_text(note)
    assert here.look(90000, NOBODY) == ""
    assert here.kept == Silence(90000)


def test_a_power_off_that_fails_is_tried_again_with_the_next_look(machine: Build) -> None:
    here = machine(Guard(3600))
    assert [here.look(600 * number, NOBODY) for number in range(1, 9)] == [""] * 6 + ["poweroff\n"] * 2


def test_the_guard_comes_with_the_payload_where_one_is_set_and_before_the_bootstrap() -> None:
    contents, document = files_of(guard=Guard(DAY, None), guard_lease=LEASE)
    assert (contents[program.PROGRAM], contents[program.TIMER]) == (program.GUARD, program.TIMER_UNIT)
    given = {name: value for name, value in settings(contents).items() if name.startswith("GUARD")}
    assert given == {"GUARD_SILENT_FOR": "86400", "GUARD_CONTROLLER_SILENT_FOR": "never", "GUARD_LEASE": LEASE}
    assert [command[-1] for command in document["runcmd"][-2:]] == ["tgp-guard.timer", "tgp-bootstrap.service"]
    contents, document = files_of()
    assert not [path for path in contents if "guard" in path] and "GUARD" not in contents["/etc/tgp/node.env"]


@pytest.mark.parametrize("cloud", ["paperspace", "vast"])
def test_a_payload_with_a_guard_fits_the_narrow_clouds(cloud: str) -> None:
    made = payload(make(lane=Lane.KUBELET, guard=Guard(DAY, DAY), guard_lease=LEASE), capability=CAPABILITIES[cloud])
    size = len(made.text.encode()) + sum(len(name) + len(value) for name, value in made.environment.items())
    assert size < (CAPABILITIES[cloud].user_data_limit or 0) - 500


@pytest.mark.skipif(outsiders.shellcheck() is None, reason="shellcheck is not installed")
def test_shellcheck_has_nothing_against_the_guard() -> None:
    assert outsiders.shell_faults(program.GUARD, "sh") == ""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_timer_and_its_service(tmp_path: Path, record_property: t.Callable[[str, object], None]) -> None:
    for path, text in (
        (program.SERVICE, program.SERVICE_UNIT),
        (program.TIMER, program.TIMER_UNIT),
        (program.PROGRAM, program.GUARD),
    ):
        (tmp_path / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path[1:]).write_text(text)
        (tmp_path / path[1:]).chmod(0o755 if path == program.PROGRAM else 0o644)
    command = [
        "systemd-analyze",
        "verify",
        "--man=no",
        "--recursive-errors=no",
        f"--root={tmp_path}",
        "tgp-guard.timer",
        "tgp-guard.service",
    ]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "unrecognized option" in found.stderr:
        pytest.skip("this systemd-analyze is too old")
    assert (found.returncode, found.stderr) == (0, "")
    record_property("checked", ("units by systemd-analyze", 2))
