# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pool says about machines for waiting pods."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.documents.new_node import shared_gpus
from ansible_collections.tgp.gpu.plugins.module_utils.documents.node_pool import scaling
from ansible_collections.tgp.gpu.plugins.module_utils.documents.reading import Fault, Reader
from ansible_collections.tgp.gpu.plugins.module_utils.model import NodeClass


def read(spec: dict[str, t.Any], *gpu_types: str) -> tuple[dict[str, t.Any], list[str]]:
    problems: list[Fault] = []
    reader = Reader("pool.yml", problems, [])
    shared = shared_gpus(spec, reader, NodeClass("c", (), gpu_types=gpu_types))
    return {**scaling(spec, reader), **shared}, [one.sentence for one in problems]


def test_nothing_said() -> None:
    plain = {
        "pack": "price",
        "schedulers": (),
        "scale_up_delay": 0,
        "dra_driver": "",
        "provisioning_classes": (),
        "capacity_buffers": False,
        "mig": (),
        "mps": False,
    }
    assert read({}) == ({**plain, "slices": 1, "slices_renamed": False}, [])


def test_what_is_said() -> None:
    spec = {
        "pack": "fewest",
        "schedulers": ["volcano"],
        "scaleUpDelay": "2m",
        "provisioningClasses": ["tgp.io/atomic"],
        "capacityBuffers": True,
        "timeSlicing": {"replicas": 4, "renameByDefault": True},
    }
    found, problems = read(spec)
    assert problems == []
    assert found == {
        "pack": "fewest",
        "schedulers": ("volcano",),
        "scale_up_delay": 120,
        "dra_driver": "",
        "provisioning_classes": ("tgp.io/atomic",),
        "capacity_buffers": True,
        "mig": (),
        "mps": False,
        "slices": 4,
        "slices_renamed": True,
    }


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"mig": {"profiles": {"1g.10gb": 7}}}, ""),
        ({"mig": {"profiles": {"1g.24gb": 4}}}, ""),
        ({"mig": {"profiles": {"1g.10gb": 8}}}, "holds 8 × 1g.10gb on one GPU"),
        ({"mig": {"profiles": {"1g.10gb": 3, "1g.5gb": 1}}}, ""),
        ({"mig": {"profiles": {"1g.10gb": 1, "1g.24gb": 1}}}, "holds 1 × 1g.10gb and 1 × 1g.24gb on one GPU"),
        ({"mig": {"profiles": {"1g.11gb": 1}}}, "has MIG profile 1g.11gb"),
        ({"mig": {"profiles": {"1g.10gb+me": 1, "1g.10gb": 6}}}, ""),
        ({"mig": {"profiles": {"1g.10gb+me": 2}}}, "on one GPU: only one instance of a GPU has media extensions. Name a layout"),
        ({"mig": {"profiles": {"1g.24gb+me.all": 1, "1g.24gb": 1}}}, "these take 5 media engines of each kind, and it has 4"),
        ({"mig": {"profiles": {"1g.10gb+gfx": 1}}}, "has MIG profile 1g.10gb+gfx"),
        ({"mig": {"profiles": {"1g.10gb.me": 1}}}, "has MIG profile 1g.10gb.me"),
        ({"mig": {"profiles": {}}}, "names no MIG profile"),
        ({"mig": {"profiles": {"1g.10gb": 7}}, "draDriver": "gpu.nvidia.com"}, "no draDriver and no timeSlicing"),
        ({"mig": {"profiles": {"1g.10gb": 7}}, "timeSlicing": {"replicas": 2}}, "no draDriver and no timeSlicing"),
    ],
)
def test_L52_a_layout_is_one_that_some_gpu_holds(spec: dict[str, t.Any], fault: str) -> None:
    found, problems = read(spec)
    assert [fault in one for one in problems] == ([True] if fault else [])
    assert dict(found["mig"]) == spec["mig"]["profiles"]


def _only(*kinds: str) -> dict[str, t.Any]:
    return {"template": {"spec": {"requirements": [{"key": "tgp.io/gpu-type", "operator": "In", "values": list(kinds)}]}}}


@pytest.mark.parametrize(
    ("profiles", "of_class", "of_pool", "fault"),
    [
        ({"1g.10gb": 7}, (), (), ""),
        ({"1g.10gb": 7}, ("A10", "H100"), (), ""),
        ({"1g.10gb": 7}, ("A10",), (), "the MIG profiles of A10 are not known. Name profiles"),
        ({"1g.10gb": 7}, ("A100 40GB",), (), "A100 cannot hold 7 × 1g.10gb: these take 14 memory slices, and it has 8"),
        ({"1g.10gb": 7}, ("A100",), (), ""),
        ({"1g.10gb+me": 1}, ("H100-NVL",), (), "H100-NVL cannot hold 1 × 1g.10gb+me: it has no profile 1g.10gb+me, only 1g.12gb,"),
        ({"1g.12gb+me": 1}, ("H100-NVL",), (), ""),
        ({"1g.24gb+gfx": 4}, (), ("H100",), "it has no profile 1g.24gb+gfx, only"),
        ({"1g.24gb+gfx": 4}, (), ("RTXPRO6000",), ""),
        ({"1g.10gb": 7}, ("H100",), ("B200",), "B200 cannot hold 7 × 1g.10gb: it has no profile 1g.10gb, only"),
        ({"1g.10gb": 7}, (), ("no such card",), ""),
    ],
)
def test_L52_a_named_gpu_type_that_lacks_a_profile_is_a_fault(
    profiles: dict[str, int], of_class: tuple[str, ...], of_pool: tuple[str, ...], fault: str
) -> None:
    """One type that holds them is enough; a name that is no GPU is a fault of its own."""
    _found, problems = read({"mig": {"profiles": profiles}, **(_only(*of_pool) if of_pool else {})}, *of_class)
    assert [fault in one for one in problems] == ([True] if fault else [])
