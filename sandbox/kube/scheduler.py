# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A small scheduler: puts Pending pods on Ready nodes that have room, or says what is missing."""

from __future__ import annotations

import dataclasses
import decimal
import json
import typing as t

from .auth import Call
from .dynamic_resources import CLAIMS, CLASSES, SLICES, Allocator
from .meta import timestamp
from .neighbours import Neighbours, minds_others, selects, tolerates
from .nodes import UNSCHEDULABLE, ready
from .parts import Parts
from .pods import FINISHED, Pods, phase, set_condition
from .quantity import quantity
from .status import Refusal
from .store import clone
from .volumes import Volumes

Json = dict[str, t.Any]
Amounts = dict[str, decimal.Decimal]

_NOTHING = decimal.Decimal(0)


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


@dataclasses.dataclass(frozen=True)
class Place:
    """What the scheduler minds of a node."""

    name: str
    node: Json = dataclasses.field(compare=False)
    labels: Json
    taints: list[Json]
    ready: bool
    allocatable: Json

    @classmethod
    def of(cls, node: Json) -> Place:
        metadata, taints = node["metadata"], (node.get("spec") or {}).get("taints") or []
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        return cls(metadata["name"], node, metadata.get("labels") or {}, taints, ready(node) == "True", allocatable)

    def obstacle(self, pod: Json, need: Amounts, free: Amounts) -> str | None:
        """Why the pod cannot go there, in the scheduler's words; None if it can."""
        for taint in self.taints:
            if taint["effect"] != "PreferNoSchedule" and not tolerates(pod, taint):
                unschedulable = taint["key"] == UNSCHEDULABLE
                return "node(s) were unschedulable" if unschedulable else "node(s) had untolerated taint(s)"
        if not self.ready:
            return "node(s) were not ready"
        if not selects(pod, self.node):
            return "node(s) didn't match Pod's node affinity/selector"
        for name, amount in need.items():
            if amount > 0 and amount > free.get(name, _NOTHING):
                return "Too many pods" if name == "pods" else f"Insufficient {name}"
        return None


def _likeness(pod: Json, need: Amounts) -> str:
    """Pods of the same likeness fit the same nodes."""
    spec = pod["spec"]
    asked = sorted((name, str(amount)) for name, amount in need.items())
    around = [
        spec.get("affinity"),
        spec.get("topologySpreadConstraints"),
        spec.get("volumes"),
        pod["metadata"].get("labels"),
        spec.get("resourceClaims"),
    ]
    return json.dumps(
        [asked, spec.get("nodeSelector"), around, spec.get("tolerations"), pod["metadata"]["namespace"]], sort_keys=True
    )


class Scheduler:
    """``run_once`` looks at all waiting pods; the controllers call it when pods or nodes changed."""

    def __init__(self, api: Parts) -> None:
        self._api = api
        self._allocator = Allocator(api)
        self._call = Call(api.identity("system:kube-scheduler", ["system:masters"]), "kube-scheduler")
        self._seen: tuple[tuple[int, ...], list[Place]] = ((), [])

    def run_once(self) -> int:
        """How many pods were bound. Nothing is done when nothing that matters changed (a heartbeat does not)."""
        store = self._api.store
        with store.lock:
            revision = tuple(store.table(key).revision for key in (("", "pods"), CLAIMS, CLASSES, SLICES))
            pods = [item.obj for item in store.table(("", "pods")).select()]
            places = [Place.of(item.obj) for item in store.table(("", "nodes")).select()]
            keys = [("", "persistentvolumeclaims"), ("", "persistentvolumes"), ("storage.k8s.io", "storageclasses")]
            claims, persistent, classes = ([item.obj for item in store.table(key).select()] for key in keys)
            revision += tuple(store.table(key).revision for key in keys)
        waiting = [pod for pod in pods if self._waits(pod)]
        if not waiting or self._seen == (revision, places):
            return 0
        self._seen = (revision, places)
        free = {place.name: {name: quantity(value) for name, value in place.allocatable.items()} for place in places}
        for pod in pods:
            if (where := pod["spec"].get("nodeName")) in free and phase(pod) not in FINISHED:
                _take(free[where], requests(pod))
        waiting.sort(
            key=lambda pod: (-pod["spec"].get("priority", 0), pod["metadata"]["creationTimestamp"], pod["metadata"]["name"])
        )
        hopeless: dict[str, dict[str, int]] = {}
        standing = [pod for pod in pods if phase(pod) not in FINISHED]
        around = Neighbours(standing, {place.name: place.node for place in places})
        volumes = Volumes(claims, persistent, classes, (pod for pod in standing if pod["spec"].get("nodeName")))
        self._allocator = Allocator(self._api)
        return sum(self._place(pod, places, free, around, volumes, hopeless) for pod in waiting)

    @staticmethod
    def _waits(pod: Json) -> bool:
        spec = pod["spec"]
        if spec.get("nodeName") or spec.get("schedulingGates") or spec.get("schedulerName") != "default-scheduler":
            return False
        return phase(pod) == "Pending" and "deletionTimestamp" not in pod["metadata"]

    def _place(
        self,
        pod: Json,
        places: list[Place],
        free: dict[str, Amounts],
        around: Neighbours,
        volumes: Volumes,
        hopeless: dict[str, dict[str, int]],
    ) -> bool:
        need = requests(pod)
        claims = self._allocator.claims_of(pod)
        if claims is None:  # stopped before scheduling begins, without a word on the pod
            return False
        likeness = _likeness(pod, need)
        if likeness in hopeless and not minds_others(pod):  # room only shrinks while pods are placed
            self._explain(pod, len(places), hopeless[likeness])
            return False
        why: dict[str, int] = {}
        best: tuple[decimal.Decimal, str] | None = None
        for place in places:
            reason = (
                place.obstacle(pod, need, free[place.name]) or volumes.obstacle(pod, place.node) or around.obstacle(pod, place.name)
            )
            if reason is None and claims:
                reason = self._allocator.obstacle(claims, place.name)
            if reason is not None:
                why[reason] = why.get(reason, 0) + 1
                continue
            emptiest = (-free[place.name].get("pods", _NOTHING), place.name)
            best = emptiest if best is None else min(best, emptiest)
        if best is None:
            hopeless[likeness] = why
            self._explain(pod, len(places), why)
            return False
        metadata = pod["metadata"]
        strategy = self._api.strategies(self._api.registry.of("pods"))
        try:
            if claims:
                self._allocator.take(pod, claims, best[1], self._call)
            if isinstance(strategy, Pods):
                strategy.bind(metadata["namespace"], metadata["name"], {"target": {"name": best[1]}}, self._call)
        except Refusal:  # deleted or bound meanwhile
            return False
        _take(free[best[1]], need)
        around.add(pod, best[1])
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


def _take(free: Amounts, amounts: Amounts) -> None:
    for name, amount in amounts.items():
        free[name] = free.get(name, _NOTHING) - amount
