# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Claims as ConfigMaps in tgp-system: one each, guarded by the API server's resourceVersion."""

from __future__ import annotations

import dataclasses
import re
import threading
import typing as t

from ..core.errors import ApiError, BadShape, Conflict, Forbidden, InvalidInput, LostAnswer, NotFound, ServerError
from ..kube.client import NAMESPACE, Json, Kube, ensure_namespace
from ..model import Claim, DamagedClaim
from ..model.labels import API_VERSION, CLAIM_LABEL, LEDGER_LABEL, MANAGED_BY_LABEL, NODEPOOL_LABEL, STATE_LABEL
from ..model.names import label_value
from .records import (
    Careful,
    ClaimRecords,
    LedgerPart,
    Records,
    Torn,
    checked_name,
    damaged,
    decode,
    decode_claim,
    encode,
    encode_claim,
    is_torn,
    ledger_key,
    odd,
    removed_by_another,
    sorted_out,
    whole,
)

PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_PART_SIZE = 60_000  # bytes of ledger in one ConfigMap: each line that is added writes a new revision of the whole part
_TRIES = 8
_PART_NAME = re.compile(r"tgp-ledger-[0-9]{5,}")
Entry = Claim | DamagedClaim | Json  # the last is the mark of a move
_TOO_LARGE = (413, 422)  # what the API server says to an object that is too large


