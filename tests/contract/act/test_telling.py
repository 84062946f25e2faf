# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a run tells: events of everything that costs or deletes, a report with one word, and people of what they should know at once."""

from __future__ import annotations

import gzip
import json
import sys
import typing as t
from pathlib import Path

import jsonschema
import pytest
from ansible_collections.tgp.gpu.plugins.module_utils.core import notifications
from ansible_collections.tgp.gpu.plugins.module_utils.core.errors import InvalidInput
from ansible_collections.tgp.gpu.plugins.module_utils.core.task import execute

from tests.unit.floor.told import checked_events, schema

from .receiver import Receiver
from .rig import CREATE, DESTROY, Rig

NO_CAPACITY = "instance-operations/launch/insufficient-capacity"
URL, PATH = "https://people.test", "/services/T0123456789/B0123456789-secret-path"
TOKEN = "token-of-the-receiver-0123456789"
WANTED = {"notify_url": URL + PATH, "notify_token": TOKEN}


@pytest.fixture
def told(rig: Rig) -> Rig:
    """A rig whose modules are called as the frame calls them."""
    rig.call = lambda code, task: execute(code.SPEC, code.run, task)
    return rig


@pytest.fixture
def people(told: Rig) -> Receiver:
    told.receivers[URL] = Receiver()
    return t.cast(Receiver, told.receivers[URL])


def log(rig: Rig) -> list[dict[str, t.Any]]:
    return checked_events(rig.folder / "state" / "events.jsonl")


def report(rig: Rig, run_id: str) -> dict[str, t.Any]:
    found = json.loads((rig.folder / "state" / "runs" / f"{run_id}.json").read_text())
    jsonschema.validate(found, schema("run-report"))
    return t.cast("dict[str, t.Any]", found)


def orphan(rig: Rig) -> str:
    """A machine that nobody knows of any more, and that the next run sees for the second time; its id."""
    rig.behave("never_boots", times=1)
    rig.rent()
    for name in rig.claims():
        rig.kube("DELETE", f"/api/v1/namespaces/tgp-system/configmaps/tgp-claim-{name}")
    reap(rig)
    rig.advance(61)
    return rig.machine().id


def reap(rig: Rig, **params: t.Any) -> dict[str, t.Any]:
    plan = rig.plan("reap", **params)
    rig.unlock(plan["run_id"])
    return plan


# ---- events


def test_L08_every_call_that_costs_or_deletes_is_told_before_and_after_in_order(told: Rig) -> None:
    plan = told.plan("provision", pools=["training"], nodes=2)
    told.run("launch", plan["run_id"])
    told.run("join", plan["run_id"])
    told.unlock(plan["run_id"])
    gone = told.destroy()
    lines = log(told)
    for path, call in ((CREATE, "launch"), (DESTROY, "terminate")):
        sent = [one for one in told.writes() if path in one]
        intents = [one for one in lines if one["kind"] == "intent" and one["call"] == call]
        outcomes = [one for one in lines if one["kind"] == "outcome" and one["call"] == call]
        assert len(sent) == len(intents) == len(outcomes) == 2
        assert {one["result"] for one in outcomes} == {"ok"}
        assert {one["ref"] for one in outcomes} == {one["seq"] for one in intents}
    launched = {one["name"]: one for one in lines if one["kind"] == "outcome" and one["call"] == "launch"}
    assert {one["id"] for one in launched.values()} == {one.id for one in told.machines(living=False)}
    assert all(one["price_hour"] for one in launched.values())
    for name in launched:
        phases = [(one.get("before", ""), one["phase"]) for one in lines if one["kind"] == "phase" and one["name"] == name]
        assert [after for _before, after in phases][:2] == ["Pending", "Provisioning"]
        assert [after for _before, after in phases][-2:] == ["Terminating", "Removed"]
        assert all(before == earlier for (before, _), (_, earlier) in zip(phases[1:], phases, strict=False)), phases
    assert len([one for one in lines if one["kind"] == "booked"]) == 2
    assert len([one for one in lines if one["kind"] == "decision" and one["action"] == "launch" and one["price_hour"]]) == 2
    assert [one["event"] for one in lines if one["kind"] == "lock" and one["run"] == plan["run_id"]][0] == "taken"
    assert [one["event"] for one in lines if one["kind"] == "lock"][-1] == "released"
    calls = {(one["call"], one["target"].split("/")[-2]) for one in lines if one["kind"] == "intent" and one["call"] == "delete"}
    assert {("delete", "nodes"), ("delete", "secrets")} <= calls
    assert report(told, plan["run_id"])["outcome"] == "changed"
    assert report(told, gone["plan"]["run_id"])["counts"]["machines_gone"] == 2


