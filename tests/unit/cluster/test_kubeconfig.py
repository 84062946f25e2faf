# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cluster, which credential, and sentences that say what is wrong with a kubeconfig."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import ssl
import stat
import subprocess
import sys
import typing as t
from datetime import datetime, timedelta, timezone
from pathlib import Path

import httpx
import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput, MissingLibrary, Unauthorized
from ansible_collections.tgp.gpu.plugins.module_utils.core.redact import redact
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth import credentials
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth.credentials import access, connect, validity
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth.kubeconfig import find, in_cluster
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

TOKEN = "a-long-fake-token-for-the-kubeconfig-tests"


def write(
    path: Path, *, context: str = "main", user: dict | None = None, cluster: dict | None = None, current: bool = True
) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": context if current else "",
        "clusters": [{"name": f"c-{context}", "cluster": {"server": f"http://{context}.test:8080", **(cluster or {})}}],
        "users": [{"name": f"u-{context}", "user": {"token": TOKEN} if user is None else user}],
        "contexts": [{"name": context, "context": {"cluster": f"c-{context}", "user": f"u-{context}"}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


def header(path: Path) -> str | None:
    request = access(find(str(path), env={})).authorize(httpx.Request("GET", "http://x/"))
    return request.headers.get("authorization")


def test_option_beats_variables_and_variables_beat_home(tmp_path: Path) -> None:
    one, two, three = (write(tmp_path / name, context=name) for name in ("one", "two", "three"))
    env = {"K8S_AUTH_KUBECONFIG": str(two), "KUBECONFIG": str(three)}
    assert find(str(one), env=env).server == "http://one.test:8080"
    assert find(None, env=env).server == "http://two.test:8080"
    assert find(None, env={"KUBECONFIG": str(three)}).server == "http://three.test:8080"
    (tmp_path / ".kube").mkdir()
    write(tmp_path / ".kube" / "config", context="home")
    assert find(None, env={"HOME": str(tmp_path)}).server == "http://home.test:8080"


def test_several_files_are_merged_and_the_first_wins(tmp_path: Path) -> None:
    one = write(tmp_path / "one", context="one", current=False)
    two = write(tmp_path / "two", context="two")
    paths = os.pathsep.join([str(one), str(tmp_path / "missing"), str(two)])
    assert find(None, env={"KUBECONFIG": paths}).server == "http://two.test:8080"
    assert find(None, "one", env={"KUBECONFIG": paths}).server == "http://one.test:8080"
    assert "context one of" in find(None, env={"KUBECONFIG": paths, "K8S_AUTH_CONTEXT": "one"}).source


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "is empty"),
        ("[1, 2]", "not a mapping"),
        ("clusters: [\n  x: {", "not valid YAML at line"),
        ("clusters: 5", "clusters must be a list"),
        ("clusters: [{name: ''}]", "clusters[0] must have a name"),
        ("contexts: []", "has no current-context"),
        ("current-context: gone\ncontexts: [{name: here, context: {}}]", "has no context 'gone'"),
        ("current-context: here\ncontexts: [{name: here, context: {cluster: c}}]", "names the cluster 'c', which is not defined"),
        (
            "current-context: here\nclusters: [{name: c, cluster: {server: 'ftp://x'}}]\ncontexts: [{name: here, context: {cluster: c}}]",
            "is not an http(s) address",
        ),
        (
            "current-context: here\nclusters: [{name: c, cluster: {server: 'http://x'}}]\n"
            "contexts: [{name: here, context: {cluster: c, user: nobody}}]",
            "names the user 'nobody', which is not defined",
        ),
    ],
)
def test_odd_files_are_refused_by_name(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        find(str(path), env={})
    assert says in str(caught.value) and str(path) in str(caught.value)


def test_a_missing_file_is_named_with_the_setting(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="KUBECONFIG names /nowhere/config, and there is no such file"):
        find(None, env={"KUBECONFIG": "/nowhere/config"})
    with pytest.raises(InvalidInput, match="No cluster is configured"):
        find(None, env={"HOME": str(tmp_path)})


def test_yaml_errors_do_not_show_the_text(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(f"users: [{{token: {TOKEN}\n  : ][")
    with pytest.raises(InvalidInput) as caught:
        find(str(path), env={})
    assert TOKEN not in str(caught.value)


def test_token_token_file_and_password(tmp_path: Path) -> None:
    assert header(write(tmp_path / "a")) == f"Bearer {TOKEN}"
    (tmp_path / "token").write_text("token-out-of-a-file-0123456789\n")
    assert header(write(tmp_path / "b", user={"tokenFile": "token", "token": TOKEN})) == "Bearer token-out-of-a-file-0123456789"
    basic = header(write(tmp_path / "c", user={"username": "me", "password": "a-long-fake-password-000"}))
    assert basic == "Basic " + base64.b64encode(b"me:a-long-fake-password-000").decode()
    assert header(write(tmp_path / "d", user={})) is None
    assert "a-long-fake-password-000" not in redact("it was a-long-fake-password-000") and TOKEN not in redact(TOKEN)


def test_a_mounted_token_is_read_again_after_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, seconds = tmp_path / "token", [1000.0]
    monkeypatch.setattr(credentials.time, "monotonic", lambda: seconds[0])
    file.write_text("the-first-fake-token-0123")
    authorize = access(find(str(write(tmp_path / "a", user={"tokenFile": "token"})), env={})).authorize
    seen = []
    for now in (1000.0, 1060.0, 1060.1):
        seconds[0] = now
        seen.append(authorize(httpx.Request("GET", "http://x/")).headers["authorization"])
        file.write_text("the-second-fake-token-456")
    assert seen == ["Bearer the-first-fake-token-0123"] * 2 + ["Bearer the-second-fake-token-456"]


def test_impersonation_and_what_cannot_be_honoured(tmp_path: Path) -> None:
    path = write(tmp_path / "a", user={"token": TOKEN, "as": "jane", "as-groups": ["devs"]})
    request = access(find(str(path), env={})).authorize(httpx.Request("GET", "http://x/"))
    assert request.headers["impersonate-user"] == "jane" and request.headers["impersonate-group"] == "devs"
    for user, says in (
        ({"auth-provider": {"name": "gcp"}}, "relies on an auth-provider"),
        ({"as-user-extra": {"a": ["b"]}}, "as-user-extra"),
        ({"as-groups": ["a", "b"]}, "more than one group"),
        ({"tokenFile": "gone"}, "token file"),
        ({"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}, "exec apiVersion"),
        (
            {"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Always"}},
            "talk to a person",
        ),
    ):
        with pytest.raises(InvalidInput) as caught:
            header(write(tmp_path / "b", user=user))
        assert says in str(caught.value) and "context main of" in str(caught.value)


@pytest.mark.parametrize(
    "user", [{"token": f"{TOKEN}\n{TOKEN[::-1]}"}, {"token": f"{TOKEN}\u200b"}, {"token": TOKEN, "as": "jan\u00e9"}]
)
def test_a_credential_that_no_header_can_carry_is_refused_without_being_shown(tmp_path: Path, user: dict[str, str]) -> None:
    """The library that refuses it shows it, and of a token of two lines only the first looks like one."""
    with pytest.raises(InvalidInput, match="context main of .*cannot be sent") as caught:
        header(write(tmp_path / "config", user=user))
    assert TOKEN not in str(caught.value) and TOKEN[::-1] not in str(caught.value)


@pytest.mark.parametrize(
    "cluster, user, says",
    [
        ({"certificate-authority-data": "%%"}, {}, "certificate-authority-data is not base64"),
        ({"certificate-authority": "gone.crt"}, {}, "cannot be read"),
        ({"certificate-authority-data": base64.b64encode(b"nonsense").decode()}, {}, "not a PEM certificate"),
        ({}, {"client-certificate-data": base64.b64encode(b"x").decode()}, "needs both the certificate and its key"),
        ({"proxy-url": "gopher://p"}, {}, "proxy-url"),
    ],
)
def test_odd_tls_settings_are_refused(tmp_path: Path, cluster: dict, user: dict, says: str) -> None:
    path = write(tmp_path / "a", cluster={"server": "https://x:6443", **cluster}, user=user)
    with pytest.raises(InvalidInput, match=says):
        access(find(str(path), env={}))


def test_a_socks_proxy_without_its_library_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)
    path = write(tmp_path / "a", cluster={"proxy-url": "socks5://127.0.0.1:1080"})
    with pytest.raises(MissingLibrary, match="context main of .*socksio"):
        connect(Task({"kubeconfig": str(path), "context": None}))


def issued(name: str, by: tuple[x509.Certificate, t.Any] | None, authority: bool) -> tuple[x509.Certificate, t.Any]:
    """A certificate and its key; ``by`` None signs itself."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(timezone.utc)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    built = x509.CertificateBuilder().subject_name(subject).issuer_name(by[0].subject if by else subject)
    built = built.public_key(key.public_key()).serial_number(x509.random_serial_number())
    built = built.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
    built = built.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
    built = built.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return built.sign(by[1] if by else key, hashes.SHA256()), key


def test_an_authority_below_another_is_trusted_as_kubectl_trusts_it(tmp_path: Path) -> None:
    """What the kubeconfig names is where trust begins; it need not have signed itself."""
    root = issued("root", None, True)
    below = issued("below", root, True)
    certificate, key = issued("api.test", below, False)
    plain = serialization.NoEncryption()
    (tmp_path / "ca.crt").write_bytes(below[0].public_bytes(serialization.Encoding.PEM))
    (tmp_path / "server").write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    )
    path = write(tmp_path / "config", cluster={"server": "https://api.test:6443", "certificate-authority": "ca.crt"})
    context = access(find(str(path), env={})).tls
    assert context is not None
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(tmp_path / "server")
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(here, there, server_hostname="api.test")
    server = served.wrap_bio(there, here, server_side=True)
    for side in (client, server, client, server):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert client.version() is not None


_LOOK = """
import sys
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth.credentials import access
from ansible_collections.tgp.gpu.plugins.module_utils.kube.auth.kubeconfig import find
access(find(sys.argv[1], env={}))
"""


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    """Neither do kubectl and other clients ask; a playbook would wait at a terminal that nobody looks at."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "somebody")])
    now = datetime.now(timezone.utc)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
    certificate = made.not_valid_before(now).not_valid_after(now + timedelta(days=1)).sign(key, hashes.SHA256())
    locked = serialization.BestAvailableEncryption(b"a-long-fake-passphrase-000")
    (tmp_path / "crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (tmp_path / "key").write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked))
    user = {"client-certificate": "crt", "client-key": "key"}
    path = write(tmp_path / "config", cluster={"server": "https://x:6443"}, user=user)
    ours, terminal = os.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", _LOOK, str(path)],
            stdin=terminal, capture_output=True, text=True, start_new_session=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(ours)
        os.close(terminal)
    assert "has a passphrase" in done.stderr and "pass phrase:" not in done.stderr


def of_client(folder: Path, begin: datetime, end: datetime) -> Path:
    """A kubeconfig with a client certificate that holds for this time."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "somebody")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    signed = made.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end).sign(key, hashes.SHA256())
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    pem = signed.public_bytes(serialization.Encoding.PEM)
    assert validity("a comment\n" + pem.decode() + pem.decode()) == (begin, end)
    user = {"client-certificate-data": base64.b64encode(pem).decode(), "client-key-data": base64.b64encode(secret).decode()}
    return write(folder / "config", cluster={"server": "https://x:6443"}, user=user)


@pytest.mark.parametrize(
    ("begin", "end", "words"),
    [
        ("1995-01-01", "2020-02-01", "its client certificate expired on 2020-02-01T00:00:00Z. Fetch a new kubeconfig"),
        ("2049-12-31", "2050-01-01", "its client certificate is valid from 2049-12-31T00:00:00Z only. Correct the clock"),
        ("2020-02-01", "2071-01-01", ""),
    ],
)
def test_an_expired_client_certificate_is_recognised_before_any_call(tmp_path: Path, begin: str, end: str, words: str) -> None:
    span = [datetime.fromisoformat(one).replace(tzinfo=timezone.utc) for one in (begin, end)]
    path = of_client(tmp_path, span[0], span[1])
    with pytest.raises(InvalidInput, match=words) if words else contextlib.nullcontext():
        access(find(str(path), env={}))


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nTUlJQg==\n-----END CERTIFICATE-----", "no certificate"])
def test_what_is_no_certificate_has_no_validity(text: str) -> None:
    assert validity(text) is None


def plugin(folder: Path, body: str) -> dict[str, t.Any]:
    script = folder / "plugin"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "./plugin",
            "env": [{"name": "WORD", "value": "exec-plugin-token-0123456789"}],
            "interactiveMode": "Never",
            "provideClusterInfo": True,
        }
    }


def credential(**status: str) -> str:
    return json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status})


def test_exec_plugin_gives_a_token_and_is_asked_again_when_it_ends(tmp_path: Path) -> None:
    soon = (datetime.now(timezone.utc) + timedelta(seconds=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    answer = credential(token="TOKEN", expirationTimestamp=soon).replace("TOKEN", "'$WORD'")
    user = plugin(tmp_path, f"echo x >> calls; test -n \"$KUBERNETES_EXEC_INFO\" && echo '{answer}'")
    path = write(tmp_path / "config", user=user)
    os.chdir(tmp_path)
    how = access(find(str(path), env={}))
    for _ in range(2):  # ends within half a minute, so it is not kept
        assert how.authorize(httpx.Request("GET", "http://x/")).headers["authorization"] == "Bearer exec-plugin-token-0123456789"
    assert (tmp_path / "calls").read_text().count("x") == 2


@pytest.mark.parametrize("way", ["exec", "tokenFile"])
def test_a_token_that_is_refused_is_looked_for_again_once(tmp_path: Path, way: str) -> None:
    """A plugin may give a token without an end: it is good until the cluster refuses it. Mounted tokens may rotate at any moment."""
    now, good = tmp_path / "now", "a-fake-token-of-now-0123456789"
    now.write_text("a-fake-token-of-before-0123456789")
    told = credential(token="TOKEN").replace("TOKEN", "'$(cat now)'")
    user = {"tokenFile": "now"} if way == "tokenFile" else plugin(tmp_path, f"echo x >> calls; echo '{told}'")
    path = write(tmp_path / "config", user=user)
    os.chdir(tmp_path)
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(f"{request.method} {request.headers['authorization'].removeprefix('Bearer ')}")
        return httpx.Response(200 if good in seen[-1] else 401, json={"kind": "Status"})

    kube = connect(Task({"kubeconfig": str(path), "context": None}, transport=lambda _url: httpx.MockTransport(answer)))
    with pytest.raises(Unauthorized):
        kube.create("/api/v1/nodes", {})
    assert seen == ["POST a-fake-token-of-before-0123456789"], "the same token again would be refused again"
    now.write_text(good)
    assert kube.create("/api/v1/nodes", {}) == {"kind": "Status"} and seen[-1] == f"POST {good}" and len(seen) == 3
    kube.close()
    if way == "exec":
        assert (tmp_path / "calls").read_text().count("x") == 3, "once at first, and once for each refusal"


@pytest.mark.parametrize(
    "body, says",
    [
        ("echo no right >&2; exit 3", "process returned 3. no right"),
        ("echo hello", "failed to decode process output"),
        ("echo '{}'", "malformed response. missing key 'apiVersion'"),
        ("echo 5", "gave no credential"),
        (f"echo '{credential()}'", "neither a token nor"),
        (f"echo '{credential(token=TOKEN, clientCertificateData='x')}'".replace("/v1", "/v1beta1"), "does not match"),
        (f"echo '{credential(clientCertificateData='x')}'", "neither a token nor"),
        (f"echo '{credential(token=TOKEN, expirationTimestamp='soon')}'", "'soon' is not a time"),
    ],
)
def test_exec_plugin_failures_are_told(tmp_path: Path, body: str, says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        header(write(tmp_path / "config", user=plugin(tmp_path, body)))
    assert says in str(caught.value) and "./plugin" in str(caught.value) and f"context main of {tmp_path}" in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_an_exec_plugin_is_told_of_its_cluster(tmp_path: Path) -> None:
    """With provideClusterInfo, as kubectl does: an authority in a file by its content, and what the cluster's extension has for it."""
    (tmp_path / "ca.crt").write_text("an authority")
    extensions = [
        {"name": "somebody.else", "extension": {"a": 1}},
        {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "gpu"}},
    ]
    cluster = {"certificate-authority": "ca.crt", "extensions": extensions}
    user = plugin(tmp_path, f"echo \"$KUBERNETES_EXEC_INFO\" > told; echo '{credential(token=TOKEN)}'")
    os.chdir(tmp_path)
    assert header(write(tmp_path / "config", cluster=cluster, user=user)) == f"Bearer {TOKEN}"
    told = json.loads((tmp_path / "told").read_text())["spec"]["cluster"]
    assert told == {
        "server": "http://main.test:8080",
        "certificate-authority-data": base64.b64encode(b"an authority").decode(),
        "config": {"audience": "gpu"},
    }


@pytest.mark.parametrize("env", [[{"name": "A"}], [{"value": "B"}], ["A=B"]])
def test_an_odd_env_of_an_exec_plugin_is_a_sentence(tmp_path: Path, env: list[t.Any]) -> None:
    user = plugin(tmp_path, "exit 0")
    user["exec"]["env"] = env
    with pytest.raises(InvalidInput, match="each env of its exec plugin"):
        header(write(tmp_path / "config", user=user))


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    with pytest.raises(InvalidInput, match="service account file"):
        in_cluster(env, str(tmp_path))
    (tmp_path / "token").write_text("service-account-token-0123456789")
    (tmp_path / "ca.crt").write_text("x")
    entry = in_cluster(env, str(tmp_path))
    assert entry.server == "https://[fd00::1]:6443" and entry.user["tokenFile"] == str(tmp_path / "token")
