# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rows of docs/evidence/coverage.md: what is asked for, its state, and the tests that show it."""

from __future__ import annotations

import functools
import re
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "evidence" / "coverage.md"
FAST = ("unit", "contract")  # levels whose tests can be run against a mutation


class Row(t.NamedTuple):
    """One line of a table; ``tests`` are the names in backquotes of its last cell."""

    id: str
    demand: str
    state: str
    where: str
    tests: tuple[str, ...]


def rows(text: str) -> list[Row]:
    """Of the page's text."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if re.match(r"\| [A-Z]", line)]
    return [Row(one[0], one[1], one[2], one[3], tuple(re.findall(r"`(\w+)`", one[4]))) for one in cells]


@functools.cache
def _files() -> dict[str, tuple[str, ...]]:
    """For each test of the fast levels, the files below tests/ that have one of its name."""
    found: dict[str, tuple[str, ...]] = {}
    for level in FAST:
        for path in sorted((ROOT / "tests" / level).rglob("test_*.py")):
            for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
                found[name] = (*found.get(name, ()), path.relative_to(ROOT / "tests").as_posix())
    return found


def node_ids(test: str) -> list[str]:
    """Where pytest finds the tests of this name, as "unit/fleet/test_x.py::test_y"; empty for a test of another level."""
    return [f"{path}::{test}" for path in _files().get(test, ())]
