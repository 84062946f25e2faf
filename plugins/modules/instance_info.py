#!/usr/bin/python
# Copyright (c) 2026, the tgp.gpu contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: instance_info
short_description: The machines that exist in the clouds
description:
  - Asks the clouds side by side for all machines of their accounts, whoever made them.
  - A cloud that fails is a warning and an entry in RV(unanswered), never an empty list. When none answers, the module fails.
version_added: 0.1.0
author:
  - The tgp.gpu contributors (@tgp-gpu)
requirements:
  - cryptography >= 42 (for Google Cloud)
options:
  clouds:
    description: Clouds to ask, by any of their names. Default is all for which a key or machines are given.
    type: list
    elements: str
    default: []
  names:
    description: Only machines of these names.
    type: list
    elements: str
    default: []
  mine_only:
    description: Only machines that belong to the cluster O(cluster_id) by their name, and own machines.
    type: bool
    default: false
  cluster_id:
    description: Identity of the cluster, eight lower-case hexadecimal digits.
    type: str
extends_documentation_fragment:
  - tgp.gpu.clouds
  - tgp.gpu.attributes.info
  - tgp.gpu.attributes.controller
"""

EXAMPLES = r"""
- name: Everything in the Lambda account
  tgp.gpu.instance_info:
    clouds: [lambda]
  register: machines

- name: What it costs per hour
  ansible.builtin.debug:
    msg: "{{ machines.instances | map(attribute='price_hour') | map('float') | sum }} $/h"
"""

RETURN = r"""
instances:
  description: The machines, by cloud and name.
  returned: always
  type: list
  elements: dict
  contains:
    cloud: {description: Its cloud., type: str, returned: always, sample: lambda}
    id: {description: The cloud's id., type: str, returned: always, sample: 0920582c7ff041399e34823a0be62549}
    name: {description: Its name., type: str, returned: always, sample: tgp-demo}
    state:
      description:
        - One of pending, running, stopped, terminating, terminated, failed, unknown.
        - An own machine that is off is terminated.
      type: str
      returned: always
      sample: running
    raw_state: {description: The state in the cloud's own word., type: str, returned: always, sample: active}
    price_hour: {description: Dollars per hour., type: str, returned: always, sample: "1.29"}
    ip: {description: Public address; empty while there is none., type: str, returned: always, sample: 198.51.100.7}
    private_ip: {description: Private address., type: str, returned: always, sample: 10.19.1.2}
    region: {description: The cloud's region., type: str, returned: always, sample: us-east-1}
    instance_type: {description: The cloud's type., type: str, returned: always, sample: gpu_1x_a10}
    model: {description: GPU model., type: str, returned: always, sample: A10}
    gpu_count: {description: Number of GPUs., type: int, returned: always, sample: 1}
    created: {description: When it was made., type: str, returned: always, sample: "2026-11-20T12:00:00Z"}
    marks: {description: Marks of ours on it., type: dict, returned: always, sample: {cluster: a1b2c3d4}}
    problem: {description: What the cloud says is wrong with it., type: str, returned: always, sample: ""}
unanswered:
  description: Clouds that did not answer.
  returned: always
  type: list
  elements: dict
  contains:
    cloud: {description: Its name., type: str, returned: always, sample: lambda}
    msg: {description: What happened., type: str, returned: always, sample: "lambda: no API key is given."}
    kind: {description: Kind of failure., type: str, returned: always, sample: auth}
"""

from ..module_utils.core.errors import InvalidInput
from ..module_utils.core.task import Task, main
from ..module_utils.model import Instance
from ..module_utils.model.names import CLUSTER_ID
from ..module_utils.planner.garbage_collection.ownership import Ownership, ownership_of
from ..module_utils.providers.query_all import survey
from ..module_utils.providers.registry import CAPABILITIES, CLOUDS_SPEC
from ..module_utils.providers.results import instance_result

SPEC = dict(
    argument_spec=dict(
        clouds=dict(type="list", elements="str", default=[]),
        names=dict(type="list", elements="str", default=[]),
        mine_only=dict(type="bool", default=False),
        cluster_id=dict(type="str"),
        **CLOUDS_SPEC,
    ),
    required_if=[("mine_only", True, ["cluster_id"])],
    supports_check_mode=True,
)


def run(task: Task) -> dict[str, object]:
    params = task.params
    cluster = params["cluster_id"]
    if cluster is not None and not CLUSTER_ID.fullmatch(cluster):
        raise InvalidInput(f"cluster_id {cluster!r} should be eight lower-case hexadecimal digits.")
    answers = survey(task, params["clouds"], lambda cloud: [instance for instance in cloud.instances() if _asked(task, instance)])
    machines = sorted(answers.found, key=lambda machine: (machine.cloud, machine.name, machine.id))
    return dict(changed=False, instances=[instance_result(machine) for machine in machines], unanswered=answers.unanswered)


def _asked(task: Task, instance: Instance) -> bool:
    params = task.params
    if params["names"] and instance.name not in params["names"]:
        return False
    if not params["mine_only"] or not CAPABILITIES[instance.cloud].rented:
        return True
    unmarked = "" if CAPABILITIES[instance.cloud].stamped else params["cluster_id"]
    marked = instance.marks.get("cluster", unmarked)
    return ownership_of(instance.name, params["cluster_id"]) is Ownership.OURS and marked == params["cluster_id"]


if __name__ == "__main__":
    main(SPEC, run)
