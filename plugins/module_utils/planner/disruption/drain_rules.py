# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Emptying a node (L-9), decided: which pods are evicted, waited for, kept or in the way, and what happens at the deadline."""

from __future__ import annotations

import dataclasses
import enum
import typing as t
from datetime import datetime, timedelta

from ...core.errors import InvalidInput
from ...model import Pod
from ...model.defaults import Settings
from ...model.labels import CLUSTER_API_DRAIN_LABEL, SAFE_TO_EVICT_ANNOTATION
from ...model.reasons import Reason
from ...units.values import LONGEST
from .do_not_disrupt import pod_hold, skips_drain
from .emptiness import counts

_STUCK = timedelta(seconds=60)
_FIRST_PAUSE, _LONGEST_PAUSE = timedelta(minutes=15), timedelta(hours=2)
_CRITICAL = frozenset({"system-cluster-critical", "system-node-critical"})


class Mode(enum.Enum):
    """How a reason drains.

    VOLUNTARY asks budgets and holds and gives up at the deadline; MANUAL the same, but pods without a controller go too, and holds are
    waited for; FORCEFUL deletes at the deadline what is left; LOST evicts once and does not wait; GONE deletes without grace (nothing
    runs there any more); NONE touches no pod.
    """

    VOLUNTARY = "voluntary"
    MANUAL = "manual"
    FORCEFUL = "forceful"
    LOST = "lost"
    GONE = "gone"
    NONE = "none"


MODES: t.Mapping[str, Mode] = {
    Reason.EMPTY: Mode.VOLUNTARY,
    Reason.UNDERUTILIZED: Mode.VOLUNTARY,
    Reason.DRIFTED: Mode.VOLUNTARY,
    Reason.REPLACED: Mode.VOLUNTARY,
    Reason.MANUAL: Mode.MANUAL,
    Reason.DOCUMENT_GONE: Mode.MANUAL,
    Reason.EXPIRED: Mode.FORCEFUL,
    Reason.BUDGET: Mode.FORCEFUL,
    Reason.UNHEALTHY: Mode.FORCEFUL,
    Reason.SPOT_LOST: Mode.LOST,
    Reason.INSTANCE_GONE: Mode.GONE,
    Reason.ORPHAN: Mode.GONE,
    Reason.FAILED_JOIN: Mode.NONE,
    Reason.LAUNCH_FAILED: Mode.NONE,
    Reason.PRICE_JUMP: Mode.NONE,
    Reason.DUPLICATE: Mode.NONE,
}


MOVES = frozenset({Reason.UNDERUTILIZED, Reason.DRIFTED, Reason.REPLACED})  # reasons that need another place for the pods


def mode_of(reason: str, *, force: bool = False) -> Mode:
    """How ``reason`` drains; ``force`` turns Manual into FORCEFUL. InvalidInput for a reason is unknown."""
    if reason not in MODES:
        raise InvalidInput(f"{reason!r} is not a reason to drain a node.", remedy=f"Known: {', '.join(sorted(MODES))}.")
    mode = MODES[reason]
    return Mode.FORCEFUL if force and mode is Mode.MANUAL else mode


def is_voluntary(reason: str) -> bool:
    """True for reasons that give way to budgets and holds, and leave the node as it was."""
    return MODES.get(reason) is Mode.VOLUNTARY


def backoff_after_block(times: int) -> tuple[timedelta, int]:
    """After a voluntary drain was blocked for the (``times`` + 1)-th time: the pause before the next try, and the new count."""
    pause = min(_FIRST_PAUSE * 2 ** min(times, 8), _LONGEST_PAUSE)
    return pause, times + 1


class Do(str, enum.Enum):
    """What a drain does with a pod."""

    SKIP = "skip"
    WAIT = "wait"
    EVICT = "evict"
    BLOCK = "block"


@dataclasses.dataclass(frozen=True, slots=True)
class PodDisposition:
    """The decision on one pod. ``why`` is a word for people and tests; ``critical`` pods are evicted after all others are gone."""

    pod: Pod
    do: Do
    why: str = ""
    critical: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """What may be lost: ``local_data`` in emptyDir volumes, ``unmanaged`` pods that nobody makes anew (always, for reasons that are
    not voluntary), the place of ``unmovable`` pods, of which it is not known where else they could run; ``placed``: another place
    has been looked for by the rules that can be followed. From ``holds_end`` on pods that must not be disrupted are pods like others."""

    local_data: bool = True
    unmanaged: bool = False
    holds_end: datetime | None = None
    unmovable: bool = True
    placed: bool = False


