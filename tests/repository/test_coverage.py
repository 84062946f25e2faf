# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/evidence/coverage.md has a row for every demand, and what it calls met has code, a test, and a fault that makes the test fail."""

from __future__ import annotations

import collections
import re

from tests import coverage
from tests.mutation.copies import MUTATIONS

from .tree import ROOT, UTILS, names_of_tests

RANGES = {"S0": 47, "S1": 47, "S2": 22, "S3": 40, "S4": 30, "D": 20, "K": 6, "N": 3, "A": 39}
BUILT = (
    "B-01",
    "B-02",
    "B-03",
    "B-04",
    "B-05",
    "B-06",
    "B-07",
    "B-08",
    "B-09",
    "B-11",
    "B-14",
    "B-15",
)  # of group B those that are built
DEMANDS = [f"{group}-{number:02}" for group, last in RANGES.items() for number in range(1, last + 1)] + [*BUILT]
STATES = ("met", "met (unproven)", "partial", "planned", "refused")
TEXT = coverage.PAGE.read_text(encoding="utf-8")
ROWS = coverage.rows(TEXT)
PROOFS = [(row, test) for mutation in MUTATIONS for row, test in mutation.get("proves", {}).items()]


def test_every_demand_has_exactly_one_row() -> None:
    assert [row.id for row in ROWS] == DEMANDS


def test_states_and_their_numbers() -> None:
    counted = collections.Counter(row.state for row in ROWS)
    assert set(counted) <= set(STATES)
    assert ", ".join(f"{counted[state]} {state}" for state in STATES) in TEXT


def test_what_is_met_is_shown_by_a_test() -> None:
    unknown = {row.id: set(row.tests) - names_of_tests() for row in ROWS if set(row.tests) - names_of_tests()}
    assert unknown == {}
    assert [row.id for row in ROWS if row.state.startswith("met") and not row.tests] == []


def test_what_is_met_is_proven_by_a_fault() -> None:
    """That the fault makes the test fail is what the level mutation shows."""
    assert {row.id for row in ROWS if row.state == "met"} == {row for row, _test in PROOFS}
    named = {row.id: row.tests for row in ROWS}
    assert [(row, test) for row, test in PROOFS if test not in named[row] or not coverage.node_ids(test)] == []


def test_no_row_about_money_deletion_secrets_or_joins_is_unproven() -> None:
    groups = re.findall(r"^- (Money|Deletion|Secrets|Joins): ([A-Z0-9, \n-]+)\.$", TEXT, re.MULTILINE)
    states = {row.id: row.state for row in ROWS}
    named = [one for _group, ids in groups for one in re.findall(r"[A-Z]\d*-\d+", ids)]
    assert [group for group, _ids in groups] == ["Money", "Deletion", "Secrets", "Joins"] and len(set(named)) == len(named) >= 60
    assert {one: states[one] for one in named if states[one] not in ("met", "partial")} == {}


def test_every_row_says_where_and_the_place_exists() -> None:
    assert [row.id for row in ROWS if not (row.demand and row.where)] == []
    missing = [(row.id, path) for row in ROWS for path in _paths(row.where) if not _exists(path, row.state)]
    assert missing == []


def _paths(where: str) -> list[str]:
    return re.findall(r"`(?!tgp\.io)([\w./-]+/[\w./-]*|[\w-]+\.(?:py|md|ya?ml))`", where)


def _exists(path: str, state: str) -> bool:
    if state == "planned" and path == "diagnose.yml":
        return True
    return any((folder / path).exists() for folder in (ROOT, UTILS, ROOT / "playbooks"))
