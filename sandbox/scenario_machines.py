# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a scenario says of own machines behind power webhooks."""

from __future__ import annotations

import typing as t
from decimal import Decimal

from .scenario_reader import Reader, ScenarioError
from .world import Machine, Offer, World


def machine_entry(entry: Reader) -> dict[str, t.Any]:
    """One entry of ``machines``, checked."""
    found = {
        "name": entry.text("name"),
        "gpus": entry.whole("gpus", 1),
        "model": entry.text("model", "RTX3090"),
        "memory_gib": entry.whole("memory_gib", 24),
        "price": entry.dollars("price", Decimal(0)),
        "region": entry.text("region", "home"),
        "boot": entry.number("boot", 90.0),
        "stop": entry.number("stop", 15.0),
        "status_lag": entry.number("status_lag", 0.0),
        "installed": entry.flag("installed", False),
        "on": entry.flag("on", False),
    }
    if found["on"] and not found["installed"]:
        raise ScenarioError(f"{entry.where}: only an installed machine can be on from the start")
    entry.done()
    return found


def own_machine(world: World, entry: dict[str, t.Any]) -> Machine:
    """The machine of an entry, switched off, not yet in the world."""
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
        details={"stop_seconds": entry["stop"], "status_lag": entry["status_lag"], "timings": {}},
    )
    number = len(world.machines) + 1
    details = {"installed": entry["installed"], "start_on": entry["on"]}
    address = f"192.168.{number // 250}.{number % 250 + 1}"
    return Machine(name, "webhook", name, name, offer, now, state="off", ip=address, private_ip=address, ended=now, details=details)
