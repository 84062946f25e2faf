# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A real Kubernetes control plane (etcd, API server, controller manager, scheduler) on loopback, set up as Talos sets up its own.

In tests: ``with Plane(binary) as plane: ...``. By hand, until Ctrl-C or SIGTERM::

    python -m tests.cluster.plane up --env-file FILE

which writes KUBECONFIG and the like as NAME=value lines to FILE once the plane is ready.
"""

from __future__ import annotations

import datetime
import functools
import json
import pathlib
import secrets
import ssl
import time
import typing as t

import httpx

from . import pki
from .hollow import HollowNode
from .processes import Child, Installation, free_ports

T = t.TypeVar("T")
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
# The bindings Talos installs, by the names it gives them, and that of files/rbac.yml: (name, groups, cluster role).
BINDINGS = (
    ("system-bootstrap-node-bootstrapper", ("system:bootstrappers:nodes", "system:nodes"), "system:node-bootstrapper"),
    (
        "system-bootstrap-approve-node-client-csr",
        ("system:bootstrappers:nodes",),
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
    ),
    ("tgp-gpu-node-bootstrapper", ("system:bootstrappers:tgp",), "system:node-bootstrapper"),
    ("system-bootstrap-node-renewal", ("system:nodes",), "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"),
)
# Who asked for what, of the accounts that run playbooks and of nobody else: the log stays small, and nobody else's calls get slower.
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts:tgp-system"]}, {"level": "None"}],
}


class PlaneFailed(Exception):
    """A part of the control plane ended, or something did not happen in time. The message carries the last lines of the log."""


class Plane(Installation):
    """A control plane from ``__enter__`` to ``__exit__``, alone in a temporary folder and on free ports.

    ``node_grace`` (seconds) is how long a silent kubelet keeps its node Ready: a day, so that a busy machine does not disturb
    tests; a test of dying kubelets starts its own plane with 5. ``address`` is where the API server listens.
    """

    def __init__(
        self, binary: pathlib.Path, *, node_grace: int = 86400, folder: pathlib.Path | None = None, address: str = "127.0.0.1"
    ) -> None:
        super().__init__("tgp-plane-", folder)
        self.binary = binary
        self.address = address
        self.node_grace = node_grace
        self._tokens = {user: secrets.token_urlsafe(32) for user in ("admin", "controllers", "scheduler")}

    # Life

    def _start(self) -> None:
        etcd, peer, api, controllers, scheduler = free_ports(5)
        self.server = f"https://{self.address}:{api}"
        self._certificates()
        self.ca_pem = (self.folder / "ca.crt").read_text()
        self.kubeconfig = self.write_kubeconfig("admin", {"token": self._tokens["admin"]})
        pair = {"client-certificate": str(self.folder / "operator.crt"), "client-key": str(self.folder / "operator.key")}
        self.certificate_kubeconfig = self.write_kubeconfig("operator", pair)
        store, peers = f"http://127.0.0.1:{etcd}", f"http://127.0.0.1:{peer}"
        self.etcd = store
        self.audit_log, audit = self.folder / "audit.log", self.folder / "audit.json"
        audit.write_text(json.dumps(AUDIT))
        # fmt: off
        self._run(
            "etcd", f"--data-dir={self.folder / 'etcd'}", f"--listen-client-urls={store}", f"--advertise-client-urls={store}",
            f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync", "--log-level=warn",
        )
        self._apiserver_flags = (
            f"--etcd-servers={store}", f"--bind-address={self.address}", f"--advertise-address={self.address}",
            f"--secure-port={api}", "--tls-cert-file=apiserver.crt", "--tls-private-key-file=apiserver.key",
            "--client-ca-file=ca.crt", "--token-auth-file=tokens.csv", "--anonymous-auth=false", "--enable-bootstrap-token-auth",
            "--service-account-key-file=sa.pub", "--service-account-signing-key-file=sa.key",
            "--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
            "--kubelet-client-certificate=kubelet-client.crt", "--kubelet-client-key=kubelet-client.key",
            "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
            "--endpoint-reconciler-type=none", "--enable-priority-and-fairness=false",
            f"--audit-policy-file={audit}", f"--audit-log-path={self.audit_log}", "--audit-log-mode=blocking",
        )
        self.start_apiserver()
        manager = self._run(
            "kube-controller-manager", *self._as("controllers"), f"--secure-port={controllers}",
            "--use-service-account-credentials=true", "--root-ca-file=ca.crt", "--service-account-private-key-file=sa.key",
            "--cluster-signing-cert-file=ca.crt", "--cluster-signing-key-file=ca.key",
            "--controllers=*,bootstrap-signer-controller,token-cleaner-controller",
            f"--node-monitor-grace-period={self.node_grace}s", f"--node-monitor-period={max(1, min(5, self.node_grace // 5))}s",
        )
        # fmt: on
        self._run("kube-scheduler", *self._as("scheduler"), f"--secure-port={scheduler}")
        for name, groups, role in BINDINGS:
            self.bind(name, groups, role)
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self.until(lambda: self._answers(account), timeout=90, what="the controllers to work", child=manager)

    def start_apiserver(self) -> None:
        """It answers when this returns."""
        self._apiserver = self._run("kube-apiserver", *self._apiserver_flags)
        self.until(lambda: self._answers("/readyz"), timeout=90, what="the API server to be ready", child=self._apiserver)

    def kill_apiserver(self) -> None:
        """As when its machine loses power; etcd keeps what was answered."""
        self._apiserver.kill()

    def _run(self, program: str, *flags: str) -> Child:
        return self.family.start(program, [str(self.binary), program, *flags], self.folder / f"{program}.log")

    def _as(self, user: str) -> list[str]:
        path = self.write_kubeconfig(user, {"token": self._tokens[user]})
        kinds = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        return [*(f"--{kind}={path}" for kind in kinds), "--bind-address=127.0.0.1", "--leader-elect=false"]

    def _certificates(self) -> None:
        authority = pki.Authority(self.folder)
        authority.serving(
            "apiserver", ["localhost", "kubernetes", "kubernetes.default.svc"], sorted({"127.0.0.1", "10.96.0.1", self.address})
        )
        authority.client("kubelet-client", "apiserver-kubelet-client", "system:masters")
        authority.client("operator", "operator", "system:masters")
        pki.signing_pair(self.folder, "sa")
        users = (
            ("admin", 'admin,u1,"system:masters"'),
            ("controllers", "system:kube-controller-manager,u2"),
            ("scheduler", "system:kube-scheduler,u3"),
        )
        lines = "".join(f"{self._tokens[user]},{rest}\n" for user, rest in users)
        (self.folder / "tokens.csv").write_text(lines)

    # Ways in

    def write_kubeconfig(self, name: str, user: dict[str, t.Any], folder: pathlib.Path | None = None) -> pathlib.Path:
        """``kubeconfig_text`` as a file that only we can read."""
        path = (folder or self.folder) / f"{name}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(self.kubeconfig_text(user))
        return path

    def kubeconfig_text(self, user: dict[str, t.Any]) -> str:
        """A kubeconfig for ``user`` ({"token": ...}, client-certificate and client-key, exec). JSON, which every reader of YAML reads."""
        cluster = {"server": self.server, "certificate-authority": str(self.folder / "ca.crt")}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "plane", "cluster": cluster}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "plane", "context": {"cluster": "plane", "user": "user"}}],
            "current-context": "plane",
        }
        return json.dumps(content, indent=1)

    def bootstrap_kubeconfig(self, token: str, name: str = "") -> pathlib.Path:
        """A file with which a kubelet asks for its certificate."""
        return self.write_kubeconfig(f"bootstrap-{name or secrets.token_hex(4)}", {"token": token})

    def bootstrap_token(self, seconds: float = 600, groups: str = "system:bootstrappers:nodes") -> str:
        """Create a bootstrap token that is valid for ``seconds`` (may be negative)."""
        identity, secret = secrets.token_hex(3), secrets.token_hex(8)
        end = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
        data = {
            "token-id": identity,
            "token-secret": secret,
            "expiration": end.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": groups,
        }
        metadata = {"name": f"bootstrap-token-{identity}"}
        body = {"metadata": metadata, "type": "bootstrap.kubernetes.io/token", "stringData": data}
        self.create("/api/v1/namespaces/kube-system/secrets", body)
        token = f"{identity}.{secret}"
        if seconds > 0:  # the API server learns of it a moment later
            headers = {"authorization": f"Bearer {token}"}
            self.until(
                lambda: self.http.get("/version", headers=headers).status_code == 200, what="the API server to know the token"
            )
        return token

    def bind(self, name: str, groups: t.Iterable[str], role: str) -> None:
        """Give ``groups`` the cluster role ``role``."""
        kind = "rbac.authorization.k8s.io"
        subjects = [{"kind": "Group", "apiGroup": kind, "name": group} for group in groups]
        body = {
            "metadata": {"name": name},
            "subjects": subjects,
            "roleRef": {"apiGroup": kind, "kind": "ClusterRole", "name": role},
        }
        self.create(f"{RBAC}/clusterrolebindings", body)

    # Talking to it, as admin

    @functools.cached_property
    def http(self) -> httpx.Client:
        context = ssl.create_default_context(cadata=self.ca_pem)
        headers = {"Authorization": f"Bearer {self._tokens['admin']}"}
        return httpx.Client(base_url=self.server, headers=headers, verify=context, trust_env=False, timeout=30)

    def _answers(self, path: str) -> bool:
        try:
            return self.http.get(path).status_code == 200
        except httpx.TransportError:
            return False

    def get(self, path: str, **query: str) -> dict[str, t.Any]:
        return self.http.get(path, params=query).raise_for_status().json()

    def find(self, path: str) -> dict[str, t.Any] | None:
        """The object at ``path``, or None if there is none."""
        answer = self.http.get(path)
        return None if answer.status_code == 404 else answer.raise_for_status().json()

    def create(self, path: str, body: dict[str, t.Any]) -> dict[str, t.Any]:
        return self.http.post(path, json=body).raise_for_status().json()

    def patch(self, path: str, body: t.Any, kind: str = "strategic") -> dict[str, t.Any]:
        headers = {"Content-Type": PATCHES[kind]}
        return self.http.patch(path, content=json.dumps(body), headers=headers).raise_for_status().json()

    def delete(self, path: str, **options: t.Any) -> httpx.Response:
        return self.http.request("DELETE", path, json=options or None)

    def until(self, probe: t.Callable[[], T | None], *, timeout: float = 120, what: str = "", child: Child | None = None) -> T:
        """The first true answer of ``probe``, asked ten times a second. Raises PlaneFailed after ``timeout`` seconds."""
        end = time.monotonic() + timeout
        while True:
            if answer := probe():
                return answer
            if child and not child.alive:
                raise PlaneFailed(f"{child.name} ended while the test waited for {what}:\n{child.last_words()}")
            if time.monotonic() > end:
                said = f":\n{child.last_words()}" if child else ""
                raise PlaneFailed(f"Waited {timeout:.0f} s in vain for {what or 'the condition'}{said}")
            time.sleep(0.1)

    # Nodes

    def kubemark(
        self,
        name: str,
        token: str = "",
        *,
        kubeconfig: pathlib.Path | None = None,
        labels: dict[str, str] | None = None,
        taints: t.Sequence[str] = (),
        gpus: int = 0,
    ) -> HollowNode:
        """Start a kubelet with a fake runtime. It joins with the bootstrap ``token`` or a bootstrap ``kubeconfig``.

        ``taints`` are "key=value:Effect". It registers its node in about a second; nothing here waits for that.
        """
        folder = self.folder / "nodes" / name
        folder.mkdir(parents=True, exist_ok=True)
        entry = kubeconfig or self.write_kubeconfig("bootstrap", {"token": token}, folder)
        return HollowNode(self.family, self.binary, folder, name, entry, labels or {}, taints, gpus)


if __name__ == "__main__":
    from .serve import main

    raise SystemExit(main())
