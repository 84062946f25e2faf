# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines of the sandbox's Vultr: what a create call is checked for, what they show, and how they end.

The answer to a create call, and of the first ten minutes, holds a root password and a console address: clients must not keep them.
"""

from __future__ import annotations

import base64
import binascii
import threading
import typing as t
import uuid

import flask

from . import payload
from .clock import ClockClosed
from .vultr_account import Account, Refused, machines, moment, new_id, page
from .vultr_catalogue import CUSTOM, PLANS, REGIONS, SNAPSHOT, SYSTEMS
from .world import Machine, Offer, World

LISTED_SECONDS = 4.0  # that a deleted machine is still shown
PASSWORD_SECONDS = 600.0
_PENDING = 0.15  # of the boot
_IMAGES = ("os_id", "snapshot_id", "iso_id", "app_id", "image_id")
_LOCKED = "Unable to destroy server: Unable to remove VM: Server is currently locked"


def find(world: World, identity: str) -> Machine:
    machine = world.machines.get(identity)
    if machine is None or machine.cloud != "vultr" or machine.destroyed is not None:
        raise Refused(404, "instance not found")
    return machine


def instance_routes(service: flask.Flask, world: World, account: Account) -> None:
    def form(machine: Machine) -> dict[str, t.Any]:
        return instance_form(world, machine, account)

    @service.get("/v2/instances")
    def instances() -> t.Any:
        query = flask.request.args
        with world.lock:
            since = world.clock.seconds() - account.list_after
            forms = [form(one) for one in machines(world) if one.created.timestamp() <= since]
        for name in ("label", "region", "hostname", "main_ip", "firewall_group_id"):
            if query.get(name):
                forms = [one for one in forms if one[name] == query[name]]
        if query.get("tag"):
            forms = [one for one in forms if query["tag"] in one["tags"]]
        return page(account, "instances", forms, query)

    @service.post("/v2/instances")
    def create() -> t.Any:
        with world.lock:
            return {"instance": {**form(launch(world, account, _body())), "status": "pending"}}, 202

    @service.get("/v2/instances/<identity>")
    def instance(identity: str) -> t.Any:
        with world.lock:
            return {"instance": form(find(world, identity))}

    @service.patch("/v2/instances/<identity>")
    def change(identity: str) -> t.Any:
        content = _body()
        with world.lock:
            machine = find(world, identity)
            if "user_data" in content:
                machine.details["user_data"] = content["user_data"]
                _decoded(content["user_data"])
            if "tags" in content:
                machine.details["tags"] = list(content["tags"])
            if "label" in content:
                machine.name = str(content["label"])
            return {"instance": form(machine), "job_ids": []}, 202

    @service.get("/v2/instances/<identity>/user-data")
    def user_data(identity: str) -> t.Any:
        with world.lock:
            return {"user_data": {"data": find(world, identity).details.get("user_data", "")}}

    @service.delete("/v2/instances/<identity>")
    def delete(identity: str) -> t.Any:
        with world.lock:
            machine = find(world, identity)
            if machine.state == "booting" and _share(world, machine) < account.locked_share:
                raise Refused(500, _LOCKED)
            first, machine.state = machine.state != "terminating", "terminating"
        if first:
            _end(world, machine)
        return "", 204

    @service.post("/v2/instances/<identity>/<verb>")
    def power(identity: str, verb: str) -> t.Any:
        """Switched off, it is billed on."""
        with world.lock:
            machine = find(world, identity)
            if verb not in ("start", "halt", "reboot") or machine.state == "terminating":
                raise Refused(400, "Unable to perform this action on the server.")
            machine.state = "stopped" if verb == "halt" else "booting"
        world.clock.wake()
        world.on_end(machine)
        if verb != "halt":
            world.boot(machine)
        return "", 204


def _body() -> dict[str, t.Any]:
    content = flask.request.get_json(silent=True)
    if not isinstance(content, dict):
        raise Refused(400, "Invalid JSON in request body.")
    return content


# ---- making one


def launch(world: World, account: Account, request: dict[str, t.Any]) -> Machine:
    """Make one machine, or refuse and make none. The caller holds the world's lock."""
    offer = _offer(world, request)
    text = _decoded(request.get("user_data", ""))
    group = request.get("firewall_group_id") or ""
    if group and group not in account.groups:
        raise Refused(400, "Invalid firewall group.")
    system, chosen = _system(world, account, request)
    if sum(1 for one in machines(world) if one.ended is None) >= account.quota:
        raise Refused(400, "You have reached the maximum number of active virtual machines for this account.")
    if not account.in_credit:
        raise Refused(400, "This order would exceed the monthly spending limit of your account.")
    if offer.stock <= 0:
        raise Refused(400, "Plan is not available in the selected region.")
    hostname = str(request.get("hostname") or "vultr")
    machine = Machine(
        id=new_id(world),
        cloud="vultr",
        name=str(request.get("label") or ""),
        hostname=hostname,
        offer=offer,
        created=world.clock.now(),
        payload=text or None,
        details={
            "addresses": account.next_addresses(),
            "tags": [str(tag) for tag in request.get("tags") or []],
            "user_data": request.get("user_data", ""),
            "group": group,
            "system": system,
            **chosen,
        },
    )
    return world.rent(machine)


def _decoded(data: t.Any) -> str:
    try:
        return base64.b64decode(str(data), validate=True).decode()
    except (binascii.Error, ValueError):
        raise Refused(400, "Invalid user_data (check base64 encoding)") from None


