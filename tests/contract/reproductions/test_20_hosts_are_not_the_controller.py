# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``hosts: gpu_nodes`` with the inventory of the documentation: a user's task reaches the machines or nothing, never the controller."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.box import Sandbox
from tests.fixtures.demo import DEMO

PLAY = """
- hosts: gpu_nodes
  gather_facts: false
  tasks:
    - ansible.builtin.command: touch "{folder}/ran-for-{{{{ inventory_hostname }}}}"
"""
NO_NETWORK = {"ANSIBLE_SSH_ARGS": "-o ProxyCommand=/bin/false", "ANSIBLE_HOST_KEY_CHECKING": "False"}


def test_a_task_for_gpu_nodes_does_not_run_on_the_controller(tmp_path: Path) -> None:
    inventory, play, marks = tmp_path / "gpu.tgp.yml", tmp_path / "play.yml", tmp_path / "marks"
    inventory.write_text(f"plugin: tgp.gpu.nodes\ndocuments: [{DEMO}]\n")
    play.write_text(PLAY.format(folder=marks))
    marks.mkdir()
    sandbox = Sandbox(tmp_path / "box", speed=100)
    try:
        sandbox.playbook("provision").succeeded()
        machines = {one["name"] for one in sandbox.living()}
        run = sandbox.command("ansible-playbook", "-i", str(inventory), str(play), env=NO_NETWORK)
    finally:
        sandbox.close()
    assert len(machines) == 2 and all(name in run.out for name in machines), run.text
    assert sorted(file.name for file in marks.iterdir()) == [], "tasks for machines ran on the controller"
    assert run.rc != 0 and run.out.count("unreachable=1") == len(machines), run.text
