# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a Kubernetes API must do for us, asked over raw HTTP. The same probes run against the emulator and a real control plane.

Each probe takes ``kube`` (an httpx client with the base URL and an administrator's token) and ``space`` (a namespace of its own, whose name
may also prefix names of cluster-wide objects). What a real control plane does by a controller is waited for.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import typing as t
from datetime import datetime, timedelta, timezone

import httpx
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Json = dict[str, t.Any]
Kubelet = t.Callable[[str, str], httpx.Client]  # from a key and a certificate (PEM) to the kubelet's own client

MERGE = {"content-type": "application/merge-patch+json"}
STRATEGIC = {"content-type": "application/strategic-merge-patch+json"}
PATCH = {"content-type": "application/json-patch+json"}
APPLY = {"content-type": "application/apply-patch+yaml"}


# ---- small tools ---------------------------------------------------------------------------------------------------


def eventually(check: t.Callable[[], t.Any], seconds: float = 60.0) -> t.Any:
    """The first true result of ``check``; AssertionError after ``seconds``."""
    end = time.monotonic() + seconds
    while True:
        result = check()
        if result:
            return result
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def ok(response: httpx.Response, code: int = 200) -> Json:
    assert response.status_code == code, f"{response.status_code}: {response.text}"
    return t.cast(Json, response.json())


def refused(response: httpx.Response, code: int, reason: str | None) -> Json:
    """A Status body of that code and reason."""
    body = ok(response, code)
    assert body["kind"] == "Status" and body["apiVersion"] == "v1" and body["status"] == "Failure" and body["code"] == code
    assert body.get("reason") == reason
    return body


def maps(space: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{space}/configmaps" + (f"/{name}" if name else "")


def pods(space: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{space}/pods" + (f"/{name}" if name else "")


def new_map(kube: httpx.Client, space: str, name: str, labels: Json | None = None, **data: str) -> Json:
    body = {"metadata": {"name": name, "labels": labels or {}}, "data": data}
    return ok(kube.post(maps(space), json={"apiVersion": "v1", "kind": "ConfigMap", **body}), 201)


def new_node(kube: httpx.Client, name: str, labels: Json | None = None) -> Json:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels or {}}}
    return ok(kube.post("/api/v1/nodes", json=body), 201)


def new_pod(kube: httpx.Client, space: str, name: str, labels: Json | None = None, node: str | None = None, **spec: t.Any) -> Json:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "containers": [{"name": "main", "image": "registry.invalid/none:1"}],
            **({"nodeName": node} if node else {}),
            **spec,
        },
    }

    def create() -> Json | None:
        response = kube.post(pods(space), json=body)
        if response.status_code == 403 and "serviceaccount" in response.text:
            return None  # the namespace is younger than its service account
        return ok(response, 201)

    return t.cast(Json, eventually(create))


def run_pod(kube: httpx.Client, space: str, name: str, labels: Json, ready: bool = True) -> Json:
    """A pod that is Running on a node that nobody serves."""
    new_pod(kube, space, name, labels, node=f"{space}-nowhere")
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    patch = {"status": {"phase": "Running", "conditions": conditions}}
    return ok(kube.patch(pods(space, name) + "/status", json=patch, headers=STRATEGIC))


def new_budget(kube: httpx.Client, space: str, name: str, labels: Json, **spec: t.Any) -> str:
    """The path of a new PodDisruptionBudget."""
    path = f"/apis/policy/v1/namespaces/{space}/poddisruptionbudgets"
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": labels}, **spec}}  # fmt: skip
    ok(kube.post(path, json=body), 201)
    return f"{path}/{name}"


def settled(kube: httpx.Client, budget: str, healthy: int) -> Json:
    """The budget's status, once it counts that many healthy pods."""

    def look() -> Json | None:
        body = ok(kube.get(budget))
        status = body.get("status") or {}
        fresh = status.get("observedGeneration") == body["metadata"]["generation"]
        return status if fresh and status.get("currentHealthy") == healthy else None

    return t.cast(Json, eventually(look))


def evict(kube: httpx.Client, space: str, name: str, **options: t.Any) -> httpx.Response:
    body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": space}}
    return kube.post(pods(space, name) + "/eviction", json={**body, "deleteOptions": options} if options else body)


def ssl_context(ca_pem: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=ca_pem)


def gone(kube: httpx.Client, path: str) -> bool:
    return kube.get(path).status_code == 404


def events(kube: httpx.Client, path: str, params: dict[str, str]) -> list[Json]:
    """All events of a watch until it ends by itself."""
    found = []
    with kube.stream("GET", path, params={"watch": "true", **params}, timeout=30) as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if line.strip():
                found.append(json.loads(line))
    return found


