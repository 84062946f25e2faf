# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The two credentials of the API: a token used as it is, and an OAuth client that is exchanged for short-lived tokens."""

from __future__ import annotations

import threading
import typing as t
from datetime import datetime, timedelta

from ...core import errors
from ...core.http import Api
from ...core.redact import register

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
        what = "POST /oauth/token"
        form = {"client_id": self.client_id, "client_secret": self._secret, "grant_type": "client_credentials"}
        asked = self._api.clock.now()
        answer = self._api.call("POST", "/oauth/token", data=form, idempotent=True)
        body = self._api.expect(answer.json, dict, what)
        token = self._api.expect(body.get("access_token"), str, what, "access_token")
        seconds = body.get("expires_in")
        if not token or isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < 10**8:
            raise self._api.bad_shape(what, "it carries no token or no sensible expires_in")
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
