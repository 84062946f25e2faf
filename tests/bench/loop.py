# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""P15: autoscale.yml as a loop, a thousand looks one after the other that find nothing to do: memory and processor of both its processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sandbox.running import ROOT, Running

from .nodes import Row

LOOKS = 1000
_PAGE = os.sysconf("SC_PAGE_SIZE") / 1e6
_TICK = os.sysconf("SC_CLK_TCK")


def rows(folder: Path) -> list[Row]:
    folder.mkdir()
    sandbox = Running(folder, speed=60)
    try:
        return _rows(sandbox)
    finally:
        sandbox.close()


def _rows(sandbox: Running) -> list[Row]:
    events = Path(sandbox.variables["TGP_STATE_DIR"]) / "events.jsonl"
    command = [
        str(Path(sys.executable).parent / "ansible-playbook"),
        "playbooks/autoscale.yml",
        "-e",
        "loop=true",
        "-e",
        "interval=1",
    ]
    command += ["-e", "full_interval=1", "-e", f"loop_ticks={LOOKS}", "-e", "documents=examples/demo"]
    main = subprocess.Popen(command, cwd=ROOT, env=sandbox.environment, stdout=subprocess.DEVNULL)
    curve: list[tuple[int, float, float]] = []  # looks, MB of the worker, MB of the main process
    seconds = 0.0
    try:
        while main.poll() is None:
            worker = _worker(main.pid)
            looks = len(set(re.findall(r'"run":"([^"]+)"', events.read_text()))) if events.exists() else 0
            if worker and looks and (not curve or looks - curve[-1][0] >= LOOKS // 20):
                curve.append((looks, _memory(worker), _memory(main.pid)))
            seconds = max(seconds, _cpu(worker) if worker else 0.0)
            time.sleep(0.5)
    finally:
        main.kill()
    if main.returncode != 0:
        raise SystemExit(f"autoscale.yml ended with {main.returncode}")
    told = ", ".join(f"{looks}: {worker:.0f} + {parent:.0f}" for looks, worker, parent in curve)
    return [
        (f"P15 autoscale.yml -e loop=true, {LOOKS} looks that find nothing: CPU ms for each", f"{1000 * seconds / LOOKS:.0f}"),
        ("  MB of the worker + the main process after so many looks", told),
    ]


def _worker(pid: int) -> int | None:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(found[-1]) if found else None


def _memory(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def _cpu(pid: int) -> float:
    """Seconds so far; 0 when it has just ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICK


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="tgp-bench-") as name:
        for what, value in rows(Path(name) / "loop"):
            print(f"  {what:<78} {value}")
