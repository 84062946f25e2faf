#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_scale
short_description: Rent and terminate what a plan decided, side by side
description:
  - Does what M(tgp.gpu.fleet_launch) does for claims that wait for their machine, and what M(tgp.gpu.fleet_teardown) does for those to be
    terminated, at the same time. No launch waits for a drain, and no drain for a launch.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
requirements:
  - h2 >= 4.1 (for O(talosconfig))
options:
  names:
    description: Only these claims. Empty means all that wait for their machine or are to be terminated.
    type: list
    elements: str
    default: []
  only_named:
    description:
      - Take O(names) as it stands, so that an empty one means no machine at all.
      - Needed wherever O(names) is what a plan decided. A plan with nothing but orphans names no claim, and those that it left waiting,
        for a limit or a budget, must not be rented for.
    type: bool
    default: false
  orphans:
    description: Things without a claim to be removed, as M(tgp.gpu.fleet_plan) returns them.
    type: list
    elements: dict
    default: []
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
- name: Rent and terminate what fleet_plan decided
  tgp.gpu.fleet_scale:
    run_id: "{{ plan_result.run_id }}"
    names: "{{ plan_result.launch + plan_result.destroy }}"
    only_named: true
    orphans: "{{ plan_result.orphans }}"
    documents: [examples/lambda.yml]
  register: scale_result
"""

RETURN = r"""
machines:
  description: One entry per machine, with C(name), C(pool), C(cloud), C(result), C(phase), C(price_hour) and C(message). A machine that
    was joined has the entry that M(tgp.gpu.fleet_join) returns.
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
from ..module_utils.runs.machines import scale_step

SPEC = dict(
    argument_spec=dict(
        names=dict(type="list", elements="str", default=[]),
        only_named=dict(type="bool", default=False),
        orphans=dict(type="list", elements="dict", default=[]),
        **JOIN_SPEC,
        **FLEET_SPEC,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    return scale_step(task)


if __name__ == "__main__":
    main(SPEC, run)
