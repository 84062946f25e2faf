# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``python -m tests.mistakes`` makes all of them and prints number, mistake, exit status and message; with numbers it makes these. Each of a
newcomer's walk stands in it; where the walk only sums up ("wrong types", "wrong or missing") the single ones are chosen here."""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from tests.e2e.box import Sandbox

from .desk import Desk
from .table import MISTAKES

_WIDTH = 300  # characters of a message
_SAID = re.compile(r"\[ERROR\]: (?:Task failed: )?(?:Module failed: )?(.*)|.*\"msg\": \"(.*?)\"[,}]?$|(.*UNREACHABLE.*)")


def main(numbers: list[str]) -> int:
    """How many ended otherwise than they have to."""
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        sandbox = Sandbox(Path(folder) / "sandbox")
        try:
            desk = Desk(sandbox, Path(folder))
            for number, one in enumerate(MISTAKES, 1):
                if numbers and str(number) not in numbers:
                    continue
                desk.begin(number)
                done = one.make(desk)
                faults = one.faults(done)
                wrong += bool(faults)
                print(
                    f"{number:2}  {one.what:45}  rc={done.rc}  {message(done.text).replace(str(desk.folder) + '/', '')}", flush=True
                )
                for fault in faults:
                    print(f"      WRONG: {fault}")
        finally:
            sandbox.close()
    return wrong


def message(text: str) -> str:
    """What somebody reads first: the error, else the last words."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = next((next(filter(None, said.groups())) for line in lines if (said := _SAID.match(line))), lines[0] if lines else "")
    whole = " ".join([found, *lines[lines.index(found) + 1 :]]) if found in lines else found
    return whole if len(whole) <= _WIDTH else f"{whole[:_WIDTH]} …"


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
