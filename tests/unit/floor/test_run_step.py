# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The report that the steps of one run make together, and its last word (L-8)."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import socket
import typing as t
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput, Locked, LockLost, TgpError, note_detail
from ansible_collections.tgp.gpu.plugins.module_utils.core.events import starter
from ansible_collections.tgp.gpu.plugins.module_utils.core.run_report import OUTCOMES, outcome_of, worst
from ansible_collections.tgp.gpu.plugins.module_utils.core.run_step import KEPT, _prune
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute

from tests.unit.floor.told import ROOT, checked_events

SPEC = {"argument_spec": {"run_id": {"type": "str"}, "api_key": {"type": "str", "no_log": True}}}
PARTS = {"fleet_info": "none", "fleet_validate": "none", "fleet_unlock": "close", "fleet_pause": "whole"}  # the others say nothing
KEY = "key-of-an-account-0123456789"
MACHINE = {
    "name": "tgp-a1b2c3d4-p-00001", "pool": "default/p", "cloud": "lambda", "model": "A10", "phase": "Ready", "price_hour": "0.75",
    "result": "launched", "message": "",
}  # fmt: skip


def report_schema() -> t.Any:
    return json.loads((ROOT / "schemas" / "run-report.schema.json").read_text(encoding="utf-8"))


