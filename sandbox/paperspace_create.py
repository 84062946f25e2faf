# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Paperspace checks before it accepts a new machine."""

from __future__ import annotations

import typing as t

from .paperspace_account import Account, Network, Script, machines
from .paperspace_errors import Refused, invalid, missing, refused_with
from .paperspace_offers import find_offer
from .paperspace_requests import Field, checked
from .paperspace_types import DISK_SIZES, NVLINK_TYPES, TYPES, short_region
from .world import Machine, Offer, World

_NO_SNAPSHOTS = ("autoSnapshotEnabled", "takeInitialSnapshot", "restorePointEnabled")
SHUTDOWN: dict[str, Field] = {
    "autoShutdownEnabled": (bool, False),
    "autoShutdownTimeout": (float, False),
    "autoShutdownForce": (bool, False),
}
SNAPSHOTS: dict[str, Field] = {
    "autoSnapshotEnabled": (bool, False),
    "autoSnapshotFrequency": (str, False),
    "autoSnapshotSaveCount": (int, False),
    "takeInitialSnapshot": (bool, False),
    "restorePointEnabled": (bool, False),
    "restorePointFrequency": (str, False),
}
FIELDS: dict[str, Field] = {
    "name": (str, True),
    "machineType": (str, True),
    "templateId": (str, True),
    "region": (str, True),
    "diskSize": (int, True),
    "networkId": (str, False),
    "publicIpType": (str, False),
    "startOnCreate": (bool, False),
    "startupScriptId": (str, False),
    "emailPassword": (bool, False),
    "enableNvlink": (bool, False),
    "accessorIds": (list, False),
    **SHUTDOWN,
    **SNAPSHOTS,
}
USERS = ("u7sandbox",)


def order(world: World, account: Account, request: dict[str, t.Any]) -> tuple[Machine, bool]:
    """The machine that was ordered, not yet in the world, and whether it is to be started. Nothing is made when anything is wrong."""
    fields = checked(request, FIELDS)
    region = _form(fields)
    check_standing(account)
    offer = find_offer(world, fields["machineType"], region)
    switches = account.switches
    if offer.type in switches.needs_approval:
        raise Refused("FORBIDDEN", f"Your team has no quota for {offer.type} machines. Please contact support to request access.")
    if len(machines(world)) >= switches.max_machines:
        raise refused_with(switches.limit_status, f"You have reached your team's limit of {switches.max_machines} machines.")
    template = find_template(account, fields["templateId"], offer)
    network = find_network(account, fields["networkId"], region) if "networkId" in fields else None
    script = find_script(account, fields["startupScriptId"]) if "startupScriptId" in fields else None
    if unknown := [one for one in fields.get("accessorIds", []) if one not in USERS]:
        raise missing(f"User {unknown[0]}")
    now, kind = world.clock.now(), TYPES[offer.type]
    machine = Machine(
        id=account.new_id(world, "ps"),
        cloud="paperspace",
        name=fields["name"],
        hostname=fields["name"],
        offer=offer,
        created=now,
        placed=False,  # it takes its place when it is started
        details={
            "system": "ubuntu",
            "environment": {},
            "os": template["operatingSystemLabel"],
            "agent": template["agentType"],
            "template": template["id"],
            "card": kind.card,
            "cpus": kind.cpus,
            "ram_gib": kind.ram_gib,
            "disk_gb": fields["diskSize"],
            "usage_rate": offer.price_hour,
            "ip_type": fields.get("publicIpType", "dynamic"),
            "network": network.id if network else None,
            "nvlink": fields.get("enableNvlink", False),
            "accessors": fields.get("accessorIds", []),
            "auto_shutdown": shutdown(fields),
            "made": now,
            "modified": now,
        },
    )
    if script is not None:
        script.machines.append(machine.id)
    if fields.get("publicIpType") == "static":
        account.claim_ip(world, region).machine_id = machine.id
    if fields.get("emailPassword", True):
        account.password_mails.append(machine.name)
    return machine, fields.get("startOnCreate", True)


