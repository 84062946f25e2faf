# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module call as one step of a run: its outcome goes into the event log and into the run's report (docs/reference/events.md).

A run is several processes, so its report is a file that each step takes further: ``<state_dir>/runs/<run id>.json``; ``fleet_unlock``
closes it, and a module that is a run by itself closes its own. Every module that takes ``run_id`` is a step by itself; those that only look,
and check mode, leave nothing behind. What a module is to the report, it says itself: ``SPEC["run_report"]``, one of RunPart.

Option ``summary`` names a second file for the same report. It is written in check mode and for modules that only look, too, and it is
begun before the module does anything: a path that cannot be written ends the run before it rents.
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
from .events import Events, jsonable, new_run_id, shortened
from .files import events_path, replace, state_folder
from .notifications import Message, Sender
from .redact import redact_all
from .run_report import Told, begun, closed, outcome_of, with_step

KEPT = 200  # reports
_LATER = {"started_by"}  # fields that reports of earlier releases lack
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,120}$")


class RunPart(enum.StrEnum):
    """What a module with ``run_id`` is to the report of its run."""

    STEP = "step"  # it takes the report further; a module that says nothing does so
    CLOSE = "close"  # the last step: it closes the report and returns it
    WHOLE = "whole"  # a run by itself, unless its caller names the run of which it is a step
    NONE = "none"  # it only looks
    RUNS = "runs"  # what it calls are runs of their own


class StepCaller(notifications.Caller, t.Protocol):
    """What is needed of the module call (task.Task)."""

    check_mode: bool
    cluster_id: str
    warnings: list[str]
    notices: list[dict[str, str]]

    at_end: list[t.Callable[[dict[str, t.Any] | None], None]]

    @property
    def tell_people(self) -> t.Callable[[Message], None]: ...

    @property
    def variables(self) -> t.Mapping[str, str]: ...

    @property
    def started_by(self) -> t.Mapping[str, str]: ...

    def called(self, option: str) -> str: ...