def as_token(kube: httpx.Client, token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def new_bootstrap_token(kube: httpx.Client, space: str, seconds: int = 3600, groups: str = "system:bootstrappers:nodes") -> str:
    """A bootstrap token whose Secret is in kube-system; the id is made from the namespace's name."""
    token_id = base64.b32encode(space.encode()).decode().lower().rstrip("=")[-6:].rjust(6, "0")
    secret = "0123456789abcdef"
    end = (datetime.now(timezone.utc) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    data = {"token-id": token_id, "token-secret": secret, "expiration": end, "usage-bootstrap-authentication": "true",
            "auth-extra-groups": groups}  # fmt: skip
    body = {"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": f"bootstrap-token-{token_id}"}, "stringData": data}  # fmt: skip
    response = kube.post("/api/v1/namespaces/kube-system/secrets", json=body)
    assert response.status_code in (201, 409), response.text
    token = f"{token_id}.{secret}"
    if seconds > 0:  # a real API server learns of it a moment later
        eventually(lambda: kube.get("/version", headers=as_token(kube, token)).status_code == 200)
    return token


# ---- objects -------------------------------------------------------------------------------------------------------


def probe_says_what_it_is(kube: httpx.Client, space: str) -> None:
    assert ok(kube.get("/version"))["major"] == "1"
    assert kube.get("/readyz").text == "ok"
    core = ok(kube.get("/api/v1"))
    names = {entry["name"]: entry for entry in core["resources"]}
    assert names["nodes"]["namespaced"] is False and names["pods"]["namespaced"] is True and "nodes/status" in names
    assert names["pods/eviction"]["kind"] == "Eviction" and names["pods/eviction"]["group"] == "policy"
    groups = {group["name"] for group in ok(kube.get("/apis"))["groups"]}
    assert {"policy", "coordination.k8s.io", "certificates.k8s.io", "apiextensions.k8s.io", "rbac.authorization.k8s.io"} <= groups


def probe_create_fills_metadata(kube: httpx.Client, space: str) -> None:
    made = new_map(kube, space, "one", a="1")
    metadata = made["metadata"]
    assert made["kind"] == "ConfigMap" and made["apiVersion"] == "v1" and metadata["namespace"] == space
    assert len(metadata["uid"]) == 36 and int(metadata["resourceVersion"]) > 0
    assert metadata["creationTimestamp"].endswith("Z") and len(metadata["creationTimestamp"]) == 20
    assert ok(kube.get(maps(space, "one")))["metadata"]["uid"] == metadata["uid"]


def probe_create_twice_already_exists(kube: httpx.Client, space: str) -> None:
    new_map(kube, space, "one")
    body = refused(kube.post(maps(space), json={"metadata": {"name": "one"}}), 409, "AlreadyExists")
    assert body["message"] == 'configmaps "one" already exists' and body["details"] == {"name": "one", "kind": "configmaps"}


def probe_missing_is_not_found(kube: httpx.Client, space: str) -> None:
    body = refused(kube.get(maps(space, "none")), 404, "NotFound")
    assert body["message"] == 'configmaps "none" not found' and body["details"] == {"name": "none", "kind": "configmaps"}
    lease = refused(kube.get(f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases/none"), 404, "NotFound")
    assert lease["details"] == {"name": "none", "group": "coordination.k8s.io", "kind": "leases"}
    assert kube.get("/api/v1/nosuchthings").status_code == 404


def probe_create_in_missing_namespace(kube: httpx.Client, space: str) -> None:
    body = refused(kube.post(maps(f"{space}-none"), json={"metadata": {"name": "one"}}), 404, "NotFound")
    assert body["details"]["kind"] == "namespaces"


def probe_generate_name(kube: httpx.Client, space: str) -> None:
    names = {ok(kube.post(maps(space), json={"metadata": {"generateName": "x-"}}), 201)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3 and all(name.startswith("x-") and len(name) == 7 for name in names)


def probe_bad_name_is_invalid(kube: httpx.Client, space: str) -> None:
    body = refused(kube.post(maps(space), json={"metadata": {"name": "Not_Good"}}), 422, "Invalid")
    assert body["details"]["kind"] == "ConfigMap" and body["details"]["causes"][0]["field"] == "metadata.name"
    nameless = refused(kube.post(maps(space), json={"metadata": {}}), 422, "Invalid")
    assert nameless["details"]["causes"][0]["reason"] == "FieldValueRequired"


def probe_wrong_kind_or_type_is_bad_request(kube: httpx.Client, space: str) -> None:
    refused(kube.post(maps(space), json={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}}), 400, "BadRequest")
    refused(kube.post(maps(space), json={"metadata": {"name": "one"}, "data": {"n": 1}}), 400, "BadRequest")
    refused(kube.post(maps(space), json={"metadata": {"name": "one", "namespace": "other"}}), 400, "BadRequest")


def probe_put_with_old_version_conflicts(kube: httpx.Client, space: str) -> None:
    made = new_map(kube, space, "one", a="1")
    newer = ok(kube.put(maps(space, "one"), json={**made, "data": {"a": "2"}}))
    assert int(newer["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    body = refused(kube.put(maps(space, "one"), json={**made, "data": {"a": "3"}}), 409, "Conflict")
    assert "the object has been modified" in body["message"] and body["details"] == {"name": "one", "kind": "configmaps"}
    assert ok(kube.get(maps(space, "one")))["data"] == {"a": "2"}


def probe_change_of_nothing_writes_nothing(kube: httpx.Client, space: str) -> None:
    made = new_map(kube, space, "one", a="1")
    again = ok(kube.patch(maps(space, "one"), json={"data": {"a": "1"}}, headers=MERGE))
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def probe_merge_patch(kube: httpx.Client, space: str) -> None:
    made = new_map(kube, space, "one", a="1", b="2")
    patched = ok(kube.patch(maps(space, "one"), json={"data": {"a": None, "c": "3"}}, headers=MERGE))
    assert patched["data"] == {"b": "2", "c": "3"}
    stale = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"d": "4"}}
    refused(kube.patch(maps(space, "one"), json=stale, headers=MERGE), 409, "Conflict")
    refused(kube.patch(maps(space, "none"), json={"data": {}}, headers=MERGE), 404, "NotFound")


def probe_json_patch(kube: httpx.Client, space: str) -> None:
    new_map(kube, space, "one", a="1")
    operations = [{"op": "test", "path": "/data/a", "value": "1"}, {"op": "replace", "path": "/data/a", "value": "2"},
                  {"op": "add", "path": "/metadata/labels", "value": {"x/y": "z"}}]  # fmt: skip
    patched = ok(kube.patch(maps(space, "one"), json=operations, headers=PATCH))
    assert patched["data"] == {"a": "2"} and patched["metadata"]["labels"] == {"x/y": "z"}
    failed = kube.patch(maps(space, "one"), json=[{"op": "test", "path": "/data/a", "value": "9"}], headers=PATCH)
    refused(failed, 422, "Invalid")
    removed = ok(kube.patch(maps(space, "one"), json=[{"op": "remove", "path": "/metadata/labels/x~1y"}], headers=PATCH))
    assert "labels" not in removed["metadata"]


def probe_strategic_patch_merges_lists_by_key(kube: httpx.Client, space: str) -> None:
    name = f"{space}-node"
    new_node(kube, name)
    first = {"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}]}}
    ok(kube.patch(f"/api/v1/nodes/{name}/status", json=first, headers=STRATEGIC))
    second = {"status": {"conditions": [{"type": "DiskPressure", "status": "True"}]}}
    body = ok(kube.patch(f"/api/v1/nodes/{name}/status", json=second, headers=STRATEGIC))
    assert {entry["type"]: entry["status"] for entry in body["status"]["conditions"]} == {"Ready": "True", "DiskPressure": "True"}
    taints = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoSchedule"}]}}
    ok(kube.patch(f"/api/v1/nodes/{name}", json=taints, headers=STRATEGIC))
    replaced = ok(
        kube.patch(f"/api/v1/nodes/{name}", json={"spec": {"taints": [{"key": "c", "effect": "NoSchedule"}]}}, headers=STRATEGIC)
    )
    keys = {taint["key"] for taint in replaced["spec"]["taints"]}
    assert "c" in keys and not keys & {"a", "b"}, "the list of taints is atomic"
    ok(kube.delete(f"/api/v1/nodes/{name}"))


def probe_unknown_patch_type(kube: httpx.Client, space: str) -> None:
    new_map(kube, space, "one")
    response = kube.patch(maps(space, "one"), content=b"{}", headers={"content-type": "text/plain"})
    refused(response, 415, "UnsupportedMediaType")


def probe_server_side_apply(kube: httpx.Client, space: str) -> None:
    def put(manager: str, data: Json, force: bool = False) -> httpx.Response:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": data}
        params = {"fieldManager": manager, **({"force": "true"} if force else {})}
        return kube.patch(maps(space, "one"), params=params, content=json.dumps(body), headers=APPLY)

    made = ok(put("anna", {"a": "1", "b": "1"}), 201)
    assert [entry["manager"] for entry in made["metadata"]["managedFields"]] == ["anna"]
    ok(put("bert", {"c": "1"}))
    clash = refused(put("bert", {"a": "2", "c": "1"}), 409, "Conflict")
    assert clash["details"]["causes"][0]["reason"] == "FieldManagerConflict" and clash["details"]["causes"][0]["field"] == ".data.a"
    assert ok(put("bert", {"a": "2", "c": "1"}, force=True))["data"] == {"a": "2", "b": "1", "c": "1"}
    assert ok(put("anna", {}))["data"] == {"a": "2", "c": "1"}, "what the only owner gives up goes"
    unnamed = refused(kube.patch(maps(space, "one"), content=b"{}", headers=APPLY), 422, "Invalid")
    assert unnamed["details"]["causes"][0]["field"] == "fieldManager"


def probe_status_is_isolated(kube: httpx.Client, space: str) -> None:
    name = f"{space}-node"
    new_node(kube, name)
    path = f"/api/v1/nodes/{name}"
    capacity = {"cpu": "4", "nvidia.com/gpu": "2"}
    body = ok(kube.patch(path, json={"status": {"capacity": capacity}}, headers=MERGE))
    assert "nvidia.com/gpu" not in (body.get("status") or {}).get("capacity", {})
    body = ok(kube.patch(f"{path}/status", json={"status": {"capacity": capacity}, "spec": {"unschedulable": True}}, headers=MERGE))
    assert body["status"]["capacity"] == capacity and body["status"]["allocatable"] == capacity
    assert "unschedulable" not in body["spec"]
    ok(kube.delete(path))


def probe_taints_are_checked(kube: httpx.Client, space: str) -> None:
    name = f"{space}-node"
    new_node(kube, name)
    wrong = {"spec": {"taints": [{"key": "a", "effect": "Sometimes"}]}}
    body = refused(kube.patch(f"/api/v1/nodes/{name}", json=wrong, headers=MERGE), 422, "Invalid")
    assert body["details"]["causes"][0]["field"] == "metadata.taints[0].effect"
    for taint, field in (({"key": "a b"}, "key"), ({"key": "a/b/c"}, "key"), ({"key": "a", "value": "b c"}, "value")):
        wrong = {"spec": {"taints": [{**taint, "effect": "NoSchedule"}]}}
        body = refused(kube.patch(f"/api/v1/nodes/{name}", json=wrong, headers=MERGE), 422, "Invalid")
        assert {one["field"] for one in body["details"]["causes"]} == {f"metadata.taints[0].{field}"}
    ok(kube.delete(f"/api/v1/nodes/{name}"))


def probe_annotations_are_checked(kube: httpx.Client, space: str) -> None:
    def made(name: str, annotations: Json) -> httpx.Response:
        return kube.post(maps(space), json={"metadata": {"name": name, "annotations": annotations}})

    for key in ("a b", "a/b/c", "-a", "a" * 64, "under_score.example/a"):
        body = refused(made("wrong", {key: "x"}), 422, "Invalid")
        assert body["details"]["causes"][0]["field"] == "metadata.annotations"
    ok(made("right", {"Example.COM/A_b": "any text, \u00e4 too\n", "plain": ""}), 201)
    ok(made("full", {"a": "x" * (256 * 1024 - 1)}), 201)
    body = refused(made("over", {"a": "x" * (256 * 1024)}), 422, "Invalid")
    assert body["details"]["causes"][0]["reason"] == "FieldValueTooLong"


def probe_dry_run_changes_nothing(kube: httpx.Client, space: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dry"}}
    assert ok(kube.post(maps(space), params={"dryRun": "All"}, json=body), 201)["metadata"]["name"] == "dry"
    refused(kube.get(maps(space, "dry")), 404, "NotFound")
    made = new_map(kube, space, "wet", a="1")
    patched = ok(kube.patch(maps(space, "wet"), params={"dryRun": "All"}, json={"data": {"a": "2"}}, headers=MERGE))
    assert patched["data"] == {"a": "2"} and ok(kube.get(maps(space, "wet"))) == made
    ok(kube.delete(maps(space, "wet"), params={"dryRun": "All"}))
    assert ok(kube.get(maps(space, "wet"))) == made


# ---- lists and watches ---------------------------------------------------------------------------------------------


def _names(body: Json) -> list[str]:
    return [item["metadata"]["name"] for item in body["items"]]


def probe_lists_and_label_selectors(kube: httpx.Client, space: str) -> None:
    for name, labels in (("a", {"app": "x", "tier": "1"}), ("b", {"app": "y"}), ("c", {})):
        new_map(kube, space, name, labels)
    body = ok(kube.get(maps(space), params={"labelSelector": "app"}))
    assert body["kind"] == "ConfigMapList" and int(body["metadata"]["resourceVersion"]) > 0
    assert "kind" not in body["items"][0], "items of typed lists carry no kind"

    def chosen(selector: str) -> list[str]:
        return [name for name in _names(ok(kube.get(maps(space), params={"labelSelector": selector}))) if len(name) == 1]

    assert chosen("app=x") == ["a"] and chosen("app!=x") == ["b", "c"] and chosen("!app") == ["c"]
    assert chosen("app in (x,y),tier") == ["a"] and chosen("app notin (x)") == ["b", "c"] and chosen("tier>0") == ["a"]
    refused(kube.get(maps(space), params={"labelSelector": "app in x"}), 400, "BadRequest")


def probe_field_selectors(kube: httpx.Client, space: str) -> None:
    new_pod(kube, space, "here", node=f"{space}-n1")
    new_pod(kube, space, "there", node=f"{space}-n2")
    new_pod(kube, space, "nowhere", nodeSelector={"none": "none"})

    def chosen(selector: str, path: str = pods(space)) -> list[str]:
        return _names(ok(kube.get(path, params={"fieldSelector": selector})))

    assert chosen(f"spec.nodeName={space}-n1") == ["here"] and chosen("spec.nodeName=") == ["nowhere"]
    assert chosen(f"spec.nodeName!={space}-n1") == ["nowhere", "there"]
    assert chosen(f"spec.nodeName={space}-n2,status.phase=Pending", "/api/v1/pods") == ["there"]
    assert chosen("metadata.name=here,status.phase!=Running") == ["here"]
    assert chosen(f"metadata.namespace={space},spec.nodeName!=", "/api/v1/pods") == ["here", "there"]
    refused(kube.get(pods(space), params={"fieldSelector": "spec.colour=red"}), 400, "BadRequest")


def probe_pages_show_one_moment(kube: httpx.Client, space: str) -> None:
    for number in range(7):
        new_map(kube, space, f"m{number}", {"paged": "yes"})
    params = {"limit": "3", "labelSelector": "paged=yes"}
    first = ok(kube.get(maps(space), params=params))
    assert _names(first) == ["m0", "m1", "m2"] and first["metadata"]["continue"]
    ok(kube.delete(maps(space, "m5")))
    new_map(kube, space, "m31", {"paged": "yes"})
    second = ok(kube.get(maps(space), params={**params, "continue": first["metadata"]["continue"]}))
    third = ok(kube.get(maps(space), params={**params, "continue": second["metadata"]["continue"]}))
    assert _names(second) + _names(third) == ["m3", "m4", "m5", "m6"] and "continue" not in third["metadata"]
    assert len({page["metadata"]["resourceVersion"] for page in (first, second, third)}) == 1
    refused(kube.get(maps(space), params={**params, "continue": "bm90IGEgdG9rZW4"}), 400, "BadRequest")


def probe_watch_from_a_list(kube: httpx.Client, space: str) -> None:
    new_map(kube, space, "old", {"seen": "yes"})
    start = ok(kube.get(maps(space)))["metadata"]["resourceVersion"]
    found: list[Json] = []
    params = {"resourceVersion": start, "labelSelector": "seen=yes", "timeoutSeconds": "3", "allowWatchBookmarks": "true"}
    thread = threading.Thread(target=lambda: found.extend(events(kube, maps(space), params)))
    thread.start()
    new_map(kube, space, "new", {"seen": "yes"})
    new_map(kube, space, "other")
    ok(kube.patch(maps(space, "new"), json={"data": {"a": "1"}}, headers=MERGE))
    ok(kube.patch(maps(space, "other"), json={"metadata": {"labels": {"seen": "yes"}}}, headers=MERGE))
    ok(kube.patch(maps(space, "old"), json={"metadata": {"labels": {"seen": None}}}, headers=MERGE))
    ok(kube.delete(maps(space, "new")))
    thread.join(20)
    told = [(event["type"], event["object"]["metadata"].get("name")) for event in found if event["type"] != "BOOKMARK"]
    assert told == [("ADDED", "new"), ("MODIFIED", "new"), ("ADDED", "other"), ("DELETED", "old"), ("DELETED", "new")]
    assert found[0]["object"]["kind"] == "ConfigMap"
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in found]
    assert versions == sorted(versions)


def probe_watch_without_version_begins_with_what_is_there(kube: httpx.Client, space: str) -> None:
    new_map(kube, space, "one", {"seen": "yes"})
    found = events(kube, maps(space), {"labelSelector": "seen=yes", "timeoutSeconds": "1"})
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in found] == [("ADDED", "one")]


def probe_watch_list(kube: httpx.Client, space: str) -> None:
    new_map(kube, space, "one", {"seen": "yes"})
    params = {"labelSelector": "seen=yes", "timeoutSeconds": "1", "sendInitialEvents": "true", "allowWatchBookmarks": "true",
              "resourceVersionMatch": "NotOlderThan"}  # fmt: skip
    found = events(kube, maps(space), params)
    assert [event["type"] for event in found[:2]] == ["ADDED", "BOOKMARK"]
    assert found[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def probe_table_output(kube: httpx.Client, space: str) -> None:
    new_map(kube, space, "one")
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    body = ok(kube.get(maps(space, "one"), headers={"accept": accept}))
    assert body["kind"] == "Table" and body["columnDefinitions"][0]["name"] == "Name" and body["rows"][0]["cells"][0] == "one"


# ---- deletion ------------------------------------------------------------------------------------------------------


def probe_delete_answers_status(kube: httpx.Client, space: str) -> None:
    made = new_map(kube, space, "one")
    body = ok(kube.delete(maps(space, "one")))
    assert body["status"] == "Success" and body["details"] == {"name": "one", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    refused(kube.delete(maps(space, "one")), 404, "NotFound")


def probe_delete_preconditions(kube: httpx.Client, space: str) -> None:
    made = new_map(kube, space, "one")

    def delete(**preconditions: str) -> httpx.Response:
        return kube.request("DELETE", maps(space, "one"), json={"preconditions": preconditions})

    refused(delete(uid="00000000-0000-4000-8000-000000000000"), 409, "Conflict")
    refused(delete(resourceVersion="1"), 409, "Conflict")
    ok(delete(uid=made["metadata"]["uid"], resourceVersion=made["metadata"]["resourceVersion"]))


def probe_finalizers_hold(kube: httpx.Client, space: str) -> None:
    body = {"metadata": {"name": "one", "finalizers": ["tgp.io/hold"]}}
    ok(kube.post(maps(space), json=body), 201)
    held = ok(kube.delete(maps(space, "one")))
    assert held["metadata"]["deletionTimestamp"]
    more = {"metadata": {"finalizers": ["tgp.io/hold", "tgp.io/more"]}}
    refused(kube.patch(maps(space, "one"), json=more, headers=MERGE), 422, "Invalid")
    ok(kube.patch(maps(space, "one"), json={"metadata": {"finalizers": None}}, headers=MERGE))
    refused(kube.get(maps(space, "one")), 404, "NotFound")


def probe_delete_collection(kube: httpx.Client, space: str) -> None:
    for number in range(3):
        new_map(kube, space, f"m{number}", {"kill": "yes" if number else "no"})
    ok(kube.delete(maps(space), params={"labelSelector": "kill=yes"}))
    assert _names(ok(kube.get(maps(space), params={"labelSelector": "kill"}))) == ["m0"]


def probe_pod_deletion_has_a_grace_period(kube: httpx.Client, space: str) -> None:
    run_pod(kube, space, "busy", {})
    marked = ok(kube.delete(pods(space, "busy")))
    assert marked["kind"] == "Pod" and marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert ok(kube.get(pods(space, "busy")))["metadata"]["deletionTimestamp"]
    ok(kube.request("DELETE", pods(space, "busy"), json={"gracePeriodSeconds": 0}))
    refused(kube.get(pods(space, "busy")), 404, "NotFound")
    new_pod(kube, space, "unbound", nodeSelector={"none": "none"})
    ok(kube.delete(pods(space, "unbound")))
    refused(kube.get(pods(space, "unbound")), 404, "NotFound")


def probe_namespace_takes_its_content_along(kube: httpx.Client, space: str) -> None:
    name = f"{space}-gone"
    ok(kube.post("/api/v1/namespaces", json={"metadata": {"name": name}}), 201)
    new_map(kube, name, "one")
    ok(kube.delete(f"/api/v1/namespaces/{name}"))
    eventually(lambda: gone(kube, f"/api/v1/namespaces/{name}"), 60)
    assert gone(kube, maps(name, "one"))


# ---- pods, budgets, eviction ---------------------------------------------------------------------------------------


def probe_pod_defaults(kube: httpx.Client, space: str) -> None:
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    container = {"name": "main", "image": "registry.invalid/none:1", **limits}
    pod = new_pod(kube, space, "one", containers=[container], nodeSelector={"none": "none"})
    assert pod["status"]["phase"] == "Pending" and pod["spec"]["restartPolicy"] == "Always"
    assert pod["spec"]["terminationGracePeriodSeconds"] == 30
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "1"}
    change = {"spec": {"containers": [{**container, "resources": {}}]}}
    refused(kube.patch(pods(space, "one"), json=change, headers=MERGE), 422, "Invalid")


def probe_eviction_deletes(kube: httpx.Client, space: str) -> None:
    pod = run_pod(kube, space, "one", {"app": "free"})
    refused(evict(kube, space, "none"), 404, "NotFound")
    refused(evict(kube, space, "one", preconditions={"uid": "00000000-0000-4000-8000-000000000000"}), 409, "Conflict")
    dry = ok(evict(kube, space, "one", dryRun=["All"]), 201)
    assert dry["status"] == "Success" and "deletionTimestamp" not in ok(kube.get(pods(space, "one")))["metadata"]
    body = ok(evict(kube, space, "one", preconditions={"uid": pod["metadata"]["uid"]}), 201)
    assert body["kind"] == "Status" and body["status"] == "Success"
    assert ok(kube.get(pods(space, "one")))["metadata"]["deletionTimestamp"]


def probe_eviction_respects_the_budget(kube: httpx.Client, space: str) -> None:
    for name in ("a", "b"):
        run_pod(kube, space, name, {"app": "web"})
    budget = new_budget(kube, space, "web", {"app": "web"}, minAvailable=2)
    status = settled(kube, budget, 2)
    assert (status["disruptionsAllowed"], status["desiredHealthy"], status["expectedPods"]) == (0, 2, 2)
    response = evict(kube, space, "a")
    body = refused(response, 429, "TooManyRequests")
    assert "retry-after" not in response.headers
    assert body["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
    told = body["details"]["causes"][0]
    assert told["reason"] == "DisruptionBudget"
    assert told["message"] == "The disruption budget web needs 2 healthy pods and has 2 currently"
    ok(kube.patch(budget, json={"spec": {"minAvailable": 1}}, headers=MERGE))
    eventually(lambda: evict(kube, space, "a").status_code == 201)
    settled(kube, budget, 1)
    refused(evict(kube, space, "b"), 429, "TooManyRequests")
    assert evict(kube, space, "a").status_code == 201, "a pod that goes already may be evicted again"


def probe_budget_in_percent_of_scaled_pods(kube: httpx.Client, space: str) -> None:
    """A percentage is one of the owner's replicas; of pods that nobody scales it allows nothing."""
    for name in ("a", "b"):
        run_pod(kube, space, name, {"app": "bare"})
    bare = new_budget(kube, space, "bare", {"app": "bare"}, minAvailable="50%")
    assert settled(kube, bare, 2)["disruptionsAllowed"] == 0
    body = refused(evict(kube, space, "a"), 429, "TooManyRequests")
    assert body["details"]["causes"][0]["message"] == "The disruption budget bare does not allow evicting pods currently"
    ok(kube.patch(bare, json={"spec": {"minAvailable": None, "maxUnavailable": 1}}, headers=MERGE))
    eventually(lambda: ok(kube.get(bare))["status"]["observedGeneration"] == 2)
    assert ok(kube.get(bare))["status"]["disruptionsAllowed"] == 0


def probe_eviction_with_two_budgets(kube: httpx.Client, space: str) -> None:
    run_pod(kube, space, "one", {"app": "web"})
    for name in ("first", "second"):
        settled(kube, new_budget(kube, space, name, {"app": "web"}, minAvailable=0), 1)
    response = evict(kube, space, "one")
    assert response.status_code == 500 and "more than one PodDisruptionBudget" in response.json()["message"]


def probe_eviction_of_unhealthy_pods(kube: httpx.Client, space: str) -> None:
    for name in ("a", "b"):
        run_pod(kube, space, name, {"app": "sick"}, ready=False)
    budget = new_budget(kube, space, "sick", {"app": "sick"}, minAvailable=1)
    settled(kube, budget, 0)
    refused(evict(kube, space, "a"), 429, "TooManyRequests")
    ok(kube.patch(budget, json={"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}, headers=MERGE))
    eventually(lambda: evict(kube, space, "a").status_code == 201)


# ---- custom resources ----------------------------------------------------------------------------------------------


def _definition(space: str) -> Json:
    fields = {"size": {"type": "integer", "minimum": 1}, "mode": {"type": "string", "enum": ["a", "b"], "default": "a"}}
    spec = {"type": "object", "properties": fields, "required": ["size"]}
    schema = {
        "type": "object",
        "properties": {"spec": spec, "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}
    group = f"{space}.example.test"
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"widgets.{group}"},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}}  # fmt: skip


def probe_custom_resources(kube: httpx.Client, space: str) -> None:
    definition = _definition(space)
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
    ok(kube.patch(path, params={"fieldManager": "probe"}, content=json.dumps(definition), headers=APPLY), 201)

    def established() -> bool:
        conditions = (ok(kube.get(path)).get("status") or {}).get("conditions") or []
        return any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions)

    eventually(established)
    group = definition["spec"]["group"]
    widgets = f"/apis/{group}/v1/namespaces/{space}/widgets"
    head = {"apiVersion": f"{group}/v1", "kind": "Widget"}
    eventually(lambda: kube.get(widgets).status_code == 200)
    made = ok(
        kube.post(widgets, json={**head, "metadata": {"name": "one"}, "spec": {"size": 2, "colour": "red"}, "status": {"x": 1}}),
        201,
    )
    assert made["spec"] == {"size": 2, "mode": "a"} and "status" not in made and made["metadata"]["generation"] == 1
    wrong = refused(kube.post(widgets, json={**head, "metadata": {"name": "two"}, "spec": {"size": "x"}}), 422, "Invalid")
    assert any(entry["field"] == "spec.size" for entry in wrong["details"]["causes"])
    missing = refused(kube.post(widgets, json={**head, "metadata": {"name": "two"}, "spec": {}}), 422, "Invalid")
    assert any("Required" in entry["reason"] for entry in missing["details"]["causes"])
    changed = ok(kube.patch(f"{widgets}/one", json={"spec": {"size": 3}}, headers=MERGE))
    assert changed["metadata"]["generation"] == 2
    stated = ok(kube.patch(f"{widgets}/one/status", json={"status": {"x": 1}, "spec": {"size": 9}}, headers=MERGE))
    assert stated["status"] == {"x": 1} and stated["spec"]["size"] == 3 and stated["metadata"]["generation"] == 2
    refused(kube.patch(f"{widgets}/one", json={}, headers=STRATEGIC), 415, "UnsupportedMediaType")
    listed = ok(kube.get(widgets))
    assert listed["kind"] == "WidgetList" and listed["items"][0]["kind"] == "Widget"
    ok(kube.delete(path))
    eventually(lambda: kube.get(widgets).status_code == 404, 60)


# ---- leases, secrets -----------------------------------------------------------------------------------------------


def probe_events_of_a_run(kube: httpx.Client, space: str) -> None:
    """Those of events.k8s.io/v1: what is required and bounded there, and how v1, which kubectl describe reads, shows them."""
    path = f"/apis/events.k8s.io/v1/namespaces/{space}/events"
    event = {
        "metadata": {"name": "one"}, "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "tgp.io/gpu",
        "reportingInstance": "run-1", "action": "Launch", "reason": "Launched", "note": "n" * 1024, "type": "Normal",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": space, "name": "p", "uid": "u"},
    }  # fmt: skip
    made = ok(kube.post(path, json=event), 201)
    assert made["apiVersion"] == "events.k8s.io/v1" and made["regarding"] == event["regarding"] and made["note"] == event["note"]
    refused(kube.post(path, json=event), 409, "AlreadyExists")
    old = ok(kube.get(f"/api/v1/namespaces/{space}/events/one"))
    assert (old["involvedObject"], old["message"]) == (event["regarding"], event["note"])
    assert (old["reportingComponent"], old["eventTime"], old["source"]) == ("tgp.io/gpu", event["eventTime"], {})
    described = {"fieldSelector": "involvedObject.name=p,involvedObject.uid=u,reportingComponent=tgp.io/gpu"}
    assert _names(ok(kube.get(f"/api/v1/namespaces/{space}/events", params=described))) == ["one"]

    def faults(**changes: t.Any) -> list[tuple[str, str]]:
        body = {key: value for key, value in {**event, "metadata": {"name": "two"}, **changes}.items() if value is not None}
        causes = refused(kube.post(path, json=body), 422, "Invalid")["details"]["causes"]
        return [(one["field"], one["message"]) for one in causes]

    for field in ("eventTime", "reportingInstance", "action", "reason"):
        assert faults(**{field: None}) == [(field, "Required value")]
    assert [field for field, _told in faults(reportingController=None)] == ["reportingController"] * 3
    assert [field for field, _told in faults(reportingController="tgp.io/gpu/x")] == ["reportingController"]
    for field, limit, name in (("note", 1024, "message"), ("reason", 128, "reason"), ("action", 128, "action")):
        assert faults(**{field: "ä" * (limit // 2) + "x"}) == [
            (name, f'Invalid value: "": can have at most {limit} characters')
        ]  # they are bytes
    assert faults(type="Error") == [("type", 'Invalid value: "": has invalid value: Error')]
    assert faults(deprecatedCount=3) == [("count", 'Invalid value: "": needs to be unset')]
    refused(kube.post(path, json={**event, "eventTime": "2026-01-01T00:00:00Z"}), 400, "BadRequest")
    ok(kube.post("/api/v1/namespaces/default/events", json={
        "metadata": {"name": f"{space}-old"}, "involvedObject": {"kind": "Node", "name": space}, "message": "m", "reason": "R",
        "source": {"component": "kubelet"}, "count": 1, "type": "Normal",
    }), 201)  # fmt: skip
    new = ok(kube.get(f"/apis/events.k8s.io/v1/namespaces/default/events/{space}-old"))
    assert (new["note"], new["regarding"]["name"], new["deprecatedSource"]) == ("m", space, {"component": "kubelet"})
    ok(kube.delete(f"{path}/one"))
    assert ok(kube.get(path))["items"] == []


def probe_lease_as_a_lock(kube: httpx.Client, space: str) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases"
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "lock"},
             "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}}  # fmt: skip
    made = ok(kube.post(path, json=lease), 201)
    assert made["spec"]["renewTime"] == "2026-01-01T00:00:00.000000Z"
    refused(kube.post(path, json=lease), 409, "AlreadyExists")
    worded = {**lease, "metadata": {"name": "worded"}, "spec": {**lease["spec"], "leaseDurationSeconds": "15"}}
    refused(kube.post(path, json=worded), 400, "BadRequest")
    stolen = {**made, "spec": {**made["spec"], "holderIdentity": "you"}}
    ok(kube.put(f"{path}/lock", json=stolen))
    refused(kube.put(f"{path}/lock", json=made), 409, "Conflict")
    refused(kube.put(f"{path}/lock", json=lease), 422, "Invalid")
    seconds_only = {**lease, "metadata": {"name": "other"}, "spec": {"renewTime": "2026-01-01T00:00:00Z"}}
    refused(kube.post(path, json=seconds_only), 400, "BadRequest")
    without_time = {**lease, "metadata": {"name": "other"}, "spec": {"leaseDurationSeconds": 0}}
    refused(kube.post(path, json=without_time), 422, "Invalid")


def probe_secret_strings_are_encoded(kube: httpx.Client, space: str) -> None:
    path = f"/api/v1/namespaces/{space}/secrets"
    made = ok(kube.post(path, json={"metadata": {"name": "one"}, "stringData": {"a": "plain"}}), 201)
    assert made["type"] == "Opaque" and made["data"] == {"a": base64.b64encode(b"plain").decode()} and "stringData" not in made
    assert _names(ok(kube.get(path, params={"fieldSelector": "type=Opaque"}))) == ["one"]
    refused(kube.post(path, json={"metadata": {"name": "two"}, "data": {"a": "%%%"}}), 400, "BadRequest")
    refused(kube.patch(f"{path}/one", json={"type": "other"}, headers=MERGE), 422, "Invalid")


# ---- who may -------------------------------------------------------------------------------------------------------


def probe_wrong_token_is_unauthorized(kube: httpx.Client, space: str) -> None:
    body = refused(kube.get("/api/v1/nodes", headers=as_token(kube, "not-a-token-of-this-cluster")), 401, "Unauthorized")
    assert body["message"] == "Unauthorized"
    refused(kube.get("/api/v1/nodes", headers=as_token(kube, "abcdef.0123456789abcdef")), 401, "Unauthorized")


def probe_bootstrap_token_expires(kube: httpx.Client, space: str) -> None:
    dead = new_bootstrap_token(kube, space, seconds=-60)
    refused(kube.get("/api/v1/nodes", headers=as_token(kube, dead)), 401, "Unauthorized")


def _review(kube: httpx.Client, headers: dict[str, str] | None = None, **attributes: str) -> bool:
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    return bool(ok(kube.post(path, json=body, headers=headers), 201)["status"]["allowed"])


def probe_rights_are_checked(kube: httpx.Client, space: str) -> None:
    """A bootstrap token makes a user of one's own; a role gives it some rights."""
    group = f"system:bootstrappers:{space}"
    token = new_bootstrap_token(kube, space, groups=group)
    headers = as_token(kube, token)
    user = f"system:bootstrap:{token[:6]}"
    body = refused(kube.get("/api/v1/nodes", headers=headers), 403, "Forbidden")
    assert body["message"] == f'nodes is forbidden: User "{user}" cannot list resource "nodes" in API group "" at the cluster scope'
    assert body["details"] == {"kind": "nodes"}
    body = refused(kube.get(maps(space, "one"), headers=headers), 403, "Forbidden")
    scope = f'in the namespace "{space}"'
    assert (
        body["message"] == f'configmaps "one" is forbidden: User "{user}" cannot get resource "configmaps" in API group "" {scope}'
    )
    assert _review(kube) is not None and not _review(kube, headers, verb="list", resource="nodes")
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list"]}]
    ok(kube.post(f"{rbac}/clusterroles", json={"metadata": {"name": f"{space}:reader"}, "rules": rules}), 201)
    subject = {"kind": "Group", "name": group, "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{space}:reader"}
    binding = {"metadata": {"name": f"{space}:reader"}, "roleRef": reference, "subjects": [subject]}
    ok(kube.post(f"{rbac}/clusterrolebindings", json=binding), 201)
    eventually(lambda: kube.get("/api/v1/nodes", headers=headers).status_code == 200)
    assert _review(kube, headers, verb="list", resource="nodes") and not _review(kube, headers, verb="delete", resource="nodes")
    for kind in ("clusterrolebindings", "clusterroles"):
        ok(kube.delete(f"{rbac}/{kind}/{space}:reader"))


def _bind(kube: httpx.Client, space: str, role: str, group: str) -> str:
    """Give a ClusterRole to a group; the path of the binding."""
    rbac = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    name = f"{space}:{role.rpartition(':')[2]}"
    subject = {"kind": "Group", "name": group, "apiGroup": "rbac.authorization.k8s.io"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
    ok(kube.post(rbac, json={"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}), 201)
    return f"{rbac}/{name}"


def kubelet_request(node: str) -> tuple[str, str]:
    """(key PEM, base64 certificate request) of a kubelet."""
    key = ec.generate_private_key(ec.SECP256R1())
    parts = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
    ]
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(parts)).sign(key, hashes.SHA256())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem.decode(), base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()


def bootstrap_kubelet(kube: httpx.Client, space: str, node: str) -> tuple[str, str]:
    """(key PEM, certificate PEM) got with a bootstrap token, as a kubelet does it."""
    group = f"system:bootstrappers:{space}"
    roles = ("system:node-bootstrapper", "system:certificates.k8s.io:certificatesigningrequests:nodeclient")
    bindings = [_bind(kube, space, role, group) for role in roles]
    headers = as_token(kube, new_bootstrap_token(kube, space, groups=group))
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    key, request = kubelet_request(node)
    spec = {
        "request": request,
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["digital signature", "client auth"],
    }
    body = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "csr-"},
        "spec": spec,
    }

    def create() -> Json | None:
        response = kube.post(path, json=body, headers=headers)
        return None if response.status_code == 403 else ok(response, 201)

    made = eventually(create)
    assert made["spec"]["username"].startswith("system:bootstrap:") and group in made["spec"]["groups"]
    one = f"{path}/{made['metadata']['name']}"
    signed = eventually(lambda: (body := ok(kube.get(one, headers=headers))).get("status", {}).get("certificate") and body)
    assert [entry["type"] for entry in signed["status"]["conditions"]] == ["Approved"]
    for binding in bindings:
        ok(kube.delete(binding))
    return key, base64.b64decode(signed["status"]["certificate"]).decode()


def probe_request_without_right_stays_pending(kube: httpx.Client, space: str) -> None:
    """A group that may ask but not be approved automatically: somebody has to approve."""
    group = f"system:bootstrappers:{space}"
    binding = _bind(kube, space, "system:node-bootstrapper", group)
    headers = as_token(kube, new_bootstrap_token(kube, space, groups=group))
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    _key, request = kubelet_request(f"{space}-node")
    spec = {
        "request": request,
        "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
        "usages": ["digital signature", "client auth"],
    }
    body = {"metadata": {"name": f"{space}-csr"}, "spec": spec}
    eventually(lambda: kube.post(path, json=body, headers=headers).status_code == 201)
    time.sleep(0.3)
    pending = ok(kube.get(f"{path}/{space}-csr"))
    assert not pending.get("status", {}).get("conditions")
    condition = {"type": "Approved", "status": "True", "reason": "Probe", "message": "checked"}
    ok(kube.put(f"{path}/{space}-csr/approval", json={**pending, "status": {"conditions": [condition]}}))
    eventually(lambda: ok(kube.get(f"{path}/{space}-csr"))["status"].get("certificate"))
    ok(kube.delete(f"{path}/{space}-csr"))
    ok(kube.delete(binding))


# ---- kubelets ------------------------------------------------------------------------------------------------------


def probe_kubelet_only_touches_its_own_node(kube: httpx.Client, space: str, as_kubelet: Kubelet) -> None:
    name = f"{space}-n"
    kubelet = as_kubelet(*bootstrap_kubelet(kube, space, name))
    path = "/api/v1/nodes"
    body = refused(kubelet.post(path, json={"metadata": {"name": f"{space}-other"}}), 403, "Forbidden")
    assert body["message"].endswith(f'node "{name}" is not allowed to modify node "{space}-other"')
    labels = {"node-role.kubernetes.io/gpu": "", "tgp.io/pool": "x"}
    body = refused(kubelet.post(path, json={"metadata": {"name": name, "labels": labels}}), 403, "Forbidden")
    assert body["message"].endswith("is not allowed to set the following labels: node-role.kubernetes.io/gpu")
    labels = {"tgp.io/pool": "x", "node.kubernetes.io/instance-type": "gpu", "topology.kubernetes.io/region": "r"}
    taints = [{"key": "tgp.io/ephemeral", "effect": "NoSchedule"}]
    made = ok(kubelet.post(path, json={"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}), 201)
    assert made["metadata"]["labels"].items() >= labels.items()
    assert {taint["key"] for taint in made["spec"]["taints"]} == {"tgp.io/ephemeral", "node.kubernetes.io/not-ready"}
    one = f"{path}/{name}"
    body = refused(kubelet.patch(one, json={"spec": {"taints": None}}, headers=MERGE), 403, "Forbidden")
    assert body["message"].endswith(f'node "{name}" is not allowed to modify taints')
    refused(kubelet.patch(one, json={"metadata": {"labels": {"a.k8s.io/b": "c"}}}, headers=MERGE), 403, "Forbidden")
    ok(kubelet.patch(one, json={"metadata": {"labels": {"tgp.io/pool": "y"}}}, headers=MERGE))
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    ok(kubelet.patch(f"{one}/status", json=ready, headers=STRATEGIC))

    def lifted() -> bool:
        return [taint["key"] for taint in ok(kube.get(one))["spec"]["taints"]] == ["tgp.io/ephemeral"]

    eventually(lifted)
    refused(kubelet.get(f"{path}/{space}-other"), 403, "Forbidden")
    refused(kubelet.delete(one), 403, "Forbidden")
    ok(kube.delete(one))


def probe_kubelet_reads_what_its_pods_need(kube: httpx.Client, space: str, as_kubelet: Kubelet) -> None:
    name = f"{space}-n"
    kubelet = as_kubelet(*bootstrap_kubelet(kube, space, name))
    secrets = f"/api/v1/namespaces/{space}/secrets"
    for secret in ("mine", "yours"):
        ok(kube.post(secrets, json={"metadata": {"name": secret}, "stringData": {"a": "1"}}), 201)
    refused(kubelet.get(secrets), 403, "Forbidden")
    refused(kubelet.get("/api/v1/secrets"), 403, "Forbidden")
    volume = {"name": "v", "secret": {"secretName": "mine"}}
    new_pod(kube, space, "here", node=name, volumes=[volume])
    eventually(lambda: kubelet.get(f"{secrets}/mine").status_code == 200)
    refused(kubelet.get(f"{secrets}/yours"), 403, "Forbidden")
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": name}}
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    refused(kubelet.post(leases, json={**lease, "metadata": {"name": f"{space}-other"}}), 403, "Forbidden")
    ok(kubelet.post(leases, json={**lease, "metadata": {"name": name}}), 201)
    ok(kube.delete(f"{leases}/{name}"))


KUBELET_PROBES: tuple[t.Callable[[httpx.Client, str, Kubelet], None], ...] = (
    probe_kubelet_only_touches_its_own_node,
    probe_kubelet_reads_what_its_pods_need,
)
PROBES: tuple[t.Callable[[httpx.Client, str], None], ...] = tuple(
    value for name, value in sorted(globals().items()) if name.startswith("probe_") and value not in KUBELET_PROBES
)
