# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A world with many machines of ours, made without our playbooks: claims, instances, devices, Nodes, pods and a ledger.

Two machines are provisioned by the playbook, and one of them is terminated. The claim, the Node and the line of the ledger that they leave
are copied for all others; instances and devices are made by the calls of their own services.
"""

from __future__ import annotations

import json
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from .documents import RENTED, class_and_pool, rented_world
from .processes import playbook
from .world import World

PODS = 10  # of each node, all at work
LINES = 3  # of the ledger for each machine
_SPEED = 200.0  # until the pattern stands
_BESIDE = 4  # calls at a time
_PART = 150  # lines of one ConfigMap of the ledger
_SPACE = "/api/v1/namespaces/tgp-system/configmaps"
_MERGE = {"content-type": "application/merge-patch+json"}
_LAUNCH = {"region_name": "us-east-1", "instance_type_name": "gpu_1x_a10", "ssh_key_names": ["tgp"]}
Json = dict[str, t.Any]


class Fleet:
    """``with Fleet(folder, count) as fleet``: ``world`` in real time with ``count`` machines, ``documents`` that order as many."""

    def __init__(self, folder: Path, count: int, *, pods: int = PODS) -> None:
        self.count = count
        self.world = World(folder, rented_world(count + 2, rate_limits=False), speed=_SPEED)
        self._kube = self.world.machine_client()
        self.documents = self.world.documents(class_and_pool(RENTED, count + 2))
        try:
            if count:
                self._fill(pods)
            self.world.set_speed(1.0)
        except BaseException:
            self.world.sandbox.close()
            raise

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_error: object) -> None:
        self._kube.close()
        self.world.sandbox.close()

    def provision(self) -> list[str]:
        """The command that provisions as many as there are."""
        return self.command("provision", "-e", f"tgp_nodes={self.count}")

    def command(self, name: str, *arguments: str) -> list[str]:
        return playbook(name, "-e", f"tgp_documents={self.documents}", *arguments)

    def claims(self) -> list[Json]:
        return self._items(f"{_SPACE}?labelSelector=tgp.io/claim%3Dtrue")

    # ---- making it

    def _fill(self, pods: int) -> None:
        self.world.run(self.command("provision", "-e", "tgp_nodes=2"))
        kept, gone = (json.loads(one["data"]["claim.json"]) for one in self.claims())
        self.world.run(self.command("destroy", "-e", f"tgp_machine={gone['name']}", "-e", "tgp_force=true"))
        self.world.set_speed(1.0)
        pattern = Pattern(self._kube, kept)
        names = [f"{pattern.name[:-5]}{number:05d}" for number in range(self.count - 1)]
        with ThreadPoolExecutor(_BESIDE) as pool:
            ids = list(pool.map(self._rent, names))
            self.world.sandbox.advance(600)
            devices = self._devices(names) if pattern.device else [""] * len(names)
            addresses = {one["id"]: one["ip"] for one in self.world.sandbox.world()["machines"]}
            copies = [
                Copy(name, instance, addresses[instance] or "", device)
                for name, instance, device in zip(names, ids, devices, strict=True)
            ]
            list(pool.map(pattern.copy, copies))
            list(pool.map(self._pod, [(name, number) for name in [pattern.name, *names] for number in range(pods)]))
        self._ledger(names)

    def _rent(self, name: str) -> str:
        variables = self.world.environment
        base, key = variables["LAMBDA_API_URL"].rstrip("/"), variables["LAMBDA_API_KEY"]
        path = "/instance-operations/launch" if base.endswith("/api/v1") else "/api/v1/instance-operations/launch"
        answer = httpx.post(base + path, headers={"authorization": f"Bearer {key}"}, json={**_LAUNCH, "name": name}, timeout=60)
        return str(answer.raise_for_status().json()["data"]["instance_ids"][0])

    def _devices(self, names: t.Sequence[str]) -> list[str]:
        """Devices of these names, by one reusable key that is deleted afterwards."""
        variables = self.world.environment
        client = {"client_id": variables["TS_OAUTH_CLIENT_ID"], "client_secret": variables["TS_OAUTH_CLIENT_SECRET"]}
        create = {"reusable": True, "ephemeral": True, "preauthorized": True, "tags": ["tag:gpu"]}
        with httpx.Client(base_url=f"{variables['TAILSCALE_API_URL'].rstrip('/')}/api/v2", timeout=60) as mesh:
            token = mesh.post("/oauth/token", data=client).raise_for_status().json()["access_token"]
            mesh.headers["authorization"] = f"Bearer {token}"
            body = {"capabilities": {"devices": {"create": create}}, "expirySeconds": 86400, "description": "benchmark"}
            key = mesh.post("/tailnet/-/keys", json=body).raise_for_status().json()
            found = []
            for name in names:
                login = {"key": key["key"], "hostname": name, "advertise_tags": create["tags"]}
                joined = self.world.sandbox.control.post("/devices", json=login)
                found.append(str(joined.raise_for_status().json()["id"]))
            mesh.delete(f"/tailnet/-/keys/{key['id']}").raise_for_status()
        return found

    def _pod(self, place: tuple[str, int]) -> None:
        """A pod at work, as its kubelet would report it."""
        node, number = place
        name, path = f"job-{node[-5:]}-{number}", "/api/v1/namespaces/default/pods"
        spec = {
            "nodeName": node,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "registry.example/work:1"}],
        }
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": True}
        self._kube.post(path, json={"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}).raise_for_status()
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self._kube.patch(f"{path}/{name}/status", json={"status": status}, headers=_MERGE).raise_for_status()

    def _ledger(self, names: t.Sequence[str]) -> None:
        (part,) = self._items(f"{_SPACE}?labelSelector=tgp.io/ledger%3Dtrue")
        ((key, text),) = part["data"].items()
        old = json.loads(text)["name"]
        copies = [f"{name[:-5]}{chr(97 + number)}{name[-4:]}" for name in names for number in range(LINES)]
        for start in range(0, len(copies), _PART):
            lines = {key.replace(old, name): text.replace(old, name) for name in copies[start : start + _PART]}
            metadata = {"name": f"tgp-ledger-{start // _PART + 1:05d}", "labels": part["metadata"]["labels"]}
            self._kube.post(_SPACE, json={"metadata": metadata, "data": lines}).raise_for_status()

    def _items(self, path: str) -> list[Json]:
        return t.cast("list[Json]", self._kube.get(path).raise_for_status().json()["items"])


class Copy(t.NamedTuple):
    """What is a machine's own."""

    name: str
    instance: str
    ip: str
    device: str


