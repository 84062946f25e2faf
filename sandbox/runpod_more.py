# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rest of RunPod's API v2: keys, registries, volumes, bills, and its own description."""

from __future__ import annotations

import dataclasses
import re
import typing as t
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import flask

from . import runpod_bodies as bodies
from .runpod_account import Account, Problem, invalid, new_id, volume_month
from .runpod_forms import moment, read_moment
from .runpod_pages import page
from .runpod_stock import CLOUD, pods
from .runpod_types import DATA_CENTERS
from .world import Machine, World, cost_until

_BUCKETS = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
    "month": timedelta(days=30),
    "year": timedelta(days=365),
}
_MOST_BUCKETS = 1000
_SETTLED = timedelta(minutes=5)  # what a pod costs is billed so late
BODIES = {
    ("post", "/v2/pods"): bodies.CREATE_POD,
    ("patch", "/v2/pods/{podId}"): bodies.CHANGE_POD,
    ("post", "/v2/pods/{podId}/action"): bodies.ACT,
    ("put", "/v2/account/ssh-keys"): bodies.SSH_KEYS,
    ("post", "/v2/templates"): bodies.CREATE_TEMPLATE,
    ("patch", "/v2/templates/{templateId}"): bodies.CHANGE_TEMPLATE,
    ("post", "/v2/clusters"): bodies.CREATE_CLUSTER,
    ("patch", "/v2/clusters/{clusterId}"): bodies.CHANGE_CLUSTER,
    ("post", "/v2/registries"): bodies.CREATE_REGISTRY,
    ("post", "/v2/network-volumes"): bodies.CREATE_VOLUME,
    ("patch", "/v2/network-volumes/{volumeId}"): bodies.CHANGE_VOLUME,
}


def routes(service: flask.Flask, world: World, account: Account) -> None:
    _account_routes(service, world, account)
    _volume_routes(service, world, account)

    @service.get("/v2/billing/pods")
    def pod_billing() -> t.Any:
        with world.lock:
            return flask.jsonify(_billing(world, "podId", ("gpuAmount", "cpuAmount", "diskAmount")))

    @service.get("/v2/billing/clusters")
    def cluster_billing() -> t.Any:
        with world.lock:
            return flask.jsonify(_billing(world, "clusterId", ("gpuAmount", "diskAmount", "networkingAmount")))

    @service.get("/v2/openapi.json")
    def openapi() -> t.Any:
        return flask.jsonify(_description(service))


def _account_routes(service: flask.Flask, world: World, account: Account) -> None:
    @service.get("/v2/account/ssh-keys")
    def keys() -> t.Any:
        return flask.jsonify({"keys": account.ssh_keys})

    @service.put("/v2/account/ssh-keys")
    def replace_keys() -> t.Any:
        account.ssh_keys = bodies.body(bodies.SSH_KEYS)["keys"]
        return keys()

    def registry(identity: str) -> dict[str, t.Any]:
        if identity not in account.registries:
            raise Problem(404, "registry not found")
        return {key: value for key, value in account.registries[identity].items() if key in ("id", "name")}

    @service.get("/v2/registries")
    def registries() -> t.Any:
        shown, pagination = page(account, list(account.registries), str)
        return flask.jsonify({"registries": [registry(identity) for identity in shown], **pagination})

    @service.post("/v2/registries")
    def new_registry() -> t.Any:
        request = bodies.body(bodies.CREATE_REGISTRY)
        if any(one["name"] == request["name"] for one in account.registries.values()):
            raise Problem(409, "a registry of this name exists")
        identity = new_id(world)
        account.registries[identity] = {"id": identity, **request}
        return flask.jsonify(registry(identity)), 201

    @service.get("/v2/registries/<identity>")
    def one_registry(identity: str) -> t.Any:
        return flask.jsonify(registry(identity))

    @service.delete("/v2/registries/<identity>")
    def drop_registry(identity: str) -> t.Any:
        registry(identity)
        del account.registries[identity]
        return "", 204


