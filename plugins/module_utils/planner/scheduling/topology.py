# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where pods are that others mind (L-40): hard topology spread, required pod affinity, and required anti-affinity over more than one node,
judged as the scheduler's own filters do. Rules about the pods of one node alone are in binpacking."""

from __future__ import annotations

import dataclasses
import typing as t

from ...model import Labels, Node, Pod, PodTerm, Spread, Taint
from ...model.labels import HOSTNAME_LABEL
from .node_affinity import against_labels, against_taints, holds, means

Counts = dict[str, int]  # of a domain, by the value of its label


@dataclasses.dataclass(frozen=True, slots=True)
class Spot:
    """A node that is there or planned, as far as rules over domains mind it. A planned one is a host of its own."""

    name: str
    labels: Labels
    taints: tuple[Taint, ...]


class Topology:
    """Nodes and the pods on them. Pods and planned nodes are added while places are looked for; counts of pods are kept per rule, so that an
    answer does not go through all pods."""

    def __init__(self, nodes: t.Iterable[Node] = (), pods: t.Iterable[Pod] = ()) -> None:
        self._spots: dict[str, Spot] = {}
        self._pods: list[tuple[Pod, str]] = []
        self._spread: dict[tuple[t.Any, ...], tuple[Pod, Spread, Counts]] = {}
        self._near: dict[tuple[PodTerm, ...], dict[tuple[str, str], int]] = {}
        self._apart: dict[PodTerm, Counts] = {}
        self._owners: dict[PodTerm, Counts] = {}
        for node in nodes:
            self.stand(node.name, node.labels, node.taints)
        for pod in pods:
            if pod.node in self._spots and not pod.ended:
                self.add(pod, pod.node)

    def copy(self) -> Topology:
        """The same, for a trial: what is added to the copy does not count here."""
        other = Topology()
        other._spots, other._pods = dict(self._spots), list(self._pods)
        other._spread = {key: (pod, rule, dict(counts)) for key, (pod, rule, counts) in self._spread.items()}
        other._near = {key: dict(counts) for key, counts in self._near.items()}
        other._apart = {key: dict(counts) for key, counts in self._apart.items()}
        other._owners = {key: dict(counts) for key, counts in self._owners.items()}
        return other

    def stand(self, name: str, labels: Labels, taints: tuple[Taint, ...]) -> None:
        """A node, or one that is planned. One that joins has the labels that it will have, and the taints that will stay."""
        known = self._spots.get(name)
        spot = Spot(name, {HOSTNAME_LABEL: name, **(known.labels if known else {}), **labels}, taints)
        if spot == known:
            return
        self._spots[name] = spot
        if known is not None:  # what was counted by its old labels is counted anew
            self._spread.clear()
            self._near.clear()
            self._apart.clear()
            self._owners = {term: {} for term in self._owners}
            for pod, where in self._pods:
                self._own(pod, self._spots[where])
        for pod, rule, counts in self._spread.values():
            if _eligible(pod, rule, spot):
                counts.setdefault(spot.labels[rule.key], 0)

    def _own(self, pod: Pod, spot: Spot) -> None:
        for term in pod.placement.apart:
            _one_more(self._owners.setdefault(term, {}), term, spot)

    def add(self, pod: Pod, name: str) -> None:
        """The pod is on that node now."""
        spot = self._spots[name]
        self._pods.append((pod, name))
        for owner, rule, spread in self._spread.values():
            _count_spread(owner, rule, spread, pod, spot)
        for terms, near in self._near.items():
            _count_near(terms, near, pod, spot)
        for term, apart in self._apart.items():
            if means(term.others, pod):
                _one_more(apart, term, spot)
        self._own(pod, spot)

    def minds(self, pod: Pod) -> bool:
        """Whether it matters to the pod who is where."""
        return pod.placement.minds_others or any(means(term.others, pod) for term in self._owners)

    def against(self, pod: Pod, name: str) -> str:
        """Why the pods around keep this one off the node; empty when they do not."""
        spot = self._spots[name]
        return (
            self._against_spread(pod, spot)
            or self._against_near(pod, spot)
            or self._against_apart(pod, spot)
            or self._against_owners(pod, spot)
        )

    def _against_spread(self, pod: Pod, spot: Spot) -> str:
        for rule in pod.placement.spread:
            value = spot.labels.get(rule.key)
            if value is None:
                return f"topology spread over {rule.key}, a label that the node does not have"
            counts = self._counts(pod, rule)
            least = 0 if len(counts) < rule.min_domains else min(counts.values(), default=0)
            here = counts.get(value, 0) + (1 if _selects(rule, pod) else 0)
            if here - least > rule.max_skew:
                return f"topology spread: {here} of its pods in {rule.key}={value}, {least} elsewhere, maxSkew {rule.max_skew}"
        return ""

    def _against_near(self, pod: Pod, spot: Spot) -> str:
        terms = pod.placement.near
        for term in terms:
            if term.key not in spot.labels:
                return f"required podAffinity over {term.key}, a label that the node does not have"
        if terms not in self._near:
            counts = self._near[terms] = {}
            for other, where in self._pods:
                _count_near(terms, counts, other, self._spots[where])
        found = self._near[terms]
        missing = next((term for term in terms if not found.get((term.key, spot.labels[term.key]))), None)
        if missing is None or (not found and all(means(term.others, pod) for term in terms)):
            return ""  # nobody is there yet whom it wants near, and it is one of them: the first of a group goes anywhere
        return f"required podAffinity: no pod that it wants near is in {missing.key}={spot.labels[missing.key]}"

    def _against_apart(self, pod: Pod, spot: Spot) -> str:
        for term in pod.placement.apart:
            if term not in self._apart:
                counts = self._apart[term] = {}
                for other, where in self._pods:
                    if means(term.others, other):
                        _one_more(counts, term, self._spots[where])
            value = spot.labels.get(term.key)
            if value is not None and self._apart[term].get(value):
                return f"required podAntiAffinity: a pod that it keeps away from is in {term.key}={value}"
        return ""

    def _against_owners(self, pod: Pod, spot: Spot) -> str:
        for term, counts in self._owners.items():
            value = spot.labels.get(term.key)
            if value is not None and counts.get(value) and means(term.others, pod):
                return f"required podAntiAffinity of another pod in {term.key}={value}"
        return ""

    def _counts(self, pod: Pod, rule: Spread) -> Counts:
        """Pods that count for the rule, by domain; the domains are those of eligible nodes."""
        key = (pod.placement, pod.namespace, rule)
        if key not in self._spread:
            counts: Counts = {}
            for spot in self._spots.values():
                if _eligible(pod, rule, spot):
                    counts.setdefault(spot.labels[rule.key], 0)
            self._spread[key] = (pod, rule, counts)
            for other, where in self._pods:
                _count_spread(pod, rule, counts, other, self._spots[where])
        return self._spread[key][2]


