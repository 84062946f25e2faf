# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims as GPUNodeClaim objects in tgp-system. ``record`` is what runs read and write; ``spec`` and ``status`` show it to people.

A finalizer keeps an object until its machine is proven gone, so that ``kubectl delete`` asks for the end of a machine and loses no record.
"""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime

from ..core.clock import from_text
from ..core.errors import ApiError, BadShape, InvalidInput, LostAnswer, NotFound, ServerError
from ..kube.client import NAMESPACE, Json, Kube
from ..model import Claim, Deletion, Phase
from ..model.labels import API_VERSION, CLAIM_LABEL, FINALIZERS, MANAGED_BY_LABEL
from ..model.reasons import Reason
from ..planner.claims.record import to_record
from ..units.values import print_money, print_time
from .configmap import PATH as CONFIGMAPS
from .configmap import ConfigMapStore, Entry, claim_labels, move_of
from .records import ClaimRecords, changed_by_another, checked_name, damaged, encode, odd, read_record, removed_by_another

KIND, PLURAL = "GPUNodeClaim", "gpunodeclaims"
PATH = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/{PLURAL}"
DEFINITION = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{PLURAL}.{API_VERSION.partition('/')[0]}"
_FINALIZER = FINALIZERS[KIND]


class NodeClaimStore(ConfigMapStore):
    """See store.ClaimStore. Findings and the ledger are those of the ConfigMaps. Safe to use from several threads."""

    kind = "crd"
    other = ("cluster", CONFIGMAPS, {"labelSelector": f"{CLAIM_LABEL}=true"})

    def __init__(self, kube: Kube, *, mover: bool = False, warn: t.Callable[[str], None] = lambda _text: None) -> None:
        super().__init__(kube, mover=mover)
        self._warn = warn
        self._removing: bool | None = None  # the definition, with all objects
        self._unmarked = False
        self._uids: dict[str, str] = {}

    # ---- claims

    def claim_records(self) -> ClaimRecords:
        """The mark is a ConfigMap: a definition that is being deleted takes no new object."""
        if not self._unmarked or self.mover:
            mark = self._kube.find(f"{CONFIGMAPS}/{self.marker}")
            self._unmarked = mark is None
            if mark is not None:
                self._marked(move_of(mark))
        entries: list[Entry]
        try:
            entries, _version = self._kube.collect(PATH, self._claim_or_damaged)
        except NotFound as error:
            raise _not_installed() from error
        return self._sorted(entries)

    def claim(self, name: str) -> Claim | None:
        raw = self._kube.find(f"{PATH}/{checked_name(name)}")
        return self.note(self._claim(raw)) if raw is not None else None

    def _claim_or_damaged(self, raw: Json) -> Entry:
        name = raw["metadata"]["name"]
        try:
            return self._as_known(name, raw) or self._claim(raw)
        except BadShape as problem:
            shown: Json = spec if isinstance(spec := raw.get("spec"), dict) else {}
            beside = {key: str(shown.get(field) or "") for key, field in _SPEC.items()}
            record = raw.get("record")
            return damaged(encode(record) if isinstance(record, dict) else None, _where(name), name, problem, **beside)

    def claim_uid(self, name: str) -> str:
        return self._uids.get(name, "")

    def _claim(self, raw: Json) -> Claim:
        meta = raw["metadata"]
        self._uids[meta["name"]] = str(meta.get("uid") or "")
        claim = read_record(raw.get("record"), _where(meta["name"]), meta["name"])
        if not meta.get("resourceVersion"):
            raise odd(_where(meta["name"]), "it has no resourceVersion")
        claim = dataclasses.replace(claim, version=meta["resourceVersion"])
        asked = meta.get("deletionTimestamp")
        if not asked or claim.deletion is not None or self._is_being_removed():
            return claim
        return dataclasses.replace(claim, deletion=Deletion(Reason.MANUAL, _moment(asked, meta["name"])))

    def _is_being_removed(self) -> bool:
        """Whether the definition itself is being deleted, or may be: the API server then deletes all objects, and nobody asked for the end of
        a machine."""
        if self._removing is None:
            try:
                meta = (self._kube.find(DEFINITION) or {}).get("metadata") or {}
                self._removing = bool(meta.get("deletionTimestamp")) or not meta
                why = "is being deleted"
            except ApiError as error:
                self._removing, why = True, f"could not be read ({error.message.rstrip('.')})"
            if self._removing:
                self._warn(
                    f"The definition of {KIND} objects {why}, so deleted objects end no machine. Move the claims with move_claims.yml, or end "
                    "the machines with destroy.yml."
                )
        return self._removing

    def _swap(self, claim: Claim) -> Claim:
        path = f"{PATH}/{checked_name(claim.name)}"
        body = manifest(claim)
        try:
            raw = self._change(path, claim, body) if claim.version else self._made(body)
        except (LostAnswer, ServerError):
            stored = self._kube.find(path)
            if stored is None or stored.get("record") != body["record"]:
                raise
            raw = stored  # the answer was lost, the write was not
        self._uids[claim.name] = str(raw["metadata"].get("uid") or "")
        return dataclasses.replace(claim, version=raw["metadata"]["resourceVersion"])

    def _change(self, path: str, claim: Claim, body: Json) -> Json:
        """What others added to the object, such as labels and finalizers, stays."""
        steps = [{"op": "replace", "path": "/metadata/resourceVersion", "value": claim.version}]
        steps += [{"op": "add", "path": f"/{part}", "value": body[part]} for part in ("record", "spec", "status")]
        try:
            return self._kube.patch(path, steps, kind="json")
        except NotFound as error:
            raise removed_by_another(_where(claim.name)) from error

    def _made(self, body: Json) -> Json:
        try:
            return self._make(body, PATH)
        except NotFound as error:
            raise _not_installed() from error

    def _drop(self, claim: Claim) -> None:
        """Let go of the object, then delete it. One whose deletion was asked for is gone with the first of both."""
        path = f"{PATH}/{checked_name(claim.name)}"
        raw = self._kube.find(path)
        if raw is None:
            return
        left = [name for name in raw["metadata"].get("finalizers") or [] if name != _FINALIZER]
        version = claim.version
        if left != (raw["metadata"].get("finalizers") or []):
            if version and raw["metadata"]["resourceVersion"] != version:
                raise changed_by_another(_where(claim.name))
            body = {"metadata": {"resourceVersion": raw["metadata"]["resourceVersion"], "finalizers": left}}
            try:
                version = self._kube.patch(path, body)["metadata"]["resourceVersion"]
            except NotFound:
                return
        if not raw["metadata"].get("deletionTimestamp"):
            self._kube.delete(path, resource_version=version)


_SPEC = {"pool": "pool", "node_class": "nodeClass", "cloud": "provider"}


def manifest(claim: Claim) -> Json:
    """The object of a claim."""
    labels = {**claim_labels(claim), MANAGED_BY_LABEL: "tgp.gpu"}
    spec = {"pool": claim.pool, "nodeClass": claim.node_class, "provider": claim.cloud}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": claim.name, "namespace": NAMESPACE, "labels": labels, "finalizers": [_FINALIZER]},
        "spec": spec,
        "status": _status(claim),
        "record": to_record(claim),
    }


def _status(claim: Claim) -> Json:
    facts = {
        "phase": (Phase.TERMINATING if claim.deletion is not None else claim.phase).value,
        "instanceID": claim.instance_id,
        "region": claim.offer.region,
        "instanceType": claim.offer.instance_type,
        "address": claim.ip,
        "nodeName": claim.node_name if claim.registered is not None else "",
        "hourlyPrice": print_money(claim.price),
        "deletionReason": claim.deletion.reason if claim.deletion is not None else "",
    }
    return {**{key: value for key, value in facts.items() if value}, "conditions": list(_conditions(claim))}


def _conditions(claim: Claim) -> t.Iterator[Json]:
    """In Karpenter's words. Ready is Initialized, and not on its way out."""
    steps: tuple[tuple[str, datetime | None], ...] = (
        ("Launched", claim.launch_started if claim.instance_id else None),
        ("Registered", claim.registered),
        ("Initialized", claim.initialized),
    )
    for kind, since in steps:
        yield _condition(kind, since is not None, claim.created if since is None else since, kind if since else f"Not{kind}")
    if claim.accepted is not None or (claim.limits is not None and claim.limits.acceptance is not None):
        held, since = claim.accepted is not None, claim.accepted or claim.created
        yield _condition("Accepted", held, since, "AcceptanceTestPassed" if held else "NotAccepted")
    ready = claim.phase is Phase.READY and claim.deletion is None
    reason = "Terminating" if claim.deletion is not None else claim.phase.value
    yield _condition("Ready", ready, claim.deletion.requested if claim.deletion is not None else claim.phase_since, reason)


def _condition(kind: str, holds: bool, since: datetime, reason: str) -> Json:
    status = "True" if holds else "False"
    return {"type": kind, "status": status, "lastTransitionTime": print_time(since), "reason": reason, "message": ""}


def _moment(text: t.Any, name: str) -> datetime:
    try:
        return from_text(str(text))
    except ValueError as error:
        raise odd(_where(name), f"its deletionTimestamp {text!r} is not a time") from error


def _where(name: str) -> str:
    return f"{KIND} {NAMESPACE}/{name}"


def _not_installed() -> InvalidInput:
    return InvalidInput(
        f"claim_store is crd, and the cluster does not know {KIND} objects.",
        remedy="Install them: ansible-playbook tgp.gpu.manifests -e tgp_manifest=crds -e tgp_apply=true",
    )
