# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests of the tests: small deliberate faults in the rules (mutations.yml), one at a time, each of which a rule's own test has to notice.

The collection is copied beside itself, changed there, and the tests of that rule run against the copy in a process of their own.
``pytest -s tests/mutation`` prints which test noticed which fault.
"""

from __future__ import annotations

import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from .copies import MUTATIONS, copy_to, environment, mutated, noticed_by, run


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_to(tmp_path_factory.mktemp("copy"))


def test_the_tests_run_against_the_copy_and_pass_without_a_fault(copy: Path) -> None:
    where = "from ansible_collections.tgp.gpu.plugins.module_utils.fleet import guard; print(guard.__file__)"
    told = subprocess.run(
        [sys.executable, "-c", where], env=environment(copy), capture_output=True, text=True, timeout=60, check=True
    )
    assert told.stdout.startswith(str(copy))
    passed = run(copy, "L-12")
    assert passed.returncode == 0, passed.stdout


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[f"{one['rule']}: {one['what']}" for one in MUTATIONS])
def test_a_fault_in_a_rule_is_noticed_by_a_test_of_that_rule(mutation: dict[str, str], copy: Path) -> None:
    with mutated(copy, mutation):
        noticed = run(copy, mutation["rule"])
    assert noticed.returncode == 1, f"nobody noticed that {mutation['what']}:\n{noticed.stdout[-2000:]}"
    test = noticed_by(noticed)
    assert test, noticed.stdout
    print(f"{mutation['rule']} {mutation['file']}: {mutation['what']} - noticed by {test}")


def test_every_rule_that_decides_is_mutated() -> None:
    rules: t.Collection[str] = {one["rule"] for one in MUTATIONS}
    assert len(MUTATIONS) >= 20 and len(rules) >= 14
