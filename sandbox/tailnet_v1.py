# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""headscale's own API, version 1, over the same tailnet: as 0.28 serves it alone, and as 0.30 serves it beside API v2. Its traps are kept:
a key without an end is over at once and any tag will do; in 0.28 expiring an unknown key succeeds, and paths nobody knows are answered
200 with an empty page.
"""

from __future__ import annotations

import http
import typing as t
from datetime import datetime, timezone

import flask

from .tailnet import Tailnet
from .tailnet_policy import Policy, PolicyError
from .tailnet_records import Device, Key

VERSION = {"version": "v0.28.0", "commit": "unknown", "buildTime": "unknown", "dirty": False}
VERSION_WITH_V2 = {"version": "v0.29.1-0.20260721000000-f20f1f100000", "commit": "f20f1f1"}  # as builds of what becomes 0.30 say it
_YEAR_ONE = datetime(1, 1, 1, tzinfo=timezone.utc)
_OWNER = {
    "id": "1",
    "name": "owner",
    "createdAt": "2026-01-01T00:00:00Z",
    "displayName": "",
    "email": "",
    "providerId": "",
    "provider": "",
    "profilePicUrl": "",
}
_TAGGED = {**_OWNER, "id": "2147455555", "name": "tagged-devices"}
_PREFIX = len("hskey-auth-") + 12
_INVALID_ARGUMENT, _NOT_FOUND, _UNKNOWN = 3, 5, 2


class Refused(Exception):
    """An error answer. ``status`` and ``code`` are those of the gateway up to 0.29, ``proper`` the status since then."""

    def __init__(self, status: int, code: int, message: str, proper: int = 0) -> None:
        super().__init__(message)
        self.status, self.code, self.proper = status, code, proper or status


def add_to(flask_app: flask.Flask, tailnet: Tailnet) -> None:
    """Serve the API, /version and /health."""
    api = Api(tailnet)

    @flask_app.errorhandler(Refused)
    def refused(error: Refused) -> t.Any:
        if tailnet.v1_only:
            return {"code": error.code, "message": str(error), "details": []}, error.status
        return problem(error.proper, str(error))

    for verb, path, action in api.routes():

        def view(_action: t.Callable[..., t.Any] = action, **arguments: str) -> t.Any:
            with tailnet.lock:
                if not api.authenticated():
                    if tailnet.v1_only:
                        return flask.Response("Unauthorized", 401, content_type="text/plain; charset=utf-8")
                    return problem(401, "unauthorized")
                return _action(**arguments)

        flask_app.add_url_rule(f"/api/v1{path}", f"{verb} v1 {path}", view, methods=[verb])
    flask_app.add_url_rule("/version", "version", lambda: VERSION if tailnet.v1_only else VERSION_WITH_V2)
    health = {"content-type": "application/health+json; charset=utf-8"}
    flask_app.add_url_rule("/health", "health", lambda: ({"status": "pass"}, health))


def problem(status: int, message: str) -> flask.Response:
    """An error in the form of RFC 7807, as all of headscale's own API answers since 0.30."""
    body = {"title": http.HTTPStatus(status).phrase, "status": status, "detail": message, "errors": [{"message": message}]}
    answer = flask.jsonify(body)
    answer.status_code, answer.content_type = status, "application/problem+json"
    return answer


