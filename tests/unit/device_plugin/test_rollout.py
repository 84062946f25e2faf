# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ready or not (S4-08), the number of GPUs (S4-10), what to look at, and who else advertises them (S4-27)."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.config import of_content, of_replicas
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.manifests import PluginOptions, plugin_objects
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.neighbours import _daemon_sets, _operators
from ansible_collections.tgp.gpu.plugins.module_utils.device_plugin.rollout import (
    GpuNode,
    gpu_node,
    late_pods,
    rolled_out,
    served,
    shown,
    unhealthy_devices,
    unknown_choices,
    wrong_numbers,
)

from sandbox import device_plugin

Json = dict[str, t.Any]
OPTIONS = PluginOptions((of_replicas(4), of_replicas(2, "a100")))


def node(name: str = "n", *, capacity: int = 8, allocatable: int | None = None, ready: bool = True, **labels: str) -> GpuNode:
    own = {"nvidia.com/gpu.present": "true", "tgp.io/gpu-count": "2", **labels}
    status = {
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "capacity": {"cpu": "30", "nvidia.com/gpu": str(capacity)},
        "allocatable": {"nvidia.com/gpu": str(capacity if allocatable is None else allocatable)},
    }
    return gpu_node({"metadata": {"name": name, "labels": own}, "status": status})


