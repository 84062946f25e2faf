#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_apply
short_description: Record what a saved plan says, as far as it still holds
description:
  - Reads a plan that M(tgp.gpu.fleet_plan) saved, looks at everything again, and holds every step of it against what it sees.
  - A step whose ground is gone is refused with the reason (its claim is gone, its node is busy, held or another one, its offer costs more
    than five per cent above the plan, a limit would be passed ...). The others are recorded, so that M(tgp.gpu.fleet_launch) and
    M(tgp.gpu.fleet_teardown) carry them out. Nothing is added to what the plan says.
  - Applying a plan again is safe. Names of new machines stand in the plan, so no machine is launched twice.
  - A plan is good for 30 minutes, for its own cluster only, and only as it was written. See docs/how_to/plans.md.
  - Takes the run lock and keeps it until M(tgp.gpu.fleet_unlock).
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  file:
    description: The file that M(tgp.gpu.fleet_plan) wrote.
    type: path
    required: true
  accept_refused:
    description: Do not fail because of refused steps. They are reported all the same, and RV(outcome) is C(partial).
    type: bool
    default: false
  lock_wait:
    description:
      - Seconds to wait for another run to finish. A line a minute says who holds the lock.
      - Without it 900; 0 with O(on_lock_busy=skip).
    type: int
  on_lock_busy:
    description: What to do when another run is still at work. V(skip) ends without a change, V(fail) fails.
    type: str
    choices: [skip, fail]
    default: fail
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
- name: What of the plan still holds?
  tgp.gpu.fleet_apply:
    file: plan.json
    documents: [examples/lambda.yml]
  check_mode: true

- name: Record what was approved, as far as it still holds
  tgp.gpu.fleet_apply:
    file: plan.json
    documents: [examples/lambda.yml]
  register: plan_result

- name: Let other runs begin
  tgp.gpu.fleet_unlock:
    run_id: "{{ plan_result.run_id }}"
"""

RETURN = r"""
run_id:
  description: Names this run in records, locks and logs. Hand it to the following tasks.
  type: str
  returned: always
plan_run_id:
  description: The run that made the plan.
  type: str
  returned: always
outcome:
  description: C(ok), C(partial) when a step was refused, or C(lock_busy).
  type: str
  returned: always
same_world:
  description: Whether claims, Nodes and the prices of the chosen offers are those that the plan was made from.
  type: bool
  returned: when the lock was not busy
steps:
  description:
    - One entry per step of the plan, with C(action), C(name), C(pool), C(reason), C(target), C(price_hour), C(result) and C(why).
    - C(result) is C(applied), C(refused), or C(done) for what an earlier application did, or what came about by itself.
  type: list
  elements: dict
  returned: always
plan:
  description: What is carried out, as M(tgp.gpu.fleet_plan) returns it.
  type: list
  elements: dict
  returned: always
summary:
  description: Counts and prices, per hour and per day.
  type: dict
  returned: always
launch:
  description: Names of the claims that wait for their machine.
  type: list
  elements: str
  returned: always
join:
  description: Names of the plan's machines that may still be on their way, those of an earlier application included.
  type: list
  elements: str
  returned: always
destroy:
  description: Names of the claims to be taken down.
  type: list
  elements: str
  returned: always
orphans:
  description: Things of ours without a claim that M(tgp.gpu.fleet_teardown) removes.
  type: list
  elements: dict
  returned: always
problems:
  description: One sentence per refused step, unless O(accept_refused); a play should fail at its end when it is not empty.
  type: list
  elements: str
  returned: always
unrecorded:
  description: Claims that could not be written, so that nothing of what was decided about them is done in this run.
  type: list
  elements: str
  returned: always
hubs:
  description: WireGuard hubs that classes name, each with C(host), C(interface), C(cluster_id), the C(peers) that it is to have of this
    cluster, and machines that are C(gone) or C(unknown), for M(tgp.gpu.wireguard_peer) (docs/how_to/wireguard.md).
  type: list
  elements: dict
  returned: always
"""

from ..module_utils.core.task import Task, main
from ..module_utils.observe.options import FLEET_SPEC
from ..module_utils.runs.apply import apply_run

SPEC = dict(
    argument_spec=dict(
        file=dict(type="path", required=True),
        accept_refused=dict(type="bool", default=False),
        lock_wait=dict(type="int"),
        on_lock_busy=dict(type="str", choices=["skip", "fail"], default="fail"),
        **FLEET_SPEC,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    return apply_run(task)


if __name__ == "__main__":
    main(SPEC, run)
