#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_info
short_description: Show what there is, what it costs, and what is left anywhere
description:
  - Reads claims, clouds, mesh and nodes and brings them together by name. Changes nothing and takes no lock.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  pools:
    description:
      - Only these pools, by name or namespace/name. RV(machines), RV(pools), RV(classes) and RV(totals) are then of these alone.
      - RV(ledger) and RV(spending) are always of all.
    type: list
    elements: str
    default: []
  time_zone:
    description: Whose day and month RV(spending) speaks of, for example V(Europe/Berlin).
    type: str
    default: UTC
  purchase_price:
    description: What a machine of one's own would cost in dollars; RV(spending) then says after how many hours it would have paid.
    type: str
extends_documentation_fragment:
  - tgp.gpu.fleet
  - tgp.gpu.kubernetes
  - tgp.gpu.claims
  - tgp.gpu.clouds
  - tgp.gpu.tailscale
  - tgp.gpu.attributes.info
  - tgp.gpu.attributes.controller
"""

EXAMPLES = r"""
- name: What is running?
  tgp.gpu.fleet_info:
    documents: [examples/lambda.yml]
"""

RETURN = r"""
machines:
  description:
    - One entry per machine with its claim, instance, device and node.
    - C(power_limit) is whether its node has the label C(tgp.io/power-limit=true), with which it takes part in the power limits
      (docs/how_to/gpus.md).
    - For services (lane C(service)) also C(endpoint), the address and port where the health path is asked, and C(healthy), which is null
      when it is unknown.
    - C(utilization) is the use of its busiest GPU, or V(unknown) with the reason in C(utilization_unknown). Both are empty where no pool goes
      by it (C(idleSignal)).
    - C(xids) are the XIDs of its GPUs, each with C(gpu), C(xid), C(kind) (V(machine), V(reset), V(program), V(note) or V(unknown)), C(meaning)
      and C(remedy). C(xids_unknown) says of what they are not known. Both are empty where no pool goes by its dcgm-exporter.
    - C(gpus_shown) is how many GPUs (or slices) the Node shows, null when that is unknown, C(missing_gpus_cost) what was paid so far for those
      that it lacked, and C(signs) are conditions, taints and XIDs by which it may be broken.
  type: list
  elements: dict
  returned: always
pools:
  description:
    - One entry per pool or request (C(kind)) that a document describes or a machine has, by its key C(name).
    - C(wanted) is what its document asks for by itself (C(replicas), C(minNodes), the one machine of a request), whatever pods wait.
    - C(ready), C(launching) and C(terminating) count machines, C(max_nodes) bounds them, C(price_hour) is what they cost in an hour.
    - C(budget), C(spent) and C(period) of its own budget are empty without one. C(idle_since) is that of the machine that is idle longest.
    - C(next) says in words what the next run does in it, and from when on.
  type: list
  elements: dict
  returned: always
classes:
  description:
    - One entry per class, with the number of its C(pools), C(max_nodes), C(max_hourly_cost), and otherwise as RV(pools) has it.
  type: list
  elements: dict
  returned: always
totals:
  description: Number of instances, devices, keys, bootstrap tokens, nodes and claims of this cluster, price per hour now, cost so far.
  type: dict
  returned: always
ledger:
  description: Closing lines of machines that are gone.
  type: list
  elements: dict
  returned: always
spending:
  description:
    - Dollars per hour now, today and this month so far and at their end if nothing changes, the state of each budget, and after how many hours
      a bought machine pays.
    - C(whole) is false when lines of the ledger cannot be read; sums are then "at least".
  type: dict
  returned: always
store:
  description:
    - Identity of the record store, C(cluster_id) and C(generation), the UUID that machines are stamped with.
    - C(generation) is empty until a run that changes something has drawn it.
  type: dict
  returned: always
foreign:
  description:
    - Machines with names of this cluster that are not ours, each with C(name), C(cloud), C(id) and C(why). They count nowhere else.
  type: list
  elements: dict
  returned: always
unknown:
  description: Sources that could not be read.
  type: list
  elements: str
  returned: always
paused:
  description:
    - Pools of which nothing is launched or terminated, each with C(pool), C(why), C(machines) and C(price_hour), dollars per hour of its
      machines together.
  type: list
  elements: dict
  returned: always
blocked:
  description:
    - What is not rented for a while after a failure, each with C(key) and C(until), and as far as known C(since), C(reason), C(why) in words
      and C(claim), the machine. A key is that of an offer, a host, a provider or a pool.
  type: list
  elements: dict
  returned: always
stopped:
  description:
    - Own machines that are stopped and whose pool has C(deleteStoppedAfter), each with C(name), C(node), C(pool), C(text) in words,
      C(stopped_since) and C(removed_at), when its Node is removed. Times are empty where they are unknown, or where something keeps it.
  type: list
  elements: dict
  returned: always
"""

from ..module_utils.core.task import Task, main
from ..module_utils.observe.options import FLEET_SPEC
from ..module_utils.reports.status import overview

SPEC = dict(
    argument_spec=dict(
        pools=dict(type="list", elements="str", default=[]),
        time_zone=dict(type="str", default="UTC"),
        purchase_price=dict(type="str"),
        **FLEET_SPEC,
    ),
    supports_check_mode=True,
    run_report="none",
)


def run(task: Task) -> dict:
    return overview(task)


if __name__ == "__main__":
    main(SPEC, run)
