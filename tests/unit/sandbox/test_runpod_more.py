# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a RunPod account has besides single pods: templates, clusters, pages, and its balance."""

from __future__ import annotations

import typing as t

import pytest

from .runpod_stand import RTX4090, Stand


@pytest.fixture
def still() -> t.Iterator[Stand]:
    """Time moves only when it is told to."""
    one = Stand(speed=0.001)
    yield one
    one.close()


# ---- templates

TEMPLATE: dict[str, t.Any] = {
    "name": "mine",
    "image": "registry.example/train:1",
    "entrypoint": ["/bin/sh", "-c"],
    "cmd": ["serve"],
    "disk": 33,
    "ports": ["22/tcp"],
    "env": {"A": "template", "B": "template"},
    "mounts": {"persistent": {"size": 10, "path": "/data"}},
    "allowedCudaVersions": ["13.0"],
}
FIELDS = {
    "id", "name", "image", "args", "entrypoint", "cmd", "disk", "mounts", "ports", "env", "registry", "serverless", "public", "category",
    "startSsh", "startJupyter", "allowedCudaVersions",
}  # fmt: skip


def made(stand: Stand, **more: t.Any) -> str:
    answer = stand.call("POST", "/v2/templates", {**TEMPLATE, **more})
    assert answer.status_code == 201 and set(answer.json()) == FIELDS, answer.text
    return str(answer.json()["id"])


def test_the_life_of_a_template(still: Stand) -> None:
    identity = made(still)
    path = f"/v2/templates/{identity}"
    shown = still.call("GET", path).json()
    assert shown["category"] == "NVIDIA" and shown["startSsh"] is True and shown["args"].startswith('{"entrypoint":')
    assert still.call("GET", "/v2/templates").json() == {"templates": [shown]}
    changed = still.call("PATCH", path, {"name": "other", "cmd": ["train"], "mounts": {}}).json()
    assert changed == {**shown, "name": "other", "cmd": ["train"], "args": changed["args"]}
    assert changed["args"] == '{"entrypoint":["/bin/sh","-c"],"cmd":["train"]}'
    assert still.call("DELETE", path).status_code == 204
    for method in ("GET", "DELETE"):
        assert still.call(method, path).status_code == 404
    assert still.call("GET", "/v2/templates").json() == {"templates": []}


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        ({"name": ""}, 422, "$.name"),
        ({"category": "TPU"}, 422, "$.category"),
        ({"mounts": {"network": []}}, 422, "$.mounts: additional properties 'network' not allowed"),
        ({"allowedCudaVersions": ["12"]}, 422, "$.allowedCudaVersions[0]"),
        ({"gpu": {"id": RTX4090}}, 422, "$: additional properties 'gpu' not allowed"),
        ({"registry": "none"}, 404, "registry not found"),
        ({"args": "other"}, 400, "another command"),
    ],
)
def test_templates_that_are_refused(still: Stand, change: dict[str, t.Any], status: int, says: str) -> None:
    answer = still.call("POST", "/v2/templates", {**TEMPLATE, **change})
    assert answer.status_code == status and says in answer.text and not still.account.templates


def test_public_templates_may_be_used_and_not_changed(still: Stand) -> None:
    (public,) = still.call("GET", "/v2/catalog/templates").json()["templates"]
    assert set(public) == FIELDS and public["public"] and public["registry"] is None
    assert still.call("GET", "/v2/catalog/templates?source=community").json() == {"templates": []}
    assert still.call("GET", "/v2/catalog/templates?source=mine").status_code == 422
    path = f"/v2/templates/{public['id']}"
    assert still.call("GET", path).json() == public
    assert still.call("PATCH", path, {"name": "mine"}).status_code == still.call("DELETE", path).status_code == 404
    body = {"name": "p", "templateId": public["id"], "gpu": {"id": RTX4090, "count": 1}}
    assert still.call("POST", "/v2/pods", body).json()["image"] == public["image"]


def test_a_pod_copies_a_templates_settings_once(still: Stand) -> None:
    still.account.ssh_keys = ["ssh-ed25519 AAAA me"]
    identity = made(still)
    body = {"name": "p", "templateId": identity, "gpu": {"id": RTX4090, "count": 1}, "env": {"B": "body"}, "disk": 40}
    pod = still.call("POST", "/v2/pods", body).json()
    assert (pod["image"], pod["disk"], pod["ports"]) == (TEMPLATE["image"], 40, ["22/tcp"])
    assert pod["env"] == {"A": "template", "B": "body"} and pod["mounts"] == TEMPLATE["mounts"]
    assert pod["cudaVersion"] == "13.0" and (pod["entrypoint"], pod["cmd"]) == (["/bin/sh", "-c"], ["serve"])
    assert pod["template"] is None, "no way leads back"
    assert {"PUBLIC_KEY", "JUPYTER_PASSWORD"} <= set(still.world.machines[pod["id"]].details["environment"])
    still.call("PATCH", f"/v2/templates/{identity}", {"image": "registry.example/train:2"})
    assert still.call("GET", f"/v2/pods/{pod['id']}").json()["image"] == TEMPLATE["image"]


def test_what_of_a_template_does_not_reach_a_pod(still: Stand) -> None:
    identity = made(still)
    body = {"name": "p", "templateId": identity, "gpu": {"id": RTX4090, "count": 1, "minCudaVersion": "12.4"}, "cmd": ["other"]}
    pod = still.call("POST", "/v2/pods", body).json()
    assert pod["cudaVersion"] == "12.8" and pod["cmd"] == ["other"] and pod["entrypoint"] == ["/bin/sh", "-c"]
    cpu = still.call("POST", "/v2/pods", {"name": "c", "templateId": identity, "cpu": {"id": "cpu3c", "vcpuCount": 2}}).json()
    assert cpu["mounts"] == {} and cpu["image"] == TEMPLATE["image"]
    refused = still.call("POST", "/v2/pods", {**body, "templateId": made(still, serverless=True)})
    assert refused.status_code == 422 and "serverless template" in refused.text


def test_a_change_may_take_a_template_and_leaves_the_mount(still: Stand) -> None:
    mounts = {"persistent": {"size": 20, "path": "/own"}}
    pod = still.pod(still.order(mounts=mounts, env={"OWN": "1"}))
    path = f"/v2/pods/{pod.id}"
    changed = still.call("PATCH", path, {"templateId": made(still), "image": "own:2"}).json()
    assert (changed["image"], changed["disk"], changed["cmd"], changed["mounts"]) == ("own:2", 33, ["serve"], mounts)
    assert changed["env"] == TEMPLATE["env"], "the variables of a change replace the old ones"
    moved = {"persistent": {"size": 20, "path": "/moved"}}
    assert still.call("PATCH", path, {"mounts": moved}).json()["mounts"] == moved and pod.details["mounts"] == ["/moved"]
    for wrong in ({"persistent": {"size": 30, "path": "/moved"}}, {"network": [{"volumeId": "v", "path": "/moved"}]}):
        assert still.call("PATCH", path, {"mounts": wrong}).status_code == 400
    assert still.call("PATCH", path, {"mounts": {"persistent": {"path": "/moved"}}}).status_code == 422
