# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""P15: autoscale.yml as a loop, looks one after the other that find nothing to do: memory and processor of both its processes. A thousand
looks in a small world, and thirty in one of a thousand nodes and ten thousand pods."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sandbox.running import ROOT, Running

from .idle import NODES, PODS
from .nodes import Bench, Plain
from .processes import environment, processor_seconds

LOOKS, LARGE_LOOKS = 1000, 30
_PAGE = os.sysconf("SC_PAGE_SIZE") / 1e6


class Sample(t.NamedTuple):
    """After so many looks: seconds of processor so far and MB now, of the worker and of the play's main process."""

    looks: int
    worker_cpu: float
    main_cpu: float
    worker: float
    main: float


def rows(folder: Path) -> list[Plain]:
    folder.mkdir()
    return [*_small(folder / "small"), *_large(folder / "large")]


def _small(folder: Path) -> list[Plain]:
    sandbox = Running(folder, speed=60)
    try:
        curve = _looks(sandbox, LOOKS)
    finally:
        sandbox.close()
    return [
        (f"P15 autoscale.yml -e tgp_loop=true, {LOOKS} looks that find nothing: CPU ms for each", _each(curve)),
        ("  MB of the worker + the main process after so many looks", _memory_of(curve, LOOKS // 20)),
    ]


def _large(folder: Path) -> list[Plain]:
    sandbox = Running(folder, speed=1)
    try:
        bench = Bench(sandbox, folder)
        names = [f"n{number:04d}" for number in range(NODES)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: bench.node(name, ready=True), names))
            list(pool.map(lambda number: bench.pod(f"p{number:05d}", names[number % NODES]), range(PODS)))
        curve = _looks(sandbox, LARGE_LOOKS)
    finally:
        sandbox.close()
    return [
        (f"P15 the same beside {NODES} nodes and {PODS} pods, {LARGE_LOOKS} looks: CPU ms for each", _each(curve)),
        ("  MB of the worker + the main process after so many looks", _memory_of(curve, LARGE_LOOKS // 6)),
        ("  load average at the end", f"{os.getloadavg()[0]:.1f}"),
    ]


def _each(curve: list[Sample]) -> str:
    """Without the first look, in which connections are made and the watches begin."""
    first, last = curve[1], curve[-1]
    cpu = last.worker_cpu + last.main_cpu - first.worker_cpu - first.main_cpu
    return f"{1000 * cpu / (last.looks - first.looks):.0f}"


def _memory_of(curve: list[Sample], every: int) -> str:
    shown = [curve[0]]
    for one in curve:
        if one.looks - shown[-1].looks >= every:
            shown.append(one)
    return ", ".join(f"{one.looks}: {one.worker:.0f} + {one.main:.0f}" for one in shown)


def _looks(sandbox: Running, number: int) -> list[Sample]:
    """Let the loop look so often; what was seen each time that a look had begun."""
    events = Path(sandbox.variables["TGP_STATE_DIR"]) / "events.jsonl"
    command = [
        str(Path(sys.executable).parent / "ansible-playbook"),
        "playbooks/autoscale.yml",
        "-e",
        "tgp_loop=true",
        "-e",
        "tgp_interval=1",
    ]
    command += ["-e", "tgp_full_interval=1", "-e", f"loop_ticks={number}", "-e", "tgp_documents=examples/demo"]
    main = subprocess.Popen(command, cwd=ROOT, env=environment(sandbox.environment), stdout=subprocess.DEVNULL)
    curve: list[Sample] = []
    try:
        while main.poll() is None:
            worker = _worker(main.pid)
            looks = len(set(re.findall(r'"run":"([^"]+)"', events.read_text()))) if events.exists() else 0
            if worker and looks and (not curve or looks > curve[-1].looks):
                sample = Sample(looks, processor_seconds(worker), processor_seconds(main.pid), _memory(worker), _memory(main.pid))
                curve += [sample] if sample.worker_cpu else []  # it may have ended meanwhile
            time.sleep(0.1)
    finally:
        main.kill()
    if main.returncode != 0:
        raise SystemExit(f"autoscale.yml ended with {main.returncode}")
    return curve


def _worker(pid: int) -> int | None:
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(found[-1]) if found else None


def _memory(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0.0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="tgp-bench-") as name:
        parts = {"small": _small, "large": _large}
        for part in sys.argv[1:] or parts:
            for what, value in parts[part](Path(name) / part):
                print(f"  {what:<78} {value}")
