# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make bench``: measures on the sandbox and prints ratios. Nothing here asserts; numbers belong into docs/evidence/benchmarks.md.

P1  provision.yml of N own machines (no pacing) ÷ (empty playbook + the longest chain one node had to wait for)
    and of N rented ones, whose chain includes the cloud's own pause of 12 s between two launches
P5  the decision alone, for a thousand machines, ten thousand pods and five thousand offers (tests/bench/planning.py)
P6  draining 50 nodes with node_drain, and with kubectl drain ten at a time (tests/bench/nodes.py)
P7  how late the play knows that the last node is Ready, and the CPU that waiting cost
P9  asking four clouds at once, five thousand offers, and two hundred launches at one cloud's pace (tests/bench/offers.py)
P10 the configurations of a thousand nodes, rendered and checked (tests/bench/configs.py)
P11 waiting for a thousand nodes while nothing happens (tests/bench/waiting.py)
P12 the bootstrap program of lane kubelet itself (tests/bench/bootstrap.py)
P13 two thousand waiting pods against five thousand offers (tests/bench/packing.py)
P14 a reap.yml that finds nothing to do in a large cluster, with a client certificate and with an exec plugin (tests/bench/idle.py)
P15 a thousand looks of autoscale.yml as a loop, and thirty in a large cluster (tests/bench/loop.py)
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import typing as t
from datetime import datetime
from pathlib import Path

import yaml

from sandbox.running import ROOT, Running

from . import bootstrap, configs, idle, loop, nodes, offers, packing, planning, waiting
from .documents import class_and_pool

SPEED = 20.0
_EMPTY = "- hosts: localhost\n  connection: local\n  gather_facts: false\n  tasks: []\n"
_PAUSE = 12.0  # seconds between two launches of one Lambda account


class Timed(t.NamedTuple):
    wall: float
    cpu: float
    tasks: int


def main() -> int:
    count = int(os.environ.get("TGP_BENCH_NODES", "20"))
    with tempfile.TemporaryDirectory(prefix="tgp-bench-") as name:
        folder = Path(name)
        rows = [*_provision(folder / "own", count, rented=False), *_provision(folder / "rented", count, rented=True)]
        rows += nodes.rows(folder / "nodes")
        rows += offers.rows(folder / "offers")
        rows += configs.rows()
        rows += waiting.rows(folder / "waiting")
        rows += bootstrap.rows()
        rows += packing.rows()
        rows += planning.rows()
        rows += idle.rows(folder / "idle")
        rows += loop.rows(folder / "loop")
    for what, value in rows:
        print(f"  {what:<78} {value}")
    return 0


def _provision(folder: Path, count: int, *, rented: bool) -> list[tuple[str, str]]:
    folder.mkdir()
    scenario = folder / "scenario.yaml"
    scenario.write_text(yaml.safe_dump(_scenario(count)))
    documents = folder / "documents.yml"
    documents.write_text(yaml.safe_dump_all(_documents(count, rented)))
    sandbox = Running(folder, speed=SPEED, scenario=str(scenario))
    try:
        empty = _empty(sandbox, folder)
        run = _playbook(sandbox, "provision", documents, count)
        again = _playbook(sandbox, "provision", documents, count)
        world = sandbox.world()
        report = _report(sandbox, world, run, empty, count, rented)
        report.append((f"  second run: wall seconds, tasks {again.tasks}", f"{again.wall:.2f}"))
        return report
    finally:
        sandbox.close()


def _report(sandbox: Running, world: dict[str, t.Any], run: Timed, empty: Timed, count: int, rented: bool) -> list[tuple[str, str]]:
    kind = "rented" if rented else "own"
    machines = [one for one in world["machines"] if one["steps"]]
    chains = [_seconds(one["created_or_started"], one["complete"]) for one in map(_story, machines)]
    pacing = _PAUSE * (count - 1) / SPEED if rented else 0.0
    chain = max(chains) / SPEED + pacing
    last = max(_moment(story["complete"]) for story in map(_story, machines))
    known = max(_moment(claim["initialized"]) for claim in _claims(sandbox))
    return [
        (f"P1 provision.yml, {count} {kind} machines: wall seconds", f"{run.wall:.2f}"),
        ("  empty playbook + longest chain (boot, join" + (", launch pauses)" if rented else ")"), f"{empty.wall + chain:.2f}"),
        ("  ratio", f"{run.wall / (empty.wall + chain):.2f}"),
        ("  CPU seconds", f"{run.cpu:.2f}"),
        ("  tasks", str(run.tasks)),
        ("P7 the play knows of the last node's GPUs after (real seconds)", f"{(known - last).total_seconds() / SPEED:.2f}"),
    ]


def _story(machine: dict[str, t.Any]) -> dict[str, str]:
    """When a machine began and when its last step was done."""
    steps = machine["steps"]
    return {"created_or_started": steps[0]["time"], "complete": steps[-1]["time"]}


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _seconds(start: str, end: str) -> float:
    return (_moment(end) - _moment(start)).total_seconds()


def _claims(sandbox: Running) -> list[dict[str, t.Any]]:
    items = sandbox.kube.get("/api/v1/namespaces/tgp-system/configmaps?labelSelector=tgp.io/claim=true").json()["items"]
    return [json.loads(one["data"]["claim.json"]) for one in items]


def _empty(sandbox: Running, folder: Path) -> Timed:
    playbook = folder / "empty.yml"
    playbook.write_text(_EMPTY)
    return _run([str(playbook)], sandbox)


def _playbook(sandbox: Running, name: str, documents: Path, count: int) -> Timed:
    return _run([f"playbooks/{name}.yml", "-e", f"tgp_documents={documents}", "-e", f"tgp_nodes={count}"], sandbox)


def _run(arguments: list[str], sandbox: Running) -> Timed:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), *arguments],
        cwd=ROOT,
        env=sandbox.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    wall = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Timed(wall, cpu, sum(1 for line in done.stdout.splitlines() if line.startswith("TASK [")))


def _scenario(count: int) -> dict[str, t.Any]:
    machines = [{"name": f"own-{number}", "gpus": 1, "model": "RTX3090", "memory_gib": 24, "boot": 60} for number in range(count)]
    return {"lambda": [{"type": "gpu_1x_a10", "region": "us-east-1", "stock": count}], "machines": machines}


def _documents(count: int, rented: bool) -> list[dict[str, t.Any]]:
    own = {
        "name": "webhook",
        "settings": {"payload": "body"},
        "machines": [
            {
                "name": f"own-{number}",
                "gpuCount": 1,
                "gpuType": "RTX3090",
                "scaleUpEndpoint": f"/own-{number}/start",
                "scaleDownEndpoint": f"/own-{number}/stop",
                "statusEndpoint": f"/own-{number}/status",
            }
            for number in range(count)
        ],
    }
    return class_and_pool({"name": "lambda", "settings": {"sshKey": "tgp"}} if rented else own, count)


if __name__ == "__main__":
    sys.exit(main())
