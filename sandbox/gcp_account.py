# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a project of the sandbox's Google Cloud holds besides machines, who may call it, and what a scenario can choose of its behaviour."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import json
import secrets
import threading
import typing as t
from datetime import datetime, timedelta, timezone

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from .lambda_account import Rate
from .world import Machine, World

PROJECT, EMAIL = "tgp-sandbox", "tgp-gpu@tgp-sandbox.iam.gserviceaccount.com"
SECRET = "GCP_SERVICE_ACCOUNT_CONTENTS"
TOKEN_URI = "https://oauth2.googleapis.com/token"
SCOPES = ("https://www.googleapis.com/auth/compute", "https://www.googleapis.com/auth/cloud-platform")
STORAGE_SCOPES = (
    "https://www.googleapis.com/auth/devstorage.read_write",
    "https://www.googleapis.com/auth/devstorage.full_control",
    "https://www.googleapis.com/auth/cloud-platform",
)
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_SECONDS = 3599
_SKEW = 300.0  # by which clocks may differ
_PACIFIC = timezone(timedelta(hours=-8))


class Refused(Exception):
    """An error answer of the Compute API, with its reason."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        entry = {"message": message, "domain": "global", "reason": reason}
        self.body = {"error": {"code": code, "message": message, "errors": [entry]}}


class BadGrant(Exception):
    """An error answer of the token endpoint."""


@functools.cache
def key_pair(name: str) -> tuple[str, rsa.RSAPublicKey]:
    """A private key as PEM, and its public half; one per name and process, as making one takes a while."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()
    return pem, key.public_key()


def service_account(name: str = "sandbox", project: str = PROJECT, email: str = EMAIL) -> str:
    """The text of a service account's key file. A ``name`` other than the sandbox's is a key that the account does not have."""
    pem, _public = key_pair(name)
    content = {"type": "service_account", "project_id": project, "private_key_id": f"{name}-0123456789abcdef", "private_key": pem}
    return json.dumps({**content, "client_email": email, "client_id": "104857600000000000001", "token_uri": TOKEN_URI})


@dataclasses.dataclass
class Disk:
    """A disk. ``users``: machines that have it; one without any is billed on. ``image``: what it was made of."""

    zone: str
    name: str
    size_gb: int
    labels: dict[str, str]
    created: datetime
    users: list[str] = dataclasses.field(default_factory=list)
    auto_delete: bool = True
    image: str = ""


