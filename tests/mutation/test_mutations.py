# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests of the tests: small deliberate faults in the rules (mutations.yml), one at a time, each of which a rule's own test has to notice.

The collection is copied beside itself, changed there, and the tests of that rule run against the copy in a process of their own.
``pytest -s tests/mutation`` prints which test noticed which fault.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
RULES = Path("plugins") / "module_utils" / "fleet"
MUTATIONS: list[dict[str, str]] = yaml.safe_load((Path(__file__).parent / "mutations.yml").read_text())
_FAILED = re.compile(r"^FAILED \S*::(test_L\d+a?_\w+)", re.MULTILINE)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection once more, in a folder that Python looks into first."""
    top = tmp_path_factory.mktemp("copy")
    collection = top / "ansible_collections" / "tgp" / "gpu"
    shutil.copytree(ROOT / "plugins", collection / "plugins", ignore=shutil.ignore_patterns("__pycache__"))
    return top


def run(copy: Path, rule: str) -> subprocess.CompletedProcess[str]:
    """The tests of one rule, against the copy."""
    name = f"test_{rule.replace('-', '')}_"
    files = [str(path) for path in sorted((ROOT / "tests" / "unit").rglob("test_*.py")) if f"def {name}" in path.read_text()]
    assert files, f"no test carries the name of {rule}"
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", "-k", name, *files]
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_the_tests_run_against_the_copy_and_pass_without_a_fault(copy: Path) -> None:
    where = "from ansible_collections.tgp.gpu.plugins.module_utils.fleet import guard; print(guard.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    told = subprocess.run([sys.executable, "-c", where], env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.startswith(str(copy))
    passed = run(copy, "L-12")
    assert passed.returncode == 0, passed.stdout


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[f"{one['rule']}: {one['what']}" for one in MUTATIONS])
def test_a_fault_in_a_rule_is_noticed_by_a_test_of_that_rule(mutation: dict[str, str], copy: Path) -> None:
    file = copy / "ansible_collections" / "tgp" / "gpu" / RULES / mutation["file"]
    text = file.read_text()
    assert text.count(mutation["from"]) == 1, f"{mutation['file']} has changed; write the mutation anew"
    file.write_text(text.replace(mutation["from"], mutation["to"]))
    try:
        noticed = run(copy, mutation["rule"])
    finally:
        file.write_text(text)
    assert noticed.returncode == 1, f"nobody noticed that {mutation['what']}:\n{noticed.stdout[-2000:]}"
    tests = _FAILED.findall(noticed.stdout)
    assert tests, noticed.stdout
    print(f"{mutation['rule']} {mutation['file']}: {mutation['what']} - noticed by {tests[0]}")


def test_every_rule_that_decides_is_mutated() -> None:
    rules: t.Collection[str] = {one["rule"] for one in MUTATIONS}
    assert len(MUTATIONS) >= 20 and len(rules) >= 14
