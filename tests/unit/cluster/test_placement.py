# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pod says about its place, out of raw JSON."""

from __future__ import annotations

import typing as t

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.http import Api
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.kube.pods import placement_of, reducer
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    Expression,
    NodeTerm,
    Others,
    Placement,
    PodTerm,
    Spread,
    Toleration,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
HOST = "kubernetes.io/hostname"


def affinity(kind: str, *terms: dict[str, t.Any]) -> Placement:
    return placement_of({"affinity": {kind: {REQUIRED: list(terms)}}}, "ns")


def test_nothing_said() -> None:
    assert placement_of({}, "ns") == Placement() and placement_of({"affinity": {}}, "ns") is placement_of({}, "ns")


def test_what_is_read() -> None:
    found = placement_of(
        {
            "nodeSelector": {"b": "2", "a": "1"},
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}, {"key": "v", "value": "x"}],
            "priority": 7,
            "schedulerName": "volcano",
            "resourceClaims": [{"name": "gpu"}],
        },
        "ns",
    )
    assert found == Placement(
        selector=(("a", "1"), ("b", "2")),
        tolerations=(Toleration("k", "Exists", "", "NoSchedule"), Toleration("v", "Equal", "x")),
        priority=7,
        scheduler="volcano",
        claims=True,
    )


def test_node_affinity_required_only() -> None:
    term = {
        "matchExpressions": [{"key": "a", "operator": "In", "values": ["x"]}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
    }
    spec = {
        REQUIRED: {"nodeSelectorTerms": [term]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}],
    }
    found = placement_of({"affinity": {"nodeAffinity": spec}}, "ns")
    assert found.terms == (NodeTerm((Expression("a", "In", ("x",)),), (Expression("metadata.name", "In", ("n",)),)),)


def test_anti_affinity_on_the_host() -> None:
    selector = {"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "tier", "operator": "Exists"}]}
    found = affinity(
        "podAntiAffinity",
        {"topologyKey": HOST, "labelSelector": selector},
        {"topologyKey": HOST, "labelSelector": {}, "namespaces": ["b", "a"]},
    )
    labels = (Expression("app", "In", ("x",)), Expression("tier", "Exists"))
    assert found.alone == (Others(("ns",), labels), Others(("a", "b"))) and not found.unsupported


ZONE = "topology.kubernetes.io/zone"
RED = Expression("app", "In", ("red",))
OF_RED = {"labelSelector": {"matchLabels": {"app": "red"}}}


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_B07_rules_over_more_than_a_node_are_read(kind: str) -> None:
    found = affinity(kind, {"topologyKey": ZONE, **OF_RED}, {"topologyKey": ZONE, "namespaceSelector": {}, **OF_RED})
    terms = (PodTerm(ZONE, Others(("ns",), (RED,))), PodTerm(ZONE, Others((), (RED,))))
    assert (found.near if kind == "podAffinity" else found.apart) == terms and not found.unsupported and not found.avoids
    words = "required podAffinity" if kind == "podAffinity" else f"required podAntiAffinity over {ZONE}"
    assert found.unmovable == words and not found.unjudged


@pytest.mark.parametrize(("field", "operator"), [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")])
def test_B07_label_keys_stand_for_the_pods_own_labels(field: str, operator: str) -> None:
    term = {"topologyKey": HOST, field: ["version", "absent"], **OF_RED}
    spec = {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}
    found = placement_of(spec, "ns", {"version": "2"})
    assert found.alone == (Others(("ns",), (RED, Expression("version", operator, ("2",)))),) and not found.unmovable


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_rules_that_cannot_be_followed(kind: str) -> None:
    """Which namespaces a selector means is not read; of an anti-affinity rather too many pods are meant than too few."""
    found = affinity(kind, {"topologyKey": ZONE, "namespaceSelector": {"matchLabels": {"team": "a"}}, **OF_RED})
    assert found.unsupported == found.unmovable == f"required {kind} with namespaceSelector"
    assert found.avoids == ((Others((), (RED,)),) if kind == "podAntiAffinity" else ())


def test_B07_a_selector_that_is_missing_matches_no_pod() -> None:
    assert affinity("podAntiAffinity", {"topologyKey": ZONE}).apart == ()
    (term,) = affinity("podAffinity", {"topologyKey": ZONE}).near
    assert term.others.labels == (Expression("", "In"),), "near nobody: no place is"


def test_B07_topology_spread_is_read() -> None:
    entry = {
        "topologyKey": ZONE,
        "maxSkew": 2,
        "whenUnsatisfiable": "DoNotSchedule",
        "minDomains": 3,
        "matchLabelKeys": ["pod-template-hash"],
        "nodeAffinityPolicy": "Ignore",
        "nodeTaintsPolicy": "Honor",
        **OF_RED,
    }
    spec = {
        "topologySpreadConstraints": [entry, {**entry, "whenUnsatisfiable": "ScheduleAnyway"}, {"topologyKey": HOST, "maxSkew": 1}]
    }
    first, second = placement_of(spec, "ns", {"pod-template-hash": "x"}).spread
    assert first == Spread(ZONE, 2, (RED, Expression("pod-template-hash", "In", ("x",))), 3, False, True)
    assert second == Spread(HOST, 1)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"resourceClaims": [{"name": "gpu"}]}, "resource claims"),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]}, "hard topology spread"),
        ({"topologySpreadConstraints": [{}]}, "hard topology spread"),
        ({"topologySpreadConstraints": [{"whenUnsatisfiable": "ScheduleAnyway"}]}, ""),
        ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, "persistent volume"),
        ({"volumes": [{"name": "v", "ephemeral": {}}]}, "persistent volume"),
        ({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {}}]}, ""),
    ],
)
def test_what_may_fit_on_no_other_node(spec: dict[str, t.Any], why: str) -> None:
    assert placement_of(spec, "ns").unmovable == why


def test_a_waiting_pod_keeps_all_its_requests_and_the_schedulers_words() -> None:
    kube = Kube(Api("kubernetes", "http://kube.test", transport=httpx.MockTransport(lambda request: httpx.Response(500))))
    reduce = reducer(kube)
    raw: dict[str, t.Any] = {
        "metadata": {"namespace": "ns", "name": "p", "uid": "u", "creationTimestamp": "2026-08-20T12:00:00Z"},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "2", "nvidia.com/gpu": "1"}}}]},
        "status": {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}],
        },
    }
    found = reduce(raw)
    assert found.requests == {"cpu": 2000, "nvidia.com/gpu": 1} and (found.waiting, found.waiting_why) == (
        "Unschedulable",
        "0/1 nodes",
    )
    raw["spec"]["nodeName"] = "n"
    assert reduce(raw).requests == {"nvidia.com/gpu": 1}
