# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON forms of Lambda's API: types, instances, images, regions."""

from __future__ import annotations

import math
import typing as t
import uuid
from decimal import Decimal

from .catalogue import LAMBDA_REGIONS, LAMBDA_TYPES
from .world import Machine, Offer, World

ARM_TYPES = ("gpu_1x_gh200",)
ADDRESS_AFTER = 0.3  # share of the boot after which the addresses show
_X86_FAMILIES = {
    "ubuntu-24-04": "Ubuntu Server 24.04",
    "ubuntu-22-04": "Ubuntu Server 22.04",
    "gpu-base-24-04": "GPU Base 24.04",
    "gpu-base-22-04": "GPU Base 22.04",
    "lambda-stack-24-04": "Lambda Stack 24.04",
    "lambda-stack-22-04": "Lambda Stack 22.04",
    "lambda-stack-legacy-22-04": "Lambda Stack 22.04 for V100",
}
_ARM_FAMILIES = {"lambda-stack-24-04": "Lambda Stack 24.04", "lambda-stack-22-04": "Lambda Stack 22.04"}


def region(name: str) -> dict[str, str]:
    return {"name": name, "description": LAMBDA_REGIONS.get(name, name)}


def instance_type(offer: Offer, price: Decimal) -> dict[str, t.Any]:
    """A type as it stands in lists and inside instances; ``price`` in dollars per hour becomes whole cents."""
    facts = offer.details
    known = LAMBDA_TYPES.get(offer.type)
    text = facts.get("gpu_description") or (known.gpu_description if known else f"{offer.model} ({offer.memory_mib // 1024} GB)")
    return {
        "name": offer.type,
        "description": facts.get("description") or (f"{offer.gpu_count}x {text}" if offer.gpu_count else offer.type),
        "gpu_description": text,
        "price_cents_per_hour": math.ceil(price * 100),
        "specs": {
            "vcpus": facts.get("vcpus") or (known.vcpus if known else 30),
            "memory_gib": facts.get("memory_gib") or (known.ram_gib if known else 200),
            "storage_gib": facts.get("storage_gib") or (known.disk_gib if known else 1400),
            "gpus": offer.gpu_count,
        },
    }


def instance_types(world: World) -> dict[str, t.Any]:
    """Every type, sold out or not, with the regions that have capacity now."""
    found: dict[str, t.Any] = {}
    for offer in world.offers:
        if offer.cloud != "lambda":
            continue
        shown = offer.details.get("shown_price", offer.price_hour)
        entry = found.setdefault(offer.type, {"instance_type": instance_type(offer, shown), "regions_with_capacity_available": []})
        if offer.stock > 0:
            entry["regions_with_capacity_available"].append(region(offer.region))
    return found


def instance(machine: Machine, now: float, too_old_after: float) -> dict[str, t.Any]:
    """One machine. What is not known yet is absent, never null. ``too_old_after``: seconds of age that end migrations."""
    _reveal_addresses(machine, now)
    facts = machine.details
    form: dict[str, t.Any] = {
        "id": machine.id,
        "status": machine.state,
        "ssh_key_names": facts.get("ssh_key_names", []),
        "file_system_names": facts.get("file_system_names", []),
        "region": region(machine.offer.region),
        "instance_type": instance_type(machine.offer, machine.price_hour),
        "actions": _actions(machine, now - machine.created.timestamp() >= too_old_after),
    }
    optional = {
        "name": machine.name,
        "hostname": machine.hostname if machine.ip else None,
        "ip": machine.ip,
        "private_ip": machine.private_ip,
        "tags": facts.get("tags"),
        "firewall_rulesets": facts.get("firewall_rulesets"),
        "file_system_mounts": facts.get("file_system_mounts"),
    }
    if machine.state == "active":
        token = facts.setdefault("jupyter_token", f"jupyter-{uuid.uuid4().hex}")
        optional |= {"jupyter_token": token, "jupyter_url": f"https://{machine.hostname}.sandbox.invalid/?token={token}"}
    form.update({key: value for key, value in optional.items() if value})
    return form


def _reveal_addresses(machine: Machine, now: float) -> None:
    """Addresses appear during the boot, not in the answer to the launch."""
    reserved = machine.details.get("addresses")
    shown = machine.created.timestamp() + ADDRESS_AFTER * machine.offer.boot_seconds
    if machine.ip is None and reserved and (machine.state != "booting" or now >= shown):
        machine.ip, machine.private_ip = reserved


def _actions(machine: Machine, old: bool) -> dict[str, t.Any]:
    def action(available: bool, code: str = "", text: str = "") -> dict[str, t.Any]:
        return {"available": True} if available else {"available": False, "reason_code": code, "reason_description": text}

    if machine.state in ("terminating", "terminated", "preempted"):
        closed = ("vm-is-terminating", "The instance is being terminated.")
        return {name: action(False, *closed) for name in ("migrate", "rebuild", "restart", "cold_reboot", "terminate")}
    up = machine.state in ("active", "unhealthy")
    waits = ("vm-has-not-launched", "The instance has not launched yet.")
    if machine.boots > 1:
        waits = ("vm-action-in-progress", "Another action on the instance is in progress.")
    aged = ("vm-is-too-old", "The instance is too old to be migrated.")
    return {
        "migrate": action(up and not old, *(aged if up else waits)),
        "rebuild": action(up, *waits),
        "restart": action(up, *waits),
        "cold_reboot": action(up, *waits),
        "terminate": action(True),
    }


def images() -> list[dict[str, str]]:
    """One entry per image and region; ids stay the same from run to run."""
    found = []
    for place in LAMBDA_REGIONS:
        families = [("x86_64", family, name) for family, name in _X86_FAMILIES.items()]
        if place == "us-east-3":
            families += [("arm64", family, name) for family, name in _ARM_FAMILIES.items()]
        for architecture, family, name in families:
            found.append(
                {
                    "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{place}/{architecture}/{family}")),
                    "created_time": "2026-09-01T00:00:00+00:00",
                    "updated_time": "2026-09-01T00:00:00+00:00",
                    "name": name,
                    "description": name,
                    "family": family,
                    "version": "1.4.2",
                    "architecture": architecture,
                    "region": place,
                }
            )
    return [{**image, "region": region(image["region"])} for image in found]  # type: ignore[dict-item]
