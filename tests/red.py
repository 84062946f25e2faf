# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Shows that the tests of a defect fail on the version that has the defect: ``make red ITEM=11``, or ``make red`` for all of them.

The tests and the sandbox are those of this commit; ``plugins/`` is that of commit 4022514, in a clone that is removed afterwards. A test
proves its defect if it runs there and fails (exit status 1 of pytest; an error of an import or of the collection of tests is 2 and proves
nothing) and passes here. The exit status is 0 if all items do both.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLD = "4022514"
FOLDER = "tests/contract/reproductions"
_COUNTS = re.compile(r"(?:\d+ [a-z]+(?:, )?)+ in [0-9.]+s")
_FAILURE = re.compile(r"^(?:FAILED|ERROR) .*", re.MULTILINE)


class Played(t.NamedTuple):
    """``status``: of pytest; ``counts``: its closing words; ``failures``: one line for each."""

    status: int
    counts: str
    failures: list[str]


def items() -> dict[str, list[str]]:
    """Test files by the number of the item."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / FOLDER).glob("test_[0-9][0-9]_*.py")):
        found.setdefault(file.name[5:7], []).append(f"{FOLDER}/{file.name}")
    return found


def clone(folder: Path) -> Path:
    """This commit with the plugins of the old one."""
    there = folder / "clone"
    subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(there)], check=True)
    if subprocess.run(["git", "cat-file", "-e", f"{OLD}^{{commit}}"], cwd=there, check=False).returncode:
        raise SystemExit(f"Commit {OLD} is not in this clone. Fetch the whole history: git fetch --unshallow")
    shutil.rmtree(there / "plugins")
    subprocess.run(["git", "checkout", "-q", OLD, "--", "plugins"], cwd=there, check=True)
    link = folder / "path" / "ansible_collections" / "tgp" / "gpu"
    link.parent.mkdir(parents=True)
    link.symlink_to(there)
    return there


def play(files: list[str], where: Path, path: Path | None = None) -> Played:
    """The tests of these files; ``path``: where to look for collections first."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    if path is not None:
        environment |= {"PYTHONPATH": str(path), "ANSIBLE_COLLECTIONS_PATH": str(path)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", *files]
    done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)
    counts = _COUNTS.findall(done.stdout)
    return Played(done.returncode, counts[-1] if counts else done.stdout[-300:], _FAILURE.findall(done.stdout))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("item", nargs="?", default="", help="number of an item; all without one")
    wanted = parser.parse_args().item.zfill(2) if parser.parse_args().item else ""
    known = items()
    if wanted and wanted not in known:
        parser.error(f"there is no test for item {wanted}; known are {', '.join(known) or 'none'}")
    chosen = {wanted: known[wanted]} if wanted else known
    proven = True
    print(f"item  on {OLD}  now  tests")
    with tempfile.TemporaryDirectory(prefix="tgp-red-") as folder:
        there = clone(Path(folder))
        for number, files in chosen.items():
            before = play(files, there, Path(folder) / "path")
            after = play(files, ROOT)
            proven = proven and before.status == 1 and after.status == 0
            print(f"{number:>4}  {before.status:>10}  {after.status:>3}  {', '.join(Path(one).name for one in files)}")
            print(f"      on {OLD}: {before.counts}; now: {after.counts}")
            for line in [*before.failures, *(f"NOW {one}" for one in after.failures)]:
                print(f"      {line}", flush=True)
    print("each fails on the old plugins and passes now" if proven else "NOT PROVEN: see the exit statuses (wanted are 1 and 0)")
    return 0 if proven else 1


if __name__ == "__main__":
    sys.exit(main())
