# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plane and a sandbox for one life of a machine after another, and runs that are killed there at one of their writes."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import os
import pathlib
import time
import typing as t

from . import writes
from .gate import Gate
from .plane import Plane
from .stage import LEASES, NOTHING, PATIENCE, Stage, shipped_account

CLUSTER = "kubernetes"
SPEED = 2
WINDOW = 11 * 60  # a create call whose answer is lost may show its effect for ten minutes
BEHIND = WINDOW + 60  # a sandbox ahead of its cluster would take a new Node for an old one
SYSTEM = "kube-system"
MODES = {"up": "provision", "down": "reap"}


@dataclasses.dataclass(frozen=True)
class Write:
    """The ``number``-th write of its name in a run. ``service`` gets it; ``method`` and ``path`` (an expression) if it is no cluster."""

    service: str
    name: str
    number: int
    method: str = ""
    path: str = ""

    @property
    def label(self) -> str:
        text = self.name if self.service == CLUSTER else f"{self.service}: {self.name}"
        return f"{text} ({self.number}.)" if self.number > 1 else text


@dataclasses.dataclass(frozen=True)
class Cut:
    """A write at which a run is killed: after its effect, or before it."""

    write: Write
    after: bool

    def __str__(self) -> str:
        return f"{self.write.label}, {'after' if self.after else 'before'} its effect"


class Shop(Stage):
    """With a second offer: a create call of which nobody knows is never repeated for the same one."""

    def _scenario(self) -> dict[str, t.Any]:
        found = super()._scenario()
        found["lambda"].append({"type": "gpu_1x_a6000", "region": "us-south-2", "stock": 4, "boot": 0.5})
        return found


