# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Node groups as k8s-gpu-autoprovision takes them (S2)."""

from __future__ import annotations

import typing as t
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.documents.faults import Document
from ansible_collections.tgp.gpu.plugins.module_utils.documents.parse import parse
from ansible_collections.tgp.gpu.plugins.module_utils.providers.webhook.machines import (
    groups_from_environment,
    groups_from_values,
    usable_groups,
)

ENVIRONMENT = {
    "GPU_NODE_1_NAME": "gpu-worker-1",
    "GPU_NODE_1_GPU_COUNT": "4",
    "GPU_NODE_1_SCALE_UP_ENDPOINT": "http://power-api/gpu-worker-1/start",
    "GPU_NODE_1_SCALE_DOWN_ENDPOINT": "http://power-api/gpu-worker-1/stop",
    "GPU_NODE_2_NAME": "gpu-worker-2",
    "GPU_NODE_2_GPU_COUNT": "8",
    "GPU_NODE_2_SCALE_UP_ENDPOINT": "http://power-api/gpu-worker-2/start",
    "GPU_NODE_2_SCALE_DOWN_ENDPOINT": "http://power-api/gpu-worker-2/stop",
    "PATH": "/bin",
}
GROUP = {
    "name": "gpu-worker-1",
    "gpuCount": 4,
    "scaleUpEndpoint": "http://power-api/gpu-worker-1/start",
    "scaleDownEndpoint": "http://power-api/gpu-worker-1/stop",
}


def test_S2_11_groups_of_the_environment() -> None:
    machines, warnings = groups_from_environment(ENVIRONMENT)
    assert [(one.name, one.gpu_count) for one in machines] == [("gpu-worker-1", 4), ("gpu-worker-2", 8)]
    assert machines[0].scale_up_endpoint.endswith("/gpu-worker-1/start")
    assert machines[1].scale_down_endpoint.endswith("/gpu-worker-2/stop")
    assert warnings == ()


@pytest.mark.parametrize("ending", ["NAME", "SCALE_UP_ENDPOINT", "SCALE_DOWN_ENDPOINT"])
@pytest.mark.parametrize("empty", [True, False])
def test_S2_20_an_incomplete_group_is_left_out_and_named(ending: str, empty: bool) -> None:
    broken = dict(ENVIRONMENT)
    del broken[f"GPU_NODE_1_{ending}"]
    if empty:
        broken[f"GPU_NODE_1_{ending}"] = ""
    machines, warnings = groups_from_environment(broken)
    assert [one.name for one in machines] == ["gpu-worker-2"]
    (warning,) = warnings
    assert f"GPU_NODE_1_{ending}" in warning


@pytest.mark.parametrize("count", ["four", "", "0", "-1", "1.5", "٤"])
def test_S2_20_a_count_that_is_no_number_is_a_warning(count: str) -> None:
    machines, warnings = groups_from_environment({**ENVIRONMENT, "GPU_NODE_1_GPU_COUNT": count})
    assert [one.name for one in machines] == ["gpu-worker-2"]
    assert "GPU_NODE_1_GPU_COUNT" in warnings[0]


@pytest.mark.parametrize("env", [{}, {"PATH": "/bin"}, {"_GPU_COUNT": "4"}, {"LONELY_GPU_COUNT": "4"}])
def test_S2_20_no_group_at_all_is_an_error(env: dict[str, str]) -> None:
    with pytest.raises(InvalidInput) as caught:
        groups_from_environment(env)
    assert "P_SCALE_UP_ENDPOINT" in str(caught.value)
    if "LONELY_GPU_COUNT" in env:
        assert "LONELY_NAME" in str(caught.value)


def test_a_name_given_twice_counts_once() -> None:
    machines, warnings = groups_from_environment({**ENVIRONMENT, "GPU_NODE_2_NAME": "gpu-worker-1"})
    assert len(machines) == 1 and "GPU_NODE_2_NAME" in warnings[0]


def test_the_environment_may_say_more() -> None:
    more = {
        "_GPU_TYPE": "rtx 3090",
        "_NODE_NAME": "n1",
        "_HOURLY_COST": "0.12",
        "_REGION": "home",
        "_STATUS_ENDPOINT": "http://p/s",
    }
    machines, _warnings = groups_from_environment({**ENVIRONMENT, **{f"GPU_NODE_1{key}": value for key, value in more.items()}})
    one = machines[0]
    assert (one.gpu_type, one.gpu_memory_mib, one.node_name, one.hourly_cost) == ("RTX3090", 24576, "n1", Decimal("0.12"))
    assert (one.region, one.status_endpoint) == ("home", "http://p/s")


