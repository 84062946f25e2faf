# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock among all machines: the Lease ``tgp-<cluster id>`` in tgp-system, guarded by the API server's resourceVersion (L-8)."""

from __future__ import annotations

import json
import typing as t
from datetime import datetime, timezone

from ..core.clock import Clock, from_text
from ..core.errors import Conflict, Locked, LockLost, NotFound
from ..kube.client import NAMESPACE, Json, Kube, ensure_namespace
from ..model.labels import OWNER_PROCESS_ANNOTATION
from ..planner.run_lock import Reading, decide
from .lock_file import Process, alive, from_record

PATH = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
DURATION = 900
SECOND_READING = 10


def path_of(cluster_id: str) -> str:
    """Where the API server has the Lease of this cluster's runs."""
    return f"{PATH}/tgp-{cluster_id}"


class Lease:
    """One run's grip on the Lease. Not safe for several threads; RunLock sees to that."""

    def __init__(self, kube: Kube, cluster_id: str, run_id: str, owner: Process, clock: Clock) -> None:
        self._kube, self._run, self._owner, self._clock = kube, run_id, owner, clock
        self._name = f"tgp-{cluster_id}"
        self._path = path_of(cluster_id)
        self._me = f"{owner.host}/{owner.pid}/{run_id}"
        self._raw: Json | None = None
        self._earlier: Reading | None = None
        self.renewed: datetime | None = None

    def attempt(self) -> str:
        """One look and, if it is free, one grasp: ``held`` (it was this run's already), ``taken``, ``read_again`` (look once more
        after SECOND_READING seconds). Locked when another run holds it."""
        reading = self._read()
        mine = reading is not None and self._is_mine(reading.holder)
        decision = decide(reading, self._earlier, reading.holder if mine and reading else self._me, second_reading=SECOND_READING)
        if decision in ("busy", "read_again") and self._holder_is_dead():
            decision = "take"
        if decision == "mine" and reading is not None:
            self.renewed = reading.renewed or self._clock.now()
            if reading.expired:
                self.renew()
            return "held"
        if decision in ("free", "take"):
            try:
                self._write(taking=True)
                return "taken"
            except Conflict:
                return self._lost_race()
        if decision == "read_again":
            earlier = self._earlier
            if earlier is None or (reading and (reading.renewed, reading.holder) != (earlier.renewed, earlier.holder)):
                self._earlier = reading
            return "read_again"
        raise self._busy(reading)

    def _lost_race(self) -> str:
        reading = self._read()
        if reading is not None and self._is_mine(reading.holder):
            self.renewed = reading.renewed or self._clock.now()
            return "held"
        raise self._busy(reading)

    def renew(self) -> None:
        """Stretch our time. LockLost when the Lease is another's now, or gone."""
        for _attempt in range(5):
            try:
                self._write(taking=False)
                return
            except Conflict:
                reading = self._read()
                if reading is None or not self._is_mine(reading.holder):
                    raise self._lost(reading) from None
            except NotFound:
                raise self._lost(None) from None
        raise self._lost(self._read())

    def release(self) -> bool:
        """Let go; False when it was not ours (any more)."""
        for _attempt in range(5):
            reading = self._read()
            if reading is None or not self._is_mine(reading.holder) or self._raw is None:
                return False
            self._raw["spec"]["holderIdentity"] = ""
            self._raw["metadata"].get("annotations", {}).pop(OWNER_PROCESS_ANNOTATION, None)
            try:
                self._kube.replace(self._path, self._raw)
                return True
            except Conflict:
                continue
        return False

    # ---- inside

    def _read(self) -> Reading | None:
        self._raw = self._kube.find(self._path)
        if self._raw is None:
            return None
        spec = self._raw.setdefault("spec", {}) or {}
        operation = f"GET {self._path}"
        try:
            renewed = from_text(spec["renewTime"]) if spec.get("renewTime") else None
            duration = int(spec.get("leaseDurationSeconds") or DURATION)
        except (ValueError, TypeError, AttributeError) as error:
            raise self._kube.api.bad_shape(operation, f"its spec has an odd field: {error}") from error
        return Reading(str(spec.get("holderIdentity") or ""), renewed, duration, self._clock.now())

    def _write(self, *, taking: bool) -> None:
        now = self._clock.now()
        old = self._raw or {}
        spec: Json = dict(old.get("spec") or {})
        spec.update(holderIdentity=self._me, leaseDurationSeconds=DURATION, renewTime=_micro(now))
        if taking:
            spec["acquireTime"] = _micro(now)
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + (1 if old else 0)
        body: Json = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self._name,
                "namespace": NAMESPACE,
                "annotations": {OWNER_PROCESS_ANNOTATION: json.dumps(self._owner.to_record())},
            },
            "spec": spec,
        }
        if old:
            body["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
            self._raw = self._kube.replace(self._path, body)
        else:
            self._raw = self._make(body)
        self.renewed = now

    def _make(self, body: Json) -> Json:
        try:
            return self._kube.create(PATH, body)
        except NotFound:
            ensure_namespace(self._kube)
            return self._kube.create(PATH, body)

    def _is_mine(self, holder: str) -> bool:
        """``<host>/<pid>/<run>``, of whatever host and process; a run's name may have slashes."""
        return holder.split("/", 2)[2:] == [self._run]

    def _holder_is_dead(self) -> bool:
        """True when the holder was a process of this very boot and process namespace, and is no more: a proof, not a guess."""
        text = ((self._raw or {}).get("metadata") or {}).get("annotations", {}).get(OWNER_PROCESS_ANNOTATION)
        try:
            record = json.loads(text) if text else None
        except ValueError:
            return False
        owner = from_record(record) if isinstance(record, dict) else None
        return owner is not None and alive(owner) is False

    def _busy(self, reading: Reading | None) -> Locked:
        holder = reading.holder if reading else "another run"
        spec = (self._raw or {}).get("spec") or {}
        age = self._age(spec.get("acquireTime"))
        since = f", since {age:.0f} s" if age is not None else ""
        return Locked(
            f"Another run is active on this cluster: {holder}{since}.",
            remedy="Let it end, or wait for it (module option lock_wait). A dead run is overtaken 15 minutes after its last sign of life.",
            holder=holder,
            age=round(age) if age is not None else None,
        )

    def _age(self, text: t.Any) -> float | None:
        try:
            return (self._clock.now() - from_text(str(text))).total_seconds() if text else None
        except ValueError:
            return None

    def _lost(self, reading: Reading | None) -> LockLost:
        holder = reading.holder if reading else ""
        return LockLost(
            f"The run lock of this run ({self._me}) was taken over by {holder or 'another run that has released it since'}.",
            remedy="Nothing more is done by this run; the claims stay as they are, and the next run goes on from them.",
            holder=holder or None,
        )


def _micro(moment: datetime) -> str:
    """The API's MicroTime."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
