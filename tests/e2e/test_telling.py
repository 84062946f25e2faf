# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What whole playbook runs tell: every call that was paid for or deletes, one report each, people once; and no secret."""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

import jsonschema
import pytest

from tests.contract.act.receiver import Receiver
from tests.unit.floor.told import checked_events, schema

from .box import Result, Sandbox

CALLS = {
    "launch": re.compile(r"^lambda POST \S+/launch$"),
    "terminate": re.compile(r"^lambda POST \S+/terminate$"),
    "create_key": re.compile(r"^tailscale POST \S+/keys$"),
    "delete_device": re.compile(r"^tailscale DELETE \S+/device/"),
    "delete_key": re.compile(r"^tailscale DELETE \S+/keys/"),
    "delete": re.compile(r"^kubernetes DELETE (?!.*/configmaps/tgp-)"),
    "evict": re.compile(r"^kubernetes POST \S+/eviction$"),
}


@pytest.fixture(scope="module")
def shared(start: t.Callable[..., Sandbox]) -> Sandbox:
    return start(speed=100)


@pytest.fixture
def people() -> t.Iterator[tuple[Receiver, dict[str, str]]]:
    receiver = Receiver()
    url, end = receiver.serve()
    yield receiver, {"TGP_NOTIFY_URL": f"{url}/hook", "TGP_NOTIFY_TOKEN": "token-of-the-receiver-0123456789"}
    end()


def events(sandbox: Sandbox) -> list[dict[str, t.Any]]:
    return checked_events(sandbox.state / "events.jsonl")


def report(sandbox: Sandbox) -> dict[str, t.Any]:
    """Of the last run."""
    path = max((sandbox.state / "runs").glob("*.json"), key=lambda one: one.stat().st_mtime_ns)
    found = json.loads(path.read_text())
    jsonschema.validate(found, schema("run-report"))
    return t.cast("dict[str, t.Any]", found)


def test_S2_21_a_whole_cycle_is_told_completely_in_order_and_without_a_secret(
    shared: Sandbox, people: tuple[Receiver, dict[str, str]]
) -> None:
    """Events, reports and notices of several playbooks in a row agree with each other and with what the clouds were asked."""
    sandbox, (receiver, variables) = shared, people

    def play(name: str, **more: t.Any) -> Result:
        return sandbox.playbook(name, env=variables, **more).succeeded()

    summary = sandbox.folder / "summary.json"
    play("provision", extra_vars={"nodes": {"training": 2, "own": 1}, "summary": str(summary)})
    provisioned = report(sandbox)
    assert json.loads(summary.read_text()) == provisioned, "tgp_summary has what the report has"
    assert (provisioned["exit_code"], len(provisioned["launched"]), provisioned["failed"]) == (0, 3, [])
    assert (provisioned["outcome"], provisioned["playbook"], provisioned["mode"]) == ("changed", "provision", "provision")
    assert provisioned["counts"]["launch"] == 3
    assert provisioned["counts"]["machines_ready"] == 3
    assert [one["step"] for one in provisioned["steps"]] == ["fleet_plan", "fleet_launch"]
    play("reap")
    sandbox.advance(11 * 60)
    play("reap")
    gone = report(sandbox)
    assert (gone["outcome"], gone["counts"]["machines_gone"], len(gone["terminated"])) == ("changed", 3, 3)

    lines, sent = events(sandbox), sandbox.writes()
    for call, pattern in CALLS.items():
        intents = [one for one in lines if one["kind"] == "intent" and one["call"] == call and one.get("cloud") != "webhook"]
        there = [one for one in sent if pattern.match(one)]
        assert len(intents) >= len(there), (call, there)
        assert len([one for one in intents if outcomes_of(lines, one)]) == len(intents), call
        assert call not in ("launch", "terminate") or len(intents) == len(there) == 2, there
    machines = {one["id"]: one for one in sandbox.world()["machines"] if one["cloud"] == "lambda"}
    assert {one["id"] for one in lines if one["kind"] == "outcome" and one["call"] == "launch" and one["cloud"] == "lambda"} == set(
        machines
    )

    text = "".join(path.read_text(errors="replace") for path in [summary, *sandbox.state.rglob("*")] if path.is_file())
    for secret in (
        *(value for name, value in sandbox.variables.items() if re.search("KEY|SECRET$|TOKEN", name)),
        *variables.values(),
    ):
        assert secret not in text, "a secret is told"

    before, tries = sandbox.writes(), receiver.tries
    idle = sandbox.playbook("reap", env={**variables, "ANSIBLE_SHOW_CUSTOM_STATS": "1"}).succeeded()
    assert idle.count("changed") == 0
    assert re.search(r"CUSTOM STATS.*tgp_run", idle.out, re.DOTALL), "AWX keeps these as artifacts of the job"
    assert report(sandbox)["outcome"] == "ok"
    assert (sandbox.writes(), receiver.tries) == (before, tries)
    assert receiver.kinds == []


