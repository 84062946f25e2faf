# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads ProvisioningRequests, CapacityBuffers and their pod templates, and PodGroups."""

from __future__ import annotations

import json
import typing as t

import httpx
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import BadShape, NotFound
from ansible_collections.tgp.gpu.plugins.module_utils.core.http import Api
from ansible_collections.tgp.gpu.plugins.module_utils.kube.client import Kube
from ansible_collections.tgp.gpu.plugins.module_utils.model.queues import (
    ATOMIC,
    COSCHEDULING_GROUPS,
    NATIVE_GROUPS,
    VOLCANO_GROUPS,
    CapacityBuffer,
    PodGroups,
    ProvisioningRequest,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.resources import GPU_RESOURCES
from ansible_collections.tgp.gpu.plugins.module_utils.observe.queues import (
    BUFFERS,
    MOST_PODS,
    REQUESTS,
    TEMPLATES,
    Queues,
    pod_groups,
)

Json = dict[str, t.Any]
GPU = "nvidia.com/gpu"
SPEC = {"containers": [{"name": "c", "resources": {"limits": {GPU: "2"}}}]}


def request(*sets: tuple[str, int], name: str = "train", kind: str = ATOMIC, **status: t.Any) -> Json:
    meta = {
        "namespace": "default",
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": "7",
        "creationTimestamp": "2026-08-20T11:50:00Z",
    }
    pod_sets = [{"podTemplateRef": {"name": template}, "count": count} for template, count in sets]
    return {"metadata": meta, "spec": {"podSets": pod_sets, "provisioningClassName": kind}, "status": status}


def template(name: str = "t", spec: Json = SPEC) -> Json:
    return {"metadata": {"namespace": "default", "name": name}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec}}


def read(
    requests: list[Json] | None, templates: t.Sequence[Json] = (), groups: t.Sequence[Json] = ()
) -> tuple[tuple[ProvisioningRequest, ...], list[str]]:
    """What is found, and the paths that were asked. ``requests`` None = the kind is not served."""
    asked: list[str] = []

    def answer(call: httpx.Request) -> httpx.Response:
        asked.append(call.url.path)
        if call.url.path == "/apis":
            return httpx.Response(200, json={"groups": list(groups)})
        items = {REQUESTS: requests, TEMPLATES: list(templates)}[call.url.path]
        if items is None:
            return httpx.Response(404, text="404 page not found")
        return httpx.Response(200, text=json.dumps({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}))

    kube = Kube(Api("kubernetes", "http://kube.test", transport=httpx.MockTransport(answer)))
    return Queues(kube, GPU_RESOURCES).requests({ATOMIC}), asked


def test_a_request_has_a_placeholder_for_each_pod_of_each_set() -> None:
    cpu = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    (found,), asked = read([request(("t", 2), ("u", 1))], [template(), template("u", cpu)])
    assert [(pod.name, pod.requests, pod.labels) for pod in found.pods] == [
        ("train[0]", {GPU: 2}, {"a": "b"}), ("train[1]", {GPU: 2}, {"a": "b"}), ("train[2]", {"cpu": 1000}, {"a": "b"})
    ]  # fmt: skip
    assert len({pod.uid for pod in found.pods}) == 3 and all(
        pod.placeholder and pod.waiting == "Unschedulable" for pod in found.pods
    )
    assert asked == [REQUESTS, TEMPLATES]


def test_requests_that_are_over_or_of_another_class_are_left_out_and_templates_are_not_read_for_them() -> None:
    over = [
        request(("t", 1), name=kind.lower(), conditions=[{"type": kind, "status": "True"}])
        for kind in ("Failed", "BookingExpired", "CapacityRevoked")
    ]
    assert read([*over, request(("t", 1), kind="queued-provisioning.gke.io")]) == ((), [REQUESTS])
    waits = request(("t", 1), conditions=[{"type": "Failed", "status": "False"}])
    assert len(read([waits], [template()])[0]) == 1


