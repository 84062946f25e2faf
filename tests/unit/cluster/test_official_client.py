# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials that Kubernetes' own Python client finds: when it is imported, what exec plugins get and give, and OpenID Connect."""

from __future__ import annotations

import base64
import contextlib
import ipaddress
import json
import os
import select
import signal
import ssl
import stat
import subprocess
import sys
import threading
import time
import typing as t
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import httpx
import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput, MissingLibrary
from ansible_collections.tgp.gpu.plugins.module_utils.core.redact import redact
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth import official_client
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth.credentials import access
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth.kubeconfig import find
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from .test_kubeconfig import TOKEN, credential, header, issued, of_client, plugin, write

_PEM = serialization.Encoding.PEM
_PLAIN = (_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())

# ---- when it is imported

_LOADED = """
import sys
import httpx
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth.credentials import access
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth.kubeconfig import find
for path in sys.argv[1:]:
    access(find(path, env={})).authorize(httpx.Request("GET", "http://x/"))
    print("kubernetes" in sys.modules)
"""


def loaded(*paths: Path) -> list[str]:
    """For each kubeconfig, in this order in one process, whether the client has been imported once a request has its credential."""
    done = subprocess.run(
        [sys.executable, "-c", _LOADED, *map(str, paths)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_client_is_imported_only_for_credentials_that_it_loads(tmp_path: Path) -> None:
    now = datetime.now(timezone.utc).replace(microsecond=0)
    short = [of_client(tmp_path, now - timedelta(days=1), now + timedelta(days=1))]
    (tmp_path / "token").write_text(TOKEN)
    unused = plugin(tmp_path, f"echo '{credential(token=TOKEN)}'")
    users = ({"token": TOKEN, "as": "jane", **unused}, {"tokenFile": "token", **unused}, {"username": "a", "password": "b"})
    for number, user in enumerate(users):
        short.append(write(tmp_path / f"short{number}", user=user, cluster={"tls-server-name": "api"}))
    used = write(tmp_path / "exec", user=unused)
    assert loaded(*short, used) == ["False", "False", "False", "False", "True"]
    assert loaded(write(tmp_path / "oidc", user=oidc(web_token(hours=1)))) == ["True"]


@pytest.mark.parametrize("way", ["exec", "oidc"])
def test_without_the_client_a_sentence_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    for name in ("kubernetes", "kubernetes.client", "kubernetes.config.exec_provider", "kubernetes.config.kube_config"):
        monkeypatch.setitem(sys.modules, name, None)
    user = plugin(tmp_path, f"echo '{credential(token=TOKEN)}'") if way == "exec" else oidc(web_token(hours=1))
    with pytest.raises(MissingLibrary, match=r"The Python library kubernetes is needed .* pip install kubernetes\."):
        header(write(tmp_path / "config", user=user))


@pytest.mark.parametrize("way", ["exec", "oidc"])
def test_a_client_that_is_too_old_is_named_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.setattr("kubernetes.__version__", "32.0.1")
    user = plugin(tmp_path, f"echo '{credential(token=TOKEN)}'") if way == "exec" else oidc(web_token(hours=1))
    with pytest.raises(MissingLibrary, match=r"kubernetes 32\.0\.1 is too old .* pip install 'kubernetes>=33\.1'"):
        header(write(tmp_path / "config", user=user))


# ---- exec plugins


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_both_versions_of_the_protocol_work_and_the_plugin_is_told_which(tmp_path: Path, version: str) -> None:
    answer = credential(token=TOKEN).replace("/v1", f"/{version}")
    user = plugin(tmp_path, f"echo \"$KUBERNETES_EXEC_INFO\" > told; echo '{answer}'")
    user["exec"] |= {"apiVersion": f"client.authentication.k8s.io/{version}", "provideClusterInfo": False}
    os.chdir(tmp_path)
    assert header(write(tmp_path / "config", user=user)) == f"Bearer {TOKEN}"
    told = {"apiVersion": user["exec"]["apiVersion"], "kind": "ExecCredential", "spec": {"interactive": False}}
    assert json.loads((tmp_path / "told").read_text()) == told


def test_a_plugin_gets_its_arguments_as_they_are_and_is_found_beside_the_kubeconfig_or_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = plugin(tmp_path, f'printf \'%s|\' "$@" "$NUMBER" > "$PLACE"; echo \'{credential(token=TOKEN)}\'')
    user["exec"]["args"] = ["get-token", "-c", "two words", "$HOME", 7]
    user["exec"]["env"] = [{"name": "NUMBER", "value": 5}, {"name": "PLACE", "value": str(tmp_path / "given")}]
    for command in ("./plugin", "plugin", str(tmp_path / "plugin")):
        (tmp_path / "given").unlink(missing_ok=True)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        user["exec"]["command"] = command
        assert header(write(tmp_path / "config", user=user)) == f"Bearer {TOKEN}"
        assert (tmp_path / "given").read_text() == "get-token|-c|two words|$HOME|7|5|"


def test_a_program_that_is_not_there_is_named_with_the_hint_of_the_kubeconfig(tmp_path: Path) -> None:
    user = plugin(tmp_path, "exit 0")
    user["exec"] |= {"command": "no-such-program", "installHint": "Install it from https://plugin.test."}
    with pytest.raises(InvalidInput) as caught:
        header(write(tmp_path / "config", user=user))
    said = str(caught.value)
    assert f"context main of {tmp_path}" in said and "the exec plugin no-such-program gave no credential" in said
    assert "No such file or directory" in said and said.endswith("Install it from https://plugin.test.")


def test_what_a_plugin_says_at_its_end_is_shown_without_secrets_and_in_part(tmp_path: Path) -> None:
    secret = "tskey-" + "auth-0123456789abcdef"
    with pytest.raises(InvalidInput) as caught:
        header(write(tmp_path / "config", user=plugin(tmp_path, f"printf '%01000d' 0 >&2; echo ' {secret} refused' >&2; exit 1")))
    assert "refused" in str(caught.value) and secret not in str(caught.value) and len(str(caught.value)) < 600


def test_nobody_answers_a_plugin(tmp_path: Path) -> None:
    """Neither does it read what the run would read, nor is it told that a person is there, also where output is a terminal."""
    body = 'echo "$KUBERNETES_EXEC_INFO" > told; read answer; echo "read ${answer:-nothing}" >&2; exit 4'
    os.chdir(tmp_path)
    path = write(tmp_path / "config", user=plugin(tmp_path, body))
    ours, terminal = os.openpty()
    try:
        os.write(ours, b"a word\n")
        done = subprocess.run(
            [sys.executable, "-c", _LOADED, str(path)],
            stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(terminal)
    assert "process returned 4. read nothing" in done.stderr
    assert json.loads((tmp_path / "told").read_text())["spec"]["interactive"] is False


def test_a_plugin_that_does_not_answer_is_ended_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(official_client, "_TIMEOUT", 1)
    os.mkfifo(tmp_path / "alive")
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    user = plugin(tmp_path, f"exec 3>{tmp_path}/alive; echo open a browser >&2; sleep 300 & sleep 300")
    try:
        with pytest.raises(InvalidInput, match="process returned 1. open a browser\\s+no answer within 1 s"):
            header(write(tmp_path / "config", user=user))
        writers = select.poll()
        writers.register(reader, 0)
        assert writers.poll(60_000) == [(reader, select.POLLHUP)], "somebody still holds it open"
    finally:
        os.close(reader)


def test_what_a_plugin_leaves_behind_does_not_keep_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A helper that it started holds its output; the answer counts when the time is over at the latest."""
    monkeypatch.setattr(official_client, "_TIMEOUT", 1)
    body = f"echo '{credential(token=TOKEN)}'; sleep 300 & echo $! > {tmp_path}/helper"
    assert header(write(tmp_path / "config", user=plugin(tmp_path, body))) == f"Bearer {TOKEN}"
    os.kill(int((tmp_path / "helper").read_text()), signal.SIGKILL)


def test_a_plugin_that_a_signal_ends_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="gave no credential: .*ended by signal 9"):
        header(write(tmp_path / "config", user=plugin(tmp_path, "kill -9 $$")))


def test_a_client_certificate_of_a_plugin_is_shown_to_the_cluster_and_stays_out_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = issued("root", None, True)
    certificate, key = issued("api.test", root, False)
    mine, secret = issued("somebody", root, False)
    (tmp_path / "ca.crt").write_bytes(root[0].public_bytes(_PEM))
    (tmp_path / "server").write_bytes(certificate.public_bytes(_PEM) + key.private_bytes(*_PLAIN))
    private = secret.private_bytes(*_PLAIN).decode()
    (tmp_path / "answer").write_text(credential(clientCertificateData=mine.public_bytes(_PEM).decode(), clientKeyData=private))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    cluster = {"server": "https://api.test:6443", "certificate-authority": "ca.crt"}
    path = write(tmp_path / "config", cluster=cluster, user=plugin(tmp_path, f"cat {tmp_path}/answer"))
    how = access(find(str(path), env={}))
    assert "authorization" not in how.authorize(httpx.Request("GET", "http://x/")).headers
    assert list((tmp_path / "temporary").iterdir()) == [] and private not in redact(f"it was {private}")
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(tmp_path / "ca.crt"))
    served.verify_mode = ssl.CERT_REQUIRED
    served.verify_flags &= ~ssl.VERIFY_X509_STRICT
    served.load_cert_chain(tmp_path / "server")
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    assert how.tls is not None
    client = how.tls.wrap_bio(here, there, server_hostname="api.test")
    server = served.wrap_bio(there, here, server_side=True)
    for side in (client, server, client, server):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert (("commonName", "somebody"),) in (server.getpeercert() or {})["subject"]


# ---- OpenID Connect


def web_token(*, hours: float, name: str = "jane") -> str:
    def part(value: dict[str, t.Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'sub': name, 'exp': int(time.time() + hours * 3600)})}.c2lnbmF0dXJl"


def oidc(token: str, **config: str) -> dict[str, t.Any]:
    return {"auth-provider": {"name": "oidc", "config": {"client-id": "tgp", "id-token": token, **config}}}


@pytest.mark.parametrize(
    ("provider", "name"),
    [({"name": "gcp", "config": {"cmd-path": "./plugin"}}, "gcp"), ({"name": "azure"}, "azure"), ("x", "without")],
)
def test_other_auth_providers_are_refused_and_start_nothing(tmp_path: Path, provider: t.Any, name: str) -> None:
    plugin(tmp_path, f"echo x > {tmp_path}/called")
    with pytest.raises(InvalidInput, match=rf"relies on an auth-provider \({name}.* use an exec plugin instead"):
        header(write(tmp_path / "config", user={"auth-provider": provider}))
    assert not (tmp_path / "called").exists()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"id-token": ""}, "Expected key id-token"),
        ({"id-token": "no-web-token"}, "not a JSON Web Token"),
        ({"id-token": "a.YWJj.c"}, "JSONDecodeError"),
    ],
)
def test_an_odd_id_token_is_a_sentence(tmp_path: Path, config: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidInput, match=f"context main of .*auth-provider oidc gave no token: .*{words}.* Log in again"):
        header(write(tmp_path / "config", user=oidc("x", **config)))


def test_an_id_token_that_holds_is_sent_without_asking_the_issuer(tmp_path: Path) -> None:
    token = web_token(hours=1)
    assert header(write(tmp_path / "config", user=oidc(token))) == f"Bearer {token}" and token not in redact(token)


class Issuer:
    """An issuer on loopback, with a certificate of its own authority. ``asked``: the paths of all calls; ``forms``: what was sent. Each
    answer has ``status``."""

    def __init__(self, folder: Path, answer: dict[str, str], *, status: int = 200) -> None:
        self.asked: list[str] = []
        self.forms: list[dict[str, list[str]]] = []
        self.authority = _authority(folder)
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send({"token_endpoint": f"{issuer.url}/token"})

            def do_POST(self) -> None:
                issuer.forms.append(parse_qs(self.rfile.read(int(self.headers["content-length"])).decode()))
                self._send({"access_token": "unused", "token_type": "Bearer", "expires_in": 3600, **answer})

            def _send(self, body: dict[str, t.Any]) -> None:
                issuer.asked.append(self.path)
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_words: t.Any) -> None:
                return

        class Server(HTTPServer):
            def handle_error(self, *_where: t.Any) -> None:
                """A client that does not trust the certificate leaves in the middle."""

        self._server = Server(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "issuer.pem")
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Issuer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _authority(folder: Path) -> str:
    """Writes key and certificate of 127.0.0.1 to issuer.pem; the path of the authority that signed it."""
    now = datetime.now(timezone.utc)
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("root", "127.0.0.1")}
    identifier = x509.SubjectKeyIdentifier.from_public_key(keys["root"].public_key())
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"), False
    )
    signed = {}
    for name, key in keys.items():
        top = name == "root"
        builder = x509.CertificateBuilder().subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        builder = builder.issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "root")]))
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
        builder = builder.add_extension(x509.BasicConstraints(ca=top, path_length=None), critical=True)
        builder = builder.add_extension(
            x509.KeyUsage(digital_signature=not top, key_cert_sign=top, crl_sign=top, **usage), critical=True
        )
        if top:
            builder = builder.add_extension(identifier, critical=False)
        else:
            address = x509.IPAddress(ipaddress.ip_address(name))
            builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
            own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
            builder = builder.add_extension(own, critical=False)
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        signed[name] = builder.sign(keys["root"], hashes.SHA256()).public_bytes(_PEM)
    (folder / "issuer.pem").write_bytes(keys["127.0.0.1"].private_bytes(*_PLAIN) + signed["127.0.0.1"])
    (folder / "authority.pem").write_bytes(signed["root"])
    return str(folder / "authority.pem")


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def test_an_id_token_that_has_ended_is_renewed_and_kept_in_the_kubeconfig(direct: None, tmp_path: Path) -> None:
    new = web_token(hours=1, name="renewed")
    with Issuer(tmp_path, {"id_token": new, "refresh_token": "refresh-token-number-2"}) as issuer:
        user = oidc(web_token(hours=-1), **{
            "idp-issuer-url": issuer.url, "idp-certificate-authority": issuer.authority, "refresh-token": "refresh-token-number-1",
        })  # fmt: skip
        path = write(tmp_path / "config", user=user)
        path.chmod(0o640)
        before = yaml.safe_load(path.read_text())
        (tmp_path / "link").symlink_to(path)
        how = access(find(str(tmp_path / "link"), env={}))
        for _ in range(2):
            assert how.authorize(httpx.Request("GET", "http://x/")).headers["authorization"] == f"Bearer {new}"
    assert issuer.asked == ["/.well-known/openid-configuration", "/token"]
    assert [form["refresh_token"] for form in issuer.forms] == [["refresh-token-number-1"]]
    config = before["users"][0]["user"]["auth-provider"]["config"]
    config |= {"id-token": new, "refresh-token": "refresh-token-number-2"}
    assert yaml.safe_load(path.read_text()) == before
    assert (tmp_path / "link").is_symlink() and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert "refresh-token-number-2" not in redact("refresh-token-number-2")


def test_an_issuer_that_does_not_renew_is_named(direct: None, tmp_path: Path) -> None:
    """The client ignores such an answer and would send a token that has expired."""
    with Issuer(tmp_path, {}, status=503) as issuer:
        user = oidc(web_token(hours=-1), **{
            "idp-issuer-url": issuer.url, "idp-certificate-authority": issuer.authority, "refresh-token": "refresh-token-number-1",
        })  # fmt: skip
        path = write(tmp_path / "config", user=user)
        before = path.read_text()
        # before release 34 the client itself raised
        with pytest.raises(
            InvalidInput, match=rf"auth-provider oidc gave no token: .*({issuer.url} did not renew it|503).* Log in again"
        ):
            header(path)
    assert issuer.forms == [] and path.read_text() == before


def test_an_issuer_whose_certificate_nobody_vouches_for_gets_no_refresh_token(direct: None, tmp_path: Path) -> None:
    """Without idp-certificate-authority the client itself would not look at the certificate."""
    with Issuer(tmp_path, {}) as issuer:
        user = oidc(web_token(hours=-1), **{"idp-issuer-url": issuer.url, "refresh-token": "refresh-token-number-1"})
        with pytest.raises(InvalidInput, match="auth-provider oidc gave no token") as caught:
            header(write(tmp_path / "config", user=user))
    assert issuer.asked == [] and "refresh-token-number-1" not in str(caught.value)