def outcomes_of(lines: list[dict[str, t.Any]], intent: dict[str, t.Any]) -> list[dict[str, t.Any]]:
    return [one for one in lines if one["kind"] == "outcome" and (one["run"], one.get("ref")) == (intent["run"], intent["seq"])]


def test_L12_people_are_told_of_an_orphan_once_over_several_runs(shared: Sandbox, people: tuple[Receiver, dict[str, str]]) -> None:
    """That a notice was sent is remembered from process to process."""
    sandbox, (receiver, variables) = shared, people
    sandbox.behave({"kind": "never_boots", "times": 1})
    sandbox.faults({"kind": "status", "service": "lambda", "method": "POST", "path": "/terminate", "status": 500, "times": None})
    failed = sandbox.playbook("provision", env=variables, extra_vars={"pool": "training"}).failed()
    assert failed.rc == 2
    assert report(sandbox)["outcome"] == "partial"
    for name in sandbox.claims():
        sandbox.kube.delete(f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{name}").raise_for_status()
    for _run in range(3):
        sandbox.playbook("reap", env=variables)
        sandbox.advance(61)
    assert receiver.kinds.count("orphan_found") == 1
    for body in receiver.bodies:
        jsonschema.validate(body, schema("notice"))
    sandbox.clear_faults()
    sandbox.playbook("reap", env=variables).succeeded()
    assert sandbox.totals()["instances"] == 0


def test_L08_what_was_wrong_from_the_start_is_an_error_in_the_report(shared: Sandbox) -> None:
    shared.playbook("provision", extra_vars={"pool": "no-such-pool"}).failed()
    found = report(shared)
    assert (found["outcome"], bool(found["ended"])) == ("error", True)
    assert "no-such-pool" in found["problems"][0]


def summary_of(sandbox: Sandbox, name: str, rc: int, file: Path, **more: t.Any) -> dict[str, t.Any]:
    """What a playbook that ends with this status writes to the path of tgp_summary."""
    variables = {**more.pop("extra_vars", {}), "tgp_summary": str(file)}
    done = sandbox.playbook(name, extra_vars=variables, **more)
    assert done.rc == rc, done.text
    found = json.loads(file.read_text())
    jsonschema.validate(found, schema("run-report"))
    assert (found["playbook"], bool(found["ended"])) == (name, True)
    return t.cast("dict[str, t.Any]", found)


def test_a_summary_is_written_however_a_playbook_ends(shared: Sandbox, tmp_path: Path) -> None:
    """Check mode, saved plans, looks and refusals included; what cannot be written ends the run before a machine is rented."""
    file, before = tmp_path / "summary.json", len(shared.world()["machines"])
    dry = summary_of(shared, "provision", 0, file, extra_vars={"pool": "training"}, check=True)
    assert (dry["check"], dry["exit_code"], dry["launched"], dry["counts"]["launch"]) == (True, 0, [], 1)
    saved = summary_of(shared, "plan", 0, file, extra_vars={"pool": "training", "nodes": 1, "plan": str(tmp_path / "plan.json")})
    assert saved["run_id"] == json.loads((tmp_path / "plan.json").read_text())["run_id"]
    assert [one["action"] for one in saved["planned"]].count("launch") == 1  # beside it, the key of a test before may be deleted
    looked = summary_of(shared, "status", 0, file)
    assert looked["cluster_id"] and looked["cost"]["cost_hour_now"] and looked["spending"]
    assert {one["status"] for one in summary_of(shared, "validate", 0, file)["checks"]} <= {"ok", "warn"}
    released = summary_of(shared, "release", 0, file, extra_vars={"force": True}, check=True)
    assert [one["step"] for one in released["steps"]] == ["fleet_release"] and released["check"]
    refused = summary_of(shared, "provision", 2, file, extra_vars={"pool": "no-such-pool"})
    assert "no-such-pool" in refused["error"]["message"] and refused["exit_code"] == 2
    mistyped = summary_of(shared, "reap", 2, file, extra_vars={"tgp_documets": "x"})
    assert "Did you mean tgp_documents?" in mistyped["error"]["message"]
    (tmp_path / "folder").mkdir()
    unwritable = shared.playbook("provision", extra_vars={"pool": "training", "summary": str(tmp_path / "folder")}).failed()
    assert "tgp_summary:" in unwritable.words and "Nothing was done." in unwritable.words
    assert len(shared.world()["machines"]) == before


def test_the_run_that_awx_hands_to_the_next_job_is_no_mistyped_variable(shared: Sandbox) -> None:
    shared.playbook("status", extra_vars={"tgp_run": {"outcome": "ok"}}).succeeded()
