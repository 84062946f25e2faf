# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-1a for the instance modules, whose machines have any name: ours by stamp, and by name or record where a cloud can carry none."""

from __future__ import annotations

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import Capability, Instance, InstanceState, Lane
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection.ownership import made_here


@pytest.mark.parametrize(
    ("tags", "marks", "ours"),
    [
        (True, {"created": "1795000000"}, True),
        (True, {"node": "tgp-demo", "team": "a"}, True),
        (True, {}, False),
        (True, {"node": "tgp-other"}, False),
        (False, {}, True),
    ],
)
def test_L1a_a_machine_of_a_module_is_ours_by_its_stamp(tags: bool, marks: dict[str, str], ours: bool) -> None:
    capability = Capability(cloud="vast", lanes=(Lane.KUBELET,), tags=tags)
    assert made_here(Instance("vast", "101", "tgp-demo", InstanceState.RUNNING, marks=marks), capability) is ours


@pytest.mark.parametrize(
    ("name", "recorded", "ours"),
    [("tgp-demo", False, True), ("prod-db", False, False), ("prod-db", True, True), ("tgpu", False, False)],
)
def test_L1a_without_stamps_a_machine_is_ours_by_the_beginning_of_its_name_or_by_our_record(
    name: str, recorded: bool, ours: bool
) -> None:
    capability = Capability(cloud="paperspace", lanes=(Lane.KUBELET,))
    assert made_here(Instance("paperspace", "ps1", name, InstanceState.RUNNING), capability, recorded=recorded) is ours


@pytest.mark.parametrize(
    ("name", "marks", "ours"),
    [
        ("tgp-0a1b2c3d-train-x7k2p", {"cluster": "0a1b2c3d", "generation": "g"}, True),
        ("tgp-0a1b2c3d-train-x7k2p", {"cluster": "ffffffff", "generation": "g"}, False),
        ("tgp-0a1b2c3d-train-x7k2p", {"tgp:cluster": "ffffffff"}, False),
        ("tgp-0a1b2c3d-train-x7k2p", {"created": "1795000000"}, True),
        ("tgp-demo", {"cluster": "lab"}, True),  # a mark that a user chose
    ],
)
def test_L1a_a_stamp_of_another_cluster_than_the_name_says_makes_a_machine_foreign(
    name: str, marks: dict[str, str], ours: bool
) -> None:
    capability = Capability(cloud="lambda", lanes=(Lane.KUBELET,), tags=True)
    assert made_here(Instance("lambda", "101", name, InstanceState.RUNNING, marks=marks), capability) is ours
