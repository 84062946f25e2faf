# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The emulated API server: its parts, put together, behind one WSGI callable."""

from __future__ import annotations

import base64
import http
import io
import json
import os
import random
import typing as t
import urllib.parse
from datetime import datetime, timedelta, timezone

import yaml
from cryptography import x509

from . import pki
from .auth import Authenticator, Call, Identity, rules_of
from .controllers import Controllers
from .kinds import Strategies
from .objects import Objects
from .paging import Pages
from .pod_proxy import PodServer
from .rbac import BINDINGS, ROLES, Authorizer
from .request import Request
from .resources import Registry
from .routes import Answer, Routes
from .status import Refusal
from .store import Store, encode
from .watch import Watch

Json = dict[str, t.Any]


class Clock(t.Protocol):
    def now(self) -> datetime: ...


class _SystemClock:
    def now(self) -> datetime:
        return datetime.now(timezone.utc)


class KubeApi:
    """A Kubernetes API in memory. ``app`` is the WSGI callable, ``admin_token`` a bearer token of system:masters, ``authority`` the cluster's
    certificate authority.

    ``seed`` makes UIDs and generated names repeatable; ``cluster_uid`` is the UID of namespace kube-system if it shall be a certain one.
    ``history`` changes of each kind are kept for watchers. ``node_grace`` seconds without a sign of life make a node Unknown
    (None: never); that, the scheduler and garbage collection work between ``start()`` and ``stop()``.
    """

    def __init__(
        self, clock: Clock | None = None, *, seed: int | None = None, cluster_uid: str | None = None, version: str = "v1.36.3",
        admin_token: str | None = None, history: int = 10_000, node_grace: float | None = 50.0,
    ) -> None:  # fmt: skip
        self.clock: Clock = clock or _SystemClock()
        self.version = version
        rng = random.Random(seed)
        self.store = Store(history)
        self.registry = Registry()
        self.authority = pki.Authority(self.now())
        self.authorizer = Authorizer(self.store)
        self.authenticator = Authenticator(self.store, self.authority, self.now)
        self.strategies = Strategies(self)
        self.objects = Objects(self.store, self.registry, self.now, rng, self.strategies, self.finish_namespace)
        self.pages = Pages(self.now)
        self.itself = Identity("system:apiserver", frozenset({"system:masters"}))
        self.admin_token = admin_token or f"admin-{rng.getrandbits(128):032x}"
        self.tokens[self.admin_token] = Identity("kubernetes-admin", frozenset({"system:masters", "system:authenticated"}))
        self.pod_logs: dict[tuple[str, str], str] = {}
        self.pod_servers: list[PodServer] = []
        self._routes = Routes(self)
        self._controllers = Controllers(self, node_grace)
        self._furnish(cluster_uid)

    # ---- time --------------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        return self.clock.now()

    def seconds(self) -> float:
        return self.clock.now().timestamp()

    @property
    def speed(self) -> float:
        """Clock seconds per real second."""
        return float(getattr(self.clock, "speed", 1.0))

    # ---- who -------------------------------------------------------------------------------------------------------

    @property
    def tokens(self) -> dict[str, Identity]:
        return self.authenticator.tokens

    def add_token(self, token: str, user: str, groups: t.Iterable[str] = (), rules: t.Iterable[t.Any] = ()) -> None:
        """Let ``token`` in as ``user``. ``rules``: (verb, API group, resource) triples, each "*" for any, resource like "pods/eviction"; or
        PolicyRule documents. Rights of roles bound to the user or its groups come on top."""
        self.tokens[token] = Identity(user, frozenset({*groups, "system:authenticated"}), rules=rules_of(rules))

    def identity(self, user: str, groups: t.Iterable[str]) -> Identity:
        return Identity(user, frozenset(groups))

    def certificates(self) -> pki.Certificates:
        """PEM of the authority, and a new serving certificate with its key for loopback."""
        return self.authority.serving(self.now())

    def kubelet_certificate(self, node: str) -> tuple[str, str]:
        """(key PEM, client certificate PEM) of a kubelet, without the bootstrap: for tests that need nothing but the identity."""
        key, request = pki.new_request(f"system:node:{node}", ["system:nodes"])
        usages = ["digital signature", "client auth"]
        parsed = x509.load_pem_x509_csr(request.encode())
        return key, self.authority.sign_request(parsed, usages, self.now(), timedelta(days=365))

    def write_kubeconfig(self, path: str, server: str, token: str | None = None) -> None:
        """A kubeconfig (mode 0600) with the authority inside, for the admin token or another one."""
        cluster = {"server": server, "certificate-authority-data": base64.b64encode(self.authority.pem.encode()).decode()}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sandbox", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": token or self.admin_token}}],
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "admin"}}],
            "current-context": "sandbox",
        }
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            yaml.safe_dump(document, file)

    # ---- the door ----------------------------------------------------------------------------------------------------

    def app(self, environ: dict[str, t.Any], start_response: t.Callable[..., t.Any]) -> t.Iterable[bytes]:
        try:
            identity = self.authenticator(environ)
            answer = self._routes(Request.of(environ), identity)
        except Refusal as refusal:
            answer = Answer(refusal.code, encode(refusal.body) + b"\n")
        line = f"{answer.code} {http.HTTPStatus(answer.code).phrase}"
        headers = [("Content-Type", answer.media), ("Cache-Control", "no-cache, private")]
        if isinstance(answer.body, Watch):
            write = start_response(line, headers)
            if callable(write):
                write(b"")  # the headers go out now: the first event may be far away
            return answer.body
        headers.append(("Content-Length", str(len(answer.body))))
        start_response(line, headers)
        return [answer.body]

    def request(
        self, method: str, path: str, body: t.Any = None, *, token: str | None = None, certificate: str | None = None,
        media: str = "application/json",
    ) -> tuple[int, t.Any]:  # fmt: skip
        """One call in process, through authentication and all: (status, decoded answer). As admin unless ``token`` or a kubelet's
        ``certificate`` (PEM) is given. Not for watches."""
        path, _mark, query = path.partition("?")
        text = b"" if body is None else encode(body)
        environ: dict[str, t.Any] = {
            "REQUEST_METHOD": method, "PATH_INFO": urllib.parse.unquote(path), "QUERY_STRING": query, "CONTENT_TYPE": media,
            "CONTENT_LENGTH": str(len(text)), "wsgi.input": io.BytesIO(text), "HTTP_USER_AGENT": "in-process",
        }  # fmt: skip
        if certificate is not None:
            environ["HTTP_X_KUBELET_CERTIFICATE"] = base64.b64encode(certificate.encode()).decode()
        else:
            environ["HTTP_AUTHORIZATION"] = f"Bearer {token or self.admin_token}"
        status: list[int] = []
        chunks = b"".join(self.app(environ, lambda line, headers: status.append(int(line[:3]))))
        try:
            return status[0], json.loads(chunks)
        except ValueError:
            return status[0], chunks.decode()

    # ---- life --------------------------------------------------------------------------------------------------------

    def start(self) -> KubeApi:
        """Start the scheduler and the controllers (daemon threads)."""
        self._controllers.start()
        return self

    def stop(self) -> None:
        self._controllers.stop()

    def empty_namespace(self, name: str) -> None:
        """Delete what is in a namespace that is going, and the namespace if that left nothing."""
        call = Call(self.itself, "namespace-controller")
        for resource in self.registry.all():
            if resource.namespaced and resource.stored:
                for item in self.store.table(resource.key).select(name):
                    self.objects.delete(resource, name, item.obj["metadata"]["name"], {}, call)
        self.finish_namespace(name)

    def finish_namespace(self, name: str) -> None:
        spaces = self.registry.of("namespaces")
        item = self.objects.find(spaces, None, name)
        if item is not None and "deletionTimestamp" in item.obj["metadata"] and self.strategies(spaces).may_vanish(item.obj):
            self.objects.vanish(spaces, None, name)

    def _furnish(self, cluster_uid: str | None) -> None:
        """What a new cluster has."""
        call = Call(self.itself, "kube-apiserver")
        of, create = self.registry.of, self.objects.create
        spaces = of("namespaces")
        for name in ("kube-system", "default", "kube-node-lease", "kube-public"):
            create(spaces, None, {"metadata": {"name": name}}, call)
        if cluster_uid:
            item = self.objects.get(spaces, None, "kube-system")
            metadata = {**item.obj["metadata"], "uid": cluster_uid}
            self.store.put(self.store.table(spaces.key), item.key, {**item.obj, "metadata": metadata})
        group = "rbac.authorization.k8s.io"
        for role, rules in ROLES.items():
            create(of("clusterroles", group), None, {"metadata": {"name": role}, "rules": rules}, call)
        for binding, (role, subjects) in BINDINGS.items():
            reference = {"apiGroup": group, "kind": "ClusterRole", "name": role}
            subject = {"apiGroup": group, "kind": "Group", "name": subjects}
            body = {"metadata": {"name": binding}, "roleRef": reference, "subjects": [subject]}
            create(of("clusterrolebindings", group), None, body, call)
        service = {
            "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"type": "ClusterIP", "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "sessionAffinity": "None",
                     "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]},
        }  # fmt: skip
        create(of("services"), "default", service, call)
