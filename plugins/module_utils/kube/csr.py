# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Certificate requests of joining nodes: read for evidence, approved only for the very node a token was made for, denied to its token else."""

from __future__ import annotations

import base64
import dataclasses
import re
import typing as t
from datetime import datetime

from ..core.clock import from_text, to_text
from ..core.errors import Conflict, Forbidden, NotFound, lazy
from ..diagnosis.join import MADE_FOR, OTHER_NODE
from .client import Json, Kube

if t.TYPE_CHECKING:
    from cryptography import x509
else:
    x509 = lazy("cryptography.x509", "cryptography")

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
OF_KUBELETS = {"fieldSelector": f"spec.signerName={SIGNER}"}
_NEEDED = frozenset({"digital signature", "client auth"})
_USUAL = _NEEDED | {"key encipherment"}  # of an RSA key
_LONGEST = 366 * 86400  # seconds; a kubelet asks for no time at all, and the cluster gives a year
_TRIES = 2  # as it was listed, and once more as it stands after a conflict
_PEM = re.compile(rb"-----BEGIN CERTIFICATE REQUEST-----\r?\n([A-Za-z0-9+/=\r\n]+)-----END CERTIFICATE REQUEST-----\s*")


@dataclasses.dataclass(frozen=True, slots=True)
class SigningRequest:
    """A CertificateSigningRequest. ``state`` is pending, approved (not signed yet), issued, denied or failed; ``common_name``,
    ``organizations`` and ``other_names`` (subjectAltName) are those asked for ("" and () when the request cannot be read). ``seconds``:
    the life asked for, None = the cluster's choice. ``reason``: the word of who decided it. ``raw``: the object itself
    while it is pending and has a resourceVersion, so that it can be answered without being read again."""

    name: str
    username: str
    signer: str
    common_name: str
    organizations: tuple[str, ...]
    state: str
    message: str
    created: datetime
    usages: tuple[str, ...] = ()
    other_names: tuple[str, ...] = ()
    seconds: int | None = None
    reason: str = ""
    raw: Json | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def token_id(self) -> str:
        """The bootstrap token that asked, "" for another user."""
        return self.username.removeprefix("system:bootstrap:") if self.username.startswith("system:bootstrap:") else ""

    @property
    def version(self) -> str:
        """Its name, and which version of it this is as far as it says so."""
        return f"{self.name} {self.raw['metadata']['resourceVersion'] if self.raw is not None else ''}"

    @property
    def node(self) -> str:
        """The node name it asks for, "" if none."""
        return self.common_name.removeprefix("system:node:") if self.common_name.startswith("system:node:") else ""


def requests(kube: Kube, *, token_id: str = "") -> list[SigningRequest]:
    """All requests of joining kubelets, or those made with one token. (The cluster forgets them after an hour or a day.)"""

    def reduce(raw: Json) -> SigningRequest | None:
        if (raw.get("spec") or {}).get("signerName") != SIGNER:
            return None
        request = parse(raw)
        return request if not token_id or request.token_id == token_id else None

    return kube.collect(PATH, reduce)[0]