def test_a_decision_is_told_before_its_record_and_the_intent_before_the_call(told: Rig) -> None:
    path = told.folder / "state" / "events.jsonl"
    seen: list[str] = []

    def watch(request: t.Any) -> None:
        if request.url.path.endswith(CREATE):
            seen.append(json.loads(path.read_text().splitlines()[-1])["kind"])

    told.watcher = watch
    told.rent()
    assert seen == ["intent"]
    kinds = [(one["kind"], one.get("phase") or one.get("call", "")) for one in log(told)]
    assert [kind for kind, _what in kinds].index("decision") < kinds.index(("phase", "Pending"))
    assert kinds.index(("phase", "Provisioning")) < kinds.index(("intent", "launch")) < kinds.index(("outcome", "launch"))


@pytest.mark.parametrize(
    "fault, result, error",
    [
        (
            {"kind": "status", "status": 400, "body": {"error": {"code": NO_CAPACITY}}},
            "refused",
            "capacity",
        ),
        ({"kind": "lost_after"}, "unknown", "launch_unknown"),
    ],
)
def test_L14_refusals_and_lost_answers_are_outcomes(told: Rig, fault: dict[str, t.Any], result: str, error: str) -> None:
    rest = {key: value for key, value in fault.items() if key != "kind"}
    told.fault(fault["kind"], "lambda", "POST", CREATE, times=1, **rest)
    told.rent()
    first = next(one for one in log(told) if one["kind"] == "outcome" and one["call"] == "launch")
    assert (first["result"], first["error"]) == (result, error)


def test_no_secret_is_told(told: Rig, people: Receiver) -> None:
    orphan(told)
    told.reap(**WANTED)
    told.provision(**WANTED)
    told.destroy(**WANTED)
    log(told)
    files = [path.read_bytes() for path in (told.folder / "state").rglob("*") if path.is_file()]
    said = "".join((gzip.decompress(one) if one[:2] == b"\x1f\x8b" else one).decode() for one in files) + json.dumps(people.bodies)
    assert people.bodies
    for secret in (*told.world.secrets.values(), TOKEN, PATH):
        assert secret not in said


def test_check_mode_tells_nobody_anything(told: Rig, people: Receiver) -> None:
    orphan(told)
    before = sorted(path.name for path in (told.folder / "state").rglob("*")), len(log(told))
    told.plan("reap", check=True, **WANTED)
    assert (sorted(path.name for path in (told.folder / "state").rglob("*")), len(log(told))) == before
    assert people.tries == 0


def test_a_log_that_cannot_be_written_is_one_warning_and_the_run_goes_on(told: Rig) -> None:
    (told.folder / "state").mkdir()
    (told.folder / "state" / "events.jsonl").mkdir()
    plan = told.plan("provision", pools=["training"], nodes=1)
    assert len([one for one in told.warnings if "event log" in one]) == 1
    told.run("launch", plan["run_id"])
    assert told.machine()


