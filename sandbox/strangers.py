# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who else uses the same accounts: people who rent by hand, and a second cluster with the same id.

A machine of somebody else is rented through the provider's own API, under any name and with any marks, and may be made a Node by hand. A
second cluster is another API server whose namespace kube-system has the same UID: an empty one (a copied ``cluster_id``), or one restored
from a backup of etcd, with every object as it was then, and Nodes from which no kubelet is heard any more.
"""

from __future__ import annotations

import re
import typing as t

import httpx

from . import kubelet
from .gcp_account import PROJECT
from .gcp_account import Account as GcpAccount
from .kube import KubeApi
from .kube.crd import serve
from .kube.store import clone
from .kubelets import Kubelets
from .payload import Intent
from .world import Machine, World
from .wsgi import MACHINE_AGENT, App

_DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")
_LEASES = ("coordination.k8s.io", "leases")
_RUNPOD_MARKS = ("cluster", "generation", "pool", "nonce", "created")


class Place(t.Protocol):
    """Where somebody rents: a world and the emulators of its clouds (box.py)."""

    world: World

    @property
    def apps(self) -> t.Mapping[str, App]:
        """The emulators by cloud."""
        ...


class Cluster(Place, t.Protocol):
    """A place with a Kubernetes cluster."""

    cluster: t.Any  # cluster.py
    kubelets: Kubelets | None


class NotRented(RuntimeError):
    """The provider refused it."""


def rent(box: Place, cloud: str, name: str, marks: t.Mapping[str, str] | None = None) -> Machine:
    """Somebody rents a machine called ``name`` by hand. ``marks``: a stamp in the form in which the collection writes it, whole or wrong;
    None or empty: none. It takes the first offer that is in stock."""
    offers = [one for one in box.world.offers if one.cloud == cloud and one.stock > 0]
    if cloud not in _RENTERS or not offers:
        raise NotRented(f"{cloud} has nothing in stock.")
    identity = _RENTERS[cloud](_client(box, cloud), offers[0], name, dict(marks or {}), box)
    return box.world.machines[identity]


def _client(box: Place, cloud: str) -> httpx.Client:
    key = GcpAccount.of(box.world).token_of_a_person(box.world) if cloud == "gcp" else box.world.secrets[f"{cloud.upper()}_API_KEY"]
    headers = {"authorization": f"Bearer {key}", "user-agent": f"{MACHINE_AGENT}/1"}
    return httpx.Client(transport=httpx.WSGITransport(app=box.apps[cloud]), base_url=f"http://{cloud}.test", headers=headers)


def _answer(answer: httpx.Response) -> t.Any:
    if answer.status_code >= 300:
        raise NotRented(f"{answer.request.method} {answer.request.url.path}: {answer.status_code} {answer.text}")
    return answer.json()


def _lambda(client: httpx.Client, offer: t.Any, name: str, marks: dict[str, str], box: Place) -> str:
    keys = _answer(client.get("/api/v1/ssh-keys"))["data"]
    body = {"region_name": offer.region, "instance_type_name": offer.type, "ssh_key_names": [keys[0]["name"]], "name": name}
    tags = [{"key": f"tgp:{key}", "value": value} for key, value in sorted(marks.items())]
    body |= {"tags": tags} if tags else {}
    return str(_answer(client.post("/api/v1/instance-operations/launch", json=body))["data"]["instance_ids"][0])


def _vast(client: httpx.Client, offer: t.Any, name: str, marks: dict[str, str], box: Place) -> str:
    env = {f"TGP_{key.upper()}": value for key, value in marks.items()}
    env |= {"TGP_MARKS": " ".join(marks)} if marks else {}
    body = {"client_id": "me", "image": "ubuntu:24.04", "runtype": "ssh_direct", "disk": 10, "label": name, "env": env}
    return str(_answer(client.put(f"/api/v0/asks/{offer.type}/", json=body))["new_contract"])


def _runpod(client: httpx.Client, offer: t.Any, name: str, marks: dict[str, str], box: Place) -> str:
    env = {f"TGP_{key.upper()}" if key in _RUNPOD_MARKS else f"TGP_TAG_{key.upper()}": value for key, value in marks.items()}
    env |= {"TGP_NODE": name} if marks else {}
    body = {"name": name, "image": "ubuntu:24.04", "gpu": {"id": offer.type, "count": 1}, "env": env}
    return str(_answer(client.post("/v2/pods", json=body))["id"])


def _paperspace(client: httpx.Client, offer: t.Any, name: str, marks: dict[str, str], box: Place) -> str:
    if marks:
        raise NotRented("A Paperspace machine carries no marks.")
    templates = _answer(client.get("/v1/os-templates"))["items"]
    fitting = next(one for one in templates if one["agentType"] == "LinuxHeadless")
    body = {"name": name, "machineType": offer.type, "templateId": fitting["id"], "region": offer.region, "diskSize": 50}
    return str(_answer(client.post("/v1/machines", json=body))["data"]["id"])


def _vultr(client: httpx.Client, offer: t.Any, name: str, marks: dict[str, str], box: Place) -> str:
    client.headers["content-type"] = "application/json"
    tags = [f"tgp:{key}={value}" for key, value in sorted(marks.items())]
    body = {"region": offer.region, "plan": offer.type, "os_id": 2284, "label": name, "tags": tags}
    return str(_answer(client.post("/v2/instances", json=body))["instance"]["id"])


def _gcp(client: httpx.Client, offer: t.Any, name: str, marks: dict[str, str], box: Place) -> str:
    kind, _plus, attached = offer.type.partition("+")
    accelerators = [{"acceleratorType": f"zones/{offer.region}/acceleratorTypes/{attached}", "acceleratorCount": 1}]
    image = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
    body = {
        "name": name,
        "machineType": f"zones/{offer.region}/machineTypes/{kind}",
        "labels": {
            f"tgp-{key}": re.sub("[^a-z0-9-]", lambda found: f"_{ord(found[0]):02x}", value) for key, value in marks.items()
        },
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": {"sourceImage": image, "diskSizeGb": "20"}}],
        "scheduling": {"onHostMaintenance": "TERMINATE"},
        "networkInterfaces": [
            {"network": "global/networks/default", "accessConfigs": [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}]}
        ],
        **({"guestAccelerators": accelerators} if attached else {}),
    }
    _answer(client.post(f"/compute/v1/projects/{PROJECT}/zones/{offer.region}/instances", json=body))
    return f"{offer.region}/{name}"


_RENTERS: dict[str, t.Callable[[httpx.Client, t.Any, str, dict[str, str], Place], str]] = {
    "gcp": _gcp,
    "lambda": _lambda,
    "vast": _vast,
    "runpod": _runpod,
    "paperspace": _paperspace,
    "vultr": _vultr,
}


def join(box: Cluster, machine: Machine, node: str, labels: t.Mapping[str, str] | None = None) -> None:
    """Its owner makes the machine a Node of the cluster by other means than the collection, under a name of their own, with all its GPUs."""
    cluster, kubelets = box.cluster, box.kubelets
    if cluster is None or kubelets is None:
        raise RuntimeError("There is no Kubernetes in this world.")
    intent = Intent("kubelet", node, "", "", "", "v1.36.3", labels=dict(labels or {}), labels_at_registration=True)
    # the kubelet of a machine behind the NAT of Google sees its private address alone
    address = (machine.private_ip if machine.cloud == "gcp" else machine.ip) or "203.0.113.77"
    admin = cluster.admin()
    uid = kubelet.register(admin, intent, address, machine.id, box.world.clock.now())
    with box.world.lock:
        machine.details["node"] = node
    kubelets.adopt(node, uid, address)
    kubelet.ready(admin, node, box.world.clock.now())
    kubelets.equip(node, machine.offer.gpu_count, machine.offer.model, machine.offer.memory_mib)
    kubelet.offer_gpus(admin, node, machine.offer.gpu_count)


# ---- a second cluster with the same id


def twin(first: KubeApi, *, seed: int = 0) -> KubeApi:
    """An empty cluster whose namespace kube-system has the UID of ``first``'s. Start and stop it like any other."""
    uid = first.objects.get(first.registry.of("namespaces"), None, "kube-system").obj["metadata"]["uid"]
    return KubeApi(first.clock, seed=seed, node_grace=None, cluster_uid=uid)


def restored(first: KubeApi, *, seed: int = 0) -> KubeApi:
    """A cluster made from a backup of ``first``'s etcd: all its objects, no lock, and every Node Unknown, for its kubelet does not speak
    to this API server."""
    copy = twin(first, seed=seed)
    with first.store.lock, copy.store.lock:
        for key in first.store.kinds():
            for item in first.store.table(key).select() if key != _LEASES else ():
                copy.store.put(copy.store.table(key), item.key, clone(item.obj))
        for item in copy.store.table(_DEFINITIONS).select():
            serve(copy.registry, item.obj["spec"])
    silence(copy)
    return copy


def silence(api: KubeApi) -> None:
    """No kubelet of any Node is heard any more; the node lifecycle controller has noticed it now."""
    moment = api.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    words = {"status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    table = api.store.table(("", "nodes"))
    for item in table.select():
        node = clone(item.obj)
        for condition in node.get("status", {}).get("conditions", ()):
            if condition["type"] == "Ready":
                condition.update(words, lastTransitionTime=moment)
        api.store.put(table, item.key, node)
