# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a place suits a pod, by Kubernetes' own rules for selectors, affinity and taints. Each answer is the first reason, or empty."""

from __future__ import annotations

import functools
import typing as t

from ...model import Expression, Labels, NodeTerm, Others, Placement, Pod, Taint, Toleration

#: taints with these effects keep pods off; PreferNoSchedule does not
KEEPS_OFF = ("NoSchedule", "NoExecute")


def holds(condition: Expression, labels: Labels) -> bool:
    """Whether a condition on a label holds. NotIn and DoesNotExist hold without the label too; a number that is none meets nothing."""
    value = labels.get(condition.key)
    match condition.operator:
        case "In":
            return value is not None and value in condition.values
        case "NotIn":
            return value is None or value not in condition.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    left, right = _whole(value), _whole(condition.values[0]) if len(condition.values) == 1 else None
    if left is None or right is None:
        return False
    return left > right if condition.operator == "Gt" else condition.operator == "Lt" and left < right


def against_labels(placement: Placement, labels: Labels, node: str = "") -> str:
    """Why a node with these labels is not selected. ``node``: its name, empty while it has none; then no rule about the name is met."""
    for key, value in placement.selector:
        if labels.get(key) != value:
            return f"selector {key}={value}"
    if placement.terms and not _one_holds(placement.terms, labels, node):
        return f"affinity {' or '.join(_spoken(term.labels + term.fields) for term in placement.terms)}"
    for terms in placement.reach:
        if not _one_holds(terms, labels, node):
            return f"persistent volume, reachable where {' or '.join(_spoken(term.labels + term.fields) for term in terms)}"
    return ""


def _one_holds(terms: t.Iterable[NodeTerm], labels: Labels, node: str) -> bool:
    """Whether one of the alternatives holds; one without conditions matches nothing."""
    name = {"metadata.name": node} if node else {}
    return any(
        (term.labels or term.fields)
        and all(holds(label, labels) for label in term.labels)
        and all(node and holds(field, name) for field in term.fields)
        for term in terms
    )


def against_taints(placement: Placement, taints: t.Iterable[Taint]) -> str:
    """The first taint that keeps the pod off."""
    for taint in taints:
        if taint.effect in KEEPS_OFF and not any(_tolerates(toleration, taint) for toleration in placement.tolerations):
            return f"taint {taint} not tolerated"
    return ""


def keep_apart(pod: Pod, other: Pod) -> bool:
    """Whether one of the two refuses the other on its node. Kubernetes asks both."""
    return any(means(those, other) for those in pod.placement.alone) or any(means(those, pod) for those in other.placement.alone)


def avoided(pod: Pod, others: t.Iterable[Pod], *, placed: bool = False) -> bool:
    """Whether some other pod keeps this one out of its zone (or the like): then its next place is not for us to say. ``placed``: rules that
    can be followed to the letter are, by whoever looks for that place, and do not count here."""
    return any(
        other.uid != pod.uid
        and (
            any(means(those, pod) for those in other.placement.avoids)
            or (not placed and any(means(term.others, pod) for term in other.placement.apart))
        )
        for other in others
    )


def means(others: Others, pod: Pod) -> bool:
    """Whether the pod is one of them."""
    return (not others.namespaces or pod.namespace in others.namespaces) and all(holds(each, pod.labels) for each in others.labels)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect):
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    return toleration.key == taint.key and (toleration.operator == "Exists" or toleration.value == taint.value)


@functools.lru_cache(maxsize=1024)
def _whole(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _spoken(conditions: tuple[Expression, ...]) -> str:
    """Conditions as one reads them."""
    words = []
    for expression in conditions:
        values = f" ({', '.join(expression.values)})" if expression.values else ""
        words.append(f"{expression.key} {expression.operator}{values}")
    return " and ".join(words) or "without a condition"
