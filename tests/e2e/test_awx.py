# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/awx.yml against a stand-in for AWX's API, and what AWX would run: the project of examples/awx, by ansible-runner."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
import yaml

from .awx import ADMIN, READER, Awx
from .box import ROOT, Result, Run, Sandbox

PROJECT = ROOT / "examples" / "awx"


class _Loader(yaml.SafeLoader):
    """Reads ``!unsafe`` as text."""


_Loader.add_constructor("!unsafe", lambda loader, node: loader.construct_scalar(node))


def role_variables() -> dict[str, t.Any]:
    """Of role awx, with the questions that surveys share in their places."""
    found = yaml.load((ROOT / "roles" / "awx" / "vars" / "main.yml").read_text(), _Loader)
    pool = found["awx_pool"]
    shared = {"{{ awx_pool }}": pool, "{{ awx_pool_or_all }}": {**pool, "question_name": "Pool, or empty for everything"}}
    for template in found["awx_templates"]:
        if "survey" in template:
            template["survey"] = [shared.get(one, one) if isinstance(one, str) else one for one in template["survey"]]
    return t.cast("dict[str, t.Any]", found)


VARIABLES = role_variables()
PLAYBOOKS = sorted(path.name for path in PROJECT.glob("*.yml") if path.name != "gpu.tgp.yml")
GIVEN = {
    "awx_project_url": "https://git.example.org/gpus.git", "awx_image": "registry.example.org/tgp-gpu:0.1.0",
    "awx_credentials": ["cluster"], "awx_inventory_credential": "cluster", "tgp_documents": "pools.yml",
}  # fmt: skip


@pytest.fixture
def awx() -> t.Iterator[Awx]:
    served = Awx(PLAYBOOKS)
    for number in range(40):  # more than a page
        served.add("credentials", name=f"of somebody else {number}")
    for name in GIVEN["awx_credentials"]:
        served.add("credentials", name=name)
    yield served
    served.close()


FEW = ("reap", "autoscale", "provision")  # job templates that are made here; each costs several processes
MADE = [one for one in VARIABLES["awx_templates"] if one["name"] in FEW]


def set_up(awx: Awx, folder: Path, *arguments: str, token: str = ADMIN, **more: t.Any) -> Result:
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(folder), "ANSIBLE_NOCOLOR": "1", "LC_ALL": "C.UTF-8",
        "CONTROLLER_HOST": awx.url, "CONTROLLER_OAUTH_TOKEN": token,
    }  # fmt: skip
    run = Run(
        ["ansible-playbook", "playbooks/awx.yml", "-e", json.dumps({**GIVEN, "awx_templates": MADE, **more}), *arguments],
        environment,
    )
    done = run.finish()
    assert ADMIN not in done.text and READER not in done.text
    return done


def test_the_first_run_sets_everything_up_and_the_second_changes_nothing(awx: Awx, tmp_path: Path) -> None:
    dry = set_up(awx, tmp_path, "--check", "--diff").succeeded()
    assert dry.count("changed") > 5 and awx.writes == []
    first = set_up(awx, tmp_path, "-vvv").succeeded()
    assert first.count("failed") == 0
    templates, schedules = awx.named("job_templates"), awx.named("schedules")
    assert {one.removeprefix("tgp.gpu ") for one in templates} == set(FEW)
    assert {json.loads(one["extra_vars"])["tgp_documents"] for one in templates.values()} == {"pools.yml"}
    assert all(len(one["summary_fields"]["credentials"]) == 1 for one in templates.values())
    assert [(name, one["enabled"]) for name, one in sorted(schedules.items())] == [
        ("tgp.gpu autoscale", False),
        ("tgp.gpu reap", True),
    ]
    assert "INTERVAL=5" in schedules["tgp.gpu reap"]["rrule"]
    assert [question["variable"] for survey in awx.surveys.values() for question in survey["spec"]] == ["tgp_pool", "tgp_nodes"]
    assert (
        len(awx.named("credential_types")) == 12
        and awx.named("inventory_sources")["tgp.gpu source"]["source_path"] == "gpu.tgp.yml"
    )

    awx.writes.clear()
    second = set_up(awx, tmp_path).succeeded()
    assert (second.count("changed"), awx.writes) == (0, [])

    awx.named("schedules")["tgp.gpu reap"]["enabled"] = False
    awx.named("credential_types")["tgp.gpu Lambda"]["injectors"] = {}
    before = set_up(awx, tmp_path, "--check").succeeded()
    assert (before.count("changed"), awx.writes) == (2, [])
    assert re.search(r'"before": {\s*"enabled": false', before.out)
    set_up(awx, tmp_path).succeeded()
    assert [method for method, _path in awx.writes] == ["PATCH", "PATCH"]
    assert awx.named("schedules")["tgp.gpu reap"]["enabled"] is True


