#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_plan
short_description: Plan what to rent and what to terminate, and record the plan
description:
  - Observes clouds, mesh, cluster and claims, and works out by pure rules what should happen, with a reason and a price for each step.
  - In check mode that plan is all that happens; nothing is written anywhere.
  - Otherwise the decisions are written into the claims (new machines as C(Pending), machines to terminate with their reason), so that
    M(tgp.gpu.fleet_launch) and M(tgp.gpu.fleet_teardown) can carry them out, now or in a later run.
  - With O(documents_from_cluster=true) what becomes of each object is written into its status, once the plan is recorded
    (docs/how_to/cluster_objects.md). A status that cannot be written is one of RV(problems).
  - Takes the run lock and keeps it until M(tgp.gpu.fleet_unlock), because plan and launch have to see the same world.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  mode:
    description:
      - V(provision) brings pools up to the wanted number of machines.
      - V(reap) terminates what is idle, expired, broken or orphaned.
      - V(everything) is both in one; a pool that gets a machine gives none of the same shape back.
      - V(autoscale) is V(reap), and rents what C(minNodes), C(replicas), GPURequests and pods that wait for GPUs ask for; it takes no
        O(pools) or O(nodes).
      - V(destroy) terminates what O(names), O(pools) or O(all) say.
    type: str
    choices: [provision, reap, everything, autoscale, destroy]
    required: true
  pools:
    description:
      - Only these pools, by name or namespace/name, get machines (V(provision), V(everything)) or are terminated (V(destroy)). Empty means
        all for the first two.
      - What goes by itself goes from all pools, so V(reap) and V(autoscale) refuse it.
    type: list
    elements: str
    default: []
  nodes:
    description:
      - How many machines each pool shall have, those that exist included. A number for every chosen pool, or a mapping of pools to numbers.
      - Without it every pool gets its C(replicas) or C(minNodes), and so does a pool that a mapping does not name.
      - In mode V(provision), without O(save_to) and without any number, a pool that has neither gets one machine, and the output says so.
      - A number that differs from the C(replicas) of a pool is refused.
      - For V(provision) and V(everything).
    type: raw
  names:
    description: Machines to terminate, by name (V(destroy)).
    type: list
    elements: str
    default: []
  all:
    description: Terminate every machine of this cluster (V(destroy)); not together with O(names) or O(pools).
    type: bool
    default: false
  force:
    description: Terminate although pods refuse to leave (V(destroy)); they are deleted when the drain's time is over.
    type: bool
    default: false
  migrate:
    description:
      - Also replace machines that are in another mesh than the class of their pool enters today, one by one within the disruption budgets,
        whatever C(driftPolicy) says (docs/how_to/migrate_mesh.md). A machine that needs a replacement is drained when that is usable.
      - For V(autoscale).
    type: bool
    default: false
    version_added: 0.3.0
  migrate_pools:
    description: Only these pools, by name or namespace/name, are migrated with O(migrate=true). Empty means all.
    type: list
    elements: str
    default: []
    version_added: 0.3.0
  save_to:
    description:
      - Save the plan to this file (mode 0600, JSON as in schemas/plan.schema.json) and do nothing else. Nothing is recorded and no lock is
        taken; M(tgp.gpu.fleet_apply) does what the file says, within 30 minutes. In check mode the file is not written either.
      - The result is C(changed) when the file says something else than before.
    type: path
  lock_wait:
    description:
      - Seconds to wait for another run to finish. A line a minute says who holds the lock.
      - Without it 900; 0 with O(mode=reap), O(mode=autoscale) or O(on_lock_busy=skip).
    type: int
  on_lock_busy:
    description:
      - What to do when another run is still at work. V(skip) ends without a change, V(fail) fails.
      - Without it V(fail), and V(skip) with O(mode=reap) and O(mode=autoscale), which a timer starts again.
    type: str
    choices: [skip, fail]
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
- name: What would one machine for every pool cost now?
  tgp.gpu.fleet_plan:
    mode: provision
    documents: [examples/lambda.yml]
    nodes: 1
  check_mode: true

- name: Save what would be rented and terminated, for approval
  tgp.gpu.fleet_plan:
    mode: everything
    documents: [examples/lambda.yml]
    save_to: plan.json

- name: Decide what to rent, and record it
  tgp.gpu.fleet_plan:
    mode: provision
    documents: [examples/lambda.yml]
    nodes:
      default/a10: 1
  register: plan_result
"""

RETURN = r"""
run_id:
  description: Names this run in records, locks and logs. Hand it to the following tasks.
  type: str
  returned: always
outcome:
  description: C(ok), C(shortfall), C(guard_refused), C(partial) or C(lock_busy).
  type: str
  returned: always
plan:
  description: One entry per step, with C(action), C(name), C(pool), C(reason), C(detail) and C(price_hour).
  type: list
  elements: dict
  returned: always
summary:
  description: Counts and prices, per hour and per day.
  type: dict
  returned: always
shortfall:
  description: Machines that were wanted and will not come, with the first reason.
  type: list
  elements: dict
  returned: always
launch:
  description: Names of the claims that wait for their machine.
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
waiting:
  description: Pods that wait for GPUs, with C(pod), C(gpus), C(pool), C(machine) that they are counted on, or the first C(reason) why there
    is none for them.
  type: list
  elements: dict
  returned: with O(mode=autoscale)
gpus:
  description: GPUs per pool, C(wanted), C(used), C(free), C(coming) and C(waiting), and its Ready C(machines).
  type: list
  elements: dict
  returned: with O(mode=autoscale)
join:
  description: Machines that only lack our marks, or that may be asking for their certificate, for M(tgp.gpu.fleet_join) with
    O(tgp.gpu.fleet_join#module:wait=false).
  type: list
  elements: str
  returned: with O(mode=autoscale)
problems:
  description: What went wrong without stopping the run; a play should fail at its end when it is not empty.
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
migration:
  description: How far the migration to another mesh is, by what was observed and planned. C(machines) has a row for each machine of the
    pools, with its C(mesh), the mesh that is C(wanted), its C(state), and what it costs to have it and its replacement. C(unfinished) are
    those that still have to move, C(kept) those of them that do not move yet, each with the reason; C(under_way) says whether any moves.
  type: dict
  returned: with O(migrate=true)
  version_added: 0.3.0
wanted:
  description: In mode V(provision), how many machines each pool shall have, by the key of the pool, for O(tgp.gpu.fleet_launch#module:wanted).
  type: dict
  returned: always
"""

from ..module_utils.core.task import Task, main
from ..module_utils.observe.options import FLEET_SPEC
from ..module_utils.runs.plan import plan_run

SPEC = dict(
    argument_spec=dict(
        mode=dict(type="str", choices=["provision", "reap", "everything", "autoscale", "destroy"], required=True),
        pools=dict(type="list", elements="str", default=[]),
        nodes=dict(type="raw"),
        names=dict(type="list", elements="str", default=[]),
        all=dict(type="bool", default=False),
        force=dict(type="bool", default=False),
        migrate=dict(type="bool", default=False),
        migrate_pools=dict(type="list", elements="str", default=[]),
        save_to=dict(type="path"),
        lock_wait=dict(type="int"),
        on_lock_busy=dict(type="str", choices=["skip", "fail"]),
        **FLEET_SPEC,
    ),
    supports_check_mode=True,
)


def run(task: Task) -> dict:
    return plan_run(task)


if __name__ == "__main__":
    main(SPEC, run)
