# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ProvisioningRequests (L-42): machines are rented for all pods of a request or for none, held until these come, and its status says so.

A request is open until all its pods have a place on Ready machines. Then it is booked for ten minutes: its machines do not go for being idle,
and its room is given to nobody else. Pods that consume it take the places of its placeholders, so none is counted twice.
"""

from __future__ import annotations

import collections
import dataclasses
import typing as t
from datetime import timedelta

from ...model import Expression, NodeTerm, Phase, Pod, Pool, StatusCondition
from ...model.labels import CONSUMES_REQUEST_ANNOTATION, FORMER_CONSUMES_REQUEST_ANNOTATION, MACHINES_DETAIL, NODEPOOL_LABEL
from ...model.names import label_value
from ...model.queues import CHECK_CAPACITY, ProvisioningRequest, RequestStatus
from ...model.reasons import ActionKind, RequestReason
from ...units.values import print_time
from ..cluster_state import Situation
from ..plan_builder import Draft
from ..scheduling import unschedulable_pods
from ..scheduling.binpacking import Bin, Room, fit, gpus
from ..scheduling.pending_pods import unjudged, waits

BOOKED_FOR: t.Final = 600  # seconds for which the room of a provisioned request is held
SERVED_WITHIN: t.Final = 604800  # seconds after which a request that was not served has failed
_FIRST, LAST = 2**31, -(2**31)


@dataclasses.dataclass(frozen=True, slots=True)
class Requested:
    """Placeholders: ``asking`` want a machine as pods do, ``booked`` hold room on Ready machines, ``looking`` (by request) ask only whether
    there is any."""

    asking: tuple[Pod, ...] = ()
    booked: tuple[Pod, ...] = ()
    looking: tuple[tuple[ProvisioningRequest, tuple[Pod, ...]], ...] = ()


def requested(situation: Situation) -> Requested:
    """What requests ask for, without what pods that consume them ask for or use."""
    asking: list[Pod] = []
    booked: list[Pod] = []
    looking: list[tuple[ProvisioningRequest, tuple[Pod, ...]]] = []
    for request in _by_age(situation):
        if _problem(request, situation):
            continue
        rest = missing(request, situation)
        if request.has("Provisioned"):
            booked += with_priority(rest, _FIRST) if _in_time(request, situation) else ()
        elif _too_old(request, situation):
            continue
        elif request.provisioning_class == CHECK_CAPACITY:
            looking.append((request, rest))
        else:
            asking += rest
    return Requested(tuple(asking), tuple(booked), tuple(looking))


def _by_age(situation: Situation) -> list[ProvisioningRequest]:
    return sorted(situation.seen.requests, key=lambda one: (one.created, one.namespace, one.name))


def with_priority(pods: t.Iterable[Pod], priority: int) -> list[Pod]:
    return [dataclasses.replace(pod, placement=dataclasses.replace(pod.placement, priority=priority)) for pod in pods]


def consumers(request: ProvisioningRequest, situation: Situation) -> list[Pod]:
    """Pods with GPUs that were made to use its room. One that has ended has used it."""
    keys = (CONSUMES_REQUEST_ANNOTATION, FORMER_CONSUMES_REQUEST_ANNOTATION)
    return [
        pod
        for pod in situation.seen.pods or ()
        if pod.namespace == request.namespace
        and any(pod.annotations.get(key) == request.name for key in keys)
        and gpus(pod, situation.settings.gpu_resources)
    ]


def _problem(request: ProvisioningRequest, situation: Situation) -> str:
    """Why its pods cannot be served, whatever is rented; empty when they can."""
    wanting = [pod for pod in request.pods if waits(pod, situation.settings)]
    if not request.problem and not wanting:
        return "no machine of ours is of use to its pods: they ask for no GPUs, or must not be a reason to rent"
    return request.problem or next(filter(None, map(unjudged, wanting)), "")


def missing(request: ProvisioningRequest, situation: Situation) -> tuple[Pod, ...]:
    """Its placeholders that ask for GPUs, on nodes of pools that serve its class, without one for each pod that consumes it: such a pod takes
    the place of one that asks for as much, if there is any."""
    left = [pod for pod in request.pods if waits(pod, situation.settings)]
    for pod in consumers(request, situation):
        if left:
            left.remove(next((one for one in left if one.requests == pod.requests), left[0]))
    serving = (pool for pool in situation.pools if request.provisioning_class in pool.provisioning_classes)
    return in_pools(left, serving)


def in_pools(pods: t.Iterable[Pod], pools: t.Iterable[Pool]) -> tuple[Pod, ...]:
    """The pods, each bound to nodes of these pools beside what it says itself."""
    wanted = Expression(NODEPOOL_LABEL, "In", tuple(sorted({label_value(pool.name) for pool in pools})))
    return tuple(
        dataclasses.replace(pod, placement=dataclasses.replace(pod.placement, terms=tuple(
            NodeTerm((*term.labels, wanted), term.fields) for term in pod.placement.terms or (NodeTerm(),)
        )))
        for pod in pods
    )  # fmt: skip


def _too_old(request: ProvisioningRequest, situation: Situation) -> bool:
    return (situation.now - request.created).total_seconds() >= SERVED_WITHIN


def _in_time(request: ProvisioningRequest, situation: Situation) -> bool:
    """Whether a request that is provisioned is booked still."""
    found = request.condition("Provisioned")
    return found is not None and found.since is not None and situation.now < found.since + timedelta(seconds=BOOKED_FOR)


def machines_of(request: ProvisioningRequest) -> tuple[str, ...]:
    return tuple(name for name in request.details.get(MACHINES_DETAIL, "").split(",") if name)


def holds(situation: Situation) -> dict[str, str]:
    """Machines that do not go for being idle, and the request that has booked them."""
    return {
        name: f"{request.title} has booked it until its pods come"
        for request in _by_age(situation)
        if request.has("Provisioned") and _in_time(request, situation) and missing(request, situation)
        for name in machines_of(request)
    }


def without(bins: t.Sequence[Bin], pods: t.Iterable[Pod], placed: t.Mapping[str, str]) -> list[Bin]:
    """The places with the room that is left once these pods are there."""
    on: dict[str, list[Pod]] = collections.defaultdict(list)
    for pod in pods:
        if pod.uid in placed:
            on[placed[pod.uid]].append(pod)
    left: list[Bin] = []
    for place in bins:
        room = Room(place)
        for pod in on[place.name]:
            room.add(pod)
        left.append(dataclasses.replace(place, free=room.free, pods=tuple(room.pods)))
    return left


# ---- what is written


@dataclasses.dataclass(frozen=True, slots=True)
class PlacedPods:
    """What the run has found for placeholders: uid to ``machine``, and to the reason ``why`` there is none. ``ready``: the machines that can be
    used now, to their pools; ``free``: the room that is left on them."""

    machine: t.Mapping[str, str]
    why: t.Mapping[str, str]
    ready: t.Mapping[str, str]
    free: t.Sequence[Bin] = ()


def settle(draft: Draft, asked: Requested, outcome: PlacedPods) -> tuple[RequestStatus, ...]:
    """The status of each request that is not over."""
    situation = draft.situation
    free = list(outcome.free)
    found: list[RequestStatus] = []
    for request in _by_age(situation):
        rest = missing(request, situation)
        if request.has("Provisioned"):
            conditions = _of_booked(draft, request, rest)
            found += [RequestStatus(request, conditions, request.details)] if conditions else []
            continue
        if _too_old(request, situation):
            text = f"It could not be served within {SERVED_WITHIN // 86400} days."
            found.append(_failed(draft, request, RequestReason.EXPIRED, text))
            continue
        if why := _problem(request, situation):
            found.append(_failed(draft, request, RequestReason.FAILED_TO_CHECK, f"{why}."))
            continue
        if any(one is request for one, _pods in asked.looking):
            pods = with_priority(rest, LAST)
            packed = fit(pods, free, situation.settings.gpu_resources)
            if packed.left:
                room = f"Room for {len(packed.placed)} of {len(rest)} pods is free, and this class rents nothing."
                found.append(_waits(draft, request, room))
                continue
            free = without(free, pods, packed.placed)
            found.append(_provisioned(draft, request, RequestReason.FOUND, packed.placed, outcome.ready))
            continue
        found.append(_of_asking(draft, request, rest, outcome))
    return tuple(found)


def _of_asking(draft: Draft, request: ProvisioningRequest, rest: t.Sequence[Pod], outcome: PlacedPods) -> RequestStatus:
    on = {pod.uid: outcome.machine[pod.uid] for pod in rest if pod.uid in outcome.machine}
    if len(on) == len(rest):
        coming = sorted({name for name in on.values() if name not in outcome.ready})
        if not coming:
            return _provisioned(draft, request, RequestReason.PROVISIONED, on, outcome.ready)
        return _waits(draft, request, f"Machines for {len(rest)} pods are on their way: {', '.join(coming)}.")
    why = next((outcome.why[pod.uid] for pod in rest if outcome.why.get(pod.uid)), "no machine has room for them")
    seen = draft.situation.seen
    blind = any(view.instances is None or (seen.offers_read and view.offers is None) for view in seen.clouds.values())
    if not blind and unschedulable_pods.unserved(draft, request.uid):
        return _failed(draft, request, RequestReason.NOT_FOUND, f"{why}.")
    return _waits(draft, request, f"{why}. It is tried again before it fails.")


def _of_booked(draft: Draft, request: ProvisioningRequest, rest: t.Sequence[Pod]) -> tuple[StatusCondition, ...]:
    """What ends the booking of a request; nothing while it lasts."""
    using = consumers(request, draft.situation)
    if not rest and all(pod.node or pod.ended for pod in using):
        text = "All its pods are there and have a node."
        return (_condition(draft, request, "BookingExpired", "True", RequestReason.CONSUMED, text),)
    if not _in_time(request, draft.situation):
        text = f"Its room was held for {BOOKED_FOR // 60} minutes, and {len(rest)} of its pods have not come."
        return (_condition(draft, request, "BookingExpired", "True", RequestReason.TIME_EXPIRED, text),)
    lost = [name for name in machines_of(request) if not _stays(draft, name)]
    if rest and lost:
        text = f"{', '.join(lost)} ended before its pods came."
        return (_condition(draft, request, "CapacityRevoked", "True", RequestReason.MACHINE_LOST, text),)
    return ()


def _stays(draft: Draft, name: str) -> bool:
    """Whether a machine is there, and nothing ends it. A Node may be not Ready for a moment: nobody can take the condition back."""
    settled = draft.settled.get(name)
    going = draft.decisions.get(name)
    if settled is None or (going is not None and going.kind == ActionKind.DESTROY):
        return False
    return settled.claim.phase is Phase.READY and settled.claim.deletion is None and settled.claim.gone_since is None


def _waits(draft: Draft, request: ProvisioningRequest, text: str) -> RequestStatus:
    not_yet = _condition(draft, request, "Provisioned", "False", RequestReason.NOT_FOUND, text)
    return RequestStatus(request, (_accepted(draft, request), not_yet), request.details)


def _provisioned(
    draft: Draft, request: ProvisioningRequest, reason: RequestReason, on: t.Mapping[str, str], ready: t.Mapping[str, str]
) -> RequestStatus:
    machines = sorted(set(on.values()))
    pools = {ready[name] for name in machines}
    details = {MACHINES_DETAIL: ",".join(machines)}
    if len(pools) == 1:  # a value for the nodeSelector of the pods (podSetUpdates of Kueue)
        details[NODEPOOL_LABEL] = label_value(next(iter(pools)).partition("/")[2])
    text = f"{len(on)} pods have room on {', '.join(machines)}." if machines else "All its pods are there already."
    done = _condition(draft, request, "Provisioned", "True", reason, text)
    return RequestStatus(request, (_accepted(draft, request), done), details)


def _failed(draft: Draft, request: ProvisioningRequest, reason: RequestReason, text: str) -> RequestStatus:
    failed = _condition(draft, request, "Failed", "True", reason, f"{text[0].upper()}{text[1:]}")
    return RequestStatus(request, (_accepted(draft, request), failed), request.details)


def _accepted(draft: Draft, request: ProvisioningRequest) -> StatusCondition:
    return _condition(draft, request, "Accepted", "True", RequestReason.ACCEPTED, "tgp.gpu serves this request.")


def _condition(
    draft: Draft, request: ProvisioningRequest, kind: str, status: str, reason: RequestReason, text: str
) -> StatusCondition:
    old = request.condition(kind)
    since = old.since if old is not None and old.status == status and old.since is not None else draft.now
    return StatusCondition(kind, status, reason, text, since)


def status_patch(wanted: RequestStatus) -> dict[str, t.Any] | None:
    """The merge patch of its status; None when all is there. Conditions of other types stay as they are."""
    request = wanted.request
    new = {one.type: one for one in wanted.conditions}
    conditions = [new.pop(one.type, one) for one in request.conditions]
    conditions += new.values()
    if tuple(conditions) == request.conditions and wanted.details == request.details:
        return None
    return {
        "conditions": [condition_json(one, request.generation) for one in conditions],
        "provisioningClassDetails": dict(wanted.details),
    }


def condition_json(one: StatusCondition, generation: int) -> dict[str, t.Any]:
    """A condition as the API has it."""
    return {
        "type": one.type,
        "status": one.status,
        "observedGeneration": generation,
        "lastTransitionTime": None if one.since is None else print_time(one.since),
        "reason": one.reason,
        "message": one.message,
    }
