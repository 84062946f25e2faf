# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""P14: a ``reap.yml`` that finds nothing to do in a cluster of a thousand nodes and ten thousand pods, none of them ours. What no tool could
avoid is the start of an empty playbook, and reading all nodes and pods page by page."""

from __future__ import annotations

import json
import os
import subprocess
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sandbox.running import ROOT, Running

from .nodes import Row, _Bench

NODES, PODS = 1000, 10_000
_EMPTY = "- hosts: localhost\n  connection: local\n  gather_facts: false\n  tasks: []\n"
_TIMES = 3


def rows(folder: Path) -> list[Row]:
    folder.mkdir()
    sandbox = Running(folder, speed=1)
    try:
        return _rows(sandbox, _Bench(sandbox, folder), folder)
    finally:
        sandbox.close()


def _rows(sandbox: Running, bench: _Bench, folder: Path) -> list[Row]:
    names = [f"n{number:04d}" for number in range(NODES)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: bench.node(name, ready=True), names))
        list(pool.map(lambda number: bench.pod(f"p{number:05d}", names[number % NODES]), range(PODS)))
    (folder / "empty.yml").write_text(_EMPTY)
    documents = ["-e", json.dumps({"tgp_documents": str(ROOT / "examples" / "demo")})]
    _play(sandbox, "playbooks/reap.yml", *documents)  # the first run takes notes of its own
    empty = min(_play(sandbox, str(folder / "empty.yml"))[0] for _time in range(_TIMES))
    lists = min(_lists(bench) for _time in range(_TIMES))
    wall, memory = min(_play(sandbox, "playbooks/reap.yml", *documents) for _time in range(_TIMES))
    return [
        (f"P14 reap.yml with nothing to do, {NODES} nodes, {PODS} pods: wall seconds", f"{wall:.2f}"),
        ("  empty playbook + reading all nodes and pods", f"{empty + lists:.2f}"),
        ("  ratio", f"{wall / (empty + lists):.2f}"),
        ("  MB of the largest process at its peak", f"{memory:.0f}"),
    ]


def _play(sandbox: Running, *arguments: str) -> tuple[float, float]:
    """Wall seconds and the memory of its largest process, in MB."""
    started = time.perf_counter()
    process = subprocess.Popen(
        ["ansible-playbook", *arguments], cwd=ROOT, env=sandbox.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _pid, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    if status != 0:
        raise SystemExit(f"{arguments[0]} ended with {os.waitstatus_to_exitcode(status)}")
    return wall, used.ru_maxrss * 1024 / 1e6


def _lists(bench: _Bench) -> float:
    """Seconds for all nodes and pods, in pages of five hundred."""
    started = time.perf_counter()
    for path in ("/api/v1/nodes", "/api/v1/pods"):
        token = ""
        while True:
            answer: dict[str, t.Any] = bench.call("GET", f"{path}?limit=500" + (f"&continue={token}" if token else ""))
            token = answer["metadata"].get("continue", "")
            if not token:
                break
    return time.perf_counter() - started


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        for what, value in rows(Path(name) / "idle"):
            print(f"  {what:<78} {value}")