class Bench:
    """One plane, and playbooks that are killed. Each life has a sandbox of its own: a cluster's clock cannot be moved along."""

    def __init__(self, plane: Plane, folder: pathlib.Path) -> None:
        folder.mkdir()
        self.plane, self.folder = plane, folder
        self.gate = Gate(plane)
        self.gate.__enter__()
        self.token = shipped_account(plane)
        self.plan = str(folder / "plan.json")
        self.job = ""

    def close(self) -> None:
        self.gate.__exit__()

    @contextlib.contextmanager
    def sandbox(self) -> t.Iterator[None]:
        """A sandbox for one life. Whatever a failed life leaves is removed, so that the next begins with nothing."""
        folder = self.folder / os.urandom(3).hex()
        folder.mkdir()
        disruption = {"consolidateAfter": "0s", "minAge": "0s"}
        self.stage = Shop(self.plane, folder, disruption=disruption, speed=SPEED, behind=BEHIND)
        self.stage.enter_by(self.gate.address, self.token)
        self.job, self.system = "", f"system-{self.stage.mark}"
        try:
            yield
        finally:
            self.gate.let_go()
            self.stage.clear_faults()
            self._sweep()
            self.stage.close()

    def _sweep(self) -> None:
        if self.job:
            self.plane.delete(f"/api/v1/namespaces/default/pods/{self.job}", gracePeriodSeconds=0)
        self.plane.delete(f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{self.system}", propagationPolicy="Background")
        if self.stage.claims():
            self.run("destroy", everything=True, force=True)
        for name in self.stage.claims():
            self.plane.delete(f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{name}")
        for name in self.ours():
            self.plane.delete(f"/api/v1/nodes/{name}")
        for one in self.plane.get(LEASES)["items"]:
            if one["spec"].get("holderIdentity"):
                self.plane.patch(f"{LEASES}/{one['metadata']['name']}", {"spec": {"holderIdentity": ""}}, "merge")

    # ---- runs

    def arguments(self, playbook: str, **more: t.Any) -> list[str]:
        own: dict[str, dict[str, t.Any]] = {
            "provision": {"pool": self.stage.pools["lambda"]},
            "autoscale": {"wait": True},
            "apply": {"plan": self.plan},
            "plan": {"plan": self.plan},
        }
        return self.stage.arguments(playbook, documents=self.stage.documents(), extra_vars={**own.get(playbook, {}), **more})

    def run(self, playbook: str, **more: t.Any) -> t.Any:
        run = self.stage.begin(*self.arguments(playbook, **more))
        try:
            return run.finish(PATIENCE)
        finally:
            run.kill()

    def make_plan(self, way: str) -> None:
        only: dict[str, t.Any] = {"pool": self.stage.pools["lambda"], "nodes": 1} if way == "up" else {}
        self.run("plan", mode=MODES[way], accept_problems=True, **only).succeeded()

    def recorded(self, playbook: str) -> list[Write]:
        """Run it to its good end; its writes that took effect, in order."""
        before = len(self.stage.world()["writes"])
        marks: list[tuple[int, str]] = []
        self.gate.on_effect = lambda name: marks.append((len(self.stage.world()["writes"]), name))
        try:
            self.run(playbook).succeeded()
        finally:
            self.gate.on_effect = None
        sent = [(at, CLUSTER, name) for at, name in marks]
        for at, one in enumerate(self.stage.world()["writes"][before:], before):
            sent.append((at, one["service"], one["what"]))  # a write to the cluster that saw as many of them came before it
        counts: collections.Counter[tuple[str, str]] = collections.Counter()
        found = []
        for _at, service, what in sorted(sent, key=lambda one: (one[0], one[1] != CLUSTER)):
            name = what if service == CLUSTER else writes.of_service(what)
            counts[service, name] += 1
            more = {} if service == CLUSTER else {"method": what.partition(" ")[0], "path": writes.pattern(what)}
            found.append(Write(service, name, counts[service, name], **more))
        return found

    def kill(self, playbook: str, cut: Cut) -> bool:
        """Run it, and kill it while the write is held. False: it ended well without this write."""
        write, stage = cut.write, self.stage
        if write.service == CLUSTER:
            struck: t.Callable[[], bool] = self.gate.hold(write.name, write.number, after=cut.after).struck.is_set
        else:
            rule = {"service": write.service, "method": write.method, "path": write.path, "after_calls": write.number - 1}
            stage.faults({**rule, "kind": "hang_after" if cut.after else "hang", "seconds": 24 * 3600})
            struck = self._has_struck
        run = stage.begin(*self.arguments(playbook))
        try:
            end = time.monotonic() + PATIENCE
            while not struck():
                if run.ended:
                    run.finish().succeeded()
                    return False
                assert time.monotonic() < end, f"{playbook} neither ended nor came to the cut {cut}"
                time.sleep(0.05)
            return True
        finally:
            run.kill()
            self.gate.let_go()
            stage.clear_faults()

    def _has_struck(self) -> bool:
        return self.stage.hits() > 0

    # ---- what is true

    def ours(self) -> list[str]:
        pool = self.stage.pools["lambda"]
        return [name for name, one in self.stage.nodes().items() if one["metadata"]["labels"].get("tgp.io/nodepool") == pool]

    def made(self) -> list[str]:
        """Ids of all machines there ever were."""
        return [one["id"] for one in self.stage.world()["machines"] if one["cloud"] == "lambda"]

    def state(self) -> str:
        phases = ", ".join(one["phase"] for one in self.stage.claims().values()) or "none"
        names = {one["name"] for one in self.stage.world()["machines"] if one["cloud"] == "lambda"}
        mine = [one for one in self.stage.ledger() if one["name"] in names]
        books = ", 1 ledger line" if len(mine) == 1 else f", {len(mine)} ledger lines" if mine else ""
        return f"{len(self.stage.living())} machine, {len(self.ours())} Node, claim {phases}{books}"

    def up(self) -> bool:
        claims, living = self.stage.claims(), self.stage.living()
        if [one["phase"] for one in claims.values()] != ["Ready"] or [one["name"] for one in living] != list(claims):
            return False
        node = self.stage.nodes().get(living[0]["name"])
        if node is None:
            return False
        taints = {one["key"] for one in node["spec"].get("taints", [])}
        return "tgp.io/initializing" not in taints and (not self.job or self._job_runs())

    def _pod(self) -> dict[str, t.Any]:
        return self.plane.get(f"/api/v1/namespaces/default/pods/{self.job}")

    def _job_runs(self) -> bool:
        return bool(self._pod()["status"].get("phase") == "Running")

    def down(self) -> bool:
        left = self.stage.left()
        return {key: left[key] for key in NOTHING} == NOTHING and not self.stage.claims() and not self.ours()

    def waits(self) -> bool:
        """Whether a create call may still show its effect."""
        return not self.stage.living() and [one["phase"] for one in self.stage.claims().values()] == ["Provisioning"]
