# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Item 17: without a device plugin in the cluster each machine was billed for its whole registration time and failed (gpu_missing)."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import TgpError

from sandbox import device_plugin

from ..act.rig import Rig

DAEMONS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
STOCK = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]  # tolerations of NVIDIA's own manifest


def wanted(rig: Rig, mode: str) -> str:
    """What a run that wants one machine says; it may refuse as a whole."""
    try:
        found = rig.plan(mode, pools=["training"], nodes=1)
    except TgpError as error:
        return str(error)
    try:
        rig.run("launch", found["run_id"])
    finally:
        rig.unlock(found["run_id"])
    return "\n".join(found["problems"])


@pytest.mark.parametrize("mode", ["provision", "everything"])
def test_nothing_is_launched_while_nobody_would_advertise_the_gpus(build: t.Callable[..., Rig], mode: str) -> None:
    rig = build(device_plugin=False)
    said = wanted(rig, mode)
    assert rig.creates() == 0, "a machine was rented without a device plugin"
    assert "no DaemonSet of a device plugin" in said and "tgp.io/ephemeral" in said


def test_a_plugin_that_does_not_tolerate_the_taints_is_none(build: t.Callable[..., Rig]) -> None:
    rig = build(device_plugin=False)
    body = device_plugin.manifest()
    body["spec"]["template"]["spec"]["tolerations"] = STOCK
    rig.kube("POST", DAEMONS, body)
    said = wanted(rig, "provision")
    assert rig.creates() == 0, "a machine was rented without a device plugin"
    assert "nvidia-device-plugin-daemonset: taint gpu-node=true:NoSchedule not tolerated" in said


def test_validate_names_what_is_missing(build: t.Callable[..., Rig]) -> None:
    rig = build(device_plugin=False)
    with pytest.raises(TgpError, match="no DaemonSet of a device plugin"):
        rig.run("validate")
