# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pods ask for machines (L-17): those that the scheduler could place nowhere, that want GPUs, and that nothing else will serve."""

from __future__ import annotations

import dataclasses
import typing as t
from datetime import datetime, timedelta

from ...core.errors import InvalidInput
from ...model import Pod, Pool
from ...model.cluster import DEFAULT_SCHEDULER
from ...model.defaults import Settings
from ...model.labels import POD_SCALE_UP_DELAY_ANNOTATION, SCALE_UP_ANNOTATION
from ...units.values import parse_duration, print_duration
from .binpacking import gpus
from .devices import barred_from

HANGS_AFTER: t.Final = 60  # seconds after which a pod that the scheduler passes over is reported
LOWEST_PRIORITY: t.Final = -10  # of a pod that machines are rented for; the cluster autoscaler's usual bound


@dataclasses.dataclass(frozen=True, slots=True)
class Demand:
    """``pods`` count. ``barred``: uid of a pod to the pools that do not serve it yet or at all, with the reason. ``unsupported``: pods that
    wait for a place and cannot be counted, each with the reason. ``followers``: pods that run where
    one of ``pods`` does, and that it asks for."""

    pods: tuple[Pod, ...]
    barred: t.Mapping[str, t.Mapping[str, str]] = dataclasses.field(default_factory=dict)
    unsupported: tuple[tuple[Pod, str], ...] = ()
    warnings: tuple[str, ...] = ()
    followers: tuple[Pod, ...] = ()


def demand(
    pods: t.Iterable[Pod], pools: t.Sequence[Pool], settings: Settings, now: datetime, extended: t.Collection[str] = ()
) -> Demand:
    """The pods that count, in any order of ``pods``. ``extended``: extended resources that DRA drivers serve."""
    schedulers = {DEFAULT_SCHEDULER, *(name for pool in pools for name in pool.schedulers)}
    counted: list[Pod] = []
    unsupported: list[tuple[Pod, str]] = []
    warnings: list[str] = []
    barred: dict[str, dict[str, str]] = {}
    followers: list[Pod] = []
    for pod in pods:
        if pod.placement.scheduler not in schedulers:
            continue
        if not waits(pod, settings):
            if _hangs(pod, now):
                unsupported.append((pod, f"the scheduler does not look at it: {pod.claims_problem}"))
            continue
        if why := unjudged(pod):
            unsupported.append((pod, why))
            continue
        if pod.follows:
            followers.append(pod)
            continue
        bars = _bars(pod, pools, now, warnings, extended)
        if bars:
            barred[pod.uid] = bars
        counted.append(pod)
    return Demand(
        tuple(sorted(counted, key=_by_name)),
        barred,
        tuple(sorted(unsupported, key=lambda pair: _by_name(pair[0]))),
        tuple(sorted(warnings)),
        tuple(sorted(followers, key=_by_name)),
    )


def _by_name(pod: Pod) -> tuple[str, str, str]:
    return (pod.namespace, pod.name, pod.uid)


def waits(pod: Pod, settings: Settings) -> bool:
    """Whether the pod waits for GPUs that the cluster does not have. Pods with resource claims count here even without GPUs, unless it is
    known that the claims ask for none."""
    if pod.phase != "Pending" or pod.node or pod.waiting != "Unschedulable" or pod.deletion is not None or pod.nominated_node:
        return False
    if pod.comes_with_node:
        return False
    if pod.placement.priority < LOWEST_PRIORITY or pod.annotations.get(SCALE_UP_ANNOTATION) == "false":
        return False
    return gpus(pod, settings.gpu_resources) > 0 or (pod.placement.claims and pod.claims_problem != "") or bool(pod.follows)


def unjudged(pod: Pod) -> str:
    """Why nobody here can say which machine the pod needs; empty when it can be said."""
    if pod.placement.claims and pod.placeholder:
        return "it asks for devices by resource claims (DRA), which is not supported in requests for room"
    if pod.placement.claims and pod.claims_problem is None:
        return "it asks for devices by resource claims (DRA), and no pool has draDriver"
    if pod.placement.claims and pod.claims_problem:
        return pod.claims_problem
    if pod.placement.unsupported:
        return f"{pod.placement.unsupported} is not supported"
    return pod.placement.unplaceable or (
        "its persistent volumes were not read, so where they can be reached is unknown" if pod.placement.volumes else ""
    )


def _hangs(pod: Pod, now: datetime) -> bool:
    """Whether the scheduler passes over the pod, without a word on it, because its claims are not there."""
    young = pod.created is None or (now - pod.created).total_seconds() < HANGS_AFTER
    if pod.phase != "Pending" or pod.node or pod.waiting or pod.deletion is not None or young:
        return False
    return bool(pod.claims_problem) and not pod.comes_with_node


def _bars(pod: Pod, pools: t.Sequence[Pool], now: datetime, warnings: list[str], extended: t.Collection[str]) -> dict[str, str]:
    """Pools that are not for this pod: another scheduler's, those whose GPUs it does not ask for, or it has not waited long enough."""
    bars: dict[str, str] = {}
    own = _own_delay(pod, warnings)
    for pool in pools:
        delay = pool.scale_up_delay if own is None else own
        if pod.placement.scheduler not in (DEFAULT_SCHEDULER, *pool.schedulers):
            bars[pool.key] = f"scheduler {pod.placement.scheduler} is not among schedulers"
        elif why := barred_from(pod, dra=bool(pool.dra_driver), extended=extended):
            bars[pool.key] = why
        elif delay and pod.created is not None and now < pod.created + timedelta(seconds=delay):
            bars[pool.key] = f"waits for less than {print_duration(delay)}"
    return bars


def _own_delay(pod: Pod, warnings: list[str]) -> int | None:
    text = pod.annotations.get(POD_SCALE_UP_DELAY_ANNOTATION)
    if text is None:
        return None
    try:
        return parse_duration(text)
    except InvalidInput:
        warnings.append(
            f"pod {pod.namespace}/{pod.name}: {POD_SCALE_UP_DELAY_ANNOTATION} {text!r} is not a duration and is left out"
        )
        return None