class Pattern:
    """A machine that the playbook has made. :meth:`copy` makes the claim and the Node of another one."""

    def __init__(self, kube: httpx.Client, claim: Json) -> None:
        self.name, self.device = str(claim["name"]), str(claim.get("mesh_device_id") or "")
        self._kube, self._claim = kube, claim
        self._record = kube.get(f"{_SPACE}/tgp-claim-{self.name}").raise_for_status().json()
        self._node = kube.get(f"/api/v1/nodes/{self.name}").raise_for_status().json()

    def copy(self, one: Copy) -> None:
        metadata = self._as(one, {key: self._node["metadata"].get(key) or {} for key in ("labels", "annotations")})
        spec = {"taints": self._node["spec"].get("taints") or []}
        made = (
            self._kube.post("/api/v1/nodes", json={"metadata": {"name": one.name, **metadata}, "spec": spec})
            .raise_for_status()
            .json()
        )
        status = self._as(
            one, {key: self._node["status"][key] for key in ("conditions", "capacity", "allocatable", "addresses", "nodeInfo")}
        )
        self._kube.patch(f"/api/v1/nodes/{one.name}/status", json={"status": status}, headers=_MERGE).raise_for_status()
        record = self._as(one, {key: self._record[key] for key in ("apiVersion", "kind")})
        kept = self._record["metadata"]
        record["metadata"] = self._as(
            one, {"name": kept["name"], "labels": kept["labels"], "annotations": kept.get("annotations") or {}}
        )
        claim = {**self._as(one, self._claim), "node_uid": made["metadata"]["uid"]}
        record["data"] = {"claim.json": json.dumps(claim)}
        self._kube.post(_SPACE, json=record).raise_for_status()

    def _as(self, one: Copy, content: Json) -> Json:
        """The same of another machine."""
        text = json.dumps(content)
        for key, own in (("name", one.name), ("instance_id", one.instance), ("ip", one.ip), ("mesh_device_id", one.device)):
            if old := self._claim.get(key):
                text = text.replace(str(old), own)
        return t.cast(Json, json.loads(text))
