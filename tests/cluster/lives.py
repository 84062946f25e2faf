# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A machine comes and goes; the run that rents it and the run that gives it back are both killed once, and what a user does after that."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import time
import typing as t

from . import objects
from .bench import SYSTEM, WINDOW, Bench, Cut
from .plane import Plane
from .stage import PATIENCE

_STEP = re.compile(r"^\s+(?:launch|destroy|resume|update|orphan\S*)\s.*?\s(applied|done|refused)(?:\s{2,}(\S.*))?$", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Row:
    """A cut in the life of a machine that comes and goes by ``how``, on its ``way`` up or down: the world that the killed run left, what
    was run then, and the world after that."""

    how: str
    way: str
    playbook: str
    cut: Cut
    found: str
    then: str
    state: str


class Lives(Bench):
    """``rows``: what became of each cut. ``unsent``: how, way and cut whose write was not sent in the run that should have been cut."""

    def __init__(self, plane: Plane, folder: pathlib.Path) -> None:
        super().__init__(plane, folder)
        self.rows: list[Row] = []
        self.unsent: list[tuple[str, str, Cut]] = []

    def life(self, how: str, rise: Cut | None, fall: Cut | None) -> None:
        """A machine comes and goes; the run that rents it and the run that gives it back are both killed once."""
        self.rise(how)
        self._through(how, "up", rise, self.up)
        assert len(self.made()) == 1, f"machines ever rented: {self.made()}"
        [name] = self.stage.claims()
        self.fall(how, name)
        self._through(how, "down", fall, self.down)
        self._check_books(name)

    def rise(self, how: str) -> None:
        """What makes the next run rent."""
        if how == "autoscale":
            self._want()
        if how == "apply":
            self.make_plan("up")

    def fall(self, how: str, name: str) -> None:
        """What makes the next run give back: no work, and time. A pod of the system's has to be moved before."""
        taints = ("gpu-node", "tgp.io/ephemeral")  # and not every taint: the pod made for it must not come back to a closed Node
        spec = {**objects.pod_spec(on=name), "tolerations": [{"key": one, "operator": "Exists"} for one in taints]}
        objects.workload(self.plane, "deployments", SYSTEM, self.system, spec)
        self.plane.until(
            lambda: self.system in objects.apps(self.plane, SYSTEM, name), timeout=PATIENCE, what="the system's pod to run"
        )
        if self.job:
            path = f"/api/v1/namespaces/default/pods/{self.job}"
            self.plane.delete(path)
            self.plane.until(lambda: self.plane.find(path) is None, timeout=PATIENCE, what="the job to be gone")
            self.job = ""
        self.stage.advance(2 * WINDOW)
        if how == "apply":
            self.make_plan("down")

    def _through(self, how: str, way: str, cut: Cut | None, done: t.Callable[[], bool]) -> None:
        playbook = "reap" if (how, way) == ("provision", "down") else how
        if cut is None:
            self.run(playbook).succeeded()
            assert self.soon(done), self.state()
            return
        if not self.kill(playbook, cut):
            self.unsent.append((how, way, cut))
            assert self.soon(done), self.state()
            return
        found = self.state()
        told = self._finish(playbook, way, done, f"{playbook} killed at {cut}, which left {found}")
        self.rows.append(Row(how, way, playbook, cut, found, told, self.state()))

    def _finish(self, playbook: str, way: str, done: t.Callable[[], bool], what: str) -> str:
        """The same playbook again; for apply the same plan, and where that does not end it, a new one. Returns what was run."""
        told, text = [], ""
        for turn in range(4):
            if playbook == "apply" and turn:
                self.make_plan(way)
            result = self.run(playbook)
            text = result.text
            assert "Traceback" not in text and "MODULE FAILURE" not in text, f"{what}\n{text}"
            told.append(_told(playbook, result, new=turn > 0))
            if result.rc == 0 and self.soon(done):
                return "; ".join(told)
            if self.waits() or turn:
                told.append(f"{WINDOW // 60} min")
                self.stage.advance(WINDOW)
        raise AssertionError(f"{what}: not finished after {'; '.join(told)}: {self.state()}\n{text}")

    def soon(self, done: t.Callable[[], bool]) -> bool:
        """A pod needs a moment to be bound and to run, more of them on a busy machine."""
        coming = self.job and [one["phase"] for one in self.stage.claims().values()] == ["Ready"]
        end = time.monotonic() + (60 if coming else 3)
        while not done():
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True

    def _want(self) -> None:
        """A pod that waits for a GPU, seen by the real scheduler."""
        self.job = f"job-{os.urandom(3).hex()}"
        spec = {**objects.pod_spec(gpus=1), "tolerations": [{"operator": "Exists"}], "nodeSelector": {"tgp.io/provider": "lambda"}}
        objects.pod(self.plane, "default", self.job, spec)
        self.plane.until(lambda: self._pod()["status"].get("conditions"), timeout=PATIENCE, what="the scheduler to have looked")

    def _check_books(self, name: str) -> None:
        """One line for the machine that was, with every id of the cloud; nobody holds the lock."""
        [line] = [one for one in self.stage.ledger() if one["name"] == name]
        assert sorted(line["ids"]) == sorted(self.made())
        assert not any(self.stage.lock_holders())


def _told(playbook: str, result: t.Any, *, new: bool) -> str:
    """What was run, and of an application what it said to its steps."""
    word = "plan and apply" if playbook == "apply" and new else playbook
    steps = ", ".join(f"{result_}: {why}" if why else result_ for result_, why in _STEP.findall(result.out))
    words = f"{word} ({steps})" if playbook == "apply" and steps else word
    return words if result.rc == 0 else f"{words} [fails]"
