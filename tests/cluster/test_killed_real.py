# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``kill -9`` of whole runs on the real control plane, with no more than the shipped rights, at the writes that matter: before their
effect or after it. The same playbook once more brings the world to where it should be. Prints a table.

TGP_CLUSTER_CUTS=some cuts at the writes that decide about money, all at every one of these writes; without it nothing is cut, since the
cuts wait in real time for moments that a busy machine may miss.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import time
import typing as t
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from tests.build import built

from .gate import Gate
from .plane import Plane
from .stage import NOTHING, Stage, shipped_account

pytestmark = pytest.mark.cluster
SPEED = 2  # with a cluster whose clock cannot be moved, a sandbox must not be minutes ahead when it rents
WINDOW = 11 * 60  # a create call whose answer is lost may show its effect for ten minutes
CLUSTER = "kubernetes"
ALL = os.environ.get("TGP_CLUSTER_CUTS") == "all"
_CLAIM = r"configmaps/tgp-claim-"


@dataclasses.dataclass(frozen=True)
class Cut:
    """A write: ``name`` for people, who gets it, its "METHOD path", what its body holds; ``after`` its effect or before it."""

    name: str
    service: str
    what: str
    after: bool
    body: str = ""


def _both(name: str, service: str, what: str, body: str = "") -> list[Cut]:
    return [Cut(name, service, what, after, body) for after in (False, True)]


