# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lambda Cloud's API 1.10 over the sandbox's world, as its OpenAPI document and recorded answers describe it.

The key is ``world.secrets["LAMBDA_API_KEY"]`` (made up when absent). Not here: tickets, fabric. What Lambda does not document and we
chose: the body of a 429, undocumented fields of launches and rulesets are refused, a terminated machine leaves the list after a minute, a
preempted one after two.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import threading
import typing as t
import uuid
from datetime import timedelta

import flask

from . import lambda_forms as forms
from .clock import ClockClosed
from .lambda_account import Account, Refused, invalid, machines, missing, not_found
from .lambda_audit import record
from .lambda_audit import routes as audit_routes
from .lambda_launch import launch
from .lambda_more import routes as more_routes
from .world import Machine, World
from .wsgi import Service

TERMINATING_SECONDS = 8.0
LISTED_SECONDS = 60.0
_LAUNCH = "/api/v1/instance-operations/launch"
_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")


def app(world: World) -> flask.Flask:
    """The WSGI application."""
    account = Account.of(world)
    with world.lock:
        world.secrets.setdefault("LAMBDA_API_KEY", f"secret_sandbox_{world.random.getrandbits(128):032x}")
    service = Service("lambda")
    service.json.sort_keys = False  # type: ignore[attr-defined]
    world.on_taken["lambda"] = lambda machine: _preempt(world, account, machine)

    @service.errorhandler(Refused)
    def refuse(error: Refused) -> tuple[t.Any, int, dict[str, str]]:
        if error.text is not None:
            return error.text, error.status, {"Content-Type": "text/plain", **error.headers}
        return flask.jsonify(error.body), error.status, error.headers

    @service.errorhandler(404)
    @service.errorhandler(405)
    def unknown(_error: Exception) -> tuple[t.Any, int, dict[str, str]]:
        return refuse(not_found())

    @service.before_request
    def guard() -> None:
        if flask.request.path.startswith("/api/v1/"):
            authorise(flask.request.headers.get("Authorization", ""), world.secrets["LAMBDA_API_KEY"])
            if not account.active:
                raise Refused(403, "global/account-inactive", "Your account is inactive.", "Verify your email and payment method.")
            account.check_pace(world, flask.request.method == "POST" and flask.request.path == _LAUNCH)

    _machine_routes(service, world, account)
    more_routes(service, world, account)
    audit_routes(service, account)
    return service


def authorise(header: str, key: str) -> None:
    """Bearer key, Basic with the key as user name, or the raw key after Basic."""
    scheme, _blank, value = header.partition(" ")
    value = value.strip()
    accepted = scheme.lower() in ("bearer", "basic") and value == key
    if not accepted and scheme.lower() == "basic":
        try:
            accepted = base64.b64decode(value, validate=True).decode() in (f"{key}:", key)
        except (binascii.Error, UnicodeDecodeError, ValueError):
            accepted = False
    if not accepted:
        raise Refused(401, "global/invalid-api-key", "API key was invalid, expired, or deleted.", "Check your API key.")


def body() -> t.Any:
    """The JSON of the request; Lambda does not insist on a content type."""
    try:
        return json.loads(flask.request.get_data() or b"null")
    except ValueError:
        raise invalid("body", "Input should be valid JSON") from None


def data(value: t.Any) -> t.Any:
    return flask.jsonify({"data": value})


