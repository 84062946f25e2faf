# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Faults of the product that are drawn by seed are found, and the stories that find them are fine without a fault."""

from __future__ import annotations

import pytest

from tests.mutation import copies

from . import edges, faults
from .story import Story, Violated


def test_two_drawn_faults_are_found() -> None:
    said: list[str] = []
    assert faults.table("4009", 2, said.append, seconds=0) == 0, "\n".join(said)
    assert said[-1].startswith("2 of 2 found by an invariant, 0 by") and all("test_L" in row for row in said[1:-1])


@pytest.mark.parametrize("name", sorted(edges.EDGES))
def test_I25_a_story_on_an_edge_is_fine_without_a_fault(name: str) -> None:
    Story(edges.EDGES[name].ground, "edge", edges.EDGES[name].lines).play()


def test_I25_bites_beside_the_number() -> None:
    assert edges.I25_worked_numbers_are_so("living", "1", 2) and not edges.I25_worked_numbers_are_so("living", "1", 1)
    with pytest.raises(Violated, match="^I-25: living is 1, and has to be 2"):
        Story("lambda", "edge", ("run provision nodes=1", "expect living 2")).play()


def test_every_story_on_an_edge_belongs_to_a_fault() -> None:
    """And each fault of a rule has one, or says why the world shows nothing of it."""
    assert set(edges.EDGES) == {one["edge"] for one in copies.MUTATIONS if "edge" in one}
    assert all(("edge" in one) != ("unseen" in one) for one in copies.MUTATIONS if "rule" in one)
    assert len(faults.drawable()) >= 40
