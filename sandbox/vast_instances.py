# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The calls on single instances of the sandbox's Vast: read, stop, start, label, bid, reboot, logs, destroy."""

from __future__ import annotations

import secrets
import typing as t
from decimal import Decimal

import flask

from . import vast_guest as guest
from . import vast_life as life
from .vast_account import Account
from .vast_errors import Refused, body, invalid, no_such_instance
from .vast_forms import instance
from .world import Machine, World

_LONGEST_LABEL = 1024


def find(world: World, number: int) -> Machine:
    """The living instance. The caller holds the lock."""
    machine = world.machines.get(str(number))
    if machine is None or machine.cloud != "vast" or machine.ended is not None:
        raise no_such_instance(number)
    return machine


def routes(service: flask.Flask, world: World) -> None:
    account = Account.of(world)

    @service.get("/api/v0/instances/<int:number>/")
    def show(number: int) -> t.Any:
        with world.lock:
            known = world.machines.get(str(number))
            if known is not None and known.cloud == "vast" and known.ended is not None and account.switches.gone_as == "null":
                return flask.jsonify({"instances": None})
            return flask.jsonify({"instances": instance(world, find(world, number))})

    @service.put("/api/v0/instances/<int:number>/")
    def change(number: int) -> t.Any:
        with world.lock:
            return flask.jsonify(_change(world, find(world, number), body()))

    @service.put("/api/v0/instances/")
    def change_many() -> t.Any:
        wanted = body()
        with world.lock:
            found = [find(world, number) for number in _numbers(wanted, "ids")]
            answers = [_change(world, machine, wanted) for machine in found]
        return flask.jsonify(next((one for one in answers if not one["success"]), {"success": True}))

    @service.put("/api/v0/instances/bid_price/<int:number>/")
    def bid(number: int) -> t.Any:
        with world.lock:
            return flask.jsonify(_bid(find(world, number), body(), world))

    @service.put("/api/v0/instances/reboot/<int:number>/")
    @service.put("/api/v0/instances/recycle/<int:number>/")
    def reboot(number: int) -> t.Any:
        with world.lock:
            machine = find(world, number)
        life.reboot(world, machine)
        return flask.jsonify({"success": True})

    @service.delete("/api/v0/instances/<int:number>/")
    def destroy(number: int) -> t.Any:
        return flask.jsonify(_destroy(world, account, [number]))

    @service.delete("/api/v0/instances/")
    def destroy_many() -> t.Any:
        return flask.jsonify(_destroy(world, account, _numbers(body(), "instance_ids")))

    @service.put("/api/v0/instances/request_logs/<int:number>/")
    def request_logs(number: int) -> t.Any:
        wanted = body()
        with world.lock:
            text = _log(world, find(world, number), wanted)
            if account.switches.empty_logs > 0:
                account.switches.empty_logs -= 1
                text = ""
            token = secrets.token_hex(16)
            account.logs[token] = (world.clock.seconds() + account.switches.log_seconds, text)
        return flask.jsonify({"success": True, "result_url": f"{flask.request.host_url}logs/{token}.log"})

    @service.get("/logs/<token>.log")
    def fetch_logs(token: str) -> t.Any:
        """A store of files with signed addresses: it wants no other credentials, and knows nothing that was not uploaded yet."""
        if flask.request.headers.get("Authorization"):
            return flask.Response("<Error><Code>InvalidArgument</Code></Error>", 400, mimetype="application/xml")
        ready, text = account.logs.get(token, (float("inf"), ""))
        if world.clock.seconds() < ready:
            status = account.switches.log_missing
            code = "NoSuchKey" if status == 404 else "AccessDenied"
            return flask.Response(f"<Error><Code>{code}</Code></Error>", status, mimetype="application/xml")
        return flask.Response(text, mimetype="text/plain")


def _numbers(wanted: dict[str, t.Any], name: str) -> list[int]:
    found = wanted.get(name)
    if not isinstance(found, list) or not found or not all(isinstance(one, int) for one in found):
        raise invalid(f"{name} must be a list of ids")
    return found


def _change(world: World, machine: Machine, wanted: dict[str, t.Any]) -> dict[str, t.Any]:
    """State and label."""
    state, label = wanted.get("state"), wanted.get("label")
    if state is None and "label" not in wanted:
        raise invalid("nothing to change: give state or label")
    if state not in (None, "running", "stopped"):
        raise invalid("state must be running or stopped")
    if label is not None and (not isinstance(label, str) or len(label) > _LONGEST_LABEL):
        raise invalid(f"label must be text of at most {_LONGEST_LABEL} characters")
    if "label" in wanted:
        machine.details["label"], machine.name = label or None, label or ""
    if state == "stopped":
        life.stop(world, machine, intended="stopped")
    elif state == "running" and not life.start(world, machine):
        return {"success": False, "error": "resources_unavailable", "msg": life.UNAVAILABLE}
    return {"success": True}


def _bid(machine: Machine, wanted: dict[str, t.Any], world: World) -> dict[str, t.Any]:
    if wanted.get("client_id") != "me":
        raise invalid("client_id must be 'me'")
    if machine.details["bid"] is None:
        raise invalid("Instance is not interruptible: it has no bid.")
    price, least = wanted.get("price"), machine.offer.details["min_bid"]
    if price is None:
        chosen = least * Decimal("1.05")
    elif isinstance(price, bool) or not isinstance(price, (int, float)):
        raise invalid("price must be a number")
    else:
        chosen = Decimal(str(price))
    if not Decimal("0.001") <= chosen <= 32 * machine.offer.gpu_count:
        raise invalid("price must be between 0.001 and 32 $/hr per GPU.")
    machine.details["bid"] = chosen
    if machine.state == "active":
        machine.set_rate(world.clock.now(), life.running_rate(machine))
    life.settle(world)
    return {"success": True}


def _destroy(world: World, account: Account, numbers: list[int]) -> dict[str, t.Any]:
    with world.lock:
        try:
            found = [find(world, number) for number in numbers]
        except Refused as refusal:
            if account.switches.gone_twice == "404":
                raise
            return refusal.body
        if account.switches.delete_refusals > 0:
            account.switches.delete_refusals -= 1
            return {"success": False, "error": "try_again", "msg": "The instance is busy. Try again later."}
        if account.switches.delete_lies > 0:
            account.switches.delete_lies -= 1
            return {"success": True}
    for machine in found:
        life.destroy(world, machine)
    return {"success": True}


def _log(world: World, machine: Machine, wanted: dict[str, t.Any]) -> str:
    """The last lines of the console and of the start script, those with the filter in them."""
    try:
        last = int(wanted.get("tail", 1000))
    except (TypeError, ValueError):
        raise invalid("tail must be a number") from None
    if str(wanted.get("daemon_logs", "")).lower() == "true":
        lines = [f"{moment.isoformat()} {step} {text}".rstrip() for moment, step, text in machine.steps]
    else:
        lines = [*machine.console, *guest.printed(world, machine)]
    lines = [line for line in lines if str(wanted.get("filter") or "") in line]
    return "".join(f"{line}\n" for line in lines[-last:])
