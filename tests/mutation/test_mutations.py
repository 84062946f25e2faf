# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests of the tests: small deliberate faults (mutations.yml), one at a time, each of which a test has to notice: twenty of them, drawn
by TGP_MUTATION_SEED. ``make mutation`` runs all and prints a score per package.

``pytest -s tests/mutation`` prints which test noticed which fault.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from . import copies
from .__main__ import Verdict, scores, told, unproven

SEED = os.environ.get("TGP_MUTATION_SEED", "1")
DRAWN = copies.draw(20, SEED)
_CASES = [
    {"symbol": "run_lock.py:decide", "from": "if reading.holder == me :", "to": "if False:"},  # blanks and line ends do not matter
    {"symbol": "Reading.expired", "from": "self.renewed is None or", "to": "False or"},
]


_RULE = re.compile(r"test_L(\d+)(a?)_")
# the rules that decide what is launched, kept and ended, and what is written about it
RULES = {
    "L-1", "L-1a", "L-2", "L-2a", "L-3", "L-4", "L-5", "L-6", "L-7", "L-8", "L-9", "L-10", "L-11", "L-12", "L-12a", "L-13",
    "L-14", "L-16", "L-17", "L-18", "L-19", "L-20", "L-21", "L-22", "L-23", "L-25", "L-26", "L-27", "L-28", "L-29", "L-30",
}  # fmt: skip


def rules_of(mutation: copies.Mutation) -> set[str]:
    """The rules whose own tests are named by a fault: its rule, or those in the names of the tests that have to notice it."""
    tests = [*mutation.get("proves", {}).values(), *(name.rpartition("::")[2] for name in mutation.get("tests", []))]
    names = [f"test_{mutation['rule'].replace('-', '')}_"] if "rule" in mutation else []
    return {f"L-{int(number)}{more}" for name in (*names, *tests) for number, more in _RULE.findall(name)}


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    """What was said of each drawn fault, by its description. All in one process of its own: this one has imported the collection."""
    command = [sys.executable, "-m", "tests.mutation", "--json", "--draw", "20", "--seed", SEED]
    done = subprocess.run(command, cwd=copies.ROOT, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    print(f"drawn by seed {SEED} (TGP_MUTATION_SEED)")
    found = [Verdict(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")]
    return {one.what: one for one in found}


@pytest.mark.parametrize("mutation", DRAWN, ids=[f"{one.get('rule', one['symbol'])}: {one['what']}" for one in DRAWN])
def test_a_fault_is_noticed_by_a_test(mutation: copies.Mutation, verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts[mutation["what"]]
    check(mutation, verdict)
    print(told(verdict))


def check(mutation: copies.Mutation, verdict: Verdict) -> None:
    """A test noticed the fault, one of its rule if it names a rule, and each test failed by which it proves a row of
    docs/evidence/coverage.md."""
    assert verdict.good, f"{told(verdict)}, drawn by seed {SEED}"
    if "rule" in mutation:
        assert verdict.test.startswith(f"test_{mutation['rule'].replace('-', '')}_")


def test_a_fault_that_its_named_test_does_not_notice_is_refused() -> None:
    """Although another test notices it: the row of docs/evidence/coverage.md would call itself proven by a test that passes."""
    fault = {"rule": "L-10", "what": "no destroy call is sent", "proves": {"A-22": "test_L10_order", "D-01": "test_L10_kept"}}
    noticed = Verdict(
        "fleet", "planner/garbage_collection/termination_steps.py", fault["what"], "test_L10_order", proves="A-22, D-01"
    )
    check(fault, noticed)
    assert unproven(fault, ["test_L10_order", "test_L10_kept"]) == ""
    problem = unproven(fault, ["test_L10_order"])
    assert problem == "does not prove D-01 (test_L10_kept passes)"
    refused = dataclasses.replace(noticed, problem=problem)
    with pytest.raises(AssertionError, match="does not prove D-01"):
        check(fault, refused)
    rows, good = scores([refused])
    assert (
        not good
        and rows[-1]
        == "does not prove D-01 (test_L10_kept passes): planner/garbage_collection/termination_steps.py: no destroy call is sent"
    )
    with pytest.raises(AssertionError, match="NOT NOTICED"):
        check(fault, dataclasses.replace(noticed, test=""))


@pytest.mark.parametrize("mutation", copies.MUTATIONS, ids=[one["what"] for one in copies.MUTATIONS])
def test_a_fault_fits_the_source_and_names_its_tests(mutation: copies.Mutation) -> None:
    assert copies.changed(mutation)
    assert not ("rule" in mutation and "tests" in mutation)
    assert "rule" in mutation or "tests" in mutation or mutation["proves"]
    assert copies.arguments_of_proof(mutation) or "proves" not in mutation
    if "rule" in mutation:
        prefix = f"test_{mutation['rule'].replace('-', '')}_"
        chosen = [argument for argument in copies.arguments(mutation) if not argument.startswith("-")][1:]
        assert chosen and all(argument.rpartition("::")[2].startswith(prefix) for argument in chosen)
    for name in mutation.get("tests", []):
        path, _colons, test = name.partition("::")
        assert f"def {test}(" in (copies.ROOT / "tests" / path).read_text() if test else (copies.ROOT / "tests" / path).is_file()


def test_every_rule_that_decides_is_mutated_and_no_fault_is_there_twice() -> None:
    assert sorted(RULES - {rule for one in copies.MUTATIONS for rule in rules_of(one)}) == []
    assert len({one["what"] for one in copies.MUTATIONS}) == len(copies.MUTATIONS)


def test_a_fault_that_proves_a_row_by_no_fast_test_is_refused() -> None:
    with pytest.raises(copies.Misplaced, match="no fast test is called test_of_a_slow_level"):
        copies.arguments_of_proof({"what": "a fault", "proves": {"A-22": "test_of_a_slow_level"}})


@pytest.mark.parametrize("mutation", _CASES)
def test_a_fault_is_found_by_its_tokens(mutation: copies.Mutation) -> None:
    place = copies.locate(mutation)
    assert place.path == "planner/run_lock.py" and place.package == "planner"
    assert mutation["to"] in copies.changed(mutation)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"symbol": "decide"}, "decide is there [2-9] times"),
        ({"from": "no such code"}, "has 'no such code' 0 times"),
        ({"from": "earlier"}, "has 'earlier' [1-9]"),
        ({"to": "if (reading.holder == me):"}, "says the same"),
    ],
)
def test_a_fault_that_does_not_fit_is_refused(changes: dict[str, str], problem: str) -> None:
    with pytest.raises(copies.Misplaced, match=problem):
        copies.changed({**_CASES[0], **changes})


