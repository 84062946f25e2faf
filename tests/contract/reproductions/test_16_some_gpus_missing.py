# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Item 16: a node of two GPUs that shows one of them is billed in full; somebody has to be told."""

from __future__ import annotations

import typing as t

import pytest

from tests.contract.act.rig import Rig


@pytest.fixture
def pair(build: t.Callable[..., Rig]) -> Rig:
    """A machine with two GPUs and a pod that uses one of them."""
    rig = build(**{"lambda": [{"type": "gpu_2x_a6000", "region": "us-south-2", "stock": 4, "boot": 20}], "machines": []})
    rig.training["maxHourlyPrice"] = "5.00"
    rig.demo_class["limits"] = {"maxNodes": 3, "maxHourlyCost": "20.00"}
    rig.provision()
    rig.pod(rig.machine().name)
    return rig


def show(rig: Rig, number: int) -> None:
    amount = {"nvidia.com/gpu": str(number)}
    rig.kube("PATCH", f"/api/v1/nodes/{rig.machine().name}/status", {"status": {"capacity": amount, "allocatable": amount}})


def closed(rig: Rig) -> bool:
    return any(one["key"] == "tgp.io/gpu-lost" for one in rig.nodes()[rig.machine().name]["spec"].get("taints") or [])


def test_one_of_two_gpus_is_reported_closed_and_told(pair: Rig) -> None:
    show(pair, 1)
    first = pair.reap()
    assert "1 of its 2 GPUs" in str(first["plan"]["plan"]) and not closed(pair), "a plugin may be starting again"
    pair.advance(61)
    pair.reap()
    assert closed(pair) and len(pair.machines()) == 1
    assert [one["notice"] for one in pair.events() if one["kind"] == "notice"] == ["gpus_missing"]
    assert pair.api.request("GET", "/api/v1/namespaces/default/pods/job")[0] == 200, "the pod that runs stays"
    writes = pair.writes()
    pair.reap()
    assert pair.writes() == writes, "a second run writes nothing"
    show(pair, 2)
    pair.reap()
    assert not closed(pair) and len(pair.machines()) == 1
