# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-40: from which nodes the volumes of pods can be reached. The emulated scheduler, which has its own code for it, judges random worlds."""

from __future__ import annotations

import json
import typing as t

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.http import Api
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.kube.pods import placement_of
from ansible_collections.tgp.gpu.plugins.module_utils.model import Node, Pod
from ansible_collections.tgp.gpu.plugins.module_utils.observe import volumes
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.node_affinity import against_labels
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.kube.volumes import Volumes
from tests.unit.fleet.build import NOON

Json = dict[str, t.Any]
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA = "failure-domain.beta.kubernetes.io/zone"


def cluster(claims: t.Iterable[Json] = (), pvs: t.Iterable[Json] = (), classes: t.Iterable[Json] = (), status: int = 200) -> Kube:
    lists = {volumes.CLAIMS: list(claims), volumes.VOLUMES: list(pvs), volumes.CLASSES: list(classes)}

    def answer(request: httpx.Request) -> httpx.Response:
        if status != 200:
            return httpx.Response(status, json={"kind": "Status", "status": "Failure", "message": "forbidden", "code": status})
        return httpx.Response(
            200, text=json.dumps({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": lists[request.url.path]})
        )

    return Kube(Api("kubernetes", "http://kube.test", transport=httpx.MockTransport(answer)))


def claim(name: str = "data", volume: str = "", storage: str = "", modes: t.Sequence[str] = (), **meta: t.Any) -> Json:
    spec = {"volumeName": volume, "storageClassName": storage, "accessModes": list(modes)}
    return {"metadata": {"namespace": "default", "name": name, **meta}, "spec": spec}


def zone_pv(*zones: str, name: str = "pv", labels: Json | None = None) -> Json:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": list(zones)}]}
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}} if zones else {}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": affinity}


def storage(mode: str = "WaitForFirstConsumer", provisioner: str = "csi.example.org", allowed: t.Any = None) -> Json:
    made = {"metadata": {"name": "fast"}, "volumeBindingMode": mode, "provisioner": provisioner}
    return made if allowed is None else {**made, "allowedTopologies": allowed}


def pod(name: str = "w", node: str = "", waiting: str = "Unschedulable", claims: t.Sequence[str] = ("data",)) -> Pod:
    spec = {"volumes": [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]}
    phase = "Running" if node else "Pending"
    return Pod(
        "default", name, f"uid-{name}", phase, node, waiting="" if node else waiting, placement=placement_of(spec, "default")
    )


def judged(kube: Kube, *others: Pod) -> Pod:
    return volumes.with_reach(kube, (pod(), *others), (), pytest.fail, moves=False)[0]


def fits(one: Pod, labels: Json, name: str = "n1") -> bool:
    return not one.placement.unplaceable and not one.placement.volumes and not against_labels(one.placement, labels, name)


# ---- [E] zone of a volume


def test_B07_E_a_bound_volume_is_reached_in_its_zone_only() -> None:
    one = judged(cluster([claim(volume="pv")], [zone_pv("eu-1a")]))
    assert fits(one, {ZONE: "eu-1a"}) and not fits(one, {ZONE: "eu-1b"}) and not fits(one, {})


def test_B07_E_a_claim_that_waits_goes_anywhere_or_where_its_class_allows() -> None:
    anywhere = judged(cluster([claim(storage="fast")], classes=[storage()]))
    assert fits(anywhere, {ZONE: "eu-1b"}) and fits(anywhere, {})
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["eu-1a", "eu-1c"]}]}]
    some = judged(cluster([claim(storage="fast")], classes=[storage(allowed=allowed)]))
    assert fits(some, {ZONE: "eu-1c"}) and not fits(some, {ZONE: "eu-1b"}) and not fits(some, {})


def test_B07_E_a_zone_label_alone_counts_on_nodes_that_have_such_labels() -> None:
    one = judged(cluster([claim(volume="pv")], [zone_pv(labels={ZONE: "eu-1a__eu-1b"})]))
    assert fits(one, {}) and fits(one, {ZONE: "eu-1b"}) and not fits(one, {ZONE: "eu-1c"}) and not fits(one, {REGION: "eu-1"})
    old = judged(cluster([claim(volume="pv")], [zone_pv(labels={BETA: "eu-1a"})]))
    assert fits(old, {ZONE: "eu-1a"}) and not fits(old, {ZONE: "eu-1c"}), "a node of today has the label of today only"


@pytest.mark.parametrize(
    ("kube", "words"),
    [
        (cluster(), "persistent volume claim data does not exist"),
        (cluster([claim(volume="pv", deletionTimestamp="x")], [zone_pv()]), "persistent volume claim data is being deleted"),
        (cluster([claim(volume="pv")]), "persistent volume pv of claim data does not exist"),
        (cluster([claim()]), "persistent volume claim data is not bound, and does not wait for a pod to be placed"),
        (
            cluster([claim(storage="fast")], classes=[storage("Immediate")]),
            "persistent volume claim data is not bound, and does not wait for a pod to be placed",
        ),
        (
            cluster([claim(storage="fast")], classes=[storage(provisioner="kubernetes.io/no-provisioner")]),
            "persistent volume claim data wants a local volume, and no new machine has one",
        ),
    ],
)
def test_B07_what_no_new_node_can_serve_is_said(kube: Kube, words: str) -> None:
    assert judged(kube).placement.unplaceable == words


