# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""P8: a hundred pods that wait for GPUs, and an ``autoscale.yml``: from its start to the last create call, by the world's log.

A run launches five machines of a pool at most, so there are twenty pools of own machines, each with the pods that select it. Each call to the
power service takes 0.2 s.
"""

from __future__ import annotations

import copy
import time
import typing as t
from pathlib import Path

from .documents import class_and_pool, own, own_world
from .processes import empty_playbook, playbook
from .provision import BOOT, LATENCY
from .results import Row, measurement
from .world import World, seconds

PODS, EACH = 100, 5
_KEY = "bench.example/pool"
_PODS = "/api/v1/namespaces/default/pods"


def rows(folder: Path, runs: int, pods: int = PODS) -> t.Iterator[Row]:
    measured, floors = [], []
    for number in range(runs):
        with World(folder / str(number), own_world(pods, BOOT), latency=LATENCY) as world:
            documents = world.documents(_documents(pods))
            for one in range(pods):
                _wait_for_gpus(world, one)
            _until_refused(world, pods)
            floors.append(world.run(empty_playbook(world.folder)).cost.wall)
            run = world.run(playbook("autoscale", "-e", f"tgp_documents={documents}"))
            starts = [seconds(one["time"]) for one in world.sandbox.world()["writes"] if one["what"].endswith("/start")]
            if len(starts) != pods:
                raise SystemExit(f"{len(starts)} of {pods} machines were switched on")
            more = {"last create call": max(starts) - run.began, "first create call": min(starts) - run.began}
            measured.append(measurement(run, more=more))
    yield Row(
        f"P8 autoscale {pods}",
        f"autoscale.yml with {pods} waiting pods",
        "s",
        measured,
        {"empty playbook": min(floors), "create call": LATENCY},
    )


def _documents(pods: int) -> list[dict[str, t.Any]]:
    node_class, pool = class_and_pool(own(pods), pods)
    pools = []
    for number in range(pods // EACH):
        one = copy.deepcopy(pool)
        one["metadata"]["name"] = _pool(number)
        one["spec"]["template"] = {"metadata": {"labels": {_KEY: _pool(number)}}}
        pools.append(one)
    return [node_class, *pools]


def _pool(number: int) -> str:
    return f"p{number:02d}"


def _wait_for_gpus(world: World, number: int) -> None:
    """A pod of a Job that wants one GPU of its pool."""
    name = f"job-{number:03d}"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": name, "controller": True}
    container = {"name": "main", "image": "registry.example/work:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {
        "nodeSelector": {_KEY: _pool(number // EACH)},
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    body = {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}
    world.sandbox.kube.post(_PODS, json=body).raise_for_status()


def _until_refused(world: World, pods: int) -> None:
    """The scheduler has looked at all of them and found no place."""
    end = time.monotonic() + 120
    while True:
        items = world.sandbox.kube.get(_PODS).raise_for_status().json()["items"]
        refused = [one for one in items if any(c.get("reason") == "Unschedulable" for c in one["status"].get("conditions") or [])]
        if len(refused) == pods:
            return
        if time.monotonic() > end:
            raise SystemExit(f"the scheduler has looked at {len(refused)} of {pods} pods")
        time.sleep(0.2)