def _form(fields: dict[str, t.Any]) -> str:
    """The values that need nothing but themselves to be judged; the region's short name."""
    issues: list[tuple[str, str]] = []
    region = short_region(fields["region"])
    if region is None:
        issues.append(("region", "Invalid region"))
    if fields["machineType"] not in TYPES:
        issues.append(("machineType", "Invalid machine type"))
    if fields["diskSize"] not in DISK_SIZES:
        issues.append(("diskSize", f"Invalid disk size. Expected {' | '.join(map(str, DISK_SIZES))}"))
    if fields.get("publicIpType", "none") not in ("static", "dynamic", "none"):
        issues.append(("publicIpType", "Invalid enum value. Expected 'static' | 'dynamic' | 'none'"))
    if fields.get("enableNvlink") and fields["machineType"] not in NVLINK_TYPES:
        issues.append(("enableNvlink", f"NVLink is available for {' and '.join(NVLINK_TYPES)} only"))
    issues += extras(fields)
    if issues:
        raise invalid(*issues)
    return str(region)


def extras(fields: dict[str, t.Any]) -> list[tuple[str, str]]:
    """What is wrong with the brake and the snapshots that are asked for."""
    issues = [(name, "Snapshots do not exist in this sandbox") for name in _NO_SNAPSHOTS if fields.get(name)]
    for name, choices in (
        ("restorePointFrequency", ("shutdown",)),
        ("autoSnapshotFrequency", ("hourly", "daily", "weekly", "monthly")),
    ):
        if fields.get(name, choices[0]) not in choices:
            issues.append((name, f"Invalid enum value. Expected {' | '.join(repr(one) for one in choices)}"))
    if fields.get("autoShutdownEnabled") and not fields.get("autoShutdownTimeout"):
        issues.append(("autoShutdownTimeout", "Required when autoShutdownEnabled is true"))
    if not 0 <= fields.get("autoShutdownTimeout", 1) <= 168:
        issues.append(("autoShutdownTimeout", "Number must be between 0 and 168"))
    return issues


def shutdown(fields: dict[str, t.Any]) -> dict[str, t.Any]:
    """The provider's own brake; hours."""
    return {
        "enabled": fields.get("autoShutdownEnabled", False),
        "timeout": fields.get("autoShutdownTimeout"),
        "force": fields.get("autoShutdownForce"),
    }


def check_standing(account: Account) -> None:
    """An account that owes something creates nothing."""
    switches = account.switches
    if switches.admin_locked:
        raise Refused("FORBIDDEN", "Your account is locked. Please contact support.")
    if not switches.payment_method:
        raise Refused("FORBIDDEN", "Please add a payment method to your account.")
    if not switches.good_standing:
        raise Refused("FORBIDDEN", "Your account is not in good standing: your last payment failed.")


def find_template(account: Account, identity: str, offer: Offer) -> dict[str, t.Any]:
    """The template, if it fits the type; the team's own only fit the region they were made in."""
    if own := account.custom.get(identity):
        if own.deleted is None:
            if own.region != offer.region:
                raise Refused("BAD_REQUEST", f"Template {own.name} is not available in region {offer.region}")
            return {"id": own.id, "operatingSystemLabel": own.parent.details["os"], "agentType": own.parent.details["agent"]}
        raise missing("Template")
    for template in account.templates:
        if template["id"] == identity:
            if template["agentType"].startswith("Windows"):
                raise Refused("FORBIDDEN", "Windows templates are no longer available to new users.")
            fits = template.get("availableMachineTypes")
            if fits is not None and {"machineTypeLabel": offer.type, "isAvailable": True} not in fits:
                raise Refused("BAD_REQUEST", f"Template {template['name']} is not available for machine type {offer.type}")
            return template
    raise missing("Template")


def find_network(account: Account, identity: str, region: str) -> Network:
    network = account.networks.get(identity)
    if network is None or network.deleted is not None:
        raise missing("Private network")
    if network.region != region:
        raise Refused("BAD_REQUEST", "The private network is in another region than the machine")
    return network


def find_script(account: Account, identity: t.Any) -> Script:
    script = account.scripts.get(identity) if isinstance(identity, str) else None
    if script is None or script.deleted is not None:
        raise missing("Startup script")
    return script
