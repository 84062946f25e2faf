# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of ``python -m tests.findings``: each finding is told apart from how it was, and held by a test that exists."""

from __future__ import annotations

import ast
import functools

import pytest

from tests.findings.__main__ import numbered
from tests.findings.desk import Done
from tests.findings.row import Row, ended

from .tree import ROOT

ROWS = numbered()


@functools.cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(one.name for one in tree.body if isinstance(one, ast.FunctionDef) and one.name.startswith("test_"))


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_the_test_of_a_finding_exists(row: Row) -> None:
    file, _sep, name = row.test.partition("::")
    assert file.startswith("tests/") and (ROOT / file).is_file() and name in names_in(file), row.test


def test_each_item_has_its_findings() -> None:
    assert {row.item for row in ROWS.values()} == set(range(1, 14))
    assert len({row.finding for row in ROWS.values()}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_before_and_after_differ(row: Row) -> None:
    """What fits both is no finding."""
    before, after = row.before, row.after
    assert (before.rc, set(before.words)) != (after.rc, set(after.words))
    if before.rc == after.rc:
        assert before.words and after.words and before.words[0] != after.words[0]


def test_what_differs_from_the_table_is_told() -> None:
    wanted = ended(2, "billed", never=("destroyed",))
    assert wanted.faults(Done(2, "it exists\nand is billed")) == []
    assert wanted.faults(Done(0, "it was destroyed")) == [
        "exit status 0, it has to be 2",
        "it does not say 'billed'",
        "it says 'destroyed'",
    ]
    assert wanted.telling(Done(2, "TASK [x] *****\nFirst of all. It is billed.")) == "…It is billed."
