# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""autoscale.yml over and over in one process: observe, plan, rent and terminate, join; each time a run of its own with its own lock and report.

Between two looks nothing is asked of anybody: two watches tell when something deserves a look. While pods wait or machines are on their way
there is one every ``interval`` seconds, else one every ``full_interval``.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
import types
import typing as t
from datetime import datetime, timedelta

from ..core.errors import InvalidInput, TgpError
from ..core.redact import begin_generation
from ..core.run_step import RunPart
from ..core.task import Run, Task, execute
from ..kube.auth.credentials import connect
from ..metrics import publish
from ..observe.cluster_watch import Attention
from ..observe.context import settings_of
from ..observe.options import FLEET_SPEC
from ..planner.scheduling.triggers import Watcher
from .loop_output import Teller, under_way
from .machines import join_step, scale_step, unlock_step
from .plan import STARTS, plan_run

_SPEC = {"argument_spec": FLEET_SPEC}
_CLOSING = {**_SPEC, "run_report": RunPart.CLOSE}
_PLAN: dict[str, t.Any] = {
    "mode": "autoscale", "pools": [], "nodes": None, "names": [], "all": False, "force": False, "save_to": None, "lock_wait": 0,
    "on_lock_busy": "skip", "loop": True,
}  # fmt: skip
_HOPELESS = ("invalid_input", "missing_library", "auth", "forbidden")  # in the very first look: waiting does not mend it
_SLICE = 0.25  # real seconds in which a signal, or the death of the parent, is noticed


def loop_run(task: Task) -> dict[str, t.Any]:
    """The result of fleet_loop: ``looks``, ``skipped_looks`` (another run was at work), ``failed_looks``, ``launched``, ``gone``."""
    for name in ("interval", "full_interval"):
        if task.params[name] < 1:
            raise InvalidInput(f"{task.called(name)} is {task.params[name]}.", remedy="Give a number of seconds, 1 or more.")
    if task.check_mode:
        return Loop(task, Stop()).once()
    with Stop() as stop:
        return Loop(task, stop).run()


class Loop:
    """``stop.now`` ends it after the look in progress, whatever that costs in time: what was begun with money is finished."""

    def __init__(self, task: Task, stop: Stop) -> None:
        self._task, self._stop = task, stop
        self._interval = timedelta(seconds=task.params["interval"])
        self._full = timedelta(seconds=max(task.params["full_interval"], task.params["interval"]))
        self._most: int | None = task.params.get("ticks")
        self._teller = Teller(task)
        self._waker: Waker | None = None
        self._endpoint: publish.Endpoint | None = None
        self._watch_again: datetime | None = None
        self._counts = {"looks": 0, "skipped_looks": 0, "failed_looks": 0, "launched": 0, "gone": 0}

    def once(self) -> dict[str, t.Any]:
        """One look that shows what would be done."""
        return self._call(plan_run, "fleet_plan", self._task.progress, **_PLAN)

    def run(self) -> dict[str, t.Any]:
        self._endpoint = publish.listen(self._task)
        gc.freeze()  # what is here already stays; so the collection after each look is cheap
        try:
            while True:
                began = self._task.clock.now()
                plan = self.look()
                if self._endpoint is not None:
                    self._endpoint.show(publish.current(self._task))
                if plan.get("failed") and self._counts["looks"] == 1 and plan["error"]["kind"] in _HOPELESS:
                    return plan
                if self._stop.now or (self._most is not None and self._counts["looks"] >= self._most):
                    break
                self._pause(began, hurry=under_way(plan))
                if self._stop.now:
                    break
        finally:
            self._close()
            if self._endpoint is not None:
                self._endpoint.close()
            gc.unfreeze()
        self._teller.say(f"stopped after {self._counts['looks']} looks; nothing is left half done")
        return {"changed": bool(self._counts["launched"] or self._counts["gone"]), **self._counts}

    def look(self) -> dict[str, t.Any]:
        """One run; the plan's result. A failure of any step is reported and left to the next pass."""
        self._counts["looks"] += 1
        begin_generation()
        lines: list[str] = []
        asked = _PLAN if self._counts["looks"] > 1 else {**_PLAN, "loop": STARTS}
        plan = self._call(plan_run, "fleet_plan", lines.append, **asked)
        if plan.get("failed"):
            self._counts["failed_looks"] += 1
            self._teller.failed(plan["msg"])
            self._teller.end()
            return plan
        run_id = plan["run_id"]
        try:
            if plan["outcome"] == "lock_busy":
                self._counts["skipped_looks"] += 1
                self._teller.busy(plan["msg"])
            else:
                self._teller.looked(plan, lines)
                self._act(plan, run_id)
        finally:
            self._call(unlock_step, "fleet_unlock", last=True, run_id=run_id)
            self._teller.end()
            gc.collect()  # connections of this look hang in circles; left to itself Python lets dozens of them gather
        return plan

    # ---- inside

    def _act(self, plan: dict[str, t.Any], run_id: str) -> None:
        problems = list(plan["problems"])
        names, orphans = plan["launch"] + plan["destroy"], plan["orphans"]
        if names or orphans:
            result = self._call(scale_step, "fleet_scale", run_id=run_id, names=names, only_named=True, orphans=orphans)
            self._count(result)
            problems += _problems(result)
            if result.get("failed"):  # the lock may be lost: this run does nothing more
                self._teller.problems(problems)
                return
        if plan["join"]:
            problems += _problems(self._call(join_step, "fleet_join", run_id=run_id, names=plan["join"], wait=False))
        self._teller.problems(problems)

    def _count(self, result: t.Mapping[str, t.Any]) -> None:
        results = [machine["result"] for machine in result.get("machines", ())]
        self._counts["launched"] += results.count("launched") + results.count("adopted")
        self._counts["gone"] += results.count("gone")

    def _call(
        self, run: Run, name: str, say: t.Callable[[str], None] | None = None, *, last: bool = False, **params: t.Any
    ) -> dict[str, t.Any]:
        """One step as Ansible would call it, for a run of its own."""
        task = self._task
        step = Task(
            {**task.params, "run_id": None, **params},
            check_mode=task.check_mode,
            diff_mode=task.diff_mode,
            progress=say or task.progress,
            warn=self._teller.warn,
            clock=task.clock,
            transport=task.transport,
            playbook=task.playbook,
            variables=task.variables,
            started_by=task.started_by,
        )
        return execute(_CLOSING if last else _SPEC, run, step, f"tgp.gpu.{name}")

    def _pause(self, began: datetime, *, hurry: bool) -> None:
        """Until the next look is due, something happens, or it is time to end."""
        clock = self._task.clock
        self._watch()
        due = began + (self._interval if hurry or self._waker is None else self._full)
        while not self._stop.now and (left := (due - clock.now()).total_seconds()) > 0:
            seconds = min(left / clock.speed, _SLICE)
            if self._waker is None:
                clock.sleep(seconds * clock.speed)
            elif self._waker.wait(seconds):
                return

    def _watch(self) -> None:
        """Have a watch, unless it failed a short while ago: then there is a look every ``interval``, which says what is wrong."""
        now = self._task.clock.now()
        if self._waker is not None and self._waker.failure is not None:
            self._teller.say(f"cannot watch ({self._waker.failure}); looks every {self._interval.total_seconds():.0f} s meanwhile")
            self._watch_again = now + self._full
            self._close()
        if self._waker is not None or (self._watch_again is not None and now < self._watch_again):
            return
        try:
            self._waker = Waker(self._task)
        except TgpError as error:
            self._teller.say(f"cannot watch ({error}); looks every {self._interval.total_seconds():.0f} s meanwhile")
            self._watch_again = now + self._full

    def _close(self) -> None:
        if self._waker is not None:
            self._waker.close()
            self._waker = None


