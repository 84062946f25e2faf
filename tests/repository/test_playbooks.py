# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A mistyped variable ends every playbook before it does anything."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest
import yaml

from .tree import ROOT

ROUTES = yaml.safe_load((ROOT / "meta" / "runtime.yml").read_text(encoding="utf-8"))["plugin_routing"]["modules"]
OURS = {*ROUTES, *(path.stem for name in ("fleet_*.py", "provider_*.py") for path in (ROOT / "plugins" / "action").glob(name))}
STRICT = {"that": "lookup('tgp.gpu.variables', tgp_variables, strict=true) is mapping", "quiet": True}
Task = dict[str, t.Any]


def first(tasks: t.Sequence[Task]) -> Task:
    """The first task that is run, inside blocks and roles."""
    task = tasks[0]
    if "block" in task:
        return first(task["block"])
    role = next((task[key]["name"] for key in ("ansible.builtin.import_role", "ansible.builtin.include_role") if key in task), None)
    if role is None:
        return task
    return first(yaml.safe_load((ROOT / "roles" / role.rpartition(".")[2] / "tasks" / "main.yml").read_text(encoding="utf-8")))


def checks(task: Task) -> bool:
    """Whether it refuses mistyped variables: the lookup does when it is told to, and so does each module that runs in our action plugin."""
    return task.get("ansible.builtin.assert") == STRICT or any(
        key.startswith("tgp.gpu.") and key.rpartition(".")[2] in OURS for key in task
    )


@pytest.mark.parametrize("path", sorted((ROOT / "playbooks").glob("*.yml")), ids=lambda path: path.stem)
def test_the_first_task_of_every_playbook_refuses_mistyped_variables(path: Path) -> None:
    play = yaml.safe_load(path.read_text(encoding="utf-8"))[0]
    assert play["vars"]["tgp_variables"] and "pre_tasks" not in play and "roles" not in play
    task = first(play["tasks"])
    assert checks(task) and "when" not in task, task["name"]


@pytest.mark.parametrize(
    "task",
    [{"ansible.builtin.command": "helm"}, {"ansible.builtin.assert": {"that": "true"}}, {"tgp.gpu.wireguard_peer": {}}],
)
def test_other_tasks_do_not_count(task: Task) -> None:
    assert not checks(task)
