# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""P11: what waiting for a thousand nodes costs while nothing happens: calls, memory, processor. In real time, against the sandbox's
Kubernetes in a process of its own; the nodes exist and are not Ready."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sandbox.running import ROOT, Running

from .nodes import Bench, Plain
from .processes import peak_memory, processor_seconds

COUNT = 1000
SETTLE, WATCHED = 8.0, 30.0  # seconds until all is listed, and seconds that are measured


def rows(folder: Path) -> list[Plain]:
    folder.mkdir()
    sandbox = Running(folder, speed=1)
    try:
        return _rows(sandbox, Bench(sandbox, folder))
    finally:
        sandbox.close()


def _rows(sandbox: Running, bench: Bench) -> list[Plain]:
    names = [f"n{number:04d}" for number in range(COUNT)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: bench.node(name, ready=False), names))
    before = _calls(sandbox)
    waiter = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.waiter", *names], cwd=ROOT, env=sandbox.environment, stdout=subprocess.DEVNULL
    )
    try:
        time.sleep(SETTLE)
        started, spent, asked = time.monotonic(), processor_seconds(waiter.pid), _calls(sandbox)
        time.sleep(WATCHED)
        wall, cpu, calls = time.monotonic() - started, processor_seconds(waiter.pid) - spent, _calls(sandbox) - asked
        peak = peak_memory(waiter.pid)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: bench.report(name, ready=True), names))
        ended = time.monotonic()
        status = waiter.wait(60)
    finally:
        waiter.kill()
    if status != 0:
        raise SystemExit(f"node_wait ended with {status}")
    return [
        (f"P11 node_wait, {COUNT} nodes, {WATCHED:.0f} s in which nothing happens: % of one core", f"{100 * cpu / wall:.2f}"),
        ("  calls in that time; until then", f"{calls}; {asked - before}"),
        ("  MB of the whole process at its peak", f"{peak:.0f}"),
        ("  all became Ready; it knows after (seconds)", f"{time.monotonic() - ended:.2f}"),
    ]


def _calls(sandbox: Running) -> int:
    return int(sandbox.world()["calls"].get("kubernetes", 0))
