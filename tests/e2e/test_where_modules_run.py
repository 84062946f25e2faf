# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules run on the controller wherever a task is sent, also with ``async``, and warn once when it is sent elsewhere."""

from __future__ import annotations

import json
import re
import typing as t
from pathlib import Path

import pytest
import yaml

from .box import Result, Sandbox

Json = dict[str, t.Any]

HOSTS = ("bastion", "web1", "web2", "hub", "rack")  # of the inventory; none can be reached
LOOK: Json = {"tgp.gpu.control_plane_info": {"endpoint": "https://127.0.0.1:9", "talos": False}}
READ: Json = {"tgp.gpu.instance_info": {"clouds": ["lambda"]}, "register": "found"}
MISTYPED: Json = {"tgp.gpu.lambda_instance": {"name": "tgp-x", "instance_type": "gpu_1x_a10", "sise": 1}}
REFUSED = "Unsupported parameters for (tgp.gpu.lambda_instance) module: sise"
SHOW: Json = {"ansible.builtin.debug": {"msg": "{{ found.instances | length }} instances, changed {{ found.changed }}"}}
STATUS: Json = {
    "ansible.builtin.async_status": {"jid": "{{ found.ansible_job_id }}"},
    "delegate_to": "localhost",
    "become": False,
    "register": "found",
    "until": "found is finished",
    "retries": 30,
    "delay": 1,
}


def play(hosts: str, *tasks: Json, **keywords: t.Any) -> Json:
    return {"hosts": hosts, "gather_facts": False, "tasks": list(tasks), **keywords}


def played(
    sandbox: Sandbox, folder: Path, *plays: Json, hosts: tuple[str, ...] = HOSTS, env: t.Mapping[str, str | None] | None = None
) -> Result:
    """Run plays on hosts that do not exist. Files of jobs are kept in ``folder``."""
    inventory, file = folder / "hosts.yml", folder / "play.yml"
    inventory.write_text(yaml.safe_dump({"all": {"hosts": {one: {"ansible_host": f"{one}.invalid"} for one in hosts}}}))
    file.write_text(yaml.safe_dump(list(plays)))
    jobs(folder)
    variables = json.dumps({"ansible_async_dir": str(folder / "jobs")})
    return sandbox.command("ansible-playbook", "-i", str(inventory), "-e", variables, str(file), env=env)


def jobs(folder: Path) -> list[Path]:
    (folder / "jobs").mkdir(exist_ok=True)
    return list((folder / "jobs").iterdir())


def warnings(result: Result) -> list[str]:
    said = " ".join(result.err.split()).split("[WARNING]: ")
    return [one.strip() for one in said if "runs on the controller" in one]


def test_a_task_for_another_host_or_user_is_warned_of_once(sandbox: Sandbox, tmp_path: Path) -> None:
    done = played(
        sandbox,
        tmp_path,
        play("bastion", LOOK, LOOK, {**LOOK, "become": True}),
        play("bastion:web1:web2", LOOK, {**LOOK, "delegate_to": "hub"}),
        play("rack", {**LOOK, "delegate_to": "localhost"}),
        play("rack", LOOK, connection="local"),
        play("localhost", LOOK),  # in this inventory it has no connection, so that other tasks go there by SSH
        play("localhost", {**LOOK, "become": True}, connection="local"),
        hosts=(*HOSTS, "localhost"),
    ).succeeded()
    assert done.out.count("ok: [") == 13
    without = "delegate_to, become and connection variables have no effect. Write hosts: localhost or delegate_to: localhost"
    assert warnings(done) == [
        f"tgp.gpu.control_plane_info runs on the controller, not on bastion: {without}.",
        f"tgp.gpu.control_plane_info runs on the controller, not on bastion: {without}, and become: false.",
        f"tgp.gpu.control_plane_info runs on the controller, not on the hosts of this play: {without}.",
        f"tgp.gpu.control_plane_info runs on the controller, not on hub: {without}.",
        "tgp.gpu.control_plane_info runs on the controller as the user who started the playbook: become has no effect. Write become: false.",
    ]


