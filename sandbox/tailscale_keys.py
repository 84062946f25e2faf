# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Credentials and keys of the Tailscale API: access tokens, auth keys, OAuth clients."""

from __future__ import annotations

import re
import typing as t

import flask

from . import tailscale_forms as forms
from .tailnet_records import Key
from .tailscale_access import NO_RIGHT, Actor, Endpoints, Refused, Route

_KEY_SECONDS = 7776000
_CREATE_FIELDS = ("reusable", "ephemeral", "preauthorized", "tags")


class Keys(Endpoints):
    """The token endpoint and everything below /keys."""

    def routes(self) -> t.Iterator[Route]:
        yield "POST", "/oauth/token", self.token
        yield "GET", "/tailnet/<tailnet>/keys", self.keys
        yield "POST", "/tailnet/<tailnet>/keys", self.create_key
        yield "GET", "/tailnet/<tailnet>/keys/<key_id>", self.key
        yield "DELETE", "/tailnet/<tailnet>/keys/<key_id>", self.delete_key

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
        return {
            "access_token": token.secret,
            "token_type": "Bearer",
            "expires_in": seconds,
            "scope": " ".join(sorted(token.scopes)),
        }

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
            raise Refused(403, NO_RIGHT)
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
        body = self.body()
        kind = body.get("keyType", "auth")
        description = str(body.get("description", ""))
        self._check_description(description)
        if kind == "client":
            if not actor.may("oauth_keys"):
                raise Refused(403, NO_RIGHT)
            tags = list(body.get("tags") or [])
            self.permit_tags(actor, tags)
            scopes = list(body.get("scopes") or [])
            made = self.tailnet.create_key("client", seconds=None, description=description, scopes=scopes, tags=tags)
            return forms.key(self.tailnet, made, secret=True)
        create = ((body.get("capabilities") or {}).get("devices") or {}).get("create")
        if not isinstance(create, dict):
            raise (
                Refused(422, "validation failed")
                if self.headscale
                else Refused(400, "exactly one capability scope must be populated")
            )
        if self.headscale and (
            set(_CREATE_FIELDS) != set(create) or set(body) - {"keyType", "capabilities", "expirySeconds", "description"}
        ):
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
