# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the world's machines, and the sandbox's own hand, reach the Kubernetes API: the built-in one in this process, or any by HTTPS."""

from __future__ import annotations

import base64
import contextlib
import os
import pathlib
import ssl
import tempfile
import threading
import typing as t
from urllib.parse import urlsplit

import httpx
import yaml

from .wsgi import MACHINE_AGENT, App, Environ, StartResponse

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


class KubeError(Exception):
    """The API did not do it. ``status`` 0 = it was not reached."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Client:
    """One identity's connection."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def call(self, method: str, path: str, body: t.Any = None, *, kind: str = "application/json", **params: t.Any) -> t.Any:
        """Decoded answer of a 2xx; :class:`KubeError` otherwise."""
        headers = {"content-type": kind} if body is not None else {}
        try:
            answer = self.http.request(method, path, json=body, params=params or None, headers=headers)
            content = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise KubeError(0, str(error) or type(error).__name__) from error
        if answer.is_success:
            return content
        message = content.get("message", "") if isinstance(content, dict) else ""
        raise KubeError(answer.status_code, message or f"status {answer.status_code}")

    def close(self) -> None:
        self.http.close()


class Cluster:
    """A Kubernetes API.

    ``app`` is mounted in this process when given; then ``endpoint`` is just its name. Otherwise ``endpoint`` is called over TLS that must
    fit ``ca_pem``. ``admin`` are the headers of somebody who may do everything. ``foreign`` = it is not the sandbox's own.
    """

    def __init__(
        self,
        endpoint: str,
        ca_pem: str,
        *,
        app: App | None = None,
        token: str = "",
        certificate: tuple[str, str] | None = None,
        foreign: bool = False,
    ) -> None:
        self.endpoint = endpoint.rstrip("/")
        self.ca_pem = ca_pem
        self.foreign = foreign
        self._app = app
        self._inside: App = app or _nothing
        self._token, self._certificate = token, certificate
        self._admin: Client | None = None
        self._lock = threading.Lock()
        self._left = threading.Event()

    def admin(self) -> Client:
        """The sandbox's own hand."""
        with self._lock:
            if self._admin is None:
                self._admin = self.connect(self.endpoint, self.ca_pem, self._token, self._certificate)
            return self._admin

    def _door(self, environ: Environ, start_response: StartResponse) -> t.Iterable[bytes]:
        """The API in this process; a watch there asks whether anybody still reads it."""
        return self._inside(environ | {"kube.lost": self._left.is_set}, start_response)

    def leave(self) -> None:
        """Nobody reads any watch of this process any more."""
        self._left.set()

    def move(self, endpoint: str) -> None:
        """The API of this process is served at ``endpoint`` now: machines have to go there, over TLS. The sandbox's own hand stays inside."""
        self.admin()
        self.endpoint, self._app = endpoint, None

    def close(self) -> None:
        with self._lock:
            if self._admin is not None:
                self._admin.close()
            self._admin = None

    def connect(self, server: str, ca_pem: str, token: str = "", certificate: tuple[str, str] | None = None) -> Client:
        """Somebody calls ``server``, trusts ``ca_pem`` and shows a token or a certificate (PEM, key). KubeError when it leads nowhere."""
        headers = {"user-agent": f"{MACHINE_AGENT}/1", "accept": "application/json"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        if certificate and not self.foreign:
            headers["x-kubelet-certificate"] = base64.b64encode(certificate[0].encode()).decode()
        if not server.startswith("https://"):
            raise KubeError(0, f"{server}: Client sent an HTTP request to an HTTPS server.")
        if self._app is None:
            context = _context(ca_pem, certificate)
            limits = httpx.Limits(max_connections=16, max_keepalive_connections=8)
            timeout = httpx.Timeout(30.0, connect=10.0)
            return Client(
                httpx.Client(base_url=server, headers=headers, verify=context, limits=limits, timeout=timeout, trust_env=False)
            )
        ours, theirs = urlsplit(self.endpoint), urlsplit(server)
        if (theirs.hostname, theirs.port or 443) != (ours.hostname, ours.port or 443):
            raise KubeError(0, f"dial tcp {theirs.hostname}:{theirs.port or 443}: connect: connection refused")
        if ca_pem.split() != self.ca_pem.split():
            raise KubeError(0, "tls: failed to verify certificate: x509: certificate signed by unknown authority")
        return Client(httpx.Client(base_url=self.endpoint, headers=headers, transport=httpx.WSGITransport(app=self._door)))

    @classmethod
    def of_kubeconfig(cls, path: str) -> Cluster:
        """A foreign cluster, by the current context of a kubeconfig file. ValueError says what it lacks."""
        folder = pathlib.Path(path).resolve().parent
        try:
            content = yaml.safe_load(pathlib.Path(path).read_text(encoding="utf-8"))
            context = _named(content, "contexts", content["current-context"])["context"]
            cluster = _named(content, "clusters", context["cluster"])["cluster"]
            user = _named(content, "users", context["user"])["user"] or {}
            if not isinstance(user, dict) or not isinstance(cluster, dict):
                raise TypeError("its current context names no cluster and user")
        except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is no usable kubeconfig: {type(error).__name__}: {error}") from error

        def data(holder: dict[str, t.Any], name: str) -> str:
            if holder.get(f"{name}-data"):
                try:
                    return base64.b64decode(holder[f"{name}-data"]).decode()
                except (ValueError, TypeError) as error:
                    raise ValueError(f"{path}: {name}-data is not text in base64") from error
            return (folder / holder[name]).read_text(encoding="utf-8") if holder.get(name) else ""

        token = user.get("token") or (data(user, "tokenFile").strip() if user.get("tokenFile") else "")
        certificate = data(user, "client-certificate"), data(user, "client-key")
        if not token and not all(certificate):
            raise ValueError(f"{path}: the user of its current context has neither a token nor a client certificate")
        if not str(cluster.get("server", "")).startswith("https://"):
            raise ValueError(f"{path}: machines join over https only, the server is {cluster.get('server')!r}")
        ca_pem = data(cluster, "certificate-authority")
        if not ca_pem:
            raise ValueError(f"{path}: it carries no certificate authority, so machines could not trust the server")
        found = cls(cluster["server"], ca_pem, token=token, certificate=certificate if all(certificate) else None, foreign=True)
        try:
            found.admin()
        except (KubeError, ssl.SSLError, httpx.InvalidURL) as error:
            raise ValueError(f"{path}: its server or its certificates cannot be used: {error}") from error
        return found

    def answer(self, named: str) -> None:
        """ValueError when whoever is ``named`` in a file does not reach it: no machine would ever join."""
        try:
            self.admin().call("GET", "/api/v1/nodes", limit=1)
        except KubeError as error:
            raise ValueError(f"{named}: the cluster at {self.endpoint} does not answer as it should: {error}") from error


def _nothing(_environ: Environ, _start_response: StartResponse) -> t.Iterable[bytes]:
    raise KubeError(0, "there is no API in this process")


def _named(content: dict[str, t.Any], section: str, name: str) -> dict[str, t.Any]:
    for entry in content.get(section) or []:
        if isinstance(entry, dict) and entry.get("name") == name:
            return t.cast(dict[str, t.Any], entry)
    raise KeyError(f"{section}: {name}")


def _context(ca_pem: str, certificate: tuple[str, str] | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=ca_pem) if ca_pem else ssl.create_default_context()
    except ssl.SSLError as error:
        raise KubeError(0, f"x509: malformed certificate: {error.reason}") from error
    if hasattr(ssl, "VERIFY_X509_STRICT"):
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if certificate:
        with _file("\n".join(certificate)) as name:
            context.load_cert_chain(name)
    return context


@contextlib.contextmanager
def _file(text: str) -> t.Iterator[str]:
    """OpenSSL takes a key only from a file; it lives as long as the call."""
    handle, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        yield name
    finally:
        os.unlink(name)
