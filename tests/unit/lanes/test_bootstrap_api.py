# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bootstrap's step ``api`` with the real curl and a real TLS server behind 127.0.0.1:7445: what each answer is taken for."""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import shutil
import ssl
import threading
import typing as t
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.fixtures.talos_nodes import NODE_TOKEN
from tests.unit.lanes.test_bootstrap import Machine

CURL = shutil.which("curl")
pytestmark = pytest.mark.skipif(CURL is None, reason="curl is not installed")
DAY = datetime.timedelta(days=1)


def _signed(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: str, by: ec.EllipticCurvePrivateKey, *, begins: datetime.datetime
) -> bytes:
    def subject(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    made = (
        x509.CertificateBuilder()
        .subject_name(subject(name))
        .issuer_name(subject(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + 2 * DAY)
        .add_extension(x509.BasicConstraints(ca=name == issuer, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(by, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


class _Handler(http.server.BaseHTTPRequestHandler):
    known = f"Bearer {NODE_TOKEN}"

    def do_GET(self) -> None:
        self.send_response(200 if self.headers.get("Authorization") == self.known else 401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_arguments: t.Any) -> None:
        """Say nothing."""


class Api:
    """An API server as Talos runs it: nobody is answered without a credential. ``ca`` signed its certificate."""

    def __init__(self, folder: Path, *, begins: datetime.datetime | None = None) -> None:
        begins = begins or datetime.datetime.now(datetime.timezone.utc) - DAY
        authority, own = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        self.ca = _signed("ca", authority, "ca", authority, begins=datetime.datetime.now(datetime.timezone.utc) - DAY)
        key = own.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        (folder / "server.pem").write_bytes(_signed("server", own, "ca", authority, begins=begins) + key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem")
        try:
            self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 7445), _Handler)
        except OSError:
            pytest.skip("127.0.0.1:7445 is in use on this machine")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(name="machine")
def _machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    curl = machine.play / "bin/curl"
    curl.unlink()
    curl.write_text(f'#!/bin/sh\ncase $* in *7445*) exec {CURL} "$@" ;; esac\nexec "$PLAY/bin/pretended-curl" "$@"\n')
    curl.chmod(0o755)
    stub = (machine.play / "bin/pretend").read_text().replace("name=${0##*/}", "name=curl")
    (machine.play / "bin/pretended-curl").write_text(stub)
    (machine.play / "bin/pretended-curl").chmod(0o755)
    return machine


@pytest.fixture(name="serve")
def _serve(tmp_path: Path) -> t.Iterator[t.Callable[..., Api]]:
    running: list[Api] = []

    def start(**options: t.Any) -> Api:
        running.append(Api(tmp_path, **options))
        return running[-1]

    yield start
    for one in running:
        one.close()


def _ends(machine: Machine) -> str:
    machine.run()
    return machine.text("var/log/tgp-bootstrap.log").splitlines()[-1].partition(" ")[2]


def test_the_right_server_and_the_right_token(machine: Machine, serve: t.Callable[..., Api]) -> None:
    (machine.root / "etc/tgp/ca.crt").write_bytes(serve().ca)
    assert _ends(machine) == "tgp-step done"
    assert not (machine.root / "etc/tgp/api.header").exists()


def test_a_token_that_the_cluster_does_not_know_is_said_before_the_kubelet_begins(
    machine: Machine, serve: t.Callable[..., Api]
) -> None:
    (machine.root / "etc/tgp/ca.crt").write_bytes(serve().ca)
    path = machine.root / "etc/tgp/bootstrap-kubeconfig"
    path.write_text(path.read_text().replace(NODE_TOKEN, "wrong1.0123456789abcdef"))
    assert _ends(machine) == "fail api: the API server does not know the bootstrap token: expired, deleted, or of another cluster"
    assert not [call for call in machine.calls if call == "systemctl restart kubelet"]


def test_a_ca_of_another_cluster(machine: Machine, serve: t.Callable[..., Api], tmp_path: Path) -> None:
    serve()
    key = ec.generate_private_key(ec.SECP256R1())
    other = _signed("ca", key, "ca", key, begins=datetime.datetime.now(datetime.timezone.utc) - DAY)
    (machine.root / "etc/tgp/ca.crt").write_bytes(other)
    assert "fail api: the certificate of 100.64.0.1:6443 is not of the cluster's CA, or this machine's clock is wrong" in _ends(
        machine
    )


def test_a_clock_that_is_wrong(machine: Machine, serve: t.Callable[..., Api]) -> None:
    (machine.root / "etc/tgp/ca.crt").write_bytes(serve(begins=datetime.datetime.now(datetime.timezone.utc) + DAY).ca)
    assert "this machine's clock is wrong: curl: (60)" in (said := _ends(machine)) and "not yet valid" in said


def test_nobody_there(machine: Machine, serve: t.Callable[..., Api]) -> None:
    api = serve()
    (machine.root / "etc/tgp/ca.crt").write_bytes(api.ca)
    api.close()
    api.close = lambda: None  # type: ignore[method-assign]
    assert "fail api: the API server 100.64.0.1:6443 cannot be reached: it does not answer tailscale ping either" in _ends(machine)
