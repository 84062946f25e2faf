# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SANDBOX_URL: the truth of the world as JSON, and the levers that break it. No secret is ever shown."""

from __future__ import annotations

import typing as t
from datetime import datetime, timezone
from decimal import Decimal

import flask

from .behaviour import Behaviour
from .faults import Fault
from .world import Machine

if t.TYPE_CHECKING:
    from .box import Box


def app(box: Box) -> flask.Flask:
    """The WSGI application of one sandbox."""
    flask_app = flask.Flask("sandbox-control")

    def refuse(status: int, message: str) -> t.Any:
        return {"message": message}, status

    def rules() -> list[t.Any]:
        body = flask.request.get_json(force=True)
        return body if isinstance(body, list) else [body]

    @flask_app.errorhandler(400)
    def bad_json(_error: Exception) -> t.Any:
        return refuse(400, "the body is not JSON")

    @flask_app.get("/world")
    def show() -> t.Any:
        return picture(box)

    @flask_app.get("/faults")
    def faults() -> t.Any:
        return {"faults": [fault.public() for fault in box.faults.all()]}

    @flask_app.post("/faults")
    def add_faults() -> t.Any:
        try:
            parsed = [Fault.parse(rule) for rule in rules()]
        except ValueError as error:
            return refuse(400, str(error))
        unknown = {fault.service for fault in parsed} - {"", *box.apps}
        if unknown:
            return refuse(400, f"there is no service {', '.join(sorted(unknown))}; services are {', '.join(sorted(box.apps))}")
        for fault in parsed:
            box.faults.add(fault)
        return faults(), 201

    @flask_app.delete("/faults")
    def clear_faults() -> t.Any:
        box.faults.clear()
        return faults()

    @flask_app.post("/behaviours")
    def add_behaviours() -> t.Any:
        try:
            parsed = [Behaviour.parse(rule) for rule in rules()]
        except ValueError as error:
            return refuse(400, str(error))
        for rule in parsed:
            box.machines.behaviours.add(rule)
        return {"added": len(parsed)}, 201

    @flask_app.get("/clock")
    def clock() -> t.Any:
        return {"now": text(box.world.clock.now()), "speed": box.world.clock.speed}

    @flask_app.post("/clock")
    def move_clock() -> t.Any:
        body = flask.request.get_json(force=True)
        wanted = body if isinstance(body, dict) else {}
        if not wanted or set(wanted) - {"advance", "speed"} or not all(_is_number(value) for value in wanted.values()):
            return refuse(400, 'send {"advance": <seconds>} or {"speed": <factor>} or both')
        try:
            box.world.clock.advance(wanted.get("advance", 0))
            if "speed" in wanted:
                box.world.clock.run_at(wanted["speed"])
        except ValueError as error:
            return refuse(400, str(error))
        return clock()

    @flask_app.post("/machines/<name>/<what>")
    def strike(name: str, what: str) -> t.Any:
        if what not in ("kill", "vanish"):
            return refuse(404, "a machine can be killed (kill) or taken back by its cloud (vanish)")
        machine = find(box, name)
        if machine is None:
            return refuse(404, f"no machine that runs is called {name!r}")
        box.machines.strike(machine, "crash" if what == "kill" else "vanish")
        return machine_picture(machine, box.world.clock.now())

    return flask_app


def find(box: Box, name: str) -> Machine | None:
    """The running machine with this id or name; the newest of several."""
    with box.world.lock:
        found = [m for m in box.world.machines.values() if name in (m.id, m.name, m.hostname) and m.ended is None]
    return max(found, key=lambda m: m.created, default=None)


def picture(box: Box) -> dict[str, t.Any]:
    """The whole world as JSON data."""
    world, tailnet = box.world, box.tailnet
    nodes = [node_picture(node) for node in box.nodes()]
    with world.lock:
        now = world.clock.now()
        machines = [machine_picture(machine, now) for machine in world.machines.values()]
        cost = sum((machine.cost(now) for machine in world.machines.values()), Decimal(0))
        hourly = sum((machine.rate() for machine in world.machines.values()), Decimal(0))
        devices = [_device_picture(tailnet, device) for device in tailnet.devices()]
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
            "totals": {
                "instances": sum(1 for machine in machines if machine["ended"] is None),
                "devices": len(devices),
                "keys": len(keys),
                "nodes": len(nodes),
                "cost": str(round(cost, 6)),
                "hourly": str(hourly),
            },
            "calls": dict(world.calls),
            "writes": [{"time": text(moment), "service": service, "what": what} for moment, service, what in world.writes],
            "faults": [fault.public() for fault in box.faults.all()],
        }


def machine_picture(machine: Machine, now: datetime) -> dict[str, t.Any]:
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
        "price_hour": str(offer.price_hour),
        "created": text(machine.created),
        "ended": text(machine.ended),
        "destroyed": text(machine.destroyed),
        "billed_seconds": f"{machine.billed_seconds(now):.3f}",
        "cost": str(round(machine.cost(now), 6)),
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


def _device_picture(tailnet: t.Any, device: t.Any) -> dict[str, t.Any]:
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


def _is_number(value: t.Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
