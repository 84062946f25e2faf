# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Vast.ai's API over the sandbox's world: everything under /api/v0, the list of instances and the invoices under /api/v1.

The key is ``world.secrets["VAST_API_KEY"]`` (made up when absent). Not here: templates, volumes, teams, hosting, creation in bulk or without
naming an offer, price increases, serverless. What Vast does not document and we chose: the token and status of a bid too low, the items of
a charge, and the fractions of the boot time in which a new instance has no status, is created, is loading.
"""

from __future__ import annotations

import dataclasses
import re
import typing as t

import flask
from werkzeug.routing import RequestRedirect

from . import vast_life as life
from .vast_account import Account, Switches
from .vast_create import create
from .vast_errors import Refused, body
from .vast_instances import routes as instance_routes
from .vast_list import combinations, listed
from .vast_more import routes as more_routes
from .vast_offers import SCENARIO_KEYS, catalogue, vast_offer, vast_offers
from .vast_search import search
from .world import World
from .wsgi import Service

__all__ = ["SCENARIO_KEYS", "SWITCHES", "app", "catalogue", "set_up", "vast_offer", "vast_offers"]

SWITCHES: dict[str, t.Any] = {field.name: field.default for field in dataclasses.fields(Switches)}
"""Names and defaults of what a scenario can choose; see :class:`vast_account.Switches`."""
_OPEN = re.compile(r"^/(api/v0/(bundles|search/asks|gpu_names/unique)/|logs/)")
# (method, path): endpoint of the pace, right that a key needs
_ENDPOINTS: tuple[tuple[str, str, str, str], ...] = (
    ("POST|PUT", r"/api/v0/(bundles|search/asks)/", "search", "misc"),
    ("GET", r"/api/v1/instances/", "list", "instance_read"),
    ("GET", r"/api/v0/instances/\d+/", "get", "instance_read"),
    ("GET", r"/api/v0/instances/", "", "instance_read"),
    ("PUT", r"/api/v0/asks/", "create", "instance_write"),
    ("DELETE", r"/api/v0/instances/(\d+/)?$", "destroy", "instance_write"),
    ("PUT", r"/api/v0/instances/bid_price/", "bid", "instance_write"),
    ("PUT", r"/api/v0/instances/request_logs/", "", "instance_read"),
    ("PUT", r"/api/v0/instances/", "change", "instance_write"),
    ("POST|DELETE", r"/api/v0/instances/\d+/ssh/", "ssh", "instance_write"),
    ("GET", r"/api/v0/ssh/", "ssh", "user_read"),
    ("POST|PUT|DELETE", r"/api/v0/ssh/", "ssh", "user_write"),
    ("GET", r"/api/v0/secrets/", "variables", "user_read"),
    ("POST|PUT|DELETE", r"/api/v0/secrets/", "variables", "user_write"),
    ("GET", r"/api/v0/users/", "", "user_read"),
    ("GET", r"/api/v[01]/(charges|invoices)/", "", "billing_read"),
)


def set_up(world: World, switches: t.Mapping[str, t.Any]) -> None:
    """Choose how this world's Vast behaves. ValueError names what cannot be."""
    with world.lock:
        Account.of(world).switches.turn(switches)


def app(world: World) -> flask.Flask:
    """The WSGI application."""
    account = Account.of(world)
    with world.lock:
        world.secrets.setdefault("VAST_API_KEY", f"{world.random.getrandbits(256):064x}")
    life.prepare(world)
    service = Service("vast")
    service.json.sort_keys = False  # type: ignore[attr-defined]

    @service.errorhandler(Refused)
    def refuse(error: Refused) -> flask.Response:
        answer = flask.Response(error.text, mimetype="text/plain") if error.text else flask.jsonify(error.body)
        answer.status_code = error.status
        answer.headers.update(error.headers)
        return answer

    @service.errorhandler(404)
    @service.errorhandler(405)
    def unknown(_error: Exception) -> flask.Response:
        return refuse(Refused(404, "not_found", "The requested URL was not found on the server."))

    @service.before_request
    def guard() -> None:
        request = flask.request
        if isinstance(request.routing_exception, RequestRedirect):
            return  # a missing slash: the answer only says where to go
        method, path = request.method, request.path
        if not path.startswith("/api/"):
            return
        said = request.headers.get("Authorization", "")
        _check_key(account, said, world.secrets["VAST_API_KEY"], _OPEN.match(path) is not None)
        endpoint, right = next((row[2:] for row in _ENDPOINTS if method in row[0].split("|") and re.match(row[1], path)), ("", ""))
        _check_rights(account, method, right)
        account.check_pace(world, endpoint, (said or "") + str(request.remote_addr or ""))
        if endpoint == "search":
            account.check_quota(world)
        with world.lock:
            life.settle(world)

    _market_routes(service, world)
    instance_routes(service, world)
    more_routes(service, world)
    return service


def _check_key(account: Account, said: str, key: str, unasked: bool) -> None:
    if said == f"Bearer {key}" or (unasked and not said):
        return
    raise Refused(account.switches.auth_status, "auth_error", "Invalid user key")


def _check_rights(account: Account, method: str, right: str) -> None:
    switches = account.switches
    if right in switches.missing_rights.split():
        raise Refused(403, "invalid_args", f"Your API key lacks the permission {right}.")
    if method != "GET" and right.endswith("_write"):
        if switches.session_expired:
            raise Refused(404, "invalid_args", "Session expired. Please log in with two-factor authentication again.")
        if switches.two_factor:
            refusal = Refused(401, "", "Two Factor Authentication is required for this action.")
            del refusal.body["error"]
            raise refusal


def _market_routes(service: flask.Flask, world: World) -> None:
    @service.post("/api/v0/bundles/")
    def bundles() -> t.Any:
        with world.lock:
            return flask.jsonify({"offers": search(world, body())})

    @service.put("/api/v0/search/asks/")
    def asks() -> t.Any:
        query = body()
        columns = query.get("select_cols", ["*"])
        with world.lock:
            rows = search(world, query.get("q", {}))
        if "*" not in columns:
            rows = [{name: row.get(name) for name in columns} for row in rows]
        return flask.jsonify({"success": True, "offers": rows})

    @service.get("/api/v0/gpu_names/unique/")
    def gpu_names() -> t.Any:
        with world.lock:
            names = sorted({offer.details["row"]["gpu_name"] for offer in world.offers if offer.cloud == "vast"})
        return flask.jsonify({"success": True, "gpu_names": names})

    @service.put("/api/v0/asks/<int:number>/")
    def take(number: int) -> t.Any:
        with world.lock:
            return flask.jsonify(create(world, number, body()))

    @service.get("/api/v1/instances/")
    def instances() -> t.Any:
        with world.lock:
            return flask.jsonify(listed(world, flask.request.args))

    @service.get("/api/v0/instances/")
    def old_list() -> t.Any:
        raise Refused(410, "deprecated_endpoint", "This endpoint is gone. Use GET /api/v1/instances/ instead.")

    @service.get("/api/v0/instances/filters/")
    def filters() -> t.Any:
        with world.lock:
            return flask.jsonify({"success": True, "filters": combinations(world)})