class Api:
    """The endpoints. The tailnet's lock is held by the caller."""

    def __init__(self, tailnet: Tailnet) -> None:
        self.tailnet = tailnet
        self._users = [dict(_OWNER)]

    def routes(self) -> t.Iterator[tuple[str, str, t.Callable[..., t.Any]]]:
        yield "GET", "/health", lambda: {"databaseConnectivity": True}
        yield "GET", "/user", self.users
        yield "GET", "/preauthkey", self.keys
        yield "POST", "/preauthkey", self.create_key
        yield "DELETE", "/preauthkey", self.delete_key
        yield "POST", "/preauthkey/expire", self.expire_key
        yield "GET", "/node", self.nodes
        yield "GET", "/node/<int:node_id>", lambda node_id: {"node": self._form(self._node(node_id))}
        yield "DELETE", "/node/<int:node_id>", self.delete_node
        yield "POST", "/node/<int:node_id>/expire", self.expire_node
        yield "POST", "/node/<int:node_id>/rename/<name>", self.rename_node
        yield "POST", "/node/<int:node_id>/tags", self.tag_node
        yield "POST", "/node/<int:node_id>/approve_routes", self.approve_routes
        yield "GET", "/policy", lambda: {"policy": self.tailnet.policy.text, "updatedAt": "2026-01-01T00:00:00Z"}
        yield "PUT", "/policy", self.set_policy

    def authenticated(self) -> bool:
        """Bearer and nothing else; only API keys."""
        header = flask.request.headers.get("authorization", "")
        record = self.tailnet.by_secret(header.removeprefix("Bearer ")) if header.startswith("Bearer ") else None
        return record is not None and record.kind == "api" and not record.invalid(self.tailnet.clock.now())

    def users(self) -> t.Any:
        name = flask.request.args.get("name", "")
        return {"users": [user for user in self._users if name in ("", user["name"])]}

    # ---- keys

    def create_key(self) -> t.Any:
        body = self._body()
        tags = list(body.get("aclTags") or [])
        self._check_tags(tags)
        user = str(body.get("user") or "0")
        if user != "0" and user not in [one["id"] for one in self._users]:
            raise Refused(500, _UNKNOWN, "user not found", proper=404)
        if user == "0" and not tags:
            raise Refused(500, _UNKNOWN, "auth-key must be either tagged or owned by user", proper=400)
        key = self.tailnet.create_key(
            "auth",
            seconds=0,
            description="",
            reusable=bool(body.get("reusable")),
            ephemeral=bool(body.get("ephemeral")),
            preauthorized=True,
            tags=tags,
            user="" if user == "0" else user,
        )
        key.expires = _moment(body.get("expiration")) or _YEAR_ONE
        return {"preAuthKey": self._key(key, key.secret)}

    def keys(self) -> t.Any:
        found = [key for key in self.tailnet.keys() if key.kind == "auth"]
        return {"preAuthKeys": [self._key(key, _masked(key)) for key in found]}

    def expire_key(self) -> t.Any:
        key = self.tailnet.key(str(self._body().get("id")))
        if key is not None and key.kind == "auth":
            key.expires = self.tailnet.clock.now()
        elif not self.tailnet.v1_only:
            raise Refused(404, _NOT_FOUND, "auth-key not found: record not found")
        return {}

    def delete_key(self) -> t.Any:
        """The key is forgotten, and with it that the devices which came with it are ephemeral."""
        key_id = flask.request.args.get("id", "")
        if not self.tailnet.delete_key(key_id) and not self.tailnet.v1_only:
            raise Refused(404, _NOT_FOUND, "auth-key not found: record not found")
        for device in self.tailnet.devices():
            if device.key_id == key_id:
                device.key_id, device.ephemeral = "", False
        return {}

    def _key(self, key: Key, text: str) -> dict[str, t.Any]:
        return {
            "user": None if not key.user else self._users[0],
            "id": key.id,
            "key": text,
            "reusable": key.reusable,
            "ephemeral": key.ephemeral,
            "used": key.uses > 0,
            "expiration": _text(key.expires),
            "createdAt": _text(key.created),
            "aclTags": key.tags,
        }

    # ---- nodes

    def _node(self, node_id: int) -> Device:
        found = self.tailnet.device(str(node_id))
        if found is None:
            raise Refused(404, _NOT_FOUND, "node not found")
        return found

    def _form(self, device: Device) -> dict[str, t.Any]:
        key = self.tailnet.key(device.key_id) if self.tailnet.node_keys else None
        return {
            "id": device.node_id,
            "machineKey": device.machine_key,
            "nodeKey": device.node_key,
            "discoKey": "",
            "ipAddresses": device.addresses,
            "name": device.hostname,
            "user": _TAGGED if device.tags else self._users[0],
            "lastSeen": _text(device.last_seen or self.tailnet.clock.now()),
            "expiry": _text(device.expires),
            "preAuthKey": None if key is None else self._key(key, _masked(key)),
            "createdAt": _text(device.created),
            "registerMethod": "REGISTER_METHOD_AUTH_KEY",
            "givenName": device.label,
            "online": device.online,
            "approvedRoutes": device.enabled_routes,
            "availableRoutes": device.advertised_routes,
            "subnetRoutes": device.enabled_routes,
            "tags": device.tags,
        }

    def nodes(self) -> t.Any:
        return {"nodes": [self._form(device) for device in self.tailnet.devices()]}

    def delete_node(self, node_id: int) -> t.Any:
        self.tailnet.leave(self._node(node_id).node_id)
        return {}

    def expire_node(self, node_id: int) -> t.Any:
        device, body = self._node(node_id), self._body()
        device.expires = _moment(body.get("expiry")) or self.tailnet.clock.now()
        if device.expires <= self.tailnet.clock.now():
            self.tailnet.set_online(device.node_id, False)
        return {"node": self._form(device)}

    def rename_node(self, node_id: int, name: str) -> t.Any:
        device = self._node(node_id)
        try:
            self.tailnet.rename(device, name)
        except LookupError:
            raise Refused(500, _UNKNOWN, f"renaming node: name is not unique: {name}", proper=400) from None
        return {"node": self._form(device)}

    def tag_node(self, node_id: int) -> t.Any:
        device, tags = self._node(node_id), list(self._body().get("tags") or [])
        if not tags:
            message = "cannot remove all tags from a node - tagged nodes must have at least one tag"
            raise Refused(400, _INVALID_ARGUMENT, message)
        self._check_tags(tags)
        device.tags = tags
        return {"node": self._form(device)}

    def approve_routes(self, node_id: int) -> t.Any:
        device = self._node(node_id)
        device.enabled_routes = list(self._body().get("routes") or [])
        return {"node": self._form(device)}

    def set_policy(self) -> t.Any:
        try:
            self.tailnet.policy = Policy(str(self._body().get("policy") or ""))
        except PolicyError as error:
            raise Refused(500, _UNKNOWN, f"setting policy: {error}", proper=400) from error
        return {"policy": self.tailnet.policy.text, "updatedAt": _text(self.tailnet.clock.now())}

    @staticmethod
    def _check_tags(tags: t.Sequence[str]) -> None:
        for tag in tags:
            if not tag.startswith("tag:"):
                raise Refused(400, _INVALID_ARGUMENT, "tag must start with the string 'tag:'")
            if tag != tag.lower():
                raise Refused(400, _INVALID_ARGUMENT, "tag should be lowercase")

    @staticmethod
    def _body() -> dict[str, t.Any]:
        """The JSON body, whatever type the request says it has."""
        body = flask.request.get_json(silent=True, force=True) if flask.request.get_data() else {}
        if not isinstance(body, dict):
            raise Refused(400, _INVALID_ARGUMENT, "invalid value for the body")
        return body


def _masked(key: Key) -> str:
    """An auth key without its secret part, which may have hyphens itself."""
    return f"{key.secret[:_PREFIX]}-***"


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment.strftime('%Y').zfill(4)}{moment.strftime('-%m-%dT%H:%M:%S.%fZ')}"


def _moment(value: t.Any) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        raise Refused(400, _INVALID_ARGUMENT, f'invalid google.protobuf.Timestamp value "{value}"') from None