class ConfigMapStore(Careful):
    """See store.ClaimStore. ``other`` is the other store of the cluster, as a query: an empty store beside a full one is the wrong one, and
    every machine would pass for one without a claim. Safe to use from several threads."""

    kind = "cluster"
    other: tuple[str, str, dict[str, str]] = ("crd", f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/gpunodeclaims", {})

    def __init__(self, kube: Kube, *, mover: bool = False) -> None:
        super().__init__(mover=mover)
        self._kube = kube
        self._alone = mover  # nothing is in the other store
        self._ledger_lock = threading.Lock()
        self._parts: dict[str, _Part] | None = None
        self._strange: list[str] = []

    # ---- claims

    def claims(self) -> list[Claim]:
        return self.claim_records()[0]

    def claim_records(self) -> ClaimRecords:
        entries: list[Entry]
        entries, _version = self._kube.collect(PATH, self._claim_or_damaged, {"labelSelector": f"{CLAIM_LABEL}=true"})
        return self._sorted(entries)

    def _sorted(self, entries: t.Sequence[Entry]) -> ClaimRecords:
        """Claims, and those that cannot be read. InvalidInput for a store that is marked, or empty while the other one is not."""
        for entry in entries:
            if isinstance(entry, dict):
                self._marked(entry)
        claims = [self.note(claim) for claim in entries if isinstance(claim, Claim)]
        broken = [entry for entry in entries if isinstance(entry, DamagedClaim)]
        if not entries and not self._alone:
            self._refuse_beside_another()
            self._alone = True
        return sorted(claims, key=lambda claim: claim.name), sorted(broken, key=lambda record: record.name)

    def _refuse_beside_another(self) -> None:
        name, path, query = self.other
        try:
            answer = self._kube.api.call("GET", path, params={**query, "limit": 1})
        except (NotFound, Forbidden):  # the kind is not installed, or no run with these rights has used it
            return
        if self._kube.api.expect(answer.json, dict, f"GET {path}").get("items"):
            move = f"ansible-playbook tgp.gpu.move_claims -e tgp_to_store={self.kind}"
            raise InvalidInput(
                f"claim_store is {self.kind}, and that store is empty, while the store {name} has claims. Nothing was changed.",
                remedy=f"Set claim_store to {name} (tgp_options), or move them: {move}",
            )

    def _claim_or_damaged(self, raw: Json) -> Entry:
        """The claim as it is known, where it is still of that version: a run lists all claims more than once. The mark as it is."""
        if raw["metadata"]["name"] == self.marker:
            return move_of(raw)
        return self._as_known(raw["metadata"]["name"].removeprefix("tgp-claim-"), raw) or _claim_or_damaged(raw)

    def _as_known(self, name: str, raw: Json) -> Claim | None:
        """The claim of that name, if it is still of the version that was read or written last."""
        known = self._known.get(name)
        return known if known is not None and known.version == raw["metadata"].get("resourceVersion") else None

    def claim(self, name: str) -> Claim | None:
        raw = self._kube.find(f"{PATH}/tgp-claim-{checked_name(name)}")
        return self.note(_claim(raw)) if raw is not None else None

    def _swap(self, claim: Claim) -> Claim:
        name = f"tgp-claim-{checked_name(claim.name)}"
        body = _configmap(
            name, claim_labels(claim), {"claim.json": encode_claim(claim)}, claim.version, {NODEPOOL_LABEL: claim.pool}
        )
        try:
            raw = self._put(name, body) if claim.version else self._make(body)
        except (LostAnswer, ServerError):
            stored = self._kube.find(f"{PATH}/{name}")
            if stored is None or stored.get("data") != body["data"]:
                raise
            raw = stored  # the answer was lost, the write was not
        return dataclasses.replace(claim, version=raw["metadata"]["resourceVersion"])

    def _drop(self, claim: Claim) -> None:
        self._kube.delete(f"{PATH}/tgp-claim-{checked_name(claim.name)}", resource_version=claim.version)

    # ---- state

    def read_state(self, name: str) -> dict[str, t.Any]:
        full = f"tgp-state-{checked_name(name)}"
        raw = self._kube.find(f"{PATH}/{full}")
        return {} if raw is None else decode((raw.get("data") or {}).get("state.json"), f"ConfigMap {NAMESPACE}/{full}")

    def write_state(self, name: str, state: t.Mapping[str, t.Any]) -> None:
        full = f"tgp-state-{checked_name(name)}"
        body = _configmap(full, {STATE_LABEL: "true"}, {"state.json": encode(state)})
        try:
            self._kube.replace(f"{PATH}/{full}", body)
        except NotFound:
            self._make(body)

    # ---- ledger

    def ledger(self, line: t.Mapping[str, t.Any]) -> bool:
        key = ledger_key(line)
        text = encode(line)
        last: ApiError
        with self._ledger_lock:
            for _attempt in range(_TRIES):
                parts = self._parts if self._parts is not None else self._read_parts()
                written = next((part for part in parts.values() if key in part.lines), None)
                if written is not None and not is_torn(written.lines[key]):
                    return False
                try:
                    if written is not None:
                        self._put_line(parts, written, key, text)
                    else:
                        self._append(parts, key, text)
                    return True
                except (Conflict, NotFound) as error:
                    self._parts, last = None, error  # another writer changed or removed a part: read again
        raise last

    def ledger_lines(self) -> list[dict[str, t.Any]]:
        return whole(self.ledger_records())

    def ledger_records(self) -> Records:
        with self._ledger_lock:
            parts = self._read_parts()
        lines, torn = sorted_out(
            (f"ConfigMap {NAMESPACE}/{name} key {key}", key, text)
            for name, part in sorted(parts.items())
            for key, text in part.lines.items()
        )
        return lines, [*torn, *(Torn(place) for place in self._strange)]

    def ledger_parts(self) -> list[LedgerPart]:
        with self._ledger_lock:
            parts = sorted(self._read_parts().items())
        return [_removable(part) for _name, part in parts[:-1]]  # the next number follows from the newest one

    def remove_part(self, part: LedgerPart) -> None:
        with self._ledger_lock:
            self._kube.delete(f"{PATH}/{part.place}", resource_version=part.version)
            self._parts = None

    def _read_parts(self) -> dict[str, _Part]:
        parts, _version = self._kube.collect(PATH, _part_or_place, {"labelSelector": f"{LEDGER_LABEL}=true"})
        self._strange = [part for part in parts if isinstance(part, str)]
        self._parts = {part.name: part for part in parts if isinstance(part, _Part)}
        return self._parts

    def _append(self, parts: dict[str, _Part], key: str, text: str) -> None:
        """Into the newest part while it has room (as we count, and as the API server does), else into a new one."""
        newest = max(parts.values(), key=lambda part: part.name, default=None)
        if newest is not None and newest.size + len(text.encode()) < _PART_SIZE:
            try:
                return self._put_line(parts, newest, key, text)
            except ApiError as error:
                if error.status not in _TOO_LARGE:
                    raise
        number = 0 if newest is None else int(newest.name.rpartition("-")[2]) + 1
        made = _part(self._make(_configmap(f"tgp-ledger-{number:05d}", {LEDGER_LABEL: "true"}, {key: text})))
        parts[made.name] = made

    def _put_line(self, parts: dict[str, _Part], part: _Part, key: str, text: str) -> None:
        body: Json = {"metadata": {"resourceVersion": part.version}, "data": {key: text}}
        changed = _part(self._kube.patch(f"{PATH}/{part.name}", body))
        parts[changed.name] = changed

    # ---- writing

    def _make(self, body: Json, path: str = PATH) -> Json:
        """Create; the namespace is made on the way when it is missing."""
        try:
            return self._kube.create(path, body)
        except NotFound:
            ensure_namespace(self._kube)
            return self._kube.create(path, body)

    def _put(self, name: str, body: Json) -> Json:
        try:
            return self._kube.replace(f"{PATH}/{name}", body)
        except NotFound as error:
            raise removed_by_another(f"ConfigMap {NAMESPACE}/{name}") from error

    # ---- moving

    def write_move(self, move: t.Mapping[str, t.Any] | None) -> None:
        """Set or take away the mark."""
        if move is None:
            self._kube.delete(f"{PATH}/{self.marker}")
            return
        body = _configmap(self.marker, {CLAIM_LABEL: "true"}, {"move.json": encode(move)})
        try:
            self._kube.replace(f"{PATH}/{self.marker}", body)
        except NotFound:
            self._make(body)

    def state_names(self) -> list[str]:
        """The small records that there are."""
        found = self._kube.list(PATH, {"labelSelector": f"{STATE_LABEL}=true"})
        return sorted(raw["metadata"]["name"].removeprefix("tgp-state-") for raw in found)


@dataclasses.dataclass
class _Part:
    name: str
    version: str
    lines: dict[str, str]
    size: int


def _removable(part: _Part) -> LedgerPart:
    lines, torn = sorted_out((f"ConfigMap {NAMESPACE}/{part.name} key {key}", key, text) for key, text in part.lines.items())
    return LedgerPart(part.name, part.version, tuple(lines), tuple(torn))


def _part_or_place(raw: Json) -> _Part | str:
    """A part of the ledger; the place of what has its label and not its name, which is not ours."""
    return _part(raw) if _PART_NAME.fullmatch(raw["metadata"]["name"]) else _where(raw)


def _part(raw: Json) -> _Part:
    lines = raw.get("data") or {}
    size = sum(len(key) + len(str(text).encode()) for key, text in lines.items())
    return _Part(raw["metadata"]["name"], str(raw["metadata"].get("resourceVersion") or ""), lines, size)


def _claim(raw: Json) -> Claim:
    where = _where(raw)
    name = raw["metadata"]["name"]
    if not name.startswith("tgp-claim-"):
        raise odd(where, "its name does not begin with tgp-claim-")
    claim = decode_claim((raw.get("data") or {}).get("claim.json"), where, name.removeprefix("tgp-claim-"))
    version = raw["metadata"].get("resourceVersion")
    if not version:
        raise odd(where, "it has no resourceVersion")
    return dataclasses.replace(claim, version=version)


def _claim_or_damaged(raw: Json) -> Claim | DamagedClaim:
    try:
        return _claim(raw)
    except BadShape as problem:
        meta = raw["metadata"]
        beside = {"pool": str((meta.get("annotations") or {}).get(NODEPOOL_LABEL) or "")}
        text = (raw.get("data") or {}).get("claim.json")
        return damaged(text, _where(raw), meta["name"].removeprefix("tgp-claim-"), problem, **beside)


def claim_labels(claim: Claim) -> dict[str, str]:
    """By which a claim is found, whatever object it is."""
    return {CLAIM_LABEL: "true", NODEPOOL_LABEL: label_value(claim.pool.replace("/", "."))}


def move_of(raw: Json) -> Json:
    """What the mark says."""
    return decode((raw.get("data") or {}).get("move.json"), _where(raw))


def _where(raw: Json) -> str:
    return f"ConfigMap {NAMESPACE}/{raw['metadata']['name']}"


def _configmap(
    name: str,
    labels: dict[str, str],
    data: dict[str, str],
    version: str = "",
    annotations: dict[str, str] | None = None,
) -> Json:
    meta: Json = {"name": name, "namespace": NAMESPACE, "labels": {**labels, MANAGED_BY_LABEL: "tgp.gpu"}}
    if annotations:
        meta["annotations"] = annotations
    if version:
        meta["resourceVersion"] = version
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
