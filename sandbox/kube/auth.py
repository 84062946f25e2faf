# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is calling: static tokens, bootstrap tokens (Secrets in kube-system), client certificates of our authority."""

from __future__ import annotations

import base64
import dataclasses
import hmac
import re
import threading
import typing as t
from datetime import datetime

from .pki import Authority
from .status import unauthorized
from .store import Store

_BOOTSTRAP = re.compile(r"^([a-z0-9]{6})\.([a-z0-9]{16})$")


@dataclasses.dataclass(frozen=True)
class Rule:
    """``verbs`` on ``resources`` ("nodes", "pods/eviction", "*") of ``groups``; ``names`` limits it to objects of these names."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...]
    resources: tuple[str, ...]
    names: tuple[str, ...] = ()

    def allows(self, verb: str, group: str, resource: str, name: str) -> bool:
        plain, _slash, sub = resource.partition("/")
        fits = "*" in self.resources or resource in self.resources or (sub and f"*/{sub}" in self.resources)
        return bool(
            fits
            and (verb in self.verbs or "*" in self.verbs)
            and (group in self.groups or "*" in self.groups)
            and (not self.names or name in self.names)
        )


@dataclasses.dataclass(frozen=True)
class Identity:
    """A user. ``rules`` are rights given to the token itself, besides those of roles."""

    user: str
    groups: frozenset[str]
    uid: str = ""
    rules: tuple[Rule, ...] = ()

    @property
    def ordered_groups(self) -> list[str]:
        """system:authenticated, which the server adds, comes last."""
        return sorted(self.groups, key=lambda group: (group == "system:authenticated", group))

    @property
    def node(self) -> str | None:
        """The node's name if this is a kubelet."""
        return (
            self.user.removeprefix("system:node:")
            if "system:nodes" in self.groups and self.user.startswith("system:node:")
            else None
        )


@dataclasses.dataclass(frozen=True)
class Call:
    """Who asks: ``manager`` is the field manager. A dry run does everything but the write. ``strict``: fields that a custom kind does not
    know are refused, instead of cut off."""

    identity: Identity
    manager: str = "unknown"
    dry_run: bool = False
    strict: bool = False


def rules_of(rules: t.Iterable[t.Any]) -> tuple[Rule, ...]:
    """From (verb, group, resource) triples or PolicyRule documents."""
    made = []
    for rule in rules:
        if isinstance(rule, t.Mapping):
            lists = (tuple(rule.get(key) or ()) for key in ("verbs", "apiGroups", "resources", "resourceNames"))
            made.append(Rule(*lists))
        else:
            verb, group, resource = rule
            made.append(Rule((verb,), (group,), (resource,)))
    return tuple(made)


class Authenticator:
    """``tokens`` maps bearer tokens to identities."""

    def __init__(self, store: Store, authority: Authority, now: t.Callable[[], datetime]) -> None:
        self.tokens: dict[str, Identity] = {}
        self._store = store
        self._authority = authority
        self._now = now
        self._certificates: dict[str, Identity | None] = {}
        self._lock = threading.Lock()

    def __call__(self, environ: t.Mapping[str, t.Any]) -> Identity:
        """The caller of a WSGI request; Refusal 401 if there is none or the credential is bad.

        A kubelet's certificate comes from the TLS handshake where the server passes it on (``SSL_CLIENT_CERT``). A client in the same
        process has no handshake; it sends the certificate, base64 of the PEM, as ``X-Kubelet-Certificate``. That proves only that
        the certificate is ours, not that the sender has its key, which is enough for a simulation on loopback.
        """
        header = environ.get("HTTP_AUTHORIZATION", "")
        if header[:7].lower() == "bearer ":
            identity = self._token(header[7:].strip())
        elif pem := environ.get("SSL_CLIENT_CERT") or _decoded(environ.get("HTTP_X_KUBELET_CERTIFICATE", "")):
            identity = self._certificate(pem)
        else:
            identity = None
        if identity is None:
            raise unauthorized()
        return identity

    def _token(self, token: str) -> Identity | None:
        known = self.tokens.get(token)
        if known is not None:
            return known
        found = _BOOTSTRAP.match(token)
        return self._bootstrap(*found.groups()) if found else None

    def _bootstrap(self, token_id: str, secret: str) -> Identity | None:
        item = self._store.table(("", "secrets")).get(f"kube-system/bootstrap-token-{token_id}")
        if item is None or item.obj.get("type") != "bootstrap.kubernetes.io/token" or "deletionTimestamp" in item.obj["metadata"]:
            return None
        data = {key: _decoded(value) for key, value in (item.obj.get("data") or {}).items()}
        if data.get("token-id") != token_id or not hmac.compare_digest(data.get("token-secret", ""), secret):
            return None
        if data.get("usage-bootstrap-authentication") != "true" or expired(data.get("expiration"), self._now()):
            return None
        extra = [group.strip() for group in data.get("auth-extra-groups", "").split(",") if group.strip()]
        groups = frozenset({"system:bootstrappers", "system:authenticated", *extra})
        return Identity(f"system:bootstrap:{token_id}", groups)

    def _certificate(self, pem: str) -> Identity | None:
        with self._lock:
            if pem in self._certificates:
                return self._certificates[pem]
        who = self._authority.identify(pem, self._now())
        identity = Identity(who[0], frozenset({*who[1], "system:authenticated"})) if who else None
        with self._lock:
            if len(self._certificates) > 10_000:
                self._certificates.clear()
            self._certificates[pem] = identity
        return identity


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:
        return ""


def expired(expiration: str | None, now: datetime) -> bool:
    """As the real authenticator: no time = never, an unreadable one = expired."""
    if not expiration:
        return False
    try:
        end = datetime.fromisoformat(expiration.replace("Z", "+00:00"))
    except ValueError:
        return True
    return end.tzinfo is None or end <= now
