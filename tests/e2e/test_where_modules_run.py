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

Task = dict[str, t.Any]

READ: Task = {"tgp.gpu.instance_info": {"clouds": ["lambda"]}, "register": "found"}
CREATE: Task = {"tgp.gpu.lambda_instance": {"name": "tgp-x", "instance_type": "gpu_1x_a10", "sise": 1}}
NOT_THERE = "runs on the controller, not on"


def played(
    sandbox: Sandbox,
    folder: Path,
    *tasks: Task,
    hosts: str = "bastion",
    env: t.Mapping[str, str | None] | None = None,
    **play: t.Any,
) -> Result:
    """Run a play on hosts that do not exist; jobs of ``async`` and temporary files are kept in ``folder``."""
    names = hosts.split(",")
    file, inventory = folder / "play.yml", folder / "hosts.yml"
    inventory.write_text(yaml.safe_dump({"all": {"hosts": {one: {"ansible_host": f"{one}.invalid"} for one in names}}}))
    file.write_text(yaml.safe_dump([{"hosts": hosts, "gather_facts": False, "tasks": list(tasks), **play}]))
    (folder / "jobs").mkdir(exist_ok=True)
    variables = json.dumps({"ansible_async_dir": str(folder / "jobs")})
    return sandbox.command("ansible-playbook", "-i", str(inventory), "-e", variables, str(file), env=env)


def warnings(result: Result) -> list[str]:
    """The warnings about where a module runs, as printed."""
    return re.findall(r"tgp\.gpu\.\w+ runs on the controller[^.]*\.[^.]*\.", result.words)


def printed(result: Result, name: str = "shown") -> t.Any:
    """What the task ``show`` printed."""
    found = re.search(rf'"{name}": "?(.*)', result.out)
    assert found is not None, result.text
    return found[1].rstrip('",')


def show(expression: str) -> Task:
    return {"ansible.builtin.debug": {"msg": {"shown": expression}}}


COUNT = show("{{ found.instances | length }} found, changed {{ found.changed }}")


@pytest.mark.parametrize(
    ("hosts", "task", "play", "sentences"),
    [
        ("bastion", {}, {}, ["not on bastion: delegate_to, become and connection variables have no effect"]),
        ("bastion", {"delegate_to": "hub"}, {}, ["not on hub:"]),
        ("bastion,web1,web2", {}, {}, ["not on the hosts of this play:"]),
        ("bastion,web1,web2", {"become": True}, {}, ["hosts: localhost or delegate_to: localhost, and become: false."]),
        ("localhost", {"become": True}, {"connection": "local"}, ["as the user who started the playbook: become has no effect"]),
        ("bastion,web1", {"delegate_to": "localhost"}, {}, []),
        ("bastion,web1", {}, {"connection": "local"}, []),
        ("localhost", {}, {}, []),  # by name: an inventory that lists it without a connection sends tasks there by SSH
    ],
)
def test_a_task_for_another_host_or_user_is_warned_of_once(
    sandbox: Sandbox, tmp_path: Path, hosts: str, task: Task, play: dict[str, t.Any], sentences: list[str]
) -> None:
    done = played(sandbox, tmp_path, {**READ, **task}, hosts=hosts, **play).succeeded()
    assert done.out.count("ok: [") == len(hosts.split(","))
    found = warnings(done)
    assert len(found) == len(sentences), done.text
    assert all(sentence in text for sentence, text in zip(sentences, found, strict=True)), found


def test_async_with_a_poll_is_the_same_call_with_a_time_limit(sandbox: Sandbox, tmp_path: Path) -> None:
    done = played(sandbox, tmp_path, READ, COUNT, {**READ, "async": 60, "poll": 2}, COUNT).succeeded()
    once, again = re.findall(r'"shown": "(.*?)"', done.out)
    assert once == again and "found, changed False" in once
    assert len(warnings(done)) == 1 and list((tmp_path / "jobs").iterdir()) == []
    wrong = played(sandbox, tmp_path, {**CREATE, "async": 60, "poll": 1})
    assert wrong.rc == 2 and "Unsupported parameters for (tgp.gpu.lambda_instance) module: sise" in wrong.words


@pytest.mark.parametrize(
    ("limits", "words"), [({}, "within the requested time - 2s"), ({"timeout": 1}, "Timed out after 1 second")]
)
def test_the_time_limit_of_async_ends_the_call(sandbox: Sandbox, tmp_path: Path, limits: Task, words: str) -> None:
    wait = {"tgp.gpu.node_wait": {"nodes": ["nobody"], "timeout": 6000}, "async": 2, "poll": 1, **limits}
    done = played(sandbox, tmp_path, {**wait, "retries": 1, "delay": 0, "until": False})
    assert done.rc == 2 and words in done.words and done.seconds < 60


@pytest.mark.parametrize("hosts", ["bastion", "localhost"])
def test_a_job_in_the_background_is_on_the_controller(sandbox: Sandbox, tmp_path: Path, hosts: str) -> None:
    """With what the call has otherwise: the environment of the task and the Python of the playbook."""
    start = {
        **READ,
        "async": 60,
        "poll": 0,
        "environment": {"LAMBDA_API_KEY": sandbox.variables["LAMBDA_API_KEY"]},
        "become": hosts == "localhost",
        "vars": {"ansible_python_interpreter": "/nowhere/python3"},
    }
    status = {
        "ansible.builtin.async_status": {"jid": "{{ found.ansible_job_id }}"},
        "delegate_to": "localhost",
        "register": "found",
        "until": "found is finished",
        "retries": 30,
        "delay": 1,
    }
    play = {"connection": "local"} if hosts == "localhost" else {}
    done = played(sandbox, tmp_path, start, status, COUNT, hosts=hosts, env={"LAMBDA_API_KEY": None}, **play).succeeded()
    assert printed(done).endswith("found, changed False")
    assert len(warnings(done)) == 1 and len(list((tmp_path / "jobs").iterdir())) == 1
    wrong = played(sandbox, tmp_path, {**CREATE, "async": 60, "poll": 0})
    assert wrong.rc == 2 and "Unsupported parameters for (tgp.gpu.lambda_instance) module: sise" in wrong.words
    assert len(list((tmp_path / "jobs").iterdir())) == 1
