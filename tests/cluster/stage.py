# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sandbox whose machines join the real control plane, with documents for them, and the account with the shipped rights."""

from __future__ import annotations

import json
import os
import pathlib
import typing as t

import httpx
import yaml

from sandbox import device_plugin
from tests.e2e.box import ROOT, Sandbox

from .plane import Plane

LEASES = "/apis/coordination.k8s.io/v1/namespaces/tgp-system/leases"
PATIENCE = 400.0  # real seconds for what takes a few on an idle machine
NOTHING = {"instances": 0, "devices": 0, "keys": 0}
_RESOURCES = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}


def shipped_account(plane: Plane) -> str:
    """A token of the account in files/rbac.yml, with that file applied and nothing else."""
    for one in yaml.safe_load_all((ROOT / "files" / "rbac.yml").read_text(encoding="utf-8")):
        path = _RESOURCES[one["kind"]].format(one["metadata"].get("namespace"))
        answer = plane.http.post(path, json=one)
        if answer.status_code != httpx.codes.CONFLICT:
            answer.raise_for_status()
    made = plane.create("/api/v1/namespaces/tgp-system/serviceaccounts/tgp-gpu/token", {"spec": {"expirationSeconds": 7200}})
    return str(made["status"]["token"])


class Stage(Sandbox):
    """A sandbox whose machines join the plane, with one pool of rented machines and one of a single own machine."""

    patience = PATIENCE

    def __init__(
        self,
        plane: Plane,
        folder: pathlib.Path,
        *,
        drain_timeout: str = "60s",
        disruption: t.Mapping[str, str] = {"consolidateAfter": "10m"},
        speed: float = 1,
        behind: float = 0,
        with_device_plugin: bool = True,
    ) -> None:
        self.plane = plane
        self.mark = os.urandom(2).hex()
        self.rack = f"rack-{self.mark}"
        self.pools = {"lambda": f"rented-{self.mark}", "webhook": f"own-{self.mark}"}
        self.drain_timeout, self.disruption = drain_timeout, dict(disruption)
        scenario = folder / "scenario.yaml"
        scenario.write_text(yaml.safe_dump(self._scenario()))
        self._tokens_before: set[str] = set()
        if with_device_plugin:
            self._install_device_plugin()
        super().__init__(folder, speed=speed, behind=behind, scenario=scenario, kubeconfig=plane.kubeconfig)
        self._tokens_before = set(self.tokens())

    def _install_device_plugin(self) -> None:
        body = device_plugin.manifest()
        answer = self.plane.http.post(f"/apis/apps/v1/namespaces/{body['metadata']['namespace']}/daemonsets", json=body)
        if answer.status_code != httpx.codes.CONFLICT:  # another stage on this plane
            answer.raise_for_status()

    def _scenario(self) -> dict[str, t.Any]:
        return {
            "lambda": [{"type": "gpu_1x_a10", "region": "us-east-1", "stock": 4, "boot": 0.5}],
            "machines": [{"name": self.rack, "gpus": 2, "model": "RTX3090", "memory_gib": 24, "boot": 0.5, "stop": 0.2}],
            "timings": {"packages": 0.1, "mesh": 0.1, "csr": 0.1, "ready": 0.3, "gpu": 0.3},
            "rate_limits": False,
        }

    def documents(self) -> list[dict[str, t.Any]]:
        own = {"name": self.rack, "gpuCount": 2, "gpuType": "RTX3090"}
        for key, verb in (("scaleUpEndpoint", "start"), ("scaleDownEndpoint", "stop"), ("statusEndpoint", "status")):
            own[key] = f"/{self.rack}/{verb}"
        providers = [
            {"name": "lambda", "settings": {"sshKey": "tgp"}},
            {"name": "webhook", "settings": {"payload": "body"}, "machines": [own]},
        ]
        node_class = {
            "apiVersion": "tgp.io/v1",
            "kind": "GPUNodeClass",
            "metadata": {"name": f"class-{self.mark}"},
            "spec": {
                "providers": providers,
                "talosConfig": {"machineConfigTemplateFile": str(ROOT / "examples" / "templates" / "worker.yaml")},
                "tailscaleConfig": {"tags": ["tag:gpu"]},
                "limits": {"maxNodes": 3, "maxHourlyCost": "10.00"},
            },
        }
        return [node_class, *(self._pool(cloud, name) for cloud, name in self.pools.items())]

    def _pool(self, cloud: str, name: str) -> dict[str, t.Any]:
        inner = {
            "requirements": [{"key": "tgp.io/provider", "operator": "In", "values": [cloud]}],
            "taints": [{"key": "gpu-node", "value": "true", "effect": "NoSchedule"}],
        }
        return {
            "apiVersion": "tgp.io/v1",
            "kind": "GPUNodePool",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "nodeClassRef": {"name": f"class-{self.mark}"},
                "template": {"spec": inner},
                "drainTimeout": self.drain_timeout,
                "disruption": self.disruption,
            },
        }

    def run(self, name: str, **variables: t.Any) -> t.Any:
        """A playbook with this stage's documents, to its good end."""
        return self.playbook(name, documents=self.documents(), extra_vars=variables).succeeded()

    def enter_by(self, address: str, token: str) -> None:
        """From now on playbooks reach the cluster at ``address`` and are whom ``token`` stands for."""
        content = json.loads(self.plane.kubeconfig_text({"token": token}))
        content["clusters"][0]["cluster"]["server"] = address
        path = self.folder / "entry.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(json.dumps(content))
        self.environment["KUBECONFIG"] = str(path)

    def until(self, what: t.Callable[[], bool], words: str, seconds: float = PATIENCE) -> None:
        super().until(what, words, seconds)

    def names(self) -> set[str]:
        """The machines that are billed, or are on."""
        return {one["name"] for one in self.living()}

    def rented(self) -> str:
        return next(one["name"] for one in self.living() if one["cloud"] == "lambda")

    def node(self, name: str) -> dict[str, t.Any]:
        return self.plane.get(f"/api/v1/nodes/{name}")

    def taints(self, name: str) -> set[str]:
        return {one["key"] for one in self.node(name)["spec"].get("taints", [])}

    def nothing_is_left(self) -> bool:
        """No machine, device, key, claim, token or Node of a rented machine; an own machine's Node stays, as it does by rule."""
        nodes = {
            name
            for name, one in self.nodes().items()
            if one["metadata"].get("labels", {}).get("tgp.io/nodepool") == self.pools["lambda"]
        }
        left = self.left()
        return {key: left[key] for key in NOTHING} == NOTHING and not self.claims() and not nodes and not self.new_tokens()

    def new_tokens(self) -> set[str]:
        return set(self.tokens()) - self._tokens_before

    def lock_holders(self) -> list[str]:
        """Who holds the run lock, by its Lease."""
        return [one["spec"].get("holderIdentity") or "" for one in self.plane.get(LEASES)["items"]]


S = t.TypeVar("S", bound=Stage)


def cleared(made: S) -> t.Iterator[S]:
    """The stage, for a fixture; its machines are terminated after the test."""
    yield made
    try:
        if made.claims():
            made.run("destroy", everything=True, force=True)
    finally:
        made.close()
