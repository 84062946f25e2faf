# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RunPod's clusters: several pods of one shape in one data centre, made and ended together."""

from __future__ import annotations

import collections
import typing as t

import flask

from . import runpod_bodies as bodies
from .runpod_account import Account, Problem, new_id
from .runpod_create import create_many
from .runpod_forms import moment, pod, status
from .runpod_pages import page
from .runpod_pods import by_age, end
from .runpod_stock import pods
from .world import Machine, World

_ROLES = {"SLURM": ("SLURM_CONTROLLER", "SLURM_COMPUTE"), "RAY": ("RAY_HEAD", "RAY_WORKER")}
_NETWORK, _VXLAN_PORT = "10.65.0.0/16", 4789


def routes(service: flask.Flask, world: World, account: Account) -> None:
    def find(identity: str) -> dict[str, t.Any]:
        if identity not in account.clusters:
            raise Problem(404, "cluster not found")
        return account.clusters[identity]

    def form(cluster: dict[str, t.Any]) -> dict[str, t.Any]:
        return _form(world, account, cluster)

    @service.get("/v2/clusters")
    def clusters() -> t.Any:
        with world.lock:
            shown, pagination = page(account, list(account.clusters), str)
            return flask.jsonify({"clusters": [form(find(identity)) for identity in shown], **pagination})

    @service.post("/v2/clusters")
    def new_cluster() -> t.Any:
        request = bodies.body(bodies.CREATE_CLUSTER, account.unknown_fields())
        with world.lock:
            return flask.jsonify(form(_make(world, account, request))), 201

    @service.get("/v2/clusters/<identity>")
    def one_cluster(identity: str) -> t.Any:
        with world.lock:
            return flask.jsonify(form(find(identity)))

    @service.get("/v2/clusters/<identity>/pods")
    def cluster_pods(identity: str) -> t.Any:
        with world.lock:
            find(identity)
            shown, pagination = page(account, _members(world, identity), by_age)
            return flask.jsonify({"pods": [pod(world, account, one) for one in shown], **pagination})

    @service.patch("/v2/clusters/<identity>")
    def rename_cluster(identity: str) -> t.Any:
        request = bodies.body(bodies.CHANGE_CLUSTER)
        with world.lock:
            find(identity).update(request)
            return flask.jsonify(form(find(identity)))

    @service.delete("/v2/clusters/<identity>")
    def drop_cluster(identity: str) -> t.Any:
        with world.lock:
            find(identity)
            members = _members(world, identity)
            del account.clusters[identity]
        for machine in members:
            end(world, machine)
        return "", 204


def _make(world: World, account: Account, request: dict[str, t.Any]) -> dict[str, t.Any]:
    """All pods or none. The caller holds the world's lock."""
    compute, kind, identity = request["compute"], request["type"], new_id(world)
    order = {key: value for key, value in request.items() if key not in ("compute", "type")}
    order["gpu"] = {"id": compute["gpuTypeId"], "count": compute["gpuCountPerPod"]}
    first, others = _ROLES.get(kind, ("", ""))
    places = []
    for rank in range(compute["podCount"]):
        role = others if rank else first
        high, low = divmod(rank + 2, 256)
        places.append({"id": identity, "rank": rank, **({"role": role} if role else {}), "ip": f"10.65.{high}.{low}"})
    made = create_many(world, account, order, places)
    facts = {"id": identity, "name": request["name"], "type": kind, "compute": compute, "createdAt": moment(made[0].created)}
    account.clusters[identity] = facts
    return facts


def _members(world: World, identity: str) -> list[Machine]:
    found = [one for one in pods(world) if (one.details["cluster"] or {}).get("id") == identity]
    return sorted(found, key=lambda one: one.details["cluster"]["rank"])


def _form(world: World, account: Account, cluster: dict[str, t.Any]) -> dict[str, t.Any]:
    members = _members(world, cluster["id"])
    words = collections.Counter(status(account, one) for one in members)
    number = list(account.clusters).index(cluster["id"]) + 1
    form = {
        **cluster,
        "pods": {"total": len(members), "byStatus": dict(words)},
        "network": {"cidr": _NETWORK, "vxlanId": number, "vxlanPort": _VXLAN_PORT},
    }
    if members:
        form["dataCenterId"] = members[0].details["data_center"]
        form["primary"] = _primary(world, account, members[0])
    return form


def _primary(world: World, account: Account, machine: Machine) -> dict[str, t.Any]:
    """The first pod, and where its SSH is reached once it is."""
    shown = pod(world, account, machine)
    direct = shown["ssh"]["direct"]
    endpoint = {"sshEndpoint": f"{direct['host']}:{direct['port']}"} if direct else {}
    return {"podId": machine.id, "status": shown["status"], **endpoint}
