# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Option ``summary``: the report of a run at a path that the caller of the playbook names."""

from __future__ import annotations

import json
import os
import typing as t
from pathlib import Path

import jsonschema
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput, Locked
from ansible_collections.tgp.gpu.plugins.module_utils.core.run_report import begun, closed, with_step
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import Task, execute

from tests.unit.floor.told import schema

ARGUMENTS = {"run_id": {"type": "str"}, "summary": {"type": "path"}, "api_key": {"type": "str", "no_log": True}}
PARTS = {"fleet_info": "none", "fleet_unlock": "close", "fleet_loop": "runs"}
KEY = "key-of-an-account-0123456789"
PLAN = {
    "changed": True, "outcome": "ok", "run_id": "run-1", "plan": [{"action": "launch", "name": "tgp-a-p-1", "reason": "wanted"}],
    "summary": {"cost_hour_now": "0.00", "cost_hour_after": "0.75"}, "hubs": [],
}  # fmt: skip
MACHINE = {"name": "tgp-a-p-1", "pool": "default/p", "cloud": "lambda", "model": "A10", "phase": "Ready", "price_hour": "0.75"}
READY = {"changed": True, "outcome": "changed", "machines": [{**MACHINE, "result": "ready", "message": "", "launched": True}]}
UNLOCKED = {"changed": False, "released": True}


