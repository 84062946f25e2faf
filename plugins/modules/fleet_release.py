#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_release
short_description: Hand a machine out, or remove all finalizers before the collection is uninstalled
description:
  - GPUNodeClass, GPUNodePool and GPURequest objects with machines have a finalizer, so that a deleted object stays until its machines have
    ended. When no run comes any more, nothing would remove it. This module does, from every object of the cluster.
  - Fails while a machine has a claim, unless O(force=true).
  - Waits for the run in progress, because it would set finalizers again.
  - With O(machine) it hands out that one machine instead. The machine runs on and its pods stay. The record store remembers its id, so that no
    run changes or ends it any more. Labels, annotations and taints of ours leave its Node, name and stamp leave the machine as far as the
    provider can change them, its line in the bill is closed, and its claim is removed. From then on its owner has to end it.
version_added: 0.2.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  force:
    description: Remove the finalizers although machines have claims. The machines continue and are billed.
    type: bool
    default: false
  machine:
    description: Name of the machine to hand out. No finalizer is removed then.
    type: str
    version_added: 0.3.0
  lock_wait:
    description: Seconds to wait for another run to finish.
    type: int
    default: 900
extends_documentation_fragment:
  - tgp.gpu.fleet
  - tgp.gpu.kubernetes
  - tgp.gpu.claims
  - tgp.gpu.clouds
  - tgp.gpu.tailscale
  - tgp.gpu.attributes
  - tgp.gpu.attributes.controller
"""

EXAMPLES = r"""
- name: Let all objects go
  tgp.gpu.fleet_release:
    force: true
"""

RETURN = r"""
objects:
  description: Objects whose finalizer was removed, or would be in check mode.
  type: list
  elements: str
  returned: success
machines:
  description: Machines that have a claim. Empty without O(force=true). With O(machine) it is the machine that was handed out.
  type: list
  elements: str
  returned: success
"""

from ..module_utils.core.task import Task, main
from ..module_utils.observe.options import FLEET_SPEC
from ..module_utils.operations.moving.release_machine import release_machine
from ..module_utils.operations.release_objects import release_run

SPEC = dict(
    argument_spec=dict(
        force=dict(type="bool", default=False),
        machine=dict(type="str"),
        lock_wait=dict(type="int", default=900),
        **FLEET_SPEC,
    ),
    supports_check_mode=True,
    run_report="whole",
)


def run(task: Task) -> dict:
    return release_machine(task) if task.params["machine"] else release_run(task)


if __name__ == "__main__":
    main(SPEC, run)