UNKNOWN = Cut("create", "lambda", r"POST /launch$", False)
UP = [
    Cut("claim: planned", CLUSTER, r"^POST .*configmaps$", True, "tgp-claim"),
    Cut("key of the mesh", "tailscale", r"POST /keys$", True),
    Cut("bootstrap token", CLUSTER, r"^POST .*kube-system/secrets", True),
    Cut("claim: before the create call", CLUSTER, f"^PUT .*{_CLAIM}", False, r"phase\W+Provisioning"),
    UNKNOWN,
    Cut("create", "lambda", r"POST /launch$", True),
    Cut("claim: its id", CLUSTER, f"^PUT .*{_CLAIM}", False, r"instance_id\W+[0-9a-f]{8}"),
    Cut("certificate request approved", CLUSTER, r"^PUT .*/approval", True),
    Cut("Node opened", CLUSTER, r"^PATCH .*/nodes/", True),
    Cut("bootstrap token removed", CLUSTER, r"^DELETE .*kube-system/secrets", False),
    *_both("claim: Ready", CLUSTER, f"^PUT .*{_CLAIM}", r"phase\W+Ready"),
]
DOWN = [
    Cut("claim: is to go", CLUSTER, f"^PUT .*{_CLAIM}", True),
    Cut("Node closed", CLUSTER, r"^PATCH .*/nodes/", True),
    *_both("destroy", "lambda", r"POST /terminate$"),
    *_both("device of the mesh removed", "tailscale", r"DELETE /device/"),
    *_both("Node removed", CLUSTER, r"^DELETE .*/nodes/"),
    *_both("line of the ledger", CLUSTER, r"^(POST|PUT|PATCH) .*configmaps(/tgp-ledger[^/]*)?$"),
    *_both("claim removed", CLUSTER, f"^DELETE .*{_CLAIM}"),
]


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
        self.table: list[tuple[str, ...]] = []

    def close(self) -> None:
        self.gate.__exit__()

    @contextlib.contextmanager
    def sandbox(self) -> t.Iterator[None]:
        folder = self.folder / os.urandom(3).hex()
        folder.mkdir()
        disruption = {"consolidateAfter": "0s", "minAge": "0s"}
        self.stage = Stage(self.plane, folder, disruption=disruption, speed=SPEED)
        self.stage.enter_by(self.gate.address, self.token)
        try:
            yield
        finally:
            if self.stage.claims():
                self.run("destroy", everything=True, force=True)
            self.stage.close()

    def variables(self, playbook: str) -> dict[str, t.Any]:
        own: dict[str, dict[str, t.Any]] = {
            "provision": {"pool": self.stage.pools["lambda"]},
            "autoscale": {"wait": True},
            "apply": {"plan": self.plan, "accept_refused": True},
        }
        return own.get(playbook, {})

    def run(self, playbook: str, **more: t.Any) -> t.Any:
        given = {**self.variables(playbook), **more}
        return self.stage.playbook(playbook, documents=self.stage.documents(), extra_vars=given)

    def _has_struck(self) -> bool:
        return self.stage.hits() > 0

    def kill(self, playbook: str, cut: Cut) -> None:
        """Run it, and kill it while the write is held."""
        stage = self.stage
        if cut.service == CLUSTER:
            held = self.gate.hold(cut.what, after=cut.after, body=cut.body)
            struck: t.Callable[[], bool] = held.struck.is_set
        else:
            method, _blank, path = cut.what.partition(" ")
            kind = "hang_after" if cut.after else "hang"
            stage.faults({"kind": kind, "service": cut.service, "method": method, "path": path, "seconds": 3600})
            struck = self._has_struck
        run = stage.begin(*stage.arguments(playbook, documents=stage.documents(), extra_vars=self.variables(playbook)))
        end = time.monotonic() + 90
        while not struck():
            if run.ended:
                raise AssertionError(f"{playbook} ended before the cut {cut}:\n{run.finish().text}")
            assert time.monotonic() < end, f"{playbook} never came to {cut}"
            time.sleep(0.02)
        run.kill()
        self.gate.let_go()
        stage.clear_faults()

    # ---- what is true

    def ours(self) -> list[str]:
        pool = self.stage.pools["lambda"]
        return [name for name, one in self.stage.nodes().items() if one["metadata"]["labels"].get("tgp.io/nodepool") == pool]

    def state(self) -> str:
        phases = ", ".join(one["phase"] for one in self.stage.claims().values()) or "none"
        return f"{len(self.stage.living())} machine, {len(self.ours())} Node, claim {phases}"

    def up(self) -> bool:
        claims, living = self.stage.claims(), self.stage.living()
        if [one["phase"] for one in claims.values()] != ["Ready"] or [one["name"] for one in living] != list(claims):
            return False
        taints = {one["key"] for one in self.stage.nodes()[living[0]["name"]]["spec"].get("taints", [])}
        return "tgp.io/initializing" not in taints and (not self.job or self._phase() == "Running")

    def down(self) -> bool:
        left = self.stage.left()
        return {key: left[key] for key in NOTHING} == NOTHING and not self.stage.claims() and not self.ours()

    # ---- one life

    def life(self, how: str, rise: Cut, fall: Cut) -> None:
        """A machine comes and goes; the run that rents it and the run that gives it back are both killed once."""
        begin, end = {"provision": ("provision", "reap")}.get(how, (how, how))
        if how == "autoscale":
            self._want()
        if how == "apply":
            self.run("plan", plan=self.plan, mode="provision", pool=self.stage.pools["lambda"]).succeeded()
        if rise == UNKNOWN:
            self._cut_and_wait(begin, rise)
            return
        self._cut_and_go_on(begin, rise, self.up, "provision")
        [name] = self.stage.claims()
        if self.job:
            self.stage.end_job(self.job)
            self.job = ""
        self.stage.advance(WINDOW)
        if how == "apply":
            self.run("plan", plan=self.plan, mode="reap").succeeded()
        self._cut_and_go_on(end, fall, self.down, "reap")
        self._check_books([name])

    def _cut_and_wait(self, playbook: str, cut: Cut) -> None:
        """Nobody knows whether the create call arrived: for ten minutes no run calls again (L-2)."""
        self.kill(playbook, cut)
        found = self.state()
        self.run(playbook)
        assert not self.stage.living() and [one["phase"] for one in self.stage.claims().values()] == ["Provisioning"]
        self.table.append((playbook, cut.name, "before", found, f"{self.state()}: waits", "1"))
        self._drop_job()
        self.stage.advance(WINDOW)
        self.run("destroy", everything=True, force=True).succeeded()
        assert self.down()

    def _cut_and_go_on(self, playbook: str, cut: Cut, done: t.Callable[[], bool], instead: str) -> None:
        self.kill(playbook, cut)
        found = self.state()
        said = ""
        for runs in range(1, 5):
            said = self.run(playbook if runs < 3 or playbook != "apply" else instead).text
            if self._soon(done):
                break
            self.stage.advance(WINDOW)
        else:
            raise AssertionError(f"{playbook} killed at {cut}: not finished after four runs: {self.state()}\n{said}")
        self.table.append((playbook, cut.name, "after" if cut.after else "before", found, self.state(), str(runs)))

    def _soon(self, done: t.Callable[[], bool]) -> bool:
        """A pod needs a moment to be bound and to run."""
        end = time.monotonic() + (4 if self.job and [one["phase"] for one in self.stage.claims().values()] == ["Ready"] else 0)
        while not done():
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True

    def _want(self) -> None:
        """A pod that waits for a GPU, seen by the real scheduler."""
        self.job = f"job-{os.urandom(3).hex()}"
        container = {"name": "train", "image": "example.test/train:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        spec = {
            "tolerations": [{"operator": "Exists"}],
            "nodeSelector": {"tgp.io/provider": "lambda"},
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
        }
        self.stage.plane.create("/api/v1/namespaces/default/pods", {"metadata": {"name": self.job}, "spec": spec})
        self.stage.plane.until(lambda: self._pod()["status"].get("conditions"), what="the scheduler to have looked")

    def _pod(self) -> dict[str, t.Any]:
        return self.stage.plane.get(f"/api/v1/namespaces/default/pods/{self.job}")

    def _phase(self) -> str:
        return str(self._pod()["status"].get("phase"))

    def _drop_job(self) -> None:
        if self.job:
            self.plane.delete(f"/api/v1/namespaces/default/pods/{self.job}", gracePeriodSeconds=0)
            self.job = ""

    def _check_books(self, names: list[str]) -> None:
        """One line for the machine that was, with every id of the cloud."""
        lines = [one for one in self.stage.ledger() if one["name"] in names]
        assert [one["name"] for one in lines] == names
        known = [one["id"] for one in self.stage.world()["machines"] if one["cloud"] == "lambda"]
        assert sorted(number for one in lines for number in one["ids"]) == sorted(known)
        assert not any(self.stage.lock_holders())


