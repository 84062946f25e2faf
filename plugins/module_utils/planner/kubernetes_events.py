# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kubernetes Events (L-32): what a plan, and the steps after it, report of pods, Nodes, pools, requests and classes.

Not to be confused with the run's own event log (core/events.py). A plan has at most one of each object, a step at most one of each
machine for its pool or request and one for its Node.
"""

from __future__ import annotations

import hashlib
import re
import typing as t
from datetime import datetime, timedelta

from ..model import Claim, KubernetesEvent, Node, ObjectReference, Phase, Specs, StatusObject
from ..model.labels import API_VERSION, PREFIX
from ..model.reasons import ActionKind, EventReason, Finding, Reason
from ..units.values import print_money
from .object_status import World, statuses

AGAIN_AFTER: t.Final = 900  # seconds; the same thing is reported of an object no more often
MOST_PER_RUN: t.Final = 200  # events of a plan; later runs write those that are left
LONGEST_NOTE: t.Final = 1024  # bytes, by the API server
CONTROLLER = f"{PREFIX}gpu"
CLUSTER_SCOPED = "default"  # the namespace for events of objects that have none

_BLOCKED = frozenset(
    {
        Finding.HELD,
        Reason.EXPIRED,
        Reason.EMPTY,
        Reason.UNDERUTILIZED,
        Reason.REPLACED,
        Reason.DOCUMENT_GONE,
    }
)  # reasons of reports that a Node stays although something speaks for its end
_ALARMING = frozenset({Reason.INSTANCE_GONE, Reason.SPOT_LOST, Reason.UNHEALTHY, Reason.PRICE_JUMP, Reason.BUDGET})
_STANDING = frozenset({EventReason.PAUSED, EventReason.COMPLETED})  # reported when it begins: it is as it should be
_OF_READY = frozenset(
    {
        EventReason.INVALID_DOCUMENT,
        EventReason.CLASS_NOT_READY,
        EventReason.CANNOT_JOIN,
        EventReason.PROVIDERS_UNAVAILABLE,
        EventReason.INSUFFICIENT_CAPACITY,
        EventReason.LIMIT_REACHED,
        EventReason.BUDGET_EXCEEDED,
        *_STANDING,
    }
)


# ---- of a plan


def of_plan(world: World) -> list[KubernetesEvent]:
    """At most one for each object, the most important objects first. Nothing while the claims could not be read."""
    events: dict[ObjectReference, KubernetesEvent] = {}
    if world.seen.claims is None:
        return []
    for event in (*_of_nodes(world), *_of_objects(world), *_of_pods(world)):
        events.setdefault(event.regarding, event)
    return list(events.values())


def _of_nodes(world: World) -> t.Iterator[KubernetesEvent]:
    """What is decided about machines that are Nodes. A decision is reported once: when it is made."""
    earlier = {claim.name: claim for claim in world.seen.claims or ()}
    for action in world.decided.actions:
        claim = action.claim or earlier.get(action.name)
        node = world.nodes.get(action.target or (claim.node_name or claim.name if claim is not None else ""))
        if node is None or (claim is not None and claim.node_uid not in ("", node.uid)):
            continue
        of, why = node_reference(node), f"{action.reason}: {action.detail}".rstrip(": ")
        if action.kind == ActionKind.DESTROY:
            known = earlier.get(action.name)
            if known is None or known.deletion is None or known.deletion.reason != action.reason:
                yield KubernetesEvent(of, EventReason.DISRUPTION_TERMINATING, f"Disrupting Node: {why}", key=action.reason)
        elif action.kind == ActionKind.TAINT:
            yield KubernetesEvent(of, EventReason.GPU_LOST, action.detail, warning=True)
        elif action.kind == ActionKind.UNTAINT:
            yield KubernetesEvent(of, EventReason.GPU_BACK, action.detail)
        elif action.kind == ActionKind.REPORT and action.reason in _BLOCKED:
            yield KubernetesEvent(of, EventReason.DISRUPTION_BLOCKED, f"Cannot disrupt Node: {why}", key=action.reason)


def _of_objects(world: World) -> t.Iterator[KubernetesEvent]:
    """Why a pool, a request or a class is not Ready, in the words of its condition; that its budget is used up, although it is."""
    for one, status in statuses(world):
        now, before = _conditions(status), _conditions(one.status)
        ready = now["Ready"]
        if ready["reason"] in _OF_READY:
            reason = EventReason(ready["reason"])
            standing = reason in _STANDING
            if not standing or before.get("Ready", {}).get("reason") != reason:
                yield KubernetesEvent(object_reference(one), reason, ready["message"], warning=not standing)
        elif now["BudgetExceeded"]["status"] == "True":
            message = now["BudgetExceeded"]["message"]
            yield KubernetesEvent(object_reference(one), EventReason.BUDGET_EXCEEDED, message, warning=True)


def _conditions(status: t.Mapping[str, t.Any]) -> dict[str, t.Mapping[str, t.Any]]:
    return {entry["type"]: entry for entry in status.get("conditions") or ()}


def _of_pods(world: World) -> t.Iterator[KubernetesEvent]:
    """Where pods that wait will run, or why nothing comes for them."""
    uids = {(pod.namespace, pod.name): pod.uid for pod in world.seen.pods or ()}
    for waiting in world.decided.waiting:
        of = ObjectReference("v1", "Pod", waiting.namespace, waiting.name, uids.get((waiting.namespace, waiting.name), ""))
        if not of.uid:
            continue
        if waiting.machine:
            note = f"Pod should schedule on: machine {waiting.machine} of pool {waiting.pool}"
            yield KubernetesEvent(of, EventReason.GPU_NOMINATED, note, key=waiting.machine)
        elif waiting.reason:
            nearest = f" (pool {waiting.pool})" if waiting.pool else ""
            note = f"No machine is launched for the pod: {waiting.reason}{nearest}"
            yield KubernetesEvent(of, EventReason.GPU_NOT_SCALED_UP, note, warning=True)


# ---- of what was done


class MachineResult(t.NamedTuple):
    """How the work of a step on one machine ended. ``seen``: it was followed until then."""

    claim: Claim
    result: str
    message: str
    seen: bool = False


def _nobody(_name: str) -> str:
    return ""


def of_results(results: t.Iterable[MachineResult], specs: Specs, uid_of: t.Callable[[str], str] = _nobody) -> list[KubernetesEvent]:
    """What changed, for the pool or request that is an object of the cluster, and for the Node that is there. A claim that is an object
    (``uid_of`` a name, empty for others) has it in place of its pool, which then has warnings alone."""
    objects = {one.key: one for one in specs.objects if one.kind != "GPUNodeClass"}
    events: list[KubernetesEvent] = []
    for result in results:
        one, node = objects.get(result.claim.pool), _node_of(result.claim)
        for_pool, for_node = _to_pool(result), _to_node(result)
        uid = uid_of(result.claim.name)
        if one is not None and for_pool is not None:
            reason, note, warning = for_pool
            related = node if result.result == "ready" else None
            of_machine = f"{result.claim.name}: {note}"
            if warning or not uid:
                events.append(KubernetesEvent(object_reference(one), reason, of_machine, warning, related, key=result.claim.name))
        if uid and for_pool is not None:
            about = ObjectReference(API_VERSION, "GPUNodeClaim", "tgp-system", result.claim.name, uid)
            events.append(KubernetesEvent(about, *for_pool, related=None if one is None else object_reference(one)))
        if node is not None and for_node is not None:
            events.append(KubernetesEvent(node, *for_node, related=None if one is None else object_reference(one)))
    return events


_Words = tuple[EventReason, str, bool]


def _to_pool(done: MachineResult) -> _Words | None:
    claim = done.claim
    ended = claim.deletion.reason if claim.deletion is not None else ""
    if done.result in ("launched", "adopted"):
        return EventReason.LAUNCHED, _machine(claim), False
    if done.result == "waiting" and not claim.instance_id:
        return EventReason.LAUNCH_UNKNOWN, done.message, True
    if done.result in ("failed", "replaced"):
        joins = bool(claim.instance_id) and ended != Reason.LAUNCH_FAILED
        return EventReason.JOIN_FAILED if joins else EventReason.LAUNCH_FAILED, done.message, True
    if done.result == "ready" and done.seen:
        return EventReason.MACHINE_READY, f"{_machine(claim)}; {done.message}", False
    if done.result == "gone" and claim.instance_id:
        return EventReason.TERMINATED, f"{ended}; {_machine(claim)}", ended in _ALARMING
    if done.result == "pending" and claim.phase is Phase.TERMINATING:
        return EventReason.TERMINATION_PENDING, done.message, True
    return None


def _to_node(done: MachineResult) -> _Words | None:
    if done.result == "ready" and done.seen:
        return EventReason.INITIALIZED, f"{_machine(done.claim)}; {done.message}", False
    if done.result == "kept":  # "in_use" lasts from run to run, and a quiet run writes nothing
        return EventReason.DISRUPTION_BLOCKED, f"Cannot disrupt Node: {done.message}", False
    if done.result == "pending" and done.claim.phase is not Phase.TERMINATING:
        return EventReason.FAILED_DRAINING, f"Failed to drain node: {done.message}", True
    return None


def _machine(claim: Claim) -> str:
    offer = claim.offer
    gpus = f"{offer.gpu_count} × {offer.model}" if offer.gpu_count else offer.model
    return f"{claim.cloud} {offer.instance_type} {offer.region}, {gpus}, ${print_money(claim.price)}/h"


# ---- the objects


def node_reference(node: Node) -> ObjectReference:
    return ObjectReference("v1", "Node", "", node.name, node.uid)


def _node_of(claim: Claim) -> ObjectReference | None:
    return ObjectReference("v1", "Node", "", claim.node_name, claim.node_uid) if claim.node_name and claim.node_uid else None


def object_reference(one: StatusObject) -> ObjectReference:
    namespace, _slash, name = one.key.rpartition("/")
    return ObjectReference(API_VERSION, one.kind, namespace if one.kind == "GPUNodePool" else "", name, one.uid)


# ---- which are written: each at most once in 15 minutes


def identity(event: KubernetesEvent) -> str:
    """The same for what is reported again."""
    parts = (event.regarding.uid, event.reason, event.key or event.note)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def due(events: t.Iterable[KubernetesEvent], written: t.Mapping[str, datetime], now: datetime) -> list[KubernetesEvent]:
    """The first of those that were not written within 15 minutes. ``written``: identity → when."""
    fresh = [event for event in events if (when := written.get(identity(event))) is None or not _recent(when, now)]
    return fresh[:MOST_PER_RUN]


def remembered(before: t.Mapping[str, datetime], written: t.Iterable[KubernetesEvent], now: datetime) -> dict[str, datetime]:
    """What was written within 15 minutes, with ``written``."""
    kept = {key: when for key, when in before.items() if _recent(when, now)}
    return dict(sorted({**kept, **{identity(event): now for event in written}}.items()))


def _recent(when: datetime, now: datetime) -> bool:
    return abs(now - when) < timedelta(seconds=AGAIN_AFTER)


def body(event: KubernetesEvent, instance: str, now: datetime) -> dict[str, t.Any]:
    """The object of events.k8s.io/v1. Its name is the same for what is reported again in the same quarter of an hour: the API server
    refuses the second one. ``instance``: who reports it, the run."""
    window = int(now.timestamp()) // AGAIN_AFTER
    prefix = re.sub(r"[^a-z0-9]+$", "", event.regarding.name[:200])
    related = {} if event.related is None else {"related": _reference(event.related)}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{prefix}.{identity(event)}{window:x}", "namespace": event.regarding.namespace or CLUSTER_SCOPED},
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": CONTROLLER,
        "reportingInstance": instance[:128],
        "action": _ACTIONS[event.reason],
        "reason": event.reason.value,
        "regarding": _reference(event.regarding),
        **related,
        "note": _clipped(event.note),
        "type": "Warning" if event.warning else "Normal",
    }


def _reference(of: ObjectReference) -> dict[str, str]:
    namespace = {"namespace": of.namespace} if of.namespace else {}
    return {"apiVersion": of.api_version, "kind": of.kind, **namespace, "name": of.name, "uid": of.uid}


def _clipped(text: str) -> str:
    raw = text.encode()
    return text if len(raw) <= LONGEST_NOTE else raw[: LONGEST_NOTE - 3].decode(errors="ignore") + "…"


_LAUNCH, _JOIN, _DISRUPT, _RECONCILE, _SCALE_UP = "Launch", "Join", "Disrupt", "Reconcile", "ScaleUp"
_ACTIONS: dict[EventReason, str] = {
    **dict.fromkeys(EventReason, _RECONCILE),
    **dict.fromkeys((EventReason.GPU_NOMINATED, EventReason.GPU_NOT_SCALED_UP), _SCALE_UP),
    **dict.fromkeys((EventReason.LAUNCHED, EventReason.LAUNCH_FAILED, EventReason.LAUNCH_UNKNOWN), _LAUNCH),
    **dict.fromkeys((EventReason.INITIALIZED, EventReason.MACHINE_READY, EventReason.JOIN_FAILED), _JOIN),
    **dict.fromkeys(
        (
            EventReason.DISRUPTION_TERMINATING,
            EventReason.DISRUPTION_BLOCKED,
            EventReason.FAILED_DRAINING,
            EventReason.TERMINATED,
            EventReason.TERMINATION_PENDING,
        ),
        _DISRUPT,
    ),
}