def asking(raw: Json) -> str | None:
    """The name of a request that a bootstrap token made and nobody has answered; None for any other. It does not read what is asked for."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    if status.get("conditions") or not str(spec.get("username") or "").startswith("system:bootstrap:"):
        return None
    return str(raw["metadata"]["name"])


def parse(raw: Json) -> SigningRequest:
    """A raw request as our record."""
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or []}
    state, message, reason = "pending", "", ""
    for kind, word in (("Approved", "approved"), ("Failed", "failed"), ("Denied", "denied")):
        if kind in conditions:
            reason = str(conditions[kind].get("reason") or "")
            state, message = word, str(conditions[kind].get("message") or reason)
    if status.get("certificate") and state == "approved":
        state = "issued"
    name, organizations, other_names = _subject(spec.get("request"))
    seconds = spec.get("expirationSeconds")
    return SigningRequest(
        raw["metadata"]["name"],
        str(spec.get("username") or ""),
        str(spec.get("signerName") or ""),
        name,
        organizations,
        state,
        message,
        from_text(raw["metadata"]["creationTimestamp"]),
        tuple(sorted(str(usage) for usage in spec.get("usages") or ())),
        other_names,
        seconds if isinstance(seconds, int) else None,
        reason,
        raw if state == "pending" and raw["metadata"].get("resourceVersion") else None,
    )


def _subject(encoded: t.Any) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Who a request wants to be, and what else it wants to be called. Of several PEM blocks, or text beside one, readers take different
    ones: the cluster could sign another than we have seen. So one block is read, and nothing beside it. What cannot be read is not ours
    and must not end our run."""
    try:
        block = _PEM.fullmatch(base64.b64decode(str(encoded or ""), validate=True))
        if block is None:
            return "", (), ()
        request = x509.load_der_x509_csr(base64.b64decode(b"".join(block[1].split()), validate=True))
        pairs = [(attribute.oid.dotted_string, str(attribute.value)) for attribute in request.subject]
        others = [
            str(extension.value) for extension in request.extensions if isinstance(extension.value, x509.SubjectAlternativeName)
        ]
    except (ValueError, TypeError, KeyError, x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return "", (), ()  # the library has a word of its own for each oddity
    names = [value for oid, value in pairs if oid == "2.5.4.3"]
    return (names[0] if len(names) == 1 else ""), tuple(value for oid, value in pairs if oid == "2.5.4.10"), tuple(others)


def wrong(request: SigningRequest, *, token_id: str, node: str) -> list[str]:
    """What of a request is not exactly as that of this node's kubelet would be; empty = it may be approved. The signer of the cluster
    refuses odd usages and other names as well; that is its choice, and this is ours."""
    expected = {
        "username": (request.username, f"system:bootstrap:{token_id}"),
        "signer": (request.signer, SIGNER),
        "common name": (request.common_name, f"system:node:{node}"),
        "organization": (request.organizations, ("system:nodes",)),
    }
    faults = [f"its {field} is {values!r}, not {wanted!r}" for field, (values, wanted) in expected.items() if values != wanted]
    if not _NEEDED <= set(request.usages) <= _USUAL:
        faults.append(f"its usages are {', '.join(request.usages) or 'none'}, not {', '.join(sorted(_NEEDED))}")
    if request.other_names:
        faults.append("it asks for other names (subjectAltName)")
    if request.seconds is not None and request.seconds > _LONGEST:
        faults.append(f"it asks for {request.seconds} seconds, more than a year")
    return faults


def answer(kube: Kube, request: SigningRequest, *, token_id: str, node: str) -> str:
    """Approve the request if it is this node's, deny it if the token made for this node asks for anything else. "approved" or "denied";
    empty when there was nothing to answer, or another approver was faster."""
    if request.state != "pending" or request.token_id != token_id:
        return ""
    fits = not wrong(request, token_id=token_id, node=node)
    try:
        answered = (approve if fits else deny)(kube, request, token_id=token_id, node=node)
    except (Conflict, NotFound):
        return ""
    return ("approved" if fits else "denied") if answered else ""


def approve(kube: Kube, request: SigningRequest, *, token_id: str, node: str) -> bool:
    """Approve this node's request. Forbidden, and nothing done, unless token, signer, name and group are exactly the expected ones:
    a leaked token must not become another node. False when there was nothing to approve any more."""

    def check(standing: SigningRequest) -> tuple[str, str, str]:
        if faults := wrong(standing, token_id=token_id, node=node):
            raise Forbidden(
                f"The certificate request {standing.name} is not approved for {node}: {'; '.join(faults)}.",
                remedy="Delete the node's bootstrap token if nobody can explain this.",
                service="kubernetes",
            )
        return "Approved", "TgpExpectedNode", f"{MADE_FOR}{node}"

    return _conclude(kube, request, check)


def deny(kube: Kube, request: SigningRequest, *, token_id: str, node: str) -> bool:
    """Deny a request that this node's token made for something else. Forbidden, and nothing done, for one of anybody else, and for the
    very one that is expected. False when there was nothing to deny any more."""

    def check(standing: SigningRequest) -> tuple[str, str, str]:
        faults = wrong(standing, token_id=token_id, node=node)
        if standing.token_id != token_id or not faults:
            raise Forbidden(
                f"The certificate request {standing.name} is not to be denied by us: it is {standing.username}'s.",
                service="kubernetes",
            )
        return "Denied", OTHER_NODE, f"{MADE_FOR}{node}, but {'; '.join(faults)}"

    return _conclude(kube, request, check)


def _conclude(kube: Kube, request: SigningRequest, check: t.Callable[[SigningRequest], tuple[str, str, str]]) -> bool:
    """Write the condition whose type, reason and message ``check`` returns for the very object that is written; it raises for one that
    must not be answered so. The resourceVersion lets the API server refuse an answer to what has changed since, or is another object of
    that name: then it is read, checked and written once more. Conflict when it has changed again."""
    path = f"{PATH}/{request.name}"
    for attempt in range(_TRIES):
        raw = request.raw if attempt == 0 and request.raw is not None else kube.get(path)
        standing = parse(raw)
        verdict = check(standing)
        if standing.state != "pending":
            return False
        try:
            kube.replace(f"{path}/approval", _answered(raw, verdict, to_text(kube.clock.now())))
            return True
        except Conflict as error:
            last = error
    raise last


def _answered(raw: Json, verdict: tuple[str, str, str], moment: str) -> Json:
    """The request with its condition. Items of a list come without kind and apiVersion."""
    kind, reason, message = verdict
    condition = {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastUpdateTime": moment,
        "lastTransitionTime": moment,
    }
    head = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    return {**head, **raw, "status": {**(raw.get("status") or {}), "conditions": [condition]}}
