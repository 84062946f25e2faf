# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CertificateSigningRequests: approved by the rules of the real approver, signed by the cluster's authority."""

from __future__ import annotations

import base64
import typing as t
from datetime import timedelta

from cryptography import x509

from . import pki
from .auth import Call
from .meta import timestamp
from .parts import Kind
from .status import cause, forbidden, invalid
from .store import Item, clone

Json = dict[str, t.Any]

KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
_SIGNED = (KUBELET_CLIENT, "kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client")
_CLIENT_USAGES = ({"digital signature", "client auth"}, {"digital signature", "client auth", "key encipherment"})
_GROUP = "certificates.k8s.io"


def _parse(spec: Json) -> x509.CertificateSigningRequest | None:
    try:
        return x509.load_pem_x509_csr(base64.b64decode(spec.get("request", ""), validate=True))
    except ValueError:
        return None


def _asks_for_kubelet_client(spec: Json, request: x509.CertificateSigningRequest) -> str | None:
    """The user name if the request is what a kubelet's client certificate must look like."""
    who = pki.subject(request.subject)
    if who is None or who[1] != ["system:nodes"] or not who[0].startswith("system:node:"):
        return None
    if set(spec.get("usages") or []) not in _CLIENT_USAGES:
        return None
    try:
        request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return who[0]
    return None


class Requests(Kind):
    def on_create(self, call: Call, obj: Json) -> None:
        spec = obj.setdefault("spec", {})
        identity = call.identity
        spec["username"] = identity.user
        spec["groups"] = identity.ordered_groups
        if identity.uid:
            spec["uid"] = identity.uid
        obj["status"] = {}

    def on_update(self, call: Call, old: Json, new: Json, sub: str) -> None:
        new["spec"] = old["spec"]
        if sub == "approval":
            signer = old["spec"].get("signerName", "")
            if not self.api.authorizer.allows(call.identity, "approve", _GROUP, "signers", name=signer):
                told = f'user not permitted to approve requests with signerName "{signer}"'
                raise forbidden(self.resource, old["metadata"]["name"], told)
            conditions = (new.get("status") or {}).get("conditions") or []
            now = timestamp(self.api.now())
            for condition in conditions:
                condition.setdefault("lastUpdateTime", now)
                condition.setdefault("lastTransitionTime", now)
            new["status"] = {**(old.get("status") or {}), "conditions": conditions}

    def check(self, old: Json | None, new: Json) -> None:
        spec = new["spec"]
        causes = []
        if _parse(spec) is None:
            causes.append(cause("FieldValueInvalid", f'Invalid value: "{spec.get("request", "")}": PEM block type must be CERTIFICATE REQUEST',
                                "spec.request"))  # fmt: skip
        before = {entry["type"] for entry in ((old or {}).get("status") or {}).get("conditions") or []}
        now = {entry["type"] for entry in (new.get("status") or {}).get("conditions") or []}
        for lost in sorted(before - now):
            told = f'Forbidden: updates may not remove a condition of type "{lost}"'
            causes.append(cause("FieldValueForbidden", told, "status.conditions"))
        if {"Approved", "Denied"} <= now:
            told = 'Invalid value: "Denied": Approved and Denied conditions are mutually exclusive'
            causes.append(cause("FieldValueInvalid", told, "status.conditions"))
        for field in ("usages", "signerName"):
            if not spec.get(field):
                causes.append(cause("FieldValueRequired", "Required value", f"spec.{field}"))
        if causes:
            raise invalid(self.resource, new["metadata"]["name"], causes)

    def after(self, old: Item | None, new: Item) -> None:
        if old is None:
            self._approve(new)
        else:
            self._sign(new)

    def _approve(self, item: Item) -> None:
        """What the approving controller does: a bootstrapper's or a node's own request for a kubelet client certificate."""
        spec = item.obj["spec"]
        request = _parse(spec)
        user = _asks_for_kubelet_client(spec, request) if request is not None and spec["signerName"] == KUBELET_CLIENT else None
        if user is None:
            return
        identity = self.api.identity(spec["username"], spec["groups"])
        rights = [("nodeclient", True), ("selfnodeclient", spec["username"] == user)]
        for right, fits in rights:
            if fits and self.api.authorizer.allows(identity, "create", _GROUP, f"certificatesigningrequests/{right}"):
                now = timestamp(self.api.now())
                new = clone(item.obj)
                new["status"]["conditions"] = [
                    {"type": "Approved", "status": "True", "reason": "AutoApproved", "lastUpdateTime": now, "lastTransitionTime": now,
                     "message": "Auto approving kubelet client certificate after SubjectAccessReview."}
                ]  # fmt: skip
                self.after(item, self._put(item, new))
                return

    def _sign(self, item: Item) -> None:
        spec, status = item.obj["spec"], item.obj.get("status") or {}
        said = {condition["type"] for condition in status.get("conditions") or []}
        if "Approved" not in said or said & {"Denied", "Failed"} or status.get("certificate") or spec["signerName"] not in _SIGNED:
            return
        request = _parse(spec)
        if request is None:
            return
        new = clone(item.obj)
        if spec["signerName"] == KUBELET_CLIENT and _asks_for_kubelet_client(spec, request) is None:
            now = timestamp(self.api.now())
            new["status"].setdefault("conditions", []).append(
                {"type": "Failed", "status": "True", "reason": "SignerValidationFailure", "lastUpdateTime": now,
                 "lastTransitionTime": now, "message": "the request is not that of a kubelet client"}
            )  # fmt: skip
        else:
            lifetime = timedelta(seconds=max(600, spec.get("expirationSeconds") or 365 * 86400))
            pem = self.api.authority.sign_request(request, spec["usages"], self.api.now(), lifetime)
            new["status"]["certificate"] = base64.b64encode(pem.encode()).decode()
        self._put(item, new)

    def _put(self, item: Item, new: Json) -> Item:
        return self.api.store.put(self.api.store.table(self.resource.key), item.key, new)
