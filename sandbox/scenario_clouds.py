# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a scenario says of the clouds that have switches: their offers, and how their accounts and APIs behave."""

from __future__ import annotations

import dataclasses
import typing as t
from decimal import Decimal

from .gcp_account import Account as GcpAccount
from .gcp_catalogue import gcp_offer
from .lambda_account import Account as LambdaAccount
from .paperspace_account import Account as PaperspaceAccount
from .paperspace_account import Switches as PaperspaceSwitches
from .paperspace_cloud import paperspace_offer
from .runpod_account import DOCUMENTED, RECORDED, Problem
from .runpod_account import Account as RunpodAccount
from .runpod_cloud import runpod_offer
from .runpod_more import volume_of
from .scenario_lambda import lambda_offer
from .scenario_reader import Reader, ScenarioError
from .vast_account import Account as VastAccount
from .vast_account import Switches as VastSwitches
from .vast_offers import vast_offer
from .vultr_account import Account as VultrAccount
from .vultr_catalogue import vultr_offer
from .world import Offer, World

Switches = dict[str, t.Any]


class Part(t.NamedTuple):
    """One cloud: how an entry becomes an offer (ValueError names the wrong key), its switches with values that show their types, and how
    they are turned; for no world, that is only a rehearsal."""

    offer: t.Callable[[t.Mapping[str, t.Any]], Offer]
    switches: Switches
    turn: t.Callable[[World | None, Switches], None]


def _defaults(switches: t.Any) -> Switches:
    return {field.name: getattr(switches, field.name) for field in dataclasses.fields(switches)}


def _turn_gcp(world: World | None, chosen: Switches) -> None:
    (GcpAccount.of(world) if world else GcpAccount()).turn(chosen)


def _turn_lambda(world: World | None, chosen: Switches) -> None:
    (LambdaAccount.of(world) if world else LambdaAccount()).turn(chosen, world.clock if world else None)


def _turn_vast(world: World | None, chosen: Switches) -> None:
    (VastAccount.of(world).switches if world else VastSwitches()).turn(chosen)


def _turn_paperspace(world: World | None, chosen: Switches) -> None:
    (PaperspaceAccount.of(world).switches if world else PaperspaceSwitches()).turn(chosen)


def _turn_vultr(world: World | None, chosen: Switches) -> None:
    (VultrAccount.of(world) if world else VultrAccount()).turn(chosen)


def _turn_runpod(world: World | None, chosen: Switches) -> None:
    if chosen.get("page_size") == 0:
        raise ValueError("page_size: should be above zero")
    if chosen.get("boot_states", RECORDED) not in (RECORDED, DOCUMENTED):
        raise ValueError(f"boot_states: should be {RECORDED} or {DOCUMENTED}")
    account = RunpodAccount.of(world) if world else RunpodAccount()
    for name, value in chosen.items():
        if name != "network_volumes":
            setattr(account, name, tuple(value) if isinstance(value, list) else value)
    for place, entry in enumerate(chosen.get("network_volumes", ())):
        try:
            volume = volume_of(entry)
        except Problem as problem:
            raise ValueError(f"network_volumes[{place}]: {problem.body.get('detail')}") from None
        if world is not None:
            account.add_volume(world, volume)


_RUNPOD = {
    "boot_states": RECORDED,
    "list_after": 0.0,
    "page_size": 1,
    "shy_seconds": 0.0,
    "balance": Decimal(0),
    "spend_limit": Decimal(0),
    "forbidden": [],
    "ports_after": 0.0,
    "cpu_stock": 0,
    "exec_form": True,
    "own_entrypoint": [],
    "graphql": True,
    "kept_without_money": 0.0,
    "network_volumes": [],
}
_WORDS = {"None": "null", "404": "404", "False": "false"}
PARTS: dict[str, Part] = {
    "gcp": Part(gcp_offer, GcpAccount.SWITCHES, _turn_gcp),
    "lambda": Part(lambda entry: lambda_offer(Reader(entry, "offer")), LambdaAccount.SWITCHES, _turn_lambda),
    "vast": Part(vast_offer, _defaults(VastSwitches()), _turn_vast),
    "runpod": Part(runpod_offer, _RUNPOD, _turn_runpod),
    "paperspace": Part(paperspace_offer, _defaults(PaperspaceSwitches()), _turn_paperspace),
    "vultr": Part(vultr_offer, VultrAccount.SWITCHES, _turn_vultr),
}


def cloud_section(cloud: str, section: Reader) -> tuple[list[Offer], Switches]:
    """The offers and the switches of one cloud."""
    part, offers = PARTS[cloud], []
    for entry in section.entries("offers"):
        try:
            offers.append(part.offer(entry.content))
        except ValueError as error:
            raise ScenarioError(f"{entry.where}: {error}") from error
    values = {name: _switch(section, name, default) for name, default in part.switches.items()}
    section.done()
    chosen = {name: value for name, value in values.items() if name in section.content}
    try:
        part.turn(None, chosen)
    except ValueError as error:
        raise ScenarioError(f"{section.where}.{error}") from error
    return offers, chosen


def set_up(world: World, cloud: str, chosen: Switches) -> None:
    """Turn the switches of a world's cloud."""
    PARTS[cloud].turn(world, chosen)


def _switch(section: Reader, name: str, default: t.Any) -> t.Any:
    """A value of the default's type."""
    if isinstance(default, bool):
        return section.flag(name, default)
    if isinstance(default, Decimal):
        return section.dollars(name, default)
    if isinstance(default, (int, float)):
        value = section.number(name, default)
        if isinstance(default, int) and value != int(value):
            raise ScenarioError(f"{section.where}.{name}: {value!r} should be a whole number")
        return int(value) if isinstance(default, int) else value
    word = _WORDS.get(repr(section.content.get(name, "")))  # unquoted, YAML takes some words for something else
    if word and word in {**VastSwitches.CHOICES, **PaperspaceSwitches.CHOICES}.get(name, ()):
        section.content[name] = word
    return section.take(name, type(default), default)
