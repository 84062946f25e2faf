# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Tailscale API, version 2, over the sandbox's tailnet; with the tailnet's profile "headscale" it answers as headscale does.

Credentials come from ``world.secrets`` (TS_OAUTH_CLIENT_ID, TS_OAUTH_CLIENT_SECRET, TAILSCALE_API_KEY); missing ones are made up and
written there. The OAuth client carries tag:tgp and the scopes the collection documents.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import re
import typing as t

import flask

from . import tailscale_forms as forms
from .tailnet import HEADSCALE, Device, Key, Tailnet
from .tailnet_policy import Policy, PolicyError, parse
from .world import World

CLIENT_SCOPES = ["auth_keys", "devices:core", "devices:posture_attributes:read", "policy_file:read", "feature_settings:read"]
CLIENT_TAGS = ["tag:tgp"]
_NO_RIGHT = "calling actor does not have enough permissions to perform this function"
_KEY_SECONDS = 7776000
_CREATE_FIELDS = ("reusable", "ephemeral", "preauthorized", "tags")


class Refused(Exception):
    """An error answer."""

    def __init__(self, status: int, message: str, **extra: t.Any) -> None:
        super().__init__(message)
        self.status, self.body = status, {"message": message, **extra}


@dataclasses.dataclass(frozen=True)
class Actor:
    """Who calls. ``oauth`` False = a user's API token, which may do everything."""

    oauth: bool
    scopes: frozenset[str]
    tags: frozenset[str]

    def may(self, scope: str) -> bool:
        base = scope.removesuffix(":read")
        held = {"all", base} | ({"all:read", scope} if scope.endswith(":read") else set())
        return not self.oauth or bool(held & self.scopes)


def app(world: World) -> flask.Flask:
    """The WSGI application."""
    tailnet = Tailnet.of(world)
    _credentials(world, tailnet)
    service = _Service(tailnet)
    flask_app = flask.Flask("tailscale")

    @flask_app.errorhandler(Refused)
    def refused(error: Refused) -> flask.Response:
        answer = flask.jsonify(error.body)
        answer.status_code = error.status
        if tailnet.profile == HEADSCALE:
            answer.content_type = "application/problem+json"
        return answer

    @flask_app.errorhandler(404)
    def no_route(_error: Exception) -> flask.Response:
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

    for verb, path, action in service.routes():
        route(path, verb, action)
    return flask_app


def _credentials(world: World, tailnet: Tailnet) -> None:
    secrets = world.secrets
    with tailnet.lock:
        client = tailnet.by_secret(secrets.get("TS_OAUTH_CLIENT_SECRET", "")) or tailnet.create_key(
            "client",
            seconds=None,
            key_id=secrets.get("TS_OAUTH_CLIENT_ID", ""),
            secret=secrets.get("TS_OAUTH_CLIENT_SECRET", ""),
            description="tgp",
            scopes=list(CLIENT_SCOPES),
            tags=list(CLIENT_TAGS),
        )
        token = tailnet.by_secret(secrets.get("TAILSCALE_API_KEY", "")) or tailnet.create_key(
            "api", seconds=7776000, secret=secrets.get("TAILSCALE_API_KEY", ""), description="admin", user="u1CNTRL"
        )
    secrets.update(TS_OAUTH_CLIENT_ID=client.id, TS_OAUTH_CLIENT_SECRET=client.secret, TAILSCALE_API_KEY=token.secret)


