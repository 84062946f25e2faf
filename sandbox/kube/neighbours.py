# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pod demands of the pods around a node: affinity, anti-affinity (both ways) and hard topology spread."""

from __future__ import annotations

import typing as t

from .selectors import requirement

Json = dict[str, t.Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _terms(pod: Json, kind: str) -> list[Json]:
    return ((pod["spec"].get("affinity") or {}).get(kind) or {}).get(_REQUIRED) or []


def _matches(selector: Json | None, pod: Json) -> bool:
    if selector is None:
        return False
    labels = pod["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    rules = selector.get("matchExpressions") or []
    return all(requirement(rule["key"], rule["operator"], rule.get("values") or [])(labels) for rule in rules)


def _meant(term: Json, owner: Json, pod: Json) -> bool:
    """Whether a term of ``owner`` is about ``pod``. Any namespaceSelector means every namespace here."""
    known = term.get("namespaces") or [owner["metadata"]["namespace"]]
    inside = "namespaceSelector" in term or pod["metadata"]["namespace"] in known
    return inside and _matches(term.get("labelSelector"), pod)


class Neighbours:
    """The pods that stand somewhere, and the labels of the nodes below them."""

    def __init__(self, pods: t.Iterable[Json], labels: t.Mapping[str, Json]) -> None:
        self._labels = labels
        self._pods = [pod for pod in pods if pod["spec"].get("nodeName") in labels]

    def add(self, pod: Json, node: str) -> None:
        self._pods.append({**pod, "spec": {**pod["spec"], "nodeName": node}})

    def obstacle(self, pod: Json, node: str) -> str | None:
        """Why the pods around keep ``pod`` off ``node``, in the scheduler's words."""
        here = self._labels[node]
        for term in _terms(pod, "podAffinity"):
            found = [other for other in self._pods if _meant(term, pod, other)]
            first = not found and _meant(term, pod, pod)  # the first of a group that wants its own kind beside it
            if not first and not any(self._same(term["topologyKey"], here, other) for other in found):
                return "node(s) didn't match pod affinity rules"
        for term in _terms(pod, "podAntiAffinity"):
            if any(_meant(term, pod, other) and self._same(term["topologyKey"], here, other) for other in self._pods):
                return "node(s) didn't match pod anti-affinity rules"
        for other in self._pods:
            for term in _terms(other, "podAntiAffinity"):
                if _meant(term, other, pod) and self._same(term["topologyKey"], here, other):
                    return "node(s) didn't satisfy existing pods anti-affinity rules"
        for rule in pod["spec"].get("topologySpreadConstraints") or []:
            if rule.get("whenUnsatisfiable") != "ScheduleAnyway" and self._skewed(rule, pod, here):
                return "node(s) didn't match pod topology spread constraints"
        return None

    def _same(self, key: str, here: Json, other: Json) -> bool:
        there = self._labels[other["spec"]["nodeName"]]
        return key in here and here[key] == there.get(key)

    def _skewed(self, rule: Json, pod: Json, here: Json) -> bool:
        key = rule["topologyKey"]
        if key not in here:
            return True
        counts = {labels[key]: 0 for labels in self._labels.values() if key in labels}
        for other in self._pods:
            domain = self._labels[other["spec"]["nodeName"]].get(key)
            same = other["metadata"]["namespace"] == pod["metadata"]["namespace"]
            if domain in counts and same and _matches(rule.get("labelSelector"), other):
                counts[domain] += 1
        least = 0 if len(counts) < (rule.get("minDomains") or 1) else min(counts.values())
        own = 1 if _matches(rule.get("labelSelector"), pod) else 0
        return bool(counts[here[key]] + own - least > rule["maxSkew"])
