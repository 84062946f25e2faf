# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The run lock (L-8): one changing run per cluster at a time, shared by all tasks of a playbook run through its ``run_id``.

Two locks stand behind it: a file for the runs of this machine and a Lease for all machines. Both are needed: the file works without
a network, the Lease across hosts. What is held belongs to the playbook's process (lock_file.py), not to the short-lived task.
"""

from __future__ import annotations

import contextlib
import os
import threading
import typing as t
from datetime import datetime

from ..core import tally
from ..core.clock import Clock
from ..core.errors import ApiError, InvalidInput, Locked, LockLost, TgpError
from ..core.files import state_folder
from ..core.task import Task
from ..kube.client import Kube
from ..planner.run_lock import confirmation_due, renewal_due
from .lease import DURATION, SECOND_READING, Lease
from .lock_file import LocalLock, describe

_POLL = 5.0
_SAY_EVERY = 60.0
PATIENT = 900  # seconds for which a playbook that a person calls waits for another run


class RunLock:
    """The lock of one run, for many threads: every call that costs or deletes asks ``confirm`` first, other writes ``renew_if_due``."""

    def __init__(
        self,
        kube: Kube | None,
        cluster_id: str,
        run_id: str,
        folder: str,
        clock: Clock,
        *,
        owner_pid: int | None = None,
        tell: t.Callable[..., t.Any] = lambda kind, **facts: None,
    ) -> None:
        owner = describe(owner_pid)
        self.run_id = run_id
        self._clock = clock
        self._tell = tell
        self._local = LocalLock(os.path.join(folder, f"run-{cluster_id}.lock"), run_id, owner, clock)
        self._lease = Lease(kube, cluster_id, run_id, owner, clock) if kube is not None else None
        self._mutex = threading.RLock()
        self._lost: LockLost | None = None
        self.waited = False  # for another run: what was read before is old

    def acquire(self, *, wait: float = 0, say: t.Callable[[str], None] = lambda text: None) -> bool:
        """Take both locks; True when they are new, False when this run held them already (an earlier task of it).

        Locked (with holder and age) when another run holds one and ``wait`` seconds did not help; meanwhile ``say`` gets a line a minute.
        LockLost when this run held the Lease and does not any more. The second reading of an expired Lease takes 10 s and does not count as
        waiting.
        """
        with self._mutex:
            began = self._clock.now().timestamp()
            deadline, last_said = began + wait, began - _SAY_EVERY
            while True:
                try:
                    new = self._attempt()
                    self._tell("lock", event="taken" if new else "held")
                    self._counted("taken" if new else "held", began)
                    return new
                except LockLost as lost:
                    self._tell_lost(lost)
                    raise
                except Locked as busy:
                    left = deadline - self._clock.now().timestamp()
                    if left <= 0:
                        self._counted("busy", began)
                        self._tell(
                            "lock", event="busy", holder=busy.details.get("holder"), age=busy.details.get("age"), text=busy.message
                        )
                        raise
                    passed = wait - left
                    if began + passed - last_said >= _SAY_EVERY:
                        last_said = began + passed
                        say(f"waiting for the run lock, {passed:.0f} s of {wait:.0f} s: {busy.message}")
                    self.waited = True
                    self._clock.sleep(min(_POLL, left))

    def _counted(self, result: str, began: float) -> None:
        tally.count("tgp_lock_attempts", result=result)
        if self.waited:
            tally.count("tgp_lock_wait_seconds", max(self._clock.now().timestamp() - began, 0.0))

    def _attempt(self) -> bool:
        ours = self._local.take()
        try:
            had_lease = ours and self._local.leased()
            outcome = self._take_lease()
        except BaseException:
            if not ours:
                self._local.release()
            raise
        if had_lease and outcome == "taken" and self._lease is not None:
            # it was free again, but another run may have worked in between: what this run knows is old
            self._lease.release()
            self._lost = LockLost(
                f"The run lock of run {self.run_id} was taken over and let go again by another run.",
                remedy="Nothing more is done by this run; start it again.",
            )
            raise self._lost
        try:
            self._local.renew(leased=self._lease is not None)
        except InvalidInput:
            if outcome == "taken":  # later tasks would not know that it is theirs
                self.release()
            raise
        return outcome == "taken"

    def _take_lease(self) -> str:
        if self._lease is None:
            return "taken"
        while True:
            try:
                outcome = self._lease.attempt()
            except Locked as busy:
                if self._local.leased():
                    self._lost = LockLost(str(busy), remedy="Nothing more is done by this run.", **busy.details)
                    raise self._lost from busy
                raise
            if outcome != "read_again":
                return outcome
            self._clock.sleep(SECOND_READING)

    def renew_if_due(self) -> None:
        """Renew when half the Lease's time or 5 minutes have passed since the last success. LockLost = stop at once, for good."""
        with self._mutex:
            lease, renewed = self._held()
            if lease is not None and renewal_due(renewed, self._clock.now(), duration=DURATION):
                self._renew(lease, renewed)

    def confirm(self) -> None:
        """Renew now, right before a call that costs or deletes, so that a lost lock is noticed before it. LockLost = stop
        at once, for good. An API server that does not answer is no such sign: as long as no renewal is due, the run goes on."""
        with self._mutex:
            lease, renewed = self._held()
            if lease is None or not confirmation_due(renewed, self._clock.now()):
                return
            try:
                self._renew(lease, renewed)
            except ApiError:
                if renewal_due(renewed, self._clock.now(), duration=DURATION):
                    raise

    def _held(self) -> tuple[Lease | None, datetime]:
        if self._lost is not None:
            raise self._lost
        if self._lease is None or self._lease.renewed is None:
            return None, self._clock.now()
        return self._lease, self._lease.renewed

    def _renew(self, lease: Lease, renewed: datetime) -> None:
        try:
            lease.renew()
            self._local.renew(leased=True)
        except LockLost as lost:
            self._lost = lost
            self._tell_lost(lost)
            raise
        except ApiError as error:
            passed = (self._clock.now() - renewed).total_seconds()
            if passed < DURATION:
                raise
            self._lost = LockLost(f"The run lock could not be renewed for {passed:.0f} s: {error}")
            self._tell_lost(self._lost)
            raise self._lost from error

    def release(self) -> bool:
        """Let go of both; False when this run did not hold the Lease (any more)."""
        with self._mutex:
            held = False
            try:
                if self._lease is not None and self._lost is None:
                    held = self._lease.release()
            finally:
                local = self._local.release()
            released = held if self._lease is not None else local
            self._tell("lock", event="released" if released else "not held")
            return released

    def _tell_lost(self, lost: LockLost) -> None:
        self._tell("lock", event="lost", holder=lost.details.get("holder"), text=lost.message)


