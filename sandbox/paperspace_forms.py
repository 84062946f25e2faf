# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON forms of Paperspace's API, and the words it has for states."""

from __future__ import annotations

import typing as t
from datetime import datetime, timedelta, timezone

from .paperspace_account import Account, Event, Network, Script, StaticIP, Template
from .paperspace_types import GIB, REGIONS, storage_hour
from .world import Machine

AGENT_SECONDS = 15.0  # from the system's being up to the answer of the provider's agent
QUEUE_SECONDS = 2.0  # until an accepted request is taken up


def text(moment: datetime | None) -> str | None:
    """ISO 8601 in UTC with milliseconds."""
    return None if moment is None else moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def came_up(machine: Machine) -> datetime | None:
    """When the system of this power-on was up."""
    return next((moment for moment, step, words in machine.steps if step == "up" and not words.startswith("failed")), None)


def state(machine: Machine, now: datetime) -> str:
    """The API's word. It has none for failed, deleted or terminated machines."""
    word = str(machine.details.get("word", "provisioning"))
    match machine.state:
        case "active":
            up = came_up(machine)
            return "serviceready" if up is None or now < up + timedelta(seconds=AGENT_SECONDS) else "ready"
        case "unhealthy":  # never came up: it hangs where it was; came up and died: the agent answers no more
            return word if came_up(machine) is None else "serviceready"
        case "booting":
            return word
        case "stopped":
            return "off"
    return "stopping"


def machine(one: Machine, now: datetime) -> dict[str, t.Any]:
    """One machine, bare. What a machine without GPUs has in ``accelerators`` is null."""
    facts, offer = one.details, one.offer
    gpu = {"name": facts["card"], "memory": offer.memory_mib * 1024 * 1024, "count": offer.gpu_count}
    up = came_up(one) is not None
    return {
        "id": one.id,
        "name": one.name,
        "state": state(one, now),
        "os": facts["os"],
        "machineType": offer.type,
        "agentType": facts["agent"],
        "cpus": facts["cpus"],
        "ram": facts["ram_gib"] * GIB,
        "storageTotal": facts["disk_gb"] * GIB,
        "storageUsed": 6 * GIB if up else 0,
        "accelerators": [gpu] if offer.gpu_count else None,
        "region": REGIONS[offer.region],
        "privateIp": one.private_ip,
        "publicIp": one.ip,
        "publicIpType": facts["ip_type"],
        "networkId": facts["network"],
        "autoShutdownEnabled": facts["auto_shutdown"]["enabled"],
        "autoShutdownTimeout": facts["auto_shutdown"]["timeout"],
        "autoShutdownForce": facts["auto_shutdown"]["force"],
        "autoSnapshotEnabled": False,
        "autoSnapshotFrequency": None,
        "autoSnapshotSaveCount": None,
        "updatesPending": False,
        "restorePointEnabled": False,
        "restorePointFrequency": None,
        "restorePointSnapshotId": None,
        "usageRate": float(facts["usage_rate"]),
        "storageRate": float(storage_hour(facts["disk_gb"])),
        "reservation": None,
        "dtCreated": text(facts["made"]),
        "dtModified": text(facts["modified"]),
        "dtDeleted": text(one.destroyed),
    }


def event(one: Event) -> dict[str, t.Any]:
    return {
        "id": one.id,
        "machineId": one.machine_id,
        "name": one.name,
        "state": one.state,
        "error": one.error,
        "dtCreated": text(one.created),
        "dtStarted": text(one.started),
        "dtFinished": text(one.finished),
    }


def script(one: Script) -> dict[str, t.Any]:
    """Without its text: the API never gives that back."""
    return {
        "id": one.id,
        "name": one.name,
        "description": None,
        "isEnabled": one.enabled,
        "isRunOnce": one.run_once,
        "assignedMachineIds": list(one.machines),
        "dtCreated": text(one.created),
        "dtDeleted": text(one.deleted),
    }


def network(one: Network) -> dict[str, t.Any]:
    return {
        "id": one.id,
        "name": one.name,
        "network": one.network,
        "netmask": "255.255.255.0",
        "region": REGIONS[one.region],
        "dtCreated": text(one.created),
        "dtDeleted": text(one.deleted),
    }


def static_ip(one: StaticIP) -> dict[str, t.Any]:
    return {"ip": one.ip, "region": REGIONS[one.region], "assignedMachineId": one.machine_id, "dtCreated": text(one.created)}


def template(one: Template) -> dict[str, t.Any]:
    """A template of the team's own."""
    facts = one.parent.details
    return {
        "id": one.id,
        "name": one.name,
        "agentType": facts["agent"],
        "operatingSystemLabel": facts["os"],
        "defaultSizeGb": facts["disk_gb"],
        "availableMachineTypes": [{"machineTypeLabel": one.parent.offer.type, "isAvailable": True}],
        "parentMachineId": one.parent.id,
        "region": REGIONS[one.region],
        "dtCreated": text(one.created),
        "dtDeleted": text(one.deleted),
    }


def session(account: Account) -> dict[str, t.Any]:
    """Who the key belongs to."""
    return {
        "user": {
            "id": "u7sandbox",
            "email": "sandbox@example.com",
            "firstName": "Sand",
            "lastName": "Box",
            "isPhoneVerified": True,
            "isQualifiedBusiness": False,
            "dtCreated": "2024-01-01T00:00:00.000Z",
            "teamMemberships": [{"id": "tm7sandbox", "isAdmin": True}],
        },
        "team": {
            "id": "te7sandbox",
            "namespace": "sandbox",
            "maxMachines": account.switches.max_machines,
            "isPrivate": True,
            "analyticsId": None,
        },
    }


def standing(account: Account) -> dict[str, t.Any]:
    switches = account.switches
    messages = [] if switches.good_standing else ["Your last payment failed."]
    return {
        "isInGoodStanding": switches.good_standing,
        "hasPaymentMethod": switches.payment_method,
        "isAdminLocked": switches.admin_locked,
        "messages": messages,
    }
