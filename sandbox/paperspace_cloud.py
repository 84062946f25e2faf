# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paperspace's API v1 over the sandbox's world, as its published clients and the service's own OpenAPI document describe it.

The key is ``world.secrets["PAPERSPACE_API_KEY"]`` (made up when absent). What is undocumented can be switched, see Switches. Not here:
the API of before July 2024, snapshots, shared drives, accessors, autoscaling groups. What we chose where nobody knows: pages of 25 and at
most 120, the rate of calls, a running machine that is started and a stopped one that is stopped stay as they are.
"""

from __future__ import annotations

import typing as t

import flask

from . import paperspace_firewall as firewall
from . import paperspace_forms as forms
from .paperspace_account import Account, Template
from .paperspace_errors import Refused, missing
from .paperspace_machines import routes as machine_routes
from .paperspace_networks import ip_routes, network_routes
from .paperspace_offers import SCENARIO_KEYS, paperspace_offer
from .paperspace_power import Power
from .paperspace_requests import checked, content, page
from .paperspace_scripts import routes as script_routes
from .world import World
from .wsgi import Service

__all__ = ["SCENARIO_KEYS", "app", "paperspace_offer"]

LONGEST_BODY = 1_000_000  # bytes; the real limit is not published
_SESSION, _HEALTH = "/v1/auth/session", "/v1/health"


def app(world: World) -> flask.Flask:
    """The WSGI application."""
    account = Account.of(world)
    power = Power(world, account)
    world.on_taken["paperspace"] = power.taken
    world.on_shutdown["paperspace"] = power.stop
    with world.lock:
        world.secrets.setdefault("PAPERSPACE_API_KEY", f"sandbox{world.random.getrandbits(128):032x}")
    service = Service("paperspace")
    service.json.sort_keys = False  # type: ignore[attr-defined]

    def authorised() -> bool:
        scheme, _blank, value = flask.request.headers.get("Authorization", "").partition(" ")
        return scheme.lower() == "bearer" and value.strip() == world.secrets["PAPERSPACE_API_KEY"]

    @service.errorhandler(Refused)
    def refuse(error: Refused) -> t.Any:
        status = 200 if account.switches.errors_as_200 else error.status
        return flask.jsonify(error.body), status, error.headers

    @service.errorhandler(404)
    def unknown(_error: Exception) -> t.Any:
        return refuse(Refused("NOT_FOUND", "Not found"))

    @service.errorhandler(405)
    def wrong_method(_error: Exception) -> t.Any:
        return refuse(Refused("METHOD_NOT_SUPPORTED", "Method not supported"))

    @service.before_request
    def guard() -> t.Any:
        path = flask.request.path
        if account.switches.firewall and firewall.looks_hostile(flask.request.get_data()):
            with world.lock:
                return firewall.page(world.random.getrandbits(64))
        if not path.startswith("/v1/") or path == _HEALTH:
            return None
        account.check_pace(world)
        if len(flask.request.get_data()) > LONGEST_BODY:
            raise Refused("PAYLOAD_TOO_LARGE", "Request entity too large")
        if path != _SESSION and not authorised():
            raise Refused("UNAUTHORIZED", "Invalid or missing API key")
        return None

    @service.get(_HEALTH)
    def health() -> t.Any:
        return {"status": "ok"}

    @service.get(_SESSION)
    def session() -> t.Any:
        return flask.jsonify(forms.session(account) if authorised() else None)

    @service.get("/v1/billing/account-standing")
    def standing() -> t.Any:
        return forms.standing(account)

    _template_routes(service, world, account, power)
    machine_routes(service, world, account, power)
    script_routes(service, world, account, power)
    network_routes(service, world, account)
    ip_routes(service, world, account, power)
    return service


def _template_routes(service: flask.Flask, world: World, account: Account, power: Power) -> None:
    @service.get("/v1/os-templates")
    def os_templates() -> t.Any:
        query = flask.request.args
        found = [
            one
            for one in account.templates
            if query.get("name", "") in one["name"]
            and query.get("agentType", one["agentType"]) == one["agentType"]
            and query.get("operatingSystemLabel", one["operatingSystemLabel"]) == one["operatingSystemLabel"]
        ]
        return page(found, ("name",), tail=False)

    def find(identity: str) -> Template:
        found = account.custom.get(identity)
        if found is None or found.deleted is not None:
            raise missing("Template")
        return found

    @service.get("/v1/custom-templates")
    def custom_templates() -> t.Any:
        with world.lock:
            found = [forms.template(one) for one in account.custom.values() if one.deleted is None]
        return page(found, ("dtCreated", "name"))

    @service.post("/v1/custom-templates")
    def make_template() -> t.Any:
        fields = checked(content(), {"machineId": (str, True), "name": (str, True)})
        with world.lock:
            machine = power.find(fields["machineId"])
            made = Template(account.new_id(world, "te"), fields["name"], machine, machine.offer.region, world.clock.now())
            account.custom[made.id] = made
            return {"data": forms.template(made), "event": forms.event(power.note(machine, "template-create"))}

    @service.get("/v1/custom-templates/<identity>")
    def get_template(identity: str) -> t.Any:
        with world.lock:
            return forms.template(find(identity))

    @service.put("/v1/custom-templates/<identity>")
    def rename_template(identity: str) -> t.Any:
        fields = checked(content(), {"name": (str, True)})
        with world.lock:
            found = find(identity)
            found.name = fields["name"]
            return forms.template(found)

    @service.delete("/v1/custom-templates/<identity>")
    def delete_template(identity: str) -> t.Any:
        with world.lock:
            found = find(identity)
            found.deleted = world.clock.now()
            return {"data": forms.template(found), "event": forms.event(power.note(found.parent, "template-delete"))}
