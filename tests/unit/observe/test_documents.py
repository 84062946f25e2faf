# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documents of any form are answered with a sentence."""

from __future__ import annotations

import types
import typing as t
from pathlib import Path

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.observe.documents import load


@pytest.mark.parametrize("spec", ["text", ["text"], 5, {"providers": 5}, {"providers": "webhook"}, {"providers": [5]}])
def test_a_spec_of_another_form_is_told(spec: t.Any) -> None:
    wrong = {"apiVersion": "tgp.io/v1", "kind": "GPUNodeClass", "metadata": {"name": "c"}, "spec": spec}
    task: t.Any = types.SimpleNamespace(params={"documents": [wrong]}, warn=lambda _text: None)
    with pytest.raises(InvalidInput) as told:
        load(task, None)
    assert "inline document: spec" in str(told.value)


@pytest.mark.parametrize("path", ["pools[1].yml", "team[prod]"])
def test_a_path_with_brackets_is_a_path_before_it_is_a_pattern(tmp_path: Path, path: str) -> None:
    full = tmp_path / path
    if full.suffix:
        full.write_text("kind: GPUNodeClass\n")
    else:
        full.mkdir()
        (full / "a.yml").write_text("kind: GPUNodeClass\n")
    task: t.Any = types.SimpleNamespace(params={"documents": [str(full)]}, warn=lambda _text: None)
    with pytest.raises(InvalidInput, match="apiVersion: this field is missing"):
        load(task, None)


WRONG = """\
# two documents
apiVersion: tgp.io/v1
kind: GPUNodeClass
metadata: {name: base}
spec:
  providers:
    - name: lambda
---
apiVersion: tgp.io/v1
kind: GPUNodePool
metadata:
  name: batch
  labels:
    tgp.io/team: a
    team.example: [1]
spec:
  nodeClassRef: {nam: base}
  disruption:
    consolidateAfter: 10 minutes
  template:
    spec:
      requirements:
        - key: tgp.io/gpu-type
          operator: In
          values:
            - A100
            - A1000
        - {key: tgp.io/gpu-memory, operator: In, values: ["24"]}
  limits:
    maxNodes: five
"""


def test_each_fault_of_a_file_stands_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "pools.yml").write_text(WRONG)
    told: list[str] = []
    task: t.Any = types.SimpleNamespace(params={"documents": [str(tmp_path)]}, warn=told.append)
    with pytest.raises(InvalidInput) as caught:
        load(task, None)
    found = [one.removeprefix(f"{tmp_path}/pools.yml:").split(": ")[:2] for one in caught.value.problems]
    requirements = "spec.template.spec.requirements"
    assert found == [
        ["15", "metadata.labels.team.example"],
        ["17", "spec.nodeClassRef.nam"],
        ["17", "spec.nodeClassRef.name"],  # missing: the line of what is around it
        ["19", "spec.disruption.consolidateAfter"],
        ["27", f"{requirements}[0].values[1]"],
        ["30", "spec.limits.maxNodes"],
    ]
    specs = load(task, None, strict=False)
    assert f"{tmp_path}/pools.yml:15: metadata.labels.team.example: " in specs.paused["default/batch"]
    assert any(one.startswith(f"{tmp_path}/pools.yml:5: spec.limits.maxNodes") for one in told)


def test_faults_of_helm_values_stand_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "values.yml").write_text(
        "nodeGroups:\n  - name: a\n    scaleUpEndpoint: http://u\n    scaleDownEndpoint: http://d\n    gpuCount: two\n"
    )
    task: t.Any = types.SimpleNamespace(params={"documents": [str(tmp_path)]}, warn=lambda _text: None)
    with pytest.raises(InvalidInput, match=r"values\.yml:2: .*nodeGroups\[0\]\.gpuCount is 'two'"):
        load(task, None)


VARIABLES = {"A_NAME": "rack-1", "A_GPU_COUNT": "2", "A_SCALE_UP_ENDPOINT": "http://u/1", "A_SCALE_DOWN_ENDPOINT": "http://d/1"}


@pytest.mark.parametrize(
    ("environment", "documents", "pools"),
    [
        (VARIABLES, [], ["default/node-groups"]),
        ({"SLURM_GPU_COUNT": "4"}, [], []),  # of somebody else
        (VARIABLES, [{"kind": "GPUNodePool"}], []),
        (VARIABLES, ["/nowhere.yml"], []),  # documents that cannot be read are no reason to do something else
    ],
)
def test_S2_11_variables_alone_describe_machines(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], documents: list[t.Any], pools: list[str]
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    task: t.Any = types.SimpleNamespace(params={"documents": documents}, warn=lambda _text: None)
    assert [pool.key for pool in load(task, None, strict=False).pools] == pools