@dataclasses.dataclass
class Address:
    """A static external address. Without a user it is billed, too."""

    region: str
    name: str
    address: str
    created: datetime
    users: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Operation:
    """What a write call answers. It is DONE at ``done``, also with ``errors``."""

    name: str
    kind: str
    zone: str
    target: str
    began: float
    done: float
    errors: list[dict[str, str]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Account:
    """``gpus_all_regions`` and ``gpus_per_region`` (of each model) are quotas; a new project has none. ``spot_gpus_per_region`` is that of
    spot machines beside it. ``billing`` False: the project has no billing account. ``enabled`` False: the Compute API is off. ``rights``
    False: the service account has no role. ``key_lives``: seconds after its first use at which the key expires, 0 = never; tokens that it got
    before stay good for their hour. ``list_after``: seconds until a new machine is in the aggregated list. ``operation_seconds``:
    until an operation is done. ``errors_at_once``: a machine that cannot be made is refused by the call itself, not by its operation.
    ``keep_disks``: disks are made with ``autoDelete`` false, whatever was asked. ``page_size``: the largest page. ``images``: name or family
    of an image of Talos to its schematic. ``bucket``: the name of a bucket that is there; ``bucket_rights`` and ``image_rights`` False: the
    service account may not use it, or make images. ``import_seconds``: until an image is made. ``failing_imports``: so many imports fail,
    which their operations tell. ``stuck_imports``: imports do not end. ``short_pieces``: of so many pieces of uploads only a part is kept.
    ``lost_sessions``: so many uploads lose their session when they have begun."""

    gpus_all_regions: int = 0
    gpus_per_region: int = 0
    spot_gpus_per_region: int = 0
    billing: bool = True
    enabled: bool = True
    rights: bool = True
    key_lives: float = 0.0
    list_after: float = 0.0
    operation_seconds: float = 6.0
    errors_at_once: bool = False
    keep_disks: bool = False
    page_size: int = 500
    bucket: str = ""
    bucket_rights: bool = True
    image_rights: bool = True
    import_seconds: float = 300.0
    failing_imports: int = 0
    stuck_imports: bool = False
    short_pieces: int = 0
    lost_sessions: int = 0
    disks: dict[tuple[str, str], Disk] = dataclasses.field(default_factory=dict)
    addresses: list[Address] = dataclasses.field(default_factory=list)
    images: dict[str, str] = dataclasses.field(default_factory=dict)
    own_images: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    buckets: dict[str, dict[str, t.Any]] = dataclasses.field(default_factory=dict)
    sessions: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    operations: dict[str, Operation] = dataclasses.field(default_factory=dict)
    requests: dict[str, str] = dataclasses.field(default_factory=dict)
    tokens: dict[str, tuple[float, str]] = dataclasses.field(default_factory=dict)
    scopes: dict[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    key_used: float = 0.0
    number: int = 0
    rate: Rate = dataclasses.field(default_factory=lambda: Rate(1 / 20))
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    SWITCHES: t.ClassVar[dict[str, t.Any]] = {
        "gpus_all_regions": 1,
        "gpus_per_region": 1,
        "spot_gpus_per_region": 1,
        "billing": True,
        "enabled": True,
        "rights": True,
        "key_lives": 0.0,
        "list_after": 0.0,
        "operation_seconds": 0.0,
        "errors_at_once": True,
        "keep_disks": True,
        "page_size": 1,
        "bucket": "",
        "bucket_rights": True,
        "image_rights": True,
        "import_seconds": 0.0,
        "failing_imports": 1,
        "stuck_imports": True,
        "short_pieces": 1,
        "lost_sessions": 1,
    }
    """Names of what a scenario can choose, with values that show their types."""

    def turn(self, chosen: t.Mapping[str, t.Any]) -> None:
        """Set some of them; the values have the right types. ValueError names what cannot be."""
        if chosen.get("page_size") == 0:
            raise ValueError("page_size: should be above zero")
        for name, value in chosen.items():
            setattr(self, name, value)
        if self.bucket:
            self.buckets.setdefault(self.bucket, {})

    @classmethod
    def of(cls, world: World) -> Account:
        """The account of this world, made when first asked for."""
        with world.lock:
            account = world.__dict__.get("gcp_account")
            if account is None:
                account = world.__dict__["gcp_account"] = cls()
            return t.cast(Account, account)

    def next_number(self) -> int:
        """The caller holds the world's lock."""
        self.number += 1
        return self.number

    def check_pace(self, world: World) -> None:
        if not world.rate_limits:
            return
        with self.lock:
            admitted = self.rate.admit(world.clock.seconds(), world.clock.speed)
        if not admitted:
            raise Refused(403, "rateLimitExceeded", "Rate Limit Exceeded")

    # ---- who calls

    def grant(self, world: World, form: t.Mapping[str, str]) -> dict[str, t.Any]:
        """The answer of the token endpoint: the signature, who signed, for whom, for what, and when are checked."""
        if form.get("grant_type") != GRANT:
            raise BadGrant("unsupported_grant_type", "Invalid grant_type: " + form.get("grant_type", ""))
        header, claims, signed, signature = _parts(form.get("assertion", ""))
        known = _loaded(world.secrets[SECRET])
        if header.get("alg") != "RS256":
            raise BadGrant("invalid_grant", "Invalid JWT: unsupported algorithm.")
        if claims.get("iss") != EMAIL:
            raise BadGrant("invalid_grant", "Invalid grant: account not found")
        if header.get("kid") != known.get("private_key_id"):
            raise BadGrant("invalid_grant", "Invalid JWT Signature.")
        try:
            key_pair("sandbox")[1].verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
        except InvalidSignature:
            raise BadGrant("invalid_grant", "Invalid JWT Signature.") from None
        self.key_used = self.key_used or world.clock.seconds()
        if 0 < self.key_lives <= world.clock.seconds() - self.key_used:
            raise BadGrant("invalid_grant", "Invalid JWT Signature.")
        if claims.get("aud") != TOKEN_URI:
            raise BadGrant("invalid_grant", "Invalid JWT: Failed audience check. The right audience is " + TOKEN_URI)
        now, issued, ends = world.clock.seconds(), claims.get("iat"), claims.get("exp")
        if not _is_in_time(issued, ends, now):
            raise BadGrant(
                "invalid_grant",
                "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable timeframe. "
                "Check your iat and exp values in the JWT claim.",
            )
        if not set(str(claims.get("scope", "")).split()) & {*SCOPES, *STORAGE_SCOPES}:
            raise BadGrant("invalid_scope", "Invalid OAuth scope or ID token audience provided.")
        token = "ya29.c." + secrets.token_urlsafe(48)
        with world.lock:
            self.tokens[token] = (now + TOKEN_SECONDS, world.secrets[SECRET])
            self.scopes[token] = frozenset(str(claims["scope"]).split())
        return {"access_token": token, "expires_in": TOKEN_SECONDS, "token_type": "Bearer"}

    def token_of_a_person(self, world: World) -> str:
        """Of somebody who works at the console and has no key file."""
        token = "ya29.a0-" + secrets.token_urlsafe(24)
        self.tokens[token] = (world.clock.seconds() + TOKEN_SECONDS, world.secrets[SECRET])
        return token

    def admit_token(self, world: World, header: str) -> None:
        """Who calls. A token ends with the key that it was made for."""
        until, made_for = self.tokens.get(header.removeprefix("Bearer "), (0.0, ""))
        if not header.startswith("Bearer ") or until < world.clock.seconds() or made_for != world.secrets[SECRET]:
            raise Refused(
                401,
                "authError",
                "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
                "authentication credential.",
            )

    def admit(self, world: World, header: str, project: str) -> None:
        """Who calls the Compute API, and whether it may."""
        self.admit_token(world, header)
        if not self.scopes.get(header.removeprefix("Bearer "), frozenset(SCOPES)) & set(SCOPES):
            raise Refused(403, "insufficientPermissions", "Request had insufficient authentication scopes.")
        if not self.enabled:
            message = f"Compute Engine API has not been used in project {project} before or it is disabled."
            raise Refused(403, "accessNotConfigured", message)
        if project != PROJECT or not self.rights:
            raise Refused(403, "forbidden", f"Required 'compute.projects.get' permission for 'projects/{project}'")


def _is_in_time(issued: t.Any, ends: t.Any, now: float) -> bool:
    if not isinstance(issued, int) or not isinstance(ends, int):
        return False
    return issued - _SKEW <= now <= ends + _SKEW and ends - issued <= 3600


def _loaded(text: str) -> dict[str, t.Any]:
    """A key that was withdrawn is no key file any more."""
    try:
        content = json.loads(text)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _parts(assertion: str) -> tuple[dict[str, t.Any], dict[str, t.Any], bytes, bytes]:
    pieces = assertion.split(".")
    try:
        decoded = [base64.urlsafe_b64decode(piece + "=" * (-len(piece) % 4)) for piece in pieces]
        header, claims, signature = json.loads(decoded[0]), json.loads(decoded[1]), decoded[2]
    except (ValueError, IndexError, binascii.Error):
        raise BadGrant("invalid_grant", "Bad Request") from None
    return header, claims, ".".join(pieces[:2]).encode(), signature


# ---- forms that many answers share


def machines(world: World) -> list[Machine]:
    """Machines that exist for the API."""
    return [one for one in world.machines.values() if one.cloud == "gcp" and one.destroyed is None]


def moment(when: datetime) -> str:
    """RFC 3339 with the offset of California, as Google writes it."""
    return when.astimezone(_PACIFIC).isoformat(timespec="milliseconds")


def page(account: Account, kind: str, entries: t.Sequence[t.Any], query: t.Mapping[str, str]) -> dict[str, t.Any]:
    """One page of a list. An empty list has no ``items`` at all."""
    shown, more = _cut(account, entries, query)
    answer: dict[str, t.Any] = {"kind": kind, "id": "projects/" + PROJECT}
    return {**answer, **({"items": list(shown)} if shown else {}), **more}


def aggregated(
    account: Account,
    kind: str,
    root: str,
    places: t.Sequence[str],
    entries: t.Sequence[tuple[str, t.Any]],
    query: t.Mapping[str, str],
) -> dict[str, t.Any]:
    """One page of a list over all ``places``; those without an entry on this page have a warning instead."""
    shown, more = _cut(account, entries, query)
    items: dict[str, t.Any] = {}
    for place in places:
        here = [form for where, form in shown if where == place]
        warning = {"code": "NO_RESULTS_ON_PAGE", "message": f"There are no results for scope '{place}' on this page."}
        items[place] = {root: here} if here else {"warning": {**warning, "data": [{"key": "scope", "value": place}]}}
    return {"kind": kind, "id": f"projects/{PROJECT}/aggregated", "items": items, **more}


def _cut(account: Account, entries: t.Sequence[t.Any], query: t.Mapping[str, str]) -> tuple[t.Sequence[t.Any], dict[str, str]]:
    wanted = query.get("maxResults", "500")
    if not wanted.isdecimal() or not 0 <= int(wanted) <= 500:
        raise Refused(400, "invalid", f"Invalid value for field 'maxResults': '{wanted}'. Must be between 0 and 500.")
    size, start = min(int(wanted) or 500, account.page_size), 0
    if query.get("pageToken"):
        try:
            start = int(base64.urlsafe_b64decode(query["pageToken"]).decode().removeprefix("place:"))
        except ValueError:
            raise Refused(400, "invalid", "Invalid value for field 'pageToken'.") from None
    end = start + size
    token = base64.urlsafe_b64encode(f"place:{end}".encode()).decode()
    return entries[start:end], ({"nextPageToken": token} if end < len(entries) else {})