def test_the_log_can_lie_elsewhere_or_nowhere(told: Rig, tmp_path: Path) -> None:
    elsewhere = tmp_path / "var" / "gpu.jsonl"
    reap(told, events_file=str(elsewhere))
    assert "step" in {one["kind"] for one in map(json.loads, elsewhere.read_text().splitlines())}
    elsewhere.unlink()
    reap(told, events_file="none")
    assert not elsewhere.exists()


# ---- the report


def test_a_second_run_says_ok_and_writes_nothing(told: Rig, people: Receiver) -> None:
    told.provision(**WANTED)
    told.reap(**WANTED)
    before = told.writes()
    again = told.reap(**WANTED)
    assert report(told, again["plan"]["run_id"])["outcome"] == "ok"
    assert told.writes() == before
    assert people.tries == 0


def test_L08_a_lost_lock_is_the_runs_last_word_and_people_are_told(told: Rig, people: Receiver) -> None:
    plan = told.plan("provision", pools=["training"], nodes=1, **WANTED)
    cluster = told.kube("GET", "/api/v1/namespaces/kube-system")["metadata"]["uid"][:8]
    lease = f"/apis/coordination.k8s.io/v1/namespaces/tgp-system/leases/tgp-{cluster}"
    told.kube("PATCH", lease, {"spec": {"holderIdentity": "elsewhere/1/other-run"}})
    done = told.run("launch", plan["run_id"], **WANTED)
    assert done["failed"] and done["error"]["kind"] == "lock_lost"
    told.unlock(plan["run_id"])
    assert told.creates() == 0
    found = report(told, plan["run_id"])
    assert (found["outcome"], bool(found["ended"])) == ("lock_lost", True)
    assert people.kinds == ["lock_lost"]
    assert "lost" in [one["event"] for one in log(told) if one["kind"] == "lock"]


# ---- notices


def test_L12_an_orphan_is_told_once_and_forgotten_when_it_is_gone(told: Rig, people: Receiver) -> None:
    machine = orphan(told)
    told.fault("status", "lambda", "POST", DESTROY, status=500, times=None)
    told.reap(**WANTED)
    assert people.kinds == ["orphan_found"]
    (body,) = people.bodies
    jsonschema.validate(body, schema("notice"))
    assert body["data"]["id"] == machine
    assert (people.tokens, people.paths) == ([f"Bearer {TOKEN}"], [PATH])
    assert list(told.state("notices")) == [body["key"]]
    for _run in range(3):
        told.advance(16 * 60)
        told.reap(**WANTED)
    assert people.kinds == ["orphan_found", "destroy_pending"], "it has a claim since it is old enough, and does not go"
    told.faults.clear()
    told.reap(**WANTED)
    told.reap(**WANTED)
    assert told.machines() == []
    assert told.state("notices") == {}
    assert people.tries == 2


def test_a_receiver_is_asked_three_times_and_fails_no_run(told: Rig, people: Receiver) -> None:
    orphan(told)
    people.answers = [500, 503, 429]
    plan = reap(told, **WANTED)
    assert not plan.get("failed")
    assert people.tries == 3
    assert any("could not be delivered" in one for one in told.warnings)
    assert told.state("notices") == {}
    assert [one["result"] for one in log(told) if one["kind"] == "notice"] == ["failed"]
    people.answers = [500, 500]
    reap(told, **WANTED)
    assert people.kinds == ["orphan_found"], "what did not arrive is tried again by the next run"


def test_a_refusal_is_not_repeated(told: Rig, people: Receiver) -> None:
    orphan(told)
    people.answers = [403]
    reap(told, **WANTED)
    assert people.tries == 1
    assert any("answered 403" in one for one in told.warnings)


def test_a_receiver_that_sleeps_holds_the_run_up_for_its_deadline_at_most(
    told: Rig, people: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "DEADLINE", 0.5)
    orphan(told)
    people.gate.clear()
    reap(told, **WANTED)
    assert people.bodies == [], "the receiver still sleeps"
    people.gate.set()
    assert any("too slow" in one for one in told.warnings)


