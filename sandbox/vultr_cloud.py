# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vultr's API v2 over the sandbox's world, as its OpenAPI document and its current clients describe it.

The key is ``world.secrets["VULTR_API_KEY"]`` (made up when absent). Not here: bare metal, ISOs, startup scripts, VPCs, reserved addresses.
What nobody documents and we chose: the texts of a full account and of a plan that is sold out, a ``per_page`` above 500 is refused, a
machine leaves its list four seconds after it was deleted.
"""

from __future__ import annotations

import math
import typing as t
import uuid
from datetime import datetime, timedelta

import flask

from .vultr_account import ACLS, Account, Group, Refused, Snapshot, moment, new_id, page
from .vultr_catalogue import PLANS, REGIONS, SCENARIO_KEYS, plan_form, region_forms, system_forms, vultr_offer
from .vultr_instances import instance_routes, shut_down, taken
from .world import World, cost_until
from .wsgi import Service

__all__ = ["SCENARIO_KEYS", "app", "vultr_offer"]


def app(world: World) -> flask.Flask:
    """The WSGI application."""
    account = Account.of(world)
    if "VULTR_API_KEY" not in world.secrets:
        world.secrets["VULTR_API_KEY"] = f"SANDBOX{uuid.uuid4().hex.upper()}"
    service = Service("vultr")
    service.json.sort_keys = False  # type: ignore[attr-defined]
    world.on_taken["vultr"] = lambda machine: taken(world, machine)
    world.on_shutdown["vultr"] = lambda machine: shut_down(world, machine)

    def authorised() -> bool:
        return flask.request.headers.get("Authorization", "") == f"Bearer {world.secrets['VULTR_API_KEY']}"

    @service.errorhandler(Refused)
    def refuse(error: Refused) -> tuple[t.Any, int, dict[str, str]]:
        return flask.jsonify(error.body), error.status, error.headers

    @service.errorhandler(404)
    def unknown(_error: Exception) -> t.Any:
        return refuse(Refused(404, "Invalid API path."))

    @service.errorhandler(405)
    def wrong_method(_error: Exception) -> t.Any:
        return refuse(Refused(405, "Method not allowed."))

    @service.before_request
    def guard() -> None:
        account.check_pace(world)
        if flask.request.headers.get("Content-Type") != "application/json":
            raise Refused(400, "Invalid Content-Type header. Expected application/json.")
        path = flask.request.path
        if not authorised() and path not in ("/v2/plans", "/v2/regions", "/v2/os") and not path.endswith("/availability"):
            raise Refused(401, "Invalid API token.")
        if authorised() and not account.active and flask.request.method != "GET":
            raise Refused(403, "Your account is not permitted to perform this action.")

    def listed(root: str, entries: t.Sequence[t.Any]) -> t.Any:
        return page(account, root, entries, flask.request.args)

    @service.get("/v2/account")
    def get_account() -> t.Any:
        form = {"name": "Sandbox", "email": "sandbox@example.com", "acls": list(ACLS), "balance": -100.55, "pending_charges": 12.3}
        return {"account": form}

    @service.get("/v2/plans")
    def plans() -> t.Any:
        wanted = flask.request.args.get("type", "all")
        with world.lock:
            offers = [one for one in world.offers if one.cloud == "vultr"]
            names = [name for name, plan in PLANS.items() if wanted in ("all", plan.kind)]
            return listed("plans", [plan_form(name, [one for one in offers if one.type == name]) for name in names])

    @service.get("/v2/regions")
    def regions() -> t.Any:
        return listed("regions", region_forms())

    @service.get("/v2/os")
    def systems() -> t.Any:
        return listed("os", system_forms())

    @service.get("/v2/regions/<region>/availability")
    def availability(region: str) -> t.Any:
        """Without a key it is answered, and empty."""
        if region not in REGIONS:
            raise Refused(404, "Invalid region.")
        if not authorised():
            return {"available_plans": []}
        with world.lock:
            here = [one for one in world.offers if (one.cloud, one.region) == ("vultr", region)]
            return {"available_plans": ["vc2-1c-1gb", *(one.type for one in here if one.stock > 0 or account.lying_stock)]}

    _firewall_routes(service, world, account, listed)
    _snapshot_routes(service, world, account, listed)
    _billing_routes(service, world, listed)
    instance_routes(service, world, account)
    return service


def body() -> dict[str, t.Any]:
    """The JSON object of the request."""
    content = flask.request.get_json(silent=True)
    if not isinstance(content, dict):
        raise Refused(400, "Invalid JSON in request body.")
    return content


def _firewall_routes(
    service: flask.Flask, world: World, account: Account, listed: t.Callable[[str, t.Sequence[t.Any]], t.Any]
) -> None:
    def form(group: Group) -> dict[str, t.Any]:
        created = moment(group.created)
        return {"id": group.id, "description": group.description, "date_created": created, "rule_count": len(group.rules)}

    def get(identity: str) -> Group:
        if identity not in account.groups:
            raise Refused(404, "Not found.")
        return account.groups[identity]

    @service.get("/v2/firewalls")
    def groups() -> t.Any:
        with world.lock:
            return listed("firewall_groups", [form(one) for one in account.groups.values()])

    @service.post("/v2/firewalls")
    def make_group() -> t.Any:
        description = body().get("description", "")
        with world.lock:
            made = Group(new_id(world), str(description), world.clock.now())
            account.groups[made.id] = made
            return {"firewall_group": form(made)}, 201

    @service.get("/v2/firewalls/<identity>")
    def group(identity: str) -> t.Any:
        with world.lock:
            return {"firewall_group": form(get(identity))}

    @service.get("/v2/firewalls/<identity>/rules")
    def rules(identity: str) -> t.Any:
        with world.lock:
            return listed("firewall_rules", get(identity).rules)

    @service.delete("/v2/firewalls/<identity>")
    def delete_group(identity: str) -> t.Any:
        with world.lock:
            get(identity)
            if any(one.details.get("group") == identity and one.destroyed is None for one in world.machines.values()):
                raise Refused(400, "Unable to delete firewall group: it is attached to instances.")
            del account.groups[identity]
        return "", 204


def _snapshot_routes(
    service: flask.Flask, world: World, account: Account, listed: t.Callable[[str, t.Sequence[t.Any]], t.Any]
) -> None:
    def form(found: Snapshot) -> dict[str, t.Any]:
        state = account.snapshot_state(found, world.clock.seconds())
        size = 8 * 1024**3 if state == "complete" else 0
        shown = {"id": found.id, "date_created": moment(found.created), "description": found.description, "size": size}
        return {**shown, "compressed_size": size // 8, "status": state, "os_id": 164, "app_id": 0}

    def living() -> list[Snapshot]:
        return [one for one in account.snapshots.values() if account.snapshot_state(one, world.clock.seconds())]

    def get(identity: str) -> Snapshot:
        for one in living():
            if one.id == identity:
                return one
        raise Refused(404, "Not found.")

    @service.get("/v2/snapshots")
    def snapshots() -> t.Any:
        wanted = flask.request.args.get("description")
        with world.lock:
            since = world.clock.seconds() - account.list_after
            shown = [one for one in living() if one.created.timestamp() <= since]
            return listed("snapshots", [form(one) for one in shown if wanted in (None, one.description)])

    @service.post("/v2/snapshots/create-from-url")
    def import_snapshot() -> t.Any:
        content = body()
        if not isinstance(content.get("url"), str) or not content["url"].startswith("http"):
            raise Refused(400, "Invalid url.")
        with world.lock:
            if len(living()) >= account.snapshot_quota:
                raise Refused(400, "You have reached the maximum number of snapshots for this account.")
            ready = world.clock.seconds() + (math.inf if account.stuck_imports else account.import_seconds)
            fails, account.failing_imports = account.failing_imports > 0, max(0, account.failing_imports - 1)
            made = Snapshot(new_id(world), str(content.get("description", "")), content["url"], ready, world.clock.now(), fails)
            account.snapshots[made.id] = made
            return {"snapshot": {**form(made), "status": "pending"}}, 202

    @service.get("/v2/snapshots/<identity>")
    def snapshot(identity: str) -> t.Any:
        with world.lock:
            return {"snapshot": form(get(identity))}

    @service.delete("/v2/snapshots/<identity>")
    def delete_snapshot(identity: str) -> t.Any:
        with world.lock:
            del account.snapshots[get(identity).id]
        return "", 204


# ---- bills: the running month is pending, each month before has an invoice. An entry names a machine by its label, not by its id


def _billing_routes(service: flask.Flask, world: World, listed: t.Callable[[str, t.Sequence[t.Any]], t.Any]) -> None:
    def months() -> list[datetime]:
        """The first moments of all months with a machine, oldest first, and that of the running month."""
        made = [one.created for one in world.machines.values() if one.cloud == "vultr"]
        month, found = _month(min([*made, world.clock.now()])), list[datetime]()
        while month <= world.clock.now():
            found.append(month)
            month = _month(month + timedelta(days=32))
        return found

    @service.get("/v2/billing/pending-charges")
    def pending() -> t.Any:
        with world.lock:
            return {"pending_charges": _entries(world, months()[-1])}

    @service.get("/v2/billing/invoices")
    def invoices() -> t.Any:
        with world.lock:
            forms = [
                {
                    "id": number,
                    "date": moment(_month(month + timedelta(days=32))),
                    "description": f"Invoice #{number}",
                    "amount": sum(entry["total"] for entry in _entries(world, month)),
                    "balance": 0,
                }
                for number, month in enumerate(months()[:-1], 1)
            ]
            return listed("billing_invoices", forms)

    @service.get("/v2/billing/invoices/<int:number>/items")
    def items(number: int) -> t.Any:
        with world.lock:
            past = months()[:-1]
            if not 1 <= number <= len(past):
                raise Refused(404, "Invoice not found.")
            return listed("invoice_items", _entries(world, past[number - 1]))


def _month(moment: datetime) -> datetime:
    return moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def _entries(world: World, month: datetime) -> list[dict[str, t.Any]]:
    """What each machine cost in a month."""
    found, now = [], world.clock.now()
    after = min(_month(month + timedelta(days=32)), now)
    for machine in (one for one in world.machines.values() if one.cloud == "vultr"):
        total = cost_until(machine, after) - cost_until(machine, month)
        if total:
            price = machine.price_hour
            times = {"start_date": moment(max(machine.created, month)), "end_date": moment(min(machine.ended or now, after))}
            what = {"description": f"{machine.name} ({machine.offer.type})", "product": "Cloud GPU"}
            units = {"units": math.ceil(total / price), "unit_type": "hours", "unit_price": float(price), "total": float(total)}
            found.append({**what, **times, **units})
    return found
