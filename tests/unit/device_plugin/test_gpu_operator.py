# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Profile operator: which release of Talos chooses it, the chart's values, and the objects for Flux."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.config import of_replicas
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.gpu_operator import (
    Chart,
    chosen_profile,
    flux_objects,
    operator_values,
)
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.manifests import PluginOptions, plugin_objects
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.neighbours import others_than_operator
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.rollout import oldest_talos

OPTIONS = PluginOptions((of_replicas(4),))


@pytest.mark.parametrize(
    ("given", "talos", "there", "profile"),
    [
        ("auto", None, False, "standalone"),
        ("auto", (1, 12), False, "standalone"),
        ("auto", (1, 13), False, "operator"),
        ("auto", (1, 14), True, "standalone"),
        ("operator", (1, 10), False, "operator"),
        ("standalone", (1, 14), False, "standalone"),
    ],
)
def test_the_release_of_talos_chooses_unless_a_plugin_is_installed(
    given: str, talos: tuple[int, int] | None, there: bool, profile: str
) -> None:
    assert chosen_profile(given, talos, standalone_there=there) == profile


@pytest.mark.parametrize(
    ("images", "oldest"),
    [
        ([], None),
        (["Talos (v1.13.9)", "Talos (v1.12.0)"], (1, 12)),
        (["Talos (v1.13.9)", "Ubuntu 24.04.2 LTS"], None),
        (["Talos (v1.14.0-rc.1)", ""], None),
        (["Talos (v1.14.0-rc.1)"], (1, 14)),
    ],
)
def test_the_oldest_release_counts_where_all_nodes_run_talos(images: list[str], oldest: tuple[int, int] | None) -> None:
    assert oldest_talos([{"status": {"nodeInfo": {"osImage": image}}} for image in images]) == oldest


def test_values_for_talos_and_those_of_the_user_win() -> None:
    values = operator_values(OPTIONS, {"nfd": {"enabled": False}, "hostPaths": {"driverInstallDir": "/usr/local/lib"}})
    assert (values["driver"], values["toolkit"]) == ({"enabled": False}, {"enabled": False})
    assert values["hostPaths"] == {"driverInstallDir": "/usr/local/lib"} and values["nfd"] == {"enabled": False}
    assert values["devicePlugin"]["config"] == {"name": "nvidia-device-plugin-config", "default": "config.yaml"}
    for tolerations in (values["daemonsets"]["tolerations"], values["node-feature-discovery"]["worker"]["tolerations"]):
        assert {"nvidia.com/gpu", "tgp.io/ephemeral", "tgp.io/initializing"} <= {one["key"] for one in tolerations}


def test_flux_gets_the_same_values() -> None:
    found: dict[str, t.Any] = {one["kind"]: one for one in flux_objects(OPTIONS, Chart(), {})}
    assert list(found) == ["Namespace", "ConfigMap", "HelmRepository", "HelmRelease"]
    spec = found["HelmRelease"]["spec"]
    assert spec["values"] == operator_values(OPTIONS, {}) and spec["chart"]["spec"]["version"] == "v26.7.0"
    assert spec["chart"]["spec"]["sourceRef"]["name"] == found["HelmRepository"]["metadata"]["name"]
    assert "replicas: 4" in found["ConfigMap"]["data"]["config.yaml"]


def test_S4_27_the_operator_is_not_installed_beside_the_plugin_alone() -> None:
    daemon_sets = [one for one in plugin_objects(OPTIONS) if one["kind"] == "DaemonSet"]
    (own,) = others_than_operator(daemon_sets)
    assert "kubectl delete daemonset,configmap,service --namespace gpu-device-plugin" in own.move
    assert "kubectl delete runtimeclass nvidia" in own.move and others_than_operator([]) == []
