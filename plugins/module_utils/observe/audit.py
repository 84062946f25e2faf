# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Clouds, meshes, records and the cluster as acting code gets them: each call that costs or deletes writes an event before and after.

Calls through a Context are recorded without any further code. ``intent`` is on file before the call goes out, ``outcome``
once its answer is known; ``ref`` of the outcome is the number of its intent. A call that a killed process left behind has no outcome.
"""

from __future__ import annotations

import threading
import typing as t
from contextlib import contextmanager

from ..core.errors import Conflict, LaunchRefused, LaunchUnknown, LostAnswer, NotFound, ServerError, TgpError
from ..core.task import Task
from ..mesh.base import Mesh
from ..model import Claim, Extra, LaunchRequest
from ..providers.base import Cloud
from ..store.records import ClaimRecords, ClaimStore

_UNKNOWN = (LaunchUnknown, LostAnswer, ServerError)


class Call:
    """One call on its way; ``facts`` are added to its outcome."""

    def __init__(self) -> None:
        self.facts: dict[str, t.Any] = {"result": "ok"}


@contextmanager
def told(task: Task, call: str, **facts: t.Any) -> t.Iterator[Call]:
    """Tell of the call that is made inside. Any end is an outcome: ok, gone (it was already), refused, failed, or unknown where it may
    have taken effect."""
    number, outcome = task.tell("intent", call=call, **facts), Call()
    try:
        yield outcome
    except TgpError as error:
        outcome.facts = {"result": _result(error), "error": error.kind, "text": error.message}
        if isinstance(error, LaunchRefused):
            outcome.facts |= {"error": error.reason, "id": error.instance_id}
        raise
    except BaseException as error:
        outcome.facts = {"result": "unknown", "error": type(error).__name__}
        raise
    finally:
        task.tell("outcome", ref=number, call=call, **{**facts, **outcome.facts})


def _result(error: TgpError) -> str:
    if isinstance(error, _UNKNOWN):
        return "unknown"
    if isinstance(error, NotFound):
        return "gone"
    return "refused" if isinstance(error, (LaunchRefused, Conflict)) else "failed"


class _Delegate:
    """Everything that is not said here is done by ``inner``."""

    def __init__(self, inner: t.Any, task: Task) -> None:
        self._inner, self._task = inner, task

    def __getattr__(self, name: str) -> t.Any:
        return getattr(self._inner, name)


class _ToldCloud(_Delegate):
    def __init__(self, inner: Cloud, task: Task, cloud: str) -> None:
        super().__init__(inner, task)
        self._cloud = cloud

    def launch(self, request: LaunchRequest) -> str:
        offer = request.offer
        facts = {"type": offer.instance_type, "region": offer.cloud_region, "price_hour": offer.price_hour}
        with told(self._task, "launch", name=request.name, cloud=self._cloud, offer=offer.id, **facts) as call:
            instance_id = t.cast(str, self._inner.launch(request))
            call.facts["id"] = instance_id
        return instance_id

    def terminate(self, instance_id: str) -> None:
        with told(self._task, "terminate", cloud=self._cloud, id=instance_id):
            self._inner.terminate(instance_id)

    def erase_user_data(self, instance_id: str) -> None:
        with told(self._task, "erase_user_data", cloud=self._cloud, id=instance_id):
            self._inner.erase_user_data(instance_id)

    def discard(self, extra: Extra) -> None:
        with told(self._task, "discard", name=extra.name, cloud=self._cloud, id=extra.id, type=extra.kind):
            self._inner.discard(extra)


class _ToldMesh(_Delegate):
    def create_key(self, node: str, **options: t.Any) -> t.Any:
        with told(self._task, "create_key", name=node) as call:
            key = self._inner.create_key(node, **options)
            call.facts["id"] = key.id
        return key

    def delete_key(self, key_id: str) -> bool:
        with told(self._task, "delete_key", id=key_id) as call:
            deleted = bool(self._inner.delete_key(key_id))
            call.facts["result"] = "ok" if deleted else "gone"
        return deleted

    def delete_device(self, device_id: str) -> bool:
        with told(self._task, "delete_device", id=device_id) as call:
            deleted = bool(self._inner.delete_device(device_id))
            call.facts["result"] = "ok" if deleted else "gone"
        return deleted


class _ToldStore(_Delegate):
    """Claims: a change of phase is an event once it is stored, and so is a closing line."""

    def __init__(self, inner: ClaimStore, task: Task) -> None:
        super().__init__(inner, task)
        self._phases: dict[str, str] = {}

    def claims(self) -> list[Claim]:
        claims = t.cast("list[Claim]", self._inner.claims())
        self._phases.update((claim.name, claim.phase.value) for claim in claims)
        return claims

    def claim_records(self) -> ClaimRecords:
        records = t.cast("ClaimRecords", self._inner.claim_records())
        self._phases.update((claim.name, claim.phase.value) for claim in records[0])
        return records

    def claim(self, name: str) -> Claim | None:
        claim = t.cast("Claim | None", self._inner.claim(name))
        if claim is not None:
            self._phases[name] = claim.phase.value
        return claim

    def write(self, claim: Claim) -> Claim:
        before = self._phases.get(claim.name, "")
        written = t.cast(Claim, self._inner.write(claim))
        phase = written.phase.value
        if phase != before:
            self._phases[claim.name] = phase
            reason = claim.deletion.reason if claim.deletion else ""
            self._task.tell("phase", name=claim.name, pool=claim.pool, cloud=claim.cloud, before=before, phase=phase, reason=reason)
        return written

    def remove(self, claim: Claim) -> None:
        self._inner.remove(claim)
        self._task.tell("phase", name=claim.name, pool=claim.pool, before=self._phases.pop(claim.name, ""), phase="Removed")

    def ledger(self, line: t.Mapping[str, t.Any]) -> bool:
        added = bool(self._inner.ledger(line))
        if added:
            booked = {key: line.get(key) for key in ("name", "pool", "cloud", "reason", "cost")}
            self._task.tell("booked", **booked, ids=list(line.get("ids") or ()))
        return added


def told_cloud(cloud: Cloud, task: Task, name: str) -> Cloud:
    return t.cast(Cloud, _ToldCloud(cloud, task, name))


def told_mesh(mesh: Mesh, task: Task) -> Mesh:
    return t.cast(Mesh, _ToldMesh(mesh, task))


def told_store(store: ClaimStore, task: Task) -> ClaimStore:
    return t.cast(ClaimStore, _ToldStore(store, task))


class KubeTeller:
    """Tells of what is deleted in the cluster, evictions included. Our own records and the run lock speak for themselves by other
    events; a repeatedly refused eviction is one event."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._lock = threading.Lock()
        self._refused: set[str] = set()

    def __call__(self, method: str, path: str, send: t.Callable[[], t.Any]) -> t.Any:
        if path.endswith("/eviction"):
            return self._evict(path.removesuffix("/eviction"), send)
        if method != "DELETE" or any(ours in path for ours in ("/leases/", "/configmaps/tgp-", "/gpunodeclaims/")):
            return send()
        with told(self._task, "delete", target=path):
            return send()

    def _evict(self, path: str, send: t.Callable[[], t.Any]) -> t.Any:
        with self._lock:
            again = path in self._refused
        number = 0 if again else self._task.tell("intent", call="evict", target=path)
        try:
            answer = send()
        except TgpError as error:
            with self._lock:
                self._refused.add(path)
            if not again:
                facts = {"result": _result(error), "error": error.kind, "text": error.message}
                self._task.tell("outcome", ref=number, call="evict", target=path, **facts)
            raise
        self._task.tell("outcome", ref=number, call="evict", target=path, result="ok")
        return answer