def test_B07_a_claim_that_one_pod_only_may_use() -> None:
    kube = cluster([claim(volume="pv", modes=["ReadWriteOncePod"])], [zone_pv()])
    assert fits(judged(kube), {}) and fits(judged(kube, pod("done", "n", claims=["other"])), {})
    assert judged(kube, pod("user", "n")).placement.unplaceable.endswith("is ReadWriteOncePod, and another pod uses it")


def test_B07_a_claim_whose_node_is_chosen_pins_its_pod() -> None:
    chosen = {"volume.kubernetes.io/selected-node": "n2"}
    one = judged(cluster([claim(storage="fast", annotations=chosen)], classes=[storage()]))
    assert fits(one, {}, "n2") and not fits(one, {}, "n1") and not fits(one, {}, "")


def test_B07_volumes_that_cannot_be_read_are_said_once_and_stay_unknown() -> None:
    warned: list[str] = []
    (one,) = volumes.with_reach(cluster(status=403), (pod(),), (), warned.append, moves=False)
    assert one.placement.volumes == ("data",) and len(warned) == 1 and "files/rbac.yml" in warned[0]


def test_B07_nothing_is_read_where_no_pod_with_volumes_looks_for_a_place() -> None:
    """Of pods that run only those on our nodes, and only where they may have to move."""
    ours = Node("ours", "u", NOON, True, labels={"tgp.io/provisioned": "true"})
    kube = cluster(status=500)
    for pods, moves in (((pod(claims=()),), True), ((pod("r", "ours"),), False), ((pod("r", "theirs"),), True)):
        assert volumes.with_reach(kube, pods, (ours,), pytest.fail, moves=moves) == pods
    there = cluster([claim(volume="pv")], [zone_pv("eu-1a")])
    (moving,) = volumes.with_reach(there, (pod("r", "ours"),), (ours,), pytest.fail, moves=True)
    assert moving.placement.reach and not moving.placement.unjudged


def test_B07_a_volume_of_odd_shape_is_an_answer_that_cannot_be_read() -> None:
    warned: list[str] = []
    volumes.with_reach(cluster([claim()], [{"metadata": {"name": "pv"}}]), (pod(),), (), warned.append, moves=False)
    assert "odd field" in warned[0]


# ---- the emulated scheduler as the judge

_zones = st.sampled_from(["a", "b", "a__b"])
_marks = st.dictionaries(st.sampled_from([ZONE, REGION, BETA]), _zones, max_size=2)
_node_labels = st.dictionaries(st.sampled_from([ZONE, REGION, BETA, "rack"]), st.sampled_from(["a", "b"]), max_size=3).map(
    lambda labels: {**labels, ZONE: labels[BETA]} if {ZONE, BETA} <= set(labels) else labels  # both come from one value
)
_keyed = st.fixed_dictionaries({"key": st.sampled_from([ZONE, "rack"]), "values": st.just(["a"])})
_allowed = st.none() | st.lists(
    st.fixed_dictionaries({"matchLabelExpressions": st.lists(_keyed, min_size=1)}),
    min_size=1,
    max_size=2,
)
_claims = st.builds(
    claim,
    volume=st.sampled_from(["", "", "pv", "gone"]),
    storage=st.sampled_from(["fast", "fast", ""]),
    modes=st.sampled_from([(), ("ReadWriteOncePod",)]),
    annotations=st.sampled_from([{}, {}, {"volume.kubernetes.io/selected-node": "n2"}]),
)
_volumes = st.builds(zone_pv, st.sampled_from(["a", "b"]), labels=_marks) | st.builds(zone_pv, labels=_marks)
_classes = st.builds(
    storage,
    mode=st.sampled_from(["WaitForFirstConsumer"] * 3 + ["Immediate"]),
    provisioner=st.sampled_from(["csi.example.org", "csi.example.org", "kubernetes.io/no-provisioner"]),
    allowed=_allowed,
)


@settings(deadline=None, max_examples=150)
@given(
    _claims,
    st.builds(zone_pv, st.sampled_from(["a", "b"]), labels=_marks) | st.builds(zone_pv, labels=_marks),
    _classes,
    _node_labels,
    st.booleans(),
)
def test_B07_volumes_keep_pods_off_as_the_emulated_scheduler_does(
    made: Json, pv: Json, kind: Json, labels: Json, used: bool
) -> None:
    users = [pod("user", "n9")] if used else []
    one = judged(cluster([made], [pv], [kind]), *users)

    def raw(each: Pod) -> Json:
        spec = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}], "nodeName": each.node}
        return {"metadata": {"namespace": "default", "name": each.name, "uid": each.uid}, "spec": spec}

    judge = Volumes([made], [pv], [kind], [raw(each) for each in users])
    for name in ("n1", "n2"):
        node = {"metadata": {"name": name, "labels": labels}}
        assert fits(one, labels, name) == (judge.obstacle(raw(one), node) is None)
