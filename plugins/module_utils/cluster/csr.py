# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificate requests of joining nodes: read for evidence, approved only for the very node a token was made for."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import typing as t
from datetime import datetime

from ..clock import from_text, to_text
from ..errors import Forbidden
from ..libs import lazy
from .kube import Json, Kube

if t.TYPE_CHECKING:
    from cryptography import x509
else:
    x509 = lazy("cryptography.x509", "cryptography")

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """A CertificateSigningRequest. ``state`` is pending, approved (not signed yet), issued, denied or failed; ``common_name`` and
    ``organizations`` are those asked for ("" and () when the request cannot be read)."""

    name: str
    username: str
    signer: str
    common_name: str
    organizations: tuple[str, ...]
    state: str
    message: str
    created: datetime

    @property
    def token_id(self) -> str:
        """The bootstrap token that asked, "" for another user."""
        return self.username.removeprefix("system:bootstrap:") if self.username.startswith("system:bootstrap:") else ""

    @property
    def node(self) -> str:
        """The node name it asks for, "" if none."""
        return self.common_name.removeprefix("system:node:") if self.common_name.startswith("system:node:") else ""


def requests(kube: Kube, *, token_id: str = "") -> list[Request]:
    """All requests of joining kubelets, or those made with one token. (The cluster forgets them after an hour or a day.)"""

    def reduce(raw: Json) -> Request | None:
        if (raw.get("spec") or {}).get("signerName") != SIGNER:
            return None
        one = parse(raw)
        return one if not token_id or one.token_id == token_id else None

    return kube.collect(PATH, reduce)[0]


def parse(raw: Json) -> Request:
    """A raw request as our record."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    conditions = {one.get("type"): one for one in status.get("conditions") or []}
    state, message = "pending", ""
    for kind, word in (("Approved", "approved"), ("Failed", "failed"), ("Denied", "denied")):
        if kind in conditions:
            state, message = word, str(conditions[kind].get("message") or conditions[kind].get("reason") or "")
    if status.get("certificate") and state == "approved":
        state = "issued"
    name, organizations = _subject(spec.get("request"))
    return Request(
        raw["metadata"]["name"],
        str(spec.get("username") or ""),
        str(spec.get("signerName") or ""),
        name,
        organizations,
        state,
        message,
        from_text(raw["metadata"]["creationTimestamp"]),
    )


def _subject(encoded: t.Any) -> tuple[str, tuple[str, ...]]:
    try:
        request = x509.load_pem_x509_csr(base64.b64decode(str(encoded or ""), validate=True))
    except (binascii.Error, ValueError):
        return "", ()
    pairs = [(one.oid.dotted_string, str(one.value)) for one in request.subject]
    names = [value for oid, value in pairs if oid == "2.5.4.3"]
    return (names[0] if len(names) == 1 else ""), tuple(value for oid, value in pairs if oid == "2.5.4.10")


def approve(kube: Kube, request: Request, *, token_id: str, node: str) -> bool:
    """Approve this node's request. Forbidden, and nothing done, unless token, signer, name and group are exactly the expected ones:
    a token leaked to a stranger must not become another node. False when there was nothing to approve any more."""
    raw = kube.get(f"{PATH}/{request.name}")
    request = parse(raw)  # as it stands now: a name can be used again
    expected = {
        "username": (request.username, f"system:bootstrap:{token_id}"),
        "signer": (request.signer, SIGNER),
        "common name": (request.common_name, f"system:node:{node}"),
        "organization": (request.organizations, ("system:nodes",)),
    }
    wrong = [f"its {what} is {found!r}, not {wanted!r}" for what, (found, wanted) in expected.items() if found != wanted]
    if wrong:
        raise Forbidden(
            f"The certificate request {request.name} is not approved for {node}: {'; '.join(wrong)}.",
            remedy="Delete the node's bootstrap token if nobody can explain this.",
            service="kubernetes",
        )
    if request.state != "pending":
        return False
    moment = to_text(kube.clock.now())
    raw["status"] = raw.get("status") or {}
    raw["status"]["conditions"] = [
        {
            "type": "Approved",
            "status": "True",
            "reason": "TgpExpectedNode",
            "message": f"asked by the bootstrap token made for {node}",
            "lastUpdateTime": moment,
            "lastTransitionTime": moment,
        }
    ]
    kube.replace(f"{PATH}/{request.name}/approval", raw)
    return True
