# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our own kinds, asked of the emulator and of a real control plane by the same probes: what the API server refuses and with which words,
status, scale, the category, the printed columns, and objects that are older than their definition. Each probe installs the kinds in a
group of its own.
"""

from __future__ import annotations

import copy
import json
import typing as t
from pathlib import Path

import httpx
import yaml

from schemas.crds import claim_definition, definitions
from tests.fixtures.former_kinds import former_definitions
from tests.fixtures.wrong_objects import GOOD, SERVICE, WRONG

from .probes import APPLY, MERGE, Json, eventually, gone, ok, refused

ROOT = Path(__file__).resolve().parents[3]
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Kinds:
    """The kinds in one group. ``former`` = as the collection defined them before the rules: structure alone, with a free status."""

    def __init__(self, kube: httpx.Client, space: str) -> None:
        self.kube = kube
        self.space = space
        self.group = f"{space}.example.test"

    def install(self, *, former: bool = False) -> None:
        for definition in self._ours(former):
            path = f"{_DEFINITIONS}/{definition['metadata']['name']}"
            params = {"fieldManager": "probe", "force": "true"}
            answer = self.kube.patch(path, params=params, content=json.dumps(definition), headers=APPLY)
            assert answer.status_code in (200, 201), answer.text
        for kind in GOOD:
            eventually(lambda kind=kind: self.kube.get(self.path(kind)).status_code == 200)
        if not former:  # the server follows a changed definition a moment later
            eventually(lambda: self.create("GPUNodePool", {"nodeClassRef": {"name": "a"}, "drainTimeout": "x"}).status_code == 422)

    def remove(self) -> None:
        for definition in self._ours(False):
            ok(self.kube.delete(f"{_DEFINITIONS}/{definition['metadata']['name']}"))
        eventually(lambda: gone(self.kube, self.path("GPUNodePool")), 60)

    def _ours(self, former: bool) -> t.Iterator[Json]:
        for definition in former_definitions() if former else copy.deepcopy(definitions()):
            spec = definition["spec"]
            definition["metadata"]["name"] = f"{spec['names']['plural']}.{self.group}"
            spec["group"] = self.group
            yield definition

    def path(self, kind: str, name: str = "", sub: str = "") -> str:
        plural = {"GPUNodeClass": "gpunodeclasses", "GPUNodePool": "gpunodepools", "GPURequest": "gpurequests"}[kind]
        place = f"namespaces/{self.space}/" if kind == "GPUNodePool" else ""
        return "/".join(filter(None, (f"/apis/{self.group}/v1/{place}{plural}", name, sub)))

    def create(self, kind: str, spec: Json, name: str = "one", **params: str) -> httpx.Response:
        document = {"apiVersion": f"{self.group}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        return self.kube.post(self.path(kind), json=document, params=params)


def probe_wrong_objects_are_refused_with_our_sentence(kube: httpx.Client, space: str) -> None:
    kinds = Kinds(kube, space)
    kinds.install()
    for kind, spec in [*GOOD.items(), ("GPUNodePool", SERVICE)]:
        ok(kinds.create(kind, spec, dryRun="All"), 201)
    for wrong in WRONG:
        document = {**wrong.document(), "apiVersion": f"{kinds.group}/v1"}
        status = refused(kube.post(kinds.path(wrong.kind), json=document), 422, "Invalid")
        causes = [(cause["field"], cause["message"]) for cause in status["details"]["causes"]]
        assert any(field == wrong.field and wrong.sentence in message for field, message in causes), (wrong, causes)
        assert len(causes) <= 2, (wrong, causes)  # one mistake is told once
    kinds.remove()


def probe_unknown_fields_are_refused_on_request(kube: httpx.Client, space: str) -> None:
    """kubectl asks for it, and server-side apply always is so strict. Other clients are not told by the answer: the field is cut off."""
    kinds = Kinds(kube, space)
    kinds.install()
    spec = {"nodeClassRef": {"name": "a"}, "minNode": 1, "limits": {"nodes": 1}}
    told = refused(kinds.create("GPUNodePool", spec, fieldValidation="Strict"), 400, "BadRequest")["message"]
    assert 'strict decoding error: unknown field "spec.limits.nodes", unknown field "spec.minNode"' in told
    document = {"apiVersion": f"{kinds.group}/v1", "kind": "GPUNodePool", "metadata": {"name": "one"}, "spec": spec}
    answer = kube.patch(
        kinds.path("GPUNodePool", "one"), params={"fieldManager": "probe"}, content=json.dumps(document), headers=APPLY
    )
    assert ".spec.minNode: field not declared in schema" in refused(answer, 500, None)["message"]
    made = ok(kinds.create("GPUNodePool", spec), 201)
    assert "minNode" not in made["spec"] and made["spec"]["limits"] == {}
    kinds.remove()


def probe_samples_are_accepted(kube: httpx.Client, space: str) -> None:
    """Every document that ships, and those of the first adopters."""
    kinds = Kinds(kube, space)
    kinds.install()
    taken = 0
    examples = [file for file in (ROOT / "examples").rglob("*.y*ml") if file.parent.name != "templates"]
    files = [*examples, *(ROOT / "tests" / "fixtures" / "seeds").glob("*.yaml")]
    for file in sorted(files):
        for document in yaml.safe_load_all(file.read_text()):
            if isinstance(document, dict) and document.get("kind") in GOOD and "machineConfigTemplateFile" not in str(document):
                answer = kinds.create(document["kind"], document["spec"], document["metadata"]["name"], dryRun="All")
                assert answer.status_code == 201, (file, answer.text)
                taken += 1
    assert taken >= 12
    kinds.remove()


def probe_status_is_structured(kube: httpx.Client, space: str) -> None:
    kinds = Kinds(kube, space)
    kinds.install()
    ok(kinds.create("GPUNodePool", GOOD["GPUNodePool"]), 201)
    path = kinds.path("GPUNodePool", "one", "status")
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "AsWanted",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    shown = ok(kube.get(path.removesuffix("/status")))["status"]
    assert [(one["status"], one["reason"]) for one in shown["conditions"]] == [("Unknown", "Pending")], "until a run writes it"
    status = {"observedGeneration": 1, "ready": 1, "hourlyCost": "1.50", "colour": "red", "conditions": [condition]}
    written = ok(kube.patch(path, json={"status": status}, headers=MERGE))
    assert written["status"] == {key: value for key, value in status.items() if key != "colour"}
    assert written["metadata"]["generation"] == 1
    twice = {"status": {"conditions": [condition, condition]}}
    status_of = refused(kube.patch(path, json=twice, headers=MERGE), 422, "Invalid")
    assert status_of["details"]["causes"][0]["field"] == "status.conditions[1]"
    wrong = {"status": {"conditions": [{**condition, "status": "Maybe"}]}}
    assert "Unsupported value" in refused(kube.patch(path, json=wrong, headers=MERGE), 422, "Invalid")["message"]
    table = ok(kube.get(kinds.path("GPUNodePool"), headers={"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}))
    columns = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
    assert columns == ["Name", "Class", "Wanted", "Ready", "$/h", "Reason", "Age"]
    assert table["rows"][0]["cells"][:6] == ["one", "good", None, 1, "1.50", "AsWanted"]
    kinds.remove()


def probe_pools_scale(kube: httpx.Client, space: str) -> None:
    """kubectl scale: an exact number, also of a pool that had none."""
    kinds = Kinds(kube, space)
    kinds.install()
    ok(kinds.create("GPUNodePool", {"nodeClassRef": {"name": "a"}, "limits": {"maxNodes": 3}}), 201)
    path = kinds.path("GPUNodePool", "one", "scale")
    refused(kube.get(path), 500, "InternalError")
    scaled = ok(kube.patch(path, json={"spec": {"replicas": 2}}, headers=MERGE))
    assert (scaled["kind"], scaled["apiVersion"], scaled["spec"]) == ("Scale", "autoscaling/v1", {"replicas": 2})
    pool = ok(kube.get(kinds.path("GPUNodePool", "one")))
    assert pool["spec"]["replicas"] == 2 and pool["metadata"]["generation"] == 2
    ok(kube.patch(kinds.path("GPUNodePool", "one", "status"), json={"status": {"replicas": 1}}, headers=MERGE))
    read = ok(kube.get(path))
    assert read["spec"] == {"replicas": 2} and read["status"]["replicas"] == 1
    ok(kube.put(path, json={**read, "spec": {"replicas": 3}}))
    refused(kube.put(path, json=read), 409, "Conflict")
    assert (
        "is above limits.maxNodes."
        in refused(kube.patch(path, json={"spec": {"replicas": 4}}, headers=MERGE), 422, "Invalid")["message"]
    )
    refused(kube.patch(path, json={"spec": {"replicas": -1}}, headers=MERGE), 422, "Invalid")
    assert ok(kube.get(path))["spec"] == {"replicas": 3}
    floor = {"nodeClassRef": {"name": "a"}, "minNodes": 1}
    ok(kinds.create("GPUNodePool", floor, "floor"), 201)
    answer = kube.patch(kinds.path("GPUNodePool", "floor", "scale"), json={"spec": {"replicas": 2}}, headers=MERGE)
    assert "is an exact number and minNodes a floor. Use one of them." in refused(answer, 422, "Invalid")["message"]
    kinds.remove()


def probe_kinds_are_found_by_category_and_short_name(kube: httpx.Client, space: str) -> None:
    kinds = Kinds(kube, space)
    kinds.install()
    listed = eventually(
        lambda: [one for one in ok(kube.get(f"/apis/{kinds.group}/v1"))["resources"] if one.get("categories") == ["gpu"]]
    )
    assert {one["name"]: one["shortNames"] for one in listed} == {
        "gpunodeclasses": ["gnc"],
        "gpunodepools": ["gnp"],
        "gpurequests": ["greq"],
    }
    subs = {one["name"]: one for one in ok(kube.get(f"/apis/{kinds.group}/v1"))["resources"] if "/" in one["name"]}
    assert sorted(subs) == ["gpunodeclasses/status", "gpunodepools/scale", "gpunodepools/status", "gpurequests/status"]
    assert (subs["gpunodepools/scale"]["group"], subs["gpunodepools/scale"]["kind"]) == ("autoscaling", "Scale")
    kinds.remove()


def probe_older_objects_survive_newer_kinds(kube: httpx.Client, space: str) -> None:
    """What a rule would refuse today stays readable, can be labelled, given a status and deleted; the next change of its spec is checked."""
    kinds = Kinds(kube, space)
    kinds.install(former=True)
    pool = {"nodeClassRef": {"name": "a"}, "limits": {"maxNodes": 1}, "minNodes": 2, "drainTimeout": "5 min"}
    two = {"providers": [{"name": "lamda"}, {"name": "lambda", "priority": 1}, {"name": "lambda"}]}
    ok(kinds.create("GPUNodePool", pool), 201)
    ok(kinds.create("GPUNodeClass", two), 201)
    ok(kube.patch(kinds.path("GPUNodePool", "one", "status"), json={"status": {"colour": "red"}}, headers=MERGE))
    kinds.install()
    read = ok(kube.get(kinds.path("GPUNodePool", "one")))
    assert {key: read["spec"][key] for key in pool if key != "nodeClassRef"} == {
        key: pool[key] for key in pool if key != "nodeClassRef"
    }
    assert read["spec"]["orphanedPolicy"] == "Drain" and read["metadata"]["generation"] == 1
    for kind in ("GPUNodePool", "GPUNodeClass"):
        labels = {"metadata": {"labels": {"team": "research"}, "finalizers": ["example.test/hold"]}}
        assert ok(kube.patch(kinds.path(kind, "one"), json=labels, headers=MERGE))["metadata"]["labels"] == {"team": "research"}
        status = {"status": {"observedGeneration": 1, "ready": 0}}
        assert ok(kube.patch(kinds.path(kind, "one", "status"), json=status, headers=MERGE))["status"]["ready"] == 0
    answer = kube.patch(kinds.path("GPUNodePool", "one"), json={"spec": {"weight": 1}}, headers=MERGE)
    assert "is above limits.maxNodes." in refused(answer, 422, "Invalid")["message"]
    better = {"spec": {"minNodes": 1, "drainTimeout": "5m"}}
    assert ok(kube.patch(kinds.path("GPUNodePool", "one"), json=better, headers=MERGE))["spec"]["minNodes"] == 1
    for kind in ("GPUNodePool", "GPUNodeClass"):
        ok(kube.delete(kinds.path(kind, "one")))
        ok(kube.patch(kinds.path(kind, "one"), json={"metadata": {"finalizers": None}}, headers=MERGE))
        assert gone(kube, kinds.path(kind, "one"))
    kinds.remove()


def probe_claims_keep_what_their_definition_does_not_know(kube: httpx.Client, space: str) -> None:
    """A record is stored as it is, its nulls included, and is replaced as a whole by the version that was read."""
    path, claims = _claims(kube, space)
    record = {"name": "one", "record_version": 1, "ip": "", "peer": None, "ids_seen": [], "offer": {"price": "0.10", "disk": None}}
    document = {"apiVersion": f"{space}.example.test/v1", "kind": "GPUNodeClaim", "metadata": {"name": "one"}, "record": record}
    made = ok(kube.post(claims, json=document), 201)
    assert made["record"] == record
    steps = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": made["metadata"]["resourceVersion"]},
        {"op": "add", "path": "/record", "value": {"name": "one", "newer": {"field": [1, None]}}},
        {"op": "add", "path": "/status", "value": {"phase": "Ready", "instanceID": "i-1"}},
    ]
    headers = {"content-type": "application/json-patch+json"}
    changed = ok(kube.patch(f"{claims}/one", content=json.dumps(steps), headers=headers))
    assert changed["record"] == {"name": "one", "newer": {"field": [1, None]}} and changed["status"]["phase"] == "Ready"
    refused(kube.patch(f"{claims}/one", content=json.dumps(steps), headers=headers), 409, "Conflict")
    refused(kube.post(claims, json={**document, "metadata": {"name": "two"}, "record": "text"}), 422, "Invalid")
    table = ok(kube.get(claims, headers={"accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}))
    columns = [column["name"] for column in table["columnDefinitions"] if not column["priority"]]
    assert columns == ["Name", "Pool", "Phase", "Provider", "Type", "$/h", "Node", "Ready", "Age"]
    ok(kube.delete(path))
    eventually(lambda: gone(kube, claims), 60)


def probe_a_definition_takes_its_objects_along(kube: httpx.Client, space: str) -> None:
    """Those that a finalizer holds stay, can be changed and let go, and take no new one beside them."""
    path, claims = _claims(kube, space)
    document = {"apiVersion": f"{space}.example.test/v1", "kind": "GPUNodeClaim", "metadata": {"name": "free"}, "record": {}}
    held = {**document, "metadata": {"name": "held", "finalizers": ["tgp.io/gpunodeclaim-finalizer"]}}
    for one in (document, held):
        ok(kube.post(claims, json=one), 201)
    assert "deletionTimestamp" in ok(kube.delete(path))["metadata"]
    eventually(lambda: gone(kube, f"{claims}/free"), 60)
    assert "deletionTimestamp" in ok(kube.get(f"{claims}/held"))["metadata"] and not gone(kube, path)
    told = refused(kube.post(claims, json={**document, "metadata": {"name": "late"}}), 403, "Forbidden")
    why = "create not allowed while custom resource definition is terminating"
    assert told["message"] == f'gpunodeclaims.{space}.example.test "late" is forbidden: {why}'
    assert ok(kube.patch(f"{claims}/held", json={"record": {"phase": "Ready"}}, headers=MERGE))["record"] == {"phase": "Ready"}
    ok(kube.patch(f"{claims}/held", json={"metadata": {"finalizers": []}}, headers=MERGE))
    eventually(lambda: gone(kube, path), 60)


def _claims(kube: httpx.Client, space: str) -> tuple[str, str]:
    """The kind of claims in a group of its own: the path of its definition, and that of its objects."""
    definition = copy.deepcopy(claim_definition())
    group = definition["spec"]["group"] = f"{space}.example.test"
    name = definition["metadata"]["name"] = f"gpunodeclaims.{group}"
    ok(kube.post(_DEFINITIONS, json=definition), 201)
    claims = f"/apis/{group}/v1/namespaces/{space}/gpunodeclaims"
    eventually(lambda: kube.get(claims).status_code == 200)
    return f"{_DEFINITIONS}/{name}", claims


OUR_PROBES: tuple[t.Callable[[httpx.Client, str], None], ...] = tuple(
    value for name, value in sorted(globals().items()) if name.startswith("probe_")
)