@pytest.mark.parametrize(
    ("more", "token", "words"),
    [
        ({}, "wrong", ["401", "The token is not valid"]),
        ({}, READER, ["tgp.gpu image: 403", "You do not have permission"]),
        ({"awx_credentials": ["no such one"]}, ADMIN, ["There is no no such one among the credentials"]),
        ({"awx_project_url": "git@git.example.org:gpus.git"}, ADMIN, ["project is failed, not successful", "awx_project_url"]),
        ({"awx_prject_branch": "x"}, ADMIN, ["Did you mean awx_project_branch?"]),
    ],
)  # fmt: skip
def test_what_awx_refuses_is_said_without_the_token(
    awx: Awx, tmp_path: Path, more: dict[str, t.Any], token: str, words: list[str]
) -> None:
    done = set_up(awx, tmp_path, token=token, **more).failed()
    assert all(word in done.words for word in words), done.text


def test_awx_takes_every_credential_type_and_survey(awx: Awx) -> None:
    assert {one["name"] for one in VARIABLES["awx_templates"]} == {name.removesuffix(".yml") for name in PLAYBOOKS}
    for kind in VARIABLES["awx_credential_types"]:
        assert awx.answer("POST", "/api/v2/credential_types/", f"Bearer {ADMIN}", {**kind, "kind": "cloud"})[0] == 201, kind["name"]
    asked = set()
    for template in VARIABLES["awx_templates"]:
        at, survey = awx.add("job_templates", name=template["name"])["id"], template.get("survey", [])
        body = {"name": "", "description": "", "spec": survey}
        assert awx.answer("POST", f"/api/v2/job_templates/{at}/survey_spec/", f"Bearer {ADMIN}", body) == (200, {})
        (play,) = yaml.safe_load((ROOT / "playbooks" / f"{template['name']}.yml").read_text())
        words = {question["variable"].removeprefix("tgp_") for question in survey}
        assert words <= set(play["vars"]["tgp_variables"]), template["name"]
        asked |= words
    assert asked == {"mode", "pool", "nodes", "machine", "reason"}


@pytest.mark.parametrize(
    ("kind", "body", "field", "words"),
    [
        ("organizations", {"name": "Default"}, "__all__", "already exists"),
        ("schedules", {"rrule": "DTSTART:20260101T000000 RRULE:FREQ=DAILY;INTERVAL=1"}, "rrule", "naive datetime"),
        ("schedules", {"rrule": "DTSTART:20260101T000000Z RRULE:FREQ=DAILY"}, "rrule", "INTERVAL required"),
        ("credential_types", {"kind": "cloud", "injectors": {"env": {"KEY": "{{ key }}"}}}, "injectors", "uses an undefined field"),
        ("credential_types", {"kind": "cloud", "injectors": {"env": {"ANSIBLE_KEY": "x"}}}, "injectors", "not allowed"),
        ("job_templates", {"project": 99}, "project", "does not exist"),
    ],
)
def test_the_stand_in_refuses_what_awx_refuses(awx: Awx, kind: str, body: dict[str, t.Any], field: str, words: str) -> None:
    template = awx.add("job_templates", name="some")["id"]
    given = {"name": "one", "unified_job_template": template, **body}
    status, answer = awx.answer("POST", f"/api/v2/{kind}/", f"Bearer {ADMIN}", given)
    assert status == 400 and words in answer[field][0]


