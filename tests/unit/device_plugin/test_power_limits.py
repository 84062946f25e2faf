# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The objects of the DaemonSet nvidia-powerlimit, and what its options may be."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.power_limit_script import SCRIPT
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.power_limits import (
    BOARDS,
    PRIVILEGED_REASONS,
    PowerLimits,
    limits_of,
    power_limit_objects,
    power_limit_warnings,
)


def pod(options: PowerLimits) -> dict[str, t.Any]:
    return t.cast("dict[str, t.Any]", power_limit_objects(options)[1]["spec"]["template"])


def test_the_config_map_holds_the_script_and_the_table() -> None:
    config_map, daemon_set = power_limit_objects(PowerLimits(watts={"Tesla T4": 65, "NVIDIA L4": 60}))
    assert config_map["data"] == {"power-limit.sh": SCRIPT, "limits": "300 GeForce RTX 3090\n60 L4\n65 Tesla T4\n"}
    for one in (config_map, daemon_set):
        assert (one["metadata"]["name"], one["metadata"]["namespace"]) == ("nvidia-powerlimit", "gpu-device-plugin")
        assert one["metadata"]["labels"]["app.kubernetes.io/name"] == "nvidia-powerlimit"
    assert daemon_set["spec"]["selector"]["matchLabels"].items() <= daemon_set["spec"]["template"]["metadata"]["labels"].items()


def test_the_script_runs_where_the_node_opted_in_with_what_it_needs_and_no_more() -> None:
    spec = pod(PowerLimits(interval=300, persistence_mode=False, runtime_class="other"))["spec"]
    [container] = spec["containers"]
    assert (spec["nodeSelector"], spec["runtimeClassName"]) == ({"tgp.io/power-limit": "true"}, "other")
    assert spec["automountServiceAccountToken"] is False and not {"hostPID", "hostNetwork", "hostIPC"} & set(spec)
    assert not [volume for volume in spec["volumes"] if "hostPath" in volume]
    assert container["securityContext"] == {"privileged": True, "readOnlyRootFilesystem": True}
    assert container["command"] == ["/bin/sh", "/etc/nvidia-powerlimit/power-limit.sh"]
    assert container["readinessProbe"]["exec"]["command"] == [*container["command"], "ready"]
    values = {one["name"]: one.get("value") for one in container["env"]}
    assert (values["INTERVAL_SECONDS"], values["PERSISTENCE_MODE"], values["NVIDIA_DRIVER_CAPABILITIES"]) == ("300", "0", "utility")
    read = {name for name in values if name.isupper() and f"${{{name}" in SCRIPT}
    assert read == {"INTERVAL_SECONDS", "PERSISTENCE_MODE", "NODE_NAME"}
    for mount in container["volumeMounts"]:
        assert f":-{mount['mountPath']}" in SCRIPT  # where the script looks by itself


def test_each_privileged_container_says_why() -> None:
    template = pod(PowerLimits())
    assert template["metadata"]["annotations"]["tgp.io/privileged-reason"] == PRIVILEGED_REASONS["nvidia-powerlimit"]


def test_pods_restart_when_the_table_changes_and_only_then() -> None:
    hashes = [
        pod(PowerLimits(watts={"Tesla T4": watts}))["metadata"]["annotations"]["tgp.io/config-checksum"] for watts in (65, 65, 66)
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_users_limit_replaces_ours_and_zero_takes_it_away() -> None:
    assert limits_of(PowerLimits()) == {"GeForce RTX 3090": 300}
    assert limits_of(PowerLimits(watts={"GeForce RTX 3090": 275})) == {"GeForce RTX 3090": 275}
    assert limits_of(PowerLimits(watts={"NVIDIA GeForce RTX 3090": 0, "NVIDIA  L4": 60})) == {"L4": 60}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            PowerLimits(watts={"Tesla T4": 5}),
            "[Tesla T4] must be a whole number of watts from 10 to 2000, or 0 for no limit, got 5.",
        ),
        (PowerLimits(watts={"Tesla T4": True}), "got True"),
        (PowerLimits(watts={"Tesla T4": -1}), "got -1"),
        (PowerLimits(watts={"NVIDIA": 60}), "is not a model"),
        (PowerLimits(watts={"a\nb\x00": 60}), "is not a model"),
        (PowerLimits(watts={"NVIDIA L4": 60, "L4": 70}), "NVIDIA L4 and L4 are the same model"),
        (PowerLimits(watts={"GeForce RTX 3090": 0}), "sets no limit for any model"),
        (PowerLimits(interval=5), "must be at least 10 s, got 5 s"),
    ],
)
def test_a_wrong_option_is_refused_with_its_place(options: PowerLimits, problem: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        power_limit_objects(options)
    assert len(refused.value.problems) == 1 and problem in refused.value.problems[0]


def test_a_limit_that_the_usual_board_does_not_accept_is_a_warning() -> None:
    [told] = power_limit_warnings(PowerLimits(watts={"NVIDIA H100 80GB HBM3": 150, "NVIDIA L4": 1000, "Tesla T4": 60}))
    assert told.startswith("power_limits[H100 80GB HBM3]: 150 W are outside of 200 to 700 W")
    assert power_limit_warnings(PowerLimits()) == []


@pytest.mark.parametrize("model", sorted(BOARDS))
def test_the_table_of_boards_is_in_order(model: str) -> None:
    board = BOARDS[model]
    assert board.lowest <= (board.limit or board.default) <= board.default <= board.highest