def around(nodes: t.Iterable[Node], standing: t.Iterable[Pod], waiting: t.Iterable[Pod]) -> Topology | None:
    """What pods that look for a place have around them; None when it matters to none of them."""
    bound = [pod for pod in standing if pod.node]
    if not any(pod.placement.minds_others for pod in waiting) and not any(pod.placement.apart for pod in bound):
        return None
    return Topology(nodes, bound)


def _eligible(pod: Pod, rule: Spread, spot: Spot) -> bool:
    """Whether a node is part of a domain: it has all labels that the pod spreads over, and suits the pod where the rule asks for that."""
    if any(one.key not in spot.labels for one in pod.placement.spread):
        return False
    selected = dataclasses.replace(pod.placement, reach=())
    if rule.honor_affinity and against_labels(selected, spot.labels, spot.name):
        return False
    return not (rule.honor_taints and against_taints(pod.placement, spot.taints))


def _selects(rule: Spread, pod: Pod) -> bool:
    return rule.selector is not None and all(holds(each, pod.labels) for each in rule.selector)


def _count_spread(owner: Pod, rule: Spread, counts: Counts, pod: Pod, spot: Spot) -> None:
    """As the scheduler counts: pods of the owner's namespace that nobody has deleted yet; an empty selector counts none."""
    if (
        rule.selector
        and pod.namespace == owner.namespace
        and pod.deletion is None
        and _selects(rule, pod)
        and _eligible(owner, rule, spot)
    ):
        counts[spot.labels[rule.key]] += 1


def _count_near(terms: tuple[PodTerm, ...], counts: dict[tuple[str, str], int], pod: Pod, spot: Spot) -> None:
    """A pod counts for each term if it is meant by all of them."""
    if all(means(term.others, pod) for term in terms):
        for term in terms:
            if term.key in spot.labels:
                domain = (term.key, spot.labels[term.key])
                counts[domain] = counts.get(domain, 0) + 1


def _one_more(counts: Counts, term: PodTerm, spot: Spot) -> None:
    value = spot.labels.get(term.key)
    if value is not None:
        counts[value] = counts.get(value, 0) + 1