def _problems(result: t.Mapping[str, t.Any]) -> list[str]:
    return [str(result["msg"])] if result.get("failed") else list(result.get("problems") or ())


# ---- how a call that never ends by itself is asked to end: SIGTERM or SIGINT once. The second one ends the process at once, as usual

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """While it is entered, a first signal only sets ``asked``. Outside the main thread signals are nobody's business, and stay as they are.

    ``now`` is also true when the process that started this one has died: nobody reads what is done here any more, and the run lock is
    no longer provably in use.
    """

    def __init__(self) -> None:
        self.asked = False
        self._parent = os.getppid()
        self._before: dict[signal.Signals, t.Any] = {}

    @property
    def now(self) -> bool:
        return self.asked or os.getppid() != self._parent

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._arrived) for number in SIGNALS}
        return self

    def __exit__(self, *_error: object) -> None:
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        self._before = {}

    def _arrived(self, number: int, _frame: types.FrameType | None) -> None:
        """Runs between two instructions of whatever is running: it takes no lock."""
        if self.asked:
            self._restore()
            signal.raise_signal(number)
        self.asked = True


# ---- the watch beside a loop: a thread that follows pods and Nodes, and says only that something deserves a look


class Waker:
    """``wait`` returns early when something happened. ``failure`` is the error that ended the watch for good, None while it lives."""

    def __init__(self, task: Task) -> None:
        self.failure: TgpError | None = None
        self._happened = threading.Event()
        self._kube = connect(task)
        settings = settings_of(task)
        watcher = Watcher(settings=settings)
        self._attention = Attention(self._kube, watcher, self._tell, task.clock, gpu_resources=settings.gpu_resources)
        self._thread = threading.Thread(target=self._follow, name="waker", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """True when something happened since the last time, or happens within ``seconds`` (real ones)."""
        happened = self._happened.wait(seconds)
        self._happened.clear()
        return happened

    def close(self) -> None:
        self._attention.stop()
        self._thread.join(5)
        self._kube.close()

    def _tell(self, _event: dict[str, t.Any]) -> None:
        self._happened.set()

    def _follow(self) -> None:
        try:
            self._attention.run()
        except TgpError as error:
            self.failure = error
            self._happened.set()