def _offer(world: World, request: t.Mapping[str, t.Any]) -> Offer:
    name, region = request.get("plan"), request.get("region")
    if name not in PLANS:
        raise Refused(400, "Invalid plan chosen.")
    if region not in REGIONS:
        raise Refused(400, "Invalid region chosen.")
    for offer in world.offers:
        if (offer.cloud, offer.type, offer.region) == ("vultr", name, region):
            return offer
    raise Refused(400, "Plan is not available in the selected region.")


def _system(world: World, account: Account, request: t.Mapping[str, t.Any]) -> tuple[str, dict[str, t.Any]]:
    """What it boots, and how the API names that."""
    named = [key for key in _IMAGES if request.get(key)]
    if len(named) != 1:
        raise Refused(400, "Exactly one of os_id, snapshot_id, iso_id, app_id, image_id is required.")
    if named == ["os_id"]:
        known = {number: family for number, _name, family in SYSTEMS if family not in ("iso", "snapshot")}
        if request["os_id"] not in known:
            raise Refused(400, "Cannot add instance. Specified os_id not available")
        return payload.UBUNTU, {"os_id": request["os_id"]}
    found = account.snapshots.get(str(request.get("snapshot_id")))
    if named != ["snapshot_id"] or found is None or account.snapshot_state(found, world.clock.seconds()) != "complete":
        raise Refused(400, "Invalid snapshot.")
    chosen = {"os_id": SNAPSHOT, "snapshot_id": found.id}
    return (payload.TALOS if found.schematic else payload.UBUNTU), {**chosen, "schematic": found.schematic}


# ---- what it shows


def _share(world: World, machine: Machine) -> float:
    """Of its boot that has passed."""
    return (world.clock.seconds() - (machine.began or machine.created.timestamp())) / max(machine.offer.boot_seconds, 1e-9)


def _words(world: World, machine: Machine, account: Account) -> tuple[str, str, str]:
    """status, power_status and server_status. One with an image of its own stays ``locked``."""
    if machine.state in ("stopped", "unhealthy"):
        return "active", "stopped", "ok"
    if machine.state != "booting":
        return "active", "running", "locked" if machine.details.get("os_id") in (CUSTOM, SNAPSHOT) else "ok"
    share = _share(world, machine)
    if share < _PENDING:
        return "pending", "running", "none"
    return "active", "running", "locked" if share < account.locked_share else "installingbooting"


def instance_form(world: World, machine: Machine, account: Account) -> dict[str, t.Any]:
    """One machine. What is not known yet is empty or zero, never null."""
    facts, plan = machine.details, PLANS[machine.offer.type]
    status, power, server = _words(world, machine, account)
    number = facts.get("os_id", 0)
    shown = status == "active"
    if shown and machine.ip is None:
        machine.ip, machine.private_ip = facts["addresses"]
    form = {
        "id": machine.id,
        "os": next((name for one, name, _family in SYSTEMS if one == number), ""),
        "ram": plan.ram_gib * 1024,
        "disk": plan.disk_gb if shown else 0,
        "main_ip": machine.ip if shown else "0.0.0.0",
        "vcpu_count": plan.vcpus,
        "region": machine.offer.region,
        "plan": machine.offer.type,
        "date_created": moment(machine.created),
        "status": status,
        "allowed_bandwidth": 10240,
        "netmask_v4": "255.255.254.0" if shown else "",
        "gateway_v4": "198.19.0.1" if shown else "0.0.0.0",
        "power_status": power,
        "server_status": server,
        "v6_network": "",
        "v6_main_ip": "",
        "v6_network_size": 0,
        "label": machine.name,
        "internal_ip": "",
        "kvm": f"https://my.vultr.com/subs/vps/novnc/api.php?data={facts.setdefault('kvm', uuid.uuid4().hex)}" if shown else "",
        "hostname": machine.hostname,
        "os_id": number,
        "app_id": 0,
        "image_id": "",
        "snapshot_id": facts.get("snapshot_id", ""),
        "firewall_group_id": facts.get("group", ""),
        "features": [],
        "tags": list(facts.get("tags", ())),
        "user_scheme": "root",
        "vpcs": [],
        "vpc_only": False,
    }
    if world.clock.now().timestamp() - machine.created.timestamp() < PASSWORD_SECONDS:
        form["default_password"] = facts.setdefault("password", f"v5{uuid.uuid4().hex[:14]}!")
    return form


# ---- its end


def shut_down(world: World, machine: Machine) -> None:
    """Its own system powers it off. It is billed on."""
    with world.lock:
        machine.state = "stopped"
    world.clock.wake()
    world.on_end(machine)


def taken(world: World, machine: Machine) -> None:
    """Vultr takes it away: there is no notice and no word for it, it is just not there any more."""
    with world.lock:
        if machine.ended is not None:
            return
        machine.state, machine.destroyed = "terminated", world.clock.now()
    world.release(machine)


def _end(world: World, machine: Machine) -> None:
    """Billing ends with the call; for some seconds it is shown as it was."""
    began = world.clock.seconds()
    world.release(machine)

    def leave() -> None:
        try:
            world.clock.sleep(LISTED_SECONDS, began)
        except ClockClosed:
            return
        with world.lock:
            machine.state, machine.destroyed = "terminated", world.clock.now()

    threading.Thread(target=leave, name=f"terminate-{machine.name}-{uuid.uuid4().hex[:4]}", daemon=True).start()