def test_async_with_a_poll_is_the_same_call(sandbox: Sandbox, tmp_path: Path) -> None:
    done = played(sandbox, tmp_path, play("bastion", READ, SHOW, {**READ, "async": 60, "poll": 2}, SHOW)).succeeded()
    once, again = re.findall(r'"msg": "(.*?)"', done.out)
    assert once == again and "instances, changed False" in once
    assert len(warnings(done)) == 1 and jobs(tmp_path) == []
    wrong = played(sandbox, tmp_path, play("bastion", {**MISTYPED, "async": 60, "poll": 1}))
    assert wrong.rc == 2 and REFUSED in wrong.words


@pytest.mark.parametrize(
    ("keywords", "words"), [({}, "within the requested time - 2s"), ({"timeout": 1}, "Timed out after 1 second")]
)
def test_async_with_a_poll_is_a_time_limit(sandbox: Sandbox, tmp_path: Path, keywords: Json, words: str) -> None:
    wait = {"tgp.gpu.node_wait": {"nodes": ["nobody"], "timeout": 60 * 120}, "async": 2, "poll": 1, **keywords}
    done = played(sandbox, tmp_path, play("bastion", {**wait, "until": False, "retries": 1, "delay": 0}))
    assert done.rc == 2 and words in done.words and done.seconds < 60


@pytest.mark.parametrize("hosts", ["bastion", "localhost"])
def test_a_job_in_the_background_runs_on_the_controller(sandbox: Sandbox, tmp_path: Path, hosts: str) -> None:
    """With the environment of the task and the Python of the playbook, as its user."""
    start = {**READ, "async": 60, "poll": 0, "environment": {"LAMBDA_API_KEY": sandbox.variables["LAMBDA_API_KEY"]}}
    keywords: Json = {"vars": {"ansible_python_interpreter": "/nowhere/python3"}}
    if hosts == "localhost":
        keywords |= {"connection": "local", "become": True, "become_user": "nobody-of-this-name"}
    status = {**STATUS, "vars": {"ansible_python_interpreter": "{{ ansible_playbook_python }}"}}
    done = played(sandbox, tmp_path, play(hosts, start, status, SHOW, **keywords), env={"LAMBDA_API_KEY": None}).succeeded()
    assert "instances, changed False" in done.out
    assert len(warnings(done)) == 1 and len(jobs(tmp_path)) == 1


def test_a_job_in_the_background_is_checked_as_the_call_is(sandbox: Sandbox, tmp_path: Path) -> None:
    rent = {"tgp.gpu.lambda_instance": {"name": "tgp-x", "instance_type": "gpu_1x_a10"}, "register": "found", "check_mode": True}
    change = {"ansible.builtin.debug": {"msg": "changed {{ found.changed }}"}}
    done = played(
        sandbox, tmp_path, play("bastion", {**rent, "async": 60, "poll": 0}, STATUS, change, {**MISTYPED, "async": 60, "poll": 0})
    )
    assert "changed True" in done.out and sandbox.totals()["instances"] == 0
    assert done.rc == 2 and REFUSED in done.words and len(jobs(tmp_path)) == 1


def test_a_job_in_the_background_names_playbook_and_variables(sandbox: Sandbox, tmp_path: Path) -> None:
    plan = {"tgp.gpu.fleet_plan": {"mode": "provision"}, "register": "found", "async": 60, "poll": 0}
    done = played(sandbox, tmp_path, play("bastion", plan, STATUS, vars={"tgp_variables": ["documents"]}))
    assert done.rc == 2 and "Give tgp_documents (a file or folder" in done.words
    assert [json.loads(one.read_text())["playbook"] for one in (sandbox.state / "runs").iterdir()] == ["play"]