def volume_of(request: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The body of a create call as a volume without its id. Problem for what RunPod refuses."""
    missing = [name for name in ("name", "size", "dataCenter") if name not in request]
    if missing:
        raise invalid(f"$: missing property '{missing[0]}'")
    kind, place = request.get("type", "STANDARD"), request["dataCenter"]
    if place not in DATA_CENTERS or kind not in DATA_CENTERS[place].volumes:
        raise Problem(400, f"data center {place} has no {kind} network volumes")
    return {**request, "type": kind}


def _volume_routes(service: flask.Flask, world: World, account: Account) -> None:
    def volume(identity: str) -> dict[str, t.Any]:
        if identity not in account.volumes:
            raise Problem(404, "network volume not found")
        return account.volumes[identity]

    @service.get("/v2/network-volumes")
    def volumes() -> t.Any:
        shown, pagination = page(account, list(account.volumes), str)
        return flask.jsonify({"networkVolumes": [account.volumes[identity] for identity in shown], **pagination})

    @service.post("/v2/network-volumes")
    def new_volume() -> t.Any:
        return flask.jsonify(account.add_volume(world, volume_of(bodies.body(bodies.CREATE_VOLUME)))), 201

    @service.get("/v2/network-volumes/<identity>")
    def one_volume(identity: str) -> t.Any:
        return flask.jsonify(volume(identity))

    @service.patch("/v2/network-volumes/<identity>")
    def change_volume(identity: str) -> t.Any:
        request, found = bodies.body(bodies.CHANGE_VOLUME), volume(identity)
        if request.get("size", found["size"]) < found["size"]:
            raise Problem(400, "a network volume cannot shrink")
        found.update(request)
        account.storage.charge(identity, volume_month(found), world.clock.now())
        return flask.jsonify(found)

    @service.delete("/v2/network-volumes/<identity>")
    def drop_volume(identity: str) -> t.Any:
        volume(identity)
        with world.lock:
            used = [mount for one in pods(world) for mount in one.details["mount_form"].get("network", [])]
        if any(mount["volumeId"] == identity for mount in used):
            raise Problem(409, "the network volume is mounted by a pod")
        del account.volumes[identity]
        account.storage.drop(identity, world.clock.now())
        return "", 204


# ---- bills


def disk_until(machine: Machine, when: datetime) -> Decimal:
    """The same of its disks: of a running pod what its price per hour is above that of its GPUs, of a stopped pod everything."""
    price = machine.offer.price_hour
    spans = dataclasses.replace(machine, ended=min(machine.ended or when, when)).bill(when) if when > machine.created else []
    hours = [(Decimal(span.total_seconds()) / 3600, dollars) for span, dollars in spans]
    return sum((length * (dollars - price if dollars >= price else dollars) for length, dollars in hours), Decimal(0))


def _billing(world: World, key: str, kinds: t.Sequence[str]) -> dict[str, t.Any]:
    """One record per pod, or per cluster, and bucket in which it cost something; a cluster's pods are in its record alone."""
    query, now = flask.request.args, world.clock.now()
    size, last = query.get("bucketSize", "day"), query.get("lastN", "")
    if size not in _BUCKETS:
        raise invalid(f"query.bucketSize: should be one of {', '.join(_BUCKETS)}")
    if last and not last.isdecimal():
        raise invalid("query.lastN: should be a number")
    if ("startTime" in query) != ("endTime" in query):
        raise Problem(400, "startTime and endTime must be provided together")
    span, owners = _BUCKETS[size], _owners(world, key, query.get(key))
    first = min([one.created for machines in owners.values() for one in machines], default=now)
    end = _moment("endTime", now)
    start = end - span * int(last) if last else _moment("startTime", first)
    begin = datetime.fromtimestamp(start.timestamp() // span.total_seconds() * span.total_seconds(), timezone.utc)
    records: list[dict[str, t.Any]] = []
    for number in range(_MOST_BUCKETS):
        low, high = max(start, begin + span * number), min(end, begin + span * (number + 1))
        if low >= end:
            break
        bounds = {"startTime": moment(begin + span * number), "endTime": moment(begin + span * (number + 1))}
        for owner, machines in owners.items():
            amounts = _amounts(machines, low, min(high, now - _SETTLED))
            if amounts["totalAmount"]:
                records.append({key: owner, **bounds, **{name: float(amounts[name]) for name in ("totalAmount", *kinds)}})
    totals = {name: sum(record[name] for record in records) for name in ("totalAmount", *kinds)}
    asked = {"startTime": moment(start), "endTime": moment(end), "bucketSize": size, key: query.get(key)}
    unique = f"unique{key[0].upper()}{key[1:].removesuffix('Id')}Count"
    return {
        "records": records,
        "metadata": {"query": asked, "recordCount": len(records), unique: len({one[key] for one in records}), "totals": totals},
    }


def _owners(world: World, key: str, wanted: str | None) -> dict[str, list[Machine]]:
    """Whose bill is asked for: the id of a pod, or of a cluster, to the machines that cost something."""
    found: dict[str, list[Machine]] = {}
    for machine in world.machines.values():
        if machine.cloud != CLOUD:
            continue
        cluster = machine.details["cluster"]
        owner = machine.id if key == "podId" and not cluster else cluster["id"] if key == "clusterId" and cluster else None
        if owner is not None and wanted in (None, owner):
            found.setdefault(owner, []).append(machine)
    return found


def _amounts(machines: t.Sequence[Machine], low: datetime, high: datetime) -> dict[str, Decimal]:
    """Dollars by what they were for; the network between the pods of a cluster costs nothing here."""
    amounts = dict.fromkeys(("totalAmount", "gpuAmount", "cpuAmount", "diskAmount", "networkingAmount"), Decimal(0))
    for machine in machines:
        amount = cost_until(machine, high) - cost_until(machine, low)
        disk = disk_until(machine, high) - disk_until(machine, low)
        amounts["totalAmount"] += amount
        amounts["diskAmount"] += disk
        amounts["gpuAmount" if machine.offer.gpu_count else "cpuAmount"] += amount - disk
    return amounts


def _moment(name: str, default: datetime) -> datetime:
    text = flask.request.args.get(name)
    return default if text is None else read_moment(f"query.{name}", text)


# ---- the description


def _description(service: flask.Flask) -> dict[str, t.Any]:
    """An OpenAPI document of what is served here."""
    paths: dict[str, t.Any] = {}
    for rule in service.url_map.iter_rules():
        if not rule.rule.startswith("/v2/"):
            continue
        names = {
            "pods": "podId",
            "network-volumes": "volumeId",
            "registries": "registryId",
            "templates": "templateId",
            "clusters": "clusterId",
            "gpus": "id",
        }
        resource = next((part for part in rule.rule.split("/")[2:] if part in names), "")
        path = re.sub(r"<[^>]+>", f"{{{names.get(resource, 'id')}}}", rule.rule)
        for method in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"}):
            operation: dict[str, t.Any] = {
                "operationId": rule.endpoint,
                "responses": {"default": {"description": "see the vendor's pages"}},
            }
            if schema := BODIES.get((method.lower(), path)):
                operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
            paths.setdefault(path.removeprefix("/v2"), {})[method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "Runpod API (sandbox)", "version": "2.0.0"},
        "servers": [{"url": "/v2"}],
        "paths": paths,
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
        "security": [{"bearer": []}],
    }
