#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_teardown
short_description: Drain and terminate the machines that a plan decided to end
description:
  - For each claim with a deletion it drains the node, destroys the machine, waits until the cloud says that it is gone, removes the mesh
    device, the key, the Node and the token, writes the ledger line and only then removes the claim. Every step is recorded before the next.
  - A voluntary drain that pods hold up to its deadline is undone; the node is usable again.
  - Whatever does not end in this run is continued by the next one. If work came meanwhile onto a node that was drained for a reason that
    can wait (Empty, Underutilized, Drifted, Replaced), its machine stays until the work has ended.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
requirements:
  - h2 >= 4.1 (for O(talosconfig))
options:
  names:
    description: Only these claims. Empty means all with a deletion.
    type: list
    elements: str
    default: []
  only_named:
    description: Take O(names) as it stands, so that an empty one means no machine at all.
    type: bool
    default: false
  unrecorded:
    description: Claims that are left out, as returned by M(tgp.gpu.fleet_plan). Its decisions about them are not stored.
    type: list
    elements: str
    default: []
  orphans:
    description: Things without a claim to remove, as returned by M(tgp.gpu.fleet_plan).
    type: list
    elements: dict
    default: []
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
- name: Decide to terminate all machines of a pool
  tgp.gpu.fleet_plan:
    mode: destroy
    pools: [a10]
    documents: [examples/lambda.yml]
  register: plan_result

- name: Terminate them
  tgp.gpu.fleet_teardown:
    run_id: "{{ plan_result.run_id }}"
    documents: [examples/lambda.yml]
    orphans: "{{ plan_result.orphans }}"
"""

RETURN = r"""
machines:
  description: One entry per machine, with C(name), C(pool), C(cloud), C(result), C(phase), C(price_hour) and C(message).
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
hubs:
  description: WireGuard hubs that classes name, each with C(host), C(interface), C(cluster_id), the C(peers) that it is to have of this
    cluster, and machines that are C(gone) or C(unknown), for M(tgp.gpu.wireguard_peer) (docs/how_to/wireguard.md).
  type: list
  elements: dict
  returned: always
"""

from ..module_utils.core.task import Task, main
from ..module_utils.observe.options import FLEET_SPEC
from ..module_utils.runs.machines import teardown_step

SPEC = dict(
    argument_spec=dict(
        names=dict(type="list", elements="str", default=[]),
        only_named=dict(type="bool", default=False),
        unrecorded=dict(type="list", elements="str", default=[]),
        orphans=dict(type="list", elements="dict", default=[]),
        **FLEET_SPEC,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    return teardown_step(task)


if __name__ == "__main__":
    main(SPEC, run)