def test_S2_12_node_groups_of_helm_values() -> None:
    second = {**GROUP, "name": "gpu-worker-2", "gpuCount": "8"}
    machines = groups_from_values({"nodeGroups": [GROUP, second]})
    assert [(one.name, one.gpu_count) for one in machines] == [("gpu-worker-1", 4), ("gpu-worker-2", 8)]
    assert machines[0].node_name == "" and machines[0].hourly_cost == 0


def test_paths_are_below_the_base_address() -> None:
    entry = {**GROUP, "scaleUpEndpoint": "/a/start", "scaleDownEndpoint": "/a/stop"}
    (machine,) = groups_from_values({"nodeGroups": [entry]}, "http://power.test/base/")
    assert machine.scale_up_endpoint == "http://power.test/base/a/start"
    with pytest.raises(InvalidInput, match="scaleUpEndpoint"):
        groups_from_values({"nodeGroups": [entry]})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": None}, "nodeGroups[0].name is missing"),
        ({"gpuCount": "many"}, "nodeGroups[0].gpuCount"),
        ({"gpuCount": True}, "nodeGroups[0].gpuCount"),
        ({"flavour": 1}, "nodeGroups[0].flavour"),
        ({"scaleUpEndpoint": "ftp://x/y"}, "nodeGroups[0].scaleUpEndpoint"),
        ({"statusEndpoint": "http://[broken"}, "nodeGroups[0].statusEndpoint"),
        ({"gpuType": "RTX4909"}, "RTX4090"),
        ({"hourlyCost": "-1"}, "nodeGroups[0].hourlyCost"),
        ({"hourlyCost": "cheap"}, "nodeGroups[0].hourlyCost"),
    ],
)
def test_values_are_right_or_refused_with_their_place(change: dict[str, t.Any], words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        groups_from_values({"nodeGroups": [{**GROUP, **change}]})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "values", [{}, {"nodeGroups": []}, {"nodeGroups": {}}, {"nodeGroups": ["x"]}, {"nodeGroups": [GROUP, GROUP]}]
)
def test_values_without_usable_groups(values: dict[str, t.Any]) -> None:
    with pytest.raises(InvalidInput):
        groups_from_values(values)


def test_S2_20_of_helm_values_an_incomplete_group_is_left_out_and_named() -> None:
    (machine,), (warning,) = usable_groups({"nodeGroups": [{**GROUP, "scaleUpEndpoint": ""}, {**GROUP, "name": "gpu-worker-9"}]})
    assert machine.name == "gpu-worker-9"
    assert warning == "The group nodeGroups[0] is left out: nodeGroups[0].scaleUpEndpoint is missing."
    (only,), (repeated,) = usable_groups({"nodeGroups": [GROUP, GROUP]})
    assert only.name == GROUP["name"] and f"repeats {GROUP['name']}" in repeated


@pytest.mark.parametrize("groups", [[], None, [{**GROUP, "gpuCount": "four"}], [{}]])
def test_S2_20_of_helm_values_no_group_at_all_is_an_error(groups: t.Any) -> None:
    with pytest.raises(InvalidInput, match="nodeGroups"):
        usable_groups({"nodeGroups": groups})


def test_S2_12_the_shipped_samples_describe_the_same_machines_and_go_with_the_shipped_documents() -> None:
    folder = Path(__file__).resolve().parents[3] / "examples" / "k8s-gpu-autoprovision"
    of_values, warnings = usable_groups(yaml.safe_load((folder / "values.yaml").read_text()))
    lines = (folder / "env").read_text().splitlines()
    of_variables, more = groups_from_environment(dict(line.split("=", 1) for line in lines))
    assert of_values == of_variables and len(of_values) == 2 and not warnings and not more
    documents = [Document("pools.yml", one) for one in yaml.safe_load_all((folder / "pools.yml").read_text())]
    specs, complaints = parse(documents, machines=of_values)
    (pool,) = specs.pools
    assert (pool.idle_mode, pool.consolidate_after, len(pool.disruption_budgets)) == ("gpu", 600, 1) and not complaints
    assert specs.classes["own"].clouds[0].machines == of_values and specs.classes["own"].mesh.backend == "none"
