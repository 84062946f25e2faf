# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RunPod's older interface, GraphQL, which is to be retired early in 2027: what REST v2 does not tell, and what older clients read.

Balance, spend and spend limit of the account; GPU types with their lowest prices; data centres; pods, which it can rent with a time limit
(``stopAfter``, ``terminateAfter``), stop, resume and terminate.
"""

from __future__ import annotations

import re
import typing as t

import flask

from .graphql import Fault, Reader, Record, check, select
from .runpod_account import Account, Problem, check_key
from .runpod_catalog import level
from .runpod_graphql_pods import MUTATIONS, changes, input_of, pod_record
from .runpod_stock import cuda_fits, fitting, free, pods, shelves, version
from .runpod_types import COMMUNITY, DATA_CENTERS, GPUS, SECURE
from .world import Offer, World

Arguments = dict[str, t.Any]


def routes(service: flask.Flask, world: World, account: Account) -> None:
    @service.post("/graphql")
    def graphql() -> t.Any:
        """Faults of a query come with status 200."""
        if not account.graphql:
            raise Problem(410, "this API is retired; use the REST API v2")
        known = _knows(world, "GET")
        body = flask.request.get_json(force=True, silent=True)
        try:
            if not isinstance(body, dict) or not isinstance(body.get("query"), str):
                raise Fault("POST body missing, invalid Content-Type, or JSON object has no keys.", "BAD_REQUEST")
            variables = body.get("variables") or {}
            if not isinstance(variables, dict):
                raise Fault("`variables` in a POST body must be an object.", "BAD_REQUEST")
            kind, fields = Reader(body["query"], variables).operation()
            if kind == "mutation":
                _knows(world, "POST")
                check(MUTATIONS, fields)
                return flask.jsonify({"data": select(changes(world, account, known), fields)})
            if kind != "query":
                raise Fault(f"Schema is not configured for {kind}s.")
            with world.lock:
                return flask.jsonify({"data": select(_root(world, account, known), fields)})
        except Fault as fault:
            return flask.jsonify({"errors": [{"message": str(fault), "extensions": {"code": fault.code}}]})
        except Problem as problem:
            if problem.status in (401, 403):
                raise
            told = "; ".join([str(problem), *problem.body.get("errors", [])])
            return flask.jsonify(
                {"errors": [{"message": told, "extensions": {"code": problem.body["title"].upper().replace(" ", "_")}}]}
            )


def _knows(world: World, method: str) -> bool:
    """Whether the caller has a key, in the header or (as older clients have it) in the query; 401 for one that nobody knows, 403 for one that
    may not do what a ``method`` of REST v2 does."""
    header, key = flask.request.headers.get("Authorization", ""), flask.request.args.get("api_key", "")
    if not header and not key:
        return False
    check_key(world, header or f"Bearer {key}", method)
    return True


def _root(world: World, account: Account, known: bool) -> Record:
    """The caller holds the world's lock. Types and places are for everybody, the rest for those with a key."""

    def gpu_types(arguments: Arguments) -> list[Record]:
        wanted = input_of(arguments).get("id")
        return [_gpu(world, kind) for kind in GPUS if wanted in (None, kind)]

    def pod(arguments: Arguments) -> Record | None:
        wanted = input_of(arguments).get("podId")
        found = [one for one in pods(world) if one.id == wanted] if known else []
        return pod_record(world, account, found[0]) if found else None

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
        "pods": [pod_record(world, account, one) for one in pods(world)],
    }
    return Record("User", fields)


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
        "lowestPrice": lambda arguments: _lowest(world, kind, max(most), input_of(arguments)),
    }
    return Record("GpuType", fields)


def _price(world: World, kind: str, tier: str) -> float:
    """Dollars per hour of one GPU."""
    shown = [shelf.details["shown_price"] for shelf in shelves(world, kind, tier)]
    return float(shown[0] if shown else GPUS[kind].price[tier])


def _lowest(world: World, kind: str, most: int, wanted: Arguments) -> Record:
    """The cheapest way to a pod of so many GPUs, per GPU; all is null where nothing is free."""
    count = wanted.get("gpuCount") or 1
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise Fault('Variable "input.gpuCount" should be a number above zero.', "BAD_USER_INPUT")
    secure, least = wanted.get("secureCloud"), str(wanted.get("minCudaVersion") or "")
    if not re.fullmatch(r"(\d+(\.\d+)?)?", least):
        raise Fault('Variable "input.minCudaVersion" should be a version like 12.8.', "BAD_USER_INPUT")
    tiers = [SECURE, COMMUNITY] if secure is None else [SECURE if secure else COMMUNITY]

    def fit(number: int) -> list[Offer]:
        return [
            shelf
            for tier in tiers
            for shelf in fitting(world, kind, tier, number, lambda host: cuda_fits(host, least=least))
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
        "availableGpuCounts": [number for number in range(1, most + 1) if fit(number)],
        "gpuTypeCudaVersions": [Record("GpuTypeCudaVersion", one) for one in versions],
    }
    return Record("LowestPrice", fields)