class RunStep:
    """``begin`` is called before the module, ``with_result`` once, with what it returns."""

    def __init__(self, task: StepCaller, name: str, spec: t.Mapping[str, t.Any], warn: t.Callable[[str], None]) -> None:
        self._task, self._name, self._warn = task, name.rpartition(".")[2], warn
        self._started = to_text(task.clock.now())
        self._part = RunPart(spec.get("run_report", RunPart.STEP))
        self._last = self._part is RunPart.CLOSE
        self._saves = bool(task.params.get("save_to"))  # a plan for later
        looks = task.check_mode or self._part is RunPart.NONE or self._saves
        takes_run = "run_id" in spec["argument_spec"]
        self._counts = takes_run and not looks
        chosen = task.params.get("summary") if takes_run else None
        self._summary = os.path.realpath(str(chosen)) if chosen else ""
        self._shows = takes_run and bool(task.variables)  # in a playbook of ours, whose steps are those of one run
        self._run = ""
        self._alone = not task.params.get("run_id")
        self._whole = self._part is RunPart.WHOLE and self._alone
        if not (self._counts or self._summary):
            return
        fresh = not task.params.get("run_id")
        if fresh:
            task.params["run_id"] = new_run_id()
        self._run = str(task.params["run_id"])
        if self._counts:
            task.events = Events(events_path(task.params), task.clock, self._run, fresh=fresh, warn=warn)

    def begin(self) -> None:
        """Begin the summary, if this is the first step of the run. InvalidInput, before the module does anything, when that is not possible."""
        path, self._summary = self._summary, ""  # a file that was refused is not written later
        if not path:
            return
        kept = _read(path)
        if kept is None or kept["run_id"] != self._run or kept["ended"]:
            self._begin(
                path, free=kept is not None or not os.path.lexists(path) or (os.path.isfile(path) and not os.path.getsize(path))
            )
        self._summary = path

    def with_result(self, result: Json) -> Json:
        """Tell how the step ended; the result, of the last step with the whole report."""
        failed, stored = bool(result.get("failed")), ""
        self._run = self._run or str(result.get("run_id") or new_run_id())
        if self._counts and ("outcome" in result or failed or self._last or self._whole):
            self._tell(result)
            stored = self._stored()
        report = self._take_further(result, stored, failed=failed)
        for hook in self._task.at_end if self._counts else ():
            hook(report if report is not None and report["ended"] else None)
        if report is None or not report["ended"]:
            return result
        path = stored or self._summary
        shown = {**without_details(report), "report_file": path}
        stats = {"data": {"tgp_run": shown}, "per_host": False, "aggregate": False}
        if self._last:
            return {**result, "report": report, "report_file": path, "ansible_stats": stats}
        return {**result, "ansible_stats": stats} if self._shows else result

    def broken_off(self, error: BaseException) -> None:
        """The step ends by something that nobody foresaw, or the process is stopped."""
        if self._counts or self._summary:
            self.with_result({"failed": True, "msg": f"{self._name} was broken off: {type(error).__name__}"})

    # ---- inside

    def _begin(self, path: str, *, free: bool) -> None:
        called = self._task.called("summary")
        if not free:
            raise InvalidInput(
                f"{called}: {path} exists and is not the summary of a run. Nothing was done.",
                remedy="Name another path, or remove the file.",
            )
        if self._last:
            return
        try:
            replace(path, _text(self._begun()))
        except InvalidInput as error:
            raise InvalidInput(f"{called}: {error.message} Nothing was done.", remedy=error.remedy) from error

    def _begun(self) -> Json:
        return begun(self._run, self._task.playbook, self._started, self._task.started_by, check=self._task.check_mode)

    def _tell(self, result: Json) -> None:
        task, outcome = self._task, outcome_of(result)
        problems = list(result.get("problems") or ()) or ([str(result.get("msg"))] if result.get("failed") else [])
        task.tell(
            "step", step=self._name, outcome=outcome, changed=bool(result.get("changed")), started=self._started, problems=problems
        )
        if outcome == "lock_lost":
            self._tell_people_of_the_lock(result)

    def _tell_people_of_the_lock(self, result: Json) -> None:
        text = f"Run {self._run} lost the run lock and stopped. {result.get('msg', '')}".strip()
        message = Message("lock_lost", f"lock_lost|{self._run}", self._run, text)
        try:
            Sender(self._task).begin([message]).arrived(self._warn)
        except InvalidInput as error:
            self._warn(f"The notification was not delivered: {error}")
        self._task.tell_people(message)

    def _stored(self) -> str:
        """The file of the report in the state folder; empty, after a warning, when there can be none."""
        if _NAME.match(self._run):
            return os.path.join(state_folder(self._task.params), "runs", f"{self._run}.json")
        self._warn(
            f"The run_id {self._run!r} cannot be the name of a file, so the run has no report. Use letters, digits, '.', '_' and '-'."
        )
        return ""

    def _take_further(self, result: Json, stored: str, *, failed: bool) -> Json | None:
        """The report with this step, written to ``stored`` and as the summary; None when there is nothing to take further."""
        if not (stored or self._summary or self._shows):
            return None
        earlier = self._earlier(stored)
        ends = self._last or self._part is RunPart.RUNS
        if ends and not failed and (earlier is None or earlier["ended"]):
            return None
        ended = to_text(self._task.clock.now())
        first = earlier is None or not earlier["steps"]
        report = {**self._begun(), **(earlier or {})}
        if failed or not ends:
            mode = str(self._task.params.get("mode") or "")
            told = Told(self._task.cluster_id, self._task.warnings, self._task.notices)
            report = with_step(report, self._name, self._started, ended, result, mode=mode, told=told)
        alone = self._alone and not stored and (self._saves or "run_id" not in result)  # no other step can name the run
        if ends or self._whole or (first and (failed or alone)):
            report = closed(report, ended, saves=self._saves)
        report = t.cast(Json, shortened(redact_all(jsonable(report))))
        self._write(report, stored)
        return report

    def _earlier(self, stored: str) -> Json | None:
        """The report as the steps before this one left it."""
        kept = _read(stored) if stored else None
        if kept is None and self._summary:
            kept = _read(self._summary)
            if self._part is not RunPart.RUNS and kept is not None and kept["run_id"] != self._run:
                return None
        return kept

    def _write(self, report: Json, stored: str) -> None:
        text = _text(without_details(report))
        if stored:
            try:
                _write(stored, text)
                if report["ended"]:
                    _prune(os.path.dirname(stored))
            except OSError as error:
                self._warn(f"The run's report {stored} cannot be written ({error.strerror}); the run goes on without it.")
        if self._summary:
            try:
                replace(self._summary, text)
            except InvalidInput as error:
                self._warn(f"The summary of the run is not complete: {error}")


def _read(path: str) -> Json | None:
    """A report that cannot be understood is begun anew: it must not stop a run. Nor must a pipe, which is not opened."""
    if not os.path.isfile(path):
        return None
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    except (OSError, ValueError):
        return None
    return report if isinstance(report, dict) and set(begun("", "", "", {})) - _LATER <= set(report) else None


def _text(report: Json) -> bytes:
    return json.dumps(report, indent=1, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _write(path: str, text: bytes) -> None:
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    handle = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(text)
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
