# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CapacityBuffers (L-42): spare room by the shape of a pod, kept free on nodes and rented where it is missing.

A buffer is a number of placeholders of one pod template. They get a place after all pods that wait, on what is left, so they take nothing
from any pod. A node that has room for one of them does not go for being idle.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ...model import Pod, StatusCondition
from ...model.queues import BufferStatus, CapacityBuffer
from ...model.reasons import BufferReason
from ..cluster_state import Situation
from ..plan_builder import Draft
from ..scheduling.binpacking import fit
from ..scheduling.existing_nodes import places
from ..scheduling.pending_pods import unjudged, waits
from . import requested_capacity

MOST_PLACEHOLDERS: t.Final = 1000  # of one buffer
STRATEGY = "buffer.x-k8s.io/active-capacity"


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """How many placeholders a buffer has; none where ``problem`` says why."""

    count: int = 0
    problem: str = ""


def size_of(buffer: CapacityBuffer) -> Size:
    """The larger of ``replicas`` and ``percentage`` (rounded up), no more than ``limits`` allow. Limits alone are the size."""
    if buffer.pod is None:
        return Size(problem=buffer.problem)
    wanted = [] if buffer.replicas is None else [buffer.replicas]
    if buffer.percentage is not None:
        if buffer.scale is None:
            return Size(problem="percentage is of the replicas of scalableRef, and none is named")
        wanted.append(-(-buffer.scale * buffer.percentage // 100))
    fits = []
    for name, amount in sorted(buffer.limits.items()):
        each = buffer.pod.requests.get(name, 0)
        if not each:
            return Size(problem=f"limits name {name}, and a pod of the template asks for none")
        fits.append(amount // each)
    if not wanted and not fits:
        return Size(problem="neither replicas, percentage nor limits say how large it is")
    count = min([*([max(wanted)] if wanted else []), *fits])
    if count > MOST_PLACEHOLDERS:
        return Size(problem=f"it has {count} pods, and {MOST_PLACEHOLDERS} are the most that are served")
    return Size(max(0, count))


def _resolved(buffer: CapacityBuffer, situation: Situation) -> Size:
    """The size of a buffer that machines of ours can serve."""
    size = size_of(buffer)
    if size.problem or buffer.pod is None:
        return size
    if not waits(buffer.pod, situation.settings):
        return Size(problem="no machine of ours is of use to its pods: they ask for no GPUs, or must not be a reason to rent")
    return Size(problem=unjudged(buffer.pod)) if unjudged(buffer.pod) else size


def placeholders(situation: Situation) -> tuple[Pod, ...]:
    """Those of all buffers, on nodes of pools that serve them, as if they waited for a machine."""
    serving = [pool for pool in situation.pools if pool.capacity_buffers]
    found: list[Pod] = []
    for buffer in situation.seen.buffers:
        if buffer.pod is not None:
            numbers = range(_resolved(buffer, situation).count)
            found += (
                dataclasses.replace(buffer.pod, name=f"{buffer.name}[{number}]", uid=f"{buffer.uid}/{number}") for number in numbers
            )
    return requested_capacity.in_pools(found, serving)


def last(pods: t.Iterable[Pod]) -> list[Pod]:
    """The same with the least priority there is."""
    return requested_capacity.with_priority(pods, requested_capacity.LAST)


def holds(draft: Draft) -> dict[str, str]:
    """Machines that do not go for being idle because of buffers, in a run that looks at no waiting pods."""
    pods = placeholders(draft.situation) if draft.situation.settings.mode != "autoscale" else ()
    if not pods:
        return {}
    rooms = [place.room for place in places(draft, unresumed=False) if place.node is not None]
    packed = fit(last(pods), rooms, draft.situation.settings.gpu_resources)
    return {
        packed.placed[pod.uid]: f"{pod.namespace}/{pod.name} of a CapacityBuffer has room there"
        for pod in pods
        if pod.uid in packed.placed
    }


# ---- what is written


def settle(draft: Draft, on_ready: t.Collection[str], why: t.Mapping[str, str]) -> tuple[BufferStatus, ...]:
    """The status of each buffer. ``on_ready``: uids of placeholders with room on Ready machines; ``why``: uid to the reason there is none."""
    return tuple(_status(draft, buffer, on_ready, why) for buffer in draft.situation.seen.buffers)


def _status(draft: Draft, buffer: CapacityBuffer, on_ready: t.Collection[str], why: t.Mapping[str, str]) -> BufferStatus:
    size = _resolved(buffer, draft.situation)
    kept: dict[str, t.Any] = {"provisioningStrategy": STRATEGY, "replicas": size.count}
    if buffer.template:
        kept |= {"podTemplateRef": {"name": buffer.template}, "podTemplateGeneration": buffer.template_generation}

    def condition(kind: str, status: bool, reason: str, text: str) -> StatusCondition:
        word = "True" if status else "False"
        old = next((one for one in buffer.conditions if one.type == kind), None)
        since = old.since if old is not None and old.status == word and old.since is not None else draft.now
        return StatusCondition(kind, word, reason, text, since)

    if size.problem:
        reason = buffer.reason or BufferReason.RESOLUTION_FAILED
        text = f"{size.problem[0].upper()}{size.problem[1:]}."
        not_ready = condition("Provisioning", False, BufferReason.NOT_READY, "Its pods are not known.")
        return BufferStatus(buffer, (condition("ReadyForProvisioning", False, reason, text), not_ready), kept)
    ready = condition("ReadyForProvisioning", True, BufferReason.RESOLVED, f"It has {size.count} pods.")
    uids = [f"{buffer.uid}/{number}" for number in range(size.count)]
    missing = [uid for uid in uids if uid not in on_ready]
    if not uids:
        state = condition("Provisioning", False, BufferReason.EMPTY, "It has no pods.")
    elif not missing:
        state = condition("Provisioning", True, BufferReason.FITS, f"There is room for {len(uids)} pods.")
    else:
        text = next((f"; {why[uid]}" for uid in missing if why.get(uid)), "; machines are on their way")
        state = condition(
            "Provisioning",
            False,
            BufferReason.NEEDS_MORE,
            f"There is room for {len(uids) - len(missing)} of {len(uids)} pods{text}.",
        )
    return BufferStatus(buffer, (ready, state), kept)


def status_patch(wanted: BufferStatus) -> dict[str, t.Any] | None:
    """The merge patch of its status; None when all is there."""
    buffer = wanted.buffer
    new = {one.type: one for one in wanted.conditions}
    conditions = [new.pop(one.type, one) for one in buffer.conditions]
    conditions += new.values()
    gone = {
        name: None for name in ("podTemplateRef", "podTemplateGeneration") if name in buffer.status and name not in wanted.status
    }
    changed = {name: value for name, value in wanted.status.items() if buffer.status.get(name) != value}
    if tuple(conditions) == buffer.conditions and not changed and not gone:
        return None
    return {**changed, **gone, "conditions": [requested_capacity.condition_json(one, buffer.generation) for one in conditions]}
