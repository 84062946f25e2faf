# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module that runs inside the play's worker finds what a process of its own would find."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.tgp.gpu.plugins.action.in_process import explained

from tests.fixtures.talos_nodes import CONFIG, NODE_KEY, NODE_TOKEN

PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  environment:
    TGP_CONTROL_PLANE_ENDPOINT: https://127.0.0.1:9
  tasks:
    - name: What the task says goes before what the play says, and is that of each item
      tgp.gpu.control_plane_info:
        talos: false
      environment:
        TGP_CONTROL_PLANE_ENDPOINT: "https://{{ item }}:9"
      loop: [127.0.0.2, 127.0.0.3]
      register: own
    - name: The play's alone
      tgp.gpu.control_plane_info:
        talos: false
      register: common
    - ansible.builtin.debug:
        msg: "{{ (own.results + [common]) | map(attribute='doors') | flatten | map(attribute='host') | join(' then ') }}"
"""


def played(play: Path) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("TGP_")}
    return subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), "-v", str(play)],
        env={**own, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0", "ANSIBLE_LOCAL_TEMP": str(play.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_keyword_environment_holds_for_modules_inside_the_worker(tmp_path: Path) -> None:
    play = tmp_path / "play.yml"
    play.write_text(PLAY)
    done = played(play)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "127.0.0.2 then 127.0.0.3 then 127.0.0.1" in done.stdout


def test_words_of_a_configuration_given_as_a_mapping_mask_no_names(tmp_path: Path) -> None:
    """A worker's configuration has secrets, and words like ``worker`` and ``1`` beside them, of which names of machines are made."""
    given = {**CONFIG, "machine": {**CONFIG["machine"], "type": "worker", "sysctls": {"kernel.kexec_load_disabled": "1"}}}
    task = {
        "talos_secrets": given,
        "dest": str(tmp_path / "configs"),
        "kubernetes_version": "1.36.3",
        "nodes": [{"name": "tgp-worker-1", "pool": "worker", "bootstrap_token": NODE_TOKEN, "auth_key": NODE_KEY}],
    }
    steps = [
        {"tgp.gpu.talos_config": task, "register": "made"},
        {"ansible.builtin.debug": {"msg": "{{ made.configs[0].name }} in {{ made.configs[0].path | basename }}"}},
    ]
    play = tmp_path / "play.yml"
    play.write_text(yaml.safe_dump([{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": steps}]))
    done = played(play)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tgp-worker-1 in tgp-worker-1.yaml" in done.stdout
    assert CONFIG["machine"]["token"] not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "value of mode must be one of: reap, destroy, got: distroy",
            "value of mode must be one of: reap, destroy, got: distroy. Did you mean destroy?",
        ),
        (
            "value of lanes must be one or more of: node, service. Got no match for: nod",
            "value of lanes must be one or more of: node, service. Got no match for: nod. Did you mean node?",
        ),
        ("value of mode must be one of: reap, destroy, got: 7", "value of mode must be one of: reap, destroy, got: 7"),
        (
            "Unsupported parameters for (tgp.gpu.x) module: pol. Supported parameters include: force, mode, pools.",
            "Unsupported parameters for (tgp.gpu.x) module: pol. Supported parameters include: force, mode, pools. Did you mean pools?",
        ),
        (
            "argument 'all' is of type str and we were unable to convert to bool",
            "argument 'everything' is of type str and we were unable to convert to bool",
        ),
        ("missing required arguments: mode", "missing required arguments: mode"),
    ],
)
def test_messages_about_arguments_say_what_was_meant(message: str, said: str) -> None:
    assert explained(message, ["force", "mode", "pools"], {"all": "everything"}) == said
