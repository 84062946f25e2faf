# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster in process: the sandbox's Kubernetes, faults in front of it, and our client against it."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.http import Api
from ansible_collections.tgp.gpu.plugins.module_utils.core.rate_limit import RetryPolicy
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube, explain
from ansible_collections.tgp.gpu.plugins.module_utils.model import Claim, Lane, Offer, Phase

from sandbox.clock import SimClock
from sandbox.faults import Faults, FaultyApp
from sandbox.kube import KubeApi, serve
from sandbox.world import World
from sandbox.wsgi import CountingApp

UID = "a1b2c3d4-0000-4000-8000-000000000001"
START = datetime(2026, 8, 20, 12, 0, tzinfo=timezone.utc)


@dataclasses.dataclass
class Cluster:
    """The emulator, what stands before it, and ways to look at it from outside."""

    api: KubeApi
    clock: SimClock
    faults: Faults
    app: t.Any
    world: World
    opened: list[Kube] = dataclasses.field(default_factory=list)

    def client(self, token: str | None = None) -> Kube:
        """A client as somebody; as administrator by default."""
        headers = {"authorization": f"Bearer {token or self.api.admin_token}"}
        api = Api(
            "kubernetes",
            "http://kube.test",
            headers=headers,
            transport=httpx.WSGITransport(app=self.app),
            clock=self.clock,
            retry=RetryPolicy(first=0.01),
            explain=explain,
        )
        self.opened.append(Kube(api, "context test"))
        return self.opened[-1]

    def writes(self) -> list[str]:
        """All changing calls so far."""
        return [call for _when, _service, call in self.world.writes]

    def must(self, method: str, path: str, body: t.Any = None) -> t.Any:
        """A call of somebody else, which has to succeed."""
        media = "application/merge-patch+json" if method == "PATCH" else "application/json"
        status, answer = self.api.request(method, path, body, media=media)
        assert status < 300, answer
        return answer

    def read(self, path: str) -> dict[str, t.Any] | None:
        status, answer = self.api.request("GET", path)
        return answer if status == 200 else None

    def node(self, name: str, *, ready: bool | None = True, gpus: int = 0, uid: str = "", **spec: t.Any) -> dict[str, t.Any]:
        """A Node, with its status as a kubelet would report it."""
        labels = spec.pop("labels", {})
        self.must("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "spec": spec})
        return self.report(name, ready=ready, gpus=gpus)

    def report(self, name: str, *, ready: bool | None = True, gpus: int = 0, message: str = "") -> dict[str, t.Any]:
        """The kubelet's status report; with Ready the not-ready taint goes."""
        word = {True: "True", False: "False", None: "Unknown"}[ready]
        now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": word, "reason": "Kubelet", "message": message, "lastTransitionTime": now}
        resources = {"cpu": "8", "memory": "32Gi", "pods": "110", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
        status = {"conditions": [{**condition, "lastHeartbeatTime": now}], "capacity": resources, "allocatable": resources}
        self.must("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})
        node = self.read(f"/api/v1/nodes/{name}")
        assert node is not None
        if ready:
            taints = [one for one in node["spec"].get("taints", []) if not one["key"].startswith("node.kubernetes.io/")]
            node = self.must("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": taints or None}})
        return t.cast("dict[str, t.Any]", node)

    def pod(
        self, name: str, node: str = "", *, phase: str = "Running", owner: str = "ReplicaSet", **more: t.Any
    ) -> dict[str, t.Any]:
        """A pod bound to a node. ``owner`` is a kind, "" for a bare pod; grace 0 means that the API removes it at once."""
        owners = [{"apiVersion": "apps/v1", "kind": owner, "name": "x", "uid": "x", "controller": True}] if owner else []
        namespace = more.pop("namespace", "default")
        meta = {
            "name": name,
            "labels": more.pop("labels", {}),
            "annotations": more.pop("annotations", {}),
            "ownerReferences": owners,
        }
        gpus = more.pop("gpus", 0)
        resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
        spec = {
            "nodeName": node,
            "terminationGracePeriodSeconds": more.pop("grace", 0),
            "containers": [{"name": "c", "image": "x", "resources": resources}],
            **more,
        }
        self.must("POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": meta, "spec": spec})
        ready = [{"type": "Ready", "status": "True" if phase == "Running" else "False"}]
        status = {"phase": phase, "conditions": ready, "startTime": self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")}
        return t.cast(
            "dict[str, t.Any]", self.must("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": status})
        )

    def pods(self, node: str = "") -> list[str]:
        status, answer = self.api.request("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={node}" if node else "/api/v1/pods")
        assert status == 200
        return sorted(item["metadata"]["name"] for item in answer["items"])


@pytest.fixture
def speed() -> float:
    return 1.0


@pytest.fixture
def cluster(speed: float) -> t.Iterator[Cluster]:
    clock = SimClock(speed, start=START.timestamp())
    api = KubeApi(clock, seed=1, cluster_uid=UID, node_grace=None).start()
    world, faults = World(clock), Faults()
    app = CountingApp(FaultyApp(api.app, faults, "kubernetes", clock), world, "kubernetes")
    made = Cluster(api, clock, faults, app, world)
    yield made
    clock.close()
    api.stop()
    for kube in made.opened:
        kube.close()


@pytest.fixture
def kube(cluster: Cluster) -> Kube:
    return cluster.client()


@pytest.fixture
def served(cluster: Cluster, tmp_path: Path) -> t.Iterator[Path]:
    """The same cluster on a real socket; the path of its kubeconfig."""
    server = serve(cluster.api, app=cluster.app)
    path = tmp_path / "kubeconfig"
    cluster.api.write_kubeconfig(str(path), server.url)
    yield path
    server.stop()


def make_claim(name: str = "tgp-a1b2c3d4-pool-00000", **changes: t.Any) -> Claim:
    """A claim as a plan would write it."""
    offer = Offer("lambda", "o1", "gpu_1x_a10", "A10", 1, Decimal("0.75"), region="us-west")
    claim = Claim(name, "default/pool", "class", "lambda", Lane.KUBELET, Phase.PENDING, START, START, offer, Decimal("0.75"))
    return dataclasses.replace(claim, **changes)


def make_task(**params: t.Any) -> Task:
    return Task(params)
