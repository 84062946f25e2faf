# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Is a node idle, since when, and may it go for that (L-3)? Unknown is never idle."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta

from ...core.errors import InvalidInput
from ...model import Claim, GpuUtilization, Node, Pod, Pool, Probe
from ...model.defaults import CLOCK_TOLERANCE, Settings
from ...model.labels import IDLE_SINCE_ANNOTATION
from ...model.resources import PARTIAL_GPU_PREFIXES
from ...units.values import parse_time, print_duration, print_time
from .do_not_disrupt import node_hold, pod_hold, skips_drain
from .utilization import GpuVerdict, gpu_verdict, noted_on

MODES = ("workload", "gpu", "all")
TERMINATING_GRACE: t.Final = 60  # seconds after its deletion timestamp in which a pod is still work
AHEAD = 120  # seconds by which another host's clock may be ahead of ours (L-27)


@dataclasses.dataclass(frozen=True, slots=True)
class Idle:
    """Whether one node is idle.

    ``busy``: None = unknown. ``since``: when it became idle, as it shall be stored (None = not idle). ``write``: the annotation has to
    be set to ``since`` or removed. ``eligible``: it may go for being idle; ``why`` says what speaks against it, or how long it is idle.
    ``gpus`` is the verdict on the use of its GPUs, None where nobody asks; ``occupied``: pods that count as work would have to leave.
    """

    busy: bool | None
    since: datetime | None
    write: bool
    eligible: bool
    why: str
    warnings: tuple[str, ...] = ()
    gpus: GpuVerdict | None = None
    occupied: bool = False

    @property
    def value(self) -> str | None:
        """The annotation's value."""
        return None if self.since is None else print_time(self.since)


def requests_gpu(pod: Pod, settings: Settings) -> bool:
    """Whether the pod's effective requests name a GPU, whole or shared. Which devices a resource claim stands for is not known here:
    it may well be a GPU."""
    return pod.placement.claims or any(
        amount > 0 and (name in settings.gpu_resources or name.startswith(PARTIAL_GPU_PREFIXES))
        for name, amount in pod.requests.items()
    )


def counts(pod: Pod, mode: str, settings: Settings, now: datetime) -> bool:
    """Whether the pod keeps its node busy. ``mode`` is one of MODES."""
    return not pod.ended and would_count(pod, mode, settings, now)


def would_count(pod: Pod, mode: str, settings: Settings, now: datetime) -> bool:
    """As :func:`counts`, for a pod that may have ended."""
    if pod.comes_with_node:
        return False
    if pod.deletion is not None and now > pod.deletion + timedelta(seconds=TERMINATING_GRACE):
        return False
    if skips_drain(pod):
        return False
    if mode == "all" or requests_gpu(pod, settings) or pod_hold(pod, now).why:
        return True
    return mode == "workload" and pod.namespace not in settings.ignore_namespaces


def node_idle(
    claim: Claim,
    node: Node,
    pods: t.Sequence[Pod] | None,
    pool: Pool,
    settings: Settings,
    now: datetime,
    utilization: GpuUtilization | None = None,
    probe: Probe | None = None,
) -> Idle:
    """Whether a Ready node is idle, by the pool's signal and by its ``probe`` if it has one. ``pods`` are all pods of this node and those
    nominated to it; None = could not be read."""
    if pool.idle_signal == "pods":
        return _probed(_idle_by_pods(claim, node, pods, pool, settings, now), claim, node, pool, probe)
    here = [pod for pod in pods or () if pod.node == node.name and counts(pod, pool.idle_mode, settings, now)]
    gpus = gpu_verdict(noted_on(node.annotations), utilization, here, pool, now)
    if pool.idle_signal == "both" or pods is None:
        idle = _both(_idle_by_pods(claim, node, pods, pool, settings, now), gpus, claim, node, pool, now)
    else:
        idle = _idle_by_gpus(claim, node, pods, here, pool, now, gpus)
    return dataclasses.replace(_probed(idle, claim, node, pool, probe), gpus=gpus, occupied=bool(here))


