# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a scenario says of the clouds that have switches: their offers, and how their accounts and APIs behave.

Such a cloud's module has ``app(world)``, ``<cloud>_offer(entry)`` and the keys of an entry, SCENARIO_KEYS. Its switches are values of the
account it keeps in the world.
"""

from __future__ import annotations

import types
import typing as t
from decimal import Decimal

from . import paperspace_cloud, runpod_cloud
from .runpod_account import Account as RunpodAccount
from .scenario_reader import Reader, ScenarioError
from .world import Offer, World

CLOUDS: dict[str, types.ModuleType] = {"runpod": runpod_cloud, "paperspace": paperspace_cloud}
_RUNPOD = RunpodAccount()
SWITCHES: dict[str, dict[str, t.Any]] = {
    "runpod": {
        "page_size": 0,
        "shy_seconds": _RUNPOD.shy_seconds,
        "balance": Decimal(0),
        "spend_limit": _RUNPOD.spend_limit,
        "forbidden": [],
        "ports_after": _RUNPOD.ports_after,
    },
    "paperspace": paperspace_cloud.SWITCHES,
}


def cloud_section(cloud: str, section: Reader) -> tuple[list[Offer], dict[str, t.Any]]:
    """The offers and the switches of one cloud."""
    make: t.Callable[[t.Any], Offer] = getattr(CLOUDS[cloud], f"{cloud}_offer")
    offers = []
    for entry in section.entries("offers"):
        try:
            offers.append(make(entry.content))
        except ValueError as error:
            raise ScenarioError(f"{entry.where}: {error}") from error
    switches = {name: _switch(section, name, default) for name, default in SWITCHES[cloud].items()}
    section.done()
    chosen = {name: value for name, value in switches.items() if name in section.content}
    if cloud == "paperspace":
        paperspace_cloud.check(chosen, section.where)
    return offers, chosen


def set_up(world: World, cloud: str, switches: dict[str, t.Any]) -> None:
    """Turn the switches of a world's cloud."""
    if cloud == "paperspace":
        paperspace_cloud.set_up(world, switches)
    elif cloud == "runpod":
        account = RunpodAccount.of(world)
        for name, value in switches.items():
            setattr(account, name, tuple(value) if name == "forbidden" else value or None if name == "page_size" else value)


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
    return section.take(name, type(default), default)
