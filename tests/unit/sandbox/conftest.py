# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sandbox in this process, and what a person would do in it."""

from __future__ import annotations

import time
import typing as t

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.bootstrap.payload import payload
from ansible_collections.tgp.gpu.plugins.module_utils.model import Lane, MeshChoice, Taint
from ansible_collections.tgp.gpu.plugins.module_utils.talos.secrets import read
from ansible_collections.tgp.gpu.plugins.module_utils.talos.spec import NodeSpec

from sandbox.box import IN_PROCESS, Box
from sandbox.clock import SimClock
from sandbox.scenario import parse
from sandbox.world import Machine

SMALL = {
    "lambda": [
        {"type": "gpu_1x_a10", "region": "us-east-1", "stock": 20},
        {"type": "gpu_2x_a6000", "region": "us-south-2", "stock": 2},
    ],
    "machines": [
        {"name": "rack-1", "gpus": 2},
        {"name": "rack-2", "gpus": 4, "installed": True},
    ],
    "rate_limits": False,
}


class Hand:
    """A person with all rights in a sandbox."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self._numbers = iter(range(1, 1000))

    def client(self, service: str, **headers: str) -> httpx.Client:
        return httpx.Client(transport=httpx.WSGITransport(app=self.box.apps[service]), base_url="http://sandbox", headers=headers)

    def kube(self, method: str, path: str, body: t.Any = None) -> t.Any:
        return self.box.cluster.admin().call(method, path, body)

    def token(self, seconds: float = 86400, groups: str = "system:bootstrappers:nodes") -> str:
        """A bootstrap token for one node."""
        identity, secret = f"tok{next(self._numbers):03d}", "0123456789abcdef"
        end = self.box.world.clock.seconds() + seconds
        data = {
            "token-id": identity,
            "token-secret": secret,
            "expiration": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end)),
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": groups,
        }
        meta = {"name": f"bootstrap-token-{identity}"}
        body = {"metadata": meta, "type": "bootstrap.kubernetes.io/token", "stringData": data, "apiVersion": "v1", "kind": "Secret"}
        self.kube("POST", "/api/v1/namespaces/kube-system/secrets", body)
        return f"{identity}.{secret}"

    def key(self, **fields: t.Any) -> str:
        """A one-use key of the tailnet."""
        settings = {
            "seconds": 86400,
            "description": "tgp test",
            "ephemeral": True,
            "preauthorized": True,
            "tags": ["tag:gpu"],
            **fields,
        }
        return str(self.box.tailnet.create_key("auth", **settings).secret)

    def payload(self, name: str, lane: str = "kubelet", **fields: t.Any) -> str:
        """What the collection would hand to this node."""
        settings: dict[str, t.Any] = {
            "pool": "training",
            "secrets": read(self.box.talos.bundle()),
            "bootstrap_token": fields.pop("token", None) or self.token(),
            "auth_key": fields.pop("key", None) or self.key(),
            "endpoint": IN_PROCESS,
            "cluster_name": "sandbox",
            "gpu_count": 1,
            "model": "A10",
            "taints": (Taint("gpu-node", "true", "NoSchedule"),),
            "labels": {"tgp.io/nodepool": "training"},
            "mesh": MeshChoice(tags=("tag:gpu",)),
            **{key: value for key, value in fields.items() if key != "capability"},
        }
        return payload(NodeSpec(name=name, lane=Lane(lane), **settings), capability=fields.get("capability")).text

    def rent(self, name: str, user_data: str | None = None, kind: str = "gpu_1x_a10", region: str = "us-east-1") -> Machine:
        """A machine of the sandbox's Lambda, by its API."""
        body = {"instance_type_name": kind, "region_name": region, "ssh_key_names": ["tgp"], "name": name, "hostname": name}
        lambda_api = self.client("lambda", authorization=f"Bearer {self.box.world.secrets['LAMBDA_API_KEY']}")
        answer = lambda_api.post("/api/v1/instance-operations/launch", json=body | ({"user_data": user_data} if user_data else {}))
        assert answer.status_code == 200, answer.text
        return self.box.world.machines[answer.json()["data"]["instance_ids"][0]]

    def terminate(self, machine: Machine) -> None:
        lambda_api = self.client("lambda", authorization=f"Bearer {self.box.world.secrets['LAMBDA_API_KEY']}")
        answer = lambda_api.post("/api/v1/instance-operations/terminate", json={"instance_ids": [machine.id]})
        assert answer.status_code == 200, answer.text

    def node(self, name: str) -> dict[str, t.Any] | None:
        return next((node for node in self.box.nodes() if node["metadata"]["name"] == name), None)

    def ready(self, name: str) -> str:
        conditions = ((self.node(name) or {}).get("status") or {}).get("conditions") or []
        return str(next((condition["status"] for condition in conditions if condition["type"] == "Ready"), ""))

    def until(self, what: t.Callable[[], t.Any], seconds: float = 60.0) -> t.Any:
        """Wait (real seconds) for something to be true."""
        end = time.monotonic() + seconds
        while not (found := what()):
            if time.monotonic() > end:
                pytest.fail(
                    f"did not happen; machines: {[(m.name, m.state, m.steps) for m in self.box.world.machines.values() if m.steps]}"
                )
            time.sleep(0.02)
        return found

    def story(self, machine: Machine, last: str, seconds: float = 60.0) -> str:
        """Wait for a step; its text."""
        self.until(lambda: any(step == last for _time, step, _text in machine.steps), seconds)
        return next(text for _time, step, text in reversed(machine.steps) if step == last)


@pytest.fixture
def make() -> t.Iterator[t.Callable[..., Hand]]:
    """``make(**scenario keys, speed=...)``: a started sandbox."""
    boxes: list[Box] = []

    def build(speed: float = 1200.0, **more: t.Any) -> Hand:
        box = Box(parse({**SMALL, **more}), clock=SimClock(speed), seed=7)
        boxes.append(box)
        return Hand(box.start())

    yield build
    for box in boxes:
        box.stop()
