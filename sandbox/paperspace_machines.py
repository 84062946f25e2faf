# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paperspace's machines, their events, and whether there is capacity for more."""

from __future__ import annotations

import typing as t
from datetime import timedelta

import flask

from . import paperspace_forms as forms
from .paperspace_account import Account, Event, machines
from .paperspace_create import SHUTDOWN, SNAPSHOTS, extras, find_network, order, shutdown
from .paperspace_errors import Refused, invalid, missing
from .paperspace_power import Power
from .paperspace_requests import Field, checked, content, page
from .paperspace_types import DISK_SIZES, TYPES, short_region
from .world import Machine, World

_CHANGES: dict[str, Field] = {
    "name": (str, False),
    "machineType": (str, False),
    "diskSize": (int, False),
    "networkId": (str, False),
    "publicIpType": (str, False),
    **SHUTDOWN,
    **SNAPSHOTS,
}


def routes(service: flask.Flask, world: World, account: Account, power: Power) -> None:
    """Add the routes to the application."""
    _machine_routes(service, world, account, power)
    _power_routes(service, world, power)
    _event_routes(service, world, account, power)

    @service.get("/v1/machine-availability")
    def availability() -> t.Any:
        if not account.switches.availability:
            raise Refused("NOT_FOUND", "Not found")
        kind, region = flask.request.args.get("machineType", ""), short_region(flask.request.args.get("region"))
        if kind not in TYPES:
            raise invalid(("machineType", "Invalid machine type"))
        if region is None:
            raise invalid(("region", "Invalid region"))
        with world.lock:
            stock = sum(one.stock for one in world.offers if (one.cloud, one.type, one.region) == ("paperspace", kind, region))
        return {"available": stock > 0}


def _pair(world: World, machine: Machine, event: Event, power: Power) -> dict[str, t.Any]:
    """The answer to every change: the machine and the event to watch."""
    with world.lock:
        power.settle()
        return {"data": forms.machine(machine, world.clock.now()), "event": forms.event(event)}


def _machine_routes(service: flask.Flask, world: World, account: Account, power: Power) -> None:
    @service.get("/v1/machines")
    def list_machines() -> t.Any:
        with world.lock:
            now = world.clock.now()
            since = now - timedelta(seconds=account.switches.list_after)
            found = [forms.machine(one, now) for one in machines(world) if one.created <= since and _wanted(one, account)]
        return page(found, ("dtCreated", "name", "state"))

    @service.post("/v1/machines")
    def create_machine() -> t.Any:
        request = content()
        with world.lock:
            machine, start = order(world, account, request)
            event = power.create(machine, start)
        return _pair(world, machine, event, power)

    @service.get("/v1/machines/<identity>")
    def get_machine(identity: str) -> t.Any:
        with world.lock:
            return forms.machine(power.find(identity, deleted=True), world.clock.now())

    @service.put("/v1/machines/<identity>")
    def change_machine(identity: str) -> t.Any:
        request = content()
        with world.lock:
            machine = power.find(identity)
            fields = checked(request, _CHANGES)
            event = _change(world, account, power, machine, fields)
        return _pair(world, machine, event, power)

    @service.delete("/v1/machines/<identity>")
    def delete_machine(identity: str) -> t.Any:
        with world.lock:
            machine = power.find(identity)
        return _pair(world, machine, power.delete(machine), power)


def _power_routes(service: flask.Flask, world: World, power: Power) -> None:
    verbs = {"start": power.start, "stop": power.stop, "restart": power.restart}

    @service.patch("/v1/machines/<identity>/<any(start, stop, restart):verb>")
    def switch_machine(identity: str, verb: str) -> t.Any:
        content(optional=True)
        with world.lock:
            machine = power.find(identity)
        return _pair(world, machine, verbs[verb](machine), power)


def _event_routes(service: flask.Flask, world: World, account: Account, power: Power) -> None:
    @service.get("/v1/machine-events")
    def list_events() -> t.Any:
        wanted = flask.request.args.get("machineId")
        with world.lock:
            power.settle()
            found = [forms.event(one) for one in account.events.values() if wanted in (None, one.machine_id)]
        return page(found, ("dtCreated",))

    @service.get("/v1/machine-events/<identity>")
    def get_event(identity: str) -> t.Any:
        with world.lock:
            power.settle()
            if identity not in account.events:
                raise missing("Machine event")
            return forms.event(account.events[identity])


def _wanted(machine: Machine, account: Account) -> bool:
    """Whether the filters of the query let this machine through."""
    query, facts = flask.request.args, machine.details
    region = query.get("region")
    return (
        account.switches.named(query.get("name"), machine.name)
        and (region is None or short_region(region) == machine.offer.region)
        and query.get("agentType", facts["agent"]) == facts["agent"]
        and query.get("machineType", machine.offer.type) == machine.offer.type
    )


def _change(world: World, account: Account, power: Power, machine: Machine, fields: dict[str, t.Any]) -> Event:
    """Apply what may be changed; type, disk and kind of address only while the machine is off."""
    facts = machine.details
    issues = extras({**_brake(facts), **fields})
    if "machineType" in fields and fields["machineType"] not in TYPES:
        issues.append(("machineType", "Invalid machine type"))
    if fields.get("publicIpType", "none") not in ("static", "dynamic", "none"):
        issues.append(("publicIpType", "Invalid enum value. Expected 'static' | 'dynamic' | 'none'"))
    if "diskSize" in fields and (fields["diskSize"] not in DISK_SIZES or fields["diskSize"] < facts["disk_gb"]):
        issues.append(("diskSize", "Invalid disk size: disks grow, in the sizes of new machines"))
    if issues:
        raise invalid(*issues)
    network = find_network(account, fields["networkId"], machine.offer.region).id if "networkId" in fields else facts["network"]
    rebuilt = [name for name in ("machineType", "diskSize", "publicIpType") if name in fields]
    if rebuilt and power.word(machine) != "off":
        raise Refused("PRECONDITION_FAILED", f"The machine must be off to change {', '.join(rebuilt)}.")
    if rebuilt:
        power.rebuild(machine, fields)
    machine.name = fields.get("name", machine.name)
    facts["network"], facts["modified"] = network, world.clock.now()
    if any(name in fields for name in SHUTDOWN):
        facts["auto_shutdown"] = shutdown({**_brake(facts), **fields})
        if machine.state in ("booting", "active"):
            power.arm(machine)
    return power.note(machine, "vm-upgrade")


def _brake(facts: dict[str, t.Any]) -> dict[str, t.Any]:
    brake = facts["auto_shutdown"]
    found = {"autoShutdownEnabled": brake["enabled"], "autoShutdownTimeout": brake["timeout"], "autoShutdownForce": brake["force"]}
    return {name: value for name, value in found.items() if value is not None}
