# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/coverage.md has a row for every demand, and what it calls met has code and a test."""

from __future__ import annotations

import collections
import re
import typing as t

from .tree import ROOT, UTILS, names_of_tests

RANGES = {"S0": 47, "S1": 47, "S2": 22, "S3": 40, "S4": 30, "D": 20, "K": 6, "N": 3, "A": 39}
DEMANDS = [f"{group}-{number:02}" for group, last in RANGES.items() for number in range(1, last + 1)]
STATES = ("met", "planned", "refused")
TEXT = (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8")


class Row(t.NamedTuple):
    """One line of a table; ``where`` and ``tests`` are what stands in backquotes there."""

    id: str
    demand: str
    state: str
    where: str
    tests: tuple[str, ...]


def _rows() -> list[Row]:
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if re.match(r"\| [A-Z]", line)]
    return [Row(one[0], one[1], one[2], one[3], tuple(re.findall(r"`(\w+)`", one[4]))) for one in cells]


ROWS = _rows()


def test_every_demand_has_exactly_one_row() -> None:
    assert [row.id for row in ROWS] == DEMANDS


def test_states_and_their_numbers() -> None:
    counted = collections.Counter(row.state for row in ROWS)
    assert set(counted) <= set(STATES)
    assert ", ".join(f"{counted[state]} {state}" for state in STATES) in TEXT


def test_what_is_met_is_shown_by_a_test() -> None:
    unknown = {row.id: set(row.tests) - names_of_tests() for row in ROWS if set(row.tests) - names_of_tests()}
    assert unknown == {}
    assert [row.id for row in ROWS if row.state == "met" and not row.tests] == []


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