def test_a_command_gets_the_same_body_without_a_shell(told: Rig, tmp_path: Path) -> None:
    orphan(told)
    script = tmp_path / "tell.py"
    script.write_text("import sys, pathlib\npathlib.Path(sys.argv[1]).write_text(sys.stdin.read() + sys.argv[2])\n")
    reap(told, notify_command=[sys.executable, str(script), str(tmp_path / "said"), "$HOME; exit 1"])
    text, _, argument = (tmp_path / "said").read_text().rpartition("}")
    jsonschema.validate(json.loads(text + "}"), schema("notice"))
    assert argument == "$HOME; exit 1"


def test_a_command_that_fails_is_a_warning_with_its_words(told: Rig) -> None:
    orphan(told)
    reap(told, notify_command=[sys.executable, "-c", "import sys; sys.exit('no paper left')"])
    assert any("no paper left" in one for one in told.warnings)
    reap(told, notify_command="not-a-program --at-all")
    assert any("cannot be started" in one for one in told.warnings)


@pytest.mark.parametrize(
    "options",
    [
        {"notify_url": URL, "notify_token": "sch\u00fcssel-0123456789-0123456789"},
        {"notify_command": [sys.executable, "nothing\0at all"]},
    ],
)
def test_what_cannot_be_sent_at_all_is_a_warning_that_says_why(told: Rig, people: Receiver, options: dict[str, t.Any]) -> None:
    orphan(told)
    reap(told, **options)
    (warning,) = [one for one in told.warnings if "could not be delivered" in one]
    assert "cannot be sent" in warning and "0123456789" not in warning
    assert people.tries == 0 and told.state("notices") == {}


def test_a_template_makes_another_body(told: Rig, people: Receiver) -> None:
    orphan(told)
    reap(told, **WANTED, notify_template={"text": "{kind}: {subject}", "blocks": [{"deep": "{text}", "number": 1}]})
    (body,) = people.bodies
    assert body["text"].startswith("orphan_found: lambda ")
    assert "has no claim" in body["blocks"][0]["deep"]
    assert body["blocks"][0]["number"] == 1


def test_the_token_may_lie_in_the_common_secret(told: Rig, people: Receiver) -> None:
    orphan(told)
    data = {"notify-token": TOKEN}
    told.kube("POST", "/api/v1/namespaces/tgp-system/secrets", {"metadata": {"name": "tgp-operator-secret"}, "stringData": data})
    reap(told, notify_url=URL)
    assert people.tokens == [f"Bearer {TOKEN}"]


@pytest.mark.parametrize(
    "options", [{"notify_url": "people.test/hook"}, {"notify_url": "https://[broken"}, {"notify_command": "say 'never closed"}]
)
def test_options_that_cannot_be_meant_are_refused_before_anything_is_done(told: Rig, options: dict[str, t.Any]) -> None:
    told.call = lambda code, task: code.run(task)
    with pytest.raises(InvalidInput, match="notify_"):
        told.plan("provision", pools=["training"], nodes=1, **options)
    assert told.writes() == []


def test_L11_a_pool_that_is_paused_after_failed_joins_is_told_once(told: Rig, people: Receiver) -> None:
    told.training["registrationTimeout"] = "5m"
    told.behave("never_boots")
    failed = [told.provision(nodes=1, **WANTED)["outcome"] for _run in range(3)]
    assert failed == ["partial"] * 3
    assert people.kinds == []
    for _run in range(2):
        plan = told.plan("provision", pools=["training"], nodes=1, **WANTED)
        told.unlock(plan["run_id"])
    assert people.kinds == ["failed_joins"]
    assert report(told, plan["run_id"])["outcome"] == "shortfall"
    told.advance(3601)
    told.plan("provision", check=True, pools=["training"], nodes=1, **WANTED)
    reap(told, **WANTED)
    assert told.state("notices") == {}, "the pause is over"
