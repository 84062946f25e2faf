# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``hosts: gpu_nodes`` with the inventory of the documentation: a user's task reaches the machines or nothing, never the controller.

The machines are rented in this process. Ansible only runs the inventory plugin and a play over its hosts: the playbooks of this collection
are not part of what is tested.
"""

from __future__ import annotations

import os
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

from sandbox.kube import KubeServer
from sandbox.server import Port
from tests.contract.act.rig import Rig
from tests.fixtures.demo import DEMO

PLAY = """
- hosts: gpu_nodes
  gather_facts: false
  tasks:
    - ansible.builtin.command: touch "{folder}/ran-for-{{{{ inventory_hostname }}}}"
"""
ADDRESSES = {
    "lambda": "LAMBDA_API_URL",
    "vast": "VAST_URL",
    "runpod": "RUNPOD_API_URL",
    "paperspace": "PAPERSPACE_API_URL",
    "tailscale": "TAILSCALE_API_URL",
    "webhook": "WEBHOOK_URL",
}
NO_NETWORK = {"ANSIBLE_SSH_ARGS": "-o ProxyCommand=/bin/false", "ANSIBLE_HOST_KEY_CHECKING": "False", "ANSIBLE_NOCOLOR": "1"}


@pytest.fixture
def environment(rig: Rig) -> t.Iterator[dict[str, str]]:
    """The services of the rig on ports, and the variables that point Ansible at them."""
    rig.provision(nodes=2)
    rig.clock.run_at(1)
    ports = {name: Port(name, rig.box.apps[name]) for name in ADDRESSES}
    cluster = KubeServer(rig.api, app=t.cast(t.Any, rig.box.apps["kubernetes"])).start()
    kubeconfig = rig.folder / "kubeconfig-of-ansible"
    rig.api.write_kubeconfig(str(kubeconfig), cluster.url)
    yield {
        **os.environ,
        **{variable: ports[name].url for name, variable in ADDRESSES.items()},
        **{
            name: value
            for name, value in rig.world.secrets.items()
            if name.endswith(("_API_KEY", "_CONTENTS")) or name.startswith("TS_OAUTH_")
        },
        "KUBECONFIG": str(kubeconfig),
        **NO_NETWORK,
    }
    cluster.stop()
    for port in ports.values():
        port.stop()


def test_a_task_for_gpu_nodes_does_not_run_on_the_controller(rig: Rig, environment: dict[str, str], tmp_path: Path) -> None:
    inventory, play, marks = tmp_path / "gpu.tgp.yml", tmp_path / "play.yml", tmp_path / "marks"
    inventory.write_text(f"plugin: tgp.gpu.nodes\ndocuments: [{DEMO}]\n")
    play.write_text(PLAY.format(folder=marks))
    marks.mkdir()
    command = [str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(inventory), str(play)]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False)
    text, names = run.stdout + run.stderr, sorted(one.name for one in rig.machines())
    assert len(names) == 2 and all(name in run.stdout for name in names), f"the inventory does not list the machines:\n{text}"
    assert sorted(file.name for file in marks.iterdir()) == [], f"tasks for machines ran on the controller\n{text}"
    assert run.returncode != 0 and run.stdout.count("unreachable=1") == len(names), text
