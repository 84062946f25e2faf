# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RunPod's older interface, GraphQL, which is to be retired early in 2027: what REST v2 does not tell, and what older clients read.

Balance, spend and spend limit of the account; GPU types with their lowest prices; data centres; pods. Nothing can be changed by it here.
"""

from __future__ import annotations

import typing as t

import flask

from .graphql import Fault, Record, answer
from .runpod_account import Account, Problem, check_key
from .runpod_catalog import level
from .runpod_forms import pod as rest_pod
from .runpod_stock import cuda_fits, fitting, free, pods, shelves, version
from .runpod_types import COMMUNITY, DATA_CENTERS, GPUS, SECURE
from .world import Machine, Offer, World

_STATES = {"PROVISIONING": "RUNNING", "STARTING": "RUNNING", "ERROR": "DEAD"}
Arguments = dict[str, t.Any]


def routes(service: flask.Flask, world: World, account: Account) -> None:
    @service.post("/graphql")
    def graphql() -> t.Any:
        """Faults of a query come with status 200."""
        if not account.graphql:
            raise Problem(410, "this API is retired; use the REST API v2")
        known = _knows(world)
        body = flask.request.get_json(force=True, silent=True)
        try:
            if not isinstance(body, dict) or not isinstance(body.get("query"), str):
                raise Fault("POST body missing, invalid Content-Type, or JSON object has no keys.", "BAD_REQUEST")
            variables = body.get("variables") or {}
            if not isinstance(variables, dict):
                raise Fault("`variables` in a POST body must be an object.", "BAD_REQUEST")
            with world.lock:
                return flask.jsonify({"data": answer(body["query"], variables, _root(world, account, known))})
        except Fault as fault:
            return flask.jsonify({"errors": [{"message": str(fault), "extensions": {"code": fault.code}}]})


def _knows(world: World) -> bool:
    """Whether the caller has a key, in the header or (as older clients have it) in the query; 401 for one that nobody knows."""
    header, key = flask.request.headers.get("Authorization", ""), flask.request.args.get("api_key", "")
    if not header and not key:
        return False
    check_key(world, header or f"Bearer {key}", "GET")
    return True


def _root(world: World, account: Account, known: bool) -> Record:
    """Types and places are for everybody, the rest for those with a key."""

    def gpu_types(arguments: Arguments) -> list[Record]:
        wanted = (arguments.get("input") or {}).get("id")
        return [_gpu(world, kind) for kind in GPUS if wanted in (None, kind)]

    def pod(arguments: Arguments) -> Record | None:
        wanted = (arguments.get("input") or {}).get("podId")
        found = [one for one in pods(world) if one.id == wanted] if known else []
        return _pod(world, account, found[0]) if found else None

    fields = {
        "myself": _myself(world, account) if known else None,
        "gpuTypes": gpu_types,
        "dataCenters": [Record("DataCenter", {"id": place, "name": facts.name}) for place, facts in DATA_CENTERS.items()],
        "countryCodes": sorted({facts.country for facts in DATA_CENTERS.values()}),
        "pod": pod,
    }
    return Record("Query", fields)


def _myself(world: World, account: Account) -> Record:
    """``clientBalance`` is null where a balance has no end."""
    left = account.left(world)
    fields = {
        "id": "user_sandbox",
        "email": "owner@example.com",
        "clientBalance": None if left is None else float(left),
        "currentSpendPerHr": float(sum(one.rate() for one in pods(world))),
        "spendLimit": float(account.spend_limit),
        "pods": [_pod(world, account, one) for one in pods(world)],
    }
    return Record("User", fields)


def _pod(world: World, account: Account, machine: Machine) -> Record:
    shown = rest_pod(world, account, machine)
    runtime = None
    if shown["runtime"] is not None:
        ports = [
            {
                "ip": port["ip"],
                "isIpPublic": port["type"] == "tcp" and port["ip"] is not None,
                "privatePort": port["private"],
                "publicPort": port["public"],
                "type": port["type"],
            }
            for port in shown["runtime"]["ports"]
        ]
        runtime = Record(
            "PodRuntime",
            {"uptimeInSeconds": shown["runtime"]["uptime"], "ports": [Record("PodRuntimePorts", one) for one in ports]},
        )
    fields = {
        "id": machine.id,
        "name": machine.name,
        "desiredStatus": _STATES.get(shown["status"], shown["status"]),
        "costPerHr": float(machine.offer.price_hour),
        "machineId": machine.details["host"],
        "runtime": runtime,
    }
    return Record("Pod", fields)


# ---- GPU types


def _gpu(world: World, kind: str) -> Record:
    gpu = GPUS[kind]
    prices = {tier: _price(world, kind, tier) for tier in (SECURE, COMMUNITY)}
    most = [*gpu.most.values(), *(shelf.details["most"] for shelf in shelves(world, kind))]
    fields = {
        "id": kind,
        "displayName": gpu.name,
        "manufacturer": gpu.manufacturer,
        "memoryInGb": gpu.memory,
        "secureCloud": bool(prices[SECURE]),
        "communityCloud": bool(prices[COMMUNITY]),
        "securePrice": prices[SECURE],
        "communityPrice": prices[COMMUNITY],
        "secureSpotPrice": None,  # spot pods are not sold any more
        "communitySpotPrice": None,
        "maxGpuCount": max(most),
        "lowestPrice": lambda arguments: _lowest(world, kind, arguments.get("input") or {}),
    }
    return Record("GpuType", fields)


def _price(world: World, kind: str, tier: str) -> float:
    """Dollars per hour of one GPU."""
    shown = [shelf.details["shown_price"] for shelf in shelves(world, kind, tier)]
    return float(shown[0] if shown else GPUS[kind].price[tier])


def _lowest(world: World, kind: str, wanted: Arguments) -> Record:
    """The cheapest way to a pod of so many GPUs, per GPU; all is null where nothing is free."""
    count = wanted.get("gpuCount") or 1
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise Fault('Variable "input.gpuCount" should be a number above zero.', "BAD_USER_INPUT")
    secure, least = wanted.get("secureCloud"), wanted.get("minCudaVersion")
    tiers = [SECURE, COMMUNITY] if secure is None else [SECURE if secure else COMMUNITY]

    def fit(number: int) -> list[Offer]:
        return [
            shelf
            for tier in tiers
            for shelf in fitting(world, kind, tier, number, lambda host: cuda_fits(host, least=str(least or "")))
            if wanted.get("dataCenterId") in (None, shelf.region)
            and wanted.get("countryCode") in (None, DATA_CENTERS[shelf.region].country)
        ]

    def word(offers: t.Sequence[Offer]) -> str | None:
        return level(sum(free(world, shelf) // count for shelf in offers)).capitalize() if offers else None

    found = fit(count)
    hosts = sorted({shelf.details["cuda"] for shelf in found} - {""}, key=version)
    versions = [
        {"cudaVersion": host, "availability": word([shelf for shelf in found if shelf.details["cuda"] == host])} for host in hosts
    ]
    fields = {
        "minimumBidPrice": None,
        "uninterruptablePrice": min((float(shelf.details["shown_price"]) for shelf in found), default=None),
        "minVcpu": min((shelf.details["vcpus_per_gpu"] * count for shelf in found), default=None),
        "minMemory": min((shelf.details["ram_per_gpu"] * count for shelf in found), default=None),
        "stockStatus": word(found),
        "availableGpuCounts": [number for number in range(1, max(GPUS[kind].most.values(), default=0) + 1) if fit(number)],
        "gpuTypeCudaVersions": [Record("GpuTypeCudaVersion", one) for one in versions],
    }
    return Record("LowestPrice", fields)
