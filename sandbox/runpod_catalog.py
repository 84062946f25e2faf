# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GET /v2/catalog/...: what RunPod offers now, under the query rules of its API."""

from __future__ import annotations

import re
import typing as t
from decimal import Decimal

import flask

from .runpod_account import Problem, invalid
from .runpod_stock import fitting, free, shelves, version
from .runpod_types import COMMUNITY, CPUS, CUDA_VERSIONS, DATA_CENTERS, GPUS, REGIONS, SECURE
from .world import Offer, World

_LEVELS = ("NONE", "LOW", "MEDIUM", "HIGH")
_FILTERS = ("product", "count", "cloud", "countryCodes", "cudaVersions", "minCudaVersion")
_PRODUCTS = ("POD", "CLUSTER", "SERVERLESS")
_VOLUMES = ("STANDARD", "HIGH_PERFORMANCE")


class Question(t.NamedTuple):
    """A checked query for GPUs; ``stock`` False: no availability was asked for."""

    stock: bool = False
    gpus: int = 1
    tier: str = SECURE
    countries: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()
    least: str = ""

    def cuda(self, host: str) -> bool:
        if self.allowed:
            return host in self.allowed
        return not self.least or version(host) >= version(self.least)


def routes(service: flask.Flask, world: World) -> None:
    @service.get("/v2/catalog/gpus")
    def gpus() -> t.Any:
        question = _question()
        with world.lock:
            return flask.jsonify({"gpus": [_gpu(world, kind, question) for kind in GPUS]})

    @service.get("/v2/catalog/gpus/<path:kind>")
    def gpu(kind: str) -> t.Any:
        question = _question()
        if kind not in GPUS:
            raise Problem(404, "gpu type not found")
        with world.lock:
            return flask.jsonify(_gpu(world, kind, question))

    @service.get("/v2/catalog/datacenters")
    def data_centers() -> t.Any:
        chosen = _places()
        with_stock = bool(_listed("include", ("GPU_AVAILABILITY",)))
        with world.lock:
            return flask.jsonify({"dataCenters": [_data_center(world, place, with_stock) for place in chosen]})

    @service.get("/v2/catalog/cpus")
    def cpus() -> t.Any:
        found = [
            {"id": kind, "name": name, "price": {"secure": float(price)}, "vcpuCounts": [2, 4, 8, 16, 32]}
            for kind, (name, price) in CPUS.items()
        ]
        return flask.jsonify({"cpus": found})


def _listed(name: str, known: t.Sequence[str] = (), pattern: str = "") -> list[str]:
    """A parameter of values joined by commas; 422 for a value that cannot be."""
    raw = flask.request.args.get(name)
    if raw is None:
        return []
    values = raw.split(",")
    for value in values:
        if (known and value not in known) or (pattern and not re.fullmatch(pattern, value)):
            wanted = f"one of {', '.join(known)}" if known else f"match pattern {pattern}"
            raise invalid(f"query.{name}: value {value!r} should {'be ' if known else ''}{wanted}")
    return values


def _one(name: str, known: t.Sequence[str] = (), pattern: str = "") -> str:
    values = _listed(name, known, pattern)
    if len(values) > 1:
        raise invalid(f"query.{name}: only one value is allowed")
    return values[0] if values else ""


def _question() -> Question:
    stock = bool(_listed("include", ("AVAILABILITY",)))
    product = _one("product", _PRODUCTS)
    count = _one("count", pattern="[1-9][0-9]{0,3}")
    tier = _one("cloud", (SECURE, COMMUNITY))
    countries = _listed("countryCodes", pattern="[A-Z]{2}")
    allowed = _listed("cudaVersions", pattern=r"\d+\.\d+")
    least = _one("minCudaVersion", pattern=r"\d+(\.\d+)?")
    if not stock:
        given = [name for name in _FILTERS if name in flask.request.args]
        if given:
            raise Problem(400, f"{', '.join(given)} can only be used with include=AVAILABILITY")
        return Question()
    if not product:
        raise Problem(400, "product is required with include=AVAILABILITY")
    if allowed and least:
        raise Problem(400, "cudaVersions and minCudaVersion are mutually exclusive")
    return Question(True, int(count or 1), tier or SECURE, frozenset(countries), frozenset(allowed), least)


