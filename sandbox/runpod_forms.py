# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod as RunPod's API shows it."""

from __future__ import annotations

import typing as t
from datetime import datetime, timezone

from .runpod_account import RECORDED, Account, invalid
from .runpod_command import parts
from .world import Machine, World

ACTIONS = {
    "RUNNING": ("stop", "restart", "terminate"),
    "EXITED": ("start", "terminate"),
    "ERROR": ("start", "terminate"),
    "PROVISIONING": ("stop", "terminate"),
    "STARTING": ("stop", "terminate"),
}


def status(account: Account, machine: Machine) -> str:
    """RunPod's word for the state of a pod that its list shows. As recorded on the real service, a pod is RUNNING from its creation on."""
    if machine.state == "active":
        return "RUNNING"
    if machine.state == "stopped":
        return "EXITED"
    if machine.state == "unhealthy":
        return "ERROR"
    if account.boot_states == RECORDED:
        return "RUNNING"
    return "PROVISIONING" if machine.details.get("phase", "allocating") == "allocating" else "STARTING"


def pod(world: World, account: Account, machine: Machine) -> dict[str, t.Any]:
    """One pod; every key is there."""
    facts, word = machine.details, status(account, machine)
    runtime = _runtime(world, account, machine) if word == "RUNNING" else None
    form: dict[str, t.Any] = {
        "id": machine.id,
        "name": machine.name,
        "status": word,
        "actions": [action for action in ACTIONS[word] if action == "terminate" or action == "start" or not facts["locked"]],
        "image": facts["image"],
        "args": facts["args"],
        **(parts(facts["args"]) if account.exec_form else {}),
        "disk": facts["disk"],
        "mounts": facts["mount_form"],
        "ports": facts["port_form"],
        "env": facts["env_form"],
        "registry": facts["registry"],
        "cloud": facts["tier"],
        "dataCenterId": facts["data_center"],
        "cudaVersion": facts["cuda"],
        "ssh": _ssh(machine, runtime),
        "template": None,  # its settings were copied; nothing leads back to it
        "cost": float(machine.offer.price_hour) if word != "EXITED" else 0,
        "locked": facts["locked"],
        "globalNetworking": _network(machine),
        "runtime": runtime,
        "createdAt": moment(machine.created),
        "startedAt": _started(account, machine, word),
    }
    if facts["cluster"]:
        form["cluster"] = facts["cluster"]
    if facts["cpu"]:
        form["cpu"] = facts["cpu"]
    else:
        form["gpu"] = facts["gpu"]
    return form


def _started(account: Account, machine: Machine, word: str) -> str | None:
    """When its container began to run; as recorded, the moment of renting until then."""
    started = machine.details.get("started")
    if word == "RUNNING" and started is not None:
        return moment(datetime.fromtimestamp(started, timezone.utc))
    return moment(machine.created) if word == "RUNNING" and account.boot_states == RECORDED else None


def moment(when: datetime) -> str:
    return when.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def read_moment(where: str, text: str) -> datetime:
    """The reverse; 422 names the place of what is none."""
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise invalid(f"{where}: should be a moment such as 2026-11-21T10:00:00Z") from None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def _runtime(world: World, account: Account, machine: Machine) -> dict[str, t.Any] | None:
    """What runs; null while nothing does, as while the image is pulled or between two rounds of a crash loop. Public ports come later."""
    facts = machine.details
    started = facts.get("started")
    if started is None:
        return None
    uptime = max(0.0, world.clock.seconds() - started)
    public = uptime >= account.ports_after and machine.ip
    load = 0 if facts.get("serving_since") is None or not facts.get("busy") else 87
    return {
        "uptime": int(uptime),
        "gpus": [{"util": load, "memoryUtil": load} for _ in range(machine.offer.gpu_count)],
        "cpu": {"util": 3},
        "memory": {"util": 5},
        "ports": [
            {
                "private": int(port),
                "public": facts["public_ports"][f"{port}/{kind}"] if public else None,
                "type": kind,
                "ip": (machine.ip if kind == "tcp" else "100.65.0.1") if public else None,
            }
            for port, _slash, kind in (text.partition("/") for text in facts["port_form"])
        ],
    }


def _ssh(machine: Machine, runtime: dict[str, t.Any] | None) -> dict[str, t.Any]:
    user = f"{machine.id}-{machine.details['host']}"
    direct = None
    for port in (runtime or {}).get("ports") or []:
        if port["private"] == 22 and port["type"] == "tcp" and port["public"]:
            command = f"ssh root@{port['ip']} -p {port['public']}"
            direct = {"host": port["ip"], "port": port["public"], "username": "root", "command": command}
    proxy = {"host": "ssh.runpod.io", "port": 22, "username": user, "command": f"ssh {user}@ssh.runpod.io"}
    return {"proxy": proxy, "direct": direct}


def _network(machine: Machine) -> dict[str, t.Any]:
    if not machine.details["global_network"]:
        return {"enabled": False}
    return {"enabled": True, "ip": machine.details["addresses"][1], "internalDns": f"{machine.id}.runpod.internal"}