def _machine_routes(service: flask.Flask, world: World, account: Account) -> None:
    def find(identity: t.Any) -> Machine:
        if not isinstance(identity, str) or not _ID.fullmatch(identity):
            raise invalid("id", "Input should be a valid UUID")
        machine = world.machines.get(identity.replace("-", ""))
        if machine is None or machine.cloud != "lambda" or machine.destroyed is not None:
            raise missing("instance", identity)
        return machine

    def chosen() -> list[Machine]:
        request = body()
        ids = request.get("instance_ids") if isinstance(request, dict) else None
        if not isinstance(ids, list) or not ids:
            raise invalid("instance_ids", "List should have at least 1 item")
        return [find(identity) for identity in ids]

    def form(machine: Machine) -> dict[str, t.Any]:
        return forms.instance(machine, world.clock.seconds(), account.too_old_after)

    @service.get("/api/v1/instance-types")
    def instance_types() -> t.Any:
        with world.lock:
            return data(forms.instance_types(world))

    @service.get("/api/v1/regions")
    def regions() -> t.Any:
        return data([forms.region(name) for name in forms.LAMBDA_REGIONS])

    @service.get("/api/v1/images")
    def images() -> t.Any:
        return data(forms.images())

    @service.get("/api/v1/instances")
    def instances() -> t.Any:
        with world.lock:
            until = world.clock.now() - timedelta(seconds=account.list_after)  # a moment of ``created`` is rounded as this one is
            return data([form(machine) for machine in machines(world) if machine.created <= until])

    @service.get("/api/v1/instances/<identity>")
    def instance(identity: str) -> t.Any:
        with world.lock:
            return data(form(find(identity)))

    @service.post("/api/v1/instances/<identity>")
    def rename(identity: str) -> t.Any:
        request = body()
        name = request.get("name") if isinstance(request, dict) else None
        if not isinstance(name, str) or len(name) > 64:
            raise invalid("name", "String should have at most 64 characters")
        with world.lock:
            machine = find(identity)
            machine.name = name
            record(world, account, "instance", "updated", machine.id)
            return data(form(machine))

    @service.post(_LAUNCH)
    def launch_one() -> t.Any:
        return data({"instance_ids": [launch(world, account, body())]})

    @service.post("/api/v1/instance-operations/terminate")
    def terminate() -> t.Any:
        with world.lock:
            found = chosen()
        return data({"terminated_instances": [_terminate(world, account, machine, form) for machine in found]})

    @service.post("/api/v1/instance-operations/restart")
    def restart() -> t.Any:
        with world.lock:
            found = chosen()
            if any(machine.state not in ("active", "unhealthy") for machine in found):
                raise Refused(409, "global/conflict", "Another operation is in progress.", "Try again later.")
            for machine in found:
                machine.state = "booting"
                record(world, account, "instance", "restarted", machine.id)
        for machine in found:
            world.on_end(machine)
            world.boot(machine)
        with world.lock:
            return data({"restarted_instances": [form(machine) for machine in found]})


def _preempt(world: World, account: Account, machine: Machine) -> None:
    """Lambda takes the machine back: billing ends, it is seen preempted for a while, then not at all."""
    with world.lock:
        if machine.ended is not None:
            return
        machine.state = "preempted"
        record(world, account, "instance", "preempted", machine.id, by_key=False)
    began, shown = world.clock.seconds(), account.preempted_seconds
    world.release(machine)

    def leave() -> None:
        try:
            world.clock.sleep(shown, began)
        except ClockClosed:
            return
        with world.lock:
            if machine.state == "preempted":  # whoever terminated it meanwhile sees that through
                machine.destroyed = world.clock.now()

    threading.Thread(target=leave, name=f"terminate-{machine.name}-{uuid.uuid4().hex[:4]}", daemon=True).start()


def _terminate(world: World, account: Account, machine: Machine, form: t.Callable[[Machine], t.Any]) -> t.Any:
    """Billing ends with the call; the machine is seen terminating, then terminated, then not at all. Its form is that of the call's moment."""
    with world.lock:
        if machine.state in ("terminating", "terminated"):
            return form(machine)
        machine.state = "terminating"
        record(world, account, "instance", "terminated", machine.id)
        shown = form(machine)
    began = world.clock.seconds()
    world.release(machine)

    def leave() -> None:
        try:
            world.clock.sleep(TERMINATING_SECONDS, began)
            with world.lock:
                machine.state = "terminated"
            world.clock.sleep(TERMINATING_SECONDS + LISTED_SECONDS, began)
            with world.lock:
                machine.destroyed = world.clock.now()
        except ClockClosed:
            return

    threading.Thread(target=leave, name=f"terminate-{machine.name}-{uuid.uuid4().hex[:4]}", daemon=True).start()
    return shown
