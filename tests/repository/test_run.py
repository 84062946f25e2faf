# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs the checks cannot be content with having run none."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import yaml

from tests import run

from .tree import ROOT, below, name


@pytest.mark.parametrize("only", ["stlye", "style,typs"])
def test_a_check_that_there_is_not_is_an_error(only: str) -> None:
    done = subprocess.run([sys.executable, "tests/run.py", "--only", only], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no check" in done.stderr and "checks are style, types, lint" in done.stderr
    assert done.stdout == ""


def test_programs_keep_the_bytecode_of_what_they_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of what a playbook costs is else to compile again what the playbook before it compiled."""
    seen: list[str | None] = []

    def look() -> int:
        seen.append(os.environ.get("PYTHONDONTWRITEBYTECODE"))
        return 0

    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(run, "CHECKS", {"style": look})
    monkeypatch.setattr(sys, "argv", ["run.py", "--only", "style"])
    assert run.main() == 0 and seen == [None]


def test_no_rule_of_ansible_lint_is_switched_off() -> None:
    settings = yaml.safe_load((ROOT / ".ansible-lint").read_text(encoding="utf-8"))
    assert settings["profile"] == "production"
    assert set(settings) <= {"profile", "offline", "exclude_paths", "kinds"}
    assert settings["kinds"] == [{"yaml": "**/extensions/molecule/documents/*.yml"}]  # documents of ours, no playbooks
    linted = below("playbooks", "roles", "meta", "examples", "files", "extensions")
    assert [name(path) for path in linted if re.search(r"#\s*noqa", path.read_text(encoding="utf-8"))] == []


def test_the_levels_and_files_that_a_run_names_are_there() -> None:
    named = [path for levels in (*run.BESIDE, run.SAMPLE, run.SAMPLE_BESIDE) for path in levels]
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_no_fast_test_compares_the_machines_clock() -> None:
    """A machine that is busy makes such a test red; the processor's own time and the end of a wait are other things."""
    timed = re.compile(r"^\s*assert\b.*\btime\.(?:monotonic|perf_counter|time)\(\) - ", re.MULTILINE)
    assert [name(path) for path in below("tests/unit", "tests/contract", suffix=".py") if timed.search(path.read_text())] == []


def test_pytest_knows_the_marks_of_every_level() -> None:
    """One that it does not know ends a whole run before its first test, and a level that is slow or needs Go is not collected often."""
    lines = (ROOT / "pytest.ini").read_text(encoding="utf-8").partition("markers =\n")[2].splitlines()
    known = {line.strip().partition(":")[0] for line in lines} | {"parametrize", "skipif", "usefixtures", "filterwarnings", "xfail"}
    used = {
        (name(path), mark)
        for path in below("tests", suffix=".py")
        for mark in re.findall(r"\bpytest\.mark\.(\w+)", path.read_text(encoding="utf-8"))
    }
    assert {one for one in used if one[1] not in known} == set()
