# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs the checks cannot be content with having run none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

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


def groups_of(path: str) -> list[run.Group]:
    """Those that run this file."""

    def holds(group: run.Group, mark: str) -> bool:
        return any(path == one or path.startswith(f"{one}/") for one in (each.removeprefix(mark) for each in group if mark in each))

    groups = (*run.GROUPS, *run.BESIDE)
    chosen = [tuple(f"+{one}" if not one.startswith("--") else one for one in group) for group in groups]
    return [group for group in chosen if holds(group, "+") and not holds(group, "--ignore=")]


def test_a_whole_run_runs_each_test_once() -> None:
    files = [name(path) for path in below("tests", suffix=".py") if path.name.startswith("test_")]
    assert len(files) > 300
    assert {file: len(groups_of(file)) for file in files if len(groups_of(file)) != 1} == {}


def test_the_levels_and_files_that_a_run_names_are_there() -> None:
    named = [path for group in (*run.GROUPS, *run.BESIDE, run.UNIT_HALF, run.SAMPLE, run.SAMPLE_BESIDE) for path in group]
    assert [path for path in named if not (ROOT / path.removeprefix("--ignore=")).exists()] == []


@pytest.mark.parametrize("wrong", [None, 0, 4, 6])
def test_lanes_run_each_command_once_and_miss_no_failure(
    wrong: int | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    commands = [
        ["sh", "-c", f"echo said {number}; echo x >> {tmp_path}/{number}; exit {int(number == wrong)}"] for number in range(7)
    ]
    assert run.in_lanes(commands[:5], dict(os.environ), commands[5:]) == int(wrong is not None)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys("0123456", "x\n")
    printed, _lf, failed = capfd.readouterr().out.partition("FAILED: ")
    assert sorted(re.findall(r"said (\d)", printed)) == list("0123456")
    assert re.findall(r"said (\d)", failed) == ([] if wrong is None else [str(wrong)])


def test_what_runs_beside_helps_when_its_own_is_done(tmp_path: Path) -> None:
    """Else it is idle while the other two work: each of the first two goes on only once the third has run."""
    waits = [["sh", "-c", f"n=0; until [ -e {tmp_path}/third ]; do sleep 0.02; n=$((n+1)); [ $n -lt 3000 ] || exit 1; done"]] * 2
    assert run.in_lanes([waits[0], ["sh", "-c", f"touch {tmp_path}/third"], waits[1]], dict(os.environ), [["true"]]) == 0


def test_a_whole_run_ends_with_the_tests_that_failed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What a second process printed may be thousands of lines above the end."""
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_one.py").write_text(
        "import subprocess, sys\n"
        "def test_right(): subprocess.run([sys.executable, '-m', 'pytest', '-q', '-k', 'nested', __file__])\n"
        "def test_wrong(): assert 1 == 2\n"
        "def test_nested(): assert False\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert run.in_lanes([[*command, "-k", "not nested"], [*command, "-k", "right"]], environment) == 1
    *_, last = capfd.readouterr().out.partition("what ran beside them")
    failed = [line for line in last.splitlines() if line.startswith("FAILED: ")]
    assert failed[0] == "FAILED: test_one.py::test_wrong - assert 1 == 2" and len(failed) == 2
    assert failed[1].endswith("-k 'not nested'")


def test_what_needs_the_builds_waits_for_them_and_what_runs_beside_does_not(tmp_path: Path) -> None:
    """The first command of the third lane ends the build for which the others wait."""
    built = tmp_path / "built"
    process = subprocess.Popen(["sh", "-c", f"until [ -e {built} ]; do sleep 0.02; done"])
    building = run.Building(process, 0.0)
    minutes = ["sh", "-c", f"echo $TGP_MINUTES_BEFORE > {tmp_path}/minutes; test -e {built}"]
    assert run.in_lanes([minutes], dict(os.environ), [["touch", str(built)]], building) == 0
    assert process.returncode == 0 and (tmp_path / "minutes").read_text().strip() == building.minutes


def test_a_test_that_never_ends_is_one_that_failed(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import time\n\ndef test_it() -> None:\n    time.sleep(600)\n")
    command = ["-c", str(ROOT / "pytest.ini"), "--rootdir", str(tmp_path), "-o", "faulthandler_timeout=1", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *command], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode != 0 and "Timeout (0:00:01)!" in done.stderr and "in test_it" in done.stderr


def test_a_whole_run_leaves_no_check_out() -> None:
    """Those beside the tests are those that are not made before them."""
    assert set(run.LONG_CHECKS) < set(run.CHECKS) and set(run.SLOW_CHECKS) <= set(run.LONG_CHECKS)


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
