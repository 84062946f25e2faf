# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paperspace's private networks and static addresses. Both outlive the machines they were made for."""

from __future__ import annotations

import typing as t

import flask

from . import paperspace_forms as forms
from .paperspace_account import Account, Network, StaticIP, machines
from .paperspace_errors import Refused, invalid, missing
from .paperspace_power import Power
from .paperspace_requests import Field, checked, content, page
from .paperspace_types import short_region
from .world import World

_NEW: dict[str, Field] = {"name": (str, True), "region": (str, True), "migrateMachines": (bool, False)}
_RENAME: dict[str, Field] = {"name": (str, True)}


def _region(text: str) -> str:
    region = short_region(text)
    if region is None:
        raise invalid(("region", "Invalid region"))
    return region


def network_routes(service: flask.Flask, world: World, account: Account) -> None:
    """Add the routes of private networks."""

    def find(identity: str) -> Network:
        network = account.networks.get(identity)
        if network is None or network.deleted is not None:
            raise missing("Private network")
        return network

    @service.get("/v1/private-networks")
    def list_networks() -> t.Any:
        name, region = flask.request.args.get("name"), flask.request.args.get("region")
        with world.lock:
            living = [one for one in account.networks.values() if one.deleted is None]
        here = [one for one in living if region is None or short_region(region) == one.region]
        found = [one for one in here if account.switches.named(name, one.name)]
        return page([forms.network(one) for one in found], ("dtCreated", "name"))

    @service.post("/v1/private-networks")
    def create_network() -> t.Any:
        fields = checked(content(), _NEW)
        region = _region(fields["region"])
        with world.lock:
            address = f"10.{64 + len(account.networks) // 250}.{len(account.networks) % 250}.0"
            network = Network(account.new_id(world, "ne"), fields["name"], address, region, world.clock.now())
            account.networks[network.id] = network
            if fields.get("migrateMachines"):
                for machine in machines(world):
                    if machine.offer.region == region:
                        machine.details["network"] = network.id
            return forms.network(network)

    @service.get("/v1/private-networks/<identity>")
    def get_network(identity: str) -> t.Any:
        with world.lock:
            return forms.network(find(identity))

    @service.put("/v1/private-networks/<identity>")
    def rename_network(identity: str) -> t.Any:
        fields = checked(content(), _RENAME)
        with world.lock:
            network = find(identity)
            network.name = fields["name"]
            return forms.network(network)

    @service.delete("/v1/private-networks/<identity>")
    def delete_network(identity: str) -> t.Any:
        with world.lock:
            network = find(identity)
            if any(machine.details["network"] == identity for machine in machines(world)):
                raise Refused("PRECONDITION_FAILED", "The private network cannot be deleted while machines are in it.")
            network.deleted = world.clock.now()
            return {"id": network.id}


def ip_routes(service: flask.Flask, world: World, account: Account, power: Power) -> None:
    """Add the routes of static addresses."""

    def find(address: str) -> StaticIP:
        for one in account.static_ips:
            if one.ip == address and one.released is None:
                return one
        raise missing("Public IP")

    @service.get("/v1/public-ips")
    def list_ips() -> t.Any:
        region = flask.request.args.get("region")
        with world.lock:
            held = [one for one in account.static_ips if one.released is None]
        found = [forms.static_ip(one) for one in held if region is None or short_region(region) == one.region]
        return page(found, ("dtCreated",), tail=False)

    @service.post("/v1/public-ips")
    def claim_ip() -> t.Any:
        fields = checked(content(), {"region": (str, True)})
        with world.lock:
            return forms.static_ip(account.claim_ip(world, _region(fields["region"])))

    @service.put("/v1/public-ips/<address>")
    def assign_ip(address: str) -> t.Any:
        fields = checked(content(), {"machineId": (str, False)})
        with world.lock:
            held = find(address)
            machine = power.find(fields["machineId"]) if "machineId" in fields else None
            if machine is not None and machine.offer.region != held.region:
                raise Refused("BAD_REQUEST", "The public IP is in another region than the machine")
            power.move_ip(held, machine)
            return forms.static_ip(held)

    @service.delete("/v1/public-ips/<address>")
    def release_ip(address: str) -> t.Any:
        with world.lock:
            held = find(address)
            power.move_ip(held, None)
            held.released = world.clock.now()
            return forms.static_ip(held)
