#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_release
short_description: Remove the finalizers of all objects before the collection is uninstalled
description:
  - GPUNodeClass, GPUNodePool and GPURequest objects with machines have a finalizer, so that a deleted object stays until its machines have
    ended. When no run comes any more, nothing would remove it. This module does, from every object of the cluster.
  - Fails while a machine has a claim, unless O(force=true).
  - Waits for the run in progress, because it would set finalizers again.
version_added: 0.2.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  force:
    description: Remove the finalizers although machines have claims. The machines continue and are billed.
    type: bool
    default: false
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
  - tgp.gpu.attributes.no_diff
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
  description: Machines that have a claim. Empty without O(force=true).
  type: list
  elements: str
  returned: success
"""

from ..module_utils.core.task import Task, main
from ..module_utils.observe.options import FLEET_SPEC
from ..module_utils.operations.release_objects import release_run

SPEC = dict(
    argument_spec=dict(
        force=dict(type="bool", default=False),
        lock_wait=dict(type="int", default=900),
        **FLEET_SPEC,
    ),
    supports_check_mode=True,
    run_report="whole",
)


def run(task: Task) -> dict:
    return release_run(task)


if __name__ == "__main__":
    main(SPEC, run)
