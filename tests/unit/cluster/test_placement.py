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
from ansible_collections.tgp.gpu.plugins.module_utils.model import Expression, NodeTerm, Others, Placement, Toleration

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


@pytest.mark.parametrize(
    ("kind", "term", "words"),
    [
        ("podAffinity", {"topologyKey": HOST, "labelSelector": {}}, "required podAffinity"),
        (
            "podAntiAffinity",
            {"topologyKey": "topology.kubernetes.io/zone"},
            "required podAntiAffinity over topology.kubernetes.io/zone",
        ),
        ("podAntiAffinity", {"topologyKey": HOST, "namespaceSelector": {}}, "podAntiAffinity with namespaceSelector"),
        ("podAntiAffinity", {"topologyKey": HOST, "matchLabelKeys": ["x"]}, "podAntiAffinity with matchLabelKeys"),
    ],
)
def test_rules_that_cannot_be_followed(kind: str, term: dict[str, t.Any], words: str) -> None:
    found = affinity(kind, term)
    assert found.unsupported == found.unmovable == words


def test_whom_a_pod_keeps_out_of_its_zone() -> None:
    red = {"labelSelector": {"matchLabels": {"app": "red"}}}
    meant = Expression("app", "In", ("red",))
    zone, host = {"topologyKey": "topology.kubernetes.io/zone", **red}, {"topologyKey": HOST, **red}
    assert affinity("podAntiAffinity", zone).avoids == (Others(("ns",), (meant,)),)
    assert affinity("podAntiAffinity", {**zone, "namespaceSelector": {}}).avoids == (Others((), (meant,)),)
    assert affinity("podAntiAffinity", {**host, "matchLabelKeys": ["x"]}).avoids == (Others(("ns",), (meant,)),)
    assert affinity("podAntiAffinity", host).avoids == () and affinity("podAffinity", zone).avoids == ()


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
