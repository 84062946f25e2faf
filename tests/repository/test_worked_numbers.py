# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""docs/evidence/worked_numbers.md: each number of the rules has a test, and each test that is named exists."""

from __future__ import annotations

import re

from .tree import ROOT, names_of_tests

TEXT = (ROOT / "docs" / "evidence" / "worked_numbers.md").read_text(encoding="utf-8")
NUMBERED = (
    *map(str, range(23)),
    "1a",
    "2a",
    "12a",
    "20a",
    "25",
    "26",
    "27",
    "29",
    "35",
    "36",
    "37",
    "38",
    "39",
    "40",
    "42",
    "43",
    "46",
    "51",
    "52",
    "54",
    "55",
)  # the rules that come with worked numbers
SECTIONS = dict(re.findall(r"^## L-(\d+a?) .*?\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
ROWS = {
    number: [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in body.splitlines() if line.startswith("| ")][1:]
    for number, body in SECTIONS.items()
}


def test_every_rule_with_numbers_has_its_table() -> None:
    assert list(ROWS) == sorted(NUMBERED, key=lambda number: (int(number.rstrip("a")), number))
    assert TEXT.count("\n## ") == len(ROWS)
    assert all(rows and all(len(row) == 2 and all(row) for row in rows) for rows in ROWS.values())


def test_every_number_has_a_test_that_exists() -> None:
    named = {row[0]: re.findall(r"`(test_\w+)`", row[1]) for rows in ROWS.values() for row in rows}
    assert [number for number, tests in named.items() if not tests] == []
    assert {test for tests in named.values() for test in tests} - names_of_tests() == set()


def test_tests_of_numbers_carry_the_number_of_their_rule_or_an_id_of_a_demand() -> None:
    odd = [
        (number, test)
        for number, rows in ROWS.items()
        for row in rows
        for test in re.findall(r"`(test_\w+)`", row[1])
        if not re.match(rf"test_([lL]0*{number}|[DKAIB]\d+|S\d_\d+)_", test) and test != "test_killed_at_every_write"
    ]
    assert odd == []


def test_every_case_of_leftovers_names_its_test() -> None:
    rules = (ROOT / "docs" / "reference" / "rules.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (O\d+) \|.*\| `(test_\w+)`(?:, `test_\w+`)* \|$", rules, re.MULTILINE)
    assert {case for case, _test in rows} == {f"O{number}" for number in range(1, 18)}
    assert set(re.findall(r"`(test_[A-Z]\d+_\w+)`", rules)) - names_of_tests() == set()