def _lives(how: str, chosen: slice) -> list[tuple[str, Cut, Cut]]:
    """The ``chosen`` cuts, or all, upwards and downwards together."""
    pairs = list(zip(UP, DOWN, strict=True))
    return [(how, *pair) for pair in (pairs if ALL else pairs[chosen])]


def _play(bench: Bench, lives: t.Sequence[tuple[str, Cut, Cut]]) -> None:
    for how, rise, fall in lives:
        with bench.sandbox():
            bench.life(how, rise, fall)


@pytest.mark.skipif("TGP_CLUSTER_CUTS" not in os.environ, reason="set TGP_CLUSTER_CUTS=some to kill runs on the real control plane")
def test_L02_L10_killed_at_the_writes_that_matter_on_a_real_control_plane(
    plane: Plane, tmp_path: pathlib.Path, request: pytest.FixtureRequest
) -> None:
    began = time.monotonic()
    with Plane(built("plane", request)) as other, ThreadPoolExecutor(2) as pool:
        benches = [Bench(plane, tmp_path / "one"), Bench(other, tmp_path / "two")]
        work = [
            _lives("provision", slice(0, 5, 2)),
            [*_lives("autoscale", slice(1, 6, 4)), *(_lives("apply", slice(0)) if ALL else [])],
        ]
        try:
            running = [pool.submit(_play, bench, lives) for bench, lives in zip(benches, work, strict=True)]
            wait(running)
            for one in running:
                one.result()
        finally:
            rows = [row for bench in benches for row in bench.table]
            print(f"\n{len(rows)} cuts in {time.monotonic() - began:.0f} s")
            for row in [("playbook", "write", "effect", "found by the next run", "after the rerun", "runs"), *rows]:
                print(f"{row[0]:10} {row[1]:29} {row[2]:6} {row[3]:36} {row[4]:36} {row[5]:>4}")
            for bench in benches:
                bench.close()
