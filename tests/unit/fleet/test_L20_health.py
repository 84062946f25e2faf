# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""L-20, as far as this version goes: a machine whose Node stays away is not paid for for ever."""

from __future__ import annotations

import dataclasses

import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.model import InstanceState

from .build import at, claim, decide, instance, node, of, one, seen


def test_L20_not_ready_for_twenty_minutes_inclusive() -> None:
    sick = node(ready=None, ready_since=at("12:00:10"))
    facts = {"claims": (claim(),), "nodes": (sick,), "instances": (instance(),)}
    assert not of(decide(seen(at("12:20"), **facts)), "destroy")
    assert one(decide(seen(at("12:20:10"), **facts)), "destroy").reason == "Unhealthy"
    unsure = {**facts, "instances": (instance(state=InstanceState.UNKNOWN),)}
    assert not of(decide(seen(at("13:00"), **unsure)), "destroy")
    timeless = {**facts, "nodes": (dataclasses.replace(sick, ready_since=None),)}
    assert not of(decide(seen(at("13:00"), **timeless)), "destroy")


def test_L20_a_node_that_somebody_deleted_counts_from_its_first_absence() -> None:
    facts = {"claims": (claim(),), "instances": (instance(),)}
    first = decide(seen(at("12:00"), **facts))
    assert not of(first, "destroy")
    assert not of(decide(seen(at("12:19:59"), findings=first.findings, **facts)), "destroy")
    assert one(decide(seen(at("12:20"), findings=first.findings, **facts)), "destroy").reason == "Unhealthy"


@pytest.mark.parametrize(
    ("size", "sick", "goes"),
    [(1, 1, True), (3, 1, True), (3, 2, False), (5, 2, True), (5, 3, False), (10, 4, True), (10, 5, False)],
)
def test_L20_guard(size: int, sick: int, goes: bool) -> None:
    claims = tuple(claim(f"tgp-a1b2c3d4-p-000{place:02d}") for place in range(size))
    nodes = tuple(node(made.name, ready=place >= sick, ready_since=at("11:10")) for place, made in enumerate(claims))
    found = decide(seen(claims=claims, nodes=nodes, instances=tuple(instance(made.name) for made in claims), pods=None))
    assert len(of(found, "destroy")) == (sick if goes else 0) and bool(found.problems) is not goes


def test_L20_a_machine_that_is_missing_meanwhile_goes_after_five_minutes_instead() -> None:
    """Ready=Unknown since 12:00:10: without its machine it is gone, not ill, and needs no twenty minutes."""
    sick = node(ready=None, ready_since=at("12:00:10"))
    first = decide(seen(at("12:03"), claims=(claim(),), nodes=(sick,)))
    missed = one(first, "update").claim
    assert missed is not None and missed.gone_since == at("12:03")
    assert not of(decide(seen(at("12:05:09"), claims=(missed,), nodes=(sick,))), "destroy")
    assert one(decide(seen(at("12:05:10"), claims=(missed,), nodes=(sick,))), "destroy").reason == "InstanceGone"
