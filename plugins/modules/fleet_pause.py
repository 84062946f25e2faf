#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_pause
short_description: Pause pools, and resume them
description:
  - While a pool is paused, no run launches, drains or terminates anything of it. Machines that run go on running and are billed. Expiry,
    budgets and price limits end nothing meanwhile, and every run says what is paused and what it costs.
  - A termination whose drain has ended is finished. C(destroy.yml) terminates what is named, paused or not.
  - A pause is an entry in a record beside the claims. A document can be paused instead by the annotation C(tgp.io/paused), whose value is
    V(true) or a reason. This module does not end a pause of an annotation, and fails when one remains.
  - Waits for the run in progress, so that no run goes on without knowing of the pause when this module has ended.
version_added: 0.2.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  state:
    description: Whether to pause or to resume.
    type: str
    choices: [paused, resumed]
    default: paused
  pools:
    description:
      - Pools and requests, as C(namespace/name), or C(name) where only one has it.
      - Without O(pools) and O(classes) everything is meant. To resume everything ends every pause of the record.
    type: list
    elements: str
    default: []
  classes:
    description: Classes; all pools of a class are meant, whenever they are made.
    type: list
    elements: str
    default: []
  reason:
    description: Why, for the people who read it. A pause that is there keeps its time.
    type: str
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
- name: Pause one pool
  tgp.gpu.fleet_pause:
    documents: [examples/lambda.yml]
    pools: [default/a10]
    reason: the provider has an incident

- name: End every pause of the record
  tgp.gpu.fleet_pause:
    documents: [examples/lambda.yml]
    state: resumed
"""

RETURN = r"""
pauses:
  description:
    - Pauses of the record after this call, those of annotations aside.
    - Each has C(scope) (V(all), V(class) or V(pool)), C(name), C(why) and C(since).
  type: list
  elements: dict
  returned: success
paused:
  description:
    - Pools that are paused after this call, whatever paused them.
    - Each has C(pool), C(why), C(machines) and C(price_hour), what its machines cost per hour together.
  type: list
  elements: dict
  returned: success
"""

from ..module_utils.core.task import Task, main
from ..module_utils.observe.options import FLEET_SPEC
from ..module_utils.runs.pause import pause_run

SPEC = dict(
    argument_spec=dict(
        state=dict(type="str", choices=["paused", "resumed"], default="paused"),
        pools=dict(type="list", elements="str", default=[]),
        classes=dict(type="list", elements="str", default=[]),
        reason=dict(type="str"),
        lock_wait=dict(type="int", default=900),
        **FLEET_SPEC,
    ),
    supports_check_mode=True,
    run_report="whole",
)


def run(task: Task) -> dict:
    return pause_run(task)


if __name__ == "__main__":
    main(SPEC, run)
