# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``device_plugin.yml``: from a cluster in which nothing advertises GPUs to a node that shows GPUs x replicas (S4-01, S4-08, S4-10)."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml

from tests.fixtures.demo import demo_documents

from .box import Sandbox
from .conftest import Start


@pytest.fixture(scope="module")
def shared(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    """A cluster without a device plugin, and one own machine with two GPUs."""
    scenario: Path = tmp_path_factory.mktemp("scenario") / "scenario.yaml"
    rack = {"name": "rack-1", "gpus": 2, "model": "RTX3090", "memory_gib": 24, "boot": 20, "stop": 5}
    scenario.write_text(yaml.safe_dump({"device_plugin": False, "machines": [rack]}))
    return start(scenario=scenario)


def shared_gpus() -> list[dict[str, t.Any]]:
    """The demo's own machine; four pods share each of its GPUs."""
    found = demo_documents()
    (pool,) = [one for one in found if one["kind"] == "GPUNodePool" and one["metadata"]["name"] == "own"]
    pool["spec"]["timeSlicing"] = {"replicas": 4}
    classes = [one for one in found if one["kind"] == "GPUNodeClass"]
    for machine in (
        one for document in classes for provider in document["spec"]["providers"] for one in provider.get("machines", [])
    ):
        machine["gpuCount"] = 2
    return [*classes, pool]


def test_from_nothing_to_eight_of_two_gpus(sandbox: Sandbox) -> None:
    one_node: dict[str, t.Any] = {"documents": shared_gpus(), "extra_vars": {"pool": "own", "nodes": 1}}
    refused = sandbox.playbook("provision", **one_node).failed()
    assert "ansible-playbook tgp.gpu.device_plugin" in refused.words and sandbox.living() == []

    first = sandbox.playbook("device_plugin", documents=shared_gpus()).succeeded()
    assert first.count("changed") == 1 and "the plugin starts on nodes as they join" in first.words
    sandbox.playbook("provision", **one_node).succeeded()
    (node,) = sandbox.nodes().values()
    assert node["status"]["capacity"]["nvidia.com/gpu"] == "8"
    assert node["metadata"]["labels"]["nvidia.com/gpu.present"] == "true"

    before = sandbox.writes()
    again = sandbox.playbook("device_plugin", documents=shared_gpus()).succeeded()
    assert again.count("changed") == 0 and sandbox.writes() == before
    assert "rack-1" in again.text and "8 nvidia.com/gpu" in again.text

    assert sandbox.playbook("device_plugin", extra_vars={"state": "absent"}).succeeded().count("changed") == 1
    gone = sandbox.playbook("device_plugin", extra_vars={"state": "absent"}).succeeded()
    assert gone.count("changed") == 0 and "Nothing of this collection's device plugin" in gone.text
