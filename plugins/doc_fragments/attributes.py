# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What modules can promise: ``tgp.gpu.attributes`` for those that change something, ``tgp.gpu.attributes.no_diff`` for those of them whose
changes are no text that could be compared, ``tgp.gpu.attributes.info`` for those that read. Besides one of these, all that run through
plugins/action/in_process.py have ``tgp.gpu.attributes.controller``: where they run, and what they need there."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
attributes:
  check_mode:
    description: Says what would be done and does nothing.
    support: full
  diff_mode:
    description: Returns what changes, or would change, as before and after.
    support: full
"""

    NO_DIFF = r"""
attributes:
  check_mode:
    description: Says what would be done and does nothing.
    support: full
  diff_mode:
    description: Returns what changes, or would change, as before and after.
    support: none
"""

    INFO = r"""
attributes:
  check_mode:
    description: Only reads, so it does in check mode what it always does.
    support: full
  diff_mode:
    description: Returns what changes, or would change, as before and after.
    support: none
"""

    CONTROLLER = r"""
requirements:
  - ansible-core >= 2.19
  - httpx >= 0.28, < 1
attributes:
  action:
    description: Has an action plugin that runs on the controller.
    support: full
    details: The whole module runs there, in the process of the playbook, whatever the host of the task is.
  async:
    description: Can be used with the C(async) keyword.
    support: full
    details:
      - With C(poll) greater than 0, C(async) is a time limit for the same call.
      - With C(poll=0) the job runs on the controller, too. M(ansible.builtin.async_status) finds it with C(delegate_to=localhost).
  become:
    description: Can be used with the C(become) keywords.
    support: none
    details: Runs as the user who started the playbook. Warns of C(become).
  bypass_host_loop:
    description: Runs once for all hosts of the play instead of once for each.
    support: none
    details: Use C(hosts=localhost) or C(run_once) to call it once.
  connection:
    description: Uses the connection of the task's host to run code there.
    support: none
    details:
      - No connection is made, and C(remote_user) and C(ansible_python_interpreter) of the host have no effect.
      - Warns when the connection would lead to another host. C(hosts=localhost) or C(delegate_to=localhost) says what happens anyway.
  delegation:
    description: Can be used with C(delegate_to) to run on another host.
    support: none
    details: Runs on the controller wherever C(delegate_to) sends the task.
  platform:
    description: Systems of the controller on which it runs.
    platforms: posix
    support: full
"""
