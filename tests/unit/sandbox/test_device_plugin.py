# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes of the sandbox show GPUs only while a DaemonSet of a device plugin runs on them, as real ones do."""

from __future__ import annotations

import copy
import typing as t

import pytest

from sandbox import device_plugin

DAEMONS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
PLUGIN = device_plugin.manifest()["spec"]["template"]["spec"]
NODE = {
    "metadata": {"name": "tgp-a-1", "labels": {"tgp.io/nodepool": "training", "cores": "8"}},
    "spec": {"taints": [{"key": "tgp.io/ephemeral", "value": "true", "effect": "NoSchedule"}]},
}


def test_without_a_device_plugin_a_node_shows_no_gpus_until_one_is_installed(make: t.Any) -> None:
    hand = make(device_plugin=False)
    machine = hand.rent("tgp-a-1", hand.payload("tgp-a-1"))
    assert "no DaemonSet of a device plugin" in hand.story(machine, "gpu")
    assert "nvidia.com/gpu" not in hand.node("tgp-a-1")["status"]["allocatable"]
    hand.kube("POST", DAEMONS, device_plugin.manifest())
    hand.story(machine, "done")
    assert hand.node("tgp-a-1")["status"]["allocatable"]["nvidia.com/gpu"] == "1"


def test_a_device_plugin_that_tolerates_no_taint_of_the_node_does_not_run_there(make: t.Any) -> None:
    hand = make(device_plugin=False)
    stock = device_plugin.manifest()
    stock["spec"]["template"]["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    hand.kube("POST", DAEMONS, stock)
    machine = hand.rent("tgp-a-1", hand.payload("tgp-a-1"))
    assert "tolerates its taints" in hand.story(machine, "gpu")


@pytest.mark.parametrize("name", ["gpu-feature-discovery", "nvidia-device-plugin-mps-control-daemon"])
def test_other_daemon_sets_with_the_image_of_the_device_plugin_advertise_nothing(make: t.Any, name: str) -> None:
    hand = make(device_plugin=False)
    other = device_plugin.manifest()
    other["metadata"]["name"] = name
    hand.kube("POST", DAEMONS, other)
    machine = hand.rent("tgp-a-1", hand.payload("tgp-a-1"))
    assert "no DaemonSet of a device plugin" in hand.story(machine, "gpu")
    assert "nvidia.com/gpu" not in hand.node("tgp-a-1")["status"]["allocatable"]
    hand.kube("POST", DAEMONS, device_plugin.manifest())
    hand.story(machine, "done")


@pytest.mark.parametrize(
    ("more", "runs"),
    [
        ({}, True),
        ({"tolerations": []}, False),
        ({"tolerations": [{"key": "tgp.io/ephemeral", "operator": "Exists"}]}, True),
        ({"tolerations": [{"key": "tgp.io/ephemeral", "value": "true", "effect": "NoSchedule"}]}, True),
        ({"tolerations": [{"key": "tgp.io/ephemeral", "value": "no"}]}, False),
        ({"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}, False),
        ({"nodeSelector": {"tgp.io/nodepool": "training"}}, True),
        ({"nodeSelector": {"nvidia.com/gpu.present": "true"}}, False),
        ({"terms": [{"key": "tgp.io/nodepool", "operator": "Exists"}]}, True),
        ({"terms": [{"key": "cores", "operator": "Gt", "values": ["7"]}]}, True),
        ({"terms": [{"key": "cores", "operator": "Lt", "values": ["7"]}]}, False),
        ({"terms": [{"key": "tgp.io/nodepool", "operator": "NotIn", "values": ["training"]}]}, False),
        ({"terms": [{"key": "tgp.io/nodepool", "operator": "In", "values": ["training"]}]}, True),
        ({"terms": [{"key": "feature.node.kubernetes.io/pci-10de.present", "operator": "DoesNotExist"}]}, True),
    ],
)
def test_selectors_affinity_and_taints_decide_as_in_kubernetes(more: dict[str, t.Any], runs: bool) -> None:
    pod = {**copy.deepcopy(PLUGIN), **{key: value for key, value in more.items() if key != "terms"}}
    if "terms" in more:
        terms = {"nodeSelectorTerms": [{"matchExpressions": more["terms"]}]}
        pod["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    assert device_plugin.fits(pod, NODE) is runs