def _level(world: World, offers: t.Sequence[Offer], count: int) -> str:
    """How many pods of ``count`` GPUs there are, in words."""
    pods = sum(free(world, shelf) // count for shelf in offers)
    return _LEVELS[0 if not pods else 1 if pods < 3 else 2 if pods < 10 else 3]


def _price(world: World, kind: str, tier: str) -> Decimal:
    shown = [shelf.details.get("shown_price", shelf.price_hour) for shelf in shelves(world, kind, tier)]
    return shown[0] if shown else GPUS[kind].price[tier]


def _gpu(world: World, kind: str, question: Question) -> dict[str, t.Any]:
    gpu = GPUS[kind]
    prices = {tier: _price(world, kind, tier) for tier in (SECURE, COMMUNITY)}
    most = {
        tier: max([gpu.most[tier], *(shelf.details.get("most", 0) for shelf in shelves(world, kind, tier))])
        for tier in (SECURE, COMMUNITY)
    }
    form: dict[str, t.Any] = {
        "id": kind,
        "name": gpu.name,
        "pool": gpu.pool,
        "manufacturer": gpu.manufacturer,
        "memory": gpu.memory,
        "secure": bool(prices[SECURE]),
        "community": bool(prices[COMMUNITY]),
        "price": {
            "secure": float(prices[SECURE]),
            "community": float(prices[COMMUNITY]),
            "serverless": float(gpu.serverless),
        },
        "maxCount": {"secure": most[SECURE], "community": most[COMMUNITY]},
    }
    places = [place for place in DATA_CENTERS if any(shelf.region == place for shelf in shelves(world, kind))]
    if not question.stock:
        return {**form, "dataCenters": [{"id": place, "name": DATA_CENTERS[place].name} for place in places]}
    if question.countries:
        places = [place for place in places if DATA_CENTERS[place].country in question.countries]
    offers = [one for one in fitting(world, kind, question.tier, question.gpus, question.cuda) if one.region in places]
    form["availability"] = _level(world, offers, question.gpus)
    form["dataCenters"] = [
        {
            "id": place,
            "name": DATA_CENTERS[place].name,
            "availability": _level(world, [one for one in offers if one.region == place], question.gpus),
        }
        for place in places
    ]
    hosts = {one.details.get("cuda") for one in offers}
    known = sorted({*CUDA_VERSIONS, *(text for text in hosts if text)}, key=version)
    form["cudaVersions"] = [{"version": text, "available": text in hosts} for text in known if version(text) >= version(gpu.cuda)]
    return form


def _places() -> list[str]:
    """The data centres a query asks for: any of the regions, all of the volume types and all of the certificates."""
    regions = _listed("regions", REGIONS)
    volumes = set(_listed("networkVolumeTypes", _VOLUMES))
    compliance = set(_listed("compliance", pattern="[A-Z0-9_]+"))
    network = _one("globalNetwork", ("true", "false"))
    return [
        place
        for place, facts in DATA_CENTERS.items()
        if (not regions or facts.region in regions)
        and volumes <= set(facts.volumes)
        and compliance <= set(facts.compliance)
        and network in ("", str(facts.global_network).lower())
    ]


def _data_center(world: World, place: str, with_stock: bool) -> dict[str, t.Any]:
    facts = DATA_CENTERS[place]
    form: dict[str, t.Any] = {
        "id": place,
        "name": facts.name,
        "region": facts.region,
        "globalNetwork": facts.global_network,
        "networkVolumeTypes": list(facts.volumes),
        "compliance": list(facts.compliance),
    }
    if with_stock:
        form["gpuAvailability"] = []
        for kind, gpu in GPUS.items():
            here = [one for one in shelves(world, kind, SECURE) if one.region == place]
            if here:
                fit = [one for one in fitting(world, kind, SECURE, 1) if one.region == place]
                form["gpuAvailability"].append({"id": kind, "name": gpu.name, "availability": _level(world, fit, 1)})
    return form
