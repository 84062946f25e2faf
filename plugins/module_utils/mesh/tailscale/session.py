# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One authorised call to the API, and one sure deletion."""

from __future__ import annotations

import dataclasses
import re
import threading
import typing as t
from datetime import datetime, timedelta

from ...core import errors
from ...core.http import Answer, Api
from ...core.redact import register
from .policy import line_of_owners


class Session:
    """``api`` under one credential. Every refusal gets a cause and a remedy. Safe for use by several threads."""

    def __init__(self, api: Api, credential: Credential) -> None:
        self.api = api
        self.credential = credential

    def bearer(self) -> str:
        """The token for a call; an OAuth client fetches one when it has none."""
        try:
            return self.credential.bearer()
        except errors.ApiError as error:
            explain(error, Attempt(caller=self.credential.name))
            raise

    def call(
        self,
        method: str,
        path: str,
        *,
        scope: str,
        tags: t.Sequence[str] = (),
        headers: t.Mapping[str, str] | None = None,
        **options: t.Any,
    ) -> Answer:
        """One call; ``options`` are those of Api.call, ``scope`` and ``tags`` only make a refusal clearer.

        A 401 with an OAuth token is answered once with a fresh token: nothing was done under the old one.
        """
        token = self.bearer()
        try:
            try:
                return self._send(method, path, token, headers, options)
            except errors.Unauthorized:
                if not self.credential.rejected(token):
                    raise
            return self._send(method, path, self.credential.bearer(), headers, options)
        except errors.ApiError as error:
            explain(error, Attempt(scope, tuple(tags), self.credential.name))
            raise

    def _send(self, method: str, path: str, token: str, headers: t.Mapping[str, str] | None, options: dict[str, t.Any]) -> Answer:
        return self.api.call(method, path, headers={**(headers or {}), "authorization": f"Bearer {token}"}, **options)

    def delete(self, path: str, *, scope: str, there: t.Callable[[], bool]) -> bool:
        """Delete and be sure. True = done now, False = it was gone already.

        A failure of unknown outcome is followed by a look (``there``): the service has been seen to answer 500 for what was deleted
        already, and a slow deletion may be answered 504 after it was done.
        """
        try:
            self.call("DELETE", path, scope=scope, resend_rate_limited=self.api.retry)
            return True
        except errors.NotFound as error:
            if not said_by_service(error):
                raise
            return False
        except (errors.ServerError, errors.LostAnswer) as error:
            if error.status == 501:
                raise
            if not there():
                return True
        try:
            self.call("DELETE", path, scope=scope, idempotent=True)
        except errors.NotFound as error:
            if not said_by_service(error):
                raise
        return True


def said_by_service(error: errors.NotFound) -> bool:
    """True for a "not found" of the API itself; a page of a proxy or of a wrong address has no such body and proves nothing."""
    return isinstance(error.body, dict)


# ---- what the refusals of Tailscale and headscale mean, and what to do about each


@dataclasses.dataclass(frozen=True, slots=True)
class Attempt:
    """What was tried when the refusal came: the scope the call needs, the tags it named and who called."""

    scope: str = ""
    tags: tuple[str, ...] = ()
    caller: str = ""

    def tag_names(self) -> str:
        return ", ".join(self.tags) or "the tag"

    def policy_line(self) -> str:
        return line_of_owners(self.tags or ("tag:gpu",))


# (words of the refusal, cause, what to do); the first that matches counts, the text is a format string over an Attempt
_BY_WORDS: tuple[tuple[str, str, str], ...] = (
    (
        "must have tags set|must create tagged auth keys|key without tags",
        "tag",
        "Give at least one tag: a key made by an OAuth client belongs to no user and must carry tags.",
    ),
    (
        "invalid or not permitted|not defined in policy|may not assign tag|invalid_target",
        "tag",
        "The tailnet policy must define {tags} in tagOwners, owned by a tag that {caller} itself carries, for example {policy}.",
    ),
    (
        "cannot be untagged",
        "tag",
        "A tagged device keeps at least one tag; delete it and let it join anew to change its owner.",
    ),
    (
        "billing plan",
        "plan",
        "The tailnet's plan does not include this; no right or scope will help. See the plan's limits in the admin console.",
    ),
    (
        "does not have enough permissions|missing the required scope|cannot set scopes|insufficient",
        "scope",
        (
            "{caller} needs the scope {scope}. Scopes are fixed when an OAuth client is made: create a new one with auth_keys and "
            "devices:core and a tag. The same refusal comes when the client's own tag is not defined in the policy."
        ),
    ),
    (
        "exactly one capability scope|validation failed|unsupported media",
        "request",
        "The service did not take the request's form; a proxy that rewrites bodies, or a version of the API not known here.",
    ),
    ("description had invalid|description is too long", "request", "The service refused the key's description."),
    (
        "is already taken|not unique",
        "conflict",
        "Another device has the name, or had it until a moment ago; names stay taken for a while after a device is gone.",
    ),
    (
        "outside of your tailnet",
        "external",
        "The device was shared in from another tailnet and belongs to that one; here the share can only be given up.",
    ),
)
_BY_STATUS: dict[int, tuple[str, str]] = {
    401: (
        "auth",
        "The service does not accept {caller}: mistyped, expired or revoked, it does not say which. Make a new credential.",
    ),
    402: ("plan", "The tailnet's plan does not include this."),
    403: ("scope", "{caller} lacks a right for this, probably the scope {scope}."),
    404: (
        "not_found",
        (
            "Check tailscale_api_url and tailscale_tailnet; an OAuth client made a moment ago may be unknown for a minute, and a "
            "missing scope ({scope}) can look like this too."
        ),
    ),
    429: ("rate", "Too many requests for this tailnet; run again in a minute."),
    501: ("unsupported", "The server does not offer this."),
    504: ("unavailable", "The service was too slow; run again, nothing is done twice."),
}


