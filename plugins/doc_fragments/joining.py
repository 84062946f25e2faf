# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Documentation of the options of JOIN_SPEC (module_utils/observe/options.py), for modules that join machines while they rent others."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  join:
    description:
      - Follow each machine from the moment it is rented until it is usable, as M(tgp.gpu.fleet_join) does, beside machines that are on their
        way already. A machine that fails is terminated while others are still rented.
      - A machine whose WireGuard hub is configured by tasks of the playbook is only rented, and named in RV(unjoined).
    type: bool
    default: false
  wanted:
    description:
      - With O(join), how many machines each pool shall have, as M(tgp.gpu.fleet_plan) returns it.
      - A machine of such a pool that fails to join is replaced in the same run, by the rules and limits of mode V(provision). After three
        failed joins within an hour the pool is paused. The result of a machine is C(replaced) once its replacement is usable.
    type: dict
    default: {}
  join_names:
    description: With O(join), follow only these of the machines that are on their way already. Empty means all of them.
    type: list
    elements: str
    default: []
"""
