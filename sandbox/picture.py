# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The truth of the world as JSON data. No secret is ever shown."""

from __future__ import annotations

import typing as t
from datetime import datetime, timezone
from decimal import Decimal

from .cluster import KubeError
from .picture_accounts import account_pictures, paperspace_extras
from .world import Machine

if t.TYPE_CHECKING:
    from .box import Box


def picture(box: Box) -> dict[str, t.Any]:
    """The whole world as JSON data. ``nodes`` None, here and in the totals: the cluster did not answer, which is not that it has none."""
    world, tailnet = box.world, box.tailnet
    try:
        nodes = [node_picture(node) for node in box.nodes()]
    except KubeError:
        nodes = None
    with world.lock:
        now = world.clock.now()
        machines = [machine_picture(machine, now) for machine in world.machines.values()]
        extras, extras_hour = paperspace_extras(world, now)
        cost = sum((machine.cost(now) for machine in world.machines.values()), extras)
        traffic = sum((machine.traffic_cost() for machine in world.machines.values()), Decimal(0))
        hourly = sum((machine.rate() for machine in world.machines.values()), extras_hour)
        accounts = account_pictures(world)
        devices = [device_picture(tailnet, device) for device in tailnet.devices()]
        keys = [_key_picture(key, now) for key in tailnet.keys() if key.kind == "auth"]
        return {
            "now": text(now),
            "speed": world.clock.speed,
            "scenario": box.scenario.name,
            "seed": box.seed,
            "machines": machines,
            "devices": devices,
            "keys": keys,
            "nodes": nodes,
            "accounts": accounts,
            "totals": {
                "instances": sum(1 for machine in machines if machine["ended"] is None),
                "devices": len(devices),
                "keys": len(keys),
                "nodes": None if nodes is None else len(nodes),
                "scripts": len(accounts["paperspace"]["startup_scripts"]),
                "networks": len(accounts["paperspace"]["private_networks"]),
                "static_ips": len(accounts["paperspace"]["static_ips"]),
                "cost": str(round(cost, 6)),
                "traffic": str(round(traffic, 6)),
                "bill": str(round(cost + traffic, 6)),
                "hourly": str(hourly),
            },
            "calls": dict(world.calls),
            "writes": [{"time": text(moment), "service": service, "what": what} for moment, service, what in world.writes],
            "faults": [fault.public() for fault in box.faults.all()],
        }


def machine_picture(machine: Machine, now: datetime) -> dict[str, t.Any]:
    """``price_hour`` is the offer's when it was rented, ``rate`` what this machine costs now, its disk included where that is billed apart.
    ``cost`` is what it was billed by the hour; traffic is an item of its own."""
    offer = machine.offer
    return {
        "id": machine.id,
        "cloud": machine.cloud,
        "name": machine.name,
        "hostname": machine.hostname,
        "type": offer.type,
        "region": offer.region,
        "model": offer.model,
        "gpus": offer.gpu_count,
        "state": machine.state,
        "system": machine.details.get("system") or ("talos" if machine.cloud == "webhook" else "ubuntu"),
        "price_hour": str(machine.price_hour),
        "rate": str(machine.rate()),
        "created": text(machine.created),
        "ended": text(machine.ended),
        "destroyed": text(machine.destroyed),
        "billed_seconds": f"{machine.billed_seconds(now):.3f}",
        "cost": str(round(machine.cost(now), 6)),
        "traffic": {
            "down_gb": str(machine.down_gb),
            "up_gb": str(machine.up_gb),
            "cost": str(round(machine.traffic_cost(), 6)),
        },
        "ip": machine.ip,
        "private_ip": machine.private_ip,
        "steps": [{"time": text(moment), "step": step, "text": words} for moment, step, words in list(machine.steps)],
        "console": list(machine.console),
    }


def node_picture(node: dict[str, t.Any]) -> dict[str, t.Any]:
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    ready = next((c["status"] for c in status.get("conditions") or [] if c["type"] == "Ready"), "Unknown")
    return {
        "name": meta["name"],
        "uid": meta["uid"],
        "created": meta["creationTimestamp"],
        "ready": ready,
        "unschedulable": bool(spec.get("unschedulable")),
        "labels": meta.get("labels") or {},
        "annotations": meta.get("annotations") or {},
        "taints": spec.get("taints") or [],
        "addresses": [entry["address"] for entry in status.get("addresses") or []],
        "gpus": int((status.get("allocatable") or {}).get("nvidia.com/gpu", 0)),
    }


def device_picture(tailnet: t.Any, device: t.Any) -> dict[str, t.Any]:
    """A device of the tailnet."""
    return {
        "id": device.node_id,
        "hostname": device.hostname,
        "name": tailnet.dns_name(device),
        "addresses": device.addresses,
        "tags": device.tags,
        "online": device.online,
        "ephemeral": device.ephemeral,
        "created": text(device.created),
        "last_seen": text(device.last_seen),
        "key_id": device.key_id,
    }


def _key_picture(key: t.Any, now: datetime) -> dict[str, t.Any]:
    return {
        "id": key.id,
        "description": key.description,
        "created": text(key.created),
        "expires": text(key.expires),
        "used": key.uses,
        "expired": key.expires is not None and key.expires <= now,
        "invalid": key.invalid(now),
        "ephemeral": key.ephemeral,
        "reusable": key.reusable,
        "tags": key.tags,
    }


def text(moment: datetime | None) -> str | None:
    """RFC 3339 in UTC with milliseconds."""
    return None if moment is None else moment.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
