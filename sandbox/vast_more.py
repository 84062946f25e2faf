# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What surrounds the instances of the sandbox's Vast: the user, SSH keys, environment variables, charges and invoices."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal

import flask

from .vast_account import Account, contracts
from .vast_create import LONGEST_VARIABLE
from .vast_errors import Refused, body, invalid
from .vast_instances import find
from .vast_life import disk_rate
from .world import Machine, World, cost_until

_MOST_CHARGES, _LATE = 500, 300  # rows of a page; seconds until what a machine costs is charged
_KEY_TYPES = ("ssh-rsa ", "ssh-ed25519 ", "ecdsa-sha2-", "sk-ssh-ed25519@", "sk-ecdsa-sha2-")


def routes(service: flask.Flask, world: World) -> None:
    account = Account.of(world)
    _key_routes(service, world, account)
    _variable_routes(service, world, account)

    @service.get("/api/v0/users/current/", strict_slashes=False)
    def user() -> t.Any:
        with world.lock:
            left, keys = account.left(world), account.keys()
        return flask.jsonify(
            {
                "id": 100123,
                "email": "gpu@example.org",
                "username": "gpu",
                "balance": float(min(left, Decimal(0))),
                "credit": float(max(left, Decimal(0))),
                "can_pay": True,
                "has_billing": True,
                "balance_threshold": 5.0,
                "ssh_key": keys[0]["public_key"] if keys else None,
                "sid": "sandbox",
                "key_id": 77,
            }
        )

    @service.get("/api/v0/charges/")
    def charges() -> t.Any:
        filters = _argument("select_filters", {})
        day = filters.get("day") if isinstance(filters, dict) else None
        if not isinstance(day, dict):
            raise Refused(400, "invalid_request", "select_filters must contain day")
        bounds = [day.get("gte", day.get("gt", 0)), day.get("lte", day.get("lt", world.clock.seconds()))]
        if not all(isinstance(one, (int, float)) for one in bounds):
            raise Refused(400, "invalid_request", "select_filters: day must be compared with seconds")
        begin, end = (float(t.cast(float, one)) for one in bounds)
        with world.lock:
            rows = [row for machine in contracts(world) for row in _charges(world, machine, begin, end)]
        return flask.jsonify(_page(rows, _MOST_CHARGES))

    @service.get("/api/v1/invoices/")
    def invoices() -> t.Any:
        paid = float(account.switches.credit)
        row = {"type": "invoice", "source": "invoice-1", "service": "stripe_payments", "description": "credit", "amount": paid}
        return flask.jsonify(_page([{**row, "amount_usd": paid, "end": int(world.clock.seconds()), "items": []}], 100))


def _key_routes(service: flask.Flask, world: World, account: Account) -> None:
    @service.get("/api/v0/ssh/")
    def keys() -> t.Any:
        with world.lock:
            return flask.jsonify(account.keys())

    @service.post("/api/v0/ssh/")
    def add() -> t.Any:
        public = _public_key()
        with world.lock:
            if not account.switches.ssh_key:
                account.ssh_keys.clear()
                account.switches.ssh_key = True
            if any(key["public_key"] == public for key in account.ssh_keys):
                raise invalid("This SSH key exists already.")
            return flask.jsonify({"success": True, "key": account.add_key(public)})

    @service.put("/api/v0/ssh/<int:number>/")
    def replace(number: int) -> t.Any:
        public = _public_key()
        with world.lock:
            _key(account, number)["public_key"] = public
        return flask.jsonify({"success": True})

    @service.delete("/api/v0/ssh/<int:number>/")
    def remove(number: int) -> t.Any:
        with world.lock:
            account.ssh_keys.remove(_key(account, number))
        return flask.jsonify({"success": True})

    @service.get("/api/v0/instances/<int:number>/ssh/")
    def attached(number: int) -> t.Any:
        with world.lock:
            return flask.jsonify({"success": True, "ssh_keys": find(world, number).details["ssh_keys"]})

    @service.post("/api/v0/instances/<int:number>/ssh/")
    def attach(number: int) -> t.Any:
        public = _public_key()
        with world.lock:
            machine = find(world, number)
            if machine.details["system"] == "ubuntu":
                raise invalid("The SSH keys of a virtual machine cannot be changed while it exists.")
            held = machine.details["ssh_keys"]
            held.append({"id": max((key["id"] for key in held), default=900) + 1, "public_key": public})
        return flask.jsonify({"success": True, "msg": "SSH key added to instance."})

    @service.delete("/api/v0/instances/<int:number>/ssh/<int:key_number>/")
    def detach(number: int, key_number: int) -> t.Any:
        with world.lock:
            held = find(world, number).details["ssh_keys"]
            if not any(key["id"] == key_number for key in held):
                raise Refused(404, "not_found", "This instance has no such SSH key.")
            held[:] = [key for key in held if key["id"] != key_number]
        return flask.jsonify({"success": True})


