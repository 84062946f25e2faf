# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A class that changes while its machines run: reported, kept by a budget, replaced in order."""

from __future__ import annotations

import typing as t

import pytest

from tests.fixtures.demo import demo_documents

from .box import NOTHING, Sandbox, by_name

MIN_AGE = 10 * 60 + 60


@pytest.fixture
def sandbox(start: t.Callable[..., Sandbox]) -> Sandbox:
    return start(speed=100)


def names(sandbox: Sandbox) -> set[str]:
    return {one["name"] for one in sandbox.living()}


def test_L9_a_drifted_node_is_replaced_in_order_and_a_closed_budget_keeps_it(sandbox: Sandbox) -> None:
    """Over several runs: reported, kept by a budget, then ended one after the other by reap.yml and rented again by provision.yml."""
    documents = demo_documents()
    sandbox.playbook("provision", documents=documents, extra_vars={"nodes": {"training": 2, "own": 0}}).succeeded()
    before = names(sandbox)
    assert len(before) == 2
    by_name(documents, "GPUNodeClass", "demo")["spec"]["talosConfig"]["patches"] = ["machine: {sysctls: {vm.swappiness: '10'}}"]
    pool = by_name(documents, "GPUNodePool", "training")["spec"]
    pool["disruption"] |= {"consolidationPolicy": "Never", "budgets": [{"nodes": "0", "reasons": ["Drifted"]}]}
    sandbox.advance(MIN_AGE)

    told = sandbox.playbook("reap", documents=documents).succeeded()
    assert told.words.count("made from an older class or pool; it stays") == 2 and names(sandbox) == before

    pool["disruption"]["driftPolicy"] = "Replace"
    with sandbox.moment():
        kept = sandbox.playbook("reap", documents=documents).succeeded()
        assert kept.words.count("kept by disruption budget 0") == 2 and names(sandbox) == before
        writes = sandbox.writes()
        assert sandbox.playbook("reap", documents=documents).succeeded().count("changed") == 0
        assert sandbox.writes() == writes, "a second run without change writes nothing"

    pool["disruption"]["budgets"] = [{"nodes": "50%"}]
    rehearsed = sandbox.playbook("reap", documents=documents, check=True).succeeded()
    assert "Drifted" in rehearsed.words and sandbox.writes() == writes and names(sandbox) == before
    for _round in range(2):
        old = names(sandbox) & before
        sandbox.playbook("reap", documents=documents).succeeded()
        assert len(names(sandbox) & before) == len(old) - 1, "one after the other"
        sandbox.playbook("provision", documents=documents, extra_vars={"nodes": {"training": 2, "own": 0}}).succeeded()
        assert len(names(sandbox)) == 2
        sandbox.advance(MIN_AGE)
    assert not names(sandbox) & before
    assert [line["reason"] for line in sandbox.ledger()] == ["Drifted", "Drifted"]
    last = sandbox.playbook("reap", documents=documents).succeeded()
    assert "older class" not in last.words and len(names(sandbox)) == 2
    sandbox.playbook("destroy", documents=documents, extra_vars={"everything": True}).succeeded()
    assert sandbox.left() == NOTHING
