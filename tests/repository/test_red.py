# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make red``: what it accepts as a proof that a test fails by its defect."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import red
from tests.red import Played, unproven

RED = Played("test_a", "failed", "AssertionError: the job was evicted\nassert (False)")
CONTROL = Played("test_b", "passed", "")
NOW = [Played("test_a", "passed", ""), CONTROL]
FILE = """
import pytest

@pytest.fixture
def broken():
    raise RuntimeError("the job was evicted")

def test_fails():
    assert not "x", "the job was evicted"

def test_errs(broken):
    pass

@pytest.mark.control
def test_passes():
    pass

def test_is_skipped():
    pytest.skip("the job was evicted")
"""


def test_every_item_has_the_words_of_its_defect() -> None:
    assert sorted(red.items()) == sorted(red.SHOWN)


def test_a_test_that_fails_by_its_defect_is_a_proof() -> None:
    assert unproven("was evicted", [RED], [CONTROL], NOW) == []


@pytest.mark.parametrize(
    ("before", "controls", "after", "why"),
    [
        ([RED._replace(outcome="error")], [CONTROL], NOW, "ERROR test_a"),
        ([RED._replace(text="ImportError: no module named x")], [CONTROL], NOW, "FAILED test_a: ImportError"),
        ([RED._replace(outcome="passed", text="")], [CONTROL], NOW, "PASSED test_a"),
        ([RED._replace(outcome="skipped")], [CONTROL], NOW, "SKIPPED test_a"),
        ([RED], [CONTROL._replace(outcome="failed")], NOW, "a control: FAILED test_b"),
        ([RED], [CONTROL], [RED, CONTROL], "now: FAILED test_a"),
        ([RED], [], NOW, "1 tests ran on 4022514 and 2 now"),
        ([], [], [], "no test ran"),
    ],
)
def test_anything_else_proves_nothing(before: list[Played], controls: list[Played], after: list[Played], why: str) -> None:
    (line,) = unproven("was evicted", before, controls, after)
    assert why in line


def test_outcomes_are_those_of_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_story.py").write_text(FILE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    control: a control\n")
    found = {one.name: one for one in red.play(["test_story.py"], tmp_path, marks="not control")}
    assert {name: one.outcome for name, one in found.items()} == {
        "test_fails": "failed",
        "test_errs": "error",
        "test_is_skipped": "skipped",
    }
    assert "the job was evicted" in found["test_fails"].text
    assert [one.name for one in red.play(["test_story.py"], tmp_path, marks="control")] == ["test_passes"]
    assert red.play(["test_missing.py"], tmp_path) == []
