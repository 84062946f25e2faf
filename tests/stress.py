# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fast tests on a machine that is busy: three processes per core do nothing but compute meanwhile. ``make unit stress=1`` runs it.

The unit level runs once. Tests of the contract level whose threads run side by side, where a race would show, run several times.
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
            began = time.monotonic()
            code = subprocess.run([sys.executable, "-m", "pytest", "-q", *chosen], cwd=ROOT, check=False).returncode
            failed += code != 0
            words = "passed" if code == 0 else f"FAILED (exit status {code})"
            minutes = (time.monotonic() - began) / 60
            print(f"round {number} of {len(rounds)} {words} beside {hogs} busy processes in {minutes:.1f} min", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
