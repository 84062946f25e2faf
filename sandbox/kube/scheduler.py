# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small scheduler: puts Pending pods on Ready nodes that have room, or says what is missing."""

from __future__ import annotations

import decimal
import typing as t

from .meta import timestamp
from .nodes import ready
from .objects import Call
from .pods import FINISHED, Pods, phase, set_condition
from .selectors import requirement
from .status import Refusal
from .store import clone

if t.TYPE_CHECKING:
    from .api import KubeApi

Json = dict[str, t.Any]
Amounts = dict[str, decimal.Decimal]

_SUFFIX: dict[str, str | int] = {"m": "0.001", "k": "1e3", "M": "1e6", "G": "1e9", "T": "1e12", "P": "1e15", "E": "1e18",
           "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}  # fmt: skip


def quantity(value: t.Any) -> decimal.Decimal:
    """A Kubernetes quantity ("500m", "2Gi", 4) as a number. ValueError if it is none."""
    text = str(value)
    for length in (2, 1):
        if text[-length:] in _SUFFIX:
            text, factor = text[:-length], decimal.Decimal(_SUFFIX[text[-length:]])
            break
    else:
        factor = decimal.Decimal(1)
    try:
        return decimal.Decimal(text) * factor
    except decimal.InvalidOperation:
        raise ValueError(f"{value!r} is not a quantity") from None


def _sum(parts: t.Iterable[Json]) -> Amounts:
    total: Amounts = {}
    for requests in parts:
        for name, value in requests.items():
            total[name] = total.get(name, decimal.Decimal(0)) + quantity(value)
    return total


def requests(pod: Json) -> Amounts:
    """What the pod needs of a node: the sum of its containers, at least the largest init container, and one pod slot."""
    spec = pod["spec"]

    def asked(container: Json) -> Json:
        return (container.get("resources") or {}).get("requests") or {}

    need = _sum(asked(container) for container in spec.get("containers") or [])
    for container in spec.get("initContainers") or []:
        for name, amount in _sum([asked(container)]).items():
            need[name] = max(need.get(name, amount), amount)
    need["pods"] = decimal.Decimal(1)
    return need


def tolerates(pod: Json, taint: Json) -> bool:
    for toleration in pod["spec"].get("tolerations") or []:
        if toleration.get("effect") not in (None, "", taint["effect"]):
            continue
        if not toleration.get("key"):
            if toleration.get("operator") == "Exists":
                return True
        elif toleration["key"] == taint["key"] and (
            toleration.get("operator") == "Exists" or toleration.get("value", "") == taint.get("value", "")
        ):
            return True
    return False


def _affinity(pod: Json) -> list[Json] | None:
    required = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    return required.get("nodeSelectorTerms") or [] if required else None


def selects(pod: Json, node: Json) -> bool:
    """nodeSelector and required node affinity."""
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (pod["spec"].get("nodeSelector") or {}).items()):
        return False
    terms = _affinity(pod)
    return terms is None or any(_term(term, node, labels) for term in terms)


def _term(term: Json, node: Json, labels: t.Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    named = {"metadata.name": node["metadata"]["name"]}
    if not expressions and not fields:
        return False
    return all(requirement(rule["key"], rule["operator"], rule.get("values") or [])(labels) for rule in expressions) and all(
        requirement(rule["key"], rule["operator"], rule.get("values") or [])(named) for rule in fields
    )


def obstacle(pod: Json, need: Amounts, node: Json, used: Amounts) -> str | None:
    """Why the pod cannot go there, in the scheduler's words; None if it can."""
    for taint in (node.get("spec") or {}).get("taints") or []:
        if taint["effect"] != "PreferNoSchedule" and not tolerates(pod, taint):
            if taint["key"] == "node.kubernetes.io/unschedulable":
                return "node(s) were unschedulable"
            return "node(s) had untolerated taint(s)"
    if ready(node) != "True":
        return "node(s) were not ready"
    if not selects(pod, node):
        return "node(s) didn't match Pod's node affinity/selector"
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    for name, amount in need.items():
        if amount > 0 and amount > quantity(allocatable.get(name, 0)) - used.get(name, decimal.Decimal(0)):
            return "Too many pods" if name == "pods" else f"Insufficient {name}"
    return None


class Scheduler:
    """``run_once`` looks at all waiting pods; the controllers call it when pods or nodes changed."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._call = Call(api.identity("system:kube-scheduler", ["system:masters"]), "kube-scheduler")

    def run_once(self) -> int:
        """How many pods were bound."""
        store = self._api.store
        with store.lock:
            pods = store.table(("", "pods")).select()
            nodes = [item.obj for item in store.table(("", "nodes")).select()]
        waiting = [
            item.obj for item in pods
            if not item.obj["spec"].get("nodeName") and phase(item.obj) == "Pending" and "deletionTimestamp" not in item.obj["metadata"]
            and item.obj["spec"].get("schedulerName") == "default-scheduler" and not item.obj["spec"].get("schedulingGates")
        ]  # fmt: skip
        if not waiting:
            return 0
        used: dict[str, Amounts] = {}
        for item in pods:
            if (where := item.obj["spec"].get("nodeName")) and phase(item.obj) not in FINISHED:
                _add(used.setdefault(where, {}), requests(item.obj))
        waiting.sort(key=lambda pod: (-pod["spec"].get("priority", 0), pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))
        return sum(self._place(pod, nodes, used) for pod in waiting)

    def _place(self, pod: Json, nodes: list[Json], used: dict[str, Amounts]) -> bool:
        need = requests(pod)
        why: dict[str, int] = {}
        best: tuple[int, str] | None = None
        for node in nodes:
            name = node["metadata"]["name"]
            reason = obstacle(pod, need, node, used.get(name, {}))
            if reason is not None:
                why[reason] = why.get(reason, 0) + 1
                continue
            load = (int(used.get(name, {}).get("pods", 0)), name)
            best = load if best is None else min(best, load)
        if best is None:
            self._explain(pod, len(nodes), why)
            return False
        metadata = pod["metadata"]
        strategy = self._api.strategies(self._api.registry.of("pods"))
        try:
            if isinstance(strategy, Pods):
                strategy.bind(metadata["namespace"], metadata["name"], {"target": {"name": best[1]}}, self._call)
        except Refusal:  # deleted or bound meanwhile
            return False
        _add(used.setdefault(best[1], {}), need)
        return True

    def _explain(self, pod: Json, total: int, why: dict[str, int]) -> None:
        if total:
            told = ", ".join(f"{count} {reason}" for reason, count in sorted(why.items()))
            message = f"0/{total} nodes are available: {told}."
        else:
            message = "no nodes available to schedule pods"
        store = self._api.store
        table = store.table(("", "pods"))
        with store.lock:
            item = table.get(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
            if item is None or item.obj["metadata"]["uid"] != pod["metadata"]["uid"] or item.obj["spec"].get("nodeName"):
                return
            new = clone(item.obj)
            condition = {
                "type": "PodScheduled",
                "observedGeneration": new["metadata"]["generation"],
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": timestamp(self._api.now()),
                "reason": "Unschedulable",
                "message": message,
            }
            if set_condition(new, condition):
                store.put(table, item.key, new)


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, decimal.Decimal(0)) + amount