class Caller:
    """A playbook with ``-e tgp_summary=...``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file, self.called = folder, folder / "out" / "summary.json", t.cast("list[str]", [])

    def step(self, name: str, result: t.Any, *, check: bool = False, warning: str = "", **params: t.Any) -> dict[str, t.Any]:
        def run(task: Task) -> dict[str, t.Any]:
            self.called.append(name)
            task.cluster_id = "f728b4fa"
            if warning:
                task.warn(warning)
            if isinstance(result, BaseException):
                raise result
            return dict(result)

        spec = {"argument_spec": ARGUMENTS} | ({"run_report": PARTS[name]} if name in PARTS else {})
        given = {"state_dir": str(self.folder / "state"), "run_id": None, "summary": str(self.file), "api_key": KEY, **params}
        words = {"documents": "tgp_documents", "summary": "tgp_summary"}
        return execute(spec, run, Task(given, check_mode=check, playbook="provision", variables=words), name)

    def summary(self) -> dict[str, t.Any]:
        found = json.loads(self.file.read_text())
        jsonschema.validate(found, schema("run-report"))
        return t.cast("dict[str, t.Any]", found)


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    return Caller(tmp_path)


@pytest.mark.parametrize("check", [False, True], ids=["run", "check mode"])
def test_the_summary_grows_with_each_step_and_is_closed_by_the_last(caller: Caller, check: bool) -> None:
    caller.step("fleet_plan", PLAN, check=check, run_id="run-1", mode="provision", warning=f"the key {KEY} is old")
    begun_one = caller.summary()
    assert (begun_one["ended"], begun_one["exit_code"]) == (None, None), "a reader sees that it goes on, or was killed"
    caller.step("fleet_launch", READY, check=check, run_id="run-1")
    last = caller.step("fleet_unlock", UNLOCKED, check=check, run_id="run-1")
    found = caller.summary()
    assert (found["check"], found["outcome"], found["exit_code"], found["run_id"]) == (check, "changed", 0, "run-1")
    assert (found["cluster_id"], found["mode"], found["playbook"]) == ("f728b4fa", "provision", "provision")
    assert found["launched"] == [{key: MACHINE[key] for key in ("name", "pool", "cloud", "model", "price_hour")}]
    assert [(one["action"], one["name"], one["reason"]) for one in found["planned"]] == [("launch", "tgp-a-p-1", "wanted")]
    assert found["cost"] == {"cost_hour_now": "0.00", "cost_hour_after": "0.75"}
    assert found["warnings"] == ["the key ******** is old"]
    assert [one["step"] for one in found["steps"]] == ["fleet_plan", "fleet_launch"]
    assert last["ansible_stats"]["data"]["tgp_run"] == {**found, "report_file": last["report_file"]}, "AWX gets the same"
    assert caller.file.stat().st_mode & 0o777 == 0o600
    assert (caller.folder / "state").exists() is not check
    assert list(caller.file.parent.iterdir()) == [caller.file], "written beside it and renamed"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (InvalidInput("There is no pool."), "error"),
        (Locked("another run"), "lock_busy"),
        (ZeroDivisionError(KEY), "error"),
    ],
)
def test_a_run_that_is_refused_or_breaks_off_has_a_summary(caller: Caller, error: Exception, outcome: str) -> None:
    try:
        caller.step("fleet_plan", error)
    except ZeroDivisionError:
        assert isinstance(error, ZeroDivisionError)
    found = caller.summary()
    assert (found["outcome"], found["exit_code"], bool(found["ended"])) == (outcome, 2, True)
    assert found["error"]["step"] == "fleet_plan" and found["error"]["message"] in found["problems"]
    assert KEY not in caller.file.read_text()


@pytest.mark.parametrize(("name", "params"), [("fleet_info", {}), ("fleet_pause", {}), ("fleet_plan", {"save_to": "plan.json"})])
def test_a_module_that_is_the_whole_run_closes_its_summary(caller: Caller, name: str, params: dict[str, str]) -> None:
    totals = {"price_hour": "0.75", "cost": "1.5000"}
    given = {**PLAN, "plan": []} if params else {"changed": False, "machines": [{**MACHINE, "state": "active"}], "totals": totals}
    result = caller.step(name, given, **params)
    found = caller.summary()
    assert (found["exit_code"], bool(found["ended"])) == (0, True)
    assert result["ansible_stats"]["data"]["tgp_run"]["run_id"] == found["run_id"]
    if not params:
        assert found["cost"] == {"cost_hour_now": "0.75", "cost_so_far": "1.5000"}
        assert found["machines"][0]["name"] == MACHINE["name"]


def test_without_a_path_awx_still_gets_the_run_and_no_file_is_written(caller: Caller) -> None:
    result = caller.step("fleet_info", {"changed": False}, summary="")
    assert result["ansible_stats"]["data"]["tgp_run"]["exit_code"] == 0
    assert not list(caller.folder.iterdir())


def test_a_later_step_of_check_mode_is_not_taken_for_a_whole_run(caller: Caller) -> None:
    result = caller.step("fleet_launch", READY, check=True, run_id="run-1", summary="")
    assert "ansible_stats" not in result


def in_the_way(caller: Caller, what: str) -> str:
    if what == "a folder":
        caller.file.mkdir(parents=True)
        return "exists and is not the summary of a run"
    if what == "a file above it":
        caller.file.parent.write_text("")
        return "cannot be written"
    caller.file.parent.mkdir()
    if what == "other content":
        caller.file.write_text("kind: GPUNodePool\n")
    elif what == "a pipe":
        os.mkfifo(caller.file)
    else:
        caller.file.symlink_to("/dev/null")
    return "exists and is not the summary of a run"


@pytest.mark.parametrize("what", ["a folder", "a file above it", "other content", "a pipe", "a device"])
def test_a_path_that_cannot_be_written_ends_the_run_before_it_does_anything(caller: Caller, what: str) -> None:
    words = in_the_way(caller, what)
    before = caller.file.read_text() if what == "other content" else None
    result = caller.step("fleet_plan", PLAN)
    assert result["failed"] and result["error"]["kind"] == "invalid_input"
    assert result["msg"].startswith("tgp_summary: ") and words in result["msg"] and "Nothing was done." in result["msg"]
    assert caller.called == []
    assert before is None or caller.file.read_text() == before


def test_the_next_run_takes_the_file_of_the_last_one(caller: Caller) -> None:
    caller.step("fleet_plan", InvalidInput("There is no pool."))
    caller.step("fleet_plan", PLAN, run_id="run-2")
    assert (caller.summary()["run_id"], caller.summary()["problems"]) == ("run-2", [])


def test_a_loop_leaves_the_summary_of_its_last_run(caller: Caller) -> None:
    """Each look is a run of its own; the module around them closes what is left open, and reports its own failure."""

    def looks(task: Task) -> dict[str, t.Any]:
        for number in (1, 2):
            for name in ("fleet_plan", "fleet_unlock"):
                caller.step(name, {**PLAN, "run_id": f"look-{number}"}, run_id=f"look-{number}")
        return {"changed": False, "looks": 2}

    params = {"state_dir": str(caller.folder / "state"), "summary": str(caller.file)}
    execute({"argument_spec": ARGUMENTS, "run_report": "runs"}, looks, Task(params), "fleet_loop")
    assert (caller.summary()["run_id"], caller.summary()["exit_code"]) == ("look-2", 0)
    caller.step("fleet_loop", InvalidInput("tgp_interval is 0."))
    assert (caller.summary()["problems"], caller.summary()["exit_code"]) == (["tgp_interval is 0."], 2)


@pytest.mark.parametrize(
    ("results", "saves", "code"),
    [
        ([{"changed": False}], False, 0),
        ([{"changed": True, "problems": ["p: 1 machines will not come"]}], False, 2),
        ([{"changed": True, "problems": ["p: 1 machines will not come"]}], True, None),
        ([{"failed": True, "msg": "no"}], True, 2),
        ([{"changed": True, "hubs": [{"host": "hub-1"}]}], False, None),
        ([{"changed": True, "hubs": [{"host": "hub-1"}], "problems": ["x"]}], False, 2),
        ([{"changed": False, "outcome": "shortfall"}], False, 0),
        ([{"changed": False, "outcome": "lock_busy"}], False, 0),
    ],
)
def test_the_exit_code_is_that_of_the_playbook_or_not_known(results: list[dict[str, t.Any]], saves: bool, code: int | None) -> None:
    report = begun("run-1", "reap", "2026-11-01T00:00:00Z", {})
    for result in results:
        report = with_step(report, "fleet_plan", "", "", result)
    assert closed(report, "2026-11-01T00:00:01Z", saves=saves)["exit_code"] == code


def test_machines_are_listed_by_how_they_ended() -> None:
    words = ("ready", "gone", "removed", "failed", "replaced", "pending", "kept", "launched")
    rows = [
        {**MACHINE, "name": word, "result": word, "launched": word in ("ready", "launched"), "message": "why"} for word in words
    ]
    device = {**MACHINE, "name": "device", "cloud": "", "result": "removed"}
    report = with_step(begun("run-1", "reap", "", {}), "fleet_teardown", "", "", {"machines": [*rows, device]})
    names = {key: [one["name"] for one in report[key]] for key in ("launched", "terminated", "failed")}
    assert names == {
        "launched": ["ready", "launched"],
        "terminated": ["gone", "removed"],
        "failed": ["failed", "replaced", "pending"],
    }
    assert report["failed"][0]["message"] == "why"