# ---- lists, and folders that hold more than our documents

CLASS = {
    "apiVersion": "tgp.io/v1",
    "kind": "GPUNodeClass",
    "metadata": {"name": "base"},
    "spec": {"providers": [{"name": "lambda"}], "limits": {"maxNodes": 3, "maxHourlyCost": "9"}},
}
POOL = """\
apiVersion: tgp.io/v1
kind: GPUNodePool
metadata: {name: batch}
spec:
  nodeClassRef: {name: base}
"""
LIST = """\
apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: ConfigMap
    metadata: {name: settings}
  - apiVersion: tgp.io/v1
    kind: GPUNodePool
    metadata:
      name: batch
    spec:
      nodeClassRef: {name: base}
      maxNodes: 5
"""
KUSTOMIZATION = "resources: [pool.yml]\nnamespace: team-a\npatches: [{path: p.yml}]\n"


def task_of(*documents: t.Any, told: list[str] | None = None) -> t.Any:
    return types.SimpleNamespace(params={"documents": list(documents)}, warn=([] if told is None else told).append)


def folder(path: Path, **files: str) -> str:
    for name, text in files.items():
        (path / f"{name}.yml").write_text(text)
    return str(path)


def refused(*documents: t.Any) -> tuple[str, ...]:
    with pytest.raises(InvalidInput) as caught:
        load(task_of(*documents), None)
    return caught.value.problems


def test_items_of_a_list_are_documents_with_places_of_their_own(tmp_path: Path) -> None:
    path = folder(tmp_path, pools=f"---\n{POOL}---\n{LIST.replace('name: batch', 'name: other')}")
    assert refused(CLASS, path) == (f"{tmp_path}/pools.yml:20: spec.maxNodes: unknown field. Did you mean spec.limits.maxNodes?",)
    good = folder(tmp_path, pools=LIST.replace("      maxNodes: 5\n", ""))
    assert [pool.key for pool in load(task_of(CLASS, good), None).pools] == ["default/batch"]


@pytest.mark.parametrize("version", ["v1", "tgp.io/v1"])
def test_lists_are_read_inline_and_as_the_api_returns_them(version: str) -> None:
    whole = {"metadata": {"name": "batch"}, "spec": {"nodeClassRef": {"name": "base"}}}
    typed = {"apiVersion": "tgp.io/v1", "kind": "GPUNodePool", **whole}
    listed = {"apiVersion": "v1", "kind": "List", "items": [typed]}
    nested = {"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": version, "kind": "GPUNodePoolList", "items": [whole]}]}
    assert [pool.key for pool in load(task_of(CLASS, listed), None).pools] == ["default/batch"]
    if version == "v1":  # a kind of ours in a group of somebody else
        assert "'GPUNodePoolList' is not a known kind" in refused(CLASS, nested)[0]
    else:
        assert [pool.key for pool in load(task_of(CLASS, nested), None).pools] == ["default/batch"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("apiVersion: v1\nkind: List\n", "pools.yml:1: items: a List needs a list of objects here, not nothing."),
        ("apiVersion: v1\nkind: List\nitems:\n  - 5\n", "pools.yml:4: items[0]: an object is needed, not int."),
        ("apiVersion: tgp.io/v1\nkind: List\nitems: []\n", "pools.yml:2: kind: a List of objects is of apiVersion v1"),
    ],
)
def test_a_list_that_is_none_is_refused_and_its_source_counts_as_unread(tmp_path: Path, text: str, words: str) -> None:
    path = folder(tmp_path, pools=text)
    assert words in "\n".join(refused(CLASS, path))
    specs = load(task_of(CLASS, path), None, strict=False)
    assert specs.sources[f"file:{path}"].problem  # what it held may still be wanted: no machine ends for it


def test_objects_of_other_programs_are_skipped_with_one_line(tmp_path: Path) -> None:
    told: list[str] = []
    karpenter = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: cpu}\n"
    path = folder(tmp_path, pool=POOL, app=f"apiVersion: v1\nkind: Namespace\n---\n{karpenter}", kustomization=KUSTOMIZATION)
    specs = load(task_of(CLASS, path, told=told), None)
    assert [pool.key for pool in specs.pools] == ["default/batch"]
    assert told == [
        f"{path}: skipped 3 objects that are not of tgp.io/v1: app.yml#1 (Namespace), app.yml#2 (NodePool), "
        "kustomization.yml#1 (Kustomization). kustomize is not run, so its namespace, patches change no document; give the output of "
        "kustomize build where they should."
    ]
    source = specs.sources[f"file:{path}"]
    assert not source.problem and source.pools == ("default/batch",)