def test_the_stand_in_answers_in_pages(awx: Awx) -> None:
    status, first = awx.answer("GET", "/api/v2/credentials/", f"Bearer {ADMIN}", {})
    assert (status, first["count"], len(first["results"])) == (200, 41, 25)
    _status, second = awx.answer("GET", first["next"], f"Bearer {ADMIN}", {})
    assert (len(second["results"]), second["next"]) == (16, None)
    assert awx.answer("GET", "/api/v2/credentials/?colour=red", f"Bearer {ADMIN}", {})[0] == 400


# ---- what a job does


#: what AWX adds to the extra variables of a job that a person launched by a template of a project
META_VARIABLES = {
    f"{prefix}_{name}": value
    for prefix in ("awx", "tower")
    for name, value in {
        "job_id": 41,
        "job_launch_type": "manual",
        "job_template_id": 7,
        "job_template_name": "gpu provision",
        "project_revision": "6d8f2cb0f6b1ac6b3b0f2d5bd9c8b1a2a0e4f3d1",
        "project_scm_branch": "main",
        "job_scm_branch": "main",
        "execution_node": "node-1",
        "user_id": 3,
        "user_name": "ada",
        "user_email": "ada@example.org",
        "user_first_name": "Ada",
        "user_last_name": "",
        "inventory_id": 2,
        "inventory_name": "machines",
        "workflow_job_id": 40,
        "workflow_job_name": "plan and apply",
    }.items()
}


def test_a_job_of_the_project_leaves_the_run_as_its_artifact(shared: Sandbox, tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project)
    variables = tmp_path / "env" / "extravars"
    variables.parent.mkdir()
    given = {
        **META_VARIABLES,
        "tgp_documents": str(ROOT / "examples" / "demo"),
        "tgp_pool": "training",
        "tgp_summary": str(tmp_path / "run.json"),
    }
    variables.write_text(json.dumps(given))
    done = shared.command("ansible-runner", "run", str(tmp_path), "-p", "provision.yml", "--ident", "1", "--cmdline=--check")
    assert done.rc == 0, done.text
    events = [json.loads(path.read_text()) for path in (tmp_path / "artifacts" / "1" / "job_events").glob("*.json")]
    (stats,) = [event["event_data"] for event in events if event["event"] == "playbook_on_stats"]
    run = stats["artifact_data"]["tgp_run"]
    assert (run["started_by"]["awx_user"], run["started_by"]["awx_job"]) == ("ada", "41") and "ada@example.org" not in json.dumps(
        run
    )
    assert (run["playbook"], run["check"], run["exit_code"], run["counts"]["launch"]) == ("provision", True, 0, 1)
    assert {key: value for key, value in run.items() if key != "report_file"} == json.loads((tmp_path / "run.json").read_text())


def test_the_playbooks_of_the_project_are_those_of_the_collection() -> None:
    for name in PLAYBOOKS:
        (play,) = yaml.safe_load((PROJECT / name).read_text())
        assert (
            play["ansible.builtin.import_playbook"] == f"tgp.gpu.{name.removesuffix('.yml')}"
            and (ROOT / "playbooks" / name).is_file()
        )


@pytest.mark.parametrize("name", ["execution-environment.yaml", "decision-environment.yaml"])
def test_ansible_builder_makes_a_context_of_each_environment(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "examples"
    folder.mkdir()
    shutil.copy(ROOT / "examples" / name, folder)
    (tmp_path / "tgp-gpu-0.1.0.tar.gz").write_bytes(b"")
    builder = Path(sys.executable).with_name("ansible-builder")
    done = subprocess.run(
        [builder, "create", "-f", name, "-c", str(tmp_path / "context"), "--output-filename", "Containerfile"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FROM $EE_BASE_IMAGE" in (tmp_path / "context" / "Containerfile").read_text()
    assert (tmp_path / "context" / "_build" / "collections" / "tgp-gpu-0.1.0.tar.gz").is_file()
