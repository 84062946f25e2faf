#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_adopt
short_description: Take over the machines of a lost record store, one machine made by hand, or those of tgp-operator
description:
  - Each record store has a generation, a UUID that its machines are stamped with. Machines of this cluster that carry another generation are
    reported and never changed, because another cluster with the same id may run them.
  - Without O(generation) this module lists such machines.
  - With O(generation) the record store goes on with that generation. It changes this one record and no machine. The next C(reap.yml) adopts
    the machines that show signs of life, and terminates the others as orphans.
  - Use it after the records of a cluster were lost. Do not use it in a copy of a cluster that still runs.
  - With O(id) it takes one machine into O(pool) that a person made at a provider, and that may work as a Node already. It writes a claim, gives
    the Node its labels and taints, and gives the machine name and stamp as far as the provider can change them. No pod is moved.
  - The bill of the machine begins at that moment. From then on the rules of the pool hold for it, and the machine is terminated like any other.
  - It refuses what it cannot be sure of, among others a list that cannot be read, a machine with the stamp of another cluster, one that has a
    claim, and one that does not fit the class.
  - With O(from_operator) it adopts the machines of a tgp-operator installation in the same way. It reads the objects of tgp-operator and
    changes none of them. What cannot be adopted stays as it is, and is in RV(not_adopted) with its reason. While the controller of
    tgp-operator runs, nothing is adopted.
version_added: 0.2.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
options:
  generation:
    description: Generation of the machines to take over.
    type: str
  pool:
    description:
      - Pool into which the machine O(id) is adopted, as a name or as namespace/name.
      - With O(from_operator), the pool of machines whose objects name none, which are those of GPURequests. Others go to the pool that has the
        name of their C(tgp.io/nodepool).
    type: str
    version_added: 0.3.0
  provider:
    description: Provider of the machine O(id).
    type: str
    version_added: 0.3.0
  id:
    description: The id that the provider shows of the machine. At Google it is zone/name.
    type: str
    version_added: 0.3.0
  node:
    description: Node that runs on the machine O(id). Without it a Node of the machine's name is looked for.
    type: str
    version_added: 0.3.0
  apply:
    description: Adopt the machine O(id), or those of O(from_operator). Otherwise the module shows what it would do, and changes nothing.
    type: bool
    default: false
    version_added: 0.3.0
  from_operator:
    description: Adopt the machines of a tgp-operator installation in this cluster.
    type: bool
    default: false
    version_added: 0.3.0
  lock_wait:
    description: Seconds to wait for another run to finish.
    type: int
    default: 0
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
- name: Which machines carry another generation?
  tgp.gpu.fleet_adopt:
    documents: [examples/lambda.yml]

- name: Which machines of tgp-operator could be adopted?
  tgp.gpu.fleet_adopt:
    documents: [examples/lambda.yml]
    pool: lambda
    from_operator: true
"""

RETURN = r"""
generation:
  description: Generation that new machines are stamped with; empty if none was drawn yet.
  type: str
  returned: without O(id) and O(from_operator)
earlier:
  description: Other generations whose machines belong to this store.
  type: list
  elements: str
  returned: without O(id) and O(from_operator)
machines:
  description:
    - Machines that carried another generation before this call. Each has C(generation), C(name), C(cloud), C(id), C(price_hour) and
      C(mesh_online).
    - With O(id) it is that machine, with O(from_operator) those that are or would be adopted. Each has C(name), C(pool), C(cloud), C(id),
      C(node), C(price_hour) and C(changes), which says what is or would be changed.
  type: list
  elements: dict
  returned: always
adopted:
  description: Names of those that belong to this store now.
  type: list
  elements: str
  returned: always
not_adopted:
  description:
    - Machines and objects of tgp-operator that are not adopted. Each has C(source) (what names it), C(provider), C(id), C(node), C(pool) and
      C(reason).
  type: list
  elements: dict
  returned: with O(from_operator)
"""

from ..module_utils.core.task import Task, main
from ..module_utils.observe.options import FLEET_SPEC
from ..module_utils.operations.moving.adopt_machine import adopt_machine
from ..module_utils.operations.moving.import_operator import import_operator
from ..module_utils.runs.adopt import adopt_generation

SPEC = dict(
    argument_spec=dict(
        generation=dict(type="str"),
        pool=dict(type="str"),
        provider=dict(type="str"),
        id=dict(type="str"),
        node=dict(type="str"),
        apply=dict(type="bool", default=False),
        from_operator=dict(type="bool", default=False),
        lock_wait=dict(type="int", default=0),
        **FLEET_SPEC,
    ),
    supports_check_mode=True,
    run_report="whole",
)


def run(task: Task) -> dict:
    if task.params["from_operator"]:
        return import_operator(task)
    one = any(task.params[name] for name in ("id", "pool", "provider", "node"))
    return adopt_machine(task) if one else adopt_generation(task)


if __name__ == "__main__":
    main(SPEC, run)