def test_tests_run_against_the_copy_and_it_is_as_before_after_a_fault(tmp_path: Path) -> None:
    copy = copies.copy_to(tmp_path)
    file = copy / "ansible_collections/tgp/gpu/plugins/module_utils/planner/run_lock.py"
    before, times = file.read_text(), file.stat().st_mtime_ns
    rule = "from ansible_collections.tgp.gpu.plugins.module_utils.planner import run_lock as rule"
    where = f"{rule}; print(rule.__file__, rule.decide(None, None, ''))"
    command = [sys.executable, "-B", "-c", where]
    fault = {"symbol": "run_lock.py:decide", "from": 'return "free"', "to": 'return "faulty"'}
    with copies.mutated(copy, fault):
        there = subprocess.run(command, env=copies.environment(copy), capture_output=True, text=True, timeout=60, check=True)
    assert there.stdout.split() == [str(file), "faulty"]
    assert (file.read_text(), file.stat().st_mtime_ns) == (before, times)


def test_the_score_counts_survivors_by_package() -> None:
    noticed = [Verdict("act", "operations/join/node.py", f"fault {number}", "test_x") for number in range(19)]
    kept = Verdict("act", "operations/join/node.py", "kept", "", survives="the API server refuses it, too")
    rows, good = scores([*noticed, kept])
    assert (
        good
        and "act           20      19    95 %" in rows
        and "survives: operations/join/node.py: kept: the API server refuses it, too" in rows
    )
    rows, good = scores([*noticed[1:], kept])
    assert not good and rows[-1] == "below 95 %: act"
    assert not scores([*noticed, Verdict("act", "operations/join/node.py", "one", "")])[1]  # nobody says why
    assert not scores([*noticed, Verdict("act", "operations/join/node.py", "one", "", problem="the tests fail without a fault")])[1]
