# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What no tool could avoid, without any delay of ours: the start of an empty playbook, the boot and join of one machine in an otherwise empty
world, and the pauses that its cloud sets, counted once.

The machine is launched by the collection, since it needs a configuration, a mesh key and a token. From then on a script takes the place of
the playbook: it approves certificate requests and removes the taint as soon as they are there. Only what follows the create call counts.

``python -m tests.bench.floor DOCUMENTS`` launches the machine and waits for nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import sys
import threading
import time
import typing as t
from pathlib import Path

import httpx
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task

from .processes import empty_playbook
from .world import Story, World

EMPTY_RUNS = 5
LONGEST = 120.0  # real seconds until the machine must be complete
INITIALIZING = "tgp.io/initializing"
_REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"
_MERGE = {"content-type": "application/merge-patch+json"}
_PAUSE = 0.02  # real seconds between two looks of the script


@dataclasses.dataclass(frozen=True)
class Floor:
    """Seconds of the world. ``empty`` is the shortest of several starts, times the world's speed: all that a play itself does passes as much
    of the world's time."""

    empty: float
    chain: float
    pauses: float

    @property
    def total(self) -> float:
        return self.empty + self.chain + self.pauses


class Attendant:
    """While it is open, each request of a kubelet is approved and each new Node loses its taint at once. It belongs to the world: its calls are
    neither counted nor delayed."""

    def __init__(self, world: World) -> None:
        self._http, self._over = world.machine_client(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="attendant", daemon=True)

    def __enter__(self) -> Attendant:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()
        self._http.close()

    def _work(self) -> None:
        while not self._over.wait(_PAUSE):
            with contextlib.suppress(httpx.HTTPError):
                self._approve()
                self._open()

    def _approve(self) -> None:
        for request in self._list(_REQUESTS):
            if request["spec"]["signerName"] == _SIGNER and not (request.get("status") or {}).get("conditions"):
                approved = {"type": "Approved", "status": "True", "reason": "Benchmark", "message": "by a script"}
                path = f"{_REQUESTS}/{request['metadata']['name']}/approval"
                self._patch(path, {"status": {"conditions": [approved]}})

    def _open(self) -> None:
        for node in self._list("/api/v1/nodes"):
            taints = node["spec"].get("taints") or []
            left = [one for one in taints if one["key"] != INITIALIZING]
            if len(left) < len(taints):
                self._patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"taints": left}})

    def _list(self, path: str) -> list[dict[str, t.Any]]:
        return t.cast("list[dict[str, t.Any]]", self._http.get(path).raise_for_status().json()["items"])

    def _patch(self, path: str, body: dict[str, t.Any]) -> None:
        self._http.patch(path, json=body, headers=_MERGE).raise_for_status()


def floor(world: World, documents: Path, pauses: float) -> Floor:
    """Of an empty ``world`` whose only machine these documents order; ``pauses`` are those that a cloud sets for the row's machines."""
    empty = min(world.run(empty_playbook(world.folder)).cost.wall for _ in range(EMPTY_RUNS))
    return Floor(empty * world.speed, chain(world, documents), pauses)


def chain(world: World, documents: Path) -> float:
    """Seconds of the world from the creation of its only machine to the last step of its boot."""
    with Attendant(world):
        world.run([sys.executable, "-m", "tests.bench.floor", str(documents)])
        story = _only(world)
    return story.complete - story.created


def _only(world: World) -> Story:
    end = time.monotonic() + LONGEST
    while not (stories := world.stories()):
        if time.monotonic() > end:
            raise SystemExit(f"the machine of the floor is not complete after {LONGEST:.0f} s")
        time.sleep(0.2)
    (story,) = stories
    return story


# ---- the launch


def call(name: str, **options: t.Any) -> dict[str, t.Any]:
    """A module's result, called in this process as a play would call it."""
    module = importlib.import_module(f"ansible_collections.tgp.gpu.plugins.modules.{name}")
    spec = module.SPEC["argument_spec"]
    usual = {key: one.get("default", os.environ.get((one.get("fallback") or (0, [""]))[1][0])) for key, one in spec.items()}
    return t.cast("dict[str, t.Any]", module.run(Task(params={**usual, **options})))


def launch(documents: str) -> None:
    plan = call("fleet_plan", documents=[documents], mode="provision", nodes=1)
    call("fleet_launch", documents=[documents], run_id=plan["run_id"])
    call("fleet_unlock", run_id=plan["run_id"])


if __name__ == "__main__":
    launch(sys.argv[1])
