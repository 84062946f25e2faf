# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A scenario is a YAML or JSON file that says what the sandbox's world contains and how it misbehaves.

``lambda``      list of {type, region, stock, price, bills, boot, slow times as in ``timings``}: machines for rent. ``price`` is what the API
                shows (default: the type's own), ``bills`` what is really charged (default: ``price``).
``machines``    list of {name, gpus, model, memory_gib, price, region, boot, stop, installed, on}: own machines behind power webhooks.
                ``installed`` ones were made nodes of the cluster earlier and need no config when switched on.
``tailnet``     {policy, profile, ephemeral_seconds}: the policy file as text (HuJSON) or object, saas or headscale, and how long silent
                ephemeral devices stay.
``timings``     seconds of {packages, mesh, csr, ready, gpu} for all machines.
``behaviours``  list of {kind, cloud, type, region, name, skip, times, seconds, factor, gpus}: see behaviour.py.
``faults``      list of rules, see faults.py.
``rate_limits`` false lets clients call as fast as they like.
Unknown keys and impossible values are refused with their path.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import pathlib
import typing as t
from decimal import Decimal, InvalidOperation

import yaml

from .behaviour import Behaviour
from .catalogue import LAMBDA_REGIONS, LAMBDA_TYPES
from .faults import Fault
from .tailnet import HEADSCALE, SAAS
from .tailnet_policy import DEFAULT as POLICY
from .tailnet_policy import Policy
from .world import Machine, Offer, World

SHIPPED = pathlib.Path(__file__).parent / "scenarios"
TIMINGS = {"packages": 60.0, "mesh": 10.0, "csr": 1.0, "ready": 5.0, "gpu": 20.0}


class ScenarioError(ValueError):
    """The scenario cannot be used; the message names the place and what is wrong."""


@dataclasses.dataclass
class Scenario:
    """A checked scenario."""

    name: str = "empty"
    offers: list[Offer] = dataclasses.field(default_factory=list)
    machines: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    policy: str = POLICY
    profile: str = SAAS
    ephemeral_seconds: float = 1800.0
    timings: dict[str, float] = dataclasses.field(default_factory=lambda: dict(TIMINGS))
    behaviours: list[Behaviour] = dataclasses.field(default_factory=list)
    faults: list[Fault] = dataclasses.field(default_factory=list)
    rate_limits: bool = True

    def furnish(self, world: World) -> None:
        """Put offers and own machines into an empty world."""
        with world.lock:
            world.rate_limits = self.rate_limits
            world.offers.extend(self.offers)
            for entry in self.machines:
                machine = _own_machine(world, entry)
                world.machines[machine.id] = machine


def names() -> list[str]:
    """The shipped scenarios."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def load(name_or_path: str = "default") -> Scenario:
    """A shipped scenario by name, or a file."""
    path = SHIPPED / f"{name_or_path}.yaml"
    if name_or_path not in names():
        path = pathlib.Path(name_or_path)
        if not path.is_file():
            raise ScenarioError(f"there is no scenario {name_or_path!r}: neither a file nor one of {', '.join(names())}")
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    return parse(content or {}, path.stem)


def parse(content: t.Any, name: str = "scenario") -> Scenario:
    """A scenario from its decoded content."""
    top = _Reader(content, name)
    scenario = Scenario(name=name)
    scenario.rate_limits = top.flag("rate_limits", True)
    scenario.timings.update(_timings(top.section("timings")))
    for entry in top.entries("lambda"):
        scenario.offers.append(_lambda_offer(entry))
    for entry in top.entries("machines"):
        scenario.machines.append(_machine_entry(entry))
    listed = [entry["name"] for entry in scenario.machines]
    if len(set(listed)) < len(listed):
        raise ScenarioError(f"{name}.machines: two machines have one name")
    tailnet = top.section("tailnet")
    policy = tailnet.take("policy", (str, dict), scenario.policy)
    scenario.policy = policy if isinstance(policy, str) else json.dumps(policy)
    _attempt(lambda: Policy(scenario.policy), f"{name}.tailnet.policy")
    scenario.profile = tailnet.text("profile", SAAS)
    if scenario.profile not in (SAAS, HEADSCALE):
        raise ScenarioError(f"{name}.tailnet.profile: {scenario.profile!r} should be {SAAS} or {HEADSCALE}")
    scenario.ephemeral_seconds = tailnet.number("ephemeral_seconds", scenario.ephemeral_seconds)
    tailnet.done()
    for index, raw in enumerate(top.take("behaviours", list, [])):
        scenario.behaviours.append(_attempt(functools.partial(Behaviour.parse, raw), f"{name}.behaviours[{index}]"))
    for index, raw in enumerate(top.take("faults", list, [])):
        scenario.faults.append(_attempt(functools.partial(Fault.parse, raw), f"{name}.faults[{index}]"))
    top.done()
    return scenario


def _attempt(make: t.Callable[[], t.Any], where: str) -> t.Any:
    try:
        return make()
    except ValueError as error:
        raise ScenarioError(f"{where}: {error}") from error


def _timings(entry: _Reader) -> dict[str, float]:
    found = {key: entry.number(key, 0.0) for key in TIMINGS if key in entry.content}
    entry.done()
    return found


def _lambda_offer(entry: _Reader) -> Offer:
    name, region = entry.text("type"), entry.text("region")
    if name not in LAMBDA_TYPES:
        raise ScenarioError(f"{entry.where}: Lambda has no type {name!r}; known are {', '.join(LAMBDA_TYPES)}")
    if region not in LAMBDA_REGIONS:
        raise ScenarioError(f"{entry.where}: Lambda has no region {region!r}; known are {', '.join(LAMBDA_REGIONS)}")
    kind = LAMBDA_TYPES[name]
    price = entry.dollars("price", kind.price)
    if price * 100 != int(price * 100):
        raise ScenarioError(f"{entry.where}.price: Lambda's prices are whole cents")
    offer = Offer(
        cloud="lambda",
        type=name,
        region=region,
        price_hour=entry.dollars("bills", price),
        gpu_count=kind.gpus,
        model=kind.model,
        memory_mib=kind.memory_gib * 1024,
        stock=int(entry.number("stock", 1)),
        boot_seconds=entry.number("boot", kind.boot_seconds),
        unit_seconds=60,
        details={
            "shown_price": price,
            "description": kind.description(name),
            "gpu_description": kind.gpu_description,
            "region_description": LAMBDA_REGIONS[region],
            "vcpus": kind.vcpus,
            "memory_gib": kind.ram_gib,
            "storage_gib": kind.disk_gib,
        },
    )
    offer.details["timings"] = {key: entry.number(key, 0.0) for key in TIMINGS if key in entry.content}
    entry.done()
    return offer


def _machine_entry(entry: _Reader) -> dict[str, t.Any]:
    found = {
        "name": entry.text("name"),
        "gpus": int(entry.number("gpus", 1)),
        "model": entry.text("model", "RTX3090"),
        "memory_gib": int(entry.number("memory_gib", 24)),
        "price": entry.dollars("price", Decimal(0)),
        "region": entry.text("region", "home"),
        "boot": entry.number("boot", 90.0),
        "stop": entry.number("stop", 15.0),
        "installed": entry.flag("installed", False),
        "on": entry.flag("on", False),
    }
    if found["on"] and not found["installed"]:
        raise ScenarioError(f"{entry.where}: only an installed machine can be on from the start")
    entry.done()
    return found


def _own_machine(world: World, entry: dict[str, t.Any]) -> Machine:
    name, now = entry["name"], world.clock.now()
    offer = Offer(
        cloud="webhook",
        type=name,
        region=entry["region"],
        price_hour=entry["price"],
        gpu_count=entry["gpus"],
        model=entry["model"],
        memory_mib=entry["memory_gib"] * 1024,
        stock=0,
        boot_seconds=entry["boot"],
        details={"stop_seconds": entry["stop"], "timings": {}},
    )
    number = len(world.machines) + 1
    details = {"installed": entry["installed"], "start_on": entry["on"]}
    address = f"192.168.{number // 250}.{number % 250 + 1}"
    return Machine(name, "webhook", name, name, offer, now, state="off", ip=address, private_ip=address, ended=now, details=details)


class _Reader:
    """One object of the scenario; every key that nobody took is refused by :meth:`done`."""

    def __init__(self, content: t.Any, where: str) -> None:
        if not isinstance(content, dict):
            raise ScenarioError(f"{where}: should be an object, is {content!r:.60}")
        self.content, self.where = content, where
        self._taken: set[str] = set()

    def take(self, key: str, kind: type | tuple[type, ...], default: t.Any) -> t.Any:
        self._taken.add(key)
        value = self.content.get(key, default)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ScenarioError(f"{self.where}.{key}: cannot be {value!r:.60}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self.take(key, str, default if default is not None else self.content.get(key, ""))
        if not value:
            raise ScenarioError(f"{self.where}.{key}: is missing")
        return str(value)

    def flag(self, key: str, default: bool) -> bool:
        return bool(self.take(key, bool, default))

    def number(self, key: str, default: float) -> float:
        value = self.take(key, (int, float), default)
        if not 0 <= value < float("inf"):
            raise ScenarioError(f"{self.where}.{key}: {value!r} should be zero or more")
        return float(value)

    def dollars(self, key: str, default: Decimal) -> Decimal:
        value = self.take(key, (str, int, float, Decimal), default)
        try:
            price = Decimal(str(value))
        except InvalidOperation:
            price = Decimal("NaN")
        if not price.is_finite() or price < 0:
            raise ScenarioError(f"{self.where}.{key}: {value!r} is no price")
        return price

    def section(self, key: str) -> _Reader:
        return _Reader(self.take(key, dict, {}), f"{self.where}.{key}")

    def entries(self, key: str) -> list[_Reader]:
        return [_Reader(entry, f"{self.where}.{key}[{index}]") for index, entry in enumerate(self.take(key, list, []))]

    def done(self) -> None:
        unknown = [str(key) for key in self.content if key not in self._taken]
        if unknown:
            raise ScenarioError(f"{self.where}: unknown key {', '.join(unknown)}; known are {', '.join(sorted(self._taken))}")
