# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A module that runs inside the play's worker finds what a process of its own would find."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def test_the_keyword_environment_holds_for_modules_inside_the_worker(tmp_path: Path) -> None:
    play = tmp_path / "play.yml"
    play.write_text(PLAY)
    own = {name: value for name, value in os.environ.items() if not name.startswith("TGP_")}
    done = subprocess.run(
        [str(Path(sys.executable).parent / "ansible-playbook"), str(play)],
        env={**own, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "0", "ANSIBLE_LOCAL_TEMP": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "127.0.0.2 then 127.0.0.3 then 127.0.0.1" in done.stdout