def wrong(*nodes: GpuNode, options: PluginOptions = OPTIONS) -> list[str]:
    return wrong_numbers(shown(served(options, nodes)))


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        ({}, False),
        ({"observedGeneration": 1, "desiredNumberScheduled": 0}, False),
        ({"observedGeneration": 2, "desiredNumberScheduled": 0}, True),
        ({"observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 1}, False),
        ({"observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": 1, "numberAvailable": 2}, False),
        ({"observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2}, True),
    ],
)
def test_a_rollout_is_over_when_all_pods_are_of_this_version_and_available(status: Json, ready: bool) -> None:
    assert rolled_out({"metadata": {"generation": 2}, "status": status}) is ready


def test_S4_10_two_gpus_with_four_replicas_are_eight() -> None:
    assert wrong(node()) == [] and wrong(node(capacity=4, **{"nvidia.com/device-plugin.config": "a100"})) == []
    (two,) = wrong(node(capacity=2))
    assert "shows 2 nvidia.com/gpu instead of 8 (2 GPUs x replicas): its plugin runs with another configuration" in two
    (none,) = wrong(node(capacity=0))
    assert (
        "kubectl logs --namespace gpu-device-plugin daemonset/nvidia-device-plugin" in none
        and "registered with the kubelet" in none
    )
    (odd,) = wrong(node(capacity=3))
    assert "finds fewer GPUs than tgp.io/gpu-count says" in odd


def test_nodes_that_the_plugin_does_not_serve_do_not_count() -> None:
    tainted = gpu_node(
        {
            "metadata": {"name": "t", "labels": {"nvidia.com/gpu.present": "true"}},
            "spec": {"taints": [{"key": "team", "effect": "NoSchedule"}]},
        }
    )
    assert wrong(node(ready=False, capacity=0), node(capacity=0, **{"nvidia.com/gpu.present": "false"}), tainted) == []


def test_a_node_without_the_number_of_its_gpus_must_show_some() -> None:
    assert wrong(node(capacity=3, **{"tgp.io/gpu-count": ""})) == []
    (sentence,) = wrong(node(capacity=0, **{"tgp.io/gpu-count": ""}))
    assert "shows no nvidia.com/gpu." in sentence


def test_renamed_and_mig_resources() -> None:
    sharing = {"timeSlicing": {"renameByDefault": True, "resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}
    renamed = PluginOptions((of_content({"version": "v1", "sharing": sharing}),))
    (sentence,) = wrong(node(capacity=8), options=renamed)
    assert "shows 0 nvidia.com/gpu.shared instead of 8" in sentence
    mixed = PluginOptions((of_content({"version": "v1", "flags": {"migStrategy": "mixed"}}),))
    slices = {"nvidia.com/gpu": 0, "nvidia.com/mig-1g.10gb": 7}
    mig = GpuNode("m", True, {"nvidia.com/gpu.present": "true", "tgp.io/gpu-count": "1"}, (), slices, slices)
    (one,) = shown(served(mixed, [mig]))
    assert one.right and (one.resource, one.capacity, one.expected) == ("nvidia.com/mig-1g.10gb", 7, None)


def test_unhealthy_devices_and_unknown_configurations_are_reported() -> None:
    (sentence,) = unhealthy_devices(shown(served(OPTIONS, [node(allocatable=4)])))
    assert "4 of 8 nvidia.com/gpu are unhealthy" in sentence and "XID" in sentence
    (choice,) = unknown_choices(OPTIONS, [node(), node(**{"nvidia.com/device-plugin.config": "h100"})])
    assert "nvidia.com/device-plugin.config=h100" in choice


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}, ""),
        ({"phase": "Pending"}, "pod p is Pending. Look: kubectl describe pod --namespace gpu-device-plugin p"),
        (
            {"phase": "Running", "containerStatuses": [{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
            "could not load NVML library",
        ),
        (
            {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ContainerCreating"}}}]},
            "no runtime for nvidia",
        ),
        (
            {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
            "give another with image",
        ),
    ],
)
def test_a_pod_that_is_not_ready_says_why_and_what_to_look_at(status: Json, words: str) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "n"}, "status": status}
    found = " ".join(late_pods([pod], [node()]))
    assert words in found and bool(found) is bool(words)
    if words:
        assert "node n is not Ready" in late_pods([pod], [node(ready=False)])[0]


def test_S4_27_who_else_advertises_gpus() -> None:
    (operator,) = _operators([{"metadata": {"name": "cluster-policy"}, "spec": {"devicePlugin": {"enabled": True}}}])
    assert "ClusterPolicy cluster-policy" in operator.what and "kubectl patch clusterpolicy cluster-policy" in operator.move
    assert list(_operators([{"metadata": {"name": "p"}, "spec": {"devicePlugin": {"enabled": False}}}])) == []
    assert len(list(_operators([{"metadata": {"name": "p"}, "spec": {}}]))) == 1

    other = device_plugin.manifest()
    (found,) = _daemon_sets([other])
    assert found.what == "DaemonSet kube-system/nvidia-device-plugin-daemonset"
    assert found.move == "kubectl delete daemonset nvidia-device-plugin-daemonset --namespace kube-system"
    other["metadata"]["annotations"] = {"meta.helm.sh/release-name": "nvdp"}
    assert next(_daemon_sets([other])).move == "helm uninstall nvdp --namespace kube-system"
    other["metadata"]["ownerReferences"] = [{"kind": "ClusterPolicy"}]
    assert list(_daemon_sets([other])) == []


@pytest.mark.parametrize("name", ["gpu-feature-discovery", "nvidia-device-plugin-mps-control-daemon", "amdgpu-device-plugin"])
def test_other_daemon_sets_are_none(name: str) -> None:
    other = device_plugin.manifest()
    other["metadata"]["name"] = name
    other["spec"]["template"]["spec"]["containers"][0]["image"] = (
        "rocm/k8s-device-plugin" if "amd" in name else "nvcr.io/nvidia/k8s-device-plugin"
    )
    assert list(_daemon_sets([other])) == []


def test_our_own_is_none_and_one_of_that_name_that_is_not_ours_is() -> None:
    (own,) = [one for one in plugin_objects(PluginOptions((of_replicas(4),))) if one["kind"] == "DaemonSet"]
    assert list(_daemon_sets([own])) == []
    del own["metadata"]["labels"]["app.kubernetes.io/managed-by"]
    assert len(list(_daemon_sets([own]))) == 1
