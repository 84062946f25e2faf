# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module call as one step of a run: its outcome goes into the event log and into the run's report (docs/reference/events.md).

A run is several processes, so its report is a file that each step takes further: ``<state_dir>/runs/<run id>.json``; ``fleet_unlock``
closes it. Every module that takes ``run_id`` is a step by itself; those that only look, and check mode, leave nothing behind. What a module
is to the report, it says itself: ``SPEC["run_report"]``, one of Part.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import re
import typing as t

from . import notifications
from .clock import to_text
from .errors import InvalidInput, without_details
from .events import Events, new_run_id, plain, shortened
from .files import events_path, state_folder
from .notifications import Message, Sender
from .redact import redact_all
from .run_report import begun, closed, outcome_of, with_step

KEPT = 200  # reports
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,120}$")


class RunPart(enum.StrEnum):
    """What a module with ``run_id`` is to the report of its run."""

    STEP = "step"  # it takes the report further; a module that says nothing does so
    CLOSE = "close"  # the last step: it closes the report and returns it
    NONE = "none"  # it only looks


class StepCaller(notifications.Caller, t.Protocol):
    """What is needed of the module call (task.Task)."""

    check_mode: bool


class RunStep:
    """``with_result`` is called once, with what the module returns."""

    def __init__(self, task: StepCaller, name: str, spec: t.Mapping[str, t.Any], warn: t.Callable[[str], None]) -> None:
        self._task, self._name, self._warn = task, name.rpartition(".")[2], warn
        self._started = to_text(task.clock.now())
        part = RunPart(spec.get("run_report", RunPart.STEP))
        self._last = part is RunPart.CLOSE
        looks = task.check_mode or part is RunPart.NONE or bool(task.params.get("save_to"))  # a plan for later
        self._counts = "run_id" in spec["argument_spec"] and not looks
        if not self._counts:
            return
        fresh = not task.params.get("run_id")
        if fresh:
            task.params["run_id"] = new_run_id()
        self._run = str(task.params["run_id"])
        task.events = Events(events_path(task.params), task.clock, self._run, fresh=fresh, warn=warn)

    def with_result(self, result: Json) -> Json:
        """Tell how the step ended; the result, of the last step with the whole report."""
        if not self._counts or not ("outcome" in result or result.get("failed") or self._last):
            return result
        task, outcome = self._task, outcome_of(result)
        problems = list(result.get("problems") or ()) or ([str(result.get("msg"))] if result.get("failed") else [])
        task.tell(
            "step", step=self._name, outcome=outcome, changed=bool(result.get("changed")), started=self._started, problems=problems
        )
        if outcome == "lock_lost":
            self._tell_people_of_the_lock(result)
        report, path = self._take_further(result)
        if not self._last or report is None:
            return result
        word = {key: report[key] for key in ("run_id", "playbook", "outcome", "changed", "counts", "cost", "problems")}
        stats = {"data": {"tgp_run": {**word, "report_file": path}}, "per_host": False, "aggregate": False}
        return {**result, "report": report, "report_file": path, "ansible_stats": stats}

    def broken_off(self, error: BaseException) -> None:
        """The step ends by something that nobody foresaw, or the process is stopped."""
        if self._counts:
            self.with_result({"failed": True, "msg": f"{self._name} was broken off: {type(error).__name__}"})

    # ---- inside

    def _tell_people_of_the_lock(self, result: Json) -> None:
        text = f"Run {self._run} lost the run lock and stopped. {result.get('msg', '')}".strip()
        message = Message("lock_lost", f"lock_lost|{self._run}", self._run, text)
        try:
            Sender(self._task).begin([message]).arrived(self._warn)
        except InvalidInput as error:
            self._warn(f"The notification was not delivered: {error}")

    def _take_further(self, result: Json) -> tuple[Json | None, str]:
        """The report with this step, written; None (after a warning) when that is not possible, or there is nothing to close."""
        folder = os.path.join(state_folder(self._task.params), "runs")
        path = os.path.join(folder, f"{self._run}.json")
        if not _NAME.match(self._run):
            self._warn(
                f"The run_id {self._run!r} cannot be the name of a file, so the run has no report. Use letters, digits, '.', '_' and '-'."
            )
            return None, ""
        earlier = _read(path)
        if earlier is None and self._last:
            return None, ""
        ended = to_text(self._task.clock.now())
        report = earlier or begun(self._run, self._task.playbook, self._started)
        mode = str(self._task.params.get("mode") or "")
        if not self._last or result.get("failed"):
            report = with_step(report, self._name, self._started, ended, result, mode=mode)
        if self._last or (earlier is None and result.get("failed")):  # nobody will close a run that failed before it began
            report = closed(report, ended)
        report = t.cast(Json, shortened(redact_all(plain(report))))
        try:
            _write(path, without_details(report))
            if self._last:
                _prune(folder)
        except OSError as error:
            self._warn(f"The run's report {path} cannot be written ({error.strerror}); the run goes on without it.")
        return report, path


def _read(path: str) -> Json | None:
    """A report that cannot be understood is begun anew: it must not stop a run."""
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    except (OSError, ValueError):
        return None
    return report if isinstance(report, dict) and set(begun("", "", "")) <= set(report) else None


def _write(path: str, report: Json) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    handle = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1, ensure_ascii=False)
        file.write("\n")
    os.replace(f"{path}.new", path)


def _prune(folder: str, kept: int = KEPT) -> None:
    """Remove all but the newest reports; another run may do so at the same moment."""
    entries = sorted((entry for entry in os.scandir(folder) if entry.name.endswith(".json")), key=_written, reverse=True)
    for entry in entries[kept:]:
        with contextlib.suppress(FileNotFoundError):
            os.remove(entry.path)


def _written(file: os.DirEntry[str]) -> float:
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0


Json = dict[str, t.Any]
