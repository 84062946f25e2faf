# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make matrix``: which combinations of ansible-core and Python are valid, and what it makes of those that are missing or fail."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

import pytest
import yaml

from tests import matrix
from tests.matrix import CONTROLLERS, Combination, Row, chosen, combinations, exit_status

from .tree import ROOT

VALID = ["2.19/3.11", "2.19/3.12", "2.19/3.13", "2.20/3.12", "2.20/3.13", "2.21/3.12", "2.21/3.13", "2.22/3.13"]


def names(found: list[Combination]) -> list[str]:
    return [one.name for one in found]


def test_the_valid_combinations() -> None:
    assert names(combinations()) == VALID
    assert names(combinations({"2.30": ("3.9", "3.10")}, ("3.8", "3.9", "3.10", "3.11"))) == ["2.30/3.9", "2.30/3.10"]
    assert [one.requirement for one in combinations() if one.name in ("2.19/3.11", "2.22/3.13")] == [
        "ansible-core~=2.19.0",
        "ansible-core~=2.22.0rc0",
    ]


def test_ansible_core_names_the_same_pythons() -> None:
    """Of the release that is installed: its classifiers are the Pythons that its controllers run on."""
    core = importlib.metadata.metadata("ansible-core")
    pythons = re.findall(r"Programming Language :: Python :: (3\.\d+)$", "\n".join(core.get_all("Classifier") or ()), re.MULTILINE)
    assert (pythons[0], pythons[-1]) == CONTROLLERS[".".join(core["Version"].split(".")[:2])]


def test_the_requirements_allow_exactly_these_releases() -> None:
    releases = list(CONTROLLERS)
    beyond = f"2.{int(releases[-1].partition('.')[2]) + 1}"
    assert f"ansible-core>={releases[0]},<{beyond}\n" in (ROOT / "requirements-controller.txt").read_text(encoding="utf-8")
    runtime = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text(encoding="utf-8"))
    assert runtime["requires_ansible"] == f">={releases[0]}.0"


def test_the_page_of_versions_has_the_same_table() -> None:
    page = (ROOT / "docs" / "reference" / "versions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (2\.\d+)(?: \(pre-release [\w.]+\))? \| ([\d., ]+) \|$", page, re.MULTILINE)
    assert [f"{core}/{python}" for core, pythons in rows for python in pythons.split(", ")] == VALID
    assert re.findall(r"^\| (2\.\d+) \(pre-release", page, re.MULTILINE) == list(matrix.PRE_RELEASES)


@pytest.mark.parametrize(
    ("only", "expected"),
    [("", VALID), ("2.22", ["2.22/3.13"]), ("3.11, 2.21/3.12", ["2.19/3.11", "2.21/3.12"]), ("2.19/3.11,3.11", ["2.19/3.11"])],
)
def test_some_can_be_chosen(only: str, expected: list[str]) -> None:
    assert names(chosen(only, combinations())) == expected


@pytest.mark.parametrize("only", ["2.18", "2.22/3.12", "3.13,3.10"])
def test_what_is_no_combination_is_an_error(only: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        matrix.main(["--only", only])
    assert ended.value.code == 2
    assert "no combination " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("results", "status"),
    [
        (["3 passed", "skipped: Python 3.12 is not installed"], 0),
        (["3 passed", "FAILED: 1 failed, 2 passed"], 1),
        (["skipped: Python 3.12 is not installed"], 2),
        ([], 2),
    ],
)
def test_the_exit_status(results: list[str], status: int) -> None:
    assert exit_status([Row("2.21", "3.13", 1.0, one) for one in results]) == status


def test_a_python_that_is_missing_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(matrix, "FOLDER", tmp_path)
    monkeypatch.setattr(matrix, "find_python", lambda _version: None)
    assert matrix.main(["--only", "2.19/3.12"]) == 2
    printed = capsys.readouterr().out.splitlines()
    assert printed[1] == "ansible-core 2.19 on Python 3.12: skipped: Python 3.12 is not installed"
    assert printed[-1].split("  ")[-1] == "skipped: Python 3.12 is not installed"


def test_a_python_is_found_by_its_own_version() -> None:
    """The interpreter below this environment is found; a name that is on no machine is not."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    found = matrix.find_python(version)
    assert found is not None and not (found.parent.parent / "pyvenv.cfg").exists()
    assert matrix.find_python("3.99") is None


def test_a_failure_is_told_with_its_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One combination whose tests fail, and one whose environment cannot be made."""
    combination = Combination("2.21", "3.13")
    log = ROOT / ".cache" / "matrix" / "some.log"
    monkeypatch.setattr(matrix, "find_python", lambda _version: tmp_path)
    monkeypatch.setattr(matrix, "prepare", lambda _combination, _python: None)
    monkeypatch.setattr(matrix, "versions", lambda _combination: ("2.21.5", "3.13.0"))
    monkeypatch.setattr(matrix, "run_tests", lambda _combination, _tests: (1, "1 failed, 2 passed", log))
    assert matrix.run(combination, []).result == "FAILED: 1 failed, 2 passed, see .cache/matrix/some.log"

    def broken(_combination: Combination, _python: Path) -> None:
        raise matrix.NotReady("cannot be installed: no such release")

    monkeypatch.setattr(matrix, "prepare", broken)
    row = matrix.run(combination, [])
    assert (row.result, row.minutes, exit_status([row])) == ("FAILED: cannot be installed: no such release", None, 1)
