# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pool says about machines for waiting pods."""

from __future__ import annotations

import typing as t

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.documents.node_pool import scaling
from ansible_collections.tgp.gpu.plugins.module_utils.documents.reading import Fault, Reader


def read(spec: dict[str, t.Any]) -> tuple[dict[str, t.Any], list[str]]:
    problems: list[Fault] = []
    return scaling(spec, Reader("pool.yml", problems, [])), [one.sentence for one in problems]


def test_nothing_said() -> None:
    plain = {
        "pack": "price",
        "schedulers": (),
        "scale_up_delay": 0,
        "dra_driver": "",
        "provisioning_classes": (),
        "capacity_buffers": False,
        "mig": (),
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
        ({"mig": {"profiles": {}}}, "names no MIG profile"),
        ({"mig": {"profiles": {"1g.10gb": 7}}, "draDriver": "gpu.nvidia.com"}, "no draDriver and no timeSlicing"),
        ({"mig": {"profiles": {"1g.10gb": 7}}, "timeSlicing": {"replicas": 2}}, "no draDriver and no timeSlicing"),
    ],
)
def test_L52_a_layout_is_one_that_some_gpu_holds(spec: dict[str, t.Any], fault: str) -> None:
    found, problems = read(spec)
    assert [fault in one for one in problems] == ([True] if fault else [])
    assert dict(found["mig"]) == spec["mig"]["profiles"]
