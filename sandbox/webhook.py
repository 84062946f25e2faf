# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A power service for the world's own machines: POST ``/<machine>/start`` and ``/<machine>/stop``, GET ``/<machine>/status``, and GET
``/status`` for all machines at once.

Switching may be repeated; what is already so answers 409. A start may carry ``{"machineConfig": ...}``, which a boot service would
hand to the machine. A machine with the detail ``status_unknown`` has no status: its GET answers 503, and the list leaves it out. With
``world.secrets["WEBHOOK_AUTH_VALUE"]`` set, every call must carry it in the header Authorization; with ``WEBHOOK_SIGNING_SECRET`` set,
every POST must be signed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import typing as t

import flask

from .world import Machine, World
from .wsgi import Service

_CLOCK_DRIFT = 300.0  # world seconds a signature may be old


def app(world: World) -> flask.Flask:
    """The WSGI application."""
    service = Service("webhook")

    @service.before_request
    def guard() -> t.Any:
        expected = world.secrets.get("WEBHOOK_AUTH_VALUE")
        if expected and not hmac.compare_digest(flask.request.headers.get("Authorization", ""), expected):
            return flask.jsonify({"error": "the Authorization header is missing or wrong"}), 401
        secret = world.secrets.get("WEBHOOK_SIGNING_SECRET")
        if secret and flask.request.method == "POST" and not _signed(world, secret):
            return flask.jsonify({"error": "the signature is missing, old or wrong"}), 403
        return None

    def find(name: str) -> Machine:
        machine = world.machines.get(name)
        if machine is None or machine.cloud != "webhook":
            flask.abort(flask.make_response(flask.jsonify({"error": f"there is no machine {name}"}), 404))
        return machine

    @service.post("/<name>/start")
    def start(name: str) -> t.Any:
        machine, request = find(name), _content()
        config = request.get("machineConfig")
        if config is not None and not isinstance(config, str):
            return flask.jsonify({"error": "machineConfig should be text"}), 400
        changed = world.power_on(machine, config)
        return flask.jsonify({"state": machine.state}), 202 if changed else 409

    @service.post("/<name>/stop")
    def stop(name: str) -> t.Any:
        machine = find(name)
        _content()
        changed = world.power_off(machine, float(machine.offer.details.get("stop_seconds", 0.0)))
        return flask.jsonify({"state": machine.state}), 202 if changed else 409

    @service.get("/<name>/status")
    def status(name: str) -> t.Any:
        machine = find(name)
        if machine.details.get("status_unknown"):
            return flask.jsonify({"error": f"{name} does not answer its management board"}), 503
        return flask.jsonify({"state": _reported(world, machine), "since": (machine.ended or machine.created).isoformat()})

    @service.get("/status")
    def statuses() -> t.Any:
        with world.lock:
            own = [machine for machine in world.machines.values() if machine.cloud == "webhook"]
        machines = [machine for machine in own if not machine.details.get("status_unknown")]
        return flask.jsonify({"machines": [{"name": machine.name, "state": _reported(world, machine)} for machine in machines]})

    return service


def _reported(world: World, machine: Machine) -> str:
    """The state as the service knows it. With ``status_lag`` it knows so many seconds late that a machine was switched, as one does that asks
    whether its system answers."""
    lag = float(machine.offer.details.get("status_lag", 0.0))
    switched = machine.ended or machine.created
    if machine.boots == 0 or (world.clock.now() - switched).total_seconds() >= lag:
        return machine.state
    return "on" if machine.ended else "off"


def _content() -> dict[str, t.Any]:
    """The JSON body, an object; what is none is refused, as is another content type."""
    kind = flask.request.mimetype
    try:
        content = json.loads(flask.request.get_data() or b"{}")
    except ValueError:
        content = None
    if kind != "application/json" or not isinstance(content, dict):
        flask.abort(flask.make_response(flask.jsonify({"error": "the body should be a JSON object"}), 400))
    return content


def _signed(world: World, secret: str) -> bool:
    stamp = flask.request.headers.get("X-Tgp-Timestamp", "")
    if not stamp.isdecimal() or abs(world.clock.seconds() - int(stamp)) > _CLOCK_DRIFT:
        return False
    expected = hmac.new(secret.encode(), stamp.encode() + b"." + flask.request.get_data(), hashlib.sha256).hexdigest()
    return hmac.compare_digest(flask.request.headers.get("X-Tgp-Signature", ""), f"sha256={expected}")
