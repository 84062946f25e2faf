# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-40 on the real scheduler: pods with rules about others and zones go to nodes that our own judgement leaves them, or wait where it leaves
none. The nodes are objects without a kubelet."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.kube.nodes import nodes as read_nodes
from ansible_collections.tgp.gpu.plugins.module_utils.kube.pods import pods as read_pods
from ansible_collections.tgp.gpu.plugins.module_utils.observe import volumes
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.node_affinity import against_labels
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.topology import Topology

from . import objects
from .plane import Plane

pytestmark = pytest.mark.cluster
Json = dict[str, t.Any]
ZONE, HOST, REQUIRED = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "requiredDuringSchedulingIgnoredDuringExecution"


def spread(app: str, key: str = ZONE, **facts: t.Any) -> Json:
    selector = {"matchLabels": {"app": app}}
    rule = {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector, **facts}
    return {"topologySpreadConstraints": [rule]}


def others(kind: str, app: str) -> Json:
    return {"affinity": {kind: {REQUIRED: [{"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": app}}}]}}}


#: label app of a pod that looks for a place: the nodes of pods of that label, its rules, the nodes that are left to it
CASES: dict[str, tuple[str, Json, set[str]]] = {
    "e1": ("aab", spread("e1"), {"b"}),
    "e2": ("aab", spread("e2", minDomains=3), set()),
    "hosts": ("ab", spread("hosts", HOST), {"c"}),
    "near": ("a", others("podAffinity", "near"), {"a"}),
    "first": ("", others("podAffinity", "first"), {"a", "b"}),
    "lonely": ("", others("podAffinity", "nobody"), set()),
    "apart": ("ab", others("podAntiAffinity", "apart"), {"c"}),
    "volume": ("", {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}, {"b"}),
    "shunned": ("", {}, {"b", "c"}),
}


def _node(plane: Plane, name: str, own: str, zone: str) -> None:
    labels = {"case": own, HOST: name, **({ZONE: f"{own}-{zone}"} if zone else {})}
    plane.create("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
    room = {"cpu": "8", "memory": "16Gi", "pods": "50"}
    status = {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}]}
    plane.patch(f"/api/v1/nodes/{name}/status", {"status": status})


def _volume(plane: Plane, own: str) -> None:
    """One that is bound, and reached from zone b only."""
    path = f"/api/v1/namespaces/{own}/persistentvolumeclaims"
    size = {"storage": "1Gi"}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": f"{own}-pv", "resources": {"requests": size}}
    bound = {"pv.kubernetes.io/bind-completed": "yes"}
    made = plane.create(path, {"metadata": {"name": "data", "annotations": bound}, "spec": spec})
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [f"{own}-b"]}]}
    volume = {
        "capacity": size,
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "csi.example.test", "volumeHandle": own},
        "claimRef": {"namespace": own, "name": "data", "uid": made["metadata"]["uid"]},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    plane.create("/api/v1/persistentvolumes", {"metadata": {"name": f"{own}-pv"}, "spec": volume})


@pytest.fixture
def names(plane: Plane, own: str) -> t.Iterator[dict[str, str]]:
    """Three nodes, two of them in a zone, and a volume; pods of other tests must find none of them."""
    made = {letter: f"{own}-{letter}" for letter in "abc"}
    try:
        for letter, name in made.items():
            _node(plane, name, own, "" if letter == "c" else letter)
        yield made
    finally:
        for name in made.values():
            plane.delete(f"/api/v1/nodes/{name}")


def test_B07_the_real_scheduler_places_pods_as_we_judge(plane: Plane, kube: Kube, own: str, names: dict[str, str]) -> None:
    space = objects.namespace(plane, own)
    _volume(plane, own)
    usual = {**objects.pod_spec(), "tolerations": [{"operator": "Exists"}], "nodeSelector": {"case": own}}
    for app, (standing, _rules, _left) in CASES.items():
        for number, letter in enumerate(standing):
            objects.pod(plane, space, f"{app}-{number}", {**usual, "nodeName": names[letter]}, {"app": app})
    objects.pod(
        plane, space, "keeper", {**usual, "nodeName": names["a"], **others("podAntiAffinity", "shunned")}, {"app": "keeper"}
    )
    before = read_pods(kube, all=True)
    for app, (_standing, rules, _left) in CASES.items():
        objects.pod(plane, space, f"{app}-new", {**usual, **rules}, {"app": app})

    def decided() -> dict[str, Json] | None:
        """All that have a place are bound, of all others the scheduler has said that they have none."""
        found = {
            one["metadata"]["labels"]["app"]: one for one in objects.pods(plane, space) if one["metadata"]["name"].endswith("-new")
        }
        bound = {app for app, one in found.items() if one["spec"].get("nodeName")}
        refused = {
            app for app, one in found.items() if any(each["status"] == "False" for each in one["status"].get("conditions", []))
        }
        return found if all(app in (bound if left else bound | refused) for app, (_on, _rules, left) in CASES.items()) else None

    placed = plane.until(decided, what="the scheduler to have decided on all pods")
    nodes = [one for one in read_nodes(kube) if one.labels.get("case") == own]
    there = Topology(nodes, before)
    storage = volumes.read(kube)
    for one in read_pods(kube, all=True):
        if one.namespace != space or not one.name.endswith("-new"):
            continue
        judged = volumes.placed(one, storage, {}) if one.placement.volumes else one
        left = {
            node.name
            for node in nodes
            if not there.against(judged, node.name) and not against_labels(judged.placement, node.labels)
        }
        app = one.labels["app"]
        assert left == {names[letter] for letter in CASES[app][2]}, app
        bound = placed[app]["spec"].get("nodeName", "")
        assert bound in left if left else not bound, f"{app}: {placed[app]['status']}"