def explain(error: errors.ApiError, attempt: Attempt) -> errors.ApiError:
    """The same error with a cause (details: auth, tag, scope, plan, not_found, rate ...) and a remedy for a person."""
    cause, remedy = _meaning(error)
    if cause:
        error.details["cause"] = cause
        error.remedy = remedy.format(
            tags=attempt.tag_names(),
            caller=attempt.caller or "the credential",
            scope=attempt.scope or "of this call",
            policy=attempt.policy_line(),
        )
    return error


def _meaning(error: errors.ApiError) -> tuple[str, str]:
    if isinstance(error, (errors.Unreachable, errors.LostAnswer, errors.BadShape)):
        return "", ""
    for pattern, cause, remedy in _BY_WORDS:
        if re.search(pattern, error.message):
            return cause, remedy
    status = error.status or 0
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return "unavailable", "The service is in trouble; run again later, nothing is done twice."
    return "", ""


def words(body: t.Any, text: str) -> tuple[str | None, str]:
    """The service's own sentence out of an error answer: ``message``, else OAuth's ``error_description``, ``error``, or plain text;
    the details that policy calls and headscale put under ``data`` are added."""
    if not isinstance(body, dict):
        plain = " ".join(re.sub(r"<[^>]*>", " ", text).split())
        return None, plain[:200]
    sentence = next((str(body[key]) for key in ("message", "error_description", "error", "detail", "title") if body.get(key)), "")
    code = body.get("error") if isinstance(body.get("error"), str) and body.get("error_description") else None
    parts = [sentence]
    for item in body.get("data") or ():
        if isinstance(item, dict):
            parts.extend(str(entry) for entry in item.get("errors") or ())
    return code, "; ".join(part for part in parts if part)


# ---- the two credentials of the API: a token used as it is, and an OAuth client that is exchanged for short-lived tokens

_MARGIN = 60.0  # a token is replaced that many seconds before it ends


class Credential(t.Protocol):
    """``name`` for messages; ``scopes`` the service said it has, None when it did not say; ``client_id`` of an OAuth client.
    ``made_by_tailscale``: its form is that of the public service, whose API there is only one of."""

    name: str
    made_by_tailscale: bool
    scopes: frozenset[str] | None
    client_id: str

    def bearer(self) -> str:
        """The token for the next call."""
        ...

    def rejected(self, token: str) -> bool:
        """The service refused ``token``; True when another one can be had."""
        ...


class ApiToken:
    """An access token of a user."""

    scopes: frozenset[str] | None = None
    client_id = ""

    def __init__(self, token: str) -> None:
        register(token)
        self._token = token
        self.made_by_tailscale = token.startswith("tskey-")
        self.name = "the API token"

    def bearer(self) -> str:
        return self._token

    def rejected(self, token: str) -> bool:
        return False


class OAuthClient:
    """An OAuth client. One token for all threads: whoever finds it missing or near its end fetches, the others wait."""

    def __init__(self, api: Api, client_id: str, client_secret: str) -> None:
        register(client_secret)
        self._api = api
        self.client_id = client_id
        self._secret = client_secret
        self.made_by_tailscale = client_secret.startswith("tskey-")
        self.name = f"OAuth client {client_id}"
        self.scopes: frozenset[str] | None = None
        self._lock = threading.Lock()
        self._token = ""
        self._until: datetime | None = None

    def bearer(self) -> str:
        with self._lock:
            if not self._token or self._until is None or self._api.clock.now() >= self._until:
                self._fetch()
            return self._token

    def rejected(self, token: str) -> bool:
        with self._lock:
            if self._token == token:
                self._token = ""
        return True

    def _fetch(self) -> None:
        operation = "POST /oauth/token"
        form = {"client_id": self.client_id, "client_secret": self._secret, "grant_type": "client_credentials"}
        asked = self._api.clock.now()
        answer = self._api.call("POST", "/oauth/token", data=form, idempotent=True)
        body = self._api.expect(answer.json, dict, operation)
        token = self._api.expect(body.get("access_token"), str, operation, "access_token")
        seconds = body.get("expires_in")
        if not token or isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < 10**8:
            raise self._api.bad_shape(operation, "it carries no token or no sensible expires_in")
        register(token)
        scope = body.get("scope")
        self.scopes = frozenset(scope.split()) if isinstance(scope, str) and scope.strip() else None
        self._token = token
        self._until = asked + timedelta(seconds=max(seconds - _MARGIN, seconds / 2))


def refuse_mixed_up(api_token: str, client_secret: str) -> None:
    """A secret given under the wrong name is refused here, before it is sent anywhere. Raises InvalidInput."""
    if api_token.startswith(("tskey-client-", "hskey-client-")):
        raise errors.InvalidInput(
            "tailscale_api_token holds the secret of an OAuth client, which the API does not accept as a token.",
            remedy="Give it as tailscale_oauth_client_secret (TS_OAUTH_CLIENT_SECRET) with tailscale_oauth_client_id.",
        )
    for option, value in (("tailscale_api_token", api_token), ("tailscale_oauth_client_secret", client_secret)):
        if value.startswith(("tskey-auth-", "hskey-auth-")):
            raise errors.InvalidInput(
                f"{option} holds an auth key, which lets a machine join but gives no access to the API.",
                remedy="Give an OAuth client with scopes auth_keys and devices:core, or an API access token.",
            )
    if client_secret.startswith(("tskey-api-", "hskey-api-")):
        raise errors.InvalidInput(
            "tailscale_oauth_client_secret holds an API access token.", remedy="Give it as tailscale_api_token (TAILSCALE_API_KEY)."
        )
