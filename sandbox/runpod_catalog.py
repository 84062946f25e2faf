# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""GET /v2/catalog/...: what RunPod offers now, under the query rules of its API."""

from __future__ import annotations

import re
import typing as t
from decimal import Decimal

import flask

from .runpod_account import Account, Problem, invalid
from .runpod_stock import cuda_fits, fitting, free, free_vcpus, shelves, version
from .runpod_types import COMMUNITY, CPU_COUNTS, CPUS, CUDA_VERSIONS, DATA_CENTERS, GPUS, REGIONS, SECURE
from .world import Offer, World

_LEVELS = ("NONE", "LOW", "MEDIUM", "HIGH")
_FILTERS = ("product", "count", "cloud", "countryCodes", "cudaVersions", "minCudaVersion")
_CPU_FILTERS = ("product", "vcpuCount")
_CLUSTER, _SERVERLESS = "CLUSTER", "SERVERLESS"
_PRODUCTS = ("POD", _CLUSTER, _SERVERLESS)
_CPU_PRODUCTS = ("POD", _SERVERLESS)
_VOLUMES = ("STANDARD", "HIGH_PERFORMANCE")


class Question(t.NamedTuple):
    """A checked query for GPUs; ``stock`` False: no availability was asked for. ``products``: what the GPUs are wanted for, any of them."""

    stock: bool = False
    products: frozenset[str] = frozenset()
    gpus: int = 1
    tier: str = SECURE
    countries: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()
    least: str = ""

    def cuda(self, host: str) -> bool:
        return cuda_fits(host, self.allowed, self.least)


def routes(service: flask.Flask, world: World, account: Account) -> None:
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
        chosen, extras = _places(), _extras()
        with world.lock:
            return flask.jsonify({"dataCenters": [_data_center(world, account, place, extras) for place in chosen]})

    @service.get("/v2/catalog/datacenters/<place>")
    def data_center(place: str) -> t.Any:
        extras = _extras()
        if place not in DATA_CENTERS:
            raise Problem(404, "data center not found")
        with world.lock:
            return flask.jsonify(_data_center(world, account, place, extras))

    @service.get("/v2/catalog/cpus")
    def cpus() -> t.Any:
        count = _vcpus()
        with world.lock:
            return flask.jsonify({"cpus": [_cpu(world, account, kind, count) for kind in CPUS]})

    @service.get("/v2/catalog/cpus/<kind>")
    def cpu(kind: str) -> t.Any:
        count = _vcpus()
        if kind not in CPUS:
            raise Problem(404, "cpu type not found")
        with world.lock:
            return flask.jsonify(_cpu(world, account, kind, count))


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
    products = _listed("product", _PRODUCTS)
    count = _one("count", pattern="[1-9][0-9]{0,3}")
    tier = _one("cloud", (SECURE, COMMUNITY))
    countries = _listed("countryCodes", pattern="[A-Z]{2}")
    allowed = _listed("cudaVersions", pattern=r"\d+\.\d+")
    least = _one("minCudaVersion", pattern=r"\d+(\.\d+)?")
    _check_filters(stock, _FILTERS)
    if not stock:
        return Question()
    if allowed and least:
        raise Problem(400, "cudaVersions and minCudaVersion are mutually exclusive")
    return Question(True, frozenset(products), int(count or 1), tier or SECURE, frozenset(countries), frozenset(allowed), least)


def _check_filters(stock: bool, filters: t.Sequence[str]) -> None:
    """Filters belong to a question for availability, and that to a product: there is no default."""
    given = [name for name in filters if name in flask.request.args]
    if given and not stock:
        raise Problem(400, f"{', '.join(given)} can only be used with include=AVAILABILITY")
    if stock and "product" not in given:
        raise Problem(400, "product is required with include=AVAILABILITY")


def _vcpus() -> int | None:
    """The vCPUs of a checked query for CPUs; None: no availability was asked for."""
    stock = bool(_listed("include", ("AVAILABILITY",)))
    _listed("product", _CPU_PRODUCTS)
    count = _one("vcpuCount", [str(one) for one in CPU_COUNTS])
    _check_filters(stock, _CPU_FILTERS)
    return int(count or CPU_COUNTS[0]) if stock else None


def level(pods: int) -> str:
    """So many pods in words."""
    return _LEVELS[0 if not pods else 1 if pods < 3 else 2 if pods < 10 else 3]


