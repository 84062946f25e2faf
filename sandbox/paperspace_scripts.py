# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Startup scripts, the stand-in for user data: account objects whose text nobody ever sees again."""

from __future__ import annotations

import typing as t

import flask

from . import paperspace_forms as forms
from .paperspace_account import Account, Script
from .paperspace_create import find_script
from .paperspace_errors import invalid, refused_with
from .paperspace_power import Power
from .paperspace_requests import Field, checked, content, page
from .world import World

LONGEST = 16 * 1024  # bytes

_NEW: dict[str, Field] = {"name": (str, True), "script": (str, True), "isRunOnce": (bool, False)}
_CHANGES: dict[str, Field] = {"name": (str, False), "script": (str, False), "isRunOnce": (bool, False), "isEnabled": (bool, False)}
_TARGET: dict[str, Field] = {"machineId": (str, True)}


def _fields(allowed: dict[str, Field]) -> dict[str, t.Any]:
    fields = checked(content(), allowed)
    if len(fields.get("script", "").encode()) > LONGEST:
        raise invalid(("script", f"Script must be at most {LONGEST} bytes"))
    return fields


def routes(service: flask.Flask, world: World, account: Account, power: Power) -> None:
    """Add the routes to the application."""

    @service.get("/v1/startup-scripts")
    def list_scripts() -> t.Any:
        name = flask.request.args.get("name")
        with world.lock:
            living = [one for one in account.scripts.values() if one.deleted is None]
            found = [forms.script(one) for one in living if account.switches.named(name, one.name)]
        return page(found, ("dtCreated", "name"))

    @service.post("/v1/startup-scripts")
    def create_script() -> t.Any:
        fields = _fields(_NEW)
        with world.lock:
            identity = account.new_id(world, "sx")
            script = Script(identity, fields["name"], fields["script"], fields.get("isRunOnce", False), world.clock.now())
            account.scripts[identity] = script
            return forms.script(script)

    @service.get("/v1/startup-scripts/<identity>")
    def get_script(identity: str) -> t.Any:
        with world.lock:
            return forms.script(find_script(account, identity))

    @service.put("/v1/startup-scripts/<identity>")
    def change_script(identity: str) -> t.Any:
        fields = _fields(_CHANGES)
        with world.lock:
            script = find_script(account, identity)
            script.name, script.text = fields.get("name", script.name), fields.get("script", script.text)
            script.run_once, script.enabled = fields.get("isRunOnce", script.run_once), fields.get("isEnabled", script.enabled)
            refresh(script.machines)
            return forms.script(script)

    @service.delete("/v1/startup-scripts/<identity>")
    def delete_script(identity: str) -> t.Any:
        with world.lock:
            script = find_script(account, identity)
            if script.machines and account.switches.script_delete_while_assigned:
                raise refused_with(account.switches.script_delete_while_assigned, "The startup script is assigned to machines.")
            orphans, script.machines, script.deleted = script.machines, [], world.clock.now()
            refresh(orphans)
            return forms.script(script)

    @service.post("/v1/startup-scripts/<identity>/<any(assign, unassign):verb>")
    def assign_script(identity: str, verb: str) -> t.Any:
        fields = checked(content(), _TARGET)
        with world.lock:
            script, machine = find_script(account, identity), power.find(fields["machineId"])
            old = account.script_of(machine)
            if verb == "unassign" and old is not script:
                raise refused_with(400, "The startup script is not assigned to this machine.")
            if old is not None:
                old.machines.remove(machine.id)
            if verb == "assign":
                script.machines.append(machine.id)
            refresh([machine.id])
            return forms.script(script)

    def refresh(machine_ids: t.Iterable[str]) -> None:
        """Machines fetch the script when they are up: who still boots gets what is assigned then."""
        for identity in machine_ids:
            power.hand_out(world.machines[identity])
