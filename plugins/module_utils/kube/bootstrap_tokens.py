# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bootstrap tokens for one node each: a Secret that the API server takes as a credential until it expires or is deleted."""

from __future__ import annotations

import base64
import dataclasses
import secrets
import string
import typing as t
from datetime import datetime, timedelta

from ..core.clock import from_text, to_text
from ..core.errors import Conflict, InvalidInput, NotFound
from ..core.redact import register
from ..model.labels import BOOTSTRAP_TOKEN_LABEL, NODE_LABEL
from .client import Json, Kube

PATH = "/api/v1/namespaces/kube-system/secrets"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
GROUPS = "system:bootstrappers:nodes"  # a Talos cluster approves what these ask for by itself
OWN_GROUP = "system:bootstrappers:tgp"  # files/rbac.yml lets it ask; csr.answer approves one name
OWN_BINDING = "tgp-gpu-node-bootstrapper"
LONGEST = 3600
_LETTERS = string.ascii_lowercase + string.digits


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """A token as ``id.secret``. ``node`` is the machine it was made for. ``secret`` is empty for one that was only found."""

    id: str
    node: str
    expires: datetime | None
    secret: str = dataclasses.field(default="", repr=False)

    @property
    def text(self) -> str:
        """What the kubelet is given."""
        return f"{self.id}.{self.secret}"


def draw(node: str, *, now: datetime, life_seconds: int = LONGEST) -> Token:
    """A token that no cluster knows yet, so that its id can be noted before it is made."""
    if not 60 <= life_seconds <= LONGEST:
        raise InvalidInput(f"{node}: a bootstrap token lives 60 to {LONGEST} seconds, not {life_seconds}.")
    identity = "".join(secrets.choice(_LETTERS) for _ in range(6))
    secret = "".join(secrets.choice(_LETTERS) for _ in range(16))
    register(secret, f"{identity}.{secret}", base64.b64encode(secret.encode()).decode())
    return Token(identity, node, (now + timedelta(seconds=life_seconds)).replace(microsecond=0), secret)


def put(kube: Kube, token: Token, groups: str = GROUPS) -> bool:
    """Make a drawn token. False when a token that is not this one has its id (one in two thousand million): draw another.

    With the default group the cluster's own bindings approve the node's certificate request by themselves; with another group below
    ``system:bootstrappers:`` csr.approve does, for this very node only.
    """
    if not groups.startswith("system:bootstrappers:"):
        raise InvalidInput(f"The group {groups!r} of a bootstrap token must begin with system:bootstrappers:.")
    if token.expires is None or not token.secret:
        raise InvalidInput(f"{token.node}: a bootstrap token that has no end, or no secret, is not made.")
    try:
        kube.create(PATH, _secret(token, groups))
    except Conflict:
        return False
    return True


def _secret(token: Token, groups: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {
            "name": f"bootstrap-token-{token.id}",
            "namespace": "kube-system",
            "labels": {BOOTSTRAP_TOKEN_LABEL: "true"},
            "annotations": {NODE_LABEL: token.node},
        },
        "stringData": {
            "token-id": token.id,
            "token-secret": token.secret,
            "expiration": "" if token.expires is None else to_text(token.expires),
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": groups,
            "description": f"tgp.gpu: node {token.node}",
        },
    }


def may_ask(kube: Kube) -> bool:
    """Whether the binding that lets tokens of OWN_GROUP ask for certificates is there (files/rbac.yml has it)."""
    try:
        raw = kube.get(f"{BINDINGS}/{OWN_BINDING}")
    except NotFound:
        return False
    groups = {subject.get("name") for subject in raw.get("subjects") or [] if subject.get("kind") == "Group"}
    return OWN_GROUP in groups and (raw.get("roleRef") or {}).get("name") == "system:node-bootstrapper"


def tokens(kube: Kube) -> list[Token]:
    """All tokens that we made and that still exist, without their secrets."""
    return kube.collect(PATH, _found, {"labelSelector": f"{BOOTSTRAP_TOKEN_LABEL}=true"})[0]


def _found(raw: Json) -> Token | None:
    meta = raw["metadata"]
    identity = str(meta.get("name") or "").removeprefix("bootstrap-token-")
    text = _text((raw.get("data") or {}).get("expiration"))
    try:
        expires = from_text(text) if text else None
    except ValueError:
        expires = None
    return Token(identity, (meta.get("annotations") or {}).get(NODE_LABEL, ""), expires)


def _text(encoded: t.Any) -> str:
    try:
        return base64.b64decode(str(encoded or ""), validate=True).decode()
    except ValueError:
        return ""


def delete(kube: Kube, token_id: str) -> bool:
    """Make a token worthless at once. False when it was gone already."""
    if not (len(token_id) == 6 and set(token_id) <= set(_LETTERS)):
        raise InvalidInput(f"{token_id!r} is not the id of a bootstrap token.")
    return kube.delete(f"{PATH}/bootstrap-token-{token_id}")