class Run:
    """Steps of one run, each a call of its own as a play makes them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run_id, self.warnings = folder, "", t.cast("list[str]", [])

    def step(self, name: str, result: t.Any, *, check: bool = False, **params: t.Any) -> dict[str, t.Any]:
        """``result`` is returned, or raised if it is an exception."""

        def run(task: Task) -> dict[str, t.Any]:
            self.run_id = task.params.get("run_id") or self.run_id
            if isinstance(result, BaseException):
                raise result
            return dict(result)

        given = {"state_dir": str(self.folder), "run_id": self.run_id or None, "api_key": KEY, **params}
        task = Task(given, check_mode=check, warn=self.warnings.append, playbook="provision")
        spec = {**SPEC, "run_report": PARTS[name]} if name in PARTS else SPEC
        return execute(spec, run, task, name)

    def report(self) -> dict[str, t.Any]:
        found = json.loads((self.folder / "runs" / f"{self.run_id}.json").read_text())
        jsonschema.validate(found, report_schema())
        return t.cast("dict[str, t.Any]", found)

    def ends(self, *results: t.Any) -> str:
        """The word after these steps and the unlock."""
        for number, one in enumerate(results):
            self.step(("fleet_plan", "fleet_launch", "fleet_join")[number], one)
        self.step("fleet_unlock", {"changed": False, "released": True})
        checked_events(self.folder / "events.jsonl")
        found = self.report()
        assert found["ended"]
        return str(found["outcome"])


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


OK = {"changed": False, "outcome": "ok"}
CHANGED = {"changed": True, "outcome": "ok"}


@pytest.mark.parametrize(
    "results, word",
    [
        ([OK, OK], "ok"),
        ([CHANGED, OK], "changed"),
        ([OK, {"changed": True, "outcome": "changed"}], "changed"),
        ([{"changed": False, "outcome": "lock_busy", "msg": "busy"}], "lock_busy"),
        ([{"changed": True, "outcome": "shortfall", "problems": ["p: 1 machines will not come"]}, CHANGED], "shortfall"),
        ([{"changed": False, "outcome": "guard_refused", "problems": ["guard_refused: ..."]}, CHANGED], "guard_refused"),
        ([{"changed": True, "outcome": "shortfall"}, {"changed": True, "outcome": "partial", "problems": ["x"]}], "partial"),
        ([CHANGED, TgpError("the cloud burns")], "error"),
        ([CHANGED, LockLost("taken over")], "lock_lost"),
        ([CHANGED, LockLost("taken over"), TgpError("and then this")], "lock_lost"),
    ],
)
def test_L08_a_run_ends_with_the_worst_word_of_its_steps(run: Run, results: list[t.Any], word: str) -> None:
    assert run.ends(*results) == word
    assert word in OUTCOMES


def test_L08_a_busy_lock_that_shall_fail_ends_with_that_word(run: Run) -> None:
    run.step("fleet_plan", Locked("another run"))
    assert run.report()["outcome"] == "lock_busy"


def test_L08_every_word_has_its_place() -> None:
    assert worst() == "ok"
    assert all(worst(one, other) == other for one, other in zip(OUTCOMES, OUTCOMES[1:], strict=False))
    assert outcome_of({"outcome": "never heard of", "changed": True}) == "changed"


def test_a_report_grows_with_each_step_and_is_closed_by_the_last(run: Run) -> None:
    plan = {
        "changed": True, "outcome": "ok", "plan": [{"action": "launch"}, {"action": "launch"}, {"action": "destroy"}],
        "summary": {"cost_hour_now": "0.00", "cost_hour_after": "1.50", "cost_day_now": "0.00", "cost_day_after": "36.00"},
    }  # fmt: skip
    run.step("fleet_plan", plan, mode="provision")
    assert run.report()["ended"] is None, "a reader sees that it goes on, or was killed"
    run.step("fleet_launch", {"changed": True, "outcome": "changed", "machines": [MACHINE]})
    failed = {**MACHINE, "result": "failed", "message": "never joined", "diagnosis": None}
    run.step(
        "fleet_join", {"changed": True, "outcome": "partial", "machines": [failed], "problems": ["never joined", "never joined"]}
    )
    last = run.step("fleet_unlock", {"changed": False, "released": True})
    found = run.report()
    assert last["report"] == found
    assert last["report_file"].endswith(f"runs/{run.run_id}.json")
    assert last["ansible_stats"]["data"]["tgp_run"]["outcome"] == "partial"
    assert found["counts"] == {"launch": 2, "destroy": 1, "machines_failed": 1}
    assert found["cost"]["cost_day_after"] == "36.00"
    assert [(one["name"], one["result"]) for one in found["machines"]] == [(MACHINE["name"], "failed")]
    assert found["problems"] == ["never joined"]
    assert [one["step"] for one in found["steps"]] == ["fleet_plan", "fleet_launch", "fleet_join"]
    assert (found["playbook"], found["mode"], found["changed"]) == ("provision", "provision", True)
    assert os.stat(last["report_file"]).st_mode & 0o077 == 0


def test_report_and_log_say_who_ran_it(run: Run) -> None:
    """Also a report that an earlier release has begun."""
    run.step("fleet_plan", CHANGED)
    path = run.folder / "runs" / f"{run.run_id}.json"
    path.write_text(json.dumps({key: value for key, value in run.report().items() if key != "started_by"}))
    run.step("fleet_unlock", {"changed": False, "released": True})
    me = {"user": pwd.getpwuid(os.geteuid()).pw_name, "host": socket.gethostname()}
    assert run.report()["started_by"] == me and run.report()["steps"]
    assert {json.dumps(one["started_by"]) for one in checked_events(run.folder / "events.jsonl")} == {json.dumps(me)}


def test_of_a_job_of_awx_its_user_or_its_schedule_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    me = {"user": pwd.getpwuid(os.geteuid()).pw_name, "host": socket.gethostname()}
    for name in ("USER", "LOGNAME"):
        monkeypatch.setenv(name, "somebody-else")
    assert starter() == me
    manual = {"awx_job_id": 41, "awx_user_name": "ada", "awx_user_email": "ada@example.org", "tower_user_name": "ada"}
    assert starter(manual) == {**me, "awx_user": "ada", "awx_job": "41"}
    assert starter({"tower_job_id": 41, "tower_user_name": "ada"}) == {**me, "awx_user": "ada", "awx_job": "41"}
    assert starter({"awx_job_id": 42, "awx_schedule_name": "reap"}) == {**me, "awx_schedule": "reap", "awx_job": "42"}
    assert starter({"awx_job_id": 43, "awx_parent_job_schedule_name": "nightly"})["awx_schedule"] == "nightly"
    assert starter({"awx_user_name": {"a": 1}, "awx_job_id": True}) == me
    assert len(starter({"awx_user_name": "a" * 1000})["awx_user"]) == 200

    def unknown(_uid: int) -> t.NoReturn:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert starter()["user"] == f"uid {os.geteuid()}"


def test_a_run_that_fails_before_it_begins_is_closed_at_once(run: Run) -> None:
    result = run.step("fleet_plan", InvalidInput("There is no pool."))
    assert result["failed"]
    found = run.report()
    assert (found["outcome"], found["problems"]) == ("error", ["There is no pool."])
    assert found["ended"]


def test_a_module_that_is_a_run_by_itself_closes_its_own_report(run: Run) -> None:
    run.step("fleet_pause", {"changed": True})
    report = run.report()
    assert report["ended"] and (report["outcome"], report["exit_code"]) == ("changed", 0)
    assert [line["step"] for line in report["steps"]] == ["fleet_pause"]


def test_names_of_machines_that_go_on_are_no_rows_of_what_was_done(run: Run) -> None:
    run.step("fleet_pause", {"changed": True, "machines": ["tgp-a1b2c3d4-p-00001"]})
    assert (run.report()["machines"], run.report()["outcome"]) == ([], "changed")


def test_as_a_step_of_another_run_it_closes_nothing(run: Run) -> None:
    run.step("fleet_plan", OK)
    run.step("fleet_pause", {"changed": True, "outcome": "ok"})
    assert run.report()["ended"] is None
    run.step("fleet_unlock", {"changed": False})
    assert [line["step"] for line in run.report()["steps"]] == ["fleet_plan", "fleet_pause"] and run.report()["ended"]


def test_in_check_mode_it_leaves_nothing_behind(run: Run) -> None:
    run.step("fleet_pause", {"changed": True}, check=True)
    assert not (run.folder / "runs").exists()


def test_what_nobody_foresaw_is_an_error_that_still_shows(run: Run) -> None:
    with pytest.raises(ZeroDivisionError):
        run.step("fleet_plan", ZeroDivisionError(KEY))
    assert run.report()["problems"] == ["fleet_plan was broken off: ZeroDivisionError"]


def test_who_only_looks_and_check_mode_leave_nothing_behind(run: Run) -> None:
    run.step("fleet_info", {**OK, "machines": []})
    run.step("fleet_validate", InvalidInput("wrong"))
    run.step("fleet_plan", CHANGED, check=True)
    run.step("fleet_plan", CHANGED, save_to="plan.json")
    run.step("fleet_something", {"changed": False})
    assert not list(run.folder.iterdir())


@pytest.mark.parametrize(
    "result", [OK, {"changed": False}, InvalidInput("wrong"), ZeroDivisionError()], ids=["ok", "plain", "failed", "broken"]
)
def test_however_a_step_ends_it_leaves_no_file_open(result: t.Any, tmp_path: Path) -> None:
    """A loop is many steps in one process."""

    def talks(task: Task) -> dict[str, t.Any]:
        assert task.tell("progress", event="x") == 1 and opened() == 1
        if isinstance(result, Exception):
            raise result
        return dict(result)

    def opened() -> int:
        return [one.resolve() for one in Path("/proc/self/fd").iterdir()].count(tmp_path / "events.jsonl")

    with contextlib.suppress(ZeroDivisionError):
        execute(SPEC, talks, Task({"state_dir": str(tmp_path)}), "fleet_plan")
    assert opened() == 0


def test_no_secret_is_reported(run: Run) -> None:
    run.ends({**CHANGED, "problems": [f"refused {KEY}"]})
    text = "".join(path.read_text() for path in run.folder.rglob("*.json*"))
    assert KEY not in text
    assert "refused ********" in text


def test_a_report_that_cannot_be_written_is_one_warning_for_each_step(run: Run) -> None:
    (run.folder / "runs").write_text("in the way")
    (run.folder / "events.jsonl").mkdir()
    assert run.step("fleet_plan", CHANGED)["changed"] is True
    assert len(run.warnings) == 2
    assert any("the run goes on without it" in one for one in run.warnings)


def test_a_damaged_report_stops_nothing(run: Run) -> None:
    run.step("fleet_plan", CHANGED)
    (run.folder / "runs" / f"{run.run_id}.json").write_text('{"steps": [')
    run.step("fleet_launch", CHANGED)
    assert [one["step"] for one in run.report()["steps"]] == ["fleet_launch"]


def test_a_run_id_from_outside_cannot_leave_the_folder(run: Run) -> None:
    run.step("fleet_plan", CHANGED, run_id="../../elsewhere")
    assert [one.name for one in run.folder.iterdir()] == ["events.jsonl"]
    assert any("'../../elsewhere' cannot be the name of a file, so the run has no report" in one for one in run.warnings)


def test_only_the_newest_reports_stay(tmp_path: Path) -> None:
    for number in range(KEPT + 3):
        path = tmp_path / f"run-{number}.json"
        path.write_text("{}")
        os.utime(path, (number, number))
    _prune(str(tmp_path))
    left = {one.name for one in tmp_path.iterdir()}
    assert len(left) == KEPT
    assert "run-2.json" not in left
    assert "run-3.json" in left


def test_runs_that_end_together_may_all_tidy_up(tmp_path: Path) -> None:
    for number in range(KEPT + 200):
        (tmp_path / f"run-{number}.json").write_text("{}")
    with ThreadPoolExecutor(8) as pool:
        for one in [pool.submit(_prune, str(tmp_path)) for _ in range(8)]:
            one.result()
    assert len(list(tmp_path.iterdir())) == KEPT


def test_the_report_that_is_kept_has_no_words_of_a_service_and_the_result_has_them(tmp_path: Path) -> None:
    kept = "lambda: POST /launch was answered 400 global/x"
    note_detail(kept, "words of the service")
    run = Run(tmp_path)
    problem = f"{kept}: words of the service."
    run.step("fleet_plan", {"changed": False, "run_id": "r-1", "problems": [problem], "outcome": "partial"}, run_id="r-1")
    assert kept in json.dumps(run.report())
    result = run.step("fleet_unlock", {"changed": False, "released": True})
    assert "words of the service" not in "".join(file.read_text() for file in tmp_path.rglob("*") if file.is_file())
    assert kept in json.dumps(run.report()) and kept in json.dumps(result["report"])
