# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hold marks: what stops a voluntary disruption (L-7), as far as this version decides by it."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

from ...core.errors import InvalidInput
from ...model import Labels, Node, Pod
from ...model.labels import (
    CLUSTER_API_DRAIN_LABEL,
    DO_NOT_DISRUPT_ANNOTATION,
    HOLD_UNTIL_ANNOTATION,
    KARPENTER_DO_NOT_DISRUPT_ANNOTATION,
    SAFE_TO_EVICT_ANNOTATION,
    SCALE_DOWN_DISABLED_ANNOTATION,
    TERMINATE_ANNOTATION,
)
from ...units.values import parse_duration, parse_time

DO_NOT_DISRUPT = (DO_NOT_DISRUPT_ANNOTATION, KARPENTER_DO_NOT_DISRUPT_ANNOTATION)


@dataclasses.dataclass(frozen=True, slots=True)
class Hold:
    """``why`` names the mark that holds, empty when nothing does. ``warnings`` are marks that could not be understood."""

    why: str = ""
    warnings: tuple[str, ...] = ()


def node_hold(node: Node, now: datetime) -> Hold:
    """What holds a node: do-not-disrupt, scale-down-disabled, or hold-until in the future. A duration counts from its creation."""
    warnings: list[str] = []
    why = _do_not_disrupt(node.annotations, node.created, now, f"node {node.name}", warnings)
    if not why and node.annotations.get(SCALE_DOWN_DISABLED_ANNOTATION) == "true":
        why = SCALE_DOWN_DISABLED_ANNOTATION
    until_text = node.annotations.get(HOLD_UNTIL_ANNOTATION)
    if until_text is not None:
        try:
            until = parse_time(until_text)
        except InvalidInput:
            warnings.append(f"node {node.name}: {HOLD_UNTIL_ANNOTATION} {until_text!r} is not a time and holds nothing")
        else:
            why = why or (f"{HOLD_UNTIL_ANNOTATION} {until_text}" if now < until else "")
    return Hold(why, tuple(warnings))


def pod_hold(pod: Pod, now: datetime) -> Hold:
    """What holds a pod: do-not-disrupt (a duration counts from its start; no start yet = held) or safe-to-evict "false"."""
    warnings: list[str] = []
    name = f"pod {pod.namespace}/{pod.name}"
    why = _do_not_disrupt(pod.annotations, pod.started, now, name, warnings)
    if not why and pod.annotations.get(SAFE_TO_EVICT_ANNOTATION) == "false":
        why = SAFE_TO_EVICT_ANNOTATION
    return Hold(why, tuple(warnings))


def terminate_requested(node: Node) -> bool:
    """True for the manual request on a node: annotation tgp.io/terminate with the value now."""
    return node.annotations.get(TERMINATE_ANNOTATION) == "now"


def skips_drain(pod: Pod) -> bool:
    """A pod that is neither evicted nor waited for, and does not keep its node busy."""
    return "skip" in (pod.annotations.get(CLUSTER_API_DRAIN_LABEL), pod.labels.get(CLUSTER_API_DRAIN_LABEL))


def _do_not_disrupt(annotations: Labels, start: datetime | None, now: datetime, subject: str, warnings: list[str]) -> str:
    for key in DO_NOT_DISRUPT:
        value = annotations.get(key)
        if value is None or value == "false":
            continue
        if value == "true":
            return key
        try:
            seconds = parse_duration(value)
        except InvalidInput:
            warnings.append(f"{subject}: {key} {value!r} is neither true nor a duration and holds nothing")
            continue
        if start is None or now < start + timedelta(seconds=seconds or 0):
            return f"{key} {value}"
    return ""
