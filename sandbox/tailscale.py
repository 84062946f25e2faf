# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Tailscale API, version 2, over the sandbox's tailnet; with the tailnet's profile "headscale" it answers as headscale does.

Credentials come from ``world.secrets`` (TS_OAUTH_CLIENT_ID, TS_OAUTH_CLIENT_SECRET, TAILSCALE_API_KEY); missing ones are made up
and written there. The OAuth client carries tag:tgp and the scopes the collection documents.
"""

from __future__ import annotations

import os
import typing as t

import flask

from . import tailnet_v1
from .tailnet import HEADSCALE, Tailnet
from .tailscale_access import Refused
from .tailscale_devices import Devices
from .tailscale_keys import Keys
from .tailscale_policy import PolicyAndSettings
from .world import World
from .wsgi import Service

CLIENT_SCOPES = ["auth_keys", "devices:core", "devices:posture_attributes:read", "policy_file:read", "feature_settings:read"]
CLIENT_TAGS = ["tag:tgp"]


def app(world: World) -> flask.Flask:
    """The WSGI application."""
    tailnet = world.tailnet
    _credentials(world, tailnet)
    flask_app = Service("tailscale")

    if tailnet.profile == HEADSCALE:
        tailnet_v1.add_to(flask_app, tailnet)

    @flask_app.errorhandler(Refused)
    def refused(error: Refused) -> flask.Response:
        answer = flask.jsonify(error.body)
        answer.status_code = error.status
        if tailnet.profile == HEADSCALE:
            answer.content_type = "application/problem+json"
        return answer

    @flask_app.errorhandler(404)
    def no_route(_error: Exception) -> flask.Response:
        if tailnet.v1_only:  # any path it does not know is the page with its icon
            return flask.Response("<!DOCTYPE html><html></html>", 200, content_type="text/html; charset=utf-8")
        if tailnet.profile == HEADSCALE:
            return flask.Response("404 page not found\n", 404, content_type="text/plain")
        return flask.Response('{"message":"not found"}', 404, content_type="application/json")

    @flask_app.after_request
    def stamp(answer: flask.Response) -> flask.Response:
        if tailnet.profile != HEADSCALE:
            now = tailnet.clock.now()
            number = f"{now:%Y%m%d%H%M%S}{now.microsecond // 1000:03d}{os.urandom(8).hex()}"
            answer.headers["x-tailscale-request-id"] = f"REQ-{number}"
        return answer

    def route(path: str, verb: str, action: t.Callable[..., t.Any]) -> None:
        def view(**arguments: str) -> t.Any:
            with tailnet.lock:
                if arguments.pop("tailnet", "-") not in ("-", tailnet.domain):
                    raise Refused(404, "tailnet not found" if tailnet.profile == HEADSCALE else "not found")
                return action(**arguments)

        flask_app.add_url_rule(f"/api/v2{path}", f"{verb} {path}", view, methods=[verb])

    if tailnet.v1_only:
        return flask_app
    for endpoints in (Keys(tailnet), Devices(tailnet), PolicyAndSettings(tailnet)):
        for verb, path, action in endpoints.routes():
            route(path, verb, action)
    return flask_app


def _credentials(world: World, tailnet: Tailnet) -> None:
    """Credentials of another service's form are replaced: clients tell by the form which service made them."""
    foreign, secrets = ("tskey-" if tailnet.profile == HEADSCALE else "hskey-"), world.secrets
    given = {name: "" if secret.startswith(foreign) else secret for name, secret in secrets.items()}
    with tailnet.lock:
        client = tailnet.by_secret(given.get("TS_OAUTH_CLIENT_SECRET", "")) or tailnet.create_key(
            "client",
            seconds=None,
            key_id=secrets.get("TS_OAUTH_CLIENT_ID", "") if given.get("TS_OAUTH_CLIENT_SECRET") else "",
            secret=given.get("TS_OAUTH_CLIENT_SECRET", ""),
            description="tgp",
            scopes=list(CLIENT_SCOPES),
            tags=list(CLIENT_TAGS),
        )
        token = tailnet.by_secret(given.get("TAILSCALE_API_KEY", "")) or tailnet.create_key(
            "api", seconds=7776000, secret=given.get("TAILSCALE_API_KEY", ""), description="admin", user="u1CNTRL"
        )
    secrets.update(TS_OAUTH_CLIENT_ID=client.id, TS_OAUTH_CLIENT_SECRET=client.secret, TAILSCALE_API_KEY=token.secret)
