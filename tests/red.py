# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows that the tests of a defect fail on the version that has the defect: ``make red ITEM=11``, or ``make red`` for all of them.

On the old side the tests and the sandbox are those of the commit ``TESTS``, and ``plugins/`` is that of commit 4022514, in a clone that is
removed afterwards. An item is proven if each of its tests fails there with words that tell of the defect, and passes here. An error of a
fixture, of an import or of the collection of tests proves nothing, and neither does a failure without these words. Tests marked ``control``
have to pass on both.
The exit status is 0 if all items are proven.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import typing as t
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLD = "4022514"
TESTS = "6c8ab3bf6795"
"""The last commit whose tests import only what the old plugins have: what was moved since is not there."""
FOLDER = "tests/contract/reproductions"
SHOWN = {  # by item: what a failure on the old plugins says, as a regular expression
    "04": "of a deleted document",
    "05": "The documents have 1 fault; nothing was done|is not valid YAML",
    "06": "the sound class launched nothing",
    "07": "without demand|in demand was ended",
    "08": "ran on the controller|into a tenant's container|a file of the controller was read",
    "09": "foreign machine",
    "10": "billed|a second machine|terminated as gone|and it lives",
    "11": "machines of production were terminated",
    "12": "was evicted",
    "13": "the manual destroy holds it up",
    "14": "wrong clock",
    "15": "during the pull|was being pulled|last state: RUNNING",
    "16": "1 of its 2 GPUs",
    "17": "rented without a device plugin|DID NOT RAISE TgpError",
    "18": "still cost money|is not understood: it is not a JSON object|was not retried|no notice|told as a missing right",
    "19": "the playbook ends with 0|DID NOT RAISE Locked|did not wait for the lock|Another run is at work",
    "20": "tasks for machines ran on the controller",
}


class Played(t.NamedTuple):
    """``outcome``: passed, failed, error or skipped; ``text``: its exception, in full."""

    name: str
    outcome: str
    text: str

    @property
    def line(self) -> str:
        return f"{self.outcome.upper()} {self.name}: {' '.join(self.text.split())[:120]}"


def items() -> dict[str, list[str]]:
    """Test files by the number of the item."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / FOLDER).glob("test_[0-9][0-9]_*.py")):
        found.setdefault(file.name[5:7], []).append(f"{FOLDER}/{file.name}")
    return found


def clone(folder: Path) -> Path:
    """The tests of ``TESTS`` with the plugins of the old commit."""
    there = folder / "clone"
    subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(there)], check=True)
    for commit in (OLD, TESTS):
        if subprocess.run(["git", "cat-file", "-e", f"{commit}^{{commit}}"], cwd=there, check=False).returncode:
            raise SystemExit(f"Commit {commit} is not in this clone. Fetch the whole history: git fetch --unshallow")
    subprocess.run(["git", "checkout", "-q", "--detach", TESTS], cwd=there, check=True)
    shutil.rmtree(there / "plugins")
    subprocess.run(["git", "checkout", "-q", OLD, "--", "plugins"], cwd=there, check=True)
    link = folder / "path" / "ansible_collections" / "tgp" / "gpu"
    link.parent.mkdir(parents=True)
    link.symlink_to(there)
    return there


def play(files: list[str], where: Path, path: Path | None = None, marks: str = "") -> list[Played]:
    """The tests of these files; ``path``: where to look for collections first. None at all if they cannot be collected."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    if path is not None:
        environment |= {"PYTHONPATH": str(path), "ANSIBLE_COLLECTIONS_PATH": str(path)}
    with tempfile.TemporaryDirectory(prefix="tgp-red-") as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", marks, f"--junitxml={report}", *files]
        subprocess.run(command, cwd=where, env=environment, capture_output=True, check=False)
        cases = ElementTree.parse(report).iter("testcase") if report.exists() else ()
        return [_test(case) for case in cases]


def _test(case: ElementTree.Element) -> Played:
    for tag, outcome in (("error", "error"), ("failure", "failed"), ("skipped", "skipped")):
        found = case.find(tag)
        if found is not None:
            return Played(case.get("name", ""), outcome, found.get("message", ""))
    return Played(case.get("name", ""), "passed", "")


def unproven(shown: str, before: list[Played], controls: list[Played], after: list[Played]) -> list[str]:
    """Why the tests of an item prove nothing, one line each; ``before`` and ``controls`` ran on the old plugins."""
    wrong = [] if before else ["no test ran on the old plugins"]
    wrong += [f"on {OLD}: {one.line}" for one in before if one.outcome != "failed" or not re.search(shown, one.text)]
    wrong += [f"on {OLD}, a control: {one.line}" for one in controls if one.outcome != "passed"]
    wrong += [f"now: {one.line}" for one in after if one.outcome != "passed"]
    if len(after) != len(before) + len(controls):
        wrong.append(f"{len(before) + len(controls)} tests ran on {OLD} and {len(after)} now")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("item", nargs="?", default="", help="number of an item; all without one")
    wanted = parser.parse_args().item.zfill(2) if parser.parse_args().item else ""
    known = items()
    if wanted and wanted not in known:
        parser.error(f"there is no test for item {wanted}; known are {', '.join(known) or 'none'}")
    chosen = {wanted: known[wanted]} if wanted else known
    proven = True
    print(f"item  failed on {OLD}  controls  pass now  tests")
    with tempfile.TemporaryDirectory(prefix="tgp-red-") as folder:
        there = clone(Path(folder))
        for number, files in chosen.items():
            before = play(files, there, Path(folder) / "path", "not control")
            controls = play(files, there, Path(folder) / "path", "control")
            after = play(files, ROOT)
            red = sum(one.outcome == "failed" for one in before)
            green = sum(one.outcome == "passed" for one in after)
            names = ", ".join(Path(one).name for one in files)
            print(f"{number:>4}  {f'{red} of {len(before)}':>17}  {len(controls):>8}  {f'{green} of {len(after)}':>8}  {names}")
            for line in unproven(SHOWN[number], before, controls, after):
                proven = False
                print(f"      {line}")
            sys.stdout.flush()
    print("each fails on the old plugins by its defect, and passes now" if proven else "NOT PROVEN: see the lines above")
    return 0 if proven else 1


if __name__ == "__main__":
    sys.exit(main())
