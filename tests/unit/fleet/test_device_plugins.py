# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Will anybody advertise GPUs? Yes, none, or unknown."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import (
    DevicePlugin,
    DevicePlugins,
    Expression,
    Machine,
    NodeTerm,
    Placement,
    Requirement,
    Toleration,
)
from ansible_collections.tgp.gpu.plugins.module_utils.model.resources import GPU_RESOURCES
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling import capacity
from ansible_collections.tgp.gpu.plugins.module_utils.planner.scheduling.device_plugins import NONE, UNKNOWN, YES, answer

from .build import CloudChoice, decide, node, node_class, of, offer, pool, seen, specs

ALL = (Toleration("", "Exists", "", ""),)
STOCK = (Toleration("nvidia.com/gpu", "Exists", "", "NoSchedule"),)


def plugins(dra: bool = False, **placement: t.Any) -> DevicePlugins:
    return DevicePlugins((DevicePlugin("kube-system", "plugin", Placement(**{"tolerations": ALL, **placement}), dra),))


def term(key: str, operator: str, *values: str) -> tuple[NodeTerm, ...]:
    return (NodeTerm((Expression(key, operator, values),), ()),)


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (DevicePlugins(), NONE),
        (DevicePlugins(problem="403"), UNKNOWN),
        (None, YES),
        (plugins(), YES),
        (plugins(dra=True), UNKNOWN),
        (plugins(tolerations=STOCK), NONE),
        (plugins(selector=(("tgp.io/nodepool", "p"),)), YES),
        (plugins(selector=(("tgp.io/nodepool", "q"),)), NONE),
        (plugins(selector=(("nvidia.com/gpu.deploy.device-plugin", "true"),)), UNKNOWN),
        (plugins(selector=(("nvidia.com/gpu.present", "true"),), tolerations=STOCK), NONE),
        (plugins(selector=(("nvidia.com/gpu.present", "true"),)), YES),
        (plugins(terms=term("feature.node.kubernetes.io/pci-10de.present", "In", "true")), UNKNOWN),
        (plugins(terms=term("tgp.io/provisioned", "Exists")), YES),
        (plugins(terms=term("kubernetes.io/os", "NotIn", "linux")), NONE),
        (plugins(terms=(*term("x", "Exists"), *term("kubernetes.io/os", "In", "linux"))), YES),
    ],
)
def test_three_answers(found: DevicePlugins | None, word: str) -> None:
    assert answer(pool(), node_class(), found, (), GPU_RESOURCES).word == word


def test_S4_24_nodes_with_nvidia_gpus_have_the_label_that_our_plugin_selects_by() -> None:
    ours = plugins(selector=(("nvidia.com/gpu.present", "true"),))
    assert answer(pool(), node_class(gpu_types=("A10", "MI300X")), ours, (), GPU_RESOURCES).word == UNKNOWN
    amd = pool(requirements=(Requirement("tgp.io/gpu-type", "In", ("MI300X",)),))
    assert answer(amd, node_class(), ours, (), GPU_RESOURCES).word == UNKNOWN
    labels = [capacity.offer_labels(offer(model=model), "lambda", "default/p", "c", "id") for model in ("A10", "MI300X")]
    assert [one.get("nvidia.com/gpu.present") for one in labels] == ["true", None]


def test_pools_without_gpus_to_wait_for_are_not_concerned() -> None:
    assert answer(pool(gpu_wait="none"), node_class(), DevicePlugins(), (), GPU_RESOURCES).word == YES


def test_nodes_that_show_gpus_are_evidence() -> None:
    own = node_class(clouds=(CloudChoice("webhook", machines=(Machine("rack-1", 1, "/up", "/down"),)),))
    assert answer(pool(), node_class(), plugins(tolerations=STOCK), (node(),), GPU_RESOURCES).word == YES, "a node of the pool"
    assert answer(pool(), own, DevicePlugins(), (node("rack-1", labels={"tgp.io/nodepool": "x"}),), GPU_RESOURCES).word == YES
    other = node("other", labels={"tgp.io/nodepool": "x"})
    assert answer(pool(), node_class(), DevicePlugins(), (other,), GPU_RESOURCES).word == UNKNOWN
    assert answer(pool(), node_class(), plugins(tolerations=STOCK), (other,), GPU_RESOURCES).word == NONE


@pytest.mark.parametrize("mode", ["provision", "everything", "autoscale"])
def test_none_refuses_the_launch_and_unknown_warns(mode: str) -> None:
    wanted = specs(pool(min_nodes=1))
    none = decide(seen(offers=(offer(),), device_plugins=DevicePlugins()), wanted, mode)
    assert not of(none, "launch") and "no DaemonSet of a device plugin" in none.shortfall[0].reason
    assert bool(none.problems) == (mode == "autoscale")
    unknown = decide(seen(offers=(offer(),), device_plugins=plugins(dra=True)), wanted, mode)
    assert len(of(unknown, "launch")) == 1 and any("is unknown" in one for one in unknown.warnings)
