# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose key file it is, and the access tokens that it gets (RFC 7523: a signed assertion for a bearer token of an hour)."""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import re
import threading
import typing as t
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from ...core import errors, redact
from ...core.http import Api
from ..webhook.machines import is_loopback

if t.TYPE_CHECKING:
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import padding, rsa
else:
    hashes = errors.lazy("cryptography.hazmat.primitives.hashes", "cryptography")
    serialization = errors.lazy("cryptography.hazmat.primitives.serialization", "cryptography")
    padding = errors.lazy("cryptography.hazmat.primitives.asymmetric.padding", "cryptography")
    rsa = errors.lazy("cryptography.hazmat.primitives.asymmetric.rsa", "cryptography")

SCOPE = "https://www.googleapis.com/auth/compute"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_LIFETIME = 3600  # seconds, the longest that is accepted
_MARGIN = 60  # seconds before its end at which a token is not used any more
_NEEDED = ("project_id", "private_key_id", "private_key", "client_email", "token_uri")
_PROJECT = re.compile(r"(?:[a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_FILE = (
    "Give the JSON file that IAM & Admin > Service Accounts > Keys gives, as it is: its text in GCP_SERVICE_ACCOUNT_CONTENTS, or its path in "
    "GCP_SERVICE_ACCOUNT_FILE."
)
_REASONS = (
    (
        re.compile(r"(?i)short-lived|reasonable timeframe"),
        "The clock of this machine is wrong: set it, for example with chrony.",
    ),
    (
        re.compile(r"(?i)signature"),
        "The key was deleted or has expired: make a new key of the service account in the Google Cloud console.",
    ),
    (
        re.compile(r"(?i)account not found|disabled"),
        "The service account was deleted or disabled: look at IAM & Admin > Service Accounts in the Google Cloud console.",
    ),
)


@dataclasses.dataclass(frozen=True)
class ServiceAccount:
    """The parts of a key file that are used."""

    project: str
    email: str
    key_id: str
    token_uri: str
    private_key: str = dataclasses.field(repr=False)


def read_service_account(text: str) -> ServiceAccount:
    """The account of a key file's text. InvalidCredential names what is missing, never what is in it."""
    redact.register(text)
    try:
        content = json.loads(text)
    except ValueError:
        raise _no_key_file("it is not JSON") from None
    if not isinstance(content, dict):
        raise _no_key_file("it is not a JSON object")
    if content.get("type") != "service_account":
        raise _no_key_file("its type is not service_account, so it belongs to a person or to another kind of identity")
    lacking = [name for name in _NEEDED if not isinstance(content.get(name), str) or not content[name].strip()]
    if lacking:
        raise _no_key_file(f"it has no {', '.join(lacking)}")
    redact.register(content["private_key"])
    if not _PROJECT.fullmatch(content["project_id"]):
        raise _no_key_file("its project_id is not the id of a project")
    parts = urlsplit(content["token_uri"])
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise _no_key_file("its token_uri is not an https address")
    _loaded(content["private_key"])
    return ServiceAccount(
        content["project_id"], content["client_email"], content["private_key_id"], content["token_uri"], content["private_key"]
    )


def _no_key_file(why: str) -> errors.InvalidCredential:
    return errors.InvalidCredential(
        f"gcp: the service account's key file cannot be used: {why}.", remedy=_FILE, field="gcp_service_account_contents"
    )


@functools.lru_cache(maxsize=8)
def _loaded(pem: str) -> rsa.RSAPrivateKey:
    """Reading it takes as long as some hundred signatures."""
    try:
        key = serialization.load_pem_private_key(pem.encode(), password=None)
    except (ValueError, TypeError):
        raise _no_key_file("its private_key is not a key in PEM form") from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise _no_key_file("its private_key is not an RSA key")
    return key


def assertion(account: ServiceAccount, now: datetime, scope: str = SCOPE) -> str:
    """What proves to the token endpoint that we have the key. ``scope``: what the token is for."""
    issued = int(now.timestamp())
    header = {"alg": "RS256", "typ": "JWT", "kid": account.key_id}
    claims = {"iss": account.email, "scope": scope, "aud": account.token_uri, "iat": issued, "exp": issued + _LIFETIME}
    signed = b".".join(_encoded(json.dumps(part, separators=(",", ":")).encode()) for part in (header, claims))
    signature = _loaded(account.private_key).sign(signed, padding.PKCS1v15(), hashes.SHA256())
    return b".".join((signed, _encoded(signature))).decode()


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


class AccessTokens:
    """The access token of one account, fetched when there is none that lasts. ``api`` leads to the host of the token endpoint."""

    def __init__(self, account: ServiceAccount, api: Api, scope: str = SCOPE) -> None:
        self._account, self._api, self._scope = account, api, scope
        self._path = urlsplit(account.token_uri).path
        self._guard = threading.Lock()
        self._token = ""
        self._until: datetime | None = None

    def bearer(self) -> str:
        with self._guard:
            if not self._token or self._until is None or self._api.clock.now() >= self._until:
                self._fetch()
            return self._token

    def rejected(self, token: str) -> None:
        """It was answered 401: the next call gets another one."""
        with self._guard:
            if self._token == token:
                self._token = ""

    def _fetch(self) -> None:
        operation, asked = f"POST {self._path}", self._api.clock.now()
        form = {"grant_type": GRANT, "assertion": assertion(self._account, asked, self._scope)}
        redact.register(form["assertion"])
        try:
            answer = self._api.call("POST", self._path, data=form, idempotent=True)
        except errors.ApiError as error:
            raise self._refusal(error) from error
        body = self._api.expect(answer.json, dict, operation)
        token = self._api.expect(body.get("access_token") or None, str, operation, "access_token")
        seconds = body.get("expires_in")
        if isinstance(seconds, bool) or not isinstance(seconds, int) or not 0 < seconds < 10**6:
            raise self._api.bad_shape(operation, "it has no sensible expires_in")
        redact.register(token)
        self._token = token
        self._until = asked + timedelta(seconds=max(seconds - _MARGIN, seconds // 2))

    def _refusal(self, error: errors.ApiError) -> errors.ApiError:
        """A refusal of the endpoint itself says that the key is not accepted; anything else is what it is."""
        body = error.body
        if error.status not in (400, 401, 403) or not isinstance(body, dict) or not isinstance(body.get("error"), str):
            return error
        said = str(body.get("error_description") or body["error"])
        remedy = next((hint for pattern, hint in _REASONS if pattern.search(said)), f"Make a new key of {self._account.email}.")
        return errors.Unauthorized(
            f"gcp: the key of {self._account.email} is not accepted: {redact.redact(said).rstrip('. ')}.",
            remedy=f"{remedy} It is read from GCP_SERVICE_ACCOUNT_CONTENTS, GCP_SERVICE_ACCOUNT_FILE, their options, or credentialsRef.",
            service="gcp",
            status=error.status,
            code=body["error"],
        )
