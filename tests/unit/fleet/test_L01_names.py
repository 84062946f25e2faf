# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-1 and L-19: names, ownership, label values."""

from __future__ import annotations

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model.names import (
    PATTERN,
    cluster_id_from_uid,
    draw,
    free_index,
    label_value,
    machine_name,
    pool_of,
)
from ansible_collections.tgp.gpu.plugins.module_utils.planner.garbage_collection.ownership import Ownership, ownership_of
from hypothesis import given
from hypothesis import strategies as st

from .build import CLUSTER, decide, instance, of, seen

LONG = "a-very-long-pool-name-that-goes-on-and-on-and-on"


@pytest.mark.parametrize(
    ("name", "expected", "pool"),
    [
        ("tgp-a1b2c3d4-training-0k3zq", Ownership.OURS, "training"),
        ("tgp-a1b2c3d4-a-b-c-9zz01", Ownership.OURS, "a-b-c"),
        ("tgp-ffffffff-training-0k3zq", Ownership.FOREIGN, "training"),
        ("tgp-a1b2c3d4-training", Ownership.UNRELATED, ""),
        ("tgp-a1b2c3d4-infer-llama", Ownership.OURS, "infer"),
        ("my-workstation", Ownership.UNRELATED, ""),
        ("tgp-A1B2C3D4-x-00000", Ownership.UNRELATED, ""),
        ("tgp-a1b2c3d4-training-0k3zq\n", Ownership.UNRELATED, ""),
    ],
)
def test_L01_verdict(name: str, expected: Ownership, pool: str) -> None:
    assert ownership_of(name, CLUSTER) is expected
    assert pool_of(name) == pool


def test_L01_pool_part_is_cut_to_forty() -> None:
    name = machine_name(CLUSTER, f"default/{LONG}", "00000")
    assert name == f"tgp-{CLUSTER}-a-very-long-pool-name-that-goes-on-and-o-00000"
    assert len(name) == 59


def test_L01_cut_never_leaves_a_dash_at_the_end() -> None:
    assert machine_name(CLUSTER, "a" * 39 + "-b", "00000") == f"tgp-{CLUSTER}-{'a' * 39}-00000"


@given(st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True), st.text(min_size=1))
def test_L01_drawn_names_are_ours_and_not_taken(pool: str, seed: str) -> None:
    first = draw(CLUSTER, f"ns/{pool}", seed, ())
    second = draw(CLUSTER, f"ns/{pool}", seed, (first,))
    assert PATTERN.fullmatch(first) and len(first) <= 59
    assert ownership_of(second, CLUSTER) is Ownership.OURS and second != first
    assert draw(CLUSTER, f"ns/{pool}", seed, ()) == first


def test_L01_free_index() -> None:
    assert free_index({0, 1, 3}) == 2
    assert free_index(()) == 0


def test_L01_cluster_id_from_namespace_uid() -> None:
    assert cluster_id_from_uid("A1B2C3D4-0000-4000-8000-000000000000") == CLUSTER


def test_L01_mark_of_another_cluster_makes_it_foreign() -> None:
    found = decide(seen(instances=(instance(created=None, marks={"cluster": "ffffffff"}),)))
    assert [action.reason for action in of(found, "report")] == ["O14"]
    assert not of(found, "destroy")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NVIDIA GeForce RTX 4090", "NVIDIA-GeForce-RTX-4090"),
        ("m:1234/5", "m-1234-5"),
        ("a" * 70, "a" * 63),
        ("-x-", "x"),
        ("", ""),
    ],
)
def test_L19_label_values(text: str, value: str) -> None:
    assert label_value(text) == value


@given(st.text())
def test_L19_label_values_are_always_valid(text: str) -> None:
    import re

    assert re.fullmatch(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", label_value(text))
