#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_join
short_description: Wait until rented machines are nodes, mark them, and stop paying for those that never come
description:
  - Follows every machine that is on its way - instance, mesh device, certificate request, Node, labels, Ready, GPUs - all at once and
    with one watch on the API server.
  - A node that is complete gets its labels and annotations, loses the startup taint and counts as C(Ready) at once, whatever the others do.
  - A container of lane C(service) is complete when it is in the tailnet and its health path answers; it gets a Service in the cluster and
    a line in its pool's list of endpoints.
  - A machine that is not complete at its deadline, or that never can be, is explained on one screen (docs/how_to/diagnosis.md), terminated and
    booked as a failed join. What was seen of it stays in an evidence file without secrets below C(state_dir)/evidence.
  - Nodes in use whose labels, annotations or taints of ours were changed or lost get them back (C(result) is C(repaired)).
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
requirements:
  - h2 >= 4.1 (for O(talosconfig))
options:
  names:
    description: Only these claims. Empty means all that are on their way.
    type: list
    elements: str
    default: []
  wait:
    description:
      - Wait until each machine is usable or its time is over.
      - With V(false) nobody is waited for. Machines that only lack our marks get them, those that ask for a certificate get it, and the next
        run goes on with all others.
    type: bool
    default: true
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
- name: Wait for the machines that fleet_launch rented
  tgp.gpu.fleet_join:
    run_id: "{{ plan_result.run_id }}"
    documents: [examples/lambda.yml]
  register: join_result
"""

RETURN = r"""
machines:
  description:
    - One entry per machine, with C(name), C(pool), C(cloud), C(result), C(phase), C(price_hour), C(message), and C(seen), the time at
      which each of its steps was first seen.
    - C(diagnosis) of one that failed has C(code), C(step), C(cause), C(remedy), C(evidence), C(looked_at), C(certain) and C(file), the
      evidence file on this machine. It is null otherwise.
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
from ..module_utils.runs.machines import join_step

SPEC = dict(
    argument_spec=dict(
        names=dict(type="list", elements="str", default=[]),
        wait=dict(type="bool", default=True),
        **FLEET_SPEC,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    return join_step(task)


if __name__ == "__main__":
    main(SPEC, run)