def run_lock(task: Task, kube: Kube | None, run_id: str, cluster_id: str, *, owner_pid: int | None = None) -> RunLock:
    """The lock of a run, not yet taken; files lie in the task's ``state_dir``."""
    return RunLock(kube, cluster_id, run_id, state_folder(task.params), task.clock, owner_pid=owner_pid, tell=task.tell)


def take(task: Task, kube: Kube | None, run_id: str, cluster_id: str, *, wait: float = 0) -> RunLock:
    """Take the lock for a run, or go on with it when an earlier task of the run took it."""
    lock = run_lock(task, kube, run_id, cluster_id)
    lock.acquire(wait=wait, say=lambda text: task.progress(f"  {text}"))
    return lock


@contextlib.contextmanager
def held(task: Task, kube: Kube | None, run_id: str, cluster_id: str) -> t.Iterator[RunLock]:
    """The lock for one block, of a run that ends with it. Waits as long as the option ``lock_wait`` says."""
    lock = take(task, kube, run_id, cluster_id, wait=task.params["lock_wait"])
    try:
        yield lock
    finally:
        lock.release()


def resume(task: Task, kube: Kube | None, run_id: str, cluster_id: str) -> RunLock:
    """The same without waiting: for the later tasks of a run. LockLost when another run took over in between."""
    return take(task, kube, run_id, cluster_id)


def release(task: Task, kube: Kube | None, run_id: str, cluster_id: str) -> bool:
    """Let go of a run's lock; False when the run did not hold it."""
    return run_lock(task, kube, run_id, cluster_id).release()


# ---- keeps the run lock alive beside work that is long and silent: waiting for machines, draining, confirming (L-8)

_LOOK_EVERY = 60.0


class _Renewable(t.Protocol):
    def renew_if_due(self) -> None: ...


class Keeper:
    """``with Keeper(lock, clock):`` renews whenever it is due. A loss is remembered by the lock itself and met by the next call that
    asks it; a failing renewal is tried again."""

    def __init__(self, lock: _Renewable, clock: Clock) -> None:
        self._lock, self._clock = lock, clock
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="run-lock", daemon=True)

    def __enter__(self) -> Keeper:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._done.set()
        self._thread.join()

    def _keep(self) -> None:
        while not self._done.wait(_LOOK_EVERY / self._clock.speed):
            try:
                self._lock.renew_if_due()
            except LockLost:
                return
            except TgpError:
                continue  # the next one may succeed; when the time is over, the lock counts as lost