class _Service:
    """Every endpoint as a method; the tailnet's lock is held by the caller."""

    def __init__(self, tailnet: Tailnet) -> None:
        self.tailnet = tailnet

    @property
    def headscale(self) -> bool:
        return self.tailnet.profile == HEADSCALE

    def routes(self) -> t.Iterator[tuple[str, str, t.Callable[..., t.Any]]]:
        yield "POST", "/oauth/token", self.token
        yield "GET", "/tailnet/<tailnet>/keys", self.keys
        yield "POST", "/tailnet/<tailnet>/keys", self.create_key
        yield "GET", "/tailnet/<tailnet>/keys/<key_id>", self.key
        yield "DELETE", "/tailnet/<tailnet>/keys/<key_id>", self.delete_key
        yield "GET", "/tailnet/<tailnet>/devices", self.devices
        yield "GET", "/device/<device_id>", self.device
        yield "DELETE", "/device/<device_id>", self.delete_device
        yield "GET", "/device/<device_id>/routes", self.routes_of
        for name in ("authorized", "tags", "key", "expire", "name", "ip", "routes"):
            yield "POST", f"/device/<device_id>/{name}", getattr(self, f"set_{name}")
        yield "GET", "/tailnet/<tailnet>/acl", self.acl
        yield "POST", "/tailnet/<tailnet>/acl", self.set_acl
        yield "POST", "/tailnet/<tailnet>/acl/validate", self.validate
        yield "GET", "/tailnet/<tailnet>/settings", self.settings
        yield "PATCH", "/tailnet/<tailnet>/settings", self.change_settings

    # ---- who may

    def actor(self, *scopes: str) -> Actor:
        """The caller, after checking credential and scopes."""
        secret = _credential()
        token = self.tailnet.token(secret)
        if token is not None:
            actor = Actor(True, token.scopes, token.tags)
        else:
            record = self.tailnet.by_secret(secret) if secret else None
            if record is not None and record.kind == "client":
                raise Refused(403, _NO_RIGHT)
            if record is None or record.kind != "api" or record.invalid(self.tailnet.clock.now()):
                raise Refused(401, "unauthorized" if self.headscale else "API token invalid")
            actor = Actor(False, frozenset(), frozenset())
        for scope in scopes:
            if not actor.may(scope):
                raise Refused(403, f"token is missing the required scope {scope}" if self.headscale else _NO_RIGHT)
        return actor

    def permit_tags(self, actor: Actor, tags: t.Sequence[str]) -> None:
        """Refuse tags that the caller may not hand out."""
        policy = self.tailnet.policy
        if not self.headscale:
            if not all(policy.assignable(tag, actor.tags) if actor.oauth else policy.defined(tag) for tag in tags):
                raise Refused(400, f"requested tags [{' '.join(tags)}] are invalid or not permitted")
            return
        for tag in tags if actor.oauth else ():
            if not policy.defined(tag):
                raise Refused(400, f"tag {tag} is not defined in policy")
            if not policy.assignable(tag, actor.tags):
                raise Refused(403, f"token may not assign tag {tag}")

    # ---- credentials

    def token(self) -> t.Any:
        form, basic = flask.request.form, flask.request.authorization
        client_id, secret = form.get("client_id", ""), form.get("client_secret", "")
        if not client_id and basic is not None and basic.type == "basic":
            client_id, secret = basic.username or "", basic.password or ""
        client = self.tailnet.by_secret(secret) if secret else None
        if client is None or client.kind != "client" or client.id != client_id or client.revoked is not None:
            if self.headscale:
                text = "invalid client credentials" if secret else "missing client credentials"
                return {"error": "invalid_client", "error_description": text}, 401
            raise Refused(401, "API token invalid")
        if form.get("grant_type", "client_credentials") != "client_credentials":
            return {"error": "unsupported_grant_type"}, 400
        scopes = form.get("scope", "").split() or client.scopes
        whole = Actor(True, frozenset(client.scopes), frozenset(client.tags))
        if not all(whole.may(scope) for scope in scopes):
            return {"error": "invalid_scope", "error_description": "scope exceeds the client's"}, 400
        tags = form.get("tags", "").split() or client.tags
        if not all(tag in client.tags or self.tailnet.policy.assignable(tag, client.tags) for tag in tags):
            return {"error": "invalid_target", "error_description": "tag not permitted"}, 400
        token = self.tailnet.mint(client, scopes, tags)
        seconds = int(self.tailnet.token_seconds)
        return {"access_token": token.secret, "token_type": "Bearer", "expires_in": seconds, "scope": " ".join(sorted(token.scopes))}

    # ---- keys

    def keys(self) -> t.Any:
        actor = self.actor("auth_keys:read")
        every = flask.request.args.get("all") == "true"
        listed = self.tailnet.keys()
        shown = [key for key in listed if key.kind == "auth" or (every and not actor.oauth)]
        if self.tailnet.short_key_list:
            return {"keys": [{"id": key.id} for key in shown]}
        return {"keys": [forms.key(self.tailnet, key) for key in shown]}

    def key(self, key_id: str) -> t.Any:
        actor = self.actor("auth_keys:read")
        record = self._key(key_id)
        if record.kind != "auth" and not actor.may("oauth_keys:read"):
            raise Refused(403, _NO_RIGHT)
        return forms.key(self.tailnet, record)

    def _key(self, key_id: str) -> Key:
        record = self.tailnet.key(key_id)
        if record is None:
            raise Refused(404, "auth-key not found" if self.headscale else "not found")
        return record

    def delete_key(self, key_id: str) -> t.Any:
        self.actor("auth_keys")
        if not self.tailnet.delete_key(key_id):
            data = [{"errors": ["auth-key not found: record not found"]}]
            raise Refused(404, "revoking auth key", data=data) if self.headscale else Refused(404, "not found")
        return {}

    def create_key(self) -> t.Any:
        actor = self.actor("auth_keys")
        body = self._body()
        kind = body.get("keyType", "auth")
        description = str(body.get("description", ""))
        self._check_description(description)
        if kind == "client":
            if not actor.may("oauth_keys"):
                raise Refused(403, _NO_RIGHT)
            tags = list(body.get("tags") or [])
            self.permit_tags(actor, tags)
            scopes = list(body.get("scopes") or [])
            made = self.tailnet.create_key("client", seconds=None, description=description, scopes=scopes, tags=tags)
            return forms.key(self.tailnet, made, secret=True)
        create = ((body.get("capabilities") or {}).get("devices") or {}).get("create")
        if not isinstance(create, dict):
            raise Refused(422, "validation failed") if self.headscale else Refused(400, "exactly one capability scope must be populated")
        if self.headscale and (set(_CREATE_FIELDS) != set(create) or set(body) - {"keyType", "capabilities", "expirySeconds", "description"}):
            raise Refused(422, "validation failed")
        tags = list(create.get("tags") or [])
        if actor.oauth and not tags:
            if self.headscale:
                raise Refused(403, "an OAuth client must create tagged auth keys")
            raise Refused(400, "tailnet-owned auth key must have tags set")
        self.permit_tags(actor, tags)
        made = self.tailnet.create_key(
            "auth",
            seconds=body.get("expirySeconds") or _KEY_SECONDS,
            description=description,
            reusable=bool(create.get("reusable")),
            ephemeral=bool(create.get("ephemeral")),
            preauthorized=self.headscale or bool(create.get("preauthorized")),
            tags=tags,
            user="" if actor.oauth else "u1CNTRL",
        )
        return forms.key(self.tailnet, made, secret=True)

    def _check_description(self, text: str) -> None:
        if len(text) > 50:
            raise Refused(422, "validation failed") if self.headscale else Refused(400, "keys: description is too long")
        if not self.headscale and re.search(r"[^A-Za-z0-9 -]", text):
            raise Refused(400, "keys: description had invalid characters")

    # ---- devices

    def devices(self) -> t.Any:
        actor = self.actor("devices:core:read")
        everything = flask.request.args.get("fields") == "all"
        found = self.tailnet.devices()
        if everything and not self.headscale and any(device.external for device in found):
            raise Refused(404, "not found")
        shown = [forms.device(self.tailnet, device, everything) for device in found if not (actor.oauth and device.external)]
        if not self.headscale:
            shown = [form for form in shown if _matches(form)]
        return {"devices": shown}

    def _device(self, device_id: str) -> Device:
        found = self.tailnet.device(device_id)
        if found is None:
            raise Refused(404, "device not found" if self.headscale else "not found")
        return found

    def device(self, device_id: str) -> t.Any:
        self.actor("devices:core:read")
        return forms.device(self.tailnet, self._device(device_id), flask.request.args.get("fields") == "all")

    def delete_device(self, device_id: str) -> t.Any:
        self.actor("devices:core")
        if self._device(device_id).external:
            raise Refused(501, "cannot delete devices outside of your tailnet")
        self.tailnet.leave(device_id)
        return flask.Response("", 200)

    def set_authorized(self, device_id: str) -> t.Any:
        self.actor("devices:core")
        device, wanted = self._device(device_id), bool(self._body().get("authorized"))
        if self.headscale and not wanted:
            raise Refused(400, "Headscale does not support de-authorizing a device; delete it instead")
        device.authorized = wanted
        return {}

    def set_tags(self, device_id: str) -> t.Any:
        actor = self.actor("devices:core")
        device, tags = self._device(device_id), list(self._body().get("tags") or [])
        if not tags and not self.headscale:
            raise Refused(400, "tagged nodes cannot be untagged without reauth")
        self.permit_tags(actor, tags)
        device.tags = tags or device.tags
        return {}

    def set_key(self, device_id: str) -> t.Any:
        self.actor("devices:core")
        device, wanted = self._device(device_id), bool(self._body().get("keyExpiryDisabled"))
        device.key_expiry_disabled = wanted or (self.headscale and device.key_expiry_disabled)
        return {}

    def set_expire(self, device_id: str) -> t.Any:
        self._saas_only()
        self.actor("devices:core")
        device = self._device(device_id)
        device.expires, device.key_expiry_disabled = self.tailnet.clock.now(), False
        self.tailnet.set_online(device.node_id, False)
        return {}

    def set_name(self, device_id: str) -> t.Any:
        self.actor("devices:core")
        device, name = self._device(device_id), str(self._body().get("name", ""))
        try:
            self.tailnet.rename(device, name)
        except LookupError:
            if self.headscale:
                raise Refused(400, "renaming device", data=[{"errors": [f"node name is not unique: {name}"]}]) from None
            raise Refused(400, f'name "{name}" is already taken') from None
        return {}

    def set_ip(self, device_id: str) -> t.Any:
        self._saas_only()
        self.actor("devices:core")
        device, address = self._device(device_id), str(self._body().get("ipv4", ""))
        if any(other.ipv4 == address and other is not device for other in self.tailnet.devices()):
            raise Refused(400, f"address {address} is already in use")
        device.ipv4 = address
        return {}

    def routes_of(self, device_id: str) -> t.Any:
        self.actor("devices:routes:read")
        return self._routes(self._device(device_id))

    def set_routes(self, device_id: str) -> t.Any:
        self.actor("devices:routes")
        device = self._device(device_id)
        device.enabled_routes = list(self._body().get("routes") or [])
        return self._routes(device)

    @staticmethod
    def _routes(device: Device) -> dict[str, t.Any]:
        return {"advertisedRoutes": device.advertised_routes, "enabledRoutes": device.enabled_routes}

    # ---- policy and settings

    def _may_read_policy(self) -> None:
        also = () if self.headscale else ("devices:core:read", "devices:posture_attributes:read")
        self.actor("policy_file:read", *also)

    def acl(self) -> t.Any:
        self._may_read_policy()
        policy = self.tailnet.policy
        accept = flask.request.headers.get("accept", "")
        if flask.request.args.get("details") == "true" and not self.headscale:
            encoded = base64.b64encode(policy.text.encode()).decode()
            return {"acl": encoded, "warnings": [], "errors": None}
        if self.headscale:
            text, kind = policy.text, "application/json"
        elif "application/json" in accept:
            text, kind = json.dumps(policy.content), "application/json"
        else:
            text, kind = policy.text, "application/hujson"
        return flask.Response(text, content_type=kind, headers={"ETag": policy.etag})

    def set_acl(self) -> t.Any:
        self.actor("policy_file")
        wanted = flask.request.headers.get("if-match", "")
        if wanted and wanted not in (self.tailnet.policy.etag, '"ts-default"'):
            raise Refused(412, "precondition failed, invalid old hash")
        try:
            self.tailnet.policy = Policy(flask.request.get_data(as_text=True))
        except PolicyError as error:
            raise Refused(400, f"cannot parse policy: {error}") from error
        return self.acl()

    def validate(self) -> t.Any:
        self._saas_only()
        self._may_read_policy()
        text = flask.request.get_data(as_text=True)
        try:
            body = parse(text)
            policy = self.tailnet.policy if isinstance(body, list) else Policy(text)
        except PolicyError as error:
            raise Refused(400, f"cannot parse policy: {error}") from error
        tests = body if isinstance(body, list) else policy.content.get("tests") or []
        if unknown := policy.undefined_tags():
            return {"message": f'tag not found: "{unknown[0]}"'}
        if failed := policy.failures(tests):
            return {"message": "test(s) failed", "data": failed}
        return flask.Response("", 200)

    def settings(self) -> t.Any:
        self.actor("feature_settings:read")
        return dict(self.tailnet.settings)

    def change_settings(self) -> t.Any:
        self.actor("feature_settings")
        if self.headscale:
            raise Refused(501, "not implemented")
        self.tailnet.settings.update(self._body())
        return dict(self.tailnet.settings)

    # ---- reading requests

    def _saas_only(self) -> None:
        if self.headscale:
            flask.abort(404)

    def _body(self) -> dict[str, t.Any]:
        """The JSON body. A body of another type counts as absent (headscale says 415)."""
        if not flask.request.is_json:
            if self.headscale and flask.request.get_data():
                raise Refused(415, "unsupported media type")
            return {}
        body = flask.request.get_json(silent=True)
        if not isinstance(body, dict):
            raise Refused(400, "invalid JSON body")
        return body


def _credential() -> str:
    """The token of the Authorization header: Bearer, or Basic with the token as user name."""
    header = flask.request.headers.get("authorization", "")
    if header.lower().startswith("bearer "):
        return header[7:].strip()
    basic = flask.request.authorization
    return (basic.username or "") if basic is not None and basic.type == "basic" else ""


def _matches(form: t.Mapping[str, t.Any]) -> bool:
    """The request's filters: ``field=value``, exact, all must hold."""
    for name, value in flask.request.args.items(multi=True):
        if name == "fields":
            continue
        have = form.get(name)
        if isinstance(have, list):
            if value not in have:
                return False
        elif (str(have).lower() if isinstance(have, bool) else str(have or "")) != value:
            return False
    return True
