# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A scenario is a YAML or JSON file that says what the sandbox's world contains and how it misbehaves.

``lambda``      list of {type, region, stock, price, bills, boot, slow times as in ``timings``}: machines for rent. ``price`` is what the API
                shows (default: the type's own), ``bills`` what is really charged (default: ``price``). Or {offers: [...], switches}.
``vast``, ``runpod``, ``paperspace``, ``vultr``, ``gcp``
                {offers: [...], switches of the cloud}: offers as its ``<cloud>_offer`` reads them, switches as its SCENARIO_KEYS names them.
``machines``    list of {name, gpus, model, memory_gib, price, region, boot, stop, installed, on}: own machines behind power webhooks.
                ``installed`` ones were made nodes of the cluster earlier and need no config when switched on.
``tailnet``     {policy, profile, ephemeral_seconds, last_seen, node_keys}: the policy file as text (HuJSON) or object, saas, headscale or
                headscale-v1, how long silent ephemeral devices stay, which devices show when they were last seen (offline, or always),
                and whether headscale tells which key a node came with.
``wireguard``   {hub_config, hub_key}: the file of a WireGuard hub, as wg-quick has it, and the hub's public key (default: the one of the file's
                private key). The file may be missing at first; it is read again whenever it changes.
``timings``     seconds of {packages, mesh, csr, ready, gpu} for all machines.
``behaviours``  list of {kind, cloud, type, region, name, skip, times, seconds, factor, gpus}: see behaviour.py.
``faults``      list of rules, see faults.py.
``rate_limits`` false lets clients call as fast as they like.
``device_plugin`` false leaves NVIDIA's device plugin out of the sandbox's own cluster, as a new cluster is: no node shows GPUs then.
Unknown keys and impossible values are refused with their path.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import json
import pathlib
import typing as t

import yaml

from .behaviour import Behaviour
from .faults import Fault
from .scenario_clouds import PARTS, cloud_section, set_up
from .scenario_lambda import lambda_offer
from .scenario_machines import machine_entry, own_machine
from .scenario_reader import TIMINGS, Reader, ScenarioError, timings
from .tailnet import LAST_SEEN, OFFLINE, PROFILES, SAAS
from .tailnet_policy import DEFAULT as POLICY
from .tailnet_policy import Policy
from .world import Offer, World

__all__ = ["TIMINGS", "Scenario", "ScenarioError", "load", "names", "parse"]

SHIPPED = pathlib.Path(__file__).parent / "scenarios"


@dataclasses.dataclass
class Scenario:
    """A checked scenario."""

    name: str = "empty"
    offers: list[Offer] = dataclasses.field(default_factory=list)
    machines: list[dict[str, t.Any]] = dataclasses.field(default_factory=list)
    policy: str = POLICY
    profile: str = SAAS
    ephemeral_seconds: float = 1800.0
    last_seen: str = OFFLINE
    node_keys: bool = True
    timings: dict[str, float] = dataclasses.field(default_factory=lambda: dict(TIMINGS))
    behaviours: list[Behaviour] = dataclasses.field(default_factory=list)
    faults: list[Fault] = dataclasses.field(default_factory=list)
    rate_limits: bool = True
    hub_config: str = ""
    hub_key: str = ""
    switches: dict[str, dict[str, t.Any]] = dataclasses.field(default_factory=dict)
    device_plugin: bool = True

    def furnish(self, world: World) -> None:
        """Put offers and own machines into an empty world."""
        with world.lock:
            world.rate_limits = self.rate_limits
            world.offers.extend(copy.deepcopy(self.offers))
            for cloud, switches in self.switches.items():
                set_up(world, cloud, copy.deepcopy(switches))
            for entry in self.machines:
                machine = own_machine(world, entry)
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
    top = Reader(content, name)
    scenario = Scenario(name=name)
    scenario.rate_limits = top.flag("rate_limits", True)
    scenario.device_plugin = top.flag("device_plugin", True)
    seconds = top.section("timings")
    scenario.timings.update(timings(seconds))
    seconds.done()
    clouds = list(PARTS)
    if isinstance(top.take("lambda", (list, dict), []), list):  # offers and no switches
        scenario.offers.extend(lambda_offer(entry) for entry in top.entries("lambda"))
        clouds.remove("lambda")
    for cloud in clouds:
        offers, scenario.switches[cloud] = cloud_section(cloud, top.section(cloud))
        scenario.offers.extend(offers)
    for entry in top.entries("machines"):
        scenario.machines.append(machine_entry(entry))
    listed = [entry["name"] for entry in scenario.machines]
    if len(set(listed)) < len(listed):
        raise ScenarioError(f"{name}.machines: two machines have one name")
    tailnet = top.section("tailnet")
    policy = tailnet.take("policy", (str, dict), scenario.policy)
    scenario.policy = policy if isinstance(policy, str) else json.dumps(policy)
    _attempt(lambda: Policy(scenario.policy), f"{name}.tailnet.policy")
    scenario.profile = tailnet.text("profile", SAAS)
    if scenario.profile not in PROFILES:
        raise ScenarioError(f"{name}.tailnet.profile: {scenario.profile!r} should be {' or '.join(PROFILES)}")
    scenario.ephemeral_seconds = tailnet.number("ephemeral_seconds", scenario.ephemeral_seconds)
    scenario.last_seen = tailnet.text("last_seen", OFFLINE)
    if scenario.last_seen not in LAST_SEEN:
        raise ScenarioError(f"{name}.tailnet.last_seen: {scenario.last_seen!r} should be {' or '.join(LAST_SEEN)}")
    scenario.node_keys = tailnet.flag("node_keys", True)
    tailnet.done()
    wireguard = top.section("wireguard")
    if wireguard.content:
        scenario.hub_config = wireguard.text("hub_config")
        scenario.hub_key = str(wireguard.take("hub_key", str, ""))
    wireguard.done()
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