def _both(idle: Idle, gpus: GpuVerdict, claim: Claim, node: Node, pool: Pool, now: datetime) -> Idle:
    """Idle by pods and by GPUs. Work that one of them knows of is work."""
    noted = IDLE_SINCE_ANNOTATION in node.annotations
    if gpus.used:
        return dataclasses.replace(
            idle, busy=True, since=None, write=noted, eligible=False, why=idle.why if idle.busy else gpus.why
        )
    if idle.busy is not False or idle.since is None:
        return idle
    if gpus.used is None or gpus.low is None:
        return dataclasses.replace(idle, busy=None, since=claim.idle_since, write=False, eligible=False, why=gpus.why)
    since = max(idle.since, gpus.low.since)
    write = idle.write or since != idle.since
    if not idle.eligible or not gpus.long_enough:
        why = idle.why if not idle.eligible else f"{gpus.why}; not yet {print_duration(pool.idle_window)}"
        return dataclasses.replace(idle, since=since, write=write, eligible=False, why=why)
    return _idle(claim, node, pool, since, write, idle.warnings, now)


def _idle_by_gpus(
    claim: Claim, node: Node, pods: t.Sequence[Pod], here: t.Sequence[Pod], pool: Pool, now: datetime, gpus: GpuVerdict
) -> Idle:
    """Idle by its GPUs alone: pods ``here`` that leave them unused keep it only while they start or must not be disrupted."""
    warnings = tuple(warning for pod in pods for warning in pod_hold(pod, now).warnings)
    noted = node.annotations.get(IDLE_SINCE_ANNOTATION)
    if gpus.used:
        return Idle(True, None, noted is not None, False, gpus.why, warnings)
    starting = next((pod for pod in here if pod.phase != "Running"), None)
    if starting is not None:
        return Idle(True, None, noted is not None, False, f"busy: pod {starting.namespace}/{starting.name} is starting", warnings)
    if gpus.used is None or gpus.low is None:
        return Idle(None, claim.idle_since, False, False, gpus.why, warnings)
    since = gpus.low.since
    write = noted != print_time(since)
    held = next((pod for pod in here if pod_hold(pod, now).why), None)
    if held is not None:
        why = f"{gpus.why}; pod {held.namespace}/{held.name} is held by {pod_hold(held, now).why}"
    elif any(pod.is_nominated_to(node.name) for pod in pods):
        why = f"{gpus.why}; a pod is about to be scheduled here"
    elif not gpus.long_enough:
        why = f"{gpus.why}; not yet {print_duration(pool.idle_window)}"
    else:
        return _idle(claim, node, pool, since, write, warnings, now)
    return Idle(False, since, write, False, why, warnings)


def _probed(idle: Idle, claim: Claim, node: Node, pool: Pool, probe: Probe | None) -> Idle:
    """The same, if the pool's idleProbe agrees."""
    if not pool.idle_probed or idle.busy is not False:
        return idle
    if probe is None or probe.idle is None:
        detail = probe.idle_detail if probe is not None else ""
        why = f"whether it is idle is unknown: {detail or 'its idleProbe was not asked'}"
        return dataclasses.replace(idle, busy=None, since=claim.idle_since, write=False, eligible=False, why=why)
    if probe.idle:
        return idle
    noted = IDLE_SINCE_ANNOTATION in node.annotations
    why = f"busy: {probe.idle_detail}".rstrip(": ")
    return dataclasses.replace(idle, busy=True, since=None, write=noted, eligible=False, why=why)


def _idle_by_pods(claim: Claim, node: Node, pods: t.Sequence[Pod] | None, pool: Pool, settings: Settings, now: datetime) -> Idle:
    stored, warnings = _stored(node, now)
    ahead = bool(warnings) and stored is not None
    if pods is None:
        return Idle(None, claim.idle_since, False, False, "pods unknown", warnings)
    for pod in pods:
        warnings = (*warnings, *pod_hold(pod, now).warnings)
    here = [pod for pod in pods if pod.node == node.name]
    busy = next((pod for pod in here if counts(pod, pool.idle_mode, settings, now)), None)
    if busy is not None:
        return Idle(
            True, None, IDLE_SINCE_ANNOTATION in node.annotations, False, f"busy: pod {busy.namespace}/{busy.name}", warnings
        )
    if ahead:
        return Idle(None, claim.idle_since, False, False, f"{IDLE_SINCE_ANNOTATION} lies in the future", warnings)
    if any(pod.is_nominated_to(node.name) for pod in pods):
        return Idle(False, stored, False, False, "a pod is about to be scheduled here", warnings)
    if stored is None:
        return _idle(claim, node, pool, now, True, warnings, now)
    ended = _last_end(here, pool.idle_mode, settings, now)
    if ended is not None and stored < ended:
        return _idle(claim, node, pool, ended, True, warnings, now)
    return _idle(claim, node, pool, stored, False, warnings, now)