def _pods(world: World, offers: t.Sequence[Offer], count: int) -> int:
    """How many pods of ``count`` GPUs there are."""
    return sum(free(world, shelf) // count for shelf in offers)


def _served(world: World, kind: str, question: Question, offers: list[Offer]) -> list[Offer]:
    """What is there for any of the products: a cluster needs two pods in one place, serverless a pool that has the type."""
    if question.products == {_SERVERLESS}:
        return offers if GPUS[kind].pool else []
    if question.products != {_CLUSTER}:
        return offers
    here = {place: _pods(world, [one for one in offers if one.region == place], question.gpus) for place in DATA_CENTERS}
    return [one for one in offers if here[one.region] > 1]


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
        "pool": gpu.pool or None,
        "manufacturer": gpu.manufacturer,
        "memory": gpu.memory,
        "secure": bool(prices[SECURE]),
        "community": bool(prices[COMMUNITY]),
        "price": {
            "secure": float(prices[SECURE]),
            "community": float(prices[COMMUNITY]),
            **({"serverless": float(gpu.serverless)} if gpu.pool else {}),
        },
        "maxCount": {"secure": most[SECURE], "community": most[COMMUNITY]},
    }
    places = [place for place in DATA_CENTERS if any(shelf.region == place for shelf in shelves(world, kind))]
    if not question.stock:
        return form
    if question.countries:
        places = [place for place in places if DATA_CENTERS[place].country in question.countries]
    offers = [one for one in fitting(world, kind, question.tier, question.gpus, question.cuda) if one.region in places]
    offers = _served(world, kind, question, offers)
    form["availability"] = level(_pods(world, offers, question.gpus))
    form["dataCenters"] = [
        {
            "id": place,
            "name": DATA_CENTERS[place].name,
            "availability": level(_pods(world, [one for one in offers if one.region == place], question.gpus)),
        }
        for place in places
    ]
    if gpu.manufacturer != "NVIDIA":  # their hosts report no CUDA version
        return form
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


def _extras() -> frozenset[str]:
    return frozenset(_listed("include", ("GPU_AVAILABILITY", "CPU_AVAILABILITY")))


def _data_center(world: World, account: Account, place: str, extras: frozenset[str]) -> dict[str, t.Any]:
    facts = DATA_CENTERS[place]
    form: dict[str, t.Any] = {
        "id": place,
        "name": facts.name,
        "region": facts.region,
        "globalNetwork": facts.global_network,
        "networkVolumeTypes": list(facts.volumes),
        "compliance": list(facts.compliance),
    }
    if "GPU_AVAILABILITY" in extras:
        form["gpuAvailability"] = []
        for kind, gpu in GPUS.items():
            here = [one for one in shelves(world, kind, SECURE) if one.region == place]
            if here:
                fit = [one for one in fitting(world, kind, SECURE, 1) if one.region == place]
                form["gpuAvailability"].append({"id": kind, "name": gpu.name, "availability": level(_pods(world, fit, 1))})
    if "CPU_AVAILABILITY" in extras:
        form["cpuAvailability"] = [
            {
                "id": kind,
                "name": cpu.name,
                "availability": level(free_vcpus(world, account.cpu_stock, kind, place) // CPU_COUNTS[0]),
            }
            for kind, cpu in CPUS.items()
            if place in cpu.places
        ]
    return form


def _cpu(world: World, account: Account, kind: str, count: int | None) -> dict[str, t.Any]:
    """A flavour of CPU, with what is there of it in pods of ``count`` vCPUs."""
    cpu = CPUS[kind]
    form: dict[str, t.Any] = {
        "id": kind,
        "name": cpu.name,
        "group": cpu.group,
        "vcpu": {"min": CPU_COUNTS[0], "max": CPU_COUNTS[-1]},
        "ramGbPerVcpu": cpu.ram,
        "price": {"securePerVcpu": float(cpu.price), "serverlessPerVcpu": float(cpu.serverless)},
    }
    if count is not None:
        here = {place: free_vcpus(world, account.cpu_stock, kind, place) // count for place in cpu.places}
        form["availability"] = level(sum(here.values()))
        form["dataCenters"] = [
            {"id": place, "name": DATA_CENTERS[place].name, "availability": level(pods)} for place, pods in here.items()
        ]
    return form
