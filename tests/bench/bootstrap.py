# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""P12: what the bootstrap program of lane kubelet takes itself. Every program that it calls is a stand-in that answers at once, so what is
left is the shell, its own pauses, and the start of some hundred processes; its waits are as long as on a machine."""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from tests.unit.lanes.test_bootstrap import Machine

_RUNS = 5


def rows() -> list[tuple[str, str]]:
    """The median of some first runs, and of second ones on machines that are nodes."""
    first, second = [], []
    with tempfile.TemporaryDirectory(prefix="tgp-bench-") as name:
        for number in range(_RUNS):
            machine = Machine(Path(name) / str(number))
            first.append(_run(machine))
            second.append(_run(machine))
            calls = len(machine.calls)
    return [
        ("P12 bootstrap program of lane kubelet without what it calls: seconds", f"{sorted(first)[_RUNS // 2]:.2f}"),
        (f"  a second run on the same machine; {calls} calls in both", f"{sorted(second)[_RUNS // 2]:.2f}"),
    ]


def _run(machine: Machine) -> float:
    environment = {**machine.environment, "TGP_PATIENCE": "100", "TGP_PAUSE": "2"}
    started = time.monotonic()
    subprocess.run(["bash", str(machine.root / "usr/local/sbin/tgp-bootstrap")], env=environment, check=True, capture_output=True)
    return time.monotonic() - started


if __name__ == "__main__":
    for what, value in rows():
        print(f"  {what:<78} {value}")
