# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The world that is measured against: a sandbox in a process of its own. What happened and when comes from its log, never from our records."""

from __future__ import annotations

import dataclasses
import json
import types
import typing as t
from datetime import datetime, timezone
from pathlib import Path

import httpx
import yaml

from sandbox.running import Running
from sandbox.wsgi import MACHINE_AGENT

from .processes import Cost, measured, processor_seconds

CLOUDS = ("lambda", "webhook")
DELAYED = (*CLOUDS, "tailscale")  # services whose calls are slow; the API server of the cluster is near


@dataclasses.dataclass(frozen=True)
class Story:
    """A machine by the world's log, in seconds of the world: when it was created or switched on, when its last step was done, and when the
    run wrote to its Node for the last time (None: never)."""

    name: str
    node: str
    created: float
    complete: float
    written: float | None

    @property
    def usable(self) -> float:
        """Pods may come from now on: the machine shows its GPUs, and the run has removed its taint."""
        return max(self.complete, self.written or self.complete)


@dataclasses.dataclass(frozen=True)
class Run:
    """A measured command beside the world. ``began`` and ``ended`` are moments of the world. ``calls`` are the run's, by service."""

    cost: Cost
    world_cpu: float
    calls: dict[str, int]
    began: float
    ended: float


class World:
    """``with World(folder, ...) as world``. ``latency``: each call to a cloud, a power service or the mesh takes that many seconds."""

    def __init__(self, folder: Path, scenario: dict[str, t.Any], *, speed: float = 1.0, latency: float = 0.0) -> None:
        folder.mkdir(parents=True)
        self.folder, self.speed = folder, speed
        file = folder / "scenario.yaml"
        file.write_text(yaml.safe_dump(scenario))
        self.sandbox = Running(folder / "sandbox", speed=speed, scenario=str(file))
        self.environment = {**self.sandbox.environment, "TGP_RUNTIME_DIR": self.sandbox.environment["TGP_STATE_DIR"]}
        try:
            self.slow(latency)
        except BaseException:
            self.sandbox.close()
            raise

    def __enter__(self) -> World:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None, _at: types.TracebackType | None) -> None:
        self.sandbox.close()

    def slow(self, seconds: float) -> None:
        """From now on each such call takes ``seconds`` of real time."""
        self.sandbox.control.delete("/faults").raise_for_status()
        if seconds:
            rules = [{"kind": "delay", "service": name, "seconds": seconds * self.speed, "times": None} for name in DELAYED]
            self.sandbox.control.post("/faults", json=rules).raise_for_status()

    def set_speed(self, speed: float) -> None:
        """Seconds of the world per second, from now on."""
        self.sandbox.control.post("/clock", json={"speed": speed}).raise_for_status()
        self.speed = speed

    def documents(self, documents: t.Sequence[dict[str, t.Any]], name: str = "documents") -> Path:
        path = self.folder / f"{name}.yml"
        path.write_text(yaml.safe_dump_all(documents))
        return path

    def run(self, command: t.Sequence[str]) -> Run:
        """Run a command in this world."""
        before, spent = self.calls(), self.cpu()
        cost = measured(command, self.environment)
        world_cpu, after = self.cpu() - spent, self.calls()
        calls = {name: after[name] - before.get(name, 0) for name in sorted(after) if after[name] != before.get(name, 0)}
        return Run(cost, world_cpu, calls, self.moment(cost.began), self.moment(cost.ended))

    # ---- the truth

    def calls(self) -> dict[str, int]:
        """Calls so far by service. The simulated machines' own are not among them."""
        return {str(name): int(number) for name, number in self.sandbox.world()["calls"].items()}

    def cpu(self) -> float:
        """Processor seconds of the world's process so far."""
        return processor_seconds(self.sandbox.pid)

    def moment(self, real: float) -> float:
        """The world's time at a moment of the system's clock."""
        clock = json.loads(Path(self.sandbox.variables["TGP_CLOCK_FILE"]).read_text())
        return float(clock["world"] + (real - clock["real"]) * clock["speed"])

    def stories(self) -> list[Story]:
        """The machines that ran through all their steps, in the order in which they were created."""
        world = self.sandbox.world()
        written: dict[str, float] = {}
        for one in world["writes"]:
            method, _space, path = one["what"].partition(" ")
            if one["service"] == "kubernetes" and method in ("PATCH", "PUT") and path.startswith("/api/v1/nodes/"):
                written[path.split("/")[4]] = seconds(one["time"])
        found = []
        for machine in world["machines"]:
            steps = {one["step"]: one for one in machine["steps"]}
            if "done" in steps:
                node = str(steps["node"]["text"]).split()[0]
                created, complete = seconds(machine["steps"][0]["time"]), seconds(steps["done"]["time"])
                found.append(Story(machine["name"], node, created, complete, written.get(node)))
        return sorted(found, key=lambda story: story.created)

    def machine_client(self) -> httpx.Client:
        """The cluster's administrator, as a part of the world: neither counted nor delayed."""
        kube = self.sandbox.kube
        headers = {"authorization": kube.headers["authorization"], "user-agent": MACHINE_AGENT}
        return httpx.Client(base_url=kube.base_url, headers=headers, verify=False, timeout=60)


def seconds(text: str) -> float:
    """A time of the world's log as Unix time."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(timezone.utc).timestamp()
