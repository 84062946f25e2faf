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