def _stored(node: Node, now: datetime) -> tuple[datetime | None, tuple[str, ...]]:
    """The remembered moment: the node's annotation if it is there, else nothing. One that is not a time starts anew. One that is a little ahead
    of our clock is now; one that is far ahead is returned with a warning, and says nothing."""
    text = node.annotations.get(IDLE_SINCE_ANNOTATION)
    if text is None:
        return None, ()
    try:
        moment = parse_time(text)
    except InvalidInput:
        return None, (f"node {node.name}: {IDLE_SINCE_ANNOTATION} {text!r} is not a time; it starts anew",)
    if moment > now + timedelta(seconds=AHEAD):
        return moment, (f"node {node.name}: {IDLE_SINCE_ANNOTATION} {text} lies in the future; whether it is idle is unknown",)
    return min(moment, now), ()


def _last_end(pods: t.Sequence[Pod], mode: str, settings: Settings, now: datetime) -> datetime | None:
    """When the last pod that kept the node busy ended, as far as ended pods are still listed. The node's clock may be a little ahead of
    ours: then it ended now. A time that is far ahead says nothing."""
    latest = now + timedelta(seconds=CLOCK_TOLERANCE)
    ends = [
        min(pod.finished, now)
        for pod in pods
        if pod.finished is not None and pod.finished <= latest and pod.ended and would_count(pod, mode, settings, now)
    ]
    return max(ends) if ends else None


def _idle(claim: Claim, node: Node, pool: Pool, since: datetime, write: bool, warnings: tuple[str, ...], now: datetime) -> Idle:
    hold = node_hold(node, now)
    why = emptiness_blocked(claim, pool, now, since) or (f"held by {hold.why}" if hold.why else "")
    idle_for = f"idle for {print_duration((now - since).total_seconds())}"
    text = f"{idle_for}; {why}" if why else idle_for
    return Idle(False, since, write, not why, text, (*warnings, *hold.warnings))


def emptiness_blocked(claim: Claim, pool: Pool, now: datetime, since: datetime) -> str:
    """What keeps a machine that is idle since ``since`` from going as Empty; empty text = nothing."""
    if pool.consolidation_policy == "Never" or pool.consolidate_after is None:
        return "consolidation is Never"
    if (now - since).total_seconds() < pool.consolidate_after:
        return f"not yet {print_duration(pool.consolidate_after)}"
    return cooldown(claim, pool, now)


def cooldown(claim: Claim, pool: Pool, now: datetime) -> str:
    """Until when no end that can wait is begun on the machine: it has to be ``minAge`` old, and a drain that was blocked rests for a while.
    Empty = it may begin."""
    if claim.initialized is None or (now - claim.initialized).total_seconds() < pool.min_age:
        return f"not yet {print_duration(pool.min_age)} old"
    if claim.blocked_until is not None and now < claim.blocked_until:
        return f"its drain was blocked; next try after {print_time(claim.blocked_until)}"
    return ""


# ---- is a service idle, since when, and may it go for that (L-3)? It says so itself; unknown is never idle


def service_idle(claim: Claim, probe: Probe, pool: Pool, now: datetime) -> Idle:
    """Whether a service is idle. The time begins with the first answer "idle" and ends with the first "busy". Unknown does neither."""
    if pool.idle_probe is None:
        return Idle(None, claim.idle_since, False, False, "no idleProbe says when it is idle")
    if probe.idle is None:
        return Idle(
            None, claim.idle_since, False, False, f"whether it is idle is unknown: {probe.idle_detail or 'it was not asked'}"
        )
    if not probe.idle:
        return Idle(True, None, False, False, f"busy: {probe.idle_detail}".rstrip(": "))
    since = claim.idle_since or now
    why = emptiness_blocked(claim, pool, now, since)
    idle_for = f"idle for {print_duration((now - since).total_seconds())}"
    return Idle(False, since, False, not why, f"{idle_for}; {why}" if why else idle_for)
