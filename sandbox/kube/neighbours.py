# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pod demands of the pods around a node: affinity, anti-affinity (both ways) and hard topology spread."""

from __future__ import annotations

import typing as t

from .selectors import requirement, term_selects

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
    return terms is None or any(term_selects(term, node, labels) for term in terms)


def minds_others(pod: Json) -> bool:
    """Whether the pod's place depends on where others are."""
    rules = pod["spec"].get("topologySpreadConstraints") or []
    return bool(_terms(pod, "podAffinity") or [one for one in rules if one.get("whenUnsatisfiable") != "ScheduleAnyway"])


def _with_keys(rule: Json, pod: Json) -> Json | None:
    """The selector with the values of the pod's own labels that ``matchLabelKeys`` names."""
    selector, labels = rule.get("labelSelector"), pod["metadata"].get("labels") or {}
    more = [{"key": key, "operator": "In", "values": [labels[key]]} for key in rule.get("matchLabelKeys") or [] if key in labels]
    if selector is None or not more:
        return selector
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or []), *more]}


class Neighbours:
    """The pods that stand somewhere, and the nodes below them."""

    def __init__(self, pods: t.Iterable[Json], nodes: t.Mapping[str, Json]) -> None:
        self._nodes = nodes
        self._labels = {name: node["metadata"].get("labels") or {} for name, node in nodes.items()}
        self._pods = [pod for pod in pods if pod["spec"].get("nodeName") in nodes]

    def add(self, pod: Json, node: str) -> None:
        self._pods.append({**pod, "spec": {**pod["spec"], "nodeName": node}})

    def obstacle(self, pod: Json, node: str) -> str | None:
        """Why the pods around keep ``pod`` off ``node``, in the scheduler's words."""
        here = self._labels[node]
        if not self._near(_terms(pod, "podAffinity"), pod, here):
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

    def _near(self, terms: list[Json], pod: Json, here: Json) -> bool:
        if any(term["topologyKey"] not in here for term in terms):
            return False
        wanted = [other for other in self._pods if all(_meant(term, pod, other) for term in terms)]
        if all(any(self._same(term["topologyKey"], here, other) for other in wanted) for term in terms):
            return True
        known = any(term["topologyKey"] in self._labels[other["spec"]["nodeName"]] for other in wanted for term in terms)
        return not known and all(_meant(term, pod, pod) for term in terms)  # the first of a group that wants its own kind beside it

    def _same(self, key: str, here: Json, other: Json) -> bool:
        there = self._labels[other["spec"]["nodeName"]]
        return key in here and here[key] == there.get(key)

    def _skewed(self, rule: Json, pod: Json, here: Json) -> bool:
        key, selector = rule["topologyKey"], _with_keys(rule, pod)
        if key not in here:
            return True
        eligible = {name for name, node in self._nodes.items() if self._eligible(rule, pod, node)}
        counts = {self._labels[name][key]: 0 for name in eligible}
        for other in self._pods:
            name = other["spec"]["nodeName"]
            same = other["metadata"]["namespace"] == pod["metadata"]["namespace"]
            there = name in eligible and same and "deletionTimestamp" not in other["metadata"]
            if there and selector and _matches(selector, other):  # an empty selector counts no pod
                counts[self._labels[name][key]] += 1
        least = 0 if len(counts) < (rule.get("minDomains") or 1) else min(counts.values(), default=0)
        own = 1 if _matches(selector, pod) else 0
        return bool(counts.get(here[key], 0) + own - least > rule["maxSkew"])

    def _eligible(self, rule: Json, pod: Json, node: Json) -> bool:
        labels = node["metadata"].get("labels") or {}
        rules = [one for one in pod["spec"]["topologySpreadConstraints"] if one.get("whenUnsatisfiable") != "ScheduleAnyway"]
        if any(one["topologyKey"] not in labels for one in rules):
            return False
        if (rule.get("nodeAffinityPolicy") or "Honor") == "Honor" and not selects(pod, node):
            return False
        taints = (node.get("spec") or {}).get("taints") or []
        return rule.get("nodeTaintsPolicy") != "Honor" or all(
            taint["effect"] == "PreferNoSchedule" or tolerates(pod, taint) for taint in taints
        )