def rules_of(reason: str, holds_end: datetime | None = None) -> Rules:
    """The rules for a reason. A node that is merely used too little costs nobody his local data, and a pod that may fit nowhere else
    stays where it is. What an idle node still holds is not work, so it is evicted."""
    placed = reason == Reason.UNDERUTILIZED  # consolidation looks for a place for each pod, also by L-40
    return Rules(local_data=not placed, holds_end=holds_end, unmovable=reason not in MOVES, placed=placed)


def classify(pods: t.Iterable[Pod], mode: Mode, now: datetime, rules: Rules = Rules()) -> list[PodDisposition]:
    """One disposition per pod, in the order given."""
    return [_disposition(pod, mode, now, rules) for pod in pods]


def _disposition(pod: Pod, mode: Mode, now: datetime, rules: Rules) -> PodDisposition:
    skipped = _skipped(pod, now)
    if mode is Mode.NONE or skipped:
        return PodDisposition(pod, Do.SKIP, skipped or "not drained")
    critical = pod.priority_class in _CRITICAL
    if mode in (Mode.LOST, Mode.GONE):
        return PodDisposition(pod, Do.WAIT if pod.deletion is not None and mode is Mode.LOST else Do.EVICT, "", critical)
    if pod.deletion is not None:
        return PodDisposition(pod, Do.WAIT, "terminating", critical)
    if "wait-completed" in (pod.annotations.get(CLUSTER_API_DRAIN_LABEL), pod.labels.get(CLUSTER_API_DRAIN_LABEL)):
        return PodDisposition(pod, Do.WAIT, "wait-completed", critical)
    safe = pod.annotations.get(SAFE_TO_EVICT_ANNOTATION) == "true"
    held = rules.holds_end is None or now < rules.holds_end
    if held and (hold := pod_hold(pod, now).why):
        return PodDisposition(pod, Do.BLOCK if mode is Mode.VOLUNTARY else Do.WAIT, f"hold: {hold}", critical)
    unknown = pod.placement.unjudged if rules.placed else pod.placement.unmovable
    if mode is Mode.VOLUNTARY and not rules.unmovable and (why := unknown):
        return PodDisposition(pod, Do.BLOCK, f"{why}: where else it could run is not known", critical)
    if mode is Mode.VOLUNTARY and not pod.owner_kind and not (rules.unmanaged or safe):
        return PodDisposition(pod, Do.BLOCK, "unmanaged", critical)
    if mode is not Mode.FORCEFUL and pod.empty_dir and not (rules.local_data or safe):
        return PodDisposition(pod, Do.BLOCK, "local-data", critical)
    return PodDisposition(pod, Do.EVICT, "", critical)


def _skipped(pod: Pod, now: datetime) -> str:
    if pod.ended:
        return "finished"
    if pod.static:
        return "static"
    if pod.of_daemon_set:
        return "daemonset"
    if skips_drain(pod):
        return "drain=skip"
    if pod.deletion is not None and now > pod.deletion + _STUCK:
        return "stuck terminating"  # its grace is over for a minute: nobody will end it on that node
    return ""


def busy(pods: t.Iterable[Pod], idle_mode: str, settings: Settings, now: datetime) -> tuple[Pod, ...]:
    """Pods that speak against the reason Empty: the node is not idle any more."""
    return tuple(pod for pod in pods if counts(pod, idle_mode, settings, now))


def deadline(started: datetime, timeout: float) -> datetime:
    """When the drain ends, counted from its first beginning, also over several runs."""
    return started + timedelta(seconds=timeout)


def direct_delete(pod: Pod, now: datetime, end: datetime) -> int | None:
    """For a forceful drain: None while an eviction may still do it, else the grace in seconds for deleting the pod now. Its own grace
    must fit before the deadline; what is left is given, at least one second."""
    if now < end - timedelta(seconds=time_to_end(pod)):
        return None
    return max(1, min(pod.grace_seconds, int((end - now).total_seconds())))


def time_to_end(pod: Pod) -> int:
    """Seconds before the deadline at which a forceful drain deletes the pod: its grace, and one second for a pod that needs none."""
    return max(1, min(pod.grace_seconds, LONGEST))
