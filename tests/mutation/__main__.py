# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests against faults of mutations.yml: which test notices which, which rows of docs/evidence/coverage.md that proves, a score per
package, and the faults that none notices.

One process imports pytest and the libraries, and forks once per fault; only the child imports the collection, from a copy that has the
fault. The same tests pass before without a fault, or the fault is not judged.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import hashlib
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import typing as t
from pathlib import Path

import pytest

from .copies import (
    MUTATIONS,
    ROOT,
    Mutation,
    arguments,
    arguments_of_proof,
    copy_to,
    draw,
    environment,
    failed,
    locate,
    mutated,
    noticed_by,
)

TARGET = 95  # per cent of the faults of a package
LONGEST = 300.0  # seconds of tests; a fault may well make them wait for ever
_NO_END = -1000  # no exit status, and no signal
_LIBRARIES = ("ansible.module_utils.basic", "cryptography.x509", "httpx", "hypothesis", "jinja2", "werkzeug", "xdist", "yaml")
_PRODUCT = ("ansible_collections.tgp", "sandbox", "tests.unit", "tests.contract")


@dataclasses.dataclass(frozen=True)
class Verdict:
    """``test``: which one noticed the fault, "" when none did; ``proves``: rows of docs/evidence/coverage.md whose named test failed with it;
    ``problem``: why nothing can be said. ``seconds`` of real time."""

    package: str
    file: str
    what: str
    test: str
    problem: str = ""
    survives: str = ""
    seconds: float = 0.0
    proves: str = ""

    @property
    def good(self) -> bool:
        """The fault was noticed, or survives for the reason that is given, and each row that it proves is proven."""
        return bool(self.test) != bool(self.survives) and not self.problem


def unproven(mutation: Mutation, red: t.Collection[str]) -> str:
    """Which rows of docs/evidence/coverage.md it does not prove: the test that they name passes with the fault."""
    left = [f"{row} ({test} passes)" for row, test in mutation.get("proves", {}).items() if test not in red]
    return f"does not prove {', '.join(left)}" if left else ""


class Judge:
    """Runs tests in children of this process, which has not imported anything of the collection."""

    def __init__(self, top: Path) -> None:
        self._copy = copy_to(top / "copy")
        self._output = top / "output"
        self._green: dict[str, str] = {}
        os.environ.update(environment(self._copy), CI="1")  # property tests draw the same in each run
        sys.path.insert(0, str(self._copy))
        os.chdir(ROOT)
        for name in _LIBRARIES:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        assert not [name for name in sys.modules if name.startswith(_PRODUCT)], "a child would not import it from the copy"
        sys.pycache_prefix = str(top / "bytecode")  # of what the children import: written without a fault, read with one

    def judge(self, mutation: Mutation) -> Verdict:
        """One fault."""
        began, place = time.monotonic(), locate(mutation)
        chosen, proof = arguments(mutation), arguments_of_proof(mutation)
        problem, test = self._problem(chosen) or (self._problem(proof) if proof else ""), ""
        if not problem:
            with mutated(self._copy, mutation):
                code, said = self._child(chosen, keep=False)
                red = failed(code, said)
                if proof and proof != chosen:
                    red = failed(*self._child(proof, keep=False))
            test = "no end" if code == _NO_END else noticed_by(code, said)
            if code and not test:
                problem = f"the tests cannot run with the fault: {said[-1500:]}"
            problem = problem or unproven(mutation, red)
        seconds, proven = round(time.monotonic() - began, 1), ", ".join(mutation.get("proves", {}))
        return Verdict(place.package, place.path, mutation["what"], test, problem, mutation.get("survives", ""), seconds, proven)

    def _problem(self, chosen: list[str]) -> str:
        """Why these tests cannot judge: they fail without a fault, or there are none. Asked once for each choice."""
        key = hashlib.sha256(json.dumps(chosen).encode()).hexdigest()
        if key not in self._green:
            code, said = self._child(chosen, keep=True)
            self._green[key] = f"the tests fail without a fault: {said[-1500:]}" if code else ""
        return self._green[key]

    def _child(self, chosen: list[str], *, keep: bool) -> tuple[int, str]:
        """Exit status of pytest (negative: a signal; _NO_END) and its output. ``keep`` the bytecode of what is imported."""
        with self._output.open("wb") as output:
            child = os.fork()
            if child == 0:
                os.setsid()
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                sys.dont_write_bytecode = not keep
                os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # of programs that the tests begin
                code = 3
                try:
                    code = int(pytest.main(chosen))
                finally:
                    sys.stdout.flush()
                    os._exit(code)
        code = self._wait(child)
        return code, self._output.read_text(errors="replace")

    def _wait(self, child: int) -> int:
        end = time.monotonic() + LONGEST
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done or time.monotonic() > end:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child, signal.SIGKILL)  # with what it may have left running
                if not done:
                    os.waitpid(child, 0)
                return os.waitstatus_to_exitcode(status) if done else _NO_END
            time.sleep(0.02)


def told(one: Verdict) -> str:
    """A row."""
    by = one.problem or (f"noticed by {one.test}" if one.test else f"NOT NOTICED{f': {one.survives}' if one.survives else ''}")
    proof = f", proves {one.proves}" if one.proves and not one.problem else ""
    return f"{one.package:9} {one.file:34} {one.what} - {by}{proof} ({one.seconds:.1f} s)"


def scores(verdicts: t.Sequence[Verdict]) -> tuple[list[str], bool]:
    """The table of packages and the faults that survive; and whether all is well."""
    total = collections.Counter(one.package for one in verdicts)
    noticed = collections.Counter(one.package for one in verdicts if one.test)
    rows = [f"{'package':9} {'faults':>6} {'noticed':>7} {'score':>6}"]
    rows += [f"{name:9} {count:6} {noticed[name]:7} {100 * noticed[name] / count:5.0f} %" for name, count in sorted(total.items())]
    rows.append(f"{'in all':9} {total.total():6} {noticed.total():7} {100 * noticed.total() / max(1, total.total()):5.0f} %")
    low = [name for name, count in total.items() if 100 * noticed[name] < TARGET * count]
    left = [one for one in verdicts if not one.test]
    rows += [f"survives: {one.file}: {one.what}: {one.problem or one.survives or 'no reason is given'}" for one in left]
    rows += [f"{one.problem}: {one.file}: {one.what}" for one in verdicts if one.test and one.problem]
    rows += [f"noticed, though mutations.yml says it survives: {one.what}" for one in verdicts if one.test and one.survives]
    good = not low and all(one.good for one in verdicts)
    return [*rows, *(f"below {TARGET} %: {name}" for name in sorted(low))], good


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--draw", type=int, help="so many faults, by seed; without it all")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", default="", help="faults whose file, symbol, description or proven row has this text")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each fault, and no table")
    options = parser.parse_args()
    drawn = MUTATIONS if options.draw is None else draw(options.draw, options.seed)
    chosen = [
        one
        for one in drawn
        if options.only in f"{locate(one).path} {one['symbol']} {one['what']} {' '.join(one.get('proves', {}))}"
    ]
    if not chosen:
        parser.error(f"no fault has {options.only!r} in its file, symbol, description or rows")
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="tgp-mutation-") as folder:
        judge = Judge(Path(folder))
        for mutation in chosen:
            verdicts.append(judge.judge(mutation))
            print(json.dumps(dataclasses.asdict(verdicts[-1])) if options.json else told(verdicts[-1]), flush=True)
    rows, good = scores(verdicts)
    if options.json:
        return 0
    print("", *rows, sep="\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
