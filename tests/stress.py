# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fast tests on a machine that is busy: three processes per core do nothing but compute meanwhile. ``make unit stress=1`` runs it.

The unit level runs once. Tests of the contract level whose threads run side by side, where a race would show, run several times. Then, without
that load, the tests of whole runs once as on a machine four times as quick: what needs the world's time must wait for it, not for a slow host.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import subprocess
import sys
import time
import typing as t
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOGS_PER_CORE = 3
QUICKER = "4"
WHOLE_RUNS = ("tests/contract/act", "tests/contract/reproductions")
THREADED = ("launch", "join", "teardown", "leftovers", "rejoin", "voluntary", "tunnel")  # tests/contract/act/test_<name>.py


def _burn() -> None:
    while True:
        pass


@contextlib.contextmanager
def busy(cores: int) -> t.Iterator[int]:
    """While it lasts, so many processes take what the machine has to give."""
    hogs = [multiprocessing.Process(target=_burn, daemon=True) for _ in range(HOGS_PER_CORE * cores)]
    for hog in hogs:
        hog.start()
    try:
        yield len(hogs)
    finally:
        for hog in hogs:
            hog.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5, help="how often the tests with threads run (default: %(default)s)")
    parser.add_argument("tests", nargs="*", help="these instead, so often")
    options = parser.parse_args()
    threaded = options.tests or [f"tests/contract/act/test_{name}.py" for name in THREADED]
    rounds = [*([] if options.tests else [["tests/unit"]]), *[threaded] * options.times]
    failed = 0
    with busy(os.cpu_count() or 1) as hogs:
        for number, chosen in enumerate(rounds, 1):
            failed += not _passes(chosen, f"round {number} of {len(rounds)}", f"beside {hogs} busy processes")
    if not options.tests:
        how = f"as on a machine {QUICKER} times as quick"
        failed += not _passes(WHOLE_RUNS, "the tests of whole runs", how, TGP_TEST_QUICKER=QUICKER)
    return 1 if failed else 0


def _passes(tests: t.Sequence[str], which: str, how: str, **environment: str) -> bool:
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", *tests]
    code = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=False).returncode
    words = "passed" if code == 0 else f"FAILED (exit status {code})"
    print(f"{which} {words} {how} in {(time.monotonic() - began) / 60:.1f} min", flush=True)
    return code == 0


if __name__ == "__main__":
    sys.exit(main())
