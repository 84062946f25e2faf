#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_launch
short_description: Rent the machines that claims are waiting for
description:
  - For each claim in C(Pending) or C(Provisioning) it makes a one-use mesh key and an expiring bootstrap token, renders and checks the
    machine's configuration, and sends one create call. All machines are launched side by side, paced per cloud.
  - A definite refusal goes on to the next offer. A lost answer is looked up by name and never repeated blindly.
  - The machines' secrets exist only inside this task.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
requirements:
  - h2 >= 4.1 (for O(talosconfig))
options:
  names:
    description: Only these claims. Empty means all that wait.
    type: list
    elements: str
    default: []
  only_named:
    description: Take O(names) as it stands, so that an empty one means that no machine is rented.
    type: bool
    default: false
extends_documentation_fragment:
  - tgp.gpu.fleet
  - tgp.gpu.joining
  - tgp.gpu.kubernetes
  - tgp.gpu.claims
  - tgp.gpu.clouds
  - tgp.gpu.tailscale
  - tgp.gpu.attributes.no_diff
  - tgp.gpu.attributes.controller
"""

EXAMPLES = r"""
- name: Rent what fleet_plan decided
  tgp.gpu.fleet_launch:
    run_id: "{{ plan_result.run_id }}"
    documents: [examples/lambda.yml]
  register: launch_result

- name: The same, and join each machine as soon as it is rented
  tgp.gpu.fleet_launch:
    run_id: "{{ plan_result.run_id }}"
    names: "{{ plan_result.launch }}"
    only_named: true
    join: true
    documents: [examples/lambda.yml]
  register: launch_result
"""

RETURN = r"""
machines:
  description: One entry per machine, with C(name), C(pool), C(cloud), C(result), C(phase), C(price_hour), C(message) and
    C(launched), whether this task has rented or adopted it. A machine that was joined has the entry that M(tgp.gpu.fleet_join) returns.
  type: list
  elements: dict
  returned: always
outcome:
  description: C(ok), C(changed), C(partial) or C(lock_lost).
  type: str
  returned: always
problems:
  description: What went wrong without stopping the others; a play should fail at its end when it is not empty.
  type: list
  elements: str
  returned: always
unjoined:
  description: With O(join), machines that are rented and wait for their WireGuard hub. M(tgp.gpu.fleet_join) follows them.
  type: list
  elements: str
  returned: with O(join)
hubs:
  description: WireGuard hubs that classes name, each with C(host), C(interface), C(cluster_id), the C(peers) that it is to have of this
    cluster, and machines that are C(gone) or C(unknown), for M(tgp.gpu.wireguard_peer) (docs/how_to/wireguard.md).
  type: list
  elements: dict
  returned: always
"""

from ..module_utils.core.task import Task, main
from ..module_utils.observe.options import FLEET_SPEC, JOIN_SPEC
from ..module_utils.runs.machines import launch_step

SPEC = dict(
    argument_spec=dict(
        names=dict(type="list", elements="str", default=[]),
        only_named=dict(type="bool", default=False),
        **JOIN_SPEC,
        **FLEET_SPEC,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    return launch_step(task)


if __name__ == "__main__":
    main(SPEC, run)