def test_what_it_asks_for_has_to_be_known() -> None:
    (missing,), _asked = read([request(("t", 1))])
    assert missing.problem == "there is no PodTemplate t in namespace default" and missing.pods == ()
    for count, served in ((MOST_PODS, True), (MOST_PODS + 1, False)):
        (found,), _asked = read([request(("t", count))], [template()])
        assert (len(found.pods) == count, found.problem == "") == (served, served)


def test_a_cluster_without_the_kind_has_none_and_a_page_in_between_proves_nothing() -> None:
    assert read(None) == ((), [REQUESTS, "/apis"])
    with pytest.raises(NotFound):
        read(None, groups=[{"name": "autoscaling.x-k8s.io", "versions": [{"version": "v1"}]}])


def test_an_odd_object_is_named() -> None:
    with pytest.raises(BadShape, match="train"):
        read([{"metadata": {"name": "train"}, "spec": {}}])


# ---- CapacityBuffers


def spare(**spec: t.Any) -> Json:
    return {**request(name="spare"), "spec": spec, "metadata": {**request(name="spare")["metadata"], "generation": 3}}


def buffered(
    *found: Json, templates: t.Sequence[Json] = (), scalable: Json | None = None
) -> tuple[tuple[CapacityBuffer, ...], list[str]]:
    asked: list[str] = []

    def answer(call: httpx.Request) -> httpx.Response:
        asked.append(call.url.path)
        if call.url.path.startswith("/apis/apps/"):
            missing = {"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "not found", "code": 404}
            return httpx.Response(200, json=scalable) if scalable is not None else httpx.Response(404, json=missing)
        items = {BUFFERS: list(found), TEMPLATES: list(templates)}[call.url.path]
        return httpx.Response(200, text=json.dumps({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": items}))

    kube = Kube(Api("kubernetes", "http://kube.test", transport=httpx.MockTransport(answer)))
    return Queues(kube, GPU_RESOURCES).buffers(), asked


def test_a_buffer_of_a_template_has_its_pod_and_its_limits() -> None:
    (found,), asked = buffered(spare(podTemplateRef={"name": "t"}, replicas=3, limits={GPU: "4"}), templates=[template()])
    assert found.pod is not None and (found.pod.requests, found.pod.placeholder, found.limits) == ({GPU: 2}, True, {GPU: 4})
    assert (found.replicas, found.template, found.generation, asked) == (3, "t", 3, [BUFFERS, TEMPLATES])


def test_a_buffer_of_a_deployment_has_its_replicas_and_its_pod() -> None:
    deployment = {"metadata": {"name": "web"}, "spec": {"replicas": 10, "template": {"spec": SPEC}}}
    ref = {"apiGroup": "apps", "kind": "Deployment", "name": "web"}
    (found,), asked = buffered(spare(scalableRef=ref, percentage=20), scalable=deployment)
    assert (found.scale, found.percentage) == (10, 20) and found.pod is not None and found.pod.requests == {GPU: 2}
    assert asked == [BUFFERS, "/apis/apps/v1/namespaces/default/deployments/web"]


def test_what_a_buffer_names_has_to_be_there_and_another_strategy_is_left_alone() -> None:
    ref = {"apiGroup": "apps", "kind": "Deployment", "name": "web"}
    odd = {"apiGroup": "batch", "kind": "Job", "name": "j"}
    reasons = [
        buffered(spare(**one))[0][0].reason
        for one in ({"podTemplateRef": {"name": "t"}}, {"scalableRef": ref}, {"scalableRef": odd})
    ]
    assert reasons == ["PodTemplateNotFound", "ScalableRefNotFound", "ResolutionFailed"]
    assert buffered(spare(podTemplateRef={"name": "t"}, provisioningStrategy="other.example.org/warm")) == ((), [BUFFERS])


# ---- PodGroups


def groups_of(
    specs: t.Mapping[str, t.Sequence[Json] | int], served: t.Mapping[str, t.Sequence[str]], *apis: str
) -> tuple[PodGroups, list[str], list[str]]:
    """What is found, the paths that were asked, and the warnings. ``specs``: by path the objects, or the status of a refusal."""
    asked: list[str] = []
    warnings: list[str] = []

    def answer(call: httpx.Request) -> httpx.Response:
        asked.append(call.url.path)
        if call.url.path == "/apis":
            return httpx.Response(
                200,
                json={"groups": [{"name": api, "versions": [{"version": one} for one in each]} for api, each in served.items()]},
            )
        items = specs.get(call.url.path, 404)
        if isinstance(items, int):
            refusal = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": "no right", "code": items}
            return httpx.Response(items, json=refusal)
        named = [{"metadata": {"namespace": "default", "name": f"g{number}"}, "spec": spec} for number, spec in enumerate(items)]
        return httpx.Response(200, json={"kind": "List", "metadata": {"resourceVersion": "1"}, "items": named})

    kube = Kube(Api("kubernetes", "http://kube.test", transport=httpx.MockTransport(answer)))
    return pod_groups(kube, apis, warnings.append), asked, warnings


def leasts(found: PodGroups) -> list[int | None | str]:
    return [one.problem or one.least for one in found.groups.values()]


COSCHEDULED = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
BY_VOLCANO = "/apis/scheduling.volcano.sh/v1beta1/podgroups"


def test_L39_each_system_says_in_its_own_field_how_many_have_to_run_at_once() -> None:
    policies = [{"schedulingPolicy": {"gang": {"minCount": 4}}}, {"schedulingPolicy": {"basic": {}}}]
    specs: dict[str, list[Json]] = {
        "/apis/scheduling.k8s.io/v1beta1/podgroups": policies,
        COSCHEDULED: [{"minMember": 3}, {}],
        BY_VOLCANO: [{"minMember": 2, "queue": "q"}, {"minMember": 2, "minTaskMember": {"worker": 2}}],
    }
    served = {NATIVE_GROUPS: ["v1", "v1alpha3", "v1beta1"], COSCHEDULING_GROUPS: ["v1alpha1"], VOLCANO_GROUPS: ["v1beta1"]}
    found, asked, warnings = groups_of(specs, served, *served)
    assert leasts(found) == [4, 0, 2, None, 3, 0] and warnings == []
    assert found.read == set(served) and asked == ["/apis", "/apis/scheduling.k8s.io/v1beta1/podgroups", BY_VOLCANO, COSCHEDULED]


def test_L39_the_newest_version_that_is_served_is_read_and_an_odd_group_is_unknown_alone() -> None:
    path = "/apis/scheduling.k8s.io/v1alpha2/podgroups"
    specs: dict[str, list[Json]] = {
        path: [{"schedulingPolicy": {"gang": {"minCount": 2}}}, {"policy": {}}, {"schedulingPolicy": {"gang": {"minCount": "2"}}}]
    }
    found, asked, _warnings = groups_of(specs, {NATIVE_GROUPS: ["v1", "v1alpha2"]}, NATIVE_GROUPS)
    least, *odd = leasts(found)
    assert least == 2 and asked == ["/apis", path]
    assert all("how many of its pods have to run at once is unknown" in str(one) for one in odd) and len(odd) == 2


def test_L39_only_what_is_served_and_named_is_read_and_a_missing_kind_is_no_error() -> None:
    assert groups_of({}, {NATIVE_GROUPS: ["v1"]}, NATIVE_GROUPS, COSCHEDULING_GROUPS) == (PodGroups(), ["/apis"], [])
    other_kinds = groups_of({}, {COSCHEDULING_GROUPS: ["v1alpha1"]}, COSCHEDULING_GROUPS)
    assert other_kinds == (PodGroups(), ["/apis", COSCHEDULED], []), "ElasticQuotas are of the same group"


def test_L39_groups_that_cannot_be_read_are_unknown_and_told_once() -> None:
    served = {COSCHEDULING_GROUPS: ["v1alpha1"], VOLCANO_GROUPS: ["v1beta1"]}
    found, _asked, warnings = groups_of({COSCHEDULED: 403, BY_VOLCANO: [{"minMember": 1}]}, served, *served)
    assert (found.unread, found.read) == ({COSCHEDULING_GROUPS}, {VOLCANO_GROUPS})
    (warning,) = warnings
    assert "PodGroups of scheduling.x-k8s.io could not be read" in warning and "files/rbac.yml" in warning