def _variable_routes(service: flask.Flask, world: World, account: Account) -> None:
    """Variables of the account. New instances get them beside their own, which count for more."""

    def wanted(*names: str) -> list[str]:
        found = [body().get(name) for name in names]
        if not all(isinstance(one, str) and len(one) <= LONGEST_VARIABLE for one in found) or not found[0]:
            raise invalid(f"{' and '.join(names)} must be text of at most {LONGEST_VARIABLE} characters")
        return t.cast("list[str]", found)

    def known(name: str) -> None:
        if name not in account.variables:
            raise Refused(404, "not_found", f"There is no environment variable {name}.")

    @service.get("/api/v0/secrets/")
    def variables() -> t.Any:
        with world.lock:
            return flask.jsonify({"success": True, "secrets": account.variables})

    @service.post("/api/v0/secrets/")
    def add_variable() -> t.Any:
        name, value = wanted("key", "value")
        with world.lock:
            if name in account.variables:
                raise invalid(f"The environment variable {name} exists already.")
            account.variables[name] = value
        return flask.jsonify({"success": True, "msg": "Environment variable created."})

    @service.put("/api/v0/secrets/")
    def change_variable() -> t.Any:
        name, value = wanted("key", "value")
        with world.lock:
            known(name)
            account.variables[name] = value
        return flask.jsonify({"success": True, "msg": "Environment variable updated."})

    @service.delete("/api/v0/secrets/")
    def remove_variable() -> t.Any:
        (name,) = wanted("key")
        with world.lock:
            known(name)
            del account.variables[name]
        return flask.jsonify({"success": True, "msg": "Environment variable deleted."})


def _key(account: Account, number: int) -> dict[str, t.Any]:
    for key in account.keys():
        if key["id"] == number:
            return key
    raise Refused(404, "not_found", "There is no such SSH key.")


def _public_key() -> str:
    public = body().get("ssh_key")
    if not isinstance(public, str) or not public.startswith(_KEY_TYPES):
        raise invalid("ssh_key must be an OpenSSH public key")
    return public.strip()


def _argument(name: str, default: t.Any) -> t.Any:
    text = flask.request.args.get(name)
    if not text:
        return default
    try:
        return json.loads(text)
    except ValueError:
        raise Refused(400, "invalid_request", f"{name} is not JSON") from None


def _page(rows: list[dict[str, t.Any]], most: int) -> dict[str, t.Any]:
    """A page of rows; the token is where the next one begins."""
    limit, token = _argument("limit", 20), flask.request.args.get("after_token") or "0"
    if not isinstance(limit, int) or not 1 <= limit <= most:
        raise Refused(400, "invalid_request", f"limit must be 1 to {most}")
    if not token.isdecimal():
        raise Refused(400, "invalid_token", "after_token is not valid")
    begin = int(token)
    if _argument("latest_first", False):
        rows = rows[::-1]
    more = begin + limit < len(rows)
    page = rows[begin : begin + limit]
    return {
        "success": True,
        "count": len(page),
        "total": len(rows),
        "results": page,
        "next_token": str(begin + limit) if more else None,
    }


def _charges(world: World, machine: Machine, begin: float, end: float) -> list[dict[str, t.Any]]:
    """What an instance was billed: a row for each day (UTC) that touches the two moments and in which it cost something. The bill of the last
    minutes is not in it yet. Its traffic is on the last day."""
    now = min(world.clock.now() - timedelta(seconds=_LATE), machine.ended or world.clock.now())
    rows = []
    day = machine.created.replace(hour=0, minute=0, second=0, microsecond=0)
    while day <= now:
        after = day + timedelta(days=1)
        if begin <= day.timestamp() <= end and after > machine.created:
            rows.append(_row(machine, day, min(after, now), last=after > now))
        day = after
    return rows


def _row(machine: Machine, day: datetime, until: datetime, *, last: bool) -> dict[str, t.Any]:
    disk = _disk_until(machine, until) - _disk_until(machine, day)
    sizes = (machine.down_gb, machine.up_gb)
    down, up = (size * price if last else Decimal(0) for size, price in zip(sizes, machine.traffic_prices, strict=True))
    amounts = {"gpu": cost_until(machine, until) - cost_until(machine, day) - disk, "disk": disk, "bwd": down, "bwu": up}
    items: list[dict[str, t.Any]] = [
        {
            "start": 0,
            "end": 0,
            "type": kind,
            "source": None,
            "description": kind,
            "amount": _milli(amount),
            "metadata": {},
            "items": [],
        }
        for kind, amount in amounts.items()
        if amount
    ]
    start = int(day.timestamp())
    return {
        "start": start,
        "end": start,
        "type": "instance",
        "source": f"instance-{machine.id}",
        "description": f"Instance {machine.id} Charges - 1 day",
        "amount": _milli(sum((Decimal(str(item["amount"])) for item in items), Decimal(0))),
        "metadata": {"label": machine.details["label"]},
        "items": items,
    }


def _disk_until(machine: Machine, when: datetime) -> Decimal:
    """Dollars of its disk until a moment: it is billed for as long as the instance exists."""
    if when <= machine.created:
        return Decimal(0)
    spans = dataclasses.replace(machine, ended=min(machine.ended or when, when)).bill(when)
    rate = disk_rate(machine)
    return sum((min(dollars, rate) * Decimal(span.total_seconds()) / 3600 for span, dollars in spans), Decimal(0))


def _milli(amount: Decimal) -> float:
    return float(amount.quantize(Decimal("0.001"), ROUND_HALF_UP))