def test_a_long_list_of_skipped_objects_is_cut(tmp_path: Path) -> None:
    told: list[str] = []
    path = folder(tmp_path, pool=POOL, app="---\n".join(["apiVersion: v1\nkind: Secret\n"] * 7))
    load(task_of(CLASS, path, told=told), None)
    assert "skipped 7 objects" in told[0] and told[0].endswith("app.yml#5 (Secret), and 2 more.")


def test_a_folder_of_others_alone_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    path = folder(tmp_path, web="apiVersion: apps/v1\nkind: Deployment\n")
    assert refused(CLASS, path) == (
        f"{path} holds no document of ours. {path}: skipped 1 object that is not of tgp.io/v1: web.yml#1 (Deployment).",
    )


@pytest.mark.parametrize(
    ("version", "kind", "words"),
    [
        ("tgp.io/v1", "GPUPool", "'GPUPool' is not a known kind of document. Did you mean GPUNodePool?"),
        ("tgp.io/v1", "Deployment", "Known are GPUNodeClass, GPUNodePool, GPURequest, of apiVersion tgp.io/v1."),
        ("tgp.io/v2", "GPUNodePool", "apiVersion: 'tgp.io/v2' is not possible here. Did you mean tgp.io/v1?"),
        (
            "tpg.io/v1",
            "GPUNodePol",
            "'GPUNodePol' is not a known kind of document. Did you mean GPUNodePool, or move an object of tpg.io/v1",
        ),
        ("tgp/v1", "Pool", "'Pool' is not a known kind"),
        ("v1", "NodePool", "Did you mean GPUNodePool"),
        ("v1", "GPUNodepools", "Did you mean GPUNodePool"),
        ("gpu.example.com/v1", "GPUNodePool", "apiVersion: 'gpu.example.com/v1' is not possible here. Use tgp.io/v1."),
        (
            "gpu.example.com/v1",
            "GpuRequests",
            "Did you mean GPURequest, or move an object of gpu.example.com/v1 out of these documents?",
        ),
        ("", "ConfigMap", "'ConfigMap' is not a known kind"),
        ("v1", "", "kind: this field is missing."),
    ],
)
def test_what_may_be_meant_for_us_is_refused_and_never_skipped(tmp_path: Path, version: str, kind: str, words: str) -> None:
    text = POOL.replace("tgp.io/v1", version or '""').replace("GPUNodePool", kind or '""')
    path = folder(tmp_path, pool=text)
    assert words in "\n".join(refused(CLASS, path))


@pytest.mark.parametrize(
    "version", ["karpenter.sh/v1", "eks.amazonaws.com/v1", "nvidia.com/v1", "apps/v1", "v1", "argoproj.io/v1alpha1"]
)
@pytest.mark.parametrize("kind", ["Deployment", "Node", "ClusterPolicy", "ConfigMapList"])
def test_objects_of_others_are_never_taken_for_ours(tmp_path: Path, version: str, kind: str) -> None:
    path = folder(tmp_path, pool=POOL, other=f"apiVersion: {version}\nkind: {kind}\n")
    assert [pool.key for pool in load(task_of(CLASS, path), None).pools] == ["default/batch"]


def test_two_documents_of_one_name_are_refused_with_both_places(tmp_path: Path) -> None:
    path = folder(tmp_path, one=f"# a comment\n{POOL}", two=LIST.replace("      maxNodes: 5\n", ""))
    assert refused(CLASS, path) == (
        f"{path}/two.yml:10: metadata.name: there are two pools named default/batch, here and in {path}/one.yml:4. Rename one.",
    )


@pytest.mark.parametrize("namespace", [None, "tgp-system", "team-a"])
def test_a_request_may_name_a_namespace_that_is_no_part_of_its_name(namespace: str | None) -> None:
    told: list[str] = []
    meta = {"name": "quick", **({"namespace": namespace} if namespace else {})}
    request = {"apiVersion": "tgp.io/v1", "kind": "GPURequest", "metadata": meta, "spec": {"gpuType": "A10", "maxHourlyPrice": "2"}}
    specs = load(task_of(request, told=told), None)
    assert [pool.key for pool in specs.pools] == ["tgp-system/quick"]
    assert [text.split(": ")[1] for text in told] == (["metadata.namespace"] if namespace == "team-a" else [])
    wrong = {**request, "metadata": {"name": "quick", "namespace": "Team_A"}}
    assert "metadata.namespace: 'Team_A' is not" in refused(wrong)[0]
    assert "two pools named tgp-system/quick" in refused(request, {**request, "metadata": {"name": "quick", "namespace": "b"}})[0]
