# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who calls the Tailscale API and what that caller may do; what all its endpoints share."""

from __future__ import annotations

import dataclasses
import typing as t

import flask

from .tailnet import HEADSCALE, Tailnet

NO_RIGHT = "calling actor does not have enough permissions to perform this function"
Route = tuple[str, str, t.Callable[..., t.Any]]


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


class Endpoints:
    """Endpoints over one tailnet. The tailnet's lock is held by the caller."""

    def __init__(self, tailnet: Tailnet) -> None:
        self.tailnet = tailnet

    @property
    def headscale(self) -> bool:
        return self.tailnet.profile == HEADSCALE

    def actor(self, *scopes: str) -> Actor:
        """The caller, after checking credential and scopes."""
        secret = _credential()
        token = self.tailnet.token(secret)
        if token is not None:
            actor = Actor(True, token.scopes, token.tags)
        else:
            record = self.tailnet.by_secret(secret) if secret else None
            if record is not None and record.kind == "client":
                raise Refused(403, NO_RIGHT)
            if record is None or record.kind != "api" or record.invalid(self.tailnet.clock.now()):
                raise Refused(401, "unauthorized" if self.headscale else "API token invalid")
            actor = Actor(False, frozenset(), frozenset())
        for scope in scopes:
            if not actor.may(scope):
                raise Refused(403, f"token is missing the required scope {scope}" if self.headscale else NO_RIGHT)
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

    def saas_only(self) -> None:
        if self.headscale:
            flask.abort(404)

    def body(self) -> dict[str, t.Any]:
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
